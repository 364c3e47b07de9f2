"""FEMNIST, handwritten characters by writer, from LEAF's JSON files or from TensorFlow Federated's HDF5 files.

Caldas et al., "LEAF: A Benchmark for Federated Settings" (2018). In both forms a pixel is a number from 0 (ink) to 1
(paper), the other way round than in MNIST, and classes are the digits, then the upper-case, then the lower-case
letters.
"""

import json
import re
import string
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accord.core.errors import AccordError
from accord.data.cache import Progress, with_progress
from accord.data.files import as_folder
from accord.data.samples import Samples

CLASSES = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
DIGITS = CLASSES[:10]
SIDE = 28
TFF_FORMS = {"fed_emnist": CLASSES, "fed_emnist_digitsonly": DIGITS}  # the set with more in it is looked for first
LEAF = "LEAF's all_data_*.json or its folders train and test"
TFF = "TFF's fed_emnist_train.h5 or fed_emnist_digitsonly_train.h5, unpacked from their .tar.bz2"


def read_femnist(folder: str | Path, progress: Progress | None = None) -> Samples:
    """FEMNIST in whichever form it lies in the folder or below; LEAF's, if both are there."""
    folder = as_folder(folder)
    if _leaf_files(folder):
        return read_leaf(folder, progress)
    if _tff_files(folder):
        return read_tff(folder, progress)
    raise AccordError(f"{folder} holds no FEMNIST: looked in it and below for {LEAF}, and for {TFF}")


def read_leaf(folder: str | Path, progress: Progress | None = None) -> Samples:
    """LEAF's files, in the folder or below it.

    `all_data_<number>.json` are the whole set and come first; without them, `train/*.json` and `test/*.json`, whose
    test rows have their owners too; without those, the other `all_data_*.json` that LEAF's sampling leaves.
    """
    folder = as_folder(folder)
    if not (files := _leaf_files(folder)):
        raise AccordError(f"{folder} holds no FEMNIST of LEAF's: looked in it and below for {LEAF}")
    gathered, seen = _Gathered(), dict[tuple[str, bool], Path]()
    for _, (path, test) in with_progress(progress, "reading LEAF's files", files):
        users, data = _leaf(path)
        for user in users:
            if other := seen.get((user, test)):
                raise AccordError(f"user {user} is in {other} and again in {path}: a user's rows belong in one file")
            seen[user, test] = path
            where = f"user {user} in {path}"
            samples = data.get(user)
            if (
                not isinstance(samples, dict)
                or not isinstance(samples.get("x"), list)
                or not isinstance(samples.get("y"), list)
            ):
                raise AccordError(
                    f"{where} has no lists x and y under user_data: the file is not one of LEAF's FEMNIST files"
                )
            gathered.add(user, test, samples["x"], samples["y"], where, CLASSES)
        del data  # the next file is not to be read before this one has left memory
    return gathered.samples(CLASSES, folder)


def read_tff(folder: str | Path, progress: Progress | None = None) -> Samples:
    """TFF's `fed_emnist_train.h5` and `fed_emnist_test.h5`, or the digits-only pair; a writer has rows in both
    files."""
    folder = as_folder(folder)
    if not (pair := _tff_files(folder)):
        raise AccordError(f"{folder} holds no FEMNIST of TFF's: looked in it and below for {TFF}")
    try:
        import h5py
    except ImportError:
        raise AccordError(
            f'{pair[0]} is read with h5py, which is not installed: pip install "accord-fl[femnist]"'
        ) from None
    classes, gathered = TFF_FORMS[pair[0].name.removesuffix("_train.h5")], _Gathered()
    for path, test in zip(pair, (False, True), strict=True):
        if not path.is_file():
            raise AccordError(f"{path} is missing: TFF's training and test files go together")
        try:
            with h5py.File(path, "r") as file:
                clients = file["examples"]
                for _, (user, samples) in with_progress(progress, f"reading {path.name}", clients.items(), every=50):
                    labels = samples["label"][()]
                    # one label per picture, which some versions of the file wrap in a dimension of its own
                    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
                    gathered.add(user, test, samples["pixels"][()], labels, f"user {user} in {path}", classes)
        except (AttributeError, IndexError, KeyError, TypeError):
            form = "group examples, in it a group for each user with pixels and label"
            raise AccordError(f"{path} is damaged or not in the form of TFF's FEMNIST files: {form}") from None
        except (OSError, RuntimeError) as error:
            raise AccordError(f"{path} is damaged and cannot be read: {' '.join(str(error).split())}") from None
    return gathered.samples(classes, folder)


def only_digits(samples: Samples) -> Samples:
    """The rows of classes 0 to 9; a writer without any is left out."""
    kept = samples.y < len(DIGITS)
    if not kept.any():
        raise AccordError("no row shows a digit: classes 0 to 9 are the digits")
    place = kept.cumsum(0) - 1  # where a kept row goes
    changes: dict[str, Any] = {"x": samples.x[kept], "y": samples.y[kept], "classes": samples.classes[: len(DIGITS)]}
    if samples.test is not None:
        changes["test"] = place[samples.test[kept[samples.test]]]
    if samples.owner is not None:
        owner = samples.owner[kept]
        having = owner[owner >= 0].unique()  # sorted, so owners keep their order
        owners = tuple(samples.owners[number] for number in having.tolist())
        changes |= {
            "owner": torch.where(owner >= 0, torch.searchsorted(having, owner), owner),
            "owners": owners,
            "apart": samples.apart & set(owners),
            "populations": {name: group for name, group in samples.populations.items() if name in set(owners)},
        }
    return replace(samples, **changes)


