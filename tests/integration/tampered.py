"""Replies that no honest client sends: a table of what a registered node may do to a reply of its own, by name.

A tampering gets the honest reply and gives another message or, where Flower's own classes refuse to write such a thing,
the bytes of one: a node runs whatever software it likes.
"""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id

Contents = dict[str, bytes]
Tampering = Callable[[Message], Message | Contents]


# ------------------------------------------------------------------------------------------------------ words


def told(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(message.content["accord"]["json"]))
    return found


def text(words: Any) -> Tampering:
    """Any value in the place of the JSON text."""

    def change(message: Message) -> Message:
        message.content["accord"]["json"] = words
        return message

    return change


def words(**changes: Any) -> Tampering:
    """Other words; what is None stays as null."""
    return lambda message: text(json.dumps({**told(message), **changes}))(message)


def raw(key: str, value: str) -> Tampering:
    """A value that Python's JSON cannot write, such as 1e999."""
    return lambda message: text(json.dumps({**told(message), key: "HERE"}).replace('"HERE"', value))(message)


def without(key: str) -> Tampering:
    return lambda message: text(json.dumps({k: v for k, v in told(message).items() if k != key}))(message)


def within(change: Callable[[dict[str, Any]], Any]) -> Tampering:
    """Words that are changed in place."""

    def tamper(message: Message) -> Message:
        words = told(message)
        change(words)
        return text(json.dumps(words))(message)

    return tamper


# ---------------------------------------------------------------------------------------------------- records


def config(record: Any) -> Tampering:
    """Another record where the words were; None: none at all."""

    def change(message: Message) -> Message:
        del message.content["accord"]
        if record is not None:
            message.content["accord"] = record
        return message

    return change


def keys(**changes: Any) -> Tampering:
    """Other entries of the record of words; None removes one."""

    def change(message: Message) -> Message:
        held = {**message.content["accord"], **changes}
        return config(ConfigRecord({key: value for key, value in held.items() if value is not None}))(message)

    return change


def beside(name: str, record: Any) -> Tampering:
    """One record more, or another one."""

    def change(message: Message) -> Message:
        message.content.pop(name, None)
        if record is not None:
            message.content[name] = record
        return message

    return change


def emptied(message: Message) -> Message:
    for key in list(message.content):
        del message.content[key]
    return message


# ------------------------------------------------------------------------------------------------------ bytes


def contents_of(message: Message) -> Contents:
    identifier = message.object_id
    held = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    return {identifier: held[identifier], **held}


def rebuilt(change: Callable[[str, bytes], bytes]) -> Tampering:
    """The bytes of a reply of which Flower's envelope is tampered with: `change` gets the kind of an object and its
    body. Ids are hashes of what they name, so that all that names a changed object changes with it."""

    def tamper(message: Message) -> Contents:
        held, new = contents_of(message), dict[str, bytes]()
        renamed: dict[str, str] = {}
        for identifier in reversed(list(_from_the_top(next(iter(held)), held))):
            head, body = held[identifier].split(b"\x00", 1)
            kind, children, _ = head.split(b" ")
            for old, fresh in renamed.items():
                body, children = (
                    body.replace(old.encode(), fresh.encode()),
                    children.replace(old.encode(), fresh.encode()),
                )
            body = change(kind.decode(), body)
            made = b" ".join([kind, children, str(len(body)).encode()]) + b"\x00" + body
            renamed[identifier] = get_object_id(made)
            new[renamed[identifier]] = made
        top = renamed[next(iter(held))]
        return {top: new[top], **new}

    return tamper


def _from_the_top(identifier: str, held: Contents) -> dict[str, None]:
    order: dict[str, None] = {identifier: None}
    for child in held[identifier].split(b"\x00", 1)[0].split(b" ")[1].decode().split(","):
        if child:
            for below in _from_the_top(child, held):
                order.pop(below, None)
                order[below] = None
    return order


def only(kind: str, change: Callable[[bytes], bytes]) -> Tampering:
    return rebuilt(lambda what, body: change(body) if what == kind else body)


def lost(kind: str) -> Tampering:
    """The bytes of a reply of which one object is missing."""

    def tamper(message: Message) -> Contents:
        held = contents_of(message)
        gone = next(key for key, body in held.items() if body.startswith(kind.encode() + b" "))
        return {key: body for key, body in held.items() if key != gone}

    return tamper


