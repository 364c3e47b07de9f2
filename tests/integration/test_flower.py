"""accord's Flower strategy and client against each other, without a network: deployed rounds are the simulated ones,
bad clients are left out and counted, clients remember what was accepted, and sums stay sums. The network has tests of
its own."""

import json
import math
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

from direct_grid import DirectGrid, inflated
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from safetensors.torch import load_file

import accord
from accord.core.errors import AccordError
from accord.data import Federation
from accord.deploy.flower import Strategy, Sums, client_app, owned
from accord.deploy.flower.client import _known
from accord.deploy.flower.exchange import exchange
from accord.deploy.flower.figures import Gathered
from accord.deploy.flower.sums import packed, unpacked
from accord.deploy.flower.turns import in_turn
from accord.deploy.flower.wire import PROTOCOL, arrays_of, content, part_in
from accord.engines.contract import ClientRow
from accord.privacy.secure_sum import SecureSum, votes_bits
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.rules.masks import Mask
from accord.runs.reader import load
from accord.runs.run import Run
from accord.training.plan import Plan
from conftest import blobs, mlp, sentence

ALGORITHMS = {
    "fedavg": accord.fedavg(),
    "fedavg+gma": accord.fedavg(mask=accord.gma(0.4)),
    "fedavg+and": accord.fedavg(mask=accord.and_mask(0.4)),
    "fedprox+magnitude": accord.fedprox(mu=0.1, mask=accord.magnitude(0.4)),
    "scaffold": accord.scaffold(),
    "scaffold+gma": accord.scaffold(mask=accord.gma(0.4)),
    "fedadam+gma": accord.fedadam(mask=accord.gma(0.4)),
    "fedyogi": accord.fedyogi(),
    "corrective": accord.fedavg(average=accord.corrective(0.2)),
    "corrective, asked twice": accord.fedavg(average=accord.corrective(0.2, passes=2)),
    "scaffold+corrective, asked twice": accord.scaffold(average=accord.corrective(0.2, passes=2), mask=accord.gma(0.4)),
    "median": accord.fedavg(average=accord.median()),
}


