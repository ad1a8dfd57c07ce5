"""The table of operations: every row runs on a store and answers what the store answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support import private_server

from sharedmem import Hub, NotFoundError, Settings, SharedMemoryStore, Usage
from sharedmem.faces.operations import FEEDS, OPERATIONS, Feed, Operation

data_dir = private_server.data_dir

# In order, on one store: row, its request, its answer (a function judges where it cannot be foretold).
STEPS = [
    ("value.write", {"key": "v", "value": {"a": 1}, "ttl": 60}, lambda version: version > 0),
    ("value.read", {"key": "v"}, {"a": 1}),
    ("value.entry", {"key": "v"}, lambda entry: entry.value == {"a": 1}),
    ("value.write_many", {"values": {"x": 1, "y": 2}, "kind": "session"}, lambda versions: set(versions) == {"x", "y"}),
    ("value.read_many", {"keys": ["x", "y", "z"]}, {"x": 1, "y": 2}),
    ("key.exists", {"key": "x"}, True),
    ("key.ttl", {"key": "v"}, lambda ttl: 0 < ttl <= 60),
    ("key.persist", {"key": "v"}, True),
    ("key.expire", {"key": "v", "ttl": 5}, True),
    ("key.list", {"pattern": "?"}, ["n:shared:v", "n:shared:x", "n:shared:y"]),
    ("key.delete", {"key": "x"}, True),
    ("list.append", {"key": "l", "value": "one", "max_length": 5}, 1),
    ("list.read", {"key": "l"}, ["one"]),
    ("list.length", {"key": "l"}, 1),
    ("hash.set", {"key": "h", "values": {"f": 1, "g": 2}}, 2),
    ("hash.get", {"key": "h", "field": "f"}, 1),
    ("hash.increment", {"key": "h", "field": "f", "by": 4}, 5),
    ("hash.delete", {"key": "h", "fields": ["g"]}, 1),
    ("hash.all", {"key": "h"}, {"f": 5}),
    ("set.add", {"key": "s", "values": ["a", "b"]}, 2),
    ("set.contains", {"key": "s", "value": "a"}, True),
    ("set.remove", {"key": "s", "values": ["b"]}, 1),
    ("set.move", {"source": "s", "destination": "t", "value": "a"}, True),
    ("set.size", {"key": "t"}, 1),
    ("set.members", {"key": "t"}, {"a"}),
    ("set.pop", {"key": "t"}, "a"),
    ("counter.increment", {"key": "c", "by": -2}, -2),
    ("message.publish", {"channel": "news", "message": "hi"}, 0),
    ("namespace.usage", {}, lambda usage: isinstance(usage, Usage) and usage.keys > 0),
    ("namespace.sweep", {}, 0),
    ("namespace.clear", {}, lambda removed: removed > 0),
]


@pytest.fixture
async def store(data_dir: Path) -> AsyncIterator[SharedMemoryStore]:
    async with Hub.open(settings=Settings(data_dir=data_dir, embedded_modules=())) as hub:
        yield hub.store("n")


async def test_every_row_runs(store: SharedMemoryStore) -> None:
    assert [name for name, _, _ in STEPS if name not in OPERATIONS] == []
    assert OPERATIONS.keys() == {name for name, _, _ in STEPS}

    for name, parameters, expected in STEPS:
        row = OPERATIONS[name]
        answer = await row.run(store, row.takes.model_validate_json(json.dumps(parameters)))
        assert expected(answer) if callable(expected) else answer == expected, (name, answer)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("value.read", {"key": "k"}),
        ("value.entry", {"key": "k"}),
        ("hash.get", {"key": "k", "field": "f"}),
        ("set.pop", {"key": "k"}),
    ],
)
async def test_what_is_not_there_is_an_error_on_every_face(
    store: SharedMemoryStore, name: str, parameters: dict[str, str]
) -> None:
    row = OPERATIONS[name]

    with pytest.raises(NotFoundError, match="k'"):
        await row.run(store, row.takes(**parameters))


async def test_the_feeds_bring_what_happens(store: SharedMemoryStore) -> None:
    watch, subscribe = FEEDS["change.watch"], FEEDS["message.subscribe"]
    await store.write("k", 1)

    changes = watch.run(store, watch.takes(since=0))
    assert (await anext(changes)).key == "n:shared:k"
    messages = subscribe.run(store, subscribe.takes(channels=("news",)))
    assert inspect.isasyncgen(messages)


def test_every_row_says_what_it_does_and_has_a_schema() -> None:
    rows: list[Operation[Any, Any] | Feed[Any, Any]] = [*OPERATIONS.values(), *FEEDS.values()]
    assert [row.name for row in rows] == [*OPERATIONS, *FEEDS]
    for row in rows:
        assert row.summary.endswith(".")
        assert row.needs in {"read", "write"}
        assert "progress" not in row.takes.model_json_schema().get("properties", {})
