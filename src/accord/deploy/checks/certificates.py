"""The SuperLink's certificate, tried as its clients will try it: by a TLS handshake, here within this process."""

import ssl
import time
from pathlib import Path
from typing import Any

from accord.deploy.checks.files import unreadable
from accord.deploy.checks.finding import Finding, fine, wrong

DAYS_BEFORE = 14  # a certificate that ends sooner is to be renewed now
_DAY = 86400


def authority(path: Path) -> Finding:
    """The certificate of the authority that signed the SuperLink's, or a bundle that holds it."""
    about = "authority"
    if said := unreadable(path):
        return wrong(about, said)
    try:
        authorities = ssl.create_default_context(cafile=str(path)).get_ca_certs()
    except ssl.SSLError:
        return wrong(about, f"{path} holds no certificate in PEM form.")
    if not authorities:
        return wrong(
            about,
            f"{path} holds no certificate of an authority: give the one that signed the SuperLink's, not its own.",
        )
    return _lasts(about, path, max(ssl.cert_time_to_seconds(str(one["notAfter"])) for one in authorities))


def certificate(path: Path, key: Path, ca: Path, host: str) -> Finding:
    """Whether a client that trusts the authority and calls this host by that name accepts the certificate."""
    about = f"certificate for {host}"
    for file in (path, key, ca):
        if said := unreadable(file):
            return wrong(about, said)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password given, OpenSSL asks for one at the terminal.
        server.load_cert_chain(path, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return wrong(about, f"{key} is not the private key of {path}.")
        return wrong(
            about, f"{path} and {key} are not a certificate and its private key, without password, in PEM form."
        )
    try:
        trust = ssl.create_default_context(cafile=str(ca))
    except ssl.SSLError:
        return wrong(about, f"{ca} holds no certificate in PEM form.")
    trust.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 and newer do on the nodes
    try:
        seen = _handshake(server, trust, host)
    except ssl.SSLCertVerificationError as error:
        return wrong(about, f"{path} would be refused: {refusal(error, host)}")
    except ssl.SSLError as error:
        return wrong(about, f"{path} cannot be used for TLS: {error.reason or error}.")
    return _lasts(about, path, ssl.cert_time_to_seconds(seen["notAfter"]))


def refusal(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Why a certificate was refused, and what to do about it."""
    said = error.verify_message.rstrip(".")
    match error.verify_code:
        case 9 | 10:
            advice = "renew it, or set this host's clock"
        case 18 | 19 | 20 | 21:
            advice = "its authority is not the one of --ca"
        case 62 | 64:
            advice = f"it must name {host} among its alternative names (subjectAltName)"
        case _:
            advice = "make it anew as docs/how-to/deploy.md does"
    return f"{said}; {advice}."


def _lasts(about: str, path: Path, end: float) -> Finding:
    days, day = (end - time.time()) / _DAY, time.strftime("%Y-%m-%d", time.gmtime(end))
    if days < 0:
        return wrong(about, f"{path} ended on {day}: renew it.")
    if days < DAYS_BEFORE:
        return wrong(about, f"{path} ends on {day}, in less than {DAYS_BEFORE} days: renew it now.")
    return fine(about, f"{path} is good until {day}.")


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict[str, Any]:
    """The certificate that a client has accepted; both ends live here, and hand each other bytes."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    return ends[0].getpeercert() or {}
