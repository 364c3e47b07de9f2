"""Masks: a keystream of AES-256 in counter mode under a key that is used once, added to whole numbers modulo 2^bits.

Flower's own `pseudo_rand_gen` is not used: it folds the key into a 32-bit seed of a Mersenne Twister, which can be
tried out in minutes.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
_BLOCK = 1 << 18  # bytes at a time: keystream and sum then stay in a core's cache
_ZEROS = memoryview(bytes(_BLOCK))


def add_keystreams(totals: Sequence[np.ndarray], keys: Iterable[tuple[bytes, bool]]) -> None:
    """Adds the keystream of every key to the totals in place, or takes it off where the key comes with False. The
    totals, one after another, are covered by one keystream; they are unsigned and wrap around."""
    held = np.empty(_BLOCK + 16, np.uint8)  # a cipher may ask for room for one more block
    for key, adds in keys:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a mask needs a key of {KEY_BYTES} bytes, got {len(key)}")
        # A key makes one keystream in its life, so that the counter may begin at 0.
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        combine = np.add if adds else np.subtract
        for total in totals:
            width = total.dtype.itemsize
            for start in range(0, len(total), _BLOCK // width):
                part = total[start : start + _BLOCK // width]
                stream.update_into(_ZEROS[: part.nbytes], held.data)
                combine(part, held[: part.nbytes].view(total.dtype), out=part)
