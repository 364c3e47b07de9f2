"""How far each coordinate of the step may be trusted: a mask is a vector `[P]` that multiplies the server's step
(docs/explanation/masks.md)."""

from collections.abc import Callable

from accord.core.protocols import Mask
from accord.rules.masks.and_mask import and_mask
from accord.rules.masks.control import By, scaled
from accord.rules.masks.gma import gma
from accord.rules.masks.magnitude import magnitude
from accord.rules.masks.sand import sand
from accord.rules.masks.votes import Share, Tau, as_share, as_tau, as_written, enough, net_share, tau_at, threshold

__all__ = [
    "CHOOSING",
    "MASKS",
    "By",
    "Mask",
    "Share",
    "Tau",
    "and_mask",
    "as_share",
    "as_tau",
    "as_written",
    "enough",
    "gma",
    "magnitude",
    "masked",
    "net_share",
    "sand",
    "scaled",
    "tau_at",
    "threshold",
]

CHOOSING: dict[str, Callable[..., Mask]] = {"gma": gma, "and": and_mask, "sand": sand, "magnitude": magnitude}
MASKS: dict[str, Callable[..., Mask]] = {**CHOOSING, "scaled": scaled}


def masked(tau: Tau = 0.4, soft: bool = True) -> gma | and_mask:
    """Both masks of votes under one name: the soft one (`gma`) or the hard one (`and_mask`)."""
    return gma(tau) if soft else and_mask(tau)