ENVELOPES: dict[str, Tampering] = {
    "envelope: the records are no JSON": only("RecordDict", lambda body: b"{"),
    "envelope: the records are a list": only("RecordDict", lambda body: b"[]"),
    "envelope: the records are nested without end": only("RecordDict", lambda body: b"[" * 200_000),
    "envelope: a record that is not there": only("RecordDict", lambda body: b'{"accord": "' + b"0" * 64 + b'"}'),
    "envelope: no UTF-8": only("RecordDict", lambda body: b"\xff\xfe"),
    "envelope: words that are no protobuf": only("ConfigRecord", lambda body: b"\xff" * 40),
    "envelope: words are lost": lost("ConfigRecord"),
    "envelope: the message is rubbish": only("Message", lambda body: b"\x00\xff" * 30),
}

# ------------------------------------------------------------------------------------- words of any exchange

WORDS: dict[str, Tampering] = {
    "words: broken JSON": text('{"client": "c01"'),
    "words: nothing": text(""),
    "words: null": text("null"),
    "words: a list": text("[]"),
    "words: a number": text("3"),
    "words: 100,000 lists deep": text("[" * 100_000 + "]" * 100_000),
    "words: 100,000 objects deep": text('{"a":' * 100_000),
    "words: deep within a field": within(lambda words: words.update(deep=json.loads("[" * 190 + "]" * 190))),
    "words: 9 MB": text('{"a": "' + "x" * 9_000_000 + '"}'),
    "words: NaN": text('{"client": NaN}'),
    "words: a number of 5,000 digits": text('{"client": ' + "9" * 5000 + "}"),
    "words: half a character": text('{"client": "\\ud800"}'),
    "words: bytes": text(b"{}"),
    "words: a whole number for text": text(7),
    "words: a list of texts": text(["{}"]),
    "words: a flag": text(True),
    "words: no text": keys(json=None),
    "words: a key more": keys(more="x"),
    "words: an entry more": words(more=1),
    "words: an error that is no text": text('{"error": 5}'),
    "words: an error and more": words(error="no"),
    "protocol: none": keys(protocol=None),
    "protocol: another": keys(protocol=3),
    "protocol: as text": keys(protocol="6"),
    "protocol: a list": keys(protocol=[6, 6]),
    "record: metrics for words": config(MetricRecord({"protocol": 6})),
    "record: arrays for words": config(ArrayRecord({"json": Array(np.zeros(3))})),
    "record: no words": config(None),
    "record: nothing at all": emptied,
    "record: arrays that nobody asked for": beside("more", ArrayRecord({"x": Array(np.zeros(3))})),
    "record: metrics that nobody asked for": beside("metrics", MetricRecord({"accuracy": 1.0})),
    **ENVELOPES,
}

# what is no count; the first are written as they are
NO_COUNTS: dict[str, str] = {
    "infinite": "1e999",
    "minus infinity": "-1e999",
    "below 0": "-1",
    "beyond 64 bits": str(2**64),
    "of 400 digits": "9" * 400,
    "a fraction": "28.5",
    "a float": "28.0",
    "a text": '"28"',
    "a list": "[28]",
    "an object": "{}",
    "null": "null",
    "a flag": "true",
}


def no_counts(key: str) -> dict[str, Tampering]:
    return {f"{key}: {name}": raw(key, value) for name, value in NO_COUNTS.items()}


# ------------------------------------------------------------------------------------------------- arrays


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """The bytes of an array whose header says what it is told to say."""
    length = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + length + header.encode("latin1") + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(92,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def array(group: str, name: str, make: Callable[[Array], Array]) -> Tampering:
    def change(message: Message) -> Message:
        record = message.content[group]
        record[name] = make(record[name])
        return message

    return change


def data(make: Callable[[bytes], bytes]) -> Callable[[Array], Array]:
    return lambda old: Array(old.dtype, old.shape, old.stype, make(old.data))


def values(make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Array], Array]:
    return lambda old: Array(make(old.numpy()))


class Harm:
    """Code that whoever unpickles it runs."""

    done: ClassVar[list[str]] = []

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return _harm, ("a pickle was read",)


def _harm(what: str) -> None:
    Harm.done.append(what)


def pickled(old: Array) -> Array:
    """An array of objects, as np.save would write it: reading it runs code."""
    stream = BytesIO()
    np.save(stream, np.array([Harm()] * 3, dtype=object), allow_pickle=True)
    return Array(old.dtype, old.shape, old.stype, stream.getvalue())


