"""An accord algorithm as a Flower strategy, by composition: accord's own loop with a fleet of Flower nodes for its
engine."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.losses import cross_entropy
from accord.deploy.flower.claims import check_keys, public_keys
from accord.deploy.flower.fleet import Fleet
from accord.deploy.flower.own_noise import check_secure, deployed
from accord.deploy.flower.owners import Owners, names_only
from accord.deploy.flower.preparing import ModelSource, model_source
from accord.deploy.flower.results import arrays_of_model, evaluation_of, log_round, numbers_of, result_of
from accord.deploy.flower.roster import Roster
from accord.deploy.flower.sums import Sums, check_protocol, form_name
from accord.deploy.flower.turns import check_norm_ratio
from accord.engines.contract import Job
from accord.models import warm_start
from accord.rules.algorithm import Algorithm
from accord.rules.label import label_of
from accord.rules.local import Training
from accord.runs.fingerprint import describe, run_name
from accord.runs.folder import RunFolder
from accord.runs.load import read_preparation
from accord.runs.run import Run
from accord.training.loop import Asked, Event, Loop
from accord.training.plan import Plan, identity
from accord.training.run_settings import run_settings

_log = logging.getLogger("flwr")


class Strategy(FlowerStrategy):
    """Runs `algorithm` over Flower nodes whose ClientApp is `client_app`.

    `clients` says who takes part: their names, in the order of the simulated run, or how many there are, by name. The
    run begins when all are there, or fails after `wait` seconds; in a round and an evaluation nodes have `timeout`
    seconds to answer. `keys` are public keys, by client, in files that `flwr supernode register` reads: a name belongs
    to the node with its key. Either every client has a key, also those that never train, or none has. Without keys a
    name belongs to the node that claims it first. Another node that claims it is excluded. Over a network, give keys.
    With a `folder` the run is recorded there as any run of accord's, and goes on from its last checkpoint if it is
    there already. Before the first round nodes agree on one preparation of their samples (`accord.data.agreement`).

    No reply is trusted: what cannot be read is left out and named, and after three such replies its node is excluded.
    An update more than `max_norm_ratio` times as long as the cohort's median is left out too (None: however long; where
    clients send sums, the bound is their own).

    >>> algorithm = accord.fedadam(mask=accord.gma(0.4))
    >>> keys = {"clinic-1": "keys/clinic-1.pub", "clinic-7": "keys/clinic-7.pub"}
    >>> strategy = Strategy(algorithm, model, clients=list(keys), keys=keys, plan=Plan(rounds=20), folder="runs")
    >>> result = strategy.start(grid)          # inside a Flower ServerApp
    >>> print(strategy.run)                    # train, held-out and unseen figures, as of a simulated run
    """

    def __init__(
        self,
        algorithm: Algorithm,
        model: nn.Module | ModelSource,
        *,
        clients: int | Sequence[str],
        training: Training | None = None,
        plan: Plan | None = None,
        sums: Sums | None = None,
        folder: str | Path | None = None,
        timeout: float = 600.0,
        wait: float = 300.0,
        max_norm_ratio: float | None = 1000.0,
        keys: Mapping[str, str | Path] | None = None,
        name: str = "flower",
    ) -> None:
        _check(algorithm, sums)
        algorithm = deployed(algorithm, sums)
        check_norm_ratio(max_norm_ratio)
        for what, seconds in (("timeout", timeout), ("wait", wait)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
                raise AccordError(f"{what} must be a number of seconds above 0, got {seconds!r}")
        if isinstance(clients, str) or not (clients if isinstance(clients, int) else len(clients)) > 0:
            raise AccordError(f"clients must be the clients' names, or how many there are, got {clients!r}")
        if not isinstance(clients, int) and len(set(clients)) < len(clients):
            raise AccordError(f"clients must differ from each other, got {list(clients)}")
        check_keys(clients, keys or {})
        self.algorithm, self.model, self.clients, self.sums = algorithm, model, clients, sums
        self.training, self.plan = training or Training(), plan or Plan()
        algorithm.local.check(self.training.rule.momentum)
        if self.plan.adapt_steps is not None:
            raise AccordError(
                f"adapt_steps has no meaning with Flower, got {self.plan.adapt_steps}: unseen clients adapt in a"
                " simulation"
            )
        self.folder, self.timeout, self.wait, self.max_norm_ratio, self.name = (
            folder,
            timeout,
            wait,
            max_norm_ratio,
            name,
        )
        self._source, self._keys = model_source(model), public_keys(keys or {})
        self.run: Run | None = None
        self._loop: Loop | None = None
        self._asked: Asked | None = None
        self._rounds: Iterator[Asked] = iter(())
        self._sent: dict[str, Message] = {}

    def summary(self) -> None:
        """Says what will run."""
        _log.info("\taccord: %s, %s rounds", label_of(self.algorithm), self.plan.rounds)

    # ------------------------------------------------------------------------------------------------ the run

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Runs the rounds and gives Flower's result; `self.run` has accord's. Replies are added as they arrive.

        What Flower lets a caller choose here stands in for what the strategy was made with. Configurations for clients
        have no meaning: tasks say all that accord's clients need.
        """
        if train_config or evaluate_config:
            raise AccordError(
                "train_config and evaluate_config have no meaning for accord's clients: give the strategy training and"
                " plan"
            )
        self.timeout = timeout or self.timeout
        self.summary()
        seen: dict[int, MetricRecord] = {}

        def look(event: Event) -> None:
            evaluated = evaluate_fn(event.round, arrays_of_model(event.snapshot())) if evaluate_fn else None
            if evaluated is not None:
                seen[event.round] = evaluated

        loop = self._open(grid, initial_arrays, num_rounds, [look] if evaluate_fn else [])
        try:
            self.run = loop.go()
        finally:
            if loop.folder:
                loop.folder.close()
        return result_of(self.run, seen)

    def _open(
        self, grid: Grid, arrays: ArrayRecord | None, rounds: int | None, hooks: Sequence[Callable[[Event], None]] = ()
    ) -> Loop:
        """Meets the nodes and readies the loop."""
        start = arrays.to_torch_state_dict() if arrays is not None and len(arrays) else None
        known = None if self._source.waits else _started(self._source.module(None), start)
        plan = self.plan if rounds is None else replace(self.plan, rounds=rounds)
        if plan.checkpoint_every is None:  # a round is the work of real clients: none of it is lost
            plan = replace(plan, checkpoint_every=1)
        roster = Roster(
            grid, None if known is None else Layout.of(known), form_name(self.algorithm, self.sums), self._keys
        )
        fed = names_only(roster.gather(self.clients, self.wait), roster, self.name)
        plan.check(fed)
        plan.check_patience(bool(fed.heldout))  # who has some is all that a server knows
        cohort = plan.sample or len(fed.clients)
        self.algorithm.average.check_cohort(cohort)
        if self.sums and self.sums.secure:
            self.sums.secure.check_cohort(cohort)
        rest: Any = (self.algorithm, self.training, cross_entropy, {}, plan.seed, torch.device("cpu"))
        job = Job(nn.Identity() if known is None else known, Layout((), (), torch.float32), fed, *rest)
        # a model that is not made yet goes by its code: the preparation that shapes it may lie in the folder
        described = {} if known is not None else {"model": [describe(self.model), describe(start)]}
        name = run_name(job, {**identity(job, plan), **described})
        path = self.folder and Path(self.folder) / name
        owners = Owners(roster, fed.clients, self.sums, self.timeout, self.wait)
        agreed = owners.agree(read_preparation(path) if path else None)
        model = _started(self._source.module(agreed), start)
        owners.announce(agreed, model, shaped=known is None)
        job = Job(model, Layout.of(model, self.algorithm.personal), replace(fed, agreed=agreed), *rest)
        clients = len(fed.clients)
        for line in check_secure(self.algorithm, self.sums, plan, job.layout, clients, bool(self.folder)):
            _log.info("\t%s", line)
        folder = path and RunFolder(path, run_settings(job, plan, "flower", "cpu"), plan.rounds)
        fleet = Fleet(
            job,
            roster,
            self.sums,
            name,
            self.timeout,
            lambda client: self.loop.store.versions(client),
            self.max_norm_ratio,
        )
        self._loop = Loop(job, plan, fleet, folder or None, [*hooks, log_round])
        return self._loop

    @property
    def loop(self) -> Loop:
        assert self._loop is not None, "the strategy was not started"
        return self._loop

    # --------------------------------------------------------- Flower's own way: its `start` may drive it too

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The round's messages: keyed draws choose the clients, as in a simulation."""
        if self.sums and self.sums.protocol:
            raise AccordError("a secure sum has four exchanges a round, and Flower's own loop has one: use start")
        if self._loop is None:
            self._rounds = self._open(grid, arrays, None).rounds()
        self._asked = next(self._rounds, None)
        engine = self.loop.engine
        assert isinstance(engine, Fleet)
        self._sent = engine.messages(self._asked.work, self._asked.cohort) if self._asked else {}
        return self._sent.values()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Adds the replies, lowers, steps and evaluates."""
        asked, engine = self._asked, self.loop.engine
        if asked is None:
            return None, None
        assert isinstance(engine, Fleet)
        outcome = engine.outcome(asked.work, asked.cohort, _by_client(self._sent, replies), self._sent)
        self.loop.absorb(asked, outcome, 0.0)
        self.run = self.loop.result()
        return arrays_of_model(self.run.model()), numbers_of(self.run.recorded[-1])

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: a round evaluates when its plan says so, before it is recorded."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The round's evaluation, if it had one."""
        return evaluation_of(self.run.recorded[-1]) if self.run and self.run.recorded else None


