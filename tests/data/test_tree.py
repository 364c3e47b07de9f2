"""The user's own pictures in folders by client and class, and every way in which they may be wrong."""

import io
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import accord
from accord.data.readers.tree import read_tree
from accord.data.readers.tree_digest import tree_digest
from conftest import sentence

image = pytest.importorskip("PIL.Image", reason="pictures are read with Pillow: pip install pillow")


def encoded(pixels: np.ndarray, ending: str = ".png") -> bytes:
    held = io.BytesIO()
    kind = {".jpg": "JPEG"}.get(ending.lower(), ending[1:].upper())
    image.fromarray(pixels).save(held, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return held.getvalue()


def grey(value: int, side: int = 4) -> np.ndarray:
    return np.full((side, side), value, dtype=np.uint8)


def write(folder: Path, **held: int | bytes) -> Path:
    """`ann__cat__1` is ann/cat/1.png of that grey; bytes are written as they are, under a name with its ending."""
    for name, value in held.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path = path if isinstance(value, bytes) else path.with_name(path.name + ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else encoded(grey(value)))
    return folder


def test_clients_classes_and_a_test_set(tmp_path: Path) -> None:
    write(tmp_path, bob__dog__2=20, bob__cat__1=10, ann__dog__b=40, ann__dog__a=30, test__cat__x=50, test__dog__y=60)
    asked: list[tuple[str, int, int | None]] = []
    samples = read_tree(tmp_path, progress=lambda *event: asked.append(event))
    assert samples.owners == ("ann", "bob")
    assert samples.classes == ("cat", "dog")
    assert samples.owner is not None and samples.test is not None
    assert samples.owner.tolist() == [0, 0, 1, 1, -1, -1]
    assert samples.y.tolist() == [1, 1, 0, 1, 0, 1]
    assert samples.test.tolist() == [4, 5]
    assert samples.x.shape == (6, 3, 4, 4)
    assert samples.x.dtype == torch.uint8
    assert samples.x[:, :, 0, 0].tolist() == [[value] * 3 for value in (30, 40, 10, 20, 50, 60)]
    assert samples.y.dtype == samples.owner.dtype == torch.int64
    assert asked == [("reading pictures", 0, 6), ("reading pictures", 6, 6)]


def test_without_a_test_folder_there_is_no_test_set(tmp_path: Path) -> None:
    write(tmp_path, ann__cat__1=10)
    (tmp_path / "test").write_text("a file of that name is not the folder")
    samples = read_tree(tmp_path, channels=1)
    assert samples.test is None
    assert samples.x.shape == (1, 1, 4, 4)


def test_numbered_clients_and_classes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, **{f"{client}__{kind}__1": kind for client in (2, 10) for kind in (0, 9, 11)})
    samples = read_tree(tmp_path, channels=1)
    assert samples.owners == ("2", "10")
    assert samples.classes == ("0", "9", "11")
    assert [int(samples.classes[kind]) for kind in samples.y] == samples.x[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("ending", [".png", ".jpg", ".JPEG", ".bmp", ".gif", ".webp"])
def test_every_kind_of_picture_is_read(tmp_path: Path, ending: str) -> None:
    write(tmp_path, **{f"ann__cat__1_dot_{ending[1:]}": encoded(grey(77, 8), ending)})
    assert (read_tree(tmp_path, channels=1).x.long() - 77).abs().max() <= 1


def test_colours_keep_their_channels_and_become_grey_when_asked(tmp_path: Path) -> None:
    colours = np.zeros((2, 2, 3), dtype=np.uint8)
    colours[0, 1] = (200, 100, 50)
    write(tmp_path, ann__cat__1_dot_png=encoded(colours))
    assert torch.equal(read_tree(tmp_path).x[0], torch.from_numpy(colours).permute(2, 0, 1))
    brightness = round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)  # ITU-R 601, which Pillow follows
    assert read_tree(tmp_path, channels=1).x[0, 0].tolist() == [[0, brightness], [0, 0]]


