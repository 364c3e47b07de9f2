"""The same preparation on every node: what a node says of its data, how moments travel, and models that are made once
it is known what they read."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.agreement import Form, agreed
from accord.data.moments import LIMB, WIDTH, Moments
from accord.data.preparation import Preparation
from accord.deploy.flower.npy import Wanted
from accord.deploy.flower.packing import packed, packed_bytes, unpacked
from accord.deploy.flower.replies import one_line
from accord.deploy.flower.sums import Sums, shared
from accord.privacy.secure_sum import MOST_BITS, FixedPoint

STATISTICS = "statistics"  # what the question for moments is called, as an action of Flower's query messages
LONGEST_LEVEL = 1000  # characters
MOST_NAMES, MOST_INPUTS = 100_000, 10**8  # outputs, classes or levels; numbers of a sample
_FORM = TypeAdapter(Form)


@dataclass(frozen=True)
class Shaped:
    """A model whose shape the owners' tables decide, such as one input for each level of a category: `make` gets the
    preparation that they agreed on. Both sides of an app need the same.

    >>> model = Shaped(lambda agreed: accord.models.shaped("mlp", agreed.shape, agreed.outputs, seed=0))
    """

    make: Callable[[Preparation], nn.Module]


def form_in(told: Any) -> Form:
    """What a node says of its data, whose names are for people to read."""
    try:
        form = _FORM.validate_json(json.dumps(told), strict=True)
        if form.settled is not None:
            agreed({"": form}, None)
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise AccordError(f"what it says of its data cannot be read: {one_line(str(error))}") from None
    levels = [level for column in form.columns for level in column.levels]
    # models are shaped by these numbers, at the server and at every other node
    if max(form.outputs, len(form.classes), len(levels)) > MOST_NAMES or math.prod(form.shape) > MOST_INPUTS:
        raise AccordError(
            f"its data have {form.outputs:,} outputs, {len(form.classes):,} classes, {len(levels):,} levels and samples"
            f" of {math.prod(form.shape):,} numbers: more than {MOST_NAMES:,} or {MOST_INPUTS:,} are refused"
        )
    for name in (*form.classes, *(column.name for column in form.columns), *levels):
        if not name.isprintable() or len(name) > LONGEST_LEVEL:
            raise AccordError(f"a name of its columns, levels or classes cannot be printed: {name[:40]!r}")
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
