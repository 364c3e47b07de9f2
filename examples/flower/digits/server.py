"""The server side: an accord algorithm over whoever connects."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import accord
from accord.deploy.flower import Strategy
from accord.experiments.options import unknown
from accord.rules.local import Training
from accord.rules.named import ALGORITHMS
from accord.training.plan import Plan
from digits.task import everybody, keys, model

# As in pyproject.toml, for a simulation that does not read it.
DEFAULTS = {
    "rounds": 5,
    "sample": 3,
    "algorithm": "fedavg",
    "tau": 0.4,
    "lr": 0.05,
    "evaluate-every": 1,
    "folder": "",
    "keys": "",
    "timeout": 120.0,
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    chosen = {**DEFAULTS, **context.run_config}
    if chosen["algorithm"] not in ALGORITHMS:
        raise unknown("algorithm", chosen["algorithm"], ALGORITHMS)
    mask = accord.gma(chosen["tau"]) if chosen["tau"] >= 0 else None
    strategy = Strategy(
        ALGORITHMS[chosen["algorithm"]](mask=mask),
        model(),
        clients=everybody().clients,
        training=Training(lr=chosen["lr"]),
        plan=Plan(
            rounds=chosen["rounds"],
            sample=chosen["sample"],
            evaluate_every=chosen["evaluate-every"],
            checkpoint_every=1,
        ),
        folder=chosen["folder"] or None,
        timeout=chosen["timeout"],
        keys=keys(chosen["keys"]),
        name="digits",
    )
    strategy.start(grid)
    print(strategy.run)
