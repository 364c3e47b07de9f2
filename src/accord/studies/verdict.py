"""From results to verdicts: what a paper claims, what our runs say, and a page that puts both beside each other.

A claim is about one rival in some cells of a study. In each cell it is ahead, behind, or neither: the 95 % interval of the differences over
seeds decides. From one seed nothing is decided. A claim is confirmed if every cell that decides is as claimed and most do decide; it is not
confirmed if no cell that decides is as claimed; else it depends, and the page says on what.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.analyses.output import cells as analysis_cells
from accord.core.errors import AccordError
from accord.runs.text import Cells
from accord.studies.files import FILES
from accord.studies.outcome import Comparison, Figures, Result, compare
from accord.studies.published import Printed
from accord.studies.study import Cell, Study
from accord.studies.text import comparison_cells, printed_cells, result_cells

_CLAIMS = FILES / "common" / "claims.toml"


@dataclass(frozen=True)
class Claim:
    """What a paper says of one rival, and where."""

    text: str
    source: str
    study: str
    only: dict[str, list[str]]
    rival: str
    expects: str  # "ahead", "not behind", "grows", "falls" or "described": see claims.toml
    metric: str = "test"
    axis: str = ""
    how: str = ""
    parts: str = ""

    def about(self, comparison: Comparison) -> bool:
        return comparison.rival == self.rival and all(comparison.where.get(axis) in values for axis, values in self.only.items())


@dataclass(frozen=True)
class Verdict:
    """`kind` is confirmed, not confirmed, depends or open; `why` says it with numbers."""

    claim: Claim
    kind: str
    why: str


def claims() -> list[Claim]:
    return [Claim(**claim) for claim in tomllib.loads(_CLAIMS.read_text(encoding="utf-8"))["claim"]]


def judge(claim: Claim, comparisons: Sequence[Comparison]) -> Verdict:
    """What the comparisons of the claim's study say of it."""
    if claim.expects not in ("ahead", "not behind"):
        return Verdict(claim, "open", claim.how or f"a slope over {claim.axis} is not computed")
    found = [(c, _standing(c)) for c in comparisons if claim.about(c) and c.difference is not None]
    if not found:
        return Verdict(claim, "open", "no cell of it has been run")
    counts = Counter(standing for _, standing in found)
    as_claimed = counts["ahead"] + (counts["neither"] if claim.expects == "not behind" else 0)
    against = counts["behind"]
    said = ", ".join(f"{counts[kind]} {kind}" for kind in ("ahead", "neither", "behind", "undecided") if counts[kind])
    total = f"{len(found)} cell{'s' * (len(found) > 1)}: {said}; {_range(found)}"
    if counts["undecided"] == len(found):
        return Verdict(claim, "open", f"{total}; one seed decides nothing")
    if not against and as_claimed * 2 > len(found):
        return Verdict(claim, "confirmed", total)
    if not as_claimed:
        return Verdict(claim, "not confirmed", total)
    return Verdict(claim, "depends", f"{total}; {_on_what(found)}")


def _standing(comparison: Comparison) -> str:
    difference = comparison.difference
    assert difference is not None
    if difference.seeds < 2:
        return "undecided"
    return "neither" if not difference.clear else "ahead" if difference.mean > 0 else "behind"


def _range(found: Sequence[tuple[Comparison, str]]) -> str:
    means = [c.difference.mean for c, _ in found if c.difference is not None]
    return f"differences from {100 * min(means):+.2f} to {100 * max(means):+.2f} points"


def _on_what(found: Sequence[tuple[Comparison, str]]) -> str:
    """The values of the axes, with how often the rival was ahead there, for the axis that tells cells apart best."""
    best, text = -1.0, "no single axis tells the cells apart"
    for axis in found[0][0].where:
        shares: dict[str, list[bool]] = {}
        for comparison, standing in found:
            shares.setdefault(comparison.where[axis], []).append(standing == "ahead")
        rates = [sum(of) / len(of) for of in shares.values()]
        if len(rates) > 1 and max(rates) - min(rates) > max(best, 0.0):
            best = max(rates) - min(rates)
            text = f"ahead by {axis}: " + ", ".join(f"{value} {sum(of)} of {len(of)}" for value, of in shares.items())
    return text


