"""A study's file, read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError, did_you_mean
from accord.core.files import flat
from accord.experiments.paths import canonical_paths
from accord.studies.files import check_keys, path_of, tables_at
from accord.studies.published import own_rules
from accord.studies.study import Chosen, Settings, Study, check_there, checked_seeds

RULES = ("held-out", "last10", "oracle")
_ABOUT = ("title", "paper", "table", "about", "include")
_KEYS = (*_ABOUT, "compare", "against", "rules", "settings", "axes", "when", "grid", "keep", "skip", "seeds")


def load(name: str) -> Study:
    """A study by its name, or from a file of yours."""
    path = path_of(name)
    return make(path.stem, tables_at(path), path.parent)


def make(name: str, tables: dict[str, Any], home: Path | None = None) -> Study:
    """A study from its file's tables."""
    check_keys(tables, _KEYS, name, "studies")
    axes = {
        axis: {value: canonical_paths(flat(more)) for value, more in values.items()}
        for axis, values in tables.get("axes", {}).items()
    }
    if not axes:
        raise AccordError(f"{name} has no [axes]: a study needs at least one, or an analysis in their place")
    compare = tables.get("compare", list(axes)[-1])
    if compare not in axes:
        raise AccordError(f"{name} compares by {compare!r}, which is no axis of it: {did_you_mean(compare, axes)}")
    against = tables.get("against", next(iter(axes[compare])))
    if against not in axes[compare]:
        raise AccordError(
            f"{name} measures by {against!r} (`against`), which is no value of its axis {compare}:"
            f" {did_you_mean(against, axes[compare])}"
        )
    paper, table = tables.get("paper"), tables.get("table")
    return Study(
        name=name,
        title=tables.get("title", name),
        paper=paper,
        table=table,
        compare=compare,
        against=against,
        rules=tuple(tables.get("rules", dict.fromkeys([*own_rules(paper, table), *RULES]))),
        seeds=checked_seeds(tables.get("seeds", [0, 1, 2, 3])),
        settings=canonical_paths(flat(tables.get("settings", {}))),
        axes=axes,
        grids=_grids(tables.get("grid", {})),
        when=tuple(_when(name, entry) for entry in tables.get("when", [])),
        keep=tuple(_there(name, "keep", entry, axes) for entry in tables.get("keep", [])),
        skip=tuple(_there(name, "skip", entry, axes) for entry in tables.get("skip", [])),
        home=home,
    )


def _when(name: str, entry: Any) -> tuple[Chosen, Settings]:
    """Which cells an entry of `when` is about, and their settings. A file that is included may name cells that this
    study has not."""
    if not isinstance(entry, dict) or set(entry) != {"cells", "settings"}:
        raise AccordError(
            f"{name} has an entry of `when` that is not {{ cells = {{ AXIS = [VALUES] }}, settings = {{ ... }} }}:"
            f" {entry!r}"
        )
    return _chosen(name, "when", entry["cells"]), canonical_paths(flat(entry["settings"]))


def _there(name: str, key: str, entry: Any, axes: Mapping[str, Mapping[str, Any]]) -> Chosen:
    """An entry of `keep` or `skip`, which must name axes and values that the study has."""
    chosen = _chosen(name, key, entry)
    check_there(name, chosen, axes, f" for {key}")
    return chosen


def _chosen(name: str, key: str, entry: Any) -> Chosen:
    """Cells by values of axes, one or several of each."""
    if not isinstance(entry, dict) or not entry:
        raise AccordError(f"{name} has {key} = {entry!r}, which names no cells: write {{ AXIS = [VALUES] }}")
    return {axis: values if isinstance(values, list) else [values] for axis, values in entry.items()}


def _grids(table: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """The general grid under "", and those of single values of axes under their names."""
    general = {key: value for key, value in table.items() if isinstance(value, list)}
    return {
        "": canonical_paths(general),
        **{key: canonical_paths(value) for key, value in table.items() if isinstance(value, Mapping)},
    }
