"""FedProx's proximal term (Li et al., 2020, "Federated optimization in heterogeneous networks", MLSys)."""

from accord.rules.local.rule import Local


def prox(mu: float = 0.01) -> Local:
    """FedProx: each step is pulled back to the round's start point by mu (Li et al., 2020)."""
    return Local(mu=mu)
