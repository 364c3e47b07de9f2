"""Local SGD (McMahan et al., 2017, "Communication-efficient learning of deep networks from decentralized data")."""

from accord.rules.local.rule import Local


def sgd(full_batch: bool = False) -> Local:
    """Plain local SGD; with `full_batch`, one step on all of a client's data."""
    return Local(full_batch=full_batch)