class Normed(nn.Module):
    """A model with buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def grid_of(fed: Federation, nodes: int = 5, model: nn.Module | None = None, **options: Any) -> DirectGrid:
    """Nodes with ids that say nothing, each with its part of the clients."""
    made = {number: client_app(model or mlp(), owned(fed, number, nodes), **options) for number in range(nodes)}
    return DirectGrid({9000 - 7 * number: (app, {"partition-id": number}) for number, app in made.items()})


def strategy_of(
    fed: Federation, algorithm: Algorithm, rounds: int = 4, sample: int | None = 5, **options: Any
) -> Strategy:
    plan = options.pop("plan", Plan(rounds=rounds, sample=sample, evaluate_every=2))
    return Strategy(
        algorithm,
        options.pop("model", mlp()),
        clients=fed.clients,
        training=Training(lr=0.05),
        plan=plan,
        **{"timeout": 1.0, "wait": 2.0, **options},
    )


def simulated(
    fed: Federation, algorithm: Algorithm, rounds: int = 4, sample: int | None = 5, model: nn.Module | None = None
) -> Run:
    return accord.fit(
        model or mlp(), fed, algorithm, rounds=rounds, sample=sample, evaluate_every=2, lr=0.05, engine="sequential"
    )


def finished(strategy: Strategy, grid: DirectGrid) -> Run:
    strategy.start(grid)
    assert strategy.run is not None
    return strategy.run


def same_metrics(found: Run, expected: Run) -> None:
    """Every figure of every round. Evaluation sums over other batches than a simulation, so the last bits of its losses
    may differ."""
    for mine, theirs in zip(found.rows, expected.rows, strict=True):
        assert {**theirs, "evaluation": None} == {key: mine[key] for key in theirs if key != "evaluation"} | {
            "evaluation": None
        }
        for split, figures in theirs.get("evaluation", {"splits": {}})["splits"].items():
            for name, value in figures.items():
                assert mine["evaluation"]["splits"][split][name] == pytest.approx(value, rel=1e-6)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACCORD_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


# ------------------------------------------------------------------------ a deployed run is the simulated one


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_round_equals_the_simulated_one(name: str) -> None:
    fed = blobs()
    found, expected = finished(strategy_of(fed, ALGORITHMS[name]), grid_of(fed)), simulated(fed, ALGORITHMS[name])
    assert torch.equal(found.last.vector, expected.last.vector)  # to the last bit
    same_metrics(found, expected)


@pytest.mark.parametrize("personal", [("batchnorm",), ("body.3",)], ids=["FedBN", "FedPer"])
@pytest.mark.parametrize("sums", [None, Sums()], ids=["reports", "sums"])
def test_what_is_personal_never_travels_and_every_round_equals_the_simulated_one(
    personal: tuple[str, ...], sums: Sums | None
) -> None:
    fed, algorithm = blobs(), accord.fedavg(mask=accord.gma(0.4)).with_personal(*personal)
    grid = grid_of(fed, model=Normed(), sums=sums, algorithm=algorithm if sums else None)
    replies: list[Message] = []
    grid.tamper = dict.fromkeys(grid.apps, lambda reply: replies.append(reply) or reply)
    found = finished(strategy_of(fed, algorithm, model=Normed(), sums=sums), grid)
    expected = simulated(fed, algorithm, model=Normed())
    assert torch.equal(found.last.vector, expected.last.vector)
    same_metrics(found, expected)
    shared = {0, 1, len(expected.last.vector), len(expected.last.buffers)}
    records = [record for message in (*grid.sent, *replies) for record in message.content.array_records.values()]
    sizes = {array.numpy().size for record in records for array in record.values()}
    assert len(expected.last.vector) in sizes and sizes <= shared


def test_clients_take_the_steps_of_adamw_that_a_simulation_takes() -> None:
    fed, settings = blobs(), {"optimiser": "adamw", "lr": 0.01, "betas": (0.8, 0.99)}
    strategy = Strategy(
        accord.fedavg(), mlp(), clients=fed.clients, training=Training(**settings), plan=Plan(rounds=2), timeout=1.0
    )
    expected = accord.fit(mlp(), fed, rounds=2, engine="sequential", verbose=False, **settings)
    assert torch.equal(finished(strategy, grid_of(fed)).last.vector, expected.last.vector)


def test_buffers_and_more_clients_than_shards() -> None:
    fed = blobs(clients=40, unseen=2)
    algorithm = accord.fedavg(mask=accord.gma(0.4))
    found = finished(strategy_of(fed, algorithm, 2, 23, model=Normed()), grid_of(fed, 7, Normed()))
    expected = simulated(fed, algorithm, 2, 23, Normed())
    assert torch.equal(found.last.vector, expected.last.vector) and torch.equal(
        found.last.buffers, expected.last.buffers
    )


def test_flowers_own_start_drives_it_too() -> None:
    fed, algorithm = blobs(), accord.fedadam(mask=accord.gma(0.4))
    strategy = strategy_of(fed, algorithm)
    result = FlowerStrategy.start(strategy, grid_of(fed), ArrayRecord(mlp().state_dict()), num_rounds=4)
    expected = simulated(fed, algorithm)
    assert strategy.run is not None and torch.equal(strategy.run.last.vector, expected.last.vector)
    assert (
        result.evaluate_metrics_clientapp[4]["heldout.accuracy"]
        == expected.rows[3]["evaluation"]["splits"]["heldout"]["accuracy"]["by_sample"]
    )


def test_the_result_is_flowers() -> None:
    fed = blobs()
    strategy = strategy_of(fed, accord.fedavg())
    start = mlp(seed=3)
    result = strategy.start(
        grid_of(fed), ArrayRecord(start.state_dict()), num_rounds=2, evaluate_fn=lambda number, arrays: None
    )
    expected = simulated(fed, accord.fedavg(), rounds=2, model=start)
    for name, value in result.arrays.to_torch_state_dict().items():
        assert torch.equal(value, expected.model().state_dict()[name])
    assert sorted(result.train_metrics_clientapp) == [1, 2] and sorted(result.evaluate_metrics_clientapp) == [2]


@pytest.mark.parametrize("silent", [1, 2, 3])
def test_a_run_whose_only_unseen_client_missed_an_evaluation(silent: int, tmp_path: Path) -> None:
    fed, asked = blobs(clients=4, unseen=1), iter((1, 2, 3))
    grid = grid_of(fed)
    (node,) = (9000 - 7 * number for number in range(5) if owned(fed, number, 5).unseen)

    def spoil(message: Message, reply: Message | None) -> Message | None:
        mine = message.metadata.dst_node_id == node and message.metadata.message_type == "evaluate"
        return None if mine and next(asked) == silent else reply

    grid.spoil = spoil
    plan = Plan(rounds=3, evaluate_every=1)
    run = finished(strategy_of(fed, accord.fedavg(), plan=plan, folder=tmp_path / "runs"), grid)
    assert ["unseen" in evaluation.splits for _, evaluation in run.history] == [n != silent for n in (1, 2, 3)]
    assert run.folder is not None and load(run.folder).status == "done"
    again = accord.load(run.folder, model=mlp())
    assert again.history == run.history and again.select("last10") == run.select("last10")
    assert "unseen" in run.select("last10").values and "by last10 (rounds 1 to 3)" in str(run)


# ---------------------------------------------------------------------------------- metrics of a whole group

OF_GROUP = ["auc", "average_precision", "f1", "balanced_accuracy", "calibration_error", "accuracy"]


def test_a_metric_of_the_users_own_may_be_called_as_one_of_accords() -> None:
    """Its range is its own: nobody is blamed for percents."""

    def percent(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 100 * (output.argmax(1) == target).float()

    fed = blobs()
    own = {"accuracy": percent, "auc": accord.metrics.group(lambda output, target: -5.0)}
    found = finished(strategy_of(fed, accord.fedavg()), grid_of(fed, metrics=own))
    expected = finished(strategy_of(fed, accord.fedavg()), grid_of(fed))
    for mine, theirs in zip(found.rows, expected.rows, strict=True):
        assert "bad_replies" not in mine
        for split, row in theirs.get("evaluation", {"splits": {}})["splits"].items():
            here = mine["evaluation"]["splits"][split]
            assert here["accuracy"]["by_sample"] == pytest.approx(100 * row["accuracy"]["by_sample"])
            assert here["auc"]["by_client"] == -5.0


def test_clients_have_their_own_figures_and_all_of_them_one_from_a_histogram() -> None:
    fed = blobs(clients=4, samples=120)
    found = finished(strategy_of(fed, accord.fedavg(), sample=3), grid_of(fed, 3, metrics=OF_GROUP))
    expected = accord.fit(
        mlp(), fed, rounds=4, sample=3, evaluate_every=2, lr=0.05, engine="sequential", metrics=OF_GROUP
    )
    assert found.history[-1][1].metric.name == "auc"
    mine, theirs = ({(row["split"], row["client"]): row for row in run.clients} for run in (found, expected))
    for (_, here), (_, there) in zip(found.history, expected.history, strict=True):
        for split, row in there.splits.items():
            for name in OF_GROUP:
                pooled, exact = here.splits[split].metrics[name], row.metrics[name]
                binned = name in ("auc", "average_precision")
                assert pooled.by_sample == pytest.approx(exact.by_sample, abs=0.003 if binned else 1e-6), name
                assert (pooled.by_client, pooled.worst) == pytest.approx((exact.by_client, exact.worst), rel=1e-5)
    for key, row in theirs.items():
        assert {name: mine[key][name] for name in OF_GROUP} == pytest.approx({name: row[name] for name in OF_GROUP})
    assert "auc by sample is computed from a histogram of 1,000 bins of the clients' scores by class" in str(found)


def test_a_metric_of_the_clients_own_is_not_pooled() -> None:
    fed = blobs(clients=3)
    metrics = {"largest": accord.metrics.group(lambda output, target: float(output.max()), smaller_is_better=True)}
    run = finished(strategy_of(fed, accord.fedavg(), 2, None), grid_of(fed, 2, metrics=metrics))
    figures = run.history[-1][1].splits["heldout"].metrics["largest"]
    assert figures.by_sample is None and figures.by_client is not None and run.best is None
    assert "largest has no figure by sample: the server cannot pool a metric that is the clients' own" in str(run)


def numbers(values: dict[str, float | None]) -> dict[str, float]:
    return {name: float("nan") if value is None else value for name, value in values.items()}


def test_a_custom_metric_that_is_nan_for_a_client_costs_no_other_value() -> None:
    """As in a simulation, its value and that of its split are missing; its loss and its other metrics count."""
    fed = blobs(clients=3, unseen=1)
    y = fed.y % 3
    y[fed.train["c01"]] = 3
    fed = replace(fed, y=y)
    metrics = {
        "accuracy": accord.metrics.accuracy,
        "mine": lambda output, target: torch.where(target == 3, torch.nan, output[:, 0]),
    }
    found = finished(strategy_of(fed, accord.fedavg(), 2, None), grid_of(fed, 3, metrics=metrics))
    options = {"metrics": metrics, "rounds": 2, "evaluate_every": 2, "lr": 0.05, "engine": "sequential"}
    expected = accord.fit(mlp(), fed, accord.fedavg(), **options)
    for split, values in expected.rows[-1]["evaluation"]["splits"].items():
        deployed = found.rows[-1]["evaluation"]["splits"][split]
        assert deployed["clients"] == values["clients"]
        for name in ("loss", *metrics):
            assert numbers(deployed[name]) == pytest.approx(numbers(values[name]), rel=1e-5, nan_ok=True)
    train = {row["client"]: row for row in found.clients if row["split"] == "train"}
    assert math.isnan(train["c01"]["mine"]) and train["c01"]["loss"] > 0
    assert all(math.isfinite(train[client]["mine"]) for client in ("c00", "c02"))
    assert not {"bad_replies", "evaluation_left_out"} & set(found.rows[-1])


def test_a_metric_that_does_not_fit_is_said_by_the_server() -> None:
    fed = blobs(clients=2)
    says = "no node could evaluate the model: the metric r2 is for targets that are numbers"
    with pytest.warns(UserWarning, match="skipped"), sentence(says):
        strategy_of(fed, accord.fedavg(), 2, None).start(grid_of(fed, 2, metrics=["r2"]))


def test_an_evaluation_whose_histogram_does_not_match_is_none() -> None:
    """A node's histogram counts its own samples and no others; of nodes that measure differently, most are right."""
    fed = blobs(clients=4, unseen=0)
    groups = [("train", client, rows) for client, rows in fed.train.items()]
    held = {node: {("train", client): 3} for node, client in enumerate(fed.train)}
    told = {
        "samples": [3],
        "sums": {"loss": {"kind": None, "figures": [1.0]}},
        "smaller": ["loss"],
        "nan": [],
        "order": ["loss", "auc"],
        "of_group": {"auc": {"kind": "auc", "figures": [0.5]}},
    }

    def answer(client: str, released: torch.Tensor, **changes: Any) -> Any:
        message = {**told, "groups": [["train", client]], **changes}
        return content({"released": arrays_of({"auc": released.double()})}, message)

    def histogram(classes: int) -> torch.Tensor:
        counts = torch.zeros(1, classes, 2, 1000)
        counts[:, :, 0, 7], counts[:, :, 1, 9] = 2, 1
        return counts

    gathered = Gathered(groups, held)
    for bad, said in (
        (torch.ones(2, 4, 2, 1000), "wrong shape or type of auc"),
        (2 * histogram(4), "what it adds up for auc is not that of 3 samples"),
        (torch.full((1, 4, 2, 1000), float("nan")), "what it adds up for auc is not that of 3 samples"),
    ):
        with sentence(said):
            gathered.add(1, answer("c01", bad))
    gathered.add(0, answer("c00", histogram(3)))  # the first to answer does not decide
    for node in (1, 2):
        gathered.add(node, answer(f"c0{node}", histogram(4)))
    gathered.add(3, answer("c03", histogram(4), smaller=["auc", "loss"]))
    assert gathered.exclude_odd_forms() == [0, 3]
    assert gathered.exclude_diverged() == []
    assert gathered.table().samples.tolist() == [0, 3, 3, 0] and gathered.table().smaller == {"loss"}


