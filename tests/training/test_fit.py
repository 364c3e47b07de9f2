"""`fit` as a user meets it: invariants of training, baselines, faults, hooks, evaluation."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import AccordError, Conditions
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.round import Round
from accord.data import Federation
from accord.experiments.parts import ALGORITHMS
from accord.training.loop import SkippedRound
from accord.training.server_step import checks_of
from conftest import Point, blobs, cost, mlp, quadratics, sentence, slow


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


# --------------------------------------------------------------------------------------------- faulty clients


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
    small = Federation(
        fed.x, fed.y, without, {c: r for c, r in fed.heldout.items() if c != "c03"}, fed.unseen, name=fed.name
    )
    broken = train(accord.fedavg(mask=accord.gma()), fed=with_client(fed, "c03", float("nan")), sample=None, rounds=1)
    assert torch.allclose(
        broken.last.vector,
        train(accord.fedavg(mask=accord.gma()), fed=small, sample=None, rounds=1).last.vector,
        atol=1e-6,
    )


def test_a_client_without_samples_is_left_out() -> None:
    fed = blobs()
    empty = Federation(
        fed.x, fed.y, {**fed.train, "none": torch.zeros(0, dtype=torch.int64)}, fed.heldout, fed.unseen, name=fed.name
    )
    run = train(fed=empty, sample=None)
    assert run.rows[0]["left_out"] == {"none": "no samples"}


def test_a_round_with_too_few_reports_is_skipped_and_never_applied() -> None:
    with pytest.warns(SkippedRound):
        run = train(conditions=Conditions(lost=0.5), min_clients=4, rounds=12, evaluate_every=12)
    skipped = [row for row in run.rows if "skipped" in row]
    assert skipped and len(skipped) < 12
    assert all(row["accepted"] < 4 and "update_norm" not in row for row in skipped)
    with pytest.warns(SkippedRound, match="round 1 was skipped: 0 of the 1 reports it needs"):
        nothing = train(conditions=Conditions(lost=1.0), rounds=1)
    assert torch.equal(nothing.last.vector, torch.nn.utils.parameters_to_vector(mlp().parameters()))
    assert nothing.rows[0]["skipped"] == "0 of the 1 reports it needs"


def test_stragglers_take_fewer_steps_but_at_least_one() -> None:
    run = train(conditions=Conditions(stragglers=1.0, least=0.0), epochs=20, batch=8, rounds=6)
    whole = train(epochs=20, batch=8, rounds=6)
    assert all(0 < slow["steps"] < full["steps"] for slow, full in zip(run.rows, whole.rows, strict=True))
    one_batch = train(conditions=Conditions(stragglers=1.0, least=0.0), batch=None)
    assert all(row["steps"] == 5 for row in one_batch.rows)


def test_what_a_client_would_remember_is_checked_too() -> None:
    """Option I's gradient may meet a sample that the steps did not: the client's c would be NaN though its update is
    not."""
    fed = blobs()
    x = fed.x.clone()
    x[fed.train["c01"][0]] = float("nan")
    broken = Federation(x, fed.y, fed.train, fed.heldout, fed.unseen, name=fed.name)
    run = train(accord.scaffold("I"), fed=broken, sample=None, batch=4, steps=1, momentum=0.0)
    reasons = [row["left_out"].get("c01") for row in run.rows]
    assert "NaN or infinity in what the client would remember" in reasons
    assert run.rows[-1]["accepted"] == 11 and run.last.vector.isfinite().all()


def test_scaffold_outlives_the_end_of_a_schedule() -> None:
    cosine = accord.schedule.cosine(0.1, over=2)
    run = train(accord.scaffold("II"), lr=cosine, momentum=0.0, rounds=6, sample=None)
    assert [row["accepted"] for row in run.rows] == [12] * 6


@pytest.mark.parametrize("algorithm", [accord.fedadam(), accord.fedyogi(), accord.fedadagrad()])
def test_a_huge_update_cannot_freeze_a_coordinate(algorithm) -> None:
    """Its square is infinite: kept in v, it would make every later step zero."""
    fed = quadratics((1.0, 1e200), (1.0, 1.0), (1.0, 2.0))
    with pytest.warns(SkippedRound, match="not finite"):
        run = accord.fit(
            Point(), fed, algorithm, rounds=12, sample=1, epochs=1, batch=1, loss=cost, metrics={}, momentum=0.0
        )
    skipped = [row["round"] for row in run.rows if "skipped" in row]
    assert 0 < len(skipped) < 12
    assert 0 < run.model().x.item() < 3


def test_the_buffers_are_checked() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.register_buffer("largest", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.largest.copy_(x.max() * 1e30 * 1e30 if x.max() > 50 else x.max())
            return self.inner(x)

    fed = blobs()
    x = fed.x.clone()
    x[fed.train["c01"][0], 0] = 60.0
    run = accord.fit(Counter(), Federation(x, fed.y, fed.train, name="blobs"), rounds=1, sample=None, batch=None)
    assert run.rows[0]["left_out"] == {"c01": "NaN or infinity in the buffers"}


@pytest.mark.filterwarnings("ignore::accord.training.loop.SkippedRound")
def test_a_model_that_diverges_is_told_not_crashed_over() -> None:
    run = accord.fit(
        nn.Linear(6, 1),
        Federation(blobs().x * 1e19, blobs().x[:, 0], blobs().train, blobs().heldout),
        rounds=3,
        sample=None,
    )
    assert run.history[-1][1]["splits"]["heldout"]["loss"]["by_sample"] is None
    assert run.best is None and "-" in str(run)


# ------------------------------------------------------------------------------------------- control variates


def control_variates(run_folder, clients: int = 12) -> tuple[Tensor, Tensor]:
    """c, and the mean over ALL clients of their c_n, read from the run's folder."""
    from safetensors.torch import load_file

    c = load_file(next(run_folder.glob("checkpoint-*.safetensors")))["memory.local.c"]
    own = [load_file(file)["c"] for file in (run_folder / "clients").glob("*.safetensors")]
    return c, torch.stack(own).sum(0) / clients


