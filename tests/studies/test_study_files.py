"""The files of the papers' studies: every printed number has its place, settings are the papers', runs are shared,
grids grow."""

import json
from pathlib import Path

import numpy as np
import pytest

from accord.experiments.sweep import PlannedRun
from accord.rules.masks import threshold
from accord.studies import Analysis, Cell, Study, load
from accord.studies import find as find_study
from accord.studies.grow import grown
from accord.studies.outcome import Figures, Result, plain
from accord.studies.published import elsewhere, find, numbers, own_rules
from accord.studies.study import edges
from accord.studies.text import result_cells
from accord.training.plan import Plan
from conftest import sentence
from study_commands import TINY, available, inside
from study_places import places


def test_every_printed_number_has_its_place() -> None:
    """All 746, each once in the study of its table, by the rule that the table used; the others of its places are
    further readings."""
    found = places()
    own = [place for place in found if place.study != "fedcmnist-palettes"]
    assert len(own) == len({id(place.printed) for place in own}) == len(numbers()) == 746
    studies = {name: find_study(name) for name in {place.study for place in found}}
    for place in found:
        study = studies[place.study]
        assert (study.paper, study.table) == (place.printed.columns["paper"], place.printed.columns["table"])
        if isinstance(study, Study):
            assert place.rule in (study.rules if place.rule else (None,)), (
                "the rule is one that the study chooses rounds by"
            )
            assert study.rules[0] == (place.rule or "held-out") or place.rule in ("window(171,200)", "window(6,15)")
    silent = {place.study for place in own if place.rule is None}
    assert silent == {"tmlr-table4", "tmlr-table5", "tmlr-table6", "tmlr-table10", "tmlr-membership", "thesis-table4.5"}


# What a column of the papers' tables is as a setting. Where a paper leaves it open, the column is empty.
COLUMNS = {
    "clients": "data.clients",
    "sampled": "train.sample",
    "client_lr": "train.lr",
    "server_lr": "algorithm.server.lr",
    "epochs": "train.epochs",
    "momentum": "train.momentum",
}


def test_cells_have_the_settings_that_their_numbers_were_printed_with() -> None:
    checked = 0
    for name, study in available().items():
        for cell in study.cells:
            for number in find(study.paper, study.table, cell.values):
                for column, key in COLUMNS.items():
                    if printed := number.columns[column]:
                        assert float(printed) == cell.settings[key], (name, str(cell), column)
                        checked += 1
                assert cell.settings["algorithm.name"] == number.columns["algorithm"]
    assert checked > 1400


def test_a_number_that_cannot_be_run_names_the_data_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path))
    lacking = {place.study: set() for place in places()}
    for place in places():
        lacking[place.study].add(place.lacks)
    assert lacking["tmlr-table2"] == {"mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet"}
    assert lacking["corrective-table1"] == {"femnist"} and lacking["tmlr-membership"] == {"cifar10"}
    assert "femnist-digits" in lacking["tmlr-table3"] and None not in set().union(*lacking.values())


def test_what_two_documents_print_differently_is_shown_twice() -> None:
    """TMLR and the thesis share 72 places of their tables 2, 3, 4.1 and 4.4, and differ in 16 of them; of tables 7 and
    4.8 in one."""
    differ = [
        (number, other) for number in numbers() for other in elsewhere(number) if number.columns["paper"] == "tmlr"
    ]
    tables = [(number.columns["table"], other.columns["table"]) for number, other in differ]
    assert (
        len(tables) == 17
        and tables.count(("7", "4.8")) == 1
        and set(tables) == {("2", "4.4"), ("3", "4.1"), ("3", "4.4"), ("7", "4.8")}
    )
    study = load("tmlr-table2").only(
        {"dataset": ["fmnist"], "split": ["noniid"], "clients": ["10"], "algorithm": ["fedavg"]}
    )
    results = [Result(cell, {}, find(study.paper, study.table, cell.values), 0, 4) for cell in study.cells]
    printed = [row[-1] for row in result_cells(study, results, "held-out")]
    assert printed == [
        "printed",
        "87.43 ± 0.05 (oracle)",
        "88.37 ± 0.07 (oracle), in thesis 4.4: 87.37 ± 0.07 (oracle)",
        "",
    ]
    told = [cell["elsewhere"] for cell in plain(study, results, "accord")["cells"]]
    assert [[other["value"] for other in others] for others in told] == [[], [87.37], []] and told[1][0][
        "table"
    ] == "4.4"


