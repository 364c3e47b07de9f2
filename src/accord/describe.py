"""Settings as plain data and as short labels: for a run folder's name, its files and its tables."""

import hashlib
import json
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from accord.algorithm import Algorithm

SCHEMA = 1  # of run folders; a change that gives old settings another meaning raises it


def describe(value: Any) -> Any:
    """A dataclass as `{"kind": name, ...}` with the fields that differ from their defaults alone: a new option then changes no old name."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: describe(getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != _default(f)}
        return {"kind": type(value).__name__, **changed}
    if isinstance(value, dict):
        return {str(key): describe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [describe(entry) for entry in value]
    return value


def _default(field: Any) -> Any:
    return field.default if field.default is not MISSING else field.default_factory() if field.default_factory is not MISSING else MISSING


def fingerprint(settings: Any) -> str:
    """Ten characters that stand for settings and schema: equal settings, equal characters, on every machine."""
    text = json.dumps([SCHEMA, settings], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def label(algorithm: Algorithm) -> str:
    """`fedadam + gma(0.4)`."""
    if algorithm.mask is None:
        return algorithm.name
    return f"{algorithm.name} + {type(algorithm.mask).__name__}({algorithm.mask.tau:g})"
