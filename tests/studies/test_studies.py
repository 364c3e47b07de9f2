"""Studies: the papers' tables as files, what is chosen and compared, and the verdicts on frozen results."""

import json
import math
import re
import shutil
import sys
from pathlib import Path

import pytest

from accord.analyses.registry import ANALYSES
from accord.core.errors import AccordError
from accord.studies import Analysis, everything, load
from accord.studies import find as find_study
from accord.studies.claim import Claim, claims
from accord.studies.differences import paired
from accord.studies.outcome import gather
from accord.studies.page import page
from accord.studies.results import read
from accord.studies.study import within
from accord.studies.trend import number_in
from conftest import sentence
from study_commands import TINY, accord, available, inside


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny study has been run, all but one cell, and then whole."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.toml").write_text(TINY)
    part = accord("reproduce", "tiny.toml", "--only", "rule=mean+gma", cwd=folder)
    assert part.returncode == 0, part.stderr
    whole = accord("reproduce", "tiny.toml", cwd=folder)
    assert whole.returncode == 0, whole.stderr
    (folder / "out.txt").write_text(whole.stdout)
    (folder / "err.txt").write_text(whole.stderr)
    return folder


# -------------------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize("name", sorted(available()))
def test_every_cell_of_every_study_is_an_experiment(name: str, tmp_path: Path) -> None:
    study = load(name)
    assert study.cells and study.against in study.axes[study.compare]
    for cell in study.cells:
        next(study.experiments(cell, tmp_path))
    tried = [json.dumps({**cell.settings, **point}, sort_keys=True) for cell in study.cells for point in cell.points]
    assert len(set(tried)) == len(tried), "two cells would share a run"


def test_bad_studies_are_one_sentence(tmp_path: Path) -> None:
    with sentence("there is no study 'tmlr-tabel2'", "did you mean 'tmlr-table2'"):
        load("tmlr-tabel2")
    with sentence("tmlr-table2 has no axis 'datset'", "did you mean 'dataset'"):
        load("tmlr-table2").only({"datset": ["mnist"]})
    with sentence("dataset of tmlr-table2 has no value 'mnsit'"):
        load("tmlr-table2").only({"dataset": ["mnsit"]})
    file = tmp_path / "mine.toml"
    for text, parts in {
        "title = 3 =": ("cannot be read as a study",),
        "titel = 'x'": ("has a key 'titel'", "did you mean 'title'"),
        "title = 'x'": ("has no [axes]",),
        "compare = 'x'\n[axes.rule]\nmean = {}": ("compares by 'x'",),
        "[axes]\nrule = ['mean']": ("takes 'mean' for rule, which no file it includes has",),
        "include = [3]": ("includes 3, which is no file",),
        "keep = [{ rlue = 'mean' }]\n[axes.rule]\nmean = {}": (
            "mine has no axis 'rlue' for keep",
            "did you mean 'rule'",
        ),
        "skip = [{ rule = ['man'] }]\n[axes.rule]\nmean = {}": (
            "rule of mine has no value 'man' for skip",
            "did you mean 'mean'",
        ),
        "[[when]]\nrule = 'mean'\n[axes.rule]\nmean = {}": ("has an entry of `when` that is not",),
        "seeds = 3": ("seeds in mine.toml must be a list, in [ ], got 3",),
        "include = 'common/papers.toml'": ("include in mine.toml must be a list",),
        "[grid]\n'train.lr' = 0.1\n[axes.rule]\nmean = {}": ("grid.train.lr in mine.toml must be a list of values",),
        "[grid.mean]\n'train.lr' = 'a'\n[axes.rule]\nmean = {}": ("grid.mean.train.lr in mine.toml must be a list",),
        "[axes]\nrule = 'mean'": ("axes.rule in mine.toml must be a list of names or a table, got 'mean'",),
        "[axes.rule]\nmean = 'mean'": ("axes.rule.mean in mine.toml must be a table of settings, got 'mean'",),
        "rules = 'held-out'\n[axes.rule]\nmean = {}": ("rules in mine.toml must be a list",),
        "against = ['mean']\n[axes.rule]\nmean = {}": ("against in mine.toml must be a text",),
        "[[settings]]\n[axes.rule]\nmean = {}": ("settings in mine.toml must be a table",),
        "against = 'avg'\n[axes.rule]\nmean = {}\ngma = {}": (
            "mine measures by 'avg' (`against`), which is no value of its axis rule",
        ),
    }.items():
        file.write_text(text)
        with sentence(*parts):
            load(str(file))


