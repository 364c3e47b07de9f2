"""Finished runs in one small file, to be taken up in another place: `accord reproduce --export` and `--import`.

The file is JSON lines, compressed with xz: a head, then a line for every run with its name, its settings, its
environments, its metrics at evaluated rounds and a checksum of all of these. Models and checkpoints
stay behind: a run that was taken up is done and is not trained again; asked for more rounds, it is trained from its
beginning.
"""

import json
import lzma
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import check_plain, flat, json_bytes, json_lines, write_whole
from accord.experiments.execute import discard
from accord.experiments.experiment import Experiment, assemble
from accord.experiments.settings import SECTIONS
from accord.runs.checksums import (
    METRICS,
    check_record,
    checksum,
    lines_of,
    parsed,
    read_done,
    read_json,
    sealed,
    unsealed,
    write_sealed,
)

FORMAT = 2
_OF_FOLDER = ("run", "imported", "files")  # what a `done` mark says of its folder, and not of the run
_NAME = re.compile(r"[\w.+-]+-s-?\d+")  # of a run folder: nothing that leads out of the pool


def check_place(path: Path) -> None:
    """Refuses a place where no file can be written."""
    if path.is_dir():
        raise AccordError(f"{path} is a folder: --export takes the name of a file")
    check_plain(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise AccordError(f"{path.parent} cannot be written to: name another place with --export")


def export_runs(folders: Iterable[Path], path: Path) -> int:
    """Packs the runs of these folders that are done, and says how many. Equal runs make an equal file."""
    done = sorted({folder for folder in folders if (folder / "done").exists()}, key=lambda folder: folder.name)
    head = {"accord_export": FORMAT, "runs": len(done)}
    lines = [json.dumps(entry) for entry in (head, *(sealed(_packed(folder)) for folder in done))]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lzma.compress("\n".join(lines).encode(), preset=9))
    return len(done)


def _packed(folder: Path) -> dict[str, Any]:
    check_record(folder)
    path = folder / METRICS
    rows = [parsed(line, path) for line in lines_of(path)]
    evaluated = [
        {"round": row["round"], "evaluation": _short(row["evaluation"])} for row in rows if "evaluation" in row
    ]
    done = {key: value for key, value in read_done(folder / "done").items() if key not in _OF_FOLDER}
    return {
        "name": folder.name,
        "done": done,
        "settings": read_json(folder / "experiment.json"),
        "environments": read_json(folder / "environment.json"),
        "metrics": evaluated,
    }


def _short(value: Any, digits: int = 4) -> Any:
    """Means over samples, which results and verdicts are made of, to nine digits; the spread over clients to four."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: _short(inner, 9 if key == "by_sample" else 4) for key, inner in value.items()}
    return value


def import_runs(path: Path, pool: Path) -> tuple[int, int]:
    """Takes up the runs of a file into the pool: how many are new, and how many were done there already."""
    runs = _read(path)
    new = [run for run in runs if not (pool / run["name"] / "done").exists()]
    _check_names(new, path)
    for run in new:
        beside = pool / f".{run['name']}.part"  # put in place when it is whole
        shutil.rmtree(beside, ignore_errors=True)  # of an import that was killed
        beside.mkdir(parents=True)
        contents = {
            "experiment.json": json_bytes(run["settings"]),
            "environment.json": json_bytes(run["environments"]),
            METRICS: json_lines(run["metrics"]),
        }
        for name, content in contents.items():
            write_whole(beside / name, content)
        files = {name: checksum(content) for name, content in contents.items()}
        write_sealed(beside / "done", {**run["done"], "run": run["name"], "imported": True, "files": files})
        discard(pool / run["name"])  # an unfinished one, unless a process is at work in it
        beside.rename(pool / run["name"])
    return len(new), len(runs) - len(new)


def _check_names(runs: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Refuses a run whose settings give another name than its own: it would be taken for a run of other settings."""
    known: dict[str, Experiment | None] = {}  # seeds share an experiment
    for run in runs:
        name, settings = run["name"], run["settings"]
        text = json.dumps({section: settings[section] for section in SECTIONS if section in settings})
        try:
            if text not in known:
                known[text] = _told_by_settings(json.loads(text))
        except (AccordError, RecursionError) as error:
            raise AccordError(f"the settings of {name} in {path} cannot be read: {error}") from None
        experiment, seed = known[text], settings.get("seed", name.rpartition("-s")[2])
        if experiment is not None and (right := experiment.folder(seed).name) != name:
            raise AccordError(f"the settings of {name} in {path} are those of another run, {right}: export it again")


def _told_by_settings(tables: dict[str, Any]) -> Experiment | None:
    """The experiment of some settings; None where files or code of the user's, which may not be here, are part of a
    run's name. Code that settings name is not imported: the file may be a stranger's."""
    code = {key: value for key, value in flat(tables).items() if key.startswith(("model.", "algorithm.", "train."))}
    if ":" in str(list(code.values())):
        return None
    experiment = assemble(tables, [], "")
    data, sections = experiment.supply.data, experiment.settings
    files = data.kept is None or not data.pinned or sections.data.tests or sections.model.start
    return None if files else experiment


def _read(path: Path) -> list[dict[str, Any]]:
    """The runs of a file, all of them sound, before any is written."""
    try:
        head, *runs = [parsed(line, path) for line in lzma.decompress(path.read_bytes()).splitlines()]
        version = head["accord_export"]
        if version == FORMAT:
            if head["runs"] != len(runs):
                raise ValueError(f"{len(runs)} runs in place of {head['runs']}")
            for run in runs:
                if not _NAME.fullmatch(run["name"]):
                    raise ValueError(f"a run is named {run['name']!r}")
                tables = run["settings"], run["environments"], run["done"]
                rounds = [row["round"] for row in run["metrics"]]
                if (
                    not isinstance(run["settings"], dict)
                    or not all(isinstance(table, dict | list) and table for table in tables)
                    or not all(row["evaluation"]["splits"] for row in run["metrics"])
                    or not all(type(number) is int and number > 0 for number in rounds)
                    or rounds != sorted(set(rounds))
                    or rounds[-1] != run["done"]["rounds"]
                ):
                    raise ValueError(f"{run['name']} is not whole")
            if twice := [name for name, times in Counter(run["name"] for run in runs).items() if times > 1]:
                raise ValueError(f"{twice[0]} is there twice")
            return [unsealed(run, f"{run['name']} in {path}") for run in runs]
    except FileNotFoundError:
        raise AccordError(f"there is no file {path}: accord reproduce STUDY --export FILE writes one") from None
    except (OSError, lzma.LZMAError, EOFError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise AccordError(f"{path} does not hold exported runs, or it is damaged: {error}") from None
    raise AccordError(f"{path} is an export of format {version}, and this accord reads format {FORMAT}")
