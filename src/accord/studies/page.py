"""The replication report: how many numbers are answered, a verdict on every claim, ours beside theirs, and what was not
run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from accord.analyses.output import cells as analysis_cells
from accord.studies import everything
from accord.studies.analysis_claims import judge_analysis
from accord.studies.by_round import SHORT_OF, TITLES, by_round, by_round_cells, means_by_round
from accord.studies.claim import Claim, claims
from accord.studies.map import drawn, is_map
from accord.studies.map_text import choice_cells, pooled_cells, sentence
from accord.studies.not_run import not_run
from accord.studies.outcome import MAIN_RULE, compare
from accord.studies.own_studies import check_own
from accord.studies.plan import StudyPlan
from accord.studies.published import numbers
from accord.studies.results import AnalysisResults, Results, StudyResults, naming
from accord.studies.text import comparison_cells, markdown, result_cells
from accord.studies.verdict import MARGIN, NEVER_RUN, SEEDS, Verdict, judge

_HEAD = """# Replication

Written by `accord verdicts` from the results of `accord reproduce`. Each claim of the papers has one verdict and one
figure: as a rule by how many points of test accuracy the rule is ahead of the other, over all its cells, with the 95 %
interval; of a trend it is the change from one end to the other, of theory the rows in which it holds. Rates and round
are chosen on data that clients hold back, and a difference under {margin:g} points counts as none. Beside it what the
papers print for the same cells.
**Confirmed** and **refuted** are settled; **depends**: cells differ, and each setting has a verdict of its own;
**open**: the runs so far allow both answers. [How claims are judged](../docs/explanation/judge.md).

The papers: Tenison et al., *Gradient Masked Averaging for Federated Learning*, TMLR 2023 (**TMLR**); Tenison's master's
**thesis**; the 2021 **workshop paper** that went before and its **poster**; the paper on **corrective gradient
weights**.

## Claims
"""
_WORDS = f"""## Verdicts in detail

- A **cell** is one place of a table: data, split, clients and algorithm, with and without the mask. A number is
  answered when its cell has been run with {SEEDS} seeds or more.
- **The margin**, {100 * MARGIN:g} points: a claimed gain whose interval lies within it is refuted; that a rule is not
  behind is confirmed where the interval lies above minus the margin. A gain that is clear of 0 is confirmed however
  small it is, with a remark where it is under the margin.
- **Depends**: the intervals of its parts hold for all of them at once, so they are wider than those of single cells.
- **By held-out selection**: rates and round are chosen on data that clients hold back. **Oracle**: on the test set
  itself, as the papers report. **last10**, **window(a,b)**: the mean of the last ten rounds, of the evaluated ones
  from a to b.
- Of a **gap** between two accuracies less is better: a minus says that the gap is wider than averaging's.
- **(edge)**, in the tables: the chosen rate is the smallest or the largest that was tried, so a better one may lie
  beyond it; of two rates that were tried either is. All rules were tried with the same rates.
