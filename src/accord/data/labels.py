"""Labels of text or numbers: classes by their names, or targets of a regression."""

from collections.abc import Sequence

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.names import in_order
from accord.data.cells import BLANK, LARGEST, At, number_of


class Labels:
    """Labels as they are read. Texts and whole numbers are classes; if all are numbers and one has a fraction, they are
    targets of a regression."""

    def __init__(self, column: str = "label") -> None:
        self._column = column
        self._labels: list[str] = []
        self._numbers: dict[str, float | None] = {}  # each label as a number, where it is one

    def extend(self, labels: Sequence[str], at: At) -> None:
        """Further labels."""
        for place, label in enumerate(labels):
            if label not in self._numbers:
                if label.strip() in BLANK:
                    raise AccordError(missing_cell(at(place), self._column))
                number = self._numbers[label] = number_of(label)
                if number is not None and not abs(number) <= LARGEST:
                    raise AccordError(
                        f"{at(place)} has {label.strip()} in column {self._column}: a label is text or a finite number"
                    )
        self._labels += labels

    def targets(self) -> tuple[Tensor, tuple[str, ...]]:
        """`y: [N]`, and the classes' names if they are classes."""
        numbers = {label: number for label, number in self._numbers.items() if number is not None}
        if len(numbers) < len(self._numbers):
            named = {label: label.strip() for label in self._numbers}
        elif all(number == int(number) for number in numbers.values()):
            named = {label: str(int(number)) for label, number in numbers.items()}
        else:
            return torch.tensor([numbers[label] for label in self._labels], dtype=torch.float32), ()
        classes = in_order(set(named.values()))
        place = {name: number for number, name in enumerate(classes)}
        return torch.tensor([place[named[label]] for label in self._labels], dtype=torch.int64), tuple(classes)


def missing_cell(at: str, column: str) -> str:
    return f"{at} has no value in column {column}: every row needs one there"
