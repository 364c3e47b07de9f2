"""The training loop: invite clients, train them, average, mask, step, evaluate, checkpoint."""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from accord.core.record import State
from accord.core.schedule import as_schedule
from accord.data.preparation import Preparation
from accord.engines.contract import Engine, Job, Outcome, Table, Work
from accord.rules.label import label_of
from accord.runs.environment import environment
from accord.runs.evaluation import Evaluation, per_client
from accord.runs.folder import RunFolder
from accord.runs.rows import RoundRow, Rows
from accord.runs.run import Run
from accord.training.checkpoint import Progress
from accord.training.client_store import ClientStore
from accord.training.cohort import Cohorts, cohort_row
from accord.training.early_stopping import EarlyStopping
from accord.training.evaluator import Evaluator, Looked, summaries
from accord.training.hooks import Ending, Event, Hook, cut_short
from accord.training.personal_models import client_models
from accord.training.plan import Plan
from accord.training.rounds_ahead import Asked, RoundsAhead
from accord.training.server_step import Step, Stepped, begin_step

_CHECKPOINT_SECONDS = 10.0
Learned = tuple[Progress, RoundRow]  # where a run stands after a round, and the round's row


class SkippedRound(UserWarning):
    """A round changed nothing: too few reports, or a step that is not finite."""


