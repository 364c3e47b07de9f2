"""Results that are named after a study that comes with accord. Claims are found by that name, so what the study's file
and the papers say must be what the results say."""

from collections.abc import Sequence

from accord.core.errors import AccordError
from accord.runs.text import Cells
from accord.studies import Analysis, Study
from accord.studies.analysis import printed_row
from accord.studies.published import Printed, find
from accord.studies.results import AnalysisResults, Results, StudyResults
from accord.studies.text import printed_cells


def check_own(results: Results, known: Study | Analysis) -> None:
    """Refuses results that are not those of the study that comes with accord under their name."""
    if isinstance(results, StudyResults) and isinstance(known, Study):
        cells = [cell.values for cell in known.cells]
        if other := next((one.cell for one in results.results if one.cell.values not in cells), None):
            raise AccordError(
                f"{results.file} has a cell {other}, which is none of the study {known.name} that comes with accord (a"
                " study of yours needs another name)"
            )
    said, right = _facts(results), _facts_of(known, results)
    for what in dict.fromkeys((*right, *said)):
        if said.get(what) != right.get(what):
            raise AccordError(
                f"{results.file} does not hold results of the study {known.name} that comes with accord: {what} is"
                f" {said.get(what) or 'nothing'} there and must be {right.get(what) or 'nothing'} (a study of yours"
                f" needs another name; if accord's numbers are newer than the file, accord reproduce {known.name}"
                " writes it again from its runs)"
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
