"""`fit` as a user meets it: invariants of training, baselines, faults, hooks, evaluation."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import AccordError, Conditions
from accord.algorithm import ALGORITHMS
from accord.data import Federation
from conftest import blobs, mlp


def train(algorithm=None, fed=None, **more) -> accord.Run:
    return accord.fit(mlp(), fed or blobs(), algorithm, **{"rounds": 4, "sample": 5, "evaluate_every": 2, **more})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_and_is_evaluated_three_ways(name: str) -> None:
    run = train(ALGORITHMS[name](), rounds=20, lr=0.05)
    splits = run.history[-1][1]["splits"]
    assert set(splits) == {"train", "heldout", "unseen"}
    assert run.rows[-1]["accepted"] == (1 if name == "pooled" else 5)
    first, last = run.history[0][1]["splits"]["train"]["loss"], splits["train"]["loss"]
    assert last["by_sample"] < first["by_sample"]
    assert "participation gap" in str(run) and "by held-out" in str(run)


@pytest.mark.parametrize("algorithm", [accord.fedavg, accord.fedadam, accord.fedyogi, accord.scaffold])
def test_tau_zero_is_the_unmasked_algorithm_bit_for_bit(algorithm) -> None:
    assert torch.equal(train(algorithm(mask=accord.gma(0.0))).last.vector, train(algorithm()).last.vector)
    assert not torch.equal(train(algorithm(mask=accord.gma(0.9))).last.vector, train(algorithm()).last.vector)


def test_a_cohort_of_one_works_and_no_mask_can_touch_it() -> None:
    masked = train(accord.fedavg(mask=accord.and_mask(1.0)), sample=1)
    assert torch.equal(masked.last.vector, train(sample=1).last.vector)


def test_same_seed_same_run_whatever_else_used_torchs_generator() -> None:
    first = train()
    torch.manual_seed(99)
    torch.rand(5)
    assert torch.equal(first.last.vector, train().last.vector)
    assert not torch.equal(first.last.vector, train(seed=1).last.vector)


def test_unseen_clients_touch_nothing() -> None:
    fed = blobs()
    scrambled = fed.x.clone()
    for rows in fed.unseen.values():
        scrambled[rows] = 100 * torch.randn(len(rows), scrambled.shape[1])
    other = Federation(scrambled, fed.y, fed.train, fed.heldout, fed.unseen, name=fed.name)
    a, b = train(accord.fedadam(mask=accord.gma())), train(accord.fedadam(mask=accord.gma()), fed=other)
    assert torch.equal(a.last.vector, b.last.vector) and torch.equal(a.best.vector, b.best.vector)
    assert a.history[-1][1]["splits"]["unseen"] != b.history[-1][1]["splits"]["unseen"]


def test_held_out_data_trains_nothing() -> None:
    fed = blobs()
    scrambled = fed.x.clone()
    for rows in fed.heldout.values():
        scrambled[rows] = 0.0
    other = Federation(scrambled, fed.y, fed.train, fed.heldout, fed.unseen, name=fed.name)
    assert torch.equal(train().last.vector, train(fed=other).last.vector)


def test_the_users_module_is_left_alone() -> None:
    module = mlp()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run = accord.fit(module, blobs(), rounds=2, sample=3)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not torch.equal(run.model()[0].weight, module[0].weight)


def test_what_the_model_says_is_what_was_evaluated() -> None:
    fed, run = blobs(), train()
    rows = torch.cat(list(fed.unseen.values()))
    accuracy = (run.model()(fed.x[rows]).argmax(1) == fed.y[rows]).float().mean().item()
    assert accuracy == pytest.approx(run.history[-1][1]["splits"]["unseen"]["accuracy"]["by_sample"])


def test_warm_start_from_a_state_dict_and_from_a_file(tmp_path) -> None:
    run = train()
    path = run.save(tmp_path / "model.safetensors")
    from_file = accord.fit(mlp(seed=5), blobs(), rounds=1, sample=3, start=path)
    from_dict = accord.fit(mlp(seed=6), blobs(), rounds=1, sample=3, start=run.model().state_dict())
    assert torch.equal(from_file.last.vector, from_dict.last.vector)
    with pytest.raises(AccordError, match="there is no file"):
        train(start=tmp_path / "nothing.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(AccordError, match="cannot be read as safetensors"):
        train(start=tmp_path / "bad.safetensors")
    with pytest.raises(AccordError, match=r"0.weight has shape \[9, 6\] in the weights"):
        train(start={**run.model().state_dict(), "0.weight": torch.zeros(9, 6)})
    with pytest.raises(AccordError, match="2.bias is only in the model"):
        train(start={k: v for k, v in run.model().state_dict().items() if k != "2.bias"})


# ------------------------------------------------------------------------------------------------------------ faulty clients


def with_client(fed: Federation, client: str, value: float) -> Federation:
    x = fed.x.clone()
    x[fed.train[client]] = value
    return Federation(x, fed.y, fed.train, fed.heldout, fed.unseen, name=fed.name)


@pytest.mark.parametrize(("value", "why"), [(float("nan"), "NaN in the update"), (float("inf"), "NaN in the update")])
def test_a_client_with_broken_numbers_is_left_out_counted_and_named(value: float, why: str) -> None:
    run = train(fed=with_client(blobs(), "c03", value), sample=None)
    assert run.rows[0]["left_out"] == {"c03": why}
    assert run.rows[0]["accepted"] == 11
    assert run.last.vector.isfinite().all()


def test_leaving_a_client_out_equals_a_round_without_it() -> None:
    fed = blobs()
    without = {client: rows for client, rows in fed.train.items() if client != "c03"}
    small = Federation(fed.x, fed.y, without, {c: r for c, r in fed.heldout.items() if c != "c03"}, fed.unseen, name=fed.name)
    broken = train(accord.fedavg(mask=accord.gma()), fed=with_client(fed, "c03", float("nan")), sample=None, rounds=1)
    assert torch.allclose(
        broken.last.vector, train(accord.fedavg(mask=accord.gma()), fed=small, sample=None, rounds=1).last.vector, atol=1e-6
    )


def test_a_client_without_samples_is_left_out() -> None:
    fed = blobs()
    empty = Federation(fed.x, fed.y, {**fed.train, "none": torch.zeros(0, dtype=torch.int64)}, fed.heldout, fed.unseen, name=fed.name)
    run = train(fed=empty, sample=None)
    assert run.rows[0]["left_out"] == {"none": "no samples"}


def test_a_round_with_too_few_reports_is_skipped_and_never_applied() -> None:
    run = train(conditions=Conditions(lost=0.5), min_clients=4, rounds=12, evaluate_every=12)
    skipped = [row for row in run.rows if "skipped" in row]
    assert skipped and len(skipped) < 12
    assert all(row["accepted"] < 4 and "update_norm" not in row for row in skipped)
    nothing = train(conditions=Conditions(lost=1.0))
    assert torch.equal(nothing.last.vector, torch.nn.utils.parameters_to_vector(mlp().parameters()))
    assert nothing.rows[0]["skipped"] == "0 of the 1 reports it needs"


def test_stragglers_take_fewer_steps_but_at_least_one() -> None:
    run = train(conditions=Conditions(stragglers=1.0, least=0.0), epochs=20, batch=8, rounds=6)
    whole = train(epochs=20, batch=8, rounds=6)
    assert all(0 < slow["steps"] < full["steps"] for slow, full in zip(run.rows, whole.rows, strict=True))


def test_a_model_that_diverges_is_told_not_crashed_over() -> None:
    run = accord.fit(nn.Linear(6, 1), Federation(blobs().x * 1e19, blobs().x[:, 0], blobs().train, blobs().heldout), rounds=3, sample=None)
    assert run.history[-1][1]["splits"]["heldout"]["loss"]["by_sample"] is None
    assert run.best is None and "-" in str(run)


# --------------------------------------------------------------------------------------------------------- control variates


def control_variates(run_folder) -> tuple[Tensor, Tensor]:
    """c, and the mean over ALL clients of their c_n, read from the run's folder."""
    from safetensors.torch import load_file

    c = load_file(next(run_folder.glob("checkpoint-*.safetensors")))["memory.local.c"]
    own = [load_file(file)["c"] for file in (run_folder / "clients").glob("*.safetensors")]
    return c, torch.stack(own).sum(0) / 12


