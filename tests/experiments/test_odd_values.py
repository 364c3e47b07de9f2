"""Values that no sound file or call has: one sentence each, and no traceback."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

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
        (f"[train]\nepochs = {10**30}\n", "train.epochs must be at most 1e+18 in size, got 1e+30"),
        (f"[train]\nepochs = {10**400}\n", "train.epochs must be at most 1e+18 in size, got 1000000000..."),
        ("[algorithm.server]\nname = 'adam'\neps = 1e30\n", "algorithm.server.eps must be at most 1e+18 in size"),
        ("[privacy]\nclip = 1\nnoise = 1\nvote_noise = 1e308\n", "privacy.vote_noise must be at most 1e+18 in size"),
        ('[run]\nfolder = "a\\u0000b"\n', "run.folder must be text without NUL characters, got 'a\\x00b'"),
        ("[data]\nsource = 'here'\nname = 'digits'\n", "data.source has no meaning with digits, got 'here'"),
    ],
)
def test_files_beyond_all_bounds_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(text if "[data]" in text else f'{text}[data]\nname = "digits"\n')
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


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: accord.fedadam(eps=1e30), "server.eps must be at most 1e+18 in size, got 1e+30"),
        (lambda: accord.data.digits(unseen=1.5), "unseen names clients, got 1.5"),
        (lambda: accord.data.from_arrays({"a": ([[0.0]], [0])}, unseen=1.5), "unseen must be a whole number or names"),
        (lambda: accord.data.digits(heldout=None), "heldout must be at least 0 and below 1, got None"),
        (lambda: accord.data.digits(source="here"), "source has no meaning with digits"),
        (lambda: accord.data.digits(split="dirichlet", alpha="x"), "alpha must be a number above 0, got 'x'"),
        (
            lambda: accord.fit(mlp(), blobs(), rounds=1, epochs=2**30, verbose=False),
            "epochs: 1,073,741,824 passes over",
        ),
    ],
)
def test_calls_beyond_all_bounds_are_refused(make: Callable[[], object], said: str) -> None:
    with sentence(said):
        make()


def test_a_parameter_of_no_elements_has_no_agreement() -> None:
    class WithNothing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.nothing = mlp(), nn.Parameter(torch.zeros(0))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.nothing.sum()

    run = accord.fit(WithNothing(), blobs(), accord.fedavg(mask=accord.gma(0.4)), rounds=1, verbose=False)
    assert "nothing" not in run.recorded[0].agreement_by_layer and len(run.recorded[0].agreement_by_layer) == 4


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    for name in ("my.toml", "rows.csv", "rows.npz"):
        os.mkfifo(tmp_path / name)
    for read_it in (read, accord.data.table, accord.data.arrays):
        name = {read: "my.toml", accord.data.table: "rows.csv"}.get(read_it, "rows.npz")
        with sentence(f"{tmp_path / name} is a pipe, a socket or a device"):
            read_it(tmp_path / name) if read_it is read else read_it(source=tmp_path / name)
