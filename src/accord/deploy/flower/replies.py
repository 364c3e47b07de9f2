"""What a node may reply: typed messages with bounds. Whatever does not fit is a sentence, never an error of Python's.

Text is measured before it is parsed (`LARGEST_TEXT` bytes; the parser goes 200 brackets deep and no further), and
parsed into a model in which every number is finite, has a range, and is of its type: no text for a number, no 1.0 for a
count. The first thing that does not fit ends it: a list of all of them would take a hundred times the text. Arrays are
read by `npy.py`, against the shapes that the server expects.
"""

from collections.abc import Collection
from itertools import islice
from typing import Annotated, Any, Self

from flwr.app import ConfigRecord, RecordDict
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import from_json

from accord.core.errors import AccordError
from accord.deploy.flower.exchange import Reply, Unreadable, unanswered
from accord.deploy.flower.wire import LARGEST_NUMBER, PROTOCOL
from accord.engines.contract import ClientRow

# bytes of JSON: an evaluation of 20,000 clients with ten metrics has about so many, and so have encrypted shares for
# 10,000 neighbours, which is more than a cohort of any size takes
LARGEST_TEXT = 8 << 20
MOST_SAMPLES = 10**9  # of one client and split: what it may register, and so the most that it may weigh
MOST_STEPS = 10**9
LONGEST_NAME = 200  # characters of a client's or a metric's name
MOST_METRICS = 100
MOST_CLIENTS = 100_000  # of a node
_PIECE = 100  # entries of a mapping that are looked at together


class Failed(AccordError):
    """A node's own sentence about why it could not do what it was asked: an answer, and no fault of its reply."""


class Silent(AccordError):
    """No reply came, or none will: the node is gone, or slow."""


class BrokenDown(Failed):
    """The node's app ended in an error of Python's, and Flower says so."""


def content_of(reply: Reply, timeout: float | None = None) -> RecordDict:
    """What a reply holds: `Silent` where there is none, `BrokenDown` where the node's app failed, and a sentence where
    Flower could not unpack it."""
    if reply is None or unanswered(reply):
        raise Silent("no reply" if timeout is None else f"no reply within {timeout:g} s")
    if isinstance(reply, Unreadable):
        raise AccordError(reply.why)
    if reply.has_error():
        raise BrokenDown(f"its node failed: {one_line(reply.error.reason or '')}")
    if not reply.has_content():
        raise AccordError("it holds nothing")
    return reply.content


def one_line(text: str) -> str:
    """The last line of what may be a traceback, which says what was wrong, without what a terminal would obey."""
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason given")
    return "".join(letter if letter.isprintable() else "?" for letter in last[:300])


def printable(name: str) -> str:
    """A name that people may read."""
    if not name.isprintable():
        raise ValueError("a name must be printable")
    return name


def check_magnitude(number: float) -> float:
    """A number that can be added up."""
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"a number must be at most {LARGEST_NUMBER:g} in size, got {number:g}")
    return number


def at_most(most: int) -> WrapValidator:
    """A bound for a mapping. Pydantic compares its length once all entries were looked at, and lists all that are
    wrong; lists have `fail_fast` for that."""

    def first_wrong(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, dict):
            return check(value)
        if len(value) > most:
            raise ValueError(f"at most {most:,} entries are read, got {len(value):,}")
        entries, checked = iter(value.items()), dict[Any, Any]()
        while piece := dict(islice(entries, _PIECE)):
            checked |= check(piece)
        return checked

    return WrapValidator(first_wrong)


Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(printable)]
Samples = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
Finite = Annotated[float, Field(allow_inf_nan=False), AfterValidator(check_magnitude)]
# a number that is none, of a model that diverged, is null: JSON has neither NaN nor infinity
Figures = Annotated[list[Finite | None], Field(fail_fast=True)]
Counts = Annotated[dict[Name, Samples], at_most(MOST_CLIENTS)]
SplitAndClient = Annotated[list[Name], Field(fail_fast=True, min_length=2, max_length=2)]
MetricNames = Annotated[list[Name], Field(fail_fast=True, max_length=MOST_METRICS)]