@pytest.mark.parametrize("lost", [0.0, 0.3])
@pytest.mark.parametrize("broken", [False, True])
def test_c_is_the_mean_of_all_c_n_every_round(tmp_path, lost: float, broken: bool) -> None:
    fed = blobs()
    if broken:  # one client in four has a bad sample, which a straggler may not come to: its reports are refused now and then
        x = fed.x.clone()
        for client in fed.clients[::4]:
            x[fed.train[client][:1]] = float("nan")
        fed = Federation(x, fed.y, fed.train, fed.heldout, fed.unseen, name=fed.name)
    conditions = Conditions(lost=lost, stragglers=0.7, least=0.0)
    refused = 0
    for rounds in range(1, 9):
        run = train(
            accord.scaffold(mask=accord.gma()), fed, rounds=rounds, batch=4, conditions=conditions, folder=tmp_path, checkpoint_every=1
        )
        c, mean = control_variates(run.folder)
        assert torch.allclose(c, mean, atol=1e-6)
        refused += "NaN in the update" in run.rows[-1]["left_out"].values()
    assert c.norm() > 0.1
    assert refused > 0 or not broken


# ------------------------------------------------------------------------------------------------------------------ buffers


def test_buffers_are_averaged_by_samples_and_never_masked() -> None:
    """BatchNorm's statistics after one round against the clients' own, worked out with plain modules."""
    fed = blobs(clients=3, unseen=0)
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4))
    run = accord.fit(module, fed, accord.fedavg(mask=accord.and_mask(1.0)), rounds=1, sample=None, batch=None)
    expected, weight = torch.zeros(6), 0
    for rows in fed.train.values():
        norm = nn.BatchNorm1d(6)
        norm(fed.x[rows])
        expected += len(rows) * norm.running_mean
        weight += len(rows)
    trained = run.model()
    assert torch.allclose(trained[0].running_mean, expected / weight, atol=1e-6)
    assert trained[0].num_batches_tracked.item() == 1
    assert module[0].num_batches_tracked.item() == 0


