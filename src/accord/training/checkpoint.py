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
    # the best of rounds that are evaluated only because the run ends with them: a longer run knows nothing of it
    late: Snapshot | None = None
    late_score: float = float("-inf")

    @property
    def last(self) -> Snapshot:
        return Snapshot(self.round, self.vector, self.buffers)

    def judged(self, evaluation: Evaluation | None) -> "Progress":
        """The same, with this round's model as the best one if the evaluation says so."""
        if evaluation is None or "heldout" not in evaluation.splits:
            return self
        reached = evaluation.score("heldout")
        if reached <= self.best_score:
            return self
        # in memory of its own: in lockstep a run's vector is part of one that all runs have
        best = Snapshot(self.round, self.vector.clone(), self.buffers.clone())
        return replace(self, best=best, best_score=reached)

    def judged_late(self, evaluation: Evaluation) -> "Progress":
        """The same, of a round that a longer run would not look at."""
        after = replace(self, best=None, best_score=max(self.best_score, self.late_score)).judged(evaluation)
        return self if after.best is None else replace(self, late=after.best, late_score=after.best_score)

    @property
    def ended(self) -> "Progress":
        """As the last round leaves it: with the best model of all rounds that were looked at."""
        if self.late is None or self.late_score < self.best_score:
            return self
        return replace(self, best=self.late, best_score=self.late_score, late=None, late_score=float("-inf"))

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
        for name, model in (("best", self.best), ("late", self.late)):
            if model is not None:
                named |= {f"{name}.vector": model.vector, f"{name}.buffers": model.buffers}
        return named

    def numbers(self) -> dict[str, Any]:
        """The rest, for its JSON file."""
        best = self.best and {"round": self.best.round, "score": self.best_score}
        late = {} if self.late is None else {"late": {"round": self.late.round, "score": self.late_score}}
        return {"round": self.round, "best": best, **late}

    def restored(self, numbers: dict[str, Any], tensors: dict[str, Tensor], device: torch.device) -> "Progress":
        """The progress a checkpoint holds; this one, from the run's beginning, says which memory to look for."""
        here = {name: t.to(device) for name, t in tensors.items()}
        memory: Memory = {
            part: {name: here[f"memory.{part}.{name}"] for name in state} for part, state in self.memory.items()
        }
        again = Progress(numbers["round"], here["vector"], here["buffers"], memory)
        for name in ("best", "late"):
            if kept := numbers.get(name):
                model = Snapshot(kept["round"], here[f"{name}.vector"], here[f"{name}.buffers"])
                again = replace(again, **{name: model, f"{name}_score": kept["score"]})
        return again
