"""The replication report's last section: what was not run, and how long it would take where there are plans of it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from accord.core.errors import AccordError
from accord.experiments.pace import in_hours
from accord.studies import everything
from accord.studies.analysis import Analysis
from accord.studies.claim import claims
from accord.studies.plan import Missing, StudyPlan
from accord.studies.results import Results, StudyResults
from accord.studies.study import Cell
from accord.studies.study_file import load
from accord.studies.text import markdown


def not_run(results: Sequence[Results], plans: Sequence[StudyPlan]) -> list[str]:
    """Studies without results, and of those that have some the cells that are missing, with the reason as far as the
    files tell it; then the time for them."""
    studies = [one for one in results if isinstance(one, StudyResults)]
    lines = {one.name: _unfinished(one) for one in studies}
    waited_for = {claim.study for claim in claims()} | {name for name, of in everything().items() if of.paper}
    have = {one.name for one in results}
    for name, study in everything().items():
        if name not in have and name in waited_for:  # studies of ours are in no paper
            count = "an analysis" if isinstance(study, Analysis) else f"{len(study.cells)} cells"
            lines[name] = [f"- {name} ({study.title}; {count}): all of it"]
    complete = {one.name: len(one.complete) for one in studies}
    left = {plan.plan: _left(plan, complete, have) for plan in plans}
    planned = {plan.plan for plan in plans}
    counted = [plan for plan in plans if left[plan.plan] > 0 and (plan.kinds or plan.missing)]
    text = [line for of in lines.values() for line in of]
    if counted:
        text += ["", *_time(counted, left), *_without_data(counted)]
        text += _unplanned([name for name, of in lines.items() if of and name not in planned])
    return ["", "## Not run", "", *text] if text else []


def _unfinished(one: StudyResults) -> list[str]:
    """A line for each reason why cells of a study have no results, or not all."""
    name, lines = one.name, []
    for why in dict.fromkeys(result.missing for result in one.results if result.missing):
        count = sum(result.missing == why for result in one.results)
        lines.append(f"- {name}: {_cells_in_words(count)}, {why}")
    partly = [result for result in one.results if not result.missing and result.done < result.runs]
    if partly:
        done, runs = sum(result.done for result in partly), sum(result.runs for result in partly)
        lines.append(f"- {name}: {_cells_in_words(len(partly))} not finished, {done} of their {runs} runs done")
    for reason in dict.fromkeys(result.superseded for result in one.results if result.superseded):
        again = [result.cell for result in one.results if result.superseded == reason]
        lines.append(f"- {name}: {_cells_in_words(len(again))} to be run again{_by_data(again)}: {reason}")
    have = {result.cell.key for result in one.results}
    left = [cell for cell in _cells(name) if cell.key not in have]
    if left:
        lines.append(f"- {name}: {_cells_in_words(len(left))} that no command has asked for{_by_data(left)}")
    return lines


def _cells_in_words(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _by_data(cells: Sequence[Cell]) -> str:
    """How many there are of each data set, where cells name one."""
    counts = Counter(cell.values["dataset"] for cell in cells if "dataset" in cell.values)
    return f" ({', '.join(f'{data} {count}' for data, count in counts.items())})" if counts else ""


def _cells(name: str) -> tuple[Cell, ...]:
    """The cells of a study that comes with accord; none are known of a file of yours."""
    try:
        return tuple(load(name).cells)
    except AccordError:
        return ()


# ------------------------------------------------------------------------------------------------- how long it takes


def _left(plan: StudyPlan, complete: dict[str, int], have: set[str]) -> int:
    """How many cells the results are still without, whatever was left when the plan was made; an analysis counts as
    one."""
    if plan.cells is None:
        return int(plan.plan not in have)
    known = len(_cells(plan.plan))
    return known - complete.get(plan.plan, 0) if known else plan.cells


def _time(plans: Sequence[StudyPlan], left: dict[str, int]) -> list[str]:
    """A row for each plan, and the sum."""
    rows = [["study", "cells", "runs", "time left", "device", "lacks", "command"]]
    by_device: dict[str, list[StudyPlan]] = {}
    for plan in plans:
        if plan.device is not None:
            by_device.setdefault(plan.device, []).append(plan)
        time = "-" if plan.device is None else _duration([plan])
        lacking = ", ".join(f"{one.data} ({_count([one])})" for one in plan.missing)
        command = f"`{plan.command}`"
        rows.append([plan.plan, _counted(plan, left), f"{plan.runs:,}", time, plan.device or "-", lacking, command])
    intro = (
        "The time left, as the commands estimate it from a few rounds of each kind of run on the device; without"
        " `--plan --json`, and with the `--folder` of the results, they run it:"
    )
    total = " and ".join(f"{_duration(some)} on {device}" for device, some in by_device.items())
    sentence = f"In all {total}. Runs that studies share are counted in each of them."
    return [intro, "", *markdown(rows), *(["", sentence] if by_device else [])]


def _duration(plans: Sequence[StudyPlan]) -> str:
    """Of all of them; a bound where runs of any may end early."""
    return "at most " * any(plan.at_most for plan in plans) + in_hours(sum(plan.seconds for plan in plans))


def _counted(plan: StudyPlan, left: dict[str, int]) -> str:
    """A plan's cells, and those that are left where that has changed since, or the plan is for some of them."""
    if plan.cells is None:
        return "an analysis"
    now = left[plan.plan]
    return str(plan.cells) if plan.cells == now else f"{plan.cells} planned, {now} left"


def _without_data(plans: Iterable[StudyPlan]) -> list[str]:
    """What cannot be run, by the data set that it lacks."""
    lacking: dict[str, list[tuple[str, Missing]]] = {}
    for plan in plans:
        for one in plan.missing:
            lacking.setdefault(one.data, []).append((plan.plan, one))
    if not lacking:
        return []
    lines = []
    for data, entries in sorted(lacking.items()):
        names, missing = zip(*entries, strict=True)
        why = " ".join(missing[0].why.split())
        lines.append(f"- {data}, for {_count(missing)} ({', '.join(names)}): {why}")
    missing_in_all = [one for entries in lacking.values() for _, one in entries]
    return ["", f"Not included, because the data are missing on that machine: {_count(missing_in_all)}.", "", *lines]


def _count(missing: Sequence[Missing]) -> str:
    """`72 cells`, `72 cells and 1 analysis`."""
    cells, analyses = sum(one.cells or 0 for one in missing), sum(one.cells is None for one in missing)
    counts = {"cell": cells, "analysis": analyses}
    plural = {"cell": "cells", "analysis": "analyses"}
    return " and ".join(f"{n} {what if n == 1 else plural[what]}" for what, n in counts.items() if n)


def _unplanned(names: Sequence[str]) -> list[str]:
    """Those that there is no estimate of: the sum is without them."""
    return ["", f"There is no estimate for {', '.join(names)}."] if names else []
