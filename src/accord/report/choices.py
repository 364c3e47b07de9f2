"""The answer of `accord choose`, as the page shows it: its paragraph, and the table that says why."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

CHOICE = "choice.json"  # the file of an answer, beside its runs


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)
    paragraph: str
    command: str
    table: list[list[str]]


def choice(path: Path, notices: list[str]) -> dict[str, Any] | None:
    """An answer; of a damaged file, a notice in its place."""
    try:
        return _Answer.model_validate_json(path.read_text(encoding="utf-8")).model_dump()
    except (OSError, UnicodeDecodeError, ValidationError):
        notices.append(f"{path} is not what `accord choose` writes: the same command writes it again")
        return None
