"""The replication report: how many numbers are answered, a verdict on every claim, ours beside theirs, and what was not
run."""

import re
from collections.abc import Sequence
from dataclasses import replace

from accord.analyses.output import cells as analysis_cells
from accord.studies import everything
from accord.studies.analysis_claims import judge_analysis
from accord.studies.bundled import answering, changes
from accord.studies.by_round import TARGET_MARGIN, TITLES, by_round, by_round_cells, medians_by_round
from accord.studies.claim import Claim, claims
from accord.studies.claims_text import Judged, claims_in_full, claims_in_short
from accord.studies.differences import Comparison, best_of, beyond, compare
from accord.studies.judge import judge
from accord.studies.map import drawn, is_map
from accord.studies.map_text import choice_cells, pooled_cells, sentence
from accord.studies.near_printed import near_printed
from accord.studies.not_run import not_run
from accord.studies.outcome import MAIN_RULE
from accord.studies.plan import StudyPlan
from accord.studies.published import numbers
from accord.studies.results import AnalysisResults, Results, StudyResults, naming
from accord.studies.text import comparison_cells, markdown, result_cells
from accord.studies.verdict import MARGIN, SEEDS, Verdict

_HEAD = f"""# Replication

Written by `accord verdicts` from the results of `accord reproduce`. Each claim of the papers has a verdict and one
figure: usually the difference in test accuracy between a rule and the one it is compared with, in points, pooled over
cells, with its 95 % interval; of a trend the change from one end to the other; of theory the rows in which it holds.
Rates and round are chosen on data that clients hold back. *Ahead of its control* is the difference from
[the control](../docs/explanation/masks.md#the-control), a plain step of the same length: a gain that is not clear of 0
there is not shown to be more than a shorter step's. *Printed* is what the papers have for the same cells.

**Confirmed** and **refuted** are settled: the interval lies on one side of 0, or a claimed gain is within a margin of
{100 * MARGIN:g} points of 0; that a rule is not behind is confirmed where the interval lies above minus the margin.
**Depends**: cells differ, and each setting has a verdict of its own. **Open**: the runs so far allow both answers.
Each claim is judged at 95 % by itself, so one or two may be settled by chance, and claims on the same cells come out
alike. [How claims are judged](../docs/explanation/judge.md).

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
  beyond it; of two rates that were tried either is. Rivals were tried with the same rates, and with all of those that
  one of them alone has.
- **A shorter step**: the mask's [control](../docs/explanation/masks.md#the-control).
- **Q p**, **tau**, **I2**: whether cells differ by more than their seeds explain (p under 0.05), by how many points,
  and which share of the spread that is. (In a claim, tau is the mask's threshold.)
"""
FIRST_LINE = re.compile(r"\d+ of \d+ numbers answered\n")  # of every report
_MASK_AND_CONTROL = ("gma", "gma-length")
_MANY = 10  # cells, from which a median says more than the cells themselves


def page(results: Sequence[Results], plans: Sequence[StudyPlan] = ()) -> str:
    """The report, in Markdown. Its first line says how many numbers are answered; its last section what is left to run
    and, as far as there are plans, how long that takes."""
    studies = [one for one in results if isinstance(one, StudyResults)]
    analyses = [one for one in results if isinstance(one, AnalysisResults)]
    bundled = everything()
    answers = answering(results, bundled)
    # a number may have its place in several studies
    answered: set[int] = set()
    for one in answers.values():
        with naming(one):
            answered |= one.answered(SEEDS)
    judged: list[Judged] = []
    for claim in claims():
        of = answers.get(claim.study)
        with naming(of):
            judged.append((claim, _verdicts(claim, of)))
    answering_studies = [one for one in studies if one.name in answers]
    lines = [f"{len(answered)} of {len(numbers())} numbers answered", "", *_HEAD.split("\n")]
    lines += [*claims_in_short(judged, near_printed(answering_studies, answered)), *_early(answering_studies)]
    lines += ["", *_WORDS.split("\n"), *claims_in_full(judged, {one.name for one in studies})]
    for study in studies:
        with naming(study):
            lines += _title(study.study.title, study, changes(study, bundled))
            lines += _map(study) if is_map(study.study) else _study(study)
    for analysis in analyses:
        with naming(analysis):
            lines += [*_title(analysis.title, analysis, changes(analysis, bundled)), *_analysis(analysis)]
    # what was run with other settings is left to run
    unchanged = [one for one in results if not changes(one, bundled)]
    return "\n".join([*lines, *not_run(unchanged, plans)]) + "\n"


