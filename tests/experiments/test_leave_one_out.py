"""Every client left out in turn: from a file and from Python, the same runs, and nothing of the left-out client's."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.utils import parameters_to_vector

import accord
from accord.console.tables import print_results
from accord.data import leave_out
from accord.experiments import experiment, sweep
from accord.experiments.execute import Interrupt
from accord.experiments.lockstep import stacked
from accord.report import gather, look
from accord.rules.label import label_of
from accord.runs.reader import load_all
from command import accord as program
from command import environment
from conftest import blobs, mlp, sentence

SITES = ("east", "north", "south", "west")
FILE = """
[data]
name = "table"
source = "{source}"
client = "site"
label = "ill"
unseen = "each"
heldout = 0.2
[model]
name = "logistic"
[train]
rounds = 4
batch = 8
lr = 0.1
evaluate_every = 2
[run]
seeds = [0, 1]
folder = "{folder}"
"""
SWEPT = '[sweep]\n"algorithm.mask" = ["none", "gma"]\n'


class Silent:
    """Watches runs and says nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


def patients(path: Path, scrambled: str | None = None) -> Path:
    """A table of four sites; one of them may have its features shuffled and its labels turned round."""
    draws = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "a", "b", "c", "ill"])
        for number in range(120):
            site, x = SITES[number % 4], draws.normal(size=3) + number % 4
            ill = x.sum() + draws.normal() > 4.5
            if site == scrambled:
                x, ill = 7.0 - 3.0 * x, not ill
            rows.writerow([site, *np.round(x, 3), "yes" if ill else "no"])
    return path


def trained(folder: Path, more: str = "", scrambled: str | None = None, overrides: tuple[str, ...] = ()) -> list[Any]:
    """The planned runs of a file, trained."""
    folder.mkdir(exist_ok=True)
    source = patients(folder / "sites.csv", scrambled)
    file = folder / "mine.toml"
    file.write_text(FILE.format(source=source, folder=folder / "runs") + more)
    runs = sweep.read(file, overrides)
    assert sweep.sweep(runs, Silent(), Interrupt(), lambda text: None) == 0
    return runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, four clients, two seeds."""
    folder = tmp_path_factory.mktemp("each")
    assert len(trained(folder, SWEPT)) == 2 * 4 * 2
    return folder / "runs"


def shown(folder: Path) -> list[str]:
    console = Console(width=300, record=True, file=(folder.parent / "shown.txt").open("w"))
    print_results(load_all([folder]), None, console)
    return console.export_text().splitlines()


# ------------------------------------------------------------------------------------------------- from a file


def test_a_run_per_client_and_seed_and_one_table_of_them_all(runs: Path) -> None:
    head, *rows = shown(runs)
    assert head.split()[-7:] == ["seeds", *SITES, "mean", "worst"]
    assert [row.split("  ")[0] for row in rows] == ["fedavg", "fedavg + gma(0.4)", str(runs)]
    figures = {
        client: [
            run.chosen("held-out").values["unseen"]
            for run in load_all([runs])
            if run.label == "fedavg" and run.unseen == [client]
        ]
        for client in SITES
    }
    means = [100 * np.mean(of) for of in figures.values()]
    cells = rows[0].split()
    assert [float(cell) for cell in cells[2:14:3]] == pytest.approx(means, abs=0.006)
    assert float(cells[14]) == pytest.approx(np.mean(means), abs=0.006)
    assert float(cells[17]) == pytest.approx(min(means), abs=0.006)


def test_a_run_of_each_is_the_run_that_names_its_client(runs: Path) -> None:
    file = runs.parent / "mine.toml"
    for run in sweep.read(file):
        one = experiment.assemble(
            {**experiment.tables_of(file.read_text().replace(SWEPT, ""), "mine")},
            [("data", "unseen", run.values["data.unseen"]), ("algorithm", "mask", run.values["algorithm.mask"])],
            "",
        )
        assert one.folder(run.seed) == run.folder


def test_the_page_has_the_table_and_names_who_was_left_out(runs: Path) -> None:
    data = gather(look([runs]))
    (table,) = data["left_out"].values()
    head, *rows = table["held-out"]
    assert head[2:] == [*SITES, "mean", "worst"] and [row[0] for row in rows] == ["fedavg", "fedavg + gma(0.4)"]
    assert {run["unseen"] for one in data["settings"] for run in one["runs"]} == set(SITES)


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_scrambling_the_client_that_is_left_out_changes_no_byte_of_training(tmp_path: Path, engine: str) -> None:
    """The rounds' rows, what they say of unseen data aside, and both models."""
    overrides = ("run.seeds=0", f"run.engine={engine}")
    for name, scrambled in (("as-is", None), ("scrambled", "north")):
        trained(tmp_path / name, scrambled=scrambled, overrides=overrides)
    for left_out in SITES:
        found = []
        for name in ("as-is", "scrambled"):
            (run,) = [run for run in load_all([tmp_path / name / "runs"]) if run.unseen == [left_out]]
            lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
            unseen = [line["evaluation"]["splits"].pop("unseen") for line in lines if "evaluation" in line]
            for line in lines:
                line.get("evaluation", {}).pop("gaps", None)
            models = [(run.folder / f"{which}.safetensors").read_bytes() for which in ("model", "best")]
            found.append((lines, models, unseen))
        (lines, models, unseen), (other_lines, other_models, other_unseen) = found
        same = left_out == "north"
        assert (lines == other_lines) == same and (models == other_models) == same
        assert unseen != other_unseen or not same, "the scrambled rows are read, in the end"


