"""Whether a run's files are as they were written.

`state.json` and `done` hold checksums of the files beside them, and one of themselves. A checkpoint vouches for the
first `rows` rows of metrics.jsonl; later rows are checked by the number that timing.jsonl has of each. A file that is
about to be replaced is vouched for in both forms until it is. Folders of earlier versions have no checksums: they are
read as they are, which is said once.
"""

import hashlib
import json
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.files import plain, write_json
from accord.core.jsonable import Json

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"
_KEY, _MARK = "checksum", "blake2b:"
_SIZE = 16  # bytes of a checksum
_DIGITS = 300  # of a whole number: one that no float can hold is no figure, and stops whoever prints it
Found = TypeVar("Found")


class NoChecksums(UserWarning):
    """A folder of an earlier version of accord: whether it was damaged cannot be told."""


@cache
def _say_without_checksums() -> None:
    warning = "a run folder of an earlier version of accord has no checksums: damage to its numbers would go unnoticed"
    warnings.warn(warning, NoChecksums, stacklevel=2)


# ------------------------------------------------------------------------------------------------------- JSON


def read_json(path: Path) -> Any:
    """A JSON file of a run folder, or a sentence that names it."""
    try:
        return parsed(path.read_bytes(), path)
    except FileNotFoundError:
        raise AccordError(f"{path} is missing: this is not a run folder, or it was damaged") from None


def parsed(text: bytes, path: object) -> Any:
    """JSON of a run's file, or of a line of it; or a sentence that names the file."""
    try:
        return _JSON.decode(text.decode())
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, 3,000 brackets
        raise AccordError(f"{path} is damaged: {error}") from None


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


_JSON = json.JSONDecoder(parse_int=_whole)


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, one at a time; a last one cut short by a kill does not count."""
    if path.exists():
        with path.open("rb") as handle:
            yield from (line for line in handle if line.endswith(b"\n"))


# -------------------------------------------------------------------------------------------------- checksums


def running() -> Any:
    """A checksum of what is still being written."""
    return hashlib.blake2b(digest_size=_SIZE)


def checksum(content: bytes) -> str:
    """A file's checksum."""
    return hashlib.blake2b(content, digest_size=_SIZE).hexdigest()


def checksum_of(path: Path) -> str:
    """The same of a file on disk, which may be larger than the memory."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, running).hexdigest()
    except OSError as error:
        raise AccordError(f"{path} cannot be read ({error.strerror})") from None


def write_sealed(path: Path, form: Json) -> None:
    """A JSON file with a checksum of itself."""
    write_json(path, sealed(form))


def sealed(form: Json) -> Json:
    """A table with a checksum of itself."""
    form = plain({key: value for key, value in form.items() if key != _KEY})
    return {**form, _KEY: _MARK + _seal(form)}


def unsealed(form: Json, what: object) -> Json:
    """A table that `sealed` made, without its checksum; or a sentence that names it."""
    rest = {key: value for key, value in form.items() if key != _KEY}
    if form.get(_KEY) != _MARK + _seal(rest):
        raise AccordError(f"{what} is damaged: it is not what was written (its checksum differs)")
    return rest


def _seal(form: Json) -> str:
    return checksum(json.dumps(form, sort_keys=True).encode())


def read_sealed(path: Path) -> Json:
    """A file that `write_sealed` wrote, or an earlier version without a checksum; or a sentence that names it."""
    form = read_json(path)
    if not isinstance(form, dict):
        raise AccordError(f"{path} is damaged: it holds {str(form)[:20]!r} in place of a table")
    if not {_KEY, "files"} & form.keys() and _MARK not in json.dumps(form):
        return form
    return unsealed(form, path)


def read_done(path: Path) -> Json:
    """A `done` mark: at least how many rounds the run has."""
    done = read_sealed(path)
    if type(done.get("rounds")) is not int:
        raise AccordError(f"{path} is damaged: it does not say after how many rounds the run was done")
    return done


def read_state(path: Path) -> Json:
    """A checkpoint's mark: the round it is of, and its tensors' file."""
    return checked_state(read_sealed(path), path)


def checked_state(state: Json, path: Path) -> Json:
    """A checkpoint's mark that was read from `path`, if it says what one says."""
    if type(state.get("round")) is not int or not isinstance(state.get("tensors"), str):
        raise AccordError(f"{path} is damaged: it does not say which round it is of, and where its tensors are")
    return state


def check_file(path: Path, known: Iterable[str] | None, by: str = "state.json") -> None:
    """Refuses a file whose checksum is none of those known; of an earlier version none is."""
    if known is not None and checksum_of(path) not in known:
        raise AccordError(f"{path} is damaged: it is not the one that {by} vouches for (its checksum differs)")


