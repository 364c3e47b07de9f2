"""Settings as plain data, and what a run folder's name makes of them."""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from fractions import Fraction
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.engines.contract import Job

SCHEMA = 2  # of run folders; a change that gives old settings another meaning raises it
_PLAIN = (str, int, float, bool, type(None))
# Where functions of accord's own lived when runs began to be named after them. A folder's name must not change when a
# file moves, so they keep that spelling for good; what is defined since goes by the module it is in.
_FIRST_HOMES = {"accord.core.losses": "accord.losses", "accord.data.standardise": "accord.data.fitting"}


def describe(value: Any) -> Any:
    """Anything a run depends on as plain data that is the same in every process.

    A dataclass becomes `{"kind": name, ...}` with the fields that differ from their defaults alone: a new option then
    changes no old name. Functions are known by their code and what they close over, modules by their structure,
    settings and weights.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 and 1 are one setting
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"  # as a file spells it: 1/1 too
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            f.name: describe(getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != _default(f)
        }
        return {"kind": type(value).__name__, **changed}
    if isinstance(value, Mapping):
        return {str(key): describe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [describe(entry) for entry in value]
    if isinstance(value, Tensor):
        return _digest(str((value.dtype, tuple(value.shape))), value)
    if isinstance(value, nn.Module):
        return _module(value)
    if isinstance(value, functools.partial):
        return ["partial", describe(value.func), describe(value.args), describe(value.keywords)]
    if isinstance(value, FunctionType):
        closed_over = [describe(cell.cell_contents) for cell in value.__closure__ or ()]
        return [
            _home(value),
            value.__qualname__,
            _code(value.__code__),
            closed_over,
            describe(value.__defaults__ or ()),
        ]
    if callable(value) and hasattr(value, "__qualname__"):
        return [_home(value), value.__qualname__]
    raise AccordError(
        f"a recorded run must be recognised again, and {value!r} looks different in every process: "
        "write it as a function, a dataclass or an nn.Module, or leave out the folder"
    )


def _home(value: Any) -> str:
    return _FIRST_HOMES.get(value.__module__, value.__module__)


def _default(field: "Field[Any]") -> Any:
    """What a field is unless it is set; a field may name another value that is `usual`."""
    if "usual" in field.metadata:
        return field.metadata["usual"]
    return (
        field.default
        if field.default is not MISSING
        else field.default_factory()
        if field.default_factory is not MISSING
        else MISSING
    )


def _module(module: nn.Module) -> list[str]:
    """A module's class and a hash of its parts: their settings, what is trainable, every weight and buffer."""
    settings = [
        (name, {k: v for k, v in vars(m).items() if isinstance(v, (*_PLAIN, tuple))})
        for name, m in module.named_modules()
    ]
    trainable = [(name, p.requires_grad) for name, p in module.named_parameters()]
    tensors = [*module.parameters(), *module.buffers()]
    return [
        type(module).__qualname__,
        _digest(f"{module!r}{settings}{trainable}{[t.dtype for t in tensors]}", *tensors),
    ]


def _code(code: CodeType) -> str:
    inner = [_code(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return _digest(f"{code.co_code.hex()}{inner}{code.co_names}")


def _digest(text: str, *tensors: Tensor) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint(settings: Any) -> str:
    """Ten characters that stand for settings and schema."""
    text = json.dumps([SCHEMA, settings], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def run_name(job: Job, settings: dict[str, Any]) -> str:
    """`mnist-fedadam-gma-1f0c2d3e4b-s0`: readable parts first, then what tells settings apart."""
    return folder_name(
        [job.fed.name, job.algorithm.name, type(job.algorithm.mask).__name__ if job.algorithm.mask else ""],
        settings,
        job.seed,
    )


def folder_name(words: list[str], settings: dict[str, Any], seed: int) -> str:
    """Words that people read, a fingerprint of the settings, and the seed."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", word) for word in words if word)
    return f"{readable}-{fingerprint(settings)}-s{seed}"
