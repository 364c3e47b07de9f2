"""One registered node that sends what no honest client would, in each of the four exchanges: the server goes on, the
node is named, and what the others learn and measure is bit for bit that of a run in which it said nothing."""

import json
import tracemalloc
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

import tampered
from direct_grid import DirectGrid
from flwr.app import Array, ArrayRecord, Error, Message
from tampered import arrays, named, no_counts, raw, values, within, without, words

import accord
from accord.core.errors import AccordError
from accord.deploy.flower import Strategy, Sums, client_app, owned
from accord.deploy.flower.npy import array_in
from accord.deploy.flower.turns import too_long
from accord.rules.local import Training
from accord.runs.run import Run
from accord.training.plan import Plan
from conftest import blobs, mlp, sentence

NODES, CULPRIT, CLIENT = 5, 8993, "c01"
METRICS = ["accuracy", "auc", "f1", "calibration_error"]


@pytest.fixture(autouse=True, scope="module")
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCORD_STATE", str(tmp_path_factory.mktemp("state")))
        yield


def grid_of(fed: accord.data.Federation, **options: Any) -> DirectGrid:
    """A client a node; the third node is the culprit's."""
    apps = {number: client_app(mlp(), owned(fed, number, NODES), **options) for number in range(NODES)}
    return DirectGrid({9000 - 7 * number: (app, {}) for number, app in apps.items()})


KINDS = {"hello": "query", "training": "train", "second exchange": "train.again", "evaluation": "evaluate"}
TWICE = accord.fedavg(average=accord.corrective(0.2, passes=2), mask=accord.gma(0.4))


def run_with(exchange: str, tamper: Any, rounds: int = 1, algorithm: Any = None, largest: float | None = 1000.0) -> Run:
    """A run in which the culprit's replies of one exchange are tampered with."""
    fed = blobs(clients=4, unseen=1)
    grid = grid_of(fed, metrics=METRICS if exchange == "evaluation" else None)

    def spoil(asked: Message, reply: Message | None) -> Any:
        mine = asked.metadata.dst_node_id == CULPRIT and asked.metadata.message_type == KINDS[exchange]
        return tamper(reply) if mine else reply

    grid.spoil = spoil
    known = [client for client in fed.clients if exchange != "hello" or client != CLIENT]
    plan = Plan(rounds=rounds, evaluate_every=1)
    chosen = algorithm or (TWICE if exchange == "second exchange" else accord.fedavg(mask=accord.gma(0.4)))
    options = {"training": Training(lr=0.05), "plan": plan, "timeout": 0.5, "wait": 5.0, "largest": largest}
    strategy = Strategy(chosen, mlp(), clients=known, **options)
    strategy.start(grid)
    assert strategy.run is not None
    return strategy.run


@cache
def silent(exchange: str) -> Run:
    """The run in which the culprit does not answer there."""
    return run_with(exchange, lambda reply: None)


CONDUCT = {"bytes_down", "bytes_up", "left_out", "left_out_again", "bad_replies", "excluded"}


def same_for_the_others(found: Run, expected: Run) -> None:
    """The model and all figures, to the last bit."""
    assert torch.equal(found.last.vector, expected.last.vector)
    for mine, theirs in zip(found.rows, expected.rows, strict=True):
        assert {k: v for k, v in mine.items() if k not in CONDUCT} == {
            k: v for k, v in theirs.items() if k not in CONDUCT
        }
    assert found.clients == expected.clients


# -------------------------------------------------------------------------------------------------- the table

