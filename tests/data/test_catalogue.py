"""The data sets by name, from small files in the official form to trained clients; and the user's own files through an
experiment."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_cifar100 as cifar100
import test_femnist as femnist
import test_tinyimagenet as tiny
import test_tree as tree
import torch

import accord
from accord.core.layout import Layout
from accord.data import cache, sources
from accord.data.catalogue import get
from accord.data.recipes import CIFAR100
from accord.experiments.experiment import parse
from conftest import sentence


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and no other place to get data from than the one a test names."""
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    return tmp_path / "cache"


# ---------------------------------------------------------------------------------- sets in the official form


def leaf_folder(folder: Path, users: int = 6) -> Path:
    """Users with 3 digits and 3 letters each."""
    rows = [(byte, label) for byte, label in zip(range(6), (0, 1, 2, 10, 30, 61), strict=True)]
    femnist.leaf(folder / "all_data_0.json", **{f"f{number:04d}_00": femnist.user(*rows) for number in range(users)})
    return folder


def test_femnist_by_writer(tmp_path: Path, own_cache: Path) -> None:
    folder = leaf_folder(tmp_path / "leaf")
    fed = accord.data.femnist(source=folder, clients=4, heldout=0.2)
    assert (len(fed.train), len(fed.unseen), fed.test) == (4, 2, None)
    assert fed.outputs == 62 and fed.shape == (1, 28, 28) and fed.classes[10] == "A"
    assert [path.name for path in own_cache.iterdir() if not path.name.startswith(".")] == ["femnist.v2.safetensors"]
    (folder / "all_data_0.json").unlink()  # once kept, the files are not looked at again
    again = accord.data.femnist(clients=4, heldout=0.2)
    assert again.fingerprint() == fed.fingerprint()
    digits = accord.data.femnist_digits(clients=4)
    assert digits.outputs == 10 and len(digits.x) == 18


@pytest.mark.parametrize("split", ["iid", "labels"])
def test_femnist_dealt_has_an_in_distribution_test_set(tmp_path: Path, split: str) -> None:
    fed = accord.data.femnist_digits(source=leaf_folder(tmp_path / "leaf", 20), clients=3, split=split)
    assert fed.test is not None and len(fed.test) == 6  # a tenth of 60 digits
    dealt = torch.cat([*fed.train.values(), *fed.heldout.values()])
    assert len(dealt) == 54 and not set(dealt.tolist()) & set(fed.test.tolist())
    # the same whatever the seed
    assert torch.equal(accord.data.femnist_digits(clients=3, split=split, seed=5).test, fed.test)


def test_tffs_test_file_is_the_test_set_of_dealt_clients_and_its_writers_own_otherwise(tmp_path: Path) -> None:
    femnist.tff_pair(tmp_path / "tff")
    natural = accord.data.femnist(source=tmp_path / "tff")
    dealt = accord.data.femnist(clients=1, split="iid")
    assert natural.test is None
    owned = sum(len(rows) for part in (natural.train, natural.heldout) for rows in part.values())
    assert dealt.test is not None and 0 < len(dealt.test) < owned == len(dealt.x)


def test_femnist_is_nowhere_to_be_had_but_in_a_folder() -> None:
    with sentence(
        "femnist is in no package and on no mirror that accord knows",
        "all_data_*.json",
        "accord data get femnist --from FOLDER",
    ):
        accord.data.femnist()


def test_cifar100_and_tiny_imagenet(tmp_path: Path) -> None:
    cifar100.write(tmp_path / "cifar", cifar100.files())
    fed = accord.data.cifar100(source=tmp_path / "cifar", clients=3, heldout=0, augment="crop-flip")
    assert fed.outputs == 100 and fed.shape == (3, 32, 32) and fed.augment == accord.data.CropFlip()
    tiny.write(tmp_path / "tiny-imagenet-200", tiny.files())
    fed = accord.data.tiny_imagenet(source=tmp_path, clients=2, heldout=0)
    assert fed.shape == (3, 64, 64) and fed.classes == ("Egyptian cat", "goldfish, Carassius auratus")
    assert fed.test is not None and len(fed.test) == 2
    mapped = cache.read(cache.path("tiny-imagenet")).x
    assert any(str(cache.path("tiny-imagenet")) in line for line in Path("/proc/self/maps").read_text().splitlines())
    assert torch.equal(mapped, fed.x)


