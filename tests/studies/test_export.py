"""Runs that others hand over: what was changed on the way, or since, is one sentence that names the run."""

import io
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord.console.progress import watcher_for
from accord.console.tables import show_results
from accord.core.errors import AccordError
from accord.experiments.execute import Interrupt
from accord.experiments.sweep import PlannedRun, sweep
from accord.runs.checksums import NoChecksums, _say_without_checksums, sealed
from accord.runs.reader import load_all
from accord.studies import load
from accord.studies.carry_out import carry_out
from accord.studies.export import export_runs, import_runs
from study_commands import TINY


def train(runs: list[PlannedRun]) -> tuple[int, bool]:
    with watcher_for(Console(file=io.StringIO())) as watcher:
        return sweep(runs, watcher, Interrupt(), lambda text: None), False


def carried(place: Path) -> list[Path]:
    """The folders of two runs that differ in their seeds, trained unless they are there."""
    place.mkdir(exist_ok=True)
    (place / "tiny.toml").write_text(TINY)
    study = load(str(place / "tiny.toml")).only({"rule": ["mean"]}).changed(grid=False)
    done = carry_out(study, place / "runs", "held-out", train, lambda text: None)
    return [run.folder for run in done.runs]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return carried(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def export(folders: list[Path], tmp_path: Path) -> Callable[..., Path]:
    """Writes an export of both runs after their lines were changed, with checksums of their own if they are to be
    `sound`."""

    def write(change: Callable[[list[dict[str, Any]]], object], sound: bool = False) -> Path:
        path = tmp_path / "runs.xz"
        export_runs(folders, path)
        head, *runs = map(json.loads, lzma.decompress(path.read_bytes()).splitlines())
        change(runs)
        if sound:
            runs = [sealed({key: value for key, value in run.items() if key != "checksum"}) for run in runs]
        path.write_bytes(lzma.compress("\n".join(map(json.dumps, (head, *runs))).encode()))
        return path

    return write


def swap(runs: list[dict[str, Any]]) -> None:
    runs[0]["metrics"], runs[1]["metrics"] = runs[1]["metrics"], runs[0]["metrics"]


def huge(runs: list[dict[str, Any]]) -> None:
    runs[0]["metrics"][0]["evaluation"]["splits"]["train"]["loss"]["by_sample"] = 10**400


def swap_with_checksums(runs: list[dict[str, Any]]) -> None:
    swap(runs)
    runs[0]["checksum"], runs[1]["checksum"] = runs[1]["checksum"], runs[0]["checksum"]


@pytest.mark.parametrize(
    "change",
    [
        swap,
        swap_with_checksums,
        lambda runs: runs[0]["environments"][0].update(torch="9"),
        lambda runs: runs[0]["done"].update(flat_since=1),
        lambda runs: runs[0].pop("checksum"),
    ],
    ids=["metrics swapped", "with their checksums", "environment", "done", "no checksum"],
)
def test_what_was_changed_in_an_export_is_refused_by_the_runs_name(
    change: Callable[[list[dict[str, Any]]], object], export: Callable[..., Path], folders: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(
        AccordError, match=f"^{min(f.name for f in folders)} in .*runs.xz is damaged: .*checksum differs"
    ):
        import_runs(export(change), tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


def test_a_figure_that_no_float_can_hold_is_refused(export: Callable[..., Path], tmp_path: Path) -> None:
    for sound in (False, True):
        with pytest.raises(AccordError, match="runs.xz is damaged: a number of 401 digits"):
            import_runs(export(huge, sound), tmp_path / "pool")


def _repeat(runs: list[dict[str, Any]]) -> None:
    runs[1] = runs[0]


def test_a_run_that_is_there_twice_is_refused(export: Callable[..., Path], tmp_path: Path) -> None:
    for sound in (False, True):
        with pytest.raises(AccordError, match=r"-s0 is there twice$"):
            import_runs(export(_repeat, sound), tmp_path / "pool")


@pytest.mark.parametrize("number", ["1", -1, True, 1.0, 4])
def test_rounds_are_whole_numbers_that_rise(number: object, export: Callable[..., Path], tmp_path: Path) -> None:
    def change(runs: list[dict[str, Any]]) -> None:
        runs[0]["metrics"][0]["round"] = number

    with pytest.raises(AccordError, match="-s0 is not whole"):
        import_runs(export(change, sound=True), tmp_path / "pool")


def _text_for_a_figure(runs: list[dict[str, Any]]) -> None:
    runs[0]["metrics"][0]["evaluation"]["splits"]["test"]["accuracy"]["by_sample"] = "high"


def test_a_damaged_run_empties_no_cell_in_silence(export: Callable[..., Path], tmp_path: Path) -> None:
    import_runs(export(_text_for_a_figure, sound=True), tmp_path / "runs")
    with pytest.raises(AccordError, match="-s0 is damaged: its files do not hold what a run writes"):
        carried(tmp_path)


# ------------------------------------------------------------------------------------------------- once they are here


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("name", ["metrics.jsonl", "experiment.json", "environment.json", "done"])
def test_an_imported_run_that_was_edited_is_damaged(name: str, export: Callable[..., Path], tmp_path: Path) -> None:
    import_runs(export(lambda runs: None), tmp_path / "runs")
    first, _ = load_all([tmp_path / "runs"])
    file = first.folder / name
    before, after = ('"rounds": 4', '"rounds": 3') if name == "done" else ("1", "2")
    file.write_text(file.read_text().replace(before, after, 1))
    read = load_all([tmp_path / "runs"])
    assert read[0].damaged and f"{name} is damaged" in read[0].status and read[1].status == "done"
    with pytest.raises(AccordError, match=f"{name} is damaged"):
        carried(tmp_path)


def test_a_mark_of_an_import_switches_no_checks_off(folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], folder := tmp_path / folders[0].name)
    (folder / "done").write_text('{"rounds": 4, "imported": true}')
    assert load_all([folder])[0].status == "done", "an older mark"
    rows = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(rows.replace('"samples": ', '"samples": 1', 1))
    assert "metrics.jsonl is damaged" in load_all([folder])[0].status


def test_an_import_of_an_earlier_version_is_read_and_said_to_have_no_checksums(
    export: Callable[..., Path], tmp_path: Path
) -> None:
    import_runs(export(lambda runs: None), tmp_path / "runs")
    for folder in (tmp_path / "runs").iterdir():
        (folder / "done").write_text('{"schema": 1, "rounds": 4, "imported": true}')
    _say_without_checksums.cache_clear()
    with pytest.warns(NoChecksums):
        assert [run.status for run in load_all([tmp_path / "runs"])] == ["done", "done"]


@pytest.mark.parametrize("name", ["done", "state.json", "metrics.jsonl", "clients.json"])
def test_the_way_on_from_a_damaged_run_is_one_that_every_command_has(
    name: str, folders: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(folders[0].parent, tmp_path / "runs")
    damaged = tmp_path / "runs" / folders[0].name
    (damaged / name).write_text((damaged / name).read_text().replace("1", "2"))
    with pytest.raises(AccordError, match=f"{name} is damaged.*delete the run's folder to start over") as refused:
        carried(tmp_path)
    assert "--" not in str(refused.value), "`accord reproduce` has no --fresh and no --resume"
    shutil.rmtree(damaged)
    carried(tmp_path)
    assert (damaged / "metrics.jsonl").read_bytes() == (folders[0] / "metrics.jsonl").read_bytes()


def test_a_run_under_anothers_name_is_not_taken_for_it(
    folders: list[Path], export: Callable[..., Path], tmp_path: Path
) -> None:
    import_runs(export(lambda runs: None), tmp_path / "imported/runs")
    shutil.copytree(folders[0].parent, tmp_path / "trained/runs")
    one, other = (folder.name for folder in folders)
    for place in (tmp_path / "trained", tmp_path / "imported"):
        assert [folder.name for folder in carried(place)] == [one, other]
        shutil.rmtree(place / "runs" / other)
        shutil.copytree(place / "runs" / one, place / "runs" / other)
        with pytest.raises(AccordError, match=f"{other} holds another run, {one}: .*delete the run's folder"):
            carried(place)
        assert [run.seed for run in load_all([place / "runs"])] == ["0", "0"], "to be shown it may have any name"


@pytest.mark.filterwarnings("ignore::accord.runs.checksums.NoChecksums")
@pytest.mark.parametrize("figure", [str(10**400), "1e400", "-1e400", "1e308", "NaN", '"x"'])
def test_figures_beyond_all_bounds_stop_no_table(
    figure: str, export: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_runs(export(lambda runs: None), tmp_path / "runs")
    for run in load_all([tmp_path / "runs"]):
        (run.folder / "done").write_text('{"schema": 1, "rounds": 4, "imported": true}')
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            for split in row["evaluation"]["splits"].values():
                split["accuracy"] = dict.fromkeys(split["accuracy"], "figure")
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (run.folder / "metrics.jsonl").write_text(text.replace('"figure"', figure))
    for each in ([tmp_path / "runs"], [run.folder for run in load_all([tmp_path / "runs"])][:1]):
        for as_json in (False, True):
            show_results(load_all(each), None, as_json)
    out = capsys.readouterr().out
    assert ("metrics.jsonl is damaged" in out) == (figure not in ("NaN", '"x"')) and (
        "damaged" in out or figure == "NaN"
    )
