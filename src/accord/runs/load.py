"""`accord.load`: a run from its folder, with its model and all that is needed to use it. The data may be gone.

A model that accord or an installed package registers is made again from its settings. Any other is handed in: a run
folder is data, and nothing that it names is imported."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import State
from accord.data.federated import Prepare
from accord.data.preparation import Preparation
from accord.engines.job import PERSONAL
from accord.models import shaped, warm_start
from accord.rules.registry import NETWORKS, imported
from accord.runs.checksums import read_json, read_model, read_state, read_tensors
from accord.runs.client_models import ClientModels
from accord.runs.folder import client_file
from accord.runs.reader import Recorded, find
from accord.runs.reader import load as read
from accord.runs.rows import read_rows
from accord.runs.run import Run, Snapshot
from accord.runs.selection import by_rules


def load(
    folder: str | Path, model: nn.Module | Callable[[], nn.Module] | str | None = None, prepare: Prepare | None = None
) -> Run:
    """The run in a folder, as `accord.fit` and `accord run` leave it.

    Args:
        folder: A run folder, or a folder that holds one run.
        model: The run's model, where neither accord nor an installed package registers it: a module, or a callable
            without arguments that makes one, or the name of either as "module:object". Its weights are replaced.
        prepare: The function that scaled the run's samples, where it was the user's.

    Returns:
        The run. Nothing that the folder names is imported.

    Raises:
        AccordError: The folder is damaged, or its model must be given.

    Example:
        >>> run = accord.load("runs/patients-fedavg-1f0c2d3e4b-s0")
        >>> run.predict("new-patients.csv").labels
    """
    path = _one_run(Path(folder).expanduser())
    recorded = read(path)
    if recorded.damaged:
        raise AccordError(f"{path} is {recorded.status}")
    preparation = read_preparation(path)
    module = _made(recorded, preparation) if model is None else _given(model)
    state, tensors = _checkpoint(path)
    first = {name: tensors[name] for name in PERSONAL if name in tensors}
    module, layout = _with_personal(module, recorded, first)
    states = partial(_client_state, path, state)
    client_models = ClientModels.from_json(state.get("own_models"), first, states)
    alone = client_models is not None and not client_models.common
    last, best = _last(path, recorded, module, layout, tensors), None
    chosen = by_rules(recorded.history, "held-out")
    if not alone and chosen and (path / "best.safetensors").exists():
        best = _snapshot(path / "best.safetensors", chosen[0].rounds[0], module, layout)
    if preparation is not None and prepare is not None:
        preparation = replace(preparation, scaling=prepare)
    settings = recorded.settings
    return Run(
        title=f"{settings.label} · {settings.data.get('name', 'data')} · seed {recorded.seed}",
        rounds=recorded.rounds,
        recorded=read_rows(path),
        last=last,
        best=best,
        clients=read_json(path / "clients.json") if (path / "clients.json").exists() else [],
        folder=path,
        stopped=None if recorded.ended else recorded.status,
        flat=recorded.flat,
        alone=alone,
        preparation=preparation,
        _module=module,
        _layout=layout,
        _client_models=client_models,
    )


def _one_run(folder: Path) -> Path:
    runs = find([folder])
    if len(runs) > 1:
        listed = ", ".join(run.name for run in runs[:5])
        raise AccordError(f"{folder} holds {len(runs)} runs ({listed} ...): name one of them")
    return runs[0]


def read_preparation(path: Path) -> Preparation | None:
    """None for a folder of accord 0.1, which has none."""
    file = path / "preparation.json"
    if not file.exists():
        return None
    try:
        return Preparation.from_json(read_json(file))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AccordError(f"{file} is damaged: {type(error).__name__}: {error}") from None


def _made(recorded: Recorded, preparation: Preparation | None) -> nn.Module:
    """The module that the settings describe, with any weights."""
    options = {key: value for key, value in recorded.settings.model.items() if key not in ("name", "start")}
    name = str(recorded.settings.model.get("name"))
    give = "pass it with --model module:object or accord.load(model=...)"
    if name not in NETWORKS:
        raise AccordError(
            f"model: neither accord nor an installed package registers {name!r}, the model of {recorded.folder}: {give}"
        )
    if "classes" in options:
        make = partial(NETWORKS[name], **options)
    elif preparation is not None:
        make = partial(shaped, NETWORKS[name], preparation.shape, preparation.outputs, seed=0, **options)
    else:
        raise AccordError(f"model: {recorded.folder} does not say what its model reads (preparation.json): {give}")
    try:
        return make()
    except (RuntimeError, TypeError, ValueError) as error:
        raise AccordError(
            f"model: {name} cannot be built from the settings of {recorded.folder} ({error}): {give}"
        ) from None


def _given(model: nn.Module | Callable[[], nn.Module] | str) -> nn.Module:
    """The module that the user gives, or the one that the callable makes."""
    named = model
    if isinstance(model, str):
        if ":" not in model:
            raise AccordError(f"model must be a module, a callable or the name of one as module:object, got {model!r}")
        model = imported(model, Path())
    try:
        made = model if isinstance(model, nn.Module) else model()
    except Exception as error:  # the callable is the user's
        raise AccordError(f"model: calling {named}() failed: {type(error).__name__}: {error}") from None
    if not isinstance(made, nn.Module):
        raise AccordError(f"model must be, or make, a torch.nn.Module, got {made!r}")
    return made


def _with_personal(module: nn.Module, recorded: Recorded, first: State) -> tuple[nn.Module, Layout]:
    """The module with the personal part that the run's came with, and the layout of what was shared."""
    layout = Layout.of(module, recorded.settings.algorithm.get("personal", ()))
    if not first:
        return module, layout
    module, whole = copy.deepcopy(module), layout.whole(module)
    personal, with_it = (first[name] for name in PERSONAL)
    _check_size(recorded.folder, whole.size - layout.size, len(personal))
    vector, buffers = layout.pack(module), layout.pack_buffers(dict(module.named_buffers()))
    return whole.load(module, torch.cat([vector, personal]), torch.cat([buffers, with_it])), layout