- **A shorter step**: the mask's control, a plain averaged step as long as the masked one.
- **Q p**, **tau**, **I2**: whether cells differ by more than their seeds explain (p under 0.05), by how many points,
  and which share of the spread that is. (In a claim, tau is the mask's threshold.)
"""
_NOT_RUN = "not run yet"
_KINDS = ("confirmed", "refuted", "depends", "open", _NOT_RUN)
_SETTLED = _KINDS[:3]

_MASK_AND_CONTROL = ("gma", "gma-length")

Judged = tuple[Claim, Mapping[str, Verdict]]


def page(results: Sequence[Results], plans: Sequence[StudyPlan] = ()) -> str:
    """The report, in Markdown. Its first line says how many numbers are answered; its last section what is left to run
    and, as far as there are plans, how long that takes."""
    studies = [one for one in results if isinstance(one, StudyResults)]
    analyses = [one for one in results if isinstance(one, AnalysisResults)]
    # runs with other settings than the study's say nothing of what the papers claim
    by_name: dict[str, Results] = {one.study.name: one for one in studies if not one.changed}
    by_name |= {one.name: one for one in analyses if not one.changed}
    for name, known in everything().items():
        if name in by_name:
            check_own(by_name[name], known)
    # a number may have its place in several studies
    answered: set[int] = set()
    for one in results:
        with naming(one):
            answered |= one.answered(SEEDS)
    lines = [
        f"{len(answered)} of {len(numbers())} numbers answered",
        "",
        *_HEAD.format(margin=100 * MARGIN).split("\n"),
    ]
    judged: list[Judged] = []
    for claim in claims():
        with naming(of := by_name.get(claim.study)):
            judged.append((claim, _verdicts(claim, of)))
    lines += _claims(judged)
    lines += _early(studies)
    lines += ["", *_WORDS.split("\n")]
    tabled = {one.study.name for one in studies}
    rows = [
        _detail(claim, verdicts, claim.study in tabled) for claim, verdicts in judged if _kind(verdicts) != _NOT_RUN
    ]
    lines += markdown([["claim", f"by {MAIN_RULE} selection", "by the table's own rule"], *rows])
    for study in studies:
        with naming(study):
            lines += _map(study) if is_map(study.study) else _study(study)
    for analysis in analyses:
        with naming(analysis):
            lines += _analysis(analysis)
    return "\n".join([*lines, *not_run(studies, analyses, plans)]) + "\n"


def _claims(judged: Sequence[Judged]) -> list[str]:
    """The claims in short: how they came out, then a row each, in the papers' order, those that are settled first."""
    counts = Counter(_kind(verdicts) for _, verdicts in judged)
    said = [f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind]]
    lines = [f"Of {len(judged)} claims: {', '.join(said)}.", "", _gains(judged)]
    for title, kinds in (("Settled", _SETTLED), ("Open", ("open",))):
        some = [(claim, verdicts) for claim, verdicts in judged if _kind(verdicts) in kinds]
        rows = [_short(claim, next(iter(verdicts.values()))) for claim, verdicts in some]
        head = ["claim", "verdict", "measured (points, 95 %)", "printed", "cells", "source"]
        lines += ["", f"### {title}", "", *markdown([head, *rows])] if rows else []
    never_run = [claim for claim, verdicts in judged if _kind(verdicts) == _NOT_RUN]
    names = [f"- {claim.text} ({claim.source}; `{claim.study}`)" for claim in never_run]
    return [*lines, "", "### Not run yet", "", *names] if names else lines


def _short(claim: Claim, verdict: Verdict) -> list[str]:
    return [claim.text, f"**{verdict.kind}**", verdict.figure, verdict.printed, verdict.cells, claim.source]


def _gains(judged: Sequence[Judged]) -> str:
    """What became of the claims that somebody who looks for a better rule would look at."""
    ahead = [verdicts for claim, verdicts in judged if claim.expects == "ahead"]
    counts = Counter(map(_kind, ahead))
    settled = sum(counts[kind] for kind in _SETTLED)
    depends = [next(iter(verdicts.values())).figure for verdicts in ahead if _kind(verdicts) == "depends"]
    mixed = "some of them confirmed" if any("confirmed" in figure for figure in depends) else "in none confirmed"
    return (
        f"{len(ahead)} of them say that a rule does better than another; {settled} of these are settled:"
        f" {counts['confirmed']} confirmed, {counts['refuted']} refuted, and {len(depends)} that differ by setting"
        + f" ({mixed})" * bool(depends)
        + ". What follows in practice: [Should I use a mask?](../docs/how-to/should-i-use-a-mask.md)"
    )


def _early(studies: Sequence[StudyResults]) -> list[str]:
    """The mask and its control early and late in their runs, in studies with several places."""
    cells = []
    for one in studies:
        enough = [result for result in one.results if result.seeds >= SEEDS]
        rows = [] if is_map(one.study) or one.changed else by_round(one.study, enough)
        places = len({str(row.where) for row in rows})
        means = means_by_round([row for row in rows if row.rival in _MASK_AND_CONTROL]) if places > 1 else {}
        cells += [[f"`{one.study.name}`", str(places), rival, *figures] for rival, figures in means.items()]
    if not cells:
        return []
    about = f"""Points ahead of averaging on the test set after a share of the run's rounds: the mean over cells with
{SEEDS} seeds or more and a curve, and in how many of them it is above 0. `gma-length` is a plain step as long as the
mask's. A look, not a verdict: where rates were chosen, it was for the whole run, and there is no interval."""
    head = ["study", "cells", "rule", *TITLES]
    return ["", "### Early and late in a run", "", *about.split("\n"), "", *markdown([head, *cells])]


