"""The way into a cluster: which one, whether it answers, and a sentence if it does not."""

import atexit
import logging
import os
import signal
import socket
from contextlib import suppress

import ray

from accord.core.errors import AccordError

_ANSWER = 5.0  # seconds for a head node to answer
# How HTTP/2, and so gRPC, begins: an empty SETTINGS frame.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4  # the kind of frame that a gRPC server answers with


def connect(address: str | None = None) -> None:
    """Joins the cluster at `address`: HOST:PORT of its head node, or "auto" for the one that this machine belongs to.

    Without an address it is the one that `RAY_ADDRESS` names, or else a new one that lives on this machine until this
    process ends. Whoever is connected already stays so.

    >>> connect("10.0.0.1:6379")
    """
    address = (os.environ.get("RAY_ADDRESS") or "local") if address is None else address
    if ray.is_initialized():
        _same(address)
        return
    if address not in ("auto", "local"):
        _knock(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # accord tells nobody that it is used
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of what it may do one day
    # sums that failed with a lost node are made anew, which is no news
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        alone = {"include_dashboard": False} if address == "local" else {}
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **alone)
    except Exception as error:
        where = (
            "no Ray cluster can be started on this machine"
            if address == "local"
            else f"the Ray cluster at {address} cannot be joined"
        )
        raise AccordError(f"{where}: {' '.join(str(error).split())}") from None
    atexit.register(_leave_in_peace)


def _leave_in_peace() -> None:
    """One more Ctrl-C while Ray says goodbye, which takes it a second, would end in a traceback."""
    with suppress(ValueError):  # another thread than the main one has no say in signals
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _same(address: str) -> None:
    joined = ray.get_runtime_context().gcs_address
    # a host has several names
    if address not in ("auto", "local") and address.rpartition(":")[2] != joined.rpartition(":")[2]:
        raise AccordError(
            f"this process belongs to the Ray cluster at {joined} already and cannot join the one at {address}"
        )


def _knock(address: str) -> None:
    """Ray itself would try for minutes, and then end this process."""
    if address.startswith("ray://"):
        raise AccordError(
            f"accord joins a cluster on one of its machines, got {address}: give HOST:PORT of the head, or use `ray job"
            " submit`"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise AccordError(f"a Ray address is HOST:PORT, such as 10.0.0.1:6379, or auto, got {address!r}")
    start = f"no Ray cluster answers at {address}"
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER) as line:
            line.sendall(_PREFACE)
            answer = line.recv(9)
    except OSError as error:
        raise AccordError(f"{start}: {error.strerror or error} (start one with `ray start --head`)") from None
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise AccordError(f"{start}: something else listens there")
