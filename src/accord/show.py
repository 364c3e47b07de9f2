"""Run folders read back: which runs there are, how far they got, and one table of what they reached."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from accord import files
from accord.average import AVERAGES
from accord.display import print_cells
from accord.engines.contract import Table
from accord.errors import AccordError
from accord.evaluate import GAPS, TITLES, History, Selected, primary_metric, select, summarise
from accord.experiment import Experiment
from accord.files import plain
from accord.flat import in_words
from accord.mask import MASKS
from accord.records import read_json, read_lines
from accord.run import history_of
from accord.tables import Cells, evaluation_cells, privacy_lines, selection_line, spread

_GAPS = {"out_of_sample": "train - held-out", "participation": "held-out - unseen"}
_NOT_TOLD_APART_BY = ("seed", "schema", "rounds", "train.rounds", "run")  # settings that runs of one kind may differ in


@dataclass(frozen=True)
class Recorded:
    """A run as its folder tells it."""

    folder: Path
    settings: dict[str, Any]
    history: History
    rounds: int
    status: str
    flat: int | None = None  # the round since which it was flat, if it ended for that

    @property
    def ending(self) -> str:
        """The status, with the reason of a run that was done before its rounds."""
        return self.status if self.flat is None else f"{self.status}, {in_words(self.flat)}"

    @property
    def damaged(self) -> bool:
        return self.status.startswith("damaged")

    @property
    def group(self) -> str:
        """The folder's name without its seed: runs that differ by seed alone share it."""
        return str(self.folder.parent / re.sub(r"-s-?\d+$", "", self.folder.name))

    @property
    def kind(self) -> str:
        """What its figures can be compared with: `mnist, accuracy`; nothing if it has none."""
        data = self.settings.get("data", {})
        name = data.get("name") if isinstance(data, dict) else self.folder.name.partition("-")[0]
        return f"{name}, {primary_metric(self.history[0][1])}" if self.history else ""

    @property
    def seed(self) -> str:
        return str(self.settings.get("seed", self.folder.name.rpartition("-s")[2]))

    @property
    def label(self) -> str:
        """`fedadam + gma(0.4)`, for runs of the command line and runs made in Python alike."""
        if self.damaged:
            return self.folder.name
        algorithm = self.settings["algorithm"]
        name, average, mask = algorithm.get("name", "custom"), algorithm.get("average"), algorithm.get("mask")
        average = average["kind"] if isinstance(average, dict) else average
        name = f"{name} by {average}" if average in AVERAGES and average != "mean" else str(name)
        if mask in (None, "none"):
            return name
        return f"{name} + {_recorded_mask(mask) if isinstance(mask, dict) else _set_mask(mask, algorithm)}"

    def chosen(self, rule: str) -> Selected | None:
        """The run's figures by a selection rule, if it has any."""
        try:
            return select(self.history, rule)
        except AccordError:
            return None


def _set_mask(name: str, settings: Mapping[str, Any]) -> str:
    """A mask of an experiment file."""
    if name == "scaled":
        return f"scaled({_set_mask(settings.get('like', 'gma'), settings)}{_by(settings)})"
    return f"{MASKS[name].__name__}({settings.get('tau', 0.4):g}{' ramp' if 'tau_to' in settings else ''})"


def _by(settings: Mapping[str, Any]) -> str:
    return f", {settings['by']}" if settings.get("by", "mean") != "mean" else ""


def _recorded_mask(mask: Mapping[str, Any]) -> str:
    """A mask of a run made in Python, as `describe` puts it."""
    if mask["kind"] == "scaled":
        return f"scaled({_recorded_mask(mask.get('mask', {'kind': 'gma'}))}{_by(mask)})"
    tau = mask.get("tau", 0.4)
    return f"{mask['kind']}({tau['lr']:g} {tau['kind']})" if isinstance(tau, Mapping) else f"{mask['kind']}({tau:g})"


