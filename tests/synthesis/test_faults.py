"""Synthesis under faults: wherever it is cut off it ends once, and whatever a model does the new note is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from fakeredis import FakeServer
from support.contexts import context_of, knowledge_of, scope_of
from support.memory_fixtures import FaultyEmbedder
from support.synthesis_harness import (
    APP,
    CrashingChains,
    CrashingProxy,
    CrashPoint,
    ScriptedAgents,
    SimulatedCrashError,
    SynthesisHarness,
    agent_note_request,
    make_synthesis_harness,
    note_request,
    numbered_fact,
)

from sharedmem import InvalidError, LimitedError, Settings, SharedMemoryStore, UnavailableError
from sharedmem.errors import ConfigError
from sharedmem.models import ConsolidationReport, Note, Resolution, SynthesisTask, Verdict
from sharedmem.synthesis.evolution import ChainLocks
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.pipeline import TaskAttempt
from sharedmem.testing import fake_hub

SETTLED = TaskAttempt("0000000000000009")


@pytest.fixture
async def store() -> AsyncIterator[SharedMemoryStore]:
    async with fake_hub() as hub:
        yield hub.store("desk")


@pytest.fixture
def panel() -> ScriptedAgents:
    return ScriptedAgents()


async def add(bench: SynthesisHarness, number: int, *, app_id: str = APP) -> Note:
    return await bench.pipeline.add_memory(
        note_request(numbered_fact(number), app_id=app_id), TaskAttempt(f"{number:016d}")
    )


# -- dying anywhere ---------------------------------------------------------------------------


class Doomed:
    """A pipeline that dies at one of its calls, and what it is asked: to update one note, and delete and spare others.

    Args:
        store: where.
        app_id: an app of its own for each death.
    """

    def __init__(self, store: SharedMemoryStore, app_id: str) -> None:
        self._store = store
        self._app_id = app_id
        self.panel = ScriptedAgents()
        self.panel.report = ConsolidationReport(deduplication_count=1, notes="Region 9 was added.")
        self.bench = make_synthesis_harness(store, self.panel)
        self.request = note_request(numbered_fact(9), app_id=app_id)

    async def prepare(self) -> None:
        self.panel.verdict = lambda _: "SKIP"
        olds = [(await add(self.bench, number, app_id=self._app_id)).id for number in (1, 2, 3)]
        verdicts: dict[str, Verdict] = dict(zip(olds, ("UPDATE", "DELETE", "SKIP"), strict=True))
        self.panel.verdict = lambda note: verdicts.get(note.id, "UPDATE")
        self.panel.calls.clear()

    async def run(self, fuse: CrashPoint) -> Note:
        kept = RedisNoteRepository(knowledge_of(self._store), scope_of(self._store))
        chains = ChainLocks(scope_of(self._store), context_of(self._store))
        mortal = make_synthesis_harness(
            self._store,
            CrashingProxy(self.panel, fuse),
            repository=CrashingProxy(kept, fuse),
            chains=CrashingChains(chains, fuse),
        )
        return await mortal.pipeline.add_memory(self.request, SETTLED)


async def crash_points(store: SharedMemoryStore) -> int:
    doomed = Doomed(store, "alive")
    await doomed.prepare()
    fuse = CrashPoint()
    await doomed.run(fuse)
    return fuse.burnt


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_wherever_it_dies_the_task_ends_once_and_no_call_is_paid_twice(
    store: SharedMemoryStore, *, after: bool
) -> None:
    points = await crash_points(store)
    assert points >= 14

    for point in range(1, points + 1):
        app_id = f"dies-at-{point}"
        doomed = Doomed(store, app_id)
        await doomed.prepare()
        with pytest.raises(SimulatedCrashError):
            await doomed.run(CrashPoint(point, after=after))
        was_stored = bool(await doomed.bench.repository.get(app_id, ("note-0000000000000009",)))

        note = await doomed.run(CrashPoint())

        paid = dict(doomed.panel.calls)
        heads = {head.id: head for head in await doomed.bench.heads(app_id)}
        assert sorted(heads) == ["note-0000000000000003", f"{note.id}-s"], point
        report = heads[f"{note.id}-s"].consolidation
        assert report == doomed.panel.report.model_copy(update={"memories_merged": 2}), point
        assert note.next_id == f"{note.id}-s"
        assert not was_stored or (paid["episodic"], paid["summarizer"]) == (1, 1), point
        assert sum(paid.values()) <= (5 if was_stored else 6), f"at {point}: {paid}"
        await doomed.bench.check(app_id, facts=[numbered_fact(number) for number in (1, 2, 3, 9)])


async def test_a_short_note_that_is_cut_off_is_made_once(store: SharedMemoryStore) -> None:
    for point in range(1, 5):
        for after in (False, True):
            app_id, panel, fuse = f"short-{point}-{after}", ScriptedAgents(), CrashPoint(point, after=after)
            mortal = make_synthesis_harness(
                store,
                CrashingProxy(panel, fuse),
                repository=CrashingProxy(RedisNoteRepository(knowledge_of(store), scope_of(store)), fuse),
            )
            with pytest.raises(SimulatedCrashError):
                await mortal.pipeline.add_agent_memory(agent_note_request(numbered_fact(1), app_id=app_id), SETTLED)

            await mortal.pipeline.add_agent_memory(agent_note_request(numbered_fact(1), app_id=app_id), SETTLED)

            assert len(await mortal.notes(app_id)) == 1
            await mortal.check(app_id, facts=[numbered_fact(1)])


# -- models that are of no use ----------------------------------------------------------------

USELESS = [InvalidError("answer", "...", "it says nothing"), RuntimeError("out of tokens"), TimeoutError()]


@pytest.mark.parametrize("error", USELESS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("part", ["episodic", "summarizer", "judge", "consolidate"])
async def test_without_a_useful_answer_the_new_note_is_stored_all_the_same(
    store: SharedMemoryStore, panel: ScriptedAgents, part: str, error: Exception
) -> None:
    bench = make_synthesis_harness(store, panel)
    old = await add(bench, 1)
    panel.errors[part] = error

    note = await add(bench, 2)

    assert note.degraded
    # What the heuristic writes may be less near.
    assert part == "summarizer" or note.status == ("updated" if part == "episodic" else "active")
    assert type(error).__name__ in note.degraded[0]
    if part in {"judge", "consolidate"}:
        assert (await bench.repository.get(APP, (old.id,)))[old.id].status == "active"
        assert [(one.operation, one.decided_by) for one in note.resolutions] == [("SKIP", "fallback")]
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


def _nobody(_: list[Resolution]) -> list[Resolution]:
    return []


def _a_stranger(said: list[Resolution]) -> list[Resolution]:
    return [said[0].model_copy(update={"memory_id": "note-of-somebody-else", "operation": "DELETE"})]


def _both(said: list[Resolution]) -> list[Resolution]:
    return [said[0], said[0].model_copy(update={"operation": "DELETE"})]


@pytest.mark.parametrize("answer", [_nobody, _a_stranger, _both])
async def test_a_judge_that_invents_or_contradicts_itself_retires_nothing(
    store: SharedMemoryStore, panel: ScriptedAgents, answer: Callable[[list[Resolution]], list[Resolution]]
) -> None:
    bench = make_synthesis_harness(store, panel)
    await add(bench, 1)

    async def judging(_: Note, said: list[Resolution]) -> list[Resolution]:
        return answer(said)

    panel.judging = judging

    note = await add(bench, 2)

    assert (note.status, len(await bench.heads())) == ("active", 2)
    assert note.resolutions[0].decided_by == "fallback"
    assert note.degraded
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


@pytest.mark.parametrize(
    "rewrite",
    [lambda _: "", lambda _: "They talked.", lambda text: text.replace("region 1", "a region")],
    ids=["empty", "short", "without a fact"],
)
async def test_a_consolidation_that_drops_something_is_rejected(
    store: SharedMemoryStore, panel: ScriptedAgents, rewrite: Callable[[str], str]
) -> None:
    bench = make_synthesis_harness(store, panel)
    old = await add(bench, 1)
    panel.rewrite = rewrite

    note = await add(bench, 2)

    assert (note.status, note.next_id) == ("active", None)
    assert (await bench.repository.get(APP, (old.id,)))[old.id].status == "active"
    assert "rejected" in note.degraded[0]
    assert note.resolutions[0].operation == "SKIP"
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_a_note_that_would_grow_without_end_stays_apart(store: SharedMemoryStore, panel: ScriptedAgents) -> None:
    bench = make_synthesis_harness(store, panel)
    await add(bench, 1)
    panel.rewrite = lambda text: text + " and so on" * 10_000

    note = await add(bench, 2)

    assert (note.status, len(await bench.heads())) == ("active", 2)
    assert "longer than" in note.degraded[0]
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_two_notes_with_one_text_are_judged_once_and_both_settled(
    store: SharedMemoryStore, panel: ScriptedAgents
) -> None:
    bench = make_synthesis_harness(store, panel)
    panel.verdict = lambda _: "SKIP"
    for number in (1, 2):
        await bench.pipeline.add_memory(note_request(numbered_fact(1)), TaskAttempt(f"{number:016d}"))
    panel.verdict = lambda _: "UPDATE"
    panel.calls.clear()

    note = await add(bench, 3)

    assert {one.memory_id for one in note.resolutions} == {"note-0000000000000001", "note-0000000000000002"}
    assert [head.id for head in await bench.heads()] == ["note-0000000000000003-s"]
    assert panel.calls["judge"] == 1
    await bench.check(facts=[numbered_fact(1), numbered_fact(3)])


# -- models and providers that are away -------------------------------------------------------

AWAY = [
    UnavailableError("model", "it does not answer"),
    LimitedError("model", 0.01),
    ConfigError("api_key", "environment", "refused"),
]


@pytest.fixture
async def retrying(tmp_path: Path) -> AsyncIterator[tuple[SynthesisHarness, ScriptedAgents, FaultyEmbedder]]:
    """A bench whose tasks are tried three times, and its provider of vectors."""
    panel, provider = ScriptedAgents(), FaultyEmbedder()
    settings = Settings(data_dir=tmp_path, synthesis_attempts=3, embedding_cache_s=0)
    async with fake_hub(settings=settings, embedder=provider) as hub:
        yield make_synthesis_harness(hub.store("desk"), panel), panel, provider


async def ended(bench: SynthesisHarness, number: int) -> SynthesisTask:
    """What becomes of a request by the hands of a worker."""
    bench.worker.start()
    task = await bench.intake.put(note_request(numbered_fact(number)))
    return await bench.intake.wait(task.task_id, timeout=60)


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("part", ["episodic", "judge", "consolidate"])
async def test_an_outage_is_waited_for_until_the_last_attempt_which_does_without(
    retrying: tuple[SynthesisHarness, ScriptedAgents, FaultyEmbedder], part: str, error: Exception
) -> None:
    bench, panel, _ = retrying
    await add(bench, 1)
    panel.calls.clear()
    panel.errors[part] = error

    task = await ended(bench, 2)

    assert (task.status, task.attempts, panel.calls[part]) == ("done", 3, 3)
    assert task.result is not None
    assert task.result["degraded"]
    if part != "episodic":
        assert panel.calls["episodic"] == 1
        assert task.result["status"] == "active"
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_an_outage_that_ends_in_time_leaves_no_trace(
    retrying: tuple[SynthesisHarness, ScriptedAgents, FaultyEmbedder],
) -> None:
    bench, panel, _ = retrying
    await add(bench, 1)
    panel.errors["judge"] = AWAY[0]

    async def comes_back(_: Note, said: list[Resolution]) -> list[Resolution]:
        return said

    panel.judging = comes_back
    task = await bench.intake.put(note_request(numbered_fact(2)))
    with pytest.raises(UnavailableError):
        await bench.worker.work_once()
    assert (await bench.intake.status(task.task_id)).status == "pending"
    assert [note.status for note in await bench.heads()].count("conflict_pending") == 1
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])

    panel.errors.clear()
    bench.worker.start()
    done = await bench.intake.wait(task.task_id, timeout=60)

    assert done.result is not None
    assert (done.status, done.result["status"], done.result["degraded"]) == ("done", "updated", [])
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_without_vectors_a_task_waits_and_ends_when_they_are_back(
    retrying: tuple[SynthesisHarness, ScriptedAgents, FaultyEmbedder],
) -> None:
    bench, panel, provider = retrying
    provider.fail(AWAY[0])

    task = await ended(bench, 1)

    assert (task.status, task.result) == ("failed", None)
    assert task.error is not None
    assert "it does not answer" in task.error
    assert panel.calls["episodic"] == 1
    assert await bench.notes() == []

    provider.fail(None)
    assert await bench.intake.redrive(task.task_id)
    done = await bench.intake.wait(task.task_id, timeout=60)

    assert (done.status, len(await bench.search.query(APP, numbered_fact(1)))) == ("done", 1)
    await bench.check(facts=[numbered_fact(1)])


async def test_without_a_vector_for_a_successor_the_notes_stay_apart(
    retrying: tuple[SynthesisHarness, ScriptedAgents, FaultyEmbedder],
) -> None:
    bench, panel, provider = retrying
    await add(bench, 1)

    async def no_vectors_from_now_on(_: Note, said: list[Resolution]) -> list[Resolution]:
        provider.fail(AWAY[0])
        return said

    panel.judging = no_vectors_from_now_on
    bench.worker.start()
    task = await bench.intake.put(note_request(numbered_fact(2)))
    done = await bench.intake.wait(task.task_id, timeout=60)

    # Its own vector was made before; with that it is stored, and in the last attempt it needs no other.
    assert done.status in {"done", "failed"}
    assert len(await bench.heads()) == 2
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_a_slow_judge_holds_up_only_its_own_user(store: SharedMemoryStore, panel: ScriptedAgents) -> None:
    bench = make_synthesis_harness(store, panel)
    await add(bench, 1)
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slowly(_: Note, said: list[Resolution]) -> list[Resolution]:
        asked.set()
        await answers.wait()
        return said

    panel.judging = slowly
    slow = asyncio.create_task(add(bench, 2))
    await asked.wait()
    pending = {note.status for note in await bench.heads()}
    other = await bench.pipeline.add_memory(
        note_request(numbered_fact(3), user_id="bob"), TaskAttempt("0000000000000003")
    )
    answers.set()

    assert (pending, other.status) == ({"active", "conflict_pending"}, "active")
    assert (await slow).status == "updated"
    await bench.check(facts=[numbered_fact(1), numbered_fact(2), numbered_fact(3)])


# -- processes that go ------------------------------------------------------------------------


async def test_what_a_process_left_undone_another_one_does() -> None:
    server, panel = FakeServer(), ScriptedAgents()
    async with fake_hub(server=server) as hub:
        bench = make_synthesis_harness(hub.store("desk"), panel, visibility=0.5)
        tasks = [
            (await bench.intake.put(note_request(numbered_fact(number), user_id=f"u{number}"))).task_id
            for number in range(6)
        ]

    async with fake_hub(server=server) as hub:
        bench = make_synthesis_harness(hub.store("desk"), panel, visibility=0.5)
        bench.worker.start()
        done = [await bench.intake.wait(task, timeout=60) for task in tasks]

        assert {task.status for task in done} == {"done"}
        assert len(await bench.notes()) == 6
        await bench.check(facts=[numbered_fact(number) for number in range(6)])


async def test_a_hub_that_closes_gives_its_tasks_back(tmp_path: Path) -> None:
    server, panel, asked = FakeServer(), ScriptedAgents(), asyncio.Event()

    async def never(_: Note, said: list[Resolution]) -> list[Resolution]:
        asked.set()
        await asyncio.Event().wait()
        return said

    async with fake_hub(server=server) as hub:
        bench = make_synthesis_harness(hub.store("desk"), panel)
        await add(bench, 1)
        panel.judging = never
        bench.worker.start()
        task = await bench.intake.put(note_request(numbered_fact(2)))
        await asked.wait()

    panel.judging = None
    async with fake_hub(server=server) as hub:
        bench = make_synthesis_harness(hub.store("desk"), panel)
        bench.worker.start()
        done = await bench.intake.wait(task.task_id, timeout=60)

        assert (done.status, done.attempts) == ("done", 2)
        assert panel.calls["episodic"] == 2
        await bench.check(facts=[numbered_fact(1), numbered_fact(2)])
