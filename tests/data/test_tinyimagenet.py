"""Tiny ImageNet from a small folder in its official form, unpacked or zipped, and every way in which it may be
wrong."""

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from accord.data.readers.tinyimagenet import read_tinyimagenet
from conftest import sentence

image = pytest.importorskip("PIL.Image", reason="pictures are read with Pillow: pip install pillow")


Put = Callable[[Path, dict[str, bytes]], Path]


def jpeg(*colour: int, side: int = 64) -> bytes:
    """One colour all over, or one grey."""
    shape = (side, side, 3) if len(colour) == 3 else (side, side)
    held = io.BytesIO()
    image.fromarray(np.full(shape, colour if len(colour) == 3 else colour[0], dtype=np.uint8)).save(
        held, "JPEG", quality=95
    )
    return held.getvalue()


def files() -> dict[str, bytes]:
    """Two classes, not in the order of their ids; a grey picture; names that sort as text."""
    return {
        "wnids.txt": b"n02124075\nn01443537\n",
        "words.txt": b"n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n",
        "train/n02124075/n02124075_boxes.txt": b"n02124075_0.JPEG\t0\t10\t63\t58\n",
        "train/n02124075/images/n02124075_0.JPEG": jpeg(200, 30, 40),
        "train/n02124075/images/n02124075_10.JPEG": jpeg(100),
        "train/n02124075/images/n02124075_2.JPEG": jpeg(20, 30, 220),
        "train/n01443537/images/n01443537_0.JPEG": jpeg(10, 200, 30),
        "val/val_annotations.txt": b"val_1.JPEG\tn02124075\t0\t0\t60\t60\nval_0.JPEG\tn01443537\t0\t32\t44\t62\n",
        "val/images/val_0.JPEG": jpeg(0),
        "val/images/val_1.JPEG": jpeg(255),
        "test/images/test_0.JPEG": b"never looked at",
        "train/n02124075/images/._n02124075_0.JPEG": b"what a Mac leaves in archives",
    }


