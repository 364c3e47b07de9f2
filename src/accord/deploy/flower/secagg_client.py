"""A client's side of a secure sum: its answers to the four stages, and what it keeps on its disk between them.

A SuperNode starts a process for every message, so keys wait in a file that only its owner can read. Every stage takes
the file away before it answers: a stage is answered once, also where two processes are asked at the same time. A round
that a client has helped to unmask it does not train for again: its record would be the same, and the difference of two
sums over different clients is somebody's record.
"""

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
from accord.deploy.flower.secagg_graph import Graph
from accord.deploy.flower.secagg_messages import (
    BESIDE,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Kept,
    Question,
    read,
    written,
)
from accord.deploy.flower.sums import Hide
from accord.deploy.flower.wire import message_in
from accord.privacy.distributed import Whole

_DONE = "secagg-done"


@dataclass(frozen=True)
class SecureClient:
    """The clients of a node. `graph(cohort)` is what the node's own settings make of a cohort's size, so that a server
    cannot talk a client into a lower threshold."""

    folder: Path
    graph: Callable[[int], Graph]
    clients: frozenset[str]
    most: int  # clients of a cohort that were declared
    noised: Callable[[Whole, int], Whole]  # what privacy does to a record, in a cohort of a size

    def keys(self, received: RecordDict) -> RecordDict:
        ask = read(received, AskKeys)
        if ask.client not in self.clients:
            raise AccordError(f"client {ask.client} does not live on this node")
        if ask.cohort > self.most:
            raise AccordError(f"a secure sum of {self.most} clients was declared, and a round has {ask.cohort}")
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
        ask = read(received, AskShares)
        place = self._place(ask)
        kept = place.take(ask)
        answer, now = secagg.make_shares(ask, kept, self.graph(kept.cohort))
        place.put(now)
        return written(answer)

    def hide(self, received: RecordDict) -> Hide:
        """How the record of a task is masked: with the keys of its session, and of that task's client and round."""
        ask, task = read(received, AskMasked, BESIDE), message_in(received)
        if (task.get("experiment"), task.get("client"), task.get("round")) != (ask.experiment, ask.client, ask.round):
            raise AccordError("a task and the shares that came with it are not of one client and round")
        place = self._place(ask)
        kept = place.take(ask)
        now = secagg.take_shares(ask, kept, self.graph(kept.cohort))

        def masked(fields: Whole) -> State:
            noised = self.noised(fields, kept.cohort)
            whole = {path: (field.value.numpy(), bits) for path, (field, bits) in noised.items()}
            out = {path: torch.from_numpy(values) for path, values in secagg.masked(whole, now).items()}
            place.put(now)
            return out

        return masked

    def unmask(self, received: RecordDict) -> RecordDict:
        ask = read(received, AskUnmask)
        place = self._place(ask)
        kept = place.take(ask)
        answer = secagg.unmask(ask, kept, self.graph(kept.cohort))
        place.finish(ask.round)  # before the answer leaves: what was said cannot be taken back
        return written(answer)

    def _place(self, ask: Question) -> "_Place":
        return _Place(client_folder(self.folder, ask.experiment, ask.client))


@dataclass(frozen=True)
class _Place:
    """One client's folder of one experiment."""

    folder: Path

    def put(self, kept: Kept, fresh: bool = False) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for old in self.folder.glob("secagg-*.json") if fresh else ():
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

    def finish(self, round: int) -> None:
        try:
            write_text(self.folder / _DONE, str(max(round, self.done())))
        except OSError as error:
            raise AccordError(f"{self.folder / _DONE} cannot be written: {error.strerror}") from None

    def _file(self, of: Question) -> Path:
        return self.folder / f"secagg-{of.session}.json"
