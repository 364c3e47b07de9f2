"""Before round one: the owners' tables are compared, their statistics added up, and every node is told the preparation
that all of them share."""

import logging
import math
from collections.abc import Sequence

import torch
from flwr.app import Message, MessageType, RecordDict
from torch import nn

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.names import listed
from accord.data.agreement import Form, agreed, check_alike
from accord.data.federated import Federation
from accord.data.moments import Moments
from accord.data.preparation import Preparation
from accord.deploy.flower.npy import Wanted, arrays_in
from accord.deploy.flower.preparing import STATISTICS, check_share, total_of, wanted_share
from accord.deploy.flower.replies import Failed, MessageBody, Silent, content_of
from accord.deploy.flower.roster import Roster
from accord.deploy.flower.sums import Sums
from accord.deploy.flower.wire import SPLITS, content

_log = logging.getLogger("flwr")


class Owners:
    """The nodes of the clients that train, in the run's order, and what each says of its data."""

    def __init__(self, roster: Roster, clients: Sequence[str], sums: Sums | None, timeout: float, wait: float) -> None:
        self.roster, self.sums, self.timeout, self.wait = roster, sums, timeout, wait
        self.clients: dict[int, list[str]] = {}
        for client in clients:
            if client not in roster.where:
                raise AccordError(f"client {client} went away before the first round: submit the run again")
            self.clients.setdefault(roster.where[client], []).append(client)
        self.forms: dict[str, Form] = {}
        for node, names in self.clients.items():
            who = f"client{'s' if len(names) > 1 else ''} {listed(names)}"
            self.forms[who] = roster.forms[node]

    @property
    def columns(self) -> list[str]:
        """Of a table, in the order of the first owner's."""
        return [column.name for column in next(iter(self.forms.values())).columns]

    def agree(self, kept: Preparation | None) -> Preparation:
        """The preparation of all; the one that was `kept` when the run began, where it goes on."""
        check_alike(self.forms)
        if kept is not None:
            return kept
        in_clear = dict.fromkeys(what for form in self.forms.values() for what in form.in_clear)
        if in_clear:
            _log.info("sent in clear by every node: the levels of %s", listed(list(in_clear)))
        first = next(iter(self.forms.values()))
        moments = None if first.settled is not None else self._moments(first)
        return agreed(self.forms, moments)

    def announce(self, agreed: Preparation, model: nn.Module, shaped: bool) -> None:
        """Tells every node, unless all have the same already: nothing is fitted, and no class has a name."""
        if shaped or any(form.settled is None or form.classes for form in self.forms.values()):
            clients = [client for names in self.clients.values() for client in names]
            self.roster.settle(agreed.to_json(), Layout.of(model), clients, self.wait)

    def _moments(self, first: Form) -> Moments:
        """Counts, sums and sums of squares, added up over nodes."""
        columns, sums, timeout = self.columns, self.sums, self.timeout
        width = len(columns) or first.shape[0]
        cohort = [names[0] for names in self.clients.values()]
        asked = {
            node: Message(
                content({}, {"clients": names, "cohort": cohort, "columns": columns}),
                node,
                f"{MessageType.QUERY}.{STATISTICS}",
                ttl=timeout,
            )
            for node, names in self.clients.items()
        }
        shares: dict[int, torch.Tensor] = {}
        wrong: dict[int, str] = {}
        for node, reply in self.roster.exchange(asked, timeout):
            try:
                share = _share(content_of(reply, timeout), wanted_share(sums, width))
                shares[node] = check_share(share, sums, width, self._rows(node))
            except (Silent, Failed) as error:
                wrong[node] = str(error)
            except AccordError as error:
                wrong[node] = self.roster.blame(node, "statistics", str(error))
        if wrong:
            node, why = next(iter(wrong.items()))
            raise AccordError(
                f"the statistics of {listed(self.clients[node])} are missing, without which no table can be scaled:"
                f" {why} ({self.roster.named(node)})"
            )
        _log.info("statistics of %s nodes added up%s", len(shares), _hidden(sums))
        moments = total_of([shares[node] for node in self.clients], sums, width)
        if moments.rows != (registered := sum(map(self._rows, self.clients))):
            raise AccordError(f"the statistics are of {moments.rows} rows, and the clients registered {registered}")
        return moments

    def _rows(self, node: int) -> int:
        """Numbers of a column that a node's clients have; of a channel of pictures, their pixels."""
        samples = sum(self.roster.sizes["train"][client] for client in self.clients[node])
        return samples * math.prod(self.roster.forms[node].shape[1:])


def _share(received: RecordDict, wanted: Wanted) -> torch.Tensor:
    MessageBody.read(received, ["statistics"])
    return arrays_in(received, "statistics", wanted)["moments"]


def _hidden(sums: Sums | None) -> str:
    if sums is None or sums.secure is None:
        return ", which the server saw one by one"
    if sums.masked:
        return ", each under masks"
    # the protocol's stages hide what a round adds up, and this comes before the first
    return ", as whole numbers, which the server saw one by one"


def names_only(clients: Sequence[str], roster: Roster, name: str) -> Federation:
    """The federation as the server knows it: names, and no sample."""
    nothing = torch.zeros(0, dtype=torch.int64)
    at_node = set(clients)
    known = {split: [c for c in roster.sizes[split] if split == "unseen" or c in at_node] for split in SPLITS[1:]}
    splits = {split: dict.fromkeys(sorted(names), nothing) for split, names in known.items()}
    return Federation(
        torch.zeros(0), nothing, dict.fromkeys(clients, nothing), splits["heldout"], splits["unseen"], name=name
    )
