"""Experiment files: what they become, which run folder they name, and one sentence for everything that does not fit."""

import re
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import accord
from accord.attacks import ATTACKS
from accord.core.errors import AccordError
from accord.core.schedule import SCHEDULES, cosine
from accord.experiments.cost import as_text
from accord.experiments.data_options import NO_AUGMENT, NO_SHIFT, WAYS
from accord.experiments.experiment import Experiment, parse, read
from accord.experiments.parts import ALGORITHMS
from accord.experiments.reference import keys
from accord.experiments.settings import SECTIONS, Settings
from accord.models import MODELS
from accord.rules.averages import AVERAGES
from accord.rules.local import LOCALS, Training
from accord.rules.masks import MASKS, and_mask, gma
from accord.rules.named import fedadam
from accord.rules.servers import SERVERS
from accord.training.engine_choice import ENGINES

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.toml"


def of(*overrides: str, text: str = "") -> Experiment:
    return parse(text, overrides)


def sentence(*overrides: str, text: str = "") -> str:
    """What the user is told, which must be one sentence on one line."""
    with pytest.raises(AccordError) as caught:
        parse(text, overrides)
    told = str(caught.value)
    assert "\n" not in told
    return told


# ---------------------------------------------------------------------------------------- what a file becomes


def test_a_file_becomes_the_objects_it_describes() -> None:
    experiment = read(QUICKSTART)
    assert experiment.algorithm == fedadam(lr=0.02, mask=gma(0.4))
    assert experiment.training == Training(epochs=1, batch=32, lr=0.01, momentum=0.9)
    assert experiment.supply.split.options == {"classes": 2, "noise": 0.1}
    plan = experiment.plan(3)
    assert (plan.rounds, plan.sample, plan.seed) == (200, 10, 3)
    assert experiment.text == QUICKSTART.read_text()


def test_an_empty_file_is_an_experiment() -> None:
    assert of().settings == Settings()


def test_all_means_everyone_and_everything() -> None:
    experiment = of("train.sample=all", "train.batch=all")
    assert experiment.plan(0).sample is None and experiment.training.batch is None


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("algorithm.mask.tau=0.6", "algorithm", "mask", {"name": "gma", "tau": 0.6}),
        ("train.momentum=0", "train", "momentum", 0.0),
        ("run.seeds=0,1, 2", "run", "seeds", [0, 1, 2]),
        ("run.seeds=[3, 4]", "run", "seeds", [3, 4]),
        ("run.seeds=5", "run", "seeds", [5]),
        ("data.name=digits", "data", "name", "digits"),
        ('data.name="digits"', "data", "name", "digits"),
        (" data.name = digits ", "data", "name", "digits"),
        ("run.folder=../some where", "run", "folder", "../some where"),
        ('run.folder="a,b"', "run", "folder", "a,b"),
        ("run.folder=a=b", "run", "folder", "a=b"),
        ("train.sample=all", "train", "sample", "all"),
        ("train.rounds=1_000", "train", "rounds", 1000),
    ],
)
def test_overrides_are_toml_values_bare_words_and_lists(override: str, section: str, key: str, value: object) -> None:
    experiment = of("algorithm.mask=gma", override)
    found = getattr(getattr(experiment.settings, section), key)
    assert found == value and type(found) is type(value)


def test_the_last_override_wins_and_the_text_stays_as_written() -> None:
    text = "[train]\nrounds = 7\nlr = 0.5\n"
    experiment = of("train.rounds=8", "train.rounds=9", text=text)
    assert (experiment.settings.train.rounds, experiment.settings.train.lr) == (9, 0.5)
    assert experiment.text == text


def test_overrides_reach_the_algorithm_and_its_parts() -> None:
    assert of("algorithm.mask=and", "algorithm.mask.tau=0.8", "algorithm.mask.rescale=true").algorithm.mask == and_mask(
        0.8, rescale=True
    )
    experiment = of("train.schedule=cosine", "train.over=50", "train.floor=0.001")
    assert experiment.training.lr == cosine(0.01, over=50, floor=0.001)


# ------------------------------------------------------------------------------------------ resolved settings


