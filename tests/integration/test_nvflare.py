"""The NVFlare aggregator, with NVFlare's own models and messages, against `combine`."""

from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.rules.algorithm import Algorithm
from accord.rules.combine import combine
from conftest import sentence

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'accord-fl[nvflare]'")

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from accord.deploy.nvflare import Aggregator

SHAPES = {"layer.weight": (3, 4), "layer.bias": (3,)}


def updates(clients: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.randn(clients, 15, generator=torch.Generator().manual_seed(seed))


def model(delta: torch.Tensor, steps: float = 1.0, name: str = "site-1", kind: Any = np.asarray) -> FLModel:
    pieces = dict(zip(SHAPES, delta.split([12, 3]), strict=True))
    params = {key: kind(pieces[key].reshape(shape)) for key, shape in SHAPES.items()}
    return FLModel(ParamsType.DIFF, params, meta={"NUM_STEPS_CURRENT_ROUND": steps, "client_name": name})


def flat(result: FLModel) -> torch.Tensor:
    return torch.cat([torch.as_tensor(value).reshape(-1) for value in result.params.values()])


@pytest.mark.parametrize(
    "rule", [accord.gma(0.4), accord.and_mask(0.4), accord.median(), accord.trimmed_mean(0.2), accord.mean()]
)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_a_round_is_what_combine_makes_of_the_updates(rule: Any, kind: Any) -> None:
    deltas, steps = updates(), torch.arange(1.0, 8.0)
    masked = isinstance(rule, accord.gma | accord.and_mask)
    aggregator = Aggregator(accord.fedavg(mask=rule) if masked else accord.fedavg(average=rule))
    for delta, count in zip(deltas, steps.tolist(), strict=True):
        aggregator.accept_model(model(delta, count, kind=kind))
    result = aggregator.aggregate_model()
    expected = combine(rule, deltas, steps)
    step = expected.update if expected.mask is None else expected.mask * expected.update
    assert torch.allclose(flat(result), step, atol=1e-6) and result.params_type == ParamsType.DIFF
    assert {key: value.shape for key, value in result.params.items()} == SHAPES
    assert all(isinstance(value, type(kind([1.0]))) for value in result.params.values())


def test_the_server_remembers_between_rounds_and_job_files_name_the_algorithm() -> None:
    """Two rounds of Adam by hand, from a section as an experiment has it, through the messages that workflows send."""
    aggregator, context = (
        Aggregator({"name": "fedadam", "server": {"lr": 0.1}, "mask": "gma", "average": {"weighting": "uniform"}}),
        FLContext(),
    )
    m, v = torch.zeros(15), torch.full((15,), 1e-6)
    for seed in (1, 2):
        deltas = updates(seed=seed)
        aggregator.reset(context)
        for number, delta in enumerate(deltas):
            assert aggregator.accept(FLModelUtils.to_shareable(model(delta, name=f"site-{number}")), context)
        answer = FLModelUtils.from_shareable(aggregator.aggregate(context), context)
        lowered = combine(accord.gma(0.4), deltas)
        m, v = 0.9 * m + 0.1 * lowered.update, 0.99 * v + 0.01 * lowered.update.square()
        assert torch.allclose(flat(answer), lowered.mask * 0.1 * m / (v.sqrt() + 1e-3), atol=1e-6)
        start = FLModel(ParamsType.FULL, {key: np.ones(shape, dtype=np.float32) for key, shape in SHAPES.items()})
        assert torch.allclose(flat(FLModelUtils.update_model(start, answer)), 1 + flat(answer))


def test_bad_reports_are_left_out_and_counted() -> None:
    deltas = updates()
    aggregator = Aggregator(accord.fedavg(mask=accord.gma()))
    for delta in deltas:
        aggregator.accept_model(model(delta))
    bad = {
        "nan": model(deltas[0] * float("nan"), name="nan"),
        "short": FLModel(ParamsType.DIFF, {"layer.weight": np.ones((3, 4))}, meta={"client_name": "short"}),
        "shape": FLModel(
            ParamsType.DIFF, {"layer.weight": np.ones((3, 4)), "layer.bias": np.ones(4)}, meta={"client_name": "shape"}
        ),
        "more": FLModel(ParamsType.DIFF, {**model(deltas[0]).params, "x": np.ones(1)}, meta={"client_name": "more"}),
        "weight": model(deltas[0], steps=-1.0, name="weight"),
        "whole": FLModel(ParamsType.FULL, model(deltas[0]).params, meta={"client_name": "whole"}),
    }
    for each in bad.values():
        aggregator.accept_model(each)
    assert {name: why.split(":")[0] for name, why in aggregator.left_out.items()} == {
        "nan": "NaN in the update",
        "short": "layer.bias is missing",
        "shape": "wrong shape (4,) of layer.bias, expected (3,)",
        "more": "the model has no x",
        "weight": "weight -1.0",
        "whole": "it sent its whole model, and changes are added up",
    }
    result = aggregator.aggregate_model()
    expected = combine(accord.gma(), deltas)
    assert torch.allclose(flat(result), expected.mask * expected.update, atol=1e-6)
    assert result.meta["accord_accepted"] == 7 and set(result.meta["accord_left_out"]) == set(bad)
    aggregator.accept_model(bad["nan"])
    with sentence("0 of the 1 reports that a round needs came in (nan: NaN in the update)"):
        aggregator.aggregate_model()


def test_statistics_of_batchnorm_are_averaged_and_not_masked() -> None:
    aggregator = Aggregator(accord.fedavg(mask=accord.and_mask(1.0)))
    for sign, count in ((1.0, 2), (-1.0, 4)):
        params = {
            "w": np.full(2, sign, np.float32),
            "bn.running_mean": np.full(2, sign + 2, np.float32),
            "bn.num_batches_tracked": np.array(count),
        }
        aggregator.accept_model(FLModel(ParamsType.DIFF, params))
    params = aggregator.aggregate_model().params
    assert params["w"].tolist() == [0.0, 0.0] and params["bn.running_mean"].tolist() == [2.0, 2.0]
    assert params["bn.num_batches_tracked"] == 3 and params["bn.num_batches_tracked"].dtype == np.int64


@pytest.mark.parametrize(
    "algorithm", [accord.scaffold(), accord.fedgma(), accord.fedavg(average=accord.corrective()), accord.causalfed()]
)
def test_what_nvflare_s_clients_cannot_do_is_refused(algorithm: Algorithm) -> None:
    with sentence("NVFlare's clients send their updates and nothing else, and ", "needs more of them"):
        Aggregator(algorithm)
    with sentence("algorithm.name must be one of fedavg,"):
        Aggregator({"name": "none"})
