"""`accord choose`: two federations whose answer is known, a choice that never reads whom it is judged by, and stages
that are trained once."""

import csv
import io
import random
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import accord
from accord.console.progress import watcher_for
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.round import Round
from accord.experiments.execute import Interrupt
from accord.experiments.sweep import PlannedRun, sweep
from accord.rules.masks.votes import threshold
from accord.studies.choice import Choice, decide, paragraph, plain, table
from accord.studies.choose import Question, Reached, carry_out, read, rules
from accord.studies.statistics import estimate
from conftest import sentence

SITES = ("east", "north", "south")
FILE = """
[data]
name = "table"
source = "{source}"
client = "site"
label = "ill"
heldout = 0.3
[model]
name = "logistic"
[train]
rounds = 6
lr = 0.001
evaluate_every = 3
[run]
folder = "{folder}"
"""


class Trainer:
    """Trains as the command does; after so many calls somebody presses Ctrl-C."""

    def __init__(self, calls: int | None = None) -> None:
        self.trained: list[Path] = []
        self.calls = calls

    def __call__(self, runs: list[PlannedRun]) -> tuple[int, bool]:
        interrupt = Interrupt(0.0) if self.calls == 0 else Interrupt()
        self.calls = None if self.calls is None else self.calls - 1
        self.trained += [] if interrupt.asked else [run.folder for run in runs]
        with watcher_for(Console(file=io.StringIO())) as watcher:
            return sweep(runs, watcher, interrupt, lambda text: None), interrupt.asked


def write(path: Path, distance: float, scrambled: str = "") -> None:
    """Two classes whose means are so far apart in each of 20 columns, 40 rows a site."""
    draws, other = random.Random(0), random.Random(1)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "ill", *(f"x{column}" for column in range(20))])
        for number in range(120):
            site, ill = SITES[number % 3], draws.random() < 0.5
            values = [draws.gauss(distance * ill, 1) for _ in range(20)]
            if site == scrambled:
                ill, values = other.random() < 0.5, [other.gauss(0, 9) for _ in values]
            rows.writerow([site, "yes" if ill else "no", *values])


def ask(folder: Path, distance: float, scrambled: str = "", more: str = "") -> Question:
    """The question of a file, in two stages: averaging, gma and its control, then FedAdam, each with two client
    rates."""
    folder.mkdir(exist_ok=True)
    write(folder / "sites.csv", distance, scrambled)
    (folder / "mine.toml").write_text(FILE.format(source=folder / "sites.csv", folder=folder / "runs") + more)
    question = read(folder / "mine.toml")
    grids = question.stages[0].study.grids
    grids = {**grids, "": {**grids[""], "train.lr": [0.001, 0.003]}}
    short = [replace(stage, study=replace(stage.study, grids=grids)) for stage in question.stages[1:3]]
    return replace(question, stages=short)


def told(choice: Choice) -> dict[str, Any]:
    return plain(choice, "accord choose mine.toml", [])


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choose")


@pytest.fixture(scope="module")
def stopped(here: Path) -> tuple[Question, Trainer, Reached]:
    """Clients that hardly move: plain averaging stays near where it began, and a server that sets the length of its
    step itself (FedAdam) arrives. Somebody stopped it before FedAdam was tried."""
    question, train = ask(here / "slow", 1.0), Trainer(calls=1)
    return question, train, carry_out(question, question.folder, train, lambda text: None)


@pytest.fixture(scope="module")
def whole(stopped: tuple[Question, Trainer, Reached]) -> tuple[Choice, Trainer]:
    question, train = stopped[0], Trainer()
    return decide(question, carry_out(question, question.folder, train, lambda text: None)), train


def test_a_stop_leaves_the_stage_before_and_what_follows_trains_nothing_twice(
    stopped: tuple[Question, Trainer, Reached], whole: tuple[Choice, Trainer]
) -> None:
    question, first, reached = stopped
    assert reached.stopped and reached.left_out == ["fedadam"] and (reached.done, reached.runs) == (54, 72)
    choice = decide(question, reached)
    assert rules(choice.study) == ["averaging", "gma"] and "Left out for time: fedadam." in paragraph(choice)
    assert len(first.trained) == 54 and len(whole[1].trained) == 18
    assert not set(first.trained) & set(whole[1].trained)


