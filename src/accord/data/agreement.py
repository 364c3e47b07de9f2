"""One preparation for owners who do not show each other their data.

Every owner says what its samples look like (`Form`): columns, levels and classes by name, no cell. Those that train
also add up exact moments of their training rows. `agreed` makes of both the preparation that a simulation has of the
joined table, and `prepared_by` puts it in the place of an owner's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from accord.core.errors import AccordError
from accord.core.names import in_order, listed
from accord.data.cells import check_names, number_of
from accord.data.federated import Federation, Prepare, Scale
from accord.data.moments import Moments
from accord.data.preparation import Column, Preparation, Refit
from accord.data.standardise import Standardise, by_column, follows_rows

Kind = Literal["numbers", "categories", "nothing"]  # what a column holds; nothing: all of it is missing
Source = Literal["table", "numbers", "pictures", "settled"]
_FITTED: dict[type, Source] = {Standardise: "numbers", Scale: "pictures"}


@dataclass(frozen=True)
class ColumnForm:
    """A column of a table: what it holds, and the levels of a category, declared or found in training rows."""

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    declared: bool = False


@dataclass(frozen=True)
class Form:
    """What an owner's samples look like, without a single one. Statistics of a `source` are fitted to training rows,
    unless the preparation is settled: the app's own, the same for everybody."""

    source: Source
    shape: tuple[int, ...]  # of a sample as the model reads it; of a table, what it happens to be at this owner
    outputs: int
    regression: bool
    classes: tuple[str, ...] = ()
    columns: tuple[ColumnForm, ...] = ()
    missing: str = ""
    fields: list[dict[str, Any]] | None = None  # of samples that are several tensors
    settled: dict[str, Any] | None = None  # how columns are read and samples scaled

    @classmethod
    def of(cls, fed: Federation) -> "Form":
        preparation = Preparation.of(fed)
        if preparation is None:
            raise AccordError("the node has no samples")
        source = _source(fed)
        table = fed.refit if source == "table" else None
        return cls(
            source,
            preparation.shape,
            preparation.outputs,
            preparation.regression,
            _classes(fed),
            () if table is None else tuple(_columns(fed, table)),
            "" if table is None else table.missing,
            preparation.to_json().get("fields"),
            _settled(preparation) if source == "settled" else None,
        )

    @property
    def in_clear(self) -> list[str]:
        """What it tells of the data by name, which nobody declared."""
        columns = [column.name for column in self.columns if column.levels and not column.declared]
        return [f"column {name}" for name in columns] + (["the classes"] if self.classes else [])

    @property
    def kinds(self) -> dict[str, Kind]:
        return {column.name: column.kind for column in self.columns}


def moments_of(fed: Federation, clients: Sequence[str], columns: Sequence[str]) -> Moments:
    """Of the training rows of these clients; of a table its `columns`, in this order."""
    rows = torch.cat([torch.zeros(0, dtype=torch.int64), *(fed.train[client] for client in clients)])
    if fed.refit is None:
        return Moments.of(by_column(fed.x[rows]))
    cells = fed.refit.cells
    places = [cells.names.index(name) for name in columns]
    return Moments.of(cells.values[rows][:, places], [name not in cells.levels for name in columns])


# ------------------------------------------------------------------------------------------------ at the server


def check_alike(forms: Mapping[str, Form]) -> None:
    """Refuses owners, by the names of their clients, whose samples are not those of the first: their columns, what
    these hold, their declared levels, their settings."""
    (first, like), *others = forms.items()
    known = {name: (kind, first) for name, kind in like.kinds.items()}
    for who, form in others:
        if (form.source, form.settled, form.fields) != (like.source, like.settled, like.fields):
            raise AccordError(
                f"{_samples(form)} of {who} are prepared otherwise than {_samples(like)} of {first}: all owners need"
                " the same data function, and the same settings of it"
            )
        check_names(form.kinds, like.kinds, who, first)
        for name, kind in form.kinds.items():
            before, whose = known[name]
            if before == "nothing":
                known[name] = kind, who
            elif kind not in ("nothing", before):
                raise AccordError(
                    f"column {name} holds {kind} at {who} and {before} at {whose}: correct it, or name it in"
                    " `categories` everywhere"
                )
        declared, usual = ({c.name: c.levels for c in of.columns if c.declared} for of in (form, like))
        for name in declared.keys() | usual.keys():
            mine, theirs = (_levels(of.get(name)) for of in (declared, usual))
            if mine != theirs:
                raise AccordError(
                    f"column {name} has {mine} in `categories` at {who} and {theirs} at {first}: declare the same"
                )
        if form.missing != like.missing:
            raise AccordError(f"missing is {form.missing!r} at {who} and {like.missing!r} at {first}: choose one")
        if form.settled is None and not form.columns and form.shape[:1] != like.shape[:1]:
            raise AccordError(f"samples of {who} have shape {form.shape}, and those of {first} {like.shape}")


