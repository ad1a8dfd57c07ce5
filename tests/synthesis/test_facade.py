"""docs/synthesis.md: `store.synthesis` as its users see it, on fakeredis and on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import ConversationSummary, NoteHit
from sharedmem.sync import Hub as SyncHub
from sharedmem.synthesis.synthesis import Synthesis
from sharedmem.testing import fake_hub

SHOP = "shop"
MOVED = "My address is 7 Oak Road in Denver now, for order A-1234."


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


@pytest.fixture(params=["fakeredis", "server"])
async def hub(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Hub]:
    chosen = settings.replace(embedder="hashing")
    if request.param == "fakeredis":
        async with fake_hub(settings=chosen) as hub:
            yield hub
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=chosen) as hub:
        yield hub


@pytest.fixture
def synthesis(hub: Hub, namespace: str) -> Synthesis:
    return hub.store(namespace).synthesis


async def remembered(synthesis: Synthesis, *texts: str, user: str = "ada", app: str = SHOP) -> str:
    """The id of the note that these messages became."""
    task = await synthesis.add_memory(app_id=app, user_id=user, messages=said(*texts))
    done = await synthesis.wait(task.task_id, timeout=60)
    assert done.status == "done", done.error
    assert done.result is not None
    return str(done.result["memory_id"])


def ids(hits: list[NoteHit]) -> list[str]:
    return [hit.metadata.id for hit in hits]


async def test_a_conversation_becomes_a_note_that_is_found_and_says_what_it_is_made_of(synthesis: Synthesis) -> None:
    note_id = await remembered(synthesis, MOVED, "Please call me Ada.")

    (hit,) = await synthesis.query_memory(app_id=SHOP, query="the address of order A-1234", similarity_threshold=0.1)

    assert (hit.rank, hit.metadata.id, hit.metadata.status) == (1, note_id, "active")
    assert "7 Oak Road" in hit.memory_note
    assert [message.content for message in hit.metadata.messages] == [MOVED, "Please call me Ada."]
    assert hit.similarity_score <= hit.composite_score <= 1.2 * hit.similarity_score


async def test_apps_and_users_do_not_see_each_others_notes(synthesis: Synthesis) -> None:
    mine = await remembered(synthesis, MOVED)
    bobs = await remembered(synthesis, MOVED, user="bob")
    others = await remembered(synthesis, MOVED, app="sales")

    assert set(ids(await synthesis.query_memory(app_id=SHOP, query=MOVED))) == {mine, bobs}
    assert ids(await synthesis.query_memory(app_id=SHOP, query=MOVED, user_id="bob")) == [bobs]
    assert ids(await synthesis.query_memory(app_id="sales", query=MOVED)) == [others]
    assert await synthesis.get_memory(others, app_id=SHOP) is None
    with pytest.raises(NotFoundError):
        await synthesis.traverse_memory_evolution_chain(others, app_id=SHOP)


async def test_the_same_key_of_a_caller_is_the_same_task(synthesis: Synthesis) -> None:
    asked = [synthesis.add_memory(app_id=SHOP, user_id="ada", messages=said(MOVED), task_id="k-1") for _ in range(5)]

    tasks = await asyncio.gather(*asked)

    assert len({task.task_id for task in tasks}) == 1
    await synthesis.wait(tasks[0].task_id, timeout=60)
    assert len(await synthesis.query_memory(app_id=SHOP, query=MOVED)) == 1


async def test_tasks_that_a_hub_leaves_behind_are_done_by_the_next_one(
    settings: Settings, redis_url: str, namespace: str
) -> None:
    chosen, namespace = settings.replace(embedder="hashing"), f"test-left-{new_id()}"
    async with Hub.open(redis_url, settings=chosen.replace(synthesis_concurrency=0)) as idle:
        leaving = idle.store(namespace).synthesis
        tasks = [
            await leaving.add_memory(app_id=SHOP, user_id=f"user-{number}", messages=said(MOVED)) for number in range(9)
        ]
        assert {(await leaving.get_task_status(task.task_id)).status for task in tasks} == {"pending"}

    async with Hub.open(redis_url, settings=chosen) as hub:
        synthesis = hub.store(namespace).synthesis
        done = [await synthesis.wait(task.task_id, timeout=60) for task in tasks]
        await hub.store(namespace).clear()

    assert {task.status for task in done} == {"done"}


async def test_a_summary_is_told_and_not_stored(synthesis: Synthesis) -> None:
    summary = await synthesis.summarize_conversation(app_id=SHOP, user_id="ada", messages=said(MOVED), mode="full")

    assert isinstance(summary, ConversationSummary)
    assert "7 Oak Road" in summary.summary
    assert summary.offline
    assert await synthesis.query_memory(app_id=SHOP, query=MOVED) == []


async def test_an_agents_text_is_kept_as_a_note_of_its_own(synthesis: Synthesis) -> None:
    task = await synthesis.add_agent_memory(app_id=SHOP, user_id="ada", messages="Refund 17 was promised by May 3.")
    await synthesis.wait(task.task_id, timeout=60)

    (hit,) = await synthesis.query_memory(app_id=SHOP, query="Refund 17 promised", similarity_threshold=0.1)
    assert (hit.metadata.kind, "Refund 17" in hit.memory_note) == ("agent", True)


async def test_messages_of_a_batch_become_notes_when_there_are_enough(synthesis: Synthesis) -> None:
    batcher = synthesis.batcher(app_id=SHOP, user_id="ada", size=3)
    put = [task for number in range(7) for task in await batcher.add(said(f"Message number {number}.")[0])]
    put += await batcher.flush()

    done = [await synthesis.wait(task, timeout=60) for task in put]

    notes = [await synthesis.get_memory(str((one.result or {})["memory_id"]), app_id=SHOP) for one in done]
    kept = [message.content for note in notes if note for message in note.messages]
    assert sorted(kept) == [f"Message number {number}." for number in range(7)]


async def test_what_is_deleted_by_hand_can_be_taken_back(synthesis: Synthesis) -> None:
    note_id = await remembered(synthesis, MOVED)

    assert await synthesis.delete_memory(note_id, app_id=SHOP)
    assert await synthesis.query_memory(app_id=SHOP, query=MOVED) == []
    assert ids(await synthesis.query_memory(app_id=SHOP, query=MOVED, recall="all")) == [note_id]

    await synthesis.update_memory_status(note_id, "active", app_id=SHOP)
    assert ids(await synthesis.query_memory(app_id=SHOP, query=MOVED)) == [note_id]
    assert not await synthesis.delete_memory("note-0", app_id=SHOP)
    assert (await synthesis.fsck(app_id=SHOP)).is_clean


async def test_a_chain_can_be_drawn(synthesis: Synthesis) -> None:
    note_id = await remembered(synthesis, MOVED)
    chain = await synthesis.traverse_memory_evolution_chain(note_id, app_id=SHOP)

    assert synthesis.generate_evolution_graph(chain).text.startswith("flowchart")
    assert synthesis.generate_evolution_graph(chain, "dot").text.startswith("digraph")
    assert (await synthesis.draw_evolution(note_id, app_id=SHOP, format="html")).text.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"messages": []}, "messages"),
        ({"messages": said(*["hello"] * 31)}, "30 at most"),
        ({"messages": said("  ")}, "give a text"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, r"messages\[0\]"),
        ({"app_id": "a{b}"}, "app_id"),
        ({"user_id": ""}, "user_id"),
        ({"callback_url": "http://127.0.0.1/hook"}, "callback_url"),
        ({"callback_url": "ftp://example.org"}, "callback_url"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_written(
    synthesis: Synthesis, wrong: dict[str, object], sentence: str
) -> None:
    sound: dict[str, object] = {"app_id": SHOP, "user_id": "ada", "messages": said(MOVED)}

    with pytest.raises(InvalidError, match=sentence):
        await synthesis.add_memory(**(sound | wrong))  # type: ignore[arg-type]  # that is the point

    assert await synthesis.tasks() == []


async def test_another_namespace_has_none_of_it(hub: Hub, namespace: str, synthesis: Synthesis) -> None:
    note_id = await remembered(synthesis, MOVED)

    stranger = hub.store(f"{namespace}x", actor="eve", subscribe=(namespace,)).synthesis

    assert await stranger.get_memory(note_id, app_id=SHOP) is None
    assert await stranger.query_memory(app_id=SHOP, query=MOVED, recall="all") == []


def test_without_await_it_is_the_same(settings: Settings, redis_url: str) -> None:
    with SyncHub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub:
        store = hub.store(f"test-sync-{new_id()}")
        synthesis = store.synthesis
        task = synthesis.add_memory(app_id=SHOP, user_id="ada", messages=said(MOVED))

        assert synthesis.wait(task.task_id, timeout=60).status == "done"
        assert len(synthesis.query_memory(app_id=SHOP, query=MOVED)) == 1
        store.clear()
