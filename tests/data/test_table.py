"""The user's own tables, CSV and Parquet: what becomes of every column, and every way in which they may be wrong."""

import csv
import importlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.data.readers.table import Table, read_table
from conftest import sentence

pyarrow = pytest.importorskip("pyarrow", reason="Parquet files are read with pyarrow: pip install pyarrow")
parquet = importlib.import_module("pyarrow.parquet")
module = importlib.import_module("accord.data.readers.sheets")


def write(folder: Path, *lines: str, name: str = "mine.csv") -> Path:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / name


def store(folder: Path, name: str = "mine.parquet", **columns: Any) -> Path:
    parquet.write_table(pyarrow.table(columns), folder / name)
    return folder / name


PLAIN = ("age,client,label,ill,weight", "41,bob,no,true,80.5", "7,ann,yes,False,2e1", "-3,bob,no,0,1")


def check(table: Table) -> None:
    assert table.features == ("age", "ill", "weight")
    assert table.x.dtype == torch.float32
    assert table.x.tolist() == [[41, 1, 80.5], [7, 0, 20], [-3, 0, 1]]
    assert table.owners == ("ann", "bob")
    assert table.owner is not None
    assert table.owner.tolist() == [1, 0, 1]
    assert table.classes == ("no", "yes")
    assert table.y.tolist() == [0, 1, 0]
    assert table.y.dtype == table.owner.dtype == torch.int64
    assert table.test is None


# -------------------------------------------------------------------------------------------------------- CSV


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("begins", ["", "\ufeff"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_csv_file_is_read(tmp_path: Path, separator: str, begins: str, ends: str) -> None:
    text = begins + ends.join(line.replace(",", separator) for line in PLAIN) + ends + ends
    (tmp_path / "mine.csv").write_bytes(text.encode())
    check(read_table(tmp_path / "mine.csv"))


def test_quoted_fields_and_columns_of_other_names(tmp_path: Path) -> None:
    path = write(tmp_path, '"hospital, or ward";"x;1";what', '"north; left";1;"a ""b"""', '"south\nright";" 2 ";c')
    table = read_table(path, client="hospital, or ward", label="what")
    assert table.owners == ("north; left", "south\nright")
    assert table.classes == ('a "b"', "c")
    assert table.features == ("x;1",)
    assert table.x.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("labels", "classes", "y"),
    [
        (["10", "9", "-1", "10"], ("-1", "9", "10"), [2, 1, 0, 2]),
        (["10", "9", "x", "10"], ("10", "9", "x"), [0, 1, 2, 0]),
        (["1.0", "0.0", "1", "1e1"], ("0", "1", "10"), [1, 0, 1, 2]),
        (["1_0", "1_1", "1_0", "1_0"], ("1_0", "1_1"), [0, 1, 0, 0]),
        (
            ["9007199254740993", "9007199254740992", "0", "0"],
            ("0", "9007199254740992", "9007199254740993"),
            [2, 1, 0, 0],
        ),
        (["0.5", "2", "-1e-3", "3.0"], (), [0.5, 2.0, -0.001, 3.0]),
        (["True", "False", "True", " False"], ("False", "True"), [1, 0, 1, 0]),
    ],
)
def test_labels_are_classes_or_targets(
    tmp_path: Path, labels: list[str], classes: tuple[str, ...], y: list[float]
) -> None:
    table = read_table(write(tmp_path, "client,a,label", *(f"c,1,{label}" for label in labels)))
    assert table.classes == classes
    assert table.y.dtype == (torch.int64 if classes else torch.float32)
    assert table.y.tolist() == pytest.approx(y)


def test_large_features_are_numbers_one_by_one(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "client,a,b,label", "c,3e38,3e38,0"))  # whose sum is not finite in float32
    assert table.x.isfinite().all()


def test_numbered_clients_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "client,a,label", "10,1,0", "9,1,0", "9,1,1")).owners == ("9", "10")
    assert read_table(write(tmp_path, "client,a,label", "10,1,0", "9,1,0", "x,1,1")).owners == ("10", "9", "x")


