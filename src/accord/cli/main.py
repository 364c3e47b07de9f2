"""The entry point of the command. Whatever ends a command becomes an exit code and at most one line:

    0    the command is done
    1    a bug in accord: any exception that is not listed here; its traceback is in a file
    2    an error that the user can correct: AccordError, wrong usage, a file of the system, too little memory
    130  Ctrl-C

This module imports little, and `main` imports the commands, so that Ctrl-C is handled while they are imported.
"""

import io
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_STOPPED = 128 + signal.SIGINT  # the exit code that a shell gives to a command that Ctrl-C stopped
_SHOW_CURSOR = "\x1b[?25h"  # progress bars hide it


class _CtrlC:
    """Handler of Ctrl-C: raises KeyboardInterrupt in the command, so that the command cleans up.

    It ends the process at once where no cleanup is possible: the second time; outside of the command; and within an
    import, because numpy and torch turn KeyboardInterrupt into other errors.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.in_command = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.pressed or not self.in_command or _importing(frame):
            cursor = _SHOW_CURSOR if os.isatty(2) else ""
            os.write(2, f"{cursor}\naccord: stopped by Ctrl-C\n".encode())  # print may be what the signal interrupted
            os._exit(_STOPPED)
        self.pressed = True
        raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def main() -> None:
    """Runs the command that was typed, and ends the process."""
    ctrl_c, ending = _CtrlC(), None
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a script may have Ctrl-C ignored
    if default and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, ctrl_c)
    code: Any = 0
    try:
        ctrl_c.in_command = True
        code = _run()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        ending = error
    ctrl_c.in_command = False  # a call before this line would leave a moment in which Ctrl-C raises
    sys.exit(code if ending is None else _report(ending, ctrl_c.pressed))


def _run() -> Any:
    from accord.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        # a client's name may hold letters that a terminal does not know
        sys.stdout.reconfigure(errors="backslashreplace")
    return app(args=sys.argv[1:] or ["--help"], prog_name="accord", standalone_mode=False)


def _report(error: BaseException, pressed: bool) -> Any:
    """Prints the line for what ended the command, and returns its exit code."""
    if isinstance(error, SystemExit):
        return error.code
    if pressed or isinstance(error, KeyboardInterrupt):
        line, code = "stopped by Ctrl-C", _STOPPED
    elif (message := _correctable(error)) is not None:
        line, code = message, 2
    else:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        line, code = f"{_blame(error)}: {shown}, traceback in {_traceback_file(error)}", 1
    print(f"accord: {line}", file=sys.stderr)
    return code


def _correctable(error: BaseException) -> str | None:
    """The message of an error that the user can correct; None for any other."""
    import typer

    from accord.core.errors import AccordError

    usage_error: Any = typer.BadParameter.__base__  # click's, wherever this typer keeps it
    if isinstance(error, AccordError):
        return str(error)
    if isinstance(error, usage_error):
        command = error.ctx.command_path if error.ctx else "accord"
        return f"{error.format_message().rstrip('.')}: see {command} --help"
    out_of_memory = "allocate memory" in str(error) or "out of memory" in str(error)  # torch raises RuntimeError
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and out_of_memory):
        return f"there is not enough memory for this: {' '.join(str(error).split()) or 'it was all taken'}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return None


def _blame(error: BaseException) -> str:
    """Whose code raised an error: the user's own, if that was the last to run before any library's."""
    import sysconfig
    import traceback
    from pathlib import Path

    ours, *libraries = Path(__file__).parents[1], *map(Path, sysconfig.get_paths().values())
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(ours):
            break
        if file.is_file() and not any(file.is_relative_to(library) for library in libraries):
            return f"{frame.filename}, line {frame.lineno}, raised an error"
    return "this is a bug in accord"


def _traceback_file(error: BaseException) -> str:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="accord-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        traceback.print_exception(error, file=file)
    return file.name
