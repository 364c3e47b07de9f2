# A language model by character: a GRU reads 48 characters and says which comes next after each. The text is real
# English that is on every machine, the documentation strings of Python's standard library; a package is a client, and
# some are never trained on. The perplexity, exp of the mean loss, is among how many equally likely characters the model
# chooses: as many as there are, 61, before training, 9 after a minute. Run it with: python examples/char_gru.py

import argparse
import ast
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn

import accord

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,:;()[]'\"`-_=+*/<>%#\\\0"  # the last one stands for all others
PACKAGES = ("asyncio", "collections", "concurrent", "ctypes", "email", "http", "importlib", "json", "logging")
PACKAGES += ("multiprocessing", "sqlite3", "tkinter", "unittest", "urllib", "xml", "xmlrpc")
LENGTH = 48


def documentation(package: Path) -> str:
    """All documentation strings of a package, in order."""
    found = []
    for file in sorted(package.rglob("*.py")):
        if "test" not in file.parts and "tests" not in file.parts:
            nodes = ast.walk(ast.parse(file.read_bytes()))
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            found += [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
    return "\n".join(filter(None, found)).lower()


def windows(text: str, most: int) -> tuple[Tensor, Tensor]:
    """Pieces of the text, `[N, 48]`, and the same one character on."""
    place = {letter: number for number, letter in enumerate(LETTERS)}
    numbers = torch.tensor([place.get(letter, len(LETTERS) - 1) for letter in text])
    count = min((len(numbers) - 1) // LENGTH, most)
    cut = count * LENGTH
    return numbers[:cut].view(count, LENGTH), numbers[1 : cut + 1].view(count, LENGTH)


class Reader(nn.Module):
    """Character numbers `[N, T]` to scores of the next one, `[N, T, characters]`."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.letters, self.gru = nn.Embedding(len(LETTERS), 32), nn.GRU(32, width, batch_first=True)
        self.last = nn.Linear(width, len(LETTERS))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.gru(self.letters(x))[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="A GRU by character on the standard library's documentation.")
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    library = Path(sysconfig.get_path("stdlib"))
    clients = {name: windows(documentation(library / name), most=150) for name in PACKAGES if (library / name).is_dir()}
    fed = accord.data.from_arrays(clients, unseen=["unittest", "http"], heldout=0.2, name="documentation")
    options = {"optimiser": "adamw", "lr": 0.005, "batch": 16, "metrics": ["perplexity", "accuracy"]}
    run = accord.fit(Reader(), fed, accord.fedavg(mask=accord.gma(0.4)), rounds=asked.rounds, **options)
    print(run)


if __name__ == "__main__":
    main()