OF_A_ROW = {
    **tampered.WORDS,
    **no_counts("samples"),
    **no_counts("steps"),
    **no_counts("round"),
    **{f"loss: {name}": raw("loss", value) for name, value in {"inf": "1e999", "text": '"a"', "list": "[1]"}.items()},
    **{f"norm: {name}": raw("norm", value) for name, value in {"inf": "1e999", "minus": "-1", "flag": "true"}.items()},
    **{f"missing: {key}": without(key) for key in ("client", "round", "samples", "steps", "loss", "left_out_because")},
    "samples: 10^12": words(samples=10**12),
    "steps: 10^12": words(steps=10**12),
    "round: another": words(round=7),
    "client: another": words(client="c02"),
    "client: unknown": words(client="c99"),
    "client: none": words(client=""),
    "client: 300 letters": words(client="c" * 300),
    "client: a number": words(client=1),
    "client: for a terminal": words(client="c01\x1b[2J"),
    "left out: a number": words(left_out_because=5),
    "left out: a list": words(left_out_because=["no"]),
    "left out: a megabyte": words(left_out_because="x" * 2**20),
}
TRAINING = {
    **OF_A_ROW,
    **arrays("record", "average.delta"),
    "samples: not those registered": words(samples=29),
    "samples: none": words(samples=0),
}
SECOND = {**OF_A_ROW, **arrays("record", "push")}

SPLITS = ("train", "heldout", "unseen")
OF_SIZES = {f"samples: {name}": value for name, value in tampered.NO_COUNTS.items()} | {"samples: 10^12": "1e12"}
HELLO = {
    **tampered.WORDS,
    **{name: raw("train", f'{{"c01": {value}}}') for name, value in OF_SIZES.items()},
    "samples: 10^12, whole": words(train={"c01": 10**12}),
    "samples: 10^9 and one": words(heldout={"c01": 10**9 + 1}),
    **{f"{split}: missing": without(split) for split in SPLITS},
    **{f"{split}: a list": words(**{split: ["c01"]}) for split in SPLITS},
    **{f"{split}: text": words(**{split: "c01"}) for split in SPLITS},
    "name: empty": words(unseen={"": 3}),
    "name: 300 letters": words(unseen={"c" * 300: 3}),
    "name: of two lines": words(unseen={"c01\nexcluded: c00": 3}),
    "name: for a terminal": words(unseen={"\x1b[2J": 3}),
    "form: missing": without("form"),
    "form: a number": words(form=1),
    "form: a megabyte": words(form="x" * 2**20),
    "layout: missing": without("layout"),
    "layout: text": words(layout="0.weight"),
    "layout: numbers": words(layout=[1, 2, 3]),
}


def entry(key: str, value: Any, of: str = "") -> Any:
    """Another first entry of a list of an evaluation."""
    return within(lambda told: (told[key][of] if of else told[key]).__setitem__(0, value))


def more(key: str, **changes: Any) -> Any:
    return within(lambda told: told[key].update(changes))


def figure(name: str, value: Any) -> Any:
    return within(lambda told: told["of_group"][name]["figures"].__setitem__(0, value))


