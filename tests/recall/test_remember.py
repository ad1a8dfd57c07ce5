"""`store.remember`: one call stores a conversation as memories, facts and a note, once, and returns the ids."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess
from support.remember_processes import NAMESPACE

from sharedmem import Hub, InvalidError, NotFoundError, RememberReceipt, Settings, SharedMemoryStore
from sharedmem.testing import fake_hub
from sharedmem.testing.scripted_model import ScriptedModel

TESTS = Path(__file__).resolve().parents[1]
TALK = [
    {"role": "user", "name": "Ada", "content": "Ada lives in Oslo."},
    {"role": "assistant", "content": "I sent the invoice of May to Oslo."},
]


@pytest.fixture(scope="module")
def bare_server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


async def test_a_conversation_becomes_turns_facts_and_a_note(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace, actor="bo")

    receipt = await store.remember(TALK, user_id="ada", thread_id="call-7", wait=60)

    assert (receipt.status, receipt.attempts, receipt.error, receipt.skipped) == ("done", 1, None, {})
    turns = [await store.memory.get(id_) for id_ in receipt.memories]
    assert [(turn.memory, turn.user_id, turn.thread_id, turn.created_by) for turn in turns if turn] == [
        (message["content"], "ada", "call-7", "bo") for message in TALK
    ]
    assert [turn.author for turn in turns if turn] == ["Ada", "agent"]
    facts = await store.graph.facts("Ada", group_id="main:ada")
    assert [fact.id for fact in facts] == list(receipt.facts)
    assert receipt.note is not None
    note = await store.synthesis.get_memory(receipt.note, app_id="main")
    assert note is not None
    assert (note.user_id, note.created_by) == ("ada", "bo")
    assert receipt.cost.model_calls == 0  # the rules of the offline model cost nothing


async def test_a_turn_of_a_conversation_is_found_by_its_own_embedding(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace)
    receipt = await store.remember(TALK, parts=["memory"], wait=60)
    turns = [await store.memory.get(id_, embedding=True) for id_ in receipt.memories]

    for turn in turns:
        assert turn is not None
        assert turn.embedding is not None
        (found,) = await store.memory.find_similar(turn.embedding, threshold=0.99)
        assert found.item.id == turn.id
        (asked,) = await store.memory.search_semantic(turn.memory, limit=1)
        assert asked.item.id == turn.id


async def test_what_was_remembered_is_recalled(store: SharedMemoryStore) -> None:
    receipt = await store.remember("The deploy of the billing service needs two approvals.", wait=60)

    found = await store.recall("what does the deploy of the billing service need?")

    assert found.items
    told = {name for item in found.items for name in (f"{item.source} {item.id}", *item.repeats)}
    assert {f"memory {receipt.memories[0]}", f"episode {receipt.episodes[0]}"} <= told


async def test_a_text_that_is_known_is_merged_and_the_receipt_says_so(store: SharedMemoryStore) -> None:
    known = await store.memory.add("The lease ends in May.")

    receipt = await store.remember("The lease ends in May.", parts=["memory"], wait=60)

    assert receipt.memories == receipt.merged == (known.id,)
    assert receipt.skipped == {"graph": "it was switched off", "notes": "it was switched off"}
    assert (receipt.episodes, receipt.note) == ((), None)


async def test_a_repeated_key_is_one_task(store: SharedMemoryStore) -> None:
    first = await store.remember(TALK, task_id="call-7", wait=60)
    again = await store.remember(TALK, task_id="call-7", wait=60)
    other = await store.remember(TALK, task_id="call-7", user_id="ada", wait=60)

    assert again == first
    assert other.task_id != first.task_id


async def test_a_receipt_is_there_before_the_task_is_done(hub: Hub, store: SharedMemoryStore) -> None:
    accepted = await store.remember(TALK, wait=0)
    done = await hub.store(store.namespace, actor="eve").remember_receipt(accepted.task_id, wait=60)

    assert accepted.status in {"pending", "running", "done"}
    assert (done.task_id, done.status) == (accepted.task_id, "done")


async def test_a_part_that_can_never_be_written_is_skipped_with_the_reason(store: SharedMemoryStore) -> None:
    named = [{"role": "user", "name": " Ada", "content": "Ada lives in Oslo."}]
    receipt = await store.remember(named, parts=["memory", "graph"], wait=60)

    assert (receipt.status, receipt.memories, len(receipt.episodes)) == ("done", (), 1)
    assert "without blanks at its ends" in receipt.skipped["memory"]


async def test_a_task_whose_process_was_killed_is_finished_by_another_one_and_nothing_is_there_twice(
    bare_server: RedisProcess,
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "support.remember_processes",
        bare_server.url,
        cwd=TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await child.communicate()
    task_id, *memories = told.decode().split()
    assert child.returncode == -signal.SIGKILL

    async with Hub.open(settings=persistent_settings(bare_server.url, embedder="hashing")) as hub:
        store = hub.store(NAMESPACE)
        receipt = await store.remember_receipt(task_id, wait=60)
        turns = await store.memory.list()
        episodes = await store.graph.episodes(group_id="main")
        notes = await store.synthesis.query_memory(app_id="main", query="Oslo", similarity_threshold=0.0)

    assert receipt.status == "done"
    assert receipt.attempts >= 2
    assert sorted(receipt.memories) == sorted(memories) == sorted(turn.id for turn in turns)
    assert [turn.occurrences for turn in turns] == [1, 1]
    assert [episode.id for episode in episodes] == list(receipt.episodes)
    assert [note.metadata.id for note in notes] == [receipt.note]
    assert {turn.created_by for turn in turns} == {notes[0].metadata.created_by} == {"bo"}


async def test_the_calls_of_the_model_and_its_tokens_are_told() -> None:
    reader = ScriptedModel({"ExtractionAnswer": {"entities": [{"name": "Ada", "type": "person"}]}})
    async with fake_hub(settings=Settings(embedder="hashing"), model=reader) as hub:
        receipt = await hub.store("n").remember(TALK, parts=["graph"], wait=60)

    assert receipt.cost.model_calls == len(reader.requests) >= 1
    assert receipt.cost.model_tokens > 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"conversation": []}, "messages"),
        ({"conversation": " "}, "messages"),
        ({"conversation": [{"role": "user"}]}, "messages"),
        ({"conversation": [{"role": "user", "content": "hi"}] * 31}, "messages"),
        ({"parts": []}, "parts"),
        ({"parts": ["cache"]}, "parts"),
        ({"user_id": "{}"}, "user_id"),
        ({"thread_id": ""}, "thread_id"),
        ({"group_id": ""}, "group_id"),
        ({"app_id": "a\n"}, "app_id"),
    ],
)
async def test_a_wrong_argument_is_named_and_nothing_is_written(
    fake: Hub, arguments: dict[str, Any], field: str
) -> None:
    store = fake.store("n")

    with pytest.raises(InvalidError, match=field):
        await store.remember(**{"conversation": TALK, **arguments})
    assert (await store.queue("remember").stats()).counters.put == 0


async def test_an_unknown_task_is_not_found(fake: Hub) -> None:
    with pytest.raises(NotFoundError):
        await fake.store("n").remember_receipt("1000000000000000")


def test_a_receipt_is_a_record_with_defaults() -> None:
    assert RememberReceipt(task_id="t", status="pending").cost.model_calls == 0
