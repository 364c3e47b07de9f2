"""Answers of a cohort in the cohort's order, so that a deployed round is the simulated one bit by bit. Those that wait
for their turn do so on disk: the server's memory does not grow with the cohort.

A client whose update is far longer than the others' is left out, as one with NaN is. How long the others' are is known
when all have answered: the median over the clients of this very round, which fewer than half of them cannot move
beyond what honest ones sent. Nothing is remembered from round to round, and of two clients nobody can say which
is wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file

from accord.core.errors import AccordError
from accord.core.files import tensor_bytes
from accord.core.record import State
from accord.engines.contract import ClientRow

Answer = tuple[ClientRow, State]  # a client's row, and its record as it travelled
UPDATE = "average.delta"  # what an update is called among a record's fields
Lengths = Mapping[str, float]  # of a client's vectors, by name


def check_norm_ratio(max_norm_ratio: float | None) -> None:
    """Refuses a bound that is none."""
    number = isinstance(max_norm_ratio, int | float) and not isinstance(max_norm_ratio, bool) and max_norm_ratio > 1
    if max_norm_ratio is not None and not number:
        raise AccordError(f"max_norm_ratio must be a number above 1, or None for no bound, got {max_norm_ratio!r}")


def in_turn(count: int, arriving: Iterator[tuple[int, Answer]]) -> Iterator[Answer]:
    """Answers 0, 1, 2 ... in this order, each as soon as those before it are there."""
    early: dict[int, ClientRow] = {}
    turn = 0
    with TemporaryDirectory(prefix="accord-") as folder:
        for number, (row, tensors) in arriving:
            if number != turn:
                early[number] = row
                _put(folder, number, tensors)
                continue
            yield row, tensors
            turn += 1
            while turn in early:
                yield early.pop(turn), _taken(folder, turn)
                turn += 1
    assert turn == count, f"{count - turn} answers never came"


def together(count: int, arriving: Iterator[tuple[int, Answer]], max_norm_ratio: float) -> Iterator[Answer]:
    """Answers 0, 1, 2 ... in this order, once all are there: none whose vectors are more than `max_norm_ratio` times as
    long as the cohort's median."""
    rows: dict[int, ClientRow] = {}
    lengths: dict[int, Lengths] = {}
    with TemporaryDirectory(prefix="accord-") as folder:
        for number, (row, tensors) in arriving:
            rows[number] = row
            if tensors:
                lengths[number] = lengths_of(tensors)
                _put(folder, number, tensors)
        absurd = too_long(lengths, max_norm_ratio)
        for number in range(count):
            tensors = _taken(folder, number)
            if number in absurd:
                yield replace(rows[number], left_out_because=absurd[number]), {}
            else:
                yield rows[number], tensors


def too_long(lengths: Mapping[int, Lengths], max_norm_ratio: float) -> dict[int, str]:
    """Whose vectors are more than `max_norm_ratio` times as long as the median, and a sentence about it. A median of 0
    is no measure of anything, and NaN and infinity are left out for what they are."""
    reasons: dict[int, str] = {}
    for name in {name: None for of in lengths.values() for name in of}:
        there = {number: of[name] for number, of in lengths.items() if of.get(name, float("inf")) < float("inf")}
        usual = median(there.values()) if there else 0.0
        for number, length in there.items() if usual > 0 else ():
            if length > max_norm_ratio * usual:
                what = "update" if name == UPDATE else name
                reasons[number] = (
                    f"its {what} is {length:.3g} long, more than {max_norm_ratio:,g} times the cohort's median of"
                    f" {usual:.3g}"
                )
    return reasons


def lengths_of(tensors: State) -> Lengths:
    """In float64: the squares of large float32 numbers are infinite. A single number has no length: of losses, one
    client's may be thousands of times another's."""
    vectors = {name: value for name, value in tensors.items() if value.is_floating_point() and value.numel() > 1}
    return {name: float(torch.linalg.vector_norm(value, dtype=torch.float64)) for name, value in vectors.items()}


def _put(folder: str, number: int, tensors: State) -> None:
    if tensors:
        (Path(folder) / str(number)).write_bytes(tensor_bytes(tensors))


def _taken(folder: str, number: int) -> State:
    file = Path(folder) / str(number)
    if not file.exists():
        return {}
    tensors = load_file(file)
    file.unlink()
    return tensors
