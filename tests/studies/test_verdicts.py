"""`accord verdicts`: a page of all results in a folder, or a sentence that names the file it fails by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.cli.verdicts import verdicts
from conftest import sentence

RESULTS = Path(__file__).parents[2] / "replication/results"


def doubled(content: Any) -> None:
    content["points"] = [*content["points"], *content["points"]]


def mixed(content: Any) -> None:
    content["cells"][0]["grid"] = {name: [None, 1.0] for name in content["cells"][0]["grid"]}


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("tmlr-table4", doubled, "there twice"),
        ("tmlr-table4", lambda content: content.update(name=None), "name: "),
        ("tmlr-table8", mixed, "not supported between"),
    ],
)
def test_one_damaged_file_is_named_and_no_page_is_written(
    name: str, damage: Callable[[Any], object], said: str, tmp_path: Path
) -> None:
    """Also where only judging shows it: a page without the study would say that it was not run."""
    for file in (RESULTS / "rules.json", RESULTS / f"{name}.json"):
        (tmp_path / file.name).write_text(file.read_text())
    damaged = tmp_path / f"{name}.json"
    damage(content := json.loads(damaged.read_text()))
    damaged.write_text(json.dumps(content))
    with sentence(str(damaged), said):
        verdicts(tmp_path, tmp_path / "out/README.md")
    assert not (tmp_path / "out").exists()
