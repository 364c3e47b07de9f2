"""Federations: who participates, who is unseen, what is held out; and federations from a user's own arrays."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import accord.data
from accord.core.errors import AccordError
from accord.data import Federation, Scale, deal, from_arrays


def sample(count: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(count)[:, None].float(), torch.arange(count) % 10


def owners(fed: Federation) -> torch.Tensor:
    """All rows in the hands of any client."""
    return torch.cat([*fed.train.values(), *fed.heldout.values(), *fed.unseen.values()])


# ------------------------------------------------------------------------------------------------------- deal


@given(
    clients=st.integers(1, 20),
    unseen=st.integers(0, 8),
    heldout=st.floats(0, 0.99),
    tests=st.integers(0, 30),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_rows_are_in_one_place_each(clients: int, unseen: int, heldout: float, tests: int, seed: int) -> None:
    x, y = sample(100)
    test = torch.arange(100)[:: 100 // tests][:tests] if tests else None
    fed = deal(x, y, split="iid", clients=clients, unseen=unseen, heldout=heldout, seed=seed, test=test)
    rows = torch.cat([owners(fed), test if test is not None else torch.empty(0, dtype=torch.int64)])
    assert torch.equal(rows.sort().values, torch.arange(100))
    assert rows.dtype == torch.int64
    assert (len(fed.train), len(fed.unseen)) == (clients, unseen)
    assert set(fed.train).isdisjoint(fed.unseen)
    assert all(len(own) >= 1 for own in fed.train.values())


def test_held_out_is_a_rounded_share_of_participating_clients_only() -> None:
    x, y = sample(260)
    fed = deal(x, y, clients=10, unseen=0, heldout=0.1)  # 26 rows each: 2.6 of them, that is 3
    assert {len(rows) for rows in fed.heldout.values()} == {3}
    assert {len(rows) for rows in fed.train.values()} == {23}
    fed = deal(x, y, clients=5, unseen=5, heldout=0.1)
    assert list(fed.heldout) == list(fed.train)
    assert {len(rows) for rows in fed.unseen.values()} == {26}
    assert deal(x, y, clients=5, heldout=0).heldout == {}


def test_held_out_rows_are_drawn_not_the_first_ones() -> None:
    fed = deal(*sample(1000), clients=2, heldout=0.5)
    for client in fed.clients:
        both = torch.cat([fed.train[client], fed.heldout[client]]).sort().values
        assert 150 < torch.isin(both[:250].sort().values, fed.heldout[client]).sum() * 2 < 350


def test_a_client_with_one_row_trains_on_it() -> None:
    fed = deal(*sample(7), clients=7, heldout=0.9)
    assert all(len(rows) == 1 for rows in fed.train.values())
    assert all(len(rows) == 0 for rows in fed.heldout.values())


def test_names_are_numbers_of_one_width_in_order() -> None:
    fed = deal(*sample(), clients=9, unseen=3)
    assert sorted([*fed.train, *fed.unseen]) == [f"client-{number:03d}" for number in range(12)]
    assert fed.clients == sorted(fed.clients)
    assert deal(*sample(1001), clients=1001).clients[-1] == "client-1000"


def test_who_is_unseen_depends_on_the_seed() -> None:
    chosen = {tuple(deal(*sample(), clients=8, unseen=2, seed=seed).unseen) for seed in range(8)}
    assert len(chosen) > 3
    assert list(deal(*sample(), clients=8, unseen=2, seed=1).unseen) == list(
        deal(*sample(), clients=8, unseen=2, seed=1).unseen
    )


def test_split_options_reach_the_split() -> None:
    fed = deal(*sample(2000), split="labels", clients=10, classes=1, noise=0.0)
    assert all(len(fed.y[rows].unique()) == 1 for rows in fed.train.values())


BAD_DEALS = [
    ({"split": "random"}, "there is no split 'random': the splits are iid, labels, exact, dirichlet, quantity"),
    ({"split": "labels", "alpha": 0.1}, "split 'labels' takes classes and noise, not alpha"),
    ({"split": "iid", "beta": 0.1}, "split 'iid' takes no options, not beta"),
    ({"split": "quantity", "seeds": 1}, "split 'quantity' takes beta, not seeds"),
    ({"heldout": 1.0}, "heldout must be at least 0 and below 1, got 1.0"),
    ({"heldout": -0.1}, "heldout must be at least 0 and below 1, got -0.1"),
    ({"unseen": -1}, "unseen must be a whole number of at least 0, got -1"),
    ({"clients": 0, "unseen": 3}, "clients must be a whole number of at least 1, got 0"),
    ({"clients": 300, "unseen": 200}, "clients must be at most the 400 samples, unseen ones included, got 500"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD_DEALS)
def test_a_bad_deal_gets_a_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(AccordError, match=re.escape(sentence)):
        deal(*sample(), **{"clients": 10, **options})


MAKERS = {
    "deal": lambda seed: deal(*sample(), clients=4, unseen=1, seed=seed),
    "from_arrays": lambda seed: from_arrays({"a": sample(40), "b": sample(40)}, seed=seed),
    "digits": lambda seed: accord.data.digits(clients=4, seed=seed),
    "shifted": lambda seed: accord.data.digits(clients=4, seed=seed, heldout=0, shift="rotated"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_seed_is_a_whole_number_of_python_or_numpy(make: Callable[[object], Federation]) -> None:
    for seed in (True, None, 1.5, "0", np.bool_(True)):
        with pytest.raises(AccordError, match=re.escape(f"seed must be a whole number, got {seed!r}")):
            make(seed)
    ours, theirs = make(3), make(np.int64(3))
    assert all(torch.equal(rows, theirs.train[client]) for client, rows in ours.train.items())


# ------------------------------------------------------------------------------------------------ from_arrays


def test_arrays_tensors_lists_and_datasets_make_the_same_federation() -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6, dtype=np.uint8)
    forms = [
        (x, y),
        (torch.from_numpy(x), torch.from_numpy(y)),
        (x.tolist(), y.tolist()),
        (list(torch.from_numpy(x)), y.astype(">i4")),
        TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
    ]
    feds = [from_arrays({"a": form, 7: form}, test=(-x, y)) for form in forms]
    assert {fed.fingerprint() for fed in feds} == {feds[0].fingerprint()}
    fed = feds[0]
    assert (fed.x.dtype, fed.y.dtype, fed.clients) == (torch.float32, torch.int64, ["a", "7"])
    assert fed.test is not None
    assert torch.equal(fed.x[fed.test], torch.from_numpy(-x).float())
    assert torch.equal(fed.y[torch.cat([fed.train["7"], fed.heldout["7"]]).sort().values], torch.arange(6))


def test_unseen_by_number_and_by_name() -> None:
    clients = {number: (np.full((4, 1), number), np.zeros(4, dtype=int)) for number in range(6)}
    fed = from_arrays(clients, unseen=[2, "4"], heldout=0.25)
    assert list(fed.unseen) == ["2", "4"]
    assert fed.clients == ["0", "1", "3", "5"]
    assert all((fed.x[rows] == int(client)).all() for _, client, rows in fed.groups())
    assert [len(rows) for rows in fed.heldout.values()] == [1, 1, 1, 1]
    assert torch.equal(owners(fed).sort().values, torch.arange(24))
    drawn = {tuple(from_arrays(clients, unseen=2, seed=seed).unseen) for seed in range(8)}
    assert len(drawn) > 3
    assert all(len(chosen) == 2 for chosen in drawn)


def test_a_client_without_samples_stays_with_no_rows() -> None:
    fed = from_arrays({"a": ([[1.0, 2.0]], [1]), "none": ([], []), "b": ([[3.0, 4.0]], [0])}, heldout=0.5)
    assert {client: len(rows) for client, rows in fed.train.items()} == {"a": 1, "none": 0, "b": 1}
    assert fed.x[fed.train["b"]].tolist() == [[3.0, 4.0]]


def test_whole_number_samples_and_real_labels_keep_their_kind() -> None:
    fed = from_arrays({"a": (np.zeros((2, 1, 4, 4), dtype=np.uint8), np.array([0.5, 1.5]))}, prepare=Scale())
    assert (fed.x.dtype, fed.y.dtype) == (torch.uint8, torch.float32)
    assert fed.prepare(fed.x).dtype == torch.float32


@pytest.mark.filterwarnings("error")
def test_the_users_array_is_not_shared() -> None:
    x = np.ones((3, 2), dtype=np.float32)
    fed = from_arrays({"a": (x, [0, 1, 2])})
    x[:] = 9
    assert fed.x.max() == 1
    x.flags.writeable = False
    assert from_arrays({"a": (x, [0, 1, 2])}).x.max() == 9


class _Endless(IterableDataset):
    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield 0, 0


class _Triples(Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        return index, index, index


_GOOD = ([[0.0], [1.0]], [0, 1])
BAD_ARRAYS: list[tuple[dict, dict, str]] = [
    ({}, {}, "from_arrays got no clients"),
    ({"a": ([], [])}, {}, "no client has a sample"),
    ({"a": _GOOD, "b": ([[1.0]], [0, 1])}, {}, "client b has 1 samples in x but 2 labels in y"),
    (
        {"a": _GOOD, "b": ([[1.0, 2.0]], [0])},
        {},
        "x of client b holds 2 float32 per sample, but that of client a 1 float32",
    ),
    ({"a": _GOOD, "b": ([[1]], [0])}, {}, "x of client b holds 1 int64 per sample, but that of client a 1 float32"),
    (
        {"a": _GOOD, "b": ([[1.0]], [0.5])},
        {},
        "y of client b holds one float32 per sample, but that of client a one int64",
    ),
    ({"a": _GOOD}, {"test": ([[1.0, 2.0]], [0])}, "x of the test set holds 2 float32"),
    ({"a": ([[1.0], [1.0, 2.0]], [0, 1])}, {}, "x of client a is not an array of numbers"),
    ({"a": (["cat"], [0])}, {}, "x of client a is not an array of numbers"),
    ({"a": (1.0, 2)}, {}, "client a has a single number"),
    ({"a": np.zeros(3)}, {}, "client a must come as a pair (x, y) or a torch Dataset of such pairs, got ndarray"),
    ({"a": _Endless()}, {}, "client a is a Dataset without a length"),
    ({"a": _Triples()}, {}, "client a is a Dataset whose items are not pairs"),
    (
        {"a": _GOOD, "b": _GOOD},
        {"unseen": ["c"]},
        "unseen names client 'c', which is not among the 2 clients of arrays: choose one of a, b",
    ),
    ({"a": _GOOD, "b": _GOOD}, {"unseen": 2}, "2 clients with 2 unseen leave nobody to train"),
    ({"a": _GOOD, "b": _GOOD}, {"unseen": 5}, "2 clients with 5 unseen leave nobody to train"),
    ({1: _GOOD, "1": _GOOD}, {}, "two client ids are the same when written as text"),
]


@pytest.mark.parametrize(("clients", "options", "sentence"), BAD_ARRAYS)
def test_bad_arrays_get_a_sentence(clients: dict, options: dict, sentence: str) -> None:
    with pytest.raises(AccordError, match=re.escape(sentence)):
        from_arrays(clients, **options)


# ------------------------------------------------------------------------------------- digits and the package


def test_digits_are_mnist_shaped_and_enlarged_bilinearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = pytest.importorskip("sklearn.datasets").load_digits()
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path))
    assert not accord.data.available("digits")
    fed = accord.data.digits(clients=10, split="labels", unseen=2, classes=3)
    assert accord.data.available("digits")
    assert (fed.x.shape, fed.x.dtype, fed.y.dtype) == ((1797, 1, 28, 28), torch.uint8, torch.int64)
    assert fed.test is not None
    assert torch.equal(fed.test, torch.arange(1500, 1797))
    assert torch.equal(owners(fed).sort().values, torch.arange(1500))
    assert torch.equal(fed.y, torch.from_numpy(bundle.target))
    exact = F.interpolate(torch.from_numpy(bundle.images)[:, None] * 255 / 16, size=28, mode="bilinear")
    assert (fed.x - exact).abs().max() < 0.5 + 1e-6
    scaled = fed.prepare(fed.x[:1500])
    assert abs(scaled.mean()) < 0.01
    assert abs(scaled.std() - 1) < 0.01


def test_optional_packages_are_asked_for_by_name(tmp_path: Path) -> None:
    script = """
