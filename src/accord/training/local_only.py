"""The evaluation of clients that each have a model of their own and learn nothing from each other (`local_only`)."""

from collections.abc import Callable, Sequence

from accord.core import draws
from accord.core.record import State
from accord.engines.contract import Engine, Group, Table
from accord.runs.evaluation import merge_alone

_TRIED = 10  # so many clients' models are tried on data that is nobody's own


def evaluate_local_models(
    engine: Engine, clients: Sequence[str], groups: Sequence[Group], seed: int, own: Callable[[str], State]
) -> Table:
    """Every client's own model on those of the groups that are its own data; some clients' models on data that is
    nobody's own."""
    mine: dict[str, list[Group]] = {client: [] for client in clients}
    shared = []
    for group in groups:
        (mine[group[1]] if group[0] in ("train", "heldout") else shared).append(group)
    tried = draws.choose(len(clients), min(_TRIED, len(clients)), seed, "models tried on others")
    own_tables, shared_tables = [], []
    for index, client in enumerate(clients):
        kept = own(client)
        own_tables.append(engine.evaluate(kept["w"], kept["b"], mine[client]))
        if index in tried:
            shared_tables.append(engine.evaluate(kept["w"], kept["b"], shared))
    return merge_alone(own_tables, shared_tables)
