"""The model that one client uses, of a run whose clients keep one or a part of one: in this process and another."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import accord
from accord.data import Federation
from accord.runs.client_models import ClientModels
from accord.runs.run import Run
from command import run_command
from conftest import sentence

PATIENTS = Path(__file__).parents[2] / "examples" / "hospitals" / "patients.csv"
OPTIONS: dict[str, Any] = {"client": "hospital", "label": "diagnosis", "heldout": 0.2, "unseen": 1}
ALGORITHMS = {
    "FedBN": accord.fedavg().with_personal("batchnorm"),
    "FedPer": accord.fedavg(mask=accord.gma(0.4)).with_personal("head"),
    "scaffold": accord.scaffold().with_personal("head"),
    "ditto": accord.ditto(lam=0.5),
}


class Normed(nn.Module):
    """A base, a normalisation and a head."""

    def __init__(self, inputs: int, outputs: int = 2, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.base, self.bn, self.head = nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn(self.base(x))))


def hospitals(source: Path = PATIENTS) -> Federation:
    return accord.data.table(source=source, **OPTIONS)


@pytest.fixture(params=ALGORITHMS)
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Run, Federation]:
    fed = hospitals()
    run = accord.fit(
        Normed(fed.shape[0]), fed, ALGORITHMS[request.param], rounds=3, lr=0.05, folder=tmp_path, verbose=False
    )
    return run, fed


def test_a_clients_model_gives_the_figures_that_the_run_has_of_it(trained: tuple[Run, Federation]) -> None:
    run, fed = trained
    assert run.folder is not None
    again = accord.load(run.folder, model=Normed(fed.shape[0], seed=9))
    figures = {row["client"]: row["accuracy"] for row in run.clients if row["split"] == "heldout"}
    outputs = []
    for client in fed.clients:
        x, y = fed.read(fed.heldout[client])
        with torch.no_grad():
            outputs.append(run.model(client=client)(x))
            assert torch.equal(again.model(client=client)(x), outputs[-1])
        assert (outputs[-1].argmax(1) == y).float().mean().item() == pytest.approx(figures[client])
        assert again.predict(PATIENTS, client=client).to_csv() == run.predict(PATIENTS, client=client).to_csv()
    rows = fed.read(fed.heldout[fed.clients[0]])[0]
    one, other, common = (run.model(client=client)(rows) for client in (*fed.clients[:2], None))
    assert not torch.equal(one, other) and not torch.equal(one, common)


def test_what_is_shared_is_the_same_in_every_clients_model(tmp_path: Path) -> None:
    fed = hospitals()
    run = accord.fit(Normed(fed.shape[0]), fed, ALGORITHMS["FedPer"], rounds=2, folder=tmp_path, verbose=False)
    common, first = run.model().state_dict(), Normed(fed.shape[0]).state_dict()
    states = [run.model(client=client).state_dict() for client in fed.clients]
    assert not torch.equal(common["base.weight"], first["base.weight"])
    for name, value in common.items():
        home = name.startswith("head.")
        assert not home or torch.equal(value, first[name]), name
        assert all(torch.equal(state[name], value) != home for state in states), name


def test_a_fresh_process_and_the_command_predict_the_same_bits_with_the_data_gone(tmp_path: Path) -> None:
    source = tmp_path / "patients.csv"
    source.write_text(PATIENTS.read_text())
    fed = hospitals(source)
    model = accord.models.mlp(features=fed.shape[0], classes=2, hidden=8, seed=3)
    run = accord.fit(
        model, fed, accord.fedavg().with_personal("last"), rounds=2, folder=tmp_path / "runs", verbose=False
    )
    source.rename(tmp_path / "new.csv")
    client = fed.clients[1]
    expected = run.predict(tmp_path / "new.csv", client=client).to_csv()
    code = f"import accord; print(accord.load('runs').predict('new.csv', client={client!r}).to_csv(), end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == expected != run.predict(tmp_path / "new.csv").to_csv()
    told = run_command(tmp_path, "predict", "runs", "new.csv", "--client", client)
    assert (told.returncode, told.stdout) == (0, expected)
    told = run_command(tmp_path, "predict", "runs", "new.csv", "--client", client[:-1])
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        f"accord: client {client[:-1]} took no part in the training and has no model of its own: did you mean"
        f" {client!r}?\n"
    )


@pytest.mark.parametrize("name", ["FedPer", "ditto"])
def test_an_unfinished_run_has_its_clients_models_too(name: str, tmp_path: Path) -> None:
    fed = hospitals()
    run = accord.fit(
        Normed(fed.shape[0]), fed, ALGORITHMS[name], rounds=9, folder=tmp_path, hooks=[lambda event: True],
        verbose=False,
    )  # fmt: skip
    again = accord.load(tmp_path, model=Normed(fed.shape[0], seed=9))
    assert again.stopped == "unfinished, round 1" and torch.equal(again.last.vector, run.last.vector)
    for client in (fed.clients[0], None):
        assert again.predict(PATIENTS, client=client).to_csv() == run.predict(PATIENTS, client=client).to_csv()
    with sentence("parameters, and that of", "hand in the one it was trained with"):
        accord.load(tmp_path, model=Normed(fed.shape[0], outputs=5))


def test_a_client_that_was_never_drawn_has_the_first_part_and_no_whole_model(tmp_path: Path) -> None:
    fed = hospitals()
    for name, folder in (("FedPer", tmp_path / "a"), ("ditto", tmp_path / "b")):
        run = accord.fit(Normed(fed.shape[0]), fed, ALGORITHMS[name], rounds=1, sample=1, folder=folder, verbose=False)
        assert run.folder is not None
        drawn = json.loads((run.folder / "state.json").read_text())["clients"]
        assert len(drawn) == 1
        idle = next(client for client in fed.clients if client not in drawn)
        for one in (run, accord.load(folder, model=Normed(fed.shape[0], seed=9))):
            if name == "FedPer":
                assert one.predict(PATIENTS, client=idle).to_csv() == run.predict(PATIENTS).to_csv()
            else:
                with sentence(f"client {idle} was drawn for no round so far, and has no model of its own yet"):
                    one.model(client=idle)


def test_what_cannot_be_had_gets_a_sentence() -> None:
    fed = hospitals()
    (unseen,) = fed.unseen
    fit = lambda algorithm: accord.fit(Normed(fed.shape[0]), fed, algorithm, rounds=1, verbose=False)  # noqa: E731
    run = fit(ALGORITHMS["FedBN"])
    with sentence(f"client {unseen} was unseen in this run, and so has no model of its own"):
        run.model(client=unseen)
    with sentence("client 77 took no part in the training", f"those that did are {', '.join(fed.clients)}"):
        run.model(client="77")
    with sentence("clients keep their own models of the last round alone, so which must be 'last', got 'held-out'"):
        run.model("held-out", client=fed.clients[0])
    with sentence(f"this run has one model for all clients, so there is none of client {fed.clients[0]} alone"):
        fit(accord.fedavg()).model(client=fed.clients[0])


def test_a_deployments_clients_keep_their_parts_themselves() -> None:
    models = ClientModels(["north"], True, False, True, {}, lambda client: None)
    with sentence("client north keeps its part of the model itself: it was trained in a deployment"):
        models.of("north", torch.zeros(1), torch.zeros(0))
