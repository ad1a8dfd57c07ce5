"""What the entries of an outbox say, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest

from sharedmem.durable.outbox_documents import (
    OutboxBatch,
    OutboxDocument,
    newest_of_each,
    parse_documents,
    parse_record,
    parse_records,
)
from sharedmem.models import DurableRecord

STAMP = 1_795_000_000_000_001


def name(kind: bytes = b"k", *, type_: bytes = b"value", codec: bytes = b"json", element: bytes = b"") -> bytes:
    words = b"%b %b 1795000000000001 1795000000000001 7 3 99 5 %b ada team:shared:some note" % (type_, kind, codec)
    return words + b"\n" + element if element else words


def test_a_field_says_all_of_a_document() -> None:
    record = parse_record(name(), b'{"a": 1}')

    assert record == DurableRecord(
        key="team:shared:some note",
        type="value",
        kind="knowledge",
        version=STAMP,
        stamp=STAMP,
        floor=7,
        size=3,
        expires=99,
        created=5,
        actor="ada",
        body='{"a": 1}',
    )


@pytest.mark.parametrize(("letter", "kind"), [(b"s", "session"), (b"k", "knowledge"), (b"l", "log")])
def test_a_letter_says_how_long_it_stays_in_redis(letter: bytes, kind: str) -> None:
    assert parse_record(name(letter), b"1").kind == kind


def test_what_is_gone_is_a_tombstone() -> None:
    record = parse_record(name(codec=b"gone"), b"")

    assert record.deleted
    assert record.body == ""


def test_the_head_of_a_structure_has_no_body() -> None:
    assert parse_record(name(type_=b"list"), b"").body == ""


def test_a_damaged_value_without_a_payload_has_one_all_the_same() -> None:
    assert parse_record(name(), b"").body == '{"$type":"foreign","text":""}'


def test_a_member_of_a_set_is_named_by_its_digest_whatever_bytes_it_is() -> None:
    member = b"\xff\xfe\nnot a text"

    record = parse_record(name(type_=b"set", codec=b"member", element=member), member)

    assert record.element == sha256(member).hexdigest()
    assert '"base64"' in record.body


def test_a_field_of_a_hash_may_hold_any_text() -> None:
    assert parse_record(name(type_=b"hash", codec=b"member", element="größe\n2".encode()), b"12").element == "größe\n2"


@pytest.mark.parametrize(
    "field",
    [
        b"",
        b"value",
        name(b"x"),
        name(codec=b"yaml"),
        name().replace(b"1795000000000001", b"soon"),
        name().replace(b"1795000000000001", b"-4"),
        name().replace(b"some note", b"{other}"),
        name().replace(b"ada", b"\xff"),
        name(type_=b"hash") + b"\n",
        name(type_=b"hash", element=b"\xff"),
    ],
)
def test_what_cannot_be_understood_says_so_and_stops_nothing(field: bytes) -> None:
    broken, sound = parse_documents([field, b"1", name(), b"2"], "team")

    assert broken.record is None
    assert broken.problem.startswith("it cannot be parsed: ")
    assert sound.record is not None
    assert sound.record.body == "2"


def test_nothing_in_an_outbox_speaks_for_another_namespace() -> None:
    (left,) = parse_documents([name(), b"1"], "other")

    assert left.record is None
    assert "of namespace 'team'" in left.problem
    assert parse_records([name(), b"1"], "other") == []


def _record(stamp: int, *, floor: int = 0, element: str = "") -> DurableRecord:
    return DurableRecord(
        key="team:shared:a", element=element, type="list", kind="session", version=stamp, stamp=stamp, floor=floor
    )


def test_of_a_document_only_the_newest_goes_on() -> None:
    records = [_record(3), _record(5), _record(4), _record(2, element="x"), _record(1, element="x")]

    assert newest_of_each(records) == [_record(5), _record(2, element="x")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_what_lay_under_a_key_before_stays_forgotten_when_heads_are_merged(order: tuple[int, ...]) -> None:
    heads = [_record(3, floor=3), _record(4), _record(5)]

    assert newest_of_each(heads[one] for one in order) == [_record(5, floor=3)]


def _batch(*entries: Sequence[bytes]) -> list[list[OutboxDocument]]:
    batch = OutboxBatch(entries, "team")
    list(batch.parse())
    return list(batch.documents())


def test_of_a_batch_only_the_newest_of_each_document_is_read() -> None:
    old, new = changed(4, floor=3), changed(5, floor=0)

    (first,), (second, other) = _batch([old, b"1"], [new, b"2", name(type_=b"hash", element=b"x"), b"3"])

    assert second.record is not None
    assert (second.record.body, second.record.floor, second.is_superseded) == ("2", 3, False)
    assert (first.record, first.is_superseded) == (second.record, True)
    assert other.record is not None
    assert other.record.element == "x"


def test_what_only_an_unreadable_document_supersedes_is_read() -> None:
    ((first, second, junk),) = _batch([changed(4), b"1", changed(5, kind=b"?"), b"2", b"junk", b"3"])

    assert first.record is not None
    assert (first.record.stamp, first.is_superseded) == (4, False)
    assert second.problem
    assert junk.problem


def changed(stamp: int, *, floor: int = 0, kind: bytes = b"k") -> bytes:
    return b"value %b %d %d %d 0 0 5 json ada team:shared:some note" % (kind, stamp, stamp, floor)
