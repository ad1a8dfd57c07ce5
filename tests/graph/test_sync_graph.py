"""The knowledge graph without `await`: the sync face gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from sharedmem import Episode, RelationType, Settings
from sharedmem.sync import Hub, SharedMemoryStore
from sharedmem.testing import connect_to_fake

GROUP = "acme:talk"


@pytest.fixture
def store() -> Iterator[SharedMemoryStore]:
    with Hub(settings=Settings(embedder="hashing"), connect=connect_to_fake()) as hub:
        yield hub.store("team", actor="ada")


def test_what_is_told_can_be_asked_for(store: SharedMemoryStore) -> None:
    graph = store.graph
    graph.add_episode("Ann Lee lives in Oslo.", group_id=GROUP, occurred_at=datetime(2024, 1, 1, tzinfo=UTC))

    told = graph.add_episode("Ann Lee moved to Bergen.", group_id=GROUP, occurred_at=datetime(2025, 1, 1, tzinfo=UTC))

    assert [fact.fact for fact in told.closed] == ["Ann Lee lives in Oslo"]
    assert [fact.target_name for fact in graph.facts("Ann Lee", group_id=GROUP)] == ["Bergen"]
    assert len(graph.history("Ann Lee", group_id=GROUP)) == 3
    assert "Bergen" in graph.retrieve("Where does Ann Lee live?", group_id=GROUP).as_prompt(max_tokens=100)


def test_an_application_brings_its_own_relations(store: SharedMemoryStore) -> None:
    graph = store.graph.using(relations=[RelationType(name="drives", functional=True)])

    for car in ("Volvo", "Saab"):
        graph.add_relationship("Ann", "drives", car, group_id=GROUP)

    assert [fact.target_name for fact in graph.facts("Ann", group_id=GROUP)] == ["Saab"]


def test_many_episodes_at_once(store: SharedMemoryStore) -> None:
    episodes = [Episode(content=f"Ann Lee met Bob {n}.", group_id=GROUP, id=f"e{n}") for n in range(40)]

    results = store.graph.add_episodes(episodes)

    assert [result.id for result in results] == [episode.id for episode in episodes]
    assert store.graph.stats(group_id=GROUP).episodes == 40
    assert store.graph.delete_by_group(GROUP) > 0
