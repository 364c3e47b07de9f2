"""Damaged folders: whatever happens to a file, a run is read and resumed with the same figures, or refused with a
sentence that names the file."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import accord
from accord import AccordError
from accord.core.jsonable import Json
from accord.runs.checksums import NoChecksums, _say_without_checksums
from accord.runs.reader import load
from conftest import blobs, mlp, without_checksums

ROUNDS = 8
Damage = Callable[[Path], None]


def train(folder: Path, killed_after: int | None = None, **more) -> accord.Run:
    def die(event) -> None:
        if event.round == killed_after:
            raise KeyboardInterrupt

    settings = {"rounds": ROUNDS, "sample": 4, "evaluate_every": 2, "checkpoint_every": 2, "verbose": False, **more}
    return accord.fit(mlp(), blobs(), accord.scaffold(mask=accord.gma()), folder=folder, hooks=[die], **settings)


@dataclass(frozen=True)
class Example:
    """A folder, another of the same kind, and the figures that it has and comes to."""

    folder: Path
    other: Path
    history: list[tuple[int, Json]]
    straight: accord.Run


def history(folder: Path) -> list[tuple[int, Json]]:
    return [(number, evaluation.to_json()) for number, evaluation in load(folder).history]


def example(place: Path, **how) -> Example:
    for name, seed in (("one", 0), ("other", 1)):
        with contextlib.suppress(KeyboardInterrupt):
            train(place / name, seed=seed, **how)
    (folder,), (other,) = (list((place / name).iterdir()) for name in ("one", "other"))
    return Example(folder, other, history(folder), train(place / "straight", seed=0))


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Example:
    return example(tmp_path_factory.mktemp("done"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Example:
    """After round 7: its checkpoint is of round 6, the older one of round 4."""
    return example(tmp_path_factory.mktemp("killed"), killed_after=7)


# ----------------------------------------------------------------------------------------------------- damages


def flip(share: float, bit: int) -> Damage:
    def damage(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int(share * (len(content) - 1))] ^= 1 << bit
        file.write_bytes(content)

    return damage


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return lambda file: [file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))][0] and None


def renumbered(rows: list[bytes]) -> list[bytes]:
    return [*rows[:2], rows[2].replace(b'"round": 3', b'"round": 4'), *rows[3:]]


def edited(rows: list[bytes]) -> list[bytes]:
    return [*rows[:-1], rows[-1].replace(b'"samples": ', b'"samples": 1', 1)]


def cut(share: float) -> Damage:
    return lambda file: [file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])][0] and None


ANY: dict[str, Damage] = {
    **{f"bit {bit} at {share:.0%}": flip(share, bit) for share in (0, 0.17, 0.4, 0.66, 0.83, 0.97) for bit in (0, 4)},
    "half of it": cut(0.5),
    "empty": cut(0.0),
    "removed": Path.unlink,
    "not UTF-8": lambda file: [file.write_bytes(b"\xff\xfe" + file.read_bytes())][0] and None,
}
OF_ROWS: dict[str, Damage] = {
    "first row missing": lines(lambda rows: rows[1:]),
    "a row missing": lines(lambda rows: [*rows[:2], *rows[3:]]),
    "last row missing": lines(lambda rows: rows[:-1]),
    "a row twice": lines(lambda rows: [*rows[:3], rows[2], *rows[3:]]),
    "last row twice": lines(lambda rows: [*rows, rows[-1]]),
    "two rows swapped": lines(lambda rows: [rows[1], rows[0], *rows[2:]]),
    "another round's number": lines(renumbered),
    "a row edited": lines(edited),
    "a row of another kind": lines(lambda rows: [*rows[:-1], b"[1]\n"]),
}
FILES = ["metrics.jsonl", "timing.jsonl", "state.json", "experiment.json", "preparation.json", "environment.json"]
OF_DONE = [*FILES, "done", "clients.json", "model.safetensors", "best.safetensors", "checkpoint-000008.safetensors"]
OF_KILLED = [*FILES, "older.json", "checkpoint-000006.safetensors", "checkpoint-000004.safetensors", "clients/0"]


def damages(of: Example, name: str, place: Path) -> Iterator[tuple[str, str, Path]]:
    """Every kind of damage to a file: what it is, the file, and the folder that has it."""
    rows = OF_ROWS if name.endswith(".jsonl") else {}
    # another run's has this one's name, where names hold a round
    file = next(path for path in sorted(of.folder.rglob("*")) if str(path.relative_to(of.folder)).startswith(name))
    inside = file.relative_to(of.folder)
    kinds = {**ANY, **rows, "of another run": lambda path: [shutil.copy(of.other / inside, path)][0] and None}
    for kind, damage in kinds.items():
        if kind == "of another run" and not (of.other / inside).exists():
            continue
        folder = place / kind.replace("/", " ") / of.folder.name
        shutil.copytree(of.folder, folder)
        damage(folder / inside)
        yield kind, inside.name, folder


def check(of: Example, kind: str, name: str, folder: Path) -> bool:
    """Whether the damage was refused, and not merely of no effect."""
    read = load(folder)
    assert (read.damaged and name in read.status) or history(folder) == of.history, f"{kind}: {read.status}"
    told = read.status if read.damaged else ""
    try:
        state = accord.load(folder, mlp()).model().state_dict()
        if (of.folder / "done").exists():
            expected = of.straight.model().state_dict()
            assert all(torch.equal(state[key], tensor) for key, tensor in expected.items()), kind
    except AccordError as error:
        told = str(error)
    assert not told or name in told, f"{kind}: {told}"
    try:
        resumed = train(folder.parent)
        assert resumed.rows == of.straight.rows and torch.equal(resumed.last.vector, of.straight.last.vector), kind
    except AccordError as error:
        told = str(error)
        named = name in told and ("delete the run's folder" in told or "older.json" in told)
    else:
        named = True
    assert named, f"{kind}: {told}"
    return bool(told)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DONE)
def test_a_damaged_run_that_is_done_is_refused_or_the_same(done: Example, name: str, tmp_path: Path) -> None:
    refused = [check(done, *damage) for damage in damages(done, name, tmp_path)]
    assert len(refused) >= 16 and (any(refused) or name == "timing.jsonl"), "nothing is made of timing"


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_KILLED)
def test_a_damaged_run_that_was_killed_is_refused_or_the_same(killed: Example, name: str, tmp_path: Path) -> None:
    refused = [check(killed, *damage) for damage in damages(killed, name, tmp_path)]
    assert len(refused) >= 16 and (any(refused) or name in ("older.json", "checkpoint-000004.safetensors"))


# ------------------------------------------------------------------------------------------------- the way on


@pytest.mark.parametrize("name", ["state.json", "checkpoint-000006.safetensors"])
def test_the_older_checkpoint_is_the_way_on(killed: Example, name: str, tmp_path: Path) -> None:
    folder = tmp_path / killed.folder.name
    shutil.copytree(killed.folder, folder)
    flip(0.5, 0)(folder / name)
    with pytest.raises(AccordError, match=f"{name} is damaged.*rename older.json to state.json.*after round 4"):
        train(tmp_path)
    (folder / "older.json").rename(folder / "state.json")
    resumed = train(tmp_path)
    assert resumed.rows == killed.straight.rows
    assert torch.equal(resumed.last.vector, killed.straight.last.vector)
    assert not (folder / "older.json").exists(), "a run that is done needs none"


def test_models_of_a_run_that_is_done_are_written_anew(done: Example, tmp_path: Path) -> None:
    folder = tmp_path / done.folder.name
    shutil.copytree(done.folder, folder)
    flip(0.5, 0)(folder / "clients.json")
    with pytest.raises(AccordError, match="clients.json is damaged.*delete done and resume the run to write it anew"):
        train(tmp_path)
    (folder / "done").unlink()
    train(tmp_path)
    for name in ("clients.json", "model.safetensors", "done", "state.json"):
        assert (folder / name).read_bytes() == (done.folder / name).read_bytes()


def test_a_folder_without_checksums_is_read_and_resumed_and_said_once(killed: Example, tmp_path: Path) -> None:
    folder = tmp_path / killed.folder.name
    shutil.copytree(killed.folder, folder)
    without_checksums(folder)
    (folder / "older.json").unlink()
    _say_without_checksums.cache_clear()
    with pytest.warns(NoChecksums, match="of an earlier version"):
        assert history(folder) == killed.history
    assert history(folder) == killed.history, "where it would be an error to say it again"
    resumed = train(tmp_path)
    assert resumed.rows == killed.straight.rows
    assert json.loads((folder / "state.json").read_text())["files"], "it has them now"