import sys
# None: importing it fails
sys.modules.update(dict.fromkeys(["sklearn", "PIL", "torchvision", "rich", "typer", "pydantic"]))
import accord.data
from accord.data.readers.formats import cifar_from_pictures
from accord.core.errors import AccordError
for attempt in (accord.data.digits, lambda: cifar_from_pictures(".")):
    try:
        attempt()
    except AccordError as error:
        print(error)
"""
    env = {**os.environ, "ACCORD_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    # accord itself may import more than the data package needs, so it is entered as a bare package here
    bare = "import sys, types, importlib.util as u; p = types.ModuleType('accord'); "
    bare += "p.__path__ = list(u.find_spec('accord').submodule_search_locations); sys.modules['accord'] = p\n"
    done = subprocess.run([sys.executable, "-c", bare + script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'scikit-learn>=1.4'" in done.stdout
    assert "accord-fl[images]" in done.stdout


def test_the_package_exports_what_it_says() -> None:
    expected = """mnist fashion-mnist cifar10 cifar100 tiny-imagenet femnist femnist-digits digits fedcmnist
    multi-colour-mnist binary-cmnist fedrotmnist fedrotfmnist folder table arrays huggingface"""
    assert list(accord.data.DATASETS) == expected.split()
    assert all(hasattr(accord.data, name) for name in accord.data.__all__)
    assert all(entry.about and entry.size for entry in accord.data.DATASETS.values())
    with pytest.raises(
        AccordError, match="there is no data set 'mist': the data sets are mnist, fashion-mnist, cifar10, cifar100"
    ):
        accord.data.get("mist")
