"""What is left of a study and how long it may take: `accord reproduce STUDY --plan --json` prints it, and `accord
verdicts` reads it back from STUDY.plan.json beside the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from accord.core.errors import AccordError
from accord.data.sources import NoData
from accord.experiments.pace import ahead, device_of, may_end_early
from accord.experiments.sweep import PlannedRun
from accord.studies.analysis import Analysis
from accord.studies.carry_out import Tell, fetched, runs_of
from accord.studies.outcome import PROTOCOL
from accord.studies.results_form import content_of, reading
from accord.studies.study import Study

_WHAT = "a plan of accord reproduce"
SUFFIX = ".plan.json"  # of a plan's file, after the name of its study
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
Count = Annotated[int, Field(ge=0, le=10**18)]


class Kind(BaseModel):
    """Runs that take equally long a round, and the seconds that they take together."""

    model_config = _STRICT
    kind: str
    runs: Count
    rounds: Count
    at_once: Count
    seconds: Annotated[float, Field(ge=0, le=1e18)]


class Missing(BaseModel):
    """What cannot be run because a data set is not here: so many cells, or an analysis, which has none."""

    model_config = _STRICT
    data: str
    cells: Annotated[Count, Field(ge=1)] | None
    why: str


class StudyPlan(BaseModel):
    """What is left of a study, or of an analysis, which has no cells."""

    model_config = _STRICT
    plan: str  # the study's name
    protocol: int = PROTOCOL
    title: str
    command: str
    device: str | None  # that the time is for; None where nothing was estimated
    at_most: bool  # whether runs may end early, so that the time is an upper bound
    cells: Count | None  # those without data are among them
    kinds: list[Kind]
    missing: list[Missing]

    @model_validator(mode="after")
    def _agrees(self) -> "StudyPlan":
        if self.kinds and self.device is None:
            raise ValueError("it has runs, and no device that their time is for")
        if sum(one.cells or 0 for one in self.missing) > (self.cells or 0):
            raise ValueError("more cells are missing than are left")
        return self

    @property
    def runs(self) -> int:
        return sum(kind.runs for kind in self.kinds)

    @property
    def seconds(self) -> float:
        return sum(kind.seconds for kind in self.kinds)


def plan_study(study: Study, pool: Path, command: str, tell: Tell) -> StudyPlan:
    """The plan of a study's cells; `tell` is told of kinds of runs that are tried for it, once."""
    named = fetched(study.named(pool), tell)
    runs, reasons = runs_of(named), dict[str, list[str]]()
    for one in named:
        if one.missing is not None:
            if one.lacks is None:
                raise AccordError(one.missing)
            reasons.setdefault(one.lacks, []).append(one.missing)
    missing = [Missing(data=data, cells=len(whys), why=whys[0]) for data, whys in reasons.items()]
    return _plan(study, runs, len(study.cells), missing, command, tell)


def plan_analysis(analysis: Analysis, pool: Path, command: str, tell: Tell) -> StudyPlan:
    """The plan of an analysis's runs."""
    runs, missing = list[PlannedRun](), list[Missing]()
    try:
        runs = analysis.planned(pool)
    except NoData as error:
        missing = [Missing(data=error.data, cells=None, why=str(error))]
    return _plan(analysis, runs, None, missing, command, tell)


def _plan(
    study: Study | Analysis,
    runs: Sequence[PlannedRun],
    cells: int | None,
    missing: list[Missing],
    command: str,
    tell: Tell,
) -> StudyPlan:
    shares = ahead(runs, tell)
    return StudyPlan(
        plan=study.name,
        title=study.title,
        command=command,
        device=device_of(runs[0]) if shares else None,
        at_most=may_end_early(runs),
        cells=cells,
        kinds=[Kind(**{**vars(share), "seconds": round(share.seconds, 1)}) for share in shares],
        missing=missing,
    )


# ---------------------------------------------------------------------------------------------------- reading


def files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of a folder that `accord reproduce` wrote: results, and plans."""
    files = sorted(folder.glob("*.json"))
    return [f for f in files if not f.name.endswith(SUFFIX)], [f for f in files if f.name.endswith(SUFFIX)]


def read_plan(path: Path) -> StudyPlan:
    """A plan from its file, which is named after its study."""
    content = content_of(path, _WHAT, ("plan",))
    if content.get("protocol") != PROTOCOL:
        raise AccordError(
            f"{path} has a plan of protocol {content.get('protocol')!r}, and this is protocol {PROTOCOL}: accord"
            " reproduce STUDY --plan --json prints it anew"
        )
    with reading(path, _WHAT):
        plan = StudyPlan.model_validate(content)
    if path.name != plan.plan + SUFFIX:
        raise AccordError(f"{path} is the plan of {plan.plan}, whose file is called {plan.plan}{SUFFIX}")
    return plan
