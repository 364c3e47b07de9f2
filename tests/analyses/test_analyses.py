"""`accord analyse`: every command on small data, numbers against independent ones, figures as pictures, refusals as
sentences."""

import csv
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from rich.console import Console
from torch import Tensor, nn

import accord
from accord.analyses import arms as study
from accord.analyses import chance, curves, heterogeneity, layers, participation, softness, style, surfaces
from accord.analyses import tau as tau_study
from accord.analyses.output import Result, as_csv, cells, deviation
from accord.cli.main import main
from accord.console.progress import Lines
from accord.data import Federation
from accord.experiments.execute import Interrupt, execute_seed
from accord.models import warm_start
from accord.training.cohort import Conditions, invite
from conftest import cost, sentence, without_checksums

SMALL = ["model.name=logistic", "run.engine=sequential"]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> Command:
    """`accord analyse WORDS` in this process, in a folder of its own: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCORD_CACHE", str(cache))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["accord", "analyse", *words])
        with pytest.raises(SystemExit) as done:
            main()
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return int(done.value.code or 0), told.out, told.err

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def is_picture(path: Path) -> bool:
    picture = imread(path)
    return picture.shape[0] > 100 and picture.shape[1] > 100 and float(picture[..., :3].std()) > 0.03


def unlabelled(result: Result) -> list[str]:
    """Axes of the figure that show something and do not say what, colour bars aside."""
    seen = [axes for axes in result.draw().axes if axes.axison and axes.get_label() != "<colorbar>"]
    assert seen
    return [
        axes.get_title() for axes in seen if not (axes.get_xlabel() and (axes.get_ylabel() or axes.get_yticklabels()))
    ]


# ---------------------------------------------------------------------------------------------- heterogeneity


def test_heterogeneity_against_votes_counted_by_hand(command: Command, tmp_path: Path) -> None:
    """One full-batch step: the clients' signs are those of their gradients, which are computed here again."""
    once = [
        "train.batch=all",
        "train.momentum=0.0",
        "--rounds",
        "1",
        "--data",
        "digits",
        "--seeds",
        "0,1",
        "--alphas",
        "0.1,100",
    ]
    code, out, _ = command("heterogeneity", *SMALL, *once)
    assert code == 0 and out.startswith("alpha") and "coin toss of 10 clients would put 65.6 %" in out
    assert is_picture(tmp_path / "analyses" / "heterogeneity.png")
    points = rows(tmp_path / "analyses" / "heterogeneity-points.csv")
    for point in points:
        given = [*SMALL, *once[:2], "train.rounds=1", "data.name=digits", f"run.seeds={point['seed']}"]
        (run,) = study.arm(
            "", heterogeneity.BASE, given, {"data.split": "dirichlet", "data.alpha": float(point["alpha"])}
        ).runs
        fed = run.experiment.federation(run.seed)
        module = run.experiment.module(fed, run.seed)
        signs = []
        for owned in fed.train.values():
            loss = nn.functional.cross_entropy(module(fed.read(owned)[0]), fed.read(owned)[1])
            signs.append(
                torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(module.parameters()))]).sign()
            )
        under = 100 * float((torch.stack(signs).sum(0).abs() < 4).double().mean())
        # a gradient next to nothing may have either sign
        assert float(point["under tau (%)"]) == pytest.approx(under, abs=0.3)
    table = rows(tmp_path / "analyses" / "heterogeneity.csv")
    for row in table:
        values = [float(point["under tau (%)"]) for point in points if point["alpha"] == row["alpha"]]
        assert float(row["under tau (%)"]) == pytest.approx(np.mean(values))
        assert float(row["sd"]) == pytest.approx(np.std(values, ddof=1))
    assert float(table[0]["label skew"]) > 0.4 > float(table[1]["label skew"])
    assert float(table[0]["under tau (%)"]) > float(table[1]["under tau (%)"])


