"""Secure aggregation as a protocol: its four stages between a real strategy and real client apps, without a network.
Whoever drops out at whatever stage, the model is that of the open sums of those who remained, to the last bit; below
the threshold the round is skipped. With real processes see `test_flower_secagg_processes.py`."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from direct_grid import DirectGrid
from flwr.app import ArrayRecord, Message
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from test_flower import Killed, Normed, finished, grid_of, state, strategy_of  # noqa: F401

import accord
from accord.core.errors import AccordError
from accord.data import Federation
from accord.deploy.flower import Strategy, Sums, client_app, secagg
from accord.deploy.flower import secagg_messages as messages
from accord.deploy.flower.keystream import add_keystreams
from accord.deploy.flower.packing import packed_numbers, unpacked_numbers
from accord.deploy.flower.secagg_messages import KEYS, MASKED, SHARES, UNMASK
from accord.privacy.secagg_graph import graph_of
from accord.privacy.secure_sum import SecureSum, votes_bits
from accord.rules.algorithm import Algorithm
from accord.runs.run import Run
from accord.training.plan import Plan
from conftest import blobs, mlp, sentence

STAGES = [KEYS, SHARES, MASKED, UNMASK]
SECURE = SecureSum(clients=12, bound=200.0)
MASKED_SUMS = Sums(SECURE, protocol="secagg+")
GMA = accord.fedavg(mask=accord.gma(0.4))
ALGORITHMS = {
    "fedavg": accord.fedavg(),
    "gma": GMA,
    "fedprox, and": accord.fedprox(mu=0.1, mask=accord.and_mask(0.4)),
    "scaffold, gma": accord.scaffold(mask=accord.gma(0.4)),
    "fedadam, magnitude": accord.fedadam(mask=accord.magnitude(0.4)),
}


class Dying(DirectGrid):
    """`dies[node]` is the stage at which a node dies: it hears the question and answers nothing from then on.
    `heard` is all that the server got to see."""

    def __init__(self, grid: DirectGrid, dies: dict[int, str] | None = None) -> None:
        super().__init__(grid.apps)
        self.dies, self.dead = dies or {}, set[int]()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.change: Callable[[str, Message], Message | None] = lambda stage, reply: reply

    def _answer(self, message: Message) -> None:
        node, stage = message.metadata.dst_node_id, message.metadata.message_type.rpartition(".")[2]
        if self.dies.get(node) == stage:
            self.dead.add(node)
        if node in self.dead:
            return
        self.tamper[node] = lambda reply: self._note(stage, self.change(stage, reply))
        super()._answer(message)

    def _note(self, stage: str, reply: Message | None) -> Message | None:
        with suppress(ValueError):  # of tests that spoil it
            if reply is not None:
                self.heard.append((stage, json.loads(str(reply.content["accord"]["json"]))))
        return reply


def node_of(client: str) -> int:
    """Of a federation whose clients have a node each."""
    return 9000 - 7 * int(client[1:])


def hidden(
    fed: Federation, algorithm: Algorithm, dies: dict[str, str], rounds: int = 1, sums: Sums = MASKED_SUMS
) -> tuple[Run, Dying]:
    apps = grid_of(fed, len(fed.clients), sums=sums, algorithm=algorithm)
    grid = Dying(apps, {node_of(client): stage for client, stage in dies.items()})
    strategy = strategy_of(fed, algorithm, rounds, None, sums=sums, timeout=0.2 if dies else 2.0)
    return finished(strategy, grid), grid


def opened(fed: Federation, algorithm: Algorithm, without: Iterable[str] = (), rounds: int = 1) -> Run:
    """Open sums of the same whole numbers, of those who remained."""
    others = replace(fed, train={client: rows for client, rows in fed.train.items() if client not in without})
    grid = grid_of(others, len(fed.clients), sums=Sums(SECURE), algorithm=algorithm)
    return finished(strategy_of(others, algorithm, rounds, None, sums=Sums(SECURE)), grid)


def same(found: Run, expected: Run) -> None:
    assert torch.equal(found.last.vector, expected.last.vector)
    assert torch.equal(found.last.buffers, expected.last.buffers)
    for mine, theirs in zip(found.rows, expected.rows, strict=True):
        assert mine.get("agreement") == theirs.get("agreement") and mine["accepted"] == theirs["accepted"]


# ---------------------------------------------------------------------------------- the sum is that of open sums


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_round_is_that_of_open_sums(name: str) -> None:
    """Three rounds of five of twelve clients, on five nodes: some nodes speak for several clients of a round."""
    fed, algorithm = blobs(), ALGORITHMS[name]
    runs = []
    for sums in (Sums(SECURE), MASKED_SUMS):
        grid = grid_of(fed, sums=sums, algorithm=algorithm)
        runs.append(finished(strategy_of(fed, algorithm, 3, sums=sums), grid))
    same(runs[1], runs[0])
    assert [row["left_out"] for row in runs[1].rows] == [{}, {}, {}]


@pytest.mark.parametrize("personal", [(), ("batchnorm",), ("body.3",)], ids=["all shared", "FedBN", "FedPer"])
def test_buffers_and_personal_parameters(personal: tuple[str, ...]) -> None:
    fed, algorithm = blobs(), GMA.with_personal(*personal) if personal else GMA
    runs = []
    for sums in (Sums(SECURE), MASKED_SUMS):
        grid = grid_of(fed, model=Normed(), sums=sums, algorithm=algorithm)
        runs.append(finished(strategy_of(fed, algorithm, 2, sums=sums, model=Normed()), grid))
    same(runs[1], runs[0])


# ------------------------------------------------------------------------------------------------- drop-outs


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["gma", "scaffold, gma"])
def test_three_of_ten_that_die_at_a_stage_are_recovered(name: str, stage: str) -> None:
    """In a second round they are still gone. Who dies at the last stage has sent its record, which counts."""
    fed, algorithm = blobs(clients=10, unseen=0), ALGORITHMS[name]
    dying = dict.fromkeys(("c02", "c05", "c09"), stage)
    found, _ = hidden(fed, algorithm, dying)
    gone = set() if stage == UNMASK else set(dying)
    same(found, opened(fed, algorithm, gone))
    row = found.rows[0]
    assert set(row["left_out"]) == gone and row["accepted"] == 10 - len(gone)
    assert all("no reply within 0.2 s" in why for why in row["left_out"].values())
    assert set(row.get("silent_at_unmask", {})) == (set(dying) if stage == UNMASK else set())


@pytest.mark.parametrize("stage", STAGES)
def test_four_of_ten_are_too_many(stage: str) -> None:
    fed = blobs(clients=10, unseen=0)
    with pytest.warns(UserWarning, match="round 1 was skipped"):
        found, _ = hidden(fed, GMA, dict.fromkeys(("c00", "c02", "c05", "c09"), stage))
    row = found.rows[0]
    assert row["accepted"] == 0 and len(row["left_out"]) == 10
    assert "6 of 10 clients" in row["left_out"]["c01"] and "7 must: the round is skipped" in row["left_out"]["c01"]
    start = torch.cat([p.detach().reshape(-1) for p in mlp().parameters()])
    assert torch.equal(found.last.vector, start)


def test_one_at_each_of_three_stages_and_one_at_the_last(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Three records are missing, and of the seven that came one cannot help: six shares do not open a secret of
    seven."""
    fed = blobs(clients=10, unseen=0)
    dying = {"c01": KEYS, "c04": SHARES, "c08": MASKED}
    same(hidden(fed, GMA, dying)[0], opened(fed, GMA, dying))
    monkeypatch.setenv("ACCORD_STATE", str(state / "other"))  # else no client gives a round twice
    with pytest.warns(UserWarning, match="round 1 was skipped"):
        found, _ = hidden(fed, GMA, {**dying, "c03": UNMASK})
    assert "6 of 10 clients helped to unmask the sum, and 7 must" in found.rows[0]["left_out"]["c00"]


