"""What travels in the four stages of a secure sum, and what a client keeps between them: strict, bounded messages.

Down come questions, up go answers; each names its session, which the server draws anew for every attempt at a round.
Bytes are written as hexadecimal digits. Both sides read them as `replies.py` reads all replies.
"""

from typing import Annotated

from flwr.app import ConfigRecord, RecordDict
from pydantic import Field, StringConstraints

from accord.deploy.flower.replies import MessageBody, Name, at_most
from accord.deploy.flower.wire import PROTOCOL

KEYS, SHARES, MASKED, UNMASK = "keys", "shares", "masked", "unmask"  # the stages, as actions of train messages
BESIDE = "secagg"  # the group that holds a message's words where it comes with a task, whose own are in "accord"
MOST = 10_000  # neighbours

Session = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Secret = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64,96}$")]
Point = Annotated[str, StringConstraints(pattern=r"^0[23][0-9a-f]{96}$")]  # of the curve P-384, compressed
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Share = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){4,100}$")]
Ciphertext = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=-]{1,4000}$")]
Count = Annotated[int, Field(ge=2, le=MOST)]
Number = Annotated[int, Field(ge=0, le=2**53)]
Names = Annotated[list[Name], Field(fail_fast=True, max_length=MOST)]
Shares = Annotated[dict[Name, Share], at_most(MOST)]


class PublicKeys(MessageBody):
    """One for masks, one to encrypt shares: a secret that is opened for its masks opens no share."""

    mask: Point
    share: Point


class Question(MessageBody):
    session: Session
    experiment: Annotated[str, Field(min_length=1, max_length=1000)]  # a run's name, made of several names
    client: Name
    round: Number


class AskKeys(Question):
    cohort: Count


class AskShares(Question):
    keys: Annotated[dict[Name, PublicKeys], at_most(MOST)]


class AskMasked(Question):
    shares: Annotated[dict[Name, Ciphertext], at_most(MOST)]


class AskUnmask(Question):
    survivors: Names
    dropped: Names


class Answer(MessageBody):
    session: Session
    client: Name


class Keys(Answer):
    keys: PublicKeys


class SharesOut(Answer):
    """Shares for every neighbour, encrypted to it, and a digest of the seed by which a wrong share is noticed."""

    digest: Digest
    shares: Annotated[dict[Name, Ciphertext], at_most(MOST)]


class Unmasked(Answer):
    """Shares of the seeds of those who remained, and of the mask keys of those who dropped out; and whose shares were
    `unread`, since what came as theirs cannot be opened."""

    seeds: Shares
    keys: Shares
    unread: Names = Field(default_factory=list)


class Opened(MessageBody):
    """What a ciphertext holds."""

    session: Session
    source: Name
    target: Name
    seed: Share
    key: Share


class Kept(Question):
    """What a client keeps from one stage to the next."""

    stage: Annotated[str, StringConstraints(pattern=f"^({KEYS}|{SHARES}|{MASKED})$")]
    cohort: Count
    mask_key: Secret
    share_key: Secret
    seed: Secret | None = None
    keys: dict[Name, PublicKeys] = Field(default_factory=dict)
    near: Names = Field(default_factory=list)  # with whom it shares masks
    seeds: dict[Name, Share] = Field(default_factory=dict)  # shares that it read, of seeds, its own among them
    mask_keys: dict[Name, Share] = Field(default_factory=dict)  # and of their mask keys
    start: Digest | None = None  # of its record: see `secagg_client`


def written(words: MessageBody, group: str = "accord") -> RecordDict:
    return RecordDict({group: ConfigRecord({"protocol": PROTOCOL, "json": words.model_dump_json()})})
