"""Who attacks, which is drawn once for a run. `Attackers` stands between clients and server: every engine hands it the
reports before they are checked and added, and asks it how clients read their labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from accord.attacks.attack import Attack
from accord.core import draws
from accord.core.errors import AccordError
from accord.core.reports import Reports
from accord.data.federated import Federation
from accord.rules.algorithm import Algorithm


@dataclass(frozen=True)
class Attackers:
    """An attack, and who is in on it. Made by `attackers`."""

    attack: Attack
    clients: frozenset[str]
    seed: int
    classes: int

    def reported(self, reports: Reports, clients: Sequence[str], round: int) -> Reports:
        """The reports of these clients as the server gets them: attackers' vectors of the model's size are not what
        they were. Buffers and what clients remember are honest."""
        among = [k for k, client in enumerate(clients) if client in self.clients]
        if not among or self.attack.flips:
            return reports
        chosen = torch.tensor(among, device=reports.delta.device)

        def sent(name: str, value: Tensor) -> Tensor:
            keys = [draws.device_key(self.seed, "attack", round, clients[k], name) for k in among]
            return value.index_copy(-2, chosen, self.attack.vectors(value.index_select(-2, chosen), keys))

        extra = {name: sent(name, v) if v.shape == reports.delta.shape else v for name, v in reports.extra.items()}
        return replace(reports, delta=sent("delta", reports.delta), extra=extra)

    def flip_from(self, client: str) -> int:
        """The class that this client takes class 0 for; -1 if it learns labels as they are."""
        return self.classes - 1 if self.attack.flips and client in self.clients else -1


def flipped(y: Tensor, top: Tensor | int) -> Tensor:
    """Labels as a client reads them, by the number that `Attackers.flip_from` gave for it.

    >>> flipped(torch.tensor([0, 1, 9]), 9).tolist(), flipped(torch.tensor([0, 1, 9]), -1).tolist()
    ([9, 8, 0], [0, 1, 9])
    """
    return torch.where(torch.as_tensor(top, device=y.device) >= 0, top - y, y)


def check_algorithm(algorithm: Algorithm) -> None:
    """Refuses algorithms under which clients report no update to a server."""
    if algorithm.pools or not algorithm.local.reports_updates:
        raise AccordError(
            "an attack needs clients that report updates, and with pooled, local_only and causalfed they do not"
        )


def attackers(attack: Attack, fed: Federation, algorithm: Algorithm, seed: int) -> Attackers:
    """Draws who attacks: a share of all participating clients, rounded to whole clients. With a larger share the same
    clients attack, and others."""
    if not isinstance(attack, Attack):
        raise AccordError(f"attack must be an attack such as sign_flip(share=0.2), got {attack!r}")
    check_algorithm(algorithm)
    if attack.flips and (fed.y.is_floating_point() or fed.y.ndim != 1):
        raise AccordError("attack label_flip needs one class per sample, and these targets are not classes")
    count = math.floor(attack.share * len(fed.clients) + 0.5)
    chosen = draws.choose(len(fed.clients), count, seed, "attackers")
    return Attackers(attack, frozenset(fed.clients[i] for i in chosen), seed, fed.outputs)
