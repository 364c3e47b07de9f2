# The run that deploy.py recorded against the same run in accord's own simulation, round by round.
# Run it with: python examples/flower/compare.py [--algorithm fedavg] [--folder deployment]

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from digits.server import DEFAULTS
from digits.task import everybody, model
from safetensors.torch import load_file

import accord
from accord.core.errors import AccordError
from accord.experiments.options import unknown
from accord.rules.named import ALGORITHMS

WIRE = {"bytes_down", "bytes_up"}  # which a simulation has none of


def recorded(folder: Path, algorithm: str) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """The rows of the deployed run, and its last model."""
    for run in folder.glob(f"runs/digits-{algorithm}-*"):
        if (run / "model.safetensors").exists():
            return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()], load_file(
                run / "model.safetensors"
            )
    raise AccordError(f"there is no finished run of {algorithm} below {folder}: run deploy.py first")


def same(here: Any, there: Any) -> bool:
    """Every entry alike; losses of an evaluation up to the last bits, since nodes sum over other batches than a
    simulation does."""
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(same(here[key], there[key]) for key in here)
    if isinstance(here, float) and isinstance(there, float):
        return math.isclose(here, there, rel_tol=1e-6)
    return bool(here == there)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--algorithm", default="fedavg")
    options.add_argument("--folder", type=Path, default=Path("deployment"))
    asked = options.parse_args()
    try:
        if asked.algorithm not in ALGORITHMS:
            raise unknown("algorithm", asked.algorithm, ALGORITHMS)
        rows, weights = recorded(asked.folder, asked.algorithm)
        chosen = ALGORITHMS[asked.algorithm](mask=accord.gma(DEFAULTS["tau"]))
        settings = {
            "rounds": len(rows),
            "sample": DEFAULTS["sample"],
            "lr": DEFAULTS["lr"],
            "evaluate_every": DEFAULTS["evaluate-every"],
        }
        run = accord.fit(model(), everybody(), chosen, engine="sequential", **settings)
    except AccordError as error:
        print(error, file=sys.stderr)
        return 2
    print("| round | clients' loss | agreement | train | held-out | unseen | held-out loss | deployed = simulated |")
    print("|---|---|---|---|---|---|---|---|")
    equal = True
    for mine, theirs in zip(rows, run.rows, strict=True):
        theirs["evaluation"]["splits"].pop("test", None)  # which is nobody's, so that no node has it
        splits = mine["evaluation"]["splits"]
        train, heldout, unseen = (
            f"{splits[split]['accuracy']['by_sample']:.2%}" for split in ("train", "heldout", "unseen")
        )
        cells = [f"{mine['train_loss']:.5f}", f"{mine['agreement']:.5f}", train, heldout, unseen]
        equal &= (alike := same({key: value for key, value in mine.items() if key not in WIRE}, theirs))
        print(
            f"| {mine['round']} | {' | '.join(cells)} | {splits['heldout']['loss']['by_sample']:.5f} |"
            f" {'yes' if alike else 'no'} |"
        )
    bits = all(torch.equal(weights[name], value) for name, value in run.model().state_dict().items())
    print(f"the last model is {'the same to the last bit' if bits else 'another'}")
    return 0 if bits and equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