# ------------------------------------------------------------------------------------------------------------------- the page


@dataclass(frozen=True)
class Read:
    """A study's results as `accord reproduce` wrote them."""

    study: Study
    results: list[Result]
    command: str


@dataclass(frozen=True)
class ReadAnalysis:
    """An analysis as `accord reproduce` wrote it: its table and what was printed in its place, as cells."""

    title: str
    command: str
    table: Cells
    printed: Cells
    notes: list[str]
    files: list[str]

    def section(self) -> list[str]:
        """Its part of the page."""
        theirs = ["", "As printed:", "", *markdown(self.printed)] if len(self.printed) > 1 else []
        told = [f"- {note}" for note in self.notes] + [f"- `{file}`" for file in self.files]
        return ["", f"## {self.title}", "", f"`{self.command}`", "", *markdown(self.table), *theirs, "", *told]


def read(path: Path) -> Read | ReadAnalysis:
    """Results from their file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "analysis" in content:
            names = {name: content[name] for name in ("title", "command", "notes", "files")}
            return ReadAnalysis(**names, table=analysis_cells(content["rows"]), printed=printed_cells(content["printed"]))
        cells = [_result(cell) for cell in content["cells"]]
        axes: dict[str, dict[str, dict[str, Any]]] = {
            axis: {cell["values"][axis]: {} for cell in content["cells"]} for axis in content["axes"]
        }
        study = Study(
            name=content["study"],
            title=content["title"],
            about="",
            paper=content["paper"],
            table=content["table"],
            compare=content["compare"],
            against=content["against"],
            rules=tuple(content["rules"]),
            seeds=tuple(content["seeds"]),
            settings={},
            axes=axes,
            grids={},
        )
        return Read(study, cells, content["command"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise AccordError(f"{path} does not hold results of accord reproduce: {type(error).__name__} {error}") from None


def _result(content: Mapping[str, Any]) -> Result:
    figures = {
        rule: Figures(of["point"], {int(seed): values for seed, values in of["by_seed"].items()}) for rule, of in content["figures"].items()
    }
    printed = [Printed({"window": p["window"]}, p["value"], p["std"], p["note"]) for p in content["printed"]]
    rounds = tuple(content["rounds"]) if content.get("rounds") else None  # older files have none
    return Result(Cell(content["values"], {}, {}), figures, printed, content["done"], content["runs"], rounds, content.get("flat", 0))


def page(results: Sequence[Read | ReadAnalysis]) -> str:
    """The replication report, in Markdown."""
    read_studies = [one for one in results if isinstance(one, Read)]
    by_name = {one.study.name: one for one in read_studies}
    lines = [
        "# Replication",
        "",
        "Written by `accord verdicts` from the results of `accord reproduce`; the commands stand with the tables.",
        "",
    ]
    lines += [
        "## Claims",
        "",
        "| claim | source | verdict on held-out selection | by the papers' own rule (best on the test set) |",
        "|---|---|---|---|",
    ]
    for claim in claims():
        one = by_name.get(claim.study)
        verdicts = [judge(claim, compare(one.study, one.results, claim.metric, rule) if one else []) for rule in ("held-out", "oracle")]
        said = " | ".join(f"**{verdict.kind}**: {verdict.why}" for verdict in verdicts)
        lines.append(f"| {claim.text} | {claim.source} | {said} |")
    for one in read_studies:
        lines += ["", f"## {one.study.title}", "", f"`{one.command}`", ""]
        lines += markdown(result_cells(one.study, one.results, one.study.rules[0]))
        for rule in one.study.rules:
            comparisons = compare(one.study, one.results, "test", rule)
            if comparisons:
                lines += ["", f"Ahead of {one.study.against} on the test set, by {rule}, paired over seeds, points (95 % interval):", ""]
                lines += markdown(comparison_cells(comparisons))
    lines += [line for one in results if isinstance(one, ReadAnalysis) for line in one.section()]
    return "\n".join(lines) + "\n"


def markdown(cells: Sequence[Sequence[str]]) -> list[str]:
    """Cells as a Markdown table."""
    head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in cells)
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
