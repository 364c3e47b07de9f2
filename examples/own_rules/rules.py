"""Parts that accord does not bring. experiment.toml names them, as `rules:cosine`; a part's fields are its settings."""

from dataclasses import dataclass
from typing import Annotated

import torch

from accord.core.protocols import Average, Local, Mask, Server
from accord.core.record import Record, total


@dataclass(frozen=True)
# a layer passes whole where the clients' directions agree: the length of the mean of their unit vectors
class cosine(Mask):
    tau: Annotated[float, "agreement a layer needs to pass whole"] = 0.4

    def init(self, layout, clients):
        sizes = torch.tensor([entry.size for entry in layout.parameters])
        return {"layer": torch.arange(len(sizes)).repeat_interleave(sizes)}

    def lift(self, reports, sent):
        layer = sent["layer"].reshape(-1, reports.delta.shape[-1])[0]
        nothing = reports.delta.new_zeros(*reports.delta.shape[:-1], int(layer.max()) + 1)
        squares = nothing.index_add(-1, layer, reports.delta.square())
        return Record(units=total(reports.delta / squares.sqrt().clamp(min=1e-30)[..., layer]), count=reports.count)

    def lower(self, total, state, round):
        lengths = [part.norm(dim=-1, keepdim=True).expand_as(part) for _, part in round.layout.layers(total["units"])]
        share = torch.cat(lengths, -1) / total["count"]
        return torch.where(share >= self.tau, 1.0, share), state


@dataclass(frozen=True)
class lion(Server):  # Chen et al., 2023, "Symbolic discovery of optimization algorithms", on the averaged update
    lr: Annotated[float, "the server's learning rate"] = 0.001
    beta1: float = 0.9
    beta2: float = 0.99

    def init(self, vector):
        return {"m": torch.zeros_like(vector)}

    def direction(self, state, update):
        step = torch.sign(self.beta1 * state["m"] + (1 - self.beta1) * update)
        return {"m": self.beta2 * state["m"] + (1 - self.beta2) * update}, step


@dataclass(frozen=True)
class nova(Average):  # FedNova (Wang et al., 2020): updates for each local step, times the mean number of steps
    def lift(self, reports, sent):
        per_step = total(reports.delta / reports.steps, reports.weight)
        return Record(per_step=per_step, steps=total(reports.steps, reports.weight), weight=reports.total_weight)

    def lower(self, total, state, round):
        return total["steps"] / total["weight"] * total["per_step"] / total["weight"], state


@dataclass(frozen=True)
# FedDyn (Acar et al., 2021): a client remembers h, its gradient at the optimum it was pulled from
class dynamic(Local):
    alpha: float = 0.1
    remembers = ("h",)
    mu = property(lambda self: self.alpha)

    def drift(self, sent, client_state):
        return -client_state["h"]

    def keep(self, sent, client_state, reports, lr):
        return {"h": client_state["h"] - self.alpha * reports.delta}


@dataclass(frozen=True)
# FedDyn's server: h is the mean of the clients' h, those that did not take part among them
class dynamic_mean(Average):
    alpha: float = 0.1

    def init(self, layout, clients):
        return {"h": torch.zeros(layout.size, dtype=layout.dtype)}

    def lift(self, reports, sent):
        return Record(delta=total(reports.delta), count=reports.count)

    def lower(self, total, state, round):
        h = state["h"] - self.alpha * total["delta"] / round.clients
        return total["delta"] / total["count"] - h / self.alpha, {"h": h}