def test_means_over_other_clients_are_not_compared(tmp_path: Path) -> None:
    """Seeds that each lack a client, another one, have as many figures, and no mean that could be compared."""
    from accord.cli.compare import compare

    trained(tmp_path, SWEPT)
    runs = [run for run in load_all([tmp_path / "runs"]) if "gma" in run.label]
    for seed, client in zip(sorted({run.seed for run in runs}), ("north", "west"), strict=False):
        shutil.rmtree(next(run.folder for run in runs if run.seed == seed and run.unseen == [client]))
    with sentence("no seed of fedavg + gma(0.4) has a figure on every client that was left out: train the rest"):
        compare(tmp_path / "runs")


def test_further_test_sets_are_columns_and_can_be_compared_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from accord.cli.compare import compare

    draws = np.random.default_rng(1)
    x = draws.normal(size=(20, 3)).astype(np.float32)
    np.savez(tmp_path / "abroad.npz", x=x, y=(x.sum(1) > 0).astype(int))
    trained(tmp_path, SWEPT, overrides=(f"data.tests={tmp_path / 'abroad.npz'}",))
    head, *_ = shown(tmp_path / "runs")
    assert head.split()[-3:] == ["mean", "worst", "abroad"]
    assert gather(look([tmp_path / "runs"]))["tests"] == ["abroad"]
    compare(tmp_path / "runs", on="abroad")
    assert "fedavg + gma(0.4)" in (out := capsys.readouterr().out) and "on test set abroad: " in out
    compare(tmp_path / "runs")
    assert "on unseen clients (east, north, south, west): " in capsys.readouterr().out
    runs = load_all([tmp_path / "runs"])
    one, other = (
        next(run for run in runs if run.unseen == ["west"] and ("gma" in run.label) == masked)
        for masked in (False, True)
    )
    for on, told in (("abroad", "on test set abroad"), (None, "on unseen clients (west)")):
        compare(Path(one.group), Path(other.group), on=on)
        assert told in capsys.readouterr().out
    south = next(run for run in runs if run.unseen == ["south"])
    with sentence("the two have different unseen clients, west and south"):
        compare(Path(one.group), Path(south.group))
    compare(Path(one.group), Path(south.group), on="abroad")
    with sentence(
        "there are no figures of 'aboard' in all of these runs: choose one of abroad, heldout, train, unseen"
    ):
        compare(tmp_path / "runs", on="aboard")
    print_results([one], None, console := Console(width=200, record=True))
    assert "unseen client: west" in console.export_text().splitlines()


