"""accord: federated learning whose models hold up on data owners they have never met.

import accord

fed = accord.data.mnist(clients=100, split="labels", unseen=20, seed=0)
run = accord.fit(accord.models.lenet(), fed, accord.fedadam(lr=0.02, mask=accord.gma(tau=0.4)), rounds=200, sample=10)
print(run)
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 (a source tree is not guarded by pip)
    _OLD = f"accord needs Python 3.11 or newer, this is {sys.version.split()[0]}: make an environment with a newer one"
    raise ImportError(_OLD, name="accord")  # the name makes `python -m accord` print the sentence without a traceback

if TYPE_CHECKING:
    from accord import aggregate as aggregate
    from accord import attack as attack
    from accord import causal as causal
    from accord import data as data
    from accord import draws as draws
    from accord import local as local
    from accord import logs as logs
    from accord import models as models
    from accord import native as native
    from accord import privacy as privacy
    from accord import schedule as schedule
    from accord import server as server
    from accord.algorithm import Algorithm as Algorithm
    from accord.algorithm import causalfed as causalfed
    from accord.algorithm import fedadagrad as fedadagrad
    from accord.algorithm import fedadam as fedadam
    from accord.algorithm import fedavg as fedavg
    from accord.algorithm import fedavgm as fedavgm
    from accord.algorithm import fedgma as fedgma
    from accord.algorithm import fedprox as fedprox
    from accord.algorithm import fedsgd as fedsgd
    from accord.algorithm import fedyogi as fedyogi
    from accord.algorithm import local_only as local_only
    from accord.algorithm import pooled as pooled
    from accord.algorithm import scaffold as scaffold
    from accord.average import geometric_mean as geometric_mean
    from accord.average import krum as krum
    from accord.average import mean as mean
    from accord.average import median as median
    from accord.average import trimmed_mean as trimmed_mean
    from accord.cohort import Conditions as Conditions
    from accord.correction import corrective as corrective
    from accord.errors import AccordError as AccordError
    from accord.losses import smaller_is_better as smaller_is_better
    from accord.mask import and_mask as and_mask
    from accord.mask import gma as gma
    from accord.mask import magnitude as magnitude
    from accord.mask import masked as masked
    from accord.mask import sand as sand
    from accord.mask import scaled as scaled
    from accord.run import Run as Run
    from accord.training import fit as fit
    from accord.version import __version__ as __version__

# Where each public name lives. Loaded when first asked for, so that `accord --help` need not wait for torch.
_HOME = {
    **dict.fromkeys(("aggregate", "attack", "causal", "data", "draws", "local", "logs", "models", "native"), None),
    **dict.fromkeys(("privacy", "schedule", "server"), None),
    **dict.fromkeys(("Algorithm", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedgma", "fedprox", "fedsgd", "fedyogi"), "algorithm"),
    **dict.fromkeys(("causalfed", "local_only", "pooled", "scaffold"), "algorithm"),
    **dict.fromkeys(("and_mask", "gma", "magnitude", "masked", "sand", "scaled"), "mask"),
    **dict.fromkeys(("geometric_mean", "krum", "mean", "median", "trimmed_mean"), "average"),
    "Conditions": "cohort",
    "corrective": "correction",
    "AccordError": "errors",
    "Run": "run",
    "fit": "training",
    "smaller_is_better": "losses",
    "__version__": "version",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"accord has no {name!r}; it has {', '.join(__all__)}")
    home = _HOME[name]
    if name != "__version__":  # which may be asked for to find out what is wrong
        importlib.import_module("accord.version").check_torch()
    value = importlib.import_module(f"accord.{name}") if home is None else getattr(importlib.import_module(f"accord.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