def _check_size(folder: Path, mine: int, its: int) -> None:
    if mine != its:
        raise AccordError(
            f"the model has {mine:,} parameters, and that of {folder} {its:,}: hand in the one it was trained with"
        )


def _checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not (path / "state.json").exists():
        return {}, {}
    state = read_state(path / "state.json")
    file = path / state["tensors"]
    if not file.exists() and (path / "done").exists():  # it has its models
        return state, {}
    return state, read_tensors(file, state.get("files", {}).get(file.name))


def _last(path: Path, recorded: Recorded, module: nn.Module, layout: Layout, tensors: dict[str, Tensor]) -> Snapshot:
    """The last model: of a run that is done, as it was written; of another, its checkpoint's."""
    if (path / "model.safetensors").exists() and recorded.ended:
        return _snapshot(path / "model.safetensors", recorded.rounds, module, layout)
    if "vector" not in tensors:
        raise AccordError(f"{path} holds no model: it has no checkpoint yet, or was imported without one")
    _check_size(path, layout.size, len(tensors["vector"]))
    return Snapshot(recorded.rounds, tensors["vector"], tensors["buffers"])


def _snapshot(file: Path, round: int, module: nn.Module, layout: Layout) -> Snapshot:
    loaded = warm_start(module, read_model(file))
    return Snapshot(round, layout.pack(loaded), layout.pack_buffers(dict(loaded.named_buffers())))


def _client_state(path: Path, state: dict[str, Any], client: str) -> State | None:
    if client not in state["clients"]:
        return None
    number, known = state["own_models"]["clients"].index(client), state.get("client_checksums", {}).get(client)
    file = client_file(path / "clients", number, state["clients"][client])
    return read_tensors(file, known and [known])
