"""The four parts of an algorithm, as protocols: whatever satisfies one works wherever a rule of accord's own does.

A part is a small frozen dataclass; its fields are its settings. It says what clients add up (`lift`) and what a total
comes to (`lower`); engines only ever add. What a part can do it declares (`needs`, `passes`, `remembers`, ...): nobody
asks for its class or its name. Inherit from the protocol, as accord's own rules do, and what you leave out has the
default written here; or write every member out. Begin the names of helpers with an underscore: a public member that no
protocol knows is an error.

Shapes: K clients (engines call `lift` with one client, with a shard, or with a whole cohort), P parameters, B buffers.
Leading dimensions `...` are runs in lockstep. `State` is a dictionary of tensors; records and reports are
`accord.core.record` and `accord.core.reports`.
"""

from dataclasses import fields, is_dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.members import check_members, members_of
from accord.core.record import NOTHING, Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.core.schedule import Schedule

# What engines can report besides an update, under these names in `Reports.extra`: gradients `[..., K, P]` of the mean
# loss (the mean over the local steps, that of the last step, and those of all of a client's data where the round
# started and where it ended) and that loss at the end, `[..., K, 1]`.
GRADIENTS = frozenset({"mean_gradient", "last_gradient", "start_gradient", "end_gradient"})
NEEDS = GRADIENTS | {"end_loss"}


@runtime_checkable
class Average(Protocol):
    """How a cohort's updates become one."""

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their update, as names of `NEEDS`."""
        return frozenset()

    @property
    def passes(self) -> int:
        """2 if clients are asked again once all have reported (see `second`)."""
        return 1

    @property
    def broadcasts(self) -> frozenset[str]:
        """The fields of the first exchange's total that the server sends to clients for the second."""
        return frozenset()

    @property
    def least(self) -> int:
        """The fewest reports it is defined for; a round with fewer is skipped."""
        return 1

    def check_cohort(self, clients: int) -> None:
        """Refuses so few clients a round that none could count."""
        if clients < self.least:
            raise AccordError(f"{type(self).__name__} needs {self.least} clients in a round, and there are {clients}")

    @property
    def sums_only(self) -> bool:
        """Whether a server needs nothing but sums over clients for it, so that memory is O(P) and a secure sum can
        stand in."""
        return True

    @property
    def label(self) -> str:
        """What tables call it, as in `fedavg by median`; nothing if an algorithm's own name says it."""
        return type(self).__name__

    def weights(self, reports: Reports) -> Tensor:
        """Each client's weight, `[..., K, 1]`. `lift` gets them as `reports.weight`; a mask weighs by them, and buffers
        are averaged."""
        return reports.weight

    def init(self, layout: Layout, clients: int) -> State:
        """What it remembers before the first round of a federation of so many clients: tensors by name, `[P]` or
        `[1]`."""
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        """What K clients add up. `sent` is what it remembered when the round began."""
        ...

    def second(self, kept: State, first: Record) -> Record:
        """What K clients add in a second exchange: `kept` is what they reported in `extra`, `first` the first total's
        fields `broadcasts`."""
        raise AccordError(f"{type(self).__name__} has no second exchange: `passes` must be 1")

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        """The update `[..., P]` that the total comes to, and what is remembered now. After two exchanges the total has
        both."""
        ...


@runtime_checkable
class Mask(Protocol):
    """How far each coordinate of the server's step is trusted: a factor each."""

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their update, as names of `NEEDS`."""
        return frozenset()

    @property
    def label(self) -> str:
        """What tables call it, such as `gma(0.4)`."""
        return short_label(self)

    def init(self, layout: Layout, clients: int) -> State:
        """What it remembers before the first round."""
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        """What K clients add up. `reports.weight` are the average's weights."""
        ...

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        """The mask `[..., P]` that the total comes to, and what is remembered now."""
        ...

    def apply(self, mask: Tensor, direction: Tensor) -> Tensor:
        """The direction under the mask, `[..., P]`."""
        return mask * direction

    def direction(self, mask: Tensor, server: "Server", state: State, update: Tensor) -> tuple[State, Tensor]:
        """`server.direction` with the mask where the server's `placement` puts it."""
        if server.placement == "before":
            return server.direction(state, self.apply(mask, update))
        state, direction = server.direction(state, update)
        return state, self.apply(mask, direction)

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor] | None:
        """For the record of a round: the clients' agreement on every coordinate `[..., P]`, from 0 to 1, and where it
        suffices to pass whole. `state` is what `lower` gave. None if it knows no such thing."""
        return None


@runtime_checkable
class Server(Protocol):
    """What the server does with the averaged update: it adds `lr` times a direction."""

    lr: float

    @property
    def placement(self) -> Literal["after", "before"]:
        """Whether a mask scales the direction, as in the papers, or the update before it."""
        return "after"

    def init(self, vector: Tensor) -> State:
        """What it remembers before the first round; `vector: [P]` is the model."""
        return {}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        """What is remembered now, and the direction `[..., P]`."""
        ...


