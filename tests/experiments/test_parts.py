"""Parts as tables: names, fields, a user's module, an installed package's entry point; and the spelling of accord
0.1."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.core.errors import AccordError
from accord.core.schedule import ramp
from accord.experiments.experiment import parse, read
from accord.experiments.sweep import read as read_sweep
from accord.rules.label import label_of
from accord.rules.local import prox
from accord.rules.registry import Names
from accord.rules.servers import adam, momentum, yogi
from accord.training.run_settings import ALGORITHMS
from conftest import blobs, mlp, sentence, without_checksums

MODULE = """
import sys
from dataclasses import dataclass
from typing import Annotated
from accord.core.protocols import Mask
from accord.rules.local import prox
from accord.rules.masks import gma
from accord.rules.servers import adam

@dataclass(frozen=True)
class half(Mask):
    share: Annotated[float, "how much of every coordinate passes"]
    words: tuple[str, ...] = ()

    def __post_init__(self):
        if self.share > 1:
            raise ValueError("share must be at most 1")
        if self.share < 0:
            sys.exit({}["no such key"] if self.share < -1 else "two\\nlines")

    def lift(self, reports, sent):
        return gma().lift(reports, sent)

    def lower(self, total, state, round):
        return self.share * (total["votes"] * 0 + 1), state

def loose(share: float = 0.5):
    return "a word"

@dataclass
class Maker:  # it has no hash
    def __call__(self, tau: float = 0.7) -> gma:
        return gma(tau)

maker = Maker()

def vague(tau: "Nowhere" = 0.5) -> "Nothing":
    return gma(tau)

@dataclass(frozen=True)
class lion(adam):
    pass

@dataclass(frozen=True)
class far(prox):
    pass

@dataclass(frozen=True)
class misspelled(prox):
    def drfit(self, sent, client_state):
        return -sent["h"]
