"""A mask on Flower's own strategies, with plain Flower clients that know nothing of accord: for every strategy, several
rounds."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

import tampered
from direct_grid import DirectGrid, through_bytes
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy
from torch import nn

import accord
from accord.deploy.flower import GMA, Masked
from accord.rules.masks import Mask
from conftest import sentence

NODES, ROUNDS = 7, 3
Weights = dict[str, np.ndarray]
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: flower.FedAvg(),
    "FedAvgM": lambda: flower.FedAvgM(server_learning_rate=0.7, server_momentum=0.8),
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "FedAdam": lambda: flower.FedAdam(eta=0.05, tau=1e-3),
    "FedYogi": lambda: flower.FedYogi(eta=0.05, tau=1e-3),
    "FedAdagrad": lambda: flower.FedAdagrad(eta=0.05, tau=1e-3),
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.1),
    "FedMedian": lambda: flower.FedMedian(),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(beta=0.2),
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=3),
    "Bulyan": lambda: flower.Bulyan(num_malicious_nodes=1),
}


def module(buffers: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=buffers), nn.ReLU(), nn.Linear(5, 3))


def has_buffers(name: str) -> bool:
    return name != "QFedAvg"  # which cannot average whole numbers, such as BatchNorm's counter


def rounds_for(name: str) -> int:
    return 2 if name in ("Bulyan", "QFedAvg") else ROUNDS  # a round of these takes a second


def plain_client(number: int, buffers: bool) -> ClientApp:
    """A client as Flower's tutorials write them: load the state, train, send the state back."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = module(buffers)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        generator = torch.Generator().manual_seed(number)
        x, y = (
            torch.randn(20 + number, 4, generator=generator),
            torch.randint(0, 3, (20 + number,), generator=generator),
        )
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(x), y)
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                parameter.data -= 0.1 * gradient
        metrics = MetricRecord({"num-examples": 20 + number, "train_loss": loss.item()})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": 20 + number, "loss": 1.0})}), reply_to=message
        )

    return app


def grid(buffers: bool = True) -> DirectGrid:
    return DirectGrid({50 + number: (plain_client(number, buffers), {}) for number in range(NODES)})


def rounds_of(strategy: Strategy, name: str = "", over: DirectGrid | None = None) -> Weights:
    random.seed(0)  # Flower draws its nodes from here, and adds in the order drawn
    buffers = has_buffers(name)
    result = strategy.start(
        over or grid(buffers), ArrayRecord(module(buffers).state_dict()), num_rounds=rounds_for(name)
    )
    return {name: array.numpy() for name, array in result.arrays.items()}


