"""Differential privacy without a trusted server: every client adds its share of a discrete Gaussian to a secure sum."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")
pytest.importorskip("opendp.prelude", reason="OpenDP is not installed: pip install 'accord-fl[flower]'")

from test_flower import finished, grid_of, state  # noqa: F401
from test_flower_secagg import Dying, Normed, node_of

import accord
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.round import Round
from accord.data import Federation
from accord.deploy.flower import Strategy, Sums
from accord.deploy.flower.secagg_messages import MASKED, UNMASK
from accord.privacy.distributed import DistributedPrivacy, discrete_gaussian
from accord.privacy.secure_sum import SecureSum
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.runs.run import Run
from accord.training.plan import Plan
from conftest import blobs, mlp, sentence

SUMS = Sums(SecureSum(clients=10, bound=5.0), protocol="secagg+")


def private(noise: float = 2.0, clip: float = 0.5, **options: Any) -> Algorithm:
    return accord.fedavg(mask=options.pop("mask", None), weighting="uniform").with_privacy(clip, noise, **options)


def wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 900), nn.Tanh(), nn.Linear(900, 4))


def still(fed: Federation, algorithm: Algorithm, dies: dict[str, str], sums: Sums = SUMS) -> tuple[Run, np.ndarray]:
    """A round in which clients hardly move, and what it did to the model: nothing but noise."""
    model = wide()
    apps = grid_of(fed, len(fed.clients), model, sums=sums, algorithm=algorithm)
    grid = Dying(apps, {node_of(client): stage for client, stage in dies.items()})
    plan, training = Plan(rounds=1), Training(lr=1e-9)
    strategy = Strategy(
        algorithm, model, clients=fed.clients, training=training, plan=plan, sums=sums, timeout=1.0 if dies else 20.0
    )
    run = finished(strategy, grid)
    start = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    return run, (run.last.vector - start).double().numpy()


@pytest.mark.parametrize(
    ("dies", "added"),
    [({}, 10), (dict.fromkeys(("c01", "c04", "c07"), MASKED), 7), (dict.fromkeys(("c01", "c04", "c07"), UNMASK), 10)],
    ids=["nobody", "three records missing", "three silent at the end"],
)
def test_drop_outs_to_the_threshold_leave_the_noise_that_was_promised(dies: dict[str, str], added: int) -> None:
    """Seven of ten must remain: their noise is noise x clip together, and that of ten is sqrt(10 / 7) of it."""
    run, moved = still(blobs(clients=10, unseen=0), private(), dies)
    assert run.rows[0]["accepted"] == added
    expected = 2.0 * 0.5 * math.sqrt(added / 7) / 10  # the mean divides by ten, whoever came
    assert float(np.std(moved)) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(moved)))
    assert abs(float(np.mean(moved))) < 4 * expected / math.sqrt(len(moved))
    told = run.history[-1][1].privacy
    assert told == {"epsilon": accord.privacy.accounting.epsilon_against_server(2.0, 1, 1e-5), "delta": 1e-5}


def test_with_few_neighbours_the_noise_is_what_they_alone_would_have_to_make() -> None:
    """Of four neighbours and itself a client sees four remain: four shares are noise x clip, and ten sqrt(10 / 4)."""
    sums = Sums(SecureSum(clients=10, bound=10.0), protocol="secagg+", neighbours=4)
    _, moved = still(blobs(clients=10, unseen=0), private(), {}, sums)
    expected = 2.0 * 0.5 * math.sqrt(10 / 4) / 10
    assert float(np.std(moved)) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(moved)))


def test_no_seed_repeats_the_noise_and_no_row_tells_what_it_hides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    fed, moves = blobs(clients=4, unseen=0), []
    for number in range(2):
        monkeypatch.setenv("ACCORD_STATE", str(tmp_path / str(number)))  # else no client gives a round twice
        run, moved = still(fed, private(clip=0.1, noise=2.0), {})
        moves.append(moved)
        assert run.rows[0]["train_loss"] == run.rows[0]["client_norm"] == 0.0 and run.rows[0]["privacy"] == {}
    assert abs(float(np.corrcoef(moves[0], moves[1])[0, 1])) < 4 / math.sqrt(len(moves[0]))


def test_a_record_is_clipped_noised_and_has_no_votes() -> None:
    """In whole numbers, at the client: what leaves it for the masks."""
    privacy = DistributedPrivacy(clip=0.5, noise=2.0, threshold=2 / 3)
    secure = SecureSum(clients=10, bound=5.0)
    delta = torch.full((40_000,), 0.5 / 200)
    whole = secure.encode(Record(delta=Field(delta, kind="update"), votes=Field(delta.sign(), kind="votes"))).part(
        "record"
    )
    fields = {path: (field, secure.form(field.kind).bits) for path, field in whole.fields().items()}
    found = privacy.noised(fields, secure, 10)
    assert not found["votes"][0].value.any()
    form = secure.form("update")
    noise = secure.decode(Record(clients=Field(torch.tensor([1])), record=Record(x=found["delta"][0])))["x"] - delta
    deviation = privacy.scale(form, 40_000, 10) * form.step
    assert deviation == pytest.approx(2.0 * 0.5 / math.sqrt(7), rel=1e-4)  # rounding adds next to nothing at 32 bits
    assert float(noise.std()) == pytest.approx(deviation, rel=4 / math.sqrt(80_000))
    fields["delta"] = (Field(2 * fields["delta"][0].value, kind="update"), 32)
    with sentence("an update in whole numbers is longer than clip and rounding allow"):
        privacy.noised(fields, secure, 10)
    with sentence("privacy covers the sum of the clipped updates, and other is another sum"):
        privacy.noised({"other": (Field(torch.ones(3, dtype=torch.int64)), 32)}, secure, 10)


def test_the_mask_is_computed_from_the_noised_sum() -> None:
    privacy = DistributedPrivacy(clip=0.5, noise=2.0, threshold=2 / 3)
    algorithm = accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    sums = torch.tensor([0.0, 1.0, -3.0])
    record = algorithm.sample_record(Layout.flat(3))

    def came(field: Field) -> Field:
        value = {"update": sums, "votes": torch.zeros(3)}.get(field.kind, torch.full_like(field.value, 7.0))
        return Field(value, kind=field.kind)

    seen = privacy.released(record.mapped(came), Round(1, Layout.flat(3), 20, cohort=10))
    assert torch.equal(seen.part("average")["delta"], sums) and seen.part("average")["weight"].item() == 10
    expected = 10 * sums.sign() * torch.erf(sums.abs() / (2.0 * 0.5 * math.sqrt(2.0)))
    assert torch.allclose(seen.part("mask")["votes"], expected)
    assert privacy.released(seen, Round(1, Layout.flat(3), 20, cohort=10)) is seen


def test_a_private_run_learns() -> None:
    """Little noise, so that it can: it runs whole, with a mask."""
    fed, algorithm = blobs(clients=10, unseen=0), private(noise=0.05, clip=1.0, mask=accord.gma(0.4))
    grid = grid_of(fed, 10, sums=SUMS, algorithm=algorithm)
    plan = Plan(rounds=4, evaluate_every=1)
    strategy = Strategy(algorithm, mlp(), clients=10, training=Training(lr=0.05), plan=plan, sums=SUMS)
    run = finished(strategy, grid)
    first, last = run.history[0][1], run.history[-1][1]
    assert last.splits["train"].metrics["loss"].by_sample < first.splits["train"].metrics["loss"].by_sample
    assert last.privacy["epsilon"] > first.privacy["epsilon"]


def test_no_round_of_a_private_run_is_chosen_by_clients_data() -> None:
    """A deployment has no test set: the oracle would read the data of nodes that never train."""
    fed, algorithm = blobs(clients=4, unseen=2), private()
    grid = grid_of(fed, 6, sums=SUMS, algorithm=algorithm)
    plan = Plan(rounds=2, evaluate_every=1)
    run = finished(Strategy(algorithm, mlp(), clients=fed.clients, plan=plan, sums=SUMS), grid)
    assert "unseen" in run.history[-1][1].splits
    for rule in ("oracle", "held-out"):
        with sentence("select", rule, "epsilon"):
            run.select(rule)
    assert run.select("last10").rounds == [1, 2]


def test_draws_are_whole_and_of_their_scale() -> None:
    drawn = discrete_gaussian(70_000, 20.0)
    assert drawn.dtype == np.int64 and float(drawn.std()) == pytest.approx(20.0, rel=4 / math.sqrt(2 * 70_000))
    assert abs(float(drawn.mean())) < 4 * 20.0 / math.sqrt(70_000)


def test_what_is_refused() -> None:
    fed = blobs(clients=10, unseen=0)
    with sentence("privacy needs noise that nobody can repeat", "protocol='secagg+'"):
        Strategy(private(), mlp(), clients=2, sums=Sums(SecureSum(10, 5.0)))
    with sentence("vote_noise must be left out where clients add the noise, got 1.0"):
        Strategy(private(vote_noise=1.0, mask=accord.gma(0.4)), mlp(), clients=2, sums=SUMS)
    for secure, said in (
        (SecureSum(clients=10, bound=0.5), "bound must be at least 2.214 for clip 0.5 and noise 2, got 0.5"),
        (SecureSum(clients=10, bound=5.0, bits=9), "bits must be more than 9"),
    ):
        sums = Sums(secure, protocol="secagg+")
        with sentence(said):
            Strategy(private(), mlp(), clients=10, sums=sums, wait=5.0).start(
                grid_of(fed, 10, sums=sums, algorithm=private())
            )
    with sentence("privacy covers parameters, and the model has buffers"):
        Strategy(private(), Normed(), clients=10, sums=SUMS, wait=5.0).start(
            grid_of(fed, 10, Normed(), sums=SUMS, algorithm=private())
        )
