"""The page: data, style, the plotting library and the page's own script in one file that asks nobody for anything.

Apache ECharts lies in `assets/echarts` as its authors publish it. The page's policy lets a browser run these scripts
and no others, and connect to nobody; a live page may ask the server that it came from.
"""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

_ASSETS = Path(__file__).parent / "assets"
# In this order: a later one uses what an earlier one names.
_SCRIPTS = ("core", "parts", "table", "curves", "bars", "clients", "maps", "papers", "settings", "main")


def page(data: dict[str, Any], *, live: bool = False) -> str:
    """The page of `gather`'s data. A live one looks for newer data at `data.json` beside it."""
    parts = {
        "policy": policy(live),
        "style": _asset("style.css"),
        "data": embedded({**data, "live": live}),
        "library": _library(),
        "script": _script(),
    }
    before, *pieces = _asset("page.html").split("<!--put ")
    for piece in pieces:  # cut, not replaced: nothing that is put in can be mistaken for a mark
        name, _, after = piece.partition("-->")
        before += parts[name] + after
    return before


def embedded(data: Any) -> str:
    """JSON that can stand inside a script element: no name in it can end the element."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def policy(live: bool) -> str:
    """What a browser may do for this page."""
    scripts = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (_library(), _script())
    )
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; connect-src {connect};"
        " base-uri 'none'"
    )


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _library() -> str:
    return _asset("echarts/echarts.min.js")


@cache
def _script() -> str:
    return '"use strict";\n' + "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