BAD = [
    ('"nort"', "data.unseen names client 'nort', which is not among the 4 clients of table: did you mean 'north'?"),
    ('["north", "south", "east", "west"]', "data.unseen names all 4 clients of table and leaves nobody to train"),
    ("[]", "data.unseen must be a whole number of at least 0 or 'each' or one or more, each text in quotes, got []"),
    ("true", "data.unseen must be a whole number of at least 0 or 'each' or"),
]


@pytest.mark.parametrize(("value", "told"), BAD)
def test_bad_names_get_a_sentence(tmp_path: Path, value: str, told: str) -> None:
    text = FILE.format(source=patients(tmp_path / "sites.csv"), folder=tmp_path / "runs")
    with sentence(told):
        experiment.parse(text.replace('"each"', value)).federation(0)


def test_each_needs_clients_with_names_and_enough_of_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    source = patients(tmp_path / "sites.csv")
    file.write_text(FILE.format(source=source, folder=tmp_path / "runs"))
    with sentence("data.unseen names clients, got 'each', and those of split 'iid' are made up"):
        sweep.read(file, ["data.split=iid"])
    with sentence("data.unseen = 'each' stands for a run per client", "name one here"):
        experiment.read(file).federation(0)
    lines = source.read_text().splitlines()
    source.write_text("\n".join(line for line in lines if not line.startswith(("south", "west"))))
    with sentence(
        "data.unseen = 'each' needs at least 3 clients, so that two or more train, and table has 2: east, north"
    ):
        sweep.read(file)
    np.savez(tmp_path / "nobodys.npz", x=np.zeros((4, 2), dtype=np.float32), y=np.zeros(4, dtype=int))
    file.write_text(f'[data]\nname = "arrays"\nsource = "{tmp_path / "nobodys.npz"}"\nunseen = "each"\n')
    with sentence("split 'natural' needs data that say who they come from, and arrays does not"):
        sweep.read(file)


# ------------------------------------------------------------------------------------------------- from Python


def test_python_gives_the_figures_of_the_file(runs: Path) -> None:
    """With data.seed fixed, as Python deals once for all seeds."""
    file = runs.parent / "mine.toml"
    one = experiment.parse(file.read_text().replace(SWEPT, ""), ["data.unseen=0"])
    result = accord.leave_one_out(
        lambda seed: one.module(one.federation(0), seed),
        one.federation(0),
        [accord.fedavg(), accord.fedavg(mask=accord.gma(0.4))],
        rounds=4,
        batch=8,
        lr=0.1,
        evaluate_every=2,
    )
    for run in load_all([runs]):
        if run.seed == "0":
            assert result.figures()[run.label][run.unseen[0]] == [run.chosen("held-out").values["unseen"]]


METHODS = {
    "averaging": accord.fedavg(),
    "masked": accord.fedadam(lr=0.1, mask=accord.gma(0.4)),
    "variates": accord.scaffold(),
    "pooled": accord.pooled(),
}


