"""The compiled library: built once per machine by one call of the C++ compiler, kept in the cache folder, loaded when
first used.

A file's name holds what it was built from (sources, compiler, processor) and a digest of its content. So a library made
for another machine that shares the folder is never loaded, and neither is one that a full disk cut short. Nothing here
raises: without a library there is a reason, and torch does the work.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accord.kernels.paths import cache_folder

SOURCES = ("block.cpp", "chain.cpp", "sums.cpp", "product.h", "vectors.h")
# No -ffast-math: NaN must stay NaN, so that a client that diverged is seen. Multiply-adds are fused, as compilers do
# unasked.
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast")


@dataclass(frozen=True)
class Loaded:
    """The library and where it lies, or why there is none."""

    functions: ctypes.CDLL | None = None
    path: Path | None = None
    reason: str | None = None


def enable() -> bool:
    """Chooses the library for this process and those it forks from now on. Whether it is there: if not, `why_not()`
    tells."""
    choose(True)
    return available()


def disable() -> None:
    """Back to plain torch."""
    choose(False)


def choose(wanted: bool) -> None:
    """Chooses the library or plain torch, whatever ACCORD_NATIVE says."""
    global _chosen
    _chosen = wanted


@contextmanager
def chosen_within() -> Iterator[None]:
    """Chooses the library; after it whatever was chosen before, or what ACCORD_NATIVE says, holds again."""
    global _chosen
    before, _chosen = _chosen, True
    try:
        yield
    finally:
        _chosen = before


def chosen() -> bool:
    """Whether the library was asked for, there or not: by a call or, where there was none, by ACCORD_NATIVE=1 in the
    environment."""
    return os.environ.get("ACCORD_NATIVE") == "1" if _chosen is None else _chosen


def undecided() -> bool:
    """Whether nobody has said anything for or against it, neither by a call nor by ACCORD_NATIVE."""
    return _chosen is None and not os.environ.get("ACCORD_NATIVE")


_chosen: bool | None = None


def enabled() -> bool:
    """Whether the library was chosen and is there."""
    return chosen() and available()


def state() -> str:
    """For the record: "off", or what the library was built from. Results are bit-identical only where this is equal."""
    path = loaded().path if enabled() else None
    return path.name.split(".")[0] if path else "off"


def available(before_building: Callable[[], None] = lambda: None) -> bool:
    """Whether the library is there, built now if need be: `before_building` is called just before that, which takes
    seconds."""
    return loaded(before_building).functions is not None


def in_use() -> bool:
    """Whether this process has loaded it already."""
    return _loaded is not None and _loaded.functions is not None


def why_not() -> str | None:
    """Why it is not available, in a sentence."""
    return loaded().reason


def build() -> Path | None:
    """The library's file, built now if need be; None if it cannot be (`why_not()` tells)."""
    return loaded().path


def loaded(before_building: Callable[[], None] = lambda: None) -> Loaded:
    """The library, looked for once per process; if it has to be built, whoever asks first is told before."""
    global _loaded
    if _loaded is None:
        _loaded = _attempt(before_building)
    return _loaded


_loaded: Loaded | None = None


def functions() -> ctypes.CDLL:
    """The library, for those who have seen that it is there."""
    library = loaded().functions
    assert library is not None
    return library


def _attempt(before_building: Callable[[], None]) -> Loaded:
    try:
        return _load(before_building)
    except Exception as error:  # whatever it is, torch can do without
        return Loaded(
            reason=f"the compiled kernel cannot be used: {' '.join(str(error).split()) or type(error).__name__}"
        )


def _load(before_building: Callable[[], None]) -> Loaded:
    compiler = next(
        (
            location
            for name in (os.environ.get("CXX"), "c++", "g++", "clang++")
            if name and (location := shutil.which(name))
        ),
        None,
    )
    if compiler is None:
        return Loaded(reason="there is no C++ compiler on the PATH: install g++ or clang, or set CXX")
    here = Path(__file__).parent
    name = f"native-{_key([(here / source).read_bytes() for source in SOURCES], compiler)}"
    folder = cache_folder() / "native"
    for file in sorted(folder.glob(f"{name}.*.so")):
        if file.stat().st_uid not in (os.getuid(), 0):
            continue  # a cache may be shared, but we do not run what others put there
        if file.name == _named(name, file.read_bytes()):
            return Loaded(_functions(file), file)
        file.unlink(missing_ok=True)
    before_building()
    file = _compile(compiler, [here / source for source in SOURCES if source.endswith(".cpp")], folder, name)
    return Loaded(_functions(file), file)


def _compile(compiler: str, sources: list[Path], folder: Path, name: str) -> Path:
    """Compiles into a scratch folder and moves the result to its name: processes that build at the same time do not
    meet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder)
    except OSError as error:
        raise RuntimeError(
            f"{folder} cannot be written to ({error.strerror}): set ACCORD_CACHE to a folder that you may write to"
        ) from None
    with place as scratch:
        made = Path(scratch) / "library.so"
        done = subprocess.run(
            [compiler, *FLAGS, *map(str, sources), "-o", str(made)], capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            raise RuntimeError(f"{compiler} said {(done.stderr.strip() or 'nothing').splitlines()[0]}")
        made.chmod(0o755)
        file = folder / _named(name, made.read_bytes())
        os.replace(made, file)
    return file


def _named(name: str, content: bytes) -> str:
    return f"{name}.{hashlib.blake2b(content, digest_size=8).hexdigest()}.so"


def _key(sources: list[bytes], compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=60, check=True).stdout
    digest = hashlib.blake2b(digest_size=8)
    for part in (*sources, compiler.encode(), version, " ".join(FLAGS).encode(), _processor().encode()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _processor() -> str:
    """What -march=native looks at, near enough."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    known = {line.split(":")[0].strip(): line for line in reversed(lines) if line.split(":")[0].strip() in wanted}
    return f"{platform.machine()} {platform.processor()} {sorted(known.values())}"


def _functions(file: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(file))
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.accord_block_forward.argtypes = [address] * 6
    library.accord_block_backward.argtypes = [address] * 8
    library.accord_chain_gradient.argtypes = [address, number, number, *[address] * 5]
    library.accord_chain_step.argtypes = [address, number, number, *[address] * 9, *[ctypes.c_float] * 4]
    library.accord_sgd.argtypes = [number, *[address] * 6, *[ctypes.c_float] * 5]
    library.accord_sgd.restype = None
    library.accord_sums.argtypes = [address, number, number, number, address, address, address]
    library.accord_sums.restype = None
    return library
