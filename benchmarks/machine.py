"""The machine that a benchmark ran on, for its first line and its JSON file."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from accord.core.version import __version__

_VARIABLES = ("OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_CPU", "ACCORD_NATIVE")


def machine(device: str = "cpu", without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Plain data; of the variables that decide how torch computes, those that are set and not passed `without`."""
    described = {
        "accord": __version__,
        "cores": os.cpu_count(),
        "cpu": cpu_model(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        # threads that wait for each other suffer most from others on the machine
        "load average before": round(os.getloadavg()[0], 1),
    }
    described |= {key: of for key, of in os.environ.items() if key.startswith(_VARIABLES) and key not in without}
    return {**described, "gpu": torch.cuda.get_device_name()} if device == "cuda" else described


def in_words(described: dict[str, Any]) -> str:
    return ", ".join(f"{value} {key}" if key == "cores" else f"{key} {value}" for key, value in described.items())


def write(path: Path | None, results: dict[str, Any]) -> None:
    """To a file, if there is one to write to."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n")


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