def test_in_lockstep_every_run_is_what_it_would_be_alone(tmp_path: Path) -> None:
    """Bit by bit, though the samples of all are stacked; and the folder is the one that `fit` would give it."""
    fed = blobs(clients=4, unseen=0)
    fed = replace(fed, prepare=accord.data.fitted(fed))
    options: dict[str, Any] = {"rounds": 3, "batch": 8, "evaluate_every": 1, "engine": "vectorised"}
    result = accord.leave_one_out(mlp(), fed, METHODS, seeds=(0, 1), folder=tmp_path, **options)
    assert len(result.runs) == 4 * 4 * 2
    for (method, client, seed), run in result.runs.items():
        alone = accord.fit(mlp(), leave_out(fed, client), METHODS[method], seed=seed, **options)
        assert run.recorded == alone.recorded, (method, client, seed)
        assert torch.equal(run.last.vector, alone.last.vector)
        assert f"unseen client: {client}" in str(run).splitlines()
    again = accord.fit(mlp(), leave_out(fed, "c01"), METHODS["masked"], folder=tmp_path, **options)
    assert again.folder == result.runs["masked", "c01", 0].folder and again.rounds == 3
    assert shown(tmp_path)[0].split()[-7:] == ["seeds", "c00", "c01", "c02", "c03", "mean", "worst"]


def test_clients_with_a_second_model_train_it_whatever_goes_along() -> None:
    """Lanes of a batch would leave it as it came."""
    fed = blobs(clients=3, unseen=0)
    options: dict[str, Any] = {"rounds": 2, "batch": 8, "lr": 0.1}
    result = accord.leave_one_out(mlp(), fed, [accord.ditto(), accord.fedavg()], **options)
    for client in fed.clients:
        alone = accord.fit(mlp(), leave_out(fed, client), accord.ditto(), engine="sequential", **options)
        assert result.runs["ditto", client, 0].rows == alone.rows


KEPT = 'algorithm = [{ name = "fedavg" }, { name = "fedavg", personal = ["last"] }, { name = "ditto" }]\n'


def test_clients_that_keep_a_part_or_a_second_model_do_so_whoever_is_left_out(tmp_path: Path) -> None:
    """From a file and from Python, in lockstep or not: every client's model is that of its run alone."""
    more = f"[sweep]\n{KEPT}"
    together = trained(tmp_path / "a", more, overrides=("run.seeds=0", "model.name=mlp"))
    alone = trained(tmp_path / "b", more, overrides=("run.seeds=0", "model.name=mlp", "run.engine=sequential"))
    text = (tmp_path / "a" / "mine.toml").read_text().replace(more, "")
    one = experiment.parse(text, ["data.unseen=0", "model.name=mlp"])
    methods = {label_of(run.experiment.algorithm): run.experiment.algorithm for run in together}
    fed = one.federation(0)
    python = accord.leave_one_out(one.module(fed, 0), fed, methods, rounds=4, batch=8, lr=0.1, evaluate_every=2)
    for run, its in zip(together, alone, strict=True):
        algorithm, left_out = run.experiment.algorithm, run.values["data.unseen"]
        runs = accord.load(run.folder), accord.load(its.folder), python.runs[label_of(algorithm), left_out, 0]
        keeps = algorithm.personal or algorithm.local.beside
        for client in (None, *(site for site in SITES if keeps and site != left_out)):
            first, *others = (parameters_to_vector(some.model(client=client).parameters()) for some in runs)
            assert all(torch.allclose(first, other, atol=1e-5) for other in others), (run.title, client)


def test_a_result_prints_its_table_and_goes_on_where_it_was(tmp_path: Path) -> None:
    fed, options = blobs(clients=3, unseen=0), {"rounds": 2, "evaluate_every": 1, "folder": tmp_path}
    first = accord.leave_one_out(mlp(), fed, accord.fedavg(), **options)
    head, row = str(first).splitlines()
    assert head.split()[-5:] == ["c00", "c01", "c02", "mean", "worst"] and row.startswith("fedavg ")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/done")}
    second = accord.leave_one_out(mlp(), fed, accord.fedavg(), **options)
    assert second.figures() == first.figures() and len(before) == 3
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/done")}


def test_runs_that_were_stopped_before_an_evaluation_have_no_figures() -> None:
    result = accord.leave_one_out(mlp(), blobs(clients=3, unseen=0), accord.fedavg(), rounds=50, budget=1e-9)
    assert all(run.stopped for run in result.runs.values())
    assert str(result).splitlines()[1].split()[1:] == ["-"] * 5


