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
    from accord import attacks as _attack
    from accord import audit as audit
    from accord import causal as causal
    from accord import data as data
    from accord import kernels as _native
    from accord import models as models
    from accord import privacy as privacy
    from accord.causal.rule import causalfed as causalfed
    from accord.core import draws as draws
    from accord.core import metric_names as _metrics
    from accord.core import schedule as schedule
    from accord.core.errors import AccordError as AccordError
    from accord.core.losses import smaller_is_better as smaller_is_better
    from accord.core.protocols import Average as Average
    from accord.core.protocols import Local as Local
    from accord.core.protocols import Mask as Mask
    from accord.core.protocols import Server as Server
    from accord.core.version import __version__ as __version__
    from accord.experiments.leave_one_out import leave_one_out as leave_one_out
    from accord.rules import combine as _aggregate
    from accord.rules import local as local
    from accord.rules import servers as _server
    from accord.rules.algorithm import Algorithm as Algorithm
    from accord.rules.averages.corrective import corrective as corrective
    from accord.rules.averages.geometric_mean import geometric_mean as geometric_mean
    from accord.rules.averages.krum import krum as krum
    from accord.rules.averages.mean import mean as mean
    from accord.rules.averages.median import median as median
    from accord.rules.averages.trimmed_mean import trimmed_mean as trimmed_mean
    from accord.rules.combine import combine as combine
    from accord.rules.masks import masked as masked
    from accord.rules.masks import scaled as scaled
    from accord.rules.masks.and_mask import and_mask as and_mask
    from accord.rules.masks.gma import gma as gma
    from accord.rules.masks.magnitude import magnitude as magnitude
    from accord.rules.masks.sand import sand as sand
    from accord.rules.named import ditto as ditto
    from accord.rules.named import fedadagrad as fedadagrad
    from accord.rules.named import fedadam as fedadam
    from accord.rules.named import fedavg as fedavg
    from accord.rules.named import fedavgm as fedavgm
    from accord.rules.named import fedgma as fedgma
    from accord.rules.named import fedprox as fedprox
    from accord.rules.named import fedsgd as fedsgd
    from accord.rules.named import fedyogi as fedyogi
    from accord.rules.named import local_only as local_only
    from accord.rules.named import pooled as pooled
    from accord.rules.named import scaffold as scaffold
    from accord.runs.load import load as load
    from accord.runs.run import Run as Run
    from accord.training import loggers as _logs
    from accord.training.cohort import Conditions as Conditions
    from accord.training.fit import fit as fit

    aggregate = _aggregate
    attack = _attack
    logs = _logs
    metrics = _metrics
    native = _native
    server = _server

# Where each public name lives. Loaded when first asked for, so that `accord --help` need not wait for torch.
_MODULES = {
    "aggregate": "rules.combine",
    "attack": "attacks",
    "audit": "audit",
    "causal": "causal",
    "data": "data",
    "draws": "core.draws",
    "local": "rules.local",
    "logs": "training.loggers",
    "metrics": "core.metric_names",
    "models": "models",
    "native": "kernels",
    "privacy": "privacy",
    "schedule": "core.schedule",
    "server": "rules.servers",
}
_HOME = {
    "AccordError": "core.errors",
    "__version__": "core.version",
    **dict.fromkeys(("Average", "Local", "Mask", "Server"), "core.protocols"),
    "smaller_is_better": "core.losses",
    "Algorithm": "rules.algorithm",
    **dict.fromkeys(("corrective", "geometric_mean", "krum", "mean", "median", "trimmed_mean"), "rules.averages"),
    "causalfed": "causal.rule",
    "combine": "rules.combine",
    **dict.fromkeys(("and_mask", "gma", "magnitude", "masked", "sand", "scaled"), "rules.masks"),
    **dict.fromkeys(("ditto", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedgma", "fedprox"), "rules.named"),
    **dict.fromkeys(("fedsgd", "fedyogi", "local_only", "pooled", "scaffold"), "rules.named"),
    "Run": "runs.run",
    "load": "runs.load",
    "Conditions": "training.cohort",
    "fit": "training.fit",
    "leave_one_out": "experiments.leave_one_out",
}

__all__ = sorted([*_MODULES, *_HOME])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"accord has no {name!r}; it has {', '.join(__all__)}")
    if name != "__version__":  # which may be asked for to find out what is wrong
        importlib.import_module("accord.core.version").check_torch()
    home = importlib.import_module(f"accord.{_MODULES.get(name) or _HOME[name]}")
    value = home if name in _MODULES else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