@pytest.mark.parametrize("stage", STAGES)
def test_neighbours_instead_of_everybody(stage: str) -> None:
    """Twelve clients with six neighbours each: a secret opens with four of seven shares."""
    fed = blobs(clients=12, unseen=0)
    sums = Sums(SECURE, protocol="secagg+", threshold=0.55, neighbours=6)
    assert sums.graph(12).opens == 4
    dying = dict.fromkeys(("c02", "c05"), stage)
    found, grid = hidden(fed, GMA, dying, sums=sums)
    same(found, opened(fed, GMA, () if stage == UNMASK else dying))
    dealt = [answer for kind, answer in grid.heard if kind == SHARES]
    assert all(4 <= len(answer["shares"]) <= 6 for answer in dealt)


def test_a_client_that_cannot_train_is_a_drop_out() -> None:
    """Its update is NaN, which only it can see."""
    fed = blobs(clients=4, unseen=0)
    fed.x[fed.train["c02"]] = float("nan")
    found, _ = hidden(fed, GMA, {})
    assert list(found.rows[0]["left_out"]) == ["c02"]
    assert "NaN in the update" in found.rows[0]["left_out"]["c02"]
    same(found, opened(fed, GMA, ["c02"]))


# ----------------------------------------------------------------------------------------- what the server sees


