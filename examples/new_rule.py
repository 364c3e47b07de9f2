# A new aggregation rule in ten lines: a mean in which no client's update counts with more than a given length.
# Whatever a rule asks of clients is a sum (`lift`), and the server makes the update of it (`lower`); so it runs on
# every engine. Run it with: python examples/new_rule.py

import argparse
from dataclasses import dataclass

from torch import Tensor

import accord
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round


@dataclass(frozen=True)
class clipped_mean(accord.Average):
    """The mean of the clients' updates, each cut to `longest`: a client that shouts is heard as one that speaks up."""

    longest: float = 1.0

    def weights(self, reports: Reports) -> Tensor:
        return (self.longest / reports.delta.norm(dim=-1, keepdim=True)).clamp(max=1.0)

    def lift(self, reports: Reports, sent: State) -> Record:
        return Record(delta=reports.total, count=reports.count)  # updates times their weights, and how many there are

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        return total["delta"] / total["count"], state


def main() -> None:
    parser = argparse.ArgumentParser(description="A clipped mean against the mean, with clients that shout.")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    fed = accord.data.digits(clients=20, split="iid", unseen=5)
    shouting = accord.attack.sign_flip(share=0.2, factor=20.0)
    for average in (accord.mean(), clipped_mean(longest=0.5)):
        # a rule of yours goes with every mask and server
        algorithm = accord.fedavg(average=average, mask=accord.gma(0.4))
        run = accord.fit(accord.models.logistic(), fed, algorithm, rounds=rounds, lr=0.05, attack=shouting)
        print(f"\n{average}\n{run}")


if __name__ == "__main__":
    main()
