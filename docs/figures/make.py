"""The figures of docs/explanation/concepts.md, from accord's own numbers. Run it with: python docs/figures/make.py

Takes about half a minute on one core, and needs the [plot] extra.
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from style import BLUE, GREEN, INK, ORANGE, RED, SOFT
from torch import Tensor, nn

import accord
from accord.core.record import Record, total, votes
from accord.rules.combine import combine
from accord.rules.masks import net_share

HERE = Path(__file__).parent


def save(figure: Figure, name: str) -> None:
    path = HERE / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})  # the same bytes for the same numbers
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


# ---------------------------------------------------------------------------------------------------- a round


class Point(nn.Module):
    """A model of two numbers; a sample costs half its squared distance from the point."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor([0.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (self.at - x).square().sum(-1) / 2


def a_round() -> None:
    """Five clients' optima lie to the right, and up or down: they agree about one coordinate of two."""
    optima = torch.tensor([[2.6, 2.4], [3.0, 1.5], [2.2, -1.1], [2.9, 2.0], [3.2, -0.7]])
    fed = accord.data.from_arrays({str(n): (optima[n : n + 1], torch.zeros(1)) for n in range(5)}, heldout=0.0)
    ends: dict[bool, Tensor] = {}
    for masked in (False, True):
        algorithm = accord.fedavg(mask=accord.gma(0.4) if masked else None)
        run = accord.fit(
            Point(),
            fed,
            algorithm,
            rounds=1,
            steps=5,
            epochs=5,
            lr=0.2,
            momentum=0.0,
            loss=lambda output, target: output,
        )
        ends[masked] = run.last.vector
    deltas = (1 - 0.8**5) * optima  # five steps of gradient descent on such a bowl, from the origin
    torch.testing.assert_close(deltas.mean(0), ends[False])
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(*optima.T, "x", color=SOFT, label="what each client would like best")
    for n, delta in enumerate(deltas):
        _arrow(axes, delta, BLUE, 1.2, f"a client's update, {len(deltas)} of them" if n == 0 else None)
    _arrow(axes, ends[False], ORANGE, 3.0, "their average")
    _arrow(axes, ends[True], RED, 3.0, "the average, masked")
    axes.plot(0, 0, "o", color=INK, label="the server's model")
    axes.set(
        xlabel="first parameter: all five agree, the step is whole",
        ylabel="second: three up, two down,\nthe step is a fifth",
    )
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, "round")


def _arrow(axes: Axes, to: Tensor, colour: str, width: float, name: str | None) -> None:
    x, y = to.tolist()
    axes.annotate(
        "", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0}
    )
    axes.plot([], [], color=colour, lw=width, label=name)


# ------------------------------------------------------------------------------------- agreement and the mask


