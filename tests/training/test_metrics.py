"""Runs judged by metrics of a whole group, on every engine, from Python and from a file."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import Tensor, nn

import accord
from accord.data import Federation
from accord.experiments import experiment
from accord.report import gather, look
from accord.runs.reader import find, load
from command import run_command
from conftest import blobs, mlp, sentence

ASKED = ["auc", "accuracy", "f1", "balanced_accuracy", "average_precision", "calibration_error"]


def fitted(**options) -> accord.Run:
    given = {"rounds": 3, "lr": 0.1, "evaluate_every": 1, "verbose": False, "metrics": ASKED, **options}
    return accord.fit(given.pop("model", None) or mlp(), given.pop("fed", None) or blobs(), **given)


def test_figures_are_scikit_learns_on_all_samples_of_a_split() -> None:
    fed = blobs()
    run = fitted(fed=fed)
    row = run.history[-1][1].splits["unseen"].metrics["auc"]
    by_client = {}
    everything = []
    for client, rows in fed.unseen.items():
        x, y = fed.read(rows)
        with torch.no_grad():
            everything.append((run.model()(x).double().softmax(1), y))
        by_client[client] = sklearn.metrics.roc_auc_score(y, everything[-1][0], multi_class="ovr")
    pooled = [torch.cat(part) for part in zip(*everything, strict=True)]
    assert row.by_sample == pytest.approx(sklearn.metrics.roc_auc_score(pooled[1], pooled[0], multi_class="ovr"))
    assert row.by_client == pytest.approx(np.mean(list(by_client.values())))
    assert row.worst == pytest.approx(min(by_client.values()))
    told = {each["client"]: each["auc"] for each in run.clients if each["split"] == "unseen"}
    assert told == pytest.approx(by_client)


def test_engines_give_the_same_figures() -> None:
    fed = blobs(clients=6, unseen=2)
    rows = [fitted(fed=fed, rounds=2, engine=engine).rows for engine in ("sequential", "processes", "vectorised")]
    for other in rows[1:]:
        for here, there in zip(rows[0], other, strict=True):
            for split, figures in here["evaluation"]["splits"].items():
                for metric in ASKED:
                    found = there["evaluation"]["splits"][split][metric]
                    assert found == pytest.approx(figures[metric], abs=1e-3), metric


def test_what_is_asked_beside_changes_no_bit() -> None:
    alone, beside = fitted(metrics=["accuracy"]), fitted(metrics=["accuracy", "auc"])
    for here, there in zip(alone.history, beside.history, strict=True):
        for split, row in here[1].splits.items():
            assert all(there[1].splits[split].metrics[name] == of for name, of in row.metrics.items())


def test_the_first_metric_judges() -> None:
    run = fitted(metrics=["calibration_error", "accuracy"])
    history = run.history
    reached = [evaluation.splits["heldout"].metrics["calibration_error"].by_sample for _, evaluation in history]
    chosen = run.select("held-out")
    assert chosen.rounds == [history[int(np.argmin(reached))][0]] and chosen.values["heldout"] == min(reached)
    assert run.best is not None and run.best.round == chosen.rounds[0]
    assert "calibration_error" in str(run)


def test_early_stopping_goes_by_a_group_metric() -> None:
    """A figure that never changes is flat from its first evaluation on."""
    constant = {"half": accord.metrics.group(lambda output, target: 0.5)}
    run = fitted(metrics=constant, rounds=30, patience=4)
    assert run.flat == 1 and run.rounds == 5


def test_a_metric_is_given_whole_groups() -> None:
    fed, seen = blobs(), []

    def size(output: Tensor, target: Tensor) -> float:
        seen.append(len(output))
        assert len(output) == len(target) and output.device.type == "cpu"
        return float(len(output))

    run = fitted(fed=fed, rounds=1, engine="sequential", metrics={"size": accord.metrics.group(size)})
    figures = run.history[-1][1].splits["train"].metrics["size"]
    assert figures.by_sample == sum(map(len, fed.train.values())) and figures.worst == min(map(len, fed.train.values()))


def test_samples_that_are_drawn_for_an_evaluation() -> None:
    size = {"size": accord.metrics.group(lambda output, target: float(len(output)))}
    run = fitted(rounds=1, metrics=size, evaluate_samples=40)
    assert run.history[-1][1].splits["train"].metrics["size"].by_sample == 40


def test_clients_that_train_alone() -> None:
    """Their own data is judged under their own models, other data by the mean of several."""
    fed = blobs(clients=3)
    run = fitted(fed=fed, algorithm=accord.local_only(), metrics=["auc"], rounds=2)
    unseen = run.history[-1][1].splits["unseen"].metrics["auc"]
    means = [row["auc"] for row in run.clients if row["split"] == "unseen"]
    assert unseen.by_client == pytest.approx(np.mean(means)) and 0 < unseen.by_sample < 1
    assert run.history[-1][1].splits["heldout"].clients == 3


# --------------------------------------------------------------------------------------- what is not a figure


def two_classes(lonely: bool = True) -> Federation:
    """Clients of two classes, one of whom has a single class."""
    generator = torch.Generator().manual_seed(0)
    y = {name: torch.arange(40) % 2 for name in "abc"}
    y["b"] = torch.zeros(40, dtype=torch.int64) if lonely else y["b"]
    return accord.data.from_arrays(
        {name: (torch.randn(40, 3, generator=generator) + of[:, None], of) for name, of in y.items()}, heldout=0.5
    )


def test_a_client_of_one_class_is_in_no_mean_and_is_named_once() -> None:
    torch.manual_seed(0)
    run = fitted(fed=two_classes(), model=nn.Linear(3, 2), metrics=["auc"])
    told = {row["client"]: row["auc"] for row in run.clients if row["split"] == "heldout"}
    figures = run.history[-1][1].splits["heldout"].metrics["auc"]
    assert told["b"] is None and figures.by_client == pytest.approx((told["a"] + told["c"]) / 2)
    assert math.isfinite(figures.by_sample) and figures.worst == min(told["a"], told["c"])
    line = "auc has no figure for 1 of 3 held-out clients (b): it needs samples of two classes"
    assert str(run).count(line) == 1 and "nan" not in str(run)


class Broken(nn.Module):
    """Says NaN of samples whose first feature is large."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        output = self.layer(x)
        return output if self.training else torch.where(x[:, :1] > 1.0, math.nan, output)


