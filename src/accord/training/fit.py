"""`fit`: one call from a model, a federation and an algorithm to a trained, evaluated, recorded run."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from accord.attacks import Attack, attackers
from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.losses import default_loss, per_sample_loss
from accord.core.measure import Metrics, PerSample
from accord.core.metric_names import chosen_metrics
from accord.core.schedule import Schedule
from accord.data.federated import Federation
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.device import pick_device
from accord.engines.model_inputs import as_called
from accord.engines.speed import checked
from accord.models import warm_start
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.rules.named import fedavg
from accord.rules.rehearsal import rehearse
from accord.runs.fingerprint import run_name
from accord.runs.folder import RunFolder
from accord.runs.run import Run
from accord.training.cohort import Conditions
from accord.training.engine_choice import make_engine, with_kernel
from accord.training.evaluation_schedule import schedules
from accord.training.hooks import Hook, check_hooks
from accord.training.loop import Loop
from accord.training.plan import Plan, identity
from accord.training.progress_line import narrator, say, say_once
from accord.training.run_settings import run_settings


def fit(
    model: nn.Module,
    fed: Federation,
    algorithm: Algorithm | None = None,
    *,
    rounds: int = 100,
    sample: int | None = None,
    epochs: int = 1,
    batch: int | None = 32,
    lr: float | Schedule = 0.01,
    momentum: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    steps: int | None = None,
    optimiser: str = "sgd",
    betas: tuple[float, float] | None = None,
    eps: float | None = None,
    evaluate_every: int = 10,
    evaluate_at: str | Sequence[str] = (),
    evaluate_samples: int | None = None,
    adapt_steps: int | None = None,
    checkpoint_every: int | None = None,
    min_clients: int = 1,
    conditions: Conditions | None = None,
    attack: Attack | None = None,
    budget: float | None = None,
    patience: int | None = None,
    min_delta: float = 0.001,
    seed: int = 0,
    engine: str = "auto",
    device: str = "auto",
    speed: Sequence[str] = (),
    folder: str | Path | None = None,
    resume: bool = True,
    loss: PerSample | None = None,
    metrics: Metrics | Sequence[str] | None = None,
    start: str | Path | Mapping[str, Tensor] | None = None,
    hooks: Sequence[Hook] = (),
    verbose: bool | None = None,
) -> Run:
    """Trains `model` over the clients of `fed` and evaluates it three ways.

    `sample` clients (None: all) take part in a round and do `epochs` of local training in batches of `batch` (None: all
    at once), at most `steps`. Their `optimiser` is sgd, adam or adamw, with torch's defaults but for a `momentum` of
    0.9, and starts afresh every round (docs/how-to/optimisers.md). Every `evaluate_every` rounds, and after the last,
    the model meets training data, held-out data, unseen clients and the test set. `evaluate_at` names other rounds
    instead: `"log"` (dense early), `"last10"`, `"window(a,b)"`, or several. With `adapt_steps` unseen clients are also
    evaluated after so many local steps (docs/how-to/personal.md). Of training data at most `evaluate_samples` are read,
    the same each time (None: all). With a `folder` the run is recorded there under a name made of its settings, and
    goes on from its last checkpoint if it is there already; a run that has been that far is read back, with all the
    rounds it has. `loss(output, target)` gives one number per sample; a loss of torch's is asked for one. `metrics` are
    names, such as `["auc", "accuracy"]`, or functions by name, per sample or of a whole group (`accord.metrics`,
    docs/how-to/metrics.md); the first one judges the model. `start` is a state dict, or a safetensors file, to begin
    from. `attack` makes some clients harm, such as `accord.attack.sign_flip(share=0.2)`; they are evaluated like all
    others (docs/explanation/robustness.md). `speed` names options that trade something for speed: `native`, `compile`,
    `channels-last`, `tf32`, `bf16` (docs/explanation/engines.md). A checkpoint is written every `checkpoint_every`
    rounds (None: every ten seconds). `budget` is in seconds; a run that spends it stops after the round and can be
    resumed. With `patience` a run ends before its `rounds` once held-out data has not improved, by more than
    `min_delta`, in so many rounds. `verbose` prints progress on standard error; left out, it does so on a terminal,
    and elsewhere says only, and once, which engine trains.

    >>> fed = accord.data.mnist(clients=100, split="labels", unseen=20)
    >>> print(accord.fit(accord.models.lenet(), fed, accord.fedavg(), rounds=2))
    """
    algorithm = fedavg() if algorithm is None else algorithm
    conditions = Conditions() if conditions is None else conditions
    kinds: list[tuple[str, object, type]] = [
        ("model", model, nn.Module),
        ("fed", fed, Federation),
        ("algorithm", algorithm, Algorithm),
        ("conditions", conditions, Conditions),
        ("speed", speed, Sequence),
    ]
    for what, value, kind in kinds:
        if not isinstance(value, kind):
            raise AccordError(f"{what} must be of type {kind.__name__}, got {value!r}")
    check_hooks(hooks)
    plan = Plan(
        rounds,
        sample,
        evaluate_every,
        checkpoint_every,
        min_clients,
        conditions,
        budget,
        seed,
        patience,
        min_delta,
        schedules(evaluate_at),
        evaluate_samples,
        adapt_steps,
    )
    training = Training(epochs, batch, steps, lr, momentum, weight_decay, clip, optimiser, betas, eps)
    if start is not None:
        model = warm_start(model, start)
    watching = sys.stderr.isatty() if verbose is None else verbose
    hooks, tell = [*hooks, *([narrator()] if watching else [])], say if watching else say_once
    return carry_out(
        model,
        fed,
        algorithm,
        training,
        plan,
        engine=engine,
        device=device,
        speed=speed,
        attack=attack,
        folder=folder,
        resume=resume,
        loss=loss,
        metrics=metrics,
        hooks=hooks,
        tell=None if verbose is False else tell,
    )


def carry_out(
    model: nn.Module,
    fed: Federation,
    algorithm: Algorithm,
    training: Training,
    plan: Plan,
    *,
    engine: str,
    device: str,
    speed: Sequence[str] = (),
    attack: Attack | None = None,
    folder: str | Path | RunFolder | None,
    resume: bool = True,
    loss: PerSample | None = None,
    metrics: Metrics | Sequence[str] | None = None,
    hooks: Sequence[Hook] = (),
    tell: Callable[[str], None] | None = None,
) -> Run:
    """`fit` for those who have a training and a plan already. `tell` is told which engine trains, and why."""
    job = make_job(
        model, fed, algorithm, training, plan, device, speed=speed, attack=attack, loss=loss, metrics=metrics
    )
    if tell:
        for line in fed.notes:
            tell(line)
    if tell and algorithm.privacy:
        masked, clients = algorithm.mask is not None, len(fed.clients)
        for line in algorithm.privacy.sentences(masked, clients, plan.sample, plan.rounds, job.layout.size):
            tell(line)
    run_folder = _open(folder, job, plan, resume, engine, device)
    try:
        job = with_kernel(engine, job, run_folder, tell)
        over = run_folder is not None and run_folder.over  # nothing is left to train
        with steady(job.speed):
            return Loop(job, plan, make_engine(engine, job, None if over else tell), run_folder, hooks).go()
    finally:
        if run_folder is not None:
            run_folder.close()


def make_job(
    model: nn.Module,
    fed: Federation,
    algorithm: Algorithm,
    training: Training,
    plan: Plan,
    device: str,
    *,
    speed: Sequence[str] = (),
    attack: Attack | None = None,
    loss: PerSample | None = None,
    metrics: Metrics | Sequence[str] | None = None,
) -> Job:
    """A job whose parts go together; loss and metrics are those that suit the targets, where none are given."""
    algorithm.local.check(training.rule.momentum)
    fed = fed.pool() if algorithm.pools else fed
    plan.check(fed)
    plan.check_patience(any(map(len, fed.heldout.values())))
    algorithm.average.check_cohort(plan.sample or len(fed.clients))
    if plan.adapt_steps is not None and algorithm.local.own_models:
        raise AccordError(f"adapt_steps has no meaning with {algorithm.name}: it has no common model to start from")
    if algorithm.privacy:
        plan.check_privacy()
        algorithm.privacy.check_layout(Layout.of(model, algorithm.personal))
    layout, where, ways = Layout.of(model, algorithm.personal), pick_device(device), checked(speed)
    rehearse(algorithm, layout, len(fed.clients))
    metrics = chosen_metrics(metrics, fed.y, own_loss=loss is not None)
    loss = per_sample_loss(loss or default_loss(fed.y), where)
    against = None if attack is None else attackers(attack, fed, algorithm, plan.seed)
    called = as_called(model, fed)
    return Job(called, layout, fed, algorithm, training, loss, metrics, plan.seed, where, ways, against, model)


def _open(
    folder: str | Path | RunFolder | None, job: Job, plan: Plan, resume: bool, engine: str, device: str
) -> RunFolder | None:
    if folder is None or isinstance(folder, RunFolder):
        return folder
    path = Path(folder) / run_name(job, identity(job, plan))
    return RunFolder(path, run_settings(job, plan, engine, device), plan.rounds, resume=resume)