def test_a_study_of_yours_finds_a_rule_that_lies_beside_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_study.py").write_text("import accord\n\nclass Half(accord.gma):\n    pass\n")
    text = TINY.replace('"algorithm.mask" = "gma" }', '"algorithm.mask" = "beside_the_study:Half" }')
    (tmp_path / "tiny.toml").write_text(text)
    study = find_study(str(tmp_path / "tiny.toml"))
    assert [len(list(study.experiments(cell, tmp_path))) for cell in study.cells] == [2, 2, 2]


def test_settings_given_go_before_the_studys_and_its_grid() -> None:
    study = (
        load("tmlr-table2")
        .only({"dataset": ["mnist"], "clients": ["10"]})
        .changed(["train.lr=0.2", "train.rounds=7"], seeds=[5])
    )
    cell = study.cells[0]
    assert cell.settings["train.lr"] == 0.2 and cell.settings["train.rounds"] == 7
    assert "train.lr" not in cell.grid and study.seeds == (5,)
    shorter = load("tmlr-table2").only({"dataset": ["tinyimagenet"]}).changed(["train.epochs=2"])
    assert {cell.settings["train.epochs"] for cell in shorter.cells} == {2}, (
        "also before what goes for some cells alone"
    )


ASKED_FOR = [
    *(f"tmlr-table{number}" for number in range(2, 11)),
    *(
        "tmlr-figure2",
        "tmlr-figure3a",
        "tmlr-figure3d",
        "tmlr-figure4",
        "tmlr-figure5",
        "tmlr-convex",
        "tmlr-membership",
    ),
    *(
        "thesis-table4.1",
        "thesis-table4.4",
        "thesis-table4.5",
        "thesis-table4.8",
        "thesis-figure3.3",
        "thesis-figure4.1",
    ),
    *(
        "workshop-figure1",
        "workshop-figure2",
        "poster-results",
        "thesis-causalfed",
        "fedcmnist-palettes",
        "corrective-table1",
        "corrective-table2",
        "theory-stability",
        "theory-convergence",
    ),
]


def test_every_table_and_figure_of_the_papers_has_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path))
    told = inside(tmp_path, "reproduce", "--list")[1].splitlines()
    names = [line.split()[0] for line in told]
    assert set(ASKED_FOR) <= set(names) == set(everything())
    assert names.index("tmlr-table2") < names.index("tmlr-table10"), "in the papers' order"
    assert (
        "(analysis: participation" in told[names.index("tmlr-table4")]
        and "(75 cells" in told[names.index("tmlr-table10")]
    )
    assert "(18 cells; not here: femnist, mnist)" in told[names.index("corrective-table1")]
    assert told[names.index("theory-stability")].endswith("(analysis: stability)")


# ----------------------------------------------------------------------------------------------- the analyses

