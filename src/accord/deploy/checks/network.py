"""Ports of this host, and the way from a node to its SuperLink."""

import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path

from accord.deploy.checks.certificates import refusal
from accord.deploy.checks.files import unreadable
from accord.deploy.checks.finding import Finding, fine, wrong

SECONDS = 10.0
# Flower refuses a node's signature from a clock that is 5 s ahead, or 305 s behind; a second is the header's own.
AHEAD, BEHIND = 4.0, 300.0
CONTROL = "/v1/control/list-runs"
CLOSED = (401, 403, 404)


def port(host: str, number: int, program: str) -> Finding:
    """The port that the program is to listen at: free, or its own already."""
    about, where = "port", f"port {number} of {host}"
    try:
        with socket.create_server((host, number), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return fine(about, f"{where} is free.")
    except OSError as error:
        holder = _holder(number)
        if holder and program in holder:
            return fine(about, f"{where} is held by {holder}: the service is running.")
        why = os.strerror(error.errno) if error.errno else str(error)  # a name that is unknown has none of ours
        who = f"it is held by {holder}" if holder else why
        return wrong(about, f"{where} cannot be used: {who}.")


def only_here(host: str) -> Finding:
    """The SuperLink listens on the loopback interface: its port is also that of Flower's control interface."""
    about = "listens"
    try:
        here = all(ip_address(place[4][0]).is_loopback for place in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        return wrong(about, f"{host} is no name or address that this host knows.")
    if not here:
        return wrong(
            about,
            f"the SuperLink would listen at {host}, where others reach its control interface too, which asks for no"
            " password and starts code: listen at 127.0.0.1, behind a proxy that passes /v1/fleet/ alone.",
        )
    return fine(about, f"the SuperLink listens at {host}, which only this host reaches.")


def superlink(host: str, number: int, ca: Path) -> list[Finding]:
    """From a node: the SuperLink answers over TLS, its clock is like ours, and it lets us do what nodes do, no more."""
    about, where = "SuperLink", f"{host}:{number}"
    if said := unreadable(ca):
        return [wrong(about, f"{where} was not tried: {said}")]
    try:
        trust = ssl.create_default_context(cafile=str(ca))
        status, date = _ask(host, number, trust, "GET", "/health")
    except ssl.SSLCertVerificationError as error:
        return [wrong(about, f"the certificate of {where} is refused: {refusal(error, host)}")]
    except ssl.SSLError as error:
        return [wrong(about, f"{where} does not speak TLS with us: {error.reason or error}.")]
    except OSError as error:
        return [wrong(about, _no_way(error, where))]
    except http.client.HTTPException:
        return [wrong(about, f"what answers at {where} is no SuperLink: it does not speak HTTP.")]
    if status != 200:
        return [wrong(about, f"what answers at {where} is no SuperLink: it says {status} to /health.")]
    findings = [fine(about, f"{where} answers over TLS with a certificate that we trust.")]
    if date is not None:
        findings.append(_clock(date))
    return [*findings, _control(host, number, trust)]


def _control(host: str, number: int, trust: ssl.SSLContext) -> Finding:
    """Whether this host is kept from Flower's control interface: whoever reaches it can start code on every node."""
    try:
        status, _ = _ask(host, number, trust, "POST", CONTROL)
    except ConnectionResetError:  # http.client.RemoteDisconnected is one
        status = 403  # a proxy that hangs up keeps us out, too
    except (OSError, http.client.HTTPException) as error:
        why = _no_way(error, f"{host}:{number}") if isinstance(error, OSError) else "the answer is no HTTP."
        return wrong("control", f"Flower's control interface could not be asked: {why} Run the check again.")
    if status in CLOSED:
        return fine("control", "Flower's control interface is closed to this host.")
    return wrong(
        "control",
        f"{host}:{number} lets this host use Flower's control interface, which asks for no password and starts code on"
        " every node: let a proxy pass /v1/fleet/ alone (docs/how-to/deploy.md).",
    )


def _clock(date: str) -> Finding:
    try:
        ahead = time.time() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return wrong("clock", f"the SuperLink's host says that it is {date!r}, which is no time.")
    if not -BEHIND < ahead < AHEAD:
        way = "ahead of" if ahead > 0 else "behind"
        return wrong(
            "clock",
            f"this host's clock is {abs(ahead):.0f} s {way} the SuperLink's, and Flower refuses a node that is more"
            " than 5 s ahead or 5 minutes behind: run a time service (NTP) on both.",
        )
    return fine("clock", f"this host's clock is within {max(1.0, abs(ahead)):.0f} s of the SuperLink's.")


def _ask(host: str, number: int, trust: ssl.SSLContext, method: str, path: str) -> tuple[int, str | None]:
    connection = http.client.HTTPSConnection(host, number, timeout=SECONDS, context=trust)
    try:
        connection.request(method, path, headers={"Content-Type": "application/protobuf"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Date")
    finally:
        connection.close()


def _no_way(error: OSError, where: str) -> str:
    match error:
        case socket.gaierror():
            return f"the name in {where} is not known to this host: {error.strerror}."
        case ConnectionRefusedError():
            return f"nothing listens at {where}: start the SuperLink and its proxy, or let the firewall pass us."
        case TimeoutError():
            return f"{where} does not answer within {SECONDS:g} s: a firewall between us drops the connection."
        case _:
            return f"{where} cannot be reached: {error.strerror or error}."


def _holder(number: int) -> str:
    """The process that listens at a port, as far as this user may see it: its command and id."""
    sockets = set(_listening(number))
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) in sockets:
                process = link.parents[1]
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                return f"{' '.join(Path(word).name for word in words[:2])} (process {process.name})"
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return ""


def _listening(number: int) -> Iterator[str]:
    """The sockets that listen at a port, as Linux names them. Elsewhere there are none to be read."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in map(str.split, lines):
            if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == number:
                yield f"socket:[{columns[9]}]"
