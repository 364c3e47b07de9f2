"""Augmentation: what each sample gets, by a slow reading of the same draws, and that nothing else in the batch
matters."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.augment import AUGMENTS, CropFlip

KEY = draws.device_key(0, "augment", 1, "c0", 0)


def pictures(samples: int, channels: int = 3, height: int = 8, width: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(samples)
    return torch.randint(1, 256, (samples, channels, height, width), generator=generator, dtype=torch.uint8)


def splitmix(key: int, counter: int) -> int:
    """One number of the stream, in Python's own integers."""
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def one_by_one(x: Tensor, key: int, pad: int, flip: bool) -> Tensor:
    """Pads, crops and mirrors each sample by itself, as the words say."""
    height, width = x.shape[2:]
    results = []
    for i, picture in enumerate(x):
        down, right, mirror = (splitmix(key, 3 * i + j) >> 40 for j in range(3))
        top, left = down * (2 * pad + 1) // 2**24, right * (2 * pad + 1) // 2**24
        cropped = F.pad(picture, (pad, pad, pad, pad))[:, top : top + height, left : left + width]
        results.append(cropped.flip(-1) if flip and mirror * 2 // 2**24 else cropped)
    return torch.stack(results)


@pytest.mark.parametrize("pad", [0, 1, 4, 9])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.int64])
def test_each_sample_is_padded_cropped_and_mirrored(pad: int, flip: bool, dtype: torch.dtype) -> None:
    x = pictures(40).to(dtype)
    result = CropFlip(pad, flip)(x, KEY)
    assert result.dtype == dtype and result.shape == x.shape
    assert torch.equal(result, one_by_one(x, KEY, pad, flip))
    assert torch.equal(result, CropFlip(pad, flip)(x, torch.tensor(KEY)))  # a key on the device


def test_every_place_and_both_directions_come_up_equally_often() -> None:
    """A picture whose pixels say where they are: the crop can be read off. 81 places, of 1,000 samples each on
    average."""
    samples, pad, size = 81_000, 4, 9
    x = torch.arange(1, size * size + 1, dtype=torch.uint8).view(1, 1, size, size).expand(samples, 1, size, size)
    result = CropFlip(pad)(x, KEY)
    # always inside the picture: the pad is smaller than half of it
    middle = result[:, 0, size // 2, size // 2].long() - 1
    flipped = result[:, 0, size // 2, size // 2 + 1].long() - 1 < middle
    inside = middle % size < size - 1  # at the right edge the next pixel is black
    places = torch.bincount(middle, minlength=81)
    chi_square = ((places - samples / 81).square() / (samples / 81)).sum().item()
    assert places.min() > 0 and chi_square < 124.8  # 80 degrees of freedom: exceeded by one key in a thousand
    share = flipped[inside].float().mean().item()
    assert share == pytest.approx(0.5, abs=0.006)


def test_lanes_agree_with_themselves_alone() -> None:
    """vmap over keys and batches."""
    keys = torch.tensor([draws.device_key(0, "augment", lane) for lane in range(3)])
    x = torch.stack([pictures(16), pictures(16).flip(0), pictures(16).flip(2)])
    together = torch.func.vmap(CropFlip())(x, keys)
    assert torch.equal(together, torch.stack([CropFlip()(x[i], keys[i]) for i in range(3)]))
    one_batch = torch.func.vmap(CropFlip(), in_dims=(None, 0))(x[0], keys)
    assert torch.equal(one_batch[1], CropFlip()(x[0], keys[1]))


def test_rows_that_fill_a_batch_up_change_nothing() -> None:
    x = pictures(32)
    assert torch.equal(CropFlip()(x, KEY)[:20], CropFlip()(x[:20], KEY))


def test_another_key_another_result() -> None:
    x = pictures(32)
    assert not torch.equal(CropFlip()(x, KEY), CropFlip()(x, KEY + 1))
    assert torch.equal(CropFlip()(x, KEY), CropFlip()(x, KEY))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_and_a_replayed_graph_give_the_same_bits() -> None:
    x, key = pictures(64), torch.tensor(KEY)
    on_device, key_on_device = x.cuda(), key.cuda()
    assert torch.equal(CropFlip()(on_device, key_on_device).cpu(), CropFlip()(x, key))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = CropFlip()(on_device, key_on_device)
    for step in range(3):
        key_on_device.fill_(KEY + step)
        graph.replay()
        assert torch.equal(result.cpu(), CropFlip()(x, KEY + step))


def test_torchs_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    CropFlip()(pictures(4), KEY)
    assert torch.equal(torch.get_rng_state(), state)


def test_names_of_experiment_files() -> None:
    assert AUGMENTS["crop-flip"](pad=2) == CropFlip(2, True)
    assert AUGMENTS["crop"](pad=3) == CropFlip(3, False)
    assert AUGMENTS["flip"]() == CropFlip(0, True)
    with pytest.raises(TypeError):
        AUGMENTS["flip"](pad=1)


@pytest.mark.parametrize("pad", [-1, 1.5, True, "4"])
def test_a_pad_is_a_whole_number(pad: object) -> None:
    with pytest.raises(AccordError, match="pad must be a whole number of at least 0, got "):
        CropFlip(pad)


def test_what_cannot_be_cropped() -> None:
    with pytest.raises(AccordError, match="need pictures of shape"):
        CropFlip()(torch.zeros(5, 7), KEY)
    with pytest.raises(AccordError, match="flip must be true or false, got 1"):
        CropFlip(4, 1)
