"""The analyses by name. Those in `TRAINING` take settings and a way to train; the others work something out without
data."""

from collections.abc import Callable

from accord.analyses import convergence, heterogeneity, membership, participation, softness, stability, surfaces, tau
from accord.analyses.output import Result

TRAINING: dict[str, Callable[..., Result]] = {
    "heterogeneity": heterogeneity.carry_out,
    "softness": softness.carry_out,
    "tau": tau.carry_out,
    "participation": participation.carry_out,
    "membership": membership.carry_out,
}
ANALYSES: dict[str, Callable[..., Result]] = {
    **TRAINING,
    "surfaces": surfaces.read,
    "stability": stability.read,
    "convergence": convergence.read,
}
