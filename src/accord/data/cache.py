"""Data sets at rest: one safetensors file each, written once and whole, however many processes ask for it at the same time."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from accord.errors import AccordError

Progress = Callable[[str, int, int | None], None]  # what is going on, how much is done, how much there is (None: unknown)
Arrays = dict[str, Tensor]


def folder() -> Path:
    """Where data sets are kept: ACCORD_CACHE, or `accord` in the user's cache folder."""
    if chosen := os.environ.get("ACCORD_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accord"


def path(name: str) -> Path:
    """The file of a data set, whether or not it is there yet."""
    return folder() / f"{name}.safetensors"


def load(name: str) -> Arrays:
    """The arrays of a data set that is there."""
    try:
        return load_file(path(name))
    except (OSError, SafetensorError) as error:
        raise AccordError(f"{path(name)} cannot be read ({error}): delete it, then run `accord data get {name}`") from None


def once(name: str, build: Callable[[Path], Arrays], progress: Progress | None = None) -> Path:
    """The file of a data set, made by `build(scratch folder)` unless it is there.

    Whoever comes second waits and finds it made. A build that fails or is killed leaves no file under the data set's name.
    """
    made = path(name)
    if made.exists():
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with _locked(made.with_name(f".{name}.lock"), name, progress):
            if not made.exists():
                _build(made, build)
    except OSError as error:
        raise AccordError(f"cannot write {made} ({error}): set ACCORD_CACHE to a folder with room that you may write to") from None
    return made


def _build(made: Path, build: Callable[[Path], Arrays]) -> None:
    # The scratch folder has a fixed name because the lock lets only one process use it: what a killed one left is swept up here.
    scratch = made.with_name(f".{made.stem}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        arrays = {name: values.contiguous() for name, values in build(scratch).items()}
        whole = scratch / made.name
        save_file(arrays, whole)
        whole.chmod(0o644)  # safetensors makes private files; a cache may be shared
        with whole.open("rb") as file:
            os.fsync(file.fileno())  # a rename must not reach the disk before the content does
        os.replace(whole, made)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _locked(lock: Path, name: str, progress: Progress | None) -> Iterator[None]:
    """Holds the lock file; the system lets go of it when this process ends, however it ends."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                progress(f"waiting for another process that is getting {name}", 0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
