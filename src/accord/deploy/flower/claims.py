"""Which node a client's name belongs to, for as long as the run lasts: the node with its key or, in a run without keys,
the node that claims it first.

A node is known by its public key. Flower gives a registered key one node id for as long as the SuperLink keeps its
state: a SuperNode that restarts with its registered key is the same node, and what is noted of it by id (names, bad
replies, exclusion) stays. Without registered keys a SuperNode makes a key for itself whenever it starts. The restart
cannot be told from a stranger then, so it does not get the names back.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.proto.node_pb2 import NodeInfo

from accord.core.errors import AccordError
from accord.core.names import listed


class Claims:
    """`owner[client]` is the node that a name belongs to; `keys[client]` the public key that its node must have.

    If there are keys, a name without one cannot be claimed: the first node to claim it could be a stranger, and the
    node that it belongs to would then be excluded with all its names.
    """

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
        if self._keys and client not in self._keys:
            raise AccordError(f"claimed client {client!r}, which has no key in keys. Every client must have one.")
        if self._keys.get(client, key) != key:
            raise AccordError(f"claimed client {client!r}, whose key in keys is not the key of this node.")
        owner = self.owner.get(client, node)
        if owner != node and not (key and key == self._nodes[owner].public_key):
            raise AccordError(
                f"claimed client {client!r}, which is registered to another node. Client names must be unique."
            )


def check_keys(clients: int | Sequence[str], keys: Mapping[str, str | Path]) -> None:
    """Raises an error if only some of the clients have a key. Other names may have keys too: those of clients that
    never train."""
    names = [] if isinstance(clients, int) else clients
    if keys and (missing := [client for client in names if client not in keys]):
        unused = sorted(keys.keys() - set(names))
        hint = f". Keys for names that are not in clients: {listed(unused)}" if unused else ""
        raise AccordError(f"keys: every client must have a key, and {listed(missing)} has none{hint}")


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