@pytest.mark.parametrize("way", ["source", "ACCORD_DATA", "mirror"])
def test_an_archive_is_checked_by_its_md5_wherever_it_comes_from(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cifar-100-binary.tar.gz"
    archive = cifar100.pack(tmp_path / "mine", cifar100.files()) / name
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "mine") if way == "ACCORD_DATA" else "")
    recipe = replace(CIFAR100, mirrors=((tmp_path / "mine").as_uri() + "/",) if way == "mirror" else ())
    source = tmp_path / "mine" if way == "source" else None

    def made(recipe: sources.Recipe, number: int) -> Path:
        return cache.once(f"{way}-{number}", lambda scratch: sources.fetch(recipe, scratch, source))

    with sentence(name, "MD5", CIFAR100.md5[name]):
        made(recipe, 0)
    right = replace(recipe, md5={name: hashlib.md5(archive.read_bytes()).hexdigest()})
    assert len(cache.read(made(right, 1)).y) == 5
    with archive.open("r+b") as file:  # the time in gzip's head: what the archive holds stays as it was
        file.seek(4)
        file.write(b"?")
    with sentence(name, "MD5"):
        made(right, 2)
    assert [cache.path(f"{way}-{number}").exists() for number in range(3)] == [False, True, False]


def test_the_users_own_data_is_not_got() -> None:
    with sentence("table is your own data, read where it lies"):
        get("table")
    assert accord.data.available("table")


# -------------------------------------------------------------------------------------- through an experiment


def train(*settings: str) -> dict:
    """The evaluation after two rounds of what the settings describe."""
    experiment = parse("[train]\nrounds = 2\n[model]\nname = 'logistic'\n", settings)
    fed = experiment.federation(0)
    module = experiment.module(fed, 0)
    assert Layout.of(module).size > 0
    return accord.fit(module, fed, rounds=2).history[-1][1]