def read_tensors(path: Path, known: Iterable[str] | None = None, by: str = "state.json") -> dict[str, Tensor]:
    """The tensors of a file, if its checksum is one of those known."""
    check_file(path, known, by)
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise AccordError(f"{path} cannot be read ({error})") from None


def read_model(path: Path) -> dict[str, Tensor]:
    """A model of a run that is done."""
    known = read_done(path.parent / "done").get("files", {}).get(path.name)
    return read_tensors(path, known and [known], by="done")


# ------------------------------------------------------------------------------------------------ whole folders


def check_rows(folder: Path, state: Mapping[str, Any]) -> None:
    """Refuses rows that are not those that the checkpoint vouches for. There may be more: a run that goes on drops and
    repeats them."""
    path, covered, hashed, count = folder / METRICS, state["rows"], running(), 0
    for line in islice(lines_of(path), covered):
        hashed.update(line)
        count += 1
    if count < covered:
        raise AccordError(f"{path} is damaged: it has {count} rows, and {covered} by state.json")
    if hashed.hexdigest() not in state["files"][METRICS]:
        raise AccordError(f"{path} is damaged: its first {covered} rows are not those that state.json vouches for")


def _check_later_rows(folder: Path, covered: int, done: bool) -> None:
    """Refuses rows after the last checkpoint that timing.jsonl does not vouch for."""
    path = folder / METRICS
    later = _later_rows(folder / TIMING, covered)
    for number, line in enumerate(islice(lines_of(path), covered, None), start=covered + 1):
        if done:
            raise AccordError(f"{path} is damaged: it has rows after round {covered}, with which the run was done")
        if round_of(line, path) != number or later.get(number, zlib.crc32(line)) != zlib.crc32(line):
            raise AccordError(
                f"{path} is damaged, or {TIMING} is: row {number} is not what was written of round {number}; a run"
                f" that is resumed repeats the rounds after {covered}"
            )


def round_of(line: bytes, path: Path) -> int:
    """The round that a row is of."""
    row = parsed(line, path)
    if not isinstance(row, dict) or type(row.get("round")) is not int:
        raise AccordError(f"{path} is damaged: {line[:20]!r} ... does not say of which round it is")
    return int(row["round"])


def _later_rows(path: Path, covered: int) -> dict[int, int]:
    """The checks that timing.jsonl has of the rows after a checkpoint, by round."""
    checks: dict[int, int] = {}
    for number, line in enumerate(islice(lines_of(path), covered, None), start=covered + 1):
        if round_of(line, path) != number:
            raise AccordError(f"{path} is damaged: its row {number} is not that of round {number}")
        checks |= {number: row["row"]} if "row" in (row := parsed(line, path)) else {}
    return checks


def check_record(folder: Path) -> Json | None:
    """Refuses a folder whose figures or settings are not what was written; gives its `done` mark, if it has one.
    Tensors are checked by those who read them."""
    return _at_rest(folder, lambda: _check_record(folder))


def _check_record(folder: Path) -> Json | None:
    done = read_done(folder / "done") if (folder / "done").exists() else None
    state = read_sealed(folder / "state.json") if (folder / "state.json").exists() else {}
    if done is not None and "imported" in done and not state:  # an import leaves no checkpoint
        for name, known in done.get("files", {}).items():
            check_file(folder / name, [known], "done")
        if "files" not in done:
            _say_without_checksums()
        return done
    if not state and ((done and "files" in done) or (folder / "older.json").exists()):
        raise AccordError(f"{folder / 'state.json'} is missing")
    if state and "files" not in state:
        _say_without_checksums()
        return done
    if state:
        check_rows(folder, state)
    _check_later_rows(folder, state.get("rows", 0), done is not None)
    at_end = {name: [of] for name, of in (done or {}).get("files", {}).items()}
    for by, known in (("state.json", state.get("files", {})), ("done", at_end)):
        for name, checksums in known.items():
            # of tensors, those of an adapter are read by peft, which does not check them
            if name != METRICS and (not name.endswith(".safetensors") or name.startswith("adapter/")):
                check_file(folder / name, checksums, by)
    return done


def _at_rest(folder: Path, check: Callable[[], Found]) -> Found:
    """Checks once more where a process wrote in between: it may be at work in the folder."""
    for _ in range(3):
        before = _marks(folder)
        try:
            return check()
        except AccordError:
            if _marks(folder) == before:
                raise
    return check()


def _marks(folder: Path) -> list[bytes]:
    return [path.read_bytes() if path.exists() else b"" for path in (folder / "state.json", folder / "done")]