def test_resolved_settings_name_every_default_that_applies() -> None:
    full = of(
        "data.split=labels",
        "algorithm.name=fedadam",
        "algorithm.mask=and",
        "train.schedule=exponential",
        "model.name=cnn",
    ).resolved()
    assert full["data"]["classes"] == 2 and full["data"]["noise"] == 0.1
    assert full["model"] == {"name": "cnn", "width": 16, "hidden": 64, "dropout": 0.25, "norm": "none"}
    assert full["train"]["decay"] == 0.99
    adam = {
        "lr": 0.02,
        "beta1": 0.9,
        "beta2": 0.99,
        "eps": 0.001,
        "eps_inside": False,
        "placement": "after",
        "bounded": False,
    }
    assert full["algorithm"] == {
        "name": "fedadam",
        "local": {"name": "sgd", "full_batch": False},
        "average": {"name": "mean", "weighting": "samples"},
        "mask": {"name": "and", "tau": 0.4, "rescale": False, "scope": "coordinate", "memory": 0.0},
        "server": {"name": "adam", **adam},
    }


def test_resolved_settings_leave_out_what_does_not_apply() -> None:
    full = of().resolved()
    assert "classes" not in full["data"] and "alpha" not in full["data"]
    assert full["algorithm"]["mask"] == {"name": "none"} and "beta1" not in full["algorithm"]["server"]
    assert "over" not in full["train"] and "budget" not in full["run"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_dry_run_prints_a_file_that_means_the_same(name: str) -> None:
    masked = name not in ("fedgma", "causalfed", "pooled", "local_only")
    chosen = of(
        f"algorithm.name={name}", *(["algorithm.mask=gma"] if masked else []), "data.split=dirichlet", "run.seeds=1,2"
    )
    again = parse(as_text({"settings": chosen.resolved(), "cost": {"runs": 2}, "folders": ["x"]}))
    assert again.resolved() == chosen.resolved()
    assert again.folder(1) == chosen.folder(1)


# --------------------------------------------------------------------------------------------------- identity

BASE = ("data.split=labels", "algorithm.name=fedadam", "algorithm.mask=gma")


@pytest.mark.parametrize(
    "same",
    [
        "train.rounds=7",
        "run.engine=sequential",
        "run.device=cpu",
        "run.checkpoint_every=3",
        "run.budget=60",
        "run.seeds=0,1,2",
        "data.source=elsewhere",
        # defaults, written out
        "data.clients=100",
        "data.classes=2",
        "data.noise=0.1",
        "data.heldout=0.1",
        "model.name=lenet",
        "train.sample=all",
        "train.lr=0.01",
        "train.schedule=constant",
        "train.momentum=0.9",
        "algorithm.mask.tau=0.4",
        "algorithm.server.lr=0.02",
        "algorithm.server.beta2=0.99",
        "algorithm.server.placement=after",
        "algorithm.average.weighting=samples",
    ],
)
def test_what_changes_no_result_keeps_the_folder(same: str) -> None:
    assert of(*BASE, same).folder(0) == of(*BASE).folder(0)


@pytest.mark.parametrize(
    "other",
    [
        "algorithm.mask.tau=0.5",
        "algorithm.mask=and",
        "algorithm.name=fedyogi",
        "algorithm.server.lr=0.03",
        "algorithm.server.placement=before",
        "data.name=digits",
        "data.clients=99",
        "data.classes=3",
        "data.split=iid",
        "data.unseen=1",
        "data.heldout=0.2",
        "data.seed=0",
        "model.name=cnn",
        "train.sample=9",
        "train.sample=10",
        "train.epochs=2",
        "train.batch=all",
        "train.lr=0.02",
        "train.schedule=exponential",
        "train.clip=1",
        "train.lost=0.1",
        "train.min_clients=2",
        "train.evaluate_every=5",
    ],
)
def test_what_changes_a_result_changes_the_folder(other: str) -> None:
    assert of(*BASE, other).folder(0).name != of(*BASE).folder(0).name


def test_a_folder_is_named_after_settings_and_seed() -> None:
    name = of(*BASE, "run.folder=here").folder(4)
    assert name.parent == Path("here")
    assert re.fullmatch(r"mnist-fedadam-gma-[0-9a-f]{10}-s4", name.name)
    assert of(*BASE).folder(5).name.removesuffix("-s5") == name.name.removesuffix("-s4")


def test_weights_to_start_from_count_by_content(tmp_path: Path) -> None:
    for file, value in (("a", 0.0), ("b", 1.0), ("same-as-a", 0.0)):
        save_file({"w": torch.full((2,), value)}, tmp_path / file)
    named = {file: of(f"model.start={tmp_path / file}").folder(0) for file in ("a", "b", "same-as-a")}
    assert named["a"] == named["same-as-a"] != named["b"]
    assert of().folder(0) not in named.values()


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        # type
        ("train.rounds=many", "train.rounds must be a whole number, got 'many' (rounds of training)"),
        ("train.rounds=2.5", "train.rounds must be a whole number, got 2.5"),
        ("train.rounds=true", "train.rounds must be a whole number, got true"),
        ("train.lr=fast", "train.lr must be a number, got 'fast'"),
        ("train.lr=1,2", "train.lr must be a number, got [1, 2]"),
        ("train.lr=", "train.lr must be a number, got ''"),
        ("train.sample=some", "train.sample must be a whole number or 'all', got 'some'"),
        ("train.sample=1.5", "train.sample must be a whole number or 'all', got 1.5"),
        ("train.batch=true", "train.batch must be a whole number or 'all', got true"),
        ("algorithm.mask=and algorithm.mask.rescale=1", "algorithm.mask.rescale must be true or false, got 1"),
        ("data.name=5", "data.name must be text in quotes, got 5"),
        (
            "run.seeds=0,x",
            "run.seeds must be one or more, each a whole number of at least 0 and below 4294967296, got 'x'",
        ),
        (
            "run.seeds=true",
            "run.seeds must be one or more, each a whole number of at least 0 and below 4294967296, got true",
        ),
        # range
        ("data.clients=0", "data.clients must be a whole number of at least 1, got 0"),
        (
            "data.unseen=-1",
            "data.unseen must be a whole number of at least 0 or 'each' or one or more, each text in quotes, got -1",
        ),
        ("data.heldout=1", "data.heldout must be a number of at least 0 and below 1, got 1"),
        ("data.split=labels data.noise=2", "data.noise must be a number of at least 0 and at most 1, got 2"),
        ("data.split=labels data.classes=0", "data.classes must be a whole number of at least 1, got 0"),
        ("data.split=dirichlet data.alpha=0", "data.alpha must be a number above 0, got 0"),
        ("data.split=quantity data.beta=-1", "data.beta must be a number above 0, got -1"),
        ("model.name=cnn model.dropout=1", "model.dropout must be a number of at least 0 and below 1, got 1"),
        ("model.name=cnn model.width=0", "model.width must be a whole number of at least 1, got 0"),
        ("train.rounds=0", "train.rounds must be a whole number of at least 1, got 0"),
        ("train.sample=0", "train.sample must be a whole number of at least 1, got 0"),
        ("train.batch=0", "train.batch must be a whole number of at least 1, got 0"),
        ("train.epochs=-3", "train.epochs must be a whole number of at least 1, got -3"),
        ("train.evaluate_every=0", "train.evaluate_every must be a whole number of at least 1, got 0"),
        ("train.lr=0", "train.lr must be above 0, got 0.0"),
        ("train.lr=-0.1", "train.lr must be above 0, got -0.1"),
        ("train.lr=nan", "train.lr must be a finite number, got nan"),
        ("train.momentum=1", "train.momentum must be at least 0 and below 1, got 1.0"),
        ("train.weight_decay=-1", "train.weight_decay must be 0 or more, got -1.0"),
        ("train.weight_decay=inf", "train.weight_decay must be a finite number, got inf"),
        ("train.clip=0", "train.clip must be above 0, got 0.0"),
        ("train.lost=2", "train.lost must be between 0 and 1, got 2.0"),
        ("train.schedule=exponential train.decay=0", "train.decay must be above 0 and at most 1, got 0.0"),
        ("train.schedule=steps train.every=0", "train.every must be at least 1 round, got 0"),
        ("train.schedule=cosine train.over=0", "train.over must be at least 1 round, got 0"),
        (
            "algorithm.mask=gma algorithm.mask.tau=1.4",
            "algorithm.mask.tau must be between 0 and 1, got 1.4: it is the share",
        ),
        (
            "algorithm.mask=gma algorithm.mask.tau=nan",
            "algorithm.mask.tau must be a finite number",
        ),
        ("algorithm.server.lr=-1", "algorithm.server.lr must be a number of 0 or more for the server, got -1.0"),
        (
            "algorithm.server.lr=inf",
            "algorithm.server.lr must be a finite number, got inf (the server's learning rate)",
        ),
        ("algorithm.name=fedprox algorithm.local.mu=-1", "algorithm.local.mu must be 0 or more, got -1.0"),
        (
            "algorithm.name=fedadam algorithm.server.beta1=1",
            "algorithm.server.beta1 must be at least 0 and below 1, got 1.0",
        ),
        ("algorithm.name=fedadam algorithm.server.eps=0", "algorithm.server.eps must be above 0, got 0.0"),
        (
            "run.seeds=[]",
            "run.seeds must be one or more, each a whole number of at least 0 and below 4294967296, got []",
        ),
        (
            "run.seeds=-1",
            "run.seeds must be one or more, each a whole number of at least 0 and below 4294967296, got -1",
        ),
        (
            "run.seeds=4294967296",
            (
                "run.seeds must be one or more, each a whole number of at least 0 and below 4294967296, got 4294967296"
                " (one"
            ),
        ),
        ("run.seeds=1,2,1", "run.seeds must differ from each other, got [1, 2, 1]"),
        ("run.checkpoint_every=0", "run.checkpoint_every must be a whole number of at least 1, got 0"),
        ("run.budget=0", "run.budget must be a number above 0, got 0"),
        ('run.folder=""', "run.folder must be text in quotes, got ''"),
        # keys that do not go together
        ("data.clients=5 train.sample=6", "train.sample must be at most the 5 clients of data.clients, got 6"),
        ("train.sample=3 train.min_clients=4", "train.min_clients must be at most the 3 clients of a round, got 4"),
        (
            "data.clients=3 train.sample=all train.min_clients=4",
            "train.min_clients must be at most the 3 clients of a round, got 4",
        ),
        ("data.alpha=0.5", "data.alpha has no meaning with data.split = 'iid', got 0.5: it belongs to dirichlet"),
        ("model.width=8", "model.width has no meaning with model.name = 'lenet', got 8: it belongs to cnn"),
        ("train.over=8", "train.over has no meaning with train.schedule = 'constant', got 8: it belongs to cosine"),
        ("train.schedule=cosine", "train.over is missing: train.schedule = 'cosine' needs it"),
        ("algorithm.mask.tau=0.3", 'algorithm.mask.name is missing: it says which mask is meant, such as name = "gma"'),
        (
            "algorithm.mask=gma algorithm.mask.rescale=true",
            "algorithm.mask.rescale is not a field of gma, got true: it belongs to and, sand",
        ),
        ("algorithm.local.mu=0.1", "algorithm.local.mu is not a field of sgd, got 0.1: it belongs to prox"),
        (
            "algorithm.name=pooled algorithm.mask=gma",
            "algorithm.mask has no meaning with algorithm.name = 'pooled', got 'gma'",
        ),
        (
            "algorithm.name=local_only algorithm.mask=and",
            "algorithm.mask has no meaning with algorithm.name = 'local_only', got 'and'",
        ),
        (
            "algorithm.name=local_only algorithm.server.lr=1",
            "algorithm.server.lr has no meaning with algorithm.name = 'local_only', got 1",
        ),
        (
            "algorithm.name=scaffold algorithm.local.option=III",
            "algorithm.local.option must be 'mean', 'I' or 'II', got 'III'",
        ),
        # names
        (
            "data.name=mnsit",
            "data.name must be one of mnist, fashion-mnist, cifar10, cifar100, tiny-imagenet, femnist, ",
        ),
        (
            "data.split=random",
            "data.split must be one of iid, labels, exact, dirichlet, quantity, natural, got 'random'",
        ),
        (
            "model.name=vgg",
            "model.name must be one of lenet, cnn, logistic, mlp, resnet18, leaf-cnn, corrective-cnn, got 'vgg'",
        ),
        ("train.schedule=linear", "train.schedule must be one of constant, exponential, steps, cosine, got 'linear'"),
        ("algorithm.name=fedadm", "algorithm.name must be one of fedavg, "),
        (
            "algorithm.mask=gm",
            (
                "algorithm.mask must be one of none, gma, and, sand, magnitude, scaled or module:object of yours, got"
                " 'gm': did you mean"
            ),
        ),
        (
            "algorithm.average.weighting=equal",
            "algorithm.average.weighting must be 'samples' or 'uniform', got 'equal'",
        ),
        ("algorithm.name=fedadam algorithm.server.placement=within", "algorithm.server.placement must be 'after'"),
        ("run.engine=turbo", "run.engine must be one of auto, "),
        # keys and sections
        ("algorithm.tua=0.5", "algorithm.tua is not a known key, got 0.5: did you mean 'mask.tau'?"),
        ("train.zzz=1", "train.zzz is not a known key, got 1: choose one of rounds, sample, "),
        ("train.lr.x=1", "train.lr must be a number, got {'x': 1}"),
        ("algoritm.tau=0.5", "[algoritm] is not a section of an experiment: did you mean 'algorithm'?"),
        # optimisers
        ("train.optimiser=adam train.momentum=0.9", "train.momentum has no meaning with train.optimiser = 'adam', got"),
        ("train.eps=0.1", "train.eps has no meaning with train.optimiser = 'sgd', got 0.1: it belongs to adam, adamw"),
        ("train.optimiser=adma", "train.optimiser must be one of sgd, adam, adamw, got 'adma': did you mean 'adam'?"),
        ("train.optimiser=adam train.betas=0.9,1", "train.betas must be two numbers of at least 0 and below 1"),
        (
            "algorithm.name=scaffold algorithm.local.option=II train.optimiser=adam",
            "train.optimiser must be 'sgd' for SCAFFOLD's option II",
        ),
        ("nosuch.key=1", "[nosuch] is not a section of an experiment: choose one of data, model, train, algorithm"),
        # overrides that are none
        ("tau=0.6", "'tau=0.6' is not a setting: write section.key=value"),
        ("algorithm.mask.tau", "'algorithm.mask.tau' is not a setting: write section.key=value"),
        ("algorithm.=1", "'algorithm.=1' is not a setting"),
        (".tau=1", "'.tau=1' is not a setting"),
    ],
)
def test_a_bad_setting_is_one_sentence(overrides: str, told: str) -> None:
    assert sentence(*overrides.split()).startswith(told)


