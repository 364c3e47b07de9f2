"""A federation's portrait for people: a table of clients by class, a few sentences, and a picture of both."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from accord.core.errors import AccordError
from accord.data.portrait import PARTICIPATING, TEST, UNSEEN, Owner, Portrait
from accord.runs.text import Cells

ROWS = 20  # clients in a table, unless all are asked for
UNSEEN_ROWS = 5  # of these, at most so many unseen ones where others need the room
COLUMNS = 20  # classes with a column each; with more, a client's largest classes are listed
LARGEST = 5  # classes in such a list
MOST_CLIENTS, MOST_CLASSES = 100, 62  # of a heat map; beyond, histograms say more


# -------------------------------------------------------------------------------------------- on the terminal


def table(portrait: Portrait, everyone: bool = False) -> tuple[Cells, str]:
    """The clients and test sets, a row each, and a sentence about clients that were left out, if any."""
    owners, more = _chosen(portrait.owners, everyone)
    together = _together(portrait)
    shown = [o for o in owners if o.kind != TEST] + together + [o for o in owners if o.kind == TEST]
    return [
        ["client", *_heading(portrait)],
        *([_title(owner), *_cells(owner, portrait.classes)] for owner in shown),
    ], more


def _chosen(owners: Sequence[Owner], everyone: bool) -> tuple[list[Owner], str]:
    count = {kind: sum(owner.kind == kind for owner in owners) for kind in (PARTICIPATING, UNSEEN)}
    if everyone or sum(count.values()) <= ROWS:
        return list(owners), ""
    unseen = min(count[UNSEEN], max(UNSEEN_ROWS, ROWS - count[PARTICIPATING]))
    room = {PARTICIPATING: ROWS - unseen, UNSEEN: unseen, TEST: len(owners)}
    kept = [owner for kind in room for owner in [o for o in owners if o.kind == kind][: room[kind]]]
    left = {kind: f"{count[kind] - room[kind]:,}" for kind in count if count[kind] > room[kind]}
    by_kind = f" ({', '.join(f'{number} {kind}' for kind, number in left.items())})" if count[UNSEEN] else ""
    return kept, f"... {sum(count.values()) - ROWS:,} more{by_kind}, --all shows them"


def _together(portrait: Portrait) -> list[Owner]:
    """All participating clients as one row, to be compared with a test set's."""
    mine = [owner for owner in portrait.owners if owner.kind == PARTICIPATING]
    if not portrait.classes or len(mine) < 2:
        return []
    counts = np.array([owner.counts for owner in mine]).sum(axis=0)
    return [Owner(PARTICIPATING, "all participating", int(counts.sum()), tuple(counts.tolist()))]


def _title(owner: Owner) -> str:
    return f"{owner.name} (unseen)" if owner.kind == UNSEEN else owner.name


def _heading(portrait: Portrait) -> list[str]:
    if not portrait.classes:
        return ["total", "mean target", "spread"]
    return [*portrait.classes, "total"] if len(portrait.classes) <= COLUMNS else ["total", "classes", "largest classes"]


def _cells(owner: Owner, classes: Sequence[str]) -> list[str]:
    if not classes:
        return [
            f"{owner.samples:,}",
            *("-" if number is None else f"{number:.4g}" for number in (owner.mean, owner.spread)),
        ]
    if len(classes) <= COLUMNS:
        return [*(f"{count:,}" for count in owner.counts), f"{owner.samples:,}"]
    present = sorted((-count, kind) for kind, count in enumerate(owner.counts) if count)
    largest = ", ".join(f"{classes[kind]}: {-count:,}" for count, kind in present[:LARGEST])
    return [f"{owner.samples:,}", str(len(present)), largest + (" ..." if len(present) > LARGEST else "")]


def sentences(portrait: Portrait) -> list[str]:
    """Sizes, unlikeness, shift, augmentation and memory, a line each."""
    lines = []
    for kind, s in portrait.sizes.items():
        who = f"{kind}: {_many(s.clients, 'client')} with {_many(s.total, 'sample')}"
        spread = f"{s.least:,} to {s.most:,} each, median {s.median:,g}, coefficient of variation {s.variation:.2f}"
        lines.append(who if s.clients == 1 else f"{who}, {spread if s.least < s.most else f'{s.least:,} each'}")
    skew, chance = portrait.heterogeneity.found, portrait.heterogeneity.by_chance
    scale = (
        "0: all alike, towards 1: nobody shares a class"
        if portrait.classes
        else "the share of the targets' variance between clients"
    )
    lines.append(f"heterogeneity: {skew:.3f}, an even deal of these sizes: {chance:.3f} ({scale})")
    if effective := portrait.effective_classes:
        lines.append(f"effective classes per client: {effective.found:.2f}, an even deal: {effective.by_chance:.2f}")
    for title, settings in (("shift", portrait.shift), ("augmentation", portrait.augment)):
        if settings:
            options = [f"{key} {_plain(value)}" for key, value in settings.items() if key != "kind"]
            lines.append(f"{title}: {', '.join([settings['kind'], *options])}")
    lines.append(f"memory: {_bytes(portrait.memory['data'])} of data, {_bytes(portrait.memory['rows'])} of row numbers")
    return lines


