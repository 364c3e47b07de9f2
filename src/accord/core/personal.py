"""Which parameters and buffers stay with the clients: by name, or by the kind of their layer."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from accord.core.errors import AccordError, did_you_mean

KINDS: dict[str, type[nn.Module] | tuple[type[nn.Module], ...]] = {
    "batchnorm": _BatchNorm,
    "norm": (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm),
}
LAST = "last"  # the kind that the last layer with parameters is of


def personal_names(module: nn.Module, patterns: Sequence[str]) -> set[str]:
    """The trainable parameters and buffers that the patterns name: `head.*` or `head` by name, `batchnorm`, `norm` or
    `last` by the kind of layer. A pattern that names nothing is refused, and so are patterns that name all there is."""
    trainable = [name for name, p in module.named_parameters() if p.requires_grad]
    names = [*trainable, *(name for name, _ in module.named_buffers())]
    personal: set[str] = set()
    for pattern in patterns:
        mine = set(_of_kind(module, pattern, trainable)) or {
            name for name in names if fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
        }
        if not mine:
            layers = [name for name, _ in module.named_modules() if name]
            hint = did_you_mean(pattern, [*layers, *names, *KINDS, LAST])
            raise AccordError(f"personal names {pattern!r}, which no parameter, buffer or layer is called: {hint}")
        personal |= mine
    if personal >= set(trainable):
        raise AccordError(
            f"personal names every parameter of the model, got {list(patterns)}, and nothing would be shared:"
            " local_only is the algorithm whose clients learn nothing from each other"
        )
    return personal


def _of_kind(module: nn.Module, kind: str, trainable: Sequence[str]) -> list[str]:
    """All that layers of a kind hold; nothing if it is no kind."""
    if kind == LAST:
        prefixes = [trainable[-1].rpartition(".")[0]]
    else:
        prefixes = [name for name, part in module.named_modules() if kind in KINDS and isinstance(part, KINDS[kind])]
    held = [name for name, _ in [*module.named_parameters(), *module.named_buffers()]]
    return [name for name in held if name.rpartition(".")[0] in prefixes]
