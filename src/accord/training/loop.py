"""The training loop: invite clients, train them, average, mask, step, evaluate, checkpoint."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from accord.core.record import State
from accord.core.round import Round
from accord.core.schedule import as_schedule
from accord.data.federated import Federation
from accord.engines.contract import Engine, Job, Member, Outcome, Table, Work
from accord.rules.label import label_of
from accord.runs.environment import environment
from accord.runs.evaluation import Evaluation, by_population, by_turn, per_client, summarise
from accord.runs.folder import RunFolder
from accord.runs.rows import RoundRow, Rows
from accord.runs.run import Run, Snapshot
from accord.training.checkpoint import Progress
from accord.training.client_store import ClientStore
from accord.training.cohort import Conditions, Invited, cohort_row, invite
from accord.training.diagnostics import of_round
from accord.training.early_stopping import EarlyStopping
from accord.training.evaluation_schedule import evaluated_groups
from accord.training.local_only import evaluate_local_models
from accord.training.plan import Plan

_CHECKPOINT_SECONDS = 10.0
_KEPT = 2  # rounds before the last whose invitations are kept

# by federation, then by how many of whom are drawn from which seed, then by round
_Drawn = dict[tuple[int | None, Conditions, int], dict[int, tuple[list[Invited], list[Member]]]]
_invited: WeakKeyDictionary[Federation, _Drawn] = WeakKeyDictionary()


class SkippedRound(UserWarning):
    """A round changed nothing: too few reports, or a step that is not finite."""


@dataclass(frozen=True)
class Event:
    """What a hook sees after every round."""

    round: int
    rounds: int  # that the run has: those asked for, or, once it is flat, those it has done
    row: RoundRow  # as in metrics.jsonl
    seconds: float
    snapshot: Callable[[], nn.Module] = field(repr=False)  # the model as it is now
    # what is to be called, once, when the run ends, however it does
    at_end: Callable[["Ending"], None] = field(repr=False)


Ending = Callable[[str], None]  # is told "finished", "stopped" (it can go on) or "failed"
Hook = Callable[[Event], bool | None]  # a true answer ends the run after this round


@dataclass(frozen=True)
class Asked:
    """A round as its engine gets it, and who was invited to it."""

    work: Work
    cohort: Sequence[Member]
    invited: Sequence[Invited]


class Loop:
    """One run: the job, where it stands, and where it is recorded. `go` drives it; so can whoever drives several at
    once."""

    def __init__(self, job: Job, plan: Plan, engine: Engine, folder: RunFolder | None, hooks: Sequence[Hook]) -> None:
        self.job, self.plan, self.engine, self.folder, self.hooks = job, plan, engine, folder, hooks
        self.rows = Rows()
        # what federation, plan and algorithm say once for all rounds
        self._clients, self._remembers = job.fed.clients, bool(job.algorithm.local.remembers)
        self._lr = as_schedule(job.training.lr)
        self._needed = 1 if job.fed.pooled else max(plan.min_clients, job.algorithm.average.least)
        self.store = ClientStore(self._clients)
        device = job.device
        vector = job.layout.pack(job.module).to(device)
        buffers = job.layout.pack_buffers(dict(job.module.named_buffers())).to(device)
        self.first = Snapshot(0, vector, buffers)
        self.progress = Progress(0, vector, buffers, job.algorithm.init(job.layout, len(job.fed.clients), vector))
        self.rise = EarlyStopping(plan.min_delta)
        self.last_table: Table | None = None
        self.stopped: str | None = None  # why it ends before its rounds, if it does
        self._result: Run | None = None  # once it is done
        self.checkpoint_seconds = _CHECKPOINT_SECONDS
        self.groups = evaluated_groups(job.fed, plan.evaluate_samples, job.seed)
        self._began = self._saved = time.monotonic()
        self._asked: tuple[int, list[Member]] = 0, []  # a round, and who trains in it
        self._endings: list[Ending] = []

    # --------------------------------------------------------------------------------------------- the rounds

    def go(self) -> Run:
        """Runs the rounds that are left."""
        try:
            for asked in self.rounds():
                started = time.monotonic()
                outcome = self.engine.train(asked.work, asked.cohort)
                self.absorb(asked, outcome, time.monotonic() - started)
            return self.result()
        except BaseException as error:
            self.fail(error)
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
            self._restore(self.folder.begin(here, self.plan.last))
        self._began = time.monotonic()
        if self.progress.round > self.plan.rounds:
            self.stopped = f"it had run {self.progress.round} rounds already"
        while not self.complete and self.stopped is None:
            yield self._ask(self.progress.round + 1)
        if self.stopped is None and self.folder:
            last = self.rows.last
            if last is not None and last.evaluation is None:  # it had been stopped here, and is asked for no more
                evaluation = self._evaluate(last, self.evaluated())
                self.rows.amend(replace(last, evaluation=evaluation, off_schedule=True))
            self._finish(self.folder)
        self.end("finished" if self.stopped is None else "stopped")

    @property
    def complete(self) -> bool:
        """Whether it has its rounds, or is flat before them."""
        return self.progress.round >= self.plan.rounds or self.flat

    @property
    def flat(self) -> bool:
        """Whether held-out data has not improved for as long as the plan's patience."""
        return self.plan.patience is not None and self.rise.is_over(self.plan.patience)

    def _ask(self, number: int) -> Asked:
        progress = self.progress
        invited = self._guests(number)
        ahead = partial(self._next, number + 1)
        work = Work(number, progress.vector, progress.buffers, progress.memory, self._lr.at(number), ahead=ahead)
        if self._remembers:
            work = replace(work, stage=partial(self.store.stage, round=number))
        return Asked(work, self._next(number), invited)

    def _next(self, number: int) -> list[Member]:
        """Who will be asked in that round, if there is one. The last answer is kept: an engine that looks ahead asks
        before its time."""
        if number > self.plan.rounds:
            return []
        if self._asked[0] != number:
            self._asked = number, self._members(number)
        return self._asked[1]

    def _guests(self, number: int) -> list[Invited]:
        """Who is invited to that round."""
        return self._drawn(number)[0]

    def _drawn(self, number: int) -> tuple[list[Invited], list[Member]]:
        """Who is invited to that round, and the clients of which a report will come, as those of a rule that remembers
        nothing: the same in all runs of a seed over one federation, so they draw once."""
        how = self.plan.sample, self.plan.conditions, self.job.seed
        drawn = _invited.setdefault(self.job.fed, {}).setdefault(how, {})
        if number not in drawn:
            for old in [other for other in drawn if other < number - _KEPT]:
                del drawn[old]
            guests = invite(self._clients, *how, number)
            rows = self.job.fed.train
            drawn[number] = (
                guests,
                [Member(guest.client, rows[guest.client], share=guest.share) for guest in guests if not guest.lost],
            )
        return drawn[number]

    def absorb(self, asked: Asked, outcome: Outcome, seconds: float) -> None:
        """Takes in a round that took its engine so many seconds: the step, the evaluation if it is due, and all that is
        recorded."""
        started = time.monotonic()
        self.progress, row = self.learn(asked, outcome)
        trained = time.monotonic()
        table = self.evaluated() if self.due(asked.work.round) else None
        self.record(row, table, seconds + trained - started, time.monotonic() - trained)

    def due(self, number: int) -> bool:
        """Whether the round is to be evaluated."""
        return self.plan.evaluates(number) or number > self.plan.rounds - self.plan.last

    def record(self, row: RoundRow, table: Table | None, training: float, evaluating: float) -> None:
        """Takes in what is known of a round, with its evaluation if that is due: the best model so far, the row on
        disk, hooks and checkpoint. The times are in seconds."""
        number = row.round
        if table is not None:
            evaluation, scheduled = self._evaluate(row, table), self.plan.evaluates(number)
            row = replace(row, evaluation=evaluation, off_schedule=not scheduled)
            if scheduled:
                self.progress = self.progress.judged(evaluation)
                if self.plan.patience is not None:
                    self.rise = self.rise.after(number, evaluation)
            elif self.plan.last > 1:  # a longer run would not look at this round; of one alone see `result`
                self.progress = self.progress.judged_late(evaluation)
        self.rows.append(row)
        now = time.monotonic()
        if self.folder:
            timing = {"round": number, "train_seconds": training, "evaluate_seconds": evaluating}
            halved = self.engine.lanes_at_once  # only lanes can be too many for a device
            self.folder.log_timing(timing if halved is None else {**timing, "lanes_at_once": halved})
        event = Event(
            number,
            number if self.flat else self.plan.rounds,
            row,
            training + evaluating,
            self._module,
            self._endings.append,
        )
        answers = [hook(event) for hook in self.hooks]  # every hook is asked, also after one that wants to stop
        if not self.complete:
            if any(answers):
                self.stopped = "stopped by a hook"
            elif self.plan.budget is not None and now - self._began >= self.plan.budget:
                self.stopped = f"its budget of {self.plan.budget:g} s is spent"
        if self.folder and (self.stopped or self._due(number, now) or self.complete):
            self._checkpoint(self.folder)

    def _due(self, number: int, now: float) -> bool:
        """Whether it is time for a checkpoint: after so many rounds, or, if nobody said how many, after so many
        seconds. A checkpoint waits for the disk, which takes longer than many rounds of a small model."""
        if self.plan.checkpoint_every is not None:
            return number % self.plan.checkpoint_every == 0
        return now - self._saved >= self.checkpoint_seconds

    def stop(self, why: str) -> None:
        """Ends the run where it stands, so that it can go on later; one that has all its rounds is completed
        instead."""
        if self.complete or self.stopped:
            return
        self.stopped = why
        if self.folder and self.progress.round != (self.folder.state["round"] if self.folder.state else 0):
            self._checkpoint(self.folder)

    def end(self, how: str) -> None:
        """Tells whoever asked for it that the run is over, and how it ended."""
        endings, self._endings = self._endings, []
        for told in endings:
            told(how)

    def fail(self, error: BaseException) -> None:
        """The same, of a run that was cut short."""
        self.end("stopped" if isinstance(error, KeyboardInterrupt) else "failed")

    def skips(self, outcome: Outcome) -> bool:
        """Whether too few reports were accepted for the round to change anything."""
        accepted = sum(client.left_out_because is None for client in outcome.rows)
        return outcome.record is None or accepted < self._needed

    def learn(self, asked: Asked, outcome: Outcome) -> tuple[Progress, RoundRow]:
        """Applies what a cohort agreed on: where the run stands then, and the round's row. A round with too few reports
        changes nothing."""
        if outcome.record is None or self.skips(outcome):
            return self.settle(asked, outcome, None, {})
        progress, job, number = self.progress, self.job, asked.work.round
        round = Round(number, job.layout, len(self._clients), job.seed, self.plan.sample)
        record = job.algorithm.released(outcome.record, round)
        lowered, buffers, memory = job.algorithm.lower(record, progress.memory, round)
        change, memory = job.algorithm.step(lowered, memory)
        after = replace(
            progress, round=number, vector=progress.vector + change, buffers=progress.buffers + buffers, memory=memory
        )
        if not after.sound():
            return self.settle(asked, outcome, None, {})
        return self.settle(asked, outcome, after, of_round(job.algorithm, record, lowered, memory, change, round))

    def settle(
        self, asked: Asked, outcome: Outcome, after: Progress | None, told: dict[str, Any]
    ) -> tuple[Progress, RoundRow]:
        """Where the run stands once it is known where its step led; None if there was none, or none that can be built
        on."""
        job = self.job
        row = cohort_row(asked.work.round, asked.invited, outcome, job.attack.clients if job.attack else None)
        if outcome.record is None or self.skips(outcome):
            return self._skipped(row, f"{row.accepted} of the {self._needed} reports it needs")
        if after is None:
            return self._skipped(row, "its step, or what the server would remember, is not finite")
        if self._remembers:
            self.store.accept()
        row = replace(row, **told)
        if job.algorithm.privacy:
            norms = [client.norm for client in outcome.rows if client.left_out_because is None]
            row = replace(row, privacy=job.algorithm.privacy.of_round(outcome.record, norms))
        return after, row

    def _skipped(self, row: RoundRow, why: str) -> tuple[Progress, RoundRow]:
        """A round that changes nothing, and says so."""
        self.store.drop()
        warnings.warn(f"round {row.round} was skipped: {why}", SkippedRound, stacklevel=2)
        return replace(self.progress, round=row.round), replace(row, skipped=why)

    def _members(self, number: int) -> list[Member]:
        """What the engine gets to train on; a client whose report will be lost need not train."""
        fed, present = self.job.fed, self._drawn(number)[1]
        if fed.pooled:
            return [Member("pooled", fed.pooled_rows([member.client for member in present], self.job.seed, number))]
        if not self._remembers:
            return present
        return [replace(member, own=partial(self._own, member.client)) for member in present]

    def _own(self, client: str) -> State:
        """What a client remembers, of a rule whose clients do."""
        kept = self.store.get(client)
        if kept is None:
            return self.job.algorithm.local.fresh(self.first.vector, self.first.buffers)
        return {name: value.to(self.job.device) for name, value in kept.items()}

    # --------------------------------------------------------------------------------------------- evaluation

    def _evaluate(self, row: RoundRow, table: Table) -> Evaluation:
        """Three ways, after the round that `row` tells of."""
        self.last_table = table
        groups, algorithm = set(table.groups), self.job.algorithm
        parts = by_turn(self._took_part(row), groups) | by_population(self.job.fed.populations, groups)
        if algorithm.privacy is None:
            return summarise(table, parts)
        clients = len(self.job.fed.clients)
        spent = algorithm.privacy.spent(algorithm.mask is not None, clients, self.plan.sample, row.round)
        return summarise(table, parts, spent)

    def _took_part(self, row: RoundRow) -> set[str]:
        """The clients whose reports made this round's step. Told by the row alone, so that a resumed run tells the
        same."""
        if row.skipped or self.job.fed.pooled:
            return set()
        return {guest.client for guest in self._guests(row.round)} - set(row.left_out)

    def evaluated(self) -> Table:
        """The model as it is on all that the run evaluates."""
        if self.job.algorithm.local.own_models:
            return evaluate_local_models(self.engine, self._clients, self.groups, self.job.seed, self._own)
        return self.engine.evaluate(self.progress.vector, self.progress.buffers, self.groups)

    # ------------------------------------------------------------------------------------------------ on disk

    def _checkpoint(self, folder: RunFolder) -> None:
        folder.checkpoint(self.progress.tensors(), {**self.progress.numbers(), "clients": self.store.sync()})
        self.store.committed()
        self._saved = time.monotonic()

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes up the folder's checkpoint, if it has one."""
        assert self.folder is not None
        saved = self.folder.state or {}
        self.store = ClientStore(self.job.fed.clients, self.folder.path / "clients", saved.get("clients"))
        self.rows = self.folder.rows()
        if self.plan.patience is not None:
            self.rise = EarlyStopping(self.plan.min_delta).after_all(self.rows)
        if saved:
            late_after = 0 if self.folder.over else self.plan.rounds - self.plan.last
            self.progress = self.progress.restored(saved, tensors, self.job.device, late_after)

    def _finish(self, folder: RunFolder) -> None:
        run = self._result = self.result()
        models = {}
        if not run.alone:
            models["model"] = run.model().state_dict()
            if run.best is not None:
                is_last = run.best.round == run.last.round
                models["best"] = models["model"] if is_last else run.model("held-out").state_dict()
        folder.finish(run.rounds, models, run.clients or per_client(self.evaluated()), run.flat)

    def _module(self) -> nn.Module:
        return self.result().model()

    def result(self) -> Run:
        """The run as it stands."""
        if self._result is not None:  # it is done, and nothing changes any more
            return self._result
        progress, job, last = self.progress.ended, self.job, self.rows.last
        # the last round may be the best, though a longer run would not have looked
        if last is not None and last.off_schedule:
            progress = progress.judged(last.evaluation)
        flat = self.flat
        return Run(
            title=f"{label_of(job.algorithm)} · {job.fed.name} · seed {job.seed}",
            rounds=progress.round,
            recorded=self.rows.so_far(),
            last=progress.last,
            best=progress.best,
            clients=per_client(self.last_table) if self.last_table else [],
            folder=self.folder.path if self.folder else None,
            stopped=self.stopped,
            flat=self.rise.round if flat else None,
            spared=max(0, self.plan.rounds - progress.round) if flat else 0,
            alone=job.algorithm.local.own_models,
            _module=job.module,
            _layout=job.layout,
        )
