"""accord: federated learning whose models hold up on data owners they have never met.

import accord

fed = accord.data.mnist(clients=100, split="labels", unseen=20, seed=0)
run = accord.fit(accord.models.lenet(), fed, accord.fedadam(lr=0.02, mask=accord.gma(tau=0.4)), rounds=200, sample=10)
print(run)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accord import aggregate as aggregate
    from accord import data as data
    from accord import draws as draws
    from accord import local as local
    from accord import models as models
    from accord import native as native
    from accord import schedule as schedule
    from accord import server as server
    from accord.algorithm import Algorithm as Algorithm
    from accord.algorithm import fedadagrad as fedadagrad
    from accord.algorithm import fedadam as fedadam
    from accord.algorithm import fedavg as fedavg
    from accord.algorithm import fedavgm as fedavgm
    from accord.algorithm import fedprox as fedprox
    from accord.algorithm import fedsgd as fedsgd
    from accord.algorithm import fedyogi as fedyogi
    from accord.algorithm import local_only as local_only
    from accord.algorithm import pooled as pooled
    from accord.algorithm import scaffold as scaffold
    from accord.average import mean as mean
    from accord.cohort import Conditions as Conditions
    from accord.errors import AccordError as AccordError
    from accord.losses import smaller_is_better as smaller_is_better
    from accord.mask import and_mask as and_mask
    from accord.mask import gma as gma
    from accord.mask import masked as masked
    from accord.run import Run as Run
    from accord.training import fit as fit

# Where each public name lives. Loaded when first asked for, so that `accord --help` need not wait for torch.
_HOME = {
    **dict.fromkeys(("aggregate", "data", "draws", "local", "models", "native", "schedule", "server"), None),
    **dict.fromkeys(("Algorithm", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedprox", "fedsgd", "fedyogi"), "algorithm"),
    **dict.fromkeys(("local_only", "pooled", "scaffold"), "algorithm"),
    **dict.fromkeys(("and_mask", "gma", "masked"), "mask"),
    "mean": "average",
    "Conditions": "cohort",
    "AccordError": "errors",
    "Run": "run",
    "fit": "training",
    "smaller_is_better": "losses",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"accord has no {name!r}; it has {', '.join(__all__)}")
    home = _HOME[name]
    value = importlib.import_module(f"accord.{name}") if home is None else getattr(importlib.import_module(f"accord.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