SURFACES = 'title = "Wells"\nanalysis = "surfaces"\n[options]\nside = 3\nrounds = 5\n'
ROUND = """
title = "One round"
paper = "tmlr"
table = "5"
analysis = "participation"
[options]
participants = [2]
[settings]
"data.name" = "digits"
"data.clients" = 5
"model.name" = "logistic"
"train.rounds" = 9
"run.seeds" = [0, 1]
[places.aggregation]
gma = { rule = "fedavg + gma(0.4)" }
[places.split]
"participating trial mean" = { column = "participating (%)" }
"nonparticipating trial 1" = { trial = 0, column = "others (%)" }
"""


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an analysis that trains nothing and one that trains."""
    folder = tmp_path_factory.mktemp("analyses")
    (folder / "wells.toml").write_text(SURFACES)
    (folder / "one.toml").write_text(ROUND)
    for words in (["wells.toml"], ["one.toml", "--rounds", "2", "--seeds", "0", "run.engine=sequential"]):
        code, out, err = inside(folder, "reproduce", *words)
        assert code == 0, err
        (folder / f"{words[0]}.txt").write_text(out)
    return folder / "runs" / "reproduce"


@pytest.mark.parametrize("name", sorted(name for name, one in everything().items() if isinstance(one, Analysis)))
def test_every_analysis_can_be_planned(name: str, tmp_path: Path) -> None:
    """Its options are those of its analysis, and its settings make experiments: all that comes before training."""
    analysis = find_study(name)
    assert isinstance(analysis, Analysis)
    if analysis.trains:
        planned = analysis.changed(["data.name=digits"]).planned(tmp_path / "here")
        assert planned and all(run.folder.parent == tmp_path / "here" for run in planned)


def test_an_analysis_is_carried_out_and_told(analysed: Path) -> None:
    out = (analysed.parents[1] / "one.toml.txt").read_text()
    assert (
        out.startswith("One round\nparticipants")
        and "as printed" in out
        and "participating trial mean     gma          86.67" in out
    )
    told = json.loads((analysed / "one.json").read_text())
    assert (told["analysis"], told["name"], told["settings"]["train.rounds"], told["settings"]["run.seeds"]) == (
        "participation",
        "one",
        2,
        0,
    )
    assert told["command"] == "accord reproduce one.toml --rounds 2 --seeds 0 run.engine=sequential"
    assert [row["rule"] for row in told["rows"]][:3] == ["before the round", "fedavg", "fedavg + gma(0.4)"] and len(
        told["printed"]
    ) == 16
    ours = {number["split"]: number["ours"] for number in told["printed"] if "ours" in number}
    assert ours == {
        "participating trial mean": told["rows"][2]["participating (%)"],
        "nonparticipating trial 1": told["rows"][2]["others (%)"],
    }
    assert sorted(file.name for file in (analysed / "wells").iterdir()) == [
        "surfaces-points.csv",
        "surfaces.csv",
        "surfaces.png",
    ]
    assert len(list((analysed / "runs").glob("digits-fedavg-*-s0"))) == 6, (
        "a model, and a round from it as it is and by each of four rules"
    )


def test_verdicts_have_the_analyses_too(analysed: Path, tmp_path: Path) -> None:
    code, _, err = inside(tmp_path, "verdicts", str(analysed), "-o", str(tmp_path / "page.md"))
    assert code == 0, err
    text = (tmp_path / "page.md").read_text()
    assert "## Wells" in text and "| averaging |" in text and "- `wells/surfaces.png`" in text
    assert "## One round" in text and "As printed:" in text and "| participating trial mean | gma | 86.67 |" in text


def test_an_analysis_planned_and_in_json(tmp_path: Path) -> None:
    (tmp_path / "wells.toml").write_text(SURFACES)
    (tmp_path / "one.toml").write_text(ROUND)
    assert "Wells: trains nothing" in inside(tmp_path, "reproduce", "wells.toml", "--plan")[1]
    assert "One round, 2 runs, 0 of them done" in inside(tmp_path, "reproduce", "one.toml", "--plan")[1]
    plans = [
        json.loads(inside(tmp_path, "reproduce", name, "--plan", "--json")[1]) for name in ("wells.toml", "one.toml")
    ]
    assert [(plan["plan"], plan["cells"], plan["device"]) for plan in plans] == [
        ("wells", None, None),
        ("one", None, "cpu"),
    ]
    assert plans[0]["kinds"] == [] and [kind["runs"] for kind in plans[1]["kinds"]] == [2]
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("*.json"))
    assert json.loads(inside(tmp_path, "reproduce", "wells.toml", "--json")[1])["title"] == "Wells"


def test_bad_analyses_are_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for text, parts in {
        "analysis = 'surface'": ("asks for an analysis 'surface'", "did you mean 'surfaces'"),
        "analysis = 'surfaces'\n[axes.rule]\nmean = {}": ("has a key 'axes' that analyses do not have",),
        "analysis = 'surfaces'\n[options]\nstep = 3": ("has an option 'step'", "did you mean 'steps'"),
        "analysis = ['surfaces']": ("asks for an analysis ['surfaces']",),
        "analysis = 'surfaces'\noptions = 3": ("has options = 3, which must be a section",),
        "analysis = 'surfaces'\n[places.agregation]\ngma = {}": (
            "has places by 'agregation'",
            "did you mean 'aggregation'",
        ),
        "analysis = 'surfaces'\n[places]\nsplit = 3": ("has places.split = 3, which must be such as",),
        "analysis = 'surfaces'\nruns = 'other'": ("has a key 'runs' that analyses do not have",),
        "analysis = 'participation'\n[options]\nparticipants = '5'": (
            "has participants = '5'",
            "it takes such as (5, 2)",
        ),
        "analysis = 'participation'\n[options]\nparticipants = [true]": ("has participants = [True]",),
    }.items():
        file.write_text(text)
        with sentence(*parts):
            find_study(str(file))
    with sentence("alphas must be different shares above 0 and at most 1, got 0.5, 0.5"):
        ANALYSES["convergence"](alphas=[0.5, 0.5])
    with sentence("against must be one of", "got 'tets'"):  # before anything is trained
        ANALYSES["membership"](["data.name=digits"], pytest.fail, against="tets")
    with sentence("theory-stability trains nothing, so it has no settings: leave out 'train.rounds=3'"):
        find_study("theory-stability").changed(["train.rounds=3"])


# --------------------------------------------------------------------------------------------------- the runs


def test_a_study_is_carried_out_and_told(carried_out: Path) -> None:
    assert "8 of 12 runs are done already." in (carried_out / "err.txt").read_text()
    out = (carried_out / "out.txt").read_text()
    assert "A tiny study" in out and "ahead of mean on the test set, paired by seed, by held-out (95 % interval;" in out
    content = json.loads((carried_out / "runs/reproduce/tiny.json").read_text())
    assert content["command"] == "accord reproduce tiny.toml"
    assert [cell["done"] for cell in content["cells"]] == [4, 4, 4]


def test_of_many_runs_one_after_another_the_fifth_and_later_have_a_line_each(tmp_path: Path) -> None:
    """Outside of a terminal; the first four are told of at every evaluation."""
    (tmp_path / "tiny.toml").write_text(TINY)
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "run.engine=sequential")
    lines = [line for line in err.splitlines() if "· seed" in line]
    assert code == 0 and sum("· round 2/4" in line for line in lines) == 4, err
    assert sum("done after round 4" in line for line in lines) == 12 - 4 and len(lines) == 4 * 3 + 8


def test_the_grids_point_is_chosen_by_held_out_data(carried_out: Path) -> None:
    """Recomputed from the run folders' own rows."""
    study = load(str(carried_out / "tiny.toml"))
    for result in gather(study, study.named(carried_out / "runs/reproduce/runs")):
        means = {}
        for point, run in study.runs(result.cell, carried_out / "runs/reproduce/runs"):
            rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
            held = [
                row["evaluation"]["splits"]["heldout"]["accuracy"]["by_sample"] for row in rows if "evaluation" in row
            ]
            means.setdefault(point["train.lr"], []).append(max(held))
        best = max(means, key=lambda lr: sum(means[lr]))
        assert result.figures["held-out"].point == {"train.lr": best}
        assert sum(result.figures["held-out"].of("heldout")) == pytest.approx(sum(means[best]))


