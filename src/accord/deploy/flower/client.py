"""The client side: a Flower ClientApp that trains with accord's local rules and evaluates on its own data."""

import os
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.losses import default_loss, per_sample_loss
from accord.core.measure import Metrics, PerSample
from accord.core.metric_names import chosen_metrics
from accord.core.record import Field, Record, State
from accord.data.agreement import Form, moments_of, prepared_by
from accord.data.federated import Federation
from accord.data.preparation import Preparation
from accord.deploy.flower.figures import evaluation_as
from accord.deploy.flower.memory import ClientMemory
from accord.deploy.flower.own_noise import deployed, noised
from accord.deploy.flower.preparing import STATISTICS, ModelSource, model_source, share_of
from accord.deploy.flower.secagg_client import SecureClient
from accord.deploy.flower.secagg_messages import KEYS, MASKED, SHARES, UNMASK
from accord.deploy.flower.sums import Hide, Rules, Sums, check_protocol, form_name, lifted_by, sent_form
from accord.deploy.flower.wire import (
    AGAIN,
    SPLITS,
    Task,
    arrays_of,
    content,
    layout_as,
    message_in,
    preparation_in,
    reply_or_error,
    row_as,
    tensors_in,
)
from accord.engines.compiled import one_by_one
from accord.engines.contract import ClientRow, Group, Job, Member, Work, joined
from accord.engines.model_inputs import as_called
from accord.engines.sequential import Sequential
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.rules.registry import PARTS

Data = Federation | Callable[[Context], Federation]
Model = nn.Module | ModelSource | Callable[[Context], nn.Module | ModelSource]


def client_app(
    model: Model,
    data: Data,
    loss: PerSample | None = None,
    *,
    metrics: Metrics | Sequence[str] | None = None,
    state: str | Path | None = None,
    sums: Sums | None = None,
    algorithm: Algorithm | None = None,
    secret: int | None = None,
    rules: Sequence[Callable[..., Any]] = (),
    device: str = "cpu",
) -> ClientApp:
    """The Flower app of an owner of data, for a server that runs `Strategy`.

    `data(context)` gives the federation of this node's clients alone, one or several, by the names the server knows
    them by; it is asked for every message, so keep what is dear to load. `state` is the folder in which clients
    remember (SCAFFOLD); left out, it is the node's setting `accord-state`, the environment's `ACCORD_STATE`, or
    `~/.accord/state`. With `sums` the client lifts records itself and needs the `algorithm` to do so; `secret` is the
    number that masked sums are drawn from. `metrics` are names or functions, as for `accord.fit`; of one of a whole
    group, such as AUC, a client sends its own figure and a histogram of its scores. `rules` are local rules and
    averages of yours that the server may name: a message names code and never brings any.

    >>> app = client_app(accord.models.lenet(), lambda context: mine(context.node_config["partition-id"]))
    """
    if sums is not None and algorithm is None:
        raise AccordError("a client that sends sums lifts them itself: give client_app the algorithm too")
    check_protocol(algorithm, sums)
    algorithm = algorithm and deployed(algorithm, sums)
    node = _Node(model, data, loss, metrics, state, sums, algorithm, secret, _known(rules), torch.device(device))
    app = ClientApp()
    app.query()(node.hello)
    app.query(STATISTICS)(node.statistics)
    if sums is not None and sums.protocol:  # and no other way to ask for a record
        app.train(KEYS)(node.stage(SecureClient.keys))
        app.train(SHARES)(node.stage(SecureClient.shares))
        app.train(MASKED)(node.train_masked)
        app.train(UNMASK)(node.stage(SecureClient.unmask))
    else:
        app.train()(node.train)
        app.train(AGAIN)(node.again)
    app.evaluate()(node.evaluate)
    return app


