# A sweep in Python: every rule with the same rates and the same seeds, the rate chosen on held-out data, figures on
# unseen clients. Runs are recorded, so what is done is not done again, and `accord show sweep-runs` reads them back.
# For sweeps in a file: accord sweep. Run it with: python examples/sweep.py

import argparse
from itertools import product
from statistics import fmean, stdev

import accord

RATES = (0.01, 0.03)  # of the server
MASKS = {"no mask": None, "gma(0.4)": accord.gma(0.4), "its control": accord.scaled(accord.gma(0.4))}


def figures(mask_name: str, lr: float, seed: int, rounds: int) -> tuple[float, float]:
    """Accuracy on held-out data and on unseen clients, of the round that is best on held-out data."""
    fed = accord.data.digits(clients=20, split="labels", unseen=5, seed=seed)
    algorithm = accord.fedadam(lr=lr, mask=MASKS[mask_name])
    model = accord.models.logistic(seed=seed)
    run = accord.fit(
        model, fed, algorithm, rounds=rounds, sample=10, lr=0.05, seed=seed, evaluate_every=5, folder="sweep-runs"
    )
    chosen = run.select("held-out").values
    return 100 * chosen["heldout"], 100 * chosen["unseen"]


def main() -> None:
    parser = argparse.ArgumentParser(description="FedAdam without a mask, with one, and with the mask's control.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    results = {
        (mask, lr): [figures(mask, lr, seed, asked.rounds) for seed in range(asked.seeds)]
        for mask, lr in product(MASKS, RATES)
    }
    print(
        f"{'':12}{'rate':>6}{'held-out':>10}{'unseen':>8}  (mean of {asked.seeds} seeds, +- their standard deviation)"
    )
    for mask in MASKS:
        best = max(RATES, key=lambda lr: fmean(heldout for heldout, _ in results[mask, lr]))
        heldout, unseen = zip(*results[mask, best], strict=True)
        spread = f" +- {stdev(unseen):.1f}" if len(unseen) > 1 else ""
        print(f"{mask:12}{best:6}{fmean(heldout):10.1f}{fmean(unseen):8.1f}{spread}")


if __name__ == "__main__":
    main()