class MessageBody(BaseModel):
    """The words of a message."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def read(cls, received: RecordDict, groups: Collection[str] = (), group: str = "accord") -> Self:
        """The words that `group` holds, of a message that may hold these other groups besides."""
        body = _json(received, group)
        if body.keys() == {"error"} and isinstance(body["error"], str):
            raise Failed(one_line(body["error"]))
        if odd := sorted(received.keys() - {group, *groups}):
            raise AccordError(f"it holds {', '.join(map(repr, odd[:3]))}, which nobody asked for")
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise AccordError(first_of(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, body: Any) -> Any:
        """Before pydantic looks: it would list every field that nobody knows."""
        odd = next((name for name in body if name not in cls.model_fields), None) if isinstance(body, dict) else None
        if odd is not None:
            raise ValueError(f"{one_line(str(odd))[:40]!r} is not expected")
        return body


def first_of(error: ValidationError) -> str:
    """The first thing that was wrong, and where, for people."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(place) for place in first["loc"]) or "its words"
    return one_line(f"{where}: {first['msg'].removeprefix('Value error, ')}")


def _json(received: RecordDict, group: str) -> dict[str, Any]:
    config = received.get(group)
    seen = config.get("protocol") if isinstance(config, ConfigRecord) else None
    if not isinstance(config, ConfigRecord) or seen != PROTOCOL:
        raise AccordError(
            f"a message of accord's protocol {PROTOCOL} was expected, got {seen!r:.40}: do both sides run the same"
            " accord?"
        )
    text = config.get("json")
    if not isinstance(text, str) or config.keys() != {"protocol", "json"}:
        raise AccordError("its words are no text")
    if len(text) > LARGEST_TEXT or len(data := text.encode(errors="surrogatepass")) > LARGEST_TEXT:
        raise AccordError(f"its words have more than {LARGEST_TEXT:,} bytes")
    try:
        body = from_json(data, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise AccordError(f"its words are no JSON: {error}") from None
    if not isinstance(body, dict):
        raise AccordError(f"its words must be a JSON object, got {type(body).__name__}")
    return body


class Hello(MessageBody):
    """Who lives on a node, with how many samples, and what it trains and sends."""

    train: Counts
    heldout: Counts
    unseen: Counts
    form: Annotated[str, Field(max_length=LONGEST_NAME)]
    # compared with the server's own, which has to be equal; None: the model waits for the preparation
    layout: Annotated[list[list[Any]], Field(fail_fast=True)] | None
    data: dict[str, Any] | None = None  # what its samples look like; `preparing.form_in` reads it

    @property
    def clients(self) -> set[str]:
        return {*self.train, *self.heldout, *self.unseen}


class TrainReply(MessageBody):
    """What is told of one client's round, or of its second exchange."""

    client: Name
    round: Annotated[int, Field(ge=1, le=2**63 - 1)]
    samples: Samples
    steps: Annotated[int, Field(ge=0, le=MOST_STEPS)]
    loss: Finite | None
    norm: Annotated[Finite, Field(ge=0)] | None
    left_out_because: Annotated[str, Field(max_length=10_000)] | None

    def row(self, client: str, round: int) -> ClientRow:
        """As a row; it must be that client's, and that round's."""
        if (self.client, self.round) != (client, round):
            raise AccordError(
                f"a reply of {self.client!r} in round {self.round} where {client!r} was asked in round {round}"
            )
        why = None if self.left_out_because is None else one_line(self.left_out_because)
        loss, norm = (float("nan") if value is None else value for value in (self.loss, self.norm))
        return ClientRow(client, self.samples, self.steps, loss, norm, why)


class Measured(MessageBody):
    """A metric: what accord knows it as, if it is accord's, and a figure, or a sum over samples, per group."""

    kind: Annotated[str, Field(max_length=LONGEST_NAME)] | None
    figures: Figures


class EvaluationReply(MessageBody):
    """A node's figures. All lists have an entry for each of its groups."""

    groups: Annotated[list[SplitAndClient], Field(fail_fast=True)]
    samples: Annotated[list[Samples], Field(fail_fast=True)]
    sums: Annotated[dict[Name, Measured], at_most(MOST_METRICS)]
    smaller: MetricNames
    nan: Annotated[list[Annotated[Finite, Field(ge=0)]], Field(fail_fast=True)]
    order: MetricNames
    of_group: Annotated[dict[Name, Measured], at_most(MOST_METRICS)]

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        measured = [*self.sums.values(), *self.of_group.values()]
        lengths = {len(self.samples), *(len(of.figures) for of in measured)}
        lengths |= {len(self.nan)} if self.nan else set()
        if lengths != {len(self.groups)} or not self.sums:
            raise ValueError("its parts do not match")
        named = [*self.sums, *self.of_group]  # a metric is the one or the other
        if sorted(self.order) != sorted(set(named)) or len(named) > len(set(named)) or not {*self.smaller} <= {*named}:
            raise ValueError("its metrics do not match")
        if any(count > samples for count, samples in zip(self.nan, self.samples, strict=False)):
            raise ValueError("more predictions are NaN than there are samples")
        return self