def test_train_accuracies_are_told_from_test_accuracies() -> None:
    study = load("tmlr-convex").only({"split": ["noniid"]})
    results = [Result(cell, {}, find(study.paper, study.table, cell.values), 0, 4) for cell in study.cells]
    assert [row[-1] for row in result_cells(study, results, "held-out")][1:3] == [
        "87 (last10), 92 (train, last10)",
        "88.5 (last10), 92.2 (train, last10)",
    ]


def test_every_method_is_tuned_over_as_many_points() -> None:
    for study in available().values():
        assert len({len(cell.points) for cell in study.cells}) == 1, study.name


# What a study's rivals are measured by has no mask; every mask has a control as long as itself beside it.
# no mask: controls of their own
OTHER_RULES = {"workshop-figure2", "poster-results", "corrective-table1", "corrective-table2"}


@pytest.mark.parametrize("name", sorted(set(available()) - OTHER_RULES))
def test_every_study_has_averaging_the_mask_and_its_control_of_equal_length(name: str) -> None:
    study = load(name)
    arms = study.axes[study.compare]
    assert arms[study.against].get("algorithm.mask.name") == "none"
    masks = {
        arm: settings
        for arm, settings in arms.items()
        if settings.get("algorithm.mask.name") in ("gma", "and", "sand", "magnitude")
    }
    assert masks
    for arm, settings in masks.items():
        inner = {key.replace("algorithm.mask.", "algorithm.mask.mask."): value for key, value in settings.items()}
        assert arms[f"{arm}-length"] == inner | {"algorithm.mask.name": "scaled", "algorithm.mask.by": "length"}
    by_place: dict[tuple[str, ...], list] = {}
    for cell in study.cells:
        by_place.setdefault(study.place(cell.values), []).append(cell.grid)
    for grids in by_place.values():
        assert len(grids) >= len(masks) * 2 and (
            all(grid == grids[0] for grid in grids) or name in ("rules", "thesis-causalfed")
        )


def test_controls_of_rules_that_are_no_masks() -> None:
    for name in ("workshop-figure2", "poster-results"):
        arms = load(name).axes["step"]
        for step in ("0.01", "0.1", "1"):
            assert arms[f"{step}-unmasked"] == {**arms[step], "algorithm.average.p": 0.0}
    arms = load("corrective-table1").axes["aggregation"]
    assert arms["corrective alpha=0.2, eq. 15"] == {
        **arms["corrective alpha=0.2"],
        "algorithm.average.constraint": "15",
    }


# ------------------------------------------------------------------------------ settings that are the papers'


def cells_of(name: str, **chosen: str) -> list[Cell]:
    return load(name).only({axis: [value] for axis, value in chosen.items()}).cells


def test_local_epochs_are_each_documents_own() -> None:
    ours = {
        cell.values["dataset"]: cell.settings["train.epochs"]
        for name in ("tmlr-table2", "tmlr-table3")
        for cell in load(name).cells
    }
    assert ours == {
        **dict.fromkeys(("mnist", "fmnist", "fedcmnist"), 1),
        **dict.fromkeys(("cifar10", "cifar100"), 3),
        **dict.fromkeys(("femnist", "mnist-writers"), 5),
        "tinyimagenet": 12,
    }
    for name in available():
        if name.startswith("thesis-"):
            assert {cell.settings["train.epochs"] for cell in load(name).cells} == {1}, name


def test_main_classes_models_and_pictures() -> None:
    for name, study in available().items():
        for cell in study.cells:
            classes = {"cifar100": 10, "tiny-imagenet": 20}.get(cell.settings["data.name"], 2)
            if cell.settings["data.split"] == "labels":
                assert cell.settings.get("data.classes", 2) == classes, (name, str(cell))
            if cell.settings["data.name"] == "femnist-digits":
                assert cell.settings["model.name"] == "lenet"
            assert "data.augment" not in cell.settings
    for cell in cells_of("thesis-table4.4", algorithm="scaffold"):
        assert cell.settings["algorithm.average.weighting"] == "samples"


