"""The pfl-research postprocessor in pfl's own simulation, against `combine`."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord.rules.combine import combine
from conftest import sentence

pytest.importorskip("pfl", reason="pfl-research is not installed: pip install 'accord-fl[pfl]'")

from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor.base import Postprocessor

from accord.deploy.pfl import Rule

USERS = 6


class Net(nn.Module):
    """A linear model with the methods that pfl wants."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 3)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class Seen(Postprocessor):
    """Notes every user's update and weight, and what the server makes of them."""

    def __init__(self) -> None:
        self.deltas: list[Tensor] = []
        self.weights: list[float] = []
        self.server: list[tuple[Tensor, set[str]]] = []

    def postprocess_one_user(self, *, stats, user_context):
        self.deltas.append(flat(stats) / stats.weight)
        self.weights.append(stats.weight)
        return stats, Metrics()

    def postprocess_server(self, *, stats, central_context, aggregate_metrics):
        self.server.append((flat(stats) / stats.weight, set(stats)))
        return stats, Metrics()


def flat(stats: Any) -> Tensor:
    return torch.cat([value.detach().reshape(-1).clone() for _, value in stats.items()])


def simulate(rule: Rule, weighting: Postprocessor, rounds: int = 2) -> tuple[Seen, Net]:
    """So many rounds of federated averaging, with the rule the last of the postprocessors."""
    generator, seen = torch.Generator().manual_seed(0), Seen()
    sizes = range(5, 5 + USERS)
    data = [(torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for n in sizes]
    users = {str(number): PyTorchTensorDataset(tensors, user_id=str(number)) for number, tensors in enumerate(data)}
    federated = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    backend = SimulatedBackend(federated, federated, postprocessors=[weighting, seen, rule])
    net = Net()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    training = NNTrainHyperParams(local_batch_size=5, local_num_epochs=2, local_learning_rate=0.3)
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, 10**9, USERS, 0), backend, model, training, NNEvalHyperParams(local_batch_size=10)
    )
    return seen, net


@pytest.mark.parametrize(
    "rule", [accord.gma(0.6), accord.and_mask(0.6), accord.sand(0.6), accord.magnitude(0.6), accord.mean()]
)
@pytest.mark.parametrize("weighting", [WeightByDatapoints, WeightByUser])
def test_every_round_is_what_combine_makes_of_the_updates(rule: Any, weighting: Any) -> None:
    seen, net = simulate(Rule(rule), weighting())
    position = torch.cat([p.detach().reshape(-1) for p in Net().parameters()])
    trained = range(0, len(seen.deltas), USERS)
    assert len(seen.server) == len(trained) >= 2
    for first, (made, names) in zip(trained, seen.server, strict=True):
        lowered = combine(
            rule, torch.stack(seen.deltas[first : first + USERS]), torch.tensor(seen.weights[first : first + USERS])
        )
        step = lowered.update if lowered.mask is None else lowered.mask * lowered.update
        assert torch.allclose(made, step, atol=1e-6)
        assert not any(name.startswith("accord") for name in names)
        position = position + made
    assert torch.allclose(torch.cat([p.detach().reshape(-1) for p in net.parameters()]), position, atol=1e-5)
    assert np.ptp(seen.weights) > 0 or isinstance(weighting(), WeightByUser)


def test_what_pfl_cannot_add_up_is_refused() -> None:
    with sentence("pfl adds statistics up, and median must see every user's update by itself"):
        simulate(Rule(accord.median()), WeightByUser())
    with sentence("pfl's users send their updates and nothing else, and corrective needs more of them"):
        Rule(accord.corrective())
    with sentence("rule must be an average or a mask, such as gma(0.4), got 'gma'"):
        Rule("gma")
