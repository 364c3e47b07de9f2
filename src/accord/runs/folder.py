"""A run's folder: its settings, metrics, checkpoints and `done` mark. Whatever happens to the process, what lies here
is whole.

    experiment.toml      what the user wrote, word for word (runs of the command line)
    experiment.json      the settings with every default filled in
    preparation.json     what the model reads and its classes' names, so that it can be used without the data
    environment.json     versions, engine, processor, threads: one entry for every environment the run has seen
    metrics.jsonl        a line per round; no clock in it, so equal runs write equal files
    timing.jsonl         a line per round with its seconds
    state.json           the last checkpoint: the folder's name, round, tensor file, client versions, how much of the
                         metrics belongs to it, and checksums of all of these
    older.json           the checkpoint before it, until the run is done: the way on, should the last one be damaged
    checkpoint-*.safetensors, clients/     the tensors that state.json and older.json name
    model.safetensors, best.safetensors    the last model and the one best on held-out data, once the run is done
    adapter/             of a PEFT model: the last model's adapter as peft saves it, once the run is done
    clients.json         every client's last evaluation, once the run is done
    done                 the run reached its rounds, or became flat before them; or it was imported (studies/export.py).
                         It holds checksums of what a run writes at its end
    lock                 held while a process works here

A file is written beside its name, synced and renamed. `state.json` is written last: it decides which tensors count.
"""

import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.files import json_bytes, tensor_bytes, write_whole
from accord.core.jsonable import Json
from accord.core.locks import remove_locked, take_lock
from accord.data.preparation import Preparation
from accord.runs.adapter import save_adapter
from accord.runs.checkpoints import START_OVER, Checkpoints
from accord.runs.checksums import (
    METRICS,
    TIMING,
    check_file,
    check_record,
    checksum,
    checksum_of,
    lines_of,
    parsed,
    read_json,
    write_sealed,
)
from accord.runs.environment import OtherEnvironment, changes
from accord.runs.fingerprint import SCHEMA
from accord.runs.rows import Log, RoundRow, Rows, json_line


def client_file(folder: Path, number: int, round: int) -> Path:
    """Where what a client remembers since a round is kept. Clients go by number: ids may hold characters that a file
    name cannot."""
    return folder / f"{number:06d}-{round:06d}.safetensors"


