"""Notebooks of the site run from top to bottom, and print what the page shows."""

import json
import re
from pathlib import Path

import pytest
from notebook_cells import code_cells, printed, stored

pytest.importorskip("sklearn", reason="the notebooks train on scikit-learn's digits")
NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.ipynb"))


def without_figures(text: str) -> list[list[str]]:
    """The words of every line, without numbers, which another processor rounds differently."""
    return [re.sub(r"-?[\d.,]+", "", line).split() for line in text.splitlines()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_and_prints_what_the_page_shows(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    texts = printed(notebook)
    assert len(texts) >= 3
    for cell, text in zip(code_cells(notebook), texts, strict=True):
        assert without_figures(text) == without_figures(stored(cell)), f"{path.name}: run notebook_cells.py again"


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
