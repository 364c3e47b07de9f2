"""FEMNIST from LEAF's and from TFF's files, made here in their form, and every way in which they may be wrong."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accord.data.readers.femnist import CLASSES, only_digits, read_femnist, read_leaf, read_tff
from accord.data.samples import Samples
from conftest import sentence

h5py = pytest.importorskip("h5py", reason="TFF's files are HDF5: pip install h5py")


def picture(byte: int) -> np.ndarray:
    """784 bytes, the first of which is given."""
    return (np.arange(784) + byte).astype(np.uint8)


def user(*rows: tuple[int, int]) -> dict[str, Any]:
    """A user's data as LEAF writes it, from (first byte, label)."""
    return {"x": [(picture(byte) / 255).tolist() for byte, _ in rows], "y": [label for _, label in rows]}


def leaf(path: Path, **users: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [len(data["y"]) for data in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": users}))
    return path


def tff(path: Path, **users: list[tuple[int, int]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        examples = file.create_group("examples")
        for name, rows in users.items():
            own = examples.create_group(name)
            own["pixels"] = np.stack([picture(byte).reshape(28, 28) / np.float32(255) for byte, _ in rows]).astype(
                np.float32
            )
            own["label"] = np.array([label for _, label in rows], dtype=np.int32)
    return path


def whose(samples: Samples) -> list[tuple[str, str, int]]:
    """(owner, class, first byte) of every row."""
    assert samples.owner is not None
    rows = zip(samples.owner.tolist(), samples.y.tolist(), samples.x[:, 0, 0, 0].tolist(), strict=True)
    return [(samples.owners[owner], samples.classes[kind], byte) for owner, kind, byte in rows]


# ------------------------------------------------------------------------------------------------------- LEAF


@pytest.mark.parametrize("below", ["", "femnist/data/all_data"])
def test_leaf_files_are_read_in_the_order_of_their_numbers(tmp_path: Path, below: str) -> None:
    leaf(tmp_path / below / "all_data_10.json", f0003_07=user((9, 9)))
    leaf(tmp_path / below / "all_data_2.json", f0000_14=user((0, 10), (255, 61)), f0001_41=user((7, 36)))
    asked: list[tuple[str, int, int | None]] = []
    samples = read_leaf(tmp_path, lambda *event: asked.append(event))
    assert whose(samples) == [("f0000_14", "A", 0), ("f0000_14", "z", 255), ("f0001_41", "a", 7), ("f0003_07", "9", 9)]
    assert samples.test is None
    assert asked == [("reading LEAF's files", done, 2) for done in (0, 1, 2)]
    assert len(samples.classes) == 62


def test_leaf_pixels_are_the_bytes_they_came_from(tmp_path: Path) -> None:
    leaf(tmp_path / "all_data_0.json", u=user((0, 0), (1, 1), (130, 2)))
    samples = read_femnist(tmp_path)
    assert samples.x.shape == (3, 1, 28, 28)
    assert samples.x.dtype == torch.uint8
    assert samples.y.dtype == torch.int64
    assert np.array_equal(samples.x.numpy().reshape(3, 784), [picture(0), picture(1), picture(130)])


def test_leaf_halves_share_their_owners_and_the_whole_set_comes_first(tmp_path: Path) -> None:
    data = tmp_path / "data"
    leaf(data / "test" / "all_data_0_niid_0_keep_0_test_9.json", b=user((5, 5)), a=user((6, 6)))
    leaf(data / "train" / "all_data_11_niid_0_keep_0_train_9.json", c=user((3, 3)))
    leaf(data / "train" / "all_data_0_niid_0_keep_0_train_9.json", a=user((1, 1), (2, 2)), b=user((4, 4)))
    leaf(data / "sampled_data" / "all_data_0_niid_1.json", a=user((8, 8)))
    samples = read_leaf(tmp_path)
    assert whose(samples) == [("a", "1", 1), ("a", "2", 2), ("b", "4", 4), ("c", "3", 3), ("b", "5", 5), ("a", "6", 6)]
    assert samples.test is not None
    assert samples.test.tolist() == [4, 5]
    assert samples.owners == ("a", "b", "c")
    assert read_leaf(data / "train").test is None
    assert whose(read_leaf(data / "sampled_data")) == [("a", "8", 8)]
    leaf(data / "all_data" / "all_data_0.json", whole=user((7, 7)))
    assert whose(read_leaf(tmp_path)) == [("whole", "7", 7)]


def test_leaf_users_without_rows_are_left_out(tmp_path: Path) -> None:
    path = leaf(tmp_path / "all_data_0.json", a=user(), b=user((1, 1)), c=user((2, 2)))
    content = json.loads(path.read_text())
    # LEAF leaves the data of users whom it took off the list
    path.write_text(json.dumps({**content, "users": ["a", "b"]}))
    assert read_leaf(tmp_path).owners == ("b",)


def spoilt(**changes: Any) -> dict[str, Any]:
    return user((0, 0), (1, 1)) | changes


SPOILT = [
    (spoilt(y=[0]), "has 2 pictures in x but 1 labels in y: each picture needs one label"),
    (spoilt(y=[0, 62]), "has a label of 62: labels are whole numbers from 0 to 61"),
    (spoilt(y=[0, -1]), "has a label of -1: labels are whole numbers from 0 to 61"),
    (spoilt(y=[0, 0.5]), "has labels that are not whole numbers"),
    (spoilt(y=[0, [1]]), "has labels that are not whole numbers"),
    (spoilt(y=["0", "1"]), "has labels that are not whole numbers"),
    (spoilt(x=[[0.5] * 783] * 2), "has pictures of 783 pixels: 784 (28 x 28) are right"),
    (spoilt(x=[0.5, 0.5]), "has pictures of 1 pixels: 784 (28 x 28) are right"),
    (spoilt(x=[[0.5] * 783, [0.5] * 784]), "has pictures of different lengths, or not of numbers: each is 784 numbers"),
    (spoilt(x=[["ink"] * 784] * 2), "has pictures of different lengths, or not of numbers: each is 784 numbers"),
    (spoilt(x=[[10**400] * 784] * 2), "has pictures of different lengths, or not of numbers: each is 784 numbers"),
    (spoilt(x=[[0.5] * 784, [1.5] * 784]), "has a pixel of 1.5: pixels go from 0 to 1"),
    (spoilt(x=[[0.5] * 784, [-0.25] * 784]), "has a pixel of -0.25: pixels go from 0 to 1"),
    (spoilt(x=[[0.5] * 784, [float("nan")] * 784]), "has a pixel of nan: pixels go from 0 to 1"),
    (spoilt(x="none"), "has no lists x and y under user_data"),
    ({"x": []}, "has no lists x and y under user_data"),
    ([1], "has no lists x and y under user_data"),
]


@pytest.mark.parametrize(("data", "said"), SPOILT)
def test_a_spoilt_user_of_leaf_is_named(tmp_path: Path, data: Any, said: str) -> None:
    path = tmp_path / "all_data_0.json"
    path.write_text(json.dumps({"users": ["good", "f0001_41"], "user_data": {"good": user((0, 0)), "f0001_41": data}}))
    with sentence(f"user f0001_41 in {path} {said}"):
        read_leaf(tmp_path)


NOT_LEAF = [
    ('{"users": ["a"], "user_data": {"a": {"x": [[0.1, 0.2', "is cut short or no JSON file"),
    ("", "is cut short or no JSON file"),
    ("[" * 100_000, "is cut short or no JSON file"),
    ("[1, 2]", "is not one of LEAF's files: those have the keys users, num_samples and user_data"),
    ('{"users": "a", "user_data": {}}', "is not one of LEAF's files"),
    ('{"users": ["a"], "num_samples": [1]}', "is not one of LEAF's files"),
    ('{"users": ["a"], "user_data": {}}', "has no lists x and y under user_data"),
]


@pytest.mark.parametrize(("text", "said"), NOT_LEAF)
def test_a_file_that_is_not_leafs_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "all_data_0.json").write_text(text)
    with sentence(f"{tmp_path / 'all_data_0.json'} {said}"):
        read_femnist(tmp_path)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "all_data_0.json").write_bytes(b'{"users": ["\xff\xfe')
    with sentence(str(tmp_path / "all_data_0.json"), "is cut short or no JSON file"):
        read_leaf(tmp_path)


def test_leaf_without_users_or_with_one_twice(tmp_path: Path) -> None:
    leaf(tmp_path / "mine" / "all_data_0.json")
    with sentence(f"the FEMNIST files in {tmp_path} hold no users"):
        read_leaf(tmp_path)
    first = leaf(tmp_path / "mine" / "all_data_0.json", a=user((1, 1)))
    second = leaf(tmp_path / "yours" / "all_data_0.json", a=user((1, 1)))
    with sentence(f"user a is in {first} and again in {second}: a user's rows belong in one file"):
        read_leaf(tmp_path)


# -------------------------------------------------------------------------------------------------------- TFF


def tff_pair(folder: Path, form: str = "fed_emnist") -> Path:
    tff(folder / f"{form}_train.h5", f0000_14=[(0, 1), (255, 2)], f0001_41=[(3, 3)])
    tff(folder / f"{form}_test.h5", f0000_14=[(4, 4)], f0001_41=[(5, 5)], f0009_00=[(6, 6)])
    return folder


@pytest.mark.parametrize("below", ["", "datasets"])
def test_tff_files_share_their_owners(tmp_path: Path, below: str) -> None:
    tff_pair(tmp_path / below)
    asked: list[tuple[str, int, int | None]] = []
    samples = read_femnist(tmp_path, lambda *event: asked.append(event))
    assert [row[0] for row in whose(samples)] == [
        "f0000_14",
        "f0000_14",
        "f0001_41",
        "f0000_14",
        "f0001_41",
        "f0009_00",
    ]
    assert samples.y.tolist() == [1, 2, 3, 4, 5, 6]
    assert samples.test is not None
    assert samples.test.tolist() == [3, 4, 5]
    assert np.array_equal(samples.x[1].flatten().numpy(), picture(255))
    assert samples.x.shape == (6, 1, 28, 28)
    assert asked[-1] == ("reading fed_emnist_test.h5", 3, 3)


def test_tff_digits_alone_have_ten_classes(tmp_path: Path) -> None:
    tff_pair(tmp_path, "fed_emnist_digitsonly")
    assert read_tff(tmp_path).classes == tuple("0123456789")
    tff(tmp_path / "fed_emnist_digitsonly_test.h5", f0000_14=[(0, 10)])
    with sentence(
        "user f0000_14", "fed_emnist_digitsonly_test.h5 has a label of 10: labels are whole numbers from 0 to 9"
    ):
        read_tff(tmp_path)
    tff_pair(tmp_path)
    assert read_tff(tmp_path).classes == CLASSES  # the whole set comes first


def test_tff_labels_in_a_dimension_of_their_own(tmp_path: Path) -> None:
    tff_pair(tmp_path)
    with h5py.File(tmp_path / "fed_emnist_test.h5", "a") as file:
        del file["examples/f0000_14/label"]
        file["examples/f0000_14/label"] = np.array([[8]], dtype=np.int32)
    assert read_tff(tmp_path).y.tolist() == [1, 2, 3, 8, 5, 6]


def replaced(key: str, value: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with h5py.File(path, "a") as file:
            del file[key]
            if value is not None:
                file[key] = value

    return change


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


_FORM = "is damaged or not in the form of TFF's FEMNIST files: group examples"
SPOILT_TFF = [
    (cut, "fed_emnist_train.h5 is damaged and cannot be read"),
    (lambda path: path.write_bytes(b"<html>"), "fed_emnist_train.h5 is damaged and cannot be read"),
    (replaced("examples", None), f"fed_emnist_train.h5 {_FORM}"),
    (replaced("examples", np.zeros(3)), f"fed_emnist_train.h5 {_FORM}"),
    (replaced("examples/f0000_14/label", None), f"fed_emnist_train.h5 {_FORM}"),
    (replaced("examples/f0000_14/label", np.int32(1)), f"fed_emnist_train.h5 {_FORM}"),
    (replaced("examples/f0000_14/label", np.array([1], dtype=np.int32)), "has 2 pictures in x but 1 labels in y"),
    (replaced("examples/f0000_14/label", np.array([1, 62], dtype=np.int32)), "has a label of 62"),
    (replaced("examples/f0000_14/label", np.array([1.0, 2.0])), "has labels that are not whole numbers"),
    (replaced("examples/f0000_14/pixels", np.zeros((2, 27, 28), dtype=np.float32)), "has pictures of 756 pixels"),
    (
        replaced("examples/f0000_14/pixels", np.full((2, 28, 28), 255, dtype=np.float32)),
        "has a pixel of 255: pixels go from 0 to 1",
    ),
]


@pytest.mark.parametrize(("change", "said"), SPOILT_TFF)
def test_a_spoilt_tff_file_is_named(tmp_path: Path, change: Callable[[Path], None], said: str) -> None:
    change(tff_pair(tmp_path) / "fed_emnist_train.h5")
    with sentence("fed_emnist_train.h5", said.removeprefix("fed_emnist_train.h5")):
        read_tff(tmp_path)


def test_tff_without_its_test_file_or_without_users(tmp_path: Path) -> None:
    (tff_pair(tmp_path) / "fed_emnist_test.h5").unlink()
    with sentence(f"{tmp_path / 'fed_emnist_test.h5'} is missing: TFF's training and test files go together"):
        read_tff(tmp_path)
    for part in ("train", "test"):
        tff(tmp_path / f"fed_emnist_{part}.h5")
    with sentence("hold no users"):
        read_tff(tmp_path)


def test_without_h5py_the_way_to_get_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tff_pair(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with sentence("fed_emnist_train.h5 is read with h5py, which is not installed", 'pip install "accord-fl[femnist]"'):
        read_femnist(tmp_path)


# ----------------------------------------------------------------------------------------------------- either


def test_a_folder_without_femnist_says_what_was_looked_for(tmp_path: Path) -> None:
    leaf(tmp_path / "test" / "all_data_0_test_9.json", a=user((1, 1)))  # a test half alone
    with sentence(
        f"{tmp_path} holds no FEMNIST",
        "LEAF's all_data_*.json or its folders train and test",
        "TFF's fed_emnist_train.h5",
    ):
        read_femnist(tmp_path)
    with sentence(f"{tmp_path} holds no FEMNIST of LEAF's", "all_data_*.json"):
        read_leaf(tmp_path)
    with sentence(f"{tmp_path} holds no FEMNIST of TFF's", "fed_emnist_train.h5"):
        read_tff(tmp_path)
    for read in (read_femnist, read_leaf, read_tff):
        with sentence(f"{tmp_path / 'nowhere'} is not a folder"):
            read(tmp_path / "nowhere")


def test_only_digits_drops_letters_and_writers_without_digits() -> None:
    samples = Samples(
        torch.arange(7).view(7, 1),
        torch.tensor([3, 40, 61, 9, 0, 10, 5]),
        test=torch.tensor([2, 3, 4]),
        owner=torch.tensor([2, 2, 1, 0, 2, 1, -1]),
        owners=("a", "b", "c"),
        apart=frozenset("ab"),
        populations={"a": "old", "b": "old", "c": "new"},
        classes=CLASSES,
    )
    digits = only_digits(samples)
    assert digits.x.flatten().tolist() == [0, 3, 4, 6]
    assert digits.y.tolist() == [3, 9, 0, 5]
    assert digits.test is not None and digits.owner is not None
    assert digits.test.tolist() == [1, 2]
    assert digits.owners == ("a", "c")
    assert digits.owner.tolist() == [1, 0, 1, -1]
    assert digits.apart == {"a"}
    assert digits.populations == {"a": "old", "c": "new"}
    assert digits.classes == tuple("0123456789")
    with sentence("no row shows a digit"):
        only_digits(Samples(torch.zeros(1, 1), torch.tensor([10])))
