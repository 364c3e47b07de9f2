"""What a client does on its own data (docs/mathematics.md, "Local rules").

A rule is a `Local`, made by `sgd`, `prox` or `control_variates`; `Training` says how long and how fast a client trains under it.
"""

from accord.rules.local.control_variates import control_variates
from accord.rules.local.prox import prox
from accord.rules.local.rule import Local
from accord.rules.local.sgd import sgd
from accord.rules.local.split import Split
from accord.rules.local.training import Training
from accord.rules.local.variates import Variates

__all__ = ["Local", "Split", "Training", "Variates", "control_variates", "prox", "sgd"]