def test_writers_who_never_train_are_the_test(tmp_path: Path) -> None:
    """On writers of one's own: nobody sets a test set apart, so the unseen ones are judged by, also by the oracle
    rule."""
    for name in ("tmlr-table3", "tmlr-figure2", "thesis-table4.1"):
        natural = [cell for cell in load(name).cells if cell.values["split"] == "natural"]
        assert natural and not any("data.unseen" in cell.settings for cell in natural), (
            "left out, everybody else is unseen"
        )
    x = np.random.RandomState(0).randint(0, 255, (120, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(120) % 3, client=np.arange(120) % 12)
    text = TINY.replace('"digits"', '"arrays"').replace('"data.split" = "labels"', '"data.split" = "natural"')
    text = text.replace('"data.unseen" = 2', f'"data.source" = "{tmp_path / "mine.npz"}"')
    (tmp_path / "mine.toml").write_text(text)
    code, _, err = inside(tmp_path, "reproduce", "mine.toml", "--only", "rule=mean", "--seeds", "0", "train.lr=0.1")
    assert code == 0, err
    (cell,) = json.loads((tmp_path / "runs/reproduce/mine.json").read_text())["cells"]
    for rule in ("held-out", "oracle"):
        figures = cell["figures"][rule]["by_seed"]["0"]
        assert figures["test"] == figures["unseen"]


def test_tau_has_one_value_for_each_rule_of_ten_clients() -> None:
    """Net votes of ten clients are even: the rule is what passes of 0, 2, ..., 10."""
    rules = {
        tau: tuple(net >= threshold(tau, 10) for net in range(0, 11, 2))
        for tau in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    }
    trained = [float(tau) for tau in load("tmlr-figure3d").axes["tau"] if tau[-1].isdigit()]
    assert len({rules[tau] for tau in trained}) == len(trained) == len(set(rules.values())) == 5


def test_the_theses_best_rates_are_points_of_the_grids() -> None:
    """Its tables A.1 and A.2: client rate, server rate."""
    best = [
        ({"dataset": "fmnist", "split": "iid", "algorithm": "fedavg"}, 0.1, 1.0),
        ({"dataset": "fmnist", "split": "iid", "algorithm": "fedprox"}, 0.1, 1.0),
        ({"dataset": "femnist", "split": "iid", "algorithm": "scaffold"}, 0.1, 1.5),
        ({"dataset": "cifar10", "split": "noniid", "algorithm": "fedavg"}, 0.01, 1.5),
        ({"dataset": "cifar10", "split": "noniid", "algorithm": "fedprox"}, 0.001, 1.0),
        ({"dataset": "cifar10", "split": "noniid", "algorithm": "scaffold"}, 0.001, 1.5),
        ({"dataset": "cifar10", "split": "iid", "algorithm": "fedadam"}, 0.001, 0.01),
        ({"dataset": "mnist", "split": "noniid", "algorithm": "fedyogi"}, 0.001, 0.05),
    ]
    for where, client, server in best:
        for cell in cells_of("thesis-table4.4", **where):
            assert {"train.lr": client, "algorithm.server.lr": server} in cell.points


def test_every_round_that_a_tables_rule_reads_is_evaluated() -> None:
    for name, study in available().items():
        for cell in study.cells:
            plan = Plan(
                cell.settings["train.rounds"],
                evaluate_every=cell.settings.get("train.evaluate_every", Plan.evaluate_every),
                evaluate_at=tuple(cell.settings.get("train.evaluate_at", ())),
            )
            seen = set(plan.evaluations)
            assert plan.rounds in seen
            for rule in study.rules:
                read = {"last10": range(plan.rounds - 9, plan.rounds + 1)}.get(rule, range(0))
                if rule.startswith("window"):
                    first, last = map(int, rule[7:-1].split(","))
                    read = range(first, last + 1)
                    if rule not in own_rules(study.paper, study.table):  # a claim's, which the evaluated ones settle
                        read = [number for number in read if number in seen]
                        assert (len(read) > 10 or first == last) and read[0] == first and read[-1] == last
                assert seen.issuperset(read), (name, str(cell), rule)


def test_long_runs_are_evaluated_at_shares_of_their_rounds_that_the_judge_may_ask_for() -> None:
    for cell in cells_of("tmlr-table2", dataset="mnist", algorithm="fedavg"):
        rounds = cell.settings["train.rounds"]
        seen = Plan(rounds, evaluate_at=tuple(cell.settings["train.evaluate_at"])).evaluations
        for share in (0.1, 0.25, 0.5, 1.0):
            assert min(abs(share * rounds - number) for number in seen) <= 0.02 * rounds
        assert len(seen) < 0.3 * rounds


# ------------------------------------------------------------------------------------------- one pool of runs


@pytest.mark.slow
def test_studies_share_runs_and_agree_on_their_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fifth of all runs is another study's. What is known by its content, and is not here, goes by its name."""
    monkeypatch.setattr("accord.experiments.data_options.get", lambda name, source: None)
    monkeypatch.setattr("accord.experiments.data_options.cache.content", lambda name: name)
    names = (
        "tmlr-table2",
        "tmlr-table4",
        "tmlr-figure2",
        "tmlr-figure3a",
        "tmlr-figure5",
        "tmlr-membership",
        "tmlr-table7",
        "tmlr-table9",
    )
    rounds: dict[Path, int] = {}
    by_study: dict[str, set[Path]] = {}
    for name in names:
        runs = runs_of(find_study(name), tmp_path)
        by_study[name] = {run.folder for run in runs}
        assert len(by_study[name]) == len(runs), "two cells would share a run"
        for run in runs:
            assert rounds.setdefault(run.folder, run.rounds) == run.rounds, "one folder, two lengths"
    table2 = by_study["tmlr-table2"]
    assert by_study["tmlr-table4"] | by_study["tmlr-membership"] <= table2, (
        "models that analyses start from are the table's"
    )
    assert len(by_study["tmlr-table7"] & table2) * 2 == len(by_study["tmlr-table7"]), (
        "group normalisation is the default"
    )
    assert by_study["tmlr-figure3a"] <= {
        run.folder for run in runs_of(load("tmlr-table3").only({"clients": ["10"]}), tmp_path)
    }
    assert {
        run.folder for run in runs_of(load("tmlr-figure2").only({"dataset": ["cifar100", "tinyimagenet"]}), tmp_path)
    } <= table2


def runs_of(study: Study | Analysis, folder: Path) -> list[PlannedRun]:
    """All runs of a study, or those that an analysis trains first."""
    if isinstance(study, Study):
        return [run for cell in study.cells for _, run in study.runs(cell, folder)]
    planned: list[PlannedRun] = []

    def train(arms) -> None:
        planned.extend(run for arm in arms for run in arm.runs)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        study.carry_out(folder, train)
    return planned


def test_what_one_study_trained_another_finds(tmp_path: Path) -> None:
    """Another file, with defaults spelled out: the same run folders."""
    spelled = TINY.replace("A tiny study", "Another").replace(
        "[settings]", '[settings]\n"train.momentum" = 0.9\n"train.batch" = 32'
    )
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "another.toml").write_text(spelled)
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml")
    assert code == 0, err
    code, _, err = inside(tmp_path, "reproduce", "another.toml", "--seeds", "1")
    assert code == 0 and "6 of 6 runs are done already." in err, err
    ours, theirs = (json.loads((tmp_path / f"runs/reproduce/{name}.json").read_text()) for name in ("another", "tiny"))
    assert set(ours["runs"]) < set(theirs["runs"]) == {run.name for run in (tmp_path / "runs/reproduce/runs").iterdir()}
    code, out, _ = inside(tmp_path, "report", "runs/reproduce/another.json", "-o", str(tmp_path / "page.html"))
    assert code == 0 and "6 runs, 6 settings" in out, "a study's results bring its own runs along"


