"""Studies: the papers' tables and figures, and our own, as files that a command can carry out."""

from pathlib import Path
from typing import Any

from accord.studies.analysis import Analysis
from accord.studies.analysis import make as make_analysis
from accord.studies.files import all_tables, path_of, tables_at
from accord.studies.study import Cell, Study
from accord.studies.study_file import load
from accord.studies.study_file import make as make_study

__all__ = ["Analysis", "Cell", "Study", "everything", "find", "load"]


def find(name: str) -> Study | Analysis:
    """A study by its name, or from a file of yours: a grid of cells, or an analysis."""
    path = path_of(name)
    return _made(path.stem, tables_at(path), path.parent)


def everything() -> dict[str, Study | Analysis]:
    """All that comes with accord, by name."""
    return {name: _made(name, tables) for name, tables in all_tables().items()}


def _made(name: str, tables: dict[str, Any], home: Path | None = None) -> Study | Analysis:
    return make_analysis(name, tables) if "analysis" in tables else make_study(name, tables, home)
