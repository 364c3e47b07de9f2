"""A map of where a mask helps, as rows of text and one sentence."""

import re
from collections.abc import Sequence

from accord.runs.text import Cells
from accord.studies.map import CHOOSES, JUDGES, Finding, Map
from accord.studies.text import interval_text

_CONTROL = "its length control"
_NAMED = 5  # places that the sentence names; the others it counts


def pooled_cells(drawn: Map, against: str) -> Cells:
    """Over all settings: two rows a mask, ahead of averaging and ahead of its control, with a column for each round."""
    found = {(one.mask, one.rule): one for one in drawn.everywhere}
    masks, rules = (list(dict.fromkeys(names)) for names in zip(*found, strict=True))
    rows = [["mask", "ahead of", *map(_round, rules)]]
    for mask in masks:
        of_mask = [found.get((mask, rule)) for rule in rules]
        rows.append([mask, against, *(interval_text(one.ahead) if one else "-" for one in of_mask)])
        rows.append(["", _CONTROL, *(interval_text(one.control) if one else "-" for one in of_mask)])
    return rows


def choice_cells(drawn: Map, against: str) -> Cells:
    """What the first half chose, its figures there, and those on the second half."""
    heads = [f"{half} half: ahead of {what}" for half in (CHOOSES, JUDGES) for what in (against, _CONTROL)]
    rows = [["round", "chosen", "in", *heads, "on the second half"]]
    for choice in drawn.choices:
        of, judged = choice.chosen, choice.judged
        there = [interval_text(judged.ahead), interval_text(judged.control)] if judged else ["-", "-"]
        here = [interval_text(of.ahead), interval_text(of.control)]
        rows.append([_round(of.rule), of.mask, str(of.region), *here, *there, choice.verdict])
    return rows


def sentence(drawn: Map, against: str) -> str:
    """What the map comes to."""
    masks, regions, rules = map(set, zip(*((one.mask, one.region, one.rule) for one in drawn.looked), strict=True))
    looked = f"masks: {len(masks)}, regions: {len(regions)}, rounds: {len(rules)}"
    text = (
        f"A mask is ahead of both {against} and a plain step of its length in {len(drawn.helps) or 'none'} of the"
        f" {len(drawn.looked)} places looked at ({looked}), after Holm's correction{_names(drawn.helps)}"
    )
    judged = [choice for choice in drawn.choices if choice.judged]
    if not judged:
        return f"{text}; what the first half of the settings chose has not been judged by the second yet."
    held = [choice.judged for choice in judged if choice.holds and choice.judged]
    choices = f"; of what the first half of the settings chose, {len(held) or 'none'} of {len(judged)} hold on"
    return f"{text}{choices} the second{_names(held)}."


def _names(found: Sequence[Finding]) -> str:
    """The clearest ones by name."""
    if not found:
        return ""
    clearest = sorted(found, key=lambda one: -one.lead)[:_NAMED]
    names = [f"{one.mask} in {one.region} at round {_round(one.rule)}" for one in clearest]
    more = len(found) - len(names)
    return f" ({'; '.join([*names, *([f'and {more} more'] if more else [])])})"


def _round(rule: str) -> str:
    """`10` of window(10,10); a rule over several rounds goes by its name."""
    one = re.fullmatch(r"window\((\d+),\1\)", rule)
    return one[1] if one else rule