def test_progress_is_told_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 1000)
    path = write(tmp_path, "client,a,label", *(f"c{row % 7},{row},0" for row in range(3500)))
    asked: list[tuple[str, int, int | None]] = []
    read_table(path, progress=lambda *event: asked.append(event))
    assert len(asked) == 5
    assert asked[-1][1] == path.stat().st_size
    assert {(label, total) for label, _, total in asked} == {("reading mine.csv", path.stat().st_size)}
    assert asked == sorted(asked, key=lambda event: event[1])


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    st.lists(
        st.tuples(st.text(min_size=1).filter(str.strip), finite, finite, st.integers(0, 5)), min_size=1, max_size=20
    )
)
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float, float, int]]
) -> None:
    held = io.StringIO(newline="")
    written = csv.writer(held)
    written.writerow(["client", "a", "label", "b"])
    written.writerows([client, a, label, b] for client, a, b, label in rows)
    path = tmp_path_factory.mktemp("written") / "mine.csv"
    path.write_bytes(held.getvalue().encode("utf-8", "replace"))
    table = read_table(path)
    assert table.x.tolist() == [[a, b] for _, a, b, _ in rows]
    assert [table.classes[kind] for kind in table.y] == [str(label) for *_, label in rows]
    assert table.owner is not None
    names = [client.encode("utf-8", "replace").decode().strip() for client, *_ in rows]
    assert [table.owners[owner] for owner in table.owner] == names


SPOILT = [
    (("client,a,label", "c,1,0", " ,1,0"), "line 3 of PATH has no value in column client"),
    (("client,a,label", "c,1,0", "", "c,1,"), "line 4 of PATH has no value in column label: every row needs one there"),
    (
        ("client,a,label", "c,1,0", "c,red,0"),
        "line 3 of PATH has 'red' in column a, but there is 1 in line 2 of PATH: a column holds numbers or categories",
    ),
    (
        ("client,a,label", "c,1l,0", "c,12,0"),
        "line 3 of PATH has '12' in column a, but there is '1l' in line 2 of PATH: a column holds numbers or",
    ),
    (("client,a,label", "c,1_000,0"), "line 2 of PATH has '1_000' in column a, which is no number"),
    (("client;a;label", "c;1,5;0"), "line 2 of PATH has '1,5' in column a, which is no number: write 1000.5"),
    (
        ("client,a,seen,label", "c,1,,0", "c,1,2020-03-01,0"),
        "column seen holds dates or times ('2020-03-01' in line 3 of PATH): turn them into numbers",
    ),
    (("client,a,seen,label", "c,1,1/3/20 12:00,0"), "column seen holds dates or times ('1/3/20 12:00' in line 2"),
    (("client,a,label", "c,-inf,0"), "line 2 of PATH has -inf in column a: features are finite numbers"),
    (("client,b,a,label", "c,-1e39,1e39,0"), "line 2 of PATH has -1e39 in column b: features are finite numbers"),
    (("client,a,label", "c,1e39,0"), "line 2 of PATH has 1e39 in column a: features are finite numbers"),
    (("client,a,label", "c,1,nan"), "line 2 of PATH has no value in column label: every row needs one there"),
    (("client,a,label", "c,1,ill", "c,2, ?"), "line 3 of PATH has no value in column label: every row needs one there"),
    (("client,a,label", "c,1,ill", "c,2,NA"), "line 3 of PATH has no value in column label: every row needs one there"),
    (("client,a,label", "c,1"), "line 2 of PATH has 2 values: the header names 3 columns"),
    (("client,a,label", "c,1,0,5"), "line 2 of PATH has 4 values: the header names 3 columns"),
    (("client,a,label", 'c,1,"0'), "line 2 of PATH cannot be read as CSV: unexpected end of data"),
    (("client,a,label", "c,1," + "x" * 200_000), "line 2 of PATH cannot be read as CSV: field larger than field limit"),
    (("client,a,label",), "PATH has a header but no rows: each sample is one row"),
    ((), "PATH is empty: its first line names the columns"),
    (("",), "PATH is empty: its first line names the columns"),
    (("clients,a,label", "c,1,0"), "PATH has no column 'client' for the client: did you mean 'clients'?"),
    (("client,a,zz", "c,1,0"), "PATH has no column 'label' for the label: its columns are client, a, zz"),
    (("client,a,a,label", "c,1,2,0"), "PATH has two columns called a: each needs a name of its own"),
    (
        (",client,a,label", "0,c,1,0"),
        "column 1 of PATH has no name: name it, or write the file without an index (index=False)",
    ),
    (("client,label", "c,0"), "PATH has no column besides client and label: features are needed, too"),
]


