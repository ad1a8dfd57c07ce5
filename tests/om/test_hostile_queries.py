"""Hostile text in every operator of a query: it matches itself alone, reaches no other record, and breaks nothing.

redis-om spells values of `IN`, `%`, `<<` and tags with its separator into the text of a query. Here they are parameters
of the query, tested in this process, or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aredis_om import GeoFilter

from sharedmem import Hub, InvalidError, SharedMemoryError, om
from sharedmem.clock import new_id

HOSTILE = (
    "x} | @user:{bob",
    "x}|@ns:{*}",
    "@user:{bob}",
    "*",
    "bob*",
    "*ob",
    "%bob%",
    "%%bob%%",
    "bob|ada",
    "ada|bob",
    "bob,ada",
    "bob\x1fada",
    "\x1f",
    "|",
    "(bob)",
    "-(@user:{x})",
    "~bob",
    "bob) | (*",
    "w'bob'",
    "$f0",
    "$n",
    "bob=>{$weight:0}",
    "*=>[KNN 10 @vector $v]",
    "[-inf inf]",
    "] | @at:[-inf inf",
    "\\",
    "\\}",
    "bob\\",
    "'",
    '"',
    '" | "',
    "bob\x00",
    " bob",
    "bob ",
    "BOB",
    "böb",
    "",
    " ",
    "\n",
    "%62ob",
    "x" * 300,
)
STORED = tuple(text for text in HOSTILE if text == text.strip() != "" and text.isprintable() and len(text) < 256)
"""Texts that a memory may have as its user."""
OPERATORS: dict[str, Callable[[Any, str], Any]] = {
    "==": lambda field, text: field == text,
    "!=": lambda field, text: ~(field != text),
    "<<": lambda field, text: field << [text],
    "<< several": lambda field, text: field << ["nobody", text, text],
    ">>": lambda field, text: ~(field >> [text]),
    "startswith": lambda field, text: field.startswith(f"{text}\x02"),
    "endswith": lambda field, text: field.endswith(f"\x02{text}"),
    "contains": lambda field, text: field.contains(f"\x02{text}\x02"),
    "and": lambda field, text: (field == text) & (field == text),
    "or": lambda field, text: (field == text) | (field == "nobody"),
}


@pytest.fixture
async def spaces(hub: Hub) -> AsyncIterator[tuple[Any, Any]]:
    """The models of memories of two namespaces, each with a memory of bob."""
    names = [f"om-{new_id(8)}" for _ in range(2)]
    for name in names:
        await hub.store(name, actor="ada").memory.add(f"Bob of {name} sings", user_id="bob", tags=["a"])
    yield tuple(om.models(hub.store(name, actor="ada")).Memory for name in names)
    for name in names:
        await hub.store(name).clear()


@pytest.mark.parametrize("operator", OPERATORS)
async def test_hostile_text_matches_no_record_that_does_not_hold_it(spaces: tuple[Any, Any], operator: str) -> None:
    mine, _ = spaces
    condition = OPERATORS[operator]

    async def count(text: str) -> tuple[str, int]:
        return text, await mine.find(condition(mine.user_id, text)).count()

    counts = dict(await asyncio.gather(*map(count, HOSTILE)))

    assert {text: found for text, found in counts.items() if found} == {}


@pytest.mark.parametrize("text", STORED, ids=ascii)
async def test_hostile_text_matches_itself(hub: Hub, spaces: tuple[Any, Any], text: str) -> None:
    mine, _ = spaces
    (bob,) = await mine.find().all()
    store = hub.store(bob.tenant_id, actor="ada")
    await store.memory.add("Somebody hostile hums", user_id=text)

    assert [one.user_id for one in await mine.find(mine.user_id == text).all()] == [text]
    assert [one.user_id for one in await mine.find(mine.user_id << [text]).all()] == [text]
    assert [one.user_id for one in await mine.find(mine.user_id >> [text]).all()] == ["bob"]
    assert [one.user_id for one in await mine.find(mine.user_id.contains(text)).all()] == [text]


async def test_hostile_words_reach_no_record_of_another_namespace(spaces: tuple[Any, Any]) -> None:
    mine, theirs = spaces
    (own,), (other,) = await mine.find().all(), await theirs.find().all()

    for text in (*HOSTILE, other.tenant_id, f"@terms:{other.tenant_id}", f"sings | {other.tenant_id}"):
        found = await mine.find(mine.memory % text).all()
        found += await mine.find((mine.memory % text) | (mine.user_id == text)).all()
        found += await mine.find(~(mine.memory % text)).all()
        assert {one.id for one in found} <= {own.id}, text


async def test_hostile_text_is_harmless_in_a_query_for_the_nearest(spaces: tuple[Any, Any]) -> None:
    mine, theirs = spaces
    (other,) = await theirs.find().all()

    for text in HOSTILE:
        assert await mine.find(mine.user_id == text).nearest("Bob sings", k=5).all() == []
        found = await mine.find(mine.user_id != text).nearest("Bob sings", k=5).all()
        assert other.id not in {one.id for one in found}
        assert len(found) == 1


class _Spelled:
    """Something that spells itself as a part of a query."""

    def __str__(self) -> str:
        return "x} | @user:{bob"

    __repr__ = __str__


_NO_VALUES = {
    "object": _Spelled(),
    "objects": [_Spelled()],
    "bytes": b"bob",
    "dictionary": {"$ne": 1},
    "nan": float("nan"),
    "infinity": float("inf"),
    "half a character": "\ud800",
    "class": object,
    "area": GeoFilter(0, 0, 1, "km"),
}


@pytest.mark.parametrize("value", _NO_VALUES.values(), ids=_NO_VALUES)
async def test_what_is_not_a_plain_value_is_refused_before_anything_is_sent(
    spaces: tuple[Any, Any], value: Any
) -> None:
    mine, _ = spaces
    values = value if isinstance(value, list) else [value]
    conditions: list[Callable[[], Any]] = [lambda: mine.user_id << values, lambda: mine.user_id >> values]
    if not isinstance(value, list):
        conditions += [lambda: mine.user_id == value, lambda: mine.user_id != value, lambda: mine.timestamp > value]
        conditions += [lambda: mine.memory % value, lambda: mine.user_id.startswith(value)]
        conditions += [lambda: mine.user_id.contains(value), lambda: mine.user_id.endswith(value)]

    for condition in conditions:
        with pytest.raises(InvalidError):
            mine.find(condition())


@pytest.mark.parametrize("value", ["x", "1] | @user:{bob", "-inf +inf", True, None])
async def test_a_number_is_compared_with_numbers_alone(spaces: tuple[Any, Any], value: Any) -> None:
    mine, _ = spaces

    assert await mine.find(mine.timestamp == value).count() == 0
    assert await mine.find(mine.timestamp << [value]).count() == 0
    if isinstance(value, str):
        assert await mine.find(mine.timestamp >= value).count() == 0
        return
    with pytest.raises(InvalidError, match="an order takes"):
        mine.find(mine.timestamp >= value)


async def test_a_condition_of_another_make_is_refused(spaces: tuple[Any, Any]) -> None:
    mine, _ = spaces
    forged = mine.user_id == "x"
    forged.left.name, name = "user_id:{bob} | @user", forged.left.name
    try:
        with pytest.raises(InvalidError, match="the fields of the model"):
            mine.find(forged)
    finally:
        forged.left.name = name
    for given in ("*", "@user:{bob}", None, {"user_id": "bob"}, mine.user_id, [mine.user_id == "bob"]):
        with pytest.raises(InvalidError, match="join conditions"):
            mine.find(given)


async def test_an_actor_without_the_right_to_read_finds_nothing(hub: Hub, spaces: tuple[Any, Any]) -> None:
    mine, _ = spaces
    (bob,) = await mine.find().all()
    stranger = om.models(hub.store(f"{bob.tenant_id}-x", actor="eve", subscribe=(bob.tenant_id,)))

    assert (
        await stranger.Memory.find((stranger.Memory.user_id == "bob") | (stranger.Memory.user_id != "bob")).all() == []
    )
    with pytest.raises(SharedMemoryError):
        await stranger.Memory.get(bob.id)
