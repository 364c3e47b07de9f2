"""The table of clients left out, with figures worked by hand."""

import math

from accord.core.metrics import Metric
from accord.runs.left_out import LeftOut
from accord.runs.selection import Selected


def reached(unseen: float, abroad: float = 0.5) -> Selected:
    return Selected("held-out", [2], {"train": 0.9, "unseen": unseen}, {"abroad": abroad})


CHOSEN = {
    "averaging": {
        "north": {"0": reached(0.8, 0.6), "1": reached(0.9, 0.7)},
        "south": {"0": reached(0.5, 0.2), "1": reached(0.7, 0.3)},
    },
    "masked": {"north": {"0": reached(0.7)}, "south": {}},  # which is not done
}


def test_a_column_per_client_the_mean_by_seed_and_the_worst() -> None:
    head, averaging, masked = LeftOut(Metric("accuracy"), "held-out", CHOSEN).cells()
    assert head == [
        "accuracy (%) on the client left out, by held-out",
        *("seeds", "north", "south", "mean", "worst", "abroad"),
    ]
    north, south = "85.00 ± 7.07", "60.00 ± 14.14"  # deviations of 0.8, 0.9 and of 0.5, 0.7
    mean, abroad = "72.50 ± 10.61", "45.00 ± 7.07"  # of 0.65, 0.80, the means by seed, and of 0.4, 0.5
    assert averaging == ["averaging", "0,1", north, south, mean, south, abroad]
    assert masked == ["masked", "0", "70.00", "-", "-", "-", "-"], "a mean over fewer clients is another figure"


def test_where_less_is_better_the_worst_is_the_largest() -> None:
    table = LeftOut(Metric("error", smaller_is_better=True), "last10", {"averaging": CHOSEN["averaging"]})
    assert table.worst("averaging") == "north" and table.cells()[1][5] == "0.85 ± 0.07071"
    assert table.figures("averaging") == {"north": [0.8, 0.9], "south": [0.5, 0.7]}
    (told,) = table.to_json()
    assert told["worst"] == "north" and told["tests"] == {"abroad": [0.4, 0.5]}


def test_clients_whose_names_are_numbers_stand_in_their_order() -> None:
    of = {client: {"0": reached(0.5)} for client in ("10", "9", "1")}
    assert LeftOut(Metric("accuracy"), "held-out", {"averaging": of}).clients == ["1", "9", "10"]


def test_a_client_without_a_figure_has_a_dash_in_every_number_of_seeds() -> None:
    """The AUC of a client with one class is NaN in every seed: no deviation can be had of that."""
    of = {"north": CHOSEN["averaging"]["north"], "south": {seed: reached(math.nan) for seed in "01"}}
    _, row = LeftOut(Metric("auc"), "held-out", {"averaging": of}).cells()
    assert row[2:6] == ["0.8500 ± 0.0707", "-", "-", "-"]
