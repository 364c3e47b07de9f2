"""Values that no sound file or call has: one sentence each, and no traceback."""

from pathlib import Path

import pytest
import torch

import accord
from accord.core.record import Field, Record
from accord.experiments.experiment import read
from accord.rules.masks.votes import enough
from conftest import blobs, mlp, sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"[train]\nrounds = {'9' * 5000}\n", "is not valid TOML"),
        (f"[train]\nrounds = {'[' * 3000}{']' * 3000}\n", "nested too deeply"),
        (f"[train]\nepochs = {10**30}\n", "epochs must be at most 2,147,483,647, got 1e+30"),
    ],
)
def test_files_beyond_all_bounds_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(f'{text}[data]\nname = "digits"\n')
    with sentence(said):
        read(tmp_path / "my.toml", [])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"rounds": None}, "rounds must be a whole number"),
        ({"epochs": 10**30}, "epochs must be at most"),
        ({"conditions": "x"}, "conditions must be of type Conditions, got 'x'"),
        ({"speed": None}, "speed must be of type Sequence, got None"),
    ],
)
def test_options_of_another_kind_are_refused(option: dict[str, object], said: str) -> None:
    with sentence(said):
        accord.fit(mlp(), blobs(), verbose=False, **{"rounds": 1, **option})


def test_a_tau_next_to_nothing_asks_for_one_vote() -> None:
    total = Record(votes=Field(torch.tensor([[0.0, 1.0, -1.0]])), count=Field(torch.tensor([[10.0]])))
    assert enough(total, 1e-320).tolist() == [[False, True, True]]


def test_privacy_says_what_epsilon_covers_and_refuses_what_it_does_not() -> None:
    private = accord.fedavg(weighting="uniform").with_privacy(clip=1.0, noise=1.0, delta=0.5)
    with sentence("patience must be left out with privacy"):
        accord.fit(mlp(), blobs(), private, rounds=1, patience=1, verbose=False)
    (line,) = [line for line in private.privacy.sentences(False, 10, None, 1, 5) if "above" in line]
    assert "delta 0.5 is above 1 / 10 clients" in line
    assert "denominator of 4" in private.privacy.release_text(False, 4)
