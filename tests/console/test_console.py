"""What a terminal shows: how far a run is, and tables that fit."""

import pytest
from rich.console import Console

from accord.console.news import how_far
from accord.console.tables import print_cells


@pytest.mark.parametrize(
    ("rounds", "reached", "text"),
    [
        (40, 0, "40 rounds"),
        (40, 10, "40 rounds, going on after round 10"),
        (40, 40, "40 rounds, done already"),
        (1, 0, "1 round"),
    ],
)
def test_what_lies_ahead_is_said_in_words(rounds: int, reached: int, text: str) -> None:
    assert how_far(rounds, reached) == text


@pytest.mark.parametrize("width", [19, 34, 200])
def test_a_narrow_terminal_loses_no_word(width: int) -> None:
    cells = [
        ["a name of some length", "figure"],
        ["first thing with words", "71.13 ± 5.18"],
        ["[b]not markup[/b]", "1"],
    ]
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        print_cells(console, cells, "a title")
    shown = captured.get()
    assert not [word for row in cells for cell in row for word in cell.split() if word not in shown.split()]
    drawn = "─" in shown
    assert drawn == (width > 19)
    assert not drawn or max(map(len, shown.splitlines())) <= width
