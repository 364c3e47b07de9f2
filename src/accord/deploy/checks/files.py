"""Keys and folders of this host: there, readable, writable, and not everybody's."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

from accord.deploy.checks.finding import Finding, fine, wrong

FREE_BYTES = 2**30  # logs, checkpoints, and replies that wait for their turn


def unreadable(path: Path) -> str:
    """Why a file cannot be read by this user, or nothing."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{path} is not a file."
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    return ""


def private(about: str, path: Path) -> Finding:
    """A private key is for the service alone: readable here, and by no other user."""
    if said := unreadable(path):
        return wrong(about, said)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o027:
        return wrong(about, f"{path} is open to other users (mode {mode:03o}): chmod 600 {path}.")
    return fine(about, f"{path} is there, and closed to other users (mode {mode:03o}).")


def node_key(path: Path) -> Finding:
    """A SuperNode's private key in the form that Flower reads."""
    if not (finding := private("node key", path)).ok:
        return finding
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    except ImportError:
        return wrong("node key", f"{path} cannot be tried without the package cryptography, which comes with flwr.")
    try:
        good = isinstance(load_ssh_private_key(path.read_bytes(), None), EllipticCurvePrivateKey)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        good = False
    if not good:
        return wrong(
            "node key",
            f"{path} is no key that Flower reads (OpenSSH form, elliptic curve, no password): make one with ssh-keygen"
            f" -t ecdsa -b 384 -N '' -f {path}.",
        )
    return finding


def state_folder(path: Path) -> list[Finding]:
    """The folder of records (server) or of what clients remember (node): writable, private, with room on its disk."""
    if not (finding := _writable("state folder", path)).ok:
        return [finding]
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o007:
        finding = wrong(
            "state folder", f"every user of this host can enter {path} (mode {mode:03o}): chmod 700 {path}."
        )
    return [finding, _room(path)]


def waiting_folder() -> Finding:
    """Where the server keeps replies that came before their turn."""
    return _writable("temporary folder", Path(tempfile.gettempdir()))


def _writable(about: str, path: Path) -> Finding:
    if not path.is_dir():
        return wrong(about, f"there is no folder {path}: make it, owned by the service's user, with mode 700.")
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"accord")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return wrong(about, f"nothing can be written to {path}: {error.strerror}.")
    return fine(about, f"{path} can be written to.")


def _room(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    if free < FREE_BYTES:
        return wrong("disk", f"the disk of {path} has {free / 1e9:.1f} GB free: {FREE_BYTES / 1e9:.1f} GB are needed.")
    return fine("disk", f"the disk of {path} has {free / 1e9:.1f} GB free.")