def population_cells(portrait: Portrait) -> Cells:
    """Who comes from where; nothing where nobody says."""
    if not portrait.populations:
        return []
    cells = [["population", *(f"{kind} {what}" for kind in portrait.sizes for what in ("clients", "samples"))]]
    for population, kinds in portrait.populations.items():
        pairs = [(kinds[kind].clients, kinds[kind].total) if kind in kinds else (0, 0) for kind in portrait.sizes]
        cells.append([population, *(f"{number:,}" for pair in pairs for number in pair)])
    return cells


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


# -------------------------------------------------------------------------------------------------- a picture


def figure_class() -> Any:
    """matplotlib's `Figure`, which needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise AccordError('--plot needs matplotlib, which is not installed: pip install "accord-fl[plot]"') from None
    return Figure


def plot(portrait: Portrait, suffix: str) -> bytes:
    """The table as a picture, in the format that the suffix names: a heat map, or histograms where it would be too
    large."""
    clients = [owner for owner in portrait.owners if owner.kind != TEST]
    small = 0 < len(portrait.classes) <= MOST_CLASSES and len(clients) <= MOST_CLIENTS
    figure = _heat_map(portrait, clients) if small else _histograms(portrait, clients)
    skew = portrait.heterogeneity
    numbers = f"heterogeneity {skew.found:.3f} (even deal: {skew.by_chance:.3f})"
    if effective := portrait.effective_classes:
        numbers += f", {effective.found:.2f} effective classes per client (even deal: {effective.by_chance:.2f})"
    width = int(14 * figure.get_figwidth())  # characters of the title that fit
    figure.suptitle(
        "\n".join([*textwrap.wrap(portrait.what, width), *textwrap.wrap(numbers, width)]), fontsize=9, parse_math=False
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.lstrip("."), dpi=150)
    return buffer.getvalue()


def _heat_map(portrait: Portrait, clients: Sequence[Owner]) -> Any:
    counts = np.array([owner.counts for owner in clients])
    rows, columns = counts.shape
    figure = figure_class()(
        figsize=(min(3.5 + 0.45 * columns, 16), min(2.0 + (0.3 if rows <= 40 else 0.15) * rows, 18)),
        layout="constrained",
    )
    axes = figure.subplots()
    image = axes.imshow(counts, aspect="auto", cmap="Blues", vmin=0)
    figure.colorbar(image, ax=axes, label="samples", fraction=0.05, aspect=40)
    turned = 90 if max(map(len, portrait.classes)) > 3 else 0
    # a $ in a name is a $
    axes.set_xticks(range(columns), portrait.classes, rotation=turned, fontsize=8, parse_math=False)
    axes.set_yticks(
        range(rows), [_title(owner) for owner in clients], fontsize=8 if rows <= 40 else 5, parse_math=False
    )
    axes.set(xlabel="class")
    if rows <= 20 and columns <= COLUMNS:
        for (row, column), count in np.ndenumerate(counts):
            dark = count > 0.6 * counts.max()
            axes.text(
                column,
                row,
                f"{count}" if count else "",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )
    participating = sum(owner.kind == PARTICIPATING for owner in clients)
    if participating < rows:
        axes.axhline(participating - 0.5, color="black", linewidth=1)
    return figure


def _histograms(portrait: Portrait, clients: Sequence[Owner]) -> Any:
    figure = figure_class()(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    kinds = [kind for kind in portrait.sizes if any(owner.samples for owner in clients if owner.kind == kind)]
    groups = [[owner for owner in clients if owner.kind == kind and owner.samples] for kind in kinds]
    left.hist([[owner.samples for owner in group] for group in groups], bins=30, stacked=True, label=kinds)
    left.set(xlabel="samples of a client", ylabel="clients")
    left.legend()
    if portrait.classes:
        present = [[sum(count > 0 for count in owner.counts) for owner in group] for group in groups]
        most = max(max(group) for group in present)
        right.hist(present, bins=np.arange(0.5, most + 1.5) if most <= 100 else 30, stacked=True)
        right.set(xlabel="classes of a client")
    else:
        right.hist([[owner.mean for owner in group] for group in groups], bins=30, stacked=True)
        right.set(xlabel="mean target of a client")
    return figure
