"""The replication report: how many numbers are answered, a verdict on every claim, ours beside theirs, and what was not
run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from accord.analyses.output import cells as analysis_cells
from accord.studies.analysis_claims import judge_analysis
from accord.studies.map import drawn, is_map
from accord.studies.map_text import choice_cells, pooled_cells, sentence
from accord.studies.not_run import not_run
from accord.studies.outcome import MAIN_RULE, compare
from accord.studies.plan import StudyPlan
from accord.studies.published import numbers
from accord.studies.results import AnalysisResults, Results, StudyResults, naming
from accord.studies.text import comparison_cells, markdown, result_cells
from accord.studies.verdict import MARGIN, NEVER_RUN, SEEDS, Claim, Verdict, claims, judge

_HEAD = f"""# Replication

Written by `accord verdicts` from the results of `accord reproduce`; the commands stand with the tables. A number
is answered when its cell has been run with {SEEDS} seeds or more. Claims are judged as docs/explanation/judge.md says:
the mean over cells of the paired difference with its 95 % interval, a margin of {100 * MARGIN:g} points,
chosen on held-out data; beside it by the table's own rule.

- **The papers**: Tenison et al., *Gradient Masked Averaging for Federated Learning*, TMLR 2023 (**TMLR**); Tenison's
  master's **thesis**; the 2021 **workshop paper** that went before and its **poster**; and the paper on **corrective
  gradient weights**.
- A **cell** is one place of a table: data, split, clients and algorithm, with and without the mask.
- **Open** means that the runs so far do not decide: too few cells or seeds, or an interval that allows both answers.
  Claims of which no cell has been run are open in the table; the count above it names them apart.
- **The margin**: a smaller difference counts as none. A claimed gain whose interval lies within the margin is refuted;
  that a rule is not behind is confirmed where the interval lies above minus the margin.
- **Depends**: cells differ, and each value of the axis that tells them apart has a verdict of its own. Their intervals
  hold for all values at once, so they are wider than those of single cells in the tables.
- **By held-out selection**: rates and round are chosen on data that clients hold back. **Oracle**: on the test set
  itself, as the papers report. **last10**, **window(a,b)**: the mean of the last ten rounds, of the evaluated ones
  from a to b.
- **(edge)**, in the tables: the chosen rate is the smallest or the largest that was tried, so a better one may lie
  beyond it. All rules were tried with the same rates; `--grow` widens a grid, for all rules of a cell alike.
- **A shorter step**: the mask's control, a plain averaged step as long as the masked one. **Printed there**: the gain
  that the paper prints for the same cells.
- **Q p**, **tau**, **I2**: whether cells differ by more than their seeds explain (p under 0.05), by how many points,
  and which share of the spread that is. (In a claim, tau is the mask's threshold.)

## Claims
"""
_NOT_RUN = "not run yet"
_LATER = {"open": 1, _NOT_RUN: 2}  # what is settled stands before them


def page(results: Sequence[Results], plans: Sequence[StudyPlan] = ()) -> str:
    """The report, in Markdown. Its first line says how many numbers are answered; its last section what is left to run
    and, as far as there are plans, how long that takes."""
    studies = [one for one in results if isinstance(one, StudyResults)]
    analyses = [one for one in results if isinstance(one, AnalysisResults)]
    by_name: dict[str, Results] = {one.study.name: one for one in studies}
    by_name |= {one.name: one for one in analyses}
    # a number may have its place in several studies
    answered: set[int] = set()
    for one in results:
        with naming(one):
            answered |= one.answered(SEEDS)
    lines = [f"{len(answered)} of {len(numbers())} numbers answered", "", *_HEAD.split("\n")]
    judged = []
    for claim in claims():
        with naming(of := by_name.get(claim.study)):
            judged.append((claim, _verdicts(claim, of)))
    judged.sort(key=lambda pair: _LATER.get(_kind(pair[1]), 0))
    counts = Counter(_kind(verdicts) for _, verdicts in judged)
    said = [f"{counts[kind]} {kind}" for kind in ("confirmed", "refuted", "depends", *_LATER) if counts[kind]]
    lines += [f"Of {len(judged)} claims: {', '.join(said)}.", ""]
    lines += [_gains(judged), ""]
    tabled = {one.study.name for one in studies}
    rows = [_claim_cells(claim, verdicts, claim.study in tabled) for claim, verdicts in judged]
    lines += markdown([["claim", "source", f"by {MAIN_RULE} selection", "by the table's own rule"], *rows])
    for study in studies:
        with naming(study):
            lines += _map(study) if is_map(study.study) else _study(study)
    for analysis in analyses:
        with naming(analysis):
            lines += _analysis(analysis)
    return "\n".join([*lines, *not_run(studies, analyses, plans)]) + "\n"


def _gains(judged: Sequence[tuple[Claim, Mapping[str, Verdict]]]) -> str:
    """What became of the claims that somebody who looks for a better rule would look at."""
    counts = Counter(_kind(verdicts) for claim, verdicts in judged if claim.expects == "ahead")
    confirmed, refuted, depends = counts["confirmed"], counts["refuted"], counts["depends"]
    return (
        f"{counts.total()} of them say that a rule does better than another. {confirmed + refuted + depends} of these"
        f" are settled (settled claims come first): {confirmed} confirmed, {refuted} refuted, and {depends} that depend"
        " on the setting. What follows in practice: [Should I use a mask?](../docs/how-to/should-i-use-a-mask.md)"
    )


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


def _claim_cells(claim: Claim, verdicts: Mapping[str, Verdict], by_table: bool) -> list[str]:
    """A claim's row; `by_table` says that its study has a rule of its own, which may be the one that counts."""
    texts = [f"{rule}: " * (rule != MAIN_RULE) + f"**{of.kind}**: {of.why}" for rule, of in verdicts.items()]
    if len(texts) < 2:
        texts.append("the same" if by_table and not claim.rule else "")
    return [claim.text, claim.source, *texts]


def _study(one: StudyResults) -> list[str]:
    lines = ["", f"## {one.study.title}", "", f"`{one.command}`", ""]
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
    return lines


def _map(one: StudyResults) -> list[str]:
    """Where a mask helps, in two tables: its hundreds of cells are not for reading one by one."""
    against, found = one.study.against, drawn(one.study, one.results)
    head = ["", f"## {one.study.title}", "", f"`{one.command}`", ""]
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
        "",
        f"## {one.title}",
        "",
        f"`{one.command}`",
        "",
        *markdown(analysis_cells(one.rows)),
        *theirs,
        "",
        *(f"- {note}" for note in one.notes),
        *files,
    ]