@pytest.mark.parametrize("engine", ["sequential", "processes", "vectorised"])
def test_nan_predictions_count_as_wrong_and_are_named(engine: str) -> None:
    torch.manual_seed(0)
    fed = blobs(clients=2, unseen=1)
    y = torch.zeros_like(fed.y)  # the class that argmax makes of NaN
    fed = Federation(fed.x, y, fed.train, fed.heldout, fed.unseen, name=fed.name)
    model = Broken()
    with torch.no_grad():
        model.layer.bias[0] = 100.0  # and the one that the model says of everything else
    run = fitted(fed=fed, model=model, rounds=1, engine=engine, metrics=["accuracy", "balanced_accuracy"])
    for split in ("train", "unseen"):
        rows = torch.cat(list(getattr(fed, split).values()))
        share = float((fed.x[rows][:, 0] <= 1.0).float().mean())
        figures = run.history[-1][1].splits[split].metrics
        assert 0 < share < 1 and figures["accuracy"].by_sample == pytest.approx(share)
        assert figures["balanced_accuracy"].by_sample == pytest.approx(share)
    count = int((fed.x[fed.unseen["c02"]][:, 0] > 1.0).sum())
    assert f"{count} of {len(fed.unseen['c02'])} unseen samples of c02" in str(run)
    assert "NaN predictions, which count as wrong: " in str(run)


def test_metrics_of_a_users_own_have_no_figure_of_nan() -> None:
    def argmax(output: Tensor, target: Tensor) -> Tensor:
        return (output.argmax(1) == target).float()

    kinds = {"plain": argmax, "declared": accord.metrics.per_sample(argmax, nan_counts_as=0.0)}
    splits = fitted(model=Broken(), rounds=1, metrics=kinds).rows[-1]["evaluation"]["splits"]["train"]
    assert splits["plain"]["by_sample"] is None and 0 <= splits["declared"]["by_sample"] <= 1


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (["acuracy"], "there is no metric 'acuracy': did you mean 'accuracy'?"),
        (["r2"], "the metric r2 is for targets that are numbers, and these are class labels: take accuracy, auc or f1"),
        (["mae"], "the metric mae is for targets that are numbers"),
        ({"mine": 3}, "the metric mine must be a function of (output, target), got 3"),
        (7, "metrics must be names such as 'auc', or a dictionary of functions"),
        ({"NaN predictions": accord.metrics.auc}, "a metric cannot be called 'NaN predictions'"),
    ],
)
def test_a_metric_that_does_not_fit_is_a_sentence(metrics: object, says: str) -> None:
    with sentence(says):
        fitted(metrics=metrics)


def test_class_metrics_are_not_for_numbers() -> None:
    x = torch.randn(20, 3)
    fed = accord.data.from_arrays({"a": (x, x.sum(1)), "b": (x, x.sum(1))})
    for name in ("auc", "accuracy", "f1", "calibration_error"):
        with sentence(f"the metric {name} is for class labels, and the targets are numbers (float32): take mae or r2"):
            fitted(fed=fed, model=nn.Linear(3, 1), metrics=[name])
    run = fitted(fed=fed, model=nn.Linear(3, 1), metrics=["r2", "mae"])
    assert run.history[-1][1].metric.name == "r2" and not run.history[-1][1].notes


