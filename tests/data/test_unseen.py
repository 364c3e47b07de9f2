"""Clients that are unseen by name, in every kind of data that names its clients."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.data import Federation, leave_out
from accord.data.federated import AsIs
from conftest import blobs, sentence

SITES = ("east", "north", "south", "west")


def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and clients: 40 rows of four sites, which differ in scale."""
    draws = np.random.default_rng(0)
    client = np.array([SITES[n % 4] for n in range(40)])
    scale = np.array([1.0 + SITES.index(name) for name in client])
    return (draws.normal(size=(40, 3)) * scale[:, None]).astype(np.float32), np.arange(40) // 4 % 2, client


def table(folder: Path) -> Callable[..., Federation]:
    x, y, client = samples()
    with (folder / "sites.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "a", "b", "c", "ill"])
        rows.writerows([name, *numbers, label] for name, numbers, label in zip(client, x, y, strict=True))
    return lambda **more: accord.data.table(source=folder / "sites.csv", client="site", label="ill", **more)


def arrays(folder: Path) -> Callable[..., Federation]:
    x, y, client = samples()
    np.savez(folder / "sites.npz", x=x, y=y, client=client)
    return lambda **more: accord.data.arrays(source=folder / "sites.npz", **more)


def pictures(folder: Path) -> Callable[..., Federation]:
    image = pytest.importorskip("PIL.Image")
    x, y, client = samples()
    for number, (pixels, label, name) in enumerate(zip(x, y, client, strict=True)):
        place = folder / "sites" / name / f"class-{label}" / f"{number:02d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((4, 4), 100 + 20 * pixels[0], dtype=np.float32).clip(0, 255).astype(np.uint8)).save(
            place
        )
    return lambda **more: accord.data.folder(source=folder / "sites", channels=1, **more)


def dataset() -> Any:
    x, y, client = samples()
    columns = {"site": client.tolist(), "a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "label": y.tolist()}
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


def huggingface(folder: Path) -> Callable[..., Federation]:
    return lambda **more: accord.data.from_huggingface(dataset(), "site", **more)


def saved(folder: Path) -> Callable[..., Federation]:
    dataset().save_to_disk(str(folder / "sites"))
    return lambda **more: accord.data.huggingface(source=folder / "sites", client="site", **more)


@pytest.mark.parametrize("kind", [table, arrays, pictures, huggingface, saved])
def test_clients_are_unseen_by_name_and_left_out_of_a_federation_alike(
    kind: Callable[[Path], Callable[..., Federation]], tmp_path: Path
) -> None:
    make = kind(tmp_path)
    named, whole = make(unseen=["north", "east"]), make()
    assert named.clients == ["south", "west"] and list(named.unseen) == ["east", "north"]
    assert whole.clients == list(SITES) and not whole.unseen
    taken = leave_out(whole, ["north", "east"])
    for split in ("train", "heldout", "unseen"):
        ours, theirs = getattr(taken, split), getattr(named, split)
        assert list(ours) == list(theirs) and all(torch.equal(ours[client], theirs[client]) for client in ours)
    assert taken.prepare == named.prepare != whole.prepare, "means and spreads are those of who is left"
    with sentence("unseen names client 'nort', which is not among the 4 clients of ", "did you mean 'north'?"):
        make(unseen=["nort"])
    with sentence("unseen names all 4 clients of ", " and leaves nobody to train"):
        make(unseen=list(SITES))


def test_what_was_not_fitted_stays_as_it_is() -> None:
    fed = blobs(unseen=0)
    assert leave_out(fed, "c03").prepare == AsIs()
    known = accord.data.Standardise((0.0,) * 6, (2.0,) * 6)
    assert (
        leave_out(accord.data.from_samples(fed.x, fed.y, np.arange(len(fed.y)) % 3, prepare=known), "1").prepare
        == known
    )


def test_names_mean_nothing_where_clients_are_made_up() -> None:
    with sentence("unseen names clients, got ['north'], and those of split 'iid' are made up: give a number"):
        accord.data.digits(clients=4, unseen=["north"])


def test_as_many_of_the_others_participate_as_are_asked_for(tmp_path: Path) -> None:
    fed = table(tmp_path)(unseen="south", clients=2, seed=1)
    assert list(fed.unseen) == ["south"] and len(fed.clients) == 2
    with sentence("clients must be at most 3, got 4"):
        table(tmp_path)(unseen=["south"], clients=4)
    with sentence("unseen names client 'each'", "accord.leave_one_out leaves out each of them in turn"):
        table(tmp_path)(unseen="each")


def test_a_saved_dataset_is_read_as_it_is_in_python(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = dataset()
    datasets.DatasetDict({"train": rows, "test": rows.select(range(8))}).save_to_disk(str(tmp_path / "both"))
    ours = accord.data.huggingface(source=tmp_path / "both", client="site", seed=3)
    theirs = accord.data.from_huggingface(rows, "site", test=rows.select(range(8)), seed=3)
    assert torch.equal(ours.x, theirs.x) and torch.equal(ours.y, theirs.y) and ours.prepare == theirs.prepare
    assert ours.test is not None and torch.equal(ours.test, theirs.test)
    assert all(torch.equal(ours.train[client], theirs.train[client]) for client in SITES)
    with sentence("is no dataset that save_to_disk wrote"):
        accord.data.huggingface(source=tmp_path, client="site")
    with sentence("the data has no column hospital: its columns are site, a, b, label"):
        accord.data.huggingface(source=tmp_path / "both", client="hospital")
    datasets.DatasetDict({"valid": rows}).save_to_disk(str(tmp_path / "other"))
    with sentence("has no split train: its splits are valid"):
        accord.data.huggingface(source=tmp_path / "other", client="site")