def test_a_rule_that_is_better_by_far_is_found(whole: tuple[Choice, Trainer]) -> None:
    choice, _ = whole
    assert choice.verdict == "confirmed" and choice.answer == "fedadam"
    assert (
        choice.estimate is not None
        and choice.estimate.low > 0.05
        and (choice.estimate.cells, choice.estimate.seeds) == (3, 3)
    )
    assert paragraph(choice).startswith("Use fedadam (train.lr=")
    assert "3 clients, each left out in turn, over 3 seeds" in paragraph(choice)
    assert "on the edge of those tried: ask again with train.lr there." in paragraph(choice)
    assert " 90 % are well. Tried: " in paragraph(replace(choice, caution="90 % are well."))
    head, *rows = table(choice)
    assert head[1:] == ["ahead of averaging by", "seeds", *SITES, "mean", "worst"]
    assert [row[0] for row in rows] == ["averaging", "gma", "gma-length", "fedadam", "chosen by held-out data"]


def test_the_estimate_is_the_judges_own_over_clients_and_seeds(whole: tuple[Choice, Trainer]) -> None:
    choice, _ = whole
    found = told(choice)
    ours, theirs = (found["rules"][rule]["unseen"] for rule in ("fedadam", "averaging"))
    gaps = np.array([[ours[site][seed] - theirs[site][seed] for seed in range(3)] for site in SITES])
    by_hand = estimate(gaps)
    assert found["chosen"].keys() == set(SITES) and {one["rule"] for one in found["chosen"].values()} == {"fedadam"}
    assert choice.estimate == by_hand and found["ahead"]["value"] == pytest.approx(gaps.mean())


def test_where_all_are_alike_plain_averaging_is_as_good(here: Path) -> None:
    question = ask(here / "alike", 30.0)
    question = replace(question, stages=question.stages[:1])
    choice = decide(question, carry_out(question, question.folder, Trainer(), lambda text: None))
    assert choice.answer == "averaging" and set(choice.chosen.values()) == {"averaging"}
    assert paragraph(choice).startswith("Plain averaging is as good: take averaging (train.lr=")
    assert "the others are at gma +0.00 (0.00 to 0.00) points of accuracy" in paragraph(choice)


def test_the_words_follow_the_interval(whole: tuple[Choice, Trainer]) -> None:
    choice, _ = whole
    assert choice.estimate is not None

    def said(low: float, high: float, **more: Any) -> str:
        found = replace(choice.estimate, value=(low + high) / 2, low=low, high=high)
        return paragraph(replace(choice, estimate=found, **more)).partition(":")[0].partition(" (")[0]

    assert said(0.001, 0.03) == "Use fedadam"
    assert said(-0.001, 0.001) == "Plain averaging is as good"
    assert said(-0.03, -0.001) == "Plain averaging is better"
    assert said(-0.03, 0.03) == "No rule is shown to be better than plain averaging"
    assert said(0, 0, rule="averaging") == "Take plain averaging", "FedAdam by itself is ahead by far"


def test_nothing_is_chosen_by_the_client_that_judges(here: Path, whole: tuple[Choice, Trainer]) -> None:
    """All rows of a site are other ones: whatever is chosen without the site stays, to the last digit."""
    question = ask(here / "scrambled", 1.0, scrambled="north")
    other = decide(question, carry_out(question, question.folder, Trainer(), lambda text: None))
    before, after = told(whole[0]), told(other)
    assert after["chosen"]["north"] == before["chosen"]["north"]
    for rule in ("averaging", "gma", "gma-length", "fedadam"):
        for what in ("rates", "heldout"):
            assert after["rules"][rule][what]["north"] == before["rules"][rule][what]["north"]
        assert after["rules"][rule]["heldout"]["south"] != before["rules"][rule]["heldout"]["south"]
    assert after["rules"]["averaging"]["unseen"]["north"] != before["rules"]["averaging"]["unseen"]["north"]


# ------------------------------------------------------------------------------------------------- the question


