"""CUDA C++ compiled when it is first used, for the device that is there, with NVIDIA's runtime compiler: torch's CUDA
builds bring it along."""

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LIBRARY, _DRIVER = "libnvrtc.so", "libcuda.so.1"


class CudaError(RuntimeError):
    """Why CUDA C++ cannot be compiled, loaded or launched here."""


class Kernels:
    """The kernels of one source file, compiled with these constants for the current device."""

    def __init__(self, source: Path, constants: Mapping[str, int]) -> None:
        major, minor = torch.cuda.get_device_capability()
        defined = [f"-D{name}={value}" for name, value in constants.items()]
        torch.cuda.current_stream()  # makes the device's context current, which the module is loaded into
        try:
            self._driver = ctypes.CDLL(_DRIVER)
        except OSError as error:
            raise CudaError(f"{_DRIVER}, NVIDIA's driver, cannot be loaded") from error
        self._module = ctypes.c_void_p()
        options = [f"--gpu-architecture=sm_{major}{minor}", "-std=c++17", "-default-device", *defined]
        binary = compiled(source.read_text(), options)
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), binary))
        self._found: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, grid: tuple[int, int], threads: int, *given: Tensor | float | None) -> None:
        """Launches a kernel on torch's current stream. A tensor is handed over as its address, None as no address, a
        number as it is declared: float and int for Python's, long long for an `Int64`."""
        if name not in self._found:
            function = ctypes.c_void_p()
            self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()))
            self._found[name] = function
        values = [in_c(value) for value in given]
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._check(self._driver.cuLaunchKernel(self._found[name], *grid, 1, threads, 1, 1, 0, stream, addresses, None))

    def _check(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(f"CUDA: {(text.value or b'unknown error').decode()}")


def fields_as_constants(shape: "DataclassInstance") -> dict[str, int]:
    """The fields of a kernel's shape as constants to compile it with, in capitals."""
    return {field.name.upper(): int(getattr(shape, field.name)) for field in fields(shape)}


class Int64(int):
    """A number that a kernel takes as a long long."""


InC = ctypes.c_void_p | ctypes.c_float | ctypes.c_int64 | ctypes.c_int


def in_c(value: Tensor | float | None) -> InC:
    """What a kernel's parameter is set to."""
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(None if value is None else value.data_ptr())
    if isinstance(value, Int64):
        return ctypes.c_int64(value)
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)


def compiled(source: str, options: list[str]) -> bytes:
    """The machine code of a source for one kind of device."""
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"accord.cu", 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CudaError(f"NVIDIA's compiler said {' '.join(log.value.decode().split())[:500]}")
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        binary = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, binary)
        return binary.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    """The library of torch's CUDA version, which lies beside torch or in packages that came with it."""
    name = f"{_LIBRARY}.{(torch.version.cuda or '').partition('.')[0]}"
    beside = sorted(Path(torch.__file__).parents[1].glob(f"nvidia/*/lib/{name}"))
    for place in (name, *map(str, beside)):
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise CudaError(f"{name}, NVIDIA's runtime compiler, is not installed")