def _check(algorithm: Algorithm, sums: Sums | None) -> None:
    if sums is not None and sums.secure is not None and not algorithm.average.sums_only:
        raise AccordError(f"{algorithm.average.label} must see every client's update by itself: a secure sum hides it")
    check_protocol(algorithm, sums)
    if algorithm.pools or not algorithm.local.reports_updates:
        raise AccordError(f"{algorithm.name} is no federation of updates, and has no form for Flower")
    if algorithm.local.beside is not None:
        raise AccordError(f"{algorithm.name} trains a second model on every client, and has no form for Flower yet")
    if algorithm.privacy and not (sums and sums.protocol):
        raise AccordError(
            "privacy needs noise that nobody can repeat, which clients add to a secure sum: give both sides"
            " sums=Sums(SecureSum(...), protocol='secagg+')"
        )


def _started(model: nn.Module, start: dict[str, Tensor] | None) -> nn.Module:
    return model if start is None else warm_start(model, start)


def _by_client(sent: Mapping[str, Message], replies: Iterable[Message]) -> Iterator[tuple[str, Message | None]]:
    """Replies by the client whose message they answer; None for those that none came to."""
    waiting = {message.metadata.message_id: client for client, message in sent.items()}
    for reply in replies:
        client = waiting.pop(reply.metadata.reply_to_message_id, None)
        if client is not None:
            yield client, reply
    yield from ((client, None) for client in waiting.values())
