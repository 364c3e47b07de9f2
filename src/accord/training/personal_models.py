"""The evaluation of clients that keep a part of the model to themselves, and of unseen clients that adapt it first."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from accord.core import draws
from accord.core.record import State
from accord.engines.contract import Engine, Group, Job, Member, Table, Work, joined
from accord.engines.job import PERSONAL
from accord.engines.sequential import Sequential
from accord.rules.algorithm import Algorithm
from accord.rules.local import own_model
from accord.runs.client_models import ClientModels

# A deployment knows no client's personal part, and so has no mean of them: a simulation does.
MEAN = "unseen, mean of personal parts (simulation only)"
COMMON = "held-out, common model"
BEFORE, AFTER = "unseen, rest before adapting", "unseen, rest after adapting"


def client_models(job: Job, engine: Engine, state: Callable[[str], State | None]) -> ClientModels | None:
    """What clients keep of a model, if they do."""
    algorithm, local = job.algorithm, job.algorithm.local
    if not (local.own_models or local.beside or algorithm.personal):
        return None
    return ClientModels(
        clients=job.fed.clients,
        common=not local.own_models,
        whole=not algorithm.personal,
        deployed=engine.holds_clients,
        first=job.personal_at_first(),
        state=state,
    )


def evaluate_personal_models(
    job: Job,
    engine: Engine,
    vector: Tensor,
    buffers: Tensor,
    groups: Sequence[Group],
    state_of: Callable[[str], State],
) -> Table:
    """Every participating client's own data under the model that it uses; all other data under the shared part with
    the first personal part, and unseen clients' also under the mean of all clients'. Where clients keep a whole model,
    other data meets the common one, and so does held-out data once more."""
    mine = defaultdict[str, list[Group]](list)
    others = [group for group in groups if group[0] not in ("train", "heldout")]
    for split, client, rows in groups:
        if split in ("train", "heldout"):
            mine[client].append((split, client, rows))
    tables, total, first = [], None, job.personal_at_first()
    for client in job.fed.clients:
        state = state_of(client)
        tables.append(engine.evaluate(*job.used(vector, buffers, state), mine[client]))
        kept = {name: state[name] for name in PERSONAL if name in state}
        total = kept if total is None else {name: total[name] + value for name, value in kept.items()}
    tables.append(engine.evaluate(*job.assembled(vector, buffers, first), others))
    unseen = [(MEAN, client, rows) for split, client, rows in others if split == "unseen"]
    if unseen and total:
        mean = {name: value / len(job.fed.clients) for name, value in total.items()}
        tables.append(engine.evaluate(*job.assembled(vector, buffers, mean), unseen))
    if job.beside is not None:
        common = [(COMMON, client, rows) for split, client, rows in groups if split == "heldout"]
        tables.append(engine.evaluate(vector, buffers, common))
    return joined(tables)


class Adaptation:
    """Unseen clients that take `steps` local steps on a half of their data, and are evaluated on the rest, before and
    after. Nothing of it reaches the run."""

    def __init__(self, job: Job, steps: int) -> None:
        self._steps, whole = steps, job.whole
        # As clients of `local_only` train: from a model of their own, which they keep. An epoch has a step at least.
        training = replace(job.training, steps=steps, epochs=steps)
        self._job = replace(job, layout=whole, algorithm=Algorithm(own_model()), training=training, attack=None)
        self._engine: Sequential | None = None  # made once it is asked for

    def evaluate(self, engine: Engine, round: int, vector: Tensor, buffers: Tensor, unseen: Sequence[Group]) -> Table:
        """From `vector: [P]` of the whole model; clients with a single sample have no rest."""
        self._engine = self._engine or Sequential(self._job)
        lr, tables = self._job.training.lr_at(round), []
        memory = self._job.algorithm.init(self._job.layout, 1, vector)
        for _, client, rows in unseen:
            order = torch.from_numpy(draws.permutation(len(rows), self._job.seed, "adapt", client))
            used, rest = rows[order[: len(rows) // 2].sort().values], rows[order[len(rows) // 2 :].sort().values]
            ended = {client: {"w": vector, "b": buffers}}  # of a client with too few samples, or that diverges
            work = Work(round, vector, buffers, memory, lr, ended.__setitem__)
            self._engine.train_shard(work, [Member(client, used, partial(ended.__getitem__, client))])
            after = ended[client]
            tables.append(engine.evaluate(vector, buffers, [(BEFORE, client, rest)]))
            tables.append(engine.evaluate(after["w"], after["b"], [(AFTER, client, rest)]))
        return joined(tables)
