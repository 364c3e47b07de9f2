"""One registered node that sends what no honest client would, in each of the four exchanges: the server goes on, the
node is named, and what the others learn and measure is bit for bit that of a run in which it said nothing."""

import json
import tracemalloc
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

import tampered
from direct_grid import DirectGrid, deflated
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from pydantic import ValidationError
from tampered import arrays, named, no_counts, raw, values, within, without, words

import accord
from accord.core.errors import AccordError
from accord.deploy.flower import Strategy, Sums, client_app, owned
from accord.deploy.flower.claims import public_keys
from accord.deploy.flower.keys import make_node_key
from accord.deploy.flower.npy import array_in
from accord.deploy.flower.preparing import FormWords
from accord.deploy.flower.replies import EvaluationReply, Hello
from accord.deploy.flower.secagg_messages import Unmasked
from accord.deploy.flower.turns import too_long
from accord.deploy.flower.wire import content
from accord.rules.local import Training
from accord.runs.run import Run
from accord.training.plan import Plan
from conftest import blobs, mlp, sentence

NODES, CULPRIT, CLIENT = 5, 8993, "c01"
METRICS = ["accuracy", "auc", "f1", "calibration_error", "perplexity"]


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


def run_with(
    exchange: str, tamper: Any, rounds: int = 1, algorithm: Any = None, max_norm_ratio: float | None = 1000.0
) -> Run:
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
    options = {
        "training": Training(lr=0.05),
        "plan": plan,
        "timeout": 0.5,
        "wait": 5.0,
        "max_norm_ratio": max_norm_ratio,
    }
    strategy = Strategy(chosen, mlp(), clients=known, **options)
    strategy.start(grid)
    assert strategy.run is not None
    return strategy.run


@cache
def silent(exchange: str) -> Run:
    """The run in which the culprit does not answer there."""
    return run_with(exchange, lambda reply: None)


CONDUCT = {"bytes_down", "bytes_up", "left_out", "left_out_again", "bad_replies", "excluded", "evaluation_left_out"}


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
    **{
        f"loss: {name}": raw("loss", value)
        for name, value in {"inf": "1e999", "huge": "1e201", "text": '"a"', "list": "[1]"}.items()
    },
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
    return within(lambda told: (told[key][of]["figures"] if of else told[key]).__setitem__(0, value))


def more(key: str, **changes: Any) -> Any:
    return within(lambda told: told[key].update(changes))


def figure(name: str, value: Any) -> Any:
    return within(lambda told: told["of_group"][name]["figures"].__setitem__(0, value))


MINE = {"kind": None, "figures": [0.0, 0.0]}


def for_another(message: Message) -> Message:
    """An evaluation that is whole, and has a row for a client of another node too."""

    def change(told: dict[str, Any]) -> None:
        measured = [of["figures"] for key in ("sums", "of_group") for of in told[key].values()]
        for rows in (told["samples"], told["nan"], *measured):
            rows.append(rows[0])
        told["groups"].append(["train", "c00"])

    one_more = values(lambda old: np.concatenate([old, old[:1]]))
    added = named("released", lambda held: held.update({name: one_more(array) for name, array in held.items()}))
    changed = added(within(change)(message))
    assert isinstance(changed, Message)
    return changed


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
        lambda told: [values.append(values[0]) for values in (told["samples"], told["nan"])]
        and [of["figures"].append(of["figures"][0]) for key in ("sums", "of_group") for of in told[key].values()]
        and told["groups"].append(["train", "c00"])
    ),
    "client: another's besides, in all parts": for_another,
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
    **{f"accuracy: of {name}": within(lambda told, k=kind: told["sums"]["accuracy"].update(kind=k)) for name, kind in {
        "no kind": None, "another kind": "mae", "an unknown kind": "os.system", "a whole group": "auc", "kind 1": 1
    }.items()},
    "accuracy: of no kind, and above 1": more("sums", accuracy={"kind": None, "figures": [1e6] * 2}),
    "accuracy: a bare list": within(lambda told: told["sums"].update(accuracy=[0.0, 0.0])),
    "accuracy: text": entry("sums", "1", "accuracy"),
    "loss: a list": entry("sums", [1.0], "loss"),
    "loss: too few entries": within(lambda told: told["sums"]["loss"]["figures"].pop()),
    "loss: not measured": within(lambda told: told["sums"].pop("loss")),
    "loss: infinite": within(lambda told: told["sums"]["loss"].update(figures=[float("inf")] * 2)),
    "loss: NaN": within(lambda told: told["sums"]["loss"].update(figures=[float("nan")] * 2)),
    "loss: below 0": entry("sums", -1.0, "loss"),
    "loss: 1e201": entry("sums", 1e201, "loss"),
    "loss: of no kind, and below 0": within(lambda told: told["sums"]["loss"].update(kind=None, figures=[-1e9] * 2)),
    "loss: of another kind": within(lambda told: told["sums"]["loss"].update(kind="squared_error")),
    "nan: more than samples": entry("nan", 10**6),
    "nan: below 0": entry("nan", -1.0),
    "nan: an entry too few": within(lambda told: told["nan"].pop()),
    "metrics: one more": within(lambda told: (told["sums"].update(mine=MINE), told["order"].append("mine"))),
    "metrics: one more, unordered": more("sums", mine=MINE),
    "metrics: turned around": words(smaller=["accuracy", "loss"]),
    "metrics: turned around, unknown": words(smaller=["loss", "mine"]),
    "metrics: in another order": within(lambda told: told["order"].reverse()),
    "metrics: 200": within(lambda told: told["sums"].update({f"m{n}": MINE for n in range(200)})),
    "metrics: one twice": within(lambda told: told["order"].append(told["order"][0])),
    "auc: of samples and of groups": within(lambda told: told["sums"].update(auc=told["of_group"]["auc"])),
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
            "of no bytes and many classes": lambda old: np.zeros((len(old), 1 << 26, 2, 0)),
        }.items()
    },
    "counts: more right than there": tampered.array("released", "f1", values(lambda old: old + np.array([9, 0, 0]))),
    "losses: 1e201": tampered.array("released", "perplexity", values(lambda old: old + np.array([1e201, 0]))),
    "confidences: above 1": tampered.array("released", "calibration_error", values(lambda old: old * [1, 50, 1])),
    "released: one more": named("released", lambda held: held.update(mine=held["auc"])),
}  # fmt: skip

