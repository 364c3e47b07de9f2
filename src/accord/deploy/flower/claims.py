"""Whose a client's name is: the node's that registered it first, for the run.

Flower knows a node by its public key, and gives a key one node id for as long as the SuperLink keeps its state: a
SuperNode that restarts with its registered key is the same node, and what is noted of it by id (names, bad replies,
exclusion) stays. Without registered keys a SuperNode makes a key for itself whenever it starts, and has another id. So
a name passes to another node only where it looks like that: the first is gone, and the other was registered with the
SuperLink after the first one's last word. A node that was registered all the while, and kept silent, gets nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.proto.node_pb2 import NodeInfo

from accord.core.errors import AccordError


class NotYet(AccordError):
    """A name that is another node's now, and may be free later."""


class Claims:
    """`owner[client]` is the node that a name belongs to; `keys[client]` the public key that its node must have."""

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self.owner: dict[str, int] = {}
        self._keys = keys or {}
        self._online: dict[int, NodeInfo] = {}
        self._since: dict[int, datetime] = {}  # when a node was registered
        self._heard: dict[int, datetime] = {}  # its last word

    def see(self, nodes: Iterable[NodeInfo]) -> set[int]:
        """Notes who is online, by the SuperLink's word."""
        self._online = {info.node_id: info for info in nodes}
        for node, info in self._online.items():
            if node not in self._since:  # a grid that is no SuperLink's does not say when
                self._since[node] = datetime.fromisoformat(info.registered_at) if info.registered_at else _now()
        return set(self._online)

    def hear(self, node: int, asked: float) -> None:
        """Notes a node's word, whatever it is, by when it was asked for: a node may restart before its answer is
        fetched."""
        self._heard[node] = datetime.fromtimestamp(asked, UTC)

    def check(self, client: str, node: int) -> None:
        """Refuses a name that is not this node's."""
        key = self._online[node].public_key
        if self._keys.get(client, key) != key:
            raise AccordError(f"client {client} belongs to a node with another key")
        owner = self.owner.get(client, node)
        if owner == node:
            return
        if owner in self._online:  # asked again: its twin may be itself, from before it lost the connection
            raise NotYet(f"client {client} already lives on another node: every client needs a name of its own")
        if self._since[node] <= self._heard[owner]:
            raise AccordError(f"client {client} lived on another node before, and is not this one's")


def public_keys(files: Mapping[str, str | Path]) -> dict[str, bytes]:
    """Clients' public keys as Flower writes them, from files that `flwr supernode register` reads."""
    keys = {}
    for client, file in files.items():
        try:
            key = load_ssh_public_key(Path(file).expanduser().read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise AccordError(f"keys: {file} of client {client} is no public key: {error}") from None
        keys[client] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return keys


def _now() -> datetime:
    return datetime.now(UTC)