"""


def algorithm(text: str, *overrides: str) -> accord.Algorithm:
    return parse(f"[algorithm]\n{text}", overrides).algorithm


# --------------------------------------------------------------------------------------------------- by table


def test_a_table_changes_fields_of_the_presets_own_part() -> None:
    assert algorithm("server = { lr = 0.5 }") == accord.fedavg(lr=0.5)
    assert algorithm('name = "fedyogi"\nserver = { lr = 0.5 }').server == yogi(lr=0.5)
    assert algorithm('name = "fedprox"\nlocal = { mu = 0.3 }').local == prox(0.3)
    assert algorithm('name = "scaffold"\naverage = "mean"') == accord.scaffold(), (
        "the preset's own, which counts clients alike"
    )


def test_a_name_takes_the_place_of_the_presets_part() -> None:
    assert algorithm('server = "yogi"').server == yogi()
    assert algorithm('name = "fedyogi"\nserver = { name = "adam", lr = 0.1 }').server == adam(0.1)
    assert algorithm('server = { name = "momentum", beta = 0.5 }\nlocal = "prox"').server == momentum(beta=0.5)
    nested = 'mask = { name = "scaled", by = "mean", mask = { name = "and", tau = 0.6 } }'
    assert algorithm(nested).mask == accord.scaled(accord.and_mask(0.6), "mean")
    assert algorithm('mask = { name = "gma", tau = { from = 0.8, to = 0.4, over = 50 } }').mask == accord.gma(
        ramp(0.8, 50, 0.4)
    )


def test_overrides_go_by_path() -> None:
    text = 'name = "fedadam"\nmask = { name = "gma", tau = 0.6, memory = 0.5 }\nserver = { lr = 0.05 }'
    assert algorithm(text, "algorithm.mask.tau=0.3") == accord.fedadam(lr=0.05, mask=accord.gma(0.3, memory=0.5))
    assert algorithm(text, "algorithm.mask.name=and").mask == accord.and_mask(0.6, memory=0.5)
    assert algorithm(text, "algorithm.mask=none").mask is None
    assert algorithm(text, "algorithm.mask=scaled").mask == accord.scaled(accord.gma(0.6, memory=0.5))
    assert algorithm(text, 'algorithm.mask={ name = "sand" }').mask == accord.sand()
    assert algorithm(text, "algorithm.server=step").server == accord.fedavg().server, "a rate belongs to its rule"
    assert algorithm(text, "algorithm.server.lr=0.1", "algorithm.server=step") == accord.Algorithm(
        mask=accord.gma(0.6, memory=0.5), server=accord.fedavg(lr=0.1).server, name="fedadam"
    )
    assert algorithm(
        'mask = { name = "scaled", mask = { name = "gma", tau = 0.7 } }', "algorithm.mask=and"
    ).mask == accord.and_mask(0.7)


def test_a_preset_drops_what_was_the_old_ones() -> None:
    text = '[algorithm]\nname = "fedadam"\naverage = { name = "mean", weighting = "uniform" }\nserver = { lr = 0.05 }'
    assert parse(text, ["algorithm.name=fedavg"]).algorithm == accord.fedavg()


def test_a_sweep_may_name_a_path_without_quotes(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[data]\nname = "digits"\n[algorithm]\nmask = "gma"\n[sweep]\nalgorithm.mask.tau = [0.2, 0.3]\n'
    )
    masks = [run.experiment.algorithm.mask for run in read_sweep(tmp_path / "s.toml")]
    assert masks == [accord.gma(0.2), accord.gma(0.3)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('mask = "gna"', ["algorithm.mask must be one of none, gma, ", "got 'gna': did you mean 'gma'?"]),
        ('name = "fedadm"', ["algorithm.name must be one of fedavg, ", "got 'fedadm': did you mean 'fedadam'?"]),
        (
            'mask = { name = "gma", tua = 0.3 }',
            ["algorithm.mask.tua is not a field of gma, got 0.3: did you mean 'tau'?"],
        ),
        (
            'mask = { name = "gma", scope = "modl" }',
            ["algorithm.mask.scope must be 'coordinate', 'layer' or 'model', got 'modl': did you"],
        ),
        (
            'mask = { name = "gma", memory = "long" }',
            ["algorithm.mask.memory must be a number, got 'long' (decay of past votes"],
        ),
        (
            'mask = { name = "gma", tau = { to = 0.1, ovr = 5 } }',
            ["algorithm.mask.tau.ovr is not a known key, got 5: did you mean 'over'?"],
        ),
        (
            'mask = { name = "gma", tau = { to = 0.1, over = 0 } }',
            ["algorithm.mask.tau.over must be at least 1 round, got 0"],
        ),
        ('mask = { name = "gma", tau = { to = "x", over = 5 } }', ["algorithm.mask.tau.to must be a number, got 'x'"]),
        (
            'mask = { name = "scaled", mask = { name = "gma", tau = 2.0 } }',
            ["algorithm.mask.mask.tau must be between 0 and 1, got 2.0"],
        ),
        ("mask = { name = 3 }", ["algorithm.mask.name must be text in quotes, got 3"]),
        ("mask = 3", ["algorithm.mask must be text in quotes or a table, got 3"]),
        (
            'average = { name = "krum", keep = 1.5 }',
            ["algorithm.average.keep must be a whole number, got 1.5 (number of clients that are averaged)"],
        ),
        (
            'server = { name = "adm" }',
            ["algorithm.server must be one of step, momentum, adagrad, adam", "did you mean 'adam'?"],
        ),
    ],
)
def test_a_bad_part_is_one_sentence(text: str, told: list[str]) -> None:
    with sentence(*told):
        algorithm(text)


def test_an_engine_that_is_misspelled_is_answered_with_the_nearest() -> None:
    with sentence("run.engine must be one of auto, ", "got 'vectorized': did you mean 'vectorised'?"):
        parse("", ["run.engine=vectorized"])


# ---------------------------------------------------------------------------------------------- module:object


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the user's, and nothing of it left in Python afterwards."""
    (tmp_path / "mine_for_parts.py").write_text(MODULE)
    (tmp_path / "broken_for_parts.py").write_text("import nowhere_at_all\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("mine_for_parts", "broken_for_parts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def of(here: Path, mask: str) -> accord.Algorithm:
    (here / "file.toml").write_text(f"[algorithm]\nmask = {mask}\n")
    return read(here / "file.toml").algorithm


def test_a_class_beside_the_file_is_a_part(here: Path) -> None:
    made = of(here, '{ name = "mine_for_parts:half", share = 1, words = ["a"] }')
    assert label_of(made) == "fedavg + half(1)" and vars(made.mask)["words"] == ("a",)
    again = read(here / "file.toml")
    assert again.resolved()["algorithm"]["mask"] == {"name": "mine_for_parts:half", "share": 1.0, "words": ["a"]}
    assert again.identity["code"] == {"algorithm.mask": "mine_for_parts:half"}


def test_a_misspelled_method_of_a_class_in_a_file_is_an_error(here: Path) -> None:
    (here / "file.toml").write_text('[algorithm]\nlocal = "mine_for_parts:misspelled"\n')
    with sentence("algorithm.local: misspelled", "'drfit'", "'drift'"):
        read(here / "file.toml")


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (
            '"mine_for_part:half"',
            [
                "algorithm.mask.name: mine_for_part:half: there is no module 'mine_for_part'",
                "did you mean 'mine_for_parts'?",
            ],
        ),
        (
            '"broken_for_parts:x"',
            [
                "algorithm.mask.name: broken_for_parts:x: the module cannot be imported: No module named"
                " 'nowhere_at_all'"
            ],
        ),
        ('"mine_for_parts:halve"', ["mine_for_parts.py has no class or function 'halve': did you mean 'half'?"]),
        (
            '"mine_for_parts:half"',
            ["algorithm.mask.share is missing: mine_for_parts:half needs it (how much of every coordinate passes)"],
        ),
        (
            '{ name = "mine_for_parts:half", shore = 1 }',
            ["algorithm.mask.shore is not a field of mine_for_parts:half", "did you mean 'share'?"],
        ),
        ('{ name = "mine_for_parts:half", share = "x" }', ["algorithm.mask.share must be a number, got 'x' (how much"]),
        ('{ name = "mine_for_parts:half", share = 2 }', ["algorithm.mask: share must be at most 1"]),
        ('"mine_for_parts:vague"', ["algorithm.mask.name: the parameters of ", "name 'Nowhere' is not defined"]),
        ('"builtins:dict"', ["algorithm.mask.name: the parameters of <class 'dict'> cannot be read: "]),
        (
            '"mine_for_parts:loose"',
            ["algorithm.mask.name must be the name of a dataclass, got 'mine_for_parts:loose', which makes 'a word'"],
        ),
    ],
)
def test_what_a_module_lacks_is_one_sentence(mask: str, told: list[str], here: Path) -> None:
    with sentence(*told):
        of(here, mask)