class Loop:
    """One run: the job, where it stands, and where it is recorded. `go` drives it; so can whoever drives several at
    once."""

    def __init__(self, job: Job, plan: Plan, engine: Engine, folder: RunFolder | None, hooks: Sequence[Hook]) -> None:
        self.job, self.plan, self.engine, self.folder, self.hooks = job, plan, engine, folder, hooks
        self._clients, self._remembers = job.fed.clients, job.remembers
        self._lr, self.store = as_schedule(job.training.lr), ClientStore(self._clients)
        self._needed = plan.reports_needed(job)
        self.cohorts = Cohorts(job, plan.sample, plan.conditions, self._state_of)
        vector, buffers = job.packed(job.layout)
        self.progress = Progress(0, vector, buffers, job.algorithm.init(job.layout, len(self._clients), vector))
        self._personal = personal = job.personal_at_first()
        self._fresh = lambda: {**job.algorithm.local.fresh(vector, buffers), **personal}
        self._client_models = client_models(job, engine, lambda client: self.store.get(client))
        self._title = f"{label_of(job.algorithm)} · {job.fed.name} · seed {job.seed}"
        self._preparation, self.rows, self.rise = Preparation.of(job.fed), Rows(), EarlyStopping(plan.min_delta)
        self.last_table: Table | None = None
        self.stopped: str | None = None  # why it ends before its rounds, if it does
        self._result: Run | None = None  # once it is done
        self.checkpoint_seconds, self.evaluator = _CHECKPOINT_SECONDS, Evaluator(job, plan)
        self._began = self._saved = time.monotonic()
        self._endings: list[Ending] = []

    # --------------------------------------------------------------------------------------------- the rounds

    def go(self) -> Run:
        """Runs the rounds that are left."""
        try:
            ahead = RoundsAhead(self, self.engine.ahead) if self.engine.ahead else None
            for asked in self.rounds():
                started = time.monotonic()
                outcome, step = ahead.train(asked) if ahead else (self.engine.train(asked.work, asked.cohort), None)
                self.absorb(asked, outcome, time.monotonic() - started, step)
            return self.result()
        except BaseException as error:
            self.end(cut_short(error))
            raise
        finally:
            self.engine.close()

    def rounds(self) -> Iterator[Asked]:
        """Takes up the run, asks for the rounds that are left, and completes the record. What is asked for must be
        absorbed before the next round can be asked for."""
        self.stopped = self._result = None
        if self.folder and self.folder.over:
            self._restore(self.folder.tensors())
            return
        if self.folder:
            here = environment(self.job.device, self.engine.name, self.job.speed)
            self._restore(self.folder.begin(here, self.plan.last, self._preparation))
        self._began = time.monotonic()
        if self.progress.round > self.plan.rounds:
            self.stopped = f"it had run {self.progress.round} rounds already"
        while not self.complete and self.stopped is None:
            yield self.ask(self.progress)
        if self.stopped is None and self.folder:
            last = self.rows.last
            if last is not None and last.evaluation is None:  # it had been stopped here, and is asked for no more
                table = self.evaluated()
                (evaluation,), self.last_table = summaries([self.looked(last, table)]), table.settled()
                self.rows.last = self.folder.amend(replace(last, evaluation=evaluation, off_schedule=True))
            self._finish(self.folder)
        self.end("finished" if self.stopped is None else "stopped")

    def ask(self, now: Progress) -> Asked:
        """The round after those that the progress has."""
        number, cohorts = now.round + 1, self.cohorts
        stage = partial(self.store.stage, round=number)
        ahead = partial(cohorts.members, number + 1) if number < self.plan.rounds else list
        work = Work(number, now.vector, now.buffers, now.memory, self._lr.at(number), stage, ahead)
        return Asked(work, cohorts.members(number), cohorts.invited(number))

    def absorb(self, asked: Asked, outcome: Outcome, seconds: float, step: Step | None = None) -> None:
        """Takes in a round that took its engine so many seconds: the step, which may have been begun, the evaluation if
        it is due, and all that is recorded."""
        started = time.monotonic()
        self.progress, row = self.learn(asked, outcome, step)
        trained = time.monotonic()
        table = self.evaluated() if self.plan.is_due(asked.work.round) else None
        times = seconds + trained - started, time.monotonic() - trained
        self.record(row, None if table is None else (table, summaries([self.looked(row, table)])[0]), *times)

    def learn(self, asked: Asked, outcome: Outcome, step: Step | None = None) -> Learned:
        """Applies what enough reports agree on: where the run stands then, and the round's row. A step that was begun
        before the reports were known counts if it was for the record that they make."""
        job, now = self.job, self.progress
        if outcome.record is None and self._needed == 0:
            outcome = replace(outcome, record=job.algorithm.record_of_nobody(job.layout, now.vector.device))
        if outcome.record is None or self.skips(outcome):
            return self.settle(asked, outcome, (None, {}))
        if step is None or step.record is not outcome.record:
            step = begin_step(job, self.plan.sample, asked.work.round, now, outcome.record)
        return self.settle(asked, outcome, step.taken())

    def skips(self, outcome: Outcome) -> bool:
        """Whether too few reports were accepted for the round to change anything."""
        return outcome.record is None or len(outcome.accepted) < self._needed

    def settle(self, asked: Asked, outcome: Outcome, step: Stepped) -> Learned:
        """Where the run stands after a round whose step is known, and the round's row."""
        (after, fields), attack, privacy = step, self.job.attack, self.job.algorithm.privacy
        accepted, why = outcome.accepted, None
        if outcome.record is None or len(accepted) < self._needed:
            why = f"{len(accepted)} of the {self._needed} reports it needs"
        elif after is None:
            why = "its step, or what the server would remember, is not finite"
        elif privacy:
            fields = {**fields, "privacy": privacy.of_round(outcome.record, [client.norm for client in accepted])}
        told = fields if why is None else {"skipped": why}
        row = cohort_row(asked.work.round, asked.invited, outcome, attack.clients if attack else None, **told)
        if after is None or why is not None:
            return self._skipped(row), row
        if self._remembers:
            self.store.accept()
        return after, row

    def _skipped(self, row: RoundRow) -> Progress:
        """After a round that changes nothing, which is said."""
        self.store.drop()
        warnings.warn(f"round {row.round} was skipped: {row.skipped}", SkippedRound, stacklevel=2)
        return replace(self.progress, round=row.round)

    def looked(self, row: RoundRow, table: Table) -> Looked:
        """The evaluation after the round that `row` tells of, to be summarised."""
        return Looked(self.evaluator, row.round, table, frozenset(self.cohorts.took_part(row)))

    def record(
        self, row: RoundRow, evaluated: tuple[Table, Evaluation] | None, training: float, evaluating: float
    ) -> None:
        """Takes in what is known of a round, with its evaluation if that is due: the best model so far, the row on
        disk, hooks and checkpoint. The times are in seconds."""
        number = row.round
        if evaluated is not None:
            (table, evaluation), scheduled = evaluated, self.plan.evaluates(number)
            self.last_table, fields = table.settled(), {**row.engine_fields, **table.row_fields}
            row = replace(row, evaluation=evaluation, off_schedule=not scheduled, engine_fields=fields)
            if scheduled:
                self.progress = self.progress.judged(evaluation)
                if self.plan.patience is not None:
                    self.rise = self.rise.after(number, evaluation)
            elif self.plan.last > 1:  # a longer run would not look at this round; of one alone see `result`
                self.progress = self.progress.judged_late(evaluation)
        check = self.rows.append(row)
        now = time.monotonic()
        if self.folder:
            timing = {"round": number, "train_seconds": training, "evaluate_seconds": evaluating, "row": check}
            halved = self.engine.lanes_at_once  # only lanes can be too many for a device
            self.folder.log_timing(timing if halved is None else {**timing, "lanes_at_once": halved})
        rounds, module = number if self.flat else self.plan.rounds, lambda: self.result().model()
        event = Event(number, rounds, row, training + evaluating, module, self._endings.append)
        answers = [hook(event) for hook in self.hooks]  # every hook is asked, also after one that wants to stop
        if not self.complete:
            if any(answers):
                self.stopped = "stopped by a hook"
            elif self.plan.budget is not None and now - self._began >= self.plan.budget:
                self.stopped = f"its budget of {self.plan.budget:g} s is spent"
        if self.folder and (self.stopped or self._saves(number, now) or self.complete):
            self._checkpoint(self.folder)

    def _saves(self, number: int, now: float) -> bool:
        """Whether it is time for a checkpoint: after so many rounds, or, if nobody said how many, after so many
        seconds. A checkpoint waits for the disk, which takes longer than many rounds of a small model."""
        if self.plan.checkpoint_every is not None:
            return number % self.plan.checkpoint_every == 0
        return now - self._saved >= self.checkpoint_seconds

    def next_is_free(self, number: int) -> bool:
        """Whether the round after this one depends on nothing of it but the model, and is sure to come unless a hook or
        the budget ends the run."""
        return not (self._remembers or self.plan.is_due(number))

    @property
    def complete(self) -> bool:
        """Whether it has its rounds, or is flat before them."""
        return self.progress.round >= self.plan.rounds or self.flat

    @property
    def flat(self) -> bool:
        """Whether held-out data has not improved for as long as the plan's patience."""
        return self.plan.patience is not None and self.rise.is_over(self.plan.patience)

    def stop(self, why: str) -> None:
        """Ends the run where it stands, to go on later; one that has all its rounds is completed instead."""
        if self.complete or self.stopped:
            return
        self.stopped = why
        if self.folder and self.progress.round != (self.folder.state["round"] if self.folder.state else 0):
            self._checkpoint(self.folder)

    def end(self, how: str) -> None:
        """Tells whoever asked for it that the run is over, and how it ended."""
        endings, self._endings = self._endings, []
        for ending in endings:
            ending(how)

    def _state_of(self, client: str) -> State:
        """What a client remembers, of a rule whose clients do."""
        kept = self.store.get(client)
        return self._fresh() if kept is None else {name: value.to(self.job.device) for name, value in kept.items()}

    def evaluated(self) -> Table:
        """The model as it is on all that the run evaluates."""
        return self.evaluator.table(self.engine, self.progress, self._state_of)

    # ------------------------------------------------------------------------------------------------ on disk

    def _checkpoint(self, folder: RunFolder) -> None:
        models = {"own_models": self._client_models.to_json()} if self._client_models else {}
        tensors = {**self.progress.tensors(), **self._personal}  # which nothing else in the folder has until it is done
        folder.checkpoint(tensors, {**self.progress.numbers(), **self.store.sync(), **models})
        self.store.committed()
        self._saved = time.monotonic()

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes up the folder's checkpoint, if it has one."""
        assert self.folder is not None
        saved = self.folder.state or {}
        self.store = ClientStore(self.job.fed.clients, self.folder.path / "clients", saved, self.folder.older)
        self.rows = self.folder.rows()
        if self.plan.patience is not None:
            self.rise = EarlyStopping(self.plan.min_delta).after_all(self.rows)
        if saved:
            late_after = 0 if self.folder.over else self.plan.rounds - self.plan.last
            self.progress = self.progress.restored(saved, tensors, self.job.device, late_after)

    def _finish(self, folder: RunFolder) -> None:
        run = self._result = self.result()
        models = {} if run.alone else {"model": run.model()}
        if models and run.best is not None:
            models["best"] = models["model"] if run.best.round == run.last.round else run.model("held-out")
        self.store.forget_older()
        folder.finish(run.rounds, models, run.clients or per_client(self.evaluated()), run.flat)

    def result(self) -> Run:
        """The run as it stands."""
        if self._result is not None:  # it is done, and nothing changes any more
            return self._result
        progress, job, last, flat = self.progress.ended, self.job, self.rows.last, self.flat
        # the last round may be the best, though a longer run would not have looked
        if last is not None and last.off_schedule:
            progress = progress.judged(last.evaluation)
        return Run(
            title=self._title,
            rounds=progress.round,
            # a hook may ask for the model in every round: rows are looked through once, at the end, if ever: where a
            # run's last round alone is evaluated for being its last, that row is known
            recorded=self.rows.so_far(self.plan.last > 1 and (self.complete or self.stopped is not None)),
            last=progress.last,
            best=progress.best,
            clients=per_client(self.last_table) if self.last_table else [],
            folder=self.folder.path if self.folder else None,
            stopped=self.stopped,
            flat=self.rise.round if flat else None,
            spared=max(0, self.plan.rounds - progress.round) if flat else 0,
            alone=job.algorithm.local.own_models,
            preparation=self._preparation,
            _module=job.module if job.given is None else job.given,
            _layout=job.layout,
            _client_models=self._client_models,
        )
