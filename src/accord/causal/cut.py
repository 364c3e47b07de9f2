"""A network cut in two: what the clients hold and what the server holds."""

from collections import OrderedDict

from torch import nn

from accord.core.errors import AccordError
from accord.models.block import Sequential

_IN_ORDER = (nn.Sequential.forward, Sequential.forward)  # these run layer after layer; a subclass may do something else


def cut(module: nn.Module, at: int = -1) -> tuple[nn.Sequential, nn.Sequential]:
    """The extractor, which is the first `at` layers of an `nn.Sequential`, and the classifier, which is the rest.

    A negative `at` counts from the end: -1 leaves the last layer to the classifier. Both halves use the module's own
    parameters, under the names they have in it.

    >>> [len(half) for half in cut(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))]
    [2, 1]
    """
    if not isinstance(module, nn.Sequential) or type(module).forward not in _IN_ORDER:
        raise AccordError(
            f"the network must be a plain nn.Sequential to be cut in two, got {type(module).__name__}: put its layers"
            " in one"
        )
    layers = len(module)
    if layers < 2:
        raise AccordError(f"the network must have at least two layers to be cut in two, got {layers}")
    if isinstance(at, bool) or not isinstance(at, int) or not 0 < abs(at) < layers:
        raise AccordError(
            f"at must be a place between the {layers} layers, 1 to {layers - 1} or -1 to {1 - layers}, got {at!r}"
        )
    named = list(module._modules.items())  # `named_children` would name a layer that is used twice only once
    extractor = type(module)(OrderedDict(named[:at]))
    # The server needs second derivatives, which torch's layers have; the fused kernels of accord's own Sequential have
    # not.
    classifier = nn.Sequential(OrderedDict(named[at:]))
    _check_apart(extractor, classifier, at)
    return extractor, classifier


def _check_apart(extractor: nn.Module, classifier: nn.Module, at: int) -> None:
    for half, name in ((extractor, "before"), (classifier, "after")):
        if not any(parameter.requires_grad for parameter in half.parameters()):
            raise AccordError(f"the network cannot be cut at {at}: there is nothing to train {name} it")
    held = {id(tensor): name for name, tensor in [*extractor.named_parameters(), *extractor.named_buffers()]}
    for name, tensor in [*classifier.named_parameters(), *classifier.named_buffers()]:
        if id(tensor) in held:
            raise AccordError(
                f"the network cannot be cut at {at}: {held[id(tensor)]} and {name} are one tensor, and would be on both"
                " sides"
            )