def test_every_rule_has_as_many_rates_and_every_mask_its_control(here: Path) -> None:
    ask(here / "asked", 1.0)
    question = read(here / "asked" / "mine.toml")
    *_, last = question.stages
    assert {len(cell.points) for cell in last.study.cells} == {6} and last.study.seeds == tuple(range(8))
    masked = [name for name in rules(last.study) if "algorithm.mask.name" in last.study.axes["rule"][name]]
    assert masked == ["gma", "fedadam-gma"]
    assert {*masked} <= last.study.axes["rule"].keys()
    for tried in (stage.study.axes["rule"] for stage in question.stages):
        assert all(f"{name}-length" in tried for name in masked if name in tried)
    for before, after in pairwise(question.stages):
        assert {str(cell) for cell in before.study.cells} <= {str(cell) for cell in after.study.cells}
        assert set(before.study.seeds) <= set(after.study.seeds)
    first = question.stages[0].study
    assert list(first.axes["rule"]) == ["averaging", "gma", "gma-length"] and len(first.seeds) == 3
    assert all(cell.points == [{"train.lr": 0.001, "algorithm.server.lr": 1.0}] for cell in first.cells)


@pytest.mark.parametrize("clients", range(1, 8))
def test_the_and_mask_is_gma_where_one_vote_is_enough(clients: int) -> None:
    """All votes that clients can cast. Without zeros, which nobody can promise, four of them would be alike too."""
    cast = torch.tensor(list(product((-1.0, 0.0, 1.0), repeat=clients)))
    masks = {}
    for kind, some in (("all", cast), ("no zeros", cast[cast.all(1)])):
        total = Record(votes=Field(some.sum(1)), count=Field(torch.tensor([float(clients)])))
        round = Round(1, Layout.flat(len(some)), clients)
        both = [mask.lower(total, {}, round)[0] for mask in (accord.gma(0.4), accord.and_mask(0.4))]
        masks[kind] = torch.equal(*both)
    assert masks == {"all": clients in (1, 2), "no zeros": clients in (1, 2, 4)}
    assert masks["all"] == (threshold(0.4, clients) <= 1)


def test_a_mask_that_is_another_is_tried_once(here: Path) -> None:
    """Of three sites two train."""
    ask(here / "asked", 1.0)
    question = read(here / "asked" / "mine.toml")
    assert question.notes == ["and-mask is left out: with 2 clients in a round it is the same rule as gma."]
    assert not any("and-mask" in stage.adds for stage in question.stages)
    assert list(question.stages[-1].study.axes["rule"])[-3:] == ["fedavgm", "fedadam-gma", "fedadam-gma-length"]
    (here / "five.toml").write_text('[data]\nname = "digits"\nclients = 5\nunseen = 1\n[model]\nname = "logistic"\n')
    for sample, tried in (("all", True), ("4", True), ("2", False)):
        question = read(here / "five.toml", [f"train.sample={sample}", f"run.folder={here}"])
        assert ("and-mask" in question.stages[-1].study.axes["rule"]) == tried == (question.notes == [])


def test_seeds_of_the_file_are_the_seeds(here: Path) -> None:
    write(here / "asked.csv", 1.0)
    (here / "asked.toml").write_text(FILE.format(source=here / "asked.csv", folder=here))
    for given, seeds in (("7,8,9,5", (7, 8, 9, 5)), ("4", (4, 0, 1, 2, 3, 5, 6, 7))):
        assert read(here / "asked.toml", [f"run.seeds={given}"]).stages[-1].study.seeds == seeds


def test_many_clients_are_judged_by_unseen_ones(tmp_path: Path) -> None:
    (tmp_path / "many.toml").write_text('[data]\nname = "digits"\nclients = 20\n[model]\nname = "logistic"\n')
    question = read(tmp_path / "many.toml", [f"run.folder={tmp_path}", "train.rounds=2", "run.seeds=0,1,2"])
    assert question.clients == [] and question.stages[0].study.settings["data.unseen"] == 4
    question = replace(question, stages=question.stages[:1])
    choice = decide(question, carry_out(question, question.folder, Trainer(), lambda text: None))
    assert list(choice.chosen) == ["unseen clients"] and choice.estimate is not None and choice.estimate.cells == 1
    assert "on unseen clients over 3 seeds" in paragraph(choice)
    head, *rows = table(choice)
    assert head == ["accuracy (%) on unseen clients, by held-out", "ahead of averaging by", "seeds", "unseen clients"]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["data.heldout=0"], "data.heldout must be above 0, got 0: rates and rule are chosen by held-out data"),
        (["data.unseen=0"], "data.unseen = 0 leaves nobody to judge the rules by"),
        (["train.metrics=mae"], "and mae is none: name one first in train.metrics"),
        (["data.unseen=north,south"], "table has 1 client that trains, and a rule combines what several send"),
        (["data.unseen=nowhere"], "unseen names client 'nowhere'"),
    ],
)
def test_what_cannot_be_answered_is_refused(here: Path, given: list[str], said: str) -> None:
    ask(here / "refused", 1.0)
    with sentence(said):
        read(here / "refused" / "mine.toml", given)


