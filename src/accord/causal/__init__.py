"""CausalFed: clients hold the feature extractor, the server the classifier, and invariant risk minimisation ties them
(docs/explanation/causalfed.md).

`accord.fit(model, fed, accord.causalfed(penalty=10.0))` trains it in one process. The parts here also run apart: a
`Client` and a `Server` that speak in messages, over any line that carries bytes.
"""

from accord.causal.client import Client
from accord.causal.cut import cut
from accord.causal.exchange import Far, Near, Port, attend, talk
from accord.causal.halved import Halved
from accord.causal.messages import Extractor, Gradient, Message, Representation, Share, from_bytes, to_bytes
from accord.causal.objective import risk_and_penalty
from accord.causal.rule import causalfed, split_network
from accord.causal.server import Server

__all__ = [
    "Client",
    "Extractor",
    "Far",
    "Gradient",
    "Halved",
    "Message",
    "Near",
    "Port",
    "Representation",
    "Server",
    "Share",
    "attend",
    "causalfed",
    "cut",
    "from_bytes",
    "risk_and_penalty",
    "split_network",
    "talk",
    "to_bytes",
]
