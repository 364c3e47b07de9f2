"""The evaluation of clients that each have a model of their own and learn nothing from each other (`local_only`)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from accord.core import draws
from accord.core.record import State
from accord.engines.contract import Engine, Group, Table
from accord.engines.group_values import Alone, Exact, Outputs

_TRIED = 10  # so many clients' models are tried on data that is nobody's own


def evaluate_local_models(
    engine: Engine, clients: Sequence[str], groups: Sequence[Group], seed: int, state_of: Callable[[str], State]
) -> Table:
    """Every client's own model on those of the groups that are its own data; some clients' models on data that is
    nobody's own."""
    mine = defaultdict[str, list[Group]](list)
    shared = [group for group in groups if group[0] not in ("train", "heldout")]
    for split, client, rows in groups:
        if split in ("train", "heldout"):
            mine[client].append((split, client, rows))
    tried = draws.choose(len(clients), min(_TRIED, len(clients)), seed, "models tried on others")
    own_tables, shared_tables = [], []
    for index, client in enumerate(clients):
        kept = state_of(client)
        own_tables.append(engine.evaluate(kept["w"], kept["b"], mine[client]))
        if index in tried:
            shared_tables.append(engine.evaluate(kept["w"], kept["b"], shared))
    return merge_alone(own_tables, shared_tables)


def merge_alone(tables: Sequence[Table], shared: Sequence[Table]) -> Table:
    """One table for clients that each have a model of their own: their own data under their own model, all other data
    under the mean of several clients' models."""
    groups = [group for table in tables for group in table.groups] + shared[0].groups
    samples = np.concatenate([table.samples for table in tables] + [shared[0].samples])
    sums = {
        metric: np.concatenate(
            [table.sums[metric] for table in tables] + [np.mean([table.sums[metric] for table in shared], axis=0)]
        )
        for metric in shared[0].sums
    }
    return replace(
        shared[0],
        groups=groups,
        samples=samples,
        sums=sums,
        of_group={name: _alone(name, tables, shared) for name in shared[0].of_group},
        nan=_nan(tables, shared),
    )


def _alone(name: str, apart: Sequence[Table], shared: Sequence[Table]) -> Alone:
    """A metric of a whole group: clients' own data taken together are predictions of many models."""
    mine, others = ([cast(Exact, table.of_group[name]) for table in tables] for tables in (apart, shared))
    return Alone(replace(mine[0], all=Outputs.joined([values.all for values in mine])), others)


def _nan(apart: Sequence[Table], shared: Sequence[Table]) -> np.ndarray | None:
    """NaN predictions; on data that is nobody's own, of the model that has most."""
    counts = [table.nan for table in (*apart, *shared)]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    return np.concatenate([*known[: len(apart)], np.max(known[len(apart) :], axis=0)])