def test_size_makes_all_pictures_alike(tmp_path: Path) -> None:
    left_right = np.repeat(np.array([[0, 100]], dtype=np.uint8), 2, axis=0)
    write(
        tmp_path,
        ann__cat__1_dot_png=encoded(left_right),
        ann__cat__2_dot_png=encoded(np.full((30, 7), 9, dtype=np.uint8)),
    )
    x = read_tree(tmp_path, size=4, channels=1).x
    assert x.shape == (2, 1, 4, 4)
    assert x[0, 0].tolist() == [[0, 25, 75, 100]] * 4  # bilinear: quarters of the way between the two pixels' middles
    assert x[1].unique().tolist() == [9]


def test_hidden_files_and_clutter_are_ignored(tmp_path: Path) -> None:
    write(
        tmp_path,
        ann__cat__1=10,
        ann__cat__Thumbs_dot_db=b"",
        ann__cat___dot_DS_Store=b"",
        _dot_git__config=b"",
        __MACOSX__x=b"",
    )
    write(tmp_path, README_dot_md=b"notes", ann__notes_dot_txt=b"notes")
    (tmp_path / "ann" / "cat" / ".hidden.png").write_bytes(b"no picture")
    (tmp_path / ".cache").mkdir()
    assert len(read_tree(tmp_path).y) == 1


SPOILT: list[tuple[dict[str, int | bytes], tuple[str, ...]]] = [
    ({"ann__cat__2_dot_png": b"no picture"}, ("ann/cat/2.png is damaged or no picture: Pillow cannot decode it",)),
    ({"ann__cat__2_dot_png": encoded(grey(9, 64))[:60]}, ("ann/cat/2.png is damaged or no picture",)),
    (
        {"ann__cat__2_dot_png": encoded(grey(9, 5))},
        ("ann/cat/2.png is 5 x 5 pixels but", "ann/cat/1.png is 4 x 4: give a size"),
    ),
    (
        {"ann__cat__0_dot_png": encoded(np.zeros((4, 6), dtype=np.uint8))},
        ("ann/cat/0.png is 6 x 4 pixels, not square: give a size",),
    ),
    (
        {"ann__cat__2_dot_png": encoded(np.full((4, 4), 9000, dtype=np.uint16))},
        ("ann/cat/2.png has pixels of more than 8 bits (mode I",),
    ),
    (
        {"ann__cat__2_dot_tiff": b""},
        ("ann/cat/2.tiff is no picture: a class's folder holds .png, .jpg, .jpeg, .bmp, .gif, .webp files",),
    ),
    (
        {"ann__cat__more__2": 1},
        ("ann/cat/more is a folder inside a class's folder: pictures go in <folder>/<client>/<class>/",),
    ),
    ({"ann__2": 1}, ("ann/2.png is in no class's folder: pictures go in",)),
    ({"2": 1}, ("2.png belongs to no client: pictures go in",)),
    ({"bob__notes_dot_txt": b""}, ("bob holds no picture: pictures go in",)),
    ({"test__notes_dot_txt": b""}, ("test holds no picture: pictures go in",)),
    ({"test__dgo__2": 1}, ("test/dgo/2.png is of class dgo, which no client has",)),
]


@pytest.mark.parametrize(("held", "said"), SPOILT)
def test_spoilt_trees_get_a_sentence(tmp_path: Path, held: dict[str, int | bytes], said: tuple[str, ...]) -> None:
    write(tmp_path, ann__cat__1=10, **held)
    with sentence(f"{tmp_path}/", *said):
        read_tree(tmp_path)


def test_wrong_folders_and_options_get_a_sentence(tmp_path: Path) -> None:
    with sentence(f"{tmp_path} holds no client's folder: pictures go in <folder>/<client>/<class>/"):
        read_tree(tmp_path)
    for read in (read_tree, tree_digest):
        with sentence(f"{tmp_path / 'nowhere'} is not a folder"):
            read(tmp_path / "nowhere")
    write(tmp_path, ann__cat__1=10)
    with sentence("channels must be 1 (grey) or 3 (colour), got 4"):
        read_tree(tmp_path, channels=4)
    for size in (0, 2.5, True):
        with sentence(f"size must be a whole number of at least 1, got {size!r}"):
            read_tree(tmp_path, size=size)  # type: ignore[arg-type]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, ann__cat__1=10)
    (tmp_path / "ann" / "cat" / "2.png").symlink_to(tmp_path / "gone.png")
    with sentence(f"{tmp_path / 'ann' / 'cat' / '2.png'} cannot be read: No such file"):
        read_tree(tmp_path)
    with sentence(f"{tmp_path / 'ann' / 'cat' / '2.png'} cannot be read: No such file"):
        tree_digest(tmp_path)


