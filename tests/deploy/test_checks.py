"""`accord deploy check`, with real certificates, keys, folders, sockets and TLS. With a SuperLink:
integration/test_flower_check.py."""

import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from accord.core.errors import AccordError
from accord.deploy.checks import Finding, Host, certificates, check_node, check_server, files, network, software
from accord.deploy.checks.host import address
from command import accord, environment, refused

Key = ec.EllipticCurvePrivateKey
HOSTS = Path(__file__).parents[2] / "examples" / "flower" / "hosts"
OPENSSH = serialization.PrivateFormat.OpenSSH
on_linux = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="only Linux says here which process has a port"
)


class Authority:
    """An authority that signs whatever a test needs: other names, other dates."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key, self.ca = folder, ec.generate_private_key(ec.SECP256R1()), folder / "ca.crt"
        self.root = self._sign("authority", self.key, (), timedelta(days=-1), timedelta(days=400), ca=True)
        self.ca.write_bytes(self.root.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, *names: str, begin: timedelta = timedelta(days=-1), end: timedelta = timedelta(days=90)
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign("server", key, names, begin, end, ca=False)
        paths = self.folder / "server.crt", self.folder / "server.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.TraditionalOpenSSL
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        paths[1].chmod(0o600)
        return paths

    def _sign(
        self, name: str, key: Key, names: tuple[str, ...], begin: timedelta, end: timedelta, ca: bool
    ) -> x509.Certificate:
        now, subject = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if ca else self.root.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begin)
            .not_valid_after(now + end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False), critical=True)
        )
        if names:
            alternatives = [x509.IPAddress(ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(self.key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def node_key(tmp_path: Path) -> Path:
    return write_key(tmp_path / "node.key", ec.generate_private_key(ec.SECP384R1()))


def write_key(path: Path, key: Key | ed25519.Ed25519PrivateKey, form: serialization.PrivateFormat = OPENSSH) -> Path:
    how = form, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *how))
    path.chmod(0o600)
    return path


HANGS_UP, SILENT = -1, -2  # in place of a status


class Answers(http.server.BaseHTTPRequestHandler):
    """/health as a SuperLink answers it, by a clock that may be wrong; and a control interface, open or closed."""

    protocol_version = "HTTP/1.1"
    ahead, control, health = 0.0, 403, 200

    def do_GET(self) -> None:
        self._say(self.health)

    def do_POST(self) -> None:
        if self.control == HANGS_UP:
            self.close_connection = True
            return
        if self.control == SILENT:
            time.sleep(0.6)
        self._say(self.control if self.path.startswith("/v1/control/") else 404)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time.time() + self.ahead, usegmt=True)

    def log_message(self, *words: object) -> None:
        pass

    def _say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def served(pair: tuple[Path, Path], **answers: float) -> Iterator[int]:
    """A server with TLS on this machine, and its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Answers,), answers))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1
    return found[0]


# -------------------------------------------------------------------------------------------------- certificates


def test_a_certificate_that_fits_is_good_until_its_day(authority: Authority) -> None:
    pair = authority.issue("fed.example.org", "127.0.0.1")
    day = (datetime.now(UTC) + timedelta(days=90)).strftime("%Y-%m-%d")
    for host in ("fed.example.org", "127.0.0.1"):
        found = certificates.certificate(*pair, authority.ca, host)
        assert found.ok and found.sentence == f"{pair[0]} is good until {day}."
    assert certificates.authority(authority.ca).ok


@pytest.mark.parametrize(
    ("begin", "end", "host", "said"),
    [
        (-1, 90, "other.example.org", "it must name other.example.org among its alternative names"),
        (-1, 90, "127.0.0.1", "it must name 127.0.0.1 among its alternative names"),
        (-9, -1, "fed.example.org", "certificate has expired; renew it"),
        (1, 90, "fed.example.org", "certificate is not yet valid; renew it, or set this host's clock"),
        (-1, 3, "fed.example.org", "in less than 14 days: renew it now"),
    ],
)
def test_a_certificate_that_clients_would_refuse(
    authority: Authority, begin: int, end: int, host: str, said: str
) -> None:
    pair = authority.issue("fed.example.org", begin=timedelta(days=begin), end=timedelta(days=end))
    found = certificates.certificate(*pair, authority.ca, host)
    assert not found.ok and said in found.sentence and str(pair[0]) in found.sentence