def agreement() -> None:
    """What masks make of twenty clients' votes, and the votes on a model's parameters when clients are alike and when
    they are not."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    sides = range(10, 21)  # clients for, from 10 : 10 to 20 : 0
    deltas = torch.tensor([[1.0 if client < up else -1.0 for up in sides] for client in range(20)])
    share = [(2 * up - 20) / 20 for up in sides]
    for mask, colour, style, name in (
        (accord.gma(0.4), RED, "o-", "gma(0.4): soft"),
        (accord.and_mask(0.4), BLUE, "s", "and_mask(0.4): hard"),
    ):
        made = combine(mask, deltas).mask
        assert made is not None
        left.plot(share, made.tolist(), style, color=colour, label=name, ms=7 if colour == RED else 4, lw=1)
    left.axvline(0.4, color=SOFT, lw=0.8, ls=":")
    left.annotate("tau", (0.42, 0.1), color=INK)
    left.set_xticks(share[::2], [f"{up}:{20 - up}" for up in sides[::2]])
    left.set(
        xlabel="votes of twenty clients on a coordinate's sign",
        ylabel="what the step is multiplied by",
        ylim=(-0.05, 1.08),
    )
    left.legend(frameon=False, loc="center right")
    # Ten clients make steps of 0.2, and steps of 0.1 where one of them did not move the parameter.
    deals: dict[str, dict[str, Any]] = {"iid": {}, "labels": {"classes": 2, "noise": 0.0}}
    bins = [step / 10 - 0.05 for step in range(0, 13, 2)]
    for number, (split, options) in enumerate(deals.items()):
        shares = _agreement_of_a_round(split, **options)
        counts = torch.histogram(shares, torch.tensor(bins)).hist / len(shares) * 100
        places = [place + 0.4 * (number - 0.5) for place in range(len(counts))]
        right.bar(
            places,
            counts.tolist(),
            0.38,
            color=(GREEN, ORANGE)[number],
            label=("clients alike (iid)", "two classes each (labels)")[number],
        )
    right.axvline(1.5, color=SOFT, lw=0.8, ls=":")
    right.annotate("tau", (1.55, 24.0), color=INK)
    right.set_xticks(range(6), ["0", "0.2", "0.4", "0.6", "0.8", "1"])
    right.set(xlabel="net agreement A of ten clients", ylabel="% of LeNet's parameters", ylim=(0, 42))
    right.legend(frameon=False, loc="upper right")
    save(figure, "agreement")


def _agreement_of_a_round(split: str, **options: Any) -> Tensor:
    """A of every parameter that anybody moved, in one round of ten clients from a model that was trained for ten
    rounds."""
    fed = accord.data.digits(clients=10, split=split, heldout=0.0, **options)
    model = accord.fit(accord.models.lenet(), fed, rounds=10, lr=0.05, engine="sequential").model()
    start = torch.nn.utils.parameters_to_vector(model.parameters())
    deltas = []
    for client in fed.clients:  # a federation of one client is that client's own training
        alone = accord.data.Federation(fed.x, fed.y, {client: fed.train[client]}, prepare=fed.prepare)
        deltas.append(accord.fit(model, alone, rounds=1, lr=0.05, engine="sequential").last.vector - start)
    moved = torch.stack(deltas).detach()
    return net_share(Record(votes=votes(moved), count=total(torch.ones(10, 1))))[moved.abs().sum(0) > 0]


# --------------------------------------------------------------------------------------- three-way evaluation


def three_ways() -> None:
    """Digits turned by each client its own way: what training sees, what it holds back, and whom it never met."""
    turned = accord.data.rotated(angles=(-60, -40, -20, 0, 20, 40, 60), by="client")
    fed = accord.data.digits(clients=12, split="labels", unseen=12, heldout=0.25, shift=turned)
    run = accord.fit(
        accord.models.lenet(),
        fed,
        accord.fedadam(mask=accord.gma(0.4)),
        rounds=40,
        sample=6,
        lr=0.05,
        epochs=3,
        evaluate_every=2,
    )
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    means: dict[str, list[float]] = {}
    for (split, name), colour in zip(
        (("train", "train"), ("heldout", "held-out"), ("unseen", "unseen")), (GREEN, BLUE, RED), strict=True
    ):
        means[split] = [100 * evaluation["splits"][split]["accuracy"]["by_client"] for _, evaluation in run.history]
        left.plot([number for number, _ in run.history], means[split], color=colour, label=name)
        own = [100 * client["accuracy"] for client in run.clients if client["split"] == split]
        place = 1.6 * list(means).index(split)
        right.bar(place, means[split][-1], 0.7, color=colour, alpha=0.25)
        right.plot([place + 0.3 * (n / len(own) - 0.5) for n in range(len(own))], own, ".", color=colour, ms=5)
    left.set(xlabel="round", ylabel="accuracy (%), mean over clients", ylim=(20, 101))
    left.legend(frameon=False, loc="lower right")
    last = [values[-1] for values in means.values()]
    for number, gap in enumerate(("out-of-\nsample\ngap", "partici-\npation\ngap")):
        place, high, low = 1.6 * number + 0.8, last[number], last[number + 1]
        right.annotate(
            "",
            (place, low),
            (place, high),
            arrowprops={"arrowstyle": "<->", "color": INK, "lw": 0.9, "shrinkA": 0, "shrinkB": 0},
        )
        right.text(place, low - 4, f"{gap}\n{high - low:.1f}", ha="center", va="top", fontsize=8)
    right.set_xticks([0.0, 1.6, 3.2], ["train", "held-out", "unseen"])
    right.tick_params("x", length=0)
    right.set(ylim=(0, 103), ylabel="last round; a dot is a client")
    save(figure, "three-ways")


if __name__ == "__main__":
    a_round()
    agreement()
    three_ways()
