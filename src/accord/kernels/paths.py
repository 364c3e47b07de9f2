"""Where accord keeps what it need not make twice."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where data sets and the compiled library are kept: ACCORD_CACHE, or `accord` in the user's cache folder."""
    if chosen := os.environ.get("ACCORD_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accord"
