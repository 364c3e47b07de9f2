# A federation from a torch Dataset, twice: with the owner of each sample, and with clients made up by a split of the
# labels. Run it with: python examples/data/from_torch.py

import torch
from torch.utils.data import Dataset, TensorDataset

import accord


class Readings(Dataset):
    """Six sensors' readings of three machines; each sample is made when it is asked for, as a file would be read."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.machine = torch.randint(0, 3, (count,), generator=generator)
        self.noise = torch.randn(count, 6, generator=generator)
        self.plant = [f"plant-{number}" for number in torch.randint(0, 12, (count,), generator=generator).tolist()]

    def __len__(self) -> int:
        return len(self.machine)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        machine = int(self.machine[row])
        sensors = self.noise[row].clone()
        sensors[machine] += 3.0
        return sensors, machine


readings = Readings(1200, seed=0)
model = accord.models.logistic(features=6, classes=3)

# Twelve plants own the readings; three of them are set apart, and nobody trains on theirs.
fed = accord.data.from_torch(readings, readings.plant, unseen=3, test=Readings(200, seed=1), name="plants")
print(fed)
print(accord.fit(model, fed, accord.fedavg(), rounds=3, lr=0.1))

# The same readings as a TensorDataset, taken without a copy, and dealt to clients with two main classes each.
pairs = [readings[row] for row in range(len(readings))]
tensors = TensorDataset(torch.stack([x for x, _ in pairs]), torch.tensor([y for _, y in pairs]))
fed = accord.data.from_torch(tensors, split="labels", clients=9, unseen=3, classes=2, name="dealt")
print(fed)
print(accord.fit(model, fed, accord.fedavg(mask=accord.gma(tau=0.4)), rounds=3, lr=0.1))
