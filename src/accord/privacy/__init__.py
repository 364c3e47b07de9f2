"""What a trained model gives away, and how a server can learn less (docs/privacy.md).

`attack` asks whether a model tells its training samples from others. `Privacy` clips clients' updates and puts noise onto their sums, with
a guarantee for whole clients. `SecureSum` writes a record as whole numbers that a secure-aggregation protocol can add.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accord.privacy.accounting import epsilon as epsilon
    from accord.privacy.dp import Privacy as Privacy
    from accord.privacy.membership import attack as attack
    from accord.privacy.secure_sum import SecureSum as SecureSum

# Loaded when first asked for: an algorithm needs `dp` alone, and `membership` needs algorithms.
_HOME = {"Privacy": "dp", "SecureSum": "secure_sum", "attack": "membership", "epsilon": "accounting"}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"accord.privacy has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"accord.privacy.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
