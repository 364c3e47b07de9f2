"""A Flower grid whose nodes are processes of this machine, each with its real ClientApp, at the other end of a pipe:
nodes that can be killed at any moment, without the seconds that a SuperNode takes to start a process for a message."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

from direct_grid import DirectGrid
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

Parcel = tuple[str, str, dict[str, bytes]]  # the message's number, its object's, and all of its bytes
_fork = multiprocessing.get_context("fork")  # which has torch loaded already


class ProcessGrid(DirectGrid):
    """`dies[node]` is the action of a train message at which a node is killed by SIGKILL, after it was asked and before
    it answers."""

    def __init__(self, apps: dict[int, tuple[ClientApp, dict[str, Any]]], dies: dict[int, str]) -> None:
        super().__init__(apps)
        self.dies, self.killed = dies, set[int]()
        self.pipes: dict[int, Connection] = {}
        self.arrived: dict[str, Message] = {}
        self.processes = {node: self._start(node) for node in apps}

    def _start(self, node: int) -> Any:
        here, there = _fork.Pipe()
        self.pipes[node] = here
        app, settings = self.apps[node]
        process = _fork.Process(target=_serve, args=(there, app, settings, node, self.dies.get(node)), daemon=True)
        process.start()
        there.close()
        return process

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.apps if node not in self.killed]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        made = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = os.urandom(16).hex()
            node = message.metadata.dst_node_id
            made.append(message.metadata.message_id)
            if node not in self.killed:
                self.pipes[node].send(_parcel(message))
        return made

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        for node, pipe in self.pipes.items():
            while node not in self.killed and pipe.poll():
                parcel = pipe.recv()
                if parcel is None:  # it is where it shall die
                    os.kill(self.processes[node].pid, signal.SIGKILL)
                    self.processes[node].join()
                    self.killed.add(node)
                else:
                    self.arrived[parcel[0]] = _unpacked(parcel)
        return [self.arrived.pop(number) for number in list(message_ids) if number in self.arrived]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


def _parcel(message: Message, number: str | None = None) -> Parcel:
    contents = {key: held.deflate() for key, held in get_all_nested_objects(message).items()}
    return number or message.metadata.message_id, message.object_id, contents


def _unpacked(parcel: Parcel) -> Message:
    message: Message = inflate_object_from_contents(parcel[1], parcel[2])
    return message


def _serve(pipe: Connection, app: ClientApp, settings: dict[str, Any], node: int, dies: str | None) -> None:
    while True:
        number, *rest = pipe.recv()
        message = _unpacked((number, *rest))
        message.metadata.__dict__["_message_id"] = number
        if message.metadata.message_type == f"train.{dies}":
            pipe.send(None)
            time.sleep(3600.0)
        pipe.send(_parcel(app(message, Context(0, node, settings, RecordDict(), {})), number))
