"""Membership inference: the figures against hand-worked curves, the attackers against closed forms, and real models."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

import accord
from accord.audit.membership import attack, candidates, confidence, likelihood_ratio, outputs, regressed, shadowed
from accord.audit.roc import auc, best_threshold, judged, true_positives
from accord.data import Federation
from command import run_command
from conftest import blobs, mlp, sentence

# ------------------------------------------------------------------------------------------------ the figures


def test_a_curve_worked_by_hand() -> None:
    """Members 4 3 1, others 3 2 0 0. Pairs won: 4 beats all 4, 3 beats 3 and ties 1, 1 beats 2: (4 + 3.5 + 2) / 12.
    Without a false alarm only the 4 is found; with one of four, the threshold falls to 2 and the 3 is found too; with
    two, to 0, and all are."""
    members, others = np.array([4.0, 3.0, 1.0]), np.array([3.0, 2.0, 0.0, 0.0])
    assert auc(members, others) == pytest.approx(9.5 / 12)
    found = [true_positives(members, others, rate) for rate in (0.0, 0.24, 0.25, 0.5, 0.99, 1.0)]
    assert found == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1.0, 1.0, 1.0])


def test_figures_against_scikit_learn_and_a_plain_count() -> None:
    generator = np.random.default_rng(0)
    # with many ties
    members, others = np.round(generator.normal(0.5, 1, 400), 1), np.round(generator.normal(0, 1, 500), 1)
    assert auc(members, others) == pytest.approx(
        roc_auc_score([1] * 400 + [0] * 500, np.concatenate([members, others]))
    )
    for rate in (0.0, 0.01, 0.1, 0.5):
        allowed = [(members > t).mean() for t in np.unique(others) if (others > t).mean() <= rate]
        assert true_positives(members, others, rate) == max(allowed)


def test_the_threshold_is_the_best_one() -> None:
    generator = np.random.default_rng(1)
    scores, member = np.round(generator.normal(size=300), 1), generator.random(300) < 0.5
    scores[member] += 0.7

    def balanced(threshold: float) -> float:
        return float((scores[member] > threshold).mean() + (scores[~member] <= threshold).mean())

    assert balanced(best_threshold(scores, member)) == max(balanced(t) for t in np.arange(-5, 5, 0.05))


def test_only_samples_that_the_attacker_was_not_told_of_count() -> None:
    scores = np.array([9.0, 9.0, 0.0, 0.0, 1.0, 9.0, 0.0, 1.0])  # told: members 9, others 0, so the threshold is 4.5
    member = np.array([True, True, False, False] * 2)[[0, 1, 2, 3, 0, 1, 2, 3]]
    known = np.arange(8) < 4
    found = judged("it", scores, member, known)
    assert (found.accuracy, found.auc, found.members, found.nonmembers) == (0.75, (1 + 1 + 1 + 0.5) / 4, 2, 2)
    assert found.tpr == 0.5 and found.note is not None and "2 non-members are too few for a rate of 0.1 %" in found.note
    many = judged("it", np.arange(4000.0), np.arange(4000) < 2000, np.arange(4000) % 2 == 0)
    assert many.note is None and many.nonmembers == 1000
    with sentence("the attack by it gives scores that are not finite"):
        judged("it", np.array([1.0, math.nan]), np.array([True, False]), np.array([True, True]))


# ---------------------------------------------------------------------------------------------- the attackers


def test_the_regression_is_scikit_learns() -> None:
    generator = np.random.default_rng(0)
    x, member = generator.normal(size=(600, 5)) * [1, 10, 0.1, 3, 1] + 2, np.arange(600) < 300
    x[member] += [0.5, 0, 0.1, -1, 0]
    known = generator.random(600) < 0.5
    theirs = LogisticRegression(C=np.inf, tol=1e-9, max_iter=5000).fit(x[known], member[known]).decision_function(x)
    assert np.allclose(regressed(x, member, known, 5000), theirs, atol=1e-3)


def test_confidence_is_the_log_odds_of_the_right_class() -> None:
    logits, labels = torch.randn(50, 4, dtype=torch.float64), torch.randint(0, 4, (50,))
    p = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    assert np.allclose(confidence(logits, labels), (p / (1 - p)).log().numpy())
    huge = confidence(torch.tensor([[800.0, 0.0]], dtype=torch.float64), torch.tensor([0]))
    assert huge == pytest.approx([800.0]), "where p itself would round to 1"


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("shadows", [8, 128])
def test_the_likelihood_ratio_reaches_the_best_there_is(online: bool, shadows: int) -> None:
    """Confidences are normal around 1.5 for models that saw a sample and around 0 for others, plus what is particular
    to the sample. The best possible AUC is Phi(1.5 / sqrt 2) = 0.856; estimated means cost a little, and a threshold on
    the confidence itself is far worse."""
    generator = np.random.default_rng(0)
    size = 4000
    hard, member = 5 * generator.normal(size=size), np.arange(size) < size // 2
    inside = generator.random((shadows, size)).argsort(0) < shadows // 2
    values = hard + 1.5 * inside + generator.normal(size=(shadows, size))
    target = hard + 1.5 * member + generator.normal(size=size)
    best, cost = 0.8556, 0.03 + 0.3 / shadows
    scores = likelihood_ratio(target, values, inside, online)
    assert best - cost < auc(scores[member], scores[~member]) < best + 0.02
    assert auc(target[member], target[~member]) < 0.65


def test_the_ratio_worked_by_hand() -> None:
    """Shadows that saw the sample say 2 and 4, the others 0 and 2: means 3 and 1, variance 2 for both. At 3 the
    log-ratio is ((3 - 1)^2 - 0) / (2 * 2) = 1, and 3 lies sqrt 2 deviations above 1."""
    shadows, inside = np.array([[2.0], [4.0], [0.0], [2.0]]), np.array([[True], [True], [False], [False]])
    assert likelihood_ratio(np.array([3.0]), shadows, inside) == pytest.approx([1.0])
    assert likelihood_ratio(np.array([3.0]), shadows, inside, online=False) == pytest.approx([math.sqrt(2.0)])


# ------------------------------------------------------------------------------------------------ real models


def memorised(clients: int = 4, samples: int = 100, seed: int = 0) -> Federation:
    """Labels by chance: whatever a model knows about them it has by heart."""
    generator = torch.Generator().manual_seed(seed)
    arrays = {
        f"c{k}": (torch.randn(samples, 20, generator=generator), torch.randint(0, 3, (samples,), generator=generator))
        for k in range(clients)
    }
    return accord.data.from_arrays(arrays, heldout=0.5, seed=seed, name="chance")


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 3))


def trained(fed: Federation, seed: int) -> nn.Module:
    return accord.fit(
        network(seed), fed, rounds=6, epochs=10, lr=0.1, seed=seed, engine="sequential", evaluate_every=6
    ).model()


def test_an_overfitted_model_gives_its_members_away() -> None:
    fed = memorised()
    found = attack(trained(fed, 0), fed, shadows=8, train=trained, steps=500)
    by_name = {a.name: a for a in found.attacks}
    assert list(by_name) == ["logits", "loss", "likelihood ratio, online"] and found.against == "heldout"
    for name in ("loss", "likelihood ratio, online"):
        assert by_name[name].accuracy > 0.7 and by_name[name].auc > 0.8, name
    assert by_name["logits"].nonmembers == 100
    assert "100 non-members are too few" in str(found) and "likelihood ratio, online" in str(found)


def test_a_model_that_never_saw_the_data_gives_nothing_away() -> None:
    fed = memorised()
    stranger = trained(memorised(seed=1), 0)
    for found in attack(stranger, fed, shadows=8, train=trained, steps=500).attacks:
        # four standard errors of an AUC by chance
        assert abs(found.auc - 0.5) < 4 * math.sqrt(201 / (12 * 100 * 100)), found
        assert abs(found.accuracy - 0.5) < 4 * math.sqrt(0.25 / 200), found


def test_every_sample_is_in_half_of_the_shadows_and_confidences_are_theirs() -> None:
    fed = memorised(clients=2, samples=40)
    seen: list[Federation] = []

    def train(half: Federation, seed: int) -> nn.Module:
        seen.append(half)
        return network(seed)

    chosen = candidates(fed, "heldout", seed=0)
    assert chosen.member.sum() == 40 and chosen.known[chosen.member].sum() == chosen.known[~chosen.member].sum() == 20
    inside, confidences = shadowed(fed, chosen, 6, train, 0, torch.device("cpu"))
    assert (inside.sum(0) == 3).all() and confidences.shape == (6, 80)
    for number, half in enumerate(seen):
        given = {client: set(rows.tolist()) for client, rows in half.train.items()}
        assert not half.heldout and not half.unseen and half.test is None
        for client, rows in given.items():
            assert rows <= {
                *fed.train[client].tolist(),
                *fed.heldout[client].tolist(),
            }, "a client trains on what is its own"
        everything = set().union(*given.values())
        assert [row in everything for row in chosen.rows.tolist()] == inside[number].tolist()
    logits, labels = outputs(network(), fed, chosen.rows, torch.device("cpu"))
    assert torch.allclose(
        F.cross_entropy(logits, labels), F.cross_entropy(network()(fed.x[chosen.rows]).double(), fed.y[chosen.rows])
    )


def test_against_unseen_clients_the_ratio_is_offline() -> None:
    fed = blobs(clients=4, unseen=3)
    found = attack(mlp(), fed, against="unseen", shadows=4, train=lambda half, seed: mlp(seed=seed), steps=10)
    assert found.attacks[-1].name == "likelihood ratio, offline" and found.plain()["against"] == "unseen"
    assert attack(mlp(), fed, against="held-out", steps=1).against == "heldout"


def test_what_cannot_be_attacked() -> None:
    fed = blobs(clients=4, unseen=0)
    with sentence("against must be one of heldout for this data, got 'test'"):
        attack(mlp(), fed, against="test")
    with sentence("shadows must be 0, or at least 4 with a way to train them, got 2"):
        attack(mlp(), fed, shadows=2, train=trained)
    with sentence("shadows must be 0, or at least 4 with a way to train them, got 8"):
        attack(mlp(), fed, shadows=8)
    with sentence("steps must be a whole number of at least 1, got 0"):
        attack(mlp(), fed, steps=0)
    with sentence("the model must give a number for each of two or more classes, got outputs of shape [1]"):
        attack(mlp(classes=1), fed)
    everything = accord.data.from_arrays({"a": (torch.randn(9, 6), torch.zeros(9, dtype=torch.int64))}, heldout=0.0)
    with sentence("there is no data that the model was not trained on"):
        attack(mlp(), everything)
    numbers = accord.data.from_arrays({"a": (torch.randn(40, 6), torch.randn(40))}, heldout=0.5)
    with sentence("membership inference here is for class labels"):
        attack(mlp(), numbers)


# ------------------------------------------------------------------------------------------------ the command

EXPERIMENT = """\
[data]
name = "digits"
clients = 6
split = "iid"
[model]
name = "logistic"
[train]
rounds = 2
[algorithm]
name = "fedadam"
mask = "gma"
"""


def test_the_command_attacks_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(EXPERIMENT)
    assert run_command(tmp_path, "run", "my.toml").returncode == 0
    (folder,) = (tmp_path / "runs").glob("*-s0")
    told = run_command(tmp_path, "membership", str(folder), "--shadows", "4", "--steps", "200")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[0].split()[:3] == ["attack", "accuracy", "(%)"]
    assert (
        "likelihood ratio, online" in told.stdout and "shadow model 4 of 4" in told.stderr and "too few" in told.stdout
    )
    written = json.loads((folder / "membership.json").read_text())
    assert (written["against"], written["shadows"], written["model"]) == ("heldout", 4, "last")
    assert [a["name"] for a in written["attacks"]] == ["logits", "loss", "likelihood ratio, online"]
    assert all(0.0 <= a[key] <= 1.0 for a in written["attacks"] for key in ("accuracy", "auc", "tpr"))
    as_json = run_command(tmp_path, "membership", str(folder), "--against", "test", "--json")
    assert json.loads(as_json.stdout) == json.loads((folder / "membership.json").read_text())
    for words, sentence_ in [
        (["--against", "nobody"], "against must be one of heldout, test for this data, got 'nobody'"),
        (["--which", "best"], "which must be 'last' or 'held-out', got 'best'"),
    ]:
        refused = run_command(tmp_path, "membership", str(folder), *words)
        assert (
            (refused.returncode, refused.stdout) == (2, "")
            and sentence_ in refused.stderr
            and "Traceback" not in refused.stderr
        )


def test_the_command_refuses_what_it_cannot_rebuild(tmp_path: Path) -> None:
    from accord.cli.membership import membership

    run = accord.fit(mlp(), blobs(), rounds=1, folder=tmp_path)
    assert run.folder is not None
    with sentence("holds a run made in Python", "use accord.audit.attack there"):
        membership(run.folder)
    with sentence("experiment.json is missing: this is not a run folder"):
        membership(tmp_path)
    settings = {"label": "fedavg", "seed": 0, "data": {"name": "digits"}, "model": {"name": "logistic"}}
    (tmp_path / "experiment.json").write_text(json.dumps(settings))
    with sentence("preparation.json"):
        membership(tmp_path)


def test_the_command_attacks_no_run_that_is_not_done(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(EXPERIMENT + "[run]\nbudget = 1e-9\n")
    assert run_command(tmp_path, "run", "my.toml").returncode == 0
    (folder,) = (tmp_path / "runs").glob("*-s0")
    refused = run_command(tmp_path, "membership", str(folder))
    assert refused.returncode == 2 and "is not done" in refused.stderr
