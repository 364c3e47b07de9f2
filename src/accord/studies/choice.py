"""What `accord choose` found: the rule that held-out data choose, judged on clients that it was not chosen by.

In every place (a client that is left out, or the unseen clients) rates and rule are chosen by held-out data of the
clients that trained there. So nothing that is chosen has seen whom it is judged by. The judge is that of the papers'
claims: `statistics.estimate` over clients and seeds, the margin of `verdict`, and the control of a mask.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accord.core.errors import AccordError
from accord.core.metrics import Metric
from accord.runs.left_out import LeftOut
from accord.runs.selection import Selected
from accord.runs.text import Cells
from accord.studies.choose import LEFT_OUT, Question, Reached, rules
from accord.studies.differences import Comparison, by_seed, compare, paired
from accord.studies.outcome import MAIN_RULE, Figures, gather
from accord.studies.statistics import Estimate
from accord.studies.study import Settings, Study, edges
from accord.studies.text import interval_text
from accord.studies.verdict import MARGIN, called, over_control, pooled

JUDGE = "unseen"  # the split that judges
_ALL = "unseen clients"  # the place, where clients are not left out one by one
CHOSEN = "chosen by held-out data"


@dataclass(frozen=True)
class Choice:
    """The answer. `estimate` is how far what was chosen is ahead of averaging, and `verdict` what the judge calls it;
    `rivals` has every rule by itself, in intervals that hold all at once (Bonferroni)."""

    metric: Metric
    study: Study
    figures: dict[str, dict[str, Figures]]  # place -> rule -> figures at the rates that held-out data chose
    chosen: dict[str, str]  # place -> the rule that held-out data chose
    rule: str  # other than averaging, that most places chose; averaging where none did
    estimate: Estimate | None
    rivals: dict[str, Estimate | None]
    controls: dict[str, Estimate | None]
    runs: int
    left_out: list[str]  # for time
    caution: str = ""  # on the metric

    @property
    def verdict(self) -> str:
        """Of the claim that what was chosen is ahead. Where averaging itself was chosen everywhere, which is no
        difference at all, the other rules have to be no more ahead of it than the margin."""
        if self.estimate is None:
            return "open"
        if self.rule != self.study.against:
            return called("ahead", self.estimate)
        behind = [estimate is not None and estimate.high < MARGIN for estimate in self.rivals.values()]
        return "refuted" if all(behind) else "open"

    @property
    def answer(self) -> str:
        """The rule to take."""
        return self.rule if self.verdict == "confirmed" else self.study.against

    def rates(self, rule: str) -> Settings:
        """The rates that most places chose."""
        points = [of[rule].point for of in self.figures.values() if rule in of]
        return max(points, key=points.count)


def decide(question: Question, reached: Reached) -> Choice:
    """What the runs of the last stage that is complete say."""
    assert reached.stage is not None
    study = reached.stage.study
    results = gather(study, reached.named)
    figures: dict[str, dict[str, Figures]] = {}
    for result in results:
        if MAIN_RULE in result.figures:
            of = figures.setdefault(result.cell.values.get(LEFT_OUT, _ALL), {})
            of[result.cell.values[study.compare]] = result.figures[MAIN_RULE]
    if any(study.against not in of for of in figures.values()) or not figures:
        raise AccordError("plain averaging diverged at all rates that were tried: lower train.lr")
    candidates = rules(study)
    chosen = {place: _best(of, candidates) for place, of in figures.items()}
    others = Counter(rule for rule in chosen.values() if rule != study.against)
    comparisons = compare(study, results, JUDGE, MAIN_RULE)
    by_rival = {rule: [c for c in comparisons if c.rival == rule] for rule in candidates if rule != study.against}
    gaps = [
        paired(*(by_seed(of[rule], JUDGE) for rule in (chosen[place], study.against))) for place, of in figures.items()
    ]
    level = 1 - 0.05 / len(by_rival)
    return Choice(
        metric=question.metric,
        study=study,
        figures=figures,
        chosen=chosen,
        rule=others.most_common(1)[0][0] if others else study.against,
        estimate=pooled(gaps),
        rivals={rule: pooled([c.difference for c in of], level) for rule, of in by_rival.items()},
        controls={rule: _over_control(of, level) for rule, of in by_rival.items()},
        runs=len(reached.runs_done),
        left_out=reached.left_out,
        caution=question.caution,
    )


def _best(of: dict[str, Figures], candidates: Sequence[str]) -> str:
    """By held-out data; the earlier one of equals, and averaging is the first."""
    return max((rule for rule in candidates if rule in of), key=lambda rule: _heldout(of[rule]))


def _heldout(figures: Figures) -> float:
    return statistics.fmean(figures.of("heldout"))


def _over_control(cells: Sequence[Comparison], level: float) -> Estimate | None:
    controls = [c.controls["length"] for c in cells if "length" in c.controls]
    return pooled(controls, level) if controls else None


# ------------------------------------------------------------------------------------------------- as text


def paragraph(choice: Choice) -> str:
    """Which rule, by how much, how sure; what the metric hides; what was tried, and what was left out for time."""
    parts = _answer(choice), _control(choice), _others(choice), _edge(choice), choice.caution, _tried(choice)
    return " ".join(filter(None, parts))


def _answer(choice: Choice) -> str:
    estimate, metric, chose = choice.estimate, choice.metric, f"held-out data chose ({_votes(choice)})"
    averaging = _with_rates(choice, choice.study.against)
    if estimate is None:
        return f"Not decided: too few clients and seeds have figures. Until then take plain {averaging}."
    named = LEFT_OUT in choice.study.axes
    where = f"{len(choice.figures)} clients, each left out in turn," if named else "unseen clients"
    unit, points = ("points of ", " points") if metric.percent else ("of ", "")
    clients = f"on {where} over {estimate.seeds} seeds"
    text = f"{interval_text(estimate, metric)} {unit}{metric.name} {clients}"
    margin = f"{metric.figure(MARGIN)}{points}"
    if choice.rule == choice.study.against:
        what = f"Held-out data chose it itself; {clients} the others are at {_at(choice)} {unit}{metric.name}"
        if choice.verdict == "refuted":
            return f"Plain averaging is as good: take {averaging}. {what}, none of them ahead by {margin} or more."
        return f"Take plain {averaging}. {what}."
    if choice.verdict == "confirmed":
        small = f", though by less than {margin}" if estimate.within(MARGIN) else ""
        take = f"Use {_with_rates(choice, choice.rule)}"
        return f"{take}. What {chose} is ahead of plain averaging by {text}{small}."
    if estimate.within(MARGIN):
        return f"Plain averaging is as good: take {averaging}. What {chose} differs by {text}, within {margin}."
    if choice.verdict == "refuted":
        return f"Plain averaging is better: take {averaging}. What {chose} is at {text}."
    return (
        f"No rule is shown to be better than plain averaging: take {averaging}. What {chose} is at {text}, an interval"
        f" that reaches beyond {margin}: more clients or seeds would tell."
    )


def _at(choice: Choice) -> str:
    """`gma -0.12 (-1.18 to 0.93), fedadam ...`: every rule by itself."""
    known = {rule: estimate for rule, estimate in choice.rivals.items() if estimate is not None}
    return ", ".join(f"{rule} {interval_text(estimate, choice.metric)}" for rule, estimate in known.items())


def _with_rates(choice: Choice, rule: str) -> str:
    rates = ", ".join(f"{key}={value:g}" for key, value in choice.rates(rule).items())
    return f"{rule} ({rates})"


def _votes(choice: Choice) -> str:
    """`fedadam in 3 of 4 cases, gma in 1`."""
    (first, most), *others = Counter(choice.chosen.values()).most_common()
    if not others:
        return first
    return ", ".join([f"{first} in {most} of {len(choice.chosen)} cases", *(f"{rule} in {n}" for rule, n in others)])


def _control(choice: Choice) -> str:
    """Of a mask that is the answer: whether a plain step of its length does the same."""
    estimate = choice.controls.get(choice.answer)
    return (
        ""
        if estimate is None
        else f"Its control: {over_control(estimate, 'a plain step of the same length', choice.metric)}."
    )


def _others(choice: Choice) -> str:
    """Rules that are ahead by themselves, whatever held-out data say."""
    ahead = {rule: estimate for rule, estimate in choice.rivals.items() if estimate is not None and estimate.low > 0}
    others = [
        f"{rule} {interval_text(estimate, choice.metric)}" for rule, estimate in ahead.items() if rule != choice.answer
    ]
    held = f"intervals that hold for all {len(choice.rivals)} rules at once"
    return f"Also ahead of plain averaging by itself ({held}): {'; '.join(others)}." if others else ""


def _edge(choice: Choice) -> str:
    """Of averaging and of the answer: whether a better client rate may lie beyond those that were tried."""
    rates = {rule: choice.rates(rule)["train.lr"] for rule in (choice.study.against, choice.answer)}
    grid = choice.study.cells[0].grid
    on_edge = [rule for rule, rate in rates.items() if edges(grid, {"train.lr": rate})]
    many = f"{' and '.join(on_edge)} {'have' if len(on_edge) > 1 else 'has'}"
    return (
        f"The client rate that {many} is on the edge of those tried: ask again with train.lr there." if on_edge else ""
    )


def _tried(choice: Choice) -> str:
    grid = max(len(cell.points) for cell in choice.study.cells)
    rates = "one pair of rates" if grid == 1 else f"{grid} pairs of rates"
    text = f"Tried: {', '.join(rules(choice.study))}, with {rates} each and the masks' controls, in {choice.runs} runs."
    seeds = sum(adds.startswith("seed ") for adds in choice.left_out)
    left = [adds for adds in choice.left_out if not adds.startswith("seed ")]
    left += [f"{seeds} more seed{'s' * (seeds > 1)}"] * bool(seeds)
    return f"{text} Left out for time: {', '.join(left)}." if left else text


def table(choice: Choice) -> Cells:
    """A row per rule at the rates that were chosen for it, and one of what was chosen in each place: a column per
    client left out, or one of unseen clients; before them how far it is ahead of averaging."""
    methods = {rule: {place: of[rule] for place, of in choice.figures.items() if rule in of} for rule in _named(choice)}
    methods[CHOSEN] = {place: of[choice.chosen[place]] for place, of in choice.figures.items()}
    selected = {method: {place: _selected(of) for place, of in places.items()} for method, places in methods.items()}
    cells = LeftOut(choice.metric, MAIN_RULE, selected).cells()
    if LEFT_OUT not in choice.study.axes:
        cells = [row[:-2] for row in cells]  # the mean and the worst of one place are its own
        cells[0][0] = f"{choice.metric.title} on unseen clients, by {MAIN_RULE}"
    estimates = {**choice.rivals, CHOSEN: choice.estimate}
    ahead = [estimates.get(row[0]) for row in cells[1:]]
    texts = ["-" if one is None else interval_text(one, choice.metric) for one in ahead]
    column = ["ahead of averaging by", *texts]
    return [[method, more, *row] for (method, *row), more in zip(cells, column, strict=True)]


def _named(choice: Choice) -> list[str]:
    return list(choice.study.axes[choice.study.compare])


def _selected(figures: Figures) -> dict[str, Selected]:
    judged = by_seed(figures, JUDGE)
    return {str(seed): Selected(MAIN_RULE, [], {JUDGE: value}) for seed, value in judged.items()}


def plain(choice: Choice, command: str, runs: Sequence[str]) -> dict[str, Any]:
    """The answer with its figures, as data that can be written down."""
    return {
        "choice": choice.answer,
        "rates": choice.rates(choice.answer),
        "paragraph": paragraph(choice),
        "verdict": choice.verdict,
        "command": command,
        "metric": choice.metric.name,
        "margin": MARGIN,
        "ahead": choice.estimate and asdict(choice.estimate),
        "chosen": {
            place: {"rule": rule, "rates": choice.figures[place][rule].point} for place, rule in choice.chosen.items()
        },
        "rules": {rule: _plain_rule(choice, rule) for rule in _named(choice)},
        "seeds": list(choice.study.seeds),
        "left_out_for_time": choice.left_out,
        "table": table(choice),
        "runs": list(runs),
    }


def _plain_rule(choice: Choice, rule: str) -> dict[str, Any]:
    estimate, control = choice.rivals.get(rule), choice.controls.get(rule)
    places = {place: of[rule] for place, of in choice.figures.items() if rule in of}
    return {
        "settings": choice.study.axes[choice.study.compare][rule],
        "rates": {place: of.point for place, of in places.items()},
        "heldout": {place: _heldout(of) for place, of in places.items()},
        JUDGE: {place: by_seed(of, JUDGE) for place, of in places.items()},
        "ahead": estimate and asdict(estimate),
        "ahead_of_control": control and asdict(control),
    }
