"""The checkpoints that a run folder names: the last one in `state.json`, and in `older.json` the one before it, which
is the way on should the last one be damaged. Each vouches for the files beside it by their checksums, as lists: a file
that is about to be replaced is known in both forms until it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.files import check_files, write_whole
from accord.core.jsonable import Json
from accord.runs.checksums import METRICS, check_rows, checked_state, checksum, read_sealed, read_tensors, write_sealed
from accord.runs.fingerprint import SCHEMA

START_OVER = "delete the run's folder to start over"  # true of every command, and of Python


class Checkpoints:
    """The last two of a run; reading them refuses rows that are not what the last one vouches for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.last: Json | None = None
        check_files(folder)
        try:
            self.last = self._read("state.json")
            if self.last is None and (folder / "older.json").exists():
                raise AccordError(f"{folder / 'state.json'} is missing")
            if self.last is not None and "files" in self.last:
                check_rows(folder, self.last)
        except AccordError as error:
            raise AccordError(f"{error}: {self.way_on()}") from None
        try:
            self.older = self._read("older.json")
        except AccordError:
            self.older = None  # it is not needed

    def _read(self, name: str) -> Json | None:
        if not (self._folder / name).exists():
            return None
        mark = read_sealed(self._folder / name)
        if mark.get("schema") != SCHEMA:
            raise AccordError(
                f"{self._folder} was written with schema {mark.get('schema')}, this accord reads schema {SCHEMA}"
            )
        return checked_state(mark, self._folder / name)

    def way_on(self) -> str:
        """How to go on with a damaged checkpoint: from the older one, if that is whole."""
        try:
            older = read_sealed(self._folder / "older.json")
            check_rows(self._folder, older)
            read_tensors(self._folder / older["tensors"], older["files"][older["tensors"]])
        except (AccordError, KeyError):
            return START_OVER
        return f"rename older.json to state.json to go on after round {older['round']}, or {START_OVER}"

    def tensors(self) -> dict[str, Tensor]:
        """What the last one holds."""
        assert self.last is not None
        name: str = self.last["tensors"]
        try:
            return read_tensors(self._folder / name, self.last.get("files", {}).get(name))
        except AccordError as error:
            raise AccordError(f"the checkpoint {error}: {self.way_on()}") from None

    def add(self, mark: Json) -> None:
        """The next one, whose files are in place."""
        if self.last is not None and self.last["round"] < mark["round"]:
            self.older = self.last
            write_sealed(self._folder / "older.json", self.older)
        self.last = mark
        write_sealed(self._folder / "state.json", mark)
        self.clean()

    def clean(self) -> None:
        """Removes tensors that none of them names: a process may have been killed before it could."""
        kept = {mark["tensors"] for _, mark in self._marks()}
        for old in self._folder.glob("checkpoint-*.safetensors"):
            if old.name not in kept:
                old.unlink()

    def forget_older(self) -> None:
        """The run is about to be done, and has its models."""
        (self._folder / "older.json").unlink(missing_ok=True)
        self.older = None
        self.clean()

    def vouch(self, checksums: Mapping[str, str]) -> None:
        """For files as they are, and as they are about to be."""
        for name, mark in self._marks():
            known = mark.get("files")
            if known is None:
                continue
            new = {file: of for file, of in checksums.items() if of not in known.get(file, ())}
            if new:
                known |= {file: [*known.get(file, ()), of] for file, of in new.items()}
                write_sealed(self._folder / name, mark)

    def replace_rows(self, lines: Sequence[bytes]) -> None:
        """Puts other rows in place of as many."""
        new = [
            (name, mark, checksum(b"".join(lines[: mark["rows"]]))) for name, mark in self._marks() if "rows" in mark
        ]
        for name, mark, after in new:
            mark["files"][METRICS].append(after)
            write_sealed(self._folder / name, mark)
        write_whole(self._folder / METRICS, b"".join(lines))
        for name, mark, after in new:
            mark["files"][METRICS] = [after]
            write_sealed(self._folder / name, mark)

    def _marks(self) -> list[tuple[str, Json]]:
        return [(name, of) for name, of in (("state.json", self.last), ("older.json", self.older)) if of is not None]
