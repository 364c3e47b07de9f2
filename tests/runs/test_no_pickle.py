"""No pickle is read, wherever a file of tensors or arrays is: reading one may run code."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord import AccordError
from accord.data.readers.npz import read_npz
from conftest import blobs, mlp, without_checksums


class Harm:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def fit(folder: Path, **more: Any) -> accord.Run:
    return accord.fit(mlp(), blobs(), rounds=2, sample=3, folder=folder, checkpoint_every=1, verbose=False, **more)


def harmful(file: Path, harm: Harm) -> None:
    """A file as torch.save writes it."""
    torch.save({**mlp().state_dict(), "harm": harm}, file)


def from_npz(folder: Path, harm: Harm) -> None:
    np.savez(folder / "data.npz", x=np.array([[harm]], dtype=object), y=np.zeros(1, dtype=np.int64))
    read_npz(folder / "data.npz")


def from_start(folder: Path, harm: Harm) -> None:
    harmful(folder / "start.safetensors", harm)
    fit(folder / "runs", start=folder / "start.safetensors")


def from_model(folder: Path, harm: Harm) -> None:
    run = fit(folder / "runs")
    without_checksums(run.folder)
    harmful(run.folder / "model.safetensors", harm)
    accord.load(run.folder, mlp())


def from_checkpoint(folder: Path, harm: Harm) -> None:
    run = fit(folder / "runs", hooks=[lambda event: event.round == 1])
    without_checksums(run.folder)
    harmful(next(run.folder.glob("checkpoint-*")), harm)
    fit(folder / "runs")


@pytest.mark.parametrize("read", [from_npz, from_start, from_model, from_checkpoint])
def test_a_pickle_is_refused_and_runs_no_code(read: Callable[[Path, Harm], None], tmp_path: Path) -> None:
    harm = Harm(tmp_path / "harm")
    with pytest.raises(AccordError):
        read(tmp_path, harm)
    assert not harm.folder.exists()
    harmful(tmp_path / "file", harm)
    torch.load(tmp_path / "file", weights_only=False)
    assert harm.folder.exists(), "it would have"
