"""The server: nothing of it knows of the faults."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from accord.deploy.flower import Strategy
from accord.rules.local import Training
from accord.training.plan import Plan

from .task import ALGORITHM, LR, everybody, model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    chosen = context.run_config
    strategy = Strategy(
        ALGORITHM,
        model(),
        clients=everybody().clients,
        training=Training(lr=LR),
        plan=Plan(rounds=chosen["rounds"], evaluate_every=chosen["rounds"]),
        folder=chosen["folder"],
        timeout=chosen["timeout"],
        wait=900.0,
        name="soak",
    )
    strategy.start(grid)
    print(strategy.run)
