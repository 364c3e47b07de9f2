"""What a check found: a sentence, and whether all is well."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`about` names the check in a word or two; `sentence` says what was found and, where it is wrong, what to do."""

    about: str
    ok: bool
    sentence: str


def fine(about: str, sentence: str) -> Finding:
    return Finding(about, True, sentence)


def wrong(about: str, sentence: str) -> Finding:
    return Finding(about, False, sentence)
