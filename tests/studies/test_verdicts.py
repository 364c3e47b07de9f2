"""`accord verdicts`: a page of all results in a folder, or a sentence that names the file it fails by."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.cli.verdicts import verdicts
from accord.studies.html import html
from accord.studies.page import page
from accord.studies.plan import files_in
from accord.studies.results import read_all
from accord.studies.verdict import NEVER_RUN, claims
from conftest import sentence

RESULTS = Path(__file__).parents[2] / "replication/results"


def doubled(content: Any) -> None:
    content["points"] = [*content["points"], *content["points"]]


def accuracy(value: float) -> Callable[[Any], None]:
    """One figure of a study's first cell."""

    def put(content: Any) -> None:
        content["cells"][0]["figures"]["held-out"]["by_seed"]["0"]["test"] = value

    return put


def curve(content: Any) -> None:
    content["cells"][0]["figures"]["held-out"]["curve"] = {"1": 1.01}


def mixed(content: Any) -> None:
    content["cells"][0]["grid"] = {name: [None, 1.0] for name in content["cells"][0]["grid"]}


def imported_from_data(content: Any) -> None:
    """The command names a file that sounds like a setting of the data."""
    accuracy(2.0)(content)
    content["command"] = "accord reproduce tmlr-table8 --import my-data.xz"


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("tmlr-table4", doubled, "there twice"),
        ("tmlr-table4", lambda content: content.update(name=None), "name: "),
        ("tmlr-table8", mixed, "not supported between"),
        ("tmlr-table8", accuracy(89.7), "(seed 0, by held-out) is 89.7, and a share must be between 0 and 1"),
        ("tmlr-table8", imported_from_data, "(seed 0, by held-out) is 2, and a share must be between 0 and 1"),
        ("mask-map", accuracy(-0.01), "(seed 0, by held-out) is -0.01, and a share must be between 0 and 1"),
        ("tmlr-table8", curve, "round 1 of the curve of "),
        ("tmlr-table4", lambda content: content["points"][4].update({"others (%)": 100.2}), "others (%) of point 5 is"),
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


@pytest.mark.parametrize("other", [{"study": "mine"}, {"changed": ['train.metrics=["mse"]']}])
def test_figures_that_need_not_be_accuracies_may_be_any_number(other: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    content = json.loads((RESULTS / "tmlr-table8.json").read_text()) | other
    accuracy(2.5)(content)
    file.write_text(json.dumps(content))
    assert len(read_all([file])) == 1


@pytest.mark.parametrize(
    "files", [files_in(RESULTS)[0], [RESULTS / "thesis-table4.4.json"]], ids=["all results", "nothing settled"]
)
def test_claims_are_counted_by_their_kinds(files: list[Path]) -> None:
    """The sentence above the claims says no more and no less than their rows."""
    text = page(read_all(files))
    total, parts = re.search(r"^Of (\d+) claims: (.*)\.$", text, re.MULTILINE).groups()
    counts = {kind: int(count) for count, kind in (part.split(" ", 1) for part in parts.split(", "))}
    kinds = []
    for line in text.partition("\n| claim | source |")[2].partition("\n\n")[0].splitlines()[2:]:
        verdict = re.split(r"(?<!\\)\|", line)[3]
        kinds.append("not run yet" if NEVER_RUN in verdict else re.search(r"\*\*(\w+)\*\*", verdict)[1])
    assert counts == Counter(kinds) and len(kinds) == len(claims()) == int(total)


def test_a_script_in_a_title_is_shown_and_not_run() -> None:
    assert "<script" not in html("## <script>alert(1)</script>\n\n| <script>x</script> |\n|---|\n", [])
