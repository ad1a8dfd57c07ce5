"""Whatever Redis holds coded has one JSON text, and the text gives the same bytes back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.test_codec_properties import ARRAYS, JSON, VALUES

from sharedmem import InvalidError
from sharedmem.durable.json_codec import from_text, javascript_safe, member_from_text, member_to_text, to_text
from sharedmem.redis.codec import MAX_DEPTH, decode, encode, encode_member, encode_set_member

TRICKY = VALUES | st.dictionaries(st.sampled_from(["$type", "base64", "value", "text"]), VALUES) | ARRAYS


def as_json(value: object) -> object:
    codec, raw = encode(value)
    text: object = json.loads(to_text(codec, raw))
    return text


@given(TRICKY)
@example({"$type": "bytes", "base64": "AA=="})
@example({"$type": "bytes", "base64": b"\x00"})
@example({"$type": "msgpack", "base64": "AA==", "raw": b""})
@example({"$type": "foreign", "text": "x"})
@example({1: {"$type": "map", "pairs": []}, None: {b"k": -(2**70)}})
@example({frozenset({1, (b"x", frozenset())})})
@example({2**64: 2**63, 2**63 - 1: -(2**63), True: -0.0})
def test_a_value_has_the_same_bytes_after_its_text(value: object) -> None:
    codec, raw = encode(value)

    text = to_text(codec, raw)

    assert from_text(codec, text) == raw
    json.loads(text)  # any JSON parser reads it


@given(TRICKY)
def test_a_member_has_the_same_bytes_after_its_text(value: object) -> None:
    for raw in (encode_member(value), encode_set_member(value)):
        assert member_from_text(*member_to_text(raw)) == raw


@given(st.binary() | st.binary().map(b"\x01".__add__))
@example(b"plain words of another client")
@example(b'{"$type":"foreign","text":"not so"}')
@example(b"\x01" + b"\x91" * 900 + b"\x01")
@example(b"\x01\xd6\xff\x00\x00\x00\x00")
@example(b"\x01\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00")
def test_bytes_of_another_client_stay_as_they_are(raw: bytes) -> None:
    codec, text = member_to_text(raw)

    assert member_from_text(codec, text) == raw
    orjson.loads(text)
    for name in (b"json", b"msgpack", b"blob"):
        assert from_text(name, to_text(name, raw)) == raw


@given(JSON)
def test_a_json_payload_is_its_own_text(value: object) -> None:
    codec, raw = encode(value)

    assert to_text(codec, raw).encode() == raw


def test_each_type_has_its_documented_spelling() -> None:
    """docs/durable-format.md: the table of tagged JSON."""
    assert as_json(
        {
            "bytes": b"\x00\xff",
            "datetime": datetime(2026, 5, 1, 12, 30, tzinfo=UTC),
            "date": datetime(2026, 5, 1, tzinfo=UTC).date(),
            "time": datetime(2026, 5, 1, 12, 30, tzinfo=UTC).time(),
            "timedelta": timedelta(days=-1, seconds=5),
            "uuid": UUID(int=1),
            "decimal": Decimal("1.10"),
            "integer": 2**64,
            "set": {2, 1},
            "map": {1: "a"},
            "escaped": {"$type": "bytes"},
            "ndarray": np.array([[1, 2]], dtype="<i2"),
            "plain": [1, 1.0, None, True, "text"],
        }
    ) == {
        "bytes": {"$type": "bytes", "base64": "AP8="},
        "datetime": {"$type": "datetime", "value": "2026-05-01T12:30:00+00:00"},
        "date": {"$type": "date", "value": "2026-05-01"},
        "time": {"$type": "time", "value": "12:30:00"},
        "timedelta": {"$type": "timedelta", "days": -1, "seconds": 5, "microseconds": 0},
        "uuid": {"$type": "uuid", "value": "00000000-0000-0000-0000-000000000001"},
        "decimal": {"$type": "decimal", "value": "1.10"},
        "integer": {"$type": "integer", "value": "18446744073709551616"},
        "set": {"$type": "set", "values": [1, 2]},
        "map": {"$type": "map", "pairs": [[1, "a"]]},
        "escaped": {"$type": "map", "pairs": [["$type", "bytes"]]},
        "ndarray": {"$type": "ndarray", "dtype": "<i2", "shape": [1, 2], "base64": "AQACAA=="},
        "plain": [1, 1.0, None, True, "text"],
    }


def test_what_no_json_parser_could_read_is_wrapped() -> None:
    assert member_to_text(b"hello") == ("json", '{"$type":"foreign","text":"hello"}')
    assert member_to_text(b"\xff") == ("json", '{"$type":"foreign","base64":"/w=="}')
    assert member_to_text(b"\x01\xc1") == ("msgpack", '{"$type":"msgpack","base64":"wQ=="}')


def test_the_bare_number_of_a_counter_is_its_text() -> None:
    assert member_to_text(b"-9223372036854775808") == ("json", "-9223372036854775808")


@pytest.mark.parametrize("leaf", [b"", {1: b""}])
def test_the_deepest_value_has_a_text_too(leaf: object) -> None:
    value = leaf
    for _ in range(MAX_DEPTH - 1):
        value = {0: value}
    codec, raw = encode(value)

    assert from_text(codec, to_text(codec, raw)) == raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"$type":"nothing"}',
        '{"$type":["bytes"]}',
        '{"$type":"bytes"}',
        '{"$type":"bytes","base64":5}',
        '{"$type":"bytes","base64":"%"}',
        '{"$type":"uuid","value":"1"}',
        '{"$type":"map","pairs":[[1]]}',
        '{"$type":"map","pairs":[[[1],2]]}',
        '{"$type":"set","values":{}}',
        '{"$type":"ndarray","dtype":"<i2"}',
        '{"$type":"timedelta","days":1}',
    ],
)
def test_a_text_in_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match=r"body .* is refused"):
        from_text(b"msgpack", text)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidError, match="codec"):
        to_text(b"pickle", b"")
    with pytest.raises(InvalidError, match="codec"):
        from_text(b"pickle", "")


@pytest.mark.parametrize(
    "text",
    ["1", "-9007199254740992", "0.1", "1e-7", '"1.0"', "true", "null", "[]", '{"a":[{"b":-3}]}', '{"1":0,"2":0,"a":0}'],
)
def test_what_javascript_keeps_is_safe(text: str) -> None:
    assert javascript_safe(text)


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "-9007199254740993",
        "[1.0]",
        "-0.0",
        '{"a":{"b":1e300}}',
        "123456789012345678901234567890",
        "1e999",
        "[1, 2]",
        '"\\u0041"',
        '{"a":1,"a":2}',
        '{"b":1,"1":2}',
        '{"10":1,"9":2}',
        '{"__proto__":1}',
        "",
        "NaN",
        "[" * 2000 + "]" * 2000,
    ],
)
def test_what_javascript_changes_is_not_safe(text: str) -> None:
    assert not javascript_safe(text)


@given(JSON)
def test_a_safe_text_survives_a_store_of_doubles(value: object) -> None:
    text = orjson.dumps(value).decode()
    if not javascript_safe(text):
        return

    # What is no fraction comes back as a whole number.
    stored = json.loads(text, parse_int=float)
    back = json.loads(json.dumps(stored), parse_float=lambda number: whole_or_not(float(number)))

    assert orjson.dumps(back).decode() == text


def whole_or_not(number: float) -> float:
    return int(number) if number.is_integer() else number


def test_a_set_of_sets_comes_back() -> None:
    value = {frozenset({1, 2}), ("a", frozenset({b"b"}))}

    assert decode(*encode(value), key="key") == value


@pytest.mark.parametrize("member", [np.int32(3), (1, np.int32(3))])
def test_a_set_that_could_not_come_back_is_refused(member: object) -> None:
    with pytest.raises(InvalidError, match="members of a set"):
        encode({member})