def test_files_that_ask_something_else_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "sites.csv", 1.0)
    text = FILE.format(source=tmp_path / "sites.csv", folder=tmp_path)
    (tmp_path / "sweep.toml").write_text(f'{text}[sweep]\n"train.lr" = [0.1]\n')
    with sentence("has a [sweep] table, and `accord choose` has a grid of its own"):
        read(tmp_path / "sweep.toml")
    rows = [row.replace("south,", "north,") for row in (tmp_path / "sites.csv").read_text().splitlines()]
    (tmp_path / "sites.csv").write_text("\n".join(rows))
    (tmp_path / "two.toml").write_text(text)
    with sentence("needs at least 3 clients, so that two or more train, and table has 2: east, north"):
        read(tmp_path / "two.toml")
    rows[1:] = [f"site{number % 20},{row.partition(',')[2]}" for number, row in enumerate(rows[1:])]
    (tmp_path / "sites.csv").write_text("\n".join(rows))
    with sentence("would train every rule once without each of 20 clients, and at most 12 are left out in turn"):
        read(tmp_path / "two.toml", ["data.unseen=each"])
    assert read(tmp_path / "two.toml").stages[0].study.settings["data.unseen"] == 4


def write_rare(folder: Path, ill: dict[str, int]) -> Path:
    """A file over 40 rows of each site, so many of which are of somebody ill."""
    rows = [f"{site},{'yes' if number < ill[site] else 'no'},{number}" for number in range(40) for site in SITES]
    (folder / "sites.csv").write_text("\n".join(["site,ill,x", *rows]))
    (folder / "mine.toml").write_text(FILE.format(source=folder / "sites.csv", folder=folder))
    return folder / "mine.toml"


@pytest.mark.parametrize(("ill", "said"), [(10, False), (4, True)])
def test_accuracy_is_said_to_tell_little_of_a_rare_class(ill: int, said: bool, tmp_path: Path) -> None:
    file = write_rare(tmp_path, dict.fromkeys(SITES, ill))
    question = read(file)
    notes = [note for note in question.notes if "train.metrics=auc" in note]
    begins = "90 % of the samples of the clients that judge are of class no, and"
    assert len(notes) == said and all(note.startswith(begins) for note in notes)
    assert question.caution == (notes[0] if said else "")
    assert not any("class no" in note for note in read(file, ["train.metrics=auc"]).notes)


def test_the_share_of_a_rare_class_is_that_of_the_clients_that_judge(tmp_path: Path) -> None:
    """Of those who train, half are ill."""
    file = write_rare(tmp_path, {"east": 20, "north": 20, "south": 2})
    assert read(file).caution == "", "each is left out in turn, and of all clients 65 % are well"
    begins = "95 % of the samples of the clients that judge (those of seed 0) are of class no, and"
    assert read(file, ["data.unseen=south"]).caution.startswith(begins)
    assert read(file, ["data.unseen=east"]).caution == ""


def test_a_number_of_unseen_clients_is_said_to_keep_the_others_from_judging(here: Path) -> None:
    ask(here / "few", 1.0)
    (note,) = (note for note in read(here / "few" / "mine.toml", ["data.unseen=1"]).notes if "data.unseen" in note)
    assert note.startswith("data.unseen = 1: that many of 3 clients judge")
    assert not any("data.unseen" in note for note in read(here / "few" / "mine.toml").notes)


def test_the_algorithm_of_the_file_is_said_to_be_left_aside(here: Path) -> None:
    ask(here / "aside", 1.0)
    *_, note = read(here / "aside" / "mine.toml", ["algorithm.name=fedprox"]).notes
    assert "is left aside: the rules are averaging, gma, gma-length, fedadam, fedavgm, fedadam-gma" in note
