"""The demonstration: four algorithms on 100 label-skewed clients and 20 that never train, on real digits."""

from accord import data
from accord.core.errors import AccordError
from accord.data.cache import Progress
from accord.experiments.experiment import Experiment, parse

SETTINGS = """\
[data]
name = "mnist"
clients = 100
split = "labels"      # two main classes a client, 10 % of the data dealt evenly
classes = 2
noise = 0.1
unseen = 20           # clients that never train

[model]
name = "lenet"

[train]
rounds = 40
sample = 10
lr = 0.01

[run]
folder = "runs/demo"
"""

ALGORITHMS = (
    ("algorithm.name=fedavg",),
    ("algorithm.name=fedavg", "algorithm.mask=gma"),
    ("algorithm.name=fedadam", "algorithm.server.lr=0.02"),
    ("algorithm.name=fedadam", "algorithm.server.lr=0.02", "algorithm.mask=gma"),
)


# so that a dozen digits a client make as many local steps as MNIST's five hundred
SMALL = ("train.batch=4", "train.epochs=5")


def experiments(overrides: list[str]) -> list[Experiment]:
    """The four experiments of the demonstration."""
    return [parse(SETTINGS, [*algorithm, *overrides], name="the demonstration") for algorithm in ALGORITHMS]


def with_data(overrides: list[str], progress: Progress) -> tuple[list[Experiment], str | None]:
    """The experiments, on MNIST if it can be had, else on the digits that scikit-learn brings; and a sentence if so."""
    chosen = experiments(overrides)
    try:
        data.get(chosen[0].settings.data.name, chosen[0].settings.data.source, progress)
    except AccordError as error:
        notice = (
            f"{error}\nThe demonstration goes on with the 1,797 digits that come with scikit-learn: smaller pictures,"
            " fewer samples."
        )
        return experiments([*SMALL, *overrides, "data.name=digits"]), notice
    return chosen, None
