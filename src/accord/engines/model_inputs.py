"""A user's model as engines call it: with one tensor, answering with one.

Samples of several tensors come laid out flat (`accord.core.fields`) and are taken apart at the model's door; of a
Hugging Face model's answer the logits are kept. Both are hooks on a copy, so that parameters keep their names.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from accord.core.fields import Fields
from accord.data.federated import Federation
from accord.engines.probe import copied


def taken_apart(fields: Fields, module: nn.Module, args: tuple[Tensor], kwargs: dict[str, Any]) -> Any:
    """Before a model is called: a flat batch becomes its arguments."""
    return fields.unpack(args[0])


def logits_of(module: nn.Module, args: Any, output: Any) -> Any:
    """After it was called: the logits of an answer that has other things beside them."""
    return output.logits if hasattr(output, "logits") else output


def answer_of(module: nn.Module, fields: Fields | None, x: Tensor) -> Any:
    """What the model says of a batch as engines hold it."""
    args, named = ((x,), {}) if fields is None else fields.unpack(x)
    return logits_of(module, args, module(*args, **named))


def as_called(module: nn.Module, fed: Federation) -> nn.Module:
    """The model as engines call it: itself, where it takes one tensor and gives one."""
    if fed.fields is None and isinstance(_answer(module, fed), Tensor):
        return module
    module = copied(module)
    if fed.fields is not None:
        module.register_forward_pre_hook(partial(taken_apart, fed.fields), with_kwargs=True)
    module.register_forward_hook(logits_of)
    return module


@torch.no_grad()
def _answer(module: nn.Module, fed: Federation) -> Any:
    """What it says of one training sample; a tensor if that fails, which `probe` has a sentence for."""
    rows = next((rows[:1] for rows in fed.train.values() if len(rows)), None)
    if rows is None:
        return torch.empty(0)
    x, _ = fed.read(rows)
    try:
        with torch.random.fork_rng(devices=[]):
            return copied(module).cpu().eval()(x.cpu())
    except Exception:
        return torch.empty(0)
