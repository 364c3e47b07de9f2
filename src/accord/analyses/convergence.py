"""How does a random mask slow training down? The convergence propositions, by simulation (docs/explanation/theory.md).

The setting (proposition 4.8 of the TMLR paper). The mask keeps each coordinate of a step with probability alpha,
independently of everything else. That is an assumption, and not what gradient masked averaging does, whose mask is made
of the very updates it acts on.

The problem. Client n has f_n(w) = sum over j of 1 - cos((Q w)_j - b_nj), Q a rotation: smooth, bounded in gradient, and
not convex. A mean of cosines is a cosine, so the federation's loss is known in closed form, f(w) = sum over j of 1 -
R_j cos((Q w)_j - phi_j), with R_j and phi_j length and angle of the mean of exp(i b_nj): its lowest value is sum (1 -
R_j), and its gradient's Lipschitz constant L = max R_j. Gradients carry Gaussian noise, of variance sigma^2 in their
mean over clients, all coordinates together.

What the papers say, and what needs care:

1. TMLR, proposition 4.8: with a step of at most 0.001 alpha / (K L), K local steps,
       mean over rounds of |grad f|^2 <= 8 (f(w_0) - f*) / (alpha eta K T) + 80 L eta sigma^2 / alpha,
   and so O(1 / (alpha sqrt(T)) + 1 / (alpha^2 T)). It is an upper bound and holds here with much to spare. Its proof
   drops the mask from |mask x update|^2; that is why the step must shrink with alpha, and where the second alpha comes
   from. (The proof's descent term has the factor K - 1, so for one local step it says nothing.) Keep the mask there
   and, for one local step of eta <= 1 / L,
       mean over rounds of |grad f|^2 <= 2 (f(w_0) - f*) / (alpha eta T) + L eta sigma^2:
   a mask that keeps a share alpha costs 1 / alpha times the rounds, and its step need not shrink. The middle panel has
   both slopes.
2. Thesis, proposition 3.3.6: min over rounds of |mask x grad f|^2 <= 2 L (f(w_0) - f(w_T)) / T + an error term, at
   eta = 1 / (2 L). Its proof has (eta - L eta^2) / 2 in front of the sum and puts 1 / (2 L) for eta - L eta^2, which
   is 1 / (4 L): the constant must be 8 L. Where updates are exact gradients there is no error term, and then 2 L is
   violated by the first step on a parabola, by 4 : 3. The best constant is 8 L / 3 there (right panel): a step of 1 /
   (2 L) lowers f by (eta - L eta^2 / 2) |mask x grad f|^2 = 3 / (8 L) of that or more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import torch
from torch import Tensor

from accord.analyses import style
from accord.analyses.output import Result
from accord.core.errors import AccordError
from accord.engines.threads import one_thread


@dataclass(frozen=True)
class Problem:
    """The federation's loss in closed form, and its clients' gradients."""

    rotation: Tensor  # Q: [d, d]
    angles: Tensor  # b: [N, d]

    @staticmethod
    def drawn(clients: int = 8, size: int = 20, seed: int = 0) -> "Problem":
        draw = torch.Generator().manual_seed(seed)
        rotation, _ = torch.linalg.qr(torch.randn(size, size, generator=draw, dtype=torch.float64))
        return Problem(rotation, torch.randn(clients, size, generator=draw, dtype=torch.float64))

    @property
    def mean(self) -> Tensor:
        """R exp(i phi): [d]."""
        return torch.polar(torch.ones_like(self.angles), self.angles).mean(0)

    @property
    def smoothness(self) -> float:
        """L."""
        return float(self.mean.abs().max())

    @property
    def lowest(self) -> float:
        return float((1 - self.mean.abs()).sum())

    def loss(self, w: Tensor) -> Tensor:
        """`[..., d]` to `[...]`."""
        return (1 - self.mean.abs() * torch.cos(w @ self.rotation.T - self.mean.angle())).sum(-1)

    def gradient(self, w: Tensor) -> Tensor:
        """`[..., d]` to `[..., d]`."""
        return (self.mean.abs() * torch.sin(w @ self.rotation.T - self.mean.angle())) @ self.rotation

    def client_gradients(self, w: Tensor) -> Tensor:
        """At every client's own w: `[S, N, d]` to the same."""
        return torch.sin(w @ self.rotation.T - self.angles) @ self.rotation


@dataclass(frozen=True)
class Trace:
    """Squared norms of the gradient and of its masked part where a round starts, `[T, S]` for S trials, and the loss,
    `[T + 1, S]`."""

    gradient: Tensor
    masked: Tensor
    loss: Tensor


