"""CUDA kernels on a CPU: the same source, compiled as C++ with `cuda_on_cpu.h`, so that what they compute can be tested
anywhere. They are slow there, and races do not show."""

import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

from accord.kernels.cuda import in_c

HERE = Path(__file__).parent


class Emulated:
    """In the place of `accord.kernels.cuda.Kernels`."""

    def __init__(self, source: Path, constants: Mapping[str, int], folder: Path) -> None:
        text = source.read_text()
        names = re.findall(r'extern "C" __global__ void(?: __launch_bounds__\(\w+\))?\s+(\w+)\(', text)
        file = folder / "kernels.cpp"
        file.write_text("\n".join(['#include "cuda_on_cpu.h"', text, *(f"LAUNCHES({name})" for name in names)]))
        defined = [f"-D{name}={value}" for name, value in constants.items()]
        # symbolic: a kernel's name is its own, also where the process has another function of that name
        how = ["-O1", "-std=c++17", "-w", "-shared", "-fPIC", "-Wl,-Bsymbolic", f"-I{HERE}"]
        command = ["g++", *how, *defined, str(file)]
        subprocess.run([*command, "-o", str(folder / "kernels.so")], check=True)
        self._library = ctypes.CDLL(str(folder / "kernels.so"))

    def launch(self, name: str, grid: tuple[int, int], threads: int, *given: Tensor | float | None) -> None:
        values = [in_c(value) for value in given]
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self._library[f"launch_{name}"](*grid, threads, addresses)


def emulate(module: ModuleType, monkeypatch: pytest.MonkeyPatch, folders: pytest.TempPathFactory) -> None:
    """Has a module of `accord.kernels` emulate its kernels. Its `kernels` are asked for by device, or by shape and
    device."""
    if shutil.which("g++") is None:
        pytest.skip("neither a CUDA device nor a C++ compiler to emulate it with")

    @functools.cache
    def kernels(*shape_and_device: Any) -> Emulated:
        constants = {} if len(shape_and_device) == 1 else module.constants(shape_and_device[0])
        return Emulated(module.SOURCE, constants, folders.mktemp("emulated"))

    monkeypatch.setattr(module, "kernels", kernels)
