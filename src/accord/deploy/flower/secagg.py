"""Secure aggregation (Bonawitz et al., 2017; Bell et al., 2020): what a client answers in each of the four stages, and
how the server removes the masks. Nothing here sends or stores; all cryptography is Flower's, `cryptography`'s and
PyCryptodome's.

1. keys: every client makes two fresh key pairs and sends the public ones.
2. shares: every client draws the seed of a mask of its own, and sends its neighbours shares of that seed and of its
   mask key, each encrypted to its receiver.
3. masked: its record goes out under the mask of its seed, and under a mask for every neighbour, which the one whose
   name comes first adds and the other takes off.
4. unmask: the server says who sent a record. Of these, clients hand out shares of the seed; of the others, shares of
   the mask key. Never both of one client: a record whose two secrets are open is open.
"""

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from pydantic import ValidationError

from accord.core.errors import AccordError
from accord.deploy.flower import secagg_messages as messages
from accord.deploy.flower.keystream import KEY_BYTES, add_keystreams
from accord.deploy.flower.packing import packed_numbers, width_of
from accord.deploy.flower.secagg_messages import AskKeys, AskMasked, AskShares, AskUnmask, Kept, PublicKeys, Unmasked
from accord.privacy.secagg_graph import Graph

CURVE = ec.SECP384R1()  # that of `generate_key_pairs`
_SECRET_BYTES = 48

Whole = Mapping[str, tuple[np.ndarray, int]]  # a record's fields: whole numbers, and their bits
Fits = Callable[[bytes], bool]

# ---------------------------------------------------------------------------------------------- at the client


def make_keys(ask: AskKeys) -> tuple[messages.Keys, Kept]:
    """The first stage: fresh keys, which serve this session alone."""
    (mask, mask_public), (share, share_public) = generate_key_pairs(), generate_key_pairs()
    kept = Kept(**ask.model_dump(), stage=messages.KEYS, mask_key=_secret(mask), share_key=_secret(share))
    public = PublicKeys(mask=_point(mask_public), share=_point(share_public))
    return messages.Keys(session=ask.session, client=ask.client, keys=public), kept


def make_shares(ask: AskShares, kept: Kept, graph: Graph) -> tuple[messages.SharesOut, Kept]:
    """The second stage: shares of both secrets for every neighbour. How many of them open a secret is the client's own
    to say, by the threshold it was set up with."""
    _check_stage(kept, ask, messages.KEYS)
    others = sorted(ask.keys)
    points = [point for keys in ask.keys.values() for point in (keys.mask, keys.share)]
    own_points = [_point(_private(secret).public_key()) for secret in (kept.mask_key, kept.share_key)]
    if kept.client in ask.keys or len({*points, *own_points}) < len(points) + 2:
        raise AccordError("two clients have the same public key, or one is its own neighbour")
    if not graph.opens - 1 <= len(others) <= graph.degree:
        raise AccordError(
            f"{len(others)} neighbours of {graph.degree} made keys, and {graph.opens - 1} must: too few to open a mask"
        )
    seed, holders = secrets.token_bytes(32), sorted([*others, kept.client])
    seeds, mask_keys = (
        dict(zip(holders, map(bytes.hex, create_shares(secret, graph.opens, len(holders))), strict=True))
        for secret in (seed, bytes.fromhex(kept.mask_key))
    )
    out = {}
    for other in others:
        opened = messages.Opened(
            session=ask.session, source=kept.client, target=other, seed=seeds[other], key=mask_keys[other]
        )
        key = generate_shared_key(_private(kept.share_key), _public(ask.keys[other].share))
        out[other] = encrypt(key, opened.model_dump_json().encode()).decode()
    now = {
        "stage": messages.SHARES,
        "seed": seed.hex(),
        "keys": ask.keys,
        "seeds": {kept.client: seeds[kept.client]},
        "mask_keys": {kept.client: mask_keys[kept.client]},
    }
    digest = hashlib.sha256(seed).hexdigest()
    answer = messages.SharesOut(session=ask.session, client=kept.client, digest=digest, shares=out)
    return answer, kept.model_copy(update=now)


def take_shares(ask: AskMasked, kept: Kept, graph: Graph) -> Kept:
    """The third stage begins: the shares that neighbours made for this client. With them, and nobody else, it shares
    masks. Shares that cannot be read are done without: whoever made them, or passed them on, harms itself only."""
    _check_stage(kept, ask, messages.SHARES)
    if not ask.shares.keys() <= kept.keys.keys():
        raise AccordError("shares came of others than this client's neighbours")
    seeds, mask_keys = dict(kept.seeds), dict(kept.mask_keys)
    for source, ciphertext in ask.shares.items():
        key = generate_shared_key(_private(kept.share_key), _public(kept.keys[source].share))
        try:
            opened = messages.Opened.model_validate_json(decrypt(key, ciphertext.encode()))
        except (InvalidToken, ValidationError):
            continue
        if (opened.session, opened.source, opened.target) == (ask.session, source, kept.client):
            seeds[source], mask_keys[source] = opened.seed, opened.key
    if len(seeds) < graph.opens:
        raise AccordError(
            f"shares of {len(seeds) - 1} neighbours came that can be read, and {graph.opens - 1} must: too few to open"
            " a mask"
        )
    now = {"stage": messages.MASKED, "near": sorted(ask.shares), "seeds": seeds, "mask_keys": mask_keys}
    return kept.model_copy(update=now)


