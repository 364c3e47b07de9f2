"""Tables that tests train on."""

import csv
import random
from pathlib import Path

SITES = ("east", "north", "south")


def write_sites(path: Path) -> None:
    """Sixty rows of three sites, ill where the first of two numbers is above 0."""
    draws = random.Random(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "a", "b", "ill"])
        for number in range(60):
            x = draws.gauss(0, 1)
            rows.writerow([SITES[number % 3], x, draws.gauss(0, 1), "yes" if x > 0 else "no"])
