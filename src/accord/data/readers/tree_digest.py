"""A folder of the user's files by their content. What a file holds is hashed once, and again when its size or its time
of change is another: which file had which is kept in the cache."""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.files import check_plain, write_json
from accord.data.files import as_folder
from accord.data.readers.tree import ignored
from accord.kernels.paths import cache_folder

_SETTLED = 2 * 10**9  # ns: a file that was changed so lately may change again without another time

Known = dict[str, tuple[int, int, str]]  # by path: size, time of change and content


def tree_digest(folder: str | Path) -> str:
    """A hash of the names and contents of all files below: it stays the same as long as they do, wherever they lie.

    Links are followed, as they are when pictures are read, but no deeper than pictures lie: a link to a folder above it
    has no end.
    """
    digest, folder = hashlib.blake2b(digest_size=16), as_folder(folder)
    before, now = _known(folder), Known()
    for at, below, names in os.walk(folder, followlinks=True):
        below[:] = sorted(name for name in below if not ignored(name))
        if len(Path(at).relative_to(folder).parts) == 2:  # <client>/<class>: a folder in it is told, and not entered
            digest.update("".join(f"{name}/" for name in below).encode("utf-8", "surrogateescape"))
            below.clear()
        for name in sorted(name for name in names if not ignored(name)):
            path = Path(at) / name
            relative = os.fsencode(path.relative_to(folder))
            now[relative.hex()] = _content(path, before.get(relative.hex()))
            digest.update(relative + b"\0" + now[relative.hex()][2].encode() + b"\0")
    _keep(folder, now)
    return digest.hexdigest()


def _content(path: Path, known: tuple[int, int, str] | None) -> tuple[int, int, str]:
    """Size, time of change and content of a file, which is read unless these are known."""
    try:
        status = path.stat()
        if known is not None and known[:2] == (status.st_size, status.st_mtime_ns):
            return known
        check_plain(path)
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise AccordError(f"{path} cannot be read: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns, content


def _kept_at(folder: Path) -> Path:
    return (
        cache_folder() / f"contents-{hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=16).hexdigest()}.json"
    )


def _known(folder: Path) -> Known:
    """What was kept of the folder, if anything sound was."""
    with suppress(AttributeError, OSError, RuntimeError, TypeError, ValueError):
        kept = json.loads(_kept_at(folder).read_bytes())
        return {name: (int(size), int(at), str(of)) for name, (size, at, of) in kept.items()}
    return {}


def _keep(folder: Path, known: Known) -> None:
    settled = {name: of for name, of in known.items() if time.time_ns() - of[1] > _SETTLED}
    with suppress(OSError, RuntimeError):  # it is read again, where nothing can be kept
        _kept_at(folder).parent.mkdir(parents=True, exist_ok=True)
        write_json(_kept_at(folder), settled)