# ------------------------------------------------------------------------------------------------------------------- finding


def find(paths: Sequence[Path]) -> list[Path]:
    """The run folders at or below the given paths, in order of name."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise AccordError(f"there is no folder {path}: give a run folder, or a folder that holds some")
        inside = [path] if (path / "experiment.json").exists() else sorted(file.parent for file in path.rglob("experiment.json"))
        if not inside:
            raise AccordError(f"{path} holds no runs: a run folder has a file experiment.json")
        found += [folder for folder in inside if folder not in found]
    return found


def load(folder: Path) -> Recorded:
    """One run folder. A damaged one is told as such, never left out."""
    try:
        return _load(folder)
    except AccordError as error:
        why = str(error).replace(f"{folder}/", "")
    except OSError as error:
        why = f"{Path(error.filename).name} cannot be read: {error.strerror}"
    except Exception:  # anything may have happened to the files
        why = "its files do not hold what a run writes"
    return Recorded(folder, {}, [], 0, f"damaged: {why}")


def _load(folder: Path) -> Recorded:
    settings = read_json(folder / "experiment.json")
    if not isinstance(settings, dict):
        raise AccordError("experiment.json holds no settings")
    rows = read_lines(folder / "metrics.jsonl")
    reached = rows[-1]["round"] if rows else 0
    status, flat = f"unfinished, round {reached}", None
    if (folder / "done").exists():
        done = read_json(folder / "done")
        if reached != done["rounds"]:
            raise AccordError(f"metrics.jsonl ends with round {reached}, but the run was done after round {done['rounds']}")
        status, flat = "done", done.get("flat_since")
    run = Recorded(folder, settings, history_of(rows), reached, status, flat)
    if run.label and run.history:  # asked for here, so that what is missing is missed here
        select(run.history, "last10")
    return run


# ------------------------------------------------------------------------------------------------------------ selection rules


def rehearse(rule: str | None, experiment: Experiment) -> None:
    """Refuses a selection rule that could choose nothing, before a run spends time on it."""
    if rule is not None:
        data, train = experiment.settings.data, experiment.settings.train
        tested = experiment.supply.data.kept is not None  # of the user's own data nobody knows before it is read
        may_be = {"train": True, "heldout": data.heldout, "unseen": data.unseen or not tested, "test": tested}
        splits = [split for split, there in may_be.items() if there]
        count = len(splits)
        blank = summarise(Table([(split, split) for split in splits], np.ones(count, dtype=np.int64), {"loss": np.zeros(count)}))
        rounds = (*range(train.evaluate_every, train.rounds, train.evaluate_every), train.rounds)
        select([(number, blank) for number in rounds], rule)


def rule_for(runs: Sequence[Recorded], rule: str | None) -> str:
    """The rule asked for, once some run is seen to have a figure by it; else the first that every run has figures by."""
    evaluated = [run for run in runs if run.history]
    if rule is None:
        return "held-out" if all(run.chosen("held-out") for run in evaluated) else "last10"
    if evaluated and not any(run.chosen(rule) for run in evaluated):
        select(evaluated[0].history, rule)  # says why not
    return rule


# ----------------------------------------------------------------------------------------------------------------- printing


def print_results(runs: Sequence[Recorded], rule: str | None, console: Console) -> None:
    """A single run in detail, several as one table; then where they lie."""
    rule = rule_for(runs, rule)
    if len(runs) == 1 and runs[0].history:
        run, history = runs[0], runs[0].history
        print_cells(console, evaluation_cells(history[-1][1]), f"{run.label} · seed {run.seed} · round {history[-1][0]} · {run.ending}")
        for name in dict.fromkeys([rule, "held-out", "last10", "oracle"]):
            if run.chosen(name):
                console.print(selection_line(history, name), highlight=False, markup=False, soft_wrap=True)
        for line in privacy_lines(history):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    else:
        kinds: dict[str, list[Recorded]] = {}
        first = next((run.kind for run in runs if run.kind), "")
        for run in runs:
            kinds.setdefault(run.kind or first, []).append(run)  # one without figures stands with the first
        for kind, members in kinds.items():  # figures of different data or of different metrics are no comparison
            print_cells(console, comparison(members, rule), kind if len(kinds) > 1 else None)
    for run in runs:
        console.print(str(run.folder), style="dim", highlight=False, markup=False, soft_wrap=True)


def results(runs: Sequence[Recorded], rule: str | None) -> list[dict[str, Any]]:
    """The same for machines."""
    rule = rule_for(runs, rule)
    told = []
    for run in runs:
        chosen = run.chosen(rule)
        told.append(
            {
                "folder": str(run.folder),
                "status": run.status,
                "rounds": run.rounds,
                "flat_since": run.flat,
                "settings": run.settings,
                "selected": chosen and {"rule": chosen.rule, "rounds": chosen.rounds, "values": chosen.values},
                "evaluation": run.history[-1][1] if run.history else None,
            }
        )
    return plain(told)


def comparison(runs: Sequence[Recorded], rule: str) -> Cells:
    """One row per setting: figures by the selection rule, mean and standard deviation over seeds, and both gaps."""
    groups: dict[str, list[Recorded]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    evaluated = [run for run in runs if run.history]
    splits = [split for split in TITLES if any(split in run.history[0][1]["splits"] for run in evaluated)]
    gaps = [gap for gap, pair in GAPS.items() if set(pair) <= set(splits)]
    metric = primary_metric(evaluated[0].history[0][1]) if evaluated else "accuracy"
    unit = f"{metric} (%), by {rule}" if metric == "accuracy" else f"{metric}, by {rule}"
    seeds = "seed" if all(len(members) == 1 for members in groups.values()) else "seeds"  # `seeds 0` would read as none
    cells: Cells = [[unit, seeds, "rounds", *(TITLES[s] for s in splits), *(_GAPS[g] for g in gaps), "status"]]
    for label, members in zip(labels([members[0] for members in groups.values()]), groups.values(), strict=True):
        cells.append([label, *_row(members, rule, splits, gaps)])
    all_done = all(run.status == "done" for run in runs)
    return [row[:-1] for row in cells] if all_done else cells


def _row(members: Sequence[Recorded], rule: str, splits: Sequence[str], gaps: Sequence[str]) -> list[str]:
    chosen = [selected.values for run in members if (selected := run.chosen(rule))]
    metric = next((primary_metric(run.history[0][1]) for run in members if run.history), "")

    def cell(values: list[float]) -> str:
        return spread(values, metric) if values else "-"

    figures = [cell([values[s] for values in chosen if s in values]) for s in splits]
    pairs = [GAPS[gap] for gap in gaps]
    figures += [cell([values[a] - values[b] for values in chosen if a in values and b in values]) for a, b in pairs]
    rounds = sorted({run.rounds for run in members})
    span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
    status = sorted({run.status for run in members})
    return [",".join(run.seed for run in members), span, *figures, "; ".join(status)]


def labels(runs: Sequence[Recorded]) -> list[str]:
    """The runs' labels; where several share one, with the settings that tell those apart: `fedavg, train.lr=0.1`."""
    return told_apart([run.label for run in runs], [flat(run.settings) for run in runs])


def told_apart(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names, each with those of its flat settings that not all of its namesakes share."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for name, own in zip(names, settings, strict=True):
        alike.setdefault(name, []).append(own)
    apart = {name: {key for own in of for key in {**of[0], **own} if own.get(key) != of[0].get(key)} for name, of in alike.items()}
    return [
        ", ".join([name, *(f"{key}={own[key]}" for key in own if key in apart[name])]) for name, own in zip(names, settings, strict=True)
    ]


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings by their full names, without what says nothing about the kind of run."""
    return files.flat(settings, without=_NOT_TOLD_APART_BY)
