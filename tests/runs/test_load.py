"""A run from its folder: the same model, figures and predictions in another process, with the data gone."""

import csv
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import accord
from accord.core.errors import AccordError
from accord.core.files import json_bytes
from accord.data.preparation import Preparation
from accord.runs.predictor import Predictions
from accord.runs.run import Run
from command import run_command
from conftest import forge, sentence, without_checksums

PATIENTS = Path(__file__).parents[2] / "examples" / "hospitals" / "patients.csv"
OPTIONS: dict[str, Any] = {"client": "hospital", "label": "diagnosis", "heldout": 0.2, "unseen": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, accord.data.Federation, Path]:
    """A run on a table that is removed afterwards, and the same patients, to be predicted."""
    here = tmp_path_factory.mktemp("hospitals")
    source = Path(shutil.copy(PATIENTS, here / "patients.csv"))
    fed = accord.data.table(source=source, **OPTIONS)
    model = accord.models.mlp(features=fed.shape[0], classes=2, hidden=8, seed=3)
    run = accord.fit(model, fed, accord.fedavg(mask=accord.gma(0.4)), rounds=4, evaluate_every=2, folder=here / "runs")
    source.rename(here / "new.csv")
    return run, fed, here / "new.csv"


def test_predictions_are_those_of_the_run(trained: tuple[Run, accord.data.Federation, Path]) -> None:
    run, fed, source = trained
    predictions = run.predict(source)
    assert len(predictions) == 920
    rows = torch.cat(list(fed.unseen.values()))
    right = [predictions.labels[row] == fed.classes[fed.y[row]] for row in rows.tolist()]
    assert np.mean(right) == pytest.approx(run.history[-1][1].splits["unseen"].metrics["accuracy"].by_sample)
    with torch.no_grad():
        by_hand = run.model()(fed.read(torch.arange(920))[0]).softmax(1)
    torch.testing.assert_close(predictions.probabilities, by_hand)
    assert predictions.ignored == ("hospital", "diagnosis")


def test_a_fresh_process_predicts_the_same_bits(trained: tuple[Run, accord.data.Federation, Path]) -> None:
    run, _, source = trained
    for which in ("last", "held-out"):
        loaded = f"accord.load({str(run.folder)!r}).predict({str(source)!r}, {which!r})"
        code = f"import accord; print({loaded}.to_csv(), end='')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == run.predict(source, which).to_csv()


def test_what_is_loaded_is_the_run(trained: tuple[Run, accord.data.Federation, Path]) -> None:
    run, fed, _ = trained
    assert run.folder is not None
    again = accord.load(str(run.folder.parent))  # which holds no other run
    assert str(again) == str(run)
    assert torch.equal(again.last.vector, run.last.vector)
    assert run.best is not None and again.best is not None
    assert again.best.round == run.best.round and torch.equal(again.best.vector, run.best.vector)
    assert again.preparation == run.preparation == Preparation.of(fed)
    assert again.preparation.features == tuple(PATIENTS.read_text().splitlines()[0].split(",")[1:-1])
    assert again.preparation.classes == ("ill", "well")
    assert again.clients == run.clients
    assert again.select() == run.select()


