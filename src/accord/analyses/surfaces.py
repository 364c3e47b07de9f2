"""Two clients' loss surfaces, and where each rule ends up on them (figure 1 and appendix A.1 of the workshop paper).

A client's loss has two wells: a shallow one that both share and a deep one of its own. With g(u) = exp(-|u|^2 / (2
width^2)), J(w) = 1 - shallow g(w - shared) - deep g(w - own). In the mean of both losses an own well is half as deep,
and still deeper than the shared one: who follows the mean is drawn to a point that is bad for one of the two. The rules
are accord's own; all starts go in one batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accord.analyses import style
from accord.analyses.output import Result
from accord.core.layout import Layout
from accord.core.reports import Reports
from accord.core.round import Round
from accord.engines.threads import one_thread
from accord.rules.algorithm import Algorithm
from accord.rules.masks import and_mask, gma, magnitude
from accord.rules.named import fedavg, fedgma

SHARED, OWN_A, OWN_B = (-0.5, 0.5), (0.5, -0.5), (-0.5, -0.5)
WELLS = {"shared": SHARED, "A's own": OWN_A, "B's own": OWN_B}
_NEAR = 0.1  # an end so close to a well is in it


@dataclass(frozen=True)
class Client:
    """A loss surface over two parameters."""

    own: tuple[float, float]
    shared: tuple[float, float] = SHARED
    shallow: float = 0.4
    deep: float = 1.0
    width: float = 0.25

    def loss(self, w: Tensor) -> Tensor:
        """`[..., 2]` to `[...]`."""
        return 1.0 - self.shallow * self._well(w, self.shared) - self.deep * self._well(w, self.own)

    def gradient(self, w: Tensor) -> Tensor:
        """`[..., 2]` to `[..., 2]`."""
        shared, own = self._pull(w, self.shallow, self.shared), self._pull(w, self.deep, self.own)
        return (shared + own) / self.width**2

    def _pull(self, w: Tensor, depth: float, at: tuple[float, float]) -> Tensor:
        return depth * self._well(w, at)[..., None] * (w - w.new_tensor(at))

    def _well(self, w: Tensor, at: tuple[float, float]) -> Tensor:
        return torch.exp(-(w - w.new_tensor(at)).square().sum(-1) / (2 * self.width**2))


A, B = Client(OWN_A), Client(OWN_B)


def rules(tau: float, p: float, eta_s: float) -> dict[str, Algorithm]:
    """Plain averaging, the masks, and FedGMA as first published."""
    return {
        "averaging": fedavg(),
        f"AND-mask({tau:g})": fedavg(mask=and_mask(tau)),
        f"GMA({tau:g})": fedavg(mask=gma(tau)),
        f"magnitude({tau:g})": fedavg(mask=magnitude(tau)),
        f"first FedGMA({p:g})": fedgma(p=p, eta_s=eta_s),
    }


def walk(rule: Algorithm, starts: Tensor, rounds: int, steps: int, lr: float, many: tuple[int, int] = (1, 1)) -> Tensor:
    """Where the rule takes every start `[S, 2]` in so many rounds of so many local steps of gradient descent. `many`
    clients see A's and B's surface."""
    layout, w, clients = Layout.flat(2, starts.dtype), starts.clone(), sum(many)
    # clients of one kind do the same, so each kind walks once
    whose = torch.repeat_interleave(torch.arange(2), torch.tensor(many))
    one = torch.ones(len(starts), clients, 1, dtype=w.dtype)
    memory = rule.init(layout, clients, w)
    for number in range(1, rounds + 1):
        local, last = torch.stack([w, w], 1), torch.empty(0)
        for _ in range(steps):
            last = torch.stack([A.gradient(local[:, 0]), B.gradient(local[:, 1])], 1)
            local = local - lr * last
        moved = (local - w[:, None])[:, whose]
        reports = Reports(moved, one, one * steps, one[..., :0], {"last_gradient": last[:, whose]})
        lowered, _, memory = rule.lower(rule.lift(reports, memory), memory, Round(number, layout, clients))
        change, memory = rule.step(lowered, memory)
        w = w + change
    return w


def where(ends: Tensor) -> list[str]:
    """The well that each end is in, or `none`."""
    distances = (ends[:, None] - ends.new_tensor(list(WELLS.values()))).norm(dim=-1)
    near, names = distances.min(-1), [*WELLS]
    return [names[int(i)] if float(d) <= _NEAR else "none" for d, i in zip(near.values, near.indices, strict=True)]


def grid(side: int) -> Tensor:
    """side x side points of the square from -1 to 1: `[side^2, 2]`."""
    line = torch.linspace(-1.0, 1.0, side, dtype=torch.float64)
    return torch.cartesian_prod(line, line)


def squared_gap(w_a: Tensor, w_b: Tensor, x: float = 1.0) -> Tensor:
    """Loss of the averaged model less the average of the losses, for (y - w x)^2. It does not depend on y (A.1 of the
    workshop paper)."""
    return -(x**2) * (w_a - w_b).square() / 4


def likelihood_gap(w_a: Tensor, w_b: Tensor) -> Tensor:
    """The same for -log(w x) and positive w: minus the logarithm of how far the arithmetic mean lies above the
    geometric one."""
    return -((w_a + w_b) / 2 / (w_a * w_b).sqrt()).log()


@one_thread()
def read(
    tau: float = 0.4,
    p: float = 0.8,
    eta_s: float = 0.1,
    many: tuple[int, int] = (1, 1),
    side: int = 21,
    rounds: int = 400,
    steps: int = 5,
    lr: float = 0.02,
) -> Result:
    """Every rule from every start; `many` says how many clients see A's and how many B's surface."""
    starts = grid(side)
    ends = {name: walk(rule, starts, rounds, steps, lr, many) for name, rule in rules(tau, p, eta_s).items()}
    table, points = [], []
    for name, w in ends.items():
        wells = where(w)
        shares = {f"{well} (%)": 100 * wells.count(well) / len(wells) for well in (*WELLS, "none")}
        loss_a, loss_b = A.loss(w), B.loss(w)
        both = (loss_a + loss_b) / 2
        table.append(
            {
                "rule": name,
                **shares,
                "mean loss": float(both.mean()),
                **{f"mean loss in {well}": _mean_in(well, wells, both) for well in WELLS},
                "loss of the worse": float(torch.maximum(loss_a, loss_b).mean()),
            }
        )
        for start, end, well in zip(starts.tolist(), w.tolist(), wells, strict=True):
            points.append(
                {"rule": name, "start 1": start[0], "start 2": start[1], "end 1": end[0], "end 2": end[1], "well": well}
            )
    notes = (
        f"{len(starts)} starts, {rounds} rounds of {steps} steps; {many[0]} clients see A's surface and {many[1]} B's",
        "none: the rule came to rest, or is still on its way, outside every well",
    )
    return Result("surfaces", table, points, lambda: _draw(starts, ends), notes)


def _mean_in(well: str, wells: list[str], loss: Tensor) -> float | None:
    """The loss of the ends that lie in a well, averaged; None if there is none."""
    inside = [float(value) for value, at in zip(loss, wells, strict=True) if at == well]
    return sum(inside) / len(inside) if inside else None


def _draw(starts: Tensor, ends: Mapping[str, Tensor]) -> Any:
    figure, axes = style.panels(3, 3, size=(3.1, 3.0))
    view = grid(121)
    loss_a, loss_b = A.loss(view), B.loss(view)
    for one, title, loss in zip(
        axes,
        ("Loss of client A", "Loss of client B", "Mean of both losses"),
        (loss_a, loss_b, (loss_a + loss_b) / 2),
        strict=False,
    ):
        picture = _surface(one, loss)
        one.set_title(title)
    for one, (name, w) in zip(axes[3:], ends.items(), strict=False):
        _surface(one, (loss_a + loss_b) / 2)
        one.plot(
            torch.stack([starts[:, 0], w[:, 0]]),
            torch.stack([starts[:, 1], w[:, 1]]),
            color=style.GREY,
            linewidth=0.4,
            alpha=0.6,
        )
        one.plot(
            w[:, 0], w[:, 1], "o", color=style.COLOURS[4], markeredgecolor="black", markeredgewidth=0.4, label="end"
        )
        one.set_title(f"Ends of {name}")
    _approximation(axes[8])
    figure.colorbar(picture, ax=axes[:3], label="loss", aspect=14)
    handles, names = axes[3].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    return figure


def _approximation(axes: Any) -> None:
    """How far the loss of the averaged model is from the average of the losses (A.1)."""
    apart = torch.linspace(0.0, 1.6, 81, dtype=torch.float64)
    axes.plot(apart, squared_gap(1 + apart / 2, 1 - apart / 2), color=style.COLOURS[0], label="squared error, x = 1")
    axes.plot(
        apart,
        likelihood_gap(1 + apart / 2, 1 - apart / 2),
        "--",
        color=style.COLOURS[1],
        label="-log(w x), mean of w = 1",
    )
    axes.set(
        title="Loss of the mean - mean of losses",
        xlabel="distance of the clients' w",
        ylabel="difference of losses",
        ylim=(-0.9, 0.05),
    )
    axes.legend(loc="lower left", fontsize=8)


def _surface(axes: Any, loss: Tensor) -> Any:
    side = round(len(loss) ** 0.5)
    line = torch.linspace(-1.0, 1.0, side)
    picture = axes.contourf(
        line, line, loss.view(side, side).T, levels=[0.05 * step - 0.05 for step in range(23)], cmap="Blues_r"
    )
    for (name, (x, y)), marker in zip(WELLS.items(), "*sD", strict=True):
        label = f"{name} minimum"
        axes.plot(
            x,
            y,
            marker,
            color="white",
            markeredgecolor="black",
            markersize=9 if marker == "*" else 6,
            linestyle="none",
            label=label,
        )
    axes.set(xlabel="parameter 1", ylabel="parameter 2", xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    axes.grid(visible=False)
    return picture
