"""A data set, and how it becomes a federation: loaded, given to clients, shifted, augmented, prepared."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.augment import AUGMENTS
from accord.data.cache import Progress
from accord.data.federate import check_options, deal, may_participate, natural, shifted, with_tests
from accord.data.federated import Augment, Federation, Prepare
from accord.data.readers.npz import read_npz
from accord.data.samples import Samples
from accord.data.shift import SHIFTS, Shift
from accord.data.standardise import fitted
from accord.data.unseen import as_count

MADE_UP = 100  # clients, where they are made up and nobody says how many
Source = str | Path | None
Load = Callable[..., Samples]  # (source, progress, options of its own) -> the data set


@dataclass(frozen=True)
class DataSet:
    """A data set by name. Call it to give it to clients."""

    name: str
    about: str
    load: Load
    size: str = "yours"
    kept: str | None = None  # its name in the cache; None: read where it lies
    pinned: bool = True  # what is kept is known to the last byte; if not, it depends on the files that were there
    prepare: Prepare | None = None  # None: fitted to the training data
    split: str = "iid"  # if none is asked for
    owners: Callable[[Samples, Source, Progress | None], Samples] | None = None  # adds its natural clients
    shift: str | None = None  # if none is asked for
    bundled: bool = False  # it comes with a package, and is read from nowhere else
    tested_on: float = 0.0  # share drawn as a test set when clients are made up and it has no test set of its own

    def __call__(
        self,
        *,
        clients: int | None = None,
        split: str | None = None,
        unseen: int | str | Sequence[str] | None = None,
        heldout: float = 0.1,
        seed: int = 0,
        source: Source = None,
        progress: Progress | None = None,
        shift: str | Shift | None = None,
        augment: str | Augment | None = None,
        tests: Sequence[str | Path] = (),
        share: float = 1.0,
        **options: Any,
    ) -> Federation:
        """The data set given to `clients` participating and `unseen` other clients; its own test set is `test`. Natural
        clients may be unseen by their names.

        Got from `source` (a folder, or the user's file), mirrors or packages when it is needed for the first time.
        `split` is one of `SPLITS` (100 clients unless said) or "natural" (all there are), with its own `options`:
        classes and noise, alpha, beta, population. `shift` makes clients' samples look different (`SHIFTS`; "none": no
        shift), `augment` varies training samples (`AUGMENTS`), and `tests` are .npz files with further test sets, known
        by their names. Of clients that are made up, all together get a `share` of the data; the test set stays whole.
        """
        self.check_source(source)
        split = self.split if split is None else split
        load_options = {key: options.pop(key) for key in list(options) if key in options_of(self.load)}
        common: dict[str, Any] = {"heldout": heldout, "seed": seed, "prepare": self.prepare, "name": self.name}
        if split == "natural":
            check_options(options, ("population",), split)
            if share != 1:
                raise AccordError(
                    f"share is for clients that are made up, got {share}: natural ones keep what is theirs"
                )
            samples = self._with_owners(source, progress, load_options)
            fed = natural(samples, clients=clients, unseen=unseen, **common, **options)
        else:
            samples = self.load(source, progress, **load_options)
            clients, test = MADE_UP if clients is None else clients, self._test(samples)
            fed = deal(
                samples.x,
                samples.y,
                split=split,
                clients=clients,
                unseen=as_count(unseen, split),
                test=test,
                share=share,
                **common,
                **options,
            )
            fed = replace(fed, classes=samples.classes)
        fed = samples.ready(fed, split == "natural")
        if tests:
            fed = with_tests(fed, _further(tests))
        chosen = _made("shift", self.shift if shift is None else shift, SHIFTS)
        if chosen is not None:
            fed = shifted(fed, chosen, seed)
        return replace(fed, augment=_made("augment", augment, AUGMENTS), prepare=self.prepare or fitted(fed))

    def check_source(self, source: Source) -> None:
        """Refuses a place that nobody would look at."""
        if source is not None and self.bundled:
            raise AccordError(f"source has no meaning with {self.name}, got {str(source)!r}: it comes with a package")

    def client_names(
        self, *, source: Source = None, population: str | None = None, progress: Progress | None = None, **options: Any
    ) -> list[str]:
        """The natural clients that may participate."""
        return may_participate(self._with_owners(source, progress, options), population, self.name)

    def _with_owners(self, source: Source, progress: Progress | None, load_options: Mapping[str, Any]) -> Samples:
        if self.owners is None:
            return self.load(source, progress, **load_options)
        samples = self.load(None, progress, **load_options)
        return self.owners(samples, source, progress)  # `source` holds what names the owners

    def _test(self, samples: Samples) -> torch.Tensor | None:
        """The test set of clients that are made up: the data set's own, or a share of it, the same whatever the
        seed."""
        if samples.test is not None or not self.tested_on:
            return samples.test
        count = round(self.tested_on * len(samples.y))
        return torch.from_numpy(draws.choose(len(samples.y), count, 0, "test set", self.name))


def options_of(load: Load) -> list[str]:
    """What a loader can be told beyond where to look."""
    return [name for name in inspect.signature(load).parameters if name not in ("source", "progress")]


def _further(tests: Sequence[str | Path]) -> dict[str, Samples]:
    """Further test sets by their names."""
    files: dict[str, Path] = {}
    for file in (Path(test).expanduser() for test in tests):
        if other := files.get(file.stem):
            raise AccordError(
                f"tests must differ in their names, got {other} and {file}: results are reported under them"
            )
        files[file.stem] = file
    return {name: read_npz(file) for name, file in files.items()}


def _made(what: str, wanted: Any, makers: Mapping[str, Callable[..., Any]]) -> Any:
    """The shift or augmentation of that name with its defaults; one that is made already is taken as it is."""
    if not isinstance(wanted, str):
        return wanted
    if wanted == "none":
        return None
    if wanted not in makers:
        raise AccordError(f"there is no {what} {wanted!r}: choose one of none, {', '.join(makers)}")
    return makers[wanted]()