def test_the_command(trained: tuple[Run, accord.data.Federation, Path], tmp_path: Path) -> None:
    run, _, source = trained
    done = run_command(tmp_path, "predict", str(run.folder), str(source), "-o", "out.csv")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "columns that the model does not read: hospital, diagnosis\n920 predictions: out.csv\n"
    assert (tmp_path / "out.csv").read_text() == run.predict(source).to_csv()
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]
    header, *lines = source.read_text().splitlines()
    (tmp_path / "short.csv").write_text("\n".join([header.replace("pulse", "puls"), *lines]))
    done = run_command(tmp_path, "predict", str(run.folder), "short.csv", "-o", "other.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "accord: short.csv has no column 'pulse', which the model reads: did you mean 'puls'?\n"
    assert not (tmp_path / "other.csv").exists()
    done = run_command(tmp_path, "predict", str(run.folder), "out.csv", "-o", "./out.csv")
    assert done.stderr == "accord: out.csv holds the rows to predict for: name another file to write\n"


def test_categories_that_no_training_row_had_are_told_by_column(trained: Any, tmp_path: Path) -> None:
    run, _, source = trained
    header, *lines = source.read_text().splitlines()
    names, cells = header.split(","), [line.split(",") for line in lines[:8]]
    slope, sex = names.index("slope"), names.index("sex")
    for row, value in enumerate(["side\tways", "up-ish", "x" * 50, "none at all", "up-ish"]):
        cells[row][slope] = value
    cells[7][sex], cells[6][slope] = "other", "NA"  # what is missing is no unknown value
    (tmp_path / "new.csv").write_text("\n".join([header, *map(",".join, cells)]))
    done = run_command(tmp_path, "predict", str(run.folder), "new.csv")
    _, *told = done.stderr.splitlines()
    assert told == [
        "column sex: 1 of 8 rows have values that no training row had ('other'); they are encoded as sex=(other), whose"
        " weights were not trained",
        f"column slope: 5 of 8 rows have values that no training row had ('side\\tways', 'up-ish', '{'x' * 40}...'"
        " and 1 more); they are encoded as slope=(other), whose weights were not trained",
    ]
    assert done.stdout == run.predict(tmp_path / "new.csv").to_csv()
    assert run.predict(source).notes == ()


ROW = {"age": 50, "sex": "male", "pain": None, "pressure": 1, "cholesterol": 2, "sugar": "false", "pulse": 3}
ROW |= {"slope": "sideways", "vessels": 1}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            [{**ROW, "age": "fifty"}],
            "row 0 of the table has 'fifty' in column age, where the model was trained on numbers: correct the cell, or"
            " leave it empty",
        ),
        ([{**ROW, "age": "1,5"}], "row 0 of the table has '1,5' in column age, where the model was trained on numbers"),
        ([ROW, {**ROW, "age": "old"}], "row 1 of the table has 'old' in column age, where the model was trained on"),
        (
            [{**ROW, "age": "1970-01-02"}],
            "column age holds dates or times ('1970-01-02' in row 0 of the table): the model was trained on numbers, so"
            " write these",
        ),
        ([{key: ROW[key] for key in ("age", "sex")}], "the table has no column 'pain', which the model reads"),
        (np.zeros((2, 9)), "an array cannot say which category a row is of (sex, pain, slope): give a table by name"),
        (17, "a table is a path of a CSV or Parquet file"),
        ("nowhere.csv", "nowhere.csv cannot be read: No such file"),
    ],
)
def test_rows_that_do_not_fit_get_a_sentence(trained: Any, data: Any, said: str) -> None:
    with sentence(said):
        trained[0].predict(data)


def test_tables_of_every_kind(trained: Any) -> None:
    pandas = pytest.importorskip("pandas")
    run, _, source = trained
    told = pandas.read_csv(source)
    for table in (told, told.to_dict("list"), told.to_dict("records")):
        assert run.predict(table).to_csv() == run.predict(source).to_csv()
    (one,) = run.predict([ROW])
    assert list(one) == ["row", "prediction", "p(ill)", "p(well)"] and one["row"] == 1
    assert one["p(ill)"] + one["p(well)"] == pytest.approx(1)
    assert list(run.predict(told).to_pandas().columns) == list(one)
    assert len(run.predict(told[:0])) == 0


def test_rows_go_by_the_columns_that_were_dropped(tmp_path: Path) -> None:
    """An id is named in `drop` where a model is trained, and comes back beside each prediction."""
    header, *lines = PATIENTS.read_text().splitlines()
    numbered = [f"patient,{header}", *(f"P{number:03d},{line}" for number, line in enumerate(lines))]
    (tmp_path / "train.csv").write_text("\n".join(numbered))
    (tmp_path / "new.csv").write_text("\n".join([numbered[0], *numbered[7:9]]))
    fed = accord.data.table(source=tmp_path / "train.csv", drop=["patient"], **OPTIONS)
    model = accord.models.logistic(features=fed.shape[0], classes=2)
    run = accord.fit(model, fed, accord.fedavg(), rounds=1, folder=tmp_path / "runs")
    done = run_command(tmp_path, "predict", str(run.folder), "new.csv")
    assert done.stderr == "columns that the model does not read: hospital, diagnosis\n"
    told, *rows = (line.split(",") for line in done.stdout.splitlines())
    assert told[:2] == ["patient", "prediction"] and [row[0] for row in rows] == ["P006", "P007"]
    assert [row[1] for row in rows] == run.predict(tmp_path / "train.csv").labels[6:8]
    unnamed = [{key: value for key, value in ROW.items() if key != "patient"}] * 2
    assert [row["row"] for row in run.predict(unnamed)] == [1, 2], "a table without the id goes by its rows"


