"""A contact sheet: what clients' pictures look like to the model, shift included, in rows by owner and columns by
class."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from accord.core.errors import AccordError, check_whole
from accord.data.federated import Federation
from accord.data.portrait import PARTICIPATING, TEST, UNSEEN, all_owned, class_names

if TYPE_CHECKING:
    from PIL.Image import Image

UNSEEN_ROWS = 3
MOST_TILES = 10_000  # of a sheet: up to 600 MB
# pixels of a tile's longer side: small pictures are enlarged a whole number of times, large ones made smaller
LEAST, MOST = 48, 128
GAP, MARGIN, LETTERS = 4, 8, 13  # pixels between tiles, around the sheet, and of the letters' height
LINE = LETTERS + 5
LONGEST = 28  # letters of a row's title
PAPER, INK, NOTHING = (255, 255, 255), (0, 0, 0), (232, 232, 232)


@dataclass(frozen=True)
class Strip:
    """A row of the sheet: whose it is, and the sample in each column, None where there is none."""

    title: str
    samples: tuple[int | None, ...]


@dataclass(frozen=True)
class Sheet:
    """Which samples go where. `tile` is the width and height of a picture, `left` the room for titles."""

    strips: tuple[Strip, ...]
    captions: tuple[str, ...]  # of the columns; empty where every picture has its own
    tile: tuple[int, int]
    left: int = 0

    @property
    def step(self) -> tuple[int, int]:
        """How far it is from a tile to the next one, across and down."""
        return self.tile[0] + GAP, self.tile[1] + GAP + (0 if self.captions else LINE)

    def corner(self, row: int, column: int) -> tuple[int, int]:
        """Where a tile's upper left pixel is."""
        return MARGIN + self.left + column * self.step[0], MARGIN + LINE + row * self.step[1]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the sheet."""
        width, height = self.corner(len(self.strips), max(len(strip.samples) for strip in self.strips))
        return width - GAP + MARGIN, height - GAP + MARGIN


def check_pictures(fed: Federation) -> None:
    """Refuses data that are not pictures."""
    if fed.x.ndim != 4 or fed.x.shape[1] not in (1, 3):
        shape = " x ".join(map(str, fed.x.shape[1:]))
        raise AccordError(
            f"a preview shows pictures of 1 or 3 channels, and {fed.name} holds samples of {shape} numbers"
        )


def lay_out(fed: Federation, clients: int = 8, samples: int = 10) -> Sheet:
    """The first participating clients, up to three unseen ones and the test sets, each with `samples` of its samples.

    Where there is room for all classes, a column shows one class (or several columns do), with a gap where an owner has
    none of it. With more classes, an owner's largest ones are shown, each with its name.
    """
    check_pictures(fed)
    check_whole("clients", clients)
    check_whole("samples", samples)
    room = {PARTICIPATING: clients, UNSEEN: UNSEEN_ROWS, TEST: len(fed.others) + 1}
    owned = [(kind, name, rows) for kind, name, rows in all_owned(fed) if len(rows)]
    chosen = [owner for kind in room for owner in [o for o in owned if o[0] == kind][: room[kind]]]
    if len(chosen) * samples > MOST_TILES:
        raise AccordError(
            f"a sheet has room for {MOST_TILES:,} pictures, not for {samples:,} in each of {len(chosen):,} rows: show"
            " fewer"
        )
    titles = [f"{name} (unseen)" if kind == UNSEEN else name for kind, name, _ in chosen]
    captions: tuple[str, ...] = ()
    if fed.y.ndim == 1 and not fed.y.is_floating_point():
        kinds = sorted(set(fed.y.unique().tolist()) | set(range(len(fed.classes))))
        several = samples // len(kinds)
        if several:
            captions = tuple(name for name in class_names(fed, kinds) for _ in range(several))
            picks = [_by_class(fed, rows, kinds, several) for _, _, rows in chosen]
        else:
            picks = [_largest(fed, rows, samples) for _, _, rows in chosen]
    else:
        picks = [tuple(rows[:samples].tolist()) for _, _, rows in chosen]
    strips = tuple(Strip(title, pick) for title, pick in zip(titles, picks, strict=True))
    return Sheet(strips, captions, _tile(fed.x.shape[3], fed.x.shape[2]))


def _by_class(fed: Federation, rows: Tensor, kinds: Sequence[int], several: int) -> tuple[int | None, ...]:
    """The owner's first samples of each class, in class order."""
    y, picks = fed.y[rows], []
    for kind in kinds:
        picked = rows[y == kind][:several].tolist()
        picks += [*picked, *[None] * (several - len(picked))]
    return tuple(picks)


