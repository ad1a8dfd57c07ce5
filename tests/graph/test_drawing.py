"""`graph.drawing`: the part of a graph that pictures are made from, with every version of its facts."""

from __future__ import annotations

import pytest
from support.graph_drawings import day

from sharedmem import SharedMemoryStore
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import GraphDrawing
from sharedmem.visualization import as_mermaid

GROUP = "acme:moves"


async def tell(store: SharedMemoryStore, *facts: tuple[str, str, str, str]) -> None:
    """Relationships, with the day since when they hold."""
    for source, type_, target, since in facts:
        await store.graph.add_relationship(source, type_, target, group_id=GROUP, valid_from=day(since))


def names(drawing: GraphDrawing) -> set[str]:
    return {entity.name for entity in drawing.entities}


def sentences(drawing: GraphDrawing) -> set[tuple[str, str, str]]:
    by_id = {entity.id: entity.name for entity in drawing.entities}
    return {(by_id[fact.source_id], fact.type, by_id.get(fact.target_id or "", fact.value)) for fact in drawing.facts}


CHAIN = (
    ("Ada", "knows", "Ben", "2020-01-01"),
    ("Ben", "knows", "Cleo", "2020-01-01"),
    ("Cleo", "knows", "Dora", "2020-01-01"),
)


async def test_a_whole_group_is_drawn_with_past_and_present(store: SharedMemoryStore) -> None:
    await tell(store, ("Ada", "lives_in", "Oslo", "2020-01-01"), ("Ada", "lives_in", "Rome", "2022-05-01"))
    await store.graph.add_entity("Ada", group_id=GROUP, type="person", attributes={"age": 36})
    await store.graph.add_entity("Nobody", group_id=GROUP)

    drawing = await store.graph.drawing(group_id=GROUP)

    assert names(drawing) == {"Ada", "Oslo", "Rome", "Nobody"}
    assert sentences(drawing) == {("Ada", "lives_in", "Oslo"), ("Ada", "lives_in", "Rome"), ("Ada", "@age", "36")}
    (oslo,) = [fact for fact in drawing.facts if fact.versions[-1].valid_to is not None]
    assert [(one.valid_from, one.valid_to) for one in oslo.versions] == [
        (day("2020-01-01"), None),
        (day("2020-01-01"), day("2022-05-01")),
    ]
    assert oslo.versions[0].superseded_at == oslo.versions[1].recorded_at
    assert {episode.id for episode in drawing.episodes} >= {id_ for fact in drawing.facts for id_ in fact.episode_ids}
    assert not drawing.truncated
    assert "-.->" in as_mermaid(drawing)
    assert "-.->" not in as_mermaid(drawing, day("2021-01-01"))


@pytest.mark.parametrize(
    ("depth", "seen"),
    [
        (0, {"Ada"}),
        (1, {"Ada", "Ben"}),
        (2, {"Ada", "Ben", "Cleo"}),
        (3, {"Ada", "Ben", "Cleo", "Dora"}),
        (6, {"Ada", "Ben", "Cleo", "Dora"}),
    ],
)
async def test_around_an_entity_it_goes_so_many_steps(store: SharedMemoryStore, depth: int, seen: set[str]) -> None:
    await tell(store, *CHAIN, ("Eve", "knows", "Finn", "2020-01-01"))

    drawing = await store.graph.drawing(group_id=GROUP, entity="ADA", depth=depth)

    assert names(drawing) == seen
    assert len(drawing.facts) == len(seen) - 1


async def test_a_large_graph_is_cut_and_says_so(store: SharedMemoryStore) -> None:
    await tell(store, *(("Hub", "knows", f"Spoke {number}", "2020-01-01") for number in range(8)))

    around = await store.graph.drawing(group_id=GROUP, entity="Hub", limit=5)
    whole = await store.graph.drawing(group_id=GROUP, limit=5)

    for drawing in (around, whole):
        assert (len(drawing.facts), drawing.truncated) == (5, True)
        ids = {entity.id for entity in drawing.entities}
        assert all({fact.source_id, fact.target_id} <= ids for fact in drawing.facts)
    assert not (await store.graph.drawing(group_id=GROUP, limit=9)).truncated


async def test_a_group_without_anything_gives_an_empty_drawing(store: SharedMemoryStore) -> None:
    drawing = await store.graph.drawing(group_id="nobody:ever")

    assert (drawing.entities, drawing.facts, drawing.episodes, drawing.truncated) == ((), (), (), False)


async def test_a_merged_entity_is_drawn_as_the_one_that_it_is(store: SharedMemoryStore) -> None:
    await tell(store, ("Countess", "knows", "Ben", "2020-01-01"), ("Ada", "knows", "Cleo", "2020-01-01"))
    await store.graph.merge("Countess", "Ada", group_id=GROUP)

    drawing = await store.graph.drawing(group_id=GROUP)

    assert names(drawing) == {"Ada", "Ben", "Cleo"}
    assert sentences(drawing) == {("Ada", "knows", "Ben"), ("Ada", "knows", "Cleo")}


async def test_cycles_and_loops_come_to_an_end(store: SharedMemoryStore) -> None:
    await tell(store, *CHAIN, ("Dora", "knows", "Ada", "2020-01-01"), ("Ada", "knows", "Ada", "2020-01-01"))

    assert len((await store.graph.drawing(group_id=GROUP, entity="Ada", depth=6)).facts) == 5


async def test_what_cannot_be_drawn_is_told(store: SharedMemoryStore) -> None:
    with pytest.raises(NotFoundError, match="Ada"):
        await store.graph.drawing(group_id=GROUP, entity="Ada")
    with pytest.raises(InvalidError, match="limit 0 is refused"):
        await store.graph.drawing(group_id=GROUP, limit=0)
    with pytest.raises(InvalidError, match="limit 2001 is refused"):
        await store.graph.drawing(group_id=GROUP, limit=2001)
    with pytest.raises(InvalidError, match="depth 7 is refused"):
        await store.graph.drawing(group_id=GROUP, entity="Ada", depth=7)
    with pytest.raises(InvalidError, match="group_id '' is refused"):
        await store.graph.drawing(group_id="")