def test_a_dropped_column_gives_way_to_what_the_model_answers(tmp_path: Path) -> None:
    """Rows that hold an earlier model's predictions, which a new one was trained without."""
    header, *lines = PATIENTS.read_text().splitlines()
    (tmp_path / "train.csv").write_text("\n".join([f"prediction,{header}", *(f"earlier,{line}" for line in lines)]))
    fed = accord.data.table(source=tmp_path / "train.csv", drop=["prediction"], **OPTIONS)
    model = accord.models.logistic(features=fed.shape[0], classes=2)
    run = accord.fit(model, fed, accord.fedavg(), rounds=1, folder=tmp_path / "runs")
    predictions = run.predict(tmp_path / "train.csv")
    assert list(predictions.columns()) == ["row", "prediction", "p(ill)", "p(well)"]
    assert predictions.columns()["prediction"] == predictions.labels and "prediction" in predictions.ignored


def test_an_id_with_a_line_end_stays_in_its_cell() -> None:
    one = Predictions(("a", "b"), torch.tensor([[0.4, 0.6], [0.3, 0.7]]), ids={"id": ["x\ry", "z"]})
    assert [row[0] for row in csv.reader(io.StringIO(one.to_csv(), newline=""))] == ["id", "x\ry", "z"]
    named = Predictions(("a", "b\rc"), torch.tensor([[0.4, 0.6]]), ids={"i\rd": [1]})
    rows = list(csv.reader(io.StringIO(named.to_csv(), newline="")))
    assert rows[0] == ["i\rd", "prediction", "p(a)", "p(b\rc)"] and rows[1][:2] == ["1", "b\rc"]


# ------------------------------------------------------------------------------------------------ other models


def arrays(regression: bool = False) -> accord.data.Federation:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    y = x[:, 0] if regression else (x[:, 0] > 0).astype(int)
    fed = accord.data.from_samples(x, y, np.repeat(["north", "south", "west"], 20), unseen=["west"])
    return replace(fed, prepare=accord.data.fitted(fed))


