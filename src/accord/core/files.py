"""Files that are whole or not there: written beside their name, synced, and put in place in one step."""

import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from accord.core.errors import AccordError


def flat(table: Mapping[str, Any], prefix: str = "", without: Collection[str] = ()) -> dict[str, Any]:
    """`{"train": {"lr": 0.1}}` as `{"train.lr": 0.1}`, but for the names in `without`. Keys may be written either
    way."""
    entries: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if name not in without:
            entries |= flat(value, f"{name}.", without) if isinstance(value, Mapping) else {name: value}
    return entries


def check_plain(path: Path) -> None:
    """Refuses a pipe, a socket or a device: to read one may wait for ever, or never end. Refuses a name that is not
    text, because no file or page that names it could be written."""
    if "\0" in str(path):
        raise AccordError(f"a path has no NUL characters, got {str(path)!r}")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise AccordError(f"{str(path)!r} is not valid UTF-8: rename it") from None
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise AccordError(f"{path} is a pipe, a socket or a device: a plain file belongs there")


def check_files(path: Path) -> None:
    """The same of a file, or of all that lies in a folder and below it."""
    check_plain(path)
    for at, _, names in os.walk(path):
        for name in names:
            check_plain(Path(at) / name)


def write_whole(path: Path, content: bytes) -> None:
    """Puts `content` in place of whatever is there, in one step that survives a power cut."""
    # two processes may write one file: the last one's content stays, whole
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with naming(path):
        try:
            with open(beside, "wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)  # on a full disk it takes up room
            raise
        sync_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system within it name this file: those of writing name none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename == str(path):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


def write_text(path: Path, text: str) -> None:
    write_whole(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """A JSON file's content."""
    return (json.dumps(plain(value), indent=2) + "\n").encode()


def json_lines(rows: Iterable[Any]) -> bytes:
    """The same of a JSON lines file."""
    return "".join(json.dumps(plain(row)) + "\n" for row in rows).encode()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    write_whole(path, tensor_bytes(tensors))


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as safetensors. Made in memory, because the library's own file writer leaves a file of its own behind
    when it is killed."""
    # it refuses tensors that share memory
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    return save(copies)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder safe, as a file's own sync does its content."""
    if os.name == "nt":
        return  # Windows opens no folder; its file system keeps a journal of names
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain(value: Any) -> Any:
    """NaN and infinities as null: JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
