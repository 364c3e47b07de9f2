"""Malicious clients: what they report, or what they learn from, is not what an honest client's would be
(docs/explanation/robustness.md)."""

from accord.attacks.attack import ATTACKS, Attack, label_flip, noise, scaled, sign_flip
from accord.attacks.attackers import Attackers, attackers, check_algorithm, flipped

__all__ = [
    "ATTACKS",
    "Attack",
    "Attackers",
    "attackers",
    "check_algorithm",
    "flipped",
    "label_flip",
    "noise",
    "scaled",
    "sign_flip",
]
