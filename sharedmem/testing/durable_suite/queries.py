"""`query`, `iterate`, `highest` and `namespaces`: by type and body, and everything in order."""

from __future__ import annotations

import random

import pytest

from sharedmem.durable.json_codec import to_text
from sharedmem.durable.protocol import Durable, Scalar
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.redis.codec import encode
from sharedmem.testing.durable_suite.base import (
    FAR_MS,
    SEED,
    DurableFixtures,
    T,
    all_records_of,
    element,
    head,
    tombstone,
)

# ruff: noqa: D102  # a test's name is its sentence


_PEOPLE = {
    "ann": '{"name":"Ann","age":30,"score":1.5,"on":true,"address":{"city":"Bonn","geo":{"zone":1}}}',
    "bob": '{"name":"Bob","age":30,"score":2,"on":false,"address":{"city":"Köln"}}',
    "eve": '{"name":"it\'s \\"Eve\\" \\\\","age":"30","on":1,"address":["Bonn"]}',
    "odd": '["Ann"]',
}


class QueryTests(DurableFixtures):
    """`query`: by type and by the content of bodies."""

    @pytest.fixture
    async def people(self, durable: Durable, ns: str) -> str:
        """A namespace with records of some people."""
        people = [
            head(f"{ns}:shared:{name}", number, type="person", body=body)
            for number, (name, body) in enumerate(_PEOPLE.items(), start=1)
        ]
        noise = [
            head(f"{ns}:shared:other", 9, type="animal", body=_PEOPLE["ann"]),
            head(f"{ns}:shared:gone", 9, type="person", deleted=True, body=""),
            head(f"{ns}:shared:empty", 0, type="person", body=""),
            head(f"{ns}-2:shared:ann", 9, type="person", body=_PEOPLE["ann"]),
        ]
        await durable.put([*people, *noise])
        return ns

    async def test_a_query_by_type_gives_the_newest_first(self, durable: Durable, people: str) -> None:
        found = await durable.query(people, of_type="person")

        assert [one.key.rpartition(":")[2] for one in found] == ["odd", "eve", "bob", "ann", "empty"]
        assert found[3].body == _PEOPLE["ann"]

    async def test_a_query_gives_as_many_as_asked_for(self, durable: Durable, people: str) -> None:
        found = await durable.query(people, of_type="person", limit=2)

        assert [one.key.rpartition(":")[2] for one in found] == ["odd", "eve"]

    @pytest.mark.parametrize(
        ("where", "names"),
        [
            ({"name": "Ann"}, ["ann"]),
            ({"name": "ann"}, []),
            ({"age": 30}, ["bob", "ann"]),
            ({"age": "30"}, ["eve"]),
            ({"age": 30, "on": True}, ["ann"]),
            ({"score": 1.5}, ["ann"]),
            ({"score": 2.0}, ["bob"]),
            ({"on": True}, ["ann"]),
            ({"on": False}, ["bob"]),
            ({"on": 1}, ["eve"]),
            ({"address.city": "Bonn"}, ["ann"]),
            ({"address.city": "Köln"}, ["bob"]),
            ({"address.geo.zone": 1}, ["ann"]),
            ({"address": "Bonn"}, []),
            ({"name": 'it\'s "Eve" \\'}, ["eve"]),
            ({"nothing": "Ann"}, []),
            ({"name.length": 3}, []),
        ],
        ids=str,
    )
    async def test_a_query_by_fields_finds_equal_ones(
        self, durable: Durable, people: str, where: dict[str, Scalar], names: list[str]
    ) -> None:
        found = await durable.query(people, of_type="person", where=where)

        assert [one.key.rpartition(":")[2] for one in found] == names

    @pytest.mark.parametrize(
        "hostile",
        ["' OR '1'='1", '" OR 1=1 --', "Ann'; DROP TABLE documents; --", "%", "*", "Ann\u0000", "$.name", "@p0", "\\"],
    )
    async def test_a_value_is_never_query_text(self, durable: Durable, people: str, hostile: str) -> None:
        own = head(f"{people}:shared:own", 99, type="person", body=to_text(*encode({"name": hostile})))

        assert await durable.query(people, of_type="person", where={"name": hostile}) == []
        assert await durable.query(people, of_type=hostile) == []
        assert await durable.query(hostile, of_type="person") == []
        await durable.put([own])
        assert await durable.query(people, of_type="person", where={"name": hostile}) == [own]

    @pytest.mark.parametrize(
        "field",
        ["", ".", "a.", ".a", "a..b", "a b", "a'b", 'a"b', "a[0]", "$", "a-b", "a;b", "c.body = 1 OR 1", "é", "a\n"],
    )
    async def test_a_field_that_is_no_name_is_refused(self, durable: Durable, people: str, field: str) -> None:
        with pytest.raises(InvalidError, match="is refused"):
            await durable.query(people, of_type="person", where={field: 1})

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    async def test_a_limit_out_of_bounds_is_refused(self, durable: Durable, people: str, limit: int) -> None:
        with pytest.raises(InvalidError, match="limit"):
            await durable.query(people, of_type="person", limit=limit)


