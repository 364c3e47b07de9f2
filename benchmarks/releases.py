"""The tables of docs/results/engines.md that show releases side by side, from the JSON files in benchmarks/results.

    python benchmarks/engines.py --engines auto --peers flower --json benchmarks/results/0.2-cpu.json
    python benchmarks/core.py --parameters 11200000 --json benchmarks/results/0.2-averaging.json
    python benchmarks/engines.py --device cuda --no-naive --works W1,W2 --json benchmarks/results/0.2-gpu.json
    python benchmarks/engines.py --device cuda --no-naive --works W4 --engines vectorised,vectorised+bf16 \
        --json benchmarks/results/0.2-gpu-large.json
    python benchmarks/releases.py

Each file's `machine` describes where it was measured, and how where that differs: W3 and W5 of 0.2 on a GPU are from
benchmarks/steps.py. On a CPU ratios, medians over turns: the other's seconds by accord's of the same turn. On a GPU
accord's own seconds a round, since a naive loop's hang on the host.
"""

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PEERS = {"naive": "a naive loop", "flower": "Flower"}


def releases(*, gpu: bool) -> dict[str, dict[str, Any]]:
    """What was measured on this kind of device, by release; a release's files are one record."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        measured = json.loads(path.read_text())
        if ("gpu" in measured["machine"]) == gpu:
            release = found.setdefault(path.stem.partition("-")[0], {"works": {}})
            release["works"] |= measured.pop("works", {})
            release |= measured
    return found


def times_as_fast(work: dict[str, Any], peer: str) -> str:
    if any(name not in work or work[name].get("error") for name in (peer, "auto")):
        return "-"
    turns = zip(work[peer]["seconds"], work["auto"]["seconds"], strict=True)
    return f"{statistics.median(theirs / ours for theirs, ours in turns):.1f}"


def seconds(work: dict[str, Any], option: str) -> str:
    """Of a round, in the fastest of the ways that have this option; without an option, as it is by default."""
    medians = [
        statistics.median(one["seconds"]) / one["rounds"]
        for name, one in work.items()
        if not one.get("error") and (option in name.split("+") if option else "+" not in name)
    ]
    return f"{min(medians):.3g}" if medians else "-"


def table(known: dict[str, dict[str, Any]], rows: dict[str, list[str]]) -> str:
    lines = [f"| | {' | '.join(known)} |", f"|---|{'---|' * len(known)}"]
    return "\n".join([*lines, *(f"| {title} | {' | '.join(cells)} |" for title, cells in rows.items())])


def works(known: dict[str, dict[str, Any]]) -> list[str]:
    return sorted({name for one in known.values() for name in one["works"]})


def on_two_cores() -> str:
    known = releases(gpu=False)
    rows = {
        f"{work}: `auto`, times as fast as {title}": [
            times_as_fast(one["works"].get(work, {}), peer) for one in known.values()
        ]
        for work in works(known)
        for peer, title in PEERS.items()
    }
    averaging = [one.get("averaging", {}).get("seconds", {}) for one in known.values()]
    of_masks = [f"{of['gma'] / of['mean']:.2f}" if of else "-" for of in averaging]
    return table(known, {**rows, "masked by plain averaging, 100 x 11.2 million": of_masks})


def on_a_gpu() -> str:
    known = releases(gpu=True)
    rows = {}
    for work in works(known):
        for option in ("", "bf16"):
            cells = [seconds(one["works"].get(work, {}), option) for one in known.values()]
            if set(cells) != {"-"}:
                rows[f"{work}{', ' * bool(option)}{option}: s a round"] = cells
    return table(known, rows)


if __name__ == "__main__":
    print(on_two_cores(), on_a_gpu(), sep="\n\n")
