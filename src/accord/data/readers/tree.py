"""The user's own pictures in folders: `<folder>/<client>/<class>/<picture>`, and `<folder>/test/<class>/<picture>` for
a test set."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from accord.core.errors import AccordError, check_whole
from accord.core.names import in_order
from accord.data.cache import Progress, with_progress
from accord.data.files import as_folder
from accord.data.samples import Samples

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
CLUTTER = ("Thumbs.db", "desktop.ini", "__MACOSX")  # what file managers leave behind; they leave hidden files, too
FORM = "pictures go in <folder>/<client>/<class>/"
TEST = "test"


def read_tree(
    folder: str | Path, size: int | None = None, channels: int = 3, progress: Progress | None = None
) -> Samples:
    """Pictures by client and class. A client's name is its folder's, and so is a class's; of an animated gif the first
    picture counts.

    `size` makes every picture `size x size`, whatever its shape was; without it all must be square and of one size
    already.
    """
    folder = as_folder(folder)
    if size is not None:
        check_whole("size", size)
    if channels not in (1, 3):
        raise AccordError(f"channels must be 1 (grey) or 3 (colour), got {channels!r}")
    clients, listed = _listed(folder)
    kinds = {kind for client, kind, _ in listed if client >= 0}
    for _, kind, path in listed:
        if kind not in kinds:
            raise AccordError(
                f"{path} is of class {kind}, which no client has: the test set's classes must be among the clients'"
            )
    classes = in_order(kinds)
    number = {name: place for place, name in enumerate(classes)}
    owner = torch.tensor([client for client, _, _ in listed])
    try:
        x = _pictures([path for _, _, path in listed], size, channels, progress)
    except MemoryError:
        raise AccordError(
            f"{len(listed):,} pictures of this size do not fit in memory: take a smaller size, or fewer pictures"
        ) from None
    return Samples(
        torch.from_numpy(x),
        torch.tensor([number[kind] for _, kind, _ in listed]),
        test=torch.nonzero(owner < 0)[:, 0] if (owner < 0).any() else None,
        owner=owner,
        owners=tuple(clients),
        classes=tuple(classes),
    )


def decode(data: bytes, where: str, channels: int, side: int | None = None) -> "Image":
    """One picture, grey or in colour as asked; with `side`, one of so many pixels each way and no other, which is known
    before it is unpacked."""
    try:
        from PIL import Image
    except ImportError:
        raise AccordError(
            f'{where} is read with Pillow, which is not installed: pip install "accord-fl[images]"'
        ) from None
    try:
        with Image.open(io.BytesIO(data)) as picture:
            mode, (wide, high) = picture.mode, picture.size
            if side is not None and (wide, high) != (side, side):
                raise AccordError(f"{where} is {wide} x {high} pixels: {side} x {side} are right")
            if mode[0] not in "IF":
                return picture.convert("L" if channels == 1 else "RGB")
    except AccordError:
        raise
    except Exception:  # decoders of damaged data raise errors of every kind
        raise AccordError(f"{where} is damaged or no picture: Pillow cannot decode it") from None
    # Pillow would cut these off at 255, which turns a picture white
    raise AccordError(
        f"{where} has pixels of more than 8 bits (mode {mode}): save it with 8 bits per pixel and channel"
    )


def pixels(picture: "Image") -> np.ndarray:
    """[C, H, W] bytes."""
    values = np.asarray(picture, dtype=np.uint8)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _pictures(paths: list[Path], size: int | None, channels: int, progress: Progress | None) -> np.ndarray:
    """[N, C, size, size] bytes, in one array from the start: pictures may fill most of the memory."""
    x = np.empty(0, dtype=np.uint8)
    for row, path in with_progress(progress, "reading pictures", paths, every=200):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise AccordError(f"{path} cannot be read: {error.strerror}") from None
        picture = decode(data, str(path), channels)
        if size is not None:
            from PIL.Image import Resampling

            picture = picture.resize((size, size), Resampling.BILINEAR)
        wide, high = picture.size
        if wide != high:
            raise AccordError(
                f"{path} is {wide} x {high} pixels, not square: give a size to make all pictures size x size"
            )
        if row == 0:
            x = np.empty((len(paths), channels, high, wide), dtype=np.uint8)
        if wide != x.shape[-1]:
            first = f"{paths[0]} is {x.shape[-1]} x {x.shape[-1]}"
            raise AccordError(
                f"{path} is {wide} x {high} pixels but {first}: give a size to make all pictures size x size"
            )
        x[row] = pixels(picture)
    return x


def _listed(folder: Path) -> tuple[list[str], list[tuple[int, str, Path]]]:
    """Clients, and (client's number, class, picture) for every picture; the test set's are client -1's and come
    last."""
    inside = {path.name: path for path in _visible(folder)}
    for path in inside.values():
        if path.is_file() and path.suffix.lower() in ENDINGS:
            raise AccordError(f"{path} belongs to no client: {FORM}")
    clients = in_order(name for name, path in inside.items() if path.is_dir() and name != TEST)
    if not clients:
        raise AccordError(f"{folder} holds no client's folder: {FORM}")
    listed = [(number, kind, path) for number, name in enumerate(clients) for kind, path in _of_one(inside[name])]
    if TEST in inside and inside[TEST].is_dir():
        listed += [(-1, kind, path) for kind, path in _of_one(inside[TEST])]
    return clients, listed


def _of_one(client: Path) -> list[tuple[str, Path]]:
    """(class, picture) for every picture of a client."""
    pictures = []
    for kind in _visible(client):
        if not kind.is_dir():
            if kind.suffix.lower() in ENDINGS:
                raise AccordError(f"{kind} is in no class's folder: {FORM}")
            continue  # a note beside the classes harms nobody
        for path in _visible(kind):
            if path.is_dir():
                raise AccordError(f"{path} is a folder inside a class's folder: {FORM}")
            if path.suffix.lower() not in ENDINGS:
                raise AccordError(f"{path} is no picture: a class's folder holds {', '.join(ENDINGS)} files alone")
            pictures.append((kind.name, path))
    if not pictures:
        raise AccordError(f"{client} holds no picture: {FORM}")
    return pictures


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not ignored(path.name))
    except OSError as error:
        raise AccordError(f"{folder} cannot be read: {error.strerror}") from None


def ignored(name: str) -> bool:
    """Whether a file is none of the user's data."""
    return name.startswith(".") or name in CLUTTER