@dataclass
class _Gathered:
    """Rows as they come in, a user of a file at a time."""

    x: list[np.ndarray] = field(default_factory=list)
    y: list[np.ndarray] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)  # of each piece
    test: list[bool] = field(default_factory=list)  # whether each piece is test rows
    owners: dict[str, int] = field(default_factory=dict)

    def add(self, user: str, test: bool, pixels: Any, labels: Any, where: str, classes: tuple[str, ...]) -> None:
        if len(pixels) != len(labels):
            raise AccordError(
                f"{where} has {len(pixels)} pictures in x but {len(labels)} labels in y: each picture needs one label"
            )
        if not len(labels):
            return  # LEAF keeps the names of users who have lost all their rows
        self.x.append(_pixels(pixels, where))
        self.y.append(_labels(labels, where, classes))
        self.owner.append(self.owners.setdefault(user, len(self.owners)))
        self.test.append(test)

    def samples(self, classes: tuple[str, ...], folder: Path) -> Samples:
        if not self.owners:
            raise AccordError(f"the FEMNIST files in {folder} hold no users: at least one with a picture is needed")
        sizes = [len(labels) for labels in self.y]
        test = np.flatnonzero(np.repeat(self.test, sizes))
        return Samples(
            torch.from_numpy(np.concatenate(self.x)),
            torch.from_numpy(np.concatenate(self.y)),
            test=torch.from_numpy(test) if len(test) else None,
            owner=torch.from_numpy(np.repeat(np.asarray(self.owner, dtype=np.int64), sizes)),
            owners=tuple(self.owners),
            classes=classes,
        )


def _pixels(values: Any, where: str) -> np.ndarray:
    """[n, 1, 28, 28] bytes of numbers from 0 to 1: LEAF divided bytes by 255, so rounding gives those bytes back."""
    try:
        pixels = np.asarray(values, dtype=np.float32)
        pixels = pixels.reshape(len(pixels), -1)
    except (OverflowError, TypeError, ValueError):
        raise AccordError(
            f"{where} has pictures of different lengths, or not of numbers: each is {SIDE * SIDE} numbers"
        ) from None
    if pixels.shape[1] != SIDE * SIDE:
        raise AccordError(f"{where} has pictures of {pixels.shape[1]} pixels: {SIDE * SIDE} (28 x 28) are right")
    outside = ~((pixels >= 0) & (pixels <= 1))  # true of what is not a number, too
    if outside.any():
        raise AccordError(f"{where} has a pixel of {pixels[outside][0]:g}: pixels go from 0 to 1")
    return np.rint(pixels * 255).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)


def _labels(values: Any, where: str, classes: tuple[str, ...]) -> np.ndarray:
    right = f"labels are whole numbers from 0 to {len(classes) - 1}"
    try:
        labels = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise AccordError(f"{where} has labels that are not whole numbers: {right}") from None
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise AccordError(f"{where} has labels that are not whole numbers: {right}")
    outside = (labels < 0) | (labels >= len(classes))
    if outside.any():
        raise AccordError(f"{where} has a label of {labels[outside][0]}: {right}")
    return labels.astype(np.int64)


def _leaf(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The users that count, and everybody's data."""
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, RecursionError, ValueError) as error:
        raise AccordError(f"{path} is cut short or no JSON file: {' '.join(str(error).split())}") from None
    users, data = (content.get("users"), content.get("user_data")) if isinstance(content, dict) else (None, None)
    if not isinstance(users, list) or not isinstance(data, dict):
        raise AccordError(f"{path} is not one of LEAF's files: those have the keys users, num_samples and user_data")
    return [str(user) for user in users], data


def _leaf_files(folder: Path) -> list[tuple[Path, bool]]:
    """LEAF's files in the order of their numbers, each with whether its rows are test rows."""
    paths = sorted(folder.rglob("*.json"), key=lambda path: (path.parent, _number(path), path.name))
    halves = [(path, path.parent.name == "test") for path in paths if path.parent.name in ("train", "test")]
    pieces = [path for path in paths if path.name.startswith("all_data_") and path.parent.name not in ("train", "test")]
    if whole := [path for path in pieces if re.fullmatch(r"all_data_\d+\.json", path.name)]:
        return [(path, False) for path in whole]
    if not all(test for _, test in halves):
        return sorted(halves, key=lambda half: half[1])  # training rows first
    return [(path, False) for path in pieces]


def _number(path: Path) -> int:
    numbered = re.match(r"all_data_(\d+)", path.name)
    return int(numbered[1]) if numbered else -1


def _tff_files(folder: Path) -> tuple[Path, Path] | None:
    """The training and the test file of one of TFF's forms; the test file belongs beside the other, there or not."""
    for form in TFF_FORMS:
        for train in sorted(folder.rglob(f"{form}_train.h5"), key=lambda path: (len(path.parts), path)):
            return train, train.with_name(f"{form}_test.h5")
    return None
