"""Where a run stands: everything that the next round depends on, and nothing else. This is what a checkpoint holds."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from accord.rules.algorithm import Memory
from accord.runs.evaluation import Evaluation
from accord.runs.run import Snapshot


@dataclass(frozen=True)
class Progress:
    """After `round` rounds: the model, what the parts of the algorithm remember, and the model best on held-out data so
    far."""

    round: int
    vector: Tensor
    buffers: Tensor
    memory: Memory
    best: Snapshot | None = None
    best_score: float = float("-inf")

    @property
    def last(self) -> Snapshot:
        return Snapshot(self.round, self.vector, self.buffers)

    def judged(self, evaluation: Evaluation | None) -> "Progress":
        """The same, with this round's model as the best one if the evaluation says so."""
        if evaluation is None or "heldout" not in evaluation.splits:
            return self
        reached = evaluation.score("heldout")
        return replace(self, best=self.last, best_score=reached) if reached > self.best_score else self

    def sound(self) -> bool:
        """Whether another round can build on it: one infinity in a moment would freeze its coordinate for good."""
        memory = [tensor for state in self.memory.values() for tensor in state.values()]
        # whole ones are finite
        numbers = [tensor for tensor in (self.vector, *memory) if tensor.numel() and tensor.is_floating_point()]
        largest = torch._foreach_norm(numbers, math.inf)  # NaN, if there is one
        # One look at the device.
        return bool(torch.stack([size.to(self.vector.device, torch.float64) for size in largest]).isfinite().all())

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, for the checkpoint's tensor file."""
        named = {"vector": self.vector, "buffers": self.buffers}
        named |= {f"memory.{part}.{name}": t for part, state in self.memory.items() for name, t in state.items()}
        return (
            named if self.best is None else named | {"best.vector": self.best.vector, "best.buffers": self.best.buffers}
        )

    def numbers(self) -> dict[str, Any]:
        """The rest, for its JSON file."""
        return {"round": self.round, "best": self.best and {"round": self.best.round, "score": self.best_score}}

    def restored(self, numbers: dict[str, Any], tensors: dict[str, Tensor], device: torch.device) -> "Progress":
        """The progress a checkpoint holds; this one, from the run's beginning, says which memory to look for."""
        here = {name: t.to(device) for name, t in tensors.items()}
        memory: Memory = {
            part: {name: here[f"memory.{part}.{name}"] for name in state} for part, state in self.memory.items()
        }
        again = Progress(numbers["round"], here["vector"], here["buffers"], memory)
        best = numbers["best"]
        if best is None:
            return again
        return replace(
            again, best=Snapshot(best["round"], here["best.vector"], here["best.buffers"]), best_score=best["score"]
        )
