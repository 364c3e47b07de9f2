"""Studies in pieces: what is trained first when time is short, and runs that go from one machine to another."""

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from accord.runs.checksums import sealed
from accord.studies import Study, load
from accord.studies.budget import MOST_SEEDS, batches, with_more_seeds
from accord.studies.outcome import Figures, Result
from accord.studies.published import Printed
from accord.studies.results import read
from accord.studies.study import Named
from command import Started, environment, refused
from study_commands import PRINTED, TINY, inside


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny study has been run, and its runs in a file."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "tiny.toml").write_text(TINY)
    code, out, err = inside(folder, "reproduce", "tiny.toml", "--only", "rule=mean+gma", "--export", "runs.xz")
    assert code == 0 and "runs.xz: 8 runs" in err, err
    (folder / "out.txt").write_text(out)
    (folder / "err.txt").write_text(err)
    return folder


def test_new_runs_say_nothing_of_going_on_and_the_engine_is_named_once(exported: Path) -> None:
    told = (exported / "err.txt").read_text()
    assert "nothing to resume" not in told and told.count("\nengine ") == 1


# ------------------------------------------------------------------------------------------------ command by command


def test_commands_that_add_make_the_table_of_one_that_asks_for_everything(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    path = tmp_path / "runs/reproduce/tiny.json"
    commands = [("mean+gma", "--import", str(exported / "runs.xz")), ("mean",), ("gma", "--add")]
    written = []
    for rules, *more in commands:
        code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "--only", f"rule={rules}", *more)
        assert code == 0, err
        written.append(json.loads(path.read_text()))
    whole, mean, both = written
    assert len(mean["cells"]) == 1, "without --add a command writes the file anew"
    assert both["cells"] == whole["cells"] and set(both["runs"]) == set(whole["runs"])
    assert both["command"].split(" ; ")[1] == "accord reproduce tiny.toml --only rule=gma --add"
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "--only", "rule=gma", "--add", "--seeds", "0")
    again = json.loads(path.read_text())
    assert code == 0 and again["cells"] == whole["cells"], "a cell with more seeds stays"
    assert read(path).results, "it is a results file like any other"