def _largest(fed: Federation, rows: Tensor, samples: int) -> tuple[int | None, ...]:
    """One sample of each of the owner's largest classes, in class order."""
    kinds, counts = fed.y[rows].unique(return_counts=True)
    largest = sorted(kinds[counts.argsort(descending=True, stable=True)][:samples].tolist())
    picks = [int(rows[fed.y[rows] == kind][0]) for kind in largest]
    return (*picks, *[None] * (samples - len(picks)))


def _tile(width: int, height: int) -> tuple[int, int]:
    longer = max(width, height)
    if longer > MOST:
        return max(1, round(width * MOST / longer)), max(1, round(height * MOST / longer))
    times = -(-LEAST // longer)
    return times * width, times * height


# ---------------------------------------------------------------------------------------------------- drawing


def pillow() -> Any:
    """Pillow's three modules that draw."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise AccordError(
            'a preview is drawn with Pillow, which is not installed: pip install "accord-fl[images]"'
        ) from None
    return Image, ImageDraw, ImageFont


def draw(fed: Federation, clients: int = 8, samples: int = 10) -> "Image":
    """The contact sheet as a picture."""
    images, drawing, fonts = pillow()
    font = fonts.load_default(LETTERS)
    plan = lay_out(fed, clients, samples)
    titles = [_fitting(strip.title, LONGEST * LETTERS, font) for strip in plan.strips]
    plan = Sheet(plan.strips, plan.captions, plan.tile, left=round(max(map(font.getlength, titles))) + MARGIN)
    sheet = images.new("RGB", plan.size, PAPER)
    pen = drawing.Draw(sheet)
    tiles = _tiles(fed, plan, images)
    for column, caption in enumerate(plan.captions):
        _centred(pen, plan, 0, column, caption, font)
    for row, (title, strip) in enumerate(zip(titles, plan.strips, strict=True)):
        pen.text((MARGIN, plan.corner(row, 0)[1] + plan.tile[1] // 2), title, fill=INK, font=font, anchor="lm")
        for column, sample in enumerate(strip.samples):
            at = plan.corner(row, column)
            if sample is not None:
                sheet.paste(tiles[sample], at)
                if not plan.captions and not fed.y.is_floating_point() and fed.y.ndim == 1:
                    _centred(pen, plan, row, column, class_names(fed, [int(fed.y[sample])])[0], font)
            elif plan.captions:
                pen.rectangle((*at, at[0] + plan.tile[0] - 1, at[1] + plan.tile[1] - 1), fill=NOTHING)
    return sheet


def png(fed: Federation, clients: int = 8, samples: int = 10) -> bytes:
    """The contact sheet as the content of a PNG file."""
    buffer = io.BytesIO()
    draw(fed, clients, samples).save(buffer, format="PNG")
    return buffer.getvalue()


def _tiles(fed: Federation, plan: Sheet, images: Any) -> dict[int, "Image"]:
    """A picture for each sample of the sheet."""
    rows = [sample for strip in plan.strips for sample in strip.samples if sample is not None]
    pixels = fed.look(torch.tensor(rows)).cpu()
    # there is no telling what is black: the sheet's least and largest values are black and white
    if fed.x.is_floating_point():
        least, most = pixels.amin(), pixels.amax()
        pixels = (pixels - least) / (most - least).clamp(min=1e-30) * 255.0
    bytes_ = (
        pixels.float()
        .round()
        .clamp(0, 255)
        .to(torch.uint8)
        .expand(-1, 3, -1, -1)
        .permute(0, 2, 3, 1)
        .contiguous()
        .numpy()
    )
    way = images.Resampling.BOX if max(plan.tile) < max(bytes_.shape[1:3]) else images.Resampling.NEAREST
    return {row: images.fromarray(picture).resize(plan.tile, way) for row, picture in zip(rows, bytes_, strict=True)}


def _centred(pen: Any, plan: Sheet, row: int, column: int, text: str, font: Any) -> None:
    """A caption over a tile."""
    x, y = plan.corner(row, column)
    pen.text((x + plan.tile[0] // 2, y - 3), _fitting(text, plan.tile[0], font), fill=INK, font=font, anchor="ms")


def _fitting(text: str, width: float, font: Any) -> str:
    """The text in one line, or as much of it as fits."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"
