"""What the exchange costs: bytes between clients and server."""

import torch
from torch import nn

from accord.causal.cut import cut
from accord.core.layout import Layout
from accord.data.federated import Federation


def traffic(module: nn.Module, fed: Federation, at: int, steps: float, samples: float) -> tuple[int, int]:
    """Bytes down to clients and up to the server, for so many client steps over so many samples in all. Headers are not
    counted."""
    extractor, _ = cut(module, at)
    layout = Layout.of(extractor)
    x, y = fed.read(next(rows[:1] for rows in fed.train.values() if len(rows)))
    with torch.no_grad():
        features = extractor.eval()(x)
    vectors = layout.size * layout.dtype.itemsize + sum(buffer.size for buffer in layout.buffers) * 8
    return round(steps * vectors + samples * features.nbytes), round(
        steps * vectors + samples * (features.nbytes + y.nbytes)
    )
