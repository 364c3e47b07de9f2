# Makes patients.csv: 920 patients of four hospitals, as such tables are. Nobody in it exists. A hospital has its own
# patients, reads some values a little high or low, and leaves others out. Run it with: python make_patients.py

import csv
from pathlib import Path

import numpy as np

HOSPITALS = {"north": 303, "east": 294, "south": 200, "west": 123}
PAIN = ("typical", "atypical", "other", "none")


def patients(seed: int = 0) -> list[dict[str, object]]:
    """A row for each patient; None is a value that nobody wrote down."""
    draw, rows = np.random.default_rng(seed), []
    for number, (hospital, count) in enumerate(HOSPITALS.items()):
        older, reads = draw.normal(0, 4), draw.normal(1, 0.08, 3)  # its patients, and its instruments
        lost = {"cholesterol": (0.02, 0.08, 0.6, 0.25)[number], "slope": (0.0, 0.6, 0.1, 0.4)[number], "pulse": 0.05}
        for _ in range(count):
            age = draw.normal(53 + older, 9)
            sex = draw.choice(["female", "male"], p=[0.25, 0.75])
            pain = draw.choice(PAIN, p=[0.1, 0.2, 0.25, 0.45])
            sugar = draw.random() < 0.15
            pressure, cholesterol = draw.normal(130, 17), draw.normal(240, 50)
            pulse, slope = draw.normal(220 - age - 30, 20), draw.choice(["up", "flat", "down"], p=[0.4, 0.5, 0.1])
            score = (
                0.06 * (age - 53)
                + 1.2 * (sex == "male")
                + 1.8 * (pain == "none")
                + 0.8 * sugar
                + 0.01 * (cholesterol - 240)
                - 0.03 * (pulse - 137)
                + {"up": -1.2, "flat": 0.9, "down": 0.4}[str(slope)]
                - 1.6
            )
            row = {
                "hospital": hospital,
                "age": round(age),
                "sex": sex,
                "pain": pain,
                "pressure": round(pressure * reads[0]),
                "cholesterol": round(cholesterol * reads[1]),
                "sugar": str(sugar).lower(),
                "pulse": round(pulse * reads[2]),
                "slope": slope,
                "vessels": draw.choice([0, 1, 2, 3], p=[0.6, 0.2, 0.13, 0.07]),
                "diagnosis": "ill" if draw.random() < 1 / (1 + np.exp(-score)) else "well",
            }
            rows.append({name: None if draw.random() < lost.get(name, 0.0) else cell for name, cell in row.items()})
    return rows


def main() -> None:
    rows = patients()
    with Path(__file__).with_name("patients.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)


if __name__ == "__main__":
    main()
