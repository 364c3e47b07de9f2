"""What clients remember: versions on disk that a checkpoint commits, and a kill that forgets the rest."""

import os
from pathlib import Path

import pytest
import torch

from accord import AccordError
from accord.training.client_store import ClientStore


def state(value: float) -> dict:
    return {"c": torch.full((3,), value)}


def value_of(store: ClientStore, client: str) -> float | None:
    kept = store.get(client)
    return None if kept is None else kept["c"][0].item()


def put(store: ClientStore, client: str, value: float, round: int) -> None:
    store.stage(client, state(value), round)
    store.accept()


def commit(store: ClientStore) -> dict[str, int]:
    versions = store.sync()
    store.committed()
    return versions


def test_memory_and_disk_behave_alike(tmp_path) -> None:
    for store in (ClientStore(["a", "b"]), ClientStore(["a", "b"], tmp_path / "clients")):
        assert value_of(store, "a") is None
        store.stage("a", state(1.0), round=1)
        assert value_of(store, "a") is None  # staged, not yet accepted
        store.accept()
        put(store, "a", 2.0, 2)
        store.stage("a", state(3.0), round=3)
        store.drop()  # the round did not count
        assert value_of(store, "a") == 2.0 and value_of(store, "b") is None
        commit(store)
        put(store, "a", 4.0, 4)
        assert value_of(store, "a") == 4.0


def test_what_was_not_committed_is_forgotten(tmp_path) -> None:
    clients, folder = ["a", "../b/ö"], tmp_path / "clients"  # ids need not be file names
    store = ClientStore(clients, folder)
    put(store, "a", 1.0, 1)
    put(store, "../b/ö", 5.0, 1)
    versions = commit(store)
    put(store, "a", 2.0, 2)
    put(store, "a", 3.0, 3)
    store.stage("../b/ö", state(9.0), 3)
    again = ClientStore(clients, folder, versions)  # as after a kill
    assert value_of(again, "a") == 1.0 and value_of(again, "../b/ö") == 5.0
    assert len(list(folder.iterdir())) == 2


def test_a_commit_lets_old_versions_go(tmp_path) -> None:
    store = ClientStore(["a"], tmp_path / "clients")
    for round in range(1, 6):
        put(store, "a", float(round), round)
        if round in (2, 4):
            commit(store)

    def kept() -> list[int]:
        return sorted(int(f.stem.rpartition("-")[2]) for f in (tmp_path / "clients").iterdir())

    assert kept() == [2, 4, 5], "of the last two commits, and the current one"
    commit(store)
    assert kept() == [4, 5]
    store.forget_older()
    assert kept() == [5]


def test_states_are_synced_before_a_checkpoint_may_name_them(tmp_path, monkeypatch) -> None:
    store = ClientStore(["a"], tmp_path / "clients")
    put(store, "a", 1.0, 1)
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))[1]
    )
    store.sync()
    assert [Path(path).name for path in synced] == ["000000-000001.safetensors", "clients"]


def test_a_missing_state_is_a_sentence(tmp_path) -> None:
    store = ClientStore(["a"], tmp_path / "clients", {"clients": {"a": 3}})
    with pytest.raises(
        AccordError,
        match="what client a remembers: .*000000-000003.safetensors cannot be read.*delete the run's folder",
    ):
        store.get("a")