TAMPERINGS = {"hello": HELLO, "training": TRAINING, "second exchange": SECOND, "evaluation": EVALUATION}
TABLE = [
    pytest.param(exchange, name, marks=() if number % 4 == 0 else pytest.mark.long)
    for exchange, of in TAMPERINGS.items()
    for number, name in enumerate(of)
]


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
    assert not tampered.Harm.done


def test_a_header_that_claims_terabytes_takes_no_memory() -> None:
    honest = Array(np.zeros(92, np.float32))
    DirectGrid({})  # says who this process is, which Flower's messages ask for
    tracemalloc.start()
    try:
        for name, tamper in arrays("record", "delta").items():
            if name.startswith("array: ") and name != "array: objects to unpickle":
                reply = Message(RecordDict({"record": ArrayRecord({"delta": honest})}), 1, "train")
                changed = tamper(reply)
                assert isinstance(changed, Message)
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                with pytest.raises(AccordError):
                    array_in("delta", changed.content["record"]["delta"], torch.float32, (92,))
                assert tracemalloc.get_traced_memory()[1] - before < 2**20, name
    finally:
        tracemalloc.stop()
    assert array_in("delta", honest, torch.float32, (92,)).shape == (92,)


MANY = 600_000
OF_FORM = {"source": "table", "shape": [3], "outputs": 2, "regression": False, "classes": [], "columns": []}
OF_FORM |= {"missing": "mean", "fields": None, "settled": None}
OF_UNMASKED = {"session": "0" * 32, "client": "c", "seeds": {}, "keys": {}}
OF_HELLO = {"train": {"c": 1}, "heldout": {}, "unseen": {}, "form": "x", "layout": None}
OF_EVALUATION = {"groups": [["train", "c"]], "samples": [1], "sums": {"loss": {"kind": None, "figures": [1.0]}}}
OF_EVALUATION |= {"smaller": [], "nan": [], "order": ["loss"], "of_group": {}}
TOO_MANY: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "clients": (Hello, OF_HELLO, lambda: {"train": {f"{n:x}": -1 for n in range(MANY)}}),
    "layout": (Hello, OF_HELLO, lambda: {"layout": [1] * MANY}),
    "fields": (Hello, OF_HELLO, lambda: {f"{n:x}": 1 for n in range(MANY)}),
    "fields, one without a name": (Hello, OF_HELLO, lambda: {"": 1, **{f"{n:x}": 1 for n in range(MANY)}}),
    "samples": (EvaluationReply, OF_EVALUATION, lambda: {"samples": [-1] * MANY}),
    "groups": (EvaluationReply, OF_EVALUATION, lambda: {"groups": [[1]] * MANY}),
    "figures": (EvaluationReply, OF_EVALUATION, lambda: {"sums": {"x": {"kind": None, "figures": ["a"] * MANY}}}),
    "metrics": (EvaluationReply, OF_EVALUATION, lambda: {"sums": {f"{n:x}": {} for n in range(MANY)}}),
    "fields of a metric": (EvaluationReply, OF_EVALUATION, lambda: {"sums": {"x": {f"{n:x}": 1 for n in range(MANY)}}}),
    "shares": (Unmasked, OF_UNMASKED, lambda: {"seeds": {f"{n:x}": 1 for n in range(MANY)}}),
    "classes": (FormWords, OF_FORM, lambda: {"classes": [1] * MANY}),
    "columns": (FormWords, OF_FORM, lambda: {"columns": [1] * MANY}),
    "levels": (FormWords, OF_FORM, lambda: {"columns": [{"name": "a", "kind": "categories", "levels": [1] * MANY}]}),
}


