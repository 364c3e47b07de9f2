# Tumours, benign or not, by hospital: each hospital in turn stays away from training, and the model is judged on it
# alone. The patients are real (scikit-learn's breast-cancer table), the hospitals are made up: each has its own scale
# for what it measures. Run it with: python examples/hospitals.py

import argparse
from dataclasses import replace

import numpy as np
from sklearn.datasets import load_breast_cancer

import accord

HOSPITALS = ("north", "east", "south", "west", "centre")


def patients(seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Every hospital's measurements and diagnoses. Instruments differ: a hospital reads each of its columns a little
    high or low."""
    x, y = load_breast_cancer(return_X_y=True)
    generator = np.random.default_rng(seed)
    parts = np.array_split(generator.permutation(len(y)), len(HOSPITALS))
    return {
        name: (x[rows] * generator.uniform(0.7, 1.3, x.shape[1]), y[rows])
        for name, rows in zip(HOSPITALS, parts, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Leave one hospital out, for averaging with and without a mask.")
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    rules = {"fedavg": accord.fedavg(), "with gma": accord.fedavg(mask=accord.gma(0.4))}
    print("accuracy (%) on the hospital left out\n" + "".join(f"{word:>10}" for word in ("", *rules)))
    for away in HOSPITALS:
        fed = accord.data.from_arrays(patients(), unseen=[away], heldout=0.2, name=f"without {away}")
        fed = replace(fed, prepare=accord.data.fitted(fed))  # mean 0 and spread 1, by those who take part
        figures = []
        for rule in rules.values():
            run = accord.fit(
                accord.models.logistic(features=30, classes=2), fed, rule, rounds=rounds, epochs=2, lr=0.02
            )
            figures.append(100 * run.select("held-out").values["unseen"])
        print(f"{away:>10}" + "".join(f"{figure:10.1f}" for figure in figures))


if __name__ == "__main__":
    main()