def test_a_model_that_cannot_be_batched_is_trained_one_by_one() -> None:
    class Odd(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (2.0 if float(x.sum()) > 0 else 1.0)

    result = accord.leave_one_out(Odd(6, 4), blobs(clients=3, unseen=0), accord.fedavg(), rounds=1)
    assert set(result.figures()["fedavg"]) == {"c00", "c01", "c02"}


BAD_CALLS: list[tuple[dict[str, Any], str]] = [
    ({"fed": blobs(clients=3, unseen=1)}, "fed has unseen clients already, such as c03"),
    ({"fed": blobs(clients=2, unseen=0)}, "unseen = 'each' needs at least 3 clients, so that two or more train"),
    ({"algorithms": []}, "algorithms is empty: give at least one, such as accord.fedavg()"),
    ({"algorithms": ["fedavg"]}, "algorithms must be of type Algorithm, got 'fedavg'"),
    ({"algorithms": [accord.fedavg(), accord.fedavg()]}, "two of the algorithms have one label: give them names"),
    ({"seeds": []}, "seeds must be one or more different whole numbers, got []"),
    ({"seeds": [1, 1]}, "seeds must be one or more different whole numbers, got [1, 1]"),
    ({"round": 3}, "leave_one_out takes no round: did you mean 'rounds'?"),
]


@pytest.mark.parametrize(("given", "told"), BAD_CALLS)
def test_what_cannot_be_done_gets_a_sentence(given: dict[str, Any], told: str) -> None:
    call: dict[str, Any] = {"model": mlp(), "fed": blobs(clients=3, unseen=0), "algorithms": accord.fedavg(), **given}
    with sentence(told):
        accord.leave_one_out(**call)


def test_federations_that_read_the_same_or_too_much_are_not_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = blobs(clients=3, unseen=0)
    same = [leave_out(fed, client) for client in fed.clients]
    assert all(one is other for one, other in zip(stacked(same), same, strict=True))
    fitted = replace(fed, prepare=accord.data.fitted(fed))
    apart = [leave_out(fitted, client) for client in fed.clients]
    together = stacked(apart)
    assert together[0].x is together[2].x and len(together[0].x) == 3 * len(fed.x)
    for one, other in zip(together, apart, strict=True):
        for (_, _, rows), (_, _, own) in zip(one.groups(), other.groups(), strict=True):
            assert all(torch.equal(mine, theirs) for mine, theirs in zip(one.read(rows), other.read(own), strict=True))
    monkeypatch.setattr("accord.experiments.lockstep.STACKED", 100)
    assert stacked(apart)[1] is apart[1]


def test_a_level_that_one_client_alone_has_leaves_others_a_narrower_table(tmp_path: Path) -> None:
    """Runs that leave out one client after another then read tables of different widths."""
    lines = ["clinic,x,ward,y"]
    for clinic in "abc":
        wards = ("usual", "rare" if clinic == "c" else "usual")
        lines += [f"{clinic},{i % 7},{wards[i % 2]},{int(i % 3 == 0)}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "e.toml").write_text(
        '[data]\nname = "table"\nsource = "t.csv"\nclient = "clinic"\nlabel = "y"\nunseen = "each"\n'
        '[model]\nname = "logistic"\n[train]\nrounds = 2\n'
    )
    env = environment(tmp_path / "cache")
    told = program({**env}, tmp_path, "run", "e.toml")
    assert "2 runs in lockstep" in told.stderr and "1 run in lockstep" in told.stderr
    assert len(list((tmp_path / "runs").glob("*/done"))) == 3
    planned = program(env, tmp_path, "choose", "e.toml", "--dry-run")
    assert "1008 runs" in planned.stdout and "and-mask is left out: with 2 clients in a round" in planned.stderr
