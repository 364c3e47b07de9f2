"""tau as a fraction: ties that no float is equal to, one meaning for all spellings, and the way to a file and back."""

import json
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import accord
from accord import and_mask, gma, magnitude, sand
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.round import Round
from accord.experiments.experiment import parse
from accord.experiments.parts import make_algorithm
from accord.experiments.settings import AlgorithmSection, PrivacySection
from accord.experiments.sweep import read as read_sweep
from accord.rules.averages import geometric_mean, masked_gradient
from accord.rules.label import label_of
from accord.rules.masks import enough, masked, tau_at, threshold
from accord.runs.fingerprint import describe
from accord.runs.reader import find
from accord.runs.reader import load as read_run
from conftest import blobs, mlp, sentence


def record(votes: torch.Tensor, count: int) -> Record:
    """A record of so many clients with these net votes, in the types that a round has."""
    return Record(votes=Field(votes.float(), "votes"), count=Field(torch.tensor([float(count)]), "count"))


def passed(rule: Any, count: int) -> list[bool]:
    """Whether 0, 1, ... net votes of so many clients pass whole."""
    votes = torch.arange(count + 1)
    total = record(votes, count)
    state = {name: total[name].double() for name in ("votes", "count")}
    whole: list[bool] = rule.agreement(total, state, Round(1, Layout.flat(count + 1), count))[1].tolist()
    return whole


# ------------------------------------------------------------------------------------------------ mathematics


@pytest.mark.parametrize("count", range(1, 51))
def test_k_of_n_is_reached_by_exactly_k_net_votes(count: int) -> None:
    for least in range(count + 1):
        tau = Fraction(least, count)
        right = [net >= least for net in range(count + 1)]
        assert threshold(tau, count) == threshold(f"{least}/{count}", count) == least
        assert enough(record(torch.arange(count + 1), count), tau).tolist() == right
        for rule in (gma(tau), gma(f"{least}/{count}"), and_mask(tau), gma(tau, memory=0.5)):
            assert passed(rule, count) == right, rule


def test_a_float_is_the_decimal_and_misses_ties_that_a_fraction_reaches() -> None:
    six_of_seven = torch.tensor([1.0] * 6 + [-1.0])[:, None]  # a net vote of 5
    for spelled in (Fraction(5, 7), "5/7", "10/14"):
        assert accord.combine(gma(spelled), six_of_seven).mask.item() == 1.0
        assert accord.combine(and_mask(spelled), six_of_seven).mask.item() == 1.0
        assert accord.combine(sand(spelled), six_of_seven).mask.item() == 0.0  # nothing above tau
        assert accord.combine(geometric_mean(spelled), six_of_seven).update.item() != 0.0
    assert accord.combine(and_mask(5 / 7), six_of_seven).mask.item() == 0.0


def test_magnitude_reaches_a_tie() -> None:
    deltas = torch.tensor([[6.0], [-1.0]])  # |5| of 7
    assert accord.combine(magnitude("5/7"), deltas).mask.item() == 1.0
    assert accord.combine(magnitude("51/70"), deltas).mask.item() < 1.0


@settings(deadline=None, max_examples=200)
@given(tau=st.floats(0.0, 1.0), count=st.integers(1, 1000), data=st.data())
def test_a_float_decides_as_the_decimal_that_it_is_written_as(tau: float, count: int, data: st.DataObject) -> None:
    decimal = Fraction(repr(tau))
    net = data.draw(st.integers(0, count))
    near = min(max(threshold(tau, count) - data.draw(st.integers(0, 1)), 0), count)
    for votes in (net, near):
        assert enough(record(torch.tensor([votes]), count), tau).item() == (Fraction(votes, count) >= decimal)
    # what sand, magnitude and a memory of votes compare by is the float itself
    for rule in (gma(tau), sand(tau), magnitude(tau)):
        assert rule.tau is tau and float(tau_at(rule.tau, 1)) == tau


@pytest.mark.parametrize("count", [1, 7, 10, 999, 1 << 24])
@pytest.mark.parametrize(
    "tau",
    [
        Fraction(0.1),  # a numerator of 52 bits
        Fraction(1, 1 << 70),
        Fraction((1 << 70) - 1, 1 << 70),
        Fraction((1 << 38) - 1, 1 << 38),
        Fraction(1 << 38, (1 << 38) + 1),
        Fraction(1, (1 << 62) - 1),
        Fraction(0),
        Fraction(1),
    ],
)
def test_fractions_of_any_length_are_exact(tau: Fraction, count: int) -> None:
    least = -(-tau.numerator * count // tau.denominator)
    votes = torch.tensor([max(least - 1, 0), least])
    assert enough(record(votes, count), tau).tolist() == [Fraction(int(net), count) >= tau for net in votes]


@pytest.mark.parametrize("scope", ["layer", "model"])
def test_a_layer_reaches_a_tie(scope: Any) -> None:
    deltas = torch.tensor([1.0] * 6 + [-1.0])[:, None].expand(7, 3)
    assert accord.combine(gma("5/7", scope=scope), deltas).mask.tolist() == [1.0] * 3


# --------------------------------------------------------------------------------------------------- spellings


def test_all_spellings_are_one_setting() -> None:
    rules: list[tuple[Any, str]] = [
        (gma, "tau"), (and_mask, "tau"), (sand, "tau"), (magnitude, "tau"), (geometric_mean, "agree"),
        (masked_gradient, "p"),
    ]  # fmt: skip
    for make, name in rules:
        made = [make(**{name: spelled}) for spelled in (Fraction(5, 7), "5/7", "10/14")]
        assert [getattr(rule, name) for rule in made] == [Fraction(5, 7)] * 3
        assert made[0] == made[1] == made[2] and len({hash(rule) for rule in made}) == 1
        assert [describe(rule)[name] for rule in made] == ["5/7"] * 3
        assert pickle.loads(pickle.dumps(made[1])) == made[1]
    assert masked("5/7") == gma("5/7") and accord.fedgma(p="5/7").average == masked_gradient(Fraction(5, 7))
    assert gma("5/7").label == "gma(5/7)" and label_of(accord.fedavg(mask=gma("5/7"))) == "fedavg + gma(5/7)"


def test_a_float_keeps_what_is_written_of_it() -> None:
    assert describe(gma(5 / 7)) == {"kind": "gma", "tau": 5 / 7} and describe(gma(0.4)) == {"kind": "gma"}
    assert describe(gma(1.0)) == {"kind": "gma", "tau": 1} and describe(gma(Fraction(1))) != describe(gma(1.0))


@pytest.mark.parametrize(
    "tau",
    ["5/0", "a/b", "7/5", "0.4/1", "0.4", "1", "", "/", "-1/2", "5/-7", "1/2/3", "9" * 5000 + "/1", Fraction(7, 5),
     Fraction(-1, 7), True, None, 1j],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("tau", gma), ("tau", and_mask), ("tau", sand), ("tau", magnitude), ("agree", geometric_mean),
        ("p", lambda p: accord.fedgma(p=p)),
    ],
)  # fmt: skip
def test_what_is_no_share_is_refused_with_its_name(name: str, make: Any, tau: Any) -> None:
    with sentence(f"{name} must be ", repr(tau)):
        make(**{name: tau})