class Watch(Masked):
    """Keeps, for every round, what was sent, what clients replied, and what came of it."""

    def __init__(self, inner: Strategy, mask: Mask) -> None:
        super().__init__(inner, mask)
        self.seen: list[tuple[Weights, list[Weights], Weights]] = []
        self.samples: list[list[int]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        weights = [{k: a.numpy() for k, a in reply.content.array_records["arrays"].items()} for reply in replies]
        self.samples.append([reply.content["metrics"]["num-examples"] for reply in replies])
        sent = dict(self._sent)
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.seen.append((sent, weights, {name: array.numpy() for name, array in arrays.items()}))
        return arrays, metrics


def net_votes(sent: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    return np.abs(np.sum([np.sign(w - sent) for w in weights], axis=0))


def test_every_strategy_of_flowers_is_tried_or_refused() -> None:
    """A strategy that Flower adds one day shows up here."""
    refused = {name for name in flower.__all__ if name.startswith(("DifferentialPrivacy", "FedXgb"))}
    assert set(flower.__all__) - {"Strategy", "Result"} - refused == set(STRATEGIES)
    for name in refused:
        with sentence(f"{name} "):
            GMA(object.__new__(getattr(flower, name)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_a_threshold_nothing_changes(name: str) -> None:
    """tau = 0 lets every coordinate pass whole, so that every round is the bare strategy's, to the last bit."""
    bare, masked = rounds_of(STRATEGIES[name](), name), rounds_of(GMA(STRATEGIES[name](), tau=0.0), name)
    for key, value in bare.items():
        assert np.array_equal(value, masked[key]), key


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_round_is_the_masked_step_of_the_strategy(name: str) -> None:
    """The mask by hand: where at least 3 of 7 net votes agree, a coordinate is the strategy's; elsewhere it goes a
    share of the way.

    The strategy's own way is that of a twin without a mask which is sent the same weights and gets the same replies.
    """
    watch, twin = Watch(STRATEGIES[name](), accord.gma(0.4)), STRATEGIES[name]()
    over, replayed = grid(has_buffers(name)), list[Weights]()
    kept = watch.aggregate_train

    def both(server_round: int, replies: Any) -> Any:
        replies = list(replies)
        sent = ArrayRecord({key: Array(value) for key, value in watch._sent.items()})
        random.seed(server_round)
        if isinstance(getattr(twin, "current_arrays", None), ArrayRecord):
            twin.current_arrays = sent.copy()  # type: ignore[attr-defined]
        list(twin.configure_train(server_round, sent, ConfigRecord(), over))
        copies = [through_bytes(reply) for reply in replies]
        arrays, _ = twin.aggregate_train(server_round, copies)
        replayed.append({key: array.numpy() for key, array in arrays.items()})
        return kept(server_round, replies)

    watch.aggregate_train = both  # type: ignore[method-assign]
    rounds_of(watch, name, over)
    assert len(watch.seen) == rounds_for(name)
    held_back = 0
    for (sent, weights, came), free in zip(watch.seen, replayed, strict=True):
        for key, old in sent.items():
            if key.startswith("1.running") or key.endswith("tracked"):  # buffers are never masked
                assert np.array_equal(came[key], free[key]), key
                continue
            votes = net_votes(old, [w[key] for w in weights])
            share = np.where(votes >= 3, 1.0, votes / NODES)
            held_back += int((share < 1).sum())
            assert np.allclose(came[key], old + share * (free[key] - old), atol=1e-6), key
    assert held_back > 20


def test_momentum_runs_on_the_masked_weights() -> None:
    """FedAvgM keeps its own copy of the weights. By hand, from the replies alone: v = beta v + (old - mean), new = old
    - lr mask v."""
    watch = Watch(flower.FedAvgM(server_learning_rate=0.7, server_momentum=0.8), accord.gma(0.4))
    rounds_of(watch)
    velocity: Any = 0.0
    key = "0.weight"
    for (sent, weights, came), counts in zip(watch.seen, watch.samples, strict=True):
        samples = np.array(counts, dtype=np.float64)
        mean = np.sum([n * w[key] for n, w in zip(samples, weights, strict=True)], axis=0) / samples.sum()
        velocity = 0.8 * velocity + (sent[key] - mean)
        votes = net_votes(sent[key], [w[key] for w in weights])
        expected = sent[key] - 0.7 * np.where(votes >= 3, 1.0, votes / NODES) * velocity
        assert np.allclose(came[key], expected, atol=1e-5)


@pytest.mark.parametrize(
    "mask", [accord.and_mask(0.4), accord.magnitude(0.4), accord.gma(0.4, memory=0.5), accord.gma(0.4, scope="layer")]
)
def test_other_masks(mask: Mask) -> None:
    free, held = rounds_of(flower.FedAvg()), rounds_of(Masked(flower.FedAvg(), mask))
    assert any(not np.array_equal(free[key], held[key]) for key in free) and all(
        np.isfinite(value).all() for value in held.values()
    )


@pytest.mark.parametrize("kind", ["NaN", "shape", "nothing"])
def test_bad_replies_are_left_out(kind: str) -> None:
    over = grid()

    def spoil(message: Message) -> Message | None:
        if kind == "nothing":
            return None
        state = message.content["arrays"].to_torch_state_dict()
        state["0.weight"] = state["0.weight"][:2] if kind == "shape" else state["0.weight"] * float("nan")
        message.content["arrays"] = ArrayRecord(state)
        return message

    over.tamper[53] = spoil
    strategy = GMA(flower.FedAdam(eta=0.05), tau=0.4)
    found = rounds_of(strategy, over=over)
    assert all(np.isfinite(value).all() for value in found.values())
    assert strategy.left_out == (0 if kind == "nothing" else ROUNDS)


def weighing(value: Any) -> Any:
    def change(message: Message) -> Message:
        message.content["metrics"]["num-examples"] = value
        return message

    return change


def renamed(message: Message, record: str) -> Message:
    message.content["another"] = message.content.pop(record)
    return message


# types of numbers are the client's own choice here, and Flower itself unpacks what it fetches
FINE = ("half precision", "whole numbers", "flags")
HOSTILE = {
    **{kind: of for kind, of in tampered.arrays("arrays", "0.weight").items() if not kind.endswith(FINE)},
    "weight: 10^12": weighing(10**12),
    "weight: infinite": weighing(float("inf")),
    "weight: NaN": weighing(float("nan")),
    "weight: below 0": weighing(-5),
    "weight: a list": weighing([5, 5]),
    "metrics: one more": lambda m: m.content["metrics"].update(more=1.0) or m,
    "metrics: none": tampered.beside("metrics", None),
    "metrics: two records": tampered.beside("more", MetricRecord({"num-examples": 3})),
    "arrays: two records": tampered.beside("more", ArrayRecord({"x": Array(np.zeros(3))})),
    "weight: none": weighing(0),
    "metrics: NaN": lambda m: m.content["metrics"].update(train_loss=float("nan")) or m,
    "metrics: infinite": lambda m: m.content["metrics"].update(train_loss=float("inf")) or m,
    "metrics: a list": lambda m: m.content["metrics"].update(train_loss=[0.1, 0.2]) or m,
    "metrics: of another name": lambda m: renamed(m, "metrics"),
    "arrays: of another name": lambda m: renamed(m, "arrays"),
    "words besides": tampered.beside("more", ConfigRecord({"x": 1})),
    "a buffer 10^6 times as far": tampered.array(
        "arrays", "1.running_mean", tampered.values(lambda old: old * np.float32(1e6))
    ),
    "10^6 times as far": tampered.array("arrays", "0.weight", tampered.values(lambda old: old * np.float32(1e6))),
}


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if not kind.startswith("envelope")])
def test_a_tampered_reply_harms_its_sender_only(kind: str) -> None:
    """The strategy within sees the others' replies, and no other."""

    def rounds(tamper: Any) -> tuple[Weights, int]:
        over = grid()
        over.tamper[53] = tamper
        strategy = GMA(flower.FedAvg(), tau=0.4)
        return rounds_of(strategy, over=over), strategy.left_out

    (found, left_out), (expected, _) = rounds(HOSTILE[kind]), rounds(lambda message: None)
    assert left_out == ROUNDS and all(np.array_equal(found[name], expected[name]) for name in expected)


EVALUATED = {
    "NaN": lambda m: m.content["metrics"].update(loss=float("nan")) or m,
    "a list": lambda m: m.content["metrics"].update(loss=[1.0, 2.0]) or m,
    "one more": lambda m: m.content["metrics"].update(more=1.0) or m,
    "10^12 samples": weighing(10**12),
    "no samples": weighing(0),
    "of another name": lambda m: renamed(m, "metrics"),
}


@pytest.mark.parametrize("kind", EVALUATED)
def test_a_tampered_evaluation_harms_its_sender_only(kind: str) -> None:
    def evaluated(tamper: Any) -> tuple[Any, int]:
        over = grid()
        over.spoil = lambda asked, reply: (
            tamper(reply) if asked.metadata.message_type == "evaluate" and asked.metadata.dst_node_id == 53 else reply
        )
        random.seed(0)
        strategy = GMA(flower.FedAvg(), tau=0.4)
        result = strategy.start(over, ArrayRecord(module().state_dict()), num_rounds=1)
        return dict(result.evaluate_metrics_clientapp[1]), strategy.left_out

    assert evaluated(EVALUATED[kind]) == (evaluated(lambda reply: None)[0], 1)


def test_the_bound_of_gma_can_be_chosen() -> None:
    far = tampered.array("arrays", "0.weight", tampered.values(lambda old: old * np.float32(1e6)))
    for max_norm_ratio, left_out in ((None, 0), (1e9, 0), (1000.0, 1)):
        over = grid()
        over.tamper[53] = far
        strategy = GMA(flower.FedAvg(), max_norm_ratio=max_norm_ratio)
        strategy.start(over, ArrayRecord(module().state_dict()), num_rounds=1)
        assert strategy.left_out == left_out
    with sentence("max_norm_ratio must be a number above 1, or None for no bound, got 0.5"):
        GMA(flower.FedAvg(), max_norm_ratio=0.5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GMA(flower.FedAvg(), tau=1.4), "tau must be between 0 and 1, got 1.4"),
        (lambda: GMA(accord.fedavg()), "inner must be a Flower strategy, such as FedAvg()"),  # type: ignore[arg-type]
        (lambda: Masked(flower.FedAvg(), 0.4), "mask must be a mask such as accord.gma(0.4), got 0.4"),
        (lambda: GMA(flower.FedXgbBagging()), "FedXgbBagging exchanges trees"),
        (
            lambda: GMA(flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(), 1.0, 1.0, 5)),
            "DifferentialPrivacyServerSideFixedClipping would not cover the votes",
        ),
        (lambda: GMA(flower.FedAvg()).aggregate_train(1, []), "aggregate_train was called before configure_train"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], said: str) -> None:
    with sentence(said):
        make()


def test_flowers_tau_stays_flowers() -> None:
    strategy = GMA(flower.FedAdam(tau=1e-3), tau=0.6)
    assert strategy.inner.tau == 1e-3 and strategy.mask == accord.gma(0.6)  # type: ignore[attr-defined]
