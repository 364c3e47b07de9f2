"""CausalFed as an engine: server and clients in one process, speaking in messages. Evaluation is that of the whole
network."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from accord.causal.client import Client
from accord.causal.exchange import Near, talk
from accord.causal.halved import Halved
from accord.causal.server import Heard, Server
from accord.core.layout import change_of_buffers
from accord.core.reports import Reports
from accord.engines.contract import ClientRow, Engine, Group, Job, Member, Outcome, Table, Work, too_few
from accord.engines.sequential import Sequential


class Causal(Engine):
    """Trains a network cut in two. To the loop, the round is the report of one client: the server itself."""

    name = "causal"

    def __init__(self, job: Job) -> None:
        self.job = replace(job, fed=job.fed.to(job.device))
        self.halved = Halved(self.job)
        self._reference = Sequential(self.job)  # evaluates

    def close(self) -> None:
        """Nothing is held open."""

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        return self._reference.evaluate(vector, buffers, groups)

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """One round of the exchange, from `work`."""
        least = self.halved.least
        able = [member for member in cohort if len(member.rows) >= least]
        server = Server(self.halved, work.round, work.vector, work.buffers)
        talk(server, {member.client: Near(Client(self.halved, member)) for member in able})
        rows = [_row(member, server.heard.get(member.client), least) for member in cohort]
        if all(row.left_out_because for row in rows):
            return Outcome(None, rows)
        one = torch.ones(1, 1, dtype=work.vector.dtype, device=work.vector.device)
        moved = change_of_buffers(work.buffers, server.buffers)
        report = Reports(
            delta=(server.vector - work.vector)[None], weight=one, steps=one * server.step, buffers=moved[None]
        )
        accepted = [server.heard[row.client] for row in rows if row.left_out_because is None]
        penalty = sum(heard.penalty for heard in accepted) / sum(heard.steps for heard in accepted)
        return Outcome(self.job.algorithm.lift(report, work.memory), rows, {"penalty": penalty})


def _row(member: Member, heard: Heard | None, least: int) -> ClientRow:
    if heard is None:
        return too_few(member, least)
    steps = max(heard.steps, 1)
    return ClientRow(
        member.client,
        len(member.rows),
        heard.steps,
        heard.loss / max(heard.samples, 1),
        heard.norm / steps,
        heard.left_out_because,
    )