@runtime_checkable
class Local(Protocol):
    """What a client does on its own data. Every local step follows

        gradient + mu (w - w_start) + drift

    with `mu` and `drift` fixed for the round: a local rule is data, so engines that batch clients, replay a captured
    step or mix algorithms share one step. A rule may keep vectors on every client (`remembers`) and one memory on the
    server, which clients are sent.
    """

    @property
    def needs(self) -> frozenset[str]:
        """What the engine must report besides the update, as names of `NEEDS`."""
        return frozenset()

    @property
    def mu(self) -> float:
        """How strongly a step is pulled back to where the round started."""
        return 0.0

    @property
    def full_batch(self) -> bool:
        """One step on all of a client's data, whatever the epochs."""
        return False

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the vectors `[P]` that a client keeps between rounds."""
        return ()

    @property
    def unchecked(self) -> frozenset[str]:
        """Those of them that may hold infinities on purpose, as buffers do."""
        return frozenset()

    @property
    def reports_updates(self) -> bool:
        """Whether clients report updates to a server that steps, as attacks, privacy and deployments assume."""
        return True

    @property
    def own_models(self) -> bool:
        """Whether every client has a model of its own, and there is no common one to evaluate."""
        return False

    @property
    def beside(self) -> "Local | None":
        """The rule by which clients that were accepted train a second model, which they keep (`w` and `b` of what they
        remember), never report, and use on their own data. It is sent the common model as `w`."""
        return None

    @property
    def engine(self) -> str | None:
        """The one engine that can train it, if none of the others can."""
        return None

    def check(self, momentum: float | None) -> None:
        """Refuses training settings that it has no meaning for: the momentum of the clients' SGD, None if they have
        another optimiser."""
        return

    def init(self, layout: Layout, clients: int) -> State:
        """What the server remembers for it before the first round; clients are sent it."""
        return {}

    def fresh(self, vector: Tensor, buffers: Tensor) -> State:
        """What a client that never took part remembers, given the model `[P]` and buffers `[B]` that the run began
        with."""
        return {name: torch.zeros_like(vector) for name in self.remembers}

    def start(self, vector: Tensor, buffers: Tensor, client_state: State) -> tuple[Tensor, Tensor]:
        """Where a client begins: `[P]` and `[B]`. `client_state` is what it remembers."""
        return vector, buffers

    def drift(self, sent: State, client_state: State) -> Tensor | None:
        """What one client adds to every step, `[P]`; None for nothing. `sent` is the server's memory, `client_state`
        the client's."""
        return None

    def keep(self, sent: State, client_state: State, reports: Reports, lr: float) -> State:
        """What K clients will remember if their reports are accepted, `[..., K, P]` each; `client_state` is what they
        remembered, of that shape. Asked for only where there is something to remember: see `remembers`."""
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        """What K clients add up for the server's memory; `reports.before` and `reports.after` are what they
        remember."""
        return NOTHING

    def lower(self, total: Record, state: State, round: Round) -> State:
        """The server's memory after the round."""
        return state


def short_label(part: object) -> str:
    """A part's name and its first setting: `gma(0.4)`; of a schedule, where it begins and how it goes on: `gma(0.8
    ramp)`."""
    first = [getattr(part, field.name) for field in fields(part)[:1]] if is_dataclass(part) else []
    return f"{type(part).__name__}({', '.join(map(_shown, first))})"


def _shown(value: object) -> str:
    if isinstance(value, Schedule):
        return f"{value.lr:g} {type(value).__name__}"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


PROTOCOLS = {"local": Local, "average": Average, "mask": Mask, "server": Server}


def check_part(what: str, part: Any, example: str) -> None:
    """Raises an error for a part that does not satisfy its protocol, has public members that no protocol knows, or
    needs what no engine reports."""
    protocol = PROTOCOLS[what]
    if isinstance(part, type):
        raise AccordError(f"{what} must be {example}, got the class {part.__name__}: call it")
    if not _satisfies(part, protocol):
        members = members_of(protocol)
        missing = [name for name in members if not hasattr(part, name)]
        why = f": it has no {missing[0]}" if len(missing) < len(members) else ""
        raise AccordError(f"{what} must be {example}, got {part!r}{why}")
    # one object may be two parts, such as a mask and an average
    check_members(what, part, [one for one in PROTOCOLS.values() if _satisfies(part, one)])
    needs = part.needs if what != "server" else frozenset()
    if not isinstance(needs, frozenset | set):
        raise AccordError(
            f'needs of {what} must be a set of names, such as frozenset({{"mean_gradient"}}), got {needs!r}'
        )
    unknown = sorted(needs - NEEDS)
    if unknown:
        raise AccordError(
            f"{what} needs {unknown[0]!r}, which no engine reports: choose one of {', '.join(sorted(NEEDS))}"
        )


def _satisfies(part: Any, protocol: type) -> bool:
    return protocol in type(part).__mro__ or isinstance(part, protocol)