def test_a_local_optimiser_from_a_file_has_its_own_settings_and_leaves_those_of_another_behind() -> None:
    adamw = Training(batch=32, optimiser="adamw", betas=(0.8, 0.99), eps=1e-8, weight_decay=0.01)
    assert of("train.optimiser=adamw", "train.betas=0.8,0.99").training == adamw
    text = '[train]\noptimiser = "sgd"\nmomentum = 0.5\nweight_decay = 0.1'
    resolved = parse(text, ["train.optimiser=adam"]).resolved()["train"]
    assert (resolved["optimiser"], resolved["weight_decay"], resolved["betas"]) == ("adam", 0.1, [0.9, 0.999])
    assert "momentum" not in resolved and "betas" not in parse(text).resolved()["train"]


def test_option_two_of_scaffold_refuses_momentum_and_names_it() -> None:
    told = sentence("algorithm.name=scaffold", "algorithm.local.option=II")
    assert told.startswith("train.momentum") and "0.9" in told and "option" in told
    assert of("algorithm.name=scaffold", "algorithm.local.option=II", "train.momentum=0").training.momentum == 0.0


@pytest.mark.parametrize(
    ("text", "overrides", "told"),
    [
        ("[train\nrounds = 1", (), "the experiment is not valid TOML: "),
        ("[train]\nrounds = 1\nrounds = 2", (), "is not valid TOML: "),
        ("data = 3", (), "data must be a section, got 3: write [data] on a line of its own"),
        ("data = 3", ("data.clients=4",), "data must be a section, got 3"),
        ("[[data]]\nclients = 3", (), "data must be a section, got [{'clients': 3}]"),
        ("rounds = 3", (), "[rounds] is not a section of an experiment"),
        ("[train]\nlr = 2020-01-01", (), "train.lr must be a number, got datetime.date(2020, 1, 1)"),
    ],
)
def test_a_bad_file_is_one_sentence(text: str, overrides: tuple[str, ...], told: str) -> None:
    assert told in sentence(*overrides, text=text)


