"""The form of a file that `accord reproduce` writes: what is not of it is refused before anything is judged by it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from accord.core.errors import AccordError
from accord.core.files import check_plain
from accord.core.measure import SLACK
from accord.studies.files import FILES

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
Number = Annotated[float, Field(ge=-1e18, le=1e18)]  # whole numbers are such, too
Figure = Number | str | bool | None  # a number that is none is null
Setting = Number | str | bool | list[Any] | dict[str, Any]  # of a grid, as TOML has it


def _whole_number(least: int, what: str) -> AfterValidator:
    """Of a key of JSON: it is a whole number, written as Python writes it."""

    def check(key: str) -> str:
        if not (key.isascii() and key.isdecimal() and len(key) < 20 and key == str(int(key)) and int(key) >= least):
            raise ValueError(f"{what} are whole numbers from {least}, got {key!r}")
        return key

    return AfterValidator(check)


def _one_line(text: str) -> str:
    """Of what a report has as a heading or in a table."""
    if any(ord(letter) < ord(" ") for letter in text):
        raise ValueError(f"write it in one line, got {text!r}")
    return text


def _unequal(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is there twice: {seeds}")
    return seeds


Line = Annotated[str, AfterValidator(_one_line)]
Seed = Annotated[str, _whole_number(0, "seeds")]
Round = Annotated[str, _whole_number(1, "rounds")]
_SHARES = ("accuracy (%)", "participating (%)", "others (%)", "under tau (%)")  # ends of analyses' columns of shares
_OTHER_METRIC = ("train.metrics", "train.loss", "data.")  # settings by which a study may measure something else


def _check_shares(figures: Mapping[str, Figure], whole: int, where: str) -> None:
    """Refuses a share below 0 or above the whole."""
    for name, value in figures.items():
        if isinstance(value, float | int) and not -SLACK <= value <= whole + SLACK:
            raise ValueError(f"{name} of {where} is {value:g}, and a share must be between 0 and {whole}")


class PaperNumber(BaseModel):
    """A number that a paper prints; beside these keys it has columns that say what it is of."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")
    __pydantic_extra__: dict[str, Figure]
    value: Number
    ours: Number | None = None


class AnalysisFile(BaseModel):
    model_config = _STRICT
    name: Line
    title: Line
    command: Line
    rows: Annotated[list[dict[str, Figure]], Field(min_length=1)]
    points: list[dict[str, Figure]] = []
    notes: list[str]
    files: list[str]
    printed: list[PaperNumber]
    settings: dict[str, Any]
    options: dict[str, Any] = {}
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
    point: dict[str, Setting]
    by_seed: dict[Seed, dict[str, Number | None]]
    curve: dict[Round, Number] = {}


class Printed(BaseModel):
    model_config = _STRICT
    value: Number
    std: str | None
    note: str
    metric: str
    window: str


class Cell(BaseModel):
    model_config = _STRICT
    values: dict[str, Line]
    done: Annotated[int, Field(ge=0)]
    runs: Annotated[int, Field(ge=0)]
    rounds: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None  # the fewest and most of its runs
    flat: int = 0
    missing: str | None = None
    superseded: Line | None = None  # why the cell must be run again
    figures: dict[str, Figures]
    grid: dict[str, list[Setting]] = {}
    printed: list[Printed]

    @model_validator(mode="after")
    def _done(self) -> "Cell":
        if self.done > self.runs:
            raise ValueError(f"{self.done} of {self.runs} runs are said to be done")
        if self.done and not self.rounds:
            raise ValueError(f"{self.done} runs are done, and nothing says of how many rounds")
        if self.rounds and not 0 < self.rounds[0] <= self.rounds[1]:
            raise ValueError(f"the fewest and most rounds of its runs are said to be {self.rounds}")
        return self

    @model_validator(mode="after")
    def _tuned(self) -> "Cell":
        """Files of 0.1 do not have grids."""
        points = prod(len(values) for values in self.grid.values())
        for figures in self.figures.values() if self.grid else ():
            for key, value in figures.point.items():
                if value not in self.grid.get(key, []):
                    raise ValueError(f"{key} = {value} is chosen and not in the grid")
            if self.done == self.runs != points * len(figures.by_seed):
                raise ValueError(f"{points} points and {len(figures.by_seed)} seeds are said to be {self.runs} runs")
        return self


class StudyFile(BaseModel):
    model_config = _STRICT
    study: Line
    title: Line
    command: Line
    paper: str | None
    table: str | None
    axes: list[str]
    compare: str
    against: str
    rules: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[int], AfterValidator(_unequal)]
    changed: list[str] = []  # settings that the command changed; files of 0.1 do not say
    runs: list[str] = []
    cells: Annotated[list[Cell], Field(min_length=1)]

    @model_validator(mode="after")
    def _axes(self) -> "StudyFile":
        if self.compare not in self.axes:
            raise ValueError(f"it compares along {self.compare!r}, which is no axis of it")
        for cell in self.cells:
            if set(cell.values) != set(self.axes):
                raise ValueError(
                    f"a cell has values of {', '.join(cell.values)}, and the axes are {', '.join(self.axes)}"
                )
        if len({frozenset(cell.values.items()) for cell in self.cells}) < len(self.cells):
            raise ValueError("a cell is there twice")
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
    """Within it, content that is not of its form is a sentence that names the file, and `what` it should hold. Nothing
    else is caught: what is made of content after its form was checked fails by an error in accord alone."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ")  # what pydantic puts before sentences of ours
        why = " ".join(f"{'.'.join(map(str, first['loc']))}: {said}".strip(": ").split())
        raise AccordError(f"{path} does not hold {what}: {why}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON, where a key that is there twice would have its last value without a word."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return table


def content_of(path: Path, what: str, marks: Sequence[str]) -> dict[str, Any]:
    """What a JSON file holds, which is a table with one of these keys."""
    check_plain(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
        json.dumps(content, ensure_ascii=False).encode("utf-8")  # as a page will have it: "\ud800" is no text
    except (OSError, ValueError, RecursionError) as error:  # no such file, no UTF-8, no JSON, or nested too deeply
        raise AccordError(f"{path} does not hold {what}: {type(error).__name__} {error}") from None
    if not isinstance(content, dict) or not {*marks} & set(content):
        raise AccordError(f"{path} does not hold {what}: it has no {' or '.join(map(repr, marks))}")
    return content
