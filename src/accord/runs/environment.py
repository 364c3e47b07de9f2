"""What a run ran on. Its results have the same bits only where engine, torch, processor and threads are the same: see
`changes`."""

import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import safetensors
import torch

from accord import kernels
from accord.core.version import __version__

# Each of these changes the order in which sums are added, and so their last digits.
_DECIDING = ("engine", "speed", "native", "torch", "device")
_DECIDING_ON_CPU = ("cpu", "cpu_instructions", "threads")  # a run on a GPU computes nothing that counts on the host
# They change which code oneDNN and MKL choose; what ATEN_CPU_CAPABILITY does is in torch's answer.
_VARIABLES = ("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


class OtherEnvironment(UserWarning):
    """A run goes on with another engine, torch, processor or number of threads than it had."""


def environment(device: torch.device, engine: str, speed: Iterable[str] = ()) -> dict[str, Any]:
    """Plain data for `environment.json`."""
    set_here = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    return {
        "accord": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "safetensors": safetensors.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "engine": engine,
        # the kernel has its own entry, also if it was chosen elsewhere
        "speed": " ".join(sorted({*speed} - {"native"})) or "plain",
        "native": kernels.state() if device.type == "cpu" else "off",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": _processor(),
        "cpu_instructions": " ".join([torch.backends.cpu.get_cpu_capability(), *set_here]),
        # Not only the workers of `processes` compute on one thread: while it has some, so does their parent.
        "threads": 1 if engine == "processes" else torch.get_num_threads(),
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What has changed of all that decides a result's bits, with both values: `threads 4 (before: 2)`. Empty if nothing
    has. What an older record does not tell counts as unchanged."""
    deciding = _DECIDING + (_DECIDING_ON_CPU if now["device"] == "cpu" else ())
    return ", ".join(
        f"{key} {now[key]} (before: {before[key]})" for key in deciding if before.get(key, now[key]) != now[key]
    )


def _processor() -> str:
    """The processor's name, with the numbers that tell models of one name apart (virtual machines often give them all
    the same)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    known = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    wanted = ("model name", "vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    return " ".join(known[key] for key in wanted if key in known) or platform.machine()


@cache  # the code that runs is that of the process's start, and to ask takes longer than many rounds of a small model
def _commit() -> str | None:
    """The commit of accord's own source, where it runs from a checkout of it."""
    here = Path(__file__).resolve()
    root = here.parents[3]
    if here.parents[2].name != "src" or not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