# ------------------------------------------------------------------------------------------------ bad clients


def changed(message: Message, change: Any) -> Message:
    record = message.content.array_records["record"]
    record["average.delta"] = Array(change(record["average.delta"].numpy()))
    return message


def words(message: Message, **told: Any) -> Message:
    old = json.loads(str(message.content["accord"]["json"]))
    message.content["accord"] = ConfigRecord({"protocol": PROTOCOL, "json": json.dumps({**old, **told})})
    return message


def emptied(message: Message) -> Message:
    for key in list(message.content):
        del message.content[key]
    return message


BAD = {
    "NaN": (lambda m: changed(m, lambda d: d * float("nan")), "NaN in the update"),
    "infinity": (lambda m: changed(m, lambda d: d + float("inf")), "infinity in the update"),
    "shape": (lambda m: changed(m, lambda d: d[:-1]), "wrong shape or type of average.delta"),
    "type": (lambda m: changed(m, lambda d: d.astype("float64")), "wrong shape or type of average.delta"),
    "nothing": (lambda m: None, "no reply within"),
    "empty": (emptied, "its reply cannot be read"),
    "another": (lambda m: words(m, client="c99"), "its reply cannot be read: a reply of 'c99'"),
    "samples": (lambda m: words(m, samples=0), "it speaks for 0 samples, and 28 are registered of c01"),
    "minus": (lambda m: words(m, samples=-5), "its reply cannot be read: samples: Input should be greater than"),
    "words": (lambda m: words(m, steps="many"), "its reply cannot be read"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_client_is_left_out_and_counted(kind: str) -> None:
    """The round is that of the others alone."""
    fed = blobs(clients=4, unseen=0)
    grid = grid_of(fed, 4)
    grid.tamper[9000 - 7], said = BAD[kind]
    strategy = strategy_of(fed, accord.fedavg(mask=accord.gma(0.4)), 1, None)
    row = finished(strategy, grid).rows[0]
    assert row["accepted"] == 3 and list(row["left_out"]) == ["c01"] and said in row["left_out"]["c01"]
    others = replace(fed, train={client: rows for client, rows in fed.train.items() if client != "c01"})
    assert torch.equal(
        strategy.run.last.vector, simulated(others, accord.fedavg(mask=accord.gma(0.4)), 1, None).last.vector
    )  # type: ignore[union-attr]


def test_a_client_app_that_fails_is_left_out() -> None:
    fed = blobs(clients=3, unseen=0)
    grid = grid_of(fed, 3)

    def fails(context: Any) -> Federation:
        raise AccordError("the disk is gone")

    failing = client_app(mlp(), fails)
    strategy = strategy_of(fed, accord.fedavg(), 2, None)

    class Later(DirectGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            if messages[0].metadata.message_type == "train":
                self.apps[9000] = (failing, {})
            return super().push_messages(messages)

    row = finished(strategy, Later(grid.apps)).rows[0]
    assert row["left_out"] == {"c00": "the disk is gone"} and row["accepted"] == 2


def broken_down(reply: Message | None) -> Message:
    """What Flower answers for an app that raised an error."""
    assert reply is not None
    failed = Message(reply.content, reply.metadata.dst_node_id, "evaluate")
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "Traceback\nOSError: no memory"), reply_to=failed)


EVALUATIONS: dict[str, tuple[Any, str]] = {
    "no answer": (lambda reply: None, "no reply within 0.3 s"),
    "its app broke down": (broken_down, "its node failed: OSError: no memory"),
    "its own sentence": (lambda reply: pushed_words(reply, '{"error": "the disk is gone"}'), "the disk is gone"),
    "what does not fit": (lambda reply: pushed_words(reply, "{"), "its reply cannot be read: its words are no JSON"),
}


def pushed_words(reply: Message, text: str) -> Message:
    reply.content["accord"]["json"] = text
    return reply


@pytest.mark.parametrize("kind", EVALUATIONS)
@pytest.mark.parametrize("nodes", [1, 3])
def test_an_evaluation_that_fails_at_a_node_is_named(kind: str, nodes: int, caplog: pytest.LogCaptureFixture) -> None:
    fed, (change, said) = blobs(clients=3, unseen=0), EVALUATIONS[kind]
    grid, bad = grid_of(fed, 3), {9000, 8993, 8986} if nodes == 3 else {8993}
    grid.spoil = lambda asked, reply: (
        change(reply) if asked.metadata.message_type == "evaluate" and asked.metadata.dst_node_id in bad else reply
    )
    strategy = strategy_of(fed, accord.fedavg(), 2, None, timeout=0.3)
    if nodes == 3:
        nobody = "none of 3 nodes answered" if kind == "no answer" else "no node could evaluate the model"
        with sentence(*([nobody] if kind == "no answer" else [nobody, said, "(node "])):
            strategy.start(grid)
        return
    last = finished(strategy, grid).rows[-1]
    if kind == "what does not fit":
        assert "evaluation_left_out" not in last and said in last["bad_replies"]["node 8993 (c01), evaluation"]
    else:
        assert last["evaluation_left_out"] == {"node 8993 (c01)": said} and "bad_replies" not in last
    assert any("node 8993 (c01)" in line and said in line for line in caplog.messages)
    assert last["evaluation"]["splits"]["train"]["clients"] == 2


def test_a_node_that_goes_is_left_out_and_one_that_comes_back_takes_part() -> None:
    fed = blobs(clients=3, unseen=0)

    class Flaky(DirectGrid):
        def get_node_ids(self) -> Iterable[int]:
            number = sum(m.metadata.message_type == "train" for m in self.sent)
            gone = 3 <= number < 5  # in the second round
            self.apps = {node: app for node, app in self.all.items() if not (gone and node == 9000)}
            return list(self.apps)

    grid = Flaky(grid_of(fed, 3).apps)
    grid.all = dict(grid.apps)
    run = finished(strategy_of(fed, accord.fedavg(), 3, None), grid)
    assert [row["left_out"] for row in run.rows] == [{}, {"c00": "its node is not connected"}, {}]


# ------------------------------------------------------------------------------------------ a second exchange


def in_the_second(change: Any) -> Any:
    """Tampers with what a node answers when it is asked again."""
    return lambda message: change(message) if message.metadata.message_type == "train.again" else message


def pushed(message: Message, change: Any) -> Message:
    record = message.content.array_records["record"]
    record["push"] = Array(change(record["push"].numpy()))
    return message


SECOND = {
    "NaN": (lambda m: pushed(m, lambda p: p * float("nan")), "NaN or infinity in its sums"),
    "shape": (lambda m: pushed(m, lambda p: p[:-1]), "wrong shape or type of push"),
    "nothing": (lambda m: None, "no reply within"),
    "empty": (emptied, "its reply cannot be read"),
}


@pytest.mark.parametrize("kind", SECOND)
def test_who_is_left_out_of_the_second_exchange_corrects_nothing(kind: str) -> None:
    """Its update counts, and x_i = 0. By hand, from the gradients that clients sent, for those who answered twice:
    x_i = c (m_i / |D_i|^2) / sqrt(sum of (m_j / |D_j|)^2), where D is the sum of all gradients."""
    fed, alpha = blobs(clients=4, unseen=0), 0.3
    grid = grid_of(fed, 4)
    spoil, said = SECOND[kind]
    grid.tamper[9000 - 7] = in_the_second(spoil)
    seen: dict[str, dict[str, torch.Tensor]] = {}
    answer = grid._answer

    def look(message: Message) -> None:
        answer(message)
        sent = grid.replies.get(message.metadata.message_id)
        if sent is not None and message.metadata.message_type == "train":
            reply = inflated(sent, "")
            client = json.loads(str(reply.content["accord"]["json"]))["client"]
            seen[client] = {
                name: torch.from_numpy(a.numpy().copy()).double()
                for name, a in reply.content.array_records["record"].items()
            }

    grid._answer = look  # type: ignore[method-assign]
    run = finished(strategy_of(fed, accord.fedavg(average=accord.corrective(alpha, passes=2)), 1, None), grid)
    assert run.rows[0]["accepted"] == 4 and run.rows[0]["left_out"] == {}
    assert list(run.rows[0]["left_out_again"]) == ["c01"] and said in run.rows[0]["left_out_again"]["c01"]
    gradients = {client: told["average.end_gradient"] for client, told in seen.items()}
    total, bound = (
        sum(gradients.values()),
        min(float(told["average.end_loss"] / told["average.end_gradient"].norm()) for told in seen.values()),
    )
    m = {client: float(d @ total) for client, d in gradients.items() if client != "c01"}
    size = sum((m[client] / gradients[client].norm()) ** 2 for client in m) ** 0.5
    correction = sum(
        alpha * bound * m[client] / gradients[client].norm() ** 2 / size * gradients[client] for client in m
    )
    start = torch.cat([p.detach().reshape(-1) for p in mlp().parameters()]).double()
    mean = torch.stack([told["average.delta"] for told in seen.values()]).mean(0)
    assert float(correction.norm()) > 0.01
    assert torch.allclose(run.last.vector.double(), start + mean - correction, atol=1e-6)


def test_nobody_left_in_the_second_exchange_is_the_plain_mean(state: Path) -> None:
    fed = blobs(clients=3, unseen=0)
    grid = grid_of(fed, 3)
    for node in grid.apps:
        grid.tamper[node] = in_the_second(lambda message: None)
    found = finished(strategy_of(fed, accord.fedavg(average=accord.corrective(0.3, passes=2)), 2, None), grid)
    expected = simulated(fed, accord.fedavg(average=accord.corrective(0.0)), 2, None)
    assert [len(row["left_out_again"]) for row in found.rows] == [3, 3] and torch.equal(
        found.last.vector, expected.last.vector
    )
    assert not list(state.rglob("again-*"))  # a gradient is on disk between two messages, and no longer


def test_a_second_exchange_without_a_first(state: Path) -> None:
    """A client whose disk lost what it kept says so."""
    fed = blobs(clients=3, unseen=0)
    grid = grid_of(fed, 3)

    def lose(message: Message) -> Message:
        for file in state.rglob("again-1.safetensors"):
            if file.parent.name.startswith("c01-"):
                file.unlink()
        return message

    grid.tamper[9000 - 7] = lose
    (row,) = finished(strategy_of(fed, accord.fedavg(average=accord.corrective(0.3, passes=2)), 1, None), grid).rows
    assert "what client c01 kept in round 1 cannot be read" in row["left_out_again"]["c01"]


# -------------------------------------------------------------------------------------- what clients remember


def variates(state: Path, strategy: Strategy) -> dict[str, torch.Tensor]:
    """Every client's control variate, by the version that the server counts."""
    found = {}
    for client in strategy.loop.job.fed.clients:
        version, _ = strategy.loop.store.versions(client)
        files = [file for file in state.rglob(f"{version}.safetensors") if file.parent.name.startswith(f"{client}-")]
        found[client] = load_file(files[0])["c"] if version else torch.zeros(strategy.loop.job.layout.size)
    return found


def test_control_variates_are_pending_until_accepted(state: Path) -> None:
    """A client whose reports are refused moves nowhere: c stays the mean of what the clients remember."""
    fed = blobs(clients=5, unseen=0)
    grid = grid_of(fed, 5)
    refused = iter([False, True, False, True, True, False])
    grid.tamper[9000 - 14] = lambda m: changed(m, lambda d: d * float("nan")) if next(refused) else m
    strategy = strategy_of(fed, accord.scaffold(), 6, None)
    run = finished(strategy, grid)
    assert [len(row["left_out"]) for row in run.rows] == [0, 1, 0, 1, 1, 0]
    c = strategy.loop.progress.memory["local"]["c"]
    assert (
        torch.allclose(c, torch.stack(list(variates(state, strategy).values())).mean(0), atol=1e-6)
        and float(c.norm()) > 0.01
    )


class Killed(Exception):
    """Stands for a kill: nothing after it is written."""


def test_a_killed_server_goes_on_where_its_checkpoint_is(tmp_path: Path, state: Path) -> None:
    """Clients went on for a round that the server forgot; they go back with it. Every round then is the straight
    run's."""
    fed, algorithm = blobs(), accord.scaffold(mask=accord.gma(0.4))
    plan = Plan(rounds=6, sample=5, evaluate_every=2, checkpoint_every=2)

    class Dying(DirectGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            if messages[0].metadata.group_id == "4":
                raise Killed
            return super().push_messages(messages)

    with pytest.raises(Killed):
        strategy_of(fed, algorithm, plan=plan, folder=tmp_path / "runs").start(Dying(grid_of(fed).apps))
    (recorded,) = (tmp_path / "runs").iterdir()
    assert json.loads((recorded / "state.json").read_text())["round"] == 2
    found = finished(strategy_of(fed, algorithm, plan=plan, folder=tmp_path / "runs"), grid_of(fed))
    expected = simulated(fed, algorithm, 6)
    assert torch.equal(found.last.vector, expected.last.vector)
    same_metrics(found, expected)


def test_a_client_that_lost_its_disk_says_so(state: Path) -> None:
    fed = blobs(clients=3, unseen=0)
    grid = grid_of(fed, 3)

    def lose(message: Message) -> Message:
        for file in state.rglob("1.safetensors"):
            if file.parent.name.startswith("c01-"):
                file.unlink()
        return message

    grid.tamper[9000 - 7] = lose
    rows = finished(strategy_of(fed, accord.scaffold(), 2, None), grid).rows
    assert (
        rows[0]["left_out"] == {}
        and "what client c01 remembers of round 1 cannot be read" in rows[1]["left_out"]["c01"]
    )


def test_a_server_cannot_choose_where_a_client_writes(state: Path) -> None:
    fed = blobs(clients=2, unseen=0)
    strategy = strategy_of(fed, accord.scaffold(), 1, None, name="../../../elsewhere")
    finished(strategy, grid_of(fed, 2))
    assert list(state.parent.rglob("*.safetensors")) == list(state.rglob("*.safetensors")) != []


def test_a_message_names_rules_that_are_known_and_never_a_module() -> None:
    assert part_in({"name": "prox", "mu": 0.5}, _known([])) == accord.local.prox(0.5)
    with sentence("the server asks for the rule 'accord.rules.local:prox', which this client does not know"):
        part_in({"name": "accord.rules.local:prox", "mu": 0.5}, _known([]))


# ------------------------------------------------------------------------------------------------------- sums


@pytest.mark.parametrize(
    "name", ["fedavg+gma", "scaffold+gma", "fedprox+magnitude", "corrective", "corrective, asked twice"]
)
def test_sums_lifted_by_clients_are_the_same_sums(name: str) -> None:
    fed, algorithm = blobs(), ALGORITHMS[name]
    grid = grid_of(fed, sums=Sums(), algorithm=algorithm)
    found = finished(strategy_of(fed, algorithm, sums=Sums()), grid)
    assert torch.equal(found.last.vector, simulated(fed, algorithm).last.vector)


@pytest.mark.parametrize(
    ("mask", "votes"), [(accord.gma(0.4), "mask.votes"), (accord.scaled(accord.gma(0.4)), "mask.votes")]
)
def test_a_client_has_one_vote(mask: Mask, votes: str) -> None:
    fed, algorithm = blobs(clients=3, unseen=0), accord.fedavg(mask=mask)
    grid = grid_of(fed, 3, sums=Sums(), algorithm=algorithm)

    def stuff(message: Message) -> Message:
        record = message.content.array_records["record"]
        record[votes] = Array(100 * record[votes].numpy())
        return message

    grid.tamper[9000 - 7] = stuff
    row = finished(strategy_of(fed, algorithm, 1, None, sums=Sums()), grid).rows[0]
    assert row["left_out"] == {"c01": "a vote must be -1, 0 or 1"}


def test_secure_sums_are_right_to_their_step_and_masks_cancel() -> None:
    fed, algorithm = blobs(), accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    secure = SecureSum(clients=5, bound=2.0)
    plain, hidden = Sums(secure), Sums(secure, masked=True)
    once = finished(strategy_of(fed, algorithm, 1, sums=plain), grid_of(fed, sums=plain, algorithm=algorithm))
    again = finished(
        strategy_of(fed, algorithm, 1, sums=hidden), grid_of(fed, sums=hidden, algorithm=algorithm, secret=123)
    )
    expected = simulated(fed, algorithm, 1)
    assert torch.equal(once.last.vector, again.last.vector)
    assert torch.allclose(once.last.vector, expected.last.vector, atol=5 * secure.form("delta").step)
    assert once.rows[0]["agreement"] == expected.rows[0]["agreement"]  # votes are whole, and so exact


def test_a_masked_share_looks_random_and_a_missing_one_spoils_the_round() -> None:
    fed, algorithm = blobs(clients=4, unseen=0), accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    sums = Sums(SecureSum(clients=4, bound=2.0), masked=True)
    grid = grid_of(fed, 4, sums=sums, algorithm=algorithm, secret=7)
    seen: dict[str, torch.Tensor] = {}

    def look(message: Message) -> Message:
        for name, array in message.content.array_records["record"].items():
            seen[name] = torch.from_numpy(array.numpy())
        return message

    grid.tamper[9000 - 7] = look
    strategy = strategy_of(fed, algorithm, 1, None, sums=sums)
    finished(strategy, grid)
    votes = unpacked(seen["record.mask.votes"], votes_bits(4), strategy.loop.job.layout.size)
    assert len(votes.unique()) == 2 ** votes_bits(4)  # one client has three different signs
    grid.tamper[9000 - 14] = lambda message: None
    with pytest.warns(UserWarning, match="round 1 was skipped"):
        run = finished(strategy_of(fed, algorithm, 1, None, sums=sums), grid)
    assert run.rows[0]["accepted"] == 0 and "masked cohort" in run.rows[0]["left_out"]["c00"]


def test_a_client_checks_what_it_sends_as_a_sum() -> None:
    fed, algorithm = blobs(clients=3, unseen=0), accord.fedavg()
    sums = Sums(SecureSum(clients=3, bound=1e-4))
    grid = grid_of(fed, 3, sums=sums, algorithm=algorithm)
    with pytest.warns(UserWarning, match="skipped"):
        run = finished(strategy_of(fed, algorithm, 1, None, sums=sums), grid)
    assert all("a value to be summed must lie between" in why for why in run.rows[0]["left_out"].values())


@pytest.mark.parametrize(("bits", "clients"), [(2, 1), (3, 2), (5, 10), (8, 100), (9, 200), (32, 10), (53, 10)])
def test_packing_takes_as_many_bits_as_there_are(bits: int, clients: int) -> None:
    values = torch.randint(0, 2**bits, (1001,), generator=torch.Generator().manual_seed(bits))
    assert len(packed(values, bits)) == -(-1001 * bits // 8)
    assert torch.equal(unpacked(packed(values, bits), bits, 1001), values)
    with sentence("wrong length of packed numbers"):
        unpacked(packed(values, bits)[:-1], bits, 1001)


def test_votes_travel_in_few_bits() -> None:
    """A masked mean of ten clients: the update in 32 bits, the votes in five."""
    fed, algorithm = blobs(clients=10, unseen=0), accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    sums = Sums(SecureSum(clients=10, bound=2.0))
    grid = grid_of(fed, 10, sums=sums, algorithm=algorithm)
    finished(strategy_of(fed, algorithm, 1, None, sums=sums), grid)
    sizes: dict[str, int] = {}
    grid.tamper[9000] = lambda m: (
        sizes.update({n: len(a.numpy()) for n, a in m.content.array_records["record"].items()}) or m
    )
    strategy = strategy_of(fed, algorithm, 1, None, sums=sums)
    finished(strategy, grid)
    size = strategy.loop.job.layout.size
    assert sizes["record.average.delta"] == 4 * size and sizes["record.mask.votes"] == -(-5 * size // 8)


# ------------------------------------------------------------------------------------------------- on the way


def test_bytes_of_a_round() -> None:
    """One model down and one up for every client, and some words; SCAFFOLD doubles it."""
    fed = blobs()
    plain, twice = (finished(strategy_of(fed, a), grid_of(fed)).rows[-1] for a in (accord.fedavg(), accord.scaffold()))
    model = 4 * sum(p.numel() for p in mlp().parameters())
    for way in ("bytes_down", "bytes_up"):
        assert 5 * model < plain[way] < 5 * (model + 1100)
        assert 5 * model < twice[way] - plain[way] < 5 * (model + 400)


def test_replies_are_added_in_order_and_few_are_in_memory() -> None:
    """A hundred answers that come in the worst order: last first."""
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def arriving() -> Iterator[tuple[int, Any]]:
        nonlocal most
        for number in reversed(range(100)):
            tensor = torch.full((1000,), float(number))
            alive.append(weakref.ref(tensor))
            yield number, (ClientRow(str(number), 1, 1, 0.0, 0.0), {"delta": tensor})
            del tensor
            most = max(most, sum(ref() is not None for ref in alive))

    order = []
    for row, tensors in in_turn(100, arriving()):
        assert float(tensors["delta"][0]) == float(row.client)
        order.append(int(row.client))
    assert order == list(range(100)) and most <= 3


def test_a_cohort_s_messages_share_one_model() -> None:
    """What is sent is in memory once, not once for every client."""
    fed = blobs(clients=6, unseen=0)
    grid = grid_of(fed, 6)
    finished(strategy_of(fed, accord.scaffold(), 1, None), grid)
    sent = [message.content for message in grid.sent if message.metadata.message_type == "train"]
    assert len(sent) == 6
    for group, name in (("model", "vector"), ("sent", "c")):
        assert len({id(content.array_records[group][name].data) for content in sent}) == 1


def test_a_reply_is_there_soon_after_it_came() -> None:
    """Flower's own loop would look again after three seconds."""
    fed = blobs(clients=2, unseen=0)

    class Slow(DirectGrid):
        ready = 0.0

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return super().pull_messages(message_ids) if time.monotonic() > self.ready else []

    grid = Slow(grid_of(fed, 2).apps)
    asked = strategy_of(fed, accord.fedavg(), 1, None)
    finished(asked, grid)
    message, *_ = [m for m in grid.sent if m.metadata.message_type == "train"]
    grid.ready = time.monotonic() + 0.5
    started = time.monotonic()
    assert [number for number, reply in exchange(grid, {0: message}, 10.0) if reply] == [0]
    assert 0.4 < time.monotonic() - started < 1.5


def test_a_reply_that_is_announced_and_never_sent_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower waits for its bytes for two hours."""
    monkeypatch.setattr("accord.deploy.flower.exchange.MOMENT", 0.1)
    fed, over = blobs(clients=3, unseen=0), threading.Event()

    class Announced(DirectGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            wanted = list(message_ids)
            culprits = [m for m in self.sent if (m.metadata.message_type, m.metadata.dst_node_id) == ("train", 9000)]
            if {m.metadata.message_id for m in culprits} & set(wanted):
                over.wait(60.0)
            return super().pull_messages(wanted)

    strategy = strategy_of(fed, accord.fedavg(), 2, None)
    try:
        rows = finished(strategy, Announced(grid_of(fed, 3).apps)).rows
    finally:
        over.set()
    assert [row["left_out"] for row in rows] == [{"c00": "no reply within 1 s"}] * 2
    others = replace(fed, train={client: own for client, own in fed.train.items() if client != "c00"})
    assert torch.equal(strategy.run.last.vector, simulated(others, accord.fedavg(), 2, None).last.vector)


# -------------------------------------------------------------------------------------------------- sentences


def test_who_does_not_show_up() -> None:
    fed = blobs(clients=3, unseen=0)
    with sentence("client c99 did not show up within 0.2 s; there were: c00, c01, c02"):
        Strategy(accord.fedavg(), mlp(), clients=[*fed.clients, "c99"], wait=0.2, timeout=0.2).start(grid_of(fed, 3))
    with sentence("2 of 5 clients did not show up"):
        Strategy(accord.fedavg(), mlp(), clients=5, wait=0.2, timeout=0.2).start(grid_of(fed, 3))


def test_nodes_that_do_not_fit() -> None:
    fed = blobs(clients=2, unseen=0)
    with sentence("did not show up", "it has another model than the server"):
        Strategy(accord.fedavg(), mlp(classes=7), clients=2, wait=0.2).start(grid_of(fed, 2))
    with sentence("did not show up", "it sends reports, and the server takes sums"):
        Strategy(accord.fedavg(), mlp(), clients=2, wait=0.2, sums=Sums()).start(grid_of(fed, 2))
    twins = DirectGrid({1: (client_app(mlp(), fed), {}), 2: (client_app(mlp(), fed), {})})
    strategy = Strategy(accord.fedavg(), mlp(), clients=2, wait=1.0, plan=Plan(rounds=1))
    # the one with the lower number; the other is rejected
    assert finished(strategy, twins).rows[0]["accepted"] == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Strategy(accord.pooled(), mlp(), clients=2), "pooled is no federation of updates"),
        (lambda: Strategy(accord.local_only(), mlp(), clients=2), "local_only is no federation of updates"),
        (lambda: Strategy(accord.causalfed(), mlp(), clients=2), "causalfed is no federation of updates"),
        (
            lambda: Strategy(accord.fedavg(weighting="uniform").with_privacy(1.0, 1.0), mlp(), clients=2),
            "privacy needs noise",
        ),
        (lambda: Strategy(accord.fedavg(), mlp, clients=2), "model must be a torch module, or Shaped(...)"),
        (lambda: Strategy(accord.fedavg(), mlp(), clients=0), "clients must be the clients' names"),
        (lambda: Strategy(accord.fedavg(), mlp(), clients="abc"), "clients must be the clients' names"),
        (lambda: Strategy(accord.fedavg(), mlp(), clients=["a", "a"]), "clients must differ"),
        (
            lambda: Strategy(accord.fedavg(), mlp(), clients=2, timeout=0),
            "timeout must be a number of seconds above 0, got 0",
        ),
        (
            lambda: Strategy(accord.fedavg(), mlp(), clients=2, wait=True),
            "wait must be a number of seconds above 0, got True",
        ),
        (lambda: client_app(mlp(), blobs(), sums=Sums()), "give client_app the algorithm too"),
        (lambda: Sums(masked=True), "masked needs secure"),
        (lambda: owned(blobs(), 3, 3), "a node's number must be at least 0 and below 3, got 3"),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with sentence(said):
        make()


def test_what_is_refused_at_the_start() -> None:
    fed = blobs(clients=3, unseen=0)
    with sentence("train_config and evaluate_config have no meaning"):
        strategy_of(fed, accord.fedavg()).start(grid_of(fed, 3), train_config=ConfigRecord({"lr": 0.1}))
    with sentence("sample must be at most the 3 participating clients, got 5"):
        strategy_of(fed, accord.fedavg()).start(grid_of(fed, 3))
    sums = Sums(SecureSum(clients=2, bound=1.0))
    with sentence("a secure sum of 2 clients was declared, and a round has 3"):
        strategy_of(fed, accord.fedavg(), 1, None, sums=sums).start(
            grid_of(fed, 3, sums=sums, algorithm=accord.fedavg())
        )
    with sentence("none of 3 nodes answered an evaluation within 0.2 s: the run can be resumed"):

        class Mute(DirectGrid):
            def _answer(self, message: Message) -> None:
                if message.metadata.message_type != "evaluate":
                    super()._answer(message)

        strategy_of(fed, accord.fedavg(), 2, None, timeout=0.2).start(Mute(grid_of(fed, 3).apps))


def test_masked_sums_need_a_secret() -> None:
    fed, algorithm = blobs(clients=2, unseen=0), accord.fedavg(weighting="uniform")
    sums = Sums(SecureSum(clients=2, bound=2.0), masked=True)
    with pytest.warns(UserWarning, match="skipped"):
        run = finished(strategy_of(fed, algorithm, 1, None, sums=sums), grid_of(fed, 2, sums=sums, algorithm=algorithm))
    assert "masked sums need a secret" in run.rows[0]["left_out"]["c00"]
