"""accord's algorithms in a Flower federation (docs/how-to/flower.md).

`Strategy` runs an accord `Algorithm` on a Flower server, `client_app` is its other side, and `GMA` puts a mask on a
Flower strategy that you have already.
"""

from accord.core.errors import AccordError

try:
    import flwr.clientapp
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as error:
    raise AccordError(
        f"accord.deploy.flower needs Flower 1.41 or newer ({error}): pip install 'accord-fl[flower]'"
    ) from None

from accord.deploy.flower.client import client_app
from accord.deploy.flower.holdings import as_unseen, owned
from accord.deploy.flower.masked import GMA, Masked
from accord.deploy.flower.preparing import Shaped
from accord.deploy.flower.strategy import Strategy
from accord.deploy.flower.sums import Sums

__all__ = ["GMA", "Masked", "Shaped", "Strategy", "Sums", "as_unseen", "client_app", "owned"]
