"""Every random draw, keyed by what it is for: (seed, purpose, round, client, step).

Nothing here keeps state. The same key gives the same draw whatever ran before it, so a resumed run, another engine or
another number of workers sees the same clients, the same batches and the same dropout.

On the CPU draws come from numpy's Philox, used raw: numpy freezes the raw stream of a bit generator, not what
`Generator` makes of it. On the device they come from SplitMix64 written in tensor code, so CPU, CUDA, vmap and a
replayed CUDA graph give the same bits.
"""

import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from accord.core.errors import whole_seed

_MANY = 500  # numbers from which `stable_order` gains by sorting them with their places
_TOGETHER = 1 << 17  # numbers that `permutations` sorts together: a core's cache holds them


def key(seed: int, purpose: str, *path: int | str) -> int:
    """A 128-bit key for one purpose: `key(0, "batches", round, client)`."""
    if type(seed) is not int:  # all that draws passes here
        seed = whole_seed(seed)
    text = f"[{','.join(map(_in_json, (seed, purpose, *path)))}]"  # in half the time that JSON's encoder takes
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def _in_json(part: int | str) -> str:
    if type(part) is str:
        return quoted(part)
    return repr(part) if type(part) is int else json.dumps(part)


def raw(n: int, seed: int, purpose: str, *path: int | str) -> np.ndarray:
    """n raw 64-bit draws."""
    return _philox(key(seed, purpose, *path)).random_raw(n)


_thread = threading.local()


def _philox(key: int) -> np.random.Philox:
    """Philox at the start of a key's stream. One per thread, set anew each time: to make one takes twenty times as
    long, and to set it from arrays, which is how it tells its state, three times."""
    if not hasattr(_thread, "philox"):
        _thread.philox = np.random.Philox(key=0)
    zero, both = (0, 0, 0, 0), (key & (1 << 64) - 1, key >> 64)
    _thread.philox.state = {
        "bit_generator": "Philox",
        "state": {"counter": zero, "key": both},
        "buffer": zero,
        "buffer_pos": 4,  # nothing is left in it
        "has_uint32": 0,
        "uinteger": 0,
    }
    return _thread.philox


def uniform(n: int, seed: int, purpose: str, *path: int | str) -> np.ndarray:
    """n numbers in [0, 1), float64."""
    return (raw(n, seed, purpose, *path) >> np.uint64(11)) * 2.0**-53


def permutation(n: int, seed: int, purpose: str, *path: int | str) -> np.ndarray:
    """An order of range(n), int64, by sorting raw draws."""
    return stable_order(raw(n, seed, purpose, *path))


def permutations(
    counts: Sequence[int], seed: int, purpose: str, paths: Sequence[Sequence[int | str]]
) -> list[np.ndarray]:
    """A permutation for every count and path. Few short ones are sorted together: to call numpy for each takes longer
    than to sort it."""
    longest = max(counts, default=0)
    if longest >= _MANY or len(counts) * longest > _TOGETHER:
        return [permutation(n, seed, purpose, *path) for n, path in zip(counts, paths, strict=True)]
    # what fills a row up is the largest number and comes last, so that it stays behind
    drawn = np.full((len(counts), longest), np.iinfo(np.uint64).max, dtype=np.uint64)
    for row, n, path in zip(drawn, counts, paths, strict=True):
        row[:n] = raw(n, seed, purpose, *path)
    return [order[:n] for order, n in zip(drawn.argsort(kind="stable"), counts, strict=True)]


def stable_order(values: np.ndarray) -> np.ndarray:
    """The order that sorts uint64 numbers, int64; equal ones stay in theirs."""
    if len(values) < _MANY:
        return values.argsort(kind="stable")
    # Numbers are sorted several times as fast as an order is found, so each takes its place along, in its last bits.
    # Where two do not differ in the others, which draws hardly ever do, places say nothing about which is smaller.
    place = np.uint64((1 << len(values).bit_length()) - 1)
    carrying = (values & ~place) | np.arange(len(values), dtype=np.uint64)
    carrying.sort()
    if ((carrying[1:] ^ carrying[:-1]) <= place).any():
        return values.argsort(kind="stable")
    return (carrying & place).view(np.int64)


