"""Tables as owners have them: missing values, categories, files by client; by statistics of training clients alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import accord
from accord.data import AsIs, Federation, Scale, Standardise
from accord.data.preparation import Column, Preparation, refitted
from accord.data.readers.table import read_cells
from conftest import sentence

ROWS = [
    {"site": "a", "age": 40, "cp": "typical", "ill": "no"},
    {"site": "a", "age": None, "cp": "none at all", "ill": "yes"},
    {"site": "b", "age": 60, "cp": "typical", "ill": "no"},
    {"site": "b", "age": 50, "cp": None, "ill": "yes"},
    {"site": "c", "age": 1000, "cp": "unheard of", "ill": "yes"},
    {"site": "c", "age": None, "cp": None, "ill": "no"},
]


def table(rows: Any = ROWS, unseen: str = "c", **options: Any) -> Federation:
    """The federation of a table of sites, of which one is unseen. All the others train on all they have."""
    options = {"client": "site", "label": "ill", "heldout": 0.0} | options
    fed = accord.data.table(source=rows, unseen=0, **options)
    if unseen not in fed.train:
        return fed
    sample = accord.data.catalogue._table(rows, None, **{k: v for k, v in options.items() if k != "heldout"})
    away = {unseen: fed.train[unseen]}
    train = {client: rows for client, rows in fed.train.items() if client != unseen}
    bare = Federation(sample.x, sample.y, train, {}, away, classes=sample.classes)
    ready = sample.ready(bare, natural=True)
    return replace(ready, prepare=accord.data.fitted(ready))


def test_by_hand() -> None:
    fed = table()
    assert [column.inputs for column in fed.columns] == [
        ["age", "age missing"],
        ["cp=none at all", "cp=typical", "cp=(other)", "cp missing"],
    ]
    assert fed.x.tolist() == [
        [40, 0, 0, 1, 0, 0],
        [50, 1, 1, 0, 0, 0],  # the mean of 40, 60 and 50, not of 1000
        [60, 0, 0, 1, 0, 0],
        [50, 0, 0, 0, 0, 1],
        [1000, 0, 0, 0, 1, 0],  # a level that no training client has is a level of its own
        [50, 1, 0, 0, 0, 1],
    ]
    assert isinstance(fed.prepare, Standardise)
    assert fed.prepare.mean == (50, 0, 0, 0, 0, 0)
    assert fed.prepare.std == pytest.approx((np.std([40, 50, 60, 50]), 1, 1, 1, 1, 1))
    assert fed.classes == ("no", "yes")
    assert fed.notes == (
        "categories, an input for each level: cp (a level that no training row has keeps the weight that the model "
        "began with)",
        "missing values become the training clients' mean, of categories none of the levels, and a further input says "
        "where: age (1 of 4), cp (1 of 4)",
    )


def test_what_is_missing_at_unseen_clients_alone_has_no_input_of_its_own() -> None:
    fed = table([{**row, "age": row["age"] or 50, "cp": row["cp"] or "typical"} for row in ROWS[:4]] + ROWS[4:])
    assert [column.inputs for column in fed.columns] == [["age"], ["cp=none at all", "cp=typical", "cp=(other)"]]
    assert fed.x[5].tolist() == [50, 0, 0, 1]


@pytest.mark.parametrize(("missing", "fill"), [("mean", 40.0), ("median", 25.0), ("zero", 0.0)])
def test_what_stands_for_a_missing_number(missing: str, fill: float) -> None:
    rows = [{"client": "a", "age": age, "label": 0} for age in (10, 20, 30, 100, None)]
    fed = accord.data.table(source=rows, heldout=0.0, missing=missing)
    assert fed.x.tolist() == [[10, 0], [20, 0], [30, 0], [100, 0], [fill, 1]]


def test_declared_categories() -> None:
    rows = [{"client": "a", "kind": kind, "label": 0} for kind in (3, 1, 1.0, 2)]
    by_numbers = accord.data.table(source=rows, heldout=0.0)
    assert by_numbers.columns == (Column("kind", fill=1.75),)
    named = accord.data.table(source=rows, heldout=0.0, categories=["kind"])
    assert named.columns[0].levels == ("1", "2", "3")
    levels = accord.data.table(source=rows, heldout=0.0, categories={"kind": ["3", "01", "9"]})
    assert levels.columns[0].inputs == ["kind=3", "kind=1", "kind=9", "kind=(other)"]
    assert levels.x.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]


def test_declared_truth_values_are_those_of_the_cells() -> None:
    """They are read as 1 and 0: under other names every cell would be of a level that no client has."""
    rows = [{"client": "a", "smokes": smokes, "label": 0} for smokes in ("true", "FALSE", True)]
    fed = accord.data.table(source=rows, heldout=0.0, categories={"smokes": ["false", True]})
    assert fed.x.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("nothing", [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT])
@pytest.mark.parametrize("column", ["client", "label"])
def test_missing_clients_and_labels_of_a_table_in_memory_are_refused(column: str, nothing: object) -> None:
    rows = [{"client": "a", "age": 1, "label": "ill"}, {"client": "b", "age": 2, "label": "well", column: nothing}]
    with sentence(f"row 1 of the table has no value in column {column}: every row needs one there"):
        accord.data.table(source=rows, heldout=0.0)


def test_columns_in_memory_are_lists_with_names_of_their_own() -> None:
    frame = pandas.DataFrame([["a", 1.0, 2.0, 0]], columns=["client", "age", "age", "label"])
    for source in (frame, {"client": ["a"], "label": [0], 1: [1.0], "1": [2.0]}):
        with sentence(f"the table has two columns called {'age' if source is frame else '1'}: each needs a name"):
            accord.data.table(source=source, heldout=0.0)
    with sentence("column age of the table is 54: a column has a cell for each row, in a list"):
        accord.data.table(source={"client": ["a"], "age": 54, "label": [0]}, heldout=0.0)


def test_a_folder_with_a_file_for_each_client(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("age,sex,label\n40,f,0\n?,m,1\n")
    (tmp_path / "south.csv").write_text("sex,age,label\nm,30,0\n")  # in another order
    fed = accord.data.table(source=tmp_path, heldout=0.0)
    assert fed.clients == ["north", "south"]
    assert fed.x.tolist() == [[40, 0, 1, 0, 0], [35, 1, 0, 1, 0], [30, 0, 0, 1, 0]]
    (tmp_path / "west.csv").write_text("age,label\n1,0\n")
    with sentence(f"{tmp_path}/west.csv has no column sex, which {tmp_path}/north.csv has: all clients need the same"):
        accord.data.table(source=tmp_path)
    (tmp_path / "west.csv").write_text("age,sex,bmi,label\n1,f,3,0\n")
    with sentence(f"{tmp_path}/west.csv has a column bmi, which {tmp_path}/north.csv has not"):
        accord.data.table(source=tmp_path)
    (tmp_path / "west.csv").write_text("age,sex,label\n1,2,0\n")
    with sentence(f"line 2 of {tmp_path}/west.csv has '2' in column sex, but there is 'f' in line 2 of", "north.csv"):
        accord.data.table(source=tmp_path)


# ----------------------------------------------------------------------------------------- nothing of the unseen


def scrambled(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The same table with other cells in the rows of client c."""
    draw = np.random.default_rng(seed)
    ages, kinds = [None, -1e6, 3.0, 1e20], ["typical", "new", "other", None, "Zzz"]
    return [
        row
        if row["site"] != "c"
        else {"site": "c", "age": draw.choice(ages), "cp": draw.choice(kinds), "ill": draw.choice(["no", "yes"])}
        for row in rows
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_unseen_client_changes_nothing_of_the_preparation(seed: int) -> None:
    fed, other = table(), table(scrambled(ROWS, seed))
    assert Preparation.of(fed) == Preparation.of(other)
    rows = torch.cat(list(fed.train.values()))
    assert torch.equal(fed.read(rows)[0], other.read(rows)[0])
    assert fed.notes == other.notes
    runs = [accord.fit(accord.models.mlp(features=6, classes=2, hidden=4), one, rounds=2) for one in (fed, other)]
    assert torch.equal(runs[0].last.vector, runs[1].last.vector)


def test_a_federation_whose_clients_change_is_prepared_anew() -> None:
    everybody = accord.data.table(source=ROWS, client="site", label="ill", heldout=0.0)
    train = {client: rows for client, rows in everybody.train.items() if client != "c"}
    fed = refitted(replace(everybody, train=train, unseen={"c": everybody.train["c"]}), everybody)
    assert [column.fill for column in fed.columns] == [50, 0]
    assert fed.prepare == Standardise((50, *[0] * 6), (table().prepare.std[0], *[1] * 6))  # type: ignore[attr-defined]
    assert [column.inputs for column in fed.columns] == [column.inputs for column in everybody.columns]
    assert fed.x[1].tolist() == [50, 1, 1, 0, 0, 0, 0]


def test_samples_that_were_prepared_ahead_keep_their_scaling() -> None:
    fed = table()
    assert Preparation.of(fed.prepared(1 << 20)) == Preparation.of(fed)


def test_held_out_rows_change_nothing_of_the_preparation() -> None:
    rows = [{"client": "a", "age": age, "label": age % 2} for age in range(20)]
    fed = accord.data.table(source=rows, heldout=0.5)
    spoilt = [dict(row) for row in rows]
    for row in fed.heldout["a"].tolist():
        spoilt[row]["age"] = 1e9
    assert accord.data.table(source=spoilt, heldout=0.5).prepare == fed.prepare


# ---------------------------------------------------------------------------------------------------- to JSON

texts = st.text(max_size=5)
numbers = st.floats(allow_nan=False, allow_infinity=False)
columns = st.builds(
    Column,
    name=texts,
    levels=st.none() | st.lists(texts, max_size=3, unique=True).map(tuple),
    fill=numbers,
    indicator=st.booleans(),
    missing=st.sampled_from(["mean", "refuse"]),
)
scalings = st.builds(Standardise, st.tuples(numbers), st.tuples(numbers)) | st.just(Scale()) | st.just(AsIs())


@given(
    st.builds(
        Preparation,
        shape=st.lists(st.integers(1, 9)).map(tuple),
        outputs=st.integers(1, 9),
        regression=st.booleans(),
        classes=st.lists(texts).map(tuple),
        columns=st.lists(columns, max_size=3).map(tuple),
        scaling=scalings,
    )
)
@settings(max_examples=50, deadline=None)
def test_a_preparation_is_the_same_after_it_was_written(preparation: Preparation) -> None:
    assert Preparation.from_json(json.loads(json.dumps(preparation.to_json()))) == preparation


def _users_scale() -> Any:
    @dataclass(frozen=True)
    class Scale:
        """Of the name that one of accord's own has, too."""

        mean: tuple[float, ...] = (1.0,)

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.mean[0]

    return Scale()


@pytest.mark.parametrize("scaling", [lambda x: 2 * x, _users_scale()])
def test_a_scaling_of_the_users_is_not_in_the_folder(scaling: Any) -> None:
    fed = replace(table(), prepare=scaling)
    read = Preparation.from_json(json.loads(json.dumps(Preparation.of(fed).to_json())))
    assert read.scaling is None
    with sentence("scaled its samples by a function that its folder does not hold", "prepare=..."):
        read.scale(fed.x)


def test_other_tables_are_read_the_same_way(tmp_path: Path) -> None:
    fed = table()
    preparation = Preparation.of(fed)
    wanted = {column.name: column.levels is not None for column in fed.columns}
    pandas = pytest.importorskip("pandas")
    by_column: Mapping[str, Any] = {name: [row[name] for row in ROWS] for name in ("cp", "age")}
    pandas.DataFrame(ROWS).to_csv(tmp_path / "mine.csv", index=False)
    pandas.DataFrame(ROWS).to_parquet(tmp_path / "mine.parquet")
    for source in (ROWS, by_column, pandas.DataFrame(ROWS), tmp_path / "mine.csv", str(tmp_path / "mine.parquet")):
        cells, ids, others = read_cells(source, wanted)
        assert torch.equal(preparation.encode(cells), fed.x) and ids == {"row": list(range(1, len(ROWS) + 1))}
        assert set(others) <= {"site", "ill"}


# -------------------------------------------------------------------------------------------------- bad input


def changed(place: int, **cells: Any) -> list[dict[str, Any]]:
    return [{**row, **cells} if number == place else row for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (changed(1, age="4o"), {}, "row 1 of the table has '4o' in column age, but there is 40 in row 0 of the table"),
        (changed(0, age=float("inf")), {}, "row 0 of the table has inf in column age: features are finite numbers"),
        (changed(2, age=np.datetime64("2020-01-01")), {}, "column age holds dates or times (2020-01-01 in row 2"),
        (changed(2, age={}), {}, "row 2 of the table has a dict in column age: a cell is a number or a text"),
        (
            changed(4, ill="maybe"),
            {},
            "the unseen client c has label 'maybe' in 1 of its rows, and no client that takes",
        ),
        (ROWS, {"missing": "refuse"}, "the client a has no value in column age in 1 of 2 rows, the first is row 2"),
        (ROWS, {"missing": "guess"}, "missing must be one of mean, median, zero, refuse, got 'guess'"),
        (ROWS, {"categories": ["cpp"]}, "categories names column cpp, which is no feature: did you mean 'cp'?"),
        (ROWS, {"drop": ["site"]}, "drop names column site, which is no feature of the table"),
        (ROWS, {"drop": ["age", "cp"]}, "the table has no column besides site and ill: features are needed, too"),
        (3, {}, "a table is a path of a CSV or Parquet file, a data frame, a dict of columns or a list"),
        ({"site": ["a"], "age": [1, 2], "ill": [0]}, {}, "the columns of the table differ in length: site 1, age 2"),
    ],
)
def test_bad_tables_get_a_sentence(rows: Any, options: dict[str, Any], said: str) -> None:
    with sentence(said):
        table(rows, **options)