def test_a_table_by_client(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    lines = ["hospital,age,dose,outcome"]
    for hospital in range(5):
        for _ in range(20):
            age, dose = generator.normal(50, 10), generator.normal(hospital, 1)
            lines.append(f"h{hospital},{age:.2f},{dose:.3f},{'well' if age + 10 * dose > 60 else 'ill'}")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    where = ("data.name=table", f"data.source={tmp_path / 'mine.csv'}", "data.client=hospital", "data.label=outcome")
    evaluation = train(*where, "data.unseen=1")
    assert evaluation["splits"]["unseen"]["clients"] == 1 and evaluation["splits"]["train"]["clients"] == 4
    fed = parse("", (*where, "data.unseen=1")).federation(0)
    scaled = fed.prepare(fed.x[torch.cat(list(fed.train.values()))])
    assert scaled.mean(0).abs().max() < 1e-5 and (scaled.std(0, correction=0) - 1).abs().max() < 1e-5
    assert fed.classes == ("ill", "well") and fed.outputs == 2
    with sentence("model.name: lenet reads square pictures, and the samples have shape (2,): choose logistic or mlp"):
        parse("", where).module(fed, 0)


def test_a_regression(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("client,label,a\n" + "\n".join(f"c{i % 3},{0.5 * i},{i}" for i in range(30)))
    evaluation = train("data.name=table", f"data.source={tmp_path / 'mine.csv'}")
    assert "accuracy" not in evaluation["splits"]["train"] and evaluation["splits"]["train"]["loss"]["by_sample"] > 0


def test_a_folder_of_pictures(tmp_path: Path, own_cache: Path) -> None:
    held = {
        f"{who}__{what}__{number}": 60 * number
        for who in ("ann", "bob", "eve")
        for what in ("cat", "dog")
        for number in range(4)
    }
    tree.write(tmp_path / "pictures", **held, test__cat__0=5, test__dog__0=250)
    where = ("data.name=folder", f"data.source={tmp_path / 'pictures'}", "data.size=8", "data.channels=1")
    evaluation = train(*where, "data.unseen=1")
    assert {split: row["samples"] for split, row in evaluation["splits"].items()} == {
        "train": 14,
        "heldout": 2,
        "unseen": 8,
        "test": 2,
    }
    assert len(list(own_cache.glob("folder-*"))) == 1
    before = parse("", where).folder(0)
    tree.write(tmp_path / "pictures", ann__cat__9=9)
    assert parse("", where).folder(0) != before  # other pictures, another run


def test_arrays_and_a_test_set_from_elsewhere(tmp_path: Path) -> None:
    x, y = np.zeros((40, 5, 5), dtype=np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "mine.npz", x=x, y=y, client=np.arange(40) % 5)
    np.savez(tmp_path / "usps.npz", x=x[:8], y=y[:8])
    where = ("data.name=arrays", f"data.source={tmp_path / 'mine.npz'}")
    evaluation = train(*where, f"data.tests={json.dumps([str(tmp_path / 'usps.npz')])}")
    assert evaluation["parts"]["test, usps"]["samples"] == 8
    assert parse("", where).folder(0) != parse(
        "", (*where, f"data.tests={json.dumps([str(tmp_path / 'usps.npz')])}")
    ).folder(0)
    dealt = parse("", (*where, "data.split=labels", "data.clients=4", "data.classes=2")).federation(0)
    assert dealt.clients == ["client-000", "client-001", "client-002", "client-003"]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (("data.name=table",), ("data.source is missing: data.name = 'table' is your table",)),
        (("data.name=arrays", "data.source=nowhere.npz"), ("data.source must be", "'nowhere.npz'", "no such file")),
        (
            ("data.name=mnist", "data.client=hospital"),
            ("data.client has no meaning with data.name = 'mnist'", "belongs to table"),
        ),
        (
            ("data.name=mnist", "data.palette=client"),
            ("data.palette has no meaning with data.shift = 'none'", "belongs to coloured"),
        ),
        (("data.name=fedcmnist", "data.palette=mine"), ("data.palette must be 'client'", "got 'mine'")),
        (
            ("data.name=fedcmnist", "data.shift=sepia"),
            ("data.shift must be one of none, coloured, two-by-two, binary, rotated, got 'sepia'",),
        ),
        (
            ("data.name=mnist", "data.augment=blur"),
            ("data.augment must be one of none, crop-flip, crop, flip, got 'blur'",),
        ),
        (
            ("data.name=mnist", "data.augment=crop", "data.pad=-1"),
            ("data.pad must be a whole number of at least 0, got -1",),
        ),
        (
            ("data.name=mnist", "data.population=hsf_0"),
            ("data.population has no meaning with data.split = 'iid'", "belongs to natural"),
        ),
        (
            ("data.name=digits", "data.split=natural"),
            ("data.split 'natural' needs data that say who they come from, and digits does not",),
        ),
        (("data.name=digits", "data.tests=elsewhere.npz"), ("[data] elsewhere.npz is not there",)),
    ],
)
def test_a_bad_data_section_gets_a_sentence(settings: tuple[str, ...], parts: tuple[str, ...]) -> None:
    with sentence(*parts):
        parse("", settings).federation(0)


def test_shift_and_augmentation_are_part_of_a_runs_name() -> None:
    names = [
        parse("", settings).folder(0)
        for settings in (
            ("data.name=fedcmnist",),
            ("data.name=fedcmnist", "data.palette=shared"),
            ("data.name=fedcmnist", "data.shift=none"),
            ("data.name=fedcmnist", "data.augment=crop"),
            ("data.name=fedcmnist", "data.augment=crop", "data.pad=2"),
        )
    ]
    assert len(set(names)) == len(names)
    assert (
        parse("", ("data.name=fedcmnist", "data.palette=client", "data.shift=coloured", "data.augment=none")).folder(0)
        == names[0]
    )


def test_resolved_settings_say_what_the_shift_is() -> None:
    data = parse("", ("data.name=fedrotmnist", "data.augment=crop")).resolved()["data"]
    assert (
        data["shift"] == "rotated"
        and data["by"] == "class"
        and list(data["angles"])[:2] == [10, -10]
        and data["pad"] == 4
    )
    natural = parse("", ("data.name=femnist",)).resolved()["data"]
    assert natural["split"] == "natural" and "clients" not in natural and "unseen" not in natural


def test_other_files_under_the_same_name_make_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FEMNIST has no checksum, so what was kept tells runs apart."""
    folders = []
    for users in (4, 6):
        monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / f"cache-{users}"))
        folders.append(
            parse("", ("data.name=femnist", f"data.source={leaf_folder(tmp_path / f'leaf-{users}', users)}")).folder(0)
        )
    assert folders[0] != folders[1]
    told: list[str] = []
    accord.data.femnist(source=tmp_path / "leaf-4", progress=lambda label, done, total: told.append(label))
    assert told == [f"femnist is kept already, so {tmp_path / 'leaf-4'} is not looked at"]