def test_models_that_draw_at_random_are_reproducible() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = mlp(), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.drop(x) + (0.1 * torch.randn_like(x) if self.training else 0.0))

    a, b = (accord.fit(Noisy(), blobs(), rounds=3, sample=4) for _ in range(2))
    assert torch.equal(a.last.vector, b.last.vector)
    assert not torch.equal(a.last.vector, train(rounds=3, sample=4).last.vector)


# ---------------------------------------------------------------------------------------------------------- own loss, metrics


def test_own_loss_and_metrics() -> None:
    fed = blobs()
    top2 = lambda output, target: (output.topk(2).indices == target[:, None]).any(1).float()  # noqa: E731
    run = train(metrics={"top2": top2}, loss=lambda output, target: F.cross_entropy(output, target, reduction="none", label_smoothing=0.1))
    assert set(run.history[-1][1]["splits"]["train"]) == {"clients", "samples", "loss", "top2"}
    rows = torch.cat(list(fed.unseen.values()))
    assert top2(run.model()(fed.x[rows]), fed.y[rows]).mean().item() == pytest.approx(run.select("last10").values["unseen"], abs=0.2)


def test_regression_is_judged_by_its_loss() -> None:
    fed = blobs()
    numbers = Federation(fed.x, fed.x[:, 0] * 2 - 1, fed.train, fed.heldout, fed.unseen, name="numbers")
    run = accord.fit(nn.Linear(6, 1), numbers, rounds=30, sample=5, lr=0.05)
    assert run.history[-1][1]["splits"]["unseen"]["loss"]["by_sample"] < 0.1 * run.history[0][1]["splits"]["unseen"]["loss"]["by_sample"]
    assert run.select("held-out").rounds == [max(r for r, e in run.history)]


def test_a_loss_that_averages_is_refused() -> None:
    with pytest.raises(AccordError, match=r"one number per sample, shape \[2\], got shape \[\]: use reduction='none'"):
        train(loss=F.cross_entropy)


def test_a_model_that_does_not_fit_the_data_is_refused() -> None:
    with pytest.raises(AccordError, match=r"cannot read samples of shape \(6,\)"):
        accord.fit(nn.Linear(5, 4), blobs(), rounds=1)
    with pytest.raises(AccordError, match="the loss cannot take outputs of shape"):
        accord.fit(nn.Linear(6, 2), blobs(), rounds=1)


