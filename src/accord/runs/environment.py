"""What a run ran on: versions, commit, device, threads. A result is bit-identical only where these are equal."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
import safetensors
import torch

from accord import kernels


def environment(device: torch.device) -> dict[str, Any]:
    """Plain data for `environment.json`."""
    return {
        "accord": _version(),
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "safetensors": safetensors.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "native": kernels.state() if device.type == "cpu" else "off",
    }


def _version() -> str:
    try:
        return version("accord-fl")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "source"


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
