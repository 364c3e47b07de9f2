"""Odd settings and damaged files, drawn by hypothesis: for the test that no command answers them with a traceback."""

import copy
import inspect
import json
import re
from typing import Any

from hypothesis import strategies as st

from accord.experiments.overrides import CHOICES
from accord.experiments.reference import keys
from accord.rules.registry import Names

NUMBERS = [0, 1, -1, 2, 3, 7, 2**31, 2**63, 10**30, 10**400, 0.0, 0.25, 0.5, 1.0, 1.5, -0.5, 1e-320, 1e-9, 1e17]
NUMBERS += [1e30, 1e308, float("nan"), float("inf"), float("-inf"), -1e308]
WORDS = ["", "x", "a\0b", "../..", "é☃", "all", "none", "auto", "each", "last10", "window(1,2)", "x" * 300, "a:b", ":"]
ODD = st.one_of(
    st.sampled_from([*NUMBERS, *WORDS, True, False]),
    st.sampled_from([[], {}, [1], [0.5, 2], ["x"], [[1]], [{}], {"name": "gma"}, {"name": 3}, {"x": {"y": [1]}}]),
    st.integers(-5, 50),
    st.floats(0, 2),
    st.text(max_size=5),
)
NUMBER = st.one_of(st.sampled_from(NUMBERS), st.integers(0, 12), st.floats(0, 2), st.sampled_from([0.1, 0.5, 0.9]))
# what a key is for names what it takes: `iid, labels, exact`
SETTINGS = {key: sorted(set(re.findall(r"[a-z_][a-z_0-9-]+", about))) for key, _, about in keys()}
_WORDY = {key for key, default, _ in keys() if isinstance(default, str | bool | list)}


def _choosers() -> dict[str, list[tuple[str, str]]]:
    """What must be chosen for a key to have a meaning, where that is so: `train.decay` is of two schedules."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (section, by), (makers, options) in CHOICES.items():
        for name, make in (makers.own if isinstance(makers, Names) else makers).items():
            for key in (
                set(options) & set(inspect.signature(make).parameters) if by != "name" or section != "data" else ()
            ):
                found.setdefault(f"{section}.{key}", []).append((f"{section}.{by}", name))
    for key, _, about in keys():
        section = key.rpartition(".")[0]
        if "." in section:  # a field of a part, whose owners come first
            found[key] = [(f"{section}.name", name) for name in about.partition(":")[0].split(", ")]
    return found


_CHOOSERS = _choosers()


@st.composite
def settings_drawn(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """One to three settings, each with a value of its kind, one of the words it may take, or anything; mostly with
    what gives it a meaning."""
    drawn: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from(sorted(SETTINGS)))
        if key in _CHOOSERS and draw(st.integers(0, 3)):
            by, name = draw(st.sampled_from(_CHOOSERS[key]))
            drawn[by] = name
        words = st.sampled_from(SETTINGS[key]) if SETTINGS[key] else ODD
        drawn[key] = draw(st.one_of(words, words, ODD) if key in _WORDY else st.one_of(NUMBER, NUMBER, words, ODD))
    return list(drawn.items())


def places(form: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, from the outside in."""
    inner = form.items() if isinstance(form, dict) else enumerate(form) if isinstance(form, list) else ()
    return [path, *(deeper for key, of in inner for deeper in places(of, (*path, key)))]


def replaced(form: Any, path: tuple[Any, ...], value: Any, drop: bool) -> Any:
    """A JSON value with another one at a place, or without the one that is there."""
    if not path:
        return value
    form = at = copy.deepcopy(form)
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return form


@st.composite
def damaged_json(draw: st.DrawFn, text: bytes) -> bytes:
    """A JSON file with an odd value, or none, in one or two places; of a file of lines, in one of them."""
    lines = text.splitlines(keepends=True)
    try:
        forms, at = [json.loads(text)], 0
    except ValueError:
        forms = [json.loads(line) for line in lines]
        at = draw(st.integers(0, len(forms) - 1))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(forms[at])))
        forms[at] = replaced(forms[at], path, draw(ODD), draw(st.booleans()))
    lines = [json.dumps(form) for form in forms]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


@st.composite
def damaged_bytes(draw: st.DrawFn, text: bytes) -> bytes:
    """A file cut short, with other bytes in one place, or with anything in its place."""
    at = draw(st.integers(0, len(text)))
    some = draw(st.binary(max_size=8))
    return draw(
        st.sampled_from([text[:at], text[:at] + some + text[at + len(some) :], text[:at] + some + text[at:], some])
    )
