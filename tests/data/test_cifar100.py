"""CIFAR-100 from small files in its official binary form, and every way in which they may be wrong."""

import importlib
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from accord.data.readers.cifar100 import CIFAR100_MD5, read_cifar100
from accord.data.samples import Samples
from conftest import sentence

module = importlib.import_module("accord.data.readers.cifar100")  # the package has a data set of that name


Put = Callable[[Path, dict[str, bytes]], Path]


def record(fine: int, red: int, coarse: int = 19) -> bytes:
    """Coarse label, fine label, 1024 red, 1024 green, 1024 blue; the top row of blue counts upwards."""
    return bytes([coarse, fine]) + bytes([red]) * 1024 + bytes([red + 1]) * 1024 + bytes(range(32)) + bytes(992)


def files() -> dict[str, bytes]:
    return {
        "train.bin": record(0, 10) + record(99, 20) + record(50, 30),
        "test.bin": record(7, 40) + record(8, 50),
        "fine_label_names.txt": "".join(f"kind_{number}\n" for number in range(100)).encode(),
        "coarse_label_names.txt": b"not needed\n",
    }


def write(folder: Path, held: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in held.items():
        (folder / name).write_bytes(data)
    return folder


def pack(folder: Path, held: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "cifar-100-binary.tar.gz", "w:gz") as archive:
        for name, data in held.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return folder


def check(samples: Samples) -> None:
    assert samples.x.shape == (5, 3, 32, 32)
    assert samples.x.dtype == torch.uint8
    assert samples.x[:, 0, 31, 31].tolist() == [10, 20, 30, 40, 50]
    assert samples.x[:, 1, 0, 0].tolist() == [11, 21, 31, 41, 51]
    assert samples.x[4, 2, 0].tolist() == list(range(32))
    assert samples.y.dtype == torch.int64
    assert samples.y.tolist() == [0, 99, 50, 7, 8]
    assert samples.test is not None
    assert samples.test.tolist() == [3, 4]


@pytest.mark.parametrize("put", [write, pack])
@pytest.mark.parametrize("below", ["", "data/cifar-100-binary"])
def test_plain_files_or_the_archive_are_read(
    tmp_path: Path, put: Put, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 5000)
    put(tmp_path / below, files())
    asked: list[tuple[str, int, int | None]] = []
    samples = read_cifar100(tmp_path, lambda *event: asked.append(event))
    check(samples)
    assert samples.classes[99] == "kind_99"
    assert [event[1:] for event in asked if event[0].startswith("reading train.bin")] == [(5000, 9222), (9222, 9222)]


def test_without_the_names_file_classes_have_no_names(tmp_path: Path) -> None:
    held = files()
    del held["fine_label_names.txt"]
    samples = read_cifar100(write(tmp_path, held))
    check(samples)
    assert samples.classes == ()


def test_the_folder_with_the_official_name_is_taken_first(tmp_path: Path) -> None:
    write(tmp_path / "another", {"train.bin": b"something", "test.bin": b"else"})
    write(tmp_path / "deeper" / "cifar-100-binary", files())
    check(read_cifar100(tmp_path))


def with_change(**changes: bytes | None) -> dict[str, bytes]:
    changed = files() | {
        name.replace("_bin", ".bin").replace("names_txt", "names.txt"): data for name, data in changes.items()
    }
    return {name: data for name, data in changed.items() if data is not None}


@pytest.mark.parametrize("put", [write, pack])
@pytest.mark.parametrize(
    ("held", "said"),
    [
        (
            with_change(train_bin=files()["train.bin"][:-1]),
            ("train.bin", "has 9,221 bytes: a whole number of records of 3,074 bytes"),
        ),
        (with_change(test_bin=b""), ("test.bin", "has 0 bytes: a whole number of records")),
        (
            with_change(test_bin=record(1, 1) + record(100, 1)),
            ("record 1 of", "test.bin", "has the fine label 100", "from 0 to 99"),
        ),
        (
            with_change(fine_label_names_txt=b"apple\nworm\n"),
            ("fine_label_names.txt", "names 2 classes: 100 are right"),
        ),
        (with_change(fine_label_names_txt=b"\xff\xfe"), ("fine_label_names.txt", "is not text")),
    ],
)
def test_spoilt_files_are_named(tmp_path: Path, put: Put, held: dict[str, bytes], said: tuple[str, ...]) -> None:
    put(tmp_path, held)
    with sentence(*said):
        read_cifar100(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with sentence(f"{tmp_path} holds neither cifar-100-binary.tar.gz nor its files train.bin and test.bin"):
        read_cifar100(tmp_path)
    with sentence(f"{tmp_path / 'nowhere'} is not a folder"):
        read_cifar100(tmp_path / "nowhere")
    write(tmp_path / "half", {"train.bin": record(1, 1)})
    with sentence(f"{tmp_path / 'half'} holds train.bin alone: train.bin and test.bin belong side by side"):
        read_cifar100(tmp_path)
    pack(tmp_path, {"train.bin": record(1, 1)})
    with sentence(f"{tmp_path / 'cifar-100-binary.tar.gz'} holds no test.bin"):
        read_cifar100(tmp_path)


@pytest.mark.parametrize("content", [b"<html>not found</html>", b"", None])
def test_a_damaged_archive_is_named(tmp_path: Path, content: bytes | None) -> None:
    archive = pack(tmp_path, files()) / "cifar-100-binary.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-100] if content is None else content)
    with sentence(f"{archive} is damaged and cannot be read"):
        read_cifar100(tmp_path)


def test_no_more_is_unpacked_than_the_official_archive_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100_000)
    for held in ({"train.bin": bytes(200_000)}, {"beside.bin": bytes(200_000), **files()}):
        pack(tmp_path, held)
        with sentence("cifar-100-binary.tar.gz is damaged", "it unpacks to more than such an archive holds"):
            read_cifar100(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, files())

    def refuse(*args: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "_read", refuse)
    with sentence(f"{tmp_path / 'train.bin'} cannot be read: Permission denied"):
        read_cifar100(tmp_path)


def test_the_checksum_is_an_md5() -> None:
    assert re.fullmatch("[0-9a-f]{32}", CIFAR100_MD5)
