"""accord's masks and averages as a pfl-research postprocessor: `SimulatedBackend(..., postprocessors=[...,
Rule(gma(0.4))])`."""

from dataclasses import replace
from typing import Any

import torch

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Average, Mask
from accord.core.record import Field, Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.deploy.arrays import layout_of, packed, unpacked

try:
    from pfl.context import CentralContext, UserContext
    from pfl.metrics import Metrics, StringMetricName, Weighted
    from pfl.postprocessor.base import Postprocessor
    from pfl.stats import MappedVectorStatistics
except ImportError as error:
    raise AccordError(
        f"accord.deploy.pfl needs pfl-research 0.6 or newer ({error}): pip install 'accord-fl[pfl]'"
    ) from None

_OURS = "accord/"  # names what travels beside the update


class Rule(Postprocessor):
    """Users' statistics carry what the rule adds up over users; on the server it becomes a mask on the summed update,
    or another average.

    It must be the last postprocessor: it then sees updates as they are summed, clipped and weighted, and nothing
    touches its own sums. The mask acts on the update, before the central optimiser: with plain SGD that is where
    `combine` has it.
    """

    def __init__(self, rule: "Mask | Average") -> None:
        if not isinstance(rule, Mask | Average):
            raise AccordError(f"rule must be an average or a mask, such as gma(0.4), got {rule!r}")
        self.rule = rule
        if rule.needs or (isinstance(rule, Average) and rule.passes == 2):
            raise AccordError(
                f"pfl's users send their updates and nothing else, and {type(rule).__name__} needs more of them"
            )
        self._memory: State | None = None

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Adds the user's part of the rule's sums to its statistics, which are its update times its weight."""
        if any(name.startswith(_OURS) for name in stats):
            raise AccordError("a rule of accord is among the postprocessors already: give one")
        layout = layout_of(dict(stats.items()))
        delta, weight = (
            packed(dict(stats.items()), layout)[0] / stats.weight,
            torch.full((1, 1), float(stats.weight), dtype=layout.dtype),
        )
        reports = Reports(delta[None], weight, torch.ones_like(weight), weight[:, :0])
        if isinstance(self.rule, Average):
            reports = replace(reports, weight=self.rule.weights(reports))
        for name, entry in self.rule.lift(reports, self._state(layout)):
            if not isinstance(entry, Field) or entry.how != "sum":
                raise AccordError(
                    f"pfl adds statistics up, and {type(self.rule).__name__} must see every user's update by itself"
                )
            stats[_OURS + name] = entry.value
        return stats, Metrics()

    def postprocess_server(
        self, *, stats: MappedVectorStatistics, central_context: CentralContext, aggregate_metrics: Metrics
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Takes the rule's sums out again, and masks or replaces the summed update."""
        ours = {
            name.removeprefix(_OURS): Field(torch.as_tensor(stats.pop(name)[0]).cpu())
            for name in list(stats)
            if name.startswith(_OURS)
        }
        if not ours:
            return stats, Metrics()
        arrays = dict(stats.items())
        layout = layout_of(arrays)
        total, buffers = packed(arrays, layout)
        round = Round(central_context.current_central_iteration + 1, layout, central_context.cohort_size)
        lowered, self._memory = self.rule.lower(Record(**ours), self._state(layout), round)
        metrics, changed = Metrics(), lowered * stats.weight
        if isinstance(self.rule, Mask):
            changed = self.rule.apply(lowered, total)
            mean = StringMetricName("accord: mean of the mask")
            metrics[mean] = Weighted.from_unweighted(float(lowered.mean()))
        parameters = {entry.name: arrays[entry.name] for entry in layout.parameters}
        for name, value in unpacked(changed, buffers, layout, parameters).items():
            stats[name] = value
        return stats, metrics

    def _state(self, layout: Layout) -> Any:
        """What the rule remembers between rounds."""
        if self._memory is None:
            self._memory = self.rule.init(layout, 1)
        return self._memory
