"""Data sets at rest: one safetensors file each, written once and whole, however many processes ask for it at the same
time."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from accord.core.errors import AccordError
from accord.core.locks import waiting_lock
from accord.data.samples import Samples
from accord.kernels.paths import cache_folder

# what is going on, how much is done, how much there is (None: unknown)
Progress = Callable[[str, int, int | None], None]

Item = TypeVar("Item")
FORMAT = 2  # of the files; one in an older format is left alone, and its data set is got again
_TENSORS = ("x", "y", "test", "owner")


def with_progress(
    progress: Progress | None, what: str, items: Collection[Item], every: int = 1
) -> Iterator[tuple[int, Item]]:
    """The items with their numbers, while `progress` is told of every so many of them, and of the end."""
    for number, item in enumerate(items):
        if progress and number % every == 0:
            progress(what, number, len(items))
        yield number, item
    if progress:
        progress(what, len(items), len(items))


def path(name: str) -> Path:
    """The file of a data set, whether or not it is there yet."""
    try:
        return cache_folder() / f"{name}.v{FORMAT}.safetensors"
    except RuntimeError:  # as in a container whose user has no name
        raise AccordError(
            "there is no home folder to keep data in: set ACCORD_CACHE to a folder that you may write to"
        ) from None


def read(kept: Path) -> Samples:
    """The data set of a file. Its samples are mapped from the file, not read: only what is looked at costs memory."""
    try:
        with safe_open(kept, framework="pt") as file:
            words = json.loads((file.metadata() or {}).get("words", "{}"))
            tensors = {tensor: file.get_tensor(tensor) for tensor in file.keys()}  # noqa: SIM118 (no mapping)
        y = tensors.pop("y")
        return Samples(
            **tensors,
            y=y if y.is_floating_point() else y.long(),
            owners=tuple(words.get("owners", ())),
            apart=frozenset(words.get("apart", ())),
            populations=words.get("populations", {}),
            classes=tuple(words.get("classes", ())),
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise AccordError(_unreadable(kept, error)) from None


def _unreadable(kept: Path, error: Exception) -> str:
    return f"{kept} cannot be read ({error}): delete it, and it is made again when it is needed"


def _save(samples: Samples, file: Path) -> None:
    tensors = {name: value.contiguous() for name in _TENSORS if (value := getattr(samples, name)) is not None}
    content = hashlib.blake2b(digest_size=16)
    for name, value in tensors.items():
        content.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        content.update(value.reshape(-1).view(torch.uint8).numpy().data)
    words = {
        "owners": samples.owners,
        "apart": sorted(samples.apart),
        "populations": dict(samples.populations),
        "classes": samples.classes,
    }
    metadata = {
        "words": json.dumps({key: value for key, value in words.items() if value}),
        "content": content.hexdigest(),
    }
    save_file(tensors, file, metadata=metadata)


def content(name: str) -> str:
    """A hash of the samples of a data set that is there, made when they were written."""
    try:
        with safe_open(path(name), framework="pt") as file:
            return str(file.metadata()["content"])
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise AccordError(_unreadable(path(name), error)) from None


def once(name: str, build: Callable[[Path], Samples], progress: Progress | None = None) -> Path:
    """The file of a data set, made by `build(scratch folder)` unless it is there.

    Whoever comes second waits and finds it made. A build that fails or is killed leaves no file under the data set's
    name.
    """
    made = path(name)
    if made.exists():
        return made

    def tell_that_it_waits() -> None:
        if progress:
            progress(f"waiting for another process that is getting {name}", 0, None)

    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with waiting_lock(made.with_name(f".{name}.lock"), tell_that_it_waits):
            if not made.exists():
                _build(made, build)
    except OSError as error:
        raise AccordError(
            f"cannot write {made} ({error}): set ACCORD_CACHE to a folder with room that you may write to"
        ) from None
    return made


def _build(made: Path, build: Callable[[Path], Samples]) -> None:
    # The scratch folder has a fixed name because the lock lets only one process use it: what a killed one left is swept
    # up here.
    scratch = made.with_name(f".{made.stem}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        samples = build(scratch)
        whole = scratch / made.name
        _save(samples, whole)
        whole.chmod(0o644)  # safetensors makes private files; a cache may be shared
        with whole.open("r+b") as file:  # Windows syncs only what may be written
            os.fsync(file.fileno())  # a rename must not reach the disk before the content does
        os.replace(whole, made)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
