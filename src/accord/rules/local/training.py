"""How long and how fast a client trains, whatever its rule."""

from dataclasses import dataclass

from accord.core.errors import AccordError, check_whole
from accord.core.schedule import Schedule, as_schedule, constant


@dataclass(frozen=True)
class Training:
    """How long and how fast a client trains. The gradient is clipped first; weight decay, mu and drift are added to
    what is left."""

    epochs: int = 1
    batch: int | None = 32  # None: all of a client's data at once
    steps: int | None = None  # at most so many local steps, whatever the epochs
    lr: float | Schedule = constant(0.01)
    momentum: float = 0.9  # starts at zero every round
    weight_decay: float = 0.0
    clip: float | None = None  # largest norm of a step's gradient

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", as_schedule(self.lr))
        for name in ("epochs", "batch", "steps"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        for name in ("momentum", "weight_decay", "clip"):
            if not isinstance(getattr(self, name), int | float | None):
                raise AccordError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not 0.0 <= self.momentum < 1.0:
            raise AccordError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        if not self.weight_decay >= 0.0:
            raise AccordError(f"weight_decay must be 0 or more, got {self.weight_decay}")
        if self.clip is not None and not self.clip > 0.0:
            raise AccordError(f"clip must be above 0, got {self.clip}; leave it out not to clip")

    def lr_at(self, round: int) -> float:
        return as_schedule(self.lr).at(round)
