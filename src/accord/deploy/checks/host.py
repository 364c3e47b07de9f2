"""All checks of a host of a federation, in the order in which a person would put things right."""

from dataclasses import dataclass
from pathlib import Path

from accord.core.errors import AccordError
from accord.deploy.checks import certificates, files, network, software
from accord.deploy.checks.finding import Finding

SUPERLINK, SUPERNODE = "flower-superlink", "flower-supernode"


@dataclass(frozen=True)
class Host:
    """What a host has: `superlink` is the address that nodes connect to and `listen` where this host's own service
    listens, both HOST:PORT; `key` is the certificate's on the server, and the node's own on a node."""

    superlink: str
    listen: str
    ca: Path
    key: Path
    state: Path
    certificate: Path | None = None
    app: Path | None = None


def check_server(host: Host) -> list[Finding]:
    """What the host of the SuperLink needs."""
    if host.certificate is None:
        raise AccordError("the host of the SuperLink needs a certificate: give --certificate")
    name, _ = address(host.superlink)
    here, port = address(host.listen)
    return [
        *_software(SUPERLINK),
        certificates.authority(host.ca),
        files.private("certificate's key", host.key),
        certificates.certificate(host.certificate, host.key, host.ca, name),
        # The server app connects to the SuperLink from this host, and checks the certificate, too.
        certificates.certificate(host.certificate, host.key, host.ca, here),
        network.only_here(here),
        network.port(here, port, SUPERLINK),
        *files.state_folder(host.state),
        files.waiting_folder(),
        *([software.app(host.app, "serverapp")] if host.app else []),
    ]


def check_node(host: Host) -> list[Finding]:
    """What the host of a SuperNode needs."""
    here, port = address(host.listen)
    return [
        *_software(SUPERNODE),
        certificates.authority(host.ca),
        files.node_key(host.key),
        network.port(here, port, SUPERNODE),
        *network.superlink(*address(host.superlink), host.ca),
        *files.state_folder(host.state),
        *([software.app(host.app, "clientapp")] if host.app else []),
    ]


def address(text: str) -> tuple[str, int]:
    """HOST:PORT in its two parts; an IPv6 address stands in brackets."""
    name, colon, number = text.rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    if not (colon and name and number.isascii() and number.isdecimal() and 0 < int(number[:6]) < 65536):
        raise AccordError(f"an address must be HOST:PORT, such as fed.example.org:9092, got {text!r}")
    return name, int(number)


def _software(program: str) -> list[Finding]:
    return [software.python(), *software.packages(), software.protocol(), software.program(program)]
