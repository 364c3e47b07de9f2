"""The sections and keys of an experiment file: types, defaults, what each key is for, and a sentence for what does not
fit.

Bounds stand here only where nothing else would check a number before data is fetched: a mask checks its tau, a schedule
its rates.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from accord.core.errors import did_you_mean, nearest
from accord.rules.old_spelling import MOVED
from accord.rules.schema import takes

Whole = int | Literal["all"]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Section(BaseModel):
    """A table of the file: no unknown keys, no silent conversions, no numbers beyond all bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _listed(value: Any) -> Any:
    """A single number or word where a list belongs is a list of one."""
    return [value] if isinstance(value, str | int | float) and not isinstance(value, bool) else value


class DataSection(Section):
    """[data]: which set, dealt to whom."""

    name: str = Field("mnist", description="the data set; `accord data list` has them all")
    clients: int | None = Field(
        None, ge=1, description="clients that take part in training; left out, 100, or all where they are natural"
    )
    split: str | None = Field(
        None,
        description=(
            "who gets what: iid, labels, exact, dirichlet, quantity, or natural; left out, natural where data is by"
            " client"
        ),
    )
    classes: int | None = Field(None, ge=1, description="labels, exact: main classes per client")
    noise: float | None = Field(None, ge=0, le=1, description="labels: share of the data dealt evenly to all clients")
    alpha: float | None = Field(None, gt=0, description="dirichlet: small values give each client few classes")
    beta: float | None = Field(None, gt=0, description="quantity: small values give clients of very different sizes")
    population: str | None = Field(
        None, description="natural: only clients of this group take part, the others are unseen"
    )
    unseen: int | None = Field(
        None,
        ge=0,
        description=(
            "further clients that never train and are only evaluated on; left out, none, or all others where natural"
        ),
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="part of the training data that clients get where they are made up; left out, all of it",
    )
    heldout: float = Field(0.1, ge=0, lt=1, description="share of a participating client's data kept for evaluation")
    shift: str | None = Field(
        None,
        description=(
            "what looks different at every client: none, coloured, two-by-two, binary, rotated; left out, the data"
            " set's own"
        ),
    )
    palette: str | None = Field(
        None, description="coloured: each client its own colours (client), or all the same (shared)"
    )
    palettes: int | None = Field(
        None,
        description=(
            "coloured: so many different palettes, which clients take in turn; 1: all the same; left out, see palette"
        ),
    )
    colours: int | None = Field(None, description="coloured: colours of a class at a client")
    background: bool | None = Field(None, description="coloured: colour the background too")
    flip_low: float | None = Field(None, description="binary: how often colour and label disagree at the first client")
    flip_high: float | None = Field(None, description="binary: how often at the last client")
    flip_test: float | None = Field(None, description="binary: how often in the test set")
    angles: list[float] | None = Field(None, description="rotated: degrees, counter-clockwise")
    by: str | None = Field(None, description="rotated: an angle for each class, or one for each client")
    augment: str | None = Field(None, description="how training pictures are varied: none, crop, flip or crop-flip")
    pad: int | None = Field(None, description="crop, crop-flip: black pixels around a picture before it is cropped")
    tests: list[str] = Field([], description="further test sets: .npz files with x and y, known by their names")
    client: str | None = Field(None, description="table: the column of clients")
    label: str | None = Field(None, description="table: the column of labels")
    size: int | None = Field(None, ge=1, description="folder: pictures are resized to so many pixels a side")
    channels: int | None = Field(None, description="folder: 1 for grey, 3 for colour")
    seed: Seed | None = Field(None, description="seed of the deal; the run's own if left out")
    source: str | None = Field(None, description="a folder that holds the data set's files, or your own file or folder")

    @field_validator("tests", "angles", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return _listed(value)


class ModelSection(Section):
    """[model]: which network."""

    name: str = Field(
        "lenet", description="the network: lenet, cnn, logistic, mlp, resnet18, leaf-cnn or corrective-cnn"
    )
    width: int | None = Field(None, ge=1, description="cnn: channels of the first convolution")
    hidden: int | None = Field(None, ge=1, description="cnn, mlp: units of the hidden layer")
    dropout: float | None = Field(None, ge=0, lt=1, description="cnn: share dropped before the hidden layer")
    norm: str | None = Field(None, description="resnet18: group or batch normalisation")
    groups: int | None = Field(None, ge=1, description="resnet18: groups of group normalisation")
    start: str | None = Field(None, description="a safetensors file with the weights to start from")


class TrainSection(Section):
    """[train]: rounds and local work."""

    rounds: int = Field(100, description="rounds of training")
    sample: Whole = Field("all", description="clients per round")
    epochs: int = Field(1, description="passes over its data a client makes per round")
    batch: Whole = Field(32, description="samples per local step")
    steps: Whole | None = Field(
        None, description="at most so many local steps per round, whatever the epochs; all, or left out: no limit"
    )
    lr: float = Field(0.01, description="the clients' learning rate")
    schedule: str = Field("constant", description="how lr goes over rounds: constant, exponential, steps or cosine")
    decay: float | None = Field(None, description="exponential, steps: factor of lr")
    every: int | None = Field(None, description="steps: rounds between two decays")
    over: int | None = Field(None, description="cosine: rounds in which lr falls to the floor")
    floor: float | None = Field(None, description="cosine: the lowest lr")
    momentum: float = Field(0.9, description="the clients' momentum, which starts anew every round")
    weight_decay: float = Field(0.0, description="the clients' weight decay")
    clip: float | None = Field(
        None, description="largest norm of a local step's gradient; left out, nothing is clipped"
    )
    evaluate_every: int = Field(10, description="rounds between two evaluations")
    until_flat: int | None = Field(
        None,
        description=(
            "rounds without a better figure on held-out data after which a run is done; left out, it does all its"
            " rounds"
        ),
    )
    flat_margin: float | None = Field(
        None, description="until_flat: by how much a figure must be better to count; left out, 0.001"
    )
    min_clients: int = Field(1, description="a round with fewer reports is skipped")
    available: float = Field(1.0, description="probability that a client can be sampled in a round")
    lost: float = Field(0.0, description="probability that a client's report never arrives")
    stragglers: float = Field(0.0, description="probability that a client gets only part of its steps done")
    least: float = Field(0.1, description="the smallest part of its steps a straggler gets done")


Part = str | dict[str, Any]  # a name, or a table with a name and the part's own fields


class AlgorithmSection(Section):
    """[algorithm]: a preset, and tables in the place of its parts. The fields of a part are those of its dataclass: see
    `parts`."""

    name: str = Field(
        "fedavg",
        description=(
            "a preset of all four parts: fedavg, fedsgd, fedprox, scaffold, fedavgm, fedadagrad, fedadam, fedyogi,"
            " fedgma, causalfed, pooled or local_only"
        ),
    )
    local: Part | None = Field(
        None, description="what clients do: sgd, prox, control_variates, own_model, or module:object of yours"
    )
    average: Part | None = Field(
        None,
        description=(
            "what makes one update of the clients': mean, geometric_mean, median, trimmed_mean, krum, corrective, or"
            " module:object"
        ),
    )
    mask: Part | None = Field(
        None,
        description=(
            "how coordinates on which clients disagree are held back: none, gma, and, sand, magnitude, scaled, or"
            " module:object"
        ),
    )
    server: Part | None = Field(
        None, description="what the server does with the update: step, momentum, adagrad, adam, yogi, or module:object"
    )


class AttackSection(Section):
    """[attack]: clients that harm. There are none without the section."""

    name: str = Field("none", description="what attackers do: none, sign_flip, scaled, noise or label_flip")
    share: float | None = Field(None, description="share of all participating clients that attack")
    factor: float | None = Field(
        None, description="sign_flip, scaled, noise: how much longer an attacker's update is than what it learnt"
    )


class PrivacySection(Section):
    """[privacy]: user-level differential privacy. There is none without the section; with it, clip and noise are
    needed."""

    clip: float | None = Field(None, description="largest norm of a client's update, which is scaled down to it")
    noise: float | None = Field(None, description="noise on the summed update: its standard deviation in units of clip")
    delta: float | None = Field(None, description="the chance that the guarantee of epsilon fails; left out, 1e-5")
    vote_noise: float | None = Field(
        None,
        description=(
            "noise on the votes, in units of the root of the parameter count; left out, the mask is told from the"
            " noised sum"
        ),
    )


class RunSection(Section):
    """[run]: seeds, machine, place. Nothing here but the seeds, and the precision that `speed` may lower, changes a
    result."""

    seeds: list[Seed] = Field([0], min_length=1, description="one run per seed")
    engine: str = Field("auto", description="what trains the clients: auto, sequential, processes, vectorised or ray")
    device: str = Field("auto", description="auto, cpu or cuda")
    speed: list[str] = Field(
        [], description="ways to be faster that cost something: native, compile, channels-last, bf16"
    )
    log: list[str] = Field([], description="programs that are told how the run goes: tensorboard, mlflow, wandb")
    folder: str = Field("runs", min_length=1, description="where run folders go")
    checkpoint_every: int | None = Field(
        None, ge=1, description="rounds between two checkpoints; left out, one every ten seconds"
    )
    budget: float | None = Field(
        None, gt=0, description="seconds per run; a run that spends them stops and can be resumed"
    )

    @field_validator("seeds", "speed", "log", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return _listed(value)


class Settings(Section):
    """The whole file."""

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    attack: AttackSection = AttackSection()
    privacy: PrivacySection = PrivacySection()
    run: RunSection = RunSection()


SECTIONS: dict[str, type[Section]] = {name: type(field.default) for name, field in Settings.model_fields.items()}


# ------------------------------------------------------------------------------------------ what does not fit


def problems(error: ValidationError) -> str:
    """A sentence for each thing that does not fit: the key, what it takes, the value seen, what the key is for."""
    return "\n".join(dict.fromkeys(_sentence(problem) for problem in error.errors()))


def shown(value: Any) -> str:
    """A value as an experiment file spells it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _sentence(problem: Any) -> str:
    section, *path = problem["loc"]
    seen = problem["input"]
    if section == "sweep":
        return "[sweep] makes this file a grid of runs: train it with `accord sweep`, or take the table out"
    if section not in SECTIONS:
        return f"[{section}] is not a section of an experiment: {did_you_mean(str(section), SECTIONS)}"
    if not path:
        return (
            f"{section} must be a section, got {shown(seen)}: write [{section}] on a line of its own, and its keys"
            " below it"
        )
    key, fields = str(path[0]), SECTIONS[section].model_fields
    if key not in fields:
        return f"{section}.{key} is not a known key, got {shown(seen)}: {_meant(section, key)}"
    field = fields[key]
    wanted = takes(field.annotation, field.metadata)
    if problem["type"] == "finite_number":
        wanted = wanted.replace("a number", "a finite number")
    return f"{section}.{key} must be {wanted}, got {shown(seen)} ({field.description})"


def _meant(section: str, key: str) -> str:
    """Which key was probably meant; of [algorithm], maybe one of a part."""
    fields = SECTIONS[section].model_fields
    inner = nearest(key, MOVED) if section == "algorithm" and not nearest(key, fields) else None
    return f"did you mean {MOVED[inner]!r}?" if inner else did_you_mean(key, fields)
