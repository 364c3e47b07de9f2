"""How long and how fast a client trains, whatever its rule."""

from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature

from accord.core.errors import AccordError, check_whole, did_you_mean
from accord.core.schedule import Schedule, as_schedule, constant
from accord.rules.local.optimisers import OPTIMISERS
from accord.rules.local.step import Optimiser

SETTINGS = ("momentum", "weight_decay", "betas", "eps")  # of optimisers; each has some of them


@dataclass(frozen=True)
class Training:
    """How long and how fast a client trains. The gradient is clipped first; weight decay, mu and drift are added to
    what is left. A setting that is left out is the optimiser's default, and None where it has no such setting."""

    epochs: int = 1
    batch: int | None = 32  # None: all of a client's data at once
    steps: int | None = None  # at most so many local steps, whatever the epochs
    lr: float | Schedule = constant(0.01)
    # Folders' names leave out what is usual: there were runs before there were other optimisers.
    momentum: float | None = field(default=None, metadata={"usual": 0.9})
    weight_decay: float | None = field(default=None, metadata={"usual": 0.0})
    clip: float | None = None  # largest norm of a step's gradient
    optimiser: str = "sgd"  # its state is fresh every round
    betas: tuple[float, float] | None = None
    eps: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", as_schedule(self.lr))
        for name in ("epochs", "batch", "steps"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        if not isinstance(self.clip, int | float | None):
            raise AccordError(f"clip must be a number, got {self.clip!r}")
        if self.clip is not None and not self.clip > 0.0:
            raise AccordError(f"clip must be above 0, got {self.clip}; leave it out not to clip")
        if self.optimiser not in OPTIMISERS:
            hint = did_you_mean(str(self.optimiser), OPTIMISERS)
            raise AccordError(f"optimiser must be one of {', '.join(OPTIMISERS)}, got {self.optimiser!r}: {hint}")
        for name in signature(OPTIMISERS[self.optimiser]).parameters:
            object.__setattr__(self, name, getattr(self.rule, name))

    @cached_property
    def rule(self) -> Optimiser:
        """The optimiser with its settings."""
        settings = {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}
        takes = signature(OPTIMISERS[self.optimiser]).parameters
        for name, value in settings.items():
            if name not in takes:
                owners = " and ".join(one for one, make in OPTIMISERS.items() if name in signature(make).parameters)
                raise AccordError(
                    f"{name} has no meaning with optimiser {self.optimiser!r}, got {value}: it belongs to {owners}"
                )
        return OPTIMISERS[self.optimiser](**settings)

    def lr_at(self, round: int) -> float:
        return as_schedule(self.lr).at(round)
