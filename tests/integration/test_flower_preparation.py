"""Owners whose tables never meet scale and fill alike: a deployment has the preparation of the simulation on the joined
table, and so its model."""

import csv
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

from direct_grid import DirectGrid
from flwr.app import Array, Message
from tampered import words
from torch import nn

import accord
from accord.data import Federation
from accord.data.agreement import Form
from accord.data.preparation import Preparation
from accord.deploy.flower import Shaped, Strategy, Sums, as_unseen, client_app
from accord.deploy.flower.preparing import form_in
from accord.privacy.secure_sum import SecureSum
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.training.plan import Plan
from conftest import sentence

PATIENTS = Path(__file__).parents[2] / "examples" / "hospitals" / "patients.csv"
OPTIONS: dict[str, Any] = {"client": "hospital", "label": "diagnosis", "categories": ["vessels"], "heldout": 0.2}
TRAIN = ["east", "north", "south"]
FEDAVG = accord.fedavg(weighting="uniform")
Table = dict[str, list[Any]]


def rows() -> list[dict[str, str]]:
    with PATIENTS.open() as file:
        return list(csv.DictReader(file))


def tables() -> dict[str, Table]:
    """Every hospital's table by itself, with cells of its own that are missing."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows():
        found.setdefault(row["hospital"], []).append(dict(row))
    for number, row in enumerate(found["south"]):
        row["pulse"] = "" if number % 5 == 0 else row["pulse"]  # nobody else lacks one
    return {name: {key: [row[key] for row in of] for key in of[0]} for name, of in found.items()}


def joined(of: dict[str, Table]) -> Table:
    return {key: [cell for name in sorted(of) for cell in of[name][key]] for key in of["north"]}


def model(agreed: Preparation) -> nn.Module:
    return accord.models.logistic(features=agreed.shape[0], classes=agreed.outputs, seed=3)


def own(table: Table, options: dict[str, Any]) -> Federation:
    fed = accord.data.table(source=table, **options)
    return as_unseen(fed) if "west" in fed.train else fed


def grid_of(of: dict[str, Table], options: dict[str, Any] | None = None, **rest: Any) -> DirectGrid:
    """A node for each hospital, that has read nothing but its own table."""

    def app(table: Table) -> Any:
        return client_app(rest.get("model", Shaped(model)), lambda context: own(table, options or OPTIONS), **sides)

    sides = {key: of for key, of in rest.items() if key != "model"}
    return DirectGrid({9000 - 7 * number: (app(of[name]), {}) for number, name in enumerate(sorted(of))})


def watch_statistics(grid: DirectGrid, node: int, look: Callable[[Message], None]) -> None:
    """Has `look` see, or change, what a node answers when it is asked for its statistics."""
    app, settings = grid.apps[node]

    def watched(message: Message, context: Any) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == "query.statistics":
            look(reply)
        return reply

    grid.apps[node] = (watched, settings)  # type: ignore[assignment]


def strategy_of(rounds: int = 3, algorithm: Algorithm = FEDAVG, **options: Any) -> Strategy:
    return Strategy(
        algorithm,
        options.pop("model", Shaped(model)),
        clients=TRAIN,
        training=Training(lr=0.05),
        plan=options.pop("plan", Plan(rounds=rounds)),
        **{"timeout": 2.0, "wait": 2.0, **options},
    )


def simulated(of: dict[str, Table], rounds: int = 3, options: dict[str, Any] | None = None) -> accord.Run:
    fed = accord.data.table(source=joined(of), unseen=["west"], **(options or OPTIONS))
    start = accord.models.logistic(features=fed.shape[0], classes=fed.outputs, seed=3)
    return accord.fit(start, fed, FEDAVG, rounds=rounds, lr=0.05, engine="sequential", verbose=False)


def finished(strategy: Strategy, grid: DirectGrid) -> accord.Run:
    strategy.start(grid)
    assert strategy.run is not None
    return strategy.run


def same(found: Preparation | None, expected: Preparation | None) -> None:
    """Names, levels and classes alike; numbers to a few of float64's last digits: a simulation adds up rows in float64,
    and nodes exactly."""
    assert found is not None and expected is not None
    assert (found.shape, found.outputs, found.classes) == (expected.shape, expected.outputs, expected.classes)
    assert found.inputs == expected.inputs
    for mine, theirs in zip(found.columns, expected.columns, strict=True):
        assert (mine.levels, mine.indicator, mine.missing) == (theirs.levels, theirs.indicator, theirs.missing)
        assert mine.fill == pytest.approx(theirs.fill, rel=1e-13)
    for what in ("mean", "std"):
        assert getattr(found.scaling, what) == pytest.approx(getattr(expected.scaling, what), rel=1e-13)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_STATE", str(tmp_path / "state"))


# ------------------------------------------------------------------------------------ that of the joined table


@pytest.mark.parametrize("missing", ["mean", "zero"])
def test_owners_scale_and_fill_as_the_simulation_of_the_joined_table_does(missing: str, tmp_path: Path) -> None:
    """The model reads float32, in which both preparations are the same, so it is the same to the last bit."""
    of, options = tables(), OPTIONS | {"missing": missing}
    found = finished(strategy_of(folder=tmp_path), grid_of(of, options))
    expected = simulated(of, options=options)
    same(found.preparation, expected.preparation)
    assert torch.equal(found.last.vector, expected.last.vector)
    for (_, here), (_, there) in zip(found.history, expected.history, strict=True):
        for split in ("train", "heldout", "unseen"):
            accuracy, other = (e.splits[split].metrics["accuracy"].by_sample for e in (here, there))
            assert accuracy == other
    # alone, every hospital would scale in its own way
    alone = own(of["north"], options)
    assert alone.prepare.mean[0] != pytest.approx(found.preparation.scaling.mean[0], rel=1e-3)  # type: ignore
    new = {key: cells[:5] for key, cells in of["west"].items()}
    again = accord.load(found.folder)
    assert again.predict(new).labels == expected.predict(new).labels


@pytest.mark.parametrize("masked", [False, True], ids=["secure", "masked"])
def test_secure_sums_give_the_same_bits_and_hide_every_nodes_share(masked: bool) -> None:
    of = tables()
    open_ = finished(strategy_of(1), grid_of(of))
    sums = Sums(SecureSum(clients=3, bound=4.0), masked=masked)
    grid = grid_of(of, sums=sums, algorithm=FEDAVG, secret=5)
    shares = list[Any]()

    def look(reply: Message) -> None:
        shares.append(reply.content.array_records["statistics"]["moments"].numpy())

    for node in grid.apps:
        watch_statistics(grid, node, look)
    found = finished(strategy_of(1, sums=sums), grid)
    assert found.preparation == open_.preparation
    assert len(shares) == 3 and all(share.dtype == "uint8" for share in shares)
    zeros = [float((share == 0).mean()) for share in shares]
    assert max(zeros) < 0.02 if masked else min(zeros) > 0.3  # most limbs of a sum are 0, and of a mask none


def test_pictures_and_rows_of_numbers_are_scaled_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60, 2, 5, 5), generator=generator, dtype=torch.uint8)
    x[20:40] //= 3  # a darker camera
    y, owner = torch.arange(60) % 3, [f"c{i // 20}" for i in range(60)]

    def part(name: str | None) -> Federation:
        rows = [i for i in range(60) if name in (None, owner[i])]
        fed = accord.data.from_samples(x[rows], y[rows].numpy(), [owner[i] for i in rows], heldout=0.2)
        return replace(fed, prepare=accord.data.fitted(fed))

    start = accord.models.shaped("mlp", (2, 5, 5), 3, seed=0)
    grid = DirectGrid({n: (client_app(start, part(f"c{n}")), {}) for n in range(3)})
    strategy = Strategy(accord.fedavg(), start, clients=3, training=Training(lr=0.05), plan=Plan(rounds=2), timeout=1.0)
    found = finished(strategy, grid)
    expected = accord.fit(start, part(None), accord.fedavg(), rounds=2, lr=0.05, engine="sequential", verbose=False)
    assert torch.equal(found.last.vector, expected.last.vector)
    assert found.preparation.scaling.mean == pytest.approx(expected.preparation.scaling.mean, rel=1e-13)  # type: ignore


def test_labels_with_and_without_a_fraction_are_one_regression() -> None:
    table = {"hospital": ["a"] * 4 + ["b"] * 4, "x": [1, 2, 3, 4, 6, 7, 8, 9], "y": [1, 2, 1, 3, 0.5, 2, 1.5, 4]}
    options = {"client": "hospital", "label": "y", "heldout": 0.0}
    halves = [{key: cells[at : at + 4] for key, cells in table.items()} for at in (0, 4)]
    apps = [client_app(Shaped(model), lambda c, h=h: accord.data.table(source=h, **options)) for h in halves]
    strategy = Strategy(FEDAVG, Shaped(model), clients=2, training=Training(lr=0.05), plan=Plan(rounds=2), wait=2.0)
    found = finished(strategy, DirectGrid({n: (app, {}) for n, app in enumerate(apps)}))
    fed = accord.data.table(source=table, **options)
    start = accord.models.logistic(features=1, classes=1, seed=3)
    expected = accord.fit(start, fed, FEDAVG, rounds=2, lr=0.05, engine="sequential", verbose=False)
    assert torch.equal(found.last.vector, expected.last.vector)
    assert found.preparation is not None and found.preparation.regression


# ----------------------------------------------------------------------------------- once, and for who comes later


class Counting(DirectGrid):
    """Says what was asked, and has nodes come when they should."""

    def asked(self, kind: str) -> int:
        return sum(message.metadata.message_type == kind for message in self.sent)


def test_a_run_that_goes_on_has_its_preparation_already(tmp_path: Path) -> None:
    of = tables()
    plan = Plan(rounds=2)
    first = finished(strategy_of(plan=plan, folder=tmp_path), grid_of(of))
    kept = (first.folder / "preparation.json").read_bytes()  # type: ignore[operator]
    of["north"]["age"] = [str(2 * int(age)) for age in of["north"]["age"]]  # which would change every statistic
    grid = Counting(grid_of(of).apps)
    again = finished(strategy_of(plan=Plan(rounds=3), folder=tmp_path), grid)
    assert again.folder == first.folder and again.rounds == 3
    assert grid.asked("query.statistics") == 0 and grid.asked("train") == 3
    assert (again.folder / "preparation.json").read_bytes() == kept  # type: ignore[operator]


def test_who_comes_later_gets_the_same_preparation_and_who_does_not_fit_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of = tables()
    odd = {key: list(cells) for key, cells in of["north"].items() if key != "pulse"} | {"hospital": ["odd"]}
    odd["hospital"] = ["odd"] * len(odd["age"])
    everybody = grid_of(of).apps
    late = client_app(Shaped(model), lambda context: own(odd, OPTIONS))

    class Later(Counting):
        def get_node_ids(self) -> Iterable[int]:
            if self.asked("train") >= 3:  # the second round
                self.apps = {**everybody, 5: (late, {})}
            else:
                self.apps = {node: app for node, app in everybody.items() if node != 9000 - 21}  # west is away
            return list(self.apps)

    with caplog.at_level(logging.WARNING, "flwr"):
        grid = Later(everybody)
        found = finished(strategy_of(3), grid)
    assert "client odd has no column pulse, which the federation has" in caplog.text
    told = [json.loads(str(m.content["accord"]["json"])) for m in grid.sent if m.metadata.dst_node_id == 9000 - 21]
    assert told and told[0]["preparation"] == json.loads(json.dumps(found.preparation.to_json()))  # type: ignore
    assert grid.asked("query.statistics") == 3


def test_a_node_that_claims_another_s_client_when_it_is_told_the_preparation_does_not_end_the_run() -> None:
    """East says first that it has east, and then that it has north too."""
    grid = grid_of(tables())
    claims = words(train={"east": 1, "north": 1})

    def spoil(asked: Message, reply: Message | None) -> Any:
        meta = asked.metadata
        told = meta.message_type == "query" and "preparation" in json.loads(str(asked.content["accord"]["json"]))
        return claims(reply) if told and meta.dst_node_id == 9000 else reply  # type: ignore[arg-type]

    grid.spoil = spoil
    found = finished(strategy_of(2, wait=20.0), grid)
    for row in found.rows:
        assert list(row["left_out"]) == ["east"] and "'north'" in row["left_out"]["east"]
        assert row["accepted"] == 2 and row["excluded"] == ["node 9000 (east)"]


def test_what_is_sent_in_clear_is_said_and_declared_levels_are_not(caplog: pytest.LogCaptureFixture) -> None:
    of = tables()
    levels = {"vessels": [0, 1, 2, 3], "sex": ["female", "male"], "slope": ["up", "flat", "down"]}
    levels |= {"pain": ["none", "typical", "atypical", "other"]}
    levels["pain"] = sorted({cell for table in of.values() for cell in table["pain"] if cell})
    levels["slope"] = sorted({cell for table in of.values() for cell in table["slope"] if cell})
    with caplog.at_level(logging.INFO, "flwr"):
        finished(strategy_of(1), grid_of(of))
        assert "sent in clear by every node: the levels of column sex, column pain" in caplog.text
        caplog.clear()
        options = OPTIONS | {"categories": levels}
        found = finished(strategy_of(1), grid_of(of, options))
        assert "sent in clear by every node: the levels of the classes" in caplog.text
    same(found.preparation, simulated(of, 1, options).preparation)


# ---------------------------------------------------------------------------------------------- refused by name


def without(of: dict[str, Table], name: str, column: str) -> dict[str, Table]:
    return {**of, name: {key: cells for key, cells in of[name].items() if key != column}}


def changed(of: dict[str, Table], name: str, column: str, cells: Any) -> dict[str, Table]:
    return {**of, name: {**of[name], column: [cells] * len(of[name]["age"])}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda of: without(of, "south", "pulse"), "client south has no column pulse, which client east has"),
        (lambda of: changed(of, "north", "Puls", 3), "client north has a column Puls, which client east has not"),
        (
            lambda of: changed(of, "south", "pain", 3),
            "column pain holds numbers at client south and categories at client east",
        ),
    ],
)
def test_columns_that_differ_are_refused_by_name_before_any_training(change: Any, said: str) -> None:
    grid = Counting(grid_of(change(tables())).apps)
    with sentence(said):
        strategy_of().start(grid)
    assert grid.asked("train") == 0 and grid.asked("query.statistics") == 0


def test_levels_and_settings_that_differ_are_refused_by_name() -> None:
    of = tables()

    def mixed(**other: Any) -> Counting:
        apps, odd = grid_of(of, OPTIONS).apps, grid_of(of, OPTIONS | other).apps
        return Counting({**apps, 9000 - 14: odd[9000 - 14]})  # south has other settings

    levels = {"vessels": [0, 1, 2, 3]}
    with sentence("column vessels has the levels 0, 1, 2, 3 in `categories` at client south and no levels at client"):
        strategy_of().start(mixed(categories=levels))
    with sentence("missing is 'zero' at client south and 'mean' at client east"):
        strategy_of().start(mixed(missing="zero"))
    with sentence("client south did not show up", "cannot be computed from sums"):
        strategy_of(wait=0.3).start(mixed(missing="median"))
    misspelled = changed(of, "south", "sex", "Male")
    options = OPTIONS | {"categories": {"vessels": [0, 1, 2, 3], "sex": ["female", "male"]}}
    with sentence("client south has Male in column sex, which `categories` does not declare: its levels are female"):
        strategy_of(wait=0.3).start(grid_of(misspelled, options))


def test_statistics_that_cannot_be_are_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    def tampered(change: Any) -> DirectGrid:
        def spoil(reply: Message) -> None:
            record = reply.content.array_records["statistics"]
            record["moments"] = Array(change(record["moments"].numpy().copy()))

        grid = grid_of(tables())
        watch_statistics(grid, 9000 - 7, spoil)
        return grid

    def more_rows(limbs: Any) -> Any:
        limbs[0, 0] += 1
        return limbs

    def no_squares(limbs: Any) -> Any:
        limbs[1:, 13:] = 0
        return limbs

    for change, said in [
        (more_rows, "its clients registered"),
        (no_squares, "cannot be those of any numbers"),
        (lambda limbs: limbs * float("nan"), "not whole numbers"),
        (lambda limbs: limbs[:-1], "wrong shape or type of moments"),
        (lambda limbs: limbs.astype("complex128"), "wrong shape or type of moments"),
        (lambda limbs: limbs + 2.0**40, "larger than any column's"),
    ]:
        with (
            caplog.at_level("WARNING", "flwr"),
            sentence("the statistics of north are missing", said, "node 8993 (north)"),
        ):
            strategy_of().start(tampered(change))
        assert "bad reply 1 of node 8993 (north), statistics: its reply cannot be read" in caplog.text
        caplog.clear()


def test_a_label_that_only_an_unseen_client_has() -> None:
    of = changed(tables(), "west", "diagnosis", "unclear")
    run = finished(strategy_of(1), grid_of(of))  # its node is left out, which the log says
    assert run.rows[0]["accepted"] == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outputs": 10**12}, "outputs: Input should be less than or equal to 100000"),
        ({"shape": [1 << 40]}, "shape.0: Input should be less than or equal to 100000000"),
        ({"shape": [1 << 20, 1 << 20]}, "samples of 1,099,511,627,776 numbers"),
        ({"classes": [str(n) for n in range(100_001)]}, "classes: List should have at most 100000 items"),
        ({"classes": ["\x1b[2J"]}, "classes.0: a name must be printable"),
        ({"classes": ["x" * 1001]}, "classes.0: String should have at most 1000 characters"),
    ],
    ids=["outputs", "side", "sides", "classes", "terminal", "long"],
)
def test_one_owner_cannot_make_the_model_as_large_as_it_likes(change: dict[str, Any], said: str) -> None:
    told = json.loads(json.dumps(asdict(Form("table", (4,), 2, False))))
    form_in(told)
    with sentence(said):
        form_in({**told, **change})