@pytest.mark.parametrize("option", ["mean", slow("I"), "II"])
@pytest.mark.parametrize("lost", [slow(0.0), 0.3])
@pytest.mark.parametrize("broken", [False, True])
def test_c_is_the_mean_of_all_c_n_every_round(tmp_path, option: str, lost: float, broken: bool) -> None:
    fed = blobs()
    # one client in four has a bad sample, which a straggler may not come to: its reports are refused now and then
    if broken:
        x = fed.x.clone()
        for client in fed.clients[::4]:
            x[fed.train[client][:1]] = float("nan")
        fed = Federation(x, fed.y, fed.train, fed.heldout, fed.unseen, name=fed.name)
    conditions = Conditions(lost=lost, stragglers=0.7, least=0.0)
    refused = 0
    for rounds in range(1, 9):
        settings = {"batch": 4, "momentum": 0.0, "conditions": conditions, "folder": tmp_path, "checkpoint_every": 1}
        run = train(accord.scaffold(option, mask=accord.gma()), fed, rounds=rounds, **settings)
        c, mean = control_variates(run.folder)
        assert torch.allclose(c, mean, atol=1e-6)
        refused += any("NaN" in why for why in run.rows[-1]["left_out"].values())
    assert c.norm() > 0.1
    assert refused > 0 or not broken


def test_a_skipped_round_changes_no_control_variate(tmp_path) -> None:
    """Two clients of three reported, and three must: what these would remember does not count."""
    fed = blobs(clients=3, unseen=0)
    settings = {"rounds": 8, "sample": None, "min_clients": 3, "conditions": Conditions(lost=0.2)}
    with pytest.warns(SkippedRound):
        run = train(accord.scaffold(), fed, folder=tmp_path, checkpoint_every=1, **settings)
    skipped = [row["accepted"] for row in run.rows if "skipped" in row]
    assert max(skipped) > 0 and len(skipped) < len(run.rows)
    c, mean = control_variates(run.folder, clients=3)
    assert c.norm() > 0.0 and torch.allclose(c, mean, atol=1e-6)


# ---------------------------------------------------------------------------------------------------- buffers


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


def test_flags_do_not_leak_from_client_to_client() -> None:
    class Flagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.register_buffer("seen", torch.tensor(False))

        def forward(self, x: Tensor) -> Tensor:
            out = self.inner(x) * (2.0 if self.seen else 1.0)
            if self.training:
                self.seen.fill_(True)
            return out

    fed = blobs(clients=2, unseen=0)
    both = accord.fit(Flagged(), fed, rounds=1, sample=None, batch=None, epochs=2)
    swapped = Federation(fed.x, fed.y, dict(reversed(fed.train.items())), name="blobs")
    assert torch.allclose(
        both.last.vector,
        accord.fit(Flagged(), swapped, rounds=1, sample=None, batch=None, epochs=2).last.vector,
        atol=1e-6,
    )


