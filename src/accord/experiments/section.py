"""What all sections of an experiment file have in common."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Whole = int | Literal["all"]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) and not isinstance(value, bool) else value


OneOrMore = BeforeValidator(_listed)  # a single number or word where a list belongs is a list of one
Words = Annotated[list[str], OneOrMore]


class Section(BaseModel):
    """A table of the file: no unknown keys, no silent conversions, no numbers beyond all bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
