"""Rules that a user brings (examples/own_rules): the mathematics by hand, and trained from a file on every engine."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

import accord
from accord.core.layout import Layout
from accord.core.record import Record
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.algorithm import Algorithm
from command import run_command
from conftest import Point, cost, quadratics

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_rules"
FEDDYN = (
    "algorithm.local=rules:dynamic",
    "algorithm.average=rules:dynamic_mean",
    "algorithm.mask=none",
    "algorithm.server=step",
)


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_rules_under_test", EXAMPLE / "rules.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def reports(deltas: list[list[float]], samples: list[float], steps: list[float]) -> Reports:
    delta = torch.tensor(deltas)
    weight, count = torch.tensor(samples)[:, None], torch.tensor(steps)[:, None]
    return Reports(delta, weight, count, delta[:, :0])


# ---------------------------------------------------------------------------------------------------- by hand


def test_a_layer_passes_by_the_mean_resultant_length_of_its_directions(rules: ModuleType) -> None:
    layout = Layout.of(torch.nn.Linear(2, 1))  # a weight of two numbers and a bias
    mask, given = rules.cosine(0.8), reports([[3.0, 4.0, 2.0], [4.0, -3.0, 5.0]], [1.0, 1.0], [1.0, 1.0])
    state = mask.init(layout, 2)
    whole, halves = mask.lift(given, state), [mask.lift(given.of(torch.tensor([k])), state) for k in (0, 1)]
    assert torch.allclose((halves[0] + halves[1])["units"], whole["units"])
    factors, _ = mask.lower(whole, state, Round(1, layout, 2))
    # Unit vectors (0.6, 0.8) and (0.8, -0.6) are at right angles: their mean has length sqrt(2) / 2. Both biases go up:
    # 1.
    assert torch.allclose(factors, torch.tensor([0.5**0.5, 0.5**0.5, 1.0]))
    assert torch.allclose(rules.cosine(0.7).lower(whole, state, Round(1, layout, 2))[0], torch.ones(3))
    still = mask.lower(mask.lift(reports([[0.0] * 3] * 2, [1.0] * 2, [1.0] * 2), state), state, Round(1, layout, 2))[0]
    assert torch.equal(still, torch.zeros(3)), "nobody moves: no direction, and no NaN"


def test_fednova_weighs_updates_by_the_step(rules: ModuleType) -> None:
    average, given = rules.nova(), reports([[4.0], [9.0]], samples=[1.0, 3.0], steps=[2.0, 6.0])
    update, _ = average.lower(average.lift(given, {}), {}, Round(1, Layout.flat(1), 2))
    # Per step 2.0 and 1.5; by samples (2 + 3 * 1.5) / 4 = 1.625; (2 + 3 * 6) / 4 = 5 steps on average.
    assert torch.allclose(update, torch.tensor([8.125]))
    even = reports([[4.0], [9.0]], samples=[1.0, 3.0], steps=[5.0, 5.0])
    # the mean
    assert torch.allclose(
        average.lower(average.lift(even, {}), {}, Round(1, Layout.flat(1), 2))[0], torch.tensor([7.75])
    )


def test_lion_steps_by_the_sign_of_two_momenta(rules: ModuleType) -> None:
    server, state = rules.lion(lr=0.1), {"m": torch.zeros(2)}
    directions = []
    for update in ([1.0, -2.0], [-0.05, 0.5], [-1.0, 0.0]):
        state, direction = server.direction(state, torch.tensor(update))
        directions.append(direction.tolist())
    # m after the first: (0.01, -0.02); then 0.9 m + 0.1 update = (0.004, 0.032), and m = (0.0094, -0.0148); then
    # (-0.09154, -0.01332).
    assert directions == [[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]
    assert torch.allclose(state["m"], torch.tensor([0.99 * 0.0094 - 0.01, 0.99 * -0.0148]))


def test_feddyn_reaches_the_optimum_where_fedavg_stalls(rules: ModuleType) -> None:
    fed, settings = (
        quadratics((1.0, -1.0), (10.0, 2.0)),
        {
            "rounds": 300,
            "lr": 0.05,
            "epochs": 10,
            "momentum": 0.0,
            "evaluate_every": 300,
        },
    )
    feddyn = Algorithm(rules.dynamic(1.0), rules.dynamic_mean(1.0), name="feddyn")
    reached = {
        name: float(
            accord.fit(Point(), fed, algorithm, loss=cost, metrics={}, engine="sequential", **settings).last.vector
        )
        for name, algorithm in (("feddyn", feddyn), ("fedavg", accord.fedavg()))
    }
    assert reached["feddyn"] == pytest.approx(19 / 11, abs=1e-6)  # (a1 b1 + a2 b2) / (a1 + a2) = 1.727273
    assert reached["fedavg"] == pytest.approx(1.140327, abs=1e-5)


def test_feddyns_server_counts_those_who_stayed_away(rules: ModuleType) -> None:
    average, layout = rules.dynamic_mean(0.5), Layout.flat(1)
    record: Record = average.lift(reports([[1.0], [3.0]], [1.0] * 2, [1.0] * 2), {})
    update, state = average.lower(record, average.init(layout, 8), Round(1, layout, clients=8))
    assert state["h"].tolist() == [-0.25] and update.tolist() == [2.5]  # h = -0.5 * 4 / 8; 2 + 0.25 / 0.5


# ---------------------------------------------------------------------------------------------- from the file


def run(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(here, "run", str(EXAMPLE / "experiment.toml"), *arguments)


def model(folder: Path) -> torch.Tensor:
    (path,) = folder.glob("*/model.safetensors")
    return torch.cat([value.flatten() for value in load_file(path).values()])


@pytest.mark.parametrize(
    "more", [pytest.param((), id="parts"), pytest.param(FEDDYN, id="feddyn", marks=pytest.mark.slow)]
)
def test_the_example_runs_on_every_engine_and_goes_on_after_a_stop(more: tuple[str, ...], tmp_path: Path) -> None:
    for engine in ("sequential", "processes", "vectorised"):
        done = run(tmp_path, "train.rounds=2", f"run.engine={engine}", f"run.folder={engine}", *more)
        assert done.returncode == 0, done.stderr
    first = model(tmp_path / "sequential")
    # workers have one thread each, and this process as many as it was given: sums may round otherwise
    assert torch.allclose(model(tmp_path / "processes"), first, atol=0 if torch.get_num_threads() == 1 else 1e-5)
    assert torch.allclose(model(tmp_path / "vectorised"), first, atol=1e-4)
    for rounds, flag in (("1", []), ("2", ["--resume"])):
        done = run(tmp_path, f"train.rounds={rounds}", "run.engine=sequential", "run.folder=resumed", *more, *flag)
        assert done.returncode == 0, done.stderr
    assert torch.equal(model(tmp_path / "resumed"), first)
    label = "fedavg by dynamic_mean with dynamic" if more else "fedavg by nova with lion + cosine(0.6)"
    assert label in done.stdout


def test_all_parts_together_take_sixty_lines() -> None:
    assert len([line for line in (EXAMPLE / "rules.py").read_text().splitlines() if line.strip()]) <= 60