def test_a_class_that_complains_in_its_own_way_is_blamed_once(here: Path) -> None:
    with pytest.raises(AccordError, match="^algorithm.mask: share must be at most 1$"):
        of(here, '{ name = "mine_for_parts:half", share = 2 }')
    with sentence("algorithm.mask: SystemExit: two lines"):
        of(here, '{ name = "mine_for_parts:half", share = -1 }')
    with sentence("algorithm.mask: KeyError: 'no such key'"):
        of(here, '{ name = "mine_for_parts:half", share = -2 }')
    with sentence("there is no module 'mine_for_parts.py' in mine_for_parts: did you mean 'mine_for_parts'?"):
        of(here, '"mine_for_parts.py:half"')


def test_a_callable_without_a_hash_is_a_constructor(here: Path) -> None:
    assert of(here, '"mine_for_parts:maker"').mask == accord.gma(0.7)
    assert of(here, '{ name = "mine_for_parts:maker", tau = 0.2 }').mask == accord.gma(0.2)
    with sentence("algorithm.mask.tau must be"):
        of(here, '{ name = "mine_for_parts:maker", tau = "x" }')


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('name = "fedadam"\nserver = "mine_for_parts:lion"', "fedadam with lion"),
        ('local = "mine_for_parts:far"\nmask = "gma"', "fedavg with far + gma(0.4)"),
        (
            'local = "prox"\naverage = "median"\nmask = "gma"\nserver = "adam"',
            "fedavg by median with prox and adam + gma(0.4)",
        ),
        ('name = "fedadam"\nserver = "yogi"', "fedadam with yogi"),
        ('name = "fedadam"\nserver = { name = "adam", lr = 0.5 }', "fedadam"),
        ('name = "fedyogi"\nserver = { beta1 = 0.5 }', "fedyogi"),
        ('name = "fedprox"\nlocal = { mu = 3.0 }', "fedprox"),
    ],
)
def test_a_label_has_the_rules_that_stand_in_for_the_presets_own(here: Path, text: str, label: str) -> None:
    (here / "file.toml").write_text(f"[algorithm]\n{text}\n")
    made = read(here / "file.toml")
    assert made.label == made.recorded(0).label == label
    assert made.folder(0).name.startswith(f"mnist-{made.algorithm.name}-"), "which a label changes nothing of"


def test_what_stays_with_clients_is_a_list_of_the_file_and_part_of_the_name() -> None:
    made = algorithm('name = "fedavg"\nmask = "gma"\npersonal = ["head.*", "batchnorm"]')
    assert made == accord.fedavg(mask=accord.gma()).with_personal("head.*", "batchnorm")
    assert label_of(made) == "fedavg keeping head.*, batchnorm + gma(0.4)"
    one, other = (parse("", overrides) for overrides in (["algorithm.personal=last"], []))
    assert one.resolved()["algorithm"]["personal"] == ["last"] and "personal" not in other.resolved()["algorithm"]
    assert one.folder(0) != other.folder(0)
    with sentence("algorithm", "personal has no meaning with local_only"):
        algorithm('name = "local_only"\npersonal = "last"')


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_presets_label_is_its_name(name: str) -> None:
    assert label_of(ALGORITHMS[name]()) == name


