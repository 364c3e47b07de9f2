"""Where a run stands: everything that the next round depends on, and nothing else. This is what a checkpoint holds."""

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
    # Models of rounds that are evaluated only because the run ends with them, with their scores: each that is as good
    # as every later one, so at most ten. A longer run may choose only among those within its own last ten rounds.
    late: tuple[tuple[Snapshot, float], ...] = ()

    @property
    def last(self) -> Snapshot:
        return Snapshot(self.round, self.vector, self.buffers)

    def stepped(self, round: int, vector: Tensor, buffers: Tensor, memory: Memory) -> "Progress":
        """After the server's step of that round. Not by `replace`: hundreds of runs take theirs at once."""
        return Progress(round, vector, buffers, memory, self.best, self.best_score, self.late)

    def judged(self, evaluation: Evaluation | None) -> "Progress":
        """The same, with this round's model as the best one if the evaluation says so. With privacy none is: which
        round it is would tell of clients' held-out data, which epsilon does not count."""
        if evaluation is None or evaluation.privacy is not None or "heldout" not in evaluation.splits:
            return self
        reached = evaluation.score("heldout")
        if reached <= self.best_score:
            return self
        # in memory of its own: in lockstep a run's vector is part of one that all runs have
        best = Snapshot(self.round, self.vector.clone(), self.buffers.clone())
        return replace(self, best=best, best_score=reached)

    def judged_late(self, evaluation: Evaluation) -> "Progress":
        """The same, of a round that a longer run may not look at."""
        after = replace(self, best=None).judged(evaluation)
        if after.best is None:
            return self
        kept = [(model, score) for model, score in self.late if score >= after.best_score]
        return replace(self, late=(*kept, (after.best, after.best_score)))

    @property
    def ended(self) -> "Progress":
        """As the last round leaves it: with the best model of all rounds that were looked at."""
        if not self.late or self.late[0][1] < self.best_score:
            return self
        best, score = self.late[0]
        return replace(self, best=best, best_score=score, late=())

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, for the checkpoint's tensor file."""
        named = {"vector": self.vector, "buffers": self.buffers}
        named |= {f"memory.{part}.{name}": t for part, state in self.memory.items() for name, t in state.items()}
        for name, (model, _) in self._kept().items():
            named |= {f"{name}.vector": model.vector, f"{name}.buffers": model.buffers}
        return named

    def numbers(self) -> dict[str, Any]:
        """The rest, for its JSON file."""
        kept = {name: {"round": model.round, "score": score} for name, (model, score) in self._kept().items()}
        return {"round": self.round, "best": None, **kept}

    def _kept(self) -> dict[str, tuple[Snapshot, float]]:
        """The models beside the last one, with their scores: `best`, `late`, `late1` and so on."""
        best = {} if self.best is None else {"best": (self.best, self.best_score)}
        return best | {f"late{place or ''}": kept for place, kept in enumerate(self.late)}

    def restored(
        self, numbers: dict[str, Any], tensors: dict[str, Tensor], device: torch.device, late_after: int
    ) -> "Progress":
        """The progress a checkpoint holds; this one, from the run's beginning, says which memory to look for. Rounds up
        to `late_after` are not among the last of the run that is asked for now."""
        here = {name: t.to(device) for name, t in tensors.items()}
        memory: Memory = {
            part: {name: here[f"memory.{part}.{name}"] for name in state} for part, state in self.memory.items()
        }
        kept = {
            name: (Snapshot(of["round"], here[f"{name}.vector"], here[f"{name}.buffers"]), of["score"])
            for name, of in numbers.items()
            if f"{name}.vector" in here
        }
        best, score = kept.pop("best", (None, self.best_score))
        late = tuple((model, score) for model, score in kept.values() if model.round > late_after)
        return Progress(numbers["round"], here["vector"], here["buffers"], memory, best, score, late)
