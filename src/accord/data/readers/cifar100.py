"""CIFAR-100 in its official binary form: records of a coarse label, a fine label and 3 x 32 x 32 pixels (Krizhevsky,
2009)."""

import os
import tarfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import torch

from accord.core.errors import AccordError
from accord.data.cache import Progress
from accord.data.files import as_folder, open_tar
from accord.data.samples import Samples

CIFAR100_MD5 = "03b5dce01913d631647c71ecec9e9cb8"  # of the archive, as www.cs.toronto.edu/~kriz/cifar.html gives it
ARCHIVE = "cifar-100-binary.tar.gz"
PARTS = ("train.bin", "test.bin")
NAMES = "fine_label_names.txt"
CLASSES = 100
RECORD = 2 + 3 * 32 * 32
CHUNK = 1 << 22
MOST = 4 * 60_000 * RECORD  # bytes of all files together: four times what the official ones hold


def read_cifar100(folder: str | Path, progress: Progress | None = None) -> Samples:
    """CIFAR-100 with its 100 fine labels from `train.bin` and `test.bin`, or from the archive, in the folder or below
    it."""
    folder = as_folder(folder)
    held, where = _held(folder, progress)
    records = {part: _records(held[part], where[part]) for part in PARTS}
    together = np.concatenate([records[part] for part in PARTS])
    first_test = len(records["train.bin"])
    return Samples(
        torch.from_numpy(np.ascontiguousarray(together[:, 2:])).view(-1, 3, 32, 32),
        torch.from_numpy(together[:, 1].astype(np.int64)),
        test=torch.arange(first_test, len(together)),
        classes=_class_names(held[NAMES], where[NAMES]) if NAMES in held else (),
    )


def _held(folder: Path, progress: Progress | None) -> tuple[dict[str, bytes], dict[str, str]]:
    """What the files hold, and where each was found: plain files side by side, else the archive."""
    walked = sorted(
        ((Path(at), set(names)) for at, _, names in os.walk(folder)), key=lambda place: (len(place[0].parts), place[0])
    )
    # these are names that other data sets use too, so a folder with the official name is taken before any other
    whole = sorted(
        (at for at, names in walked if names.issuperset(PARTS)), key=lambda at: at.name != "cifar-100-binary"
    )
    if whole:
        paths = {name: whole[0] / name for name in (*PARTS, NAMES) if (whole[0] / name).is_file()}
        return {name: _plain(path, progress) for name, path in paths.items()}, {
            name: str(path) for name, path in paths.items()
        }
    for archive in (at / ARCHIVE for at, names in walked if ARCHIVE in names):
        held = _unpacked(archive, progress)
        if missing := [part for part in PARTS if part not in held]:
            raise AccordError(f"{archive} holds no {missing[0]}: the official one holds {' and '.join(PARTS)}")
        return held, {name: f"{name} in {archive}" for name in held}
    for at, names in walked:
        if half := names.intersection(PARTS):
            raise AccordError(f"{at} holds {half.pop()} alone: {' and '.join(PARTS)} belong side by side")
    raise AccordError(f"{folder} holds neither {ARCHIVE} nor its files {' and '.join(PARTS)}")


def _plain(path: Path, progress: Progress | None) -> bytes:
    try:
        with path.open("rb") as file:
            return _read(file, path.stat().st_size, path.name, progress)
    except OSError as error:
        raise AccordError(f"{path} cannot be read: {error.strerror or error}") from None


def _unpacked(archive: Path, progress: Progress | None) -> dict[str, bytes]:
    try:
        with open_tar(archive, MOST) as members:
            return {
                name: _read(file, member.size, f"{name} in {ARCHIVE}", progress)
                for member in members
                if member.isfile()
                and (name := Path(member.name).name) in (*PARTS, NAMES)
                and (file := members.extractfile(member))
            }
    except (EOFError, OSError, zlib.error, tarfile.TarError) as error:
        raise AccordError(f"{archive} is damaged and cannot be read: {error}") from None


def _read(file: IO[bytes], size: int, label: str, progress: Progress | None) -> bytes:
    content = bytearray()
    while chunk := file.read(CHUNK):
        content += chunk
        if len(content) > MOST:
            raise AccordError(f"{label} holds more than {MOST:,} bytes, which is none of CIFAR-100's files")
        if progress:
            progress(f"reading {label}", len(content), size)
    return bytes(content)


def _records(data: bytes, where: str) -> np.ndarray:
    """[n, 3074] bytes."""
    if not data or len(data) % RECORD:
        raise AccordError(
            f"{where} has {len(data):,} bytes: a whole number of records of {RECORD:,} bytes each is right"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, RECORD)
    if (wrong := np.flatnonzero(records[:, 1] >= CLASSES)).size:
        raise AccordError(
            f"record {wrong[0]} of {where} has the fine label {records[wrong[0], 1]}: fine labels go from 0 to"
            f" {CLASSES - 1}"
        )
    return records


def _class_names(data: bytes, where: str) -> tuple[str, ...]:
    try:
        names = tuple(line.strip() for line in data.decode().splitlines() if line.strip())
    except UnicodeDecodeError:
        raise AccordError(f"{where} is not text: it names the {CLASSES} classes, one on a line") from None
    if len(names) != CLASSES:
        raise AccordError(f"{where} names {len(names)} classes: {CLASSES} are right, one on a line")
    return names
