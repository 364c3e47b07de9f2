"""ResNet-18 for small pictures (He et al., 2016), with GroupNorm or BatchNorm."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.errors import AccordError, check_whole
from accord.models.recipe import named
from accord.models.seeded import seeded

WIDTHS = (64, 128, 256, 512)
Norm = Callable[[int], nn.Module]  # channels -> a layer that normalises them


class Block(nn.Module):
    """Two 3x3 convolutions added to a way around them, which is a 1x1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(before, after, stride), norm(after), nn.ReLU(), _conv(after, after), norm(after)
        )
        same = before == after and stride == 1
        self.around = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), norm(after))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.around(x))


@named("resnet18")
def resnet18(
    *, channels: int = 3, size: int = 32, classes: int = 10, norm: str = "group", groups: int = 2, seed: int = 0
) -> nn.Module:
    """11,173,962 parameters for 10 classes of colour pictures, 11,220,132 for 100 and 11,271,432 for 200, with either
    norm.

    The first layer is a 3x3 convolution without pooling. From 64x64 pixels on it has stride 2, so that a 64x64 picture
    costs what a 32x32 one does. Channels are averaged over the whole picture at the end, so a model reads other sizes
    too.

    `norm` is "group" (GroupNorm with `groups` groups, two as in Reddi et al., Adaptive Federated Optimization) or
    "batch" (BatchNorm; `groups` is not used).
    """
    if size < 16:
        raise AccordError(f"ResNet-18 needs images of at least 16x16 pixels, got size {size}")
    norms: dict[str, Norm] = {"group": lambda width: nn.GroupNorm(groups, width), "batch": nn.BatchNorm2d}
    if norm not in norms:
        raise AccordError(f"norm must be 'group' (GroupNorm) or 'batch' (BatchNorm), got {norm!r}")
    check_whole("groups", groups)
    if WIDTHS[0] % groups:
        raise AccordError(
            f"groups must divide the {WIDTHS[0]} channels of the first layer, got {groups}: 1, 2, 4, 8, 16, 32 or 64"
            " would do"
        )
    make = norms[norm]
    with seeded(seed):
        layers: list[nn.Module] = [_conv(channels, WIDTHS[0], 2 if size >= 64 else 1), make(WIDTHS[0]), nn.ReLU()]
        before = WIDTHS[0]
        for width in WIDTHS:
            layers += [Block(before, width, 1 if width == before else 2, make), Block(width, width, 1, make)]
            before = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def _conv(before: int, after: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)  # a norm follows, which has a bias of its own
