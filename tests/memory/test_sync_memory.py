"""Memory and cache without `await`: the sync face gives the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from sharedmem import MemoryEvent, MemoryItem, Settings
from sharedmem.sync import Hub, SharedMemoryStore
from sharedmem.testing import connect_to_fake


@pytest.fixture
def store() -> Iterator[SharedMemoryStore]:
    with Hub(settings=Settings(embedder="hashing"), connect=connect_to_fake()) as hub:
        yield hub.store("team", actor="ada")


def test_what_is_remembered_is_recalled(store: SharedMemoryStore) -> None:
    added = store.memory.add("The lease of the office ends in May", category="office")

    hits = store.memory.search("when does the lease end?", filters={"category": "office"}, explain=True)

    assert [hit.item.id for hit in hits] == [added.id]
    assert hits.mode == "hybrid"
    assert hits[0].why is not None
    assert store.memory.get(added.id) == hits[0].item


def test_fields_and_changes_arrive(store: SharedMemoryStore) -> None:
    id_ = store.memory.add("The roof leaks", importance="high", tags=("roof",)).id

    changed = store.memory.update(id_, memory="The roof was repaired", tags=("roof", "done"))

    assert changed.importance == "high"
    assert [version.change for version in store.memory.history(id_)] == ["updated", "added"]
    assert store.memory.undo(id_).memory == "The roof leaks"
    assert store.memory.delete(id_)
    assert store.memory.get(id_) is None


def test_a_narrowed_memory_is_a_memory(store: SharedMemoryStore) -> None:
    of_ines = store.memory.within(user_id="ines")

    of_ines.add_many(["She is a nurse", "She has a car loan"])
    store.memory.add("The bakery needs a loan", user_id="otto")

    assert of_ines.stats().count == 2
    assert len(store.memory.list(limit=10)) == 3
    assert sorted(item.memory for item in of_ines.export()) == ["She has a car loan", "She is a nurse"]


def test_a_reranker_is_a_plain_function(store: SharedMemoryStore) -> None:
    store.memory.add_many(["loans of the bakery", "loans of the school", "loans of the harbour"])

    def by_length(_: str, items: Sequence[MemoryItem]) -> Sequence[float]:
        return [len(item.memory) for item in items]

    (first, *_) = store.memory.search("loans", rerank=by_length)

    assert first.item.memory == "loans of the harbour"
    assert len(store.memory.search("loans", rerank=False)) == 3


def test_a_standing_query_is_an_iterator(store: SharedMemoryStore) -> None:
    with store.memory.subscribe("roof", threshold=0.1) as events:
        store.memory.add("The roof leaks")

        event = next(iter(events))

    assert event.event == "written"
    assert event.item is not None
    assert event.item.memory == "The roof leaks"


def test_a_standing_query_calls_a_plain_function(store: SharedMemoryStore) -> None:
    heard: list[MemoryEvent] = []
    told = threading.Event()

    def hear(event: MemoryEvent) -> None:
        heard.append(event)
        told.set()

    with store.memory.subscribe("roof", hear, threshold=0.1):
        store.memory.add("The roof leaks")
        assert told.wait(10)

    assert heard[0].event == "written"


def test_a_plain_function_is_answered_from_the_cache(store: SharedMemoryStore) -> None:
    calls: list[str] = []

    @store.cache.cached(cost=0.5)
    def ask(prompt: str) -> str:
        calls.append(prompt)
        return f"answer to {prompt}"

    answers = [ask("how high is the tide?"), ask("How high is the tide? ")]

    assert answers == ["answer to how high is the tide?"] * 2
    assert calls == ["how high is the tide?"]
    assert ask.__name__ == "ask"
    assert store.cache.stats().saved_cost == 0.5


def test_the_cache_is_checked_and_filled_by_hand(store: SharedMemoryStore) -> None:
    assert store.cache.check("how high is the tide?") is None

    store.cache.put("how high is the tide?", {"metres": 3})

    found = store.cache.check("how high is the tide?")
    assert found is not None
    assert found.response == {"metres": 3}