def test_the_server_never_holds_both_secrets_of_a_client_nor_a_record() -> None:
    fed = blobs(clients=10, unseen=0)
    seen: dict[str, np.ndarray] = {}
    apps = grid_of(fed, 10, sums=MASKED_SUMS, algorithm=GMA)
    grid = Dying(apps, dict.fromkeys(map(node_of, ("c02", "c05")), MASKED))

    def look(stage: str, reply: Message) -> Message:
        if stage == MASKED:
            seen.update({name: array.numpy() for name, array in reply.content.array_records["record"].items()})
        return reply

    grid.change = look
    strategy = strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS, timeout=0.3)
    finished(strategy, grid)
    shares: dict[str, dict[str, int]] = {"seeds": defaultdict(int), "keys": defaultdict(int)}
    for stage, answer in grid.heard:
        for kind in shares if stage == UNMASK else ():
            for name in answer[kind]:
                shares[kind][name] += 1
    assert set(shares["keys"]) == {"c02", "c05"} and set(shares["seeds"]) == set(fed.clients) - {"c02", "c05"}
    size, bits = strategy.loop.job.layout.size, votes_bits(SECURE.clients)
    assert len(seen["mask.votes"]) == -(-size * bits // 8)
    assert len(np.unique(seen["average.delta"].view(np.uint32))) > 0.99 * size  # of 32 bits, hardly two alike
    digits = np.unpackbits(seen["mask.votes"])
    assert abs(float(digits.mean()) - 0.5) < 4 * 0.5 / np.sqrt(len(digits))


def test_keys_are_fresh_in_every_round(state: Path) -> None:  # noqa: F811
    _, grid = hidden(blobs(clients=4, unseen=0), GMA, {}, rounds=3)
    points = [answer["keys"][which] for kind, answer in grid.heard if kind == KEYS for which in ("mask", "share")]
    assert len(set(points)) == len(points) == 3 * 4 * 2
    assert not list(state.rglob("secagg-*.json")) and not list(state.rglob("secagg-*.taken"))  # none is left behind


def test_a_wrong_share_is_found_and_named(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """One client of ten hands out wrong shares of everybody's seed: the others' open them. Two of them are too many to
    be found out one by one, and the round is skipped rather than wrong."""
    fed = blobs(clients=10, unseen=0)
    apps = grid_of(fed, 10, sums=MASKED_SUMS, algorithm=GMA)
    for liars, completes in ((["c03"], True), (["c03", "c04"], False)):
        grid = Dying(apps)
        monkeypatch.setenv("ACCORD_STATE", str(state / str(len(liars))))  # else no client gives a round twice

        def lie(stage: str, reply: Message, liars: list[str] = liars) -> Message:
            if stage == UNMASK:
                words = json.loads(str(reply.content["accord"]["json"]))
                if words["client"] in liars:
                    words["seeds"] = {name: share[:-2] + "00" for name, share in words["seeds"].items()}
                    reply.content["accord"]["json"] = json.dumps(words)
            return reply

        grid.change = lie
        strategy = strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS, name=f"{len(liars)} liars")
        if completes:
            found = finished(strategy, grid)
            same(found, opened(fed, GMA))
            assert set(found.rows[0]["wrong_shares"].values()) <= {"c03"}
        else:
            with pytest.warns(UserWarning, match="round 1 was skipped"):
                row = finished(strategy, grid).rows[0]
            assert "cannot be removed: a share is wrong" in row["left_out"]["c00"]


def garbled(grid: Dying, dealer: str, readers: list[str]) -> None:
    """What `dealer` encrypts to these neighbours, they cannot open."""

    def deal(stage: str, reply: Message) -> Message:
        if stage == SHARES:
            words = json.loads(str(reply.content["accord"]["json"]))
            if words["client"] == dealer:
                rubbish = encrypt(Fernet.generate_key(), b"nothing").decode()
                words["shares"] |= dict.fromkeys(readers, rubbish)
                reply.content["accord"]["json"] = json.dumps(words)
        return reply

    grid.change = deal


@pytest.mark.parametrize("dies", [{}, {"c03": MASKED}], ids=["and stays", "and dies"])
def test_shares_that_cannot_be_read_leave_out_nobody(dies: dict[str, str]) -> None:
    """c03 deals rubbish to neighbours of its choice: they do without, and are in the sum. Who says what of whom is in
    the row; two of ten do not count against anybody, since they may be the ones who lie."""
    fed = blobs(clients=10, unseen=0)
    apps = grid_of(fed, 10, sums=MASKED_SUMS, algorithm=GMA)
    grid = Dying(apps, {node_of(client): stage for client, stage in dies.items()})
    garbled(grid, "c03", ["c05", "c07"])
    found = finished(strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS, timeout=0.3), grid)
    assert set(found.rows[0]["left_out"]) == set(dies) and "bad_replies" not in found.rows[0]
    assert found.rows[0]["unread_shares"] == {"c03": ["c05", "c07"]}
    same(found, opened(fed, GMA, dies))