def test_a_model_that_replaces_a_buffer_is_refused() -> None:
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.n = self.n + 1
            return self.inner(x)

    with pytest.raises(AccordError, match=r"replaces its buffer n instead of changing it in place: write self.n.copy_"):
        accord.fit(Replacing(), blobs(), rounds=1)


def test_models_that_cannot_be_laid_out_or_copied_are_refused() -> None:
    with pytest.raises(AccordError, match="parameters without a shape yet"):
        accord.fit(nn.LazyLinear(4), blobs(), rounds=1)


def test_models_that_draw_at_random_are_reproducible() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = mlp(), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.drop(x) + (0.1 * torch.randn_like(x) if self.training else 0.0))

    a, b = (accord.fit(Noisy(), blobs(), rounds=3, sample=4) for _ in range(2))
    assert torch.equal(a.last.vector, b.last.vector)


def test_evaluation_that_draws_at_random_is_reproducible_and_leaves_torch_alone() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(F.dropout(x + torch.randn_like(x), 0.3, training=True))

    state = torch.get_rng_state()
    a, b = (accord.fit(Noisy(), blobs(), rounds=2, sample=4) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert a.rows == b.rows


def test_dropout_trains_differently() -> None:
    dropping = accord.fit(nn.Sequential(nn.Dropout(0.5), *mlp()), blobs(), rounds=3, sample=4)
    assert not torch.equal(dropping.last.vector, train(rounds=3, sample=4).last.vector)


# ------------------------------------------------------------------------------------------ own loss, metrics


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (
            lambda output, target: output.mean(),
            r"metric m must give one number per sample, a tensor of shape \[2\], got shape \[\]",
        ),
        (lambda output, target: output, r"got shape \[2, 4\]"),
        (lambda output, target: 1.0, "got a float"),
        (lambda output, target: output.nothing(), "metric m cannot take outputs of shape"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused_before_training(metric, says: str) -> None:
    with pytest.raises(AccordError, match=says):
        train(metrics={"m": metric})


def test_metric_names_that_are_taken_are_refused() -> None:
    with pytest.raises(AccordError, match="a metric cannot be called 'samples'"):
        train(metrics={"samples": lambda output, target: target})


def test_a_metric_of_which_less_is_better_chooses_the_right_model() -> None:
    fed = blobs()
    numbers = Federation(fed.x, fed.x[:, 0] * 2 - 1, fed.train, fed.heldout, fed.unseen, name="numbers")
    error = lambda output, target: (output[:, 0] - target).abs()  # noqa: E731
    run = accord.fit(
        nn.Linear(6, 1),
        numbers,
        rounds=10,
        sample=5,
        lr=0.02,
        evaluate_every=1,
        metrics={"mae": accord.smaller_is_better(error)},
    )
    assert (
        run.history[-1][1]["splits"]["heldout"]["mae"]["by_sample"]
        < run.history[0][1]["splits"]["heldout"]["mae"]["by_sample"]
    )
    assert run.best.round == run.select("held-out").rounds[0] == 10


def test_own_loss_and_metrics() -> None:
    fed = blobs()
    top2 = lambda output, target: (output.topk(2).indices == target[:, None]).any(1).float()  # noqa: E731
    run = train(
        metrics={"top2": top2},
        loss=lambda output, target: F.cross_entropy(output, target, reduction="none", label_smoothing=0.1),
    )
    assert set(run.history[-1][1]["splits"]["train"]) == {"clients", "samples", "loss", "top2"}
    rows = torch.cat(list(fed.unseen.values()))
    assert top2(run.model()(fed.x[rows]), fed.y[rows]).mean().item() == pytest.approx(
        run.select("last10").values["unseen"], abs=0.2
    )


def test_regression_is_judged_by_its_loss() -> None:
    fed = blobs()
    numbers = Federation(fed.x, fed.x[:, 0] * 2 - 1, fed.train, fed.heldout, fed.unseen, name="numbers")
    run = accord.fit(nn.Linear(6, 1), numbers, rounds=30, sample=5, lr=0.05)
    assert (
        run.history[-1][1]["splits"]["unseen"]["loss"]["by_sample"]
        < 0.1 * run.history[0][1]["splits"]["unseen"]["loss"]["by_sample"]
    )
    assert run.select("held-out").rounds == [max(r for r, e in run.history)]


def test_a_loss_that_averages_is_refused() -> None:
    with pytest.raises(
        AccordError,
        match=r"loss must give one number per sample, a tensor of shape \[2\], got shape \[\]: use reduction='none'",
    ):
        train(loss=lambda output, target: F.cross_entropy(output, target))


def test_a_model_that_does_not_fit_the_data_is_refused() -> None:
    with pytest.raises(AccordError, match=r"cannot read samples of shape \(6,\)"):
        accord.fit(nn.Linear(5, 4), blobs(), rounds=1)
    with pytest.raises(AccordError, match="the model has 2 outputs, .*, but client c00 has label"):
        accord.fit(nn.Linear(6, 2), blobs(), rounds=1)
    with pytest.raises(AccordError, match="the loss cannot take outputs of shape"):
        accord.fit(nn.Linear(6, 2), blobs(), rounds=1, loss=lambda output, target: F.nll_loss(output, target))


def test_batchnorm_never_meets_a_batch_of_one() -> None:
    """A rest of one sample joins the batch before it; a client with one sample is left out and named."""
    fed = blobs(clients=3, unseen=0)
    ragged = Federation(
        fed.x, fed.y, {**fed.train, "nine": fed.train["c00"][:9], "tiny": fed.train["c01"][:1]}, name="blobs"
    )
    run = accord.fit(
        nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), ragged, accord.scaffold("I"), rounds=1, sample=None, batch=8
    )
    assert run.rows[0]["left_out"] == {"tiny": "1 sample, and the model needs 2 to train on"}
    without = accord.fit(mlp(), ragged, rounds=1, sample=None, batch=8)
    assert without.rows[0]["left_out"] == {}
    assert without.rows[0]["steps"] - run.rows[0]["steps"] == 2  # the ninth sample's own step, and the lone client's


@pytest.mark.parametrize("split", ["train", "unseen"])
def test_data_that_breaks_the_loss_names_the_client(split: str) -> None:
    fed = blobs()
    labels = fed.y.clone()
    labels[getattr(fed, split)["c02" if split == "train" else "c13"][-1]] = 7  # four classes
    broken = Federation(fed.x, labels, fed.train, fed.heldout, fed.unseen, name=fed.name)
    says = (
        "client c02 could not train in round 1: Target 7"
        if split == "train"
        else "evaluation failed at or soon after .*: Target 7"
    )
    with pytest.raises(AccordError, match=says):  # of a loss that accord does not know, and so cannot check ahead
        train(fed=broken, sample=None, loss=lambda output, target: F.cross_entropy(output, target, reduction="none"))


# --------------------------------------------------------------------------------------------- the run object


def test_who_was_left_out_is_printed() -> None:
    run = train(fed=with_client(blobs(), "c03", float("nan")), sample=None)
    assert "left out: c03 (NaN in the update, 4 rounds)" in str(run)
    assert "left out" not in str(train(conditions=Conditions(lost=0.2)))


def test_the_trained_model_is_ready_to_use() -> None:
    run = accord.fit(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), blobs(), rounds=1, sample=3)
    assert run.model()(torch.zeros(1, 6)).shape == (1, 4)  # in training mode BatchNorm would refuse a single sample