def test_words_are_measured_before_they_are_read() -> None:
    """9 MB that would fit the form."""
    few, many = [["weight", [3], "torch.float32"]], [["w" * 80, [3], "torch.float32"]] * 90_000
    assert Hello.read(content({}, {**OF_HELLO, "layout": few})).layout == few
    with pytest.raises(AccordError):
        Hello.read(content({}, {**OF_HELLO, "layout": many}))


@pytest.mark.parametrize("kind", TOO_MANY)
def test_many_wrong_numbers_are_not_listed_one_by_one(kind: str) -> None:
    """A list of 640,000 errors took 800 MiB, of a text of 8."""
    model, fields, more = TOO_MANY[kind]
    model.model_validate(fields)
    with pytest.raises(ValidationError) as caught:
        model.model_validate({**fields, **more()})
    assert caught.value.error_count() <= 100


# ------------------------------------------------------------------------------------------------ three times


@pytest.mark.parametrize("exchange", ["training", "evaluation", "second exchange", "hello"])
def test_a_node_is_excluded_after_three_bad_replies(exchange: str) -> None:
    asked: list[str] = []
    found = run_with(exchange, lambda reply: asked.append("asked") or tampered.text("{")(reply), rounds=5)
    assert len(asked) == 3  # and never again
    assert [row.get("excluded", []) for row in found.rows][2:] == [found.rows[-1]["excluded"]] * 3
    assert found.rows[-1]["excluded"] == [f"node {CULPRIT}" if exchange == "hello" else f"node {CULPRIT} ({CLIENT})"]
    if exchange != "hello":
        left_out = [row["left_out"].get(CLIENT) for row in found.rows]
        assert left_out[3:] == ["its node is excluded: 3 of its replies could not be read"] * 2
        assert f"{CLIENT} (its node is excluded: 3 of its replies could not be read, 2 rounds)" in str(found)


def test_what_an_evaluation_finds_is_the_evaluations_to_say() -> None:
    """A round's outcome stays as it was handed out; the row has both."""
    fed = blobs(clients=4, unseen=1)
    grid = grid_of(fed)
    bad = tampered.text("{")
    grid.spoil = lambda asked, reply: (
        bad(reply) if _is(asked, CULPRIT, "evaluate") or _is(asked, 9000, "train") else reply
    )
    strategy = Strategy(accord.fedavg(), mlp(), clients=fed.clients, plan=Plan(rounds=1, evaluate_every=1), timeout=0.5)
    loop = strategy._open(grid, None, None)
    asked = next(loop.rounds())
    outcome = loop.engine.train(asked.work, asked.cohort)
    assert outcome.row_fields.keys() == {"bytes_down", "bytes_up"}
    table = loop.evaluated()
    assert outcome.row_fields.keys() == {"bytes_down", "bytes_up"}
    assert table.row_fields.keys() == {"bad_replies"}
    loop.absorb(asked, outcome, 0.0)
    assert set(loop.result().rows[0]) >= {"bytes_down", "bytes_up", "bad_replies"}


