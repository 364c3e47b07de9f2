"""The claims as the replication report has them: counted, a row each, and in full."""

from collections import Counter
from collections.abc import Mapping, Sequence

from accord.studies.claim import Claim
from accord.studies.outcome import MAIN_RULE
from accord.studies.text import markdown
from accord.studies.verdict import FEW_CONTROLS, NO_CONTROL, NOT_RUN, Verdict

Judged = tuple[Claim, Mapping[str, Verdict]]  # verdicts by rule; the first counts

_KINDS = ("confirmed", "refuted", "consistent", "depends", "open", NOT_RUN)
_SECTIONS = {
    "Settled": ("confirmed", "refuted"),
    "Theory that a simulation does not contradict": ("consistent",),
    "Different by setting": ("depends",),
    "Open": ("open",),
}


def claims_in_short(judged: Sequence[Judged], remarks: Sequence[str] = ()) -> list[str]:
    """How they came out, what to know of the numbers themselves, then a row for each claim, in the papers' order."""
    counts = Counter(_main(verdicts).kind for _, verdicts in judged)
    lines = [f"Of {len(judged)} claims: {', '.join(f'{counts[kind]} {kind}' for kind in _KINDS if counts[kind])}."]
    small = sum(_main(verdicts).small for _, verdicts in judged)
    if small:
        lines.append(f"{small} of those confirmed are so by a difference under the margin, and marked.")
    ours = sum(bool(claim.ours) for claim, _ in judged)
    lines.append(f"{ours} are questions of ours (*): no paper says so, or it says so of data that cannot be had here.")
    lines += ["", *_gains(judged), *remarks]
    for title, kinds in _SECTIONS.items():
        rows = [_short(claim, _main(verdicts)) for claim, verdicts in judged if _main(verdicts).kind in kinds]
        head = ["claim", "verdict", "measured (points, 95 %)", "ahead of its control", "printed", "cells", "source"]
        lines += ["", f"### {title}", "", *markdown([head, *rows])] if rows else []
    never_run = [claim for claim, verdicts in judged if _main(verdicts).kind == NOT_RUN]
    names = [f"- {_text(claim)} ({claim.source}; `{claim.study}`)" for claim in never_run]
    return [*lines, "", "### Not run yet", "", *names] if names else lines


def claims_in_full(judged: Sequence[Judged], tabled: set[str]) -> list[str]:
    """A row for each that has been run, with every reason; `tabled` studies have a rule of their own, which may be the
    one that counts."""
    rows = [["claim", f"by {MAIN_RULE} selection", "by the table's own rule"]]
    for claim, verdicts in judged:
        if _main(verdicts).kind == NOT_RUN:
            continue
        texts = [f"{rule}: " * (rule != MAIN_RULE) + f"**{of.kind}**: {of.why}" for rule, of in verdicts.items()]
        if len(texts) < 2:
            texts.append("the same" if claim.study in tabled and not claim.rule else "")
        texts[0] += f"; {claim.data}" * bool(claim.data)
        rows.append([_text(claim), *texts])
    return markdown(rows)


def _main(verdicts: Mapping[str, Verdict]) -> Verdict:
    return next(iter(verdicts.values()))


def _text(claim: Claim) -> str:
    return claim.text + " *" * bool(claim.ours)


def _short(claim: Claim, verdict: Verdict) -> list[str]:
    kind = f"**{verdict.kind}**" + ", under the margin" * verdict.small
    figures = verdict.figure, verdict.over_control, verdict.printed
    return [_text(claim), kind, *figures, verdict.cells, claim.source]


def _gain(claim: Claim, verdict: Verdict) -> str:
    over = f"over its control {verdict.over_control}" * bool(verdict.over_control)
    if verdict.over_control in (NO_CONTROL, FEW_CONTROLS):
        over = f"with {verdict.over_control}"
    return f"- {_text(claim)}: " + "; ".join(filter(None, [verdict.figure, over, claim.data]))


def _gains(judged: Sequence[Judged]) -> list[str]:
    """What became of the claims that somebody who looks for a better rule would look at."""
    ahead = [(claim, _main(verdicts)) for claim, verdicts in judged if claim.is_of_a_gain]
    counts = Counter(verdict.kind for _, verdict in ahead)
    by_kind = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind])
    mixed = [verdict for _, verdict in ahead if verdict.kind == "depends"]
    some = any("confirmed" in verdict.by_value.values() for verdict in mixed)
    depends = f" (depends: confirmed for {'some settings' if some else 'no setting'})" * bool(mixed)
    confirmed = [_gain(claim, verdict) for claim, verdict in ahead if verdict.kind == "confirmed"]
    return [
        f"{len(ahead)} of them say that a rule does better than another: {by_kind}{depends}. What follows in practice:"
        " [Should I use a mask?](../docs/how-to/should-i-use-a-mask.md)",
        *(["", "The gains that are confirmed:", "", *confirmed] if confirmed else []),
    ]