def test_several_mistakes_are_told_together_one_line_each() -> None:
    with pytest.raises(AccordError) as caught:
        of("train.rounds=many", "train.sample=some", "data.clinets=3")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert (
        lines[0].startswith("data.clinets")
        and lines[1].startswith("train.rounds")
        and lines[2].startswith("train.sample")
    )


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, told in (
        (tmp_path / "none.toml", "there is no file"),
        (tmp_path, "Is a directory"),
        (binary, "does not hold text in UTF-8"),
    ):
        with pytest.raises(AccordError, match=told) as caught:
            read(path)
        assert str(path) in str(caught.value)


# ---------------------------------------------------------------------------------- found out on this machine


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for the digits, so that no test depends on what lies in the user's own."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            "data.split=labels data.classes=11",
            "data.classes must be a whole number from 1 to the 10 classes of the data, got 11",
        ),
        ("data.clients=1600", "data.clients must be at most the 1,500 samples, unseen ones included, got 1,600"),
        (
            "data.clients=1400 data.unseen=200",
            "data.clients must be at most the 1,500 samples, unseen ones included, got 1,600",
        ),
        ("data.split=quantity data.clients=200", "[data] 1,500 samples could not be cut for 200 clients"),
    ],
)
def test_what_the_data_cannot_give_names_the_key(
    overrides: str, told: str, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(digits))
    with pytest.raises(AccordError, match=re.escape(told)):
        of("data.name=digits", *overrides.split()).federation(0)