def test_free_text_is_no_category() -> None:
    rows = [{"client": "a", "name": f"n{number}", "label": 0} for number in range(1001)]
    with sentence("column name has more than 1,000 different texts", "name it in `drop`"):
        accord.data.table(source=rows)


def test_a_constant_column_is_told_of() -> None:
    fed = table([{**row, "ward": 7} for row in ROWS])
    assert "column ward has one value in all training data, so it tells the model nothing" in fed.notes
    assert (fed.read(torch.arange(4))[0][:, -1] == 0).all()


def test_an_id_that_nobody_dropped_is_told_of() -> None:
    rows = [{"client": "a", "id": f"n{number}", "kind": "xy"[number % 2], "label": 0} for number in range(20)]
    said = [note for note in accord.data.table(source=rows).notes if "in every training row" in note]
    assert said == ["column id has another value in every training row: if it is an id, name it in `drop`"]
    assert not [note for note in table([*rows[1:], rows[1]], client="client", label="label").notes if "every" in note]
    numbers = [{**row, "id": 100 + at, "age": at + 0.5} for at, row in enumerate(rows)]
    notes = accord.data.table(source=numbers).notes
    assert said[0] in notes and not [note for note in notes if "age" in note], "whole numbers alone"


def test_classes_are_those_of_clients_that_take_part() -> None:
    rows = [*ROWS, {"site": "d", "age": 3, "cp": "x", "ill": "a"}]
    fed = accord.data.table(source=rows, client="site", label="ill", clients=4, heldout=0.0)
    assert fed.classes == ("a", "no", "yes")
    for seed in range(20):
        fed = accord.data.table(source=rows, client="site", label="ill", clients=2, unseen=0, heldout=0.0, seed=seed)
        assert fed.classes == (("a", "no", "yes") if "d" in fed.clients else ("no", "yes"))
        assert fed.outputs == len(fed.classes)


