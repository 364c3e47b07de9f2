"""What travels in the four stages of a secure sum, and what a client keeps between them: strict, bounded messages.

Down come questions, up go answers; each names its session, which the server draws anew for every attempt at a round.
Bytes are written as hexadecimal digits.
"""

from typing import Annotated, Any, TypeVar

from flwr.app import ConfigRecord, RecordDict
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from accord.core.errors import AccordError
from accord.deploy.flower.replies import Failed as FailedReply
from accord.deploy.flower.replies import one_line
from accord.deploy.flower.wire import PROTOCOL

KEYS, SHARES, MASKED, UNMASK = "keys", "shares", "masked", "unmask"  # the stages, as actions of train messages
GROUP = "accord"  # the record that holds a message's words; beside a task it is the next one
BESIDE = "secagg"
MOST_BYTES = 1 << 24  # of a message's words
MOST = 10_000  # neighbours

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Session = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Secret = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64,96}$")]
Point = Annotated[str, StringConstraints(pattern=r"^0[23][0-9a-f]{96}$")]  # of the curve P-384, compressed
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Share = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,200}$")]
Ciphertext = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=-]{1,4000}$")]
Count = Annotated[int, Field(ge=2, le=MOST)]
Number = Annotated[int, Field(ge=0, le=2**53)]
Names = Annotated[list[Name], Field(max_length=MOST)]
Shares = Annotated[dict[Name, Share], Field(max_length=MOST)]


class Words(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Failed(Words):
    """What a client says instead of an answer."""

    error: str


class PublicKeys(Words):
    """One for masks, one to encrypt shares: a secret that is opened for its masks opens no share."""

    mask: Point
    share: Point


class Question(Words):
    session: Session
    experiment: Name
    client: Name
    round: Number


class AskKeys(Question):
    cohort: Count


class AskShares(Question):
    keys: Annotated[dict[Name, PublicKeys], Field(max_length=MOST)]


class AskMasked(Question):
    shares: Annotated[dict[Name, Ciphertext], Field(max_length=MOST)]


class AskUnmask(Question):
    survivors: Names
    dropped: Names


class Answer(Words):
    session: Session
    client: Name


class Keys(Answer):
    keys: PublicKeys


class SharesOut(Answer):
    """Shares for every neighbour, encrypted to it, and a digest of the seed by which a wrong share is noticed."""

    digest: Digest
    shares: Annotated[dict[Name, Ciphertext], Field(max_length=MOST)]


class Unmasked(Answer):
    """Shares of the seeds of those who remained, and of the mask keys of those who dropped out."""

    seeds: Shares
    keys: Shares


class Opened(Words):
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
    keys: dict[Name, PublicKeys] = {}
    seeds: dict[Name, Share] = {}  # shares held of everybody's seed, its own among them
    mask_keys: dict[Name, Share] = {}  # and of their mask keys
    start: Digest | None = None  # of its record: see `secagg_client`


W = TypeVar("W", bound=Words)


def written(words: Words, group: str = GROUP) -> RecordDict:
    return RecordDict({group: ConfigRecord({"protocol": PROTOCOL, "json": words.model_dump_json()})})


def read(received: RecordDict, form: type[W], group: str = GROUP) -> W:
    """A message's words, or a sentence: about what does not fit, or the one that the other side sent instead."""
    record = received.get(group)
    text: Any = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        raise AccordError(f"a message of at most {MOST_BYTES:,} characters was expected")
    try:
        return form.model_validate_json(text)
    except ValidationError as error:
        try:
            said = Failed.model_validate_json(text).error
        except ValidationError:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))[:100]
            raise AccordError(f"{where}: {first['msg'][:100]}") from None
        raise FailedReply(one_line(said)) from None