def test_who_deals_too_much_that_cannot_be_read_is_counted_and_excluded() -> None:
    """Four of ten say so: three shares are to spare, and so many may drop out or lie. The masks of c03 do not come off,
    and after three such rounds the others go on without it."""
    fed = blobs(clients=10, unseen=0)
    grid = Dying(grid_of(fed, 10, sums=MASKED_SUMS, algorithm=GMA))
    garbled(grid, "c03", ["c05", "c06", "c07", "c08"])
    with pytest.warns(UserWarning, match="was skipped"):
        rows = finished(strategy_of(fed, GMA, 4, None, sums=MASKED_SUMS), grid).rows
    assert [row["accepted"] for row in rows] == [0, 0, 0, 9]
    said = "4 of its neighbours cannot open the shares that it made for them"
    assert all(said in row["bad_replies"][f"node {node_of('c03')} (c03), shares of c03"] for row in rows[:3])
    assert "the masks of c03 cannot be removed: 6 shares came, and 7 open a secret" in rows[0]["left_out"]["c00"]
    assert list(rows[3]["left_out"]) == ["c03"] and "is excluded" in rows[3]["left_out"]["c03"]


def test_a_client_that_says_it_can_read_nobody_s_shares_harms_nobody() -> None:
    fed = blobs(clients=10, unseen=0)
    grid = Dying(grid_of(fed, 10, sums=MASKED_SUMS, algorithm=GMA))

    def complain(stage: str, reply: Message) -> Message:
        words = json.loads(str(reply.content["accord"]["json"]))
        if stage == UNMASK and words["client"] == "c03":
            own = {"c03": words["seeds"]["c03"]}
            words |= {"seeds": own, "unread": sorted(words["seeds"].keys() - own.keys())}
            reply.content["accord"]["json"] = json.dumps(words)
        return reply

    grid.change = complain
    found = finished(strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS), grid)
    assert found.rows[0]["unread_shares"] == {c: ["c03"] for c in fed.clients if c != "c03"}
    assert found.rows[0]["left_out"] == {} and "bad_replies" not in found.rows[0]
    same(found, opened(fed, GMA))


BAD = {
    "nothing": lambda words: "",
    "no JSON": lambda words: "{" * 10_000,
    "another client": lambda words: json.dumps({**words, "client": "c01"}),
    "another session": lambda words: json.dumps({**words, "session": "0" * 32}),
    "more": lambda words: json.dumps({**words, "more": 1}),
    "a number": lambda words: json.dumps(dict.fromkeys(words, 10**400)),
    "too long": lambda words: json.dumps({**words, "client": "c" * (1 << 24)}),
    "lists": lambda words: json.dumps({key: [[]] for key in words}),
    "an error": lambda words: json.dumps({"error": "the disk\nis full"}),
}


@pytest.mark.parametrize("stage", [KEYS, SHARES, UNMASK])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_answer_is_that_clients_drop_out(stage: str, kind: str) -> None:
    fed = blobs(clients=4, unseen=0)
    grid = Dying(grid_of(fed, 4, sums=MASKED_SUMS, algorithm=GMA))

    def spoil(at: str, reply: Message) -> Message:
        words = json.loads(str(reply.content["accord"]["json"]))
        if at == stage and words["client"] == "c02":
            reply.content["accord"]["json"] = BAD[kind](words)
        return reply

    grid.change = spoil
    found = finished(strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS), grid)
    row = found.rows[0]
    out = row["silent_at_unmask"] if stage == UNMASK else row["left_out"]
    assert list(out) == ["c02"] and f"(stage {stage})" in out["c02"] and "\n" not in out["c02"]
    same(found, opened(fed, GMA, [] if stage == UNMASK else ["c02"]))


# -------------------------------------------------------------------------------------------- what clients refuse


def asked(grid: DirectGrid, message: Message, words: dict[str, Any]) -> dict[str, Any]:
    """A client's answer to a question of the test's own."""
    question = Message(message.content, message.metadata.dst_node_id, message.metadata.message_type)
    question.content["accord"]["json"] = json.dumps(words)
    (key,) = grid.push_messages([question])
    (reply,) = grid.pull_messages([key])
    answer: dict[str, Any] = json.loads(str(reply.content["accord"]["json"]))
    return answer