def test_a_client_of_one_class_trains() -> None:
    rows = [{**row, "ill": "yes"} if row["site"] == "b" else row for row in ROWS]
    fed = table(rows)
    run = accord.fit(accord.models.logistic(features=fed.shape[0], classes=2), fed, rounds=2)
    assert all(row["accepted"] == 2 and not row["left_out"] for row in run.rows)


def test_clients_that_are_made_up_may_leave_a_class_to_the_unseen() -> None:
    rows = [{"client": "a", "age": age, "label": age // 4} for age in range(12)]
    made_up = [accord.data.table(source=rows, split="exact", classes=1, clients=2, unseen=1, seed=s) for s in range(9)]
    assert {fed.outputs for fed in made_up} == {3}


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_model_whose_output_does_not_fit_the_labels(engine: str) -> None:
    fed = accord.data.from_arrays(
        {"a": ([[0.0], [1.0]], [0, 1]), "b": ([[2.0], [3.0]], [1, 2])}, unseen=["b"], heldout=0
    )
    with sentence("the model has 2 outputs, one for each class from 0 to 1, but client b has label 2 in row 3"):
        accord.fit(accord.models.logistic(features=1, classes=2), fed, rounds=1, engine=engine)
    with sentence("but client a has label -1 in row 0"):
        accord.fit(accord.models.logistic(features=1, classes=3), replace(fed, y=fed.y - 1), rounds=1, engine=engine)
    assert accord.fit(accord.models.logistic(features=1, classes=3), fed, rounds=1, engine=engine).rounds == 1


# ------------------------------------------------------------------------------------------------------ arrays


def test_labels_of_text_in_python() -> None:
    fed = accord.data.from_samples([[0.0], [1.0], [2.0]], np.array(["b", "a", "b"]), [0, 0, 1], heldout=0)
    assert (fed.y.tolist(), fed.classes) == ([1, 0, 1], ("a", "b"))
    fed = accord.data.from_arrays(
        {"x": ([[0.0]], ["b"]), "y": ([[1.0]], ["a"]), "z": (np.zeros((0, 1)), [])}, heldout=0
    )
    assert (fed.y.tolist(), fed.classes) == ([1, 0], ("a", "b"))
    fed = accord.data.from_samples([[0.0], [1.0]], ["10", "9"], [0, 0], heldout=0)
    assert (fed.y.tolist(), fed.classes) == ([1, 0], ("9", "10"))
    assert accord.data.from_samples([[0.0]], ["0.5"], [0], heldout=0).y.tolist() == [0.5]
    assert accord.data.from_arrays({"x": ([[0.0]], [1])}, heldout=0, test=([[0.0]], [0])).classes == ()


def test_numbers_that_are_none_are_named() -> None:
    x = np.zeros((4, 3))
    x[2, 1] = np.nan
    with sentence("client b has nan in x, row 2, column 1: fill it in or leave the row out"):
        accord.data.from_samples(x, [0, 1, 0, 1], ["a", "a", "b", "b"])
    with sentence("client b has nan in x, row 2, column 1"):
        accord.data.from_arrays({"a": (np.zeros((4, 3)), [0] * 4), "b": (x, [0] * 4)})
    with sentence("the test set has nan in x, row 2, column 1"):
        accord.data.from_samples(x, [0, 1, 0, 1], ["a", "a", "b", "b"], test=[2])
    with sentence("client a has inf in y, row 1"):
        accord.data.from_arrays({"a": (np.zeros((2, 3)), [0.5, np.inf])})
    with sentence("the data has nan in x, row 2, column 1"):
        accord.data.from_torch(torch.utils.data.TensorDataset(torch.from_numpy(x), torch.zeros(4)), clients=2)