def test_files_are_found_beside_the_experiment_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies where the command runs comes first; runs of the same content are one run wherever it lies."""
    (tmp_path / "own").mkdir()
    file, table = tmp_path / "own" / "my.toml", "who,x,y\na,1,0\na,2,1\nb,1,1\n"
    file.write_text(
        '[data]\nname = "table"\nsource = "t.csv"\nclient = "who"\nlabel = "y"\n[model]\nname = "logistic"\n'
    )
    (tmp_path / "own" / "t.csv").write_text(table)
    monkeypatch.chdir(tmp_path)
    beside = read("own/my.toml")
    assert beside.settings.data.source == "own/t.csv"
    (tmp_path / "t.csv").write_text(table)
    here = read("own/my.toml")
    assert here.settings.data.source == "t.csv" and here.folder(0) == beside.folder(0)


def test_weights_to_start_from_must_fit(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(digits))
    small = of("data.name=digits", "model.name=logistic", "data.clients=10")
    fed = small.federation(0)
    fits, other = tmp_path / "fits.safetensors", tmp_path / "other.safetensors"
    state = {name: torch.full_like(value, 0.5) for name, value in small.module(fed, 0).state_dict().items()}
    save_file(state, fits)
    save_file({"w": torch.zeros(2)}, other)
    (tmp_path / "broken").write_text("no tensors here")

    def started(file: Path) -> Experiment:
        return of("data.name=digits", "model.name=logistic", "data.clients=10", f"model.start={file}")

    assert all((value == 0.5).all() for value in started(fits).module(fed, 0).state_dict().values())
    for file in (other, tmp_path / "broken"):
        with pytest.raises(AccordError, match=r"^model\.start: "):
            started(file).module(fed, 0)
    with pytest.raises(
        AccordError, match=r"^model\.start must be a safetensors file that can be read, got '.*missing'"
    ):
        started(tmp_path / "missing").check_here()


@pytest.mark.parametrize(
    "device",
    ["tpu", "mps", pytest.param("cuda", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA"))],
)
def test_a_device_that_is_not_here_is_refused_by_its_key(device: str) -> None:
    experiment = of(f"run.device={device}")
    with pytest.raises(AccordError, match=rf"^run\.device.*'{device}'"):
        experiment.check_here()
    of("run.device=cpu").check_here()


# ----------------------------------------------------------------------------------------------- explanations


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("data.split", WAYS),
        ("data.shift", NO_SHIFT),
        ("data.augment", NO_AUGMENT),
        ("model.name", MODELS),
        ("train.schedule", SCHEDULES),
        ("algorithm.name", ALGORITHMS),
        ("algorithm.mask", ["none", *MASKS]),
        ("algorithm.average", AVERAGES),
        ("algorithm.server", SERVERS),
        ("algorithm.local", LOCALS),
        ("attack.name", ["none", *ATTACKS]),
        ("run.engine", ENGINES),
    ],
)
def test_every_name_that_can_be_chosen_is_explained(key: str, names: list[str]) -> None:
    about = {key: what for key, _, what in keys()}[key]
    assert not [name for name in names if name not in re.findall(r"[\w-]+", about)]


def test_every_key_is_explained_and_its_default_is_what_a_file_gets() -> None:
    explained = {key: default for key, default, what in keys() if what}
    own = {f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields}
    assert own <= set(explained) and {key for key, _, what in keys()} == set(explained)
    for key in own:
        section, _, name = key.partition(".")
        assert getattr(getattr(of().settings, section), name) == explained[key]
    for key, default, _ in keys():
        if key.startswith("algorithm.mask.") and default is not None:
            made, field = [of(f"algorithm.mask={mask}").algorithm.mask for mask in MASKS], key.rpartition(".")[2]
            assert all(getattr(mask, field) == default for mask in made if hasattr(mask, field))


def test_the_quickstart_is_valid_toml_with_every_section() -> None:
    assert set(tomllib.loads(QUICKSTART.read_text())) == set(SECTIONS) - {"attack", "privacy"}  # which few runs have


FILE = """
[data]
split = "labels"
classes = 3
[algorithm]
name = "fedadam"
mask = { name = "gma", tau = 0.6 }
server = { lr = 0.05 }
"""


@pytest.mark.parametrize(
    ("overrides", "algorithm"),
    [
        (["algorithm.mask=none"], accord.fedadam(lr=0.05)),
        (["algorithm.mask=and"], accord.fedadam(lr=0.05, mask=accord.and_mask(0.6))),
        # Adam's rate would be far too short for averaging
        (["algorithm.name=fedavg"], accord.fedavg(mask=accord.gma(0.6))),
        (["algorithm.name=fedadam"], accord.fedadam(lr=0.05, mask=accord.gma(0.6))),  # no other choice
        (["algorithm.name=fedavg", "algorithm.server.lr=1.5"], accord.fedavg(lr=1.5, mask=accord.gma(0.6))),
        (["algorithm.name=pooled"], accord.pooled()),
    ],
)
def test_another_choice_drops_the_options_of_the_old_one(overrides: list[str], algorithm: accord.Algorithm) -> None:
    assert parse(FILE, overrides).algorithm == algorithm


def test_another_split_drops_the_options_of_the_old_one() -> None:
    assert parse(FILE, ["data.split=iid"]).supply.split.options == {}
    assert parse(FILE, ["data.split=dirichlet", "data.alpha=0.3"]).supply.split.options == {"alpha": 0.3}
    with pytest.raises(AccordError, match="algorithm.local.mu is not a field of sgd"):
        parse(FILE, ["algorithm.name=fedavg", "algorithm.local.mu=0.1"])  # what is given with the choice must fit it


def test_a_preset_that_is_no_word_is_replaced_or_refused() -> None:
    assert parse("[algorithm]\nname = [1]", ["algorithm.name=fedadam"]).algorithm == accord.fedadam()
    assert sentence("algorithm.name=a,b", text=FILE).startswith("algorithm.name must be text in quotes, got ['a', 'b']")


def test_seeds_share_what_an_experiment_is_known_by(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    file.write_bytes(b"one")
    experiment, seeds = parse("", ["data.name=arrays", f"data.source={file}"]), (0, 1)
    before = [experiment.folder(seed).name.removesuffix(f"-s{seed}") for seed in seeds]
    file.write_bytes(b"two")
    assert experiment.folder(2).name == f"{before[0]}-s2" and before[0] == before[1]
    assert parse("", ["data.name=arrays", f"data.source={file}"]).folder(0).name != f"{before[0]}-s0"