class Own(nn.Module):
    """A module that no registry knows, of one logit."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_a_module_of_the_users_is_handed_in(tmp_path: Path) -> None:
    fed = arrays()
    run = accord.fit(Own(), fed, rounds=2, folder=tmp_path)
    with sentence("model: ", "'Own'", "--model module:object", "accord.load(model=...)"):
        accord.load(tmp_path)
    again = accord.load(tmp_path, model=Own())
    x = fed.x.numpy()
    assert again.predict(x).to_csv() == run.predict(x).to_csv() == run.predict(fed.x).to_csv()
    assert again.predict(x).classes == ("0", "1")
    with sentence("layer.weight has shape [2, 3] in the weights to start from and [5, 3] in the model"):
        accord.load(tmp_path, model=Own(5))
    with sentence("these have (2,)"):
        run.predict(np.zeros((4, 2)))
    with sentence("the model reads samples of shape (3,), and these have (1,)"):
        run.predict(np.zeros((4, 1)))
    with sentence("the data has nan in x, row 1, column 2"):
        run.predict([[1.0, 2.0, 3.0], [1.0, 2.0, float("nan")]])
    with sentence("this model was trained on arrays, whose columns have no names: give an array, not a dict"):
        run.predict({"a": [1]})


NETS = """
import torch
class Net(torch.nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.layer = torch.nn.Linear(3, outputs)
    def forward(self, x):
        return self.layer(x)
def sized(outputs): return Net(outputs)
def number(): return 3
net = Net()
"""


def test_the_user_names_the_module_of_a_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = accord.fit(Own(), arrays(), rounds=2, folder=tmp_path / "runs")
    (tmp_path / "users_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    for model in ("users_nets:Net", "users_nets:net", Own):
        assert torch.equal(accord.load("runs", model=model).last.vector, run.last.vector)
    for wrong in ("users_nets", "users_nets:sized", "users_nets:number", "users_nets:missing", "absent:net"):
        with pytest.raises(AccordError, match="model|users_nets:missing|absent:net"):
            accord.load("runs", model=wrong)


def test_settings_that_make_no_model_are_an_error(tmp_path: Path) -> None:
    run = accord.fit(accord.models.mlp(features=3, classes=2, hidden=4), arrays(), rounds=1, folder=tmp_path)
    assert run.folder is not None
    for odd in ({"hidden": "wide"}, {"hidden": -3}, {"depth": 2}):
        form = json.loads((run.folder / "experiment.json").read_text())
        form["model"] |= odd
        forge(run.folder, {"experiment.json": json_bytes(form)})
        with sentence("model: ", "mlp", "--model"):
            accord.load(run.folder)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_scaling_of_the_users_is_handed_in(tmp_path: Path) -> None:
    fed = replace(arrays(), prepare=doubled)
    run = accord.fit(accord.models.logistic(features=3, classes=2), fed, rounds=1, folder=tmp_path)
    with sentence("scaled its samples by a function that its folder does not hold"):
        accord.load(tmp_path).predict(fed.x)
    assert accord.load(tmp_path, prepare=doubled).predict(fed.x).to_csv() == run.predict(fed.x).to_csv()


def test_regressions_give_values(tmp_path: Path) -> None:
    fed = arrays(regression=True)
    run = accord.fit(accord.models.logistic(features=3, classes=1), fed, rounds=2, folder=tmp_path)
    values = accord.load(tmp_path).predict(fed.x).values
    assert values is not None and values.shape == (60,)
    torch.testing.assert_close(values, run.model()(fed.read(torch.arange(60))[0])[:, 0].detach())
    with sentence("a regression has values and no labels"):
        _ = run.predict(fed.x).labels
    assert run.predict(fed.x[:1]).to_csv().startswith("prediction\n")


def test_every_client_has_its_own_model(tmp_path: Path) -> None:
    fed, model = arrays(), accord.models.logistic(features=3, classes=2)
    run = accord.fit(model, fed, accord.local_only(), rounds=2, folder=tmp_path)
    again, alone = accord.load(tmp_path), accord.fit(model, fed, accord.local_only(), rounds=2)
    answers = [one.predict(fed.x, client="north").to_csv() for one in (run, again, alone)]
    assert answers[0] == answers[1] == answers[2] != again.predict(fed.x, client="south").to_csv()
    with sentence("this run trained no common model", "client=..."):
        again.predict(fed.x)
    for one in (run, again, alone):
        with sentence("client west was unseen in this run, and so has no model of its own"):
            one.predict(fed.x, client="west")
        with sentence("client nort took no part in the training", "did you mean 'north'?"):
            one.predict(fed.x, client="nort")
    common = accord.fit(model, fed, rounds=1)
    with sentence("this run has one model for all clients, so there is none of client north alone"):
        common.predict(fed.x, client="north")


def test_an_unfinished_run_can_be_loaded(tmp_path: Path) -> None:
    run = accord.fit(
        accord.models.logistic(features=3, classes=2), arrays(), rounds=9, folder=tmp_path, hooks=[lambda event: True]
    )
    again = accord.load(tmp_path)
    assert again.stopped == "unfinished, round 1"
    assert torch.equal(again.last.vector, run.last.vector)


def test_pictures_are_scaled_as_in_training(tmp_path: Path) -> None:
    fed = accord.data.digits(clients=4, split="iid")
    run = accord.fit(accord.models.lenet(), fed, rounds=1, steps=1, folder=tmp_path)
    again = accord.load(tmp_path)
    torch.testing.assert_close(again.predict(fed.x[:7]).probabilities, run.predict(fed.x[:7]).probabilities)
    assert again.preparation is not None and again.preparation.scaling == fed.prepare


def test_folders_that_are_no_run_get_a_sentence(tmp_path: Path) -> None:
    with sentence(f"there is no folder {tmp_path / 'x'}"):
        accord.load(tmp_path / "x")
    with sentence(f"{tmp_path} holds no runs"):
        accord.load(tmp_path)
    fed, model = arrays(), accord.models.logistic(features=3, classes=2)
    for seed in (0, 1):
        run = accord.fit(model, fed, rounds=1, folder=tmp_path, seed=seed)
    with sentence(f"{tmp_path} holds 2 runs", "name one of them"):
        accord.load(tmp_path)
    assert run.folder is not None
    (run.folder / "model.safetensors").write_bytes(b"no tensors")
    with sentence("model.safetensors is damaged"):
        accord.load(run.folder)
    without_checksums(run.folder)
    (run.folder / "preparation.json").unlink()
    (run.folder / "model.safetensors").unlink()  # the checkpoint has the weights, too
    with sentence("does not say how its data was prepared (preparation.json)"):
        accord.load(run.folder).predict(fed.x)
    (run.folder / "preparation.json").write_text("{}")
    with sentence("preparation.json is damaged"):
        accord.load(run.folder)


# -------------------------------------------------------------------------------------------------- to look at


def test_a_notebook_shows_a_table_and_curves(trained: Any) -> None:
    from xml.etree import ElementTree

    drawn = ElementTree.fromstring(trained[0]._repr_html_())
    assert {row[0].text for row in drawn.iter("tr")} >= {"train", "held-out", "unseen"}
    assert len(list(drawn.iter("polyline"))) == 3
    one = accord.fit(accord.models.logistic(features=3, classes=2), replace(arrays(), name="<&>"), rounds=1)
    assert "&lt;&amp;&gt;" in one._repr_html_() and "<svg" not in one._repr_html_()


def test_a_run_as_a_data_frame(trained: Any) -> None:
    pytest.importorskip("pandas")
    frame = trained[0].to_pandas()
    assert frame.groupby("round").size().to_dict() == {2: 3, 4: 3}
    last = frame[(frame["round"] == 4) & (frame.group == "unseen")].iloc[0]
    figures = trained[0].history[-1][1].splits["unseen"].metrics["accuracy"]
    assert (last["accuracy"], last["accuracy worst"]) == (figures.by_sample, figures.worst)


def test_without_onnx_the_way_to_get_it_is_told(trained: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with sentence("run.export() needs onnx, which is not installed", 'pip install "accord-fl[onnx]"'):
        trained[0].export(tmp_path / "model.onnx")


def test_onnx_answers_the_same(trained: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="models are exported with onnx: pip install onnx onnxruntime")
    onnxruntime = pytest.importorskip("onnxruntime")
    run, fed, source = trained
    session = onnxruntime.InferenceSession(run.export(tmp_path / "model.onnx"))
    (probabilities,) = session.run(None, {"x": fed.x.numpy()})
    # another library computes it, in another order
    np.testing.assert_allclose(probabilities, run.predict(source).probabilities, atol=1e-6)
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == ["ill", "well"] and len(json.loads(told["inputs"])) == fed.shape[0]
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_predictions_of_nan_are_told(tmp_path: Path) -> None:
    run = accord.fit(accord.models.logistic(features=3, classes=2), arrays(), rounds=1)
    broken = replace(run, last=replace(run.last, vector=run.last.vector * float("nan")))
    with sentence("the model answers NaN for 2 of 2 rows, the first is row 1"):
        broken.predict(np.zeros((2, 3)))


def test_two_classes_by_one_logit() -> None:
    from accord.runs.predictor import answer

    two = Preparation((3,), 2)
    torch.testing.assert_close(answer(torch.zeros(2, 1), two), torch.full((2, 2), 0.5))
    with sentence("the model answers with shape (1,) a sample, and there are 3 classes"):
        answer(torch.zeros(2, 1), Preparation((3,), 3))
    assert repr(Predictions(("a", "b"), torch.zeros(2, 2))) == "<2 predictions, classes a, b>"
