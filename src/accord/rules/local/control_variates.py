"""SCAFFOLD's local rule (Karimireddy et al., 2020, "SCAFFOLD: stochastic controlled averaging for federated learning", ICML)."""

from typing import Literal

from accord.rules.local.rule import Local
from accord.rules.local.variates import Variates


def control_variates(option: Literal["mean", "I", "II"] = "mean") -> Local:
    """SCAFFOLD: each step is corrected by c - c_n."""
    return Local(variates=Variates(option))