def test_results_of_another_form_are_not_added_to(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    path = tmp_path / "runs/reproduce/tiny.json"
    path.parent.mkdir(parents=True)
    whole = json.loads((exported / "runs/reproduce/tiny.json").read_text())
    wrong = {
        "its against is gma, not mean": {**whole, "against": "gma"},
        "its changed is ['train.rounds=9'], not []": {**whole, "changed": ["train.rounds=9"]},
        "has results of protocol 0": {**whole, "protocol": 0},
        "does not hold results of accord reproduce": {},
    }
    for said, content in wrong.items():
        path.write_text(json.dumps(content))
        assert said in refused({}, tmp_path, "reproduce", "tiny.toml", "--add")
    assert not (tmp_path / "runs/reproduce/runs").exists(), "nothing was trained"


# ------------------------------------------------------------------------------------------------ from place to place


def test_imported_runs_are_not_trained_again_and_make_the_same_table(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("reproduce", "tiny.toml", "--only", "rule=mean+gma", "--import", str(exported / "runs.xz"))
    code, out, err = inside(tmp_path, *words, "--export", "again.xz")
    assert code == 0 and "8 runs taken up, 0 were here." in err and "8 of 8 runs are done already." in err
    assert out == (exported / "out.txt").read_text()
    assert (tmp_path / "again.xz").read_bytes() == (exported / "runs.xz").read_bytes()
    _, _, err = inside(tmp_path, *words)
    assert "0 runs taken up, 8 were here." in err
    assert not list(tmp_path.glob("runs/reproduce/runs/*/model.safetensors"))


def test_what_was_trained_on_a_device_that_is_not_here_is_told_all_the_same(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("reproduce", "tiny.toml", "--only", "rule=mean+gma", "--import", str(exported / "runs.xz"))
    code, out, err = inside(tmp_path, *words, "run.device=cuda")
    assert code == 0 and out == (exported / "out.txt").read_text(), err


def test_an_imported_run_that_is_asked_for_more_rounds_starts_from_its_beginning(
    exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    more = ("--only", "rule=mean", "--seeds", "0", "--rounds", "6")
    code, imported, err = inside(tmp_path, "reproduce", "tiny.toml", *more, "--import", str(exported / "runs.xz"))
    assert code == 0, err
    (tmp_path / "straight").mkdir()
    (tmp_path / "straight/tiny.toml").write_text(TINY)
    assert inside(tmp_path / "straight", "reproduce", "tiny.toml", *more)[1] == imported


def test_an_unfinished_run_gives_way_to_the_finished_one(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    pool = tmp_path / "runs/reproduce/runs"
    name = next((exported / "runs/reproduce/runs").iterdir()).name
    for left_over in (pool / name, pool / f".{name}.part"):  # of a run that was stopped, and of an import
        left_over.mkdir(parents=True)
        (left_over / "experiment.json").write_text("{}")
    words = ("reproduce", "tiny.toml", "--only", "rule=mean+gma", "--import", str(exported / "runs.xz"))
    code, out, err = inside(tmp_path, *words)
    assert code == 0 and "8 runs taken up" in err and out == (exported / "out.txt").read_text()
    assert not list(pool.glob(".*.part"))


def test_a_damaged_or_foreign_file_is_refused_before_anything_is_written(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    whole = (exported / "runs.xz").read_bytes()
    lines = lzma.decompress(whole).splitlines()
    first = json.loads(lines[1])
    wrong = {
        "damaged: ": whole[: len(whole) // 2],
        "Input format": b"not an export",
        "7 runs in place of 8": lzma.compress(b"\n".join(lines[:-1])),
        "export of format 9, and this accord reads format 2": lzma.compress(b'{"accord_export": 9, "runs": 0}'),
        "a run is named '../../x-s0'": _export({**first, "name": "../../x-s0"}),
        "is not whole": _export({**first, "metrics": first["metrics"][:-1]}),
        f"{first['name']} in wrong.xz are those of another run, digits-": _export(_changed(first, "train", lr=0.07)),
        "are those of another run": _export({**first, "settings": {**first["settings"], "seed": 5}}),
        "wrong.xz cannot be read: data.clients": _export(_changed(first, "data", clients="six")),
    }
    for said, content in wrong.items():
        (tmp_path / "wrong.xz").write_bytes(content)
        assert said in refused({}, tmp_path, "reproduce", "tiny.toml", "--import", "wrong.xz")
    assert "there is no file none.xz" in refused({}, tmp_path, "reproduce", "tiny.toml", "--import", "none.xz")
    assert not (tmp_path / "runs").exists()


def test_code_that_an_export_names_is_not_imported(exported: Path, tmp_path: Path) -> None:
    """Whether its settings give a run's name then stays open: the file may be a stranger's."""
    first = json.loads(lzma.decompress((exported / "runs.xz").read_bytes()).splitlines()[1])
    (tmp_path / "strange.py").write_text("raise SystemExit('imported')")
    (tmp_path / "strange.xz").write_bytes(_export(_changed(first, "algorithm", mask={"name": "strange:mask"})))
    (tmp_path / "tiny.toml").write_text(TINY)
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "--plan", "--import", "strange.xz")
    assert code == 0 and "1 runs taken up" in err and "imported" not in err, err


def _changed(run: dict, section: str, **values: object) -> dict:
    settings = run["settings"]
    return {**run, "settings": {**settings, section: {**settings[section], **values}}}


def _export(run: dict) -> bytes:
    """A file whose checksums are right: damage is not what is wrong with it."""
    return lzma.compress("\n".join(map(json.dumps, ({"accord_export": 2, "runs": 1}, sealed(run)))).encode())


# ------------------------------------------------------------------------------------------------------ what is first


def test_time_that_is_up_stops_the_study_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("reproduce", "tiny.toml", "--only", "rule=mean+gma", "--seeds", "0")
    reached = []
    for _ in range(2):
        code, _, err = inside(tmp_path, *words, "--rounds", "100000", "--minutes", "0.01")
        assert code == 0 and "Time is up: 2 cells are not complete. The same command goes on." in err
        states = tmp_path.glob("runs/reproduce/runs/*/state.json")
        reached.append(sum(json.loads(state.read_text())["round"] for state in states))
    assert 0 < reached[0] < reached[1]


@pytest.mark.slow
def test_ctrl_c_while_added_seeds_train_ends_with_130_and_keeps_the_complete_results(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(PRINTED)
    words = ("reproduce", "tiny.toml", "--only", "aggregation=avg+gma", "--no-grid", "--rounds", "60")
    code, table, err = inside(tmp_path, *words, "--minutes", "10", "--no-more-seeds")
    assert code == 0 and table and "seeds" not in err
    process = Started(environment(tmp_path), tmp_path, [*words, "--minutes", "10"])
    process.wait_for(lambda: len(list(tmp_path.glob("runs/reproduce/runs/*/metrics.jsonl"))) > 4)
    process.interrupt()
    code, again, err = process.ended()
    assert code == 130 and again == table
    assert "Stopped early: all cells are complete, but seeds or points were still to be added." in err


def test_no_minutes_train_nothing(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "--minutes", "0")
    assert code == 0 and "Time is up: 3 cells are not complete." in err
    assert not list(tmp_path.glob("runs/reproduce/runs/*/metrics.jsonl"))


def study_of(datasets: tuple[str, ...] = ("mnist", "fmnist", "digits")) -> Study:
    """Two rivals on several data sets."""
    axes = {"dataset": {name: {"data.name": name} for name in datasets}, "aggregation": {"avg": {}, "gma": {}}}
    return replace(
        load("tmlr-table2"), name="mine", seeds=(0, 1, 2), axes=axes,
        keep=(), skip=(), when=(), grids={},
    )  # fmt: skip


def printed_number(value: float, metric: str = "test accuracy", window: str = "") -> Printed:
    return Printed({"metric": metric, "window": window}, value, "", "")


def results_of(study: Study, ahead: dict[str, list[float]], printed: float = 2.0) -> list[Result]:
    """Results in which gma is ahead by so much on a data set, seed by seed; none on data sets that are not named.
    `printed` is the paper's gain, in percentage points."""
    results = []
    for cell in study.cells:
        gains = ahead.get(cell.values["dataset"], [])
        masked = cell.values["aggregation"] == "gma"
        by_seed = {seed: {"test": 0.9 + gain * masked} for seed, gain in enumerate(gains)}
        figures = {"held-out": Figures({}, by_seed)} if gains else {}
        results.append(Result(cell, figures, [printed_number(90 + printed * masked)], len(gains), 3))
    return results


def test_what_has_not_been_run_comes_first_and_then_the_widest_interval() -> None:
    study = study_of()
    named = [Named(cell, []) for cell in study.cells]
    results = results_of(study, {"mnist": [0.0, 0.001, 0.002], "digits": [0.0, 0.02, 0.04]})
    order = batches(study, named, results, "held-out")
    assert [{one.cell.values["dataset"] for one in batch} for batch in order] == [{"fmnist"}, {"digits"}, {"mnist"}]
    assert all(len(batch) == 2 for batch in order), "rivals of a place go together"


def test_a_seed_is_added_where_an_interval_holds_both_0_and_the_printed_gain() -> None:
    study = study_of()
    gains = {"mnist": [0.0, 0.001, 0.002], "fmnist": [0.019, 0.02, 0.021], "digits": [-0.03, 0.01, 0.05]}
    more = with_more_seeds(study, results_of(study, gains), "held-out")
    assert more.more_seeds == {("digits",): (3,)}
    assert {cell.values["dataset"]: cell.seeds for cell in more.cells} == {
        "mnist": (0, 1, 2), "fmnist": (0, 1, 2), "digits": (0, 1, 2, 3),
    }  # fmt: skip
    full = replace(study, more_seeds={("digits",): tuple(range(3, MOST_SEEDS))})
    assert with_more_seeds(full, results_of(full, gains), "held-out") is full