def test_a_study_patience_says_where_its_runs_ended(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ["tiny.toml", "--only", "rule=mean", "--rounds", "300", "--patience", "8", "train.min_delta=0.02"]
    code, first, err = inside(tmp_path, "reproduce", *words)
    assert code == 0, err
    (cell,) = json.loads((tmp_path / "runs/reproduce/tiny.json").read_text())["cells"]
    fewest, most = cell["rounds"]
    assert cell["done"] == cell["flat"] == 4 and 8 < fewest <= most < 300
    assert f"{fewest}-{most}, 4 flat" in first or f"{fewest}, 4 flat" in first
    _, second, err = inside(tmp_path, "reproduce", *words)
    assert "4 of 4 runs are done already." in err and second == first


def test_a_plan_tells_runs_and_time_and_trains_nothing(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    done = accord("reproduce", "tiny.toml", "--plan", "--seeds", "3", cwd=tmp_path)
    assert done.returncode == 0 and "3 cells, 6 points of the grid, 6 runs, 0 of them done" in done.stdout
    assert "6 runs, 24 rounds, one by one, " in done.stdout and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reproduce", "nothing"], "there is no study 'nothing'"),
        (["reproduce", "nothing.toml"], "there is no file nothing.toml: give a study file"),
        (["reproduce", "tmlr-table2", "--only", "dataset"], "'dataset' does not choose cells"),
        (["reproduce", "mask-map", "--only", "half=first,half=second"], "half is chosen twice: write half=value+value"),
        (
            [
                "reproduce",
                "mask-map",
                "--only",
                "half=first,split=iid,client_lr=0.01,server_lr=1.0,sample=5,malicious=0,model=mlp",
            ],
            "mask-map has no cell with half=first,split=iid",
        ),
        (
            ["reproduce", "tmlr-table4", "--only", "a=b"],
            "tmlr-table4 is an analysis, which has no cells to choose from",
        ),
        (["reproduce", "workshop-figure1", "--rounds", "3"], "workshop-figure1 trains nothing, so it has no settings"),
        (["reproduce", "tmlr-table2", "--seeds", "0,0"], "seeds must be numbers from 0 on, each given once, got '0,0'"),
        (["reproduce", "tmlr-table2", "--seeds=-1"], "seeds must be numbers from 0 on, each given once, got '-1'"),
        (["reproduce", "tmlr-table2", "--seeds", "a"], "seeds must be whole numbers joined by commas, got 'a'"),
        (["reproduce", "tmlr-table2", "--select", "best"], "there is no rule 'best' for the table of tmlr-table2"),
        (["verdicts", "nowhere"], "there are no results in nowhere"),
        (["compare", "a", "b"], "there is no evaluated run at a"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], said: str, tmp_path: Path) -> None:
    code, _, err = inside(tmp_path, *words)
    assert code == 2 and said in err and err.count("\n") == 1, err


def test_rules_are_not_judged_by_a_metric_of_which_less_is_better(tmp_path: Path) -> None:
    """The grid's worst rates would be chosen, and the rule that is behind called ahead."""
    (tmp_path / "tiny.toml").write_text(TINY)
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "train.metrics=['calibration_error']")
    assert code == 2 and "and calibration_error is none: name one first in train.metrics" in err
    assert not (tmp_path / "runs/reproduce/runs").exists(), "before anything is trained"
    rows = [f"{site},{x / 10},{x / 7}" for site in "abcdef" for x in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,x,y", *rows]) + "\n")
    data = {"name": "table", "source": "rows.csv", "client": "site", "label": "y"}
    table = "\n".join(f'"data.{key}" = "{value}"' for key, value in data.items())
    regression = re.sub('"data.name".*"data.split" = "labels"', table, TINY, flags=re.DOTALL)
    (tmp_path / "tiny.toml").write_text(regression)
    code, _, err = inside(tmp_path, "reproduce", "tiny.toml", "--only", "rule=mean")
    assert code == 2 and "and loss is none: name one first in train.metrics" in err


# ------------------------------------------------------------------------------------------------ differences


def test_paired_differences_by_hand() -> None:
    """Gaps 1, 2, 3, 4: mean 2.5, standard deviation 1.29099, t of three degrees of freedom 3.182."""
    difference = paired({0: 2.0, 1: 4.0, 2: 6.0, 3: 8.0}, {3: 4.0, 2: 3.0, 1: 2.0, 0: 1.0})
    assert difference is not None and difference.mean == pytest.approx(2.5)
    assert difference.interval.high - 2.5 == pytest.approx(3.182446 * 1.2909944 / 2, rel=1e-6)
    assert difference.clear
    one = paired({0: 2.0, 9: 1.0}, {0: 1.0})
    assert one is not None and one.seeds == 1 and not one.clear and math.isinf(one.interval.high)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_compare_says_it_in_a_sentence(carried_out: Path) -> None:
    content = json.loads((carried_out / "runs/reproduce/tiny.json").read_text())
    study = load(str(carried_out / "tiny.toml"))
    chosen = {}
    for cell in study.cells:
        point = content["cells"][[c["values"]["rule"] for c in content["cells"]].index(cell.values["rule"])]["figures"][
            "held-out"
        ]["point"]
        run = next(run for p, run in study.runs(cell, Path("runs/reproduce/runs")) if p == point)
        chosen[cell.values["rule"]] = str(run.folder).rpartition("-s")[0]
    done = accord("compare", chosen["gma"], chosen["mean"], "--on", "test", cwd=carried_out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1 and "on the test set" in done.stdout and "2 seeds, by held-out" in done.stdout
    told = json.loads(
        accord("compare", chosen["gma"], chosen["mean"], "--on", "test", "--json", cwd=carried_out).stdout
    )
    figures = {cell["values"]["rule"]: cell["figures"]["held-out"]["by_seed"] for cell in content["cells"]}
    gaps = [figures["gma"][seed]["test"] - figures["mean"][seed]["test"] for seed in ("0", "1")]
    assert told["difference"] == pytest.approx(sum(gaps) / 2)


def test_compare_says_in_which_settings_of_the_data_two_runs_differ(carried_out: Path) -> None:
    study = load(str(carried_out / "tiny.toml"))
    _, run = next(study.runs(study.cells[0], Path("runs/reproduce/runs")))
    (carried_out / "alone.toml").write_text(run.experiment.text)
    done = accord("run", "alone.toml", "data.clients=7", "run.folder=alone", cwd=carried_out)
    assert done.returncode == 0, done.stderr
    (other,) = (carried_out / "alone").glob("*-s0")
    done = accord("compare", str(run.folder), str(other), "--on", "test", cwd=carried_out)
    assert done.returncode == 0 and "The two differ in data.clients (6 and 7): their difference may" in done.stderr


# --------------------------------------------------------------------------------------------------- verdicts

METRICS = {"test", "train", "heldout", "unseen", "train - test"}


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.text[:60])
def test_every_claim_is_about_cells_that_exist(claim: Claim) -> None:
    study = find_study(claim.study)
    assert bool(claim.how) == (claim.expects == "described") and bool(claim.axis) == (
        claim.expects in ("grows", "falls")
    )
    assert bool(claim.holds) == (claim.expects == "holds")
    if isinstance(study, Analysis):
        assert claim.expects in ("ahead", "behind", "falls", "holds")
        assert bool(claim.against) == bool(claim.control) == (claim.expects in ("ahead", "behind"))
        return
    assert claim.metric in METRICS
    compared, against = claim.compare or study.compare, claim.against or study.against
    assert {claim.rival, against} <= {*study.axes[compared]} and claim.rival != against
    assert not claim.best_over or claim.best_over in study.axes
    named = {compared: [claim.rival], **claim.only}
    about = [cell for cell in study.cells if all(cell.values[axis] in values for axis, values in named.items())]
    assert about, "there is a cell"
    for axis, values in named.items():
        assert {cell.values[axis] for cell in about} == set(values), "every value that it names has one"
    if claim.axis:
        assert claim.axis in study.axes
        found = {cell.values[claim.axis] for cell in about}
        assert found == set(claim.order) if claim.order else len(set(map(number_in, found))) > 2, (
            "a slope needs numbers"
        )


def test_every_study_has_a_claim() -> None:
    assert {claim.study for claim in claims()} == set(everything()) - {
        "cifar-shortened",
        "mask-map",
        "rules",
        "thesis-figure3.3",
    }, "three are ours, one repeats another"


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.text[:40])
def test_a_claim_on_data_in_anothers_place_says_so(claim: Claim) -> None:
    """MNIST by writer stands in for FEMNIST: what it says is no answer to what FEMNIST would say."""
    study = find_study(claim.study)
    if isinstance(study, Analysis) or "dataset" not in study.axes:
        return
    named = {study.compare: [claim.rival], **claim.only}
    data = {cell.values["dataset"] for cell in study.cells if within(cell.values, named)}
    if "mnist-writers" in data:
        assert data == {"mnist-writers"} and "in FEMNIST's place" in claim.text