def masked(whole: Whole, kept: Kept) -> dict[str, np.ndarray]:
    """The record under its masks, packed."""
    assert kept.seed is not None
    totals = {path: values.reshape(-1).astype(width_of(bits)) for path, (values, bits) in sorted(whole.items())}
    keys = [(bytes.fromhex(kept.seed), True)]
    keys += [(_pair_key(_private(kept.mask_key), kept.keys[other].mask), kept.client < other) for other in kept.near]
    add_keystreams(list(totals.values()), keys)
    return {path: packed_numbers(_lowest(total, whole[path][1]), whole[path][1]) for path, total in totals.items()}


def unmask(ask: AskUnmask, kept: Kept, graph: Graph) -> Unmasked:
    """The fourth stage: one share of one secret of every neighbour. Whoever calls this must see to it that nobody asks
    twice."""
    _check_stage(kept, ask, messages.MASKED)
    survivors, dropped = set(ask.survivors), set(ask.dropped)
    if survivors & dropped:
        raise AccordError(f"{min(survivors & dropped)} cannot have remained and dropped out: its record would be open")
    if kept.client not in survivors or not survivors | dropped <= {kept.client, *kept.near}:
        raise AccordError("the list of those who remained is not that of this client's neighbours")
    if len(survivors) < graph.opens:
        raise AccordError(f"{len(survivors)} neighbours remained, and {graph.opens} must: the sum stays masked")
    held = kept.seeds.keys()
    return Unmasked(
        session=ask.session,
        client=kept.client,
        seeds={name: kept.seeds[name] for name in sorted(survivors & held)},
        keys={name: kept.mask_keys[name] for name in sorted(dropped & held)},
        unread=sorted((survivors | dropped) - held),
    )


def _check_stage(kept: Kept, ask: messages.Question, stage: str) -> None:
    same = (kept.session, kept.experiment, kept.client, kept.round)
    if kept.stage != stage or same != (ask.session, ask.experiment, ask.client, ask.round):
        raise AccordError(f"a stage of round {ask.round} came out of turn: client {kept.client} is at {kept.stage}")


# ---------------------------------------------------------------------------------------------- at the server


def remove_masks(
    totals: Sequence[np.ndarray],
    seeds: Mapping[str, bytes],
    dropped: Mapping[str, bytes],
    keys: Mapping[str, PublicKeys],
    neighbours: Mapping[str, Sequence[str]],
) -> None:
    """Takes off, in place, the masks of those who remained (their seeds), and those that they shared with clients that
    dropped out (whose mask keys were opened)."""
    streams = [(seed, False) for seed in seeds.values()]
    for gone, secret in dropped.items():
        private = _private(secret.hex())
        for other in neighbours[gone]:
            if other in seeds:  # it added the mask if its name comes first
                streams.append((_pair_key(private, keys[other].mask), gone < other))
    add_keystreams(totals, streams)


def opened_seed(shares: Mapping[str, str], opens: int, digest: str) -> tuple[bytes, str | None]:
    """A seed from its shares, and who of those that sent them sent a wrong one."""

    def fits(secret: bytes) -> bool:
        return len(secret) == KEY_BYTES and hashlib.sha256(secret).hexdigest() == digest

    return _opened(shares, opens, fits)


def opened_key(shares: Mapping[str, str], opens: int, public: str) -> tuple[bytes, str | None]:
    """A mask key from its shares, likewise."""

    def fits(secret: bytes) -> bool:
        return len(secret) == _SECRET_BYTES and _point(_private(secret.hex()).public_key()) == public

    return _opened(shares, opens, fits)


def _opened(shares: Mapping[str, str], opens: int, fits: Fits) -> tuple[bytes, str | None]:
    """The secret that fits; if one share is wrong and there is one to spare, the others open it."""
    if len(shares) < opens:
        raise AccordError(f"{len(shares)} shares came, and {opens} open a secret")
    # whose share is not among the first is not tried, and cannot be what is wrong
    for wrong in (None, *list(shares)[:opens]) if len(shares) > opens else (None,):
        some = [share for sender, share in shares.items() if sender != wrong][:opens]
        try:
            secret = combine_shares(list(map(bytes.fromhex, some)))
            if fits(secret):
                return secret, wrong
        except ValueError:  # no bytes, shares of different lengths, of one number, or of no point of the curve
            continue
    raise AccordError("a share is wrong, and there are not enough others to open the secret without it")


def lowest(totals: Iterable[np.ndarray], bits: Iterable[int]) -> list[np.ndarray]:
    """Sums modulo 2^bits."""
    return [_lowest(total, width) for total, width in zip(totals, bits, strict=True)]


def _lowest(total: np.ndarray, bits: int) -> np.ndarray:
    return total & total.dtype.type((1 << bits) - 1)


# ------------------------------------------------------------------------------------------------------- keys


def _pair_key(private: ec.EllipticCurvePrivateKey, other: str) -> bytes:
    """32 bytes that two clients have in common: Diffie-Hellman on P-384, then HKDF, both by Flower."""
    return base64.urlsafe_b64decode(generate_shared_key(private, _public(other)))


def _secret(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_numbers().private_value.to_bytes(_SECRET_BYTES, "big").hex()


def _private(secret: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int(secret, 16), CURVE)


def _point(key: ec.EllipticCurvePublicKey) -> str:
    form = serialization.PublicFormat.CompressedPoint
    return key.public_bytes(serialization.Encoding.X962, form).hex()


def check_keys(keys: PublicKeys, known: set[str]) -> None:
    """Refuses public keys that are no points of the curve, or that somebody has already: neighbours could not use
    them."""
    for point in (keys.mask, keys.share):
        _public(point)
    if keys.mask == keys.share or known & {keys.mask, keys.share}:
        raise AccordError("a public key that is there already")


def _public(point: str) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, bytes.fromhex(point))
    except ValueError:
        raise AccordError("a public key is no point of the curve P-384") from None