class Curious(Dying):
    """A server that asks c00 to unmask in ways of its own first."""

    def __init__(self, grid: DirectGrid, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(grid)
        self.ask, self.said = ask, dict[str, Any]()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        for message in sent:
            if message.metadata.message_type == f"train.{UNMASK}" and not self.said:
                self.said = {"asked": True}
                words = json.loads(str(message.content["accord"]["json"]))
                self.said = asked(self, message, self.ask(words))
                message.content["accord"]["json"] = json.dumps(words)
        return super().push_messages(sent)


CURIOUS = {
    "both secrets of one": (
        lambda words: {**words, "dropped": words["survivors"][-1:]},
        "cannot have remained and dropped out: its record would be open",
    ),
    "its own as one that dropped out": (
        lambda words: {**words, "survivors": words["survivors"][1:], "dropped": words["survivors"][:1]},
        "is not that of this client's neighbours",
    ),
    "of somebody else": (
        lambda words: {**words, "dropped": ["c99"]},
        "is not that of this client's neighbours",
    ),
    "with too few left": (
        lambda words: {**words, "survivors": words["survivors"][:2], "dropped": words["survivors"][2:]},
        "2 neighbours remained, and 3 must: the sum stays masked",
    ),
    "of another round": (lambda words: {**words, "round": 7}, "came out of turn"),
    "of another session": (lambda words: {**words, "session": "0" * 32}, "keeps no keys of this session"),
}


@pytest.mark.parametrize("kind", CURIOUS)
def test_what_a_client_does_not_unmask(kind: str) -> None:
    """Once it has refused, its keys are gone: the right question comes too late, and the others must do."""
    ask, said = CURIOUS[kind]
    fed = blobs(clients=4, unseen=0)
    grid = Curious(grid_of(fed, 4, sums=MASKED_SUMS, algorithm=GMA), ask)
    row = finished(strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS), grid).rows[0]
    assert said in grid.said["error"] and row["accepted"] == 4
    assert len(row.get("silent_at_unmask", {})) == (0 if kind == "of another session" else 1)


def test_a_server_that_tells_each_client_another_story_is_not_protected_against() -> None:
    """The limit that docs/explanation/privacy.md states: ten clients, none of which colludes, a cohort that is said to
    be of six, and neighbours of the server's choice. Everybody's checks pass, and c's record is open: its own seed by
    three neighbours, whose masks the six others take off, being told that these three dropped out."""
    graph, base = graph_of(6, 2 / 3), {"session": "0" * 32, "experiment": "e", "round": 1}
    near = {"c": ["j0", "j1", "j2"], "j0": ["c", "x0", "x1", "x2", "x3"], "j1": ["c", "x2", "x3", "x4", "x5"]}
    near["j2"] = ["c", "x0", "x1", "x4", "x5"]
    for n in range(6):
        told = [j for j in ("j0", "j1", "j2") if f"x{n}" in near[j]]
        near[f"x{n}"] = [*told, *(f"x{(n + step) % 6}" for step in (1, 3, 5))]
    made = {name: secagg.make_keys(messages.AskKeys(**base, client=name, cohort=6)) for name in near}
    keys, kept, dealt = {name: of.keys for name, (of, _) in made.items()}, {}, {}
    for name, (_, own) in made.items():
        ask = messages.AskShares(**base, client=name, keys={other: keys[other] for other in near[name]})
        dealt[name], kept[name] = secagg.make_shares(ask, own, graph)
    answers = {}
    for name in near:
        mine = {other: dealt[other].shares[name] for other in near[name]}
        kept[name] = secagg.take_shares(messages.AskMasked(**base, client=name, shares=mine), kept[name], graph)
        gone = [other for other in near[name] if name[0] == "x" and other[0] == "j"]
        left = sorted({name, *near[name]} - set(gone))
        ask_last = messages.AskUnmask(**base, client=name, survivors=left, dropped=gone)
        answers[name] = secagg.unmask(ask_last, kept[name], graph)
    record = np.array([3, 1, 4, 1, 5])
    sent = secagg.masked({"x": (record, 32)}, kept["c"])["x"]
    of_seed = {name: answers[name].seeds["c"] for name in ("c", "j0", "j1", "j2")}
    seed, _ = secagg.opened_seed(of_seed, graph.opens, dealt["c"].digest)
    opened_keys = {}
    for name in ("j0", "j1", "j2"):
        shares = {sender: answer.keys[name] for sender, answer in answers.items() if name in answer.keys}
        opened_keys[name], _ = secagg.opened_key(shares, graph.opens, keys[name].mask)
    total = unpacked_numbers(torch.from_numpy(sent), 32, 5).astype(np.uint32)
    secagg.remove_masks([total], {"c": seed}, opened_keys, keys, near)
    assert total.tolist() == record.tolist()


def test_a_stage_is_answered_once() -> None:
    """A server that asks to unmask twice, with another story the second time, hears nothing more."""
    fed = blobs(clients=4, unseen=0)
    grid = Curious(grid_of(fed, 4, sums=MASKED_SUMS, algorithm=GMA), lambda words: words)
    row = finished(strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS), grid).rows[0]
    assert set(grid.said["seeds"]) == set(fed.clients)
    assert "keeps no keys of this session: this stage was answered before" in next(
        iter(row["silent_at_unmask"].values())
    )