def test_another_module_of_that_name_is_not_taken_for_the_users(here: Path) -> None:
    (here / "json.py").write_text(MODULE)
    with sentence("json would be", "but Python has", "rename yours"):
        of(here, '"json:half"')


# ----------------------------------------------------------------------------------------------- entry points


def installed(folder: Path, **groups: str) -> None:
    """A package as pip would leave it in a folder of the path."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(f"[accord.{group}]\n{line}\n" for group, line in groups.items()))


def test_a_package_registers_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(here, masks="half = mine_for_parts:half\nworse = mine_for_parts:nothing")
    monkeypatch.syspath_prepend(str(here))
    masks = Names("mask", "accord.masks", {"gma": accord.gma})
    assert list(masks) == ["gma", "half", "worse"] and len(masks) == 3 and "mine_for_parts" not in sys.modules
    assert masks["half"](0.5).share == 0.5 and masks["gma"] is accord.gma
    with sentence("the mask 'worse', which the package mine registers as mine_for_parts:nothing, cannot be loaded: "):
        masks["worse"]


@pytest.mark.slow
def test_a_registered_name_is_as_good_as_accords_own(here: Path) -> None:
    installed(
        here, masks="half = mine_for_parts:half", models="broken = nowhere_at_all:x", data="other = nowhere_at_all:x"
    )
    code = "import sys; from accord.experiments.experiment import parse; print(parse(sys.argv[1]).label)"
    text = '[algorithm.mask]\nname = "half"\nshare = 0.25\n'

    def told(text: str) -> subprocess.CompletedProcess[str]:
        path = str(Path(accord.__file__).parents[1])
        return subprocess.run(
            [sys.executable, "-c", code, text], env={"PYTHONPATH": f"{here}:{path}"}, capture_output=True, text=True
        )

    assert told(text).stdout == "fedavg + half(0.25)\n", "and packages that are broken are none of its business"
    assert "the model 'broken', which the package mine registers" in told('[model]\nname = "broken"').stderr
    assert "the data set 'other', which the package mine registers" in told('[data]\nname = "other"').stderr
    assert "did you mean 'half'?" in told('[algorithm]\nmask = "halff"').stderr


@pytest.mark.parametrize(("key", "meant"), [("tau", "mask.tau"), ("beta1", "server.beta1"), ("mu", "local.mu")])
def test_a_field_of_a_part_that_is_given_to_the_algorithm_is_suggested_with_its_part(key: str, meant: str) -> None:
    with sentence(f"algorithm.{key}", f"did you mean {meant!r}?"):
        algorithm(f"{key} = 0.5")


# -------------------------------------------------------------------------------------------- reading folders


def folder_of(path: Path, settings: dict[str, Any]) -> Path:
    """A real run's folder, which says that it had these settings."""
    seed = int(path.name.rpartition("-s")[2])
    run = accord.fit(mlp(), blobs(), rounds=1, sample=2, seed=seed, folder=path.parent)
    assert run.folder is not None
    run.folder.rename(path)
    without_checksums(path)
    (path / "experiment.json").write_text(
        json.dumps({"schema": 1, "seed": seed, "data": {"name": "digits"}, **settings})
    )
    return path


ONE_AFTER_THE_OTHER = """
import json, sys
from accord.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["accord", *words]
    try:
        main()
    except SystemExit as end:
        print("exit", end.code or 0)
    else:
        print("exit 0")
"""


def test_reading_a_folder_imports_no_code_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    parts = {"name": "fedavg", "mask": {"name": "trap:mask", "tau": 0.3}, "server": {"name": "trap:server"}}
    for name in ("one", "other"):
        folder_of(tmp_path / "runs" / f"{name}-0123456789-s0", {"algorithm": parts, "label": "fedavg + mask(0.3)"})
    pair = [f"runs/{name}-0123456789-s0" for name in ("one", "other")]
    commands = (["show", "runs"], ["show", "runs", "--json"], ["report", "runs"], ["compare", *pair])
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(commands)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "imported" not in done.stdout + done.stderr, done.stderr
    assert [code for code in done.stdout.splitlines() if code.startswith("exit ")] == ["exit 0"] * len(commands)
    assert done.stdout.count("fedavg + mask(0.3)") >= 3
    with pytest.raises(AccordError, match="there is no module 'trap'"):  # an experiment is another matter
        parse(textwrap.dedent('[algorithm]\nmask = "trap:mask"'))
