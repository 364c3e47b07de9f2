"""How a server can learn less of its clients (docs/explanation/privacy.md).

`Privacy` clips clients' updates and puts noise onto their sums, with a guarantee for whole clients; `epsilon` says how
good a one. `SecureSum` writes a record as whole numbers that a secure-aggregation protocol can add. What a trained
model gives away all the same is asked by `accord.audit`.
"""

from accord.privacy.accounting import epsilon
from accord.privacy.dp import Privacy
from accord.privacy.secure_sum import SecureSum

__all__ = ["Privacy", "SecureSum", "epsilon"]