def test_a_record_cannot_be_asked_for_in_the_open() -> None:
    fed = blobs(clients=3, unseen=0)
    grid = grid_of(fed, 3, sums=MASKED_SUMS, algorithm=GMA)
    strategy = strategy_of(fed, GMA, 1, None, sums=MASKED_SUMS)
    finished(strategy, grid)
    task = next(message for message in grid.sent if message.metadata.message_type == f"train.{MASKED}")
    for kind in ("train", "train.again"):
        with pytest.raises(ValueError, match="train"):  # Flower knows of no such function of the app
            grid.push_messages([Message(task.content, task.metadata.dst_node_id, kind)])
    (key,) = grid.push_messages([Message(task.content, task.metadata.dst_node_id, f"train.{MASKED}")])
    (reply,) = grid.pull_messages([key])
    assert "keeps no keys of this session" in json.loads(str(reply.content["accord"]["json"]))["error"]
    assert not reply.content.array_records


# ------------------------------------------------------------------------------------------- resuming, refusing


class Stopping(Dying):
    """A server that is killed when it is about to send a round's stage, or an evaluation."""

    at: tuple[str, str] | None = None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        if self.at == (sent[0].metadata.group_id, sent[0].metadata.message_type.rpartition(".")[2]):
            raise Killed
        return super().push_messages(sent)


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_server_goes_on_between_rounds(tmp_path: Path, stage: str) -> None:
    """Killed at a stage of round 3 it asks for round 3 anew, with new keys: the straight run's model."""
    fed, algorithm = blobs(clients=6, unseen=0), ALGORITHMS["scaffold, gma"]
    grid = Stopping(grid_of(fed, 6, sums=MASKED_SUMS, algorithm=algorithm))
    grid.at = ("3", stage)
    with pytest.raises(Killed):
        finished(strategy_of(fed, algorithm, 4, None, sums=MASKED_SUMS, folder=tmp_path / "runs"), grid)
    grid.at = None
    found = finished(strategy_of(fed, algorithm, 4, None, sums=MASKED_SUMS, folder=tmp_path / "runs"), grid)
    same(found, opened(fed, algorithm, rounds=4))


def test_a_round_that_was_unmasked_is_not_given_again(tmp_path: Path) -> None:
    """A server killed after it unmasked round 2, and before its checkpoint: two sums of round 2 over different clients
    would give a record away. The round is skipped, and the run goes on."""
    fed = blobs(clients=4, unseen=0)
    grid = Stopping(grid_of(fed, 4, sums=MASKED_SUMS, algorithm=GMA))
    grid.at = ("", "evaluate")  # after round 2, by the plan of these tests
    with pytest.raises(Killed):
        finished(strategy_of(fed, GMA, 3, None, sums=MASKED_SUMS, folder=tmp_path / "runs"), grid)
    grid.at = None
    with pytest.warns(UserWarning, match="round 2 was skipped"):
        rows = finished(strategy_of(fed, GMA, 3, None, sums=MASKED_SUMS, folder=tmp_path / "runs"), grid).rows
    assert [row["accepted"] for row in rows] == [4, 0, 4]
    assert "client c01 has given round 2 of this experiment before" in rows[1]["left_out"]["c01"]


def test_two_experiments_from_one_start_do_not_open_a_record() -> None:
    """FedAvg, then FedAvg with a mask, which c02 drops out of: the difference of the two sums would be its update.
    Round 1 of the second is skipped; round 2, from the same model, has other draws, and is another start."""
    fed = blobs(clients=4, unseen=0)
    hidden(fed, accord.fedavg(), {})
    with pytest.warns(UserWarning, match="round 1 was skipped"):
        second, grid = hidden(fed, GMA, {"c02": MASKED}, rounds=2)
    assert [row["accepted"] for row in second.rows] == [0, 3]
    assert "given a record of round 1 from this model and seed before" in second.rows[0]["left_out"]["c00"]
    assert [answer["round"] for stage, answer in grid.heard if stage == MASKED and "error" not in answer] == [2] * 3


def test_two_experiments_at_the_same_time_unmask_one_start_once(state: Path) -> None:  # noqa: F811
    """Both have their records before either is unmasked."""
    fed = blobs(clients=3, unseen=0)
    waiting = Stopping(grid_of(fed, 3, sums=MASKED_SUMS, algorithm=accord.fedavg()))
    waiting.at = ("1", UNMASK)
    with pytest.raises(Killed):
        finished(strategy_of(fed, accord.fedavg(), 1, None, sums=MASKED_SUMS), waiting)
    kept = list(state.rglob("secagg-*.json"))
    assert len(kept) == 3 and all(file.stat().st_mode & 0o777 == 0o600 for file in kept)
    hidden(fed, GMA, {})
    session, names = kept[0].stem.removeprefix("secagg-"), fed.clients
    task = next(message for message in waiting.sent if message.metadata.message_type == f"train.{SHARES}")
    words = {**json.loads(str(task.content["accord"]["json"])), "survivors": names, "dropped": []}
    del words["keys"]
    question = Message(task.content, task.metadata.dst_node_id, f"train.{UNMASK}")
    assert words["session"] == session
    waiting.at = None
    assert "from this model and seed before" in asked(waiting, question, words)["error"]


