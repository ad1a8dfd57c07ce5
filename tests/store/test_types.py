"""What a type checker sees: `once` and `update` return what their functions make, `read` the type asked for.

`make types` checks each `assert_type`; the tests show that the values are of these types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from sharedmem import Hub, Settings
from sharedmem import SharedMemoryStore as Store
from sharedmem.sync import Hub as SyncHub
from sharedmem.sync import SharedMemoryStore as SyncStore


class Model(BaseModel):
    size: int


@dataclass
class Point:
    x: int


class Row(TypedDict):
    name: str


@pytest.fixture
def store(fake: Hub) -> Store:
    return fake.store("team")


@pytest.fixture
def blocking(redis_url: str, settings: Settings) -> Iterator[SyncStore]:
    with SyncHub.open(redis_url, settings=settings) as hub:
        store = hub.store("types")
        yield store
        store.clear()


async def make() -> int:
    return 1


async def add(before: int) -> float:
    return before + 1.0


async def test_the_result_has_the_type_that_the_function_returns(store: Store) -> None:
    await store.write("number", 1)

    assert assert_type(await store.once("a", make, ttl=1), int) == 1
    assert assert_type(await store.once("b", lambda: "text", ttl=1), str) == "text"
    assert assert_type(await store.update("number", add), float) == 2.0
    assert assert_type(await store.update("number", lambda before: [before]), list[Any]) == [2.0]


def test_the_same_in_threads(blocking: SyncStore) -> None:
    assert assert_type(blocking.once("a", lambda: 1, ttl=1), int) == 1
    assert assert_type(blocking.update("n", lambda _: "text"), str) == "text"


async def test_a_read_has_the_type_that_the_caller_asks_for(store: Store) -> None:
    await store.write_many({"model": Model(size=1), "point": Point(2), "row": {"name": "Ada"}, "list": [1, 2]})

    assert assert_type(await store.read("list"), Any) == [1, 2]
    assert assert_type(await store.read("model", as_=Model), Model | None) == Model(size=1)
    assert assert_type(await store.read("missing", 0, as_=Model), Model | int) == 0
    assert assert_type(await store.read("point", None, as_=Point), Point | None) == Point(2)
    assert assert_type(await store.read("row", as_=Row), Row | None) == {"name": "Ada"}
    assert assert_type(await store.read("list", as_=list[int]), list[int] | None) == [1, 2]
    # A union is no class: what comes of it is up to the caller.
    assert assert_type(await store.read("missing", as_=int | str), Any) is None
    assert assert_type(await store.read_many(["list"]), dict[str, Any]) == {"list": [1, 2]}
    assert assert_type(await store.read_many(["model"], as_=Model), dict[str, Model]) == {"model": Model(size=1)}


async def test_a_caller_has_to_think_of_a_key_that_is_not_there(store: Store) -> None:
    with pytest.raises(AttributeError):
        # The checker refuses it too: else it would call this comment unused.
        _ = (await store.read("missing", as_=Model)).size  # type: ignore[union-attr]


def test_a_read_in_threads_has_the_type_that_the_caller_asks_for(blocking: SyncStore) -> None:
    blocking.write_many({"model": Model(size=1), "point": Point(2), "number": 3})

    assert assert_type(blocking.read("number"), Any) == 3
    assert assert_type(blocking.read("model", as_=Model), Model | None) == Model(size=1)
    assert assert_type(blocking.read("missing", Point(1), as_=Point), Point) == Point(1)
    assert assert_type(blocking.read_many(["number"], as_=int), dict[str, int]) == {"number": 3}
