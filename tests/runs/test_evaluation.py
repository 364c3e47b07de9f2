"""Three-way evaluation and selection rules, by hand."""

import numpy as np
import pytest

from accord import AccordError
from accord.engines.contract import Table
from accord.runs.evaluation import Evaluation, per_client, quantiles, summarise, summarise_many
from accord.runs.selection import select

TABLE = Table(
    [
        ("train", "a"),
        ("train", "b"),
        ("heldout", "a"),
        ("heldout", "b"),
        ("unseen", "u"),
        ("unseen", "empty"),
        ("test", "test"),
    ],
    np.array([10, 30, 1, 3, 5, 0, 100]),
    {
        "loss": np.array([5.0, 3.0, 1.0, 3.0, 10.0, 0.0, 50.0]),
        "accuracy": np.array([9.0, 15.0, 1.0, 0.0, 2.0, 0.0, 40.0]),
    },
)


def test_means_over_samples_and_over_clients() -> None:
    train = summarise(TABLE)["splits"]["train"]["accuracy"]
    assert train["by_sample"] == pytest.approx(24 / 40)
    assert train["by_client"] == pytest.approx((0.9 + 0.5) / 2)
    assert (train["worst"], train["q50"]) == (pytest.approx(0.5), pytest.approx(0.7))
    # of losses the largest is the worst
    assert summarise(TABLE)["splits"]["train"]["loss"]["worst"] == pytest.approx(0.5)


def test_gaps_and_clients_without_samples() -> None:
    evaluation = summarise(TABLE)
    assert evaluation["gaps"]["out_of_sample"]["accuracy"]["by_sample"] == pytest.approx(0.6 - 0.25)
    assert evaluation["gaps"]["participation"]["accuracy"]["by_sample"] == pytest.approx(0.25 - 0.4)
    assert evaluation["splits"]["unseen"]["clients"] == 1
    assert [row["client"] for row in per_client(TABLE) if row["split"] == "unseen"] == ["u"]


def history(*rows: tuple[int, float | None, float, float]) -> list[tuple[int, Evaluation]]:
    def split(value: float | None) -> dict[str, object]:
        loss = None if value is None else 1 - value
        return {"clients": 1, "samples": 1, "loss": {"by_sample": loss}, "accuracy": {"by_sample": value}}

    return [
        (
            r,
            Evaluation.from_json(
                {
                    "splits": {"heldout": split(h), "unseen": split(u), "test": split(t)},
                    "gaps": {},
                    "smaller_is_better": ["loss"],
                }
            ),
        )
        for r, h, u, t in rows
    ]


ROWS = history((5, 0.5, 0.1, 0.2), (10, 0.9, 0.2, 0.3), (15, 0.8, 0.3, 0.9), (20, 0.9, 0.4, 0.4))


@pytest.mark.parametrize("clients", [1, 2, 3, 11, 500])
def test_quantiles_have_the_bits_of_numpys(clients: int) -> None:
    values, shares = np.random.default_rng(0).exponential(size=(4, clients)), np.array([0.1, 0.5, 0.9])
    values[1, 0], values[2, -1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = [np.quantile(row, shares) for row in values]
    assert np.array_equal(quantiles(values, shares), expected, equal_nan=True)


def test_models_that_are_summarised_at_once_get_what_each_gets_alone() -> None:
    draw = np.random.default_rng(0)
    groups = [("heldout", f"c{number}") for number in range(300)] + [("test", "test")]
    samples, parts = draw.integers(0, 9, len(groups)), {"odd": set(groups[1::2])}
    tables = [
        Table(groups, samples, {name: draw.exponential(size=len(groups)) for name in ("loss", "accuracy")})
        for _ in range(20)
    ]
    alone = [summarise(table, parts) for table in tables]
    assert summarise_many(tables, parts, [None] * 20) == alone
    assert len({evaluation.score("heldout") for evaluation in alone}) == 20


def test_selection_rules_by_hand() -> None:
    assert select(ROWS, "held-out").rounds == [10]  # the earliest of equals
    assert select(ROWS, "held-out").values == {"heldout": 0.9, "unseen": 0.2, "test": 0.3}
    assert select(ROWS, "oracle").rounds == [15]
    every = [(number, evaluation) for number, (_, evaluation) in enumerate(ROWS, 1)]
    assert select(every, "oracle").rule == "oracle" != select(ROWS, "oracle").rule, "a round between may be better"
    assert select(ROWS, "last10").rounds == [15, 20]
    assert select(ROWS, "last10").values["unseen"] == pytest.approx(0.35)
    assert select(ROWS, "window(5, 10)").values["test"] == pytest.approx(0.25)


def test_rules_that_cannot_choose_say_why() -> None:
    with pytest.raises(AccordError, match="no selection rule 'best': choose one of held-out, last10, oracle"):
        select(ROWS, "best")
    with pytest.raises(AccordError, match="holds no evaluated round: rounds 5 to 20"):
        select(ROWS, "window(21,30)")
    with pytest.raises(AccordError, match="nothing was evaluated yet"):
        select([], "last10")
    without = [(r, Evaluation({"train": e.splits["test"]})) for r, e in ROWS]
    with pytest.raises(AccordError, match="no held-out data to choose a round by"):
        select(without, "held-out")


def test_of_some_metrics_less_is_better() -> None:
    table = Table(
        [("heldout", "a"), ("heldout", "b")],
        np.array([1, 1]),
        {"loss": np.array([1.0, 2.0]), "mae": np.array([3.0, 5.0])},
        frozenset({"loss", "mae"}),
    )
    evaluation = summarise(table)
    assert evaluation["splits"]["heldout"]["mae"]["worst"] == 5.0
    assert evaluation.score("heldout") == -4.0


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_model_that_diverged_is_nobodys_choice(value: float | None) -> None:
    rows = history((1, 0.1, 0.1, 0.1), (2, value, 0.2, 0.2))
    assert select(rows, "held-out").rounds == [1]
    assert np.isnan(select(rows, "last10").values["heldout"]) == (value is None or value != value)