# ---------------------------------------------------------------------------------------------- growing grids


def test_edges_by_hand() -> None:
    grid = {"train.lr": [0.05, 0.01, 0.1], "algorithm.server.lr": [1.0, 1.5], "algorithm.mask.tau": [0.4]}
    assert edges(grid, {"train.lr": 0.05, "algorithm.server.lr": 1.0, "algorithm.mask.tau": 0.4}) == {
        "algorithm.server.lr": 0.67
    }
    assert edges(grid, {"train.lr": 0.1, "algorithm.server.lr": 1.5}) == {"train.lr": 0.2, "algorithm.server.lr": 2.2}
    assert edges(grid, {"train.lr": 0.01}) == {"train.lr": 0.002} and edges({}, {"train.lr": 0.01}) == {}
    names = {"algorithm.mask.name": ["and", "gma"]}
    assert edges(names, {"algorithm.mask.name": "gma"}) == {}, "names have no order"


def test_a_grid_grows_for_all_rivals_of_a_place_and_no_other() -> None:
    study = load("tmlr-table2").only({"dataset": ["mnist"], "clients": ["10"], "algorithm": ["fedavg"]})
    inner = {"train.lr": 0.05, "algorithm.server.lr": 1.0}
    results = []
    for cell in study.cells:
        edge = cell.values["split"] == "noniid" and cell.values["aggregation"] == "gma"
        figures = {"held-out": Figures({**inner, "train.lr": 0.1} if edge else inner, {})}
        results.append(Result(cell, figures, [], 0, 0))
    wider = grown(study, results, "held-out")
    grids = {
        split: {str(cell.grid) for cell in wider.cells if cell.values["split"] == split} for split in ("iid", "noniid")
    }
    assert (
        len(grids["iid"]) == len(grids["noniid"]) == 1
        and "0.2" in grids["noniid"].pop()
        and "0.2" not in grids["iid"].pop()
    )
    for cell in wider.cells:
        assert 0.67 in cell.grid["algorithm.server.lr"], "1.0 is an edge of two values, and everybody chose it"
    row = result_cells(study, [results[-2]], "held-out")[1]
    assert "train.lr=0.1 (edge), algorithm.server.lr=1.0 (edge)" in row
    flat = [Result(r.cell, {"held-out": Figures({"train.lr": 0.05}, {})}, [], 0, 0) for r in results]
    assert grown(study, flat, "held-out") is study