def write(folder: Path, held: dict[str, bytes]) -> Path:
    for name, data in held.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def pack(folder: Path, held: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr("tiny-imagenet-200/", b"")
        for name, data in held.items():
            archive.writestr(f"tiny-imagenet-200/{name}", data)
    return folder


@pytest.mark.parametrize(
    ("put", "below"), [(write, ""), (write, "tiny-imagenet-200"), (write, "a/b/mine"), (pack, ""), (pack, "a/b")]
)
def test_the_folder_is_read_wherever_it_is(tmp_path: Path, put: Put, below: str) -> None:
    put(tmp_path / below, files())
    asked: list[tuple[str, int, int | None]] = []
    samples = read_tinyimagenet(tmp_path, lambda *event: asked.append(event))
    assert samples.x.shape == (6, 3, 64, 64)
    assert samples.x.dtype == torch.uint8
    assert samples.y.dtype == torch.int64
    # a class's number is its place in wnids.txt, rows are in the order of names
    assert samples.y.tolist() == [1, 0, 0, 0, 1, 0]
    assert samples.test is not None
    assert samples.test.tolist() == [4, 5]
    assert samples.classes == ("Egyptian cat", "goldfish, Carassius auratus")
    middle = samples.x[:, :, 32, 32].long()
    right = torch.tensor([[10, 200, 30], [200, 30, 40], [100] * 3, [20, 30, 220], [0] * 3, [255] * 3])
    assert (middle - right).abs().max() <= 4  # JPEG is not exact
    assert asked == [("reading Tiny ImageNet's pictures", done, 6) for done in (0, 6)]


def test_classes_without_words_are_called_by_their_ids(tmp_path: Path) -> None:
    held = files() | {"words.txt": b"n01443537\tgoldfish\n"}
    assert read_tinyimagenet(write(tmp_path / "some", held)).classes == ("n02124075", "goldfish")
    del held["words.txt"]
    assert read_tinyimagenet(write(tmp_path / "none", held)).classes == ("n02124075", "n01443537")


GOLDFISH, NOTES = "train/n01443537/images/n01443537_0.JPEG", "val/val_annotations.txt"
SPOILT: list[tuple[dict[str, bytes | None], tuple[str, ...]]] = [
    ({GOLDFISH: b"no picture"}, (GOLDFISH, "is damaged or no picture: Pillow cannot decode it")),
    ({GOLDFISH: jpeg(1, 2, 3)[:-300]}, (GOLDFISH, "is damaged or no picture")),
    ({GOLDFISH: jpeg(1, 2, 3, side=32)}, (GOLDFISH, "is 32 x 32 pixels: 64 x 64 are right")),
    ({GOLDFISH: None}, ("train/n01443537/images", "holds no .JPEG picture: every class in wnids.txt has some")),
    (
        {"train/n09/images/n09_0.JPEG": jpeg(1)},
        ("train/n09/images/n09_0.JPEG", "is of class n09, which wnids.txt does not list"),
    ),
    ({"val/images/val_2.JPEG": jpeg(1)}, ("val/images/val_2.JPEG", f"has no line in {NOTES}")),
    ({"val/images/val_1.JPEG": None}, ("val/images/val_1.JPEG", f"is missing, though {NOTES} gives its class")),
    (
        {NOTES: b"val_0.JPEG\tn01443537\nval_1.JPEG\tn09\n"},
        ("line 2 of", NOTES, "gives val_1.JPEG the class n09, which wnids.txt does not"),
    ),
    (
        {NOTES: b"val_0.JPEG n01443537\n"},
        ("line 1 of", NOTES, "is 'val_0.JPEG n01443537': a picture's name, a tab and its class are right"),
    ),
    ({NOTES: None}, (NOTES, "is missing: the official folder has it")),
    ({NOTES: b"\xff\xfe"}, (NOTES, "is not text")),
    ({"wnids.txt": b"\n"}, ("wnids.txt", "is empty: it lists the classes, one on a line")),
    ({"wnids.txt": b"n01443537\nn02124075\nn01443537\n"}, ("wnids.txt", "lists n01443537 twice")),
]


@pytest.mark.parametrize("put", [write, pack])
@pytest.mark.parametrize(("changes", "said"), SPOILT)
def test_spoilt_files_are_named(
    tmp_path: Path, put: Put, changes: dict[str, bytes | None], said: tuple[str, ...]
) -> None:
    put(tmp_path, {name: data for name, data in (files() | changes).items() if data is not None})
    with sentence(*said):
        read_tinyimagenet(tmp_path)


def test_a_damaged_zip_is_named(tmp_path: Path) -> None:
    path = pack(tmp_path, files()) / "tiny-imagenet-200.zip"
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    with sentence(f"{path} is damaged and cannot be read"):
        read_tinyimagenet(tmp_path)
    spoilt = bytearray(whole)
    spoilt[whole.index(b"n02124075\nn01443537")] ^= 1  # the checksum in the zip file tells
    path.write_bytes(spoilt)
    with sentence(f"tiny-imagenet-200/wnids.txt in {path} is damaged and cannot be read: Bad CRC-32"):
        read_tinyimagenet(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("holiday.txt", "no data")
    with sentence(f"{path} holds no wnids.txt"):
        read_tinyimagenet(tmp_path)


def test_no_more_is_unpacked_than_its_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.data.readers.tinyimagenet.MOST", 10_000)
    for put in (pack, write):
        put(tmp_path, files() | {"words.txt": bytes(20_000)})
        with sentence("words.txt", "cannot be read: it holds more than 10,000 bytes"):
            read_tinyimagenet(tmp_path)


def test_a_folder_without_it_says_what_was_looked_for(tmp_path: Path) -> None:
    with sentence(
        f"{tmp_path} holds neither the folder tiny-imagenet-200 (with wnids.txt in it) nor tiny-imagenet-200.zip"
    ):
        read_tinyimagenet(tmp_path)
    with sentence(f"{tmp_path / 'nowhere'} is not a folder"):
        read_tinyimagenet(tmp_path / "nowhere")


def test_without_pillow_the_way_to_get_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, files())
    monkeypatch.setitem(sys.modules, "PIL", None)
    with sentence("is read with Pillow, which is not installed", 'pip install "accord-fl[images]"'):
        read_tinyimagenet(tmp_path)
