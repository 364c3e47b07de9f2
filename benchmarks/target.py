"""What a user waits for: the time to 97 % on MNIST with 100 label-skewed clients, FedAvg with the same settings
everywhere.

    python benchmarks/target.py [--engines auto] [--peers flower,pfl] [--repeats 3] [--json FILE]

Everybody starts from the same model and evaluates the test set after every fifth round; whom it draws is its own, so
rounds differ. Starting, which `benchmarks/startup.py` has, is not in the time. Peers need the environments that
`benchmarks/peers.sh` makes.
"""

import argparse
import signal
import statistics
import sys
from pathlib import Path

from contestants.process import OWN, Contestant
from machine import in_words, machine, write
from works import T1

from engines import HERE, PEERS, compare, contestants, ratio


def row(one: Contestant, auto: Contestant) -> str:
    if one.error is not None:
        return f"{one.name:14s} failed: {one.error}"
    seconds, rounds = statistics.median(one.seconds), statistics.median(one.rounds)
    span, times = f"{min(one.seconds):.1f}-{max(one.seconds):.1f}", ratio(one, auto)
    return (
        f"{one.name:14s} {seconds:8.1f} {span:>13s} {rounds:7g} {1000 * seconds / rounds:10.0f}"
        f" {'-' if times is None else f'{times:.2f}':>8s}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--engines", default="auto", help="accord's, the first of them is what others are compared with"
    )
    parser.add_argument("--peers", default="flower,pfl", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a contestant may take to reach the target")
    parser.add_argument("--venvs", type=Path, default=HERE.parent / ".venvs", help="where peers.sh put environments")
    parser.add_argument("--json", type=Path, help="a file to write every measurement to")
    asked = parser.parse_args()
    peers, engines = ([name for name in text.split(",") if name] for text in (asked.peers, asked.engines))
    if unknown := set(peers) - set(PEERS):
        parser.error(f"there is nothing called {unknown.pop()!r} among the peers: choose of {', '.join(PEERS)}")
    if asked.repeats < 1 or not engines:
        parser.error("repeats must be at least 1, and there must be an engine to compare with")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that contestants are stopped then, too
    here = machine(without=OWN)
    print(in_words(here))
    everyone = contestants(engines, peers, asked.venvs)
    compare(T1, everyone, "cpu", asked.repeats, asked.limit)
    print(f"{T1.target:.0%} on MNIST, {T1.what}; medians of {asked.repeats} in turn")
    print(f"{'':14s} {'seconds':>8s} {'min-max':>13s} {'rounds':>7s} {'ms a round':>10s} {f'/ {engines[0]}':>8s}")
    for one in everyone:
        print(row(one, everyone[1]))
    measured = {one.name: {"seconds": one.seconds, "rounds": one.rounds, "error": one.error} for one in everyone}
    write(asked.json, {"machine": here, "target": measured})


if __name__ == "__main__":
    main()
