"""Results of the studies that come with accord. Claims and the papers' numbers are found by a study's name, so results
that bear such a name must be of that study, and with its settings, to answer them."""

from collections.abc import Mapping, Sequence
from typing import Any

from accord.core.errors import AccordError
from accord.runs.text import Cells
from accord.studies import Analysis, Cell, Study
from accord.studies.analysis import printed_row
from accord.studies.grow import as_wide
from accord.studies.outcome import Result
from accord.studies.published import Printed, find
from accord.studies.results import AnalysisResults, Results, StudyResults
from accord.studies.text import printed_cells

Bundled = Mapping[str, Study | Analysis]  # what comes with accord, by name: `everything()`


def changes(results: Results, bundled: Bundled) -> tuple[str, ...]:
    """The settings in which results differ from the study of their name that comes with accord, but for where they ran
    and with which seeds. Of an analysis its options count too; a study's results say what their command changed."""
    if isinstance(results, StudyResults):
        return results.changed
    known = bundled.get(results.name)
    if not isinstance(known, Analysis):
        return ()
    return (*_differing(results.settings, known.settings), *_differing(results.options, known.options))


def _differing(settings: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    keys = sorted(key for key in {*known, *settings} if not key.startswith("run."))
    return [f"{key}={settings.get(key)}" for key in keys if settings.get(key) != known.get(key)]


def answering(results: Sequence[Results], bundled: Bundled) -> dict[str, Results]:
    """The results, by name, that answer the papers' numbers and claims: of studies that come with accord, with their
    settings. Those that only bear such a name are refused."""
    named = [one for one in results if one.name in bundled]
    for one in named:
        check_bundled(one, bundled[one.name])
    return {one.name: one for one in named if not changes(one, bundled)}


def check_bundled(results: Results, known: Study | Analysis) -> None:
    """Refuses results that are not those of the study that comes with accord under their name."""
    if isinstance(results, StudyResults) and isinstance(known, Study):
        cells = {cell.key: cell for cell in as_wide(known, results.results).cells}
        for result in results.results:
            cell = cells.get(result.cell.key)
            if cell is None:
                raise AccordError(
                    f"{results.file} has a cell {result.cell}, which is no cell of the study {known.name} that comes"
                    " with accord (a study of yours needs another name)"
                )
            if not results.changed:
                _check_runs(results, result, cell)
    actual, expected = _facts(results), _facts_of(known, results)
    for what in dict.fromkeys((*expected, *actual)):
        if actual.get(what) != expected.get(what):
            raise AccordError(
                f"{results.file} does not hold results of the study {known.name} that comes with accord: {what} is"
                f" {actual.get(what) or 'nothing'} there and must be {expected.get(what) or 'nothing'} (a study of"
                f" yours needs another name; if accord's numbers are newer than the file, accord reproduce {known.name}"
                " writes it again from its runs)"
            )


def _check_runs(results: StudyResults, result: Result, cell: Cell) -> None:
    """Refuses runs that were shorter than the study's, unless these end by themselves, and grids that lack a point of
    the study's or of a rival's: rules are compared that were tuned alike. Files of 0.1 have no grids: they must
    answer no paper."""
    rounds = cell.settings.get("train.rounds", 0)
    if result.rounds and result.rounds[0] < rounds and not cell.may_end_early:
        raise AccordError(
            f"{results.file} has runs of {result.rounds[0]} rounds for {result.cell}, and the study {results.name} that"
            f" comes with accord has {rounds}"
        )
    has_grids = results.study.paper is not None or any(one.cell.grid for one in results.results)
    for key, values in cell.grid.items() if has_grids else ():
        if lacking := [value for value in values if value not in result.cell.grid.get(key, [])]:
            raise AccordError(
                f"{results.file} has no runs with {key} = {lacking[0]} for {result.cell}, which the study"
                f" {results.name} or a rule beside it has tried: accord reproduce {results.name} --add trains them"
            )


def _facts(results: Results) -> dict[str, str | None]:
    """What results say that is known without them."""
    if isinstance(results, AnalysisResults):
        return {"the paper": results.paper, "the table": results.place, **_rows(results.printed)}
    printed = {f"what is printed for {one.cell}": _text(one.printed) for one in results.results}
    return {**_study(results.study), **printed}


def _facts_of(known: Study | Analysis, results: Results) -> dict[str, str | None]:
    """The same as it should be, of the cells that the results have."""
    if isinstance(known, Analysis):
        theirs = printed_cells([printed_row(number) for number in known.printed])
        return {"the paper": known.paper, "the table": known.table, **_rows(theirs)}
    cells = [one.cell for one in results.results] if isinstance(results, StudyResults) else []
    printed = {f"what is printed for {cell}": _text(find(known.paper, known.table, cell.values)) for cell in cells}
    return {**_study(known), **printed}


def _study(study: Study) -> dict[str, str | None]:
    return {
        "the paper": study.paper,
        "the table": study.table,
        "`axes`": ", ".join(study.axes),
        "`compare`": study.compare,
        "`against`": study.against,
        "`rules`": ", ".join(study.rules),
    }


def _rows(printed: Cells) -> dict[str, str | None]:
    """A paper's numbers by their place, without ours beside them."""
    head, *rows = printed
    return {f"printed number {at}": ", ".join(row[: head.index("value") + 1]) for at, row in enumerate(rows, 1)}


def _text(printed: Sequence[Printed]) -> str:
    """`96.24 ± 0.03 (oracle)`, and the note, if there is one."""
    numbers = []
    for number in printed:
        remarks = ", ".join(filter(None, [number.columns["window"], number.note]))
        numbers.append(f"{number.value!r}" + f" ± {number.std}" * bool(number.std) + f" ({remarks})" * bool(remarks))
    return ", ".join(numbers)
