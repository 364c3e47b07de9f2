"""The sum of masked records, at the server: added as they come, and a record once its masks are off."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from accord.core.record import Field, Record
from accord.deploy.flower import secagg
from accord.deploy.flower.packing import unpacked_numbers, width_of
from accord.deploy.flower.sums import Receiver
from accord.deploy.flower.wire import filled


class Totals:
    """`numbers[path]` is the sum of a field, in the order in which keystreams cover the fields."""

    def __init__(self, receiver: Receiver) -> None:
        assert receiver.sums is not None and receiver.sums.secure is not None
        secure, entries = receiver.sums.secure, sorted(receiver.template.fields().items())
        self._receiver = receiver
        self._forms = {path: (entry.value.numel(), secure.form(entry.kind).bits) for path, entry in entries}
        self.numbers = {path: np.zeros(size, width_of(bits)) for path, (size, bits) in self._forms.items()}

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Adds a client's masked record: all of it, or nothing where it cannot be read."""
        read = {path: unpacked_numbers(tensors[path], bits, size) for path, (size, bits) in self._forms.items()}
        for path, total in self.numbers.items():
            np.add(total, read[path], out=total)

    def record(self, count: int) -> Record:
        """The sum of so many records as open sums would be, decoded."""
        sums = secagg.lowest(self.numbers.values(), [bits for _, bits in self._forms.values()])
        whole = self._receiver.template.mapped(lambda entry: replace(entry, value=entry.value.to(torch.int64)))
        shapes = {path: entry.value.shape for path, entry in whole.fields().items()}
        tensors = {
            path: torch.from_numpy(values.astype(np.int64)).view(shapes[path])
            for path, values in zip(self.numbers, sums, strict=True)
        }
        made = self._receiver.total(Record(clients=Field(torch.tensor([count])), record=filled(whole, tensors)), 0)
        assert made is not None
        return made