def test_without_pillow_the_way_to_get_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ann__cat__1=10)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with sentence("is read with Pillow, which is not installed", 'pip install "accord-fl[images]"'):
        read_tree(tmp_path, size=2)


def test_the_digest_is_that_of_names_and_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "one", ann__cat__1=10, bob__cat__1=10)
    first, one = tree_digest(tmp_path / "one"), tmp_path / "one" / "ann" / "cat" / "1.png"
    assert re.fullmatch("[0-9a-f]{32}", first)
    write(tmp_path / "one", _dot_hidden=b"")
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # a copy has other times of change
    os.utime(tmp_path / "two" / "ann" / "cat" / "1.png", ns=(0, 0))
    assert tree_digest(tmp_path / "two") == first
    one.rename(one.with_name("2.png"))
    renamed = tree_digest(tmp_path / "one")
    one.with_name("2.png").rename(one)
    one.write_bytes(one.read_bytes() + b"?")
    assert len({first, renamed, tree_digest(tmp_path / "one")}) == 3


def test_a_file_is_read_again_once_its_size_or_time_of_change_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "one", ann__cat__1=10)
    one = tmp_path / "one" / "ann" / "cat" / "1.png"
    os.utime(one, ns=(0, 10**18))
    first, held = tree_digest(tmp_path / "one"), one.read_bytes()
    one.write_bytes(held[::-1])
    os.utime(one, ns=(0, 10**18))
    assert tree_digest(tmp_path / "one") == first  # which shows that it was not read
    os.utime(one, ns=(0, 10**18 + 1))
    assert tree_digest(tmp_path / "one") != first
    one.write_bytes(held)
    assert tree_digest(tmp_path / "one") == first  # changed a moment ago: read, whatever is kept
    (kept,) = (tmp_path / "cache").glob("contents-*.json")
    kept.write_text("[1]")
    assert tree_digest(tmp_path / "one") == first


def test_a_pipe_among_pictures_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ann__cat__1=10)
    os.mkfifo(tmp_path / "ann" / "cat" / "2.png")
    for read in (tree_digest, lambda folder: accord.data.folder(source=folder)):
        with sentence(f"{tmp_path / 'ann' / 'cat' / '2.png'} is a pipe, a socket or a device"):
            read(tmp_path)


def test_the_digest_follows_links_as_reading_does(tmp_path: Path) -> None:
    """Folders of links to hospitals' folders: other hospitals, or another picture in one of them, are other data."""
    write(tmp_path / "all", ann__cat__1=10, bob__cat__1=20)
    for name in ("ann", "bob"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").symlink_to(tmp_path / "all" / name)
    assert read_tree(tmp_path / "bob").x.unique().tolist() == [20]
    first = tree_digest(tmp_path / "bob")
    assert first != tree_digest(tmp_path / "ann")
    write(tmp_path / "all", bob__cat__2=30)
    second = tree_digest(tmp_path / "bob")
    # a way without end, which is told and not walked
    (tmp_path / "bob" / "x" / "cat" / "loop").symlink_to(tmp_path / "bob")
    assert len({first, second, tree_digest(tmp_path / "bob")}) == 3
    with sentence("is a folder inside a class's folder"):
        read_tree(tmp_path / "bob")


def test_pictures_too_large_for_memory_get_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    write(tmp_path, ann__cat__1=10)
    monkeypatch.setattr(np, "empty", full)
    with sentence("1 pictures of this size do not fit in memory: take a smaller size"):
        read_tree(tmp_path, size=8)