def test_a_certificate_of_another_authority_or_key_or_none(authority: Authority, tmp_path: Path) -> None:
    crt, key = authority.issue("fed.example.org")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    strange, its_key = other.issue("fed.example.org")
    text = tmp_path / "text"
    text.write_text("no certificate")

    def said(*files: Path) -> str:
        found = certificates.certificate(*files, "fed.example.org")
        assert not found.ok
        return found.sentence

    assert "its authority is not the one of --ca" in said(strange, its_key, authority.ca)
    assert said(crt, its_key, authority.ca) == f"{its_key} is not the private key of {crt}."
    assert "are not a certificate and its private key" in said(text, key, authority.ca)
    assert "holds no certificate in PEM form" in said(crt, key, text)
    assert "No such file or directory" in said(tmp_path / "none", key, authority.ca)
    assert not certificates.authority(text).ok and not certificates.authority(tmp_path).ok
    assert "holds no certificate of an authority" in certificates.authority(crt).sentence


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates.sh calls openssl")
def test_certificates_as_the_example_makes_them_fit(tmp_path: Path) -> None:
    script, made = HOSTS / "certificates.sh", tmp_path / "made"
    ca, serials = made / "ca.crt", set()
    for _ in range(2):  # the second is renewed by the same authority
        subprocess.run(["sh", script, made, "fed.example.org", "192.0.2.7"], check=True, capture_output=True)
        pair = made / "server.crt", made / "server.key"
        for host in ("fed.example.org", "192.0.2.7", "localhost", "127.0.0.1"):
            assert certificates.certificate(*pair, ca, host).ok
        serials.add((ca.read_bytes(), pair[0].read_bytes()))
    assert len(serials) == 2 and len({authority for authority, _ in serials}) == 1
    assert files.private("key", made / "server.key").ok and files.private("key", made / "ca.key").ok
    assert certificates.authority(ca).ok


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(authority: Authority) -> None:
    crt, key = authority.issue("fed.example.org")
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    form, locked = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, locked))
    found = certificates.certificate(crt, key, authority.ca, "fed.example.org")
    assert not found.ok and "without password" in found.sentence


# ------------------------------------------------------------------------------------------------ keys and folders


def test_a_nodes_key_is_one_that_flower_reads(node_key: Path, tmp_path: Path) -> None:
    assert files.node_key(node_key).ok
    edwards = write_key(tmp_path / "edwards", ed25519.Ed25519PrivateKey.generate())
    other_form = write_key(tmp_path / "pem", ec.generate_private_key(ec.SECP384R1()), serialization.PrivateFormat.PKCS8)
    text = tmp_path / "text"
    text.write_text("no key")
    text.chmod(0o600)
    for path in (edwards, other_form, text):
        found = files.node_key(path)
        assert not found.ok and "ssh-keygen -t ecdsa" in found.sentence


@pytest.mark.parametrize(("mode", "ok"), [(0o600, True), (0o640, True), (0o644, False), (0o660, False), (0o604, False)])
def test_a_key_that_others_can_read_is_named_with_its_mode(node_key: Path, mode: int, ok: bool) -> None:
    node_key.chmod(mode)
    found = files.node_key(node_key)
    assert found.ok == ok and f"mode {mode:o}" in found.sentence
    assert ok or f"chmod 600 {node_key}" in found.sentence


def test_a_state_folder_is_there_writable_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert "there is no folder" in only(files.state_folder(folder)).sentence
    folder.mkdir(mode=0o700)
    assert [found.ok for found in files.state_folder(folder)] == [True, True]
    folder.chmod(0o755)
    found, disk = files.state_folder(folder)
    assert not found.ok and f"chmod 700 {folder}" in found.sentence and disk.ok
    assert list(folder.iterdir()) == []


