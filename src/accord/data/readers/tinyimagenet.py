"""Tiny ImageNet, 200 classes of 64 x 64 pictures, from the official folder `tiny-imagenet-200` or the zip file that
holds it."""

import os
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from accord.core.errors import AccordError
from accord.data.cache import Progress, with_progress
from accord.data.files import as_folder
from accord.data.readers.tree import decode, pixels
from accord.data.samples import Samples

ARCHIVE = "tiny-imagenet-200.zip"
FOLDER = "tiny-imagenet-200"
ANNOTATIONS = "val/val_annotations.txt"
SIDE = 64
MOST = 1 << 24  # bytes of one of its files: the largest, words.txt, has 2.7 million


def read_tinyimagenet(folder: str | Path, progress: Progress | None = None) -> Samples:
    """The training pictures, and as test rows the validation pictures: those of the official test set have no labels.

    A class's number is its place in wnids.txt, its name what words.txt says. Rows are in the order of the files' names.
    """
    folder = as_folder(folder)
    with ExitStack() as open_files:
        files = _files(folder, open_files)
        kinds = _kinds(files)
        train, val = _train(files, kinds), _val(files, kinds)
        x = torch.empty(len(train) + len(val), 3, SIDE, SIDE, dtype=torch.uint8)
        into = x.numpy()  # the same memory
        for row, (name, _) in with_progress(progress, "reading Tiny ImageNet's pictures", train + val, every=500):
            into[row] = pixels(decode(files.read(name), files.called(name), channels=3, side=SIDE))
        return Samples(
            x,
            torch.tensor([kind for _, kind in train + val]),
            test=torch.arange(len(train), len(x)),
            classes=_class_names(files, list(kinds)),
        )


@dataclass(frozen=True)
class _Files:
    """The folder's files by their names in it, `train/n01443537/images/n01443537_0.JPEG`, wherever they are."""

    names: list[str]  # sorted
    load: Callable[[str], bytes]
    called: Callable[[str], str]  # what to call a file in a sentence

    def read(self, name: str) -> bytes:
        try:
            return self.load(name)
        except (KeyError, FileNotFoundError):
            raise AccordError(f"{self.called(name)} is missing: the official folder has it") from None
        # a zip file locked with a password raises RuntimeError, one packed in an unknown way NotImplementedError, a
        # RuntimeError too
        except (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise AccordError(f"{self.called(name)} is damaged and cannot be read: {error}") from None

    def lines(self, name: str) -> list[list[str]]:
        """A text file's lines, cut at tabs."""
        try:
            return [line.split("\t") for line in self.read(name).decode().splitlines() if line.strip()]
        except UnicodeDecodeError:
            raise AccordError(f"{self.called(name)} is not text") from None


def _files(folder: Path, open_files: ExitStack) -> _Files:
    near = [folder / "wnids.txt", folder / FOLDER / "wnids.txt"]  # walking through 120,000 files for it takes a while
    for listing in [path for path in near if path.is_file()] or sorted(folder.rglob("wnids.txt")):
        return _plain(listing.parent)
    for archive in sorted(folder.rglob(ARCHIVE)):
        return _zipped(archive, open_files)
    raise AccordError(f"{folder} holds neither the folder {FOLDER} (with wnids.txt in it) nor {ARCHIVE}")


def _plain(root: Path) -> _Files:
    names = [(Path(at) / name).relative_to(root).as_posix() for at, _, inside in os.walk(root) for name in inside]
    return _Files(sorted(names), lambda name: _read((root / name).open("rb")), lambda name: str(root / name))


def _zipped(path: Path, open_files: ExitStack) -> _Files:
    try:
        archive = open_files.enter_context(zipfile.ZipFile(path))
    except (OSError, zipfile.BadZipFile) as error:
        raise AccordError(f"{path} is damaged and cannot be read: {error}") from None
    tops = [name.removesuffix("wnids.txt") for name in archive.namelist() if name.rpartition("/")[2] == "wnids.txt"]
    if not tops:
        raise AccordError(f"{path} holds no wnids.txt: the official one holds the folder {FOLDER}")
    top = min(tops, key=len)
    names = sorted(name.removeprefix(top) for name in archive.namelist() if name.startswith(top))
    return _Files(names, lambda name: _read(archive.open(top + name)), lambda name: f"{top}{name} in {path}")


def _read(file: IO[bytes]) -> bytes:
    with file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(f"it holds more than {MOST:,} bytes")
    return content


def _kinds(files: _Files) -> dict[str, int]:
    """Class numbers by WordNet id."""
    wnids = [line[0].strip() for line in files.lines("wnids.txt")]
    if not wnids:
        raise AccordError(f"{files.called('wnids.txt')} is empty: it lists the classes, one on a line")
    if twice := [wnid for place, wnid in enumerate(wnids) if wnid in wnids[:place]]:
        raise AccordError(f"{files.called('wnids.txt')} lists {twice[0]} twice: a class belongs there once")
    return {wnid: number for number, wnid in enumerate(wnids)}


def _train(files: _Files, kinds: dict[str, int]) -> list[tuple[str, int]]:
    """(name, class) of every training picture."""
    pictures = []
    for name in files.names:
        match name.split("/"):
            case ["train", wnid, "images", picture] if _is_picture(picture):
                if wnid not in kinds:
                    raise AccordError(f"{files.called(name)} is of class {wnid}, which wnids.txt does not list")
                pictures.append((name, kinds[wnid]))
    having = {kind for _, kind in pictures}
    for wnid, kind in kinds.items():
        if kind not in having:
            raise AccordError(
                f"{files.called(f'train/{wnid}/images')} holds no .JPEG picture: every class in wnids.txt has some"
            )
    return pictures


def _val(files: _Files, kinds: dict[str, int]) -> list[tuple[str, int]]:
    """(name, class) of every validation picture."""
    where, noted = files.called(ANNOTATIONS), dict[str, int]()
    for number, line in enumerate(files.lines(ANNOTATIONS), start=1):
        if len(line) < 2:
            raise AccordError(
                f"line {number} of {where} is {line[0]!r}: a picture's name, a tab and its class are right"
            )
        if line[1] not in kinds:
            raise AccordError(
                f"line {number} of {where} gives {line[0]} the class {line[1]}, which wnids.txt does not list"
            )
        noted[f"val/images/{line[0]}"] = kinds[line[1]]
    there = [name for name in files.names if name.startswith("val/images/") and _is_picture(name.rpartition("/")[2])]
    for name in there:
        if name not in noted:
            raise AccordError(f"{files.called(name)} has no line in {ANNOTATIONS}, which gives its class")
    for name in sorted(noted.keys() - set(there)):
        raise AccordError(f"{files.called(name)} is missing, though {ANNOTATIONS} gives its class")
    return [(name, noted[name]) for name in there]


def _is_picture(name: str) -> bool:
    return name.lower().endswith((".jpeg", ".jpg")) and not name.startswith(".")


def _class_names(files: _Files, wnids: list[str]) -> tuple[str, ...]:
    """`goldfish, Carassius auratus`; the id itself where words.txt has none, or is not there."""
    words = (
        {line[0]: line[1].strip() for line in files.lines("words.txt") if len(line) > 1}
        if "words.txt" in files.names
        else {}
    )
    return tuple(words.get(wnid, wnid) for wnid in wnids)