def test_a_page_is_written_from_frozen_results(carried_out: Path, tmp_path: Path) -> None:
    results = carried_out / "runs/reproduce"
    done = accord("verdicts", str(results), "-o", str(tmp_path / "replication/README.md"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "replication/README.md").read_text()
    links = re.compile(r"\[([^]]+)\]\(\.\./(docs/[^)]+)\)")
    assert text == links.sub(r"\1 (accord, \2)", page([read(results / "tiny.json")])), "there are no docs beside it"
    assert "## A tiny study" in text and "`accord reproduce tiny.toml`" in text
    never_run = text.partition("### Not run yet\n\n")[2].partition("\n\n")[0].splitlines()
    assert len(never_run) == len(claims()) and "### Settled" not in text and "### Open" not in text
    drawn = (tmp_path / "replication/index.html").read_text()
    assert "<td>A tiny study" not in drawn and "<h2>A tiny study</h2>" in drawn
    curves = re.findall(r'<polyline points="([^"]+)"', drawn)
    assert len(curves) == 3 and all(len(points.split()) == 2 for points in curves), "rounds 2 and 4 of three rivals"
    broken = tmp_path / "x.json"
    broken.write_text("{}")
    with pytest.raises(AccordError, match="does not hold results of accord reproduce"):
        read(broken)


def test_the_report_that_is_committed_is_what_the_results_beside_it_say(tmp_path: Path) -> None:
    home = Path(__file__).parents[2]
    shutil.copytree(home / "replication/results", tmp_path / "replication/results")
    for guide in ("explanation/judge.md", "how-to/should-i-use-a-mask.md"):
        (tmp_path / "docs" / guide).parent.mkdir(parents=True)
        (tmp_path / "docs" / guide).touch()
    done = accord("verdicts", "replication/results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("README.md", "index.html"):
        written, committed = ((at / "replication" / name).read_bytes() for at in (tmp_path, home))
        assert written == committed, "accord verdicts replication/results"
