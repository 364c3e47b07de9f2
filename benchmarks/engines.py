"""The same work on accord's engines, a naive PyTorch loop, Flower's simulation and pfl-research: one table a work.

    python benchmarks/engines.py [--works W1,W2] [--repeats 3] [--device cpu] [--engines sequential,processes] [--peers
    flower,pfl]

Every contestant is a process that lives as long as its work is measured, peers in the environments that
`benchmarks/peers.sh` makes. They are asked in turn (A, B, C, A, B, C, ...), so that a noisy machine is noisy for all,
and sleep while others are measured. A measurement is the work's rounds of FedAvg and one evaluation on the test set.
One that fails is a row that says why.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from contestants.process import OWN, Contestant, Failed
from contestants.protocol import EVERY, store
from machine import in_words, machine, write
from works import Work

HERE = Path(__file__).resolve().parent
CPU, GPU = "cpu", "cuda"
DEFAULTS = {
    CPU: {"works": "W1,W2,W3", "engines": "auto,processes", "peers": "flower,pfl,pfl-processes"},
    GPU: {"works": "W1,W2,W3,W4,W5", "engines": "vectorised", "peers": ""},  # no peer could be installed there
}
PEERS = {"flower": ("flower", "flower", []), "pfl": ("pfl", "pfl", ["--processes", "1"])}
PEERS["pfl-processes"] = ("pfl", "pfl", ["--processes", str(os.cpu_count() or 1)])


def contestants(engines: list[str], peers: list[str], venvs: Path, naive: bool = True) -> list[Contestant]:
    """The naive loop first, if it takes part: it is what others are compared with."""
    module = [sys.executable, "-m"]
    everyone = [Contestant("naive", [*module, "contestants.naive"])] if naive else []
    for engine in engines:
        how, *speed = engine.split("+")
        name, _, optimiser = how.partition(":")
        options = ["--engine", name, "--speed", ",".join(speed), "--optimiser", optimiser or "sgd"]
        everyone.append(Contestant(engine, [*module, "contestants.accord_engine", *options]))
    for peer in peers:
        environment, name, options = PEERS[peer]
        everyone.append(
            Contestant(peer, [str(venvs / environment / "bin" / "python"), "-m", f"contestants.{name}", *options])
        )
    return everyone


def compare(work: Work, everyone: list[Contestant], device: str, repeats: int, limit: float) -> None:
    """Starts all, then asks them in turn. Whoever fails is asked no more."""

    def attempt(one: Contestant, what: str) -> None:
        if one.error is not None:
            return
        try:
            one.start(work, folder, device, limit) if what == "starts" else one.measure(limit)
        except Failed as failure:
            one.error = str(failure)
        told = one.error or (f"{one.ready_after:.1f} s" if what == "starts" else f"{one.seconds[-1]:.2f} s")
        print(f"{work.name}: {one.name} {what}: {told}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store(work, folder)
        try:
            for one in everyone:
                attempt(one, "starts")
            for repeat in range(repeats):
                for one in everyone:
                    attempt(one, f"{repeat + 1} of {repeats}")
        finally:
            for one in everyone:
                one.stop()


# -------------------------------------------------------------------------------------------------- the table


def ratio(one: Contestant, other: Contestant) -> float | None:
    """How many times as long `one` takes: the median over turns, each with the other's time of the same turn."""
    if one.error or other.error:
        return None
    return statistics.median(a / b for a, b in zip(one.seconds, other.seconds, strict=True))