def test_of_two_nodes_that_measure_differently_neither_is_excluded(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can tell which of them is wrong."""
    fed = blobs(clients=2, unseen=0)
    grid = DirectGrid({n: (client_app(mlp(), owned(fed, n - 1, 2)), {}) for n in (1, 2)})
    turned = words(smaller=["accuracy", "loss"])

    def spoil(asked: Message, reply: Message | None) -> Message | None:
        mine = asked.metadata.dst_node_id == 2 and asked.metadata.message_type == "evaluate"
        return turned(reply) if mine else reply  # type: ignore[arg-type,return-value]

    grid.spoil = spoil
    plan = Plan(rounds=5, evaluate_every=1)
    strategy = Strategy(accord.fedavg(), mlp(), clients=fed.clients, plan=plan, timeout=0.5, wait=5.0)
    strategy.start(grid)
    assert strategy.run is not None
    for row in strategy.run.rows:
        assert len(row["bad_replies"]) == 1 and "excluded" not in row and row["accepted"] == 2
    blamed = [line for line in caplog.messages if line.startswith("bad reply")]
    assert len(blamed) == 5 and all(line.startswith("bad reply of node ") for line in blamed)  # none is counted


HONEST_FAILURES = {
    "no answer": lambda reply: None,
    "its own sentence": tampered.text('{"error": "the disk is\\u001b[2J gone"}'),
    "NaN": tampered.array("record", "average.delta", values(lambda old: old * np.float32("nan"))),
    "far too long": tampered.array("record", "average.delta", values(lambda old: old * np.float32(1e6))),
    "a loss that is none": words(loss=None),
    "a length that is none": words(norm=None),
    "left out by itself": within(lambda told: told.update(left_out_because="no samples", loss=None, norm=None)),
}


@pytest.mark.parametrize("kind", HONEST_FAILURES)
def test_what_may_happen_to_an_honest_node_does_not_exclude_it(kind: str) -> None:
    count = iter(range(9))
    found = run_with("training", lambda reply: HONEST_FAILURES[kind](reply) if next(count) < 4 else reply, rounds=5)
    assert [list(row["left_out"]) for row in found.rows] == [[CLIENT]] * 4 + [[]]
    assert all(why.isprintable() for row in found.rows for why in row["left_out"].values())


NON_FINITE = {
    "loss": entry("sums", None, "loss"),
    "sums, infinite": tampered.array("released", "perplexity", values(lambda old: old + np.array([np.inf, 0]))),
    "sums, NaN": tampered.array("released", "perplexity", values(lambda old: old * [np.nan, 1])),
}


@pytest.mark.parametrize("kind", NON_FINITE)
def test_an_evaluation_that_is_not_finite_is_left_out_and_excludes_nobody(kind: str) -> None:
    """One node's data may make the model diverge. Its figure would be everybody's."""
    found = run_with("evaluation", NON_FINITE[kind], rounds=5)
    for row in found.rows:
        assert row["evaluation_left_out"].keys() == {f"node {CULPRIT} ({CLIENT})"}
        assert not {"bad_replies", "excluded"} & set(row)
        assert row["evaluation"]["splits"]["train"]["loss"]["by_sample"] is not None
    same_for_the_others(found, run_with("evaluation", lambda reply: None, rounds=5))


def test_a_model_that_diverged_on_most_nodes_has_no_loss() -> None:
    grid = grid_of(fed := blobs(clients=4, unseen=1))
    none = entry("sums", None, "loss")
    diverged = {9000, 8993, 8986}
    grid.spoil = lambda asked, reply: (
        none(reply) if asked.metadata.dst_node_id in diverged and _is(asked, asked.metadata.dst_node_id, "evaluate")
        else reply
    )  # fmt: skip
    strategy = Strategy(accord.fedavg(), mlp(), clients=fed.clients, plan=Plan(rounds=1), timeout=0.5, wait=5.0)
    strategy.start(grid)
    assert strategy.run is not None
    (row,) = strategy.run.rows
    train = row["evaluation"]["splits"]["train"]
    assert train["loss"]["by_sample"] is None and train["clients"] == 4
    assert not {"bad_replies", "evaluation_left_out"} & set(row)


def test_no_figure_of_a_client_damages_the_record(tmp_path: Path) -> None:
    """A record's figures are at most 1e300, and a sum of large ones would be beyond."""
    fed = blobs(clients=4, unseen=1)
    grid = grid_of(fed)
    huge = within(lambda told: told["sums"]["loss"].update(figures=[1e308] * 2))
    grid.spoil = lambda asked, reply: huge(reply) if _is(asked, CULPRIT, "evaluate") else reply
    options = {"plan": Plan(rounds=1), "folder": tmp_path, "timeout": 0.5, "wait": 5.0}
    strategy = Strategy(accord.fedavg(), mlp(), clients=fed.clients, **options)
    strategy.start(grid)
    assert accord.load(tmp_path, model=mlp()).history[-1][1].splits["train"].clients == 3


# ------------------------------------------------------------------------------------ a node's own clients only


def test_a_reply_is_that_of_the_node_which_was_asked() -> None:
    """What it says of itself is its sender's word: here, that it is another node and answers its message."""
    honest, fed = run_with("training", lambda reply: reply), blobs(clients=4, unseen=1)
    grid = grid_of(fed)

    def pretend(asked: Message, reply: Message | None) -> Message | None:
        if reply is not None and asked.metadata.dst_node_id == CULPRIT and asked.metadata.message_type == "train":
            (first,) = [m for m in grid.sent if m.metadata.message_type == "train" and m.metadata.dst_node_id == 9000]
            reply.metadata.__dict__["_reply_to_message_id"] = first.metadata.message_id
            reply.metadata.__dict__["_src_node_id"] = 9000
        return reply

    grid.spoil = pretend
    options = {"plan": Plan(rounds=1, evaluate_every=1), "training": Training(lr=0.05), "timeout": 0.5}
    strategy = Strategy(accord.fedavg(mask=accord.gma(0.4)), mlp(), clients=fed.clients, **options)
    strategy.start(grid)
    assert strategy.run is not None and strategy.run.rows[0]["left_out"] == {}
    same_for_the_others(strategy.run, honest)


def test_a_node_that_was_here_cannot_take_over_a_client_whose_node_is_gone() -> None:
    fed = blobs(clients=4, unseen=1)

    class Gone(DirectGrid):
        """From the second round on, c00's node is away, and the culprit, asked once more, says that c00 is its own."""

        def get_node_ids(self) -> Iterable[int]:
            rounds = {m.metadata.group_id for m in self.sent if m.metadata.message_type == "train"}
            return [node for node in self.apps if not (rounds and node == 9000)]

    grid = Gone(grid_of(fed).apps)
    helloes = 0

    def spoil(asked: Message, reply: Message | None) -> Message | None:
        nonlocal helloes
        assert reply is not None
        if asked.metadata.dst_node_id != CULPRIT:
            return reply
        if asked.metadata.message_type == "train":
            return None  # so that it is asked again who lives there
        if asked.metadata.message_type == "query":
            helloes += 1
            return words(train={"c00": 30, "c01": 28})(reply) if helloes > 1 else reply
        return reply

    grid.spoil = spoil
    plan = Plan(rounds=3, evaluate_every=1)
    strategy = Strategy(accord.fedavg(), mlp(), clients=fed.clients, plan=plan, timeout=0.2, wait=5.0)
    strategy.start(grid)
    assert strategy.run is not None and helloes > 1
    assert [row["left_out"].get("c00") for row in strategy.run.rows] == [None, *["its node is not connected"] * 2]


class Registered(DirectGrid):
    """Nodes with keys, as a SuperLink knows them. `away(rounds)` are those that are offline once so many rounds have
    begun; a node registers when `since` says."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        begin = datetime.now(UTC) - timedelta(minutes=5)
        self.since = dict.fromkeys(self.apps, begin)
        self.key = {node: b"%d" % node for node in self.apps}
        self.away: Any = lambda rounds: set()

    def get_node_ids(self) -> Iterable[int]:
        rounds = {m.metadata.group_id for m in self.sent if m.metadata.message_type == "train"}
        return [node for node in self.apps if node not in self.away(len(rounds))]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=node, registered_at=self.since[node].isoformat(), public_key=self.key[node])
            for node in self.get_node_ids()
        ]


def late(grid: DirectGrid, node: int, claims: dict[str, int], slow: int | None = None) -> None:
    """A node whose hello comes once the first round has begun, and says that these clients are its own; `slow` misses
    that round's timeout."""
    held: dict[str, Any] = {}

    def spoil(asked: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        kind, of = asked.metadata.message_type, asked.metadata.dst_node_id
        training = any(m.metadata.message_type == "train" for m in grid.sent)
        if training:
            grid.replies |= held
            held.clear()
        if of == node and kind == "query":
            held[asked.metadata.message_id] = deflated(words(train=claims, heldout={}, unseen={})(reply))
            return None
        return None if of == slow and training and kind in ("train", "query") else reply

    grid.spoil = spoil


def left_out(fed: Any, grid: DirectGrid, rounds: int = 3, **options: Any) -> list[dict[str, str]]:
    return [row["left_out"] for row in rows_of(fed, grid, rounds, **options)]


def rows_of(fed: Any, grid: DirectGrid, rounds: int = 3, **options: Any) -> list[dict[str, Any]]:
    options = {"plan": Plan(rounds=rounds, evaluate_every=1), "timeout": 0.2, "wait": 5.0, **options}
    strategy = Strategy(accord.fedavg(), mlp(), clients=fed.clients, **options)
    strategy.start(grid)
    assert strategy.run is not None
    return list(strategy.run.rows)


@pytest.mark.parametrize("gone", [False, True], ids=["slow", "gone"])
def test_a_node_that_withheld_its_hello_cannot_take_over_a_client(gone: bool) -> None:
    """c00's node misses one timeout, or goes; the fifth node, there from the beginning, says only then that c00 lives
    on it."""
    fed = blobs(clients=4, unseen=1)
    grid = Registered(grid_of(fed).apps)
    late(grid, 8972, {"c00": 30}, slow=None if gone else 9000)
    grid.away = lambda rounds: {9000} if gone and rounds else set()
    out = left_out(fed, grid)
    assert [row.get("c00") for row in out][1:] == ["its node is not connected"] * 2
    assert grid.replies == {}  # its hello was heard
    asked = {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"}
    assert 8972 not in asked


def test_a_node_that_was_offline_since_it_was_registered_cannot_either() -> None:
    fed = blobs(clients=4, unseen=1)
    grid = Registered(grid_of(fed).apps)
    late(grid, 8972, {"c00": 30})
    grid.away = lambda rounds: {9000} if rounds else {8972}
    assert [row.get("c00") for row in left_out(fed, grid)][1:] == ["its node is not connected"] * 2


def restarting(fed: Any, at: int) -> Registered:
    """c00's node goes after so many rounds; the round after, it is there with another id and key, made since."""
    grid = Registered(grid_of(fed).apps)
    grid.apps[77] = grid.apps[9000]
    grid.since[77], grid.key[77] = datetime.now(UTC) + timedelta(minutes=1), b"77"
    grid.away = lambda rounds: {9000} if rounds > at else {77} if rounds < at else {9000, 77}
    return grid


@pytest.mark.parametrize("same_key", [True, False])
def test_a_node_that_restarts_has_its_clients_back_by_its_key(same_key: bool) -> None:
    """Without a registered key the restart has a new one, and nobody can tell it from a stranger."""
    fed = blobs(clients=4, unseen=1)
    grid = restarting(fed, at=1)
    grid.key[77] = grid.key[9000] if same_key else b"77"
    away = {"c00": "its node is not connected"}
    assert left_out(fed, grid) == [{}, away, {} if same_key else away]


def test_a_node_that_comes_back_has_its_clients_though_another_claimed_them() -> None:
    """c00's node misses the second round, in which a new node, with a key of its own, says that c00 lives on it."""
    fed = blobs(clients=4, unseen=1)
    grid = restarting(fed, at=1)
    grid.away = lambda rounds: {0: {77}, 1: {9000}}.get(rounds, set())
    rows = rows_of(fed, grid, rounds=4)
    away = {"c00": "its node is not connected"}
    assert [row["left_out"] for row in rows] == [{}, away, {}, {}]
    assert rows[-1]["excluded"] == ["node 77"]


def rejected(row: dict[str, Any], node: int) -> bool:
    """Whether the row names the node as excluded, and the name that it claimed."""
    why = row["bad_replies"].get(f"node {node}, hello", "")
    return row["excluded"][:1] == [f"node {node}"] and "claimed client 'c00'" in why and why.isprintable()


@pytest.mark.parametrize("first", [9000, 8972])
def test_of_two_claims_to_a_name_the_first_stays(first: int) -> None:
    """The other one's hello comes once the first round has begun. Neither ends the run, nor takes part."""
    fed = blobs(clients=4, unseen=1)
    grid = Registered(grid_of(fed).apps)
    other, held = ({9000, 8972} - {first}).pop(), dict[str, Any]()
    impostor = words(train={"c00": 30}, heldout={}, unseen={})

    def spoil(asked: Message, reply: Message | None) -> Message | None:
        if any(_is(m, m.metadata.dst_node_id, "train") for m in grid.sent):
            grid.replies |= held
            held.clear()
        reply = impostor(reply) if _is(asked, 8972, "query") else reply
        if _is(asked, other, "query"):
            held[asked.metadata.message_id] = deflated(reply)
            return None
        return reply

    grid.spoil = spoil
    rows = rows_of(fed, grid)
    assert rejected(rows[0], other)
    asked = {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"}
    assert asked == {first, 8993, 8986, 8979}
    for row in rows:
        assert row["accepted"] == (4 if first == 9000 else 3)  # the impostor's app has no data of c00


@pytest.mark.parametrize("early", [9000, 8972])
def test_of_two_claims_that_arrive_together_that_of_the_node_registered_first_counts(early: int) -> None:
    fed = blobs(clients=4, unseen=1)
    grid = Registered(grid_of(fed).apps)
    grid.since[early] -= timedelta(minutes=1)
    impostor = words(train={"c00": 30}, heldout={}, unseen={})
    grid.spoil = lambda asked, reply: impostor(reply) if _is(asked, 8972, "query") else reply
    assert rejected(rows_of(fed, grid, rounds=1)[0], ({9000, 8972} - {early}).pop())


def test_a_node_that_claims_one_name_too_many_gets_none() -> None:
    """Its other name is free for the node that it belongs to, which comes later. All figures are those of a run in
    which it was silent."""
    fed = blobs(clients=4, unseen=1)

    def run_of(hello: Any) -> Run:
        grid = Registered({**grid_of(fed).apps, 8965: grid_of(fed).apps[CULPRIT]})
        grid.since[9000] -= timedelta(minutes=1)
        late(grid, 8965, {"c01": 28})
        keep = grid.spoil
        grid.spoil = lambda asked, reply: hello(reply) if _is(asked, CULPRIT, "query") else keep(asked, reply)
        options = {"plan": Plan(rounds=3, evaluate_every=1), "timeout": 0.5, "wait": 5.0}
        strategy = Strategy(accord.fedavg(), mlp(), clients=["c00", "c02", "c03"], **options)
        strategy.start(grid)
        assert strategy.run is not None
        return strategy.run

    greedy = run_of(words(train={"c00": 30, "c01": 28}, heldout={}, unseen={}))
    assert rejected(greedy.rows[0], CULPRIT)
    assert all("bad_replies" not in row for row in greedy.rows[1:])  # 8965 was let in, with c01
    same_for_the_others(greedy, run_of(lambda reply: None))


@pytest.mark.parametrize("same_key", [True, False])
def test_a_restart_does_not_end_an_exclusion(same_key: bool) -> None:
    fed = blobs(clients=4, unseen=1)
    grid = restarting(fed, at=3)
    grid.key[77] = grid.key[9000] if same_key else b"77"
    bad = tampered.text("{")
    grid.spoil = lambda asked, reply: bad(reply) if _is(asked, 9000, "train") else reply
    out = left_out(fed, grid, rounds=6)
    assert [row["c00"] for row in out][3:] == ["its node is excluded: 3 of its replies could not be read"] * 3


def _is(asked: Message, node: int, kind: str) -> bool:
    return bool(asked.metadata.dst_node_id == node and asked.metadata.message_type == kind)


def keyed(fed: Any, folder: Path) -> tuple[Registered, dict[str, Path]]:
    """Nodes with the keys of their clients' names, and the files of all names' keys."""
    grid = Registered(grid_of(fed).apps)
    files = {}
    for number, node in enumerate(grid.apps):
        here = owned(fed, number, NODES)
        _, file = make_node_key(folder, str(node))
        files |= dict.fromkeys([*here.clients, *here.unseen], file)
        grid.key[node] = public_keys({"c": file})["c"]
    return grid, files


def test_a_name_with_a_key_is_that_keys_node_s_alone(tmp_path: Path) -> None:
    """The node that first says that c00 is its own is not the one whose key it is."""
    fed = blobs(clients=4, unseen=1)
    grid, files = keyed(fed, tmp_path)
    grid.since[9000] += timedelta(minutes=1)
    impostor = words(train={"c00": 30}, heldout={}, unseen={})
    grid.spoil = lambda asked, reply: impostor(reply) if _is(asked, 8972, "query") else reply
    assert left_out(fed, grid, keys=files) == [{}, {}, {}]
    asked = {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"}
    assert asked == {9000, 8993, 8986, 8979}
    grid.key[9000] = b"x"
    with sentence("did not show up", "claimed client 'c00'"):
        left_out(fed, grid, keys=files, wait=0.5)
    for bad in (tmp_path / "none.pub", tmp_path / "9000"):
        with sentence("keys:", "of client c00 is no public key"):
            left_out(fed, grid, keys={**files, "c00": bad})


@pytest.mark.parametrize("clients", [["c00", "c01", "c02", "c03"], 4])
def test_with_keys_a_name_without_a_key_cannot_be_claimed(clients: Any, tmp_path: Path) -> None:
    """Else the node that such a name belongs to would be excluded, with all its names, once another had claimed it."""
    fed = blobs(clients=4, unseen=1)
    grid, files = keyed(fed, tmp_path)
    squatter = words(train={}, heldout={}, unseen={"visitor": 30})
    grid.spoil = lambda asked, reply: squatter(reply) if _is(asked, 8972, "query") else reply
    strategy = Strategy(accord.fedavg(), mlp(), clients=clients, plan=Plan(rounds=1), keys=files, timeout=0.2, wait=5.0)
    strategy.start(grid)
    assert strategy.run is not None
    (row,) = strategy.run.rows
    assert row["excluded"] == ["node 8972"] and "visitor" in row["bad_replies"]["node 8972, hello"]
    assert row["accepted"] == 4


def test_every_client_has_a_key_or_none_has(tmp_path: Path) -> None:
    """A misspelled name would leave a client without a key."""
    _, file = make_node_key(tmp_path, "node")
    for names in (["north"], ["north", "sout"], ["north", "South"]):
        with sentence("keys:", "south", *names[1:]):
            Strategy(accord.fedavg(), mlp(), clients=["north", "south"], keys=dict.fromkeys(names, file))
    for names in ([], ["north", "south"], ["north", "south", "visitor"]):  # the visitor never trains
        Strategy(accord.fedavg(), mlp(), clients=["north", "south"], keys=dict.fromkeys(names, file))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Flower builds its state with
def test_a_key_has_one_node_id_for_as_long_as_the_superlink_lives(tmp_path: Path) -> None:
    """What ownership and exclusion by node id rest on, of Flower's own state: a restart with a registered key is the
    same node, and a key that was taken out cannot come back as another."""
    state = LinkStateFactory(str(tmp_path / "state.db"), NoOpFederationManager(), ObjectStoreFactory()).state()
    node = state.create_node("owner", "owner", b"key", 30.0)
    for _ in range(2):
        assert state.activate_node(node, 30.0) and state.deactivate_node(node)
        assert state.get_node_id_by_public_key(b"key") == node
    state.delete_node("owner", node)
    with pytest.raises(ValueError, match="already in use"):
        state.create_node("owner", "owner", b"key", 30.0)


# ------------------------------------------------------------------------------------------- absurd updates


def scaled(name: str, factor: float) -> Any:
    return tampered.array("record", name, values(lambda old: (old * old.dtype.type(factor)).astype(old.dtype)))


ONCE = accord.fedavg(average=accord.corrective(0.2))
ABSURD = {
    "update": (accord.fedavg(mask=accord.gma(0.4)), "training", "average.delta", "its update is"),
    "control variate": (accord.scaffold(), "training", "local.change", "its local.change is"),
    "gradient": (ONCE, "training", "average.end_gradient", "its average.end_gradient is"),
    "second exchange": (TWICE, "second exchange", "push", "its push is"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ABSURD)
@pytest.mark.parametrize("factor", [1e5, 1e25])
def test_an_absurd_update_is_left_out_and_named(kind: str, factor: float) -> None:
    algorithm, exchange, field, said = ABSURD[kind]
    found = run_with(exchange, scaled(field, factor), rounds=2, algorithm=algorithm)
    expected = run_with(exchange, lambda reply: None, rounds=2, algorithm=algorithm)
    for row in found.rows:
        left_out = row["left_out" if exchange == "training" else "left_out_again"]
        assert list(left_out) == [CLIENT] and left_out[CLIENT].startswith(said)
        assert "more than 1,000 times the cohort's median" in left_out[CLIENT] and "excluded" not in row
    same_for_the_others(found, expected)


def test_without_a_bound_it_counts() -> None:
    found = run_with("training", scaled("average.delta", 1e5), max_norm_ratio=None)
    assert found.rows[0]["left_out"] == {} and float(found.last.vector.norm()) > 1000


@pytest.mark.parametrize(("size", "said"), [(1e15, "cohort's median"), (1e30, "its loss")])
def test_a_client_with_huge_features_is_named_and_the_honest_ones_are_not(size: float, said: str) -> None:
    fed = blobs(clients=9, unseen=0)
    x = fed.x.clone()
    x[fed.train["c01"]] *= size
    odd = owned(replace(fed, x=x), 1, 9)
    model = torch.nn.Linear(6, 4)
    apps = {n: client_app(model, odd if n == 1 else owned(fed, n, 9)) for n in range(9)}
    plan = Plan(rounds=3, evaluate_every=3)
    options = {"clients": fed.clients, "plan": plan, "training": Training(lr=0.05), "timeout": 1.0, "wait": 5.0}
    strategy = Strategy(accord.fedavg(), model, **options)
    strategy.start(DirectGrid({node: (app, {}) for node, app in apps.items()}))
    assert strategy.run is not None
    for row in strategy.run.rows:
        assert list(row["left_out"]) == ["c01"] and said in row["left_out"]["c01"]
    others = replace(fed, train={client: rows for client, rows in fed.train.items() if client != "c01"})
    expected = accord.fit(model, others, rounds=3, lr=0.05, engine="sequential")
    assert torch.equal(strategy.run.last.vector, expected.last.vector)


@pytest.mark.parametrize(
    ("lengths", "out"),
    [
        ([1.0, 1.1, 1e9], [2]),
        ([1.0, 1e9], []),  # of two nobody can tell
        ([1e-30, 1.0], []),
        ([0.0, 1.0, 1.1], []),  # one of three cannot make the others look long
        ([0.0, 0.0, 1.0, 1.1], []),  # nor can half of them
        ([1.0, 1.1, 1e9, 1e9], []),  # half is too many to leave out, too
        ([0.0, 0.0, 1.0], []),  # a median of 0 measures nothing
        ([1.0, 1.0, 1000.0], []),
        ([1.0, 1.0, 1000.1], [2]),
        ([1.0, 1.1, 1.2, float("nan"), float("inf"), 5000.0], [5]),
    ],
)
def test_whose_update_is_too_long(lengths: list[float], out: list[int]) -> None:
    found = too_long({number: {"average.delta": length} for number, length in enumerate(lengths)}, 1000.0)
    assert list(found) == out


def test_the_bound_of_sums_is_the_clients_own() -> None:
    """The server does not look at the length of what it only adds up; what counts and weighs it does look at."""
    fed, algorithm = blobs(clients=4, unseen=1), accord.fedavg(mask=accord.gma(0.4))

    def row_of(tamper: Any) -> dict[str, Any]:
        grid = grid_of(fed, sums=Sums(), algorithm=algorithm)
        grid.tamper[CULPRIT] = tamper
        strategy = Strategy(
            algorithm, mlp(), clients=fed.clients, plan=Plan(rounds=1), sums=Sums(), timeout=1.0, wait=5.0
        )
        strategy.start(grid)
        assert strategy.run is not None
        return dict(strategy.run.rows[0])

    assert row_of(scaled("average.delta", 1e5))["left_out"] == {}
    for name in ("average.weight", "mask.count", "buffers.weight"):
        for change in (lambda old: old * 0 + 1e12, lambda old: -old):
            tamper = tampered.array("record", name, values(lambda old, change=change: change(old).astype(old.dtype)))
            assert row_of(tamper)["left_out"] == {CLIENT: f"{name} must be that of one client with 28 samples"}
    minus = tampered.array("record", "mask.votes", values(lambda old: np.full_like(old, -128)))
    assert row_of(minus)["left_out"] == {CLIENT: "a vote must be -1, 0 or 1"}


@pytest.mark.parametrize("max_norm_ratio", [0, 1, -3.0, "1000", True, float("nan")])
def test_a_bound_that_is_none(max_norm_ratio: Any) -> None:
    with sentence("max_norm_ratio must be a number above 1, or None for no bound, got"):
        Strategy(accord.fedavg(), mlp(), clients=2, max_norm_ratio=max_norm_ratio)


def test_a_header_with_any_bit_flipped_is_a_sentence() -> None:
    """Of a header that is no Python, numpy has the tokenizer make sense, which has errors of its own."""
    good = Array(np.zeros(10, dtype=np.float32))
    size = len(good.data) - 40
    for place in range(size):
        for bit in range(8):
            data = good.data[:place] + bytes([good.data[place] ^ 1 << bit]) + good.data[place + 1 :]
            with suppress(AccordError):  # one that says the same, with another space, say
                assert (
                    len(array_in("delta", Array(good.dtype, good.shape, good.stype, data), torch.float32, (10,))) == 10
                )
