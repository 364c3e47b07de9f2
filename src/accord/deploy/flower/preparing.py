"""The same preparation on every node: what a node says of its data, how moments travel, and models that are made once
it is known what they read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import torch
from pydantic import AfterValidator, Field, ValidationError
from torch import Tensor, nn

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.agreement import ColumnForm, Form, Kind, Source, agreed
from accord.data.moments import LIMB, WIDTH, Moments
from accord.data.preparation import Preparation
from accord.deploy.flower.npy import Wanted
from accord.deploy.flower.packing import packed, packed_bytes, unpacked
from accord.deploy.flower.replies import LONGEST_NAME, MessageBody, first_of, one_line, printable
from accord.deploy.flower.sums import Sums, shared
from accord.privacy.secure_sum import MOST_BITS, FixedPoint

STATISTICS = "statistics"  # what the question for moments is called, as an action of Flower's query messages
LONGEST_LEVEL = 1000  # characters
MOST_NAMES, MOST_INPUTS = 100_000, 10**8  # outputs, classes or levels; numbers of a sample
Level = Annotated[str, Field(max_length=LONGEST_LEVEL), AfterValidator(printable)]
Levels = Annotated[list[Level], Field(fail_fast=True, max_length=MOST_NAMES)]


@dataclass(frozen=True)
class Shaped:
    """A model whose shape the owners' tables decide, such as one input for each level of a category: `make` gets the
    preparation that they agreed on. Both sides of an app need the same.

    >>> model = Shaped(lambda agreed: accord.models.shaped("mlp", agreed.shape, agreed.outputs, seed=0))
    """

    make: Callable[[Preparation], nn.Module]
    waits: ClassVar[bool] = True

    def module(self, agreed: Preparation | None) -> nn.Module:
        if agreed is None:
            raise AccordError("the model waits for the preparation that all owners agree on, and none was sent")
        return self.make(agreed)


@runtime_checkable
class ModelSource(Protocol):
    """Where a model comes from. One that `waits` has no shape before the owners agree."""

    @property
    def waits(self) -> bool: ...

    def module(self, agreed: Preparation | None) -> nn.Module:
        """The model, for samples that are prepared so."""


@dataclass(frozen=True)
class Made:
    """A model that is there already."""

    model: nn.Module
    waits: ClassVar[bool] = False

    def module(self, agreed: Preparation | None) -> nn.Module:
        return self.model


def model_source(model: Any) -> ModelSource:
    """A model as a source of itself; a source as it is."""
    if isinstance(model, nn.Module):
        return Made(model)
    if not isinstance(model, ModelSource):
        raise AccordError(
            f"model must be a torch module, or Shaped(...) for one that owners' tables shape, got {model!r:.60}"
        )
    return model


class ColumnWords(MessageBody):
    """What a node says of a column (`ColumnForm`)."""

    name: Level
    kind: Kind
    levels: Levels
    declared: bool


class FormWords(MessageBody):
    """What a node says of its data (`Form`). Models are shaped by these numbers, at the server and at every other
    node."""

    source: Source
    shape: Annotated[list[Annotated[int, Field(ge=0, le=MOST_INPUTS)]], Field(fail_fast=True, max_length=8)]
    outputs: Annotated[int, Field(ge=0, le=MOST_NAMES)]
    regression: bool
    classes: Levels
    columns: Annotated[list[ColumnWords], Field(fail_fast=True, max_length=MOST_NAMES)]
    missing: Annotated[str, Field(max_length=LONGEST_NAME)]
    fields: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None
    settled: dict[str, Any] | None


def form_in(body: Any) -> Form:
    """What a node says of its data, whose names are for people to read."""
    try:
        words = FormWords.model_validate(body)
        columns = [ColumnForm(of.name, of.kind, tuple(of.levels), of.declared) for of in words.columns]
        lists = {"shape": tuple(words.shape), "classes": tuple(words.classes), "columns": tuple(columns)}
        form = Form(**{**words.model_dump(exclude={"columns"}), **lists})
        if form.settled is not None:
            if odd := sorted(form.settled.keys() - {"columns", "scaling"}):
                raise ValueError(f"settled: {odd[0][:40]!r} is not expected")
            agreed({"": form}, None)
    except ValidationError as error:
        raise AccordError(f"what it says of its data cannot be read: {first_of(error)}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AccordError(f"what it says of its data cannot be read: {one_line(str(error))}") from None
    levels = sum(len(column.levels) for column in form.columns)
    if levels > MOST_NAMES or math.prod(form.shape) > MOST_INPUTS:
        raise AccordError(
            f"its data have {levels:,} levels and samples of {math.prod(form.shape):,} numbers: more than"
            f" {MOST_NAMES:,} or {MOST_INPUTS:,} are refused"
        )
    return form


# -------------------------------------------------------------------------------------------------- as it travels


def share_of(moments: Moments, sums: Sums | None, node: str, cohort: Sequence[str], secret: int | None) -> Tensor:
    """A node's moments as they leave it: as reports do, open, as whole numbers of a secure sum, or masked."""
    limbs = moments.limbs()
    if sums is None or sums.secure is None:
        return limbs
    form = _whole(len(cohort))
    share = form.encode(limbs.reshape(-1))
    if sums.masked:
        # round 0 is nobody's, so that no round has the same masks; neither have nodes that add up other columns
        key = draws.key(shared(secret), "masks", 0, STATISTICS, len(limbs), *cohort)
        share = form.masked(share, node, cohort, key)
    return packed(share, form.bits)


def wanted_share(sums: Sums | None, columns: int) -> Wanted:
    """What a node's answer must hold."""
    if sums is None or sums.secure is None:
        return {"moments": (torch.float64, (1 + columns, WIDTH))}
    return {"moments": (torch.uint8, (packed_bytes((1 + columns) * WIDTH, MOST_BITS),))}


def check_share(share: Tensor, sums: Sums | None, columns: int, rows: int) -> Tensor:
    """A node's share as whole numbers that add up; one that is open must be that of as many rows as it registered."""
    if sums is not None and sums.secure is not None:
        return unpacked(share, MOST_BITS, (1 + columns) * WIDTH)
    if bool((share.abs() >= 2.0**LIMB).any()):
        raise AccordError("its sums are larger than any column's")
    if (counted := Moments.from_limbs(share).rows) != rows:
        raise AccordError(f"its sums are of {counted} rows, and its clients registered {rows}")
    return share


def total_of(shares: Sequence[Tensor], sums: Sums | None, columns: int) -> Moments:
    """The moments of all nodes."""
    total = torch.stack(list(shares)).sum(0)
    if sums is not None and sums.secure is not None:
        total = _whole(len(shares)).decode(total, len(shares)).view(1 + columns, WIDTH)
    return Moments.from_limbs(total)


def _whole(nodes: int) -> FixedPoint:
    """Whole numbers as they are: a step is 1."""
    return FixedPoint(nodes, float(((1 << MOST_BITS - 1) - 1) // nodes), MOST_BITS)
