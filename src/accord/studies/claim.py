"""What the papers claim, one entry each in `files/common/claims.toml`, whose head explains the keys."""

import tomllib
from dataclasses import dataclass, field

from accord.core.errors import AccordError, did_you_mean
from accord.studies.differences import Comparison
from accord.studies.files import FILES, check_keys
from accord.studies.study import within
from accord.studies.study_file import load

EXPECTS = (
    "ahead",
    "behind",
    "not ahead",
    "not behind",
    "equal",
    "mostly ahead",
    "grows",
    "falls",
    "same rates",
    "holds",
    "described",
)
_CLAIMS = FILES / "common" / "claims.toml"


@dataclass(frozen=True)
class Claim:
    """What a paper says of one rival, and where."""

    text: str
    source: str
    study: str = ""
    only: dict[str, list[str]] = field(default_factory=dict)
    rival: str = ""
    expects: str = "ahead"
    metric: str = "test"  # or another split, or a gap: `differences.measured`
    axis: str = ""  # what it grows or falls with
    order: list[str] = field(default_factory=list)  # the axis's values, from low to high, where they are no numbers
    against: str = ""  # what the rival is measured by, where it is not the study's own
    compare: str = ""  # the axis of rival and against, where it is not the study's own
    best_over: str = ""  # an axis: the best value of each side is compared, chosen by the same rule as its rates
    share: float = 0.5  # of "mostly ahead": in how many cells the paper says so, as a share
    control: str = ""  # of a rival whose control is not called `NAME-length`: its name, which may hold {rival}
    rule: str = ""  # the rule it is judged by, in place of held-out selection and the table's own
    less: str = ""  # a second rule, whose difference is subtracted: how much more a gain is by the first
    holds: list[str] = field(default_factory=list)  # of an analysis's table: `column <= column`, or >=
    how: str = ""  # of a claim that is described, not judged: what to look at
    data: str = ""  # what to know of how the figures that judge it came about
    ours: str = ""  # of a question that no paper puts so: why we ask it

    def __post_init__(self) -> None:
        if self.expects not in EXPECTS:
            raise AccordError(
                f"the claim {self.text!r} expects {self.expects!r}: {did_you_mean(self.expects, EXPECTS)}"
            )
        if self.expects in ("grows", "falls") and not self.axis:
            raise AccordError(f"the claim {self.text!r} needs an axis that it {self.expects} with")
        if bool(self.holds) != (self.expects == "holds"):
            raise AccordError(f"the claim {self.text!r} must expect 'holds' and say what holds, or neither")

    @property
    def has_control(self) -> bool:
        """Whether it is about a rule that has a control: not of one mask against another, nor along another axis."""
        return bool(self.control) or not (self.compare or self.against)

    @property
    def is_of_a_gain(self) -> bool:
        """Whether it says that a rule scores higher than another."""
        return self.expects == "ahead" and self.has_control and " - " not in self.metric and not self.less

    def about(self, comparison: Comparison) -> bool:
        values = {**comparison.where, comparison.compare: comparison.rival}
        rival = comparison.rival == self.rival or (self.axis != "" and self.axis == comparison.compare)
        return rival and within(values, self.only)

    def places(self) -> int:
        """How many cells of its study it is about."""
        study = load(self.study)
        wanted = {self.compare or study.compare: [self.rival], **self.only}
        cells = [cell.values for cell in study.cells if within(cell.values, wanted)]
        return len({frozenset((axis, value) for axis, value in of.items() if axis != self.best_over) for of in cells})


def claims() -> list[Claim]:
    tables = tomllib.loads(_CLAIMS.read_text(encoding="utf-8"))["claim"]
    for claim in tables:
        check_keys(claim, Claim.__dataclass_fields__, "a claim", "claims")
    return [Claim(**claim) for claim in tables]
