"""Where a mask helps: the study's settings are balanced, an effect is found where it is and nowhere else, and what one
half of the settings chose is judged by the other."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from accord.studies import Study, load
from accord.studies.map import EVERYWHERE, Choice, Finding, Map, Region, drawn
from accord.studies.map_text import sentence
from accord.studies.outcome import Figures, Result, plain
from accord.studies.page import page
from accord.studies.results import StudyResults, read
from accord.studies.statistics import Estimate
from study_commands import TINY, inside

MALICIOUS = Region("malicious", "0.2")
Effect = Callable[[Mapping[str, str]], float]


def simulated(study: Study, effect: Effect, seed: int = 0, noise: float = 0.005, shared: float = 0.0) -> list[Result]:
    """Results in which an arm's accuracy is that of its setting and seed, plus an effect, plus noise of its own, of
    whose variance the share `shared` is the same in all settings: a seed that is lucky for an arm."""
    rng = np.random.default_rng(seed)
    level: dict[tuple[object, ...], float] = {}
    lucky: dict[tuple[str, str, int], float] = {}
    results = []
    for cell in study.cells:
        figures = {}
        for rule in study.rules:
            by_seed = {}
            for number in study.seeds:
                at = level.setdefault((study.place(cell.values), rule, number), rng.uniform(0.5, 0.9))
                luck = lucky.setdefault((cell.values["aggregation"], rule, number), rng.standard_normal())
                own = noise * (math.sqrt(shared) * luck + math.sqrt(1 - shared) * rng.standard_normal())
                by_seed[number] = {"test": at + effect(cell.values) + own}
            figures[rule] = Figures({}, by_seed)
        results.append(Result(cell, figures, [], len(study.seeds), len(study.seeds), (200, 200)))
    return results


def arms(*names: str, rules: int = 1) -> Study:
    """The study with some of its masks and rounds, so that a test is quick."""
    study = load("mask-map")
    both = [name + kind for name in names for kind in ("", "-length")]
    return replace(study.only({"aggregation": ["avg", *both]}), rules=study.rules[:rules])


# ------------------------------------------------------------------------------------------------- the study's file


def _settings(study: Study, half: str = "") -> list[dict[str, str]]:
    """The values of the axes of each setting."""
    cells = [cell.values for cell in study.cells if cell.values["aggregation"] == study.against]
    return [values for values in cells if half in ("", values["half"])]


@pytest.mark.parametrize(("half", "count"), [("", 48), ("first", 24), ("second", 24)])
def test_settings_are_balanced_over_every_axis_and_pair_of_axes(half: str, count: int) -> None:
    study = load("mask-map")
    settings = _settings(study, half)
    assert len(settings) == count
    axes = [axis for axis in study.axes if axis not in ("half", "aggregation")]
    for pair in [*combinations(axes, 1), *combinations(axes, 2)]:
        times = Counter(tuple(values[axis] for axis in pair) for values in settings)
        places = math.prod(len(study.axes[axis]) for axis in pair)
        assert set(times.values()) == {count // places} and len(times) == places, pair


def test_every_arm_runs_at_the_same_settings_and_every_mask_has_its_control() -> None:
    study = load("mask-map")
    by_setting: dict[tuple[str, ...], list[dict[str, object]]] = {}
    for cell in study.cells:
        assert cell.points == [{}], "nothing is tuned"
        rest = {key: value for key, value in cell.settings.items() if not key.startswith("algorithm.mask.")}
        by_setting.setdefault(study.place(cell.values), []).append(rest)
    for alike in by_setting.values():
        assert len(alike) == 9 and all(rest == alike[0] for rest in alike)
    assert len({json.dumps(alike[0]) for alike in by_setting.values()}) == 48, "no setting is there twice"
    masks = study.axes["aggregation"]
    for name in ("gma", "and", "magnitude", "gma-memory"):
        inner = {key.replace("mask", "mask.mask", 1): value for key, value in masks[name].items()}
        scaled = {"algorithm.mask.name": "scaled", "algorithm.mask.by": "length"}
        assert masks[f"{name}-length"] == {**scaled, **inner}


# -------------------------------------------------------------------------------------------------- the mathematics


def _helps_in_one_region(values: Mapping[str, str]) -> float:
    return 0.03 * (values["malicious"] == "0.2" and values["aggregation"] == "gma")


def test_an_effect_in_one_region_is_found_there_and_holds_on_the_other_half() -> None:
    study = arms("gma", "and", rules=2)
    found = drawn(study, simulated(study, _helps_in_one_region))
    assert len(found.looked) == 2 * 14 * 2 and found.settings == 48
    assert {one.mask for one in found.helps} == {"gma"} and Region("malicious", "0") not in _regions(found)
    assert sum(one.region == MALICIOUS for one in found.helps) == 2, "in both rounds"
    everywhere, region, *_ = found.choices
    assert (everywhere.chosen.mask, everywhere.chosen.region) == ("gma", EVERYWHERE)
    assert (region.chosen.mask, region.chosen.region, region.verdict) == ("gma", MALICIOUS, "holds")
    assert region.judged is not None and region.judged.ahead.low < 0.03 < region.judged.ahead.high
    assert region.judged.ahead.cells == 12, "half of the 24 settings with malicious clients"
    assert "gma in malicious 0.2 at round 10" in sentence(found, "avg")


def _regions(found: Map) -> set[Region]:
    return {one.region for one in found.helps}


def test_a_choice_is_made_without_the_other_half() -> None:
    study = arms("gma", "and")
    before = simulated(study, _helps_in_one_region)
    after = simulated(study, lambda values: -_helps_in_one_region(values) if values["half"] == "second" else 0.0, 1)
    mixed = [two if one.cell.values["half"] == "second" else one for one, two in zip(before, after, strict=True)]
    chosen, judged = drawn(study, before).choices, drawn(study, mixed).choices
    assert [one.chosen for one in chosen] == [one.chosen for one in judged]
    assert [one.verdict for one in chosen] == ["holds", "holds"]
    assert [one.verdict for one in judged] == ["behind averaging", "behind averaging"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.0, 0.03], ids=["no effect", "a shorter step does it all"])
def test_where_no_mask_helps_the_choice_looks_good_where_it_was_made_and_does_not_hold(step: float) -> None:
    """Seeds are lucky for an arm in both halves alike, so that halves are not independent: the interval must know."""
    study = arms("gma")
    found = []
    for seed in range(200):
        effect = simulated(study, lambda values: step * (values["aggregation"] != "avg"), seed, shared=0.3)
        found.append(drawn(study, effect))
    best = [one.choices[1] for one in found]
    there = [one.judged.control.value for one in best if one.judged]
    assert np.mean([one.chosen.control.value for one in best]) > np.mean(there) + 0.0003, "luck, which was chosen"
    assert sum(any(choice.holds for choice in one.choices) for one in found) <= 10, "5 % of 200"
    assert sum(bool(one.helps) for one in found) <= 10


def test_a_control_that_does_as_well_means_that_a_shorter_step_does_the_same() -> None:
    study = arms("gma")
    results = simulated(study, lambda values: 0.03 * (values["aggregation"] != "avg"), noise=0.001)
    found = drawn(study, results)
    assert not found.helps and all(one.ahead.low > 0.02 for one in found.looked)
    assert {choice.verdict for choice in found.choices} == {"a shorter step does the same"}


def _estimate(low: float, high: float, p: float = 0.01) -> Estimate:
    return Estimate((low + high) / 2, low, high, p, 12, 3)


def test_the_weaker_of_both_comparisons_counts() -> None:
    sure, unsure, behind = _estimate(0.01, 0.03, 0.001), _estimate(-0.001, 0.02, 0.07), _estimate(-0.03, -0.01, 0.001)
    both = Finding("gma", EVERYWHERE, "last10", sure, unsure)
    assert (both.p, both.lead) == (0.07, -0.001)
    assert replace(both, control=behind).p == replace(both, ahead=behind).p == 1.0, "a clear loss is no gain"


@pytest.mark.parametrize(
    ("ahead", "control", "verdict"),
    [
        (_estimate(0.01, 0.02), _estimate(0.01, 0.02), "ahead, but not after Holm's correction"),
        (_estimate(0.01, 0.02), _estimate(-0.001, 0.001), "a shorter step does the same"),
        (_estimate(0.01, 0.02), _estimate(-0.01, 0.02), "no difference shown from a shorter step"),
        (_estimate(0.01, 0.02), _estimate(-0.02, -0.01), "behind a shorter step"),
        (_estimate(-0.01, 0.02), _estimate(0.01, 0.02), "not ahead of averaging"),
        (_estimate(-0.02, -0.01), _estimate(0.01, 0.02), "behind averaging"),
    ],
)
def test_what_is_said_of_a_choice_that_does_not_hold(ahead: Estimate, control: Estimate, verdict: str) -> None:
    finding = Finding("gma", EVERYWHERE, "last10", ahead, control)
    assert Choice(finding, finding, holds=False).verdict == verdict
    assert Choice(finding, finding, holds=True).verdict == "holds"
    assert Choice(finding, None, holds=False).verdict == "not run yet"


# ------------------------------------------------------------------------------------------------------- the report


def test_the_report_has_the_map_once_it_was_run(tmp_path: Path) -> None:
    study = replace(arms("gma"), name="a-map")  # with fewer rules than the study that comes with accord
    path = tmp_path / "a-map.json"
    path.write_text(json.dumps(plain(study, simulated(study, _helps_in_one_region), "accord reproduce mask-map")))
    results = read(path)
    assert isinstance(results, StudyResults)
    text = page([results])
    assert "## Where does a mask help?\n\n`accord reproduce mask-map`\n\nA mask is ahead of both avg and" in text
    assert "| 10 | gma | malicious 0.2 | +" in text and text.count("| holds |") == 2
    first = [one for one in results.results if one.cell.values["half"] == "first"]
    text = page([replace(results, results=first)])
    assert text.count("| - | - | not run yet |") == 2 and "chose has not been judged by the second yet." in text
    assert "No two settings have been run with 3 seeds" in page([replace(results, results=first[:3])])


MAP = (
    TINY.replace("seeds = [0, 1]", 'seeds = [0, 1, 2]\nrules = ["window(4,4)"]')
    .replace('gma-scaled = { "algorithm.mask" = "scaled"', 'gma-length = { "algorithm.mask" = "scaled"')
    .replace('"gma" }\n\n[grid]\n"train.lr" = [0.05, 0.1]', '"gma", "algorithm.mask.by" = "length" }\n')
    + '[axes.half]\nfirst = {}\nsecond = {}\n[axes.lr]\n"0.05" = { "train.lr" = 0.05 }\n"0.1" = { "train.lr" = 0.1 }\n'
)


def test_a_map_of_your_own_is_run_and_judged(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MAP)
    code, _, error = inside(tmp_path, "reproduce", "mine.toml")
    assert code == 0, error
    code, _, error = inside(tmp_path, "verdicts")
    assert code == 0, error
    text = (tmp_path / "runs" / "reproduce" / "README.md").read_text()
    # two halves times two rates; regions: all settings, and each of the rates, of which a half has one setting each
    assert "over 4 settings" in text and "of the 3 places looked at (masks: 1, regions: 3, rounds: 1)" in text
    assert "of what the first half of the settings chose, none of 1 hold" in text
    assert "<h2>Curves</h2>" not in (tmp_path / "runs" / "reproduce" / "index.html").read_text()
