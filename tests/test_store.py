"""What clients remember: versions on disk that a checkpoint commits, and a kill that forgets the rest."""

import torch

from accord.store import ClientStore


def state(value: float) -> dict:
    return {"c": torch.full((3,), value)}


def value_of(store: ClientStore, client: str) -> float | None:
    kept = store.get(client)
    return None if kept is None else kept["c"][0].item()


def test_memory_and_disk_behave_alike(tmp_path) -> None:
    for store in (ClientStore(["a", "b"]), ClientStore(["a", "b"], tmp_path / "clients")):
        assert value_of(store, "a") is None
        store.put("a", state(1.0), round=1)
        store.put("a", state(2.0), round=2)
        assert value_of(store, "a") == 2.0 and value_of(store, "b") is None


def test_what_was_not_committed_is_forgotten(tmp_path) -> None:
    clients, folder = ["a", "../b/ö"], tmp_path / "clients"  # ids need not be file names
    store = ClientStore(clients, folder)
    store.put("a", state(1.0), 1)
    store.put("../b/ö", state(5.0), 1)
    versions = store.sync()
    store.committed()
    store.put("a", state(2.0), 2)
    store.put("a", state(3.0), 3)
    again = ClientStore(clients, folder, versions)  # as after a kill
    assert value_of(again, "a") == 1.0 and value_of(again, "../b/ö") == 5.0
    assert len(list(folder.iterdir())) == 2


def test_a_commit_lets_old_versions_go(tmp_path) -> None:
    store = ClientStore(["a"], tmp_path / "clients")
    for round in range(1, 6):
        store.put("a", state(float(round)), round)
        if round in (2, 4):
            store.sync()
            store.committed()
    assert sorted(f.name for f in (tmp_path / "clients").iterdir()) == ["000000-000004.safetensors", "000000-000005.safetensors"]
    store.sync()
    store.committed()
    assert [f.name for f in (tmp_path / "clients").iterdir()] == ["000000-000005.safetensors"]
