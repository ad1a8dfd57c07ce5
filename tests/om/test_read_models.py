"""Read models: records of a store as objects, by its own indexes; on a server with a query engine and without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from aredis_om import KNNExpression

from sharedmem import Hub, InvalidError, NotFoundError, SharedMemoryStore, UnsupportedError, om
from sharedmem.clock import new_id
from sharedmem.models import SynthesisMessage

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
TOPICS = ("zebra", "tide", "harvest")


@pytest.fixture(params=["server", "fake"])
async def desk(request: pytest.FixtureRequest, hub: Hub, fake: Hub) -> AsyncIterator[SharedMemoryStore]:
    """A store of an actor, on each kind of index."""
    chosen = hub if request.param == "server" else fake
    name = f"om-{new_id(8)}"
    yield chosen.store(name, actor="ada")
    await chosen.store(name).clear()


@pytest.fixture
async def memories(desk: SharedMemoryStore) -> Any:
    """The model of 12 memories of two users."""
    for number in range(12):
        await desk.memory.add(
            f"The {TOPICS[number % 3]} of note {number}",
            user_id="ada" if number % 2 else "bob",
            category=f"c{number % 4}",
            tags=[f"t{number % 3}", "all"],
            timestamp=BEGAN + timedelta(hours=number),
            dedup=False,
        )
    return om.models(desk).Memory


def numbers(found: list[Any]) -> list[int]:
    return [int(one.memory.rpartition(" ")[2]) for one in found]


# -- memories ---------------------------------------------------------------------------------------------


async def test_memories_are_found_sorted_and_paged(memories: Any) -> None:
    of_ada = memories.find(memories.user_id == "ada").sort_by("-timestamp")

    assert numbers(await of_ada.page(0, 3)) == [11, 9, 7]
    assert numbers(await of_ada.page(3, 3)) == [5, 3, 1]
    assert await of_ada.count() == 6
    assert numbers([await of_ada.first()]) == [11]
    assert numbers(await memories.find().sort_by("timestamp").all()) == list(range(12))
    assert sorted(numbers([one async for one in memories.find()])) == list(range(12))


async def test_conditions_are_joined(memories: Any) -> None:
    found = memories.find(
        (memories.category << ["c0", "c1"]) & ~(memories.tags == "t0")
        | (memories.timestamp < BEGAN + timedelta(hours=2))
    )

    assert sorted(numbers(await found.all())) == [0, 1, 4, 5, 8]
    assert await found.count() == 5
    assert await memories.find(memories.user_id == "ada", memories.category == "c1").count() == 3
    assert await memories.find(memories.category >> ["c0", "c1", "c2"]).count() == 3
    assert await memories.find(memories.user_id != "ada").count() == 6


async def test_times_are_compared_to_the_millisecond(memories: Any) -> None:
    at = BEGAN + timedelta(hours=5)

    assert numbers(await memories.find(memories.timestamp == at).all()) == [5]
    assert await memories.find(memories.timestamp < at).count() == 5
    assert await memories.find(memories.timestamp <= at).count() == 6
    assert await memories.find((memories.timestamp > at) & (memories.timestamp >= at)).count() == 6


async def test_words_are_found_in_any_form(memories: Any) -> None:
    assert sorted(numbers(await memories.find(memories.memory % "ZEBRAS").all())) == [0, 3, 6, 9]
    assert await memories.find((memories.memory % "tide note") & (memories.user_id == "ada")).count() == 2
    assert await memories.find(~(memories.memory % "zebra")).count() == 8
    assert await memories.find(memories.memory % "the of").count() == 0


async def test_what_the_index_cannot_test_is_tested_here(memories: Any) -> None:
    assert sorted(numbers(await memories.find(memories.memory.startswith("The tide")).all())) == [1, 4, 7, 10]
    assert sorted(numbers(await memories.find(memories.memory.endswith("note 3")).all())) == [3]
    assert await memories.find(memories.category.contains("2") | (memories.user_id == "bob")).count() == 6
    assert numbers(await memories.find(memories.turn_index >= 8).sort_by("-turn_index").page(1, 2)) == [10, 9]
    assert await memories.find(memories.run_id == None).count() == 12  # noqa: E711  # as redis-om spells it
    with pytest.raises(InvalidError, match="combine `%`"):
        await memories.find((memories.memory % "zebra") | memories.content.contains("x")).all()


async def test_some_fields_are_returned_as_dictionaries_or_partial_objects(memories: Any) -> None:
    one = memories.find(memories.memory % "harvest").sort_by("timestamp")

    assert (await one.values("memory", "user_id"))[0] == {"memory": "The harvest of note 2", "user_id": "bob"}
    assert (await one.values().first())["category"] == "c2"
    partial = await one.only("memory").first()
    assert partial.memory == "The harvest of note 2"
    with pytest.raises(AttributeError, match="user_id"):
        _ = partial.user_id


async def test_the_nearest_are_found_among_those_that_meet_the_conditions(memories: Any) -> None:
    found = await memories.find(memories.user_id == "ada").nearest("The tide of note 7", k=2).all()

    assert numbers(found)[0] == 7
    assert {one.user_id for one in found} == {"ada"}
    assert found[0].distance == pytest.approx(0, abs=0.01)
    with pytest.raises(InvalidError, match="chosen by the index"):
        await memories.find(memories.memory.contains("x")).nearest("tide").all()


async def test_a_knn_expression_of_redis_om_works(desk: SharedMemoryStore, memories: Any) -> None:
    vector = (await desk.memory.get((await memories.find().first()).id, embedding=True)).embedding  # type: ignore[union-attr]
    packed = np.asarray(vector, dtype="<f4").tobytes()

    def knn(reference: bytes) -> KNNExpression:
        return KNNExpression(
            k=3, vector_field=memories.embedding, score_field=memories.distance, reference_vector=reference
        )

    assert len(await memories.find(knn=knn(packed)).all()) == 3
    with pytest.raises(InvalidError, match="float32"):
        await memories.find(knn=knn(packed[:-1])).all()


async def test_an_object_is_returned_by_its_key(memories: Any) -> None:
    first = await memories.find().first()

    assert (await memories.get(first.pk)).memory == first.memory
    with pytest.raises(NotFoundError, match="Memory 'nobody' does not exist"):
        await memories.get("nobody")
    with pytest.raises(NotFoundError, match="meets the query"):
        await memories.find(memories.user_id == "nobody").first()


@pytest.mark.parametrize("call", ["save", "update", "delete", "expire", "add", "delete_many"])
async def test_a_call_that_changes_records_names_the_call_of_the_store(memories: Any, call: str) -> None:
    one = await memories.find().first()

    with pytest.raises(UnsupportedError, match=r"use store\.memory\.\w+\("):
        getattr(one, call)(category="x")
    with pytest.raises(UnsupportedError, match=r"use store\.memory\.delete\("):
        await memories.find().delete()
    assert await memories.find().count() == 12


async def test_records_of_another_namespace_are_not_found(desk: SharedMemoryStore, memories: Any, hub: Hub) -> None:
    other = hub.store(f"om-{new_id(8)}", actor="ada")
    await other.memory.add("The zebra of note 99", user_id="ada", tags=["all"])

    theirs = om.models(other).Memory
    assert numbers(await theirs.find(theirs.user_id == "ada").all()) == [99]
    assert await memories.find((memories.tags == "all") | ~(memories.user_id == "x")).count() == 12
    await hub.store(other.namespace).clear()


async def test_a_model_knows_only_its_own_fields(memories: Any) -> None:
    with pytest.raises(AttributeError):
        _ = memories.nothing
    with pytest.raises(InvalidError, match="the fields of Memory are"):
        memories.find().sort_by("nothing")
    with pytest.raises(InvalidError, match="join conditions"):
        memories.find("@user:{ada}")


# -- the other records ------------------------------------------------------------------------------------


async def test_cached_answers_are_found(desk: SharedMemoryStore) -> None:
    await desk.cache.put("How deep is the harbour?", "Nine metres", tags=["port"], cost=0.5)
    await desk.cache.put("Who wrote Ulysses?", {"name": "Joyce"}, tags=["books", "port"])
    answers = om.models(desk).CachedAnswer

    assert await answers.find(answers.tags == "port").count() == 2
    (found,) = await answers.find(answers.tags << ["books"]).all()
    assert (found.prompt, found.response) == ("Who wrote Ulysses?", {"name": "Joyce"})
    assert [one.cost for one in await answers.find(answers.cost > 0).all()] == [0.5]
    assert (await answers.find().nearest("How deep is the harbor?", k=1).first()).response == "Nine metres"
    with pytest.raises(UnsupportedError, match=r"store\.cache\.put"):
        found.save()


async def test_notes_are_found(desk: SharedMemoryStore) -> None:
    said = [SynthesisMessage(role="user", content="I moved to Lisbon last week and love the trams.")]
    task = await desk.synthesis.add_memory(app_id="shop", user_id="mara", messages=said)
    await desk.synthesis.wait(task.task_id)
    notes = om.models(desk).Note

    (found,) = await notes.find((notes.app_id == "shop") & (notes.user_id == "mara")).all()
    assert "Lisbon" in found.memory_note
    assert await notes.find(notes.memory_note % "lisbon").count() == 1
    assert await notes.find(notes.app_id == "another").count() == 0
    assert (await notes.get(found.id)).app_id == "shop"
    assert (await notes.find(notes.status == "active").nearest("Lisbon trams", k=1).first()).id == found.id


async def test_entities_and_facts_are_found_in_all_groups_or_one(desk: SharedMemoryStore) -> None:
    await desk.graph.add_episode("Mara works for Initech.", group_id="acme:1")
    await desk.graph.add_episode("Otto lives in Oslo.", group_id="a/b")
    found = om.models(desk)

    assert {one.name for one in await found.Entity.find().all()} == {"Mara", "Initech", "Otto", "Oslo"}
    (mara,) = await found.Entity.find(found.Entity.name == "Mara").all()
    assert mara.group_id == "acme:1"
    assert (await found.Entity.get(mara.id)).name == "Mara"
    (fact,) = await found.Fact.find(found.Fact.group_id == "a/b").all()
    assert (fact.source_name, fact.target_name) == ("Otto", "Oslo")
    assert await found.Fact.find(found.Fact.fact % "initech").count() == 1
    assert await found.Fact.find(~(found.Fact.group_id == "a/b")).count() == 1
    assert await found.Fact.find(found.Fact.group_id == "x").count() == 0
    assert (await found.Fact.find().nearest("Otto lives in Oslo", k=1).first()).id == fact.id


async def test_plans_and_events_are_listed_by_session_and_tested_here(desk: SharedMemoryStore) -> None:
    for number in range(3):
        await desk.decisions.save_plan("s1", "BTC", "buy", 0.1 * number, f"reason {number}", "rules")
        await desk.episodes.append_event(f"e{number}", {"number": number})
    await desk.decisions.save_plan("s2", "ETH", "sell", 0.9, "other", "model")
    found = om.models(desk)

    assert [
        one.confidence for one in await found.Plan.find(found.Plan.symbol == "BTC").sort_by("confidence").all()
    ] == [
        0.0,
        0.1,
        0.2,
    ]
    assert await found.Plan.find(found.Plan.session_id == "s2").count() == 1
    assert await found.Plan.find(~(found.Plan.session_id << ["s2"])).count() == 3
    assert await found.Plan.find(found.Plan.reasoning.contains("reason")).count() == 3
    assert len(await found.Plan.find().sort_by("-timestamp_ms").page(1, 2)) == 2
    assert [one.event for one in await found.Episode.find(found.Episode.session == "e1").all()] == [{"number": 1}]
    assert await found.Episode.find(found.Episode.actor == "ada").count() == 3
    plan = await found.Plan.find().first()
    assert (await found.Plan.get(plan.plan_id)).plan_hash == plan.plan_hash
    with pytest.raises(UnsupportedError, match=r"store\.decisions\.save_plan"):
        plan.save()
    with pytest.raises(UnsupportedError, match="the nearest Plan"):
        await found.Plan.find().nearest("x").all()