class RunFolder:
    """One run's folder, locked by this process until `close`."""

    def __init__(
        self, path: Path, settings: Mapping[str, Any], rounds: int, *, toml: str | None = None, resume: bool = True
    ) -> None:
        self.path, self._settings, self._rounds, self._toml = path, {"schema": SCHEMA, **settings}, rounds, toml
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise AccordError(f"{path} cannot be a run's folder: there is a file in its place") from None
        self._metrics, self._timing = Log(path / METRICS), Log(path / TIMING)
        self._on_schedule = 0  # up to this round a straight run has no evaluation but those of its schedule
        self._lock = take_lock(path)
        try:
            self._checkpoints = Checkpoints(path)
            done = self._read_done()
            self.finished_at: int = done["rounds"]
            # a flat run has no more rounds, however many are asked for
            self.over = self.finished_at >= rounds or "flat_since" in done
            self._imported = "imported" in done and self.state is None  # from an export, which has no checkpoints
            if self._imported and not self.over:
                self.finished_at = 0  # there is nothing to go on from
            for mark in (self.state or {}, done):
                self._check_name(mark)
            self._check(resume)
        except BaseException:
            self.close()
            raise

    @property
    def state(self) -> Json | None:
        """The last checkpoint, if there is one."""
        return self._checkpoints.last

    @property
    def older(self) -> Json | None:
        """The checkpoint before it."""
        return self._checkpoints.older

    @property
    def environment(self) -> Json | None:
        """Where the run ran last, if it has a checkpoint to go on from."""
        seen = self._environments()
        return seen[-1] if seen else None

    def _read_done(self) -> Json:
        """The mark of a run that is done, with all that it vouches for."""
        if not (self.path / "done").exists():
            return {"rounds": 0}
        try:
            return check_record(self.path) or {"rounds": 0}
        except AccordError as error:
            rewrite = "delete done and resume the run to write it anew, or " if self.state else ""
            raise AccordError(f"{error}: {rewrite}{START_OVER}") from None

    def _check_name(self, mark: Json) -> None:
        """Refuses a folder that was copied or moved to another run's name; earlier versions did not note their own."""
        if mark.get("run", self.path.name) != self.path.name:
            raise AccordError(
                f"{self.path} holds another run, {mark['run']}: give it that name again, or {START_OVER} under this one"
            )

    def _check(self, resume: bool) -> None:
        rounds = self._rounds
        if self.finished_at and self.state is None and not self._imported:
            raise AccordError(f"{self.path} is marked done but its state.json is missing: {START_OVER}")
        if resume or self.over:
            return
        if self.finished_at:
            raise AccordError(
                f"{self.path} is done after {self.finished_at} rounds: add --resume to extend it to {rounds}, or"
                " --fresh to start over"
            )
        if (self.path / "metrics.jsonl").exists():
            reached = self.state["round"] if self.state else 0
            raise AccordError(
                f"{self.path} holds a run that stopped after round {reached}: add --resume to go on, or --fresh to"
                " start over"
            )

    def begin(self, environment: Json, last: int = 1, preparation: Preparation | None = None) -> dict[str, Tensor]:
        """Readies the folder for writing: settings in place, metrics cut back to the checkpoint. Gives the checkpoint's
        tensors, if any. The `last` rounds of a run are evaluated whatever its schedule; what it was evaluated for when
        it was to end earlier stays until it has gone on."""
        tensors = self.tensors()  # first of all: a folder whose checkpoint is damaged is left as it is
        self._checkpoints.clean()
        for left_over in self.path.glob(".*.part"):  # of a process that was killed
            left_over.unlink()
        (self.path / "done").unlink(missing_ok=True)
        contents = {"experiment.json": json_bytes(self._settings)}
        if self._toml is not None:
            contents["experiment.toml"] = self._toml.encode()
        if preparation is not None:
            contents["preparation.json"] = json_bytes(preparation.to_json())
        contents |= self._noted(environment)
        self._checkpoints.vouch({name: checksum(content) for name, content in contents.items()})
        for name, content in contents.items():
            write_whole(self.path / name, content)
        self._about = {name: checksum_of(self.path / name) for name in [*contents, "environment.json"]}
        reached = self.state["round"] if self.state else 0
        for path in (self.path / METRICS, self.path / TIMING):
            # a line for each round; what follows may never have reached the disk whole
            write_whole(path, b"".join(islice(lines_of(path), reached)))
        self._metrics.restart(lines_of(self.path / METRICS))
        self._on_schedule = min(reached, self._rounds - last)
        return tensors

    def _forget_earlier_end(self) -> None:
        """Leaves the metrics as a straight run would have written them, without the evaluations that this one has only
        because it was to end earlier."""
        path = self.path / "metrics.jsonl"
        lines = list(lines_of(path)) if self._on_schedule > 0 else []
        straight = [self._straight(line, path) for line in lines]
        if straight != lines:
            self._replace_rows(straight)
        self._on_schedule = 0

    def amend(self, row: RoundRow) -> RoundRow:
        """Puts another row in the last one's place, and gives it."""
        self._metrics.flush()
        *before, _ = lines_of(self.path / METRICS)
        self._replace_rows([*before, json_line(row.fields_in_json()).encode()])
        return row

    def _replace_rows(self, lines: Sequence[bytes]) -> None:
        self._checkpoints.replace_rows(lines)
        self._metrics.restart(lines)

    def _straight(self, line: bytes, path: Path) -> bytes:
        row = parsed(line, path) if b'"off_schedule"' in line else None
        if row is None or row["round"] > self._on_schedule:
            return line
        return json_line({key: row[key] for key in row if key not in ("evaluation", "off_schedule")}).encode()

    def tensors(self) -> dict[str, Tensor]:
        """The checkpoint's tensors; none if there is no checkpoint yet."""
        if self.state is None and self.over and self._imported:
            raise AccordError(f"{self.path} was imported without its model: delete the folder to train it here")
        if self.state is None:
            return {}
        return self._checkpoints.tensors()

    def _environments(self) -> list[Json]:
        path = self.path / "environment.json"
        if not path.exists() or not self.state:
            return []
        try:
            check_file(path, self.state.get("files", {}).get(path.name))
        except AccordError as error:
            raise AccordError(f"{error}: {START_OVER}") from None
        environments: list[Json] = read_json(path)
        return environments

    def _noted(self, environment: Json) -> dict[str, bytes]:
        """The file of environments, if this is a new one."""
        seen = self._environments()
        if seen and (changed := changes(seen[-1], environment)):
            warning = (
                f"the run goes on with {changed}: its results may differ in their last digits from those of an"
                " uninterrupted run"
            )
            warnings.warn(warning, OtherEnvironment, stacklevel=3)
        if seen and {k: v for k, v in seen[-1].items() if k != "from_round"} == environment:
            return {}
        first = self.state["round"] + 1 if self.state else 1
        return {"environment.json": json_bytes([*seen, {"from_round": first, **environment}])}

    def rows(self) -> Rows:
        """The metrics so far, to read and to add to. Rows count once a checkpoint covers them; until then a restart
        drops and repeats them."""
        return Rows.read(self._metrics)

    def log_timing(self, timing: Json) -> None:
        """Adds a round's seconds."""
        self._timing.append(timing)

    def checkpoint(self, tensors: dict[str, Tensor], numbers: Json) -> None:
        """Makes everything up to `numbers["round"]` safe. `state.json` goes last; only then may older tensors go. The
        checkpoint before it stays."""
        self._metrics.flush(sync=True)
        self._timing.flush()
        name = f"checkpoint-{numbers['round']:06d}.safetensors"
        content = tensor_bytes(tensors)
        write_whole(self.path / name, content)
        known = {**self._about, METRICS: self._metrics.checksum, name: checksum(content)}
        files = {file: [of] for file, of in known.items()}
        vouched = {"rows": self._metrics.count, "files": files}
        self._checkpoints.add({"schema": SCHEMA, "run": self.path.name, "tensors": name, **numbers, **vouched})
        self._forget_earlier_end()

    def finish(self, rounds: int, models: Mapping[str, nn.Module], clients: list[Json], flat_since: int | None) -> None:
        """The run is complete: its models, its clients' evaluations, and the mark that says so, last. A flat one says
        since when. Its last checkpoint has all rows."""
        self._forget_earlier_end()
        contents = {f"{name}.safetensors": tensor_bytes(model.state_dict()) for name, model in models.items()}
        adapter = save_adapter(models["model"], self.path / "adapter") if "model" in models else []
        # a line each: with indents, to write those of hundreds of clients took longer than many rounds
        rows = ",\n".join([json_line(row).rstrip() for row in clients])
        contents["clients.json"] = f"[\n{rows}\n]\n".encode()
        for name, content in contents.items():
            write_whole(self.path / name, content)
        self._checkpoints.forget_older()  # the run has its models now
        files = {name: checksum(content) for name, content in contents.items()}
        files |= {path.relative_to(self.path).as_posix(): checksum_of(path) for path in adapter}
        flat = {} if flat_since is None else {"flat_since": flat_since}
        mark = {"schema": SCHEMA, "run": self.path.name, "rounds": rounds, **flat, "files": files}
        write_sealed(self.path / "done", mark)

    def close(self) -> None:
        """Lets go of the folder, and takes it away if nothing came of it. Closing twice does no harm."""
        if not self._lock.is_locked:
            return
        self._metrics.flush()
        self._timing.flush()
        if self.path.exists() and [file.name for file in self.path.iterdir()] == ["lock"]:
            remove_locked(self.path, self._lock)
        else:
            self._lock.release()
