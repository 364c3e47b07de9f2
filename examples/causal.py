# CausalFed between processes: a server and two clients, each with its own samples, and nothing between them but
# messages as bytes. The clients' pictures are turned by different angles. In a deployment the lines would be sockets
# between machines, with TLS around them. Run it with: python examples/causal.py

import multiprocessing
from multiprocessing.connection import Connection

import torch
from torch import Tensor

import accord
from accord.causal import Client, Far, Halved, Server, attend, talk
from accord.data import Federation, rotated
from accord.engines.contract import Job, Member
from accord.rules.local import Training
from accord.training.fit import make_job
from accord.training.plan import Plan

ROUNDS, RULE, TRAINING = 5, accord.causalfed(at=7, penalty=1.0, warmup=2), Training(batch=100, lr=0.02, clip=1.0)


def job_for(fed: Federation) -> Job:
    """The same network and settings everywhere; the samples are those of whoever asks."""
    return make_job(accord.models.lenet(seed=0), fed, RULE, TRAINING, Plan(seed=0), "cpu")


def client(name: str, x: Tensor, y: Tensor, line: Connection) -> None:
    """A client's process."""
    own = Federation(x, y, {name: torch.arange(len(y))}, name="mine")
    attend(Client(Halved(job_for(own)), Member(name, own.train[name])), line)


def main() -> None:
    fed = accord.data.fedrotmnist(
        clients=20, shift=rotated(angles=(15, 30, 45, 60), by="client"), unseen=5, heldout=0.0
    )
    spawn, lines = multiprocessing.get_context("spawn"), {}
    for name in fed.clients[:2]:
        lines[name], theirs = spawn.Pipe()
        spawn.Process(target=client, args=(name, *fed.read(fed.train[name]), theirs), daemon=True).start()
        theirs.close()
    job = job_for(fed)  # the server needs the network, and here also data to judge it by; never the clients' own
    halved, vector, buffers = Halved(job), job.layout.pack(job.module), job.layout.pack_buffers({})
    x, y = fed.read(torch.cat(list(fed.unseen.values())))
    for number in range(1, ROUNDS + 1):
        server = Server(halved, number, vector, buffers)
        talk(server, {name: Far(line) for name, line in lines.items()})
        vector, buffers = server.vector, server.buffers
        model = job.layout.load(accord.models.lenet(), vector, buffers).eval()
        risk = sum(heard.loss for heard in server.heard.values()) / sum(
            heard.samples for heard in server.heard.values()
        )
        with torch.no_grad():
            right = (model(x).argmax(1) == y).float().mean()
        print(
            f"round {number}: {server.step} steps, risk {risk:.3f}, accuracy on {len(fed.unseen)} unseen clients"
            f" {100 * right:.1f} %"
        )


if __name__ == "__main__":
    main()
