"""Records as the plain data that the page draws. All arithmetic is done here; the page only chooses and shows.

Runs that differ by seed alone make one setting. Of every curve the page gets at most so many rounds, of every setting's
clients so many dots: five hundred runs still make a file that can be mailed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from accord.core.errors import AccordError
from accord.core.files import plain
from accord.core.metrics import GAPS, TITLES, Metric
from accord.core.names import listed
from accord.core.version import __version__
from accord.report.choices import CHOICE, choice
from accord.report.grids import grids
from accord.report.papers import holds_results, paper, runs_of
from accord.runs.checksums import lines_of, read_json
from accord.runs.comparison import by_kind, by_setting, labels, notes
from accord.runs.evaluation import splits_of, tests_of
from accord.runs.left_out import left_out, split_off
from accord.runs.reader import Recorded, find, load
from accord.runs.rows import read_row
from accord.runs.selection import rule_for

RULES = {
    "held-out": "the round best on participating clients' held-out data",
    "last10": "the mean over the last ten rounds",
    "oracle": "the round best on the test set, which nobody could know in practice",
}
_POINTS = 24_000  # rounds of all curves of a split together; a setting gets its share, between 40 and 400
_ROUNDS_OF_A_MAP = 60
_DOTS = 80
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Sources:
    """What was found at the paths given: run folders, files of `accord reproduce`, and those of `accord choose`."""

    runs: list[Path]
    results: list[Path]
    choices: list[Path]


def look(paths: Sequence[Path], *, waiting: bool = False) -> Sources:
    """Run folders and results at or below the paths, and the runs of results that are named. Only who waits for runs
    may give a folder without any."""
    runs: list[Path] = []
    results: list[Path] = []
    choices: list[Path] = []
    for path in paths:
        if path.name == CHOICE:
            path = path.parent
        choices += [path / CHOICE] if (path / CHOICE).is_file() else []
        if path.suffix == ".json" and path.is_file():
            results.append(path)
            runs += [folder for folder in runs_of(path) if folder not in runs]
            continue
        here = [file for file in sorted(path.glob("*.json")) if file.is_file() and holds_results(file)]
        results += here
        try:
            runs += [folder for folder in find([path]) if folder not in runs]
        except AccordError:
            if not here and not (waiting and path.is_dir()):
                raise
    return Sources(runs, list(dict.fromkeys(results)), list(dict.fromkeys(choices)))


def gather(sources: Sources, read: Callable[[Path], Recorded] = load) -> dict[str, Any]:
    """Everything the page shows. A run that cannot be read stands in its table as such."""
    runs = [read(folder) for folder in sources.runs]
    kinds = {kind: by_setting(members) for kind, members in by_kind(runs).items()}
    settings: list[dict[str, Any]] = []
    maps: list[dict[str, Any]] = []
    in_turn: dict[str, Any] = {}
    notices = [f"{run.folder} is {run.status}" for run in runs if run.damaged] + notes(runs)
    most = max(40, min(400, _POINTS // max(1, sum(map(len, kinds.values())))))
    for kind, groups in kinds.items():
        leaders = [next((run for run in members if not run.damaged), members[0]) for members in groups]
        several, _ = split_off([run for members in groups for run in members])
        in_turn |= {kind: {rule: left_out(several, rule).cells() for rule in RULES}} if several else {}
        maps += [{"kind": kind, **grid} for grid in grids(leaders, len(settings))]
        for label, leader, members in zip(labels(leaders), leaders, groups, strict=True):
            shared_settings = {key: value for key, value in leader.settings.items() if key not in ("seed", "schema")}
            settings.append(
                {"kind": kind, "label": label, "settings": shared_settings, **_setting(members, most, notices)}
            )
    papers = [paper(path, notices) for path in sources.results]
    choices = [choice(path, notices) for path in sources.choices]
    return plain(
        {
            "accord": __version__,
            "made": datetime.now().astimezone().isoformat(timespec="seconds"),
            "rules": RULES,
            "rule": rule_for([run.history for run in runs], None),
            "splits": TITLES,
            "gaps": {name: gap.to_json() for name, gap in GAPS.items()},
            "metrics": {name: Metric(name).to_json() for name in _measured(runs)},
            "kinds": list(kinds),
            "settings": settings,
            "tests": list(dict.fromkeys(name for run in runs for name in tests_of(run.history))),
            "left_out": in_turn,
            "grids": maps,
            "papers": [one for one in papers if one],
            "choices": [one for one in choices if one],
            "notices": notices,
        }
    )


def _setting(members: Sequence[Recorded], most: int, notices: list[str]) -> dict[str, Any]:
    """One row of the table, and all that is drawn of it."""
    evaluated = [run for run in members if run.history]
    first = evaluated[0].history[0][1] if evaluated else None
    metric = first.metric if first else Metric("accuracy")
    return {
        "id": members[0].group,
        "metric": metric.name,
        "smaller": metric.smaller_is_better,
        "runs": [
            {
                "folder": str(run.folder),
                "seed": run.seed,
                "rounds": run.rounds,
                "status": run.status,
                "ending": run.ending,
                "unseen": listed(run.unseen),
            }
            for run in members
        ],
        "figures": {rule: _figures(evaluated, rule) for rule in RULES},
        "curves": _curves(evaluated, most),
        "clients": _clients(evaluated, metric.name, notices),
        "agreement": _agreement(evaluated),
    }


def _figures(runs: Sequence[Recorded], rule: str) -> dict[str, Any]:
    """Mean and deviation over seeds for every split and gap, and the rounds that the rule chose."""
    chosen = [selected for run in runs if (selected := run.chosen(rule))]
    of_seeds: dict[str, list[float]] = {}
    for selected in chosen:
        gaps = {name: gap.of(selected.values) for name, gap in GAPS.items()}
        tests = {f"test, {name}": value for name, value in selected.tests.items()}  # which may be called as a split is
        for name, value in {**selected.values, **tests, **gaps}.items():
            if value is not None:
                of_seeds.setdefault(name, []).append(value)
    spreads = {
        name: [_short(np.mean(of)), _short(np.std(of, ddof=1)) if len(of) > 1 else None]
        for name, of in of_seeds.items()
    }
    return {"values": spreads, "rounds": [[selected.rounds[0], selected.rounds[-1]] for selected in chosen]}


def _curves(runs: Sequence[Recorded], most: int) -> dict[str, Any]:
    """Metric by split over rounds: the mean over seeds, the lowest and the highest."""
    rounds = thinned(sorted({number for run in runs for number, _ in run.history}), most)
    by_seed = [dict(run.history) for run in runs]
    drawn: dict[str, Any] = {}
    for split in splits_of(runs[0].history) if runs else ():
        for name in runs[0].history[0][1].metrics:
            at = [
                [
                    seed[number].splits[split].metrics[name].by_sample if split in seed[number].splits else None
                    for seed in by_seed
                    if number in seed
                ]
                for number in rounds
            ]
            # a model that diverged has no figure, nor has a split none of whose nodes answered
            values = [[np.nan if value is None else value for value in seeds] for seeds in at]
            drawn.setdefault(name, {})[split] = {
                "mean": [_short(np.mean(seeds)) for seeds in values],
                "low": [_short(np.min(seeds)) for seeds in values],
                "high": [_short(np.max(seeds)) for seeds in values],
            }
    return {"rounds": rounds, "metrics": drawn}


def _clients(runs: Sequence[Recorded], metric: str, notices: list[str]) -> dict[str, Any]:
    """Quantiles over the clients of all seeds after the last round, and some of the clients, evenly by rank."""
    rows: list[Mapping[str, Any]] = []
    for run in runs:
        if run.ended and not run.imported:
            try:
                rows += _client_rows(run.folder / "clients.json", metric)
            except (AccordError, KeyError, TypeError, ValueError):
                notices.append(f"{run.folder}/clients.json cannot be read: the run's clients are not in the figure")
    drawn = {}
    for split in ("train", "heldout", "unseen"):
        here = sorted((row for row in rows if row["split"] == split), key=lambda row: row[metric])
        if here:
            quantiles = np.quantile([row[metric] for row in here], _QUANTILES)
            dots = [[_short(row[metric]), row["client"], row["samples"]] for row in thinned(here, _DOTS)]
            drawn[split] = {"count": len(here), "quantiles": [_short(value) for value in quantiles], "dots": dots}
    return drawn


def _client_rows(path: Path, metric: str) -> list[Mapping[str, Any]]:
    """The clients that have a figure."""
    rows: list[Mapping[str, Any]] = [
        {"client": str(row["client"]), "split": str(row["split"]), "samples": int(row["samples"]), metric: row[metric]}
        for row in read_json(path)
        if row[metric] is not None
    ]
    if not all(isinstance(row[metric], int | float) and abs(row[metric]) < math.inf for row in rows):
        raise ValueError(f"{metric} is no number")
    return rows


def _agreement(runs: Sequence[Recorded]) -> dict[str, Any] | None:
    """How far clients agreed, by parameter and round, averaged over seeds. Only the lines of the rounds that are shown
    are parsed."""
    rounds = thinned(range(1, max((run.rounds for run in runs), default=0) + 1), _ROUNDS_OF_A_MAP)
    by_round: dict[int, list[dict[str, float]]] = {number: [] for number in rounds}
    for run in runs:
        path = run.folder / "metrics.jsonl"
        for number, line in enumerate(islice(lines_of(path), run.rounds), start=1):
            # none of a round without a mask, or that was skipped
            if number in by_round and b"agreement_by_layer" in line:
                row = read_row(line, path)
                by_round[number].append({"all": row.agreement or 0.0, **(row.agreement_by_layer or {})})
    layers = list(dict.fromkeys(name for of in by_round.values() for row in of for name in row))
    if not layers:
        return None

    def mean(of: list[dict[str, float]], name: str) -> float | None:
        known = [row[name] for row in of if name in row]  # all of them have, but for a damaged one
        return round(float(np.mean(known)), 3) if known else None

    values = [[mean(of, name) for of in by_round.values()] for name in layers]
    return {"rounds": rounds, "layers": layers, "values": values}


def _measured(runs: Sequence[Recorded]) -> list[str]:
    """Every metric of the runs, by name; accuracy, where there is none yet."""
    return list(
        dict.fromkeys(["accuracy", *(name for run in runs if run.history for name in run.history[0][1].metrics)])
    )


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spaced, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _short(value: float | np.floating[Any]) -> float:
    """Five digits: more than any figure shows, a third of the file."""
    return float(f"{value:.5g}")