def test_what_a_round_left_on_the_disk_goes_when_the_next_begins(tmp_path: Path, state: Path) -> None:  # noqa: F811
    """Keys of a client that dropped out, and files of a process that was killed; the list of rounds stays."""
    fed = blobs(clients=3, unseen=0)
    grid = Stopping(grid_of(fed, 3, sums=MASKED_SUMS, algorithm=GMA))
    grid.at = ("2", MASKED)
    with pytest.raises(Killed):
        finished(strategy_of(fed, GMA, 2, None, sums=MASKED_SUMS, folder=tmp_path / "runs"), grid)
    kept = list(state.rglob("secagg-*.json"))
    for file in kept:
        file.with_suffix(".taken").write_text("{}")
        file.with_name("secagg-0.part").write_text("{}")
    grid.at = None
    finished(strategy_of(fed, GMA, 2, None, sums=MASKED_SUMS, folder=tmp_path / "runs"), grid)
    assert len(kept) == 3 and {file.name for file in state.rglob("secagg-*") if file.is_file()} == {"secagg-done"}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sums(protocol="secagg+"), "protocol needs secure"),
        (lambda: Sums(SECURE, masked=True, protocol="secagg+"), "stands in for masked"),
        (lambda: Sums(SECURE, protocol="secagg"), "protocol must be 'secagg+', or left out, got 'secagg'"),
        (lambda: Sums(SECURE, protocol="secagg+", threshold=0.5), "threshold must be above 0.5 and at most 1, got 0.5"),
        (lambda: Sums(SECURE, protocol="secagg+", threshold="half"), "threshold must be a number, got 'half'"),
        (lambda: Sums(SECURE, protocol="secagg+", threshold=float("nan")), "threshold must be above 0.5"),
        (lambda: Sums(SECURE, protocol="secagg+", neighbours=3), "neighbours must be even"),
        (lambda: Sums(SECURE, protocol="secagg+", neighbours=0), "neighbours must be a whole number of at least 2"),
        (lambda: Sums(SECURE, protocol="secagg+").graph(1), "a secure sum needs at least 2 clients, got 1"),
        (
            lambda: Strategy(accord.fedavg(average=accord.median()), mlp(), clients=2, sums=MASKED_SUMS),
            "median must see every client's update by itself",
        ),
        (
            lambda: client_app(
                mlp(), blobs(), sums=MASKED_SUMS, algorithm=accord.fedavg(average=accord.corrective(0.2, passes=2))
            ),
            "has a second exchange, whose sums would travel in the open",
        ),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with sentence(said):
        make()


def test_what_is_refused_at_the_start(tmp_path: Path) -> None:
    fed = blobs(clients=3, unseen=0)
    grid = grid_of(fed, 3, sums=MASKED_SUMS, algorithm=GMA)
    with sentence("a secure sum has four exchanges a round, and Flower's own loop has one: use start"):
        FlowerStrategy.start(strategy_of(fed, GMA, sums=MASKED_SUMS), grid, ArrayRecord(mlp().state_dict()))
    with sentence("checkpoint_every must be 1 with protocol"):
        plan = Plan(rounds=2, checkpoint_every=2)
        strategy_of(fed, GMA, plan=plan, sums=MASKED_SUMS, folder=tmp_path).start(grid)
    with sentence("it sends sums", "and the server takes sums"):  # another threshold
        other = Sums(SECURE, protocol="secagg+", threshold=0.9)
        strategy_of(fed, GMA, 1, None, sums=other, wait=0.2).start(grid)


# ---------------------------------------------------------------------------------------- the graph, and its masks


def test_degrees_and_thresholds() -> None:
    """Everybody with everybody in a small cohort; in a large one a degree that hardly grows."""
    for cohort in (2, 3, 10, 50, 100):
        graph = graph_of(cohort, 2 / 3)
        assert graph.degree == cohort - 1 and graph.opens == graph.remain and 2 * graph.opens > cohort
    large, larger = graph_of(1000, 0.8), graph_of(10_000, 0.8)
    assert large.degree < larger.degree < 150 and large.remain == 800
    for graph in (large, larger):
        assert graph.degree % 2 == 0 and 2 * graph.opens > graph.degree + 1 and graph.opens <= graph.degree


@pytest.mark.parametrize("cohort", [5, 10, 31])
def test_neighbours_are_mutual(cohort: int) -> None:
    names = [f"c{number}" for number in range(cohort)]
    for graph in (graph_of(cohort, 2 / 3), graph_of(cohort, 2 / 3, 4)):
        near = graph.neighbours(names)
        assert all(len(set(others)) == graph.degree and name not in others for name, others in near.items())
        assert all(name in near[other] for name, others in near.items() for other in others)


