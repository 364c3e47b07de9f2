"""What a hook is shown after every round, and what it may answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

from accord.core.errors import AccordError
from accord.runs.rows import RoundRow

Ending = Callable[[str], None]  # is told "finished", "stopped" (it can go on) or "failed"


@dataclass(frozen=True)
class Event:
    """What a hook sees after every round."""

    round: int
    rounds: int  # that the run has: those asked for, or, once it is flat, those it has done
    row: RoundRow  # as in metrics.jsonl
    seconds: float
    snapshot: Callable[[], nn.Module] = field(repr=False)  # the model as it is now
    # what is to be called, once, when the run ends, however it does
    at_end: Callable[[Ending], None] = field(repr=False)


Hook = Callable[[Event], bool | None]  # a true answer ends the run after this round


def check_hooks(hooks: Sequence[Hook]) -> None:
    """Raises an error for a hook that cannot be called."""
    for hook in hooks:
        if isinstance(hook, type):
            raise AccordError(f"hooks must be functions of an Event, got the class {hook.__name__}: call it")
        if not callable(hook):
            raise AccordError(
                f"hooks must be functions of an Event, got {hook!r}: pass one of its methods or give it a __call__"
            )


def cut_short(error: BaseException) -> str:
    """How a run ended that this error ended."""
    return "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