def simulate(
    problem: Problem,
    alpha: float,
    eta: float,
    rounds: int,
    trials: int = 64,
    local: int = 1,
    sigma: float = 0.0,
    seed: int = 0,
) -> Trace:
    """FedAvg with `local` steps of `eta` and a Bernoulli mask on the averaged update, many trials from starts of their
    own at once."""
    draw = torch.Generator().manual_seed(seed)
    size, clients = problem.angles.shape[1], len(problem.angles)
    w = 2 * torch.randn(trials, size, generator=draw, dtype=torch.float64)
    # of a client's coordinate; the mean over clients then has sigma in all coordinates together
    noise = sigma * (clients / size) ** 0.5
    gradients, masked, losses = [], [], [problem.loss(w)]
    for _ in range(rounds):
        mask = (torch.rand(trials, size, generator=draw, dtype=torch.float64) < alpha).double()
        gradient = problem.gradient(w)
        gradients.append(gradient.square().sum(-1))
        masked.append((mask * gradient).square().sum(-1))
        client_w = w[:, None].expand(-1, clients, -1)
        for _ in range(local):
            step = problem.client_gradients(client_w)
            if sigma:
                step = step + noise * torch.randn(step.shape, generator=draw, dtype=torch.float64)
            client_w = client_w - eta * step
        w = w + mask * (client_w.mean(1) - w)
        losses.append(problem.loss(w))
    return Trace(torch.stack(gradients), torch.stack(masked), torch.stack(losses))


def sharp(problem: Problem, trace: Trace, alpha: float, eta: float, sigma: float) -> Tensor:
    """The bound for one local step, after every number of rounds: [T]."""
    rounds = torch.arange(1, len(trace.gradient) + 1)
    return 2 * (trace.loss[0].mean() - problem.lowest) / (alpha * eta * rounds) + problem.smoothness * eta * sigma**2


def printed(problem: Problem, trace: Trace, alpha: float, eta: float, sigma: float, local: int = 1) -> Tensor:
    """The bound of the TMLR paper before its step is chosen: [T]. Proven for a step of at most 0.001 alpha / (K L)."""
    rounds = torch.arange(1, len(trace.gradient) + 1)
    return (
        8 * (trace.loss[0].mean() - problem.lowest) / (alpha * eta * local * rounds)
        + 80 * problem.smoothness * eta * sigma**2 / alpha
    )


def running_mean(values: Tensor) -> Tensor:
    """`[T, S]` to `[T]`: the mean over trials and over the rounds so far."""
    return values.mean(-1).cumsum(0) / torch.arange(1, len(values) + 1)


