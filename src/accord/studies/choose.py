"""`accord choose`: which rule for a user's own data and model, as a study of its own and in stages.

The study's rivals are the rules of files/common/choose.toml, each with the same number of rates. Few named clients are
left out one after another, and are the study's cells; of many, some are unseen. A stage is a study that holds the one
before it, so that time that ends leaves a smaller question answered. docs/explanation/choose.md says why it is so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.metrics import Metric
from accord.data.cache import Progress
from accord.data.common_class import caution_on_accuracy
from accord.data.federated import Federation
from accord.data.unseen import EACH, check_each
from accord.engines.contract import Job
from accord.engines.measuring import smaller
from accord.experiments.experiment import Experiment, assemble, override, tables_of, text_of
from accord.experiments.groups import Jobs, PlannedRun
from accord.rules.masks.votes import threshold
from accord.studies.budget import MOST_SEEDS
from accord.studies.carry_out import Tell, Train, all_runs
from accord.studies.files import FILES, tables_at
from accord.studies.outcome import check_metric
from accord.studies.study import CONTROLS, Named, Settings, Study
from accord.studies.study_file import make
from accord.studies.verdict import SEEDS

FEW = 12  # clients that are left out one after another; of more, some are unseen
LEFT_OUT = "data.unseen"  # the axis of clients that are left out; a run that differs by it goes in lockstep with others
_FILE = FILES / "common" / "choose.toml"
_FIRST = ("averaging", "gma", "gma-length")  # what the first stage tries
_AROUND = (1.0, 1 / 3, 3.0)  # client rates, as multiples of the file's
_SHARE = 5  # of so many clients one is unseen, where the file does not say


@dataclass(frozen=True)
class Stage:
    """A study, and what it has beyond the stage before."""

    adds: str
    study: Study


@dataclass(frozen=True)
class Question:
    """What a file asks: the stages of the answer, and the metric that judges."""

    stages: list[Stage]
    metric: Metric
    clients: list[str]  # that are left out one after another; none: unseen clients judge
    folder: Path  # for its runs
    notes: list[str]
    caution: str = ""  # the note that the answer has too


def read(path: str | Path, overrides: Sequence[str] = (), progress: Progress | None = None) -> Question:
    """The question that an experiment file asks by its data and model. Looks at the data, and trains nothing."""
    text, home = text_of(path), Path(path).parent
    tables = tables_of(text, str(path))
    if "sweep" in tables:
        raise AccordError(
            f"{path} has a [sweep] table, and `accord choose` has a grid of its own, the same for every rule: leave the"
            " table out, or train it with `accord sweep`"
        )
    experiment = assemble(tables, [override(one) for one in overrides], text, home)
    experiment.check_here()
    clients, unseen = _judged_on(experiment, progress)
    settings = {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
    kept = {key: value for key, value in settings.items() if not key.startswith("algorithm.") and key != "run.seeds"}
    study = _study(Path(path), kept | unseen, clients, experiment.settings.train.lr, home)
    folder = Path(experiment.settings.run.folder) / f"choose-{Path(path).stem}"
    job = _first_job(study, folder, progress)
    metric = _metric(job)
    notes = _on_few_judges(experiment, job.fed)
    caution = _caution(job, clients) if metric.name == "accuracy" else ""
    notes += [caution] if caution else []
    voters = experiment.first_plan.sample or len(job.fed.clients)
    if _is_gma(study.axes["rule"]["and-mask"], job, voters):
        study = study.only({"rule": [name for name in study.axes["rule"] if not name.startswith("and-mask")]})
        notes.append(
            f"and-mask is left out: with {voters} client{'s' * (voters > 1)} in a round it is the same rule as gma."
        )
    if tables.get("algorithm"):
        notes.append(f"The [algorithm] of {path} is left aside: the rules are {', '.join(study.axes['rule'])}.")
    return Question(_stages(study, experiment), metric, clients, folder, notes, caution)


def _judged_on(experiment: Experiment, progress: Progress | None) -> tuple[list[str], dict[str, Any]]:
    """The clients to leave out in turn; where there are too many of them, none, and how many are to be unseen if the
    file does not say."""
    data, supply = experiment.settings.data, experiment.supply
    if not data.heldout:
        raise AccordError(
            "data.heldout must be above 0, got 0: rates and rule are chosen by held-out data of the clients that train"
        )
    if data.unseen == 0:
        raise AccordError(
            "data.unseen = 0 leaves nobody to judge the rules by: leave it out, or say how many clients are unseen"
        )
    if data.unseen == EACH:
        names = supply.left_out_in_turn(progress)
        if len(names) > FEW:
            raise AccordError(
                f"data.unseen = 'each' would train every rule once without each of {len(names)} clients, and at most"
                f" {FEW} are left out in turn: leave it out, or say how many clients are unseen"
            )
        return names, {}
    if data.unseen is not None:
        return [], {}
    fed = experiment.federation(experiment.settings.run.seeds[0], progress)
    if fed.unseen:
        return [], {}
    if supply.section.split == "natural" and len(fed.clients) <= FEW:
        check_each(list(fed.clients), fed.name)
        return list(fed.clients), {}
    return [], {"data.unseen": max(2, len(fed.clients) // _SHARE)}


def _study(path: Path, settings: dict[str, Any], clients: Sequence[str], lr: float, home: Path) -> Study:
    """All rules, all rates, and the fewest seeds that a verdict takes."""
    study = make(path.stem, tables_at(_FILE), home)
    rates = [float(f"{factor * lr:.2g}") for factor in _AROUND]
    grids = {name: grid if name else {"train.lr": rates, **grid} for name, grid in study.grids.items()}
    places = {LEFT_OUT: {client: {"data.unseen": [client]} for client in clients}} if clients else {}
    title = f"accord choose {path}"
    return replace(study, title=title, settings=settings, grids=grids, axes={**places, **study.axes})


def _first_job(study: Study, folder: Path, progress: Progress | None) -> Job:
    """The first run as an engine would get it, once its data are seen to be such that rules can be compared."""
    _, run = next(study.runs(study.cells[0], folder))
    job = Jobs(progress).job(run)
    if len(job.fed.clients) < 2:
        raise AccordError(
            f"{job.fed.name} has 1 client that trains, and a rule combines what several send: it needs two or more"
        )
    if not any(len(rows) for rows in job.fed.heldout.values()):
        raise AccordError(
            f"no client of {job.fed.name} has samples enough to hold some out, and rates and rule are chosen by"
            " held-out data: raise data.heldout"
        )
    return job


def _metric(job: Job) -> Metric:
    """What judges."""
    name = next(iter(job.metrics), "loss")
    check_metric(metric := Metric(name, smaller_is_better=name in smaller(job)))
    return metric


def _on_few_judges(experiment: Experiment, fed: Federation) -> list[str]:
    """What the file's number of unseen clients gives away, where all could be left out in turn."""
    unseen, everyone = experiment.settings.data.unseen, {*fed.train, *fed.unseen}
    if not isinstance(unseen, int) or experiment.supply.section.split != "natural" or len(everyone) > FEW:
        return []
    return [
        f"data.unseen = {unseen}: that many of {len(everyone)} clients judge, drawn by seed. Without this setting"
        " each is left out in turn, and all judge."
    ]


