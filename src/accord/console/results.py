"""Results of runs on a terminal: one in detail, several as a table."""

import json
from collections.abc import Sequence

from rich.console import Console

from accord.console.tables import print_cells
from accord.runs.comparison import comparison, results
from accord.runs.reader import Recorded
from accord.runs.selection import by_rules, rule_for
from accord.runs.text import evaluation_cells, privacy_lines, selection_lines


def show_results(runs: Sequence[Recorded], rule: str | None, as_json: bool) -> None:
    """Runs read back, on standard output: for people, or for machines."""
    if as_json:
        print(json.dumps(results(runs, rule), indent=2))
    else:
        print_results(runs, rule, Console())


def print_results(runs: Sequence[Recorded], rule: str | None, console: Console) -> None:
    """A single run in detail, several as one table; then where they lie."""
    rule = rule_for([run.history for run in runs], rule)
    if len(runs) == 1 and runs[0].history:
        run, history = runs[0], runs[0].history
        print_cells(
            console,
            evaluation_cells(history[-1][1]),
            f"{run.label} · seed {run.seed} · round {history[-1][0]} · {run.ending}",
        )
        chosen = by_rules(history, rule, "held-out", "last10", "oracle")
        for line in [*selection_lines(chosen, history[-1][1].metric), *privacy_lines(history)]:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    else:
        kinds: dict[str, list[Recorded]] = {}
        first = next((run.kind for run in runs if run.kind), "")
        for run in runs:
            kinds.setdefault(run.kind or first, []).append(run)  # one without figures stands with the first
        for kind, members in kinds.items():  # figures of different data or of different metrics are no comparison
            print_cells(console, comparison(members, rule), kind if len(kinds) > 1 else None)
    for run in runs:
        console.print(str(run.folder), style="dim", highlight=False, markup=False, soft_wrap=True)
