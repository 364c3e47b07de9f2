"""Where the time of a local step goes on a CUDA device: the kernels of a round of W1 to W5, by time.

    python benchmarks/steps.py [--works W1,W5] [--speed compile,bf16] [--rows 12] [--samples 640]

Microseconds are a step's, all lanes together; a round's other kernels, such as the sums over clients, are shared out
over its steps. `between` is what the clock says more than the kernels take: gaps between them, and the host, whose
calls of CUDA are listed too.
"""

import argparse
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from contestants import accord_engine
from contestants.protocol import EVERY, Stored, store
from torch.profiler import ProfilerActivity, profile
from works import Work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default="W1,W2,W3,W5", help=f"of {', '.join(EVERY)}")
    parser.add_argument("--speed", default="", help="of accord's run.speed")
    parser.add_argument("--rows", type=int, default=12, help="kernels to list; 0: only the time and memory of a round")
    parser.add_argument("--samples", type=int, help="of a client, fewer than the work has: W4 has many kernels a step")
    asked = parser.parse_args()
    for name in asked.works.split(","):
        work = replace(EVERY[name], test=100)
        show(replace(work, samples=min(asked.samples or work.samples, work.samples)), asked.speed, asked.rows)


def show(work: Work, speed: str, rows: int) -> None:
    steps = work.rounds * -(-work.samples // work.batch)
    with TemporaryDirectory() as folder:
        store(work, Path(folder))
        options = argparse.Namespace(engine="vectorised", speed=speed, optimiser="sgd", device="cuda")
        ready = accord_engine.prepare(Stored(**asdict(work), folder=folder), options)
    ready.first()
    ready.measure()
    seconds = min(ready.measure().seconds for _ in range(3))
    memory = torch.cuda.max_memory_allocated() / 2**30
    whole = 1e6 * seconds / steps
    head = f"{work.name}{' ' + speed if speed else ''}: {seconds / work.rounds:.4g} s a round, {whole:.1f} us a step"
    if not rows:
        print(f"{head}; {memory:.1f} GiB")
        return
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        ready.measure()
    spent, calls, asked, waited = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name] += event.device_time
            calls[event.name] += 1
        elif event.name.startswith("cu"):
            asked[event.name] += 1
            waited[event.name] += event.cpu_time
    busy = sum(spent.values()) / steps
    print(f"{head}:", end=" ")
    print(f"{busy:.1f} in {sum(calls.values()) / steps:.1f} kernels, between {whole - busy:.1f}; {memory:.1f} GiB")
    for kernel, time in spent.most_common(rows):
        print(f"  {time / steps:9.1f} us  {calls[kernel] / steps:7.2f} x  {kernel[:100]}")
    print("  the host's calls, of a round:")
    for call, time in waited.most_common(8):
        print(f"  {time / work.rounds:9.1f} us  {asked[call] / work.rounds:7.2f} x  {call}")


if __name__ == "__main__":
    main()