def _early(studies: Sequence[StudyResults]) -> list[str]:
    """The mask and its control early and late in their runs, in studies with many places."""
    cells = []
    for one in studies:
        enough = [result for result in one.complete if result.seeds >= SEEDS]
        rows = [] if is_map(one.study) else by_round(one.study, enough)
        if len({str(row.where) for row in rows}) >= _MANY:
            cells += [[f"`{one.name}`", *row] for row in medians_by_round(rows, _MASK_AND_CONTROL)]
    if not cells:
        return []
    about = f"""Points ahead of averaging on the test set after a share of the run's rounds: the median over cells with
{SEEDS} seeds or more and a curve, and in how many of them it is above 0. `gma-length` is a plain step as long as the
mask's; *at the same rates*: in those cells alone where held-out data chose the same rates as for averaging, so that
the rule is all that differs. Studies with {_MANY} cells or more. A look, not a verdict: there is no interval."""
    head = ["study", "rule", "cells", *TITLES]
    return ["", "### Early and late in a run", "", *about.split("\n"), "", *markdown([head, *cells])]


def _verdicts(claim: Claim, results: Results | None) -> dict[str, Verdict]:
    """By rule: held-out selection, which counts, and the table's own where that is another; or the one that the claim
    names."""
    if isinstance(results, AnalysisResults):
        return {MAIN_RULE: judge_analysis(claim, results)}
    verdicts, table_rule = {}, results.study.rules[0] if results else MAIN_RULE
    for rule in dict.fromkeys((claim.rule,) if claim.rule else (MAIN_RULE, table_rule)):
        comparisons = _comparisons(claim, results, rule) if results else []
        verdicts[rule] = judge(claim, comparisons, claim.places() if comparisons else None)
    return verdicts


def _comparisons(claim: Claim, results: StudyResults, rule: str) -> list[Comparison]:
    """What the claim compares: its study's rivals, unless it names others."""
    study, cells = results.study, results.complete
    study = replace(study, compare=claim.compare or study.compare, against=claim.against or study.against)
    if claim.best_over:
        cells = best_of(cells, claim.best_over, rule)
    found = compare(study, cells, claim.metric, rule)
    return beyond(found, compare(study, cells, claim.metric, claim.less)) if claim.less else found


def _title(title: str, one: Results, changes: Sequence[str]) -> list[str]:
    """What a section begins with: title, command, and what of the study's settings the command changed."""
    lines = ["", f"## {title}", "", f"`{one.command}`", ""]
    if changes:
        changed = ", ".join(f"`{change}`" for change in changes)
        lines += [f"Run with {changed}: it answers no number, and no claim is judged by it.", ""]
    return lines


def _study(one: StudyResults) -> list[str]:
    lines = markdown(result_cells(one.study, one.results, one.study.rules[0]))
    for reason in dict.fromkeys(result.superseded for result in one.results if result.superseded):
        lines += ["", f"Nothing is judged by superseded cells until they are run again: {reason}."]
    for rule in dict.fromkeys((*one.study.rules, MAIN_RULE)):
        comparisons = compare(one.study, one.complete, "test", rule)
        if comparisons:
            tested = sum(c.difference is not None and c.difference.seeds > 1 for c in comparisons)
            some = " that have an interval" * (tested < len(comparisons))
            about = (
                f"Ahead of {one.study.against} on the test set, by {rule}, paired over seeds, points (95 % interval of"
                " each by itself);"
            )
            lines += [
                "",
                f"{about} called ahead or behind after Holm's correction over the {tested} rows{some}:",
                "",
            ]
            lines += markdown(comparison_cells(comparisons))
    if rows := by_round(one.study, one.complete):
        lines += [
            "",
            f"Ahead of {one.study.against} on the test set after so much of the run, means of seeds, points; and the"
            f" evaluated rounds until a target, {100 * TARGET_MARGIN:g} point below where {one.study.against} ends:",
            "",
            *markdown(by_round_cells(rows, one.study.against)),
        ]
    return lines


def _map(one: StudyResults) -> list[str]:
    """Where a mask helps, in two tables: its hundreds of cells are not for reading one by one."""
    against, found = one.study.against, drawn(one.study, one.results)
    if not found.everywhere:
        return [f"No two settings have been run with {SEEDS} seeds or more."]
    about = (
        f"Ahead on the test set after so many rounds, over {found.settings} settings in which nothing is tuned, points"
        " (95 % interval):"
    )
    lines = [sentence(found, against), "", about, "", *markdown(pooled_cells(found, against))]
    if found.choices:
        lines += ["", "What the first half of the settings chose, and how it did on the second half:", ""]
        lines += markdown(choice_cells(found, against))
    return lines


def _analysis(one: AnalysisResults) -> list[str]:
    theirs = ["", "As printed:", "", *markdown(one.printed)] if len(one.printed) > 1 else []
    files = [f"- `{file}`" for file in one.files]
    return [
        *markdown(analysis_cells(one.rows)),
        *theirs,
        "",
        *(f"- {note}" for note in one.notes),
        *files,
    ]
