"""Settings of accord 0.1, as they are spelled now. They are read until 0.4. Its [algorithm] section was flat:

tau = 0.4, mask = "gma", lr = 0.02   ->   mask = { name = "gma", tau = 0.4 }, server = { lr = 0.02 }
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accord.core.errors import OldSpelling
from accord.core.files import flat

# section, key (of a part's field, its path: "mask.tau") and the value that replaces the file's
Override = tuple[str, str, Any]

_KEYS = {
    "server": ("lr", "beta", "beta1", "beta2", "eps", "eps_inside", "placement"),
    "local": ("mu", "option", "at", "penalty", "warmup", "warmup_penalty", "reduction"),
    "average": (
        "weighting",
        "share",
        "attackers",
        "keep",
        "agree",
        "alpha",
        "constraint",
        "passes",
        "p",
        "eta_s",
        "gradient",
        "variant",
    ),
    "mask": ("tau", "scope", "memory", "rescale", "k", "by"),
}
MOVED = {key: f"{part}.{key}" for part, keys in _KEYS.items() for key in keys} | {
    "tau_to": "mask.tau.to",
    "tau_over": "mask.tau.over",
    "like": "mask.mask.name",
}
RENAMED = {"train.until_flat": "train.patience", "train.flat_margin": "train.min_delta"}
_OF_A_CONTROL = ("tau", "tau_to", "tau_over", "scope", "memory", "rescale", "k")  # keys that `scaled` gave to its mask
# `mask = "gma"` is short for a table with that name; a tau that moves has a first value
_SHORT = {"mask": "name", "tau": "from"}


def moved(key: str, mask: str | None, ramps: bool) -> str:
    """Where a key of 0.1 is now, for a mask of that name and a tau that moves or not."""
    path = MOVED[key] + ".from" * (key == "tau" and ramps)
    return path.replace("mask.", "mask.mask.", 1) if mask == "scaled" and key in _OF_A_CONTROL else path


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


def named(part: Any) -> str | None:
    """The name of a part that is written as a name or as a table."""
    name = part.get("name") if isinstance(part, Mapping) else part
    return name if isinstance(name, str) else None


def ramps(keys: Iterable[str]) -> bool:
    """Whether keys of either spelling make tau move."""
    return any(key in ("tau_to", "tau_over") or key.startswith(("mask.tau.", "mask.mask.tau.")) for key in keys)


def modern(section: Mapping[str, Any]) -> dict[str, Any]:
    """An [algorithm] section with the keys of 0.1 where they are now."""
    table = {key: value for key, value in section.items() if key not in MOVED}
    old = {key: value for key, value in section.items() if key in MOVED}
    for key, value in old.items():
        written = str(value) if key == "constraint" and type(value) is int else value
        put(table, moved(key, named(section.get("mask")), ramps(old)), written)
    return table


def as_spelled_now(tables: dict[str, Any], overrides: Sequence[Override]) -> list[Override]:
    """What is given, and an experiment's tables in place, with keys of 0.1 where they are now; a warning names them."""
    written = [f"{section}.{key}" for section, table in tables.items() if isinstance(table, dict) for key in table]
    written += [f"{section}.{key}" for section, key, _ in overrides]
    places = {key: RENAMED[key] for key in written if key in RENAMED}
    for section in {_split(key)[0] for key in places if isinstance(tables.get(_split(key)[0]), dict)}:
        tables[section] = renamed(section, tables[section])
    places |= _moved_parts(tables, [(key, value) for section, key, value in overrides if section == "algorithm"])
    tell(places)
    now = [(places.get(f"{section}.{key}", f"{section}.{key}"), value) for section, key, value in overrides]
    return [(*_split(path), value) for path, value in now]


def _moved_parts(tables: dict[str, Any], overrides: Sequence[tuple[str, Any]]) -> dict[str, str]:
    """Where the keys of 0.1 are now that [algorithm] and what is given for it have; the table is changed in place."""
    section = tables.get("algorithm", {})
    if not isinstance(section, dict):
        return {}
    old = [key for key in [*section, *dict(overrides)] if key in MOVED]
    if not old:
        return {}
    asked = [named(value) for key, value in overrides if key in ("mask", "mask.name")]
    mask = asked[-1] if asked else named(section.get("mask"))
    now = modern(section)
    moving = ramps([*flat(now), *dict(overrides)])
    if "algorithm" in tables:
        tables["algorithm"] = now
    return {f"algorithm.{key}": f"algorithm.{moved(key, mask, moving)}" for key in old}


def _split(path: str) -> tuple[str, str]:
    section, _, key = path.partition(".")
    return section, key


def renamed(section: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A section with the keys of 0.1 that have another name now."""
    return {_split(RENAMED.get(f"{section}.{key}", f"{section}.{key}"))[1]: value for key, value in table.items()}


def canonical(key: str) -> str:
    """One spelling of `section.key` for all that mean the same, to compare them by."""
    key = RENAMED.get(key, key)
    section, _, path = key.partition(".")
    return key if section != "algorithm" else f"{key}.name" if path in _KEYS else f"{section}.{MOVED.get(path, path)}"


def modern_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Some of an experiment's settings by `section.key`, with keys of 0.1 where they are now. Those of a mask stay
    where only the other settings say which mask is meant."""
    mask = named(settings.get("algorithm.mask.name", settings.get("algorithm.mask")))
    keys = [key.removeprefix("algorithm.") for key in settings if key.startswith("algorithm.")]
    values, places = dict[str, Any](), dict[str, str]()
    for key, value in settings.items():
        section, _, path = key.partition(".")
        words = value if isinstance(value, list) else [value]
        if section == "algorithm" and path in MOVED and not (mask is None and MOVED[path].startswith("mask.")):
            places[key] = f"algorithm.{moved(path, mask, ramps(keys))}"
            key = places[key]
        elif key in RENAMED:
            places[key] = key = RENAMED[key]
        elif section == "algorithm" and path in _KEYS and all(isinstance(word, str) for word in words):
            key = canonical(key)
        values.pop(key, None)  # the last one counts, in its own place
        values[key] = value
    tell(places)
    return values


def tell(places: Mapping[str, str]) -> None:
    """Warns of keys of 0.1, if there are any, and says where they are now."""
    if places:
        now = ", ".join(f"{new} (was {old})" for old, new in places.items())
        warnings.warn(
            f"settings are spelled as in accord 0.1, which is read until 0.4: write {now}", OldSpelling, stacklevel=3
        )