def choose(n: int, k: int, seed: int, purpose: str, *path: int | str) -> np.ndarray:
    """k different numbers of range(n), ascending."""
    return np.sort(permutation(n, seed, purpose, *path)[:k])


def dirichlet(alpha: Sequence[float], seed: int, purpose: str, *path: int | str) -> np.ndarray:
    """One draw from a Dirichlet distribution. `RandomState` is numpy's frozen set of distributions; `Generator` may
    change."""
    return np.random.RandomState(np.random.Philox(key=key(seed, purpose, *path))).dirichlet(alpha)


def seed_torch(device: torch.device, seed: int, purpose: str, *path: int | str) -> None:
    """Keys torch's own generators, for a model's random calls other than dropout. Generator by generator:
    `torch.manual_seed` takes a stack trace at every call."""
    number = key(seed, purpose, *path) % 2**63
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)


# ---------------------------------------------------------------------------------------------- on the device

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # as signed 64-bit numbers, which is what torch multiplies
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # torch's >> carries the sign along


def splitmix64(key: Tensor | int, counter: Tensor) -> Tensor:
    """Number `counter` (from 0) of the SplitMix64 stream that starts at `key`, as int64 holding all 64 bits."""
    z = key + (counter + 1) * _GOLDEN
    z = (z ^ _shift_right(z, 30)) * _MIX_1
    z = (z ^ _shift_right(z, 27)) * _MIX_2
    return z ^ _shift_right(z, 31)


def below(bits: Tensor, count: int) -> Tensor:
    """Whole numbers from 0 to `count` - 1 out of raw 64-bit draws. Fair to one part in 2^24 / `count`."""
    return (_shift_right(bits, 40) * count) >> 24


def device_key(seed: int, purpose: str, *path: int | str) -> int:
    """A key for `splitmix64`: a signed 64-bit number."""
    return (key(seed, purpose, *path) & ((1 << 64) - 1)) - (1 << 63)


def normal(count: int, key: int, device: torch.device) -> Tensor:
    """Standard normal numbers, float64, by Box and Muller: each pair of draws gives two of them."""
    pairs = -(-count // 2)
    first, second = (
        _shift_right(splitmix64(key, torch.arange(2 * pairs, device=device)), 11).double().mul_(2.0**-53).view(2, pairs)
    )
    radius, angle = (-2.0 * torch.log1p(-first)).sqrt(), 2.0 * math.pi * second  # log of (0, 1], so that it is finite
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]


def keep_mask(shape: Sequence[int], p: float, key: Tensor | int, device: torch.device) -> Tensor:
    """True with probability 1 - p, one keyed draw per element."""
    count = int(np.prod(shape)) if shape else 1
    bits = splitmix64(key, torch.arange(count, device=device))
    return (_shift_right(bits, 40) >= round(p * (1 << 24))).view(tuple(shape))


_FEATURE_DROPOUT = {F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}  # how many trailing dimensions share one draw


class Routed(TorchFunctionMode):
    """Within it torch's dropout draws from `step_key`, each call from the next key. `calls` tells whether a model drops
    out at all."""

    def __init__(self, step_key: Tensor | int) -> None:
        super().__init__()
        self.step_key, self.calls = step_key, 0

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is not F.dropout and func not in _FEATURE_DROPOUT:
            return func(*args, **(kwargs or {}))
        return self._dropout(func, *args, **(kwargs or {}))

    def _dropout(
        self, func: Callable, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        self.calls += 1
        if not training or p == 0.0:
            return input
        if p == 1.0:
            return input * 0.0
        shared = _FEATURE_DROPOUT.get(func, 0)
        shape = (*input.shape[: input.ndim - shared], *([1] * shared))
        # filled there: a copy could not be captured
        call_key = splitmix64(self.step_key, torch.full((), self.calls, device=input.device))
        return input * keep_mask(shape, p, call_key, input.device) / (1.0 - p)
