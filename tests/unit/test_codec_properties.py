"""Whatever goes into shared memory comes out as it was, or is refused with the path of what cannot."""

from __future__ import annotations

from datetime import timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sharedmem import InvalidError
from sharedmem.redis.codec import decode, decode_json_records, decode_member, encode, encode_member, encode_set_member

ZONES = st.none() | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=ZONES),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
SETS = st.sets(st.integers() | st.text() | st.binary() | st.uuids() | st.dates())
KEYS = st.text() | st.integers(-(2**63), 2**63 - 1) | st.binary() | st.none()
VALUES = st.recursive(SCALARS | SETS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)
ARRAYS = npst.arrays(
    st.sampled_from(["<f2", "<f4", "<f8", ">f8", "<i8", ">i4", "u1", "?", "<c16", "<U3", "S3"]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
STEPS = st.lists(st.integers(0, 2) | st.sampled_from(["when", "odd key"]), max_size=5)


def same(left: object, right: object) -> bool:
    """Equal, with the same types all the way down; -0.0 is not 0.0, and 1.0 keeps its zero as a Decimal."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    # The fold of a time has no spelling in ISO 8601, and equality does not ask for it either.
    return left == right and (not isinstance(left, float | Decimal) or repr(left) == repr(right))


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    assert same(decode(*encode(value), key="key"), value)


@given(VALUES)
def test_a_member_comes_back_as_it_was(value: object) -> None:
    assert same(decode_member(encode_member(value)), value)


@given(JSON)
def test_what_json_can_hold_is_stored_as_json(value: object) -> None:
    assert encode(value)[0] == b"json"
    assert same(decode(*encode(value), key="key"), value)


@given(ARRAYS)
def test_an_array_keeps_its_type_and_shape(array: np.ndarray[Any, Any]) -> None:
    found = decode(*encode({"array": array}), key="key")["array"]

    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    found.flags.writeable = True


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.randoms())
def test_equal_set_members_have_equal_bytes(mapping: dict[str, Any], chance: Any) -> None:
    items = list(mapping.items())
    chance.shuffle(items)

    assert encode_set_member(dict(items)) == encode_set_member(mapping)


@given(STEPS, st.sampled_from([float("nan"), float("inf"), -float("inf"), object(), "\ud800", lambda: None]))
def test_what_cannot_be_coded_is_named_by_its_path(steps: list[int | str], bad: object) -> None:
    value, path = bad, "value"
    for step in reversed(steps):
        value = {step: value} if isinstance(step, str) else [0] * step + [value]
    for step in steps:
        path += f".{step}" if step == "when" else f"[{step!r}]"

    for encoder in (encode, encode_member, encode_set_member):
        with pytest.raises(InvalidError) as caught:
            encoder(value)
        assert caught.value.field == path


@pytest.mark.parametrize("key", [1.5, (1, 2), frozenset({1})])
def test_an_odd_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidError, match=r"value\.inner .*keys of a mapping must be"):
        encode({"inner": {key: 1}})


@pytest.mark.parametrize("kind", ["list", "dict", "mixed"])
def test_what_contains_itself_is_refused(kind: str) -> None:
    ring_list: list[Any] = []
    ring_dict: dict[str, Any] = {"inner": ring_list if kind == "mixed" else None}
    ring_list.append(ring_list if kind == "list" else ring_dict)
    ring_dict["self"] = ring_dict

    with pytest.raises(InvalidError, match="contains itself"):
        encode(ring_list if kind == "list" else ring_dict)


def test_deep_nesting_has_a_limit_that_is_the_same_for_all_codecs() -> None:
    for innermost in (1, b"1"):
        deep: Any = innermost
        for _ in range(150):
            deep = [deep]
        assert same(decode(*encode(deep), key="key"), deep)
        for _ in range(200):
            deep = [deep]
        with pytest.raises(InvalidError, match="nested over"):
            encode(deep)


@given(st.binary())
def test_whatever_another_client_has_set_can_be_read(raw: bytes) -> None:
    if not raw.startswith(b"\x01"):
        decode_member(raw)


# -- many records at once -------------------------------------------------------------------------

HEAD = b"1795340279254406 ada json\n"


def test_records_in_json_are_decoded_together() -> None:
    bodies = [b'{"a": [1, 2]}', b" null ", b'"text"', b"1.5", b"[]", b'{"json\\n": "1795340279254406 ada json\\n"}']
    heads = [HEAD, b"1795340279254406 eve 1795340279254400 json\n"] * 3

    found = decode_json_records([head + body for head, body in zip(heads, bodies, strict=True)])

    assert found == [{"a": [1, 2]}, None, "text", 1.5, [], {"json\n": "1795340279254406 ada json\n"}]


@pytest.mark.parametrize(
    "odd",
    [
        b"plain words",
        b"41",
        b"",
        b"1795340279254406 ada msgpack\n\x01",
        b"1795340279254406 ada blob\n{}",
        b"1795340279254406 ada eve json\n1",
        b"1795340279254406 " + b"a" * 300 + b" json\n1",
        HEAD,
        HEAD + b"{",
        HEAD + b"1,2",
        HEAD + b"\xff",
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_other_record_makes_each_be_decoded_alone(odd: bytes, place: int) -> None:
    records = [HEAD + b"1", HEAD + b'{"a": 1}']
    records.insert(place, odd)

    assert decode_json_records(records) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"', b'", 777, 3'),  # one text over all, and what was swallowed made up for
        (b"[1", b"2], 777"),
        (b"[1", b"2], 777, 3, 4"),
        (b'{"a": 1', b'"b": 2}, 777, 777'),
        (b"1, 2", b"3"),
    ],
)
def test_damaged_records_cannot_forge_the_one_between_them(before: bytes, after: bytes) -> None:
    assert decode_json_records([HEAD + before, HEAD + b"[5]", HEAD + after]) is None
