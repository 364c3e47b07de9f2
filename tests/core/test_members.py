"""Public members of custom parts, metrics and hooks that nothing uses are errors."""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import accord
from accord.core.errors import AccordError
from accord.core.metric_names import METRICS, chosen_metrics
from accord.core.protocols import PROTOCOLS, check_part
from accord.core.record import Record, total
from accord.rules.averages import masked_gradient
from accord.rules.local.ditto import anchored
from accord.rules.registry import PARTS
from accord.rules.servers import step
from conftest import blobs, mlp, sentence


class Votes(accord.Mask):
    def lift(self, reports: Any, sent: Any) -> Record:
        return Record(votes=total(reports.delta.sign()))

    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return torch.ones_like(total["votes"]), state


class WithGradient(accord.Local):
    def gradient(self) -> None: ...


class WithStep(accord.Local):
    def step(self) -> None: ...


class WithDrfit(accord.Local):
    def drfit(self, sent: Any, client_state: Any) -> None: ...


@dataclass(frozen=True)
class Inherited(WithDrfit):
    strength: float = 0.1


class Mixin:
    def drfit(self) -> None: ...


class Mixed(Mixin, accord.Local):
    pass


class Property(accord.Local):
    @property
    def remebers(self) -> tuple[str, ...]:
        return ("h",)


class Cached(accord.Local):
    @cached_property
    def remebers(self) -> tuple[str, ...]:
        return ("h",)


class Static(accord.Local):
    @staticmethod
    def drfit(sent: Any, client_state: Any) -> None: ...


class LruCached(accord.Local):
    @lru_cache  # noqa: B019
    def drfit(self, sent: Any, client_state: Any) -> None: ...


@dataclass(frozen=True)
class Declared(accord.Local):
    full_bach = True


@dataclass(frozen=True)
class DeclaredAsClassVar(accord.Local):
    full_bach: ClassVar[bool] = True


class Misspelled(accord.Local):
    remebers = ("h",)


class OtherMask(Votes):
    def agrement(self) -> None: ...


class OtherAverage(accord.mean):
    def wieghts(self, reports: Any) -> None: ...


class OtherServer(step):
    def direktion(self) -> None: ...


class WithoutInheritance:
    """It has every member of a server rule, and one more."""

    lr = 1.0
    placement = "after"

    def init(self, vector: Any) -> Any:
        return {}

    def direction(self, state: Any, update: Any) -> Any:
        return state, update

    def derection(self) -> None: ...


class Module(nn.Module, Votes):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x

    def agrement(self) -> None: ...


@pytest.mark.parametrize(
    ("what", "part", "member", "meant"),
    [
        ("local", WithGradient(), "gradient", None),
        ("local", WithStep(), "step", None),
        ("local", WithDrfit(), "drfit", "drift"),
        ("local", Inherited(), "drfit", "drift"),
        ("local", Mixed(), "drfit", "drift"),
        ("local", Property(), "remebers", "remembers"),
        ("local", Misspelled(), "remebers", "remembers"),
        ("local", Cached(), "remebers", "remembers"),
        ("local", Static(), "drfit", "drift"),
        ("local", LruCached(), "drfit", "drift"),
        ("local", Declared(), "full_bach", "full_batch"),
        ("local", DeclaredAsClassVar(), "full_bach", "full_batch"),
        ("mask", OtherMask(), "agrement", "agreement"),
        ("mask", Module(), "agrement", "agreement"),
        ("average", OtherAverage(), "wieghts", "weights"),
        ("server", OtherServer(), "direktion", "direction"),
        ("server", WithoutInheritance(), "derection", "direction"),
    ],
)
def test_an_unused_member_of_a_part_is_an_error(what: str, part: Any, member: str, meant: str | None) -> None:
    with sentence(f"{what}: ", repr(member), *([repr(meant)] if meant else [])):
        accord.Algorithm(**{what: part})
    with sentence(f"{what}: ", repr(member)):
        replace(accord.fedavg(), **{what: part})


def test_a_mask_within_a_control_and_a_rule_alone_are_checked() -> None:
    with sentence("mask", "'agrement'"):
        accord.scaled(OtherMask())
    with sentence("average", "'wieghts'"):
        accord.combine(OtherAverage(), torch.ones(2, 3))


@dataclass(frozen=True)
class Free(Votes):
    """Everything that a part may have besides."""

    strength: float = 0.5
    activation: Any = torch.relu
    shape: Any = field(default=lambda x: x)

    class Config:
        pass

    @classmethod
    def from_strength(cls, strength: float) -> "Free":
        return cls(strength)

    def _helper(self) -> None: ...


