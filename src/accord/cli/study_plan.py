"""What `accord reproduce --plan` prints: how many runs are left, and how long they may take here."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from accord.cli.shared import print_time, this_command
from accord.cli.study_output import warn

if TYPE_CHECKING:
    from accord.experiments.sweep import PlannedRun
    from accord.studies.analysis import Analysis
    from accord.studies.plan import StudyPlan
    from accord.studies.study import Study


def print_study_plan(study: "Study", pool: Path, as_json: bool) -> None:
    from accord.studies.carry_out import all_runs, fetched
    from accord.studies.plan import plan_study

    if as_json:
        _print_json(plan_study(study, pool, this_command(), warn))
        return
    if not study.cells:
        print(f"{study.title}: nothing is left, the results have all cells")
        return
    named = fetched(study.named(pool), warn)
    runs, cells = all_runs(named, warn), [one.cell for one in named if one.missing is None]
    points = sum(len(cell.points) for cell in cells)
    _print_runs(f"{study.title}: {len(cells)} cells, {points} points of the grid", runs)


def print_analysis_plan(analysis: "Analysis", pool: Path, as_json: bool) -> None:
    from accord.studies.plan import plan_analysis

    if as_json:
        _print_json(plan_analysis(analysis, pool, this_command(), warn))
    elif analysis.trains:
        _print_runs(analysis.title, analysis.planned(pool))
    else:
        print(f"{analysis.title}: trains nothing, and takes less than a minute")


def _print_runs(title: str, runs: "list[PlannedRun]") -> None:
    print(f"{title}, {len(runs)} runs, {sum(run.done for run in runs)} of them done")
    print_time(runs)


def _print_json(plan: "StudyPlan") -> None:
    print(json.dumps(plan.model_dump(), indent=2))
