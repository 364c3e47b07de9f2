"""Code blocks of Markdown pages, and the notes above them that say how tests run them.

A note is a comment on a line of its own right above the block, which readers of the page do not see:

    <!-- small: rounds=2, mnist=digits -->   a keyword argument or a name of the block is replaced, so that it takes
    seconds <!-- given: model, fed -->               names that the reader brings <!-- skip: why -->
    the block is parsed and not run
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTE = re.compile(r"<!--\s*(small|given|skip):\s*(.*?)\s*-->")


@dataclass(frozen=True)
class Block:
    """A fenced block, where it stands, and its notes."""

    page: str
    line: int
    language: str
    text: str
    small: dict[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    skip: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README.md and every page of the site."""
    return [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)]


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    name, number = str(page.relative_to(ROOT)), 0
    while number < len(lines):
        fence = re.match(r"^(`{3,})\s*(\S*)(?: .*)?$", lines[number])
        if not fence:
            number += 1
            continue
        end = lines.index(fence[1], number + 1)
        yield Block(name, number + 1, fence[2], "\n".join(lines[number + 1 : end]), **_notes(lines[:number]))
        number = end + 1


def _notes(before: list[str]) -> dict:
    """What the notes right above a block say."""
    said: dict = {}
    for line in reversed(before):
        note = NOTE.fullmatch(line.strip())
        if not note:
            break
        said[note[1]] = note[2]
    if "given" in said:
        said["given"] = tuple(name.strip() for name in said["given"].split(","))
    if "small" in said:
        call = ast.parse(f"f({said['small']})", mode="eval").body
        said["small"] = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return said


class Smaller(ast.NodeTransformer):
    """Puts a note's values in the place of a block's keyword arguments, or of its names."""

    def __init__(self, small: dict[str, str]) -> None:
        self.small, self.used = small, set[str]()

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if node.arg in self.small:
            self.used.add(node.arg)
            return ast.keyword(node.arg, ast.parse(self.small[node.arg], mode="eval").body)
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if node.attr in self.small:
            self.used.add(node.attr)
            return ast.Attribute(node.value, self.small[node.attr], node.ctx)
        return node


def smaller(block: Block) -> ast.Module:
    """The block's code with its note's values. A note that changes nothing is a slip."""
    change = Smaller(block.small)
    tree = ast.fix_missing_locations(change.visit(ast.parse(block.text)))
    unused = sorted(set(block.small) - change.used)
    assert not unused, f"{block}: the note has {', '.join(unused)}, which the block has not"
    return tree


def commands(block: Block) -> list[str]:
    """The lines of a block that are commands for a shell, each on one line."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    return [line.strip().removeprefix("$ ") for line in joined.splitlines() if line.strip()]
