"""What a run in Python says on standard error: on a terminal, in a file, and when it ends early."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import accord
from accord.training.progress_line import say_once
from conftest import THREADS, blobs, mlp, slow

ENGINE = f"engine sequential: clients are done too soon to be handed out (92 parameters), {THREADS}"
SCRIPT = """
import accord
from conftest import blobs, mlp
accord.fit(mlp(), blobs(), rounds=4, evaluate_every=2, device="cpu", hooks=[lambda event: event.round == 3])
"""


def said(capsys: pytest.CaptureFixture[str], **options) -> list[str]:
    say_once.cache_clear()
    for _ in range(2):
        accord.fit(mlp(), blobs(), rounds=5, evaluate_every=2, device="cpu", **options)
    printed = capsys.readouterr()
    assert printed.out == "" and "\x1b" not in printed.err and "\r" not in printed.err
    return printed.err.splitlines()


def test_off_a_terminal_the_engine_is_said_once_and_the_rest_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == [ENGINE]
    assert said(capsys, verbose=False) == []
    every = said(capsys, verbose=True)
    assert [line.partition(" · ")[0] for line in every] == [ENGINE, "round 2/5", "round 4/5", "round 5/5"] * 2
    assert "train " in every[1] and every[3].endswith(" · 0 s left")


@pytest.mark.parametrize(("term", "rewrites"), [("xterm", True), slow("dumb", False)])
def test_on_a_terminal_one_line_is_rewritten_and_ended_also_by_a_run_that_stops(term: str, rewrites: bool) -> None:
    near, far = pty.openpty()
    here = Path(__file__).parents[1]
    env = os.environ | {"TERM": term, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "src")])}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], env=env, stderr=far)
    os.close(far)
    raw = b""
    while chunk := _read(near):
        raw += chunk
    assert process.wait(timeout=60) == 0
    os.close(near)
    text = raw.decode().replace("\r\n", "\n")
    assert text.startswith(f"{ENGINE}\n") and text.endswith(" s left\n")
    assert text.count("\r\x1b[Kround ") == (3 if rewrites else 0) and text.count("\n") == 2


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side is closed
        return b""
