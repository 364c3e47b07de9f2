"""Whose a client's name is: the node's that claims it first, for as long as the run lasts.

A node is known by its public key. Flower gives a registered key one node id for as long as the SuperLink keeps its
state: a SuperNode that restarts with its registered key is the same node, and what is noted of it by id (names, bad
replies, exclusion) stays. Without registered keys a SuperNode makes a key for itself whenever it starts. The restart
cannot be told from a stranger then, so it does not get the names back.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.proto.node_pb2 import NodeInfo

from accord.core.errors import AccordError


class Claims:
    """`owner[client]` is the node that a name belongs to; `keys[client]` the public key that its node must have."""

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self.owner: dict[str, int] = {}
        self._keys = keys or {}
        self._nodes: dict[int, NodeInfo] = {}  # all that were ever online

    def see(self, nodes: Iterable[NodeInfo]) -> set[int]:
        """Notes who is online, by the SuperLink's word."""
        online = {info.node_id: info for info in nodes}
        self._nodes |= online
        return set(online)

    def rank(self, node: int) -> tuple[str, int]:
        """Orders claims that arrive together: the node that the SuperLink registered first comes first. A node cannot
        choose when it was registered, as it can choose when it answers."""
        return self._nodes[node].registered_at, node

    def check(self, client: str, node: int) -> None:
        """Refuses a name that is not this node's."""
        key = self._nodes[node].public_key
        if self._keys.get(client, key) != key:
            raise AccordError(f"it claims client {client}, which belongs to a node with another key")
        owner = self.owner.get(client, node)
        if owner != node and not (key and key == self._nodes[owner].public_key):
            raise AccordError(
                f"it claims client {client}, which belongs to another node: every client needs a name of its own"
            )


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
