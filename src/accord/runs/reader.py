"""Run folders read back: which runs there are, how far they got, and what they are called."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.files import check_files
from accord.runs.checksums import check_record, read_json
from accord.runs.evaluation import History
from accord.runs.rows import read_history
from accord.runs.selection import Selected, by_rules
from accord.runs.settings import RunSettings
from accord.runs.text import in_words, skipped_in_words, unseen_of

LEARNED_NOTHING = "learned nothing"  # of a run all of whose rounds were skipped


@dataclass(frozen=True)
class Recorded:
    """A run as its folder tells it."""

    folder: Path
    settings: RunSettings
    history: History
    rounds: int
    status: str
    flat: int | None = None  # the round since which it was flat, if it ended for that
    skipped: int = 0  # rounds that changed nothing
    imported: bool = False  # from an export, which has neither models nor clients

    @property
    def ending(self) -> str:
        """The status, with the reason of a run that was done before its rounds, and how many changed nothing."""
        flat = [] if self.flat is None else [in_words(self.flat)]
        return ", ".join([self.status, *flat, *skipped_in_words(self.skipped, self.rounds)])

    @property
    def ended(self) -> bool:
        """Whether it has all its rounds, or was flat before them."""
        return self.status in ("done", LEARNED_NOTHING)

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
        return f"{self.settings.data.get('name')}, {self.history[0][1].metric.name}" if self.history else ""

    @property
    def seed(self) -> str:
        return str(self.settings.seed)

    @property
    def label(self) -> str:
        """`fedadam + gma(0.4)`."""
        return self.folder.name if self.damaged else self.settings.label

    @property
    def named_unseen(self) -> list[str]:
        """The unseen clients, where the settings name them."""
        named = self.settings.data.get("unseen")
        return named if isinstance(named, list) else []

    @cached_property
    def unseen(self) -> list[str]:
        """The unseen clients: as the settings name them, or as a run that is done lists them."""
        if self.named_unseen or not self.ended:
            return self.named_unseen
        try:
            return unseen_of(read_json(self.folder / "clients.json"))
        except (AccordError, KeyError, TypeError):  # a run that was imported, or damaged, has its figures all the same
            return []

    def chosen(self, rule: str) -> Selected | None:
        """The run's figures by a selection rule, if it has any."""
        selected = by_rules(self.history, rule)
        return selected[0] if selected else None


# ---------------------------------------------------------------------------------------------------- finding


def find(paths: Sequence[Path]) -> list[Path]:
    """The run folders at or below the given paths, in order of name."""
    folders: list[Path] = []
    for path in paths:
        if not path.exists():
            raise AccordError(f"there is no folder {path}: give a run folder, or a folder that holds some")
        inside = (
            [path]
            if (path / "experiment.json").exists()
            else sorted(file.parent for file in path.rglob("experiment.json"))
        )
        if not inside:
            raise AccordError(f"{path} holds no runs: a run folder has a file experiment.json")
        folders += [folder for folder in inside if folder not in folders]
    return folders


def load_all(paths: Sequence[Path]) -> list[Recorded]:
    """Every run at or below the given paths."""
    return [load(folder) for folder in find(paths)]


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
    return Recorded(folder, RunSettings(), [], 0, f"damaged: {why}")


def _load(folder: Path) -> Recorded:
    check_files(folder)
    form, ended = read_json(folder / "experiment.json"), check_record(folder)
    settings = RunSettings.from_json(form)
    reached, skipped, history = read_history(folder)
    if ended is None:
        return Recorded(folder, settings, history, reached, f"unfinished, round {reached}", skipped=skipped)
    if reached != ended["rounds"]:
        raise AccordError(
            f"metrics.jsonl ends with round {reached}, but the run was done after round {ended['rounds']}"
        )
    status = LEARNED_NOTHING if skipped == reached else "done"
    flat_since, imported = ended.get("flat_since"), "imported" in ended
    return Recorded(folder, settings, history, reached, status, flat_since, skipped, imported)