def _kind(verdicts: Mapping[str, Verdict]) -> str:
    """Of a claim, by the rule that counts."""
    first = next(iter(verdicts.values()))
    return _NOT_RUN if first.why == NEVER_RUN else first.kind


def _verdicts(claim: Claim, results: Results | None) -> dict[str, Verdict]:
    """By rule: held-out selection, which counts, and the table's own where that is another; or the one that the claim
    names."""
    if isinstance(results, AnalysisResults):
        return {MAIN_RULE: judge_analysis(claim, results)}
    verdicts, table_rule = {}, results.study.rules[0] if results else MAIN_RULE
    for rule in dict.fromkeys((claim.rule,) if claim.rule else (MAIN_RULE, table_rule)):
        comparisons = compare(results.study, results.results, claim.metric, rule) if results else []
        verdicts[rule] = judge(claim, comparisons, claim.places() if comparisons else None)
    return verdicts


def _detail(claim: Claim, verdicts: Mapping[str, Verdict], by_table: bool) -> list[str]:
    """A claim's verdicts in full; `by_table` says that its study has a rule of its own, which may be the one that
    counts."""
    texts = [f"{rule}: " * (rule != MAIN_RULE) + f"**{of.kind}**: {of.why}" for rule, of in verdicts.items()]
    if len(texts) < 2:
        texts.append("the same" if by_table and not claim.rule else "")
    return [claim.text, *texts]


def _title(title: str, one: Results) -> list[str]:
    """What a section begins with: title, command, and what of the study's settings the command changed."""
    lines = ["", f"## {title}", "", f"`{one.command}`", ""]
    if one.changed:
        changed = ", ".join(f"`{change}`" for change in one.changed)
        lines += [f"Run with {changed}: it answers no number, and no claim is judged by it.", ""]
    return lines


def _study(one: StudyResults) -> list[str]:
    lines = _title(one.study.title, one)
    lines += markdown(result_cells(one.study, one.results, one.study.rules[0]))
    for rule in dict.fromkeys((*one.study.rules, MAIN_RULE)):
        comparisons = compare(one.study, one.results, "test", rule)
        if comparisons:
            about = (
                f"Ahead of {one.study.against} on the test set, by {rule}, paired over seeds, points (95 % interval of"
                " each by itself);"
            )
            lines += [
                "",
                f"{about} called ahead or behind after Holm's correction over the {len(comparisons)} rows:",
                "",
            ]
            lines += markdown(comparison_cells(comparisons))
    if rows := by_round(one.study, one.results):
        lines += [
            "",
            f"Ahead of {one.study.against} on the test set after so much of the run, means of seeds, points; and the"
            f" evaluated rounds until a target, {100 * SHORT_OF:g} point below where {one.study.against} ends:",
            "",
            *markdown(by_round_cells(rows, one.study.against)),
        ]
    return lines


def _map(one: StudyResults) -> list[str]:
    """Where a mask helps, in two tables: its hundreds of cells are not for reading one by one."""
    against, found = one.study.against, drawn(one.study, one.results)
    head = _title(one.study.title, one)
    if not found.everywhere:
        return [*head, f"No two settings have been run with {SEEDS} seeds or more."]
    about = (
        f"Ahead on the test set after so many rounds, over {found.settings} settings in which nothing is tuned, points"
        " (95 % interval):"
    )
    lines = [*head, sentence(found, against), "", about, "", *markdown(pooled_cells(found, against))]
    if found.choices:
        lines += ["", "What the first half of the settings chose, and how it did on the second half:", ""]
        lines += markdown(choice_cells(found, against))
    return lines


def _analysis(one: AnalysisResults) -> list[str]:
    theirs = ["", "As printed:", "", *markdown(one.printed)] if len(one.printed) > 1 else []
    files = [f"- `{file}`" for file in one.files]
    return [
        *_title(one.title, one),
        *markdown(analysis_cells(one.rows)),
        *theirs,
        "",
        *(f"- {note}" for note in one.notes),
        *files,
    ]
