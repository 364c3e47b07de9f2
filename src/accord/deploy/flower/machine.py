"""What a deployment needs of the machine it runs on: programs, ports, the processes that others started, and the last
words of a log."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from accord.core.errors import AccordError

HOST = "127.0.0.1"


def program_path(program: str) -> str:
    beside = Path(sys.executable).parent / program
    path = str(beside) if beside.exists() else shutil.which(program)
    if path is None:
        raise AccordError(f"there is no {program} on this machine: pip install 'accord-fl[flower]'")
    return path


def free_port(port: int) -> int:
    """The port if nobody listens there; for 0, one that nobody listens at."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise AccordError(
                f"port {port} of {HOST} cannot be used: {error.strerror}; choose another, or 0 for any that is free"
            ) from None
        return int(probe.getsockname()[1])


def _processes() -> list[tuple[int, int, int, str]]:
    """Every process of this machine: its id, its parent's, its group's, and when it was born."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,lstart="], capture_output=True, text=True, check=True
    ).stdout
    return [
        (int(pid), int(parent), int(group), born)
        for pid, parent, group, born in (line.split(None, 3) for line in listed.splitlines())
    ]


def born_at(pids: Sequence[int]) -> dict[int, str]:
    return {pid: born for pid, *_, born in _processes() if pid in pids}


def descendants(pids: Sequence[int]) -> dict[int, str]:
    """Everything that these processes started, and what those started: pid -> when it was born. Each of them leads a
    group of its own, by which an orphan is found whose parent has ended."""
    listed = _processes()
    children = {pid: born for pid, _, group, born in listed if group in pids and pid not in pids}
    parents = {*pids, *children}
    while fresh := {
        pid: born for pid, parent, _, born in listed if parent in parents and pid not in children and pid not in pids
    }:
        children |= fresh
        parents = set(fresh)
    return children


def last_words(text: str) -> str:
    lines = [line.strip(" │╭╰─╮╯") for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    return " ".join([line for line in lines if line and line != "Error"][-3:])


def cause(text: str) -> str | None:
    """accord's own sentence, if that is what the app ended with."""
    sentences = re.findall(rf"^{re.escape(AccordError.__module__)}\.AccordError: (.+)$", text, re.MULTILINE)
    return sentences[-1] if sentences else None


def tail(log: Path) -> str:
    return last_words(log.read_text(errors="replace")) if log.exists() else "nothing"
