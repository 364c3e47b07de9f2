"""The code of README.md and of every page of docs/ does what the page says.

Python is run on small settings, experiment files are validated, commands are parsed, and what they name exists. The
notes that make blocks small are explained in `markdown_blocks.py`.
"""

import ast
import os
import re
import shlex
import shutil
import signal
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import typer.main
from markdown_blocks import ROOT, Block, blocks, commands, pages, smaller
from torch.utils.data import TensorDataset

import accord
from accord.core.layout import Layout
from accord.core.reports import Reports
from accord.core.round import Round
from accord.experiments import experiment, sweep
from accord.rules.local import Training
from accord.studies import Study, find
from accord.training.plan import Plan
from conftest import blobs, mlp

ALL = [block for page in pages() for block in blocks(page)]
PYTHON = {
    page: [b for b in ALL if b.page == page and b.language == "python"] for page in dict.fromkeys(b.page for b in ALL)
}
TOML = [block for block in ALL if block.language == "toml"]
SHELL = [(block, line) for block in ALL if block.language in ("", "bash", "sh", "console") for line in commands(block)]
LONGEST = 90  # seconds for a page, on a busy machine; most take two


# ----------------------------------------------------------------------------------------- what readers bring


def _patients(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 2
    return torch.randn(count, 30, generator=generator) + y[:, None], y


def _record(scale: float) -> Any:
    one = torch.ones(1, 1)
    delta = scale * torch.linspace(-1.0, 1.0, 5)[None]
    algorithm = accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    reports = Reports(delta=delta, weight=one, steps=one, buffers=one[:, :0])
    return algorithm.lift(reports, algorithm.init(Layout.flat(5), 2, torch.zeros(5)))


GIVEN: dict[str, Callable[[], Any]] = {
    "model": mlp,
    "fed": blobs,
    "my_model": lambda: accord.models.logistic(features=30, classes=2),
    "algorithm": lambda: accord.fedavg(mask=accord.gma(0.4), weighting="uniform"),
    "memory": lambda: accord.fedavg(mask=accord.gma(0.4)).init(Layout.flat(5), 2, torch.zeros(5)),
    "round": lambda: Round(1, Layout.flat(5), 2),
    "record_a": lambda: _record(1.0),
    "record_b": lambda: _record(0.5),
    "dataset_c": lambda: TensorDataset(*_patients(20, 3)),
    "x": lambda: _patients(60)[0],
    "y": lambda: _patients(60)[1],
    "client": lambda: [f"hospital-{n % 6}" for n in range(60)],
    **{f"x_{name}": lambda seed=seed: _patients(20, seed)[0] for seed, name in enumerate("abc")},
    **{f"y_{name}": lambda seed=seed: _patients(20, seed)[1] for seed, name in enumerate("abc")},
    "patients": lambda: shutil.copy(ROOT / "examples/hospitals/patients.csv", "patients.csv"),
    "accord": lambda: accord,
    "torch": lambda: torch,
    "Path": lambda: Path,
    "Training": lambda: Training,
    "Plan": lambda: Plan,
}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to run in, on one core: what blocks train is too small to be handed out to workers."""
    monkeypatch.chdir(tmp_path)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores:
        os.sched_setaffinity(0, {min(cores)})
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST)
    yield tmp_path
    signal.alarm(0)
    if cores:
        os.sched_setaffinity(0, cores)


def _too_long(*_: object) -> None:
    raise TimeoutError(
        f"the page's blocks take more than {LONGEST} s: a note above the block makes it smaller (markdown_blocks.py)"
    )


# ----------------------------------------------------------------------------------------------------- Python


@pytest.mark.parametrize("page", [page for page, held in PYTHON.items() if any(b.skip is None for b in held)])
def test_python(page: str, scratch: Path) -> None:
    """The blocks of a page run one after another, as a reader would type them."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in PYTHON[page]:
        if block.skip is not None:
            continue
        unknown = sorted(set(block.given) - set(GIVEN))
        assert not unknown, f"{block}: nobody knows what {', '.join(unknown)} may be: add it to GIVEN"
        names |= {name: GIVEN[name]() for name in block.given}
        try:
            exec(compile(smaller(block), str(block), "exec"), names)
        except Exception as error:
            pytest.fail(f"{block}: {type(error).__name__}: {error}")


@pytest.mark.parametrize("block", [block for block in ALL if block.skip is not None], ids=str)
def test_skipped(block: Block) -> None:
    """What is not run is named, with the reason; Python must still be Python."""
    assert len(block.skip or "") > 10, f"{block} is skipped without a reason"
    if block.language == "python":
        ast.parse(block.text)
    pytest.skip(f"{block}: {block.skip}")


# ------------------------------------------------------------------------------------------- experiment files


@pytest.mark.parametrize("block", [block for block in TOML if block.skip is None], ids=str)
def test_experiment_files(block: Block, tmp_path: Path) -> None:
    if "sweep" in tomllib.loads(block.text):
        path = tmp_path / "sweep.toml"
        path.write_text(block.text)
        assert len(sweep.read(path)) > 1
    else:
        experiment.parse(block.text, name=str(block))


# --------------------------------------------------------------------------------------------------- commands


def parsed(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The command's name and what it was given, by the command line's own parser; nothing is run."""
    from accord.cli.app import app

    command, context, path = typer.main.get_command(app), None, []
    name, rest = "accord", words
    while True:
        try:
            context = command.make_context(name, list(rest), parent=context)
        except typer.Exit:  # of --help, which prints and is done
            return [*path, name], {}
        if not hasattr(command, "resolve_command"):
            return path, context.params
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        path.append(name)


COMMANDS = [(block, line) for block, line in SHELL if line.startswith("accord ")]


@pytest.mark.parametrize(
    ("block", "line"), COMMANDS, ids=[f"{block}-{line.split('#')[0].strip()}" for block, line in COMMANDS]
)
def test_commands(block: Block, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    (*_, name), given = parsed(words)
    overrides = given.get("overrides") or []
    file = given.get("file")
    if file is not None and str(file).startswith("experiments/"):
        read = sweep.read if name == "sweep" else experiment.read
        read(ROOT / file, overrides)
    if name in ("describe", "preview") and not given["what"].endswith(".toml"):
        experiment.parse("", [f"data.name={given['what']}", *(f"data.{pair}" for pair in given["options"] or [])])
    if name == "reproduce" and given["study"] and "/" not in given["study"] and not given["study"].endswith(".toml"):
        pairs = [pair.split("=") for pair in ",".join(given["only"]).split(",")] if given["only"] else []
        study = find(given["study"])
        assert isinstance(study, Study) or not pairs
        if isinstance(study, Study):
            study.only({axis: values.split("+") for axis, values in pairs})


@pytest.mark.parametrize("page", sorted({block.page for block, _ in SHELL}))
def test_files_and_targets_exist(page: str) -> None:
    """Scripts that a page runs, and targets of make."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block, line in SHELL:
        if block.page != page or block.skip is not None:
            continue
        words = line.split("#")[0].split()
        if words[:1] == ["python"] and words[1].endswith(".py"):
            assert (ROOT / words[1]).exists(), f"{block}: there is no {words[1]}"
        if words[:1] == ["make"]:
            assert words[1] in targets, f"{block}: make has no target {words[1]}"


def test_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note changes what it names, wherever it stands in the block; one that changes nothing is found out."""
    text = "# A page\n\n<!-- given: model -->\n<!-- small: rounds=2, mnist=digits -->\n"
    text += "```python\nfit(model, data.mnist(clients=9), rounds=200)\n```\n"
    page = tmp_path / "page.md"
    page.write_text(text + "```{toctree}\nother\n```\n\n<!-- skip: takes a cluster -->\n\n```python\nlost\n```\n")
    monkeypatch.setattr("markdown_blocks.ROOT", tmp_path)
    first, tree, last = blocks(page)
    assert ast.unparse(smaller(first)) == "fit(model, data.digits(clients=9), rounds=2)"
    assert first.given == ("model",) and str(first) == "page.md:5"
    assert tree.language == "{toctree}" and last.skip is None  # a note counts right above its block
    with pytest.raises(AssertionError, match="page.md:5: the note has epochs, which the block has not"):
        smaller(replace(first, small={"epochs": "1"}))


def test_wrong_commands_are_found_out() -> None:
    block = ALL[0]
    for wrong, why in {
        "accord run experiments/quickstart.toml --fast": "No such option: --fast",
        "accord run experiments/quickstart.toml train.roundz=3": "train.roundz",
        "accord walk": "No such command 'walk'",
        "accord data describe mnist splitt=labels": "data.splitt",
        "accord reproduce tmlr-table2 --only dataset=moon": "dataset of tmlr-table2 has no value 'moon'",
    }.items():
        with pytest.raises(Exception, match=why):
            test_commands(block, wrong)


def test_there_is_code_to_test() -> None:
    """An empty list of blocks would pass all of the above."""
    assert len([b for held in PYTHON.values() for b in held]) > 25 and len(TOML) > 3 and len(COMMANDS) > 30
