"""Tables on a terminal: any cells, and the results of runs."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accord.runs.comparison import by_kind, comparison, notes, results, same_unseen
from accord.runs.left_out import left_out, split_off
from accord.runs.reader import Recorded
from accord.runs.selection import rule_for
from accord.runs.text import Cells, align, evaluation_cells, lines_below, numeric, unseen_lines


def show_results(runs: Sequence[Recorded], rule: str | None, as_json: bool) -> None:
    """Runs read back, on standard output: for people, or for machines."""
    if as_json:
        print(json.dumps(results(runs, rule), indent=2))
    else:
        print_results(runs, rule, Console())


def print_results(runs: Sequence[Recorded], rule: str | None, console: Console) -> None:
    """A single run in detail, several as one table; then where they lie."""
    if len(runs) == 1 and runs[0].history:
        run, history = runs[0], runs[0].history
        asked_for = [] if rule is None else [rule_for([history], rule)]
        number, evaluation = history[-1]
        title = f"{run.label} · seed {run.seed} · round {number} · {run.ending}"
        print_cells(console, evaluation_cells(evaluation), title)
        _print_lines(console, lines_below(history, run.unseen, *asked_for))
        folders = [run.folder]
    else:
        folders = _print_kinds(runs, rule, console)
    for folder in folders:
        console.print(str(folder), style="dim", highlight=False, markup=False, soft_wrap=True)


def _print_kinds(runs: Sequence[Recorded], rule: str | None, console: Console) -> list[Path]:
    """A table for each kind of run, and where the runs lie."""
    kinds, rule = by_kind(runs), rule_for([run.history for run in runs], rule)
    folders: list[Path] = []
    for kind, members in kinds.items():
        several, others = split_off(members)
        title = kind if len(kinds) > 1 else None
        if several:
            print_cells(console, left_out(several, rule).cells(), title)
            unfinished = sum(not run.ended for run in several)
            _print_lines(console, [f"{unfinished} of {len(several)} runs are not done"] if unfinished else [])
            # where they all lie: a line for each of them, methods times clients times seeds, would be a screen
            folders += dict.fromkeys(run.folder.parent for run in several)
        if others:
            print_cells(console, comparison(others, rule), title)
            _print_lines(console, unseen_lines(same_unseen(others)))
            folders += [run.folder for run in others]
    _print_lines(console, notes(runs))
    return folders


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def print_cells(console: Console, cells: Cells, title: str | None = None) -> None:
    """A table: drawn on a terminal that it fits into; plain aligned columns anywhere else."""
    widths = _widths(cells, console.width) if console.is_terminal else None
    if widths is None:
        console.print(
            "\n".join([*([title] if title else []), *align(cells)]), highlight=False, markup=False, soft_wrap=True
        )
        return
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for heading, width, right in zip(cells[0], widths, numeric(cells), strict=True):
        table.add_column(Text(heading), justify="right" if right else "left", width=width)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(cells: Cells, room: int) -> list[int] | None:
    """Widths that fit into so many characters, cells wrapped between words where need be; None if there is no such
    thing."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    while sum(widths) > room - 2 * len(widths):
        wide = [c for c, width in enumerate(widths) if width > least[c]]
        if not wide:
            return None
        widths[max(wide, key=lambda c: widths[c])] -= 1
    return widths