def test_a_loss_that_mixes_samples_is_refused() -> None:
    fed = blobs()
    numbers = Federation(fed.x, fed.x[:, 0], fed.train, fed.heldout, fed.unseen, name="numbers")
    with pytest.raises(
        AccordError, match=r"changes with the other samples .* shape \(2, 1\) and targets of shape \(2,\) broadcast"
    ):
        accord.fit(nn.Linear(6, 1), numbers, rounds=1, loss=lambda output, target: (output - target).square().mean(1))


def test_hooks_see_every_round_and_can_stop() -> None:
    seen = []

    def hook(event) -> bool:
        seen.append((event.round, event.snapshot()[0].weight.norm().item()))
        return event.round == 3

    run = train(rounds=10, hooks=[hook])
    assert [number for number, _ in seen] == [1, 2, 3] and run.rounds == 3
    assert train(rounds=3, hooks=[lambda event: event.round == 3]).stopped is None  # it had reached its rounds anyway
    assert run.stopped == "stopped by a hook"
    assert len({norm for _, norm in seen}) == 3


def test_a_spent_budget_stops_the_run() -> None:
    run = train(rounds=1000, budget=1e-9)
    assert run.rounds == 1 and "budget" in run.stopped


def test_agreement_of_a_large_layer_is_exact() -> None:
    """A sum in float32 over so many equal numbers would be off in the third digit."""
    layout, algorithm = Layout.flat(3_000_000), accord.fedavg(mask=accord.gma(1.0))
    votes = Record(votes=Field(torch.full((layout.size,), 8.0)), count=Field(torch.tensor([10.0])))
    ones = torch.ones(layout.size)
    seen = algorithm.mask.agreement(votes, {}, Round(1, layout, 10))
    [(sound, row)] = checks_of(ones, ones, [ones], seen, layout)()
    assert sound
    assert row["agreement"] == pytest.approx(0.8, rel=1e-6) and row["below_tau"] == 1.0


