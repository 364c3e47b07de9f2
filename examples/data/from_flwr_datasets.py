# A federation from the partitions of Flower Datasets, without a network: a FederatedDataset that reads a folder of
# Parquet files, and a Partitioner set on a dataset in memory. Run it with: pip install "accord-fl[flower-data]", then:
# python examples/data/from_flwr_datasets.py

import tempfile
from pathlib import Path

import datasets
import numpy as np
from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import DirichletPartitioner, NaturalIdPartitioner

import accord

datasets.disable_progress_bars()


def patients(count: int, seed: int) -> datasets.Dataset:
    """A table of measurements, of the ward they were taken in, and of a diagnosis that follows from two of them."""
    draw = np.random.default_rng(seed)
    pulse, pressure, age = draw.normal(75, 12, count), draw.normal(125, 15, count), draw.integers(18, 90, count)
    ill = (pulse - 75) / 12 + (pressure - 125) / 15 + draw.normal(0, 0.3, count) > 0
    ward = draw.integers(0, 10, count)
    return datasets.Dataset.from_dict(
        {"pulse": pulse, "pressure": pressure, "age": age, "ward": ward, "label": np.where(ill, "ill", "well")}
    )


with tempfile.TemporaryDirectory() as folder:
    patients(1500, seed=0).to_parquet(Path(folder, "train.parquet"))
    patients(300, seed=1).to_parquet(Path(folder, "test.parquet"))
    # In place of the folder: the name of a dataset on the Hub.
    partitioner = DirichletPartitioner(num_partitions=12, partition_by="label", alpha=1.0, min_partition_size=20)
    source = FederatedDataset(dataset=folder, partitioners={"train": partitioner}, cache_dir=folder)
    columns = ["pulse", "pressure", "age"]
    fed = accord.data.from_flwr_datasets(source, test="test", features=columns, unseen=3, name="patients, Dirichlet")
print(fed)
print(accord.fit(accord.models.logistic(features=3, classes=2), fed, accord.fedavg(), rounds=3, lr=0.05))

by_ward = NaturalIdPartitioner(partition_by="ward")
by_ward.dataset = patients(1500, seed=0)
fed = accord.data.from_flwr_datasets(by_ward, test=patients(300, seed=1), unseen=2, name="patients by ward")
print(fed)
print(accord.fit(accord.models.logistic(features=3, classes=2), fed, accord.fedavg(), rounds=3, lr=0.05))
