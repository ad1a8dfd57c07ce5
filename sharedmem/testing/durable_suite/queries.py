"""`query`: by type and by what the bodies say."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import pytest

from sharedmem.durable.protocol import Durable, Scalar
from sharedmem.durable.texts import to_text
from sharedmem.errors import InvalidError
from sharedmem.testing.durable_suite.base import (
    DurableFixtures,
    head,
)
from sharedmem.wire.codec import encode

_PEOPLE = {
    "ann": '{"name":"Ann","age":30,"score":1.5,"on":true,"address":{"city":"Bonn","geo":{"zone":1}}}',
    "bob": '{"name":"Bob","age":30,"score":2,"on":false,"address":{"city":"Köln"}}',
    "eve": '{"name":"it\'s \\"Eve\\" \\\\","age":"30","on":1,"address":["Bonn"]}',
    "odd": '["Ann"]',
}


class QueryTests(DurableFixtures):
    """`query`: by type and by what the bodies say."""

    @pytest.fixture
    async def people(self, durable: Durable, ns: str) -> str:
        """A namespace in which some people lie."""
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