@on_linux
def test_a_folder_that_cannot_be_written_to() -> None:
    found = only(files.state_folder(Path("/proc/self")))
    assert not found.ok and "nothing can be written to /proc/self" in found.sentence


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FREE_BYTES", 2**80)
    tmp_path.chmod(0o700)
    assert "are needed" in files.state_folder(tmp_path)[1].sentence


# ------------------------------------------------------------------------------------------------------- network


@on_linux
def test_a_port_is_free_or_somebodys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        found = network.port("127.0.0.1", number, "flower-superlink")
        assert not found.ok and f"(process {os.getpid()})" in found.sentence
    assert network.port("127.0.0.1", number, "flower-superlink").ok


@on_linux
def test_a_port_that_the_service_holds_itself_is_well(tmp_path: Path) -> None:
    script = tmp_path / "flower-superlink"
    script.write_text(
        "import socket\nwith socket.create_server(('127.0.0.1', 0)) as s:\n"
        " print(s.getsockname()[1], flush=True)\n input()"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = network.port("127.0.0.1", int(process.stdout.readline()), "flower-superlink")
        process.communicate("\n")
    assert found.ok and f"flower-superlink (process {process.pid}): the service is running" in found.sentence


def test_a_superlink_that_others_reach_is_named() -> None:
    assert network.only_here("127.0.0.1").ok and network.only_here("localhost").ok
    assert "its control interface too" in network.only_here("0.0.0.0").sentence
    assert not network.only_here("192.0.2.1").ok and not network.only_here("no-such-host.invalid").ok


def test_a_node_reaches_its_superlink(authority: Authority) -> None:
    with served(authority.issue("localhost", "127.0.0.1")) as number:
        found = network.superlink("127.0.0.1", number, authority.ca)
    assert [(one.about, one.ok) for one in found] == [("SuperLink", True), ("clock", True), ("control", True)]


@pytest.mark.parametrize(
    ("answers", "about", "said"),
    [
        ({"ahead": 400.0}, "clock", "s behind the SuperLink's"),
        ({"ahead": -20.0}, "clock", "s ahead of the SuperLink's"),
        ({"control": 200}, "control", "lets this host use Flower's control interface"),
        ({"control": 415}, "control", "lets this host use Flower's control interface"),
        ({"health": 404}, "SuperLink", "is no SuperLink: it says 404 to /health"),
    ],
)
def test_what_is_wrong_at_the_other_end(authority: Authority, answers: dict[str, float], about: str, said: str) -> None:
    with served(authority.issue("127.0.0.1"), **answers) as number:
        bad = only([one for one in network.superlink("127.0.0.1", number, authority.ca) if not one.ok])
    assert bad.about == about and said in bad.sentence


def test_a_proxy_that_hangs_up_keeps_us_from_the_control_interface(authority: Authority) -> None:
    with served(authority.issue("127.0.0.1"), control=HANGS_UP) as number:
        found = network.superlink("127.0.0.1", number, authority.ca)
    assert [(one.about, one.ok) for one in found] == [("SuperLink", True), ("clock", True), ("control", True)]


def test_a_control_interface_that_could_not_be_asked_is_not_taken_for_closed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "SECONDS", 0.3)
    with served(authority.issue("127.0.0.1"), control=SILENT) as number:
        bad = only([one for one in network.superlink("127.0.0.1", number, authority.ca) if not one.ok])
    assert bad.about == "control" and "could not be asked" in bad.sentence and "Run the check again" in bad.sentence


