"""Locks of files, by `filelock`: on every system one that ends with its process, however that ends."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from accord.core.errors import AccordError

if TYPE_CHECKING:
    from filelock import BaseFileLock


def take_lock(folder: Path) -> "BaseFileLock":
    """Locks a run folder for this process, or says that another one works there."""
    from filelock import FileLock, Timeout  # here, since most that import accord lock nothing

    lock = FileLock(folder / "lock", thread_local=False)  # whichever thread closes the folder
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AccordError(f"{folder} is in use by another process: wait for it, or choose another run.folder") from None
    return lock


def remove_locked(folder: Path, lock: "BaseFileLock") -> None:
    """Takes away a run folder that this process has locked, and the lock with it."""
    if os.name == "nt":
        lock.release()  # Windows removes no file that is open, so neither a lock that another process takes in between
    try:
        shutil.rmtree(folder)
    finally:
        lock.release()


@contextmanager
def waiting_lock(file: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds a lock file, after `on_wait()` and a wait if another process holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