@dataclass(frozen=True)
class _Node:
    """One node's answers."""

    model: Model
    data: Data
    loss: PerSample | None
    metrics: Metrics | Sequence[str] | None
    state: str | Path | None
    sums: Sums | None
    algorithm: Algorithm | None
    secret: int | None
    rules: Rules
    device: torch.device

    def hello(self, message: Message, context: Context) -> Message:
        """Who lives here. Flower's own node ids are drawn anew for every node that connects."""

        def reply() -> RecordDict:
            agreed = preparation_in(message_in(message.content).get("preparation"))
            fed = self._fed(context, agreed)
            splits = {split: {client: len(rows) for client, rows in getattr(fed, split).items()} for split in SPLITS}
            source = self._source(context)
            layout = None if agreed is None and source.waits else layout_as(Layout.of(source.module(agreed)))
            data = {} if agreed is not None else {"data": asdict(Form.of(fed))}
            return content({}, {**splits, **data, "form": form_name(self.algorithm, self.sums), "layout": layout})

        return Message(reply_or_error(reply), reply_to=message)

    def statistics(self, message: Message, context: Context) -> Message:
        """Counts, sums and sums of squares of this node's training rows, of clients that the server names."""

        def reply() -> RecordDict:
            asked, fed = message_in(message.content), self._fed(context)
            moments = moments_of(fed, [c for c in asked["clients"] if c in fed.train], asked["columns"])
            share = share_of(moments, self.sums, asked["clients"][0], asked["cohort"], self.secret)
            return content({"statistics": arrays_of({"moments": share})}, {})

        return Message(reply_or_error(reply), reply_to=message)

    def train(self, message: Message, context: Context) -> Message:
        """A client's round: its record, or why there is none."""
        return Message(reply_or_error(lambda: self._trained(message.content, context)), reply_to=message)

    def stage(self, answer: Callable[[SecureClient, RecordDict], RecordDict]) -> Callable[[Message, Context], Message]:
        """The answer to a stage of a secure sum, but for the one that trains."""

        def answered(message: Message, context: Context) -> Message:
            return Message(reply_or_error(lambda: answer(self._secure(context), message.content)), reply_to=message)

        return answered

    def train_masked(self, message: Message, context: Context) -> Message:
        """A client's round as a part of a secure sum."""

        def reply() -> RecordDict:
            agreed = preparation_in(Task(**message_in(message.content)).preparation)
            layout = Layout.of(self._module(context, agreed))
            hide = self._secure(context, layout).hide(message.content)
            return self._trained(message.content, context, hide)

        return Message(reply_or_error(reply), reply_to=message)

    def again(self, message: Message, context: Context) -> Message:
        """A round's second exchange: what a client adds now that it knows the first one's sums."""
        return Message(reply_or_error(lambda: self._second(message.content, context)), reply_to=message)

    def evaluate(self, message: Message, context: Context) -> Message:
        """Loss and metrics of everything that this node has."""

        def reply() -> RecordDict:
            asked = message_in(message.content)
            agreed = preparation_in(asked.get("preparation"))
            fed = self._fed(context, agreed)
            sent = {name: t.to(self.device) for name, t in tensors_in(message.content, "model").items()}
            algorithm = Algorithm(personal=tuple(asked.get("personal", ())))
            job = self._job(self._module(context, agreed), fed, algorithm, Training(), 0)
            engine, parts = Sequential(job), dict[str, list[Group]]()
            for split, client, rows in fed.groups():
                parts.setdefault(client if split in ("train", "heldout") else "", []).append((split, client, rows))
            if not job.algorithm.personal:
                parts = {"": list(fed.groups())}
            tables = []
            for client, groups in parts.items():
                memory = ClientMemory(self._folder(context), str(asked.get("experiment")), client)
                kept = memory.at(*asked["versions"].get(client, (0, 0))) if client else None
                personal = {name: t.to(self.device) for name, t in (kept or job.personal_at_first()).items()}
                tables.append(engine.evaluate(*job.assembled(sent["vector"], sent["buffers"], personal), groups))
            return evaluation_as(joined(tables), job.metrics, job.loss)

        return Message(reply_or_error(reply), reply_to=message)

    def _trained(self, received: RecordDict, context: Context, hide: Hide | None = None) -> RecordDict:
        task = Task(**message_in(received))
        agreed = preparation_in(task.preparation)
        fed = self._fed(context, agreed)
        try:
            module = self._module(context, agreed)
            tensors, row = self._round(task, module, fed, received, context, hide)
        except AccordError as error:
            samples = len(fed.train.get(task.client, ()))
            tensors, row = {}, ClientRow(task.client, samples, 0, 0.0, 0.0, left_out_because=str(error))
        if self.algorithm is not None and self.algorithm.privacy is not None:
            row = replace(row, loss=0.0, norm=0.0)  # no noise covers them
        return content({"record": arrays_of(tensors)}, row_as(row, task.round))

    def _round(
        self,
        task: Task,
        module: nn.Module,
        fed: Federation,
        received: RecordDict,
        context: Context,
        hide: Hide | None,
    ) -> tuple[State, ClientRow]:
        if task.client not in fed.train:
            raise AccordError(f"client {task.client} does not live on this node")
        algorithm = lifted_by(self.algorithm, self.sums, task, self.rules)
        job = self._job(module, fed, algorithm, task.as_training(), task.seed)
        groups = ("model", "sent", "average", "mask")
        model, sent, average, mask = (
            {name: t.to(self.device) for name, t in tensors_in(received, group).items()} for group in groups
        )
        memory = ClientMemory(self._folder(context), task.experiment, task.client)
        pending: State = {}

        def client_state() -> State:
            if not job.remembers:
                return {}
            kept = memory.at(task.version, task.kept)
            fresh = {**algorithm.local.fresh(model["vector"], model["buffers"]), **job.personal_at_first()}
            return {name: t.to(self.device) for name, t in (kept or fresh).items()}

        server_state = {"local": sent, "average": average, "mask": mask, "server": {}}
        lr = job.training.lr_at(task.round)
        work = Work(
            task.round, model["vector"], model["buffers"], server_state, lr, lambda _, state: pending.update(state)
        )
        member = Member(task.client, fed.train[task.client], client_state, task.share)
        part = one_by_one(job).train_shard(work, [member])
        if part.record is None:
            return {}, part.rows[0]
        tensors = sent_form(part.record, self.sums, task, self.secret, hide)
        for extra in part.kept:  # one client's, if it will be asked again
            memory.keep(task.round, {name: extra[name] for name in algorithm.average.needs})
        if pending:
            memory.pending(task.round, pending)  # last: a report that could not be sent leaves nothing behind
        return tensors, part.rows[0]

    def _second(self, received: RecordDict, context: Context) -> RecordDict:
        task = Task(**message_in(received))
        kept = ClientMemory(self._folder(context), task.experiment, task.client).kept(task.round)
        first = Record(**{name: Field(value) for name, value in tensors_in(received, "first").items()})
        second = lifted_by(self.algorithm, self.sums, task, self.rules).average.second(kept, first)
        tensors = {path: entry.value for path, entry in second.fields().items()}
        return content({"record": arrays_of(tensors)}, row_as(ClientRow(task.client, 0, 0, 0.0, 0.0), task.round))

    def _secure(self, context: Context, layout: Layout | None = None) -> SecureClient:
        """This node's part in a secure sum; `layout` is that of the record that it is to send, if it is."""
        assert self.sums is not None and self.sums.secure is not None and self.algorithm is not None
        noise = noised(self.algorithm, self.sums, layout)
        clients = frozenset(self._fed(context).train)
        return SecureClient(self._folder(context), self.sums.graph, clients, self.sums.secure, noise)

    def _job(self, module: nn.Module, fed: Federation, algorithm: Algorithm, training: Training, seed: int) -> Job:
        loss = per_sample_loss(self.loss or default_loss(fed.y), self.device)
        metrics = chosen_metrics(self.metrics, fed.y, self.loss is not None)
        # a node of unseen clients trains on nothing, and is only measured
        known = fed if fed.train else replace(fed, train=fed.unseen)
        module = as_called(module, known)
        layout = Layout.of(module, algorithm.personal)
        return Job(module, layout, known, algorithm, training, loss, metrics, seed, self.device)

    def _fed(self, context: Context, agreed: Preparation | None = None) -> Federation:
        """This node's data, prepared by what all owners agreed on."""
        fed = self.data if isinstance(self.data, Federation) else self.data(context)
        if not isinstance(fed, Federation):
            raise AccordError(
                f"data must give a federation, such as accord.data.from_arrays makes, got {type(fed).__name__}"
            )
        return fed if agreed is None else prepared_by(fed, agreed)

    def _source(self, context: Context) -> ModelSource:
        model = self.model if isinstance(self.model, nn.Module | ModelSource) else self.model(context)
        return model_source(model)

    def _module(self, context: Context, agreed: Preparation | None) -> nn.Module:
        return self._source(context).module(agreed)

    def _folder(self, context: Context) -> Path:
        chosen = (
            self.state or context.node_config.get("accord-state") or os.environ.get("ACCORD_STATE") or "~/.accord/state"
        )
        return Path(str(chosen)).expanduser()


def _known(rules: Sequence[Callable[..., Any]]) -> Rules:
    """Local rules and averages by name: these, accord's own, and what packages installed here register. A message
    cannot name a module."""
    return ChainMap({make.__name__: make for make in rules}, *(cast(Any, PARTS[what]) for what in ("local", "average")))
