"""A round of messages between a server and its clients, wherever they are."""

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from accord.causal.client import Client
from accord.causal.messages import Message, Representation, Share, from_bytes, to_bytes
from accord.causal.server import Server
from accord.core.errors import AccordError

Answer = TypeVar("Answer", Representation, Share)


class Port(Protocol):
    """The server's end of its line to one client. Every message that is sent gets one answer."""

    def send(self, message: Message) -> None: ...
    def receive(self) -> Message: ...


class Near:
    """A client in this process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, message: Message) -> None:
        self._message = message

    def receive(self) -> Message:
        return self._client.answer(self._message)


class Far:
    """A client at the other end of a pipe or a socket, where `attend` answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Message) -> None:
        try:
            self._connection.send_bytes(to_bytes(message))
        except OSError:
            raise AccordError("a client of CausalFed hung up: see its log") from None

    def receive(self) -> Message:
        try:
            return from_bytes(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise AccordError("a client of CausalFed hung up: see its log") from None


def attend(client: Client, connection: Connection) -> None:
    """A client's end of the line: answers until the server hangs up."""
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(to_bytes(client.answer(from_bytes(data))))


def talk(server: Server, ports: Mapping[str, Port]) -> None:
    """One round. A client takes part until it has used its batches or had to be left out; a step is over when all who
    are left answered."""
    left = list(ports)
    while left:
        step = {client: server.extractor() for client in left}
        representations = _ask(ports, step, Representation)
        gradients = {gradient.client: gradient for gradient in server.respond(representations)}
        server.learn(_ask(ports, gradients, Share))
        left = [
            sent.client for sent in representations if not sent.last and not server.heard[sent.client].left_out_because
        ]


def _ask(ports: Mapping[str, Port], messages: Mapping[str, Message], kind: type[Answer]) -> list[Answer]:
    """Sends every message before it waits for the first answer, so that clients in other processes work at the same
    time."""
    for client, message in messages.items():
        ports[client].send(message)
    answers = []
    for client in messages:
        answer = ports[client].receive()
        if not isinstance(answer, kind) or answer.client != client:
            raise AccordError(
                f"client {client} answered with {type(answer).__name__}, where its {kind.__name__} was due"
            )
        answers.append(answer)
    return answers