def announced(shape: tuple[int, ...], dtype: str = "float32", **options: Any) -> Callable[[Array], Array]:
    """A header that says the same as Flower's own words about the array, and few bytes."""
    descr = {"float32": "'<f4'", "complex64": "'<c8'", "float64": "'<f8'"}[dtype]
    return lambda old: Array(dtype, shape, old.stype, npy(header(descr, shape=repr(shape), **options), b"\x00" * 368))


def named(group: str, change: Callable[[dict[str, Array]], Any]) -> Tampering:
    """Arrays under other names."""

    def tamper(message: Message) -> Message:
        held = dict(message.content[group])
        change(held)
        return beside(group, ArrayRecord(held))(message)

    return tamper


def arrays(group: str, name: str) -> dict[str, Tampering]:
    """What can be wrong with one array of a group."""
    made = {
        "terabytes": announced((2**40,)),
        "terabytes in two dimensions": announced((2**20, 2**22)),
        "more than 64 bits of bytes": announced((2**62, 2**62)),
        "a size below 0": announced((-92,)),
        "no size": announced(()),
        "complex, announced": announced((92,), "complex64"),
        "float64, announced": announced((92,), "float64"),
        "by column": announced((92,), order="True"),
        "terabytes, unannounced": data(lambda old: npy(header(shape="(1099511627776,)"))),
        "a header that calls": data(lambda old: npy(header(shape="(__import__('os').getpid(),)"))),
        "a header of 60,000 bytes": data(lambda old: npy(header() + " " * 60_000)),
        "a header of 60,000 brackets": data(lambda old: npy("(" * 60_000)),
        "a header of 900 signs": data(lambda old: npy(header(shape="(" + "-" * 900 + "1,)"))),
        "a header without an end": data(lambda old: npy(header())[:20]),
        "a header that is text": data(lambda old: npy("'hello'\n")),
        "a header without a shape": data(lambda old: npy("{'descr': '<f4', 'fortran_order': False}\n")),
        "a shape that is text": data(lambda old: npy(header(shape="'92'"))),
        "a shape of fractions": data(lambda old: npy(header(shape="(92.0,)"))),
        "an unknown type": data(lambda old: npy(header("'<q9'"))),
        "a structured type": data(lambda old: npy(header("[('a', '<f4')]"))),
        "a text type of gigabytes": data(lambda old: npy(header("'<U999999999'"))),
        "version 3": data(lambda old: npy(header(), version=b"\x03\x00")),
        "version 9": data(lambda old: b"\x93NUMPY\x09\x00" + old[8:]),
        "a zip": data(lambda old: b"PK\x03\x04" + old[4:]),
        "no bytes": data(lambda old: b""),
        "a byte too few": data(lambda old: old[:-1]),
        "a byte too many": data(lambda old: old + b"\x00"),
        "objects to unpickle": pickled,
        "big-endian": values(lambda old: old.astype(old.dtype.newbyteorder(">"))),
        "half precision": values(lambda old: old.astype(np.float16)),
        "whole numbers": values(lambda old: old.astype(np.int64)),
        "flags": values(lambda old: old > 0),
        "texts": values(lambda old: old.astype(str)),
        "one too few": values(lambda old: old[:-1]),
        "a dimension more": values(lambda old: old[None]),
        "another writing": lambda old: Array(old.dtype, old.shape, "pickle", old.data),
        "announced otherwise": lambda old: Array("float16", (1,), old.stype, old.data),
    }
    found = {f"array: {what}": array(group, name, make) for what, make in made.items()}
    found |= {
        "names: like metadata": named(group, lambda held: held.update(__metadata__=held[name])),
        "names: metadata alone": named(group, lambda held: held.update(__metadata__=held.pop(name))),
        "names: one is missing": named(group, lambda held: held.pop(name)),
        "names: none": named(group, dict.clear),
        "names: another": named(group, lambda held: held.update({"../x": held.pop(name)})),
        "group: missing": beside(group, None),
        "group: words": beside(group, ConfigRecord({"x": 1})),
        "group: metrics": beside(group, MetricRecord({"x": 1.0})),
        "envelope: a shape that is text": only("Array", lambda body: body.replace(b'"shape": [', b'"shape": ["a", ')),
        "envelope: a part that is not there": only("Array", lambda body: body.replace(b'ids": [0', b'ids": [7')),
        "envelope: an array is lost": lost("Array"),
        "envelope: a part is lost": lost("ArrayChunk"),
    }
    return found
