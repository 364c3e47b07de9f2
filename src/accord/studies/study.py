"""A study as its file tells it: a grid of cells, each of them several runs.

A cell is one combination of the values of the study's axes (data set, skew, algorithm, rule): what a table prints in
one place. Each value of an axis brings settings of an experiment. A cell is run with every seed and, so that no method
is tuned more than another, with every combination of the study's grid.

A file has `settings` of all cells, `axes` whose values bring settings, `when` for settings of some cells alone, and
`keep` or `skip` where not every combination is a cell. All studies' runs lie in one folder, under names that their
settings give them: what one has trained, another finds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from accord.core.errors import AccordError, did_you_mean
from accord.data.sources import NoData
from accord.experiments.experiment import Experiment, assemble, override
from accord.experiments.paths import canonical_paths
from accord.experiments.settings import Seed
from accord.experiments.sweep import PlannedRun
from accord.studies.files import toml

Settings = dict[str, Any]  # "section.key" -> value
Place = tuple[str, ...]  # the values of a cell's axes but the one whose values are rivals
Chosen = Mapping[str, Sequence[str]]  # axis -> those of its values that are meant
CONTROLS = ("scaled", "length")  # the control of a rival `gma` is the rival `gma-scaled`, or `gma-length`
POOL = "runs"  # the folder, beside the results, that has the runs of all studies


@dataclass(frozen=True)
class Cell:
    """One place of a table: the axes' values, and the settings they come to."""

    values: dict[str, str]
    settings: Settings
    grid: dict[str, list[Any]]
    seeds: tuple[int, ...] = ()

    @property
    def key(self) -> frozenset[tuple[str, str]]:
        """What tells it from the study's other cells."""
        return frozenset(self.values.items())

    @property
    def may_end_early(self) -> bool:
        """Whether its runs end by themselves once they no longer improve."""
        return self.settings.get("train.patience") is not None

    @property
    def points(self) -> list[Settings]:
        """The combinations of the grid, each of which is tried with every seed."""
        return [dict(zip(self.grid, combination, strict=True)) for combination in product(*self.grid.values())]

    def __str__(self) -> str:
        return ", ".join(self.values.values())


@dataclass(frozen=True)
class Named:
    """A cell's runs, each with its point of the grid; none, and why, where its data are not here or its settings are
    wrong."""

    cell: Cell
    runs: list[tuple[Settings, PlannedRun]]
    missing: str | None = None
    lacks: str | None = None  # the data set that is not here


