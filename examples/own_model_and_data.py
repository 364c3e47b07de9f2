# Your model and your data: any nn.Module, and arrays by client. Here bakeries forecast tomorrow's sales from the last
# two weeks. Run it with: python examples/own_model_and_data.py

import argparse

import torch
from torch import Tensor, nn

import accord

DAYS = 14


class Forecaster(nn.Module):
    """Reads two weeks of sales, `[B, 14]`, and says the next day's, `[B]`."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(1, 16, batch_first=True)
        self.last = nn.Linear(16, 1)

    def forward(self, sales: Tensor) -> Tensor:
        _, state = self.memory(sales[:, :, None])
        return self.last(state[-1]).squeeze(-1)


def bakery(number: int, samples: int = 60) -> tuple[Tensor, Tensor]:
    """A shop's sales: a week's rhythm, of which each shop has its own strength and its own busiest day."""
    generator = torch.Generator().manual_seed(number)
    strength, busiest = 0.5 + torch.rand(1, generator=generator), torch.randint(0, 7, (1,), generator=generator)
    day = torch.arange(samples + DAYS)
    sales = strength * torch.cos(2 * torch.pi * (day - busiest) / 7) + 0.1 * torch.randn(len(day), generator=generator)
    return sales.unfold(0, DAYS, 1)[:samples], sales[DAYS:]


def absolute(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs()  # one number per sample


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Forecasts for bakeries that took part, and for bakeries that did not."
    )
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)  # a module of your own draws its first weights from torch
    fed = accord.data.from_arrays({f"bakery-{n}": bakery(n) for n in range(12)}, unseen=3, heldout=0.2, name="bakeries")
    error, squares = accord.smaller_is_better(absolute), nn.MSELoss(reduction="none")
    run = accord.fit(
        Forecaster(), fed, accord.fedavg(), rounds=rounds, epochs=2, lr=0.1, loss=squares, metrics={"error": error}
    )
    print(run)
    print(run.save("bakeries.safetensors"), "has the model's weights")


if __name__ == "__main__":
    main()
