"""`accord verdicts`: a page of all results in a folder, or a sentence that names the file it fails by."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.cli.verdicts import verdicts
from accord.studies.claim import claims
from accord.studies.html import html
from accord.studies.page import page
from accord.studies.plan import files_in
from accord.studies.results import read_all
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


def one_rate(content: Any) -> None:
    """Whatever was chosen, of all three rates."""
    cell = content["cells"][0]
    cell["grid"]["train.lr"] = cell["grid"]["train.lr"][:1]
    cell.update(done=cell["done"] // 3, runs=cell["runs"] // 3)
    for figures in cell["figures"].values():
        figures["point"]["train.lr"] = cell["grid"]["train.lr"][0]


def wider(content: Any) -> None:
    """The second cell's grid alone has grown, and its runs are there."""
    cell = content["cells"][1]
    cell["grid"]["algorithm.server.lr"].append(2.0)
    cell.update(done=cell["done"] // 2 * 3, runs=cell["runs"] // 2 * 3)


def without_grids(content: Any) -> None:
    for cell in content["cells"]:
        del cell["grid"]


def other_point(content: Any) -> None:
    content["cells"][0]["figures"]["held-out"]["point"]["train.lr"] = 77


def seed(name: str) -> Callable[[Any], None]:
    """A seed of a study's first cell by another name."""

    def put(content: Any) -> None:
        by_seed = content["cells"][0]["figures"]["held-out"]["by_seed"]
        by_seed[name] = by_seed.pop("0")

    return put


def printed(**other: object) -> Callable[[Any], None]:
    """The first number that the paper prints for a study's first cell."""

    def put(content: Any) -> None:
        content["cells"][0]["printed"][0].update(other)

    return put


def imported_from_data(content: Any) -> None:
    """The command names a file that sounds like a setting of the data."""
    accuracy(2.0)(content)
    content["command"] = "accord reproduce tmlr-table8 --import my-data.xz"


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("tmlr-table4", doubled, "there twice"),
        ("tmlr-table4", lambda content: content.update(name=None), "name: "),
        ("tmlr-table8", mixed, "cells.0.grid.train.lr.0"),
        ("tmlr-table8", accuracy(89.7), "(seed 0, by held-out) is 89.7, and a share must be between 0 and 1"),
        ("tmlr-table8", imported_from_data, "(seed 0, by held-out) is 2, and a share must be between 0 and 1"),
        ("mask-map", accuracy(-0.01), "(seed 0, by held-out) is -0.01, and a share must be between 0 and 1"),
        ("tmlr-table8", curve, "round 1 of the curve of "),
        ("tmlr-table4", lambda content: content["points"][4].update({"others (%)": 100.2}), "others (%) of point 5 is"),
        ("tmlr-table8", printed(value=12.3), "avg, 10 is 12.3 (last10) there and must be 88.1 (last10)"),
        ("tmlr-table8", printed(window="oracle"), "avg, 10 is 88.1 (oracle) there and must be 88.1 (last10)"),
        ("tmlr-table8", lambda content: content["cells"][0].update(printed=[]), "is nothing there and must be "),
        ("tmlr-table8", lambda content: content.update(against="gma"), "`against` is gma there and must be avg"),
        ("tmlr-table8", lambda content: content.update(compare="algorithm"), "`compare` is algorithm there"),
        ("tmlr-table8", lambda content: content.update(table="9"), "the table is 9 there and must be 8"),
        ("tmlr-table8", lambda content: content["rules"].reverse(), "`rules` is oracle, held-out, last10 there"),
        ("tmlr-table4", lambda content: content["printed"][2].update(value=12.3), "printed number 3 is "),
        ("tmlr-table4", lambda content: content["printed"].pop(), "printed number 16 is nothing there"),
        ("tmlr-table8", lambda content: content.update(paper="thesis"), "the paper is thesis there"),
        ("tmlr-table8", lambda content: content["axes"].reverse(), "`axes` is clients, aggregation, algorithm"),
        ("tmlr-table8", printed(std="0.1"), "avg, 10 is 88.1 ± 0.1 (last10) there"),
        ("tmlr-table8", printed(note="edited"), "avg, 10 is 88.1 (last10, edited) there"),
        (
            "tmlr-table8",
            lambda content: content["cells"][0]["values"].update(clients="7"),
            "which is no cell of the study",
        ),
        ("tmlr-table8", lambda content: content["cells"][0].update(rounds=[5, 5]), "has runs of 5 rounds for fmnist"),
        ("tmlr-table8", lambda content: content["cells"][0].update(rounds=[5, 5], flat=1), "has runs of 5 rounds for"),
        ("tmlr-table8", one_rate, "has no runs with train.lr = 0.05 for fmnist"),
        ("tmlr-figure4", lambda content: content["points"].append({**content["points"][0]}), "is there twice"),
        ("tmlr-table8", wider, "has no runs with algorithm.server.lr = 2.0 for fmnist, noniid, fedavg, avg, 10"),
        ("tmlr-table8", other_point, "train.lr = 77.0 is chosen and not in the grid"),
        ("tmlr-table8", lambda content: content["cells"][0].update(done=4, runs=4), "are said to be 4 runs"),
        ("tmlr-table8", lambda content: content.update(title="a\n# b"), "title: write it in one line"),
        ("tmlr-table8", lambda content: content["cells"][0].update(done=99), "99 of 18 runs are said to be done"),
        ("tmlr-table8", lambda content: content.update(title="\ud800"), "UnicodeEncodeError"),
        ("tmlr-table8", lambda content: content.update(protocol="1"), "has results of protocol '1', and this is"),
        ("tmlr-table8", lambda content: content.update(protocol=True), "has results of protocol True, and this is"),
        ("tmlr-table8", lambda content: content.update(protocol=1.0), "has results of protocol 1.0, and this is"),
        ("tmlr-table8", lambda content: content.update(seeds=[0, 0]), "seeds: a seed is there twice"),
        ("tmlr-table8", lambda content: content["cells"][0].update(rounds=None), "nothing says of how many rounds"),
        ("tmlr-table8", lambda content: content["cells"][0].update(rounds=[150, 5]), "are said to be [150, 5]"),
        ("tmlr-table8", without_grids, "has no runs with train.lr = 0.01 for fmnist"),
        ("theory-stability", lambda content: content["rows"].append(content["rows"][0]), "a row of its table is there"),
        ("tmlr-table8", seed("00"), "seeds are whole numbers from 0, got '00'"),
        ("tmlr-table8", seed("\u0663"), "seeds are whole numbers from 0, got"),
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


def test_a_key_that_is_there_twice_is_damage(tmp_path: Path) -> None:
    """Of two figures for a seed the last would have counted."""
    text = (RESULTS / "tmlr-table8.json").read_text()
    (tmp_path / "tmlr-table8.json").write_text(text.replace('"by_seed": {', '"by_seed": {"0": {"test": 0.9},', 1))
    with sentence("tmlr-table8.json does not hold results", "'0' is there twice"):
        verdicts(tmp_path)


def test_a_study_of_yours_compares_and_is_measured_by_what_you_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((RESULTS / "tmlr-table8.json").read_text())
    mine = {**content, "study": "mine", "compare": "clients", "against": "10", "rules": ["held-out"]}
    (tmp_path / "mine.json").write_text(json.dumps(mine))
    verdicts(tmp_path, tmp_path / "out/README.md")
    assert "1 of 1 files are of studies of yours or of changed settings" in capsys.readouterr().out
    assert "Ahead of 10 on the test set, by held-out" in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tmlr-table8", "accord.studies.results._figures"),
        ("tmlr-table4", "accord.studies.results.printed_cells"),
        ("tmlr-table8", "accord.studies.page.compare"),
        ("tmlr-table8", "accord.studies.html._plot"),
    ],
)
@pytest.mark.parametrize("error", [AttributeError, IndexError, KeyError, NameError, TypeError, ValueError])
def test_an_error_of_accords_own_is_not_called_a_damaged_file(
    name: str, path: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise error("a bug")

    monkeypatch.setattr(path, broken)
    (tmp_path / f"{name}.json").write_text((RESULTS / f"{name}.json").read_text())
    with pytest.raises(error, match="a bug"):
        verdicts(tmp_path, tmp_path / "out/README.md")


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
    short = text.partition("## Claims")[2].partition("## Verdicts in detail")[0]
    kinds = re.findall(r"^\| .*? \| \*\*(\w+)\*\*(?:, under the margin)? \|", short, re.MULTILINE)
    not_run = short.partition("### Not run yet")[2].partition("###")[0]
    kinds += ["not run yet"] * len(re.findall(r"^- ", not_run, re.MULTILINE))
    assert counts == Counter(kinds) and len(kinds) == len(claims()) == int(total)


def test_a_script_in_a_title_is_shown_and_not_run() -> None:
    assert "<script" not in html("## <script>alert(1)</script>\n\n| <script>x</script> |\n|---|\n", [])


def test_runs_with_changed_settings_answer_nothing(tmp_path: Path) -> None:
    """Three rounds of a study are not its study, however clear they look."""
    content = json.loads((RESULTS / "tmlr-convex.json").read_text(encoding="utf-8"))
    changed = tmp_path / "tmlr-convex.json"
    changed.write_text(json.dumps({**content, "changed": ["train.rounds=3"]}), encoding="utf-8")
    whole, shortened = page(read_all([RESULTS / "tmlr-convex.json"])), page(read_all([changed]))
    assert whole.startswith("6 of 746") and whole.count("| **refuted** |") == 2
    assert shortened.startswith("0 of 746") and "| **refuted** |" not in shortened
    assert "Run with `train.rounds=3`: it answers no number, and no claim is judged by it." in shortened
    assert "- tmlr-convex (" in shortened.partition("## Not run")[2], "with its settings it is left to run"


def test_a_copy_under_another_name_answers_nothing(tmp_path: Path) -> None:
    content = json.loads((RESULTS / "tmlr-table8.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps({**content, "study": "mine"}))
    assert page(read_all([tmp_path / "mine.json"])).startswith("0 of 746")


def test_cells_that_are_not_finished_answer_nothing(tmp_path: Path) -> None:
    """Of one a rule may have been tried at its worst rates alone."""
    content = json.loads((RESULTS / "tmlr-table8.json").read_text())
    for cell in content["cells"]:
        cell["done"] -= cell["values"]["aggregation"] == "avg"
    path = tmp_path / "tmlr-table8.json"
    path.write_text(json.dumps(content))
    text = page(read_all([path]))
    assert text.startswith("4 of 746") and "| **refuted** |" not in text


def test_a_seed_without_a_figure_answers_no_number(tmp_path: Path) -> None:
    """Of averaging's first cell of four one seed diverged: two are left, and the claims stay open."""
    content = json.loads((RESULTS / "tmlr-table8.json").read_text())
    accuracy(None)(content)
    for figures in content["cells"][0]["figures"].values():
        for seed in ("0", "1"):
            figures["by_seed"][seed]["test"] = None
    path = tmp_path / "tmlr-table8.json"
    path.write_text(json.dumps(content))
    text = page(read_all([path]))
    assert text.startswith("7 of 746") and "diverged, and has no figure, in 2 of its seeds" in text


@pytest.mark.parametrize("name", ["tmlr-table4", "tmlr-table8"])
def test_a_gain_whose_control_was_not_run_is_marked_wherever_it_is_told(name: str, tmp_path: Path) -> None:
    content = json.loads((RESULTS / f"{name}.json").read_text())
    if "points" in content:
        content["points"] = [point for point in content["points"] if "scaled" not in point["rule"]]
    else:
        content["cells"] = [cell for cell in content["cells"] if cell["values"]["aggregation"] != "gma-length"]
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(content))
    settled = page(read_all([path])).partition("### Settled")
    rows = re.findall(r"^\| .*\*\*(?:confirmed|refuted)\*\* .*", settled[2].partition("##")[0], re.MULTILINE)
    assert rows and all("| no control |" in row for row in rows)
    gains = re.findall(r"^- .*", settled[0].partition("The gains that are confirmed")[2], re.MULTILINE)
    assert all("; with no control" in gain for gain in gains) and bool(gains) == (name == "tmlr-table4")


def test_without_a_name_the_page_goes_beside_results_or_into_another_folder(tmp_path: Path) -> None:
    for folder, page_of in (("results", "README.md"), ("mine", "mine/README.md")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tmlr-table9.json").write_text((RESULTS / "tmlr-table9.json").read_text())
        verdicts(tmp_path / folder)
        assert "numbers answered" in (tmp_path / page_of).read_text()
        verdicts(tmp_path / folder)  # its own page may be replaced


def test_a_file_that_is_no_report_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "tmlr-table9.json").write_text((RESULTS / "tmlr-table9.json").read_text())
    (tmp_path / "README.md").write_text("# Mine\n")
    with sentence("README.md is there and no report of accord verdicts"):
        verdicts(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# Mine\n" and not (tmp_path / "index.html").exists()
    with sentence("there are no results in"):  # what matters more
        verdicts(tmp_path / "results")


@pytest.mark.parametrize("is_file", [True, False])
def test_a_page_that_is_no_report_is_not_replaced(is_file: bool, tmp_path: Path) -> None:
    (tmp_path / "tmlr-table9.json").write_text((RESULTS / "tmlr-table9.json").read_text())
    other = tmp_path / "index.html"
    other.write_text("<title>My site</title>") if is_file else other.mkdir()
    with sentence("index.html is there and no report of accord verdicts"):
        verdicts(tmp_path)
    assert not (tmp_path / "README.md").exists()


def test_the_output_may_be_a_folder_and_not_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "results/tmlr-table9.json").write_text((RESULTS / "tmlr-table9.json").read_text())
    verdicts(tmp_path / "results", tmp_path / "out")
    assert (tmp_path / "out/README.md").exists()
    with sentence("-o names the report in Markdown", "index.html comes beside it"):
        verdicts(tmp_path / "results", tmp_path / "index.html")
    monkeypatch.chdir(tmp_path / "results")
    verdicts(Path("."))
    assert (tmp_path / "README.md").exists(), "beside a folder that is called results, however it is named"


def test_an_analysis_with_too_few_trials_or_other_options_answers_nothing(tmp_path: Path) -> None:
    content = json.loads((RESULTS / "tmlr-table4.json").read_text())
    path, points = tmp_path / "tmlr-table4.json", content["points"]
    path.write_text(json.dumps({**content, "points": [point for point in points if point["trial"] < 2]}))
    assert page(read_all([path])).startswith("0 of 746")
    path.write_text(json.dumps({**content, "options": {"participants": [9], "epochs": 3}}))
    text = page(read_all([path]))
    assert text.startswith("0 of 746") and "Run with `participants=[9]`" in text


def test_an_analysis_with_other_settings_answers_nothing_and_says_so(tmp_path: Path) -> None:
    content = json.loads((RESULTS / "tmlr-table4.json").read_text())
    path = tmp_path / "tmlr-table4.json"
    path.write_text(json.dumps(content))
    assert not page(read_all([path])).startswith("0 of 746")
    content["settings"]["train.rounds"] = 1
    path.write_text(json.dumps(content))
    text = page(read_all([path]))
    assert text.startswith("0 of 746") and "Run with `train.rounds=1`: it answers no number" in text
    assert "**refuted**" not in text.partition("## Verdicts in detail")[0].partition("### ")[2]
