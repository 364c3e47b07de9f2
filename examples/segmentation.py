# Segmentation over hospitals whose scanners differ: every pixel is background, a disc or a square. Outputs are
# [N, 3, 24, 24], targets [N, 24, 24]; the loss is the mean over a picture's pixels, the accuracy their share, and a
# metric of ours says how well the shapes are covered. The pictures are made up. Run it
# with: python examples/segmentation.py

import argparse

import torch
from torch import Tensor, nn

import accord

SIZE, CLASSES = 24, 3


def scans(seed: int, count: int = 60) -> tuple[Tensor, Tensor]:
    """A hospital's pictures `[N, 1, 24, 24]` and their masks `[N, 24, 24]`. Its scanner has a contrast of its own."""
    draw = torch.Generator().manual_seed(seed)
    contrast, noise = 0.5 + torch.rand(1, generator=draw), 0.1 + 0.3 * torch.rand(1, generator=draw)
    rows, columns = torch.arange(SIZE).view(-1, 1), torch.arange(SIZE)
    masks = torch.zeros(count, SIZE, SIZE, dtype=torch.int64)
    for mask in masks:
        for kind in (1, 2):
            (y, x), size = torch.randint(5, SIZE - 5, (2,), generator=draw), torch.randint(3, 5, (), generator=draw)
            far = (rows - y).abs(), (columns - x).abs()
            mask[(far[0] ** 2 + far[1] ** 2 <= size**2) if kind == 1 else (far[0].maximum(far[1]) < size)] = kind
    light = contrast * torch.tensor([0.0, 1.0, -1.0])[masks]
    return (light + noise * torch.randn(masks.shape, generator=draw)).unsqueeze(1), masks


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(16, CLASSES, 1))


def overlap(output: Tensor, target: Tensor) -> float:
    """Intersection over union of disc and square, over all pixels of a group."""
    predicted = output.argmax(1)
    parts = [((predicted == kind) & (target == kind), (predicted == kind) | (target == kind)) for kind in (1, 2)]
    return sum(both.sum().item() / max(either.sum().item(), 1) for both, either in parts) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description="A class for every pixel.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--engine", default="auto")
    asked = parser.parse_args()
    fed = accord.data.from_arrays({f"hospital-{n}": scans(n) for n in range(8)}, unseen=2, heldout=0.2, name="scans")
    metrics = {"overlap": accord.metrics.group(overlap), "accuracy": accord.metrics.accuracy}
    options = {"rounds": asked.rounds, "optimiser": "adamw", "lr": 0.005, "batch": 16, "engine": asked.engine}
    for mask in (None, accord.gma(0.4)):
        print(accord.fit(network(), fed, accord.fedavg(mask=mask), metrics=metrics, **options))


if __name__ == "__main__":
    main()