def test_a_client_that_cannot_train_is_named() -> None:
    fed = blobs(clients=3, unseen=0)
    one = Federation(fed.x, fed.y, {**fed.train, "tiny": fed.train["c00"][:1]}, name="blobs")
    with pytest.raises(AccordError, match="client tiny could not train in round 1: Expected more than 1 value per channel"):
        accord.fit(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), one, rounds=1, sample=None)


# -------------------------------------------------------------------------------------------------------------- the run object


def test_hooks_see_every_round_and_can_stop() -> None:
    seen = []

    def hook(event) -> bool:
        seen.append((event.round, event.snapshot()[0].weight.norm().item()))
        return event.round == 3

    run = train(rounds=10, hooks=[hook])
    assert [number for number, _ in seen] == [1, 2, 3] and run.rounds == 3
    assert run.stopped == "stopped by a hook"
    assert len({norm for _, norm in seen}) == 3


def test_a_spent_budget_stops_the_run() -> None:
    run = train(rounds=1000, budget=1e-9)
    assert run.rounds == 1 and "budget" in run.stopped


def test_agreement_is_told_overall_and_by_layer() -> None:
    row = train(accord.fedavg(mask=accord.gma(0.4))).rows[0]
    assert set(row["agreement_by_layer"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert 0 < row["agreement"] < 1 and 0 < row["below_tau"] < 1
    assert row["step_norm"] < row["update_norm"]
    sizes = {"0.weight": 48, "0.bias": 8, "2.weight": 32, "2.bias": 4}
    assert row["agreement"] == pytest.approx(sum(sizes[n] * a for n, a in row["agreement_by_layer"].items()) / 92, abs=1e-6)
    assert "agreement" not in train().rows[0]


def test_the_best_held_out_model_is_kept() -> None:
    run = train(rounds=20, evaluate_every=1, lr=0.2)
    assert run.best.round == run.select("held-out").rounds[0]
    fed = blobs()
    rows = torch.cat(list(fed.heldout.values()))
    accuracy = (run.model("held-out")(fed.x[rows]).argmax(1) == fed.y[rows]).float().mean().item()
    assert accuracy == pytest.approx(run.select("held-out").values["heldout"])


def test_pooled_sees_as_many_samples_as_a_cohort() -> None:
    pooled, federated = train(accord.pooled()), train()
    assert [r["samples"] for r in pooled.rows] == [r["samples"] for r in federated.rows]


def test_local_only_keeps_every_clients_own_model() -> None:
    run = train(accord.local_only(), rounds=30, lr=0.05)
    alone = accord.fit(mlp(), blobs(), accord.local_only(), rounds=30, sample=5, lr=0.05)
    assert run.history[-1][1]["splits"]["train"]["accuracy"] == alone.history[-1][1]["splits"]["train"]["accuracy"]
    with pytest.raises(AccordError, match="no common model"):
        run.model()


def test_plot_and_save(tmp_path) -> None:
    run = train()
    run.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(AccordError, match="which must be 'last' or 'held-out', got 'best'"):
        run.model("best")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sample": 13}, "sample must be at most the 12 participating clients, got 13"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"sample": 0}, "sample must be a whole number of at least 1, got 0"),
        ({"evaluate_every": 0}, "evaluate_every must be"),
        ({"min_clients": 0}, "min_clients must be"),
        ({"budget": 0.0}, "budget must be a number of seconds above 0"),
        ({"engine": "quick"}, "no engine 'quick': choose one of auto, sequential"),
        ({"device": "tpu7"}, "no device 'tpu7'"),
        ({"device": "meta"}, "runs on cpu and cuda, got device 'meta'"),
    ],
)
def test_bad_settings_are_a_sentence(settings: dict, says: str) -> None:
    with pytest.raises(AccordError, match=says):
        train(**settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_cuda_is_a_sentence() -> None:
    with pytest.raises(AccordError, match="sees no CUDA device"):
        train(device="cuda")


def test_a_federation_without_training_data_is_refused() -> None:
    fed = blobs()
    with pytest.raises(AccordError, match="no participating clients"):
        train(fed=Federation(fed.x, fed.y, {}))
    with pytest.raises(AccordError, match="no participating client has any training data"):
        train(fed=Federation(fed.x, fed.y, {"a": torch.zeros(0, dtype=torch.int64)}), sample=1)
