"""The table of docs/results/engines.md that shows releases side by side, from the JSON files in benchmarks/results.

    python benchmarks/engines.py --engines auto --peers flower --json benchmarks/results/0.2-cpu.json
    python benchmarks/core.py --parameters 11200000 --json benchmarks/results/0.2-averaging.json
    python benchmarks/releases.py

Ratios are medians over turns: the other's seconds by accord's of the same turn.
"""

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PEERS = {"naive": "a naive loop", "flower": "Flower"}


def releases() -> dict[str, dict[str, Any]]:
    """What was measured, by release; a release's files are one record."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        found.setdefault(path.stem.partition("-")[0], {}).update(json.loads(path.read_text()))
    return found


def times_as_fast(work: dict[str, Any], peer: str) -> str:
    if any(name not in work or work[name].get("error") for name in (peer, "auto")):
        return "-"
    turns = zip(work[peer]["seconds"], work["auto"]["seconds"], strict=True)
    return f"{statistics.median(theirs / ours for theirs, ours in turns):.1f}"


def table() -> str:
    known = releases()
    lines = [f"| | {' | '.join(known)} |", f"|---|{'---|' * len(known)}"]
    for work in sorted({name for one in known.values() for name in one.get("works", {})}):
        for peer, title in PEERS.items():
            cells = [times_as_fast(one.get("works", {}).get(work, {}), peer) for one in known.values()]
            lines.append(f"| {work}: `auto`, times as fast as {title} | {' | '.join(cells)} |")
    seconds = [one.get("averaging", {}).get("seconds", {}) for one in known.values()]
    cells = [f"{of['gma'] / of['mean']:.2f}" if of else "-" for of in seconds]
    return "\n".join([*lines, f"| masked by plain averaging, 100 x 11.2 million | {' | '.join(cells)} |"])


if __name__ == "__main__":
    print(table())
