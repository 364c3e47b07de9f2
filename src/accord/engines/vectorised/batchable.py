"""Whether a model can be run for many clients at once, and whether filled-up batches leave its real samples alone."""

import torch
from torch import Tensor, nn

from accord.core import draws
from accord.core.errors import AccordError
from accord.core.fields import Fields
from accord.engines.vectorised.lanes import Model, outputs


class CannotBatch(AccordError):
    """The model needs an engine that runs clients one by one."""


def check_batchable(model: Model, drops_out: bool) -> None:
    """Runs two lanes of two samples; says which layer stands in the way if that fails."""
    layout, device = model.layout, model.fed.x.device
    w = layout.pack(model.module).to(device).expand(2, -1)
    buffers = layout.pack_buffers(dict(model.module.named_buffers())).to(device).expand(2, -1)
    x, _ = model.fed.read(torch.zeros(2, 2, dtype=torch.int64, device=device))
    keys = torch.tensor([1, 2], device=device) if drops_out else None
    entered: list[str] = []
    hooks = [
        part.register_forward_pre_hook(
            lambda _, __, name=name, part=part: entered.append(f"{name} ({type(part).__name__})")
        )
        for name, part in model.module.named_modules()
        if name
    ]
    model.module.train()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            leaves = [piece.requires_grad_() for piece in layout.pieces(w.clone())]
            output = outputs(model, leaves, layout.unpack_buffers(buffers), x, keys)
            if not isinstance(output, Tensor):
                raise TypeError("its output is not one tensor")
            torch.autograd.grad(output.sum(), leaves, allow_unused=True)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        where = f" at layer {entered[-1]}" if entered else ""
        raise CannotBatch(f"the model cannot be run for many clients at once{where}: {reason}") from None
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def pads(model: Model) -> bool:
    """Whether the outputs of real samples stay the same when a batch is filled up; they do not under BatchNorm."""
    device = model.fed.x.device
    rows = torch.tensor([0, 1], device=device).clamp(max=len(model.fed.y) - 1)
    x, _ = model.fed.read(rows)
    junk = torch.cat([x, _other(x, model.fed.fields)])
    alone, among = (_output(model.module, part)[:2] for part in (x, junk))
    return torch.allclose(alone, among, rtol=1e-4, atol=1e-5)


def _other(x: Tensor, fields: Fields | None) -> Tensor:
    """Samples unlike these, which the model can read: whole numbers are tokens or the like, and others might name
    nothing."""
    if fields is not None:
        args, named = fields.unpack(x)
        return fields.pack({key: _other(part, None) for key, part in named.items()} or [_other(p, None) for p in args])
    other = x.flip(0).roll(1, -1)
    return 3.0 * other + 1.0 if x.is_floating_point() else other


def _output(module: nn.Module, x: Tensor) -> Tensor:
    """In training, without a trace: statistics go back to what they were."""
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.train()
    try:
        with draws.Routed(0):
            return module(x)
    finally:
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])