def test_agreement_is_told_overall_and_by_layer() -> None:
    row = train(accord.fedavg(mask=accord.gma(0.4))).rows[0]
    assert set(row["agreement_by_layer"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert 0 < row["agreement"] < 1 and 0 < row["below_tau"] < 1
    assert row["step_norm"] < row["update_norm"]
    sizes = {"0.weight": 48, "0.bias": 8, "2.weight": 32, "2.bias": 4}
    assert row["agreement"] == pytest.approx(
        sum(sizes[n] * a for n, a in row["agreement_by_layer"].items()) / 92, abs=1e-6
    )
    assert "agreement" not in train().rows[0]


def test_the_best_held_out_model_is_kept() -> None:
    run = train(rounds=20, evaluate_every=1, lr=0.2)
    assert run.best.round == run.select("held-out").rounds[0]
    fed = blobs()
    rows = torch.cat(list(fed.heldout.values()))
    accuracy = (run.model("held-out")(fed.x[rows]).argmax(1) == fed.y[rows]).float().mean().item()
    assert accuracy == pytest.approx(run.select("held-out").values["heldout"])


def test_min_clients_must_be_reachable_and_does_not_bind_pooled() -> None:
    with pytest.raises(AccordError, match="min_clients must be at most the 5 clients of a round, got 6"):
        train(min_clients=6)
    assert not any("skipped" in row for row in train(accord.pooled(), min_clients=3).rows)


def test_pooled_sees_as_many_samples_as_a_cohort() -> None:
    pooled, federated = train(accord.pooled()), train()
    assert [r["samples"] for r in pooled.rows] == [r["samples"] for r in federated.rows]


def test_local_only_keeps_every_clients_own_model() -> None:
    """A client that trains alone in a federation ends where it ends in a federation of its own."""
    fed = blobs()
    run = train(accord.local_only(), rounds=6, sample=None, lr=0.05)
    for client in ("c00", "c07"):
        own = Federation(fed.x, fed.y, {client: fed.train[client]}, {client: fed.heldout[client]}, name="one")
        single = accord.fit(mlp(), own, rounds=6, lr=0.05).history[-1][1]["splits"]["train"]["loss"]["by_sample"]
        mine = next(row for row in run.clients if row["client"] == client and row["split"] == "train")
        assert mine["loss"] == pytest.approx(single, rel=1e-5)
    with pytest.raises(AccordError, match="no common model"):
        run.model()


def test_plot_and_save(tmp_path) -> None:
    run = train()
    run.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(AccordError, match="which must be 'last' or 'held-out', got 'best'"):
        run.model("best")
    stopped = train(rounds=4, evaluate_every=4, hooks=[lambda event: event.round == 2])
    with sentence("there is nothing to plot: the run ended after round 2, before its first evaluation"):
        stopped.plot()


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
        ({"metrics": [1]}, "metrics must be names such as 'auc', or a dictionary of functions"),
        ({"momentum": "0.9"}, "momentum must be a number, got '0.9'"),
        ({"lr": "0.1"}, "lr must be a number or a schedule such as .* got '0.1'"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"algorithm": accord.fedavg}, "algorithm must be of type Algorithm, got <function fedavg"),
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


@pytest.mark.parametrize("norm", ["group", slow("batch")])
def test_a_resnet_trains_with_either_norm(norm: str) -> None:
    y = torch.arange(32) // 4 % 2
    x = torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(0)) + y[:, None, None, None]
    fed = accord.data.from_samples(x, y, torch.arange(32) % 4, unseen=1, heldout=0.25)
    run = accord.fit(
        accord.models.resnet18(size=16, classes=2, norm=norm), fed, accord.fedavg(), rounds=2, batch=3, momentum=0.0
    )
    losses = [row["train_loss"] for row in run.rows]
    assert losses[1] < losses[0] and all(row["accepted"] == 3 for row in run.rows)
    moved = {name: value for name, value in run.model().named_buffers() if name.endswith("running_mean")}
    assert bool(moved) == (norm == "batch") and all(value.abs().max() > 0 for value in moved.values())
