"""The user's own tables, with a row for each sample: whose it is, what it is, and the columns that describe it. One
file with a column of clients, or a folder with a file for each client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError, nearest
from accord.data.cache import Progress
from accord.data.cells import CellColumn, Cells, check_names, joined, level_name
from accord.data.federated import Federation
from accord.data.labels import Labels, missing_cell
from accord.data.preparation import MISSING, fit_columns, with_known_classes
from accord.data.readers.npz import owned
from accord.data.readers.sheets import SUFFIXES, Block, Sheet, open_sheet
from accord.data.samples import Samples

Categories = Sequence[str] | Mapping[str, Sequence[str]]  # columns, or their levels by column


@dataclass(frozen=True, eq=False)
class Table(Samples):
    """Samples whose features have names. `x` holds the cells as they are: NaN where one is missing, and the number of a
    level where a column holds categories."""

    features: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] | None = None  # of columns of categories
    declared: Mapping[str, tuple[str, ...]] | None = None  # levels that the user names, in their order
    missing: str = MISSING[0]
    dropped: tuple[str, ...] = ()  # columns that no model reads, such as an id

    def ready(self, fed: Federation, natural: bool) -> Federation:
        fed = with_known_classes(fed) if natural else fed
        cells = Cells(self.features, self.x, self.levels or {})
        return replace(fit_columns(fed, cells, self.missing, self.declared or {}), dropped=self.dropped)


def read_table(
    source: Any,
    client: str = "client",
    label: str = "label",
    progress: Progress | None = None,
    *,
    missing: str = MISSING[0],
    categories: Categories = (),
    drop: Sequence[str] = (),
) -> Table:
    """The samples of a table; its features are all columns but `client`, `label` and those in `drop`, in the file's
    order.

    In a folder the file's name is the client's, where there is no column `client`. Labels that are text or whole
    numbers are classes; if all are numbers and one has a fraction, they are targets of a regression. Columns of text
    and those in `categories` hold categories.
    """
    if missing not in MISSING:
        raise AccordError(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")
    if client == label:
        raise AccordError(f"column {client!r} cannot be both client and label: name two columns")
    sheets = _sheets(source, client, label)
    features = _features(sheets, client, label, drop)
    for name in categories:
        if name not in features:
            raise AccordError(f"categories names column {name}, which is no feature: {_hint(name, features)}")
    columns = [CellColumn(name, declared=name in categories) for name in features]
    clients, labels = list[str](), Labels(label)
    for sheet, owner in sheets:
        for block in sheet.blocks(progress):
            clients += [owner] * len(block) if client not in sheet.header else _clients(block, client)
            labels.extend(block.texts(label), block.at)
            for column in columns:
                block.feed(column)
    where = source if isinstance(source, str | Path) else "the table"
    if not clients:
        raise AccordError(f"{where} has a header but no rows: each sample is one row")
    (numbers, owners), (y, classes) = owned(clients), labels.targets()
    cells = joined(columns, len(clients))
    fixed = categories if isinstance(categories, Mapping) else {}
    declared = {name: tuple(map(level_name, levels)) for name, levels in fixed.items()}
    return Table(
        cells.values,
        y,
        owner=numbers,
        owners=owners,
        classes=classes,
        features=features,
        levels=cells.levels,
        declared=declared,
        missing=missing,
        dropped=tuple(drop),
    )


def read_cells(
    source: Any, features: Mapping[str, bool], dropped: Sequence[str] = ()
) -> tuple[Cells, dict[str, list[Any]], tuple[str, ...]]:
    """These columns of a table, of which it is known whether they hold categories; what its rows go by, which are the
    `dropped` columns that it has, or else its rows' numbers from 1; and the names of its others."""
    sheet = open_sheet(source, list(features))
    for name in features:
        if name not in sheet.header:
            raise AccordError(
                f"{sheet.where} has no column {name!r}, which the model reads: {_hint(name, sheet.header)}"
            )
    columns, rows = [CellColumn(name, category, trained=True) for name, category in features.items()], 0
    ids: dict[str, list[Any]] = {name: [] for name in sheet.header if name in dropped and name not in features}
    for block in sheet.blocks():
        rows += len(block)
        for name, texts in ids.items():
            texts += block.texts(name)
        for column in columns:
            block.feed(column)
    others = tuple(name for name in sheet.header if name not in features and name not in ids)
    return joined(columns, rows), ids or {"row": list(range(1, rows + 1))}, others


def _sheets(source: Any, client: str, label: str) -> list[tuple[Sheet, str]]:
    """The tables, and whose each is; nobody's (an empty name) where a column must say so."""
    folder = Path(source).expanduser() if isinstance(source, str | Path) else None
    if folder is None or not folder.is_dir():
        return [(open_sheet(source, (client, label)), "")]
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != ".")
    if not files:
        raise AccordError(f"{folder} holds no tables: it should have a .csv or .parquet file for each client")
    return [(open_sheet(file, (label,)), file.stem) for file in files]


def _features(sheets: Sequence[tuple[Sheet, str]], client: str, label: str, drop: Sequence[str]) -> tuple[str, ...]:
    """The columns that are neither client nor label, the same in every file."""
    first = sheets[0][0]
    for sheet, owner in sheets:
        for name, role in ((client, "client"), (label, "label")):
            if name not in sheet.header and not (role == "client" and owner):
                raise AccordError(f"{sheet.where} has no column {name!r} for the {role}: {_hint(name, sheet.header)}")
        check_names(sheet.header, first.header, sheet.where, first.where, "clients")
    for name in drop:
        if name not in first.header or name in (client, label):
            others = [other for other in first.header if other not in (client, label)]
            raise AccordError(f"drop names column {name}, which is no feature of {first.where}: {_hint(name, others)}")
    features = tuple(name for name in first.header if name not in (client, label, *drop))
    if not features:
        raise AccordError(f"{first.where} has no column besides {client} and {label}: features are needed, too")
    return features


def _clients(block: Block, client: str) -> list[str]:
    """Whose each row of the block is, by its column of clients."""
    names = [name.strip() for name in block.texts(client)]
    if "" in names:
        raise AccordError(missing_cell(block.at(names.index("")), client))
    return names


def _hint(name: str, names: Sequence[str]) -> str:
    close = nearest(name, names)
    return f"did you mean {close!r}?" if close else f"its columns are {', '.join(names[:20])}"
