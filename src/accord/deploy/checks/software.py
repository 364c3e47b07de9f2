"""Programs and packages of this host, and the app that it is to run."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.version import OLDEST_TORCH, __version__
from accord.deploy.checks.finding import Finding, fine, wrong

OLDEST_FLOWER = (1, 41)
INSTALL = "pip install 'accord-fl[flower]'"
IMPORT_SECONDS = 120.0


def python() -> Finding:
    """Which one, for comparison with other hosts: one that is too old could not run this."""
    return fine("Python", f"Python {_dotted(sys.version_info[:3])} at {sys.executable}.")


def package(name: str, oldest: tuple[int, int]) -> Finding:
    """A package that is installed here, by its metadata: it is not imported."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        return wrong(name, f"{name} is not installed here: {INSTALL}.")
    numbers = installed.split("+")[0].split(".")[:2]
    if all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) < oldest:
        return wrong(name, f"{name} {_dotted(oldest)} or newer is needed, this is {installed}: {INSTALL}.")
    return fine(name, f"{name} {installed}.")


def packages() -> list[Finding]:
    return [package("torch", OLDEST_TORCH), package("flwr", OLDEST_FLOWER)]


def protocol() -> Finding:
    """accord's version, and the number of its messages' protocol, which must be one in the whole federation."""
    try:
        from accord.deploy.flower.wire import PROTOCOL
    except AccordError as error:
        return wrong("accord", f"accord {__version__} cannot be deployed from here: {error}.")
    return fine("accord", f"accord {__version__}, protocol {PROTOCOL}, which must be the same on every host.")


def program(name: str) -> Finding:
    """A program of Flower's beside the Python that runs this: a service calls it by that path."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        return wrong(name, f"there is no {path}: {INSTALL}.")
    if not os.access(path, os.X_OK):
        return wrong(name, f"{path} may not be run by this user: chmod a+x {path}.")
    return fine(name, f"{path} is here.")


def app(folder: Path, component: str) -> Finding:
    """Imports `serverapp` or `clientapp` of the Flower app in the folder, in a process of its own, as Flower would."""
    about, path = "app", folder / "pyproject.toml"
    try:
        place = str(tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["components"][component])
    except OSError as error:
        return wrong(about, f"{path} cannot be read: {error.strerror}; --app is the folder of the Flower app.")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return wrong(about, f"{path} names no {component} in [tool.flwr.app.components].")
    module, _, name = place.partition(":")
    code = "import importlib, sys; getattr(importlib.import_module(sys.argv[1]), sys.argv[2])"
    where = os.pathsep.join([str(folder.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, module, name],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_SECONDS,
            env={**os.environ, "PYTHONPATH": where},
        )
    except subprocess.TimeoutExpired:
        return wrong(about, f"{place} of {folder} was not imported within {IMPORT_SECONDS:g} s.")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        return wrong(about, f"{place} of {folder} cannot be imported: {last}.")
    return fine(about, f"{place} of {folder} was imported.")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
