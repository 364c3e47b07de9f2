"""Parts, data sets and models by name: accord's own, and what installed packages register as entry points; and a user's
`module:object`.

A package registers a mask in its pyproject.toml; the groups are accord.locals, .averages, .masks, .servers, .data and
.models:

    [project.entry-points."accord.masks"]
    cosine = "mypackage.rules:cosine"
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError, did_you_mean, nearest
from accord.data import DATASETS
from accord.models import MODELS
from accord.rules.averages import AVERAGES
from accord.rules.local import LOCALS
from accord.rules.masks import MASKS
from accord.rules.servers import SERVERS


@dataclass(frozen=True)
class Names(Mapping[str, Any]):
    """What a name can stand for. Names of packages are known without importing them: a broken one is told of when it is
    asked for."""

    what: str
    group: str
    own: Mapping[str, Any]

    @cached_property
    def _registered(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._registered

    def __getitem__(self, name: str) -> Any:
        if name in self.own:
            return self.own[name]
        entry = self._registered[name]
        try:
            return entry.load()
        except Exception as error:  # anything may go wrong in a package
            whose = f"the package {entry.dist.name}" if entry.dist else "a package"
            raise AccordError(
                f"the {self.what} {name!r}, which {whose} registers as {entry.value}, cannot be loaded: {error}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.own, *self._registered]))

    def __len__(self) -> int:
        return len(list(iter(self)))


PARTS: dict[str, Names] = {
    "local": Names("local rule", "accord.locals", LOCALS),
    "average": Names("average", "accord.averages", AVERAGES),
    "mask": Names("mask", "accord.masks", MASKS),
    "server": Names("server rule", "accord.servers", SERVERS),
}
DATA = Names("data set", "accord.data", DATASETS)
NETWORKS = Names("model", "accord.models", MODELS)


def imported(name: str, folder: Path | None) -> Callable[..., Any]:
    """The object that `module:object` names. `folder` and the working directory are searched after what is installed.

    A name without a folder is not the user's: it is part of a run folder or of an export, which are data.
    """
    if folder is None:
        raise AccordError(f"{name} names code, and settings that are read from a run folder or an export import none")
    module_name, _, attribute = name.partition(":")
    folders = list(dict.fromkeys(str(place.resolve()) for place in (folder, Path.cwd())))
    sys.path += [place for place in folders if place not in sys.path]  # for good: workers import what they are sent
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # it is one that the module needs
            raise AccordError(f"{name}: the module cannot be imported: {error}") from None
        parent, _, last = error.name.rpartition(".")
        within = list(getattr(sys.modules[parent], "__path__", ())) if parent else folders  # no package has none
        there = [each.name for each in pkgutil.iter_modules(within)]
        close = nearest(last, there)
        where = f"in {parent}" if parent else f"installed, nor in {' or '.join(folders)}"
        close = parent if last == "py" else close
        hint = f": did you mean {close!r}?" if close else ""
        raise AccordError(f"{name}: there is no module {error.name!r} {where}{hint}") from None
    except (Exception, SystemExit) as error:  # the module is the user's: anything may go wrong in it
        raise AccordError(f"{name}: the module cannot be imported: {type(error).__name__}: {error}") from None
    _check_home(module_name.partition(".")[0], folders)
    made = getattr(module, attribute, None)
    if not callable(made):
        own = {key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
        meant = f": {did_you_mean(attribute, sorted(own))}" if own else ""
        raise AccordError(f"{name}: {module.__file__} has no class or function {attribute!r}{meant}")
    return made


def _check_home(package: str, folders: list[str]) -> None:
    """Refuses a module of the user's that another of the same name stands in for: of an installed package, or of
    another folder."""
    beside = PathFinder.find_spec(package, folders)
    used = getattr(sys.modules[package], "__file__", None)
    if beside is not None and beside.origin is not None and used != beside.origin:
        raise AccordError(f"{package} would be {beside.origin}, but Python has {used} under that name: rename yours")