class Plain(Votes):
    strength = 0.5  # a setting of a class that is no dataclass

    def __init__(self) -> None:
        self.length = 3.0
        self.squash = torch.tanh


class MaskAndAverage(Votes, accord.mean):
    """Both in one: each protocol knows members that the other does not."""

    label = "both"

    def init(self, layout: Any, clients: int) -> Any:
        return {}

    def weights(self, reports: Any) -> Any:
        return reports.weight

    def agreement(self, total: Any, state: Any, round: Any) -> None:
        return None


class NetworkAsMask(nn.Module, Votes):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("mask", [Free(), Plain(), MaskAndAverage(), NetworkAsMask()])
def test_settings_helpers_and_members_of_other_parts_are_free(mask: Any) -> None:
    assert accord.Algorithm(mask=mask).mask is mask


def test_a_part_of_two_protocols_is_either() -> None:
    both = MaskAndAverage()
    assert accord.Algorithm(average=both).average is both


@pytest.mark.parametrize("what", PROTOCOLS)
def test_a_new_member_of_a_protocol_needs_no_list(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(PARTS[what][next(iter(PARTS[what].own))]())
    part = type("Mine", (kind,), {"brand_new": lambda self: None, "__module__": __name__})()
    with pytest.raises(AccordError, match="brand_new"):
        check_part(what, part, "a part")
    monkeypatch.setattr(PROTOCOLS[what], "brand_new", lambda self: None, raising=False)
    check_part(what, part, "a part")


def test_accords_own_parts_pass() -> None:
    parts = [(what, make()) for what, names in PARTS.items() for make in names.own.values()]
    causal = accord.causalfed().local
    for what, part in [*parts, ("local", anchored()), ("local", causal), ("average", masked_gradient())]:
        check_part(what, part, "a part")


# ---------------------------------------------------------------------------------------------------- metrics


@dataclass(frozen=True)
class Spread(accord.metrics.Measure):
    power: float = 1.0

    def __call__(self, output: Any, target: Any) -> float:
        return float(output.std()) ** self.power


class Misspelled(Spread):
    def chek(self, output: Any, target: Any) -> None: ...


class NoMeasure:
    of_group = True  # is not read: the class does not inherit from Measure

    def __call__(self, output: Any, target: Any) -> float:
        return float(output.std())


class Marked:
    smaller_is_better = True

    def __call__(self, output: Any, target: Any) -> Any:
        return (output.argmax(1) != target).float()

    def fits(self, output: Any, target: Any) -> None: ...


class Marks(Marked):
    def ranje(self) -> None: ...


@pytest.mark.parametrize(
    ("metric", "member", "meant"),
    [
        (Misspelled(), "chek", "'check'"),
        (NoMeasure(), "of_group", "Measure"),
        (Marks(), "ranje", "'range'"),
    ],
)
def test_an_unused_member_of_a_metric_is_an_error(metric: Any, member: str, meant: str) -> None:
    with sentence("metric mine", repr(member), meant):
        accord.fit(mlp(), blobs(), rounds=1, metrics={"mine": metric}, verbose=False)


def test_metrics_without_an_unused_member_pass() -> None:
    metrics = {
        **METRICS,
        "spread": Spread(),
        "marked": Marked(),
        "function": lambda output, target: output[:, 0],
        "partial": partial(nn.functional.cross_entropy, reduction="none"),
        "module": nn.CrossEntropyLoss(reduction="none"),
        "group": accord.metrics.group(lambda output, target: 0.0),
    }
    assert chosen_metrics(metrics, torch.zeros(3, dtype=torch.long)) is metrics


# ------------------------------------------------------------------------------------------------------ hooks


class Recorder:
    def __init__(self) -> None:
        self.rounds: list[int] = []

    def __call__(self, event: Any) -> None:
        self.rounds.append(event.round)


class Listener(Recorder):
    """It has more methods than accord calls; they are for its author."""

    def on_round(self, event: Any) -> None:
        self.rounds.append(event.round)


class NotCallable:
    def on_round(self, event: Any) -> None: ...


@pytest.mark.parametrize(("hook", "said"), [(NotCallable(), "NotCallable"), (Recorder, "class Recorder")])
def test_a_hook_that_cannot_be_called_is_an_error(hook: Any, said: str) -> None:
    with sentence("hooks", said):
        accord.fit(mlp(), blobs(), rounds=1, hooks=[hook], verbose=False)


def test_objects_and_their_methods_are_hooks() -> None:
    recorder, listener = Recorder(), Listener()
    accord.fit(mlp(), blobs(), rounds=1, hooks=[recorder, listener.on_round], verbose=False)
    assert recorder.rounds == listener.rounds == [1]