@dataclass(frozen=True)
class Study:
    """What a file asks for. `compare` is the axis whose values are rivals, `against` the value that the others are
    measured by."""

    name: str
    title: str
    paper: str | None
    table: str | None
    compare: str
    against: str
    rules: tuple[str, ...]  # how rounds are chosen; the first is the table's own, where the paper says it
    seeds: tuple[int, ...]
    settings: Settings
    axes: dict[str, dict[str, Settings]]
    grids: dict[str, dict[str, list[Any]]]
    when: tuple[tuple[Chosen, Settings], ...] = ()  # settings of some cells alone
    keep: tuple[Chosen, ...] = ()  # the cells there are; empty, all
    skip: tuple[Chosen, ...] = ()
    home: Path | None = None  # the folder of its file, where modules that it names are looked for
    wider: dict[Place, dict[str, list[Any]]] = field(default_factory=dict)  # values that a place's grid has grown by
    more_seeds: dict[Place, tuple[int, ...]] = field(default_factory=dict)  # that a place has besides

    @cached_property
    def cells(self) -> list[Cell]:
        """Every combination of the axes' values that the file keeps and does not skip."""
        cells = []
        for combination in product(*(axis.items() for axis in self.axes.values())):
            values = dict(zip(self.axes, (name for name, _ in combination), strict=True))
            if self.keep and not any(within(values, chosen) for chosen in self.keep):
                continue
            if any(within(values, chosen) for chosen in self.skip):
                continue
            settings = dict(self.settings)
            for _, more in combination:
                settings |= more
            for chosen, more in self.when:
                settings |= more if within(values, chosen) else {}
            seeds = (*self.seeds, *self.more_seeds.get(self.place(values), ()))
            cells.append(Cell(values, settings, self.grid_of(values), seeds))
        return cells

    @property
    def data(self) -> list[str]:
        """The data sets that its cells take."""
        return list(dict.fromkeys(cell.settings.get("data.name", "mnist") for cell in self.cells))

    @property
    def evaluates_all(self) -> bool:
        """Whether every round of every run is evaluated, so that the best of them is the best there is."""
        each = (
            ("train.evaluate_at" in cell.settings, cell.settings.get("train.evaluate_every")) for cell in self.cells
        )
        return all(named == (False, 1) for named in each)

    @property
    def without_control(self) -> list[str]:
        """The masks among the rivals that no plain step of their length stands beside."""
        rivals = self.axes[self.compare]
        return [
            name
            for name, settings in rivals.items()
            if settings.get("algorithm.mask.name", settings.get("algorithm.mask", "none")) not in ("none", "scaled")
            and f"{name}-{CONTROLS[-1]}" not in rivals
        ]

    def place(self, values: Mapping[str, str]) -> Place:
        """Where a cell stands, whichever rival it is of."""
        return tuple(value for axis, value in values.items() if axis != self.compare)

    def grid_of(self, values: Mapping[str, str]) -> dict[str, list[Any]]:
        """The grid for a cell: the general one, what the file has for a value of an axis (`[grid.fedadam]`) in place of
        it, and what it has grown by, which is the same for all rivals."""
        grid = dict(self.grids.get("", {}))
        for value in values.values():
            grid |= self.grids.get(value, {})
        for key, more in self.wider.get(self.place(values), {}).items():
            if key in grid:  # a rival may have keys that others have not
                grid[key] = [*grid[key], *(value for value in more if value not in grid[key])]
        # an empty list takes a key out of an included grid
        return {key: values for key, values in grid.items() if values}

    def only(self, chosen: Mapping[str, Sequence[str]]) -> "Study":
        """The study with some of its axes' values."""
        check_there(self.name, chosen, self.axes)
        some = {
            axis: {name: self.axes[axis][name] for name in self.axes[axis] if name in wanted}
            for axis, wanted in chosen.items()
        }
        return replace(self, axes={**self.axes, **some})

    def without(self, cells: Iterable[Cell]) -> "Study":
        """The study without the cells that have the values of these."""
        skipped = tuple({axis: [value] for axis, value in cell.values.items()} for cell in cells)
        return replace(self, skip=(*self.skip, *skipped))

    def changed(self, overrides: Iterable[str] = (), seeds: Sequence[int] | None = None, grid: bool = True) -> "Study":
        """The study with settings that go before all others, other seeds, or no grid: then the settings say what a
        method runs with."""
        changes = canonical_paths({f"{section}.{key}": value for section, key, value in map(override, overrides)})
        axes = {
            axis: {name: {**more, **changes} for name, more in values.items()} for axis, values in self.axes.items()
        }
        grids = (
            {name: {k: v for k, v in of.items() if k not in changes} for name, of in self.grids.items()} if grid else {}
        )
        when = tuple((chosen, {**more, **changes}) for chosen, more in self.when)
        kept_seeds = self.seeds if seeds is None else checked_seeds(seeds)
        return replace(self, axes=axes, when=when, grids=grids, seeds=kept_seeds)

    def experiments(self, cell: Cell, folder: Path) -> Iterator[tuple[Settings, Experiment]]:
        """What the cell tries: a point of the grid, and the experiment it comes to."""
        for point in cell.points:
            changes = [
                (*key.split(".", 1), value)
                for key, value in {**cell.settings, **point, "run.folder": str(folder)}.items()
            ]
            yield point, assemble({}, changes, self._text(cell, point), self.home)

    def runs(self, cell: Cell, folder: Path) -> Iterator[tuple[Settings, PlannedRun]]:
        """The cell's runs, each with its point of the grid. They have names only where the data set is there to be
        named."""
        for point, experiment in self.experiments(cell, folder):
            for seed in cell.seeds:
                yield point, PlannedRun(experiment, seed, {**cell.values, **point}, experiment.folder(seed))

    def named(self, folder: Path) -> "list[Named]":
        """All cells with their runs. To name a run takes a while, so whoever trains and then reads asks once; and data
        that cannot be had are asked for once."""
        lacking: dict[tuple[Any, Any], NoData] = {}
        return [self._named(cell, folder, lacking) for cell in self.cells]

    def _named(self, cell: Cell, folder: Path, lacking: dict[tuple[Any, Any], NoData]) -> "Named":
        data = cell.settings.get("data.name"), cell.settings.get("data.source")
        try:
            if data in lacking:
                raise lacking[data]
            return Named(cell, list(self.runs(cell, folder)))
        except NoData as error:
            lacking[data] = error
            return Named(cell, [], str(error), error.data)
        except AccordError as error:
            return Named(cell, [], str(error))

    def _text(self, cell: Cell, point: Settings) -> str:
        """What a run's folder keeps as its experiment file."""
        sections: dict[str, dict[str, Any]] = {}
        for key, value in {**cell.settings, **point}.items():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
        lines = [f"# {self.title}: {cell}"]
        for section, keys in sections.items():
            lines += ["", f"[{section}]", *(f"{name} = {toml(value)}" for name, value in keys.items())]
        return "\n".join(lines) + "\n"


def within(values: Mapping[str, str], chosen: Chosen) -> bool:
    """Whether a cell with these values of its axes is among those that are meant."""
    return all(values.get(axis) in wanted for axis, wanted in chosen.items())


def edges(grid: dict[str, list[Any]], point: Settings) -> dict[str, float]:
    """The keys whose value in `point` is on the edge of the grid, each with the value beyond it. Names and lists have
    no order, so a grid of them has no edge."""
    grown = {}
    for key, value in point.items():
        values = grid.get(key, [])
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in values):
            continue
        tried = sorted(values)
        if len(tried) < 2 or value not in (tried[0], tried[-1]) or min(tried) <= 0:
            continue
        neighbour = tried[1] if value == tried[0] else tried[-2]
        grown[key] = float(f"{value * value / neighbour:.2g}")
    return grown


def check_there(name: str, chosen: Chosen, axes: Mapping[str, Mapping[str, Any]], what: str = "") -> None:
    """Refuses axes and values that the study has not."""
    for axis, values in chosen.items():
        if axis not in axes:
            raise AccordError(f"{name} has no axis {axis!r}{what}: {did_you_mean(axis, axes)}")
        for value in values:
            if value not in axes[axis]:
                raise AccordError(
                    f"{axis} of {name} has no value {value!r}{what}: {did_you_mean(str(value), axes[axis])}"
                )


def checked_seeds(seeds_asked: Any) -> tuple[int, ...]:
    """Seeds of a study, of the kind that `run.seeds` takes."""
    try:
        seeds = TypeAdapter(list[Seed]).validate_python(seeds_asked, strict=True)
    except ValidationError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        text = ",".join(map(str, seeds_asked)) if isinstance(seeds_asked, list) else seeds_asked
        raise AccordError(f"seeds must be numbers from 0 on, each given once, got {text!r}")
    return tuple(seeds)
