"""Finds a data set's files in a folder, plain, gzipped or in an archive, and trusts none before its content has been
checked."""

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from accord.core.errors import AccordError


@dataclass(frozen=True)
class Content:
    """What a file holds once decompressed. Compressed forms differ from mirror to mirror; this does not."""

    size: int
    sha256: str

    def complaint(self, data: bytes) -> str:
        """What is wrong with `data`, or nothing."""
        if len(data) < self.size:
            return f"is cut short: it holds {len(data):,} bytes where {self.size:,} are right (SHA-256 {self.sha256})"
        if len(data) > self.size:
            return f"is too long: {self.size:,} bytes are right (SHA-256 {self.sha256})"
        checksum = hashlib.sha256(data).hexdigest()
        if checksum != self.sha256:
            return f"has other content: its SHA-256 is {checksum}, {self.sha256} is right"
        return ""


def as_folder(path: str | Path) -> Path:
    """The folder of that path, which must be there."""
    if not Path(path).is_dir():
        raise AccordError(f"{path} is not a folder")
    return Path(path)


def read_folder(folder: Path, wanted: Mapping[str, Content], archives: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The content of every wanted file, found in `folder` or below it, or an error naming a missing or damaged one.

    Several files may bear one name, as MNIST's and Fashion-MNIST's do side by side: the one with the right content is
    taken.
    """
    good: dict[str, bytes] = {}
    bad: dict[str, str] = {}
    for place in _places(folder, {*wanted, *(f"{name}.gz" for name in wanted), *archives}):
        try:
            for name, label, data in _contents(place, wanted, archives):
                if name in good:
                    continue
                if complaint := wanted[name].complaint(data):
                    bad.setdefault(name, f"{label} {complaint}")
                else:
                    good[name] = data
        except (EOFError, OSError, zlib.error, tarfile.TarError) as error:
            name = place.name.removesuffix(".gz")
            right = f" (SHA-256 {wanted[name].sha256} is right)" if name in wanted else ""
            reason = str(error).partition("\n")[0]
            bad.setdefault(name, f"{place} is damaged and cannot be read: {reason}{right}")
    if missing := [name for name in wanted if name not in good]:
        others = f", nor {' or '.join(archives)}" if archives else " or .gz of it"
        raise AccordError(next(iter(bad.values()), f"{folder} holds no {missing[0]}{others}"))
    return good


def _places(folder: Path, names: set[str]) -> list[Path]:
    """Files with one of these names, in an order that does not depend on the file system."""
    paths = [Path(at) / name for at, _, files in os.walk(folder) for name in files if name in names]
    return sorted(paths, key=lambda path: (len(path.parts), path))


def _contents(
    place: Path, wanted: Mapping[str, Content], archives: tuple[str, ...]
) -> Iterator[tuple[str, str, bytes]]:
    """(wanted name, where it was found, content) for everything wanted that one file holds."""
    if place.name in archives:
        with open_tar(place, 2 * sum(content.size for content in wanted.values())) as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name in wanted and (file := archive.extractfile(member)):
                    yield name, f"{name} in {place}", _read(file, wanted[name])
    elif place.name in wanted:
        with place.open("rb") as plain:
            yield place.name, str(place), _read(plain, wanted[place.name])
    else:
        name = place.name.removesuffix(".gz")
        with gzip.open(place) as unzipped:
            yield name, str(place), _read(unzipped, wanted[name])


@contextmanager
def open_tar(path: Path, most: int) -> Iterator[tarfile.TarFile]:
    """A .tar.gz file, read once from its beginning, of which no more than `most` bytes are unpacked."""
    with gzip.open(path) as unzipped:
        stream = cast(IO[bytes], _AtMost(unzipped, most))  # all of a file that a stream of tar needs
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            yield archive


class _AtMost:
    """Refuses to read on after so many bytes: a small archive may hold any number of them."""

    def __init__(self, file: gzip.GzipFile, most: int) -> None:
        self._file, self._left = file, most

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise OSError("it unpacks to more than such an archive holds")
        return data


def _read(file: IO[bytes] | gzip.GzipFile, content: Content) -> bytes:
    return file.read(content.size + 1)  # one byte more tells a longer file; a gzip bomb gets no further
