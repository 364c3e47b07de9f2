"""Settings of the command line or of a sweep, put into a file's tables. Where one makes another choice, the file's
options for the old one are left behind."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accord.attacks import ATTACKS
from accord.core.schedule import SCHEDULES
from accord.experiments.data_options import (
    AUGMENT_KEYS,
    FILE_KEYS,
    LOADERS,
    NO_AUGMENT,
    NO_SHIFT,
    SHIFT_KEYS,
    SPLIT_KEYS,
    WAYS,
)
from accord.experiments.options import Makers, none
from accord.experiments.parts import maker_of, preset_of
from accord.experiments.paths import Override, name_in, put
from accord.experiments.settings import AlgorithmSection
from accord.rules.local import OPTIMISERS
from accord.rules.registry import NETWORKS, PARTS
from accord.rules.schema import is_open, name_of, settings_of
from accord.training.run_settings import ALGORITHMS

# Keys whose meaning hangs on a choice: each choice's constructor says which of them it takes.
CHOICES: dict[tuple[str, str], tuple[Makers, Sequence[str]]] = {
    ("data", "name"): (LOADERS, (*FILE_KEYS, *SHIFT_KEYS)),  # another data set has another shift of its own
    ("data", "split"): (WAYS, SPLIT_KEYS),
    ("data", "shift"): (NO_SHIFT, SHIFT_KEYS),
    ("data", "augment"): (NO_AUGMENT, AUGMENT_KEYS),
    ("model", "name"): (NETWORKS, ("width", "hidden", "dropout", "norm", "groups")),
    ("train", "optimiser"): (OPTIMISERS, ("momentum", "weight_decay", "betas", "eps")),
    ("train", "schedule"): (SCHEDULES, ("decay", "every", "over", "floor")),
    ("attack", "name"): ({"none": none, **ATTACKS}, ("share", "factor")),
}


def put_in(tables: dict[str, Any], overrides: Sequence[Override], folder: Path | None) -> None:
    """Changes a file's tables by what is given. Modules of the user's are looked for in `folder` too."""
    for section, key, value in overrides:
        table = tables.get(section)
        if isinstance(table, dict) and section == "algorithm" and key.partition(".")[2] in ("", "name"):
            _drop_old_choice(table, key, value, folder)
        elif isinstance(table, dict) and (section, key) in CHOICES:
            _drop_old_options(table, section, key, value, *CHOICES[section, key])
    for section, key, value in overrides:
        table = tables.setdefault(section, {})
        if isinstance(table, dict):  # else the file is wrong, and validation will say so
            # `algorithm.mask=gma` names a mask whose fields are there already, or to come
            part = section == "algorithm" and isinstance(value, str) and isinstance(table.get(key), dict)
            put(table, f"{key}.name" if part else key, value)


def _drop_old_options(
    table: dict[str, Any], section: str, key: str, value: Any, makers: Makers, options: Sequence[str]
) -> None:
    """An override that chooses another split, model or schedule leaves the file's options for the old one behind. What
    a new attack takes, stays."""
    if not isinstance(value, str) or value not in makers or table.get(key) == value:
        return
    takes = () if key == "name" and section != "attack" else inspect.signature(makers[value]).parameters
    for option in options:
        if option not in takes:
            table.pop(option, None)


def _drop_old_choice(table: dict[str, Any], path: str, value: Any, folder: Path | None) -> None:
    """Readies an [algorithm] table for another choice. Another preset keeps a mask and an average of choice and nothing
    else, since the rate that suits Adam is far too short for averaging; another mask or average keeps those of the old
    one's fields that it has too."""
    old_name = name_in(table.get("name", AlgorithmSection.model_fields["name"].default))
    known = isinstance(value, str) and value in ALGORITHMS and old_name in ALGORITHMS
    if path == "name" and known and old_name != value:
        average = preset_of(old_name).average
        kept = {
            "mask",
            *({"average"} if name_in(table.get("average")) not in (None, name_of("average", average)) else ()),
        }
        for what in PARTS:
            if what not in kept or not is_open(ALGORITHMS[value]):
                table.pop(what, None)
    what = path.partition(".")[0]
    old = table.get(what)
    if what in PARTS and isinstance(value, Mapping):
        table.pop(what, None)
    elif what in PARTS and isinstance(old, Mapping) and old.get("name") != value and isinstance(value, str):
        table[what] = _kept(what, old, value, folder) if what in ("mask", "average") else {}


def _kept(what: str, old: Mapping[str, Any], name: str, folder: Path | None) -> dict[str, Any]:
    """The fields of a part that one of another name has too. A control has them by its mask."""
    inner = old.get("mask") if isinstance(old.get("mask"), Mapping) else {}
    fields = {**{key: value for key, value in old.items() if key != "mask"}, **inner} if inner else dict(old)
    fields.pop("name", None)
    if name == "none" or (":" not in name and name not in PARTS[what]):
        return {}
    takes = settings_of(maker_of(what, name, f"algorithm.{what}", folder))
    kept = {key: value for key, value in fields.items() if key in takes}
    if what == "mask" and "mask" in takes and takes["mask"].part:
        of_mask = {key: value for key, value in fields.items() if key in settings_of(type(takes["mask"].default))}
        kept |= {"mask": of_mask} if of_mask else {}
    return kept