@pytest.mark.parametrize(("clients", "tau"), [(1, 0.4), (2, 0.4), (5, 0.6), (8, 0.5), (10, 0.4)])
def test_coin_tosses_are_counted(clients: int, tau: float) -> None:
    votes = [abs(sum(way)) for way in itertools.product((1, -1), repeat=clients)]
    assert chance.under(clients, tau) == pytest.approx(np.mean([vote < tau * clients - 1e-9 for vote in votes]))
    assert chance.agreement(clients) == pytest.approx(np.mean(votes) / clients)


# -------------------------------------------------------------------------------------- softness, tau, layers


TINY = [*SMALL, "--data", "digits", "--seeds", "0,1", "--rounds", "4", "train.evaluate_every=2", "data.clients=6"]


def test_softness_layers_and_curves_of_the_same_runs(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("softness", *TINY, "--target", "20", "--figure", "svg")
    assert code == 0 and "target 20.0 %" in out
    table = rows(tmp_path / "analyses" / "softness.csv")
    assert [row["rule"] for row in table] == [
        "fedavg",
        "fedavg + gma(0.4)",
        "fedavg + scaled(gma(0.4), length)",
        "fedavg + and_mask(0.4)",
    ]
    assert float(table[0]["step of the update (%)"]) == pytest.approx(100)
    assert all(float(row["step of the update (%)"]) < 95 for row in table[1:])
    picture = (tmp_path / "analyses" / "softness.svg").read_text()
    assert picture.startswith("<?xml") and "</svg>" in picture

    folders = sorted((tmp_path / "runs" / "analyse" / "softness").iterdir())
    assert len(folders) == 8
    masked = [folder for folder in folders if "-and_mask-" in folder.name]
    finals = [metrics(folder)[-1]["evaluation"]["splits"]["test"]["accuracy"]["by_sample"] for folder in masked]
    early = [metrics(folder)[1]["evaluation"]["splits"]["test"]["accuracy"]["by_sample"] for folder in masked]
    last = table[-1]
    # last10 holds both evaluations
    assert float(last["test accuracy (%)"]) == pytest.approx(100 * np.mean([*finals, *early]))
    when = [2 if first >= 0.2 else 4 if second >= 0.2 else None for first, second in zip(early, finals, strict=True)]
    assert last["rounds to target"] == ("" if None in when else str(float(np.mean(when))))

    before = {file: file.stat().st_mtime_ns for folder in folders for file in folder.iterdir()}
    code, _, err = command("softness", *TINY, "--target", "99.9")
    assert code == 0 and "8 of 8 runs are done already." in err
    assert {file: file.stat().st_mtime_ns for folder in folders for file in folder.iterdir()} == before
    assert {row["rounds to target"] for row in rows(tmp_path / "analyses" / "softness.csv")} == {""}
    assert is_picture(tmp_path / "analyses" / "softness.png")

    code, out, _ = command("layers", str(masked[0]))
    assert code == 0
    told = rows(tmp_path / "analyses" / "layers.csv")
    recorded = [row["agreement_by_layer"] for row in metrics(masked[0])]
    assert {row["layer"] for row in told} == set(recorded[0])
    for row in told:
        values = [by_layer[row["layer"]] for by_layer in recorded]
        assert [float(row[key]) for key in ("first", "mean", "last")] == pytest.approx(
            [values[0], np.mean(values), values[-1]]
        )
    assert is_picture(tmp_path / "analyses" / "layers.png")
    assert unlabelled(layers.read(masked[0])) == []
    plain = next(
        folder for folder in folders if not any(mask in folder.name for mask in ("-gma-", "-scaled-", "-and_mask-"))
    )
    with sentence(f"{plain} holds no agreement: it is measured where there is a mask"):
        layers.read(plain)
    without_checksums(masked[-1])
    path = masked[-1] / "metrics.jsonl"
    *others, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*others, last.replace('"agreement_by_layer": {"', '"agreement_by_layer": {"x')]))
    with sentence("is damaged: round"):
        layers.read(masked[-1])

    code, out, _ = command("curves", "runs", "--splits", "test", "--metric", "loss")
    assert code == 0
    told = rows(tmp_path / "analyses" / "curves.csv")
    assert len(told) == 4 and all(row["round"] == "4" for row in told)
    losses = [metrics(folder)[-1]["evaluation"]["splits"]["test"]["loss"]["by_sample"] for folder in masked]
    found = next(row for row in told if row["rule"] == "fedavg + and_mask(0.4)")
    assert (float(found["loss (nats)"]), float(found["sd"])) == pytest.approx((np.mean(losses), np.std(losses, ddof=1)))
    assert is_picture(tmp_path / "analyses" / "curves.png")
    assert unlabelled(curves.read([Path("runs")], None, None)) == []
    with sentence("--splits must be among train, heldout, test, which all these runs have, got 'unseen'"):
        curves.read([Path("runs")], ["unseen"], None)
    with sentence("--metric must be one of loss, accuracy, got 'recall'"):
        curves.read([Path("runs")], None, "recall")