# ruff: noqa: D102  # a test's name is its sentence


class IterationTests(DurableFixtures):
    """`iterate`, `highest` and `namespaces`."""

    @pytest.fixture
    async def records(self, durable: Durable, ns: str) -> list[DurableRecord]:
        """A dozen documents in the order of `iterate`; some are tombstones, some expired."""
        records = [
            head(f"{ns}:a:1", 5),
            element(f"{ns}:a:1", "x", 4),
            element(f"{ns}:a:1", "y", 3, deleted=True, body=""),
            tombstone(f"{ns}:a:2", 8),
            element(f"{ns}:b", "only", 7),
            head(f"{ns}:c", 6, expires=FAR_MS),
            element(f"{ns}:c", "z", 6, expires=FAR_MS),
        ]
        shuffled = random.Random(SEED).sample(records, len(records))  # noqa: S311  # no secret
        await durable.put([*shuffled, head(f"{ns}-2:a", 99), head(f"{ns[:-1]}:a", 99)])
        return records

    async def test_every_document_comes_once_and_in_order(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        assert await all_records_of(durable, ns) == records

    async def test_a_walk_goes_on_behind_any_document(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        for number, record in enumerate(records, start=1):
            assert await all_records_of(durable, ns, after=(record.key, record.element)) == records[number:]

    async def test_a_walk_goes_on_where_a_document_is_gone(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        assert await all_records_of(durable, ns, after=(f"{ns}:a:1", "w")) == records[1:]
        assert await all_records_of(durable, ns, after=(f"{ns}:a:1", "xx")) == records[2:]
        assert await all_records_of(durable, ns, after=(f"{ns}:zzz", "")) == []

    async def test_only_changes_after_a_stamp_are_listed(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        assert await all_records_of(durable, ns, changed_after=T + 5) == [one for one in records if one.stamp > T + 5]
        assert await all_records_of(durable, ns, changed_after=T + 8) == []

    async def test_only_heads_are_listed_on_request(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        heads = [one for one in records if one.is_head]

        assert await all_records_of(durable, ns, heads_only=True) == heads
        assert (
            await all_records_of(durable, ns, heads_only=True, changed_after=T + 5, after=(heads[0].key, ""))
            == heads[1:]
        )

    async def test_a_long_walk_comes_in_pages_and_misses_nothing(self, durable: Durable, ns: str) -> None:
        records = [head(f"{ns}:{number:05}", number, body=str(number)) for number in range(1300)]
        for start in range(0, len(records), 500):
            await durable.put(records[start : start + 500])

        pages = [page async for page in durable.iterate(ns)]

        assert all(pages)
        assert [record for page in pages for record in page] == records

    async def test_a_walk_may_be_left_in_the_middle(
        self, durable: Durable, ns: str, records: list[DurableRecord]
    ) -> None:
        async for page in durable.iterate(ns):
            assert page[0] == records[0]
            break

        assert await all_records_of(durable, ns) == records

    async def test_a_namespace_without_documents_has_no_pages(self, durable: Durable, ns: str) -> None:
        assert [page async for page in durable.iterate(ns)] == []

    async def test_the_highest_stamp_of_a_namespace_counts_tombstones_and_elements(
        self, durable: Durable, ns: str, key: str
    ) -> None:
        highest = [await durable.highest(ns)]
        for record in (head(key, 5), element(key, "a", 6), tombstone(key, 9), head(key, 7), head(f"{ns}-2:a", 50)):
            await durable.put([record])
            highest.append(await durable.highest(ns))

        assert highest == [0, T + 5, T + 6, T + 9, T + 9, T + 9]

    async def test_the_namespaces_are_listed_in_order(self, durable: Durable, ns: str) -> None:
        names = [f"{ns}-b", f"{ns}-B", f"{ns}", f"{ns}-a"]

        await durable.put([head(f"{name}:x", 1) for name in [*names, f"${ns}"]] * 2)

        assert all("$" not in name for name in await durable.namespaces())
        assert [name for name in await durable.namespaces() if name.startswith(ns)] == sorted(names)
