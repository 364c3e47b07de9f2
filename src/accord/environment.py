"""What a run ran on: versions, commit, device, threads. A result is bit-identical only where these are equal."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import safetensors
import torch

from accord import native
from accord.version import __version__


def environment(device: torch.device) -> dict[str, Any]:
    """Plain data for `environment.json`."""
    return {
        "accord": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "safetensors": safetensors.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "native": native.state() if device.type == "cpu" else "off",
    }


def _commit() -> str | None:
    """The commit of accord's own source, where it runs from a checkout of it."""
    here = Path(__file__).resolve()
    root = here.parents[2]
    if here.parents[1].name != "src" or not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
