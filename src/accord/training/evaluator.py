"""What a run evaluates: one model on all data or, where clients have parts of their own, each client's."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from accord.core.itself import Itself
from accord.core.record import State
from accord.engines.contract import Engine, Job, Table, joined
from accord.runs.evaluation import Evaluation, Parts, by_population, by_turn, summarise_many
from accord.training.checkpoint import Progress
from accord.training.evaluation_schedule import evaluated_groups
from accord.training.local_only import evaluate_local_models
from accord.training.personal_models import AFTER, BEFORE, COMMON, MEAN, Adaptation, evaluate_personal_models
from accord.training.plan import Plan


class Evaluator:
    """The evaluations of one run."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job, self._sample, self._steps = job, plan.sample, plan.adapt_steps
        self.groups = evaluated_groups(job.fed, plan.evaluate_samples, job.seed)
        self._unseen = [group for group in self.groups if group[0] == "unseen" and len(group[2])]
        local = job.algorithm.local
        adapts = plan.adapt_steps is not None and self._unseen and not local.own_models
        self._adaptation = Adaptation(job, plan.adapt_steps or 1) if adapts else None
        # whether one model on all data is all there is to it
        self.one_model = not (local.own_models or local.beside or job.algorithm.personal or self._adaptation)

    def table(self, engine: Engine, now: Progress, state_of: Callable[[str], State]) -> Table:
        """The model as it is on all that the run evaluates; `state_of` gives what a client remembers."""
        job, model = self.job, (now.vector, now.buffers)
        if self.one_model:
            return engine.evaluate(*model, self.groups)
        if job.algorithm.local.own_models:
            return evaluate_local_models(engine, job.fed.clients, self.groups, job.seed, state_of)
        if (job.algorithm.personal or job.beside) and not engine.holds_clients:
            table = evaluate_personal_models(job, engine, *model, self.groups, state_of)
        else:
            table = engine.evaluate(*model, self.groups)
        if self._adaptation is None:
            return table
        start = job.assembled(*model, job.personal_at_first())
        return joined([table, self._adaptation.evaluate(engine, now.round, *start, self._unseen)])

    def parts(self, table: Table, took_part: Collection[str]) -> Parts:
        """The rows that a table has besides those of the splits, after a round that these clients took part in."""
        groups, populations = set(table.groups), self.job.fed.populations
        parts = by_turn(took_part, groups) | by_population(populations, groups)
        titles = {MEAN: MEAN, COMMON: COMMON, BEFORE: BEFORE, AFTER: f"unseen, rest after {self._steps} steps"}
        for split, client in table.groups:
            if split in titles:
                parts.setdefault(titles[split], set()).add((split, client))
        return parts

    def spent(self, round: int) -> dict[str, float] | None:
        """Of privacy, if it counts."""
        mask, privacy = self.job.algorithm.mask, self.job.algorithm.privacy
        if privacy is None:
            return None
        return privacy.spent(mask is not None, len(self.job.fed.clients), self._sample, round)


@dataclass(frozen=True)
class Looked:
    """What came of the evaluation of a run after a round, and who took part in that."""

    by: Evaluator
    round: int
    table: Table
    took_part: frozenset[str]

    @property
    def kind(self) -> Hashable:
        """What runs share whose figures can be summarised at once: the groups, which runs that read the same have as
        one list, and the parts of them."""
        return Itself(self.table.groups), self.by.job.fed, self.by._steps, self.took_part


def summaries(looks: Sequence[Looked]) -> list[Evaluation]:
    """Every run's evaluation."""
    kinds: dict[Hashable, list[int]] = {}
    for at, look in enumerate(looks):
        kinds.setdefault(look.kind, []).append(at)
    made: dict[int, Evaluation] = {}
    for members in kinds.values():
        some, first = [looks[at] for at in members], looks[members[0]]
        parts, spent = first.by.parts(first.table, first.took_part), [look.by.spent(look.round) for look in some]
        made |= dict(zip(members, summarise_many([look.table for look in some], parts, spent), strict=True))
    return [made[at] for at in range(len(looks))]