def test_a_key_of_one_rivals_grid_grows_for_nobody_else() -> None:
    study = load("rules").only({"task": ["fashion"], "algorithm": ["fedavg"]})
    keys = {cell.values[study.compare]: {*cell.grid} for cell in study.cells}
    assert keys["fedgma"] ^ keys["mean"] == {"algorithm.average.eta_s", "algorithm.server.lr"}
    cell = next(cell for cell in study.cells if cell.values[study.compare] == "fedgma")
    point = {key: max(values) for key, values in cell.grid.items()}
    wider = grown(study, [Result(cell, {"held-out": Figures(point, {})}, [], 0, 0)], "held-out")
    for before, after in zip(study.cells, wider.cells, strict=True):
        more = {key: len(values) - len(before.grid[key]) for key, values in after.grid.items()}
        assert before.grid.keys() == after.grid.keys() and more == {key: int(key in point) for key in before.grid}


def test_reproduce_grows_a_grid(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY.replace("[0.05, 0.1]", "[0.001, 0.002]"))
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "--only", "rule=mean+gma", "--seeds", "0", "--grow", "2")
    assert code == 0, err
    content = json.loads((tmp_path / "runs/reproduce/tiny.json").read_text())
    first, second = (cell["grid"]["train.lr"] for cell in content["cells"])
    assert first == second and len(first) > 2 and len(content["runs"]) == 2 * len(first)


def test_what_a_file_includes_is_looked_for_beside_it_and_among_accords_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'include = ["common/papers.toml"]\n[axes]\ndataset = ["mnist"]\naggregation = ["avg", "gma"]\n'
    )
    assert [cell.values["aggregation"] for cell in load(str(tmp_path / "mine.toml")).cells] == ["avg", "gma"]
    (tmp_path / "common").mkdir()
    (tmp_path / "common/papers.toml").write_text(
        'compare = "aggregation"\n[axes.dataset]\nmnist = {}\n[axes.aggregation]\navg = {}\ngma = {}\n'
    )
    assert load(str(tmp_path / "mine.toml")).settings == {}, "one's own goes first"
    (tmp_path / "mine.toml").write_text('include = ["papers.tmol"]')
    (tmp_path / "first.toml").write_text('include = ["second.toml"]')
    (tmp_path / "second.toml").write_text('include = ["first.toml"]')
    with sentence("includes itself: first.toml -> second.toml -> first.toml"):
        load(str(tmp_path / "first.toml"))
    with sentence("mine.toml includes 'papers.tmol', which is neither beside it nor among accord's own studies"):
        load(str(tmp_path / "mine.toml"))