def rounds_until(trace: Trace, share: float) -> float:
    """Rounds until the mean squared gradient is below this share of its first value; NaN if it never is."""
    below = (trace.gradient.mean(-1) <= share * trace.gradient[0].mean()).nonzero()
    return float(below[0]) + 1 if len(below) else float("nan")


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the straight line through the logarithms."""
    across, up = [log(value) for value in x], [log(value) for value in y]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    return sum((a - middle) * (b - height) for a, b in zip(across, up, strict=True)) / sum(
        (a - middle) ** 2 for a in across
    )


def constant(trace: Trace, smoothness: float) -> Tensor:
    """The constant c with which min |mask x grad|^2 <= c L (f(w_0) - f(w_T)) / T would be an equality, for every T:
    [T]."""
    rounds = torch.arange(1, len(trace.masked) + 1)
    least = trace.masked.cummin(0).values.mean(-1)
    return least * rounds / (smoothness * (trace.loss[0] - trace.loss[1:]).mean(-1))


def parabola(rounds: int) -> Tensor:
    """The same constant on f(w) = w^2 / 2 with nothing masked and eta = 1 / (2 L): [T]."""
    w = 0.5 ** torch.arange(rounds + 1, dtype=torch.float64)
    squares = w[:-1].square()
    return squares.cummin(0).values * torch.arange(1, rounds + 1) / ((w[0].square() - w[1:].square()) / 2)


@one_thread()
def read(
    alphas: Sequence[float] = (0.1, 0.2, 0.4, 0.7, 1.0),
    rounds: int = 1000,
    trials: int = 64,
    sigma: float = 0.5,
    local: int = 1,
) -> Result:
    """Bounds and simulations for every alpha. `sigma` is the noise of the averaged gradient, all coordinates together;
    the sharper bound is for one `local` step."""
    if not alphas or len(set(alphas)) < len(alphas) or not all(0 < alpha <= 1 for alpha in alphas):
        raise AccordError(f"alphas must be different shares above 0 and at most 1, got {', '.join(map(str, alphas))}")
    problem = Problem.drawn()
    eta = 0.1 / (problem.smoothness * local)
    traces: dict[float, Trace] = {}
    until: dict[str, list[float]] = {"step fixed": [], "step as alpha": []}
    table, points = [], []
    for alpha in alphas:
        trace = traces[alpha] = simulate(problem, alpha, eta, rounds, trials, local, sigma)
        enough = round(200 / alpha)
        quiet = simulate(problem, alpha, eta, enough, trials, local)
        short = simulate(problem, alpha, alpha * eta, round(enough / alpha), 8, local)
        until["step fixed"].append(rounds_until(quiet, 0.01))
        until["step as alpha"].append(rounds_until(short, 0.01))
        curves = {
            "mean |grad|^2": running_mean(trace.gradient),
            "bound, one local step": sharp(problem, trace, alpha, eta, sigma),
            "bound, printed": printed(problem, trace, alpha, eta, sigma, local),
        }
        points += [
            {"alpha": alpha, "rounds": number + 1, **{name: float(curve[number]) for name, curve in curves.items()}}
            for number in range(rounds)
        ]
        table.append(
            {
                **points[-1],
                **{f"rounds to a hundredth, {name}": values[-1] for name, values in until.items()},
                # where f falls by 3 / (8 L) of |mask x grad f|^2, whatever the mask keeps
                "3.3.6 on a parabola: L times": float(parabola(1)[0]),
                "3.3.6, printed: L times": 2.0,
            }
        )
    slopes = {name: slope(alphas, values) for name, values in until.items()} if len(alphas) > 1 else {}
    grow = ", ".join(f"{value:.2f} ({name})" for name, value in slopes.items())
    notes = (f"rounds grow as alpha to the power {grow}",) if slopes else ()
    return Result(
        "convergence_in_alpha", table, points, lambda: _draw(problem, traces, eta, sigma, trials, until, slopes), notes
    )


def _draw(
    problem: Problem,
    traces: dict[float, Trace],
    eta: float,
    sigma: float,
    trials: int,
    until: dict[str, list[float]],
    slopes: dict[str, float],
) -> Any:
    from matplotlib import colormaps

    figure, (left, middle, right) = style.panels(3, size=(4.4, 3.8))
    for number, (alpha, trace) in enumerate(traces.items()):
        shade = colormaps["viridis_r"](0.1 + 0.9 * number / max(1, len(traces) - 1))
        rounds = range(1, len(trace.gradient) + 1)
        left.loglog(rounds, running_mean(trace.gradient), color=shade, label=f"{alpha:g}")
        left.loglog(rounds, sharp(problem, trace, alpha, eta, sigma), "--", color=shade, linewidth=0.9)
    left.set(
        title="Lines: measured; dashed: bound, one local step",
        xlabel="rounds T",
        ylabel="mean of |grad f|² over T rounds",
    )
    left.legend(title="alpha", ncols=2, loc="upper right")
    for (name, values), colour, marker in zip(until.items(), style.COLOURS, "os", strict=False):
        text = f"{name}: slope {slopes[name]:.2f}" if slopes else name
        middle.loglog(list(traces), values, marker=marker, color=colour, label=text)
    middle.set(
        title="The price of alpha, without noise",
        xlabel="alpha, share of coordinates kept",
        ylabel="rounds until |grad f|² is at 1 %",
    )
    middle.legend()
    exact = simulate(problem, 0.5, 1 / (2 * problem.smoothness), 30, trials)
    right.plot(
        range(1, 31), constant(exact, problem.smoothness), color=style.COLOURS[0], label="this problem, alpha = 0.5"
    )
    right.plot(range(1, 31), parabola(30), "o-", color=style.COLOURS[4], label="a parabola, nothing masked")
    for value, text, colour in (
        (2, "2, printed", style.COLOURS[1]),
        (8 / 3, "8 / 3, best", style.COLOURS[2]),
        (8, "8, the printed proof", style.GREY),
    ):
        right.axhline(value, linestyle="--", linewidth=1.0, color=colour, label=text)
    right.set(
        title="Thesis, 3.3.6: the constant that is needed",
        xlabel="rounds T",
        ylabel="constant, in units of L",
        ylim=(0, 9),
    )
    right.legend(loc="center right")
    return figure
