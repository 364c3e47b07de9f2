"""The evaluation of clients that each have a model of their own and learn nothing from each other (`local_only`)."""

from collections.abc import Callable

from accord.core import draws
from accord.core.record import State
from accord.data.federated import Federation
from accord.engines.contract import Engine, Table
from accord.runs.evaluation import merge_alone

_TRIED = 10  # so many clients' models are tried on data that is nobody's own


def evaluate_local_models(engine: Engine, fed: Federation, seed: int, own: Callable[[str], State]) -> Table:
    """Every client's own model on its own data; some clients' models on data that is nobody's own."""
    shared = [group for group in fed.groups() if group[0] in ("unseen", "test", "other")]
    tried = draws.choose(len(fed.clients), min(_TRIED, len(fed.clients)), seed, "models tried on others")
    own_tables, shared_tables = [], []
    for index, client in enumerate(fed.clients):
        kept = own(client)
        mine = [
            (split, client, rows[client])
            for split, rows in (("train", fed.train), ("heldout", fed.heldout))
            if client in rows
        ]
        own_tables.append(engine.evaluate(kept["w"], kept["b"], mine))
        if index in tried:
            shared_tables.append(engine.evaluate(kept["w"], kept["b"], shared))
    return merge_alone(own_tables, shared_tables)
