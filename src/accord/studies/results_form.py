"""The form of a file that `accord reproduce` writes: what is not of it is refused before anything is judged by it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from accord.core.errors import AccordError
from accord.core.files import check_plain
from accord.core.measure import SLACK
from accord.studies.files import FILES

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
Number = Annotated[float, Field(ge=-1e18, le=1e18)]  # whole numbers are such, too
Figure = Number | str | bool | None  # a number that is none is null
_SHARES = ("accuracy (%)", "participating (%)", "others (%)", "under tau (%)")  # ends of analyses' columns of shares
_OTHER_METRIC = ("train.metrics", "train.loss", "data.")  # settings by which a study may measure something else


def _check_shares(figures: Mapping[str, Figure], whole: int, where: str) -> None:
    """Refuses a share below 0 or above the whole."""
    for name, value in figures.items():
        if isinstance(value, float | int) and not -SLACK <= value <= whole + SLACK:
            raise ValueError(f"{name} of {where} is {value:g}, and a share must be between 0 and {whole}")


class AnalysisFile(BaseModel):
    model_config = _STRICT
    name: str
    title: str
    command: str
    rows: Annotated[list[dict[str, Figure]], Field(min_length=1)]
    points: list[dict[str, Figure]] = []
    notes: list[str]
    files: list[str]
    printed: list[dict[str, Figure]]
    settings: dict[str, Any]
    paper: str | None
    table: str | None

    @model_validator(mode="after")
    def _shares(self) -> "AnalysisFile":
        for kind, rows in (("row", self.rows), ("point", self.points)):
            for number, row in enumerate(rows, 1):
                shares = {name: value for name, value in row.items() if name.endswith(_SHARES)}
                _check_shares(shares, 100, f"{kind} {number}")
        return self


class Figures(BaseModel):
    model_config = _STRICT
    point: dict[str, Any]
    by_seed: dict[str, dict[str, Number | None]]
    curve: dict[str, Number | None] = {}


class Printed(BaseModel):
    model_config = _STRICT
    value: Number
    std: str | None
    note: str
    window: str


class Cell(BaseModel):
    model_config = _STRICT
    values: dict[str, str]
    done: Annotated[int, Field(ge=0)]
    runs: Annotated[int, Field(ge=0)]
    rounds: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    flat: int = 0
    missing: str | None = None
    figures: dict[str, Figures]
    grid: dict[str, list[Any]] = {}
    printed: list[Printed]


class StudyFile(BaseModel):
    model_config = _STRICT
    study: str
    title: str
    command: str
    paper: str | None
    table: str | None
    axes: list[str]
    compare: str
    against: str
    rules: Annotated[list[str], Field(min_length=1)]
    seeds: list[int]
    changed: list[str] = []  # settings that the command changed; files of 0.1 do not say
    cells: list[Cell]

    @model_validator(mode="after")
    def _axes(self) -> "StudyFile":
        if self.compare not in self.axes:
            raise ValueError(f"it compares along {self.compare!r}, which is no axis of it")
        for cell in self.cells:
            if set(cell.values) != set(self.axes):
                raise ValueError(
                    f"a cell has values of {', '.join(cell.values)}, and the axes are {', '.join(self.axes)}"
                )
        return self

    @model_validator(mode="after")
    def _accuracies(self) -> "StudyFile":
        """All studies that come with accord measure accuracy, unless their command changed that; of others nobody
        knows what they measure."""
        measures_other = any(change.startswith(_OTHER_METRIC) for change in self.changed)
        if measures_other or self.study not in {path.stem for path in FILES.glob("*.toml")}:
            return self
        for cell in self.cells:
            where = ", ".join(cell.values.values())
            for rule, figures in cell.figures.items():
                for seed, by_split in figures.by_seed.items():
                    _check_shares(by_split, 1, f"{where} (seed {seed}, by {rule})")
                _check_shares({f"round {at}": of for at, of in figures.curve.items()}, 1, f"the curve of {where}")
        return self


# ---------------------------------------------------------------------------------------------------- reading


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Within it, whatever is wrong with the content of a file is a sentence that names the file, and `what` it should
    hold."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ")  # what pydantic puts before sentences of ours
        why = " ".join(f"{'.'.join(map(str, first['loc']))}: {said}".strip(": ").split())
        raise AccordError(f"{path} does not hold {what}: {why}") from None
    except (RecursionError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise AccordError(f"{path} does not hold {what}: {type(error).__name__} {error}") from None


def content_of(path: Path, marks: Sequence[str]) -> dict[str, Any]:
    """What a JSON file holds, which is a table with one of these keys."""
    check_plain(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not {*marks} & set(content):
        raise KeyError(marks[0])
    return content
