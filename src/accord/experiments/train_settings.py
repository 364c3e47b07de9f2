"""The section [train] of an experiment file."""

from typing import Annotated

from pydantic import Field

from accord.experiments.section import OneOrMore, Section, Whole, Words


class TrainSection(Section):
    """[train]: rounds and local work."""

    rounds: int = Field(100, description="rounds of training")
    sample: Whole = Field("all", description="clients per round")
    epochs: int = Field(1, description="passes over its data a client makes per round")
    batch: Whole = Field(32, description="samples per local step")
    steps: Whole | None = Field(
        None, description="largest number of local steps per round, whatever the epochs; left out or all: no limit"
    )
    lr: float = Field(0.01, description="the clients' learning rate")
    schedule: str = Field("constant", description="schedule of lr over rounds: constant, exponential, steps or cosine")
    decay: float | None = Field(None, description="exponential, steps: factor of lr")
    every: int | None = Field(None, description="steps: rounds between two decays")
    over: int | None = Field(None, description="cosine: rounds until lr reaches the floor")
    floor: float | None = Field(None, description="cosine: the lowest lr")
    optimiser: str = Field("sgd", description="the clients' optimiser, fresh every round: sgd, adam or adamw")
    momentum: float | None = Field(None, description="sgd: momentum; left out: 0.9")
    weight_decay: float | None = Field(
        None, description="weight decay, of adamw decoupled from the gradient; left out: 0, or 0.01 of adamw"
    )
    betas: Annotated[list[float] | None, OneOrMore] = Field(
        None, description="adam, adamw: what is kept of the mean gradient and mean square; left out: [0.9, 0.999]"
    )
    eps: float | None = Field(None, description="adam, adamw: added to the root of the mean square; left out: 1e-8")
    clip: float | None = Field(None, description="largest norm of a local step's gradient; left out: no clipping")
    evaluate_every: int = Field(10, description="rounds between two evaluations")
    evaluate_at: Words = Field(
        [],
        description=(
            "rounds to evaluate instead: log (dense early), last10, window(a,b), or several of these; left out: every"
            " evaluate_every"
        ),
    )
    evaluate_samples: int | None = Field(
        None, description="training samples that an evaluation reads, a fixed draw of at most so many; left out: all"
    )
    metrics: Words = Field(
        [],
        description=(
            "what is measured, the first one judges: accuracy, auc, average_precision, balanced_accuracy,"
            " calibration_error, f1, mae, perplexity, r2, or your module:object; left out: accuracy, or the loss of a"
            " regression"
        ),
    )
    adapt_steps: int | None = Field(
        None,
        description=(
            "unseen clients are also evaluated after so many local steps on a half of their data, on the rest; left"
            " out: they are not"
        ),
    )
    patience: int | None = Field(
        None,
        description=(
            "early stopping: a run ends after so many rounds without improvement on held-out data; left out: never"
        ),
    )
    min_delta: float | None = Field(
        None, description="patience: the smallest gain on held-out data that counts as an improvement; left out: 0.001"
    )
    min_clients: int = Field(1, description="a round with fewer reports is skipped")
    available: float = Field(1.0, description="probability that a client can be sampled in a round")
    lost: float = Field(0.0, description="probability that a client's report never arrives")
    stragglers: float = Field(0.0, description="probability that a client does only a part of its steps")
    least: float = Field(0.1, description="the smallest share of its steps that a straggler does")