def test_a_superlink_whose_certificate_does_not_fit(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with served(authority.issue("fed.example.org")) as number:
        found = only(network.superlink("127.0.0.1", number, authority.ca))
        assert "it must name 127.0.0.1 among its alternative names" in found.sentence
        found = only(network.superlink("127.0.0.1", number, Authority(tmp_path / "other").ca))
        assert "its authority is not the one of --ca" in found.sentence


def test_no_way_to_the_superlink(authority: Authority, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
    assert "nothing listens at" in only(network.superlink("127.0.0.1", number, authority.ca)).sentence
    said = only(network.superlink("no-such-host.invalid", 9092, authority.ca)).sentence
    assert "is not known to this host" in said
    assert "was not tried" in only(network.superlink("127.0.0.1", number, tmp_path / "none")).sentence


def test_a_firewall_that_drops_and_a_port_without_tls(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        number = silent.getsockname()[1]
        assert "a firewall between us" in only(network.superlink("127.0.0.1", number, authority.ca)).sentence
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as plain:
        thread = threading.Thread(target=plain.handle_request)
        thread.start()
        found = only(network.superlink("127.0.0.1", plain.server_address[1], authority.ca))
        thread.join()
    assert "does not speak TLS with us" in found.sentence


@pytest.mark.parametrize("text", ["fed.example.org", ":9092", "host:", "host:0", "host:65536", "host:x", "host:9²"])
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(AccordError, match="an address must be HOST:PORT"):
        address(text)
    assert address("[::1]:9092") == ("::1", 9092) and address("a.b:80") == ("a.b", 80)


# ----------------------------------------------------------------------------------------- software and the app


def test_packages_that_are_missing_or_too_old() -> None:
    assert software.package("torch", (2, 6)).ok
    assert "torch 99.0 or newer is needed, this is" in software.package("torch", (99, 0)).sentence
    assert software.package("no-such-package", (1, 0)).sentence.startswith("no-such-package is not installed here")
    assert software.python().ok and not software.program("flower-none").ok


APP = '[tool.flwr.app.components]\nserverapp = "mine.server:app"\nclientapp = "mine.client:app"\n'


def test_an_app_is_imported_as_its_role_has_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "server.py").write_text("app = 1\n")
    (tmp_path / "mine" / "client.py").write_text("import a_module_that_nobody_has\n")
    assert "cannot be read" in software.app(tmp_path, "serverapp").sentence
    (tmp_path / "pyproject.toml").write_text("[tool]\n")
    assert "names no serverapp" in software.app(tmp_path, "serverapp").sentence
    (tmp_path / "pyproject.toml").write_text(APP)
    assert software.app(tmp_path, "serverapp").ok
    found = software.app(tmp_path, "clientapp")
    assert not found.ok and found.sentence.endswith("No module named 'a_module_that_nobody_has'.")


# ----------------------------------------------------------------------------------------------------- the command


def test_the_hosts_of_a_federation_as_a_whole(authority: Authority, node_key: Path, tmp_path: Path) -> None:
    """Only Flower, which has an environment of its own, may be missing; both hosts live here."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    crt, key = authority.issue("localhost", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    of_flower = {"flwr", "accord", "flower-superlink", "flower-supernode"}
    with served((crt, key)) as number:
        superlink = f"localhost:{number}"
        server = check_server(Host(superlink, free, authority.ca, key, state, crt))
        node = check_node(Host(superlink, free, authority.ca, node_key, state))
    assert {one.about for one in [*server, *node] if not one.ok} <= of_flower
    shared = {"Python", "torch", "flwr", "accord", "authority", "port", "state folder", "disk"}
    assert shared | {"flower-superlink", "certificate's key", "certificate for localhost", "certificate for 127.0.0.1",
                     "listens", "temporary folder"} == {one.about for one in server}  # fmt: skip
    assert shared | {"flower-supernode", "node key", "SuperLink", "clock", "control"} == {one.about for one in node}


def test_the_command_says_what_is_missing_and_exits_with_2(tmp_path: Path) -> None:
    env = environment(tmp_path / "cache")
    words = ["deploy", "check", "--role", "node", "--superlink", "localhost:1", "--ca", "none", "--state", "none"]
    said = accord(env, tmp_path, *words, code=2).stdout.splitlines()
    assert "FAILED  authority: none cannot be read: No such file or directory." in said
    assert said[-1].endswith("checks failed.")
    found = json.loads(accord(env, tmp_path, *words, "--json", code=2).stdout)
    assert len(found) == len(said) - 1
    assert {"about": "authority", "ok": False, "sentence": "none cannot be read: No such file or directory."} in found
    assert "a node has no certificate" in refused(env, tmp_path, *words, "--certificate", "x.crt")
    assert "an address must be HOST:PORT" in refused(env, tmp_path, *words, "--superlink", "localhost")
