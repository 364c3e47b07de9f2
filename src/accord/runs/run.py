"""What a training run leaves in your hands: its history, its figures, its model."""

import copy
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.files import write_tensors
from accord.core.jsonable import Json
from accord.core.layout import Layout
from accord.core.metrics import TITLES
from accord.core.reports import LOST
from accord.data.preparation import Preparation
from accord.runs.client_models import ClientModels
from accord.runs.evaluation import Evaluation, splits_of
from accord.runs.predictor import Predictions, frame, predict
from accord.runs.rows import Rows
from accord.runs.selection import Selected, select
from accord.runs.text import in_words, run_text, unseen_of


@dataclass(frozen=True)
class Snapshot:
    """A model at some round, as vectors."""

    round: int
    vector: Tensor
    buffers: Tensor


@dataclass(frozen=True, eq=False)
class Run:
    """A finished (or stopped) run. `print(run)` shows train, held-out and unseen figures, both gaps and the worst
    client."""

    title: str
    rounds: int
    recorded: Rows  # one per round; where there is a folder, read from there when asked for
    last: Snapshot
    best: Snapshot | None  # the model best on held-out data
    clients: list[dict[str, Any]] = field(default_factory=list)  # every client's last evaluation, as in clients.json
    folder: Path | None = None
    stopped: str | None = None  # why it ended before its rounds, if it did and can go on
    flat: int | None = None  # the round since which it was flat, if it ended for that
    spared: int = 0  # rounds that were left when it ended for that
    alone: bool = False  # every client has a model of its own, and there is no common one
    preparation: Preparation | None = field(default=None, repr=False)  # what the model reads, and its classes' names
    _module: nn.Module = field(repr=False, kw_only=True)
    _layout: Layout = field(repr=False, kw_only=True)
    _client_models: ClientModels | None = field(default=None, repr=False, kw_only=True)  # where clients keep some

    @property
    def rows(self) -> list[Json]:
        """One per round, as in metrics.jsonl; `recorded` has them one at a time, and typed."""
        return [row.to_json() for row in self.recorded]

    @property
    def history(self) -> list[tuple[int, Evaluation]]:
        """(round, evaluation) for every evaluated round."""
        return self.recorded.history()

    def select(self, rule: str = "held-out") -> Selected:
        """The run's figures by a named selection rule: `held-out`, `last10`, `window(a,b)` or `oracle`."""
        return select(self.history, rule)

    def model(self, which: str = "last", client: str | None = None) -> nn.Module:
        """The trained module, a fresh copy in evaluation mode: the `last` round's, or the one best on `held-out` data;
        of a run whose clients have models of their own, or parts that stay with them, that of `client`."""
        module = copy.deepcopy(self._module).cpu()
        if client is not None:
            return self._layout.whole(module).load(module, *self._own(client, which)).eval()
        snapshot = self._snapshot(which)
        return self._layout.load(module, snapshot.vector.cpu(), snapshot.buffers.cpu()).eval()

    def predict(self, data: Any, which: str = "last", client: str | None = None) -> Predictions:
        """Predictions for new rows, prepared as the training data was: a data frame, a dict of columns, a list with a
        dict for each row, the path of a CSV or Parquet file, or an array where the run had arrays.

        >>> run.predict({"age": [54, 61], "cp": ["typical", None]}).labels
        ['no', 'yes']
        """
        return predict(self.model(which, client), self._prepared(), data)

    def export(self, path: str | Path, which: str = "last", client: str | None = None) -> Path:
        """Writes the trained model as ONNX, with its scaling and the names of its inputs and classes."""
        from accord.runs.export import export

        return export(self.model(which, client), self._prepared(), Path(path))

    def _prepared(self) -> Preparation:
        if self.preparation is None:
            raise AccordError(
                f"{self.folder} does not say how its data was prepared (preparation.json), as folders of accord 0.1 do"
                " not: train it again, or use run.model() on samples that you prepare"
            )
        return self.preparation

    def save(self, path: str | Path, which: str = "last", client: str | None = None) -> Path:
        """Writes the trained model's state dict as safetensors."""
        write_tensors(Path(path), self.model(which, client).state_dict())
        return Path(path)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draws the learning curves of every split; returns the matplotlib figure and writes it if a path is given."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise AccordError("run.plot() needs matplotlib: pip install 'accord-fl[plot]'") from None
        history = self.history
        if not history:
            raise AccordError(
                f"there is nothing to plot: the run ended after round {self.rounds}, before its first evaluation"
            )
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        metric = history[0][1].metric.name
        for split in splits_of(history):
            there = {number: of.splits[split].metrics[metric].by_sample for number, of in history if split in of.splits}
            means: Any = list(there.values())
            axes.plot(list(there), means, "o-", label=split)
        axes.set(title=self.title, xlabel="round", ylabel=f"{metric}, by sample")
        axes.legend()
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def to_pandas(self) -> Any:
        """A data frame with a row for every evaluated round and group: splits, parts of them, further test sets."""
        rows = []
        for number, evaluation in self.history:
            for name, row in {**evaluation.splits, **evaluation.parts}.items():
                columns = {
                    "round": number,
                    "group": TITLES.get(name, name),
                    "clients": row.clients,
                    "samples": row.samples,
                }
                for metric, figures in row.metrics.items():
                    columns |= {f"{metric} {key}".removesuffix(" by_sample"): of for key, of in asdict(figures).items()}
                rows.append(columns)
        names = dict.fromkeys(name for row in rows for name in row)
        return frame({name: [row.get(name) for row in rows] for name in names})

    def _repr_html_(self) -> str:
        from accord.runs.notebook import run_html

        return run_html(self.title, self.history)

    def _own(self, client: str, which: str) -> tuple[Tensor, Tensor]:
        """A client's model and its buffers."""
        if self._client_models is None:
            raise AccordError(f"this run has one model for all clients, so there is none of client {client} alone")
        if client in unseen_of(self.clients):
            raise AccordError(f"client {client} was unseen in this run, and so has no model of its own")
        if which != "last":
            raise AccordError(
                f"clients keep their own models of the last round alone, so which must be 'last', got {which!r}"
            )
        return self._client_models.of(client, self.last.vector, self.last.buffers)

    def _snapshot(self, which: str) -> Snapshot:
        if self.alone:
            raise AccordError(
                "this run trained no common model: every client went on from its own, so name one (client=...)"
            )
        if which not in ("last", "held-out"):
            raise AccordError(f"which must be 'last' or 'held-out', got {which!r}")
        if which == "held-out" and self.best is None:
            raise AccordError(
                "there is no model that is best on held-out data: no round was evaluated on such, or the run has"
                " privacy, which rules out a choice by it"
            )
        return self.last if which == "last" else self.best  # type: ignore[return-value]

    def __str__(self) -> str:
        ended = self.stopped if self.flat is None else in_words(self.flat)
        return "\n".join([run_text(self.title, self.history, ended, unseen_of(self.clients)), *self._left_out()])

    def _left_out(self) -> list[str]:
        """Who was left out, and in how many rounds, other than by chance."""
        times = Counter((client, why) for row in self.recorded for client, why in row.left_out.items() if why != LOST)
        clients = [f"{client} ({why}, {count} rounds)" for (client, why), count in times.most_common(5)]
        more = f" and {len(times) - 5} more" if len(times) > 5 else ""
        return [f"left out: {', '.join(clients)}{more}"] if clients else []
