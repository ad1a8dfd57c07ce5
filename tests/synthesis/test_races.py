"""Notes of one topic that are made at the same time, by tasks and by processes, become one note that knows it all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.contexts import context_of, scope_of
from support.forked_processes import ForkedProcess
from support.redis_process import RedisProcess
from support.synthesis_harness import (
    APP,
    ScriptedAgents,
    SynthesisHarness,
    make_synthesis_harness,
    note_request,
    numbered_fact,
)
from support.synthesis_processes import EACH, MODULE, NAMESPACE, chosen

from sharedmem import Hub, SharedMemoryStore
from sharedmem.models import Note, NoteLink, Resolution
from sharedmem.synthesis.evolution import ChainLocks
from sharedmem.synthesis.pipeline import TaskAttempt
from sharedmem.synthesis.protocol import CommittedNotes, NoteChange
from sharedmem.synthesis.rule_agents import RuleAgents
from sharedmem.testing import fake_hub

WRITERS = 16
_TESTS = Path(__file__).resolve().parents[1]


SETTLED = TaskAttempt("0000000000000009")


@pytest.fixture
async def store() -> AsyncIterator[SharedMemoryStore]:
    async with fake_hub() as hub:
        yield hub.store("desk")


@pytest.fixture
def panel() -> ScriptedAgents:
    return ScriptedAgents()


async def add(bench: SynthesisHarness, number: int) -> Note:
    return await bench.pipeline.add_memory(note_request(numbered_fact(number)), TaskAttempt(f"{number:016d}"))


# -- tasks of one process ---------------------------------------------------------------------


async def test_two_workers_on_one_task_make_one_note_and_judge_once(
    store: SharedMemoryStore, panel: ScriptedAgents
) -> None:
    bench = make_synthesis_harness(store, panel)
    await add(bench, 1)
    panel.calls.clear()

    one, other = await asyncio.gather(
        *(bench.pipeline.add_memory(note_request(numbered_fact(9)), SETTLED) for _ in range(2))
    )

    assert one == other
    assert (panel.calls["judge"], panel.calls["consolidate"]) == (1, 1)
    assert len(await bench.notes()) == 3
    await bench.check(facts=[numbered_fact(1), numbered_fact(9)])


async def test_sixteen_writers_of_one_topic_leave_one_head_with_all_facts(
    store: SharedMemoryStore, panel: ScriptedAgents
) -> None:
    bench = make_synthesis_harness(store, panel)

    await asyncio.gather(*(add(bench, number) for number in range(16)))

    (head,) = await bench.heads()
    assert all(numbered_fact(number) in head.memory_note for number in range(16))
    assert panel.calls["judge"] <= 16
    await bench.check(facts=[numbered_fact(number) for number in range(16)])


async def test_by_rules_sixteen_writers_lose_nothing_either(store: SharedMemoryStore) -> None:
    bench = make_synthesis_harness(store, RuleAgents())

    await asyncio.gather(*(add(bench, number) for number in range(16)))

    await bench.check(facts=[numbered_fact(number) for number in range(16)])


async def test_who_lost_the_lock_while_judging_changes_nothing_by_it(
    store: SharedMemoryStore, panel: ScriptedAgents
) -> None:
    bench = make_synthesis_harness(store, panel)
    old = await add(bench, 1)
    robbed = asyncio.Event()

    async def rob(_: Note, said: list[Resolution]) -> list[Resolution]:
        if not robbed.is_set():
            robbed.set()
            line = context_of(store).client
            keys = [key async for page in line.scan(b"*:$lock:shared:synthesis-*", near=None) for key in page]
            await line.call("UNLINK", *keys)
            # Another worker takes the lock, changes the chain and is done before the one here goes on.
            async with ChainLocks(scope_of(store), context_of(store)).held(APP, [old.chain_id]) as fences:
                done = await bench.repository.commit(
                    APP, changes=(NoteChange(old, links=(NoteLink(memory_id="seen"),)),), fences=fences
                )
            assert isinstance(done, CommittedNotes)
        return said

    panel.judging = rob

    note = await add(bench, 2)

    assert note.status == "updated"
    assert (await bench.repository.get(APP, (old.id,)))[old.id].links == (NoteLink(memory_id="seen"),)
    assert len(await bench.heads()) == 1
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_a_note_that_was_erased_meanwhile_stays_erased(store: SharedMemoryStore, panel: ScriptedAgents) -> None:
    bench = make_synthesis_harness(store, panel)
    await add(bench, 1)

    async def erase(new: Note, said: list[Resolution]) -> list[Resolution]:
        await bench.repository.erase(APP, (new.id,))
        return said

    panel.judging = erase

    await add(bench, 2)

    assert [note.id for note in await bench.notes()] == ["note-0000000000000001"]
    await bench.check(facts=[numbered_fact(1)])


# -- processes --------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


async def test_sixteen_processes_on_one_topic_leave_one_head_that_knows_all_facts(server: RedisProcess) -> None:
    swarm = await ForkedProcess.start(MODULE, "swarm", server.url, WRITERS)
    told = await swarm.communicate()

    lines = [line.split() for line in told.decode().splitlines()]
    facts = [" ".join(words) for _, *words in lines]
    assert [status for status, *_ in lines] == ["done"] * WRITERS * EACH
    async with Hub.open(settings=chosen(server.url)) as hub:
        bench = make_synthesis_harness(hub.store(NAMESPACE), ScriptedAgents())
        (head,) = await bench.heads()
        assert [fact for fact in facts if fact not in head.memory_note] == []
        await bench.check(facts=facts)