def _caution(job: Job, clients: Sequence[str]) -> str:
    """What to judge by instead of accuracy, where one class has most samples of the clients that judge."""
    if clients:  # each in turn, with all its samples
        everybody = [*job.fed.train.values(), *job.fed.heldout.values(), *job.fed.unseen.values()]
        return caution_on_accuracy(job.fed, everybody, "the samples of the clients that judge") or ""
    whose = f"the samples of the clients that judge (those of seed {job.seed})"
    return caution_on_accuracy(job.fed, job.fed.unseen.values(), whose) or ""


def _is_gma(and_mask: Settings, job: Job, voters: int) -> bool:
    """Whether an AND-mask is `gma` of the same tau, whatever clients send. It is where one net vote is enough to pass:
    what is held back then has none, and gma scales it by 0. Noise on the votes, with privacy, leaves no 0.

    With four clients and 0.4 it takes two votes. Then the two agree only where no client's update is exactly 0, and of
    a category that one client alone has, or of units that are dead for some, it is.
    """
    return job.algorithm.privacy is None and threshold(and_mask["algorithm.mask.tau"], voters) <= 1


def _stages(study: Study, experiment: Experiment) -> list[Stage]:
    """What settles most comes first. The order depends on no result, so looking again and again favours no rule."""
    asked = experiment.settings.run.seeds
    spare = [seed for seed in range(MOST_SEEDS + len(asked)) if seed not in asked]
    seeds = tuple(asked if len(asked) >= SEEDS else [*asked, *spare][:MOST_SEEDS])
    whole = replace(study, seeds=seeds[:SEEDS])
    middle = {name: {key: values[:1] for key, values in grid.items()} for name, grid in whole.grids.items()}
    stages = [Stage("the middle rates", replace(whole, grids=middle).only({"rule": _FIRST}))]
    stages.append(Stage("all rates", whole.only({"rule": _FIRST})))
    tried = list(_FIRST)
    for rule in rules(study):
        if rule not in tried:
            control = f"{rule}-{CONTROLS[-1]}"
            controlled = control in study.axes["rule"]
            tried += [rule, *([control] if controlled else [])]
            stages.append(Stage(f"{rule}{' and its control' if controlled else ''}", whole.only({"rule": tried})))
    for count in range(SEEDS + 1, len(seeds) + 1):
        stages.append(Stage(f"seed {seeds[count - 1]}", replace(whole, seeds=seeds[:count])))
    return stages


def rules(study: Study) -> list[str]:
    """The rivals but for those that are the control of another."""
    names = study.axes[study.compare]
    return [name for name in names if name.removesuffix(f"-{CONTROLS[-1]}") == name]


# ------------------------------------------------------------------------------------------------- carrying out


@dataclass(frozen=True)
class Reached:
    """How far it came: the last stage whose runs are all done, with its runs, and what was left out."""

    stage: Stage | None
    named: list[Named]
    left_out: list[str]
    stopped: bool = False  # it was asked to stop
    done: int = 0  # of the stage that is not complete
    runs: int = 0

    @property
    def runs_done(self) -> list[PlannedRun]:
        return list({run.folder: run for one in self.named for _, run in one.runs}.values())


def carry_out(question: Question, folder: Path, train: Train, tell: Tell) -> Reached:
    """Trains stage after stage, each run once, until all are done or somebody asks for a stop."""
    reached = Reached(None, [], [stage.adds for stage in question.stages])
    for number, stage in enumerate(question.stages):
        named = stage.study.named(folder)
        runs = all_runs(named, tell)
        left = [run for run in runs if not run.done]
        if left:
            tell(f"Stage {number + 1} of {len(question.stages)}, {stage.adds}: {len(left)} runs")
            undone, asked = train(left)
            if undone:
                return replace(reached, stopped=asked, done=len(runs) - undone, runs=len(runs))
        reached = Reached(stage, named, [later.adds for later in question.stages[number + 1 :]])
    return reached
