"""Whole numbers of a few bits as bytes, and back. A record of 11 million coordinates is packed in tenths of a second:
numbers of 8, 16, 32 or 64 bits are bytes already, eight of up to 8 bits make one machine word, and others go bit by
bit."""

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError

Numbers = np.ndarray  # unsigned, of the width that `width_of` gives
_BLOCK = 1 << 16  # numbers that are written bit by bit at a time


def width_of(bits: int) -> np.dtype:
    """The narrowest unsigned numbers that hold so many bits. Their sums wrap around at a multiple of 2^bits, so the
    lowest bits of a sum are the sum modulo 2^bits."""
    return np.dtype(next(f"<u{size}" for size in (1, 2, 4, 8) if bits <= 8 * size))


def packed_bytes(size: int, bits: int) -> int:
    """How many bytes so many numbers take."""
    return -(-size * bits // 8)


def packed(values: Tensor, bits: int) -> Tensor:
    """Whole numbers from 0 to 2^bits - 1 as bytes, `bits` bits each.

    >>> packed(torch.tensor([1, 2, 3]), 2)
    tensor([57], dtype=torch.uint8)
    """
    return torch.from_numpy(packed_numbers(values.numpy(), bits))


def packed_numbers(values: np.ndarray, bits: int) -> np.ndarray:
    """The same for arrays: uint8."""
    flat, width = values.reshape(-1), width_of(bits)
    if bits == 8 * width.itemsize:
        return np.ascontiguousarray(flat.astype(width)).view(np.uint8)
    length = packed_bytes(len(flat), bits)
    if bits < 8:  # eight numbers are `bits` bytes of one word
        rows = np.zeros((-(-len(flat) // 8), 8), np.uint64)
        rows.reshape(-1)[: len(flat)] = flat
        words = np.zeros(len(rows), "<u8")
        for place in range(8):
            words |= rows[:, place] << np.uint64(place * bits)
        return words.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)[:length].copy()
    parts = []
    for start in range(0, len(flat), _BLOCK):  # a block is whole bytes, whatever the bits
        each = (flat[start : start + _BLOCK, None].astype(np.uint64) >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
        parts.append(np.packbits(each.astype(np.uint8), bitorder="little"))
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def unpacked(data: Tensor, bits: int, size: int) -> Tensor:
    """The whole numbers that `packed` wrote, int64."""
    return torch.from_numpy(unpacked_numbers(data, bits, size).astype(np.int64))


def unpacked_numbers(data: Tensor, bits: int, size: int) -> Numbers:
    """The same, in the narrowest numbers that hold them."""
    length = packed_bytes(size, bits)
    if data.dtype != torch.uint8 or data.shape != (length,):
        raise AccordError(f"wrong length of packed numbers: {tuple(data.shape)}, expected ({length},)")
    held, width = data.contiguous().numpy(), width_of(bits)
    if bits == 8 * width.itemsize:
        return held.view(width)
    if bits < 8:
        rows = np.zeros((-(-size // 8), 8), np.uint8)
        whole = np.zeros(len(rows) * bits, np.uint8)
        whole[:length] = held
        rows[:, :bits] = whole.reshape(-1, bits)
        words, mask = rows.view("<u8").reshape(-1), np.uint64((1 << bits) - 1)
        out = np.empty((len(rows), 8), width)
        for place in range(8):
            out[:, place] = (words >> np.uint64(place * bits)) & mask
        return out.reshape(-1)[:size]
    out = np.empty(size, width)
    for start in range(0, size, _BLOCK):
        count = min(_BLOCK, size - start)
        each = np.unpackbits(held[start * bits // 8 :], count=count * bits, bitorder="little").reshape(count, bits)
        out[start : start + count] = (each.astype(np.uint64) << np.arange(bits, dtype=np.uint64)).sum(1)
    return out
