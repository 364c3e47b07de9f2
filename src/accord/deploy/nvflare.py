"""accord's algorithms as an NVFlare `ModelAggregator`: `FedAvg(aggregator=Aggregator({"name": "fedadam", "mask":
"gma"}), ...)`."""

import threading
from pathlib import Path
from typing import Any

import torch

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Record
from accord.core.reports import Reports, why_leave_out
from accord.core.round import Round
from accord.deploy.arrays import layout_of, packed, unpacked
from accord.experiments.experiment import assemble
from accord.rules.algorithm import Algorithm

try:
    from nvflare.apis.fl_constant import FLMetaKey
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
except ImportError as error:
    raise AccordError(
        f"accord.deploy.nvflare needs NVFlare 2.9 or newer ({error}): pip install 'accord-fl[nvflare]'"
    ) from None


class Aggregator(ModelAggregator):
    """Adds up clients' changes as they arrive, in O(parameters) memory, and gives with the server's step, for NVFlare
    to add to the model.

    `algorithm` is an `Algorithm` or, for job files, what an experiment's [algorithm] section holds. Clients must send
    differences (`TransferType.DIFF`); they are weighted by what their meta holds under `weight_key`, their local steps
    if left out. A client whose report cannot be used is left out, and `left_out` says why.
    """

    def __init__(
        self, algorithm: "Algorithm | dict[str, Any]", weight_key: str = FLMetaKey.NUM_STEPS_CURRENT_ROUND
    ) -> None:
        super().__init__()
        self.algorithm, self.weight_key = algorithm, weight_key
        self._algorithm = (
            algorithm
            if isinstance(algorithm, Algorithm)
            else assemble({"algorithm": dict(algorithm)}, [], "", Path()).algorithm
        )
        local = self._algorithm.local
        if self._algorithm.privacy:
            raise AccordError(
                "privacy needs noise that nobody can repeat, and accord's is drawn by the seed: not for NVFlare yet"
            )
        more = local.remembers or self._algorithm.personal or self._algorithm.needs or self._algorithm.asks_twice
        if more or not local.reports_updates:
            raise AccordError(
                f"NVFlare's clients send their updates and nothing else, and {self._algorithm.name} needs more of them"
            )
        self._lock = threading.Lock()
        self._layout: Layout | None = None
        self._memory: Any = None
        self._like: dict[str, Any] = {}
        self._round = 0
        self.reset_stats()

    def reset_stats(self) -> None:
        """Forgets the round's reports, not what the server remembers between rounds."""
        self._record: Record | None = None
        self._clients = 0
        self.left_out: dict[str, str] = {}

    def accept_model(self, model: FLModel) -> None:
        """Adds one client's report, or leaves it out."""
        client = str((model.meta or {}).get("client_name", f"number {self._clients + len(self.left_out) + 1}"))
        with self._lock:
            try:
                self._add(model)
                self._clients += 1
            except AccordError as error:
                self.left_out[client] = str(error)
                self.warning(f"client {client} is left out: {error}")

    def _add(self, model: FLModel) -> None:
        if model.params_type != ParamsType.DIFF:
            raise AccordError(
                "it sent its whole model, and changes are added up: set the clients' params_transfer_type to DIFF"
            )
        weight = float((model.meta or {}).get(self.weight_key, 1.0))
        layout = self._layout or layout_of(model.params)
        delta, buffers = packed(model.params, layout)
        reason = f"weight {weight}" if not 0.0 < weight < float("inf") else why_leave_out(delta, 1, layout, buffers)
        if reason is not None:
            raise AccordError(reason)
        if self._layout is None:
            self._layout, self._like = (
                layout,
                {name: value[:0] if value.ndim else value for name, value in model.params.items()},
            )
            self._memory = self._algorithm.init(layout, 1, torch.zeros(layout.size, dtype=layout.dtype))
        one = torch.ones(1, 1, dtype=layout.dtype)
        lifted = self._algorithm.lift(Reports(delta[None], one * weight, one, buffers[None]), self._memory)
        self._record = lifted.copy() if self._record is None else self._record.add_(lifted)

    def aggregate_model(self) -> FLModel:
        """The server's step: what NVFlare is to add to the model."""
        if self._record is None or self._layout is None or self._clients < self._algorithm.average.least:
            why = "; ".join(f"{client}: {reason}" for client, reason in self.left_out.items())
            raise AccordError(
                f"{self._clients} of the {self._algorithm.average.least} reports that a round needs came"
                f" in{f' ({why})' if why else ''}"
            )
        self._round += 1
        round = Round(self._round, self._layout, self._clients)
        lowered, buffers, memory = self._algorithm.lower(self._record, self._memory, round)
        change, self._memory = self._algorithm.step(lowered, memory)
        about = {"accord_accepted": self._clients, "accord_left_out": dict(self.left_out)}
        params = unpacked(change, buffers, self._layout, self._like)
        self.reset_stats()
        return FLModel(params_type=ParamsType.DIFF, params=params, meta=about)