def test_a_mark_is_for_functions() -> None:
    with sentence("smaller_is_better marks a plain function"):
        accord.smaller_is_better(accord.metrics.auc)


def test_scikit_learn_is_imported_when_a_metric_needs_it() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
import torch, accord
x, y = torch.randn(20, 3), torch.arange(20) % 2
fed = accord.data.from_arrays({"a": (x, y), "b": (x, y)})
model = torch.nn.Linear(3, 2)
print(accord.fit(model, fed, rounds=1, verbose=False, metrics=["calibration_error", "accuracy"]).rounds)
try:
    accord.fit(model, fed, rounds=1, metrics=["auc"])
except accord.AccordError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "1",
        "the metric auc is computed by scikit-learn, which is not installed: pip install 'scikit-learn>=1.4'",
    ]


# ------------------------------------------------------------------------------------------------ from a file

FILE = """
[data]
name = "digits"
clients = 4
unseen = 1
[model]
name = "logistic"
[train]
rounds = 2
evaluate_every = 1
metrics = {metrics}
[run]
folder = "{folder}"
"""


def test_a_file_names_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours.py").write_text(
        "import accord\ndef _far(output, target):\n    return float(output.abs().max())\n"
        "largest = accord.metrics.group(_far, smaller_is_better=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    read = experiment.parse(FILE.format(metrics='["auc", "ours:largest"]', folder=tmp_path / "runs"))
    assert read.metrics is not None and list(read.metrics) == ["auc", "largest"]
    assert read.resolved()["train"]["metrics"] == ["auc", "ours:largest"]
    plain = experiment.parse(FILE.format(metrics="[]", folder=tmp_path / "runs"))
    assert plain.folder(0) != read.folder(0) and "metrics" not in plain.identity
    (run,) = _executed(read)
    recorded = load(run.folder)
    assert recorded.kind == "digits, auc" and recorded.history[-1][1].metric.name == "auc"
    assert recorded.history[-1][1].smaller_is_better == ("largest", "loss")
    assert recorded.history == run.history


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ('["auc", "auc"]', "train.metrics must differ from each other"),
        ('["nowhere:it"]', "train.metrics: nowhere:it: there is no module 'nowhere'"),
        ("[1]", "train.metrics must be"),
    ],
)
def test_a_file_with_bad_metrics(metrics: str, says: str) -> None:
    with sentence(says):
        experiment.parse(FILE.format(metrics=metrics, folder="runs"))


def test_a_slip_in_a_file_is_told_with_the_nearest_name() -> None:
    with sentence("train.metrics must be one of accuracy, auc, ", "got 'aucc': did you mean 'auc'?"):
        experiment.parse(FILE.format(metrics='["aucc"]', folder="runs"))


def test_compare_show_and_page_know_the_metric(tmp_path: Path) -> None:
    """Less calibration error is ahead, whatever the sign; and what a figure lacks stands below each."""
    for label, lr in (("one", 0.0001), ("other", 0.3)):
        for seed in (0, 1, 2):
            torch.manual_seed(0)
            metrics, model = ["calibration_error", "auc"], nn.Linear(3, 2)
            fitted(fed=two_classes(), model=model, metrics=metrics, lr=lr, seed=seed, folder=tmp_path / label, rounds=6)
    (one, other) = ((tmp_path / label) for label in ("one", "other"))
    done = command("compare", str(other), str(one), "--on", "train", "--select", "last10")
    means = []
    for side in (other, one):
        reached = [run.chosen("last10").values["train"] for run in map(load, find([side]))]
        means.append(np.mean(reached))
    assert means[0] < means[1] and f"is ahead of fedavg on training data: {means[0] - means[1]:.4f} (" in done
    assert "points" not in done
    note = "auc has no figure for 1 of 3 train clients (b): it needs samples of two classes"
    shown = command("show", str(one))
    assert shown.count(note) == 1 and " more runs: " in shown
    (notice,) = [told for told in gather(look([one]))["notices"] if note in told]
    assert notice.endswith(note) and "and 2 more runs" in notice


def command(*words: str) -> str:
    done = run_command(Path.cwd(), *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _executed(read: experiment.Experiment) -> list[accord.Run]:
    from accord.experiments.execute import Interrupt, execute

    class Silent:
        def data(self, *told: object) -> None: ...
        def start(self, *told: object) -> None: ...
        def round(self, event: object) -> None: ...
        def end(self, run: object) -> None: ...
        def note(self, text: str) -> None: ...

    return list(execute(read, Silent(), Interrupt()))
