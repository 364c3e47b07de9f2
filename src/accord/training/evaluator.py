"""What a run evaluates: one model on all data or, where clients have parts of their own, each client's."""

from collections.abc import Callable

from accord.core.record import State
from accord.engines.contract import Engine, Job, Table, joined
from accord.runs.evaluation import Parts
from accord.training.checkpoint import Progress
from accord.training.evaluation_schedule import evaluated_groups
from accord.training.local_only import evaluate_local_models
from accord.training.personal_models import AFTER, BEFORE, COMMON, MEAN, Adaptation, evaluate_personal_models
from accord.training.plan import Plan


class Evaluator:
    """The evaluations of one run."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job, self._steps = job, plan.adapt_steps
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

    def parts(self, table: Table) -> Parts:
        """The rows that a table has besides those of the splits."""
        parts: Parts = {}
        titles = {MEAN: MEAN, COMMON: COMMON, BEFORE: BEFORE, AFTER: f"unseen, rest after {self._steps} steps"}
        for split, client in table.groups:
            if split in titles:
                parts.setdefault(titles[split], set()).add((split, client))
        return parts
