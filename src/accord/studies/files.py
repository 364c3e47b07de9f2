"""The files of studies: where they are, and how one includes another."""

import copy
import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError, did_you_mean
from accord.core.files import check_plain

FILES = Path(__file__).parent / "files"


def path_of(name: str) -> Path:
    """The file of a study that comes with accord, or a file of yours."""
    path = Path(name) if name.endswith(".toml") else FILES / f"{name}.toml"
    if not path.exists():
        if name.endswith(".toml"):
            raise AccordError(f"there is no file {name}: give a study file, or a name of accord reproduce --list")
        known = sorted(file.stem for file in FILES.glob("*.toml"))
        raise AccordError(f"there is no study {name!r}: {did_you_mean(name, known)} (see accord reproduce --list)")
    return path


def all_tables() -> dict[str, dict[str, Any]]:
    """The tables of all files that come with accord, by name."""
    return {path.stem: tables_at(path) for path in sorted(FILES.glob("*.toml"), key=_in_order)}


def _in_order(path: Path) -> list[tuple[bool, int, str]]:
    """Table 10 comes after table 2."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", path.stem)]


def tables_at(path: Path, by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's tables, with those of the files it includes below them. An axis takes over the named values of an
    included one: `dataset = ["mnist", "fmnist"]`. Entries of `when` are added to the included ones. `by` are the files
    that include this one."""
    if path.resolve() in by:
        raise AccordError(f"{path} includes itself: {' -> '.join(file.name for file in (*by, path))}")
    try:
        check_plain(path)
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AccordError(f"{path} cannot be read as a study: {error}") from None
    _check_kinds(path.name, tables)
    below: dict[str, Any] = {}
    for name in tables.pop("include", []):
        below = _merged(below, tables_at(_included(path, name), (*by, path.resolve())))
    known = below.get("axes", {})
    axes: dict[str, Any] = {}
    for axis, values in tables.get("axes", {}).items():
        if isinstance(values, list):
            missing = [value for value in values if value not in known.get(axis, {})]
            if missing:
                raise AccordError(f"{path.name} takes {missing[0]!r} for {axis}, which no file it includes has")
            values = {value: copy.deepcopy(known[axis][value]) for value in values}
        axes[axis] = values
    merged = _merged(below, {key: value for key, value in tables.items() if key != "axes"})
    return {**merged, "axes": axes or known} if axes or known else merged


_KINDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("title", "paper", "table", "about", "compare", "against"), (str, "a text")),
    **dict.fromkeys(("include", "rules", "seeds", "keep", "skip", "when"), (list, "a list, in [ ]")),
    **dict.fromkeys(("settings", "axes", "grid"), (dict, "a table")),
}


def _check_kinds(who: str, tables: dict[str, Any]) -> None:
    """Refuses what is not of the kind that its key has; which settings there are, an experiment knows."""
    for key, value in tables.items():
        _check_kind(who, key, value, *_KINDS.get(key, (object, "")))
    for rule in tables.get("rules", []):
        _check_kind(who, "rules", rule, str, "a list of texts")
    for axis, values in tables.get("axes", {}).items():
        _check_kind(who, f"axes.{axis}", values, (list, dict), "a list of names or a table")
        for name in values:
            of_value = values[name] if isinstance(values, dict) else {}
            _check_kind(who, f"axes.{axis}", name, str, "a list of names or a table")
            _check_kind(who, f"axes.{axis}.{name}", of_value, dict, "a table of settings")
    for key, values in tables.get("grid", {}).items():
        for name, tried in values.items() if isinstance(values, dict) else [("", values)]:
            _check_kind(who, f"grid.{key}" + f".{name}" * bool(name), tried, list, "a list of values, in [ ]")


def _check_kind(who: str, key: str, value: Any, kind: Any, called: str) -> None:
    if not isinstance(value, kind):
        raise AccordError(f"{key} in {who} must be {called}, got {value!r}")


def _included(by: Path, name: Any) -> Path:
    """The file that another includes: one beside it, or else one of accord's own."""
    if not isinstance(name, str):
        raise AccordError(f'{by.name} includes {name!r}, which is no file: write include = ["common/papers.toml"]')
    for path in (by.parent / name, FILES / name):
        if path.is_file():
            return path
    raise AccordError(
        f"{by.name} includes {name!r}, which is neither beside it nor among accord's own studies ({FILES})"
    )


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(below)
    for key, value in above.items():
        if key == "when":
            out[key] = [*out.get(key, []), *copy.deepcopy(value)]
            continue
        out[key] = (
            _merged(out[key], value)
            if isinstance(value, dict) and isinstance(out.get(key), dict)
            else copy.deepcopy(value)
        )
    return out


def check_keys(table: Iterable[str], known: Iterable[str], who: str, kind: str) -> None:
    """Refuses a key that things of this kind do not have."""
    for key in table:
        if key not in known:
            raise AccordError(f"{who} has a key {key!r} that {kind} do not have: {did_you_mean(key, known)}")


_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML takes without quotes


def toml(value: Any) -> str:
    """A value as a TOML file spells it, whatever characters it has."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        keys = {key: key if _BARE.fullmatch(str(key)) else toml(str(key)) for key in value}
        return f"{{ {', '.join(f'{keys[key]} = {toml(inner)}' for key, inner in value.items())} }}"
    # TOML has no escapes of half characters, and wants one for DEL, which JSON does not
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "replace").decode()
