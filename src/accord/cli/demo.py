"""`accord demo`: four algorithms on one data set, with nothing to set up."""

from rich.console import Console

from accord.cli.shared import Overrides, tell, this_command, train_experiments


def demo(overrides: Overrides = None) -> None:
    """Train FedAvg and FedAdam, with and without gradient masking, on 100 label-skewed MNIST clients plus 20 unseen
    ones.

    Gets MNIST if it is not there yet. Trains for about 20 seconds on two cores. Results go to `runs/demo`, and so does
    a page of them.

    Examples:

    * `accord demo`

    * `accord demo train.rounds=10 run.seeds=0,1`
    """
    from accord.console.progress import watcher_for
    from accord.experiments.demo import with_data

    console = Console(stderr=True)
    with watcher_for(console) as watcher:
        experiments, notice = with_data(overrides or [], watcher.data)
    if notice:
        tell(console, notice)
    hint = f"To start over: {this_command()}"
    train_experiments(experiments, resume=False, fresh=True, rule=None, as_json=False, hint=hint)
