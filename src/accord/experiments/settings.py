"""The sections and keys of an experiment file: types, defaults, and what each key is for.

Bounds stand here only where nothing else would check a number before data is fetched: a mask checks its tau, a schedule
its rates.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from accord.experiments.section import OneOrMore, Section, Seed, Words
from accord.experiments.train_settings import TrainSection

Count = Annotated[int, Field(ge=0)]
Names = Annotated[list[str], Field(min_length=1)]


def _named(value: Any) -> Any:
    """Clients by name: a single one is a list of one, and a number in a list is a name."""
    if isinstance(value, list):
        return [str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in value]
    return [value] if isinstance(value, str) and value != "each" else value


class DataSection(Section):
    """[data]: which set, dealt to whom."""

    name: str = Field("mnist", description="the data set; `accord data list` has them all")
    clients: int | None = Field(
        None, ge=1, description="clients that take part in training; left out: 100, or all natural ones"
    )
    split: str | None = Field(
        None,
        description=(
            "how samples are split over clients: iid, labels, exact, dirichlet, quantity or natural; left out: natural"
            " where the data has owners, else iid"
        ),
    )
    classes: int | None = Field(None, ge=1, description="labels, exact: main classes per client")
    noise: float | None = Field(
        None, ge=0, le=1, description="labels: share of the data that is split evenly over all clients"
    )
    alpha: float | None = Field(
        None, gt=0, description="dirichlet: concentration; small values give each client few classes"
    )
    beta: float | None = Field(
        None, gt=0, description="quantity: concentration; small values give clients of very different sizes"
    )
    population: str | None = Field(
        None, description="natural: only clients of this group take part; the others are unseen"
    )
    unseen: Annotated[Count | Literal["each"] | Names | None, BeforeValidator(_named)] = Field(
        None,
        description=(
            "clients that never train and are only evaluated on: how many further ones, which by name, or each in turn"
            " (each: one run per client); left out: none, or all other natural ones"
        ),
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the training data that is split over clients; left out: all of it",
    )
    heldout: float = Field(0.1, ge=0, lt=1, description="share of a participating client's data kept for evaluation")
    shift: str | None = Field(
        None,
        description=(
            "how clients' samples differ in look: none, coloured, two-by-two, binary or rotated; left out: the data"
            " set's own"
        ),
    )
    palette: str | None = Field(
        None, description="coloured: colours of its own for each client (client), or the same for all (shared)"
    )
    palettes: int | None = Field(
        None,
        description=("coloured: number of different palettes, which clients take in turn; left out: as `palette` says"),
    )
    colours: int | None = Field(None, description="coloured: colours per class and client")
    background: bool | None = Field(None, description="coloured: colour the background too")
    flip_low: float | None = Field(
        None, description="binary: share of samples whose colour and label disagree, at the first client"
    )
    flip_high: float | None = Field(None, description="binary: the same at the last client")
    flip_test: float | None = Field(None, description="binary: the same in the test set")
    angles: Annotated[list[float] | None, OneOrMore] = Field(
        None, description="rotated: angles in degrees, counter-clockwise"
    )
    by: str | None = Field(None, description="rotated: an angle for each class (class) or for each client (client)")
    augment: str | None = Field(None, description="augmentation of training pictures: none, crop, flip or crop-flip")
    pad: int | None = Field(None, description="crop, crop-flip: black pixels around a picture before it is cropped")
    tests: Words = Field([], description="further test sets: .npz files with x and y, reported under the files' names")
    client: str | None = Field(None, description="table, huggingface: the column of clients")
    label: str | None = Field(None, description="table, huggingface: the column of labels")
    missing: str | None = Field(
        None,
        description=(
            "table: what stands for a missing number: mean, median (of the training clients), zero, or refuse; a"
            " further input says where it stands"
        ),
    )
    categories: Annotated[list[str], OneOrMore] | dict[str, list[str]] | None = Field(
        None,
        description=(
            "table: columns of categories, whose levels may be numbers, or their levels by column; columns of text need"
            " not be named"
        ),
    )
    drop: Words | None = Field(None, description="table: columns that are not read, such as ids and dates")
    size: int | None = Field(
        None, ge=1, description="folder: width and height of pictures in pixels, which are resized to it"
    )
    channels: int | None = Field(None, description="folder: 1 for grey, 3 for colour")
    seed: Seed | None = Field(None, description="seed of the split; left out: the run's seed")
    source: str | None = Field(
        None,
        description=(
            "a folder that holds the data set's files, or your own file or folder, by a path from here or from the"
            " experiment file's folder"
        ),
    )


class ModelSection(Section):
    """[model]: which network."""

    name: str = Field(
        "lenet", description="the network: lenet, cnn, logistic, mlp, resnet18, leaf-cnn or corrective-cnn"
    )
    width: int | None = Field(None, ge=1, description="cnn: channels of the first convolution")
    hidden: int | None = Field(None, ge=1, description="cnn, mlp: units of the hidden layer")
    dropout: float | None = Field(None, ge=0, lt=1, description="cnn: share dropped before the hidden layer")
    norm: str | None = Field(None, description="resnet18: group or batch normalisation; cnn: none or batch")
    groups: int | None = Field(None, ge=1, description="resnet18: groups of group normalisation")
    start: str | None = Field(None, description="a safetensors file with the weights to start from")


Part = str | dict[str, Any]  # a name, or a table with a name and the part's own fields


class AlgorithmSection(Section):
    """[algorithm]: a preset, and tables in the place of its parts. The fields of a part are those of its dataclass: see
    `parts`."""

    name: str = Field(
        "fedavg",
        description=(
            "a preset of all four parts: fedavg, fedsgd, fedprox, scaffold, ditto, fedavgm, fedadagrad, fedadam,"
            " fedyogi, fedgma, causalfed, pooled or local_only"
        ),
    )
    local: Part | None = Field(
        None, description="what clients do: sgd, prox, control_variates, ditto, own_model, or your module:object"
    )
    personal: Words = Field(
        [],
        description=(
            "parameters and buffers that stay with each client, by name (head.*) or kind of layer (batchnorm, norm,"
            " last); left out: all are shared"
        ),
    )
    average: Part | None = Field(
        None,
        description=(
            "how the clients' updates become one: mean, geometric_mean, median, trimmed_mean, krum, corrective, or"
            " your module:object"
        ),
    )
    mask: Part | None = Field(
        None,
        description=(
            "how far each coordinate of the step is trusted: none, gma, and, sand, magnitude, scaled, or your"
            " module:object"
        ),
    )
    server: Part | None = Field(
        None,
        description="how the server steps along the update: step, momentum, adagrad, adam, yogi, or your module:object",
    )


class AttackSection(Section):
    """[attack]: malicious clients. There are none without the section."""

    name: str = Field("none", description="what attackers do: none, sign_flip, scaled, noise or label_flip")
    share: float | None = Field(None, description="share of the participating clients that attack")
    factor: float | None = Field(
        None, description="sign_flip, scaled, noise: factor on the length of an attacker's update"
    )


class PrivacySection(Section):
    """[privacy]: user-level differential privacy. There is none without the section; with it, clip and noise are
    needed."""

    clip: float | None = Field(None, description="largest norm of a client's update, which is scaled down to it")
    noise: float | None = Field(None, description="noise on the summed update: its standard deviation in units of clip")
    delta: float | None = Field(None, description="delta of the (epsilon, delta) guarantee; left out: 1e-5")
    vote_noise: float | None = Field(
        None,
        description=(
            "noise on the votes, in units of the root of the parameter count; left out: the mask is computed from the"
            " noised sum"
        ),
    )


class RunSection(Section):
    """[run]: seeds, machine, place. Nothing here but the seeds, and the precision that `speed` may lower, changes a
    result."""

    seeds: Annotated[list[Seed], OneOrMore] = Field([0], min_length=1, description="one run per seed")
    engine: str = Field("auto", description="how clients are run: auto, sequential, processes, vectorised or ray")
    device: str = Field("auto", description="auto, cpu or cuda")
    speed: Words = Field(
        [], description="options for speed, each at a price: native, compile, channels-last, tf32, bf16"
    )
    log: Words = Field([], description="loggers: tensorboard, mlflow, wandb")
    folder: str = Field("runs", min_length=1, description="where run folders go")
    checkpoint_every: int | None = Field(
        None, ge=1, description="rounds between two checkpoints; left out: one every ten seconds"
    )
    budget: float | None = Field(
        None, gt=0, description="time limit of a run in seconds; a run that reaches it stops and can be resumed"
    )


class Settings(Section):
    """The whole file."""

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    attack: AttackSection = AttackSection()
    privacy: PrivacySection = PrivacySection()
    run: RunSection = RunSection()

    def found_from(self, folder: Path) -> "Settings":
        """With files that lie in the experiment file's folder, and not where the command runs, by their path from
        here."""

        def at(name: str) -> str:
            place = Path(name).expanduser()
            return str(folder / place) if not place.exists() and (folder / place).exists() else name

        data, model = self.data, self.model
        files = {"source": data.source and at(data.source), "tests": [at(file) for file in data.tests]}
        return self.model_copy(
            update={
                "data": data.model_copy(update=files),
                "model": model.model_copy(update={"start": model.start and at(model.start)}),
            }
        )


SECTIONS: dict[str, type[Section]] = {name: type(field.default) for name, field in Settings.model_fields.items()}


def shown(value: Any) -> str:
    """A value as an experiment file spells it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
