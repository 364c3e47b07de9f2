"""The cells of a notebook, run one after another in one namespace, as a kernel would.

python tests/docs/notebook_cells.py docs/tutorials/first-federation.ipynb     # stores what they print in the file
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict[str, Any]) -> str:
    """What the file says that a cell printed."""
    return "".join(line for output in cell["outputs"] for line in output["text"])


def printed(notebook: dict[str, Any]) -> list[str]:
    """What each code cell prints now."""
    names: dict[str, Any] = {"__name__": "__main__"}
    texts = []
    for cell in code_cells(notebook):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
        texts.append(out.getvalue())
    return texts


if __name__ == "__main__":
    path = Path(sys.argv[1])
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, (cell, text) in enumerate(zip(code_cells(notebook), printed(notebook), strict=True), 1):
        lines = text.splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