@pytest.mark.parametrize(("lines", "said"), SPOILT)
def test_spoilt_csv_files_get_a_sentence(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    path = write(tmp_path, *lines)
    with sentence(said.replace("PATH", str(path))):
        read_table(path)


def test_files_that_are_no_table_get_a_sentence(tmp_path: Path) -> None:
    with sentence(f"{tmp_path / 'nowhere.csv'} cannot be read: No such file"):
        read_table(tmp_path / "nowhere.csv")
    with sentence(f"{tmp_path} holds no tables: it should have a .csv or .parquet file for each client"):
        read_table(tmp_path)
    path = tmp_path / "mine.csv"
    path.write_bytes("client,a,label\nJosé,1,0\n".encode("latin-1"))
    with sentence(f"{path} is not text in UTF-8 (it has a byte e9): save it as CSV in UTF-8"):
        read_table(path)
    with sentence("column 'client' cannot be both client and label"):
        read_table(write(tmp_path, *PLAIN), label="client")


# ---------------------------------------------------------------------------------------------------- Parquet


@pytest.mark.parametrize("name", ["mine.parquet", "mine.pq", "no-ending"])
def test_a_parquet_file_is_read(tmp_path: Path, name: str) -> None:
    columns = {
        "age": [41, 7, -3],
        "client": ["bob", "ann", "bob"],
        "label": ["no", "yes", "no"],
        "ill": [True, False, False],
    }
    check(read_table(store(tmp_path, name, **columns, weight=np.array([80.5, 20, 1], dtype=np.float64))))


def test_parquet_kinds_of_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    path = store(
        tmp_path,
        client=pyarrow.array(["b", "a", "b"]).dictionary_encode(),
        label=np.array([2.0, 0.0, 2.0]),
        a=np.array([1, 2, 3], dtype=np.uint8),
        b=np.array([0.5, 1.5, 2.5], dtype=np.float16),
        c=pyarrow.array([2**60, 1, 0]),
    )
    asked: list[tuple[str, int, int | None]] = []
    table = read_table(path, progress=lambda *event: asked.append(event))
    assert table.x.tolist() == [[1, 0.5, 2.0**60], [2, 1.5, 1], [3, 2.5, 0]]
    assert table.owners == ("a", "b")
    assert table.classes == ("0", "2")
    assert table.y.tolist() == [1, 0, 1]
    assert asked == [("reading mine.parquet", 2, 3), ("reading mine.parquet", 3, 3)]
    regression = read_table(store(tmp_path, client=[10, 9, 10], label=[1.5, 2.0, 3.0], a=[1, 2, 3]))
    assert regression.y.tolist() == [1.5, 2, 3]
    assert regression.owners == ("9", "10")
    assert read_table(store(tmp_path, client=[b"c", b"c"], label=[True, False], a=[1, 2])).classes == ("False", "True")


SPOILT_PARQUET: list[tuple[dict[str, Any], str]] = [
    ({"client": ["c", "c", None]}, "row 3 of PATH has no value in column client"),
    ({"label": [None, "x", "y"]}, "row 1 of PATH has no value in column label"),
    ({"a": np.array(["2020-01-01"] * 3, dtype="datetime64[ms]")}, "column a holds dates or times (timestamp[ms])"),
    ({"a": [1.0, 1e39, 2.0]}, "row 2 of PATH has 1e+39 in column a: features are finite numbers"),
    ({"label": [1.0, 2.0, float("inf")]}, "row 3 of PATH has inf in column label: a label is text or a finite number"),
    ({"a": ["1", "b", "3"]}, "row 2 of PATH has 'b' in column a, but there is 1 in row 1 of PATH"),
    ({"a": [[1], [2], [3]]}, "column a of PATH holds list"),
    ({"__index_level_0__": [0, 1, 2]}, "column 4 of PATH has no name: name it, or write the file without an index"),
]


@pytest.mark.parametrize(("columns", "said"), SPOILT_PARQUET)
def test_spoilt_parquet_files_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)  # rows are counted on from batch to batch
    path = store(tmp_path, **({"client": ["c", "c", "d"], "label": [0, 1, 0], "a": [1.0, 2.0, 3.0]} | columns))
    with sentence(said.replace("PATH", str(path))):
        read_table(path)


def test_parquet_files_that_are_none_get_a_sentence(tmp_path: Path) -> None:
    path = store(tmp_path, client=["c"], label=[0], a=[1.0])
    with sentence(f"{path} has no column 'lable' for the label: did you mean 'label'?"):
        read_table(path, label="lable")
    whole = path.read_bytes()
    for damaged in (whole[:-20], b"no parquet", b"", whole[:4] + bytes(200) + whole[204:]):
        path.write_bytes(damaged)
        with sentence(f"{path} is damaged or no Parquet file"):
            read_table(path)
    with sentence("has a header but no rows"):
        read_table(
            store(tmp_path, client=np.array([], dtype="U1"), label=np.array([], dtype=int), a=np.array([], dtype=float))
        )


def test_without_pyarrow_the_way_to_get_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(tmp_path, client=["c"], label=[0], a=[1.0])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with sentence(f"{path} is read with pyarrow, which is not installed", 'pip install "accord-fl[tables]"'):
        read_table(path)
    check(read_table(write(tmp_path, *PLAIN)))  # CSV needs none
