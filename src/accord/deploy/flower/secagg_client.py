"""A client's side of a secure sum: its answers to the four stages, and what it keeps on its disk between them.

A SuperNode starts a process for every message, so keys wait in a file that only its owner can read. Every stage takes
the file away before it answers: a stage is answered once, also where two processes are asked at the same time.

The difference of two sums over different clients is somebody's record, where the others' are the same in both. So a
client helps to unmask a record once for the same start (model, seed and round), whichever experiment asks, and in one
experiment no round that is not later than the last.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import RecordDict
from pydantic import ValidationError

from accord.core.errors import AccordError
from accord.core.files import write_text
from accord.core.record import State
from accord.deploy.flower import secagg
from accord.deploy.flower.memory import client_folder
from accord.deploy.flower.secagg_messages import (
    BESIDE,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Kept,
    Question,
    written,
)
from accord.deploy.flower.sums import Hide
from accord.deploy.flower.wire import message_in, tensors_in
from accord.privacy.distributed import Whole
from accord.privacy.secagg_graph import Graph
from accord.privacy.secure_sum import SecureSum

_DONE = "secagg-done"


@dataclass(frozen=True)
class SecureClient:
    """The clients of a node. `graph(cohort)` is what the node's own settings make of a cohort's size: the threshold is
    the node's to say, the size is the server's word."""

    folder: Path
    graph: Callable[[int], Graph]
    clients: frozenset[str]
    secure: SecureSum
    noised: Callable[[Whole, int], Whole]  # what privacy does to a record, in a cohort of a size

    def keys(self, received: RecordDict) -> RecordDict:
        ask = AskKeys.read(received)
        if ask.client not in self.clients:
            raise AccordError(f"client {ask.client} does not live on this node")
        self.secure.check_cohort(ask.cohort)
        place = self._place(ask)
        if ask.round <= place.done():
            raise AccordError(
                f"client {ask.client} has given round {ask.round} of this experiment before, and two sums of one round"
                " can give a record away: for a run from the beginning choose another seed"
            )
        answer, kept = secagg.make_keys(ask)
        place.put(kept, fresh=True)
        return written(answer)

    def shares(self, received: RecordDict) -> RecordDict:
        ask = AskShares.read(received)
        place = self._place(ask)
        kept = place.take(ask)
        answer, now = secagg.make_shares(ask, kept, self.graph(kept.cohort))
        place.put(now)
        return written(answer)

    def hide(self, received: RecordDict) -> Hide:
        """How the record of a task is masked: with the keys of its session, and of that task's client and round."""
        ask, task = AskMasked.read(received, received.keys(), BESIDE), message_in(received)
        if (task.get("experiment"), task.get("client"), task.get("round")) != (ask.experiment, ask.client, ask.round):
            raise AccordError("a task and the shares that came with it are not of one client and round")
        place = self._place(ask)
        kept = place.take(ask)
        now = secagg.take_shares(ask, kept, self.graph(kept.cohort)).model_copy(update={"start": _start(received)})
        place.check_new(now)  # not earlier: the model comes with this stage

        def masked(fields: Whole) -> State:
            noised = self.noised(fields, kept.cohort)
            whole = {path: (field.value.numpy(), bits) for path, (field, bits) in noised.items()}
            out = {path: torch.from_numpy(values) for path, values in secagg.masked(whole, now).items()}
            place.put(now)
            return out

        return masked

    def unmask(self, received: RecordDict) -> RecordDict:
        ask = AskUnmask.read(received)
        place = self._place(ask)
        kept = place.take(ask)
        answer = secagg.unmask(ask, kept, self.graph(kept.cohort))
        place.finish(kept)  # before the answer leaves: what was said cannot be taken back
        return written(answer)

    def _place(self, ask: Question) -> "_Place":
        places = (client_folder(self.folder, of, ask.client) for of in (ask.experiment, _DONE))
        return _Place(*places)


def _start(received: RecordDict) -> str:
    """A digest of what a client's record follows from, beside its data and the rules: the model, seed and round."""
    task, hashed = message_in(received), hashlib.sha256()
    hashed.update(repr((task.get("seed"), task.get("round"))).encode())
    for name, value in sorted(tensors_in(received, "model").items()):
        hashed.update(repr((name, value.dtype, tuple(value.shape))).encode())
        hashed.update(value.numpy().tobytes())
    return hashed.hexdigest()


@dataclass(frozen=True)
class _Place:
    """One client's folder of one experiment, and the one in which it notes starts, of whatever experiment."""

    folder: Path
    starts: Path

    def put(self, kept: Kept, fresh: bool = False) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # of a round that this client dropped out of, or of a process that was killed
            for old in self.folder.glob("secagg-*") if fresh else ():
                if old.name != _DONE:
                    old.unlink(missing_ok=True)
            file = self._file(kept)
            beside = file.with_suffix(".part")
            beside.unlink(missing_ok=True)
            # nobody else can read it, from its first byte on
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
                handle.write(kept.model_dump_json())
            beside.replace(file)
        except OSError as error:
            raise AccordError(f"client {kept.client} cannot keep its keys in {self.folder}: {error.strerror}") from None

    def take(self, ask: Question) -> Kept:
        """What was kept for this session, which is not there any more."""
        file = self._file(ask)
        taken = file.with_suffix(".taken")
        try:
            file.rename(taken)  # one of two that try at the same time
            text = taken.read_text()
            taken.unlink()
            return Kept.model_validate_json(text)
        except (OSError, ValidationError):
            raise AccordError(
                f"client {ask.client} keeps no keys of this session: this stage was answered before, or never came to"
            ) from None

    def done(self) -> int:
        """The last round that this client has helped to unmask."""
        try:
            return int((self.folder / _DONE).read_text())
        except FileNotFoundError:
            return -1
        except (OSError, ValueError) as error:
            raise AccordError(f"{self.folder / _DONE} should hold a round's number: {error}") from None

    def check_new(self, kept: Kept) -> None:
        """Refuses a start from which this client has helped to unmask a record before."""
        if self._note(kept).exists():
            raise AccordError(_twice(kept))

    def finish(self, kept: Kept) -> None:
        """Notes the round, and its start: once, also where two experiments ask at the same time."""
        try:
            self.starts.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._note(kept), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            write_text(self.folder / _DONE, str(max(kept.round, self.done())))
        except FileExistsError:
            raise AccordError(_twice(kept)) from None
        except OSError as error:
            raise AccordError(f"client {kept.client} cannot note round {kept.round}: {error.strerror}") from None

    def _note(self, kept: Kept) -> Path:
        assert kept.start is not None, "a record is masked before it is unmasked"
        return self.starts / kept.start

    def _file(self, of: Question) -> Path:
        return self.folder / f"secagg-{of.session}.json"


def _twice(kept: Kept) -> str:
    return (
        f"client {kept.client} has given a record of round {kept.round} from this model and seed before, in this"
        " experiment or another, and two sums from one start can give a record away: choose another seed"
    )