def test_tau_zero_is_plain_averaging(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("tau", *TINY, "--taus", "1,0", "--select", "window(4,4)")
    assert code == 0 and out.startswith("tau")
    plain = study.arm(
        "", tau_study.BASE, ["data.name=digits", "run.seeds=0,1", "train.rounds=4", *SMALL, *TINY[-2:]], {}
    )
    points = rows(tmp_path / "analyses" / "tau-points.csv")
    assert [(row["tau"], row["seed"]) for row in points] == [("0.0", "0"), ("0.0", "1"), ("1.0", "0"), ("1.0", "1")]
    for run, point in zip(plain.runs, points, strict=False):
        experiment = run.experiment
        fed = experiment.federation(run.seed)
        module = experiment.module(fed, run.seed)
        done = accord.fit(
            module, fed, accord.fedavg(), rounds=4, steps=40, evaluate_every=2, seed=run.seed, engine="sequential"
        )
        splits = done.history[-1][1]["splits"]["test"]
        assert float(point["test accuracy (%)"]) == pytest.approx(100 * splits["accuracy"]["by_sample"], abs=1e-9)
        assert float(point["test loss (nats)"]) == pytest.approx(splits["loss"]["by_sample"], rel=1e-6)
    assert is_picture(tmp_path / "analyses" / "tau.png")


# ---------------------------------------------------------------------------------------------- participation


def test_participation_starts_from_the_trained_model_and_judges_both_groups(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("participation", *TINY, "--participants", "2", "--epochs", "1")
    assert code == 0 and "before the round" in out
    table, points = (
        rows(tmp_path / "analyses" / "participation.csv"),
        rows(tmp_path / "analyses" / "participation-points.csv"),
    )
    assert [row["rule"] for row in table] == [
        "before the round",
        "fedavg",
        "fedavg + gma(0.4)",
        "fedavg + scaled(gma(0.4), length)",
        "fedavg + and_mask(0.4)",
    ]
    given = ["data.name=digits", "run.seeds=0,1", "train.rounds=4", *SMALL, *TINY[-2:]]
    for run in participation.base(given).runs:
        fed = run.experiment.federation(run.seed)
        model = warm_start(run.experiment.module(fed, run.seed), run.folder / "model.safetensors").eval()
        chosen = {guest.client for guest in invite(fed.clients, 2, Conditions(), run.seed, 1)}
        point = next(
            point for point in points if point["rule"] == "before the round" and point["trial"] == str(run.seed)
        )
        for column, members in {"participating (%)": chosen, "others (%)": set(fed.clients) - chosen}.items():
            x, y = fed.read(torch.cat([fed.heldout[client] for client in fed.clients if client in members]))
            assert float(point[column]) == pytest.approx(
                100 * float((model(x).argmax(1) == y).double().mean()), abs=0.01
            )
    for row in table:
        assert float(row["others - averaging"]) == pytest.approx(
            float(row["others (%)"]) - float(table[1]["others (%)"])
        )
    after = next(point for point in points if point["rule"] == "fedavg")
    assert any(after[column] != points[0][column] for column in ("participating (%)", "others (%)"))
    assert is_picture(tmp_path / "analyses" / "participation.png")


# --------------------------------------------------------------------------------------------------- surfaces


def test_membership_has_the_figures_of_an_attack_on_each_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = command(
        "membership", *SMALL, "--data", "digits", "--rounds", "2", "--seeds", "0,1", "--steps", "50"
    )
    assert code == 0, err
    points = rows(tmp_path / "analyses" / "membership-points.csv")
    curves = [point for point in points if point["step"]]
    points = [point for point in points if not point["step"]]
    assert [point["attack"] for point in points[:2]] == ["logits", "loss"] and len(points) == 3 * 2 * 2
    first, last = ([point for point in curves if point["step"] == step] for step in ("0", "50"))
    assert len(first) == len(last) == 3 * 2 and {
        round(float(point["attacker's loss (nats)"]), 6) for point in first
    } == {0.693147}
    assert [point["attacker's loss (nats)"] for point in last] == [
        p["attacker's loss (nats)"] for p in points if p["attack"] == "logits"
    ]
    runs = {run.name.rpartition("-s")[0]: run for run in sorted((tmp_path / "runs/analyse/membership").glob("*-s0"))}
    assert len(runs) == 3
    (plain,) = (run for run in runs.values() if json.loads((run / "experiment.json").read_text())["label"] == "fedavg")
    monkeypatch.setattr(sys, "argv", ["accord", "membership", str(plain), "--against", "test", "--steps", "50"])
    with pytest.raises(SystemExit):
        main()
    found = json.loads((plain / "membership.json").read_text())["attacks"]
    ours = [point for point in points if (point["rule"], point["seed"]) == ("fedavg", "0")]
    assert [float(point["attack accuracy (%)"]) for point in ours] == [
        pytest.approx(100 * attack["accuracy"]) for attack in found
    ]
    assert "fedavg + scaled(gma(0.4), length)" in out and is_picture(tmp_path / "analyses" / "membership.png")


def test_surfaces_have_the_papers_minima() -> None:
    """At a well's bottom the other well's pull is all that is left: 16 exp(-8) at most, against a curvature of at least
    6.4."""
    for client in (surfaces.A, surfaces.B):
        for well, depth in ((client.own, client.deep), (client.shared, client.shallow)):
            at = torch.tensor(well, dtype=torch.float64, requires_grad=True)
            loss = client.loss(at)
            assert float(loss.detach()) == pytest.approx(1 - depth, abs=1e-3)
            (gradient,) = torch.autograd.grad(loss, at)
            torch.testing.assert_close(client.gradient(at.detach()), gradient)
            assert float(gradient.norm()) < 16 * np.exp(-8) * 1.01
            curvature = torch.linalg.eigvalsh(torch.autograd.functional.hessian(client.loss, at.detach()))
            assert float(curvature.min()) == pytest.approx(depth / client.width**2, rel=0.05)
    shared = torch.tensor(surfaces.SHARED, dtype=torch.float64)
    own = torch.tensor(surfaces.OWN_A, dtype=torch.float64)
    both = [float(surfaces.A.loss(w) + surfaces.B.loss(w)) / 2 for w in (shared, own)]
    assert both[1] < both[0]  # the mean of both is lowest where one of them is badly off
    assert float(surfaces.B.loss(own)) > 0.99 > float(surfaces.B.loss(shared))


def test_averaging_ends_at_the_minima_and_a_mask_of_votes_where_signs_part() -> None:
    rules, starts = surfaces.rules(0.4, 0.8, 0.1), surfaces.grid(9)
    ends = surfaces.walk(rules["averaging"], starts, rounds=400, steps=5, lr=0.02)
    wells = surfaces.where(ends)
    assert {"shared", "A's own", "B's own"} <= set(wells)
    for well, place in surfaces.WELLS.items():
        there = ends[[i for i, name in enumerate(wells) if name == well]]
        assert float((there - torch.tensor(place)).norm(dim=-1).max()) < 2e-3
    hard = surfaces.walk(rules["AND-mask(0.4)"], starts, rounds=1500, steps=1, lr=0.02)
    at_rest = (surfaces.walk(rules["AND-mask(0.4)"], hard, rounds=1, steps=1, lr=0.02) - hard).abs() < 1e-12
    pulls = surfaces.A.gradient(hard), surfaces.B.gradient(hard)
    parted = (pulls[0] * pulls[1] <= 0) | ((pulls[0] + pulls[1]).abs() < 1e-9)
    assert float(at_rest.double().mean()) > 0.5 and bool(parted[at_rest].all())
    soft = surfaces.walk(rules["GMA(0.4)"], starts, rounds=1500, steps=1, lr=0.02)
    assert torch.equal(hard, soft)  # of two clients the net vote is all or nothing
    few = [
        surfaces.walk(rules[name], starts, rounds=50, steps=5, lr=0.02, many=(6, 4))
        for name in ("AND-mask(0.4)", "GMA(0.4)")
    ]
    assert not torch.equal(*few)


class Place(nn.Module):
    """A model that is a point of the plane; a client's one sample is its well, and the output its loss there."""

    def __init__(self, start: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, own: Tensor) -> Tensor:
        a, b = surfaces.A.loss(self.w), surfaces.B.loss(self.w)
        return torch.where(own[:, 0] > 0, a, b)


@pytest.mark.parametrize("rule", list(surfaces.rules(0.4, 0.8, 0.1)))
def test_the_walk_is_what_the_engine_does(rule: str) -> None:
    algorithm = surfaces.rules(0.4, 0.8, 0.1)[rule]
    wells = torch.tensor([surfaces.OWN_A, surfaces.OWN_B], dtype=torch.float64)
    fed = Federation(wells, torch.zeros(2), {"A": torch.tensor([0]), "B": torch.tensor([1])}, name="surfaces")
    starts = torch.tensor([[0.0, -0.2], [-0.3, 0.3], [0.4, 0.1]], dtype=torch.float64)
    walked = surfaces.walk(algorithm, starts, rounds=7, steps=3, lr=0.02)
    for start, end in zip(starts.tolist(), walked, strict=True):
        plan: dict[str, Any] = {
            "rounds": 7,
            "epochs": 3,
            "batch": None,
            "lr": 0.02,
            "momentum": 0.0,
            "evaluate_every": 7,
        }
        run = accord.fit(Place(start), fed, algorithm, loss=cost, metrics={}, engine="sequential", **plan)
        torch.testing.assert_close(run.last.vector, end, rtol=0, atol=1e-12)


def test_the_approximation_of_the_appendix_is_off_by_its_closed_form() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.rand(50, generator=draw, dtype=torch.float64) + 0.1 for _ in range(2))
    x, y = 1.7, 0.6
    squared = (y - (a + b) / 2 * x) ** 2 - ((y - a * x) ** 2 + (y - b * x) ** 2) / 2
    torch.testing.assert_close(surfaces.squared_gap(a, b, x), squared)
    likelihood = -((a + b) / 2 * x).log() + ((a * x).log() + (b * x).log()) / 2
    torch.testing.assert_close(surfaces.likelihood_gap(a, b), likelihood)
    assert bool((surfaces.likelihood_gap(a, b) <= 0).all())


def test_surfaces_as_a_command(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("surfaces", "--starts", "4", "--rounds", "20", "--clients", "6,4", "--out", "here/there")
    assert code == 0 and "16 starts, 20 rounds of 5 steps; 6 clients see A's surface and 4 B's" in out
    table, points = (
        rows(tmp_path / "here" / "there" / "surfaces.csv"),
        rows(tmp_path / "here" / "there" / "surfaces-points.csv"),
    )
    assert len(table) == 5 and len(points) == 5 * 16
    for row in table:
        own = [point["well"] for point in points if point["rule"] == row["rule"]]
        assert float(row["shared (%)"]) == pytest.approx(100 * own.count("shared") / 16)
        assert sum(float(row[f"{well} (%)"]) for well in (*surfaces.WELLS, "none")) == pytest.approx(100)
    assert is_picture(tmp_path / "here" / "there" / "surfaces.png")
    assert unlabelled(surfaces.read(0.4, 0.8, 0.1, (1, 1), 3, 2, 1, 0.02)) == []


# ------------------------------------------------------------------------------------- what all of them share


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tau", "--taus", "0,x"], "--taus must be numbers with commas between them, got '0,x'"),
        (["tau", "--taus", "0.4,0.4"], "--taus must differ from each other, got '0.4,0.4'"),
        (["tau", "--taus", "1.4"], "--taus must be between 0 and 1, got 1.4"),
        (
            ["tau", "--mask", "soft"],
            (
                "algorithm.mask must be one of none, gma, and, sand, magnitude, scaled or module:object of yours, got"
                " 'soft'"
            ),
        ),
        (["tau", "--split", "valid"], "--split must be one of train, heldout, unseen, test, got 'valid'"),
        (
            ["tau", "--select", "best"],
            "there is no selection rule 'best': choose one of held-out, last10, oracle, window(a,b)",
        ),
        (
            ["tau", "algorithm.mask.tau=0.5"],
            "algorithm.mask.tau is what this analysis varies: leave it out, or use the command's own option for it",
        ),
        (["tau", "--data", "mnits"], "data.name must be one of mnist,"),
        (["tau", "--figure", "pdf"], "--figure must be one of png, svg, none, got 'pdf'"),
        (["tau", "--rounds", "0"], "Invalid value for '--rounds'"),
        (["heterogeneity", "--alphas", "0"], "--alphas must be between 1e-06 and 1e+06, got 0"),
        (["heterogeneity", "--tau", "1.5"], "algorithm.mask.tau must be between 0 and 1, got 1.5"),
        (["softness", "--seeds", "0,0"], "run.seeds must differ from each other, got [0, 0]"),
        (
            ["participation", "--participants", "2.5"],
            "--participants must be whole numbers of at least 1 with commas between them, got '2.5'",
        ),
        (["participation", "--participants", "10"], "--participants must leave out some of the 10 clients, got 10"),
        (
            ["participation", "data.heldout=0.0"],
            "data.heldout must be above 0: the clients' held-out data is what this analysis measures",
        ),
        (["curves", "nowhere"], "there is no folder nowhere: give a run folder, or a folder that holds some"),
        (["layers", "nowhere"], "there is no folder nowhere: give a run folder"),
        (["layers", "."], "experiment.json is missing: this is not a run folder, or it was damaged"),
        (["surfaces", "--clients", "3"], "--clients must be two numbers, A's and B's, such as 6,4, got '3'"),
        (["surfaces", "--tau", "2"], "tau must be between 0 and 1, got 2.0"),
        (["surfaces", "--out", "file/below"], "--out must be a folder that can be written to, got 'file/below'"),
    ],
)
def test_bad_input_is_one_sentence(command: Command, tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = command(*words)
    assert (code, out) == (2, "") and err.startswith("accord: ") and err.count("\n") == 1
    assert told in err


def test_without_matplotlib_a_sentence_or_the_table_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    tiny = ["surfaces", "--starts", "2", "--rounds", "1"]
    code, _, err = command(*tiny)
    assert (
        code == 2
        and "figures need matplotlib: pip install 'accord-fl[plot]', or write the table alone with --figure none" in err
    )
    code, _, _ = command(*tiny, "--figure", "none")
    assert code == 0 and sorted(path.name for path in (tmp_path / "analyses").iterdir()) == [
        "surfaces-points.csv",
        "surfaces.csv",
    ]


@pytest.mark.parametrize("name", ["heterogeneity", "softness", "tau", "participation", "membership"])
def test_the_studies_own_settings_are_valid(name: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    module = importlib.import_module(f"accord.analyses.{name}")
    assert len(study.arm("", module.BASE, ["data.name=digits"], {}).runs) >= 2


def test_every_figure_of_a_study_is_labelled(command: Command, tmp_path: Path) -> None:
    given = ["data.name=digits", "run.seeds=0", "train.rounds=2", "train.evaluate_every=1", *SMALL]
    arms = softness.plan(softness.BASE, given, softness.masks(0.4))
    for one in arms:
        for run in one.runs:
            execute_seed(run.experiment, run.seed, Lines(Console(stderr=True)), Interrupt(), resume=True, fresh=False)
    assert unlabelled(softness.read(arms, "last10", None)) == []
    named = study.Arm("0.4", {"algorithm.mask.tau": 0.4, "data.alpha": 1.0}, arms[1].runs)
    assert unlabelled(tau_study.read([named], "last10", "test")) == []
    assert unlabelled(heterogeneity.read([named], 0.4)) == []
    with sentence("there is no unseen data in these runs: they have train, heldout, test"):
        tau_study.read([named], "last10", "unseen")


def test_tables_are_plain(tmp_path: Path) -> None:
    told = [{"rule": "a, b", "accuracy (%)": 91.2345, "sd": None, "loss": 0.123456, "seeds": 3}]
    assert as_csv(told) == 'rule,accuracy (%),sd,loss,seeds\n"a, b",91.2345,,0.123456,3\n'
    assert cells(told) == [["rule", "accuracy (%)", "sd", "loss", "seeds"], ["a, b", "91.23", "-", "0.1235", "3"]]
    assert deviation([1.0]) is None and deviation([1.0, 3.0]) == pytest.approx(2**0.5)


def test_equal_figures_are_equal_files() -> None:
    def draw() -> Any:
        figure, (axes,) = style.panels()
        style.band(axes, [1, 2], [[1.0, 2.0], [3.0, 2.0]], "two seeds", style.COLOURS[0])
        (line,), (shade,) = axes.lines, axes.collections
        assert line.get_ydata().tolist() == [2.0, 2.0]  # the mean
        assert sorted({y for _, y in shade.get_paths()[0].vertices.tolist()}) == [1.0, 2.0, 3.0]  # lowest to highest
        return figure

    assert style.rendered(draw, "svg") == style.rendered(draw, "svg")


@pytest.mark.slow
def test_ctrl_c_stops_after_the_round_and_the_same_command_goes_on(tmp_path: Path, cache: Path) -> None:
    env = {**os.environ, "ACCORD_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    given = [
        *SMALL,
        "--data",
        "digits",
        "--seeds",
        "0",
        "--taus",
        "0,0.4",
        "train.evaluate_every=50",
        "--figure",
        "none",
    ]

    def words(rounds: int) -> list[str]:
        return [sys.executable, "-m", "accord", "analyse", "tau", *given, "--rounds", str(rounds)]

    process = subprocess.Popen(
        words(5000), cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started = time.monotonic()
    while not list(tmp_path.glob("runs/analyse/tau/*/metrics.jsonl")) and time.monotonic() - started < 60:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert "so there is no table yet. To go on: accord analyse tau model.name=logistic" in err
    (folder,) = tmp_path.glob("runs/analyse/tau/*")
    reached = json.loads((folder / "state.json").read_text())["round"]
    assert 0 < reached < 5000
    done = subprocess.run(words(reached + 2), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and f"going on after round {reached}" in done.stderr
    assert len(rows(tmp_path / "analyses" / "tau.csv")) == 2