def table(work: Work, everyone: list[Contestant], engines: list[str]) -> str:
    """Medians; `/ x` is the time as a multiple of x's. Who failed has its error in place of numbers."""
    by_name = {one.name: one for one in everyone}
    against = [by_name[name] for name in ("naive", *engines) if name in by_name and by_name[name].error is None]
    header = [
        "contestant",
        "s/round",
        "min-max",
        *(f"/ {other.name}" for other in against),
        "first round after",
        "memory MB",
    ]
    gpu = any(one.gpu_mb is not None for one in everyone)
    rows = [[*header, *(["GPU MB"] if gpu else [])]]
    errors = []
    for one in everyone:
        if one.error is not None:
            errors.append(f"  {one.name:14s} failed: {one.error}")
            continue
        per_round = [seconds / work.rounds for seconds in one.seconds]
        ratios = [ratio(one, other) for other in against]
        cells = [one.name, f"{statistics.median(per_round):.4g}", f"{min(per_round):.3g}-{max(per_round):.3g}"]
        cells += ["-" if value is None else f"{value:.2f}" for value in ratios]
        cells += [f"{one.ready_after:.1f} s", f"{one.peak_mb:,.0f}"]
        rows.append([*cells, *([f"{one.gpu_mb:,.0f}" if one.gpu_mb else "-"] if gpu else [])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  "
        + "  ".join(
            f"{cell:<{w}}" if c == 0 else f"{cell:>{w}}" for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    head = (
        f"{work.name}: {work.what}; {work.rounds} round{'s' * (work.rounds > 1)} and an evaluation on {work.test:,}"
        " samples a measurement"
    )
    return "\n".join([head, *lines, *errors])


def notes(everyone: list[Contestant]) -> str:
    """Versions and settings of those who ran."""
    lines = []
    for one in everyone:
        if one.about:
            versions = ", ".join(f"{name} {value}" for name, value in one.about["versions"].items())
            lines.append(
                f"  {one.name:14s} {versions}; {one.about['threads']} threads in its main process; {one.about['note']}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=CPU, choices=[CPU, GPU])
    parser.add_argument(
        "--works", help=f"of {', '.join(EVERY)}; on a CPU {DEFAULTS[CPU]['works']} if left out, else all"
    )
    parser.add_argument(
        "--engines",
        help=(
            "accord's engines; all that the device has if left out; NAME+native or NAME+compile+bf16: with these of"
            " accord's run.speed; NAME:adamw: with this local optimiser"
        ),
    )
    parser.add_argument("--peers", help=f"of {', '.join(PEERS)}; on a CPU all if left out, else none")
    parser.add_argument(
        "--no-naive", dest="naive", action="store_false", help="without the naive loop, which takes long"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a contestant may take for one answer")
    parser.add_argument(
        "--venvs",
        type=Path,
        default=HERE.parent / ".venvs",
        help="where benchmarks/peers.sh put the peers' environments",
    )
    parser.add_argument("--json", type=Path, help="a file to write every measurement to")
    asked = parser.parse_args()
    chosen = {
        key: [
            name
            for name in (getattr(asked, key) if getattr(asked, key) is not None else DEFAULTS[asked.device][key]).split(
                ","
            )
            if name
        ]
        for key in ("works", "engines", "peers")
    }
    for key, known in (("works", EVERY), ("peers", PEERS)):
        for name in chosen[key]:
            if name not in known:
                parser.error(f"there is nothing called {name!r} among the {key}: choose of {', '.join(known)}")
    if asked.repeats < 1:
        parser.error(f"repeats must be at least 1, got {asked.repeats}: every contestant is measured so often")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that contestants are stopped then, too
    here = machine(asked.device, without=OWN)
    print(in_words(here))
    print(
        f"medians of {asked.repeats} measurements in turn; `/ x`: time as a multiple of x's (median over turns);"
        " memory: until the first"
    )
    print("round is done, the process and its children, mapped files left out\n")
    results: dict[str, Any] = {"machine": here, "works": {}}
    for name in chosen["works"]:
        everyone = contestants(chosen["engines"], chosen["peers"], asked.venvs, asked.naive)
        compare(EVERY[name], everyone, asked.device, asked.repeats, asked.limit)
        print(table(EVERY[name], everyone, chosen["engines"]) + "\n", flush=True)
        results["works"][name] = {
            one.name: {
                "seconds": one.seconds,
                "rounds": EVERY[name].rounds,
                "first_round_after": one.ready_after,
                "peak_mb": one.peak_mb,
                "gpu_mb": one.gpu_mb,
                "error": one.error,
                **one.about,
            }
            for one in everyone
        }
        write(asked.json, results)
    print(notes(everyone))


if __name__ == "__main__":
    main()
