"""What clients and server say to each other: four messages of numbers and plain tensors, which can travel as bytes.

A step goes: server to clients `Extractor`, back `Representation`, to clients `Gradient`, back `Share`.
"""

import json
from dataclasses import dataclass, fields

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from accord.core.errors import AccordError


@dataclass(frozen=True, eq=False)
class Extractor:
    """Server to client: the shared extractor as it is before this step."""

    round: int
    step: int  # from 0, within the round
    vector: Tensor  # [P]: its trainable parameters
    buffers: Tensor  # [B]


@dataclass(frozen=True, eq=False)
class Representation:
    """Client to server: what the extractor makes of a batch, and the batch's labels. `last`: the client's last batch of
    this round."""

    client: str
    round: int
    step: int
    features: Tensor  # [N, ...]
    labels: Tensor  # [N, ...]
    last: bool


@dataclass(frozen=True, eq=False)
class Gradient:
    """Server to client: the gradient of the client's objective at the representation it sent."""

    client: str
    round: int
    step: int
    features: Tensor  # [N, ...]


@dataclass(frozen=True, eq=False)
class Share:
    """Client to server: the same gradient, carried back through the extractor, and the buffers that the forward pass
    left."""

    client: str
    round: int
    step: int
    gradient: Tensor  # [P]
    buffers: Tensor  # [B]


Message = Extractor | Representation | Gradient | Share
_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in (Extractor, Representation, Gradient, Share)}


def to_bytes(message: Message) -> bytes:
    """A message as safetensors: its tensors, and everything else as JSON in the header."""
    parts = {field.name: getattr(message, field.name) for field in fields(message)}
    tensors = {name: part.detach().cpu().contiguous() for name, part in parts.items() if isinstance(part, Tensor)}
    rest = {name: part for name, part in parts.items() if name not in tensors}
    return save(tensors, metadata={"message": json.dumps([type(message).__name__, rest])})


def from_bytes(data: bytes) -> Message:
    """The message that `to_bytes` made these of. Bytes from elsewhere are refused."""
    try:
        # safetensors: its length, then the header, then tensors
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        kind, rest = json.loads(header["__metadata__"]["message"])
        message = _KINDS[kind](**{**rest, **load(data)})
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise AccordError(
            f"these {len(data)} bytes are no message of CausalFed: {type(error).__name__}: {error}"
        ) from None
    for field in fields(message):
        if not isinstance(getattr(message, field.name), field.type):  # type: ignore[arg-type]
            raise AccordError(
                f"a message of CausalFed has a {field.name} of the wrong type, got {getattr(message, field.name)!r}"
            )
    return message