@pytest.mark.parametrize(
    "schedule", [lambda: accord.schedule.ramp("5/7", over=3), lambda: accord.schedule.ramp(0.0, 3, Fraction(5, 7)),
                 lambda: accord.schedule.constant(Fraction(5, 7)), lambda: accord.schedule.cosine("5/7", over=3)]
)  # fmt: skip
def test_schedules_are_of_numbers_alone(schedule: Any) -> None:
    with sentence("must be a number", "5"):
        gma(schedule())


# ------------------------------------------------------------------------------------------------------- files


def mask_of(text: str, *overrides: str) -> Any:
    return parse(f"[algorithm]\n{text}", overrides).algorithm.mask


def test_a_file_and_the_command_line_spell_it_as_text() -> None:
    assert mask_of('mask = { name = "gma", tau = "5/7" }') == gma(Fraction(5, 7))
    assert mask_of('mask = { name = "gma", tau = 0.3 }', "algorithm.mask.tau=5/7") == gma("5/7")
    assert mask_of('mask = { name = "gma", tau = "5/7" }', "algorithm.mask=and") == and_mask("5/7")
    control = 'mask = { name = "scaled", mask = { name = "gma", tau = "5/7" } }'
    assert mask_of(control) == accord.scaled(gma("5/7"))
    assert parse('[algorithm]\nname = "fedgma"\naverage = { p = "5/7" }', []).algorithm == accord.fedgma(p="5/7")
    assert type(mask_of('mask = { name = "gma", tau = 1 }').tau) is float  # as before


@pytest.mark.parametrize(
    ("tau", "told"),
    [
        ('"0.4"', "algorithm.mask.tau must be between 0 and 1, got '0.4'"),
        ('"7/5"', "algorithm.mask.tau must be between 0 and 1, got '7/5'"),
        ("[0.4]", "algorithm.mask.tau must be a number or a fraction such as"),
        ('{ from = "1/7", to = 0.4, over = 3 }', "algorithm.mask.tau.from must be a number"),
    ],
)
def test_a_file_with_a_bad_fraction(tau: str, told: str) -> None:
    with sentence(told):
        mask_of(f'mask = {{ name = "gma", tau = {tau} }}')


def test_a_sweep_takes_fractions_among_numbers(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('[algorithm]\nmask = "gma"\n[sweep]\n"algorithm.mask.tau" = [0.4, "5/7"]\n')
    assert [run.experiment.algorithm.mask for run in read_sweep(file)] == [gma(0.4), gma("5/7")]


@pytest.mark.parametrize("tau", ["5/7", "10/14", "1/1", "0/1", Fraction(0.1), 0.3])
def test_the_settings_of_a_run_make_it_again(tau: Any, tmp_path: Path) -> None:
    algorithm = accord.fedavg(mask=accord.scaled(gma(tau)))
    run = accord.fit(mlp(), blobs(), algorithm, rounds=1, folder=tmp_path, engine="sequential", verbose=False)
    again = accord.fit(
        mlp(), blobs(), accord.fedavg(mask=accord.scaled(gma(algorithm.mask.mask.tau))), rounds=1, folder=tmp_path,
        engine="sequential", verbose=False,
    )  # fmt: skip
    assert again.folder == run.folder and len(find([tmp_path])) == 1
    kept = json.loads((run.folder / "experiment.json").read_text())["algorithm"]
    spelled = kept["mask"]["mask"]["tau"]
    assert type(spelled) is (float if isinstance(tau, float) else str)
    made = make_algorithm(
        AlgorithmSection.model_validate(read_run(run.folder).settings.algorithm), PrivacySection(), None
    )
    assert made == algorithm
    tau_as_toml = json.dumps(spelled)
    assert mask_of(f'mask = {{ name = "scaled", mask = {{ name = "gma", tau = {tau_as_toml} }} }}') == algorithm.mask
    assert label_of(algorithm) in accord.load(run.folder, model=mlp()).title


def test_two_spellings_are_one_run(tmp_path: Path) -> None:
    folders = {
        accord.fit(mlp(), blobs(), accord.fedavg(mask=gma(tau)), rounds=1, folder=tmp_path, verbose=False).folder
        for tau in ("5/7", Fraction(5, 7), "10/14")
    }
    assert len(folders) == 1