def agreed(forms: Mapping[str, Form], moments: Moments | None) -> Preparation:
    """The preparation of owners who are alike, from the moments of all of their training rows."""
    like, every = next(iter(forms.values())), list(forms.values())
    regression = any(form.regression for form in every)
    classes = () if regression else tuple(in_order({name for form in every for name in form.classes}))
    outputs = 1 if regression else max(len(classes), 0 if classes else max(form.outputs for form in every))
    if like.settled is not None:
        rest = {"shape": like.shape, "outputs": outputs, "regression": regression, "classes": classes}
        return Preparation.from_json(
            {**rest, **like.settled, **({} if like.fields is None else {"fields": like.fields})}
        )
    assert moments is not None
    if like.source == "table":
        columns = tuple(_agreed_column(place, every, moments) for place in range(len(like.columns)))
        shape = (sum(len(column.inputs) for column in columns),)
        return Preparation(shape, outputs, regression, classes, columns, _standardised(columns, moments))
    spreads = [moments.spread(place) for place in range(len(moments.counts))]
    mean, std = tuple(mean for mean, _ in spreads), tuple(std for _, std in spreads)
    scaling: Prepare = Standardise(mean, std)
    if like.source == "pictures":
        scaling = Scale(tuple(of / 255 for of in mean), tuple((of or 1.0) / 255 for of in std))
    return Preparation(like.shape, outputs, regression, classes, scaling=scaling)


def _agreed_column(place: int, forms: Sequence[Form], moments: Moments) -> Column:
    name, missing = forms[0].columns[place].name, forms[0].missing
    all_of_it = [next(column for column in form.columns if column.name == name) for form in forms]
    indicator = moments.counts[place] < moments.rows
    if any(column.kind == "categories" for column in all_of_it):
        declared = next((column.levels for column in all_of_it if column.declared), None)
        seen = in_order({level for column in all_of_it for level in column.levels})
        return Column(name, tuple(declared or seen), indicator=indicator, missing=missing)
    return Column(name, None, moments.mean(place) if missing == "mean" else 0.0, indicator, missing)


def _standardised(columns: Sequence[Column], moments: Moments) -> Standardise:
    mean, std = list[float](), list[float]()
    for place, column in enumerate(columns):
        mean_std = moments.spread(place, column.fill) if column.levels is None else (0.0, 1.0)
        for flag in column.flags:
            mean.append(0.0 if flag else mean_std[0])
            std.append(1.0 if flag else mean_std[1])
    return Standardise(tuple(mean), tuple(std))


# ------------------------------------------------------------------------------------------------- at an owner


def prepared_by(fed: Federation, preparation: Preparation) -> Federation:
    """An owner's federation with its samples as all owners have agreed to prepare them."""
    fed = _with_classes(fed, preparation)
    source, scaling, who = _source(fed), preparation.scaling, _whose(fed)
    if source == "settled" or scaling is None:
        if fed.train and _settled(Preparation.of(fed)) != _settled(preparation):
            raise AccordError(f"samples of {who} are prepared otherwise than those of the federation")
        return fed
    if source == "table":
        assert fed.refit is not None
        cells, theirs = fed.refit.cells, {column.name: column for column in preparation.columns}
        check_names(cells.names, theirs, who, "the federation")
        for name in theirs:
            there = not bool(cells.values[:, cells.names.index(name)].isnan().all())
            if there and (name in cells.levels) != (theirs[name].levels is not None):
                holds, other = ("categories", "numbers") if name in cells.levels else ("numbers", "categories")
                raise AccordError(f"column {name} holds {holds} at {who} and {other} in the federation")
        return replace(fed, x=preparation.encode(fed.refit.cells), columns=preparation.columns, prepare=scaling)
    if fed.shape[:1] != preparation.shape[:1]:
        raise AccordError(f"samples of {who} have shape {fed.shape}, and those of the federation {preparation.shape}")
    return replace(fed, prepare=scaling)


