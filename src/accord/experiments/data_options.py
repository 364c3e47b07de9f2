"""The [data] section of an experiment: which data set, given to whom, shifted and augmented how."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import check_plain
from accord.data import AUGMENTS, DATASETS, SHIFTS, SPLITS, Federation, cache, get, natural
from accord.data.cache import Progress
from accord.data.dataset import MADE_UP, DataSet
from accord.data.federated import Augment
from accord.data.readers.tree_digest import tree_digest
from accord.data.shift import Shift
from accord.data.unseen import EACH, as_count, check_each
from accord.experiments.options import Choice, Makers, blamed, chosen, none, unknown
from accord.experiments.settings import DataSection
from accord.rules.registry import DATA
from accord.runs.fingerprint import describe

# Keys whose meaning hangs on a choice: each choice's constructor says which of them it takes.
SPLIT_KEYS = ("classes", "noise", "alpha", "beta", "population")
SHIFT_KEYS = ("palette", "palettes", "colours", "background", "flip_low", "flip_high", "flip_test", "angles", "by")
AUGMENT_KEYS = ("pad",)
FILE_KEYS = ("client", "label", "missing", "categories", "drop", "size", "channels")

WAYS: Makers = {**SPLITS, "natural": natural}
NO_SHIFT: Makers = {"none": none, **SHIFTS}
NO_AUGMENT: Makers = {"none": none, **AUGMENTS}
LOADERS: Makers = {name: data.load for name, data in DATASETS.items()}


@dataclass(frozen=True)
class Supply:
    """A valid [data] section with its choices made."""

    section: DataSection
    data: DataSet
    clients: int | None  # how many participate, if the section says; natural ones are counted when the data is there
    split: Choice
    file: Choice
    shift: Shift | None
    augment: Augment | None
    options: dict[str, Any]  # of all its choices, defaults filled in

    def federation(self, seed: int, progress: Progress | None = None) -> Federation:
        """The data set, given to its clients. Fetches it first if it is not there yet."""
        section = self.section
        if section.unseen == EACH:
            raise AccordError(
                "data.unseen = 'each' stands for a run per client, which `accord run` and `accord sweep` train: name"
                " one here, such as data.unseen=north"
            )
        try:
            return self.data(
                clients=section.clients,
                split=section.split,
                unseen=section.unseen,
                heldout=section.heldout,
                seed=seed if section.seed is None else section.seed,
                source=section.source,
                progress=progress,
                shift=self.shift or "none",
                augment=self.augment,
                tests=section.tests,
                share=1.0 if section.share is None else section.share,
                **self.split.options,
                **self.file.options,
            )
        except AccordError as error:
            raise blamed(error, "data") from None

    def left_out_in_turn(self, progress: Progress | None = None) -> list[str]:
        """The clients that are unseen one after another, where `unseen` says each."""
        try:
            names = self.data.client_names(
                source=self.section.source, population=self.section.population, progress=progress, **self.file.options
            )
            check_each(names, self.data.name)
        except AccordError as error:
            raise blamed(error, "data") from None
        return names

    def identity(self) -> dict[str, Any]:
        """What changes the result: choices that differ from the defaults, and the user's own files by their content."""
        section, natural = self.section, self.section.split == "natural"
        options = section.model_dump(exclude_defaults=True, include={"name", "heldout", "seed", "share"})
        if section.split != self.data.split:
            options["split"] = section.split
        if section.clients is not None and (natural or section.clients != MADE_UP):
            options["clients"] = section.clients
        if section.unseen is not None and (natural or section.unseen != 0):
            options["unseen"] = section.unseen
        options |= self.split.changed | self.file.changed
        usual = None if self.data.shift is None else SHIFTS[self.data.shift]()
        if self.shift != usual:
            options["shift"] = describe(self.shift)
        if self.augment is not None:
            options["augment"] = describe(self.augment)
        if section.tests:
            options["tests"] = {Path(file).stem: digest("data.tests", file, ".npz file") for file in section.tests}
        if self.data.kept is not None and not self.data.pinned:
            get(self.data.kept, section.source)
            options["content"] = cache.content(self.data.kept)
        if self.data.kept is None:
            options["content"] = digest("data.source", section.source or "", "file or folder")
        return options

    @property
    def here(self) -> bool:
        """Whether its data need not be fetched."""
        return self.data.kept is None or cache.path(self.data.kept).exists()

    def fetch(self, progress: Progress | None = None) -> None:
        """Has the data set here, or raises `NoData`."""
        if self.data.kept is not None:
            get(self.data.kept, self.section.source, progress)

    def check_here(self) -> None:
        """Refuses files of the user's that are not there, before anything is fetched."""
        for file in self.section.tests:
            digest("data.tests", file, ".npz file")
        if self.data.kept is None:
            digest("data.source", self.section.source or "", "file or folder")

    def resolved(self) -> dict[str, Any]:
        """Every setting that applies, defaults filled in."""
        full = self.section.model_dump(exclude_none=True)
        if self.section.split != "natural":
            full |= {"clients": self.clients, "unseen": self.section.unseen or 0}
        return full | self.options


def make_supply(section: DataSection) -> Supply:
    """The section with what it left out filled in by its data set, and its choices made."""
    if section.name not in DATA:
        raise unknown("data.name", section.name, DATA)
    data = DATA[section.name]
    if not isinstance(data, DataSet):
        raise AccordError(f"data.name = {section.name!r} must be registered as a DataSet, got {data!r}")
    usual = {"split": data.split, "shift": data.shift or "none", "augment": "none"}
    section = section.model_copy(update={key: value for key, value in usual.items() if getattr(section, key) is None})
    split = chosen("data", section, "split", WAYS, SPLIT_KEYS)
    file = chosen("data", section, "name", {**LOADERS, section.name: data.load}, FILE_KEYS)
    shift = chosen("data", section, "shift", NO_SHIFT, SHIFT_KEYS)
    augment = chosen("data", section, "augment", NO_AUGMENT, AUGMENT_KEYS)
    if section.share is not None and section.split == "natural":
        raise AccordError(
            f"data.share is for clients that are made up, got {section.share}: natural ones keep what is theirs"
        )
    try:
        data.check_source(section.source)
        if section.split != "natural":
            as_count(section.unseen, section.split or "")
    except AccordError as error:
        raise blamed(error, "data") from None
    if data.kept is None and section.source is None:
        raise AccordError(f"data.source is missing: data.name = {section.name!r} is {data.about}")
    clients = section.clients if section.clients or section.split == "natural" else MADE_UP
    options = split.full | shift.full | augment.full | file.full
    return Supply(section, data, clients, split, file, shift.made(), augment.made(), options)


def digest(key: str, path: str, kind: str = "file") -> str:
    """A file by its content, a folder by the names and contents of its files, so that others under the same name make
    another run."""
    place = Path(path).expanduser()
    try:
        check_plain(place)
        if place.is_dir():
            return tree_digest(place)
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except AccordError as error:
        raise AccordError(f"{key}: {error}") from None
    except OSError as error:
        raise AccordError(f"{key} must be a {kind} that can be read, got {path!r}: {error.strerror}") from None
