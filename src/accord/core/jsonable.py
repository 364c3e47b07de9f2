"""Dataclasses that are lines of a JSON file."""

from abc import abstractmethod
from collections.abc import ItemsView, Iterator, Mapping
from typing import Any

from accord.core.files import plain

Json = dict[str, Any]


class Jsonable(Mapping[str, Any]):
    """A dataclass with one form in JSON. It can be read by its fields (`row.accepted`), which a type checker sees, and
    as what is written of it (`row["accepted"]`); two are equal if they are written alike."""

    __slots__ = ()

    @abstractmethod
    def fields_in_json(self) -> Json:
        """Its keys and values in the order in which they are written; numbers may still be NaN."""

    def to_json(self) -> Json:
        """The same, as JSON can say it: NaN and infinities are null."""
        form: Json = plain(self.fields_in_json())
        return form

    def __getitem__(self, key: str) -> Any:
        return self.to_json()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields_in_json())

    def __len__(self) -> int:
        return len(self.fields_in_json())

    def items(self) -> ItemsView[str, Any]:
        return self.to_json().items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self.to_json() == (
            other.to_json() if isinstance(other, Jsonable) else dict(other)
        )

    __hash__ = None  # type: ignore[assignment]
