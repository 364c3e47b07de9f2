"""Federations from torch, Hugging Face and Flower datasets: the same samples, the right owners, and sentences for what
cannot be read."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

# Before the libraries are imported, which is when they look: nothing is fetched, nothing is reported to anybody.
os.environ.update(
    HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1", FLWR_TELEMETRY_ENABLED="0"
)

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import accord
from accord.core.errors import AccordError
from accord.data import AsIs, Federation, Scale, Standardise, bridges, fitted
from accord.data.bridges import from_flwr_datasets, from_huggingface, from_torch

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def flwr() -> ModuleType:
    import flwr_datasets

    return flwr_datasets


def owned(fed: Federation) -> dict[str, list[int]]:
    """Every client's rows, whatever they are used for."""
    clients = {client: [fed.train[client], fed.heldout.get(client, torch.empty(0))] for client in fed.train}
    clients |= {client: [rows] for client, rows in fed.unseen.items()}
    return {client: sorted(torch.cat(rows).long().tolist()) for client, rows in clients.items()}


def raises(sentence: str) -> Any:
    return pytest.raises(AccordError, match=re.escape(sentence))


class Pairs(Dataset):
    """Whatever it is given, one at a time; remembers what it was asked for."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.asked = items, []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        self.asked.append(number)
        return self.items[number]


# ------------------------------------------------------------------------------------------------------ torch


def test_a_tensor_dataset_is_taken_without_a_copy() -> None:
    x, y = torch.randn(40, 3), torch.arange(40) % 4
    fed = from_torch(TensorDataset(x, y), clients=5, unseen=2)
    assert fed.x.data_ptr() == x.data_ptr() and fed.y.data_ptr() == y.data_ptr()
    assert (len(fed.train), len(fed.unseen), fed.name, fed.prepare) == (5, 2, "torch", AsIs())
    assert sorted(row for rows in owned(fed).values() for row in rows) == list(range(40))


def test_ten_clients_are_made_up_unless_said_and_split_options_reach_the_split() -> None:
    data = TensorDataset(torch.randn(200, 3), torch.arange(200) % 4)
    assert len(from_torch(data).train) == 10
    fed = from_torch(data, split="labels", clients=8, classes=1, noise=0.0)
    assert all(len(fed.y[rows].unique()) == 1 for rows in fed.train.values())
    plain = accord.data.deal(*data.tensors, split="labels", clients=8, classes=1, noise=0.0)
    assert fed.fingerprint() == plain.fingerprint()


def test_natural_clients_and_a_test_set() -> None:
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    more = TensorDataset(torch.randn(3, 2), torch.tensor([2, 1, 0]))
    fed = from_torch(TensorDataset(x, y), ["b", "a", "b", "c", "a", "b"], unseen=["c"], heldout=0.5, test=more)
    assert owned(fed) == {"a": [1, 4], "b": [0, 2, 5], "c": [3]}
    assert (list(fed.unseen), len(fed.heldout["a"]), len(fed.heldout["b"])) == (["c"], 1, 2)
    assert fed.test is not None and fed.test.tolist() == [6, 7, 8]
    assert torch.equal(fed.x, torch.cat([x, more.tensors[0]])) and torch.equal(fed.y, torch.cat([y, more.tensors[1]]))
    made_up = from_torch(TensorDataset(x, y), clients=2, test=more)
    assert made_up.test is not None and made_up.test.tolist() == [6, 7, 8]
    assert sorted(row for rows in owned(made_up).values() for row in rows) == list(range(6))


@pytest.mark.parametrize("form", [list, np.asarray, torch.tensor, pd.Series, tuple])
def test_owners_come_in_any_form(form: Any) -> None:
    data = TensorDataset(torch.zeros(4, 1), torch.zeros(4))
    assert owned(from_torch(data, form([10, 9, 10, 9]), heldout=0)) == {"9": [1, 3], "10": [0, 2]}
    if form is not torch.tensor:
        assert owned(from_torch(data, form(["ü", "a", "ü", "a"]), heldout=0)) == {"a": [1, 3], "ü": [0, 2]}


def test_items_are_asked_for_once_in_order_and_progress_is_told() -> None:
    x = np.random.default_rng(0).normal(size=(2300, 2, 3))
    data, told = Pairs([(x[i], i % 5) for i in range(2300)]), []
    fed = from_torch(data, clients=3, progress=lambda *news: told.append(news))
    assert data.asked == list(range(2300))
    assert told == [("reading samples", done, 2300) for done in (1000, 2000, 2300)]
    assert (fed.x.dtype, fed.y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(fed.x, torch.from_numpy(x).float()) and fed.y.tolist() == [i % 5 for i in range(2300)]
    part = from_torch(Subset(TensorDataset(fed.x, fed.y), [3, 1]), clients=2)
    assert torch.equal(part.x, fed.x[[3, 1]])


def test_items_of_every_form_are_the_same_samples() -> None:
    forms = [
        [1.5, 2.0],
        np.array([1.5, 2.0], dtype=">f4"),
        torch.tensor([1.5, 2.0], dtype=torch.float64, requires_grad=True),
    ]
    for form in forms:
        for zero, one in ((0, 1), (False, True), (np.uint8(0), np.uint8(1)), (torch.tensor(0), torch.tensor(1))):
            fed = from_torch(Pairs([(form, zero), (form, one)]), clients=2)
            assert fed.x.tolist() == [[1.5, 2.0]] * 2 and not fed.x.requires_grad
            assert fed.y.tolist() == [0, 1] and fed.y.dtype == torch.int64
    assert from_torch(Pairs([([0.0], 0.25)] * 2), clients=2).y.tolist() == [0.25, 0.25]


def test_pictures_become_bytes_and_are_scaled() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    fed = from_torch(Pairs([(Image.fromarray(one), 0) for one in pixels]), clients=2, heldout=0)
    assert torch.equal(fed.x, torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert isinstance(fed.prepare, Scale)
    read = fed.read(torch.arange(6))[0]
    assert torch.allclose(read.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert from_torch(TensorDataset(fed.x, fed.y), clients=2, prepare=Scale()).prepare == Scale()


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        yield torch.zeros(1), 0


DATA = TensorDataset(torch.zeros(4, 1), torch.arange(4))
BAD_TORCH = [
    ((Stream(),), {}, "the data must be a map-style Dataset, one with __len__ and __getitem__, got Stream"),
    ((DataLoader(DATA),), {}, "the data must be a map-style Dataset, one with __len__ and __getitem__, got DataLoader"),
    ((DATA,), {"test": Stream()}, "the test set must be a map-style Dataset"),
    ((Pairs([]),), {}, "the data has no samples: at least one is needed"),
    ((Pairs([([0.0], 0), [0.0]]),), {}, "sample 1 of the data must be a pair (x, y), got list"),
    ((TensorDataset(torch.zeros(3, 1)),), {}, "sample 0 of the data must be a pair (x, y), got tuple"),
    (
        (Pairs([([0.0], 0), ([0.0, 1.0], 1)]),),
        {},
        "sample 1 of the data holds 2 float32, but the first 1 float32: all must be alike",
    ),
    ((Pairs([([0.0], 0), ([1], 1)]),), {}, "sample 1 of the data holds 1 int64, but the first 1 float32"),
    ((Pairs([([0.0], 0), ([0.0], [1, 2])]),), {}, "label 1 of the data holds 2 int64, but the first one int64"),
    ((Pairs([([0.0], "cat")]),), {}, "label 0 of the data is str, not numbers of one shape"),
    ((Pairs([([[0.0], [1.0, 2.0]], 0)]),), {}, "sample 0 of the data is list, not numbers of one shape"),
    (
        (Pairs([(Image.new("I;16", (2, 2)), 0)]),),
        {},
        "sample 0 of the data is a picture of mode I;16, whose pixels are not bytes",
    ),
    (
        (DATA,),
        {"test": TensorDataset(torch.zeros(2, 3), torch.zeros(2))},
        "sample 0 of the test set holds 3 float32, but the first 1 float32",
    ),
    (
        (DATA,),
        {"test": TensorDataset(torch.zeros(2, 1), torch.zeros(2))},
        "label 0 of the test set holds one float32, but the first one int64",
    ),
    (
        (DATA, ["a", "b"]),
        {},
        "client must be one text or whole number for each of the 4 samples, got <U1 of shape (2,)",
    ),
    (
        (DATA, ["a", None, "b", "c"]),
        {},
        "client must be one text or whole number for each of the 4 samples, got object of shape (4,)",
    ),
    (
        (DATA, ["a", "b", "a", "b"]),
        {"clients": 2},
        "clients is about clients that are made up, but client says whose each sample is",
    ),
    ((DATA, ["a", "b", "a", "b"]), {"split": "labels"}, "split is about clients that are made up"),
    ((DATA, ["a", "b", "a", "b"]), {"alpha": 0.5}, "alpha is about clients that are made up"),
    (
        (DATA, ["a", "b", "a", "b"]),
        {"unseen": ["c"]},
        "unseen names client 'c', which is not among the 2 clients of torch: choose one of a, b",
    ),
    ((DATA,), {"clients": 2, "unseen": ["a"]}, "unseen must be a whole number of at least 0, got ['a']"),
    ((DATA,), {"clients": 5}, "clients must be at most the 4 samples, unseen ones included, got 5"),
    ((DATA,), {"clients": 2, "alpha": 0.5}, "split 'iid' takes no options, not alpha"),
    ((DATA,), {"clients": 2, "split": "natural"}, "there is no split 'natural'"),
]


@pytest.mark.parametrize(("given", "options", "sentence"), BAD_TORCH)
def test_what_torch_data_cannot_be_gets_a_sentence(given: tuple, options: dict, sentence: str) -> None:
    with raises(sentence):
        from_torch(*given, **options)


# ----------------------------------------------------------------------------------------------- Hugging Face


def written(count: int = 24, seed: int = 0, **columns: Any) -> tuple[datasets.Dataset, np.ndarray]:
    """Coloured pictures of 4 x 5 pixels with a writer and a named class, and their pixels."""
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 256, (count, 4, 5, 3), dtype=np.uint8)
    table = {"image": [Image.fromarray(one) for one in pixels], "writer": [f"w{i % 4}" for i in range(count)]}
    table |= {"label": [i % 3 for i in range(count)]} | columns
    return (
        datasets.Dataset.from_dict(table).cast_column("label", datasets.ClassLabel(names=["ox", "ant", "bee"])),
        pixels,
    )


def table(**columns: Any) -> datasets.Dataset:
    given = {"age": [30, 40, 50, 60], "pulse": [60.5, 70.5, 80.5, 90.5], "label": [0, 1, 0, 1]} | columns
    return datasets.Dataset.from_dict({name: values for name, values in given.items() if values is not None})


def test_pictures_owners_and_class_names() -> None:
    data, pixels = written()
    fed = from_huggingface(data, "writer", unseen=["w2"], heldout=0.5)
    assert fed.x.dtype == torch.uint8 and torch.equal(fed.x, torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert fed.y.tolist() == [i % 3 for i in range(24)] and fed.classes == ("ox", "ant", "bee")
    assert owned(fed) == {f"w{w}": list(range(w, 24, 4)) for w in range(4)}
    assert list(fed.unseen) == ["w2"] and {len(rows) for rows in fed.heldout.values()} == {3}
    assert fed.prepare == fitted(fed) and isinstance(fed.prepare, Scale)
    assert (fed.name, fed.test) == ("huggingface", None)


def test_rows_chosen_or_shuffled_before_are_read_in_that_order() -> None:
    data, pixels = written()
    chosen = data.shuffle(seed=1).select([5, 3, 11, 0])
    order = data.add_column("row", range(24)).shuffle(seed=1).select([5, 3, 11, 0])["row"][:]
    fed = from_huggingface(chosen, clients=2)
    assert torch.equal(fed.x, torch.from_numpy(pixels[order]).permute(0, 3, 1, 2))
    assert fed.y.tolist() == [row % 3 for row in order]


def test_a_test_set_of_its_own() -> None:
    data, pixels = written()
    more, pixels_more = written(6, seed=1)
    for client in ("writer", None):
        fed = from_huggingface(data, client, test=more, clients=None if client else 4)
        assert fed.test is not None and fed.test.tolist() == list(range(24, 30))
        assert torch.equal(fed.x, torch.from_numpy(np.concatenate([pixels, pixels_more])).permute(0, 3, 1, 2))
        assert len(owned(fed)) == 4 and sorted(row for rows in owned(fed).values() for row in rows) == list(range(24))


def test_grey_palette_and_black_and_white_pictures() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    data = datasets.Dataset.from_dict({"image": [Image.fromarray(one) for one in grey], "label": [0, 1]})
    assert torch.equal(from_huggingface(data, clients=2).x, torch.from_numpy(grey)[:, None])
    undecoded = data.cast_column("image", datasets.Image(decode=False))
    assert torch.equal(from_huggingface(undecoded, clients=2).x, torch.from_numpy(grey)[:, None])
    bits = datasets.Dataset.from_dict({"image": [Image.new("1", (3, 2), 1)] * 2, "label": [0, 1]})
    assert from_huggingface(bits, clients=2).x.unique().tolist() == [255]
    colours = Image.new("RGB", (2, 2), (255, 0, 9)).convert("P", palette=Image.Palette.ADAPTIVE)
    fed = from_huggingface(datasets.Dataset.from_dict({"image": [colours] * 2, "label": [0, 1]}), clients=2)
    assert fed.x[0].flatten(1).tolist() == [[255] * 4, [0] * 4, [9] * 4]


def test_numbers_are_features_unless_they_are_the_client_or_the_label() -> None:
    data = table(site=[7, 7, 12, 12], note=["a", "b", "c", "d"], ill=[True, False, True, True])
    fed = from_huggingface(data, "site", heldout=0)
    assert (
        fed.x.tolist() == [[30, 60.5, 1], [40, 70.5, 0], [50, 80.5, 1], [60, 90.5, 1]] and fed.x.dtype == torch.float32
    )
    assert owned(fed) == {"7": [0, 1], "12": [2, 3]} and fed.clients == ["7", "12"]
    assert isinstance(fed.prepare, Standardise) and fed.classes == ()
    assert torch.allclose(fed.read(torch.arange(4))[0].mean(0), torch.zeros(3), atol=1e-6)
    assert from_huggingface(data, "site", features=["pulse"]).x.flatten().tolist() == [60.5, 70.5, 80.5, 90.5]
    assert from_huggingface(data, "site", features="pulse", prepare=AsIs()).prepare == AsIs()
    assert from_huggingface(data, "site", features=["pulse", "age"]).x[0].tolist() == [60.5, 30]
    regression = from_huggingface(data, "site", label="pulse", features="age")
    assert regression.y.tolist() == [60.5, 70.5, 80.5, 90.5] and regression.y.dtype == torch.float32


def test_arrays_are_floats_of_their_shape() -> None:
    draw = np.random.default_rng(0).normal(size=(4, 2, 3))
    nested = datasets.Dataset.from_dict({"signal": draw.tolist(), "age": [1, 2, 3, 4], "label": [0, 1, 0, 1]})
    fixed = nested.cast_column("signal", datasets.Array2D((2, 3), "float32"))
    for data in (nested, fixed, nested.with_format("torch")):
        fed = from_huggingface(data, clients=2)
        assert (
            fed.x.dtype == torch.float32
            and torch.equal(fed.x, torch.from_numpy(draw).float())
            and fed.prepare == AsIs()
        )
    whole = nested.map(lambda row: {"signal": [[1, 2, 3], [4, 5, 2**40]]})
    assert from_huggingface(whole, clients=2).x[3].tolist() == [[1, 2, 3], [4, 5, 2**40]]
    flat = from_huggingface(datasets.Dataset.from_dict({"v": draw[:, 0].tolist(), "label": [0, 1, 0, 1]}), clients=2)
    assert flat.x.shape == (4, 3) and isinstance(flat.prepare, Standardise)


def test_labels_that_are_text_are_classes_in_order_also_those_of_the_test_set() -> None:
    data = table(label=["sick", "well", "sick", "dead"])
    fed = from_huggingface(data, clients=2, test=table(label=["well", "born", "born", "well"]))
    assert fed.classes == ("born", "dead", "sick", "well")
    assert fed.y.tolist() == [2, 3, 2, 1, 3, 0, 0, 3]
    truth = from_huggingface(table(label=[True, False, False, True]), clients=2)
    assert truth.y.tolist() == [1, 0, 0, 1]


def test_clients_that_are_class_labels_go_by_their_names() -> None:
    data = table(site=[1, 0, 1, 0]).cast_column("site", datasets.ClassLabel(names=["rome", "oslo"]))
    assert owned(from_huggingface(data, "site")) == {"oslo": [0, 2], "rome": [1, 3]}


def test_progress_is_told_by_row() -> None:
    told: list = []
    big = datasets.Dataset.from_dict({"a": np.arange(2500.0), "label": np.arange(2500) % 2})
    fed = from_huggingface(big, clients=4, progress=lambda *news: told.append(news), prepare=AsIs())
    assert told == [("reading samples", done, 2500) for done in (1000, 2000, 2500)]
    assert torch.equal(fed.x[:, 0], torch.arange(2500.0))


def test_what_is_read_trains() -> None:
    data, _ = written(60)
    fed = from_huggingface(data, "writer", unseen=1)
    run = accord.fit(accord.models.logistic(features=60, classes=3), fed, rounds=1, lr=0.01)
    assert "unseen" in str(run)


PICTURES = written(4)[0]
MIXED = datasets.Dataset.from_dict({"image": [Image.new("L", (4, 4)), Image.new("L", (5, 4))], "label": [0, 1]})
NO_PICTURE = datasets.Dataset.from_dict(
    {"image": [Image.new("L", (4, 4)), None], "label": [0, 1]},
    features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
)
BROKEN = datasets.Dataset.from_dict({"image": [{"bytes": b"no picture", "path": None}], "label": [0]}).cast_column(
    "image", datasets.Image()
)
BAD_TABLES = [
    (
        datasets.DatasetDict(train=table(), test=table()),
        {},
        "the data is a DatasetDict of the splits train, test: pick one, such as dataset['train']",
    ),
    (
        table().to_iterable_dataset(),
        {},
        "the data is a stream, and clients are rows of a whole dataset: load it without streaming=True",
    ),
    ([1, 2], {}, "the data must be a datasets.Dataset, got list"),
    (
        table(),
        {"test": datasets.DatasetDict(test=table())},
        "the test set is a DatasetDict of the splits test: pick one",
    ),
    (table().select([]), {}, "the data has no rows: at least one is needed"),
    (
        table().with_transform(lambda rows: rows),
        {},
        "the data has a transform, which is not applied when all is read at once",
    ),
    (table(), {"label": "target"}, "the data has no column target: its columns are age, pulse, label"),
    (table(), {"client": "site"}, "the data has no column site: its columns are age, pulse, label"),
    (
        table(),
        {"features": "height"},
        "features names column height, which is not there: the columns are age, pulse, label",
    ),
    (
        table(),
        {"features": ["age", "label"]},
        "features names column label, which is the label or the client: a model must not read it",
    ),
    (table(), {"client": "age", "features": ["age"]}, "features names column age, which is the label or the client"),
    (table(), {"features": []}, "features must name at least one column, and none twice, got []"),
    (
        table(),
        {"features": ["age", "age"]},
        "features must name at least one column, and none twice, got ['age', 'age']",
    ),
    (
        table(note=["a"] * 4),
        {"features": ["note"]},
        "column note holds text: features are columns of numbers or arrays, or one of pictures",
    ),
    (
        PICTURES.add_column("age", [1] * 4),
        {"features": ["image", "age"]},
        "column image holds pictures: features are columns of numbers or arrays, or one",
    ),
    (table(a=[[1.0]] * 4, b=[[1.0]] * 4), {}, "features must say which column holds the samples: a or b"),
    (
        table(age=None, pulse=None, note=["a"] * 4),
        {},
        "no column holds pictures, arrays or numbers beside label: the others are note (text)",
    ),
    (
        table(label=[[0.5]] * 4),
        {"features": "age"},
        "column label holds arrays: a label is a class (a whole number, text or a ClassLabel), a list of whole",
    ),
    (
        table(label=[0, None, 1, 1]),
        {},
        "row 1 of the data has nothing in column label: fill it in or leave the row out",
    ),
    (table(label=["a", "b", None, "a"]), {}, "row 2 of the data has nothing in column label"),
    (
        table(label=[0, 1, -1, 0]),
        {},
        "row 2 of the data has label -1: classes count from 0 on, and -1 often stands for no label",
    ),
    (table(label=[0.5, float("nan"), 1.0, 1.0]), {}, "row 1 of the data has a number that is missing, infinite or NaN"),
    (table(site=["a", None, "b", "b"]), {"client": "site"}, "row 1 of the data has nothing in column site"),
    (table(), {"client": "pulse"}, "column pulse of the data holds numbers: a client is text or a whole number"),
    (
        table(age=[30, None, 50, 60]),
        {},
        "row 1 of the data has a number that is missing, infinite or NaN in column age: fill it in",
    ),
    (table(ill=[True, False, None, True]), {}, "row 2 of the data has a number that is missing, infinite or NaN"),
    (table(pulse=[1.0, 2.0, 1e300, 4.0]), {}, "row 2 of the data has a number that is missing, infinite or NaN"),
    (
        table(v=[[1.0], [1.0], [1.0, 2.0], [1.0]]),
        {},
        "sample 2 of the data holds 2 float32, but the first 1 float32: all must be alike",
    ),
    (table(v=[[1.0, 2.0], [1.0, None]] * 2), {}, "row 1 of the data has a number that is missing, infinite or NaN"),
    (
        MIXED,
        {},
        (
            "sample 1 of the data holds 1 x 4 x 5 uint8, but the first 1 x 4 x 4 uint8: all must be alike, so resize or"
            " convert them first"
        ),
    ),
    (NO_PICTURE, {}, "sample 1 of the data is nothing, not numbers of one shape"),
    (BROKEN, {}, "a picture in or after row 0 of the data cannot be decoded"),
    (table(), {"test": table(pulse=None)}, "the test set has no column pulse: its columns are age, label"),
    (
        table(),
        {"test": table(label=["a", "b", "a", "b"])},
        "column label of the test set is Value('string'), but that of the data Value('int64')",
    ),
    (
        PICTURES,
        {"test": PICTURES.cast_column("label", datasets.ClassLabel(names=["ant", "bee", "ox"]))},
        "they must be alike",
    ),
    (PICTURES, {"client": "writer", "clients": 2}, "clients is about clients that are made up"),
]


@pytest.mark.parametrize(("data", "options", "sentence"), BAD_TABLES)
def test_what_a_dataset_cannot_be_gets_a_sentence(data: Any, options: dict, sentence: str) -> None:
    with raises(sentence):
        from_huggingface(data, **({"clients": 2} if "client" not in options else {}) | options)


# ----------------------------------------------------------------------------------------------------- Flower


def folder(path: Path) -> Path:
    """Two splits as Parquet files, whose column `row` says which row is which."""
    for split, count in (("train", 60), ("test", 15)):
        labels = ["ant" if row % 3 else "bee" for row in range(count)]
        data = {
            "row": np.arange(float(count)),
            "more": np.ones(count),
            "ward": [row % 5 for row in range(count)],
            "label": labels,
        }
        datasets.Dataset.from_dict(data).to_parquet(path / f"{split}.parquet")
    return path


def test_every_partition_of_a_federated_dataset_is_a_client(flwr: ModuleType, tmp_path: Path) -> None:
    partitioner = flwr.partitioner.DirichletPartitioner(
        num_partitions=4, partition_by="label", alpha=5.0, min_partition_size=3
    )
    source = flwr.FederatedDataset(
        dataset=str(folder(tmp_path)), partitioners={"train": partitioner}, cache_dir=str(tmp_path)
    )
    fed = from_flwr_datasets(source, features=["row", "more"], test="test", unseen=1, heldout=0.2)
    assert sorted(owned(fed)) == [f"partition-{number:03d}" for number in range(4)]
    assert (len(fed.train), len(fed.unseen), fed.classes, fed.name) == (3, 1, ("ant", "bee"), "flower")
    for number in range(4):
        part = source.load_partition(number, "train")
        rows = owned(fed)[f"partition-{number:03d}"]
        assert fed.x[rows, 0].tolist() == part["row"][:]
        assert [fed.classes[label] for label in fed.y[rows].tolist()] == part["label"][:]
    assert fed.test is not None and fed.x[fed.test, 0].tolist() == source.load_split("test")["row"][:]
    assert isinstance(fed.prepare, Standardise)
    assert sorted(fed.x[: len(fed.y) - 15, 0].tolist()) == list(range(60))  # every row of the split, once


def test_a_partitioner_on_a_dataset_in_memory(flwr: ModuleType) -> None:
    data, pixels = written(24)
    partitioner = flwr.partitioner.NaturalIdPartitioner(partition_by="writer")
    partitioner.dataset = data
    told: list = []
    fed = from_flwr_datasets(
        partitioner, unseen=["partition-001"], test=written(5, seed=1)[0], progress=lambda *news: told.append(news)
    )
    for number in range(4):
        rows = owned(fed)[f"partition-{number:03d}"]
        assert torch.equal(fed.x[rows], torch.from_numpy(pixels[number::4]).permute(0, 3, 1, 2))
    assert list(fed.unseen) == ["partition-001"] and fed.classes == ("ox", "ant", "bee")
    assert fed.test is not None and fed.test.tolist() == list(range(24, 29))
    assert told[-1] == ("reading samples", 29, 29) and isinstance(fed.prepare, Scale)


def test_the_column_of_natural_ids_is_no_feature(flwr: ModuleType) -> None:
    partitioner = flwr.partitioner.NaturalIdPartitioner(partition_by="site")
    partitioner.dataset = table(site=[7, 8, 7, 8])
    assert from_flwr_datasets(partitioner, heldout=0).x.tolist() == [[30, 60.5], [50, 80.5], [40, 70.5], [60, 90.5]]
    more = flwr.partitioner.IidPartitioner(num_partitions=1002)
    more.dataset = datasets.Dataset.from_dict({"a": np.zeros(1002), "label": np.zeros(1002, dtype=int)})
    assert list(from_flwr_datasets(more).train)[::1001] == ["partition-0000", "partition-1001"]


def test_what_flower_cannot_give_gets_a_sentence(flwr: ModuleType, tmp_path: Path) -> None:
    iid = flwr.partitioner.IidPartitioner
    with raises("source must be a FederatedDataset or a Partitioner of flwr_datasets, got Dataset"):
        from_flwr_datasets(table())
    with raises("the partitioner has no dataset to cut: set partitioner.dataset first"):
        from_flwr_datasets(iid(num_partitions=2))
    path = folder(tmp_path)
    source = flwr.FederatedDataset(dataset=str(path), partitioners={"train": 3}, cache_dir=str(path))
    with raises("split 'test' has no partitioner: those that have one are train"):
        from_flwr_datasets(source, split="test")
    with raises("flwr-datasets cannot load or cut these data: The given split: 'validation' is not present"):
        from_flwr_datasets(source, test="validation")
    with raises("flwr-datasets cannot load or cut these data: Couldn't reach 'nobody/nothing'"):
        from_flwr_datasets(
            flwr.FederatedDataset(dataset="nobody/nothing", partitioners={"train": 3}, cache_dir=str(path))
        )
    cut = iid(num_partitions=2)
    cut.dataset = table()
    with raises("a partitioner has no split 'test' to test on: give test as a datasets.Dataset"):
        from_flwr_datasets(cut, test="test")
    with raises("partition-000 has no column target: its columns are age, pulse, label"):
        from_flwr_datasets(cut, label="target")
    too_many = iid(num_partitions=5)
    too_many.dataset = table()
    with raises("flwr-datasets cannot load or cut these data: Index 4 out of range for dataset of size 4."):
        from_flwr_datasets(too_many)

    class Greedy(flwr.partitioner.Partitioner):
        num_partitions = 2

        def load_partition(self, partition_id: int) -> datasets.Dataset:
            return self.dataset.select([] if partition_id else range(4))

    empty = Greedy()
    empty.dataset = table()
    with raises("partition-001 has no rows: at least one is needed"):
        from_flwr_datasets(empty)
    upright = flwr.partitioner.VerticalSizePartitioner(
        partition_sizes=[1, 1], active_party_columns="label", active_party_columns_mode="add_to_all"
    )
    upright.dataset = table()
    with raises("partition-001 has no column "):
        from_flwr_datasets(upright)


# ---------------------------------------------------------------------------- libraries, examples, docstrings


def test_a_missing_library_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = table()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with raises('PIL is needed to read these data and is not installed: pip install "accord-fl[huggingface]"'):
        from_huggingface(PICTURES, clients=2)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with raises('datasets is needed to read these data and is not installed: pip install "accord-fl[huggingface]"'):
        from_huggingface(numbers, clients=2)
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with raises(
        'flwr_datasets is needed to read these data and is not installed: pip install "accord-fl[flower-data]"'
    ):
        from_flwr_datasets(numbers)


def test_importing_imports_no_library_and_torch_data_need_none() -> None:
    code = """
import sys
for name in ("datasets", "flwr_datasets", "PIL", "pyarrow", "pandas"):
    sys.modules[name] = None
import torch, accord
from accord.data.bridges import from_torch
assert len(from_torch([(torch.zeros(2), 0)] * 4, clients=2).train) == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_docstrings_are_right(flwr: ModuleType) -> None:
    done = doctest.testmod(bridges, extraglobs={"datasets": datasets, "flwr_datasets": flwr})
    assert (done.failed, done.attempted) == (0, 10)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["from_torch", "from_huggingface", "from_flwr_datasets", "from_memmap"])
def test_examples_run(example: str, tmp_path: Path) -> None:
    places = {
        "HOME": str(tmp_path),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_DATASETS_CACHE": str(tmp_path / "hf" / "datasets"),
    }
    script = EXAMPLES / f"{example}.py"
    done = subprocess.run(
        [sys.executable, script], env=os.environ | places, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^unseen +\d+ +[\d,]+ +\d+\.\d\d ", done.stdout, re.MULTILINE), done.stdout
    assert len(script.read_text().splitlines()) < 50
