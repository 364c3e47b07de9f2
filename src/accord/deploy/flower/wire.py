"""What travels between server and clients, as Flower records.

Down go the model as two flat vectors, the local rule's state (SCAFFOLD's c), and a task: a few numbers as JSON. Up
comes one record, its fields as arrays under their path (`average.delta`), and a few words about the client's round.
Nothing is pickled. What arrives at the server is not trusted: `replies.py` and `npy.py` read it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Field, Record, State
from accord.data.preparation import Preparation
from accord.engines.contract import ClientRow
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training

PROTOCOL = 6  # a change of what travels raises it
AGAIN = "again"  # what a round's second exchange is called, as an action of Flower's train messages
SPLITS = ("train", "heldout", "unseen")  # what a node may have of a client
# of a loss, a metric or a sum of them, in size: what clients' numbers come to is then within the 1e300 that a run's
# record may hold
LARGEST_NUMBER = 1e200


@dataclass(frozen=True)
class Task:
    """What one client is asked to do in one round. The learning rate is this round's."""

    experiment: str  # names the folder in which the client keeps what it remembers
    client: str
    round: int
    seed: int
    training: dict[str, Any]
    local: dict[str, Any]  # a part by the name of its class, with its settings
    needs: list[str]
    share: float = 1.0
    average: dict[str, Any] | None = None  # if it will be asked again in this round: whose second exchange that is
    version: int = 0  # the round of the client's own state that counts; 0: it has none yet
    kept: int = 0  # the one that the server's last checkpoint names, to which it may have to go back
    cohort: list[str] = field(default_factory=list)  # whom a masked sum is added up over
    personal: list[str] = field(default_factory=list)  # what of the model stays here: see `Algorithm.personal`
    preparation: dict[str, Any] | None = None  # which all owners agreed on; None: each has the same already

    def as_training(self) -> Training:
        return Training(**self.training)


def task_of(algorithm: Algorithm, training: Training, round: int, **rest: Any) -> Task:
    """The task that every client of a round has in common, and what is its own."""
    fields = {field.name: getattr(training, field.name) for field in dataclass_fields(training)}
    return Task(
        round=round,
        training={**fields, "lr": training.lr_at(round)},
        local=part_as(algorithm.local),
        needs=sorted(algorithm.needs - algorithm.local.needs),
        average=part_as(algorithm.average) if algorithm.asks_twice else None,
        personal=list(algorithm.personal),
        **rest,
    )


def part_as(part: Any) -> dict[str, Any]:
    """A part of an algorithm as plain data. A message names code and never brings any: the other side must know the
    name."""
    return {"name": type(part).__name__, **asdict(part)}


def part_in(table: Mapping[str, Any], known: Mapping[str, Callable[..., Any]]) -> Any:
    """The part that a message names, from those that are known here."""
    name, settings = str(table.get("name")), {key: value for key, value in table.items() if key != "name"}
    if name not in known:
        raise AccordError(
            f"the server asks for the rule {name!r}, which this client does not know: give it to client_app as"
            f" rules=[{name}]"
        )
    return known[name](**settings)


# ---------------------------------------------------------------------------------------------------- content


def content(arrays: Mapping[str, ArrayRecord], message: Mapping[str, Any]) -> RecordDict:
    """Groups of arrays and a JSON object as what a Flower message holds. Messages may share arrays: a cohort is sent
    one model."""
    return RecordDict({**arrays, "accord": ConfigRecord({"protocol": PROTOCOL, "json": json.dumps(message)})})


def reply_or_error(answer: Callable[[], Any]) -> RecordDict:
    """What is to be answered; where that fails for a reason a person can mend, the sentence."""
    try:
        reply: RecordDict = answer()
    except AccordError as error:
        return content({}, {"error": str(error)})
    return reply


def arrays_of(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in tensors.items()})


def message_in(received: RecordDict) -> dict[str, Any]:
    """The JSON object of a message, or a sentence about a message that has none."""
    config = received.config_records.get("accord")
    if config is None or config.get("protocol") != PROTOCOL:
        seen = None if config is None else config.get("protocol")
        raise AccordError(
            f"a message of accord's protocol {PROTOCOL} was expected, got {seen!r}: do both sides run the same accord?"
        )
    message = json.loads(str(config["json"]))
    if not isinstance(message, dict):
        raise AccordError(f"a message must hold a JSON object, got {message!r}")
    return message


def tensors_in(received: RecordDict, group: str) -> State:
    """A group of tensors of a message; none where there is no such group."""
    record = received.array_records.get(group)
    return {} if record is None else {name: torch.from_numpy(np.array(array.numpy())) for name, array in record.items()}


def payload(message: Message) -> int:
    """Bytes of a message's arrays and words: what has to travel, without Flower's envelope, HTTP and TLS."""
    if not message.has_content():
        return 0
    held = message.content
    arrays = sum(len(array.data) for record in held.array_records.values() for array in record.values())
    return arrays + sum(len(str(record.get("json", ""))) for record in held.config_records.values())


def preparation_in(form: Mapping[str, Any] | None) -> Preparation | None:
    """What a message says of the preparation that all owners agreed on."""
    try:
        return None if form is None else Preparation.from_json(form)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AccordError(f"the preparation of the server cannot be read: {error!r}") from None


# ---------------------------------------------------------------------------------------------------- records


def filled(template: Record, tensors: Mapping[str, Tensor], path: str = "") -> Record:
    """A record like `template` with these values. What does not fit is refused by name."""
    if not path and tensors.keys() != (expected := template.fields()).keys():
        odd = sorted(tensors.keys() ^ expected.keys())
        raise AccordError(f"wrong fields: {', '.join(odd[:3])}")
    made: dict[str, Field | Record] = {}
    for name, entry in template:
        if isinstance(entry, Record):
            made[name] = filled(entry, tensors, f"{path}{name}.")
            continue
        value = tensors[f"{path}{name}"]
        if value.shape != entry.value.shape or value.dtype != entry.value.dtype:
            seen, wanted = (f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in (value, entry.value))
            raise AccordError(f"wrong shape or type of {path}{name}: {seen}, expected {wanted}")
        made[name] = replace(entry, value=value)
    return Record(**made)


def row_as(row: ClientRow, round: int) -> dict[str, Any]:
    """A client's row as it travels; `replies.py` reads it."""
    numbers = {"loss": recordable_or_none(row.loss), "norm": recordable_or_none(row.norm)}
    return {**asdict(row), **numbers, "round": round}


def recordable_or_none(number: float) -> float | None:
    """A number that a run's record can hold a sum of; None for NaN, which JSON does not know, and for numbers beyond
    `LARGEST_NUMBER`."""
    return number if abs(number) <= LARGEST_NUMBER else None


def layout_as(layout: Layout) -> list[Any]:
    """A layout as plain data: two sides that train different models get an error before the first round."""
    return [[entry.name, list(entry.shape), str(entry.dtype)] for entry in (*layout.parameters, *layout.buffers)]