def test_a_degree_is_safe_where_it_is_drawn() -> None:
    """Of 400 clients, 80 that collude and 80 that drop out: in 200 circles no client has enough colluding neighbours
    to open its secrets, and every one has enough that remain."""
    names = [str(number) for number in range(400)]
    graph = graph_of(400, 0.8)
    colluding, gone = set(names[:80]), set(names[80:160])
    for _ in range(200):
        near = graph.neighbours(names)
        assert max(len(colluding.intersection(near[name])) for name in names) < graph.opens
        assert min(len(near[name]) - len(gone.intersection(near[name])) for name in names) >= graph.opens
    assert graph.degree < 100


def test_words_are_strict() -> None:
    good = {"session": "0" * 32, "experiment": "e", "client": "c", "round": 1, "cohort": 3}
    assert messages.AskKeys(**good).cohort == 3
    for bad in ({"cohort": "3"}, {"cohort": 1}, {"round": -1}, {"session": "../" * 10}, {"client": ""}, {"x": 1}):
        with pytest.raises(ValueError, match="validation error"):
            messages.AskKeys(**{**good, **bad})
    words = messages.written(messages.AskKeys(**good))
    assert messages.AskKeys.read(words).cohort == 3
    with sentence("a message of accord's protocol"):
        messages.AskKeys.read(words, words.keys(), messages.BESIDE)
    words["accord"]["protocol"] = 4  # of another version
    with sentence("a message of accord's protocol 6 was expected, got 4: do both sides run the same accord?"):
        messages.AskKeys.read(words)


def test_shares_for_as_many_neighbours_as_there_may_be_fit_into_a_message() -> None:
    session, share = "0" * 32, "f" * 136  # the longest that a key of P-384 has
    opened = messages.Opened(session=session, source="c" * 20, target="c" * 20, seed=share, key=share)
    ciphertext = encrypt(Fernet.generate_key(), opened.model_dump_json().encode()).decode()
    dealt = {f"client-{number:05}": ciphertext for number in range(messages.MOST)}
    sent = messages.SharesOut(session=session, client="c", digest="0" * 64, shares=dealt)
    assert messages.SharesOut.read(messages.written(sent)) == sent


# ---------------------------------------------------------------------------------------------- bytes and keystreams


@pytest.mark.parametrize("bits", [2, 3, 5, 7, 8, 9, 13, 16, 24, 32, 53, 64])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 1001, (1 << 16) + 3])
def test_packed_numbers_are_their_bits_one_after_another(bits: int, size: int) -> None:
    values = np.random.default_rng(bits).integers(0, 2**bits, size, np.uint64)
    each = (values[:, None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    expected = np.packbits(each.astype(np.uint8).reshape(-1), bitorder="little")
    found = packed_numbers(values, bits)
    assert np.array_equal(found, expected)
    assert np.array_equal(unpacked_numbers(torch.from_numpy(found), bits, size), values)


def test_a_mask_is_the_keystream_of_aes_256_in_counter_mode() -> None:
    """One keystream covers a record's fields one after another, in blocks or not; taking it off leaves nothing."""
    key = bytes(range(32))
    totals = [np.zeros(200_003, "<u4"), np.zeros(70_001, "<u1"), np.zeros(3, "<u8")]
    add_keystreams(totals, [(key, True)])
    size = sum(total.nbytes for total in totals)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))
    assert b"".join(total.tobytes() for total in totals) == stream
    other = bytes(reversed(key))
    add_keystreams(totals, [(other, True), (key, False), (other, False)])
    assert not any(total.any() for total in totals)
    with pytest.raises(ValueError, match="32 bytes"):
        add_keystreams(totals, [(key[:16], True)])


def test_shares_and_keys_that_only_a_liar_sends_are_a_sentence() -> None:
    """Shares of an odd number of digits, a seed of another length with a digest that fits, keys that are no points or
    somebody else's: none may end the server, or be put down to those who receive them."""
    short = b"s" * 16
    shares = {str(n): share.hex() for n, share in enumerate(create_shares(short, 2, 4))}
    with pytest.raises(AccordError, match="a share is wrong"):
        secagg.opened_seed(shares, 2, hashlib.sha256(short).hexdigest())
    with pytest.raises(AccordError, match="a share is wrong"):
        secagg.opened_seed(dict.fromkeys("abc", "abcdef123"), 2, "")
    with pytest.raises(ValueError, match="validation error"):
        messages.Opened(session="0" * 32, source="a", target="b", seed="abcdef123", key="abcdef12")
    ask = messages.AskKeys(session="0" * 32, experiment="e", client="a", round=1, cohort=3)
    good = secagg.make_keys(ask)[0].keys
    secagg.check_keys(good, set())
    for bad, known in [(good, {good.share}), (good.model_copy(update={"share": good.mask}), set())]:
        with pytest.raises(AccordError, match="there already"):
            secagg.check_keys(bad, known)
    with pytest.raises(AccordError, match="no point of the curve"):
        secagg.check_keys(good.model_copy(update={"mask": "02" + "ff" * 48}), set())