def _with_classes(fed: Federation, preparation: Preparation) -> Federation:
    """Labels by the numbers that all owners give them."""
    if not fed.classes:
        return fed
    if preparation.regression:  # whole numbers here, and numbers with a fraction at another owner
        numbers = [number_of(name) for name in fed.classes]
        if None in numbers:
            raise AccordError(f"labels of {_whose(fed)} are names, and those of the federation numbers")
        return replace(fed, y=torch.tensor(numbers, dtype=torch.float32)[fed.y], classes=())
    place = {name: number for number, name in enumerate(preparation.classes)}
    for split, client, rows in fed.groups():
        for number in fed.y[rows].unique().tolist():
            if fed.classes[number] not in place:
                raise AccordError(
                    f"client {client} has label {fed.classes[number]!r} among its {split} rows, and no client that"
                    " takes part has it: leave these rows out"
                )
    numbers_of = torch.tensor([place.get(name, -1) for name in fed.classes])
    return replace(fed, y=numbers_of[fed.y], classes=preparation.classes)


# ----------------------------------------------------------------------------------------------------- helpers


def _source(fed: Federation) -> Source:
    """What statistics of the owner's own stand in its preparation; none, if it is settled. Of an owner that trains on
    nothing it goes by the kind alone: it takes what others agree on."""
    if fed.train and not follows_rows(fed):
        return "settled"
    if fed.refit is not None:
        return "table"
    return _FITTED.get(type(fed.prepare), "settled")


def _settled(preparation: Preparation | None) -> dict[str, Any]:
    form = preparation.to_json() if preparation else {}
    return {"columns": form.get("columns"), "scaling": form.get("scaling")}


def _columns(fed: Federation, table: Refit) -> list[ColumnForm]:
    if table.missing == "median" and fed.train:
        raise AccordError(
            'missing = "median" cannot be computed from sums, which is all that owners share: choose "mean" or "zero"'
        )
    rows = torch.cat([torch.zeros(0, dtype=torch.int64), *fed.train.values()])
    forms = []
    for name, values in zip(table.cells.names, table.cells.values[rows].unbind(1), strict=True):
        levels, there = table.cells.levels.get(name), values[~values.isnan()]
        if levels is None:
            forms.append(ColumnForm(name, "numbers" if len(there) else "nothing"))
            continue
        seen, declared = in_order({levels[int(number)] for number in there.unique()}), table.declared.get(name)
        if declared and (odd := [level for level in seen if level not in declared]):
            raise AccordError(
                f"{_whose(fed)} has {listed(odd)} in column {name}, which `categories` does not declare: its levels are"
                f" {listed(list(declared))}"
            )
        forms.append(ColumnForm(name, "categories", tuple(declared or seen), bool(declared)))
    return forms


def _classes(fed: Federation) -> tuple[str, ...]:
    """Those of clients that take part; an unseen client's own are nobody's business."""
    rows = torch.cat([torch.zeros(0, dtype=torch.int64), *fed.train.values(), *fed.heldout.values()])
    return tuple(fed.classes[number] for number in fed.y[rows].unique().tolist()) if fed.classes else ()


def _whose(fed: Federation) -> str:
    names = [*fed.train, *fed.unseen]
    return f"client{'s' if len(names) > 1 else ''} {listed(names)}"


def _levels(levels: Sequence[str] | None) -> str:
    return "no levels" if levels is None else f"the levels {listed(list(levels))}"


def _samples(form: Form) -> str:
    return {"table": "rows of a table", "settled": "samples", "numbers": "rows of numbers"}.get(form.source, "pictures")