EVALUATION = {
    **tampered.WORDS,
    **arrays("released", "auc"),
    **{f"samples: {name}": within(lambda told, v=value: told.update(samples=[json.loads(v)] * 2)) for name, value in {
        key: value for key, value in tampered.NO_COUNTS.items() if "infin" not in key
    }.items()},
    **{f"missing: {key}": without(key) for key in ("groups", "samples", "sums", "smaller", "nan", "order", "of_group")},
    **{f"{key}: text": words(**{key: "c01"}) for key in ("groups", "samples", "sums", "smaller", "nan", "order")},
    "client: another's": entry("groups", ["train", "c02"]),
    "client: another's besides": within(
        lambda told: [values.append(values[0]) for values in (told["samples"], told["nan"], *told["sums"].values())]
        and [of["figures"].append(None) for of in told["of_group"].values()]
        and told["groups"].append(["train", "c00"])
    ),
    "client: twice": entry("groups", ["heldout", "c01"]),
    "client: not all": entry("groups", ["train", "nobody"]),
    "client: three words": entry("groups", ["train", "c01", "c02"]),
    "client: a number": entry("groups", ["train", 1]),
    "samples: more": entry("samples", 29),
    "samples: fewer": entry("samples", 1),
    "samples: 10^12": entry("samples", 10**12),
    "samples: too many entries": within(lambda told: told["samples"].append(1)),
    "accuracy: more than samples": entry("sums", 10**6, "accuracy"),
    "accuracy: below 0": entry("sums", -1.0, "accuracy"),
    "accuracy: none": entry("sums", None, "accuracy"),
    "accuracy: text": entry("sums", "1", "accuracy"),
    "loss: a list": entry("sums", [1.0], "loss"),
    "loss: too few entries": within(lambda told: told["sums"]["loss"].pop()),
    "loss: not measured": within(lambda told: told["sums"].pop("loss")),
    "loss: infinite": within(lambda told: told["sums"].update(loss=[float("inf")] * 2)),
    "nan: more than samples": entry("nan", 10**6),
    "nan: below 0": entry("nan", -1.0),
    "nan: an entry too few": within(lambda told: told["nan"].pop()),
    "metrics: one more": within(lambda told: (told["sums"].update(mine=[0.0, 0.0]), told["order"].append("mine"))),
    "metrics: one more, unordered": more("sums", mine=[0.0, 0.0]),
    "metrics: turned around": words(smaller=["accuracy", "loss"]),
    "metrics: turned around, unknown": words(smaller=["loss", "mine"]),
    "metrics: in another order": within(lambda told: told["order"].reverse()),
    "metrics: 200": within(lambda told: told["sums"].update({f"m{n}": [0.0, 0.0] for n in range(200)})),
    "auc: of another kind": within(lambda told: told["of_group"]["auc"].update(kind="f1")),
    "auc: of no kind": within(lambda told: told["of_group"]["auc"].update(kind=None)),
    "auc: of an unknown kind": within(lambda told: told["of_group"]["auc"].update(kind="os.system")),
    "auc: of samples": within(lambda told: told["of_group"]["auc"].update(kind="accuracy")),
    "auc: above 1": figure("auc", 1.5),
    "auc: below 0": figure("auc", -0.5),
    "auc: text": figure("auc", "best"),
    "auc: too few": within(lambda told: told["of_group"]["auc"]["figures"].pop()),
    "auc: an entry more": within(lambda told: told["of_group"]["auc"].update(more=1)),
    "calibration: below 0": figure("calibration_error", -0.1),
    "f1: 10^300": figure("f1", 1e300),
    **{
        f"histogram: {name}": tampered.array("released", "auc", values(change))
        for name, change in {
            "NaN": lambda old: old * np.nan,
            "infinite": lambda old: old + np.inf,
            "of others' samples too": lambda old: old * 1000,
            "below 0": lambda old: old - 1,
            "of another shape": lambda old: old[:, :, :1],
            "10^300": lambda old: old + 1e300,
        }.items()
    },
    "counts: more right than there": tampered.array("released", "f1", values(lambda old: old[:, :, [2, 1, 0]] + [9, 0, 0])),
    "confidences: above 1": tampered.array("released", "calibration_error", values(lambda old: old * [1, 50, 1])),
    "released: one more": named("released", lambda held: held.update(mine=held["auc"])),
}  # fmt: skip

TABLE = [
    (exchange, name)
    for exchange, of in {
        "hello": HELLO,
        "training": TRAINING,
        "second exchange": SECOND,
        "evaluation": EVALUATION,
    }.items()
    for name in of
]
TAMPERINGS = {"hello": HELLO, "training": TRAINING, "second exchange": SECOND, "evaluation": EVALUATION}


def test_the_table_is_long() -> None:
    assert len(TABLE) >= 121 and min(map(len, TAMPERINGS.values())) >= 50


@pytest.mark.parametrize(("exchange", "name"), TABLE)
def test_a_tampered_reply_harms_its_sender_only(exchange: str, name: str) -> None:
    found = run_with(exchange, TAMPERINGS[exchange][name])
    (row,) = found.rows
    said = {
        "training": lambda: row["left_out"],
        "second exchange": lambda: row["left_out_again"],
        "hello": lambda: row["bad_replies"],
        "evaluation": lambda: row["bad_replies"],
    }[exchange]()
    ((who, why),) = said.items()
    named = {"hello": f"node {CULPRIT}, hello", "evaluation": f"node {CULPRIT} ({CLIENT}), evaluation"}
    assert who == named.get(exchange, CLIENT)
    assert why.startswith("its reply cannot be read: ") and why.isprintable() and len(why) < 400
    same_for_the_others(found, silent(exchange))
