"""Settings by their path, `section.key`; of a part's field, `algorithm.mask.tau`."""

from collections.abc import Mapping
from typing import Any

from accord.rules.registry import PARTS

# section, key (of a part's field, its path: "mask.tau") and the value that replaces the file's
Override = tuple[str, str, Any]

# `mask = "gma"` is short for a table with that name; a tau that moves has a first value
_SHORT = {"mask": "name", "tau": "from"}


def put(table: dict[str, Any], path: str, value: Any) -> None:
    """Sets a value by its path in nested tables. What stood for a table in short becomes one."""
    first, dot, rest = path.partition(".")
    if not dot:
        table[first] = value
        return
    inner = table.get(first, {})
    if not isinstance(inner, Mapping):
        inner = {_SHORT.get(first, "name"): inner}
    table[first] = dict(inner)
    put(table[first], rest, value)


def name_in(part: Any) -> str | None:
    """The name of a part that is written as a name or as a table."""
    name = part.get("name") if isinstance(part, Mapping) else part
    return name if isinstance(name, str) else None


def canonical(path: str) -> str:
    """One spelling for all paths that mean the same: a part by its name is `algorithm.mask.name`."""
    section, _, key = path.partition(".")
    return f"{path}.name" if section == "algorithm" and key in PARTS else path


def canonical_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by `canonical` paths. Of two that mean the same the last one counts, in its own place."""
    values = dict[str, Any]()
    for path, value in settings.items():
        words = value if isinstance(value, list) else [value]
        key = canonical(path) if all(isinstance(word, str) for word in words) else path
        values.pop(key, None)
        values[key] = value
    return values
