"""`accord reproduce`: the papers' tables, and other studies, as one command each."""

import json
import shlex
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli.shared import print_table, print_time, tell, this_command, train_all
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accord.analyses.arms import Arm
    from accord.experiments.execute import Interrupt
    from accord.experiments.sweep import PlannedRun
    from accord.studies import Analysis
    from accord.studies.outcome import Result
    from accord.studies.study import Named, Study


def reproduce(
    study: Annotated[str | None, typer.Argument(help="A study's name (see --list), or a study file of yours.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Overrides of the study's settings: `section.key=value`.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List studies.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="Only these cells: `dataset=fmnist,clients=500`; several values of an axis are joined by `+`."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of every run, in place of the study's.")] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            "--until-flat",
            min=1,
            help="End a run when held-out data has not improved in so many rounds; --rounds is then the most.",
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, in place of the study's: `0,1`.")] = None,
    grid: Annotated[
        bool,
        typer.Option(
            help="Tune every method over the study's grid; with --no-grid, each runs once, with the study's settings."
        ),
    ] = True,
    grow: Annotated[
        int,
        typer.Option(
            min=0, help="Widen a grid whose best point lies on its edge, for all rivals alike, at most so many times."
        ),
    ] = 0,
    folder: Annotated[Path, typer.Option(help="Where run folders, which all studies share, and results go.")] = Path(
        "runs/reproduce"
    ),
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Stop after so many minutes; what settles most comes first, and open results get more seeds.",
        ),
    ] = None,
    export_to: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Pack the study's finished runs into one small file."),
    ] = None,
    import_from: Annotated[
        list[Path] | None,
        typer.Option("--import", metavar="FILE", help="Take up runs that --export packed: they are not trained again."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Estimate the number of runs and their time on this machine; train nothing.")
    ] = False,
    select: Annotated[
        str | None, typer.Option(help="The rule of the table: held-out, last10, oracle, or one of the study's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Rerun a table or figure of the papers, cell by cell, and print ours beside theirs.

    Every method is tuned over the same grid with the same seeds. Finished runs are not repeated, and stopped ones are
    continued. On a GPU, runs that can share a batch train in lockstep.

    Examples:

    * `accord reproduce --list`

    * `accord reproduce tmlr-table2 --only dataset=fmnist,clients=500 --rounds 50`

    * `accord reproduce tmlr-table2 --plan`

    * `accord reproduce tmlr-table9 --rounds 1000 --patience 50`

    * `accord reproduce tmlr-table2 --minutes 25 --import before.xz --export after.xz`
    """
    from accord.data import available
    from accord.studies import Analysis, everything, find
    from accord.studies.export import export_runs, import_runs
    from accord.studies.outcome import plain
    from accord.studies.study import POOL

    if listing or study is None:
        for name, each in everything().items():
            what = f"analysis: {each.analysis}" if isinstance(each, Analysis) else f"{len(each.cells)} cells"
            lacking = [data for data in each.data if not available(data)]
            print(f"{name:28s} {each.title} ({what}{'; not here: ' + ', '.join(lacking) if lacking else ''})")
        return
    more = {"train.rounds": rounds, "train.patience": patience}
    given = [*(overrides or []), *(f"{key}={value}" for key, value in more.items() if value)]
    chosen = find(study)
    for path in import_from or []:
        new, known = import_runs(path, folder / POOL)
        tell(Console(stderr=True), f"{path}: {new} runs taken up, {known} were here.")
    if isinstance(chosen, Analysis):
        if only or select or minutes is not None or export_to:
            raise AccordError(
                f"{chosen.name} is an analysis, which has no cells to choose from: leave out --only, --select,"
                " --minutes and --export"
            )
        _analyse(chosen.changed([*given, *([f"run.seeds={seeds}"] if seeds else [])]), folder, plan, as_json)
        return
    chosen = chosen.only(_axes(only))
    rule = select or ("held-out" if "held-out" in chosen.rules else chosen.rules[0])
    if rule not in chosen.rules:
        raise AccordError(
            f"there is no rule {rule!r} for the table of {chosen.name}: choose one of {', '.join(chosen.rules)}"
        )
    chosen = chosen.changed(given, _numbers(seeds), grid)
    if plan:
        points = sum(len(cell.points) for cell in chosen.cells)
        title = f"{chosen.title}: {len(chosen.cells)} cells, {points} points of the grid"
        _print_plan(title, _runs(chosen.named(folder / POOL)))
        return
    chosen, results, runs, interrupt = _carry_out(chosen, folder / POOL, rule, grow, minutes)
    written = plain(chosen, results, this_command(), runs)
    _write(folder / f"{chosen.name}.json", written)
    if export_to is not None:
        count = export_runs([run.folder for run in runs], export_to)
        tell(Console(stderr=True), f"{export_to}: {count} runs, {export_to.stat().st_size / 1e6:.1f} MB")
    print(json.dumps(written, indent=2)) if as_json else _print(chosen, results, rule)
    missing = sum(not result.complete and result.missing is None for result in results)
    if missing and interrupt.asked:
        why = "Time is up" if interrupt.late else "Stopped early"
        tell(Console(stderr=True), f"{why}: {missing} cells are not complete. The same command goes on.")
        raise typer.Exit(0 if interrupt.late else 130)
    page = shlex.join(["accord", "report", str(folder / f"{chosen.name}.json")])
    Console(stderr=True).print(f"A page of it: {page}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _carry_out(
    study: "Study", pool: Path, rule: str, grow: int, minutes: float | None
) -> "tuple[Study, list[Result], list[PlannedRun], Interrupt]":
    """Trains the study's runs, those of grown grids and, within `minutes`, of more seeds: the study as it then is, its
    results, all its runs, and whether it was stopped."""
    from accord.experiments.execute import Interrupt
    from accord.studies.budget import batches, with_more_seeds
    from accord.studies.grow import grown
    from accord.studies.outcome import gather

    interrupt = Interrupt() if minutes is None else Interrupt(60 * minutes)
    chooses = minutes is not None and find_spec("scipy") is not None
    if minutes is not None and not chooses:
        tell(
            Console(stderr=True), "Without scipy (accord-fl[studies]) cells go in their order, and no seeds are added."
        )
    before: tuple[Study, list[Result]] | None = None  # as it was when seeds were added
    while True:
        named = study.named(pool)
        runs = _runs(named)
        for experiment in {id(run.experiment): run.experiment for run in runs}.values():
            experiment.check_here()
        for batch in batches(study, named, gather(study, named), rule) if chooses else [named]:
            members = list({run.folder: run for one in batch for _, run in one.runs}.values())
            stopped, _ = train_all(members, f"To go on: {this_command()}", interrupt=interrupt)
            if stopped:
                break
        results = gather(study, named)
        wider = grown(study, results, rule) if grow else study  # what it has grown by may lie on its edge again
        grow -= wider is not study
        if stopped and before is not None:  # seeds that were added are no part of it before all have them
            return *before, runs, interrupt
        if wider is study and chooses:
            before = study, results
            wider = with_more_seeds(study, results, rule)
        if stopped or interrupt.asked or wider is study:
            return study, results, runs, interrupt
        study = wider


def _analyse(analysis: "Analysis", folder: Path, plan: bool, as_json: bool) -> None:
    """An analysis: its files in a folder of its own, and beside it what came of it."""
    from accord.analyses.output import write
    from accord.analyses.style import can_draw
    from accord.cli.analyse import train_arms
    from accord.cli.analysis_output import print_analysis, ready
    from accord.studies.analysis import written
    from accord.studies.study import POOL
    from accord.studies.text import printed_cells

    def train(arms: "Sequence[Arm]") -> None:
        if not plan:
            return train_arms(arms)
        _print_plan(analysis.title, [run for one in arms for run in one.runs])
        raise typer.Exit

    if plan and not analysis.trains:
        print(f"{analysis.title}: trains nothing, and takes less than a minute")
        return
    kind = "png" if can_draw() else "none"
    if kind == "none":
        tell(Console(stderr=True), "There will be no figure, which needs matplotlib: pip install 'accord-fl[plot]'")
    if not plan:
        ready(folder / analysis.name, kind)
    result = analysis.carry_out(folder / POOL, train)
    files = write(result, folder / analysis.name, kind)
    told = written(analysis, result, files, this_command())
    _write(folder / f"{analysis.name}.json", told)
    if as_json:
        print(json.dumps(told, indent=2))
        return
    print(analysis.title)
    print_analysis(result, files)
    if analysis.printed:
        print("\nas printed")
        print_table(printed_cells(told["printed"]))


def _runs(named: "list[Named]") -> "list[PlannedRun]":
    """All runs of the cells, each once. Those whose data are not here are told of and left out; if there are no others,
    that is an error."""
    runs = list({run.folder: run for one in named for _, run in one.runs}.values())
    missing = Counter(one.missing for one in named if one.missing is not None)
    if missing and not runs:
        raise AccordError(next(iter(missing)))
    for why, count in missing.items():
        tell(Console(stderr=True), f"{count} cell{'s' * (count > 1)} left out: {why}")
    return runs


def _axes(only: str | None) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for part in (only or "").split(","):
        axis, equals, values = part.partition("=")
        if part and not (axis.strip() and equals and values):
            raise AccordError(
                f"{part!r} does not choose cells: write axis=value, such as dataset=fmnist, or dataset=mnist+fmnist"
            )
        if part:
            chosen[axis.strip()] = values.split("+")
    return chosen


def _numbers(seeds: str | None) -> list[int] | None:
    if seeds is None:
        return None
    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise AccordError(f"seeds must be whole numbers joined by commas, got {seeds!r}") from None


def _write(path: Path, content: object) -> None:
    from accord.core.files import write_json

    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


# ----------------------------------------------------------------------------------------------------- tables


def _print(study: "Study", results: "list[Result]", rule: str) -> None:
    """A row per cell: ours by the rule and by the others, the settings chosen, and theirs; then the rivals'
    differences."""
    from accord.console.tables import print_cells
    from accord.studies.outcome import compare
    from accord.studies.text import comparison_cells, result_cells

    console = Console()
    console.print(f"[bold]{study.title}[/bold]")
    print_cells(console, result_cells(study, results, rule))
    comparisons = compare(study, results, "test", rule)
    if not comparisons:
        return
    try:
        cells = comparison_cells(comparisons)
    except AccordError as error:  # no scipy: what was trained is kept, and its table printed
        tell(Console(stderr=True), f"There are no differences in the table: {error}")
        return
    console.print(
        f"\nahead of {study.against} on the test set, paired by seed, by {rule} (95 % interval; called after Holm's"
        " correction)"
    )
    print_cells(console, cells)


def _print_plan(title: str, runs: "list[PlannedRun]") -> None:
    print(f"{title}, {len(runs)} runs, {sum(run.done for run in runs)} of them done")
    print_time(runs)
