"""Task intake, worker and batcher: every task is stored, done once, and its outcome is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from fakeredis import FakeServer
from support.contexts import knowledge_of, scope_of
from support.synthesis_harness import (
    APP,
    USER,
    CrashingProxy,
    CrashPoint,
    ScriptedAgents,
    SimulatedCrashError,
    SynthesisHarness,
    make_synthesis_harness,
    note_request,
    numbered_fact,
    user_messages,
)
from support.waiting import wait_until

from sharedmem import InvalidError, NotFoundError, Settings, SharedMemoryStore, UnavailableError
from sharedmem.models import Note, Resolution, SynthesisMessage
from sharedmem.synthesis.batcher import Batcher
from sharedmem.synthesis.tasks import AddMemoryTask, SummarizeTask, check_messages, parse_task
from sharedmem.testing import fake_hub


@pytest.fixture
async def store() -> AsyncIterator[SharedMemoryStore]:
    async with fake_hub(settings=Settings(synthesis_attempts=2)) as hub:
        yield hub.store("desk")


@pytest.fixture
def panel() -> ScriptedAgents:
    return ScriptedAgents()


class Told:
    """Takes down what webhooks would be told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Mapping[str, object]]] = []
        self.ended = asyncio.Event()

    async def announce(self, task_id: str, callback_url: str, payload: Mapping[str, object]) -> str:
        self.calls.append((task_id, callback_url, payload))
        return "call"

    async def work(self, *, concurrency: int = 8) -> None:
        assert concurrency
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def bench(store: SharedMemoryStore, panel: ScriptedAgents, told: Told) -> SynthesisHarness:
    return make_synthesis_harness(store, panel, webhooks=told)


# -- asking -----------------------------------------------------------------------------------


async def test_a_task_goes_from_accepted_to_done_with_a_result(bench: SynthesisHarness) -> None:
    accepted = await bench.intake.put(note_request(numbered_fact(1)))
    pending = await bench.intake.status(accepted.task_id)

    assert await bench.worker.work_once()
    done = await bench.intake.status(accepted.task_id)

    assert (accepted.status, pending.status, done.status, done.attempts) == ("accepted", "pending", "done", 1)
    assert done.result is not None
    assert done.result["memory_id"] == f"note-{accepted.task_id}"
    assert numbered_fact(1) not in str(done.result)
    assert not await bench.worker.work_once()
    await bench.check(facts=[numbered_fact(1)])


async def test_who_waits_is_called_when_the_task_is_done(bench: SynthesisHarness) -> None:
    task = await bench.intake.put(note_request(numbered_fact(1)))
    waiting = asyncio.create_task(bench.intake.wait(task.task_id, timeout=60))

    bench.worker.start()

    assert (await waiting).status == "done"


async def test_who_waits_too_short_is_told_how_it_stands(bench: SynthesisHarness) -> None:
    task = await bench.intake.put(note_request(numbered_fact(1)))

    assert (await bench.intake.wait(task.task_id, timeout=0.01)).status == "pending"


async def test_a_task_that_was_never_put_is_not_found(bench: SynthesisHarness) -> None:
    with pytest.raises(NotFoundError):
        await bench.intake.status("1234567890123456")
    with pytest.raises(InvalidError):
        await bench.intake.status("mine")


async def test_a_summary_is_the_result_of_its_task(bench: SynthesisHarness, told: Told) -> None:
    request = SummarizeTask(
        app_id=APP,
        user_id=USER,
        messages=user_messages(numbered_fact(1)),
        mode="full",
        callback_url="https://example.com/hook",
    )
    task = await bench.intake.put(request)

    await bench.worker.work_once()
    done = await bench.intake.status(task.task_id)

    assert done.result is not None
    assert numbered_fact(1) in done.result["summary"]["summary"]
    assert told.calls == [
        (task.task_id, "https://example.com/hook", {"status": "done", "result": {"summary": done.result["summary"]}})
    ]


async def test_the_same_idempotency_key_is_the_same_task(bench: SynthesisHarness) -> None:
    first = await bench.intake.put(note_request(numbered_fact(1)), idempotency_key="order-17")
    again = await bench.intake.put(note_request(numbered_fact(1)), idempotency_key="order-17")
    await bench.worker.work_once()
    afterwards = await bench.intake.put(note_request(numbered_fact(1)), idempotency_key="order-17")
    others = {
        (await bench.intake.put(request, idempotency_key="order-17")).task_id
        for request in (note_request(numbered_fact(1), user_id="bob"), note_request(numbered_fact(1), app_id="sales"))
    }

    assert first.task_id == again.task_id == afterwards.task_id
    assert len(others | {first.task_id}) == 3
    assert len(await bench.notes()) == 1


async def test_the_list_tells_what_waits_what_is_under_way_and_what_has_failed(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    waits = await bench.intake.put(note_request(numbered_fact(1)))
    await bench.intake.queue.put({"kind": "nonsense"}, priority=1)

    with pytest.raises(InvalidError):
        await bench.worker.work_once()
    listed = {task.status: task for task in await bench.intake.list()}

    assert listed.keys() == {"pending", "failed"}
    assert listed["pending"].task_id == waits.task_id
    assert "no request" in (listed["failed"].error or "")


async def test_what_is_still_to_be_done_for_a_user_can_be_discarded(bench: SynthesisHarness) -> None:
    for user_id in (USER, USER, "bob"):
        await bench.intake.put(note_request(numbered_fact(1), user_id=user_id))

    assert await bench.intake.forget(APP, USER) == 2
    assert await bench.intake.forget("sales") == 0
    assert len(await bench.intake.list()) == 1


async def test_messages_that_wait_in_a_batch_are_discarded_with_their_timer(bench: SynthesisHarness) -> None:
    waits = batcher(bench, session_id="monday")
    await waits.add(say(1))

    assert await bench.intake.list() == []
    assert await bench.intake.forget(APP, USER) == 1
    assert await waits.waiting() == 0


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("app_id", ""),
        ("app_id", "a{b}"),
        ("app_id", "a\nb"),
        ("app_id", "a" * 257),
        ("user_id", ""),
        ("user_id", "ü" * 129),
        ("session_id", ""),
        ("session_id", "\x00"),
    ],
)
async def test_an_id_that_can_be_none_is_refused_before_anything_is_written(
    bench: SynthesisHarness, field: str, value: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        await bench.intake.put(note_request(numbered_fact(1)).model_copy(update={field: value}))

    assert refused.value.field == field
    assert await bench.intake.list() == []


@pytest.mark.parametrize(
    ("field", "value"), [("app_id", 7), ("user_id", None), ("session_id", 3), ("callback_url", 7), ("mode", "deep")]
)
def test_a_request_with_a_field_that_is_none_is_refused_as_every_call_is(field: str, value: object) -> None:
    fields: dict[str, Any] = {"app_id": APP, "user_id": USER, "messages": user_messages(numbered_fact(1))} | {
        field: value
    }

    with pytest.raises(InvalidError) as refused:
        SummarizeTask(**fields) if field == "mode" else AddMemoryTask(**fields)

    assert refused.value.field == field


@pytest.mark.parametrize("payload", [None, 7, [], {}, {"kind": "memory"}, {"kind": "memory", "app_id": 7}])
def test_a_task_that_carries_no_request_says_so(payload: object) -> None:
    with pytest.raises(InvalidError, match="no request"):
        parse_task(payload)


@pytest.mark.parametrize("value", ["a" * 256, "用户-42", "a b", "a:b", "a*b?[c]\\"])
async def test_ids_may_be_nearly_anything(bench: SynthesisHarness, value: str) -> None:
    request = AddMemoryTask(app_id=value, user_id=value, session_id=value, messages=user_messages(numbered_fact(1)))
    task = await bench.intake.put(request)

    await bench.worker.work_once()

    assert (await bench.intake.status(task.task_id)).status == "done"
    (hit,) = await bench.search.query(value, numbered_fact(1), user_id=value, session_id=value)
    assert (hit.metadata.app_id, hit.metadata.user_id, hit.metadata.session_id) == (value, value, value)


@pytest.mark.parametrize(
    ("messages", "told_"),
    [
        ([], "one message or more"),
        ("hello", "one message or more"),
        ([{"role": "user", "content": "hello"}] * 31, "30 at most"),
        ([{"role": "robot", "content": "hello"}], "role"),
        ([{"role": "user", "content": " \n "}], "give a text"),
        ([{"role": "user"}], "content"),
        ([{"role": "user", "content": 7}], "content"),
        ([{"role": "user", "content": "x", "mood": "good"}], "mood"),
        ([{"role": "user", "content": "\ud800"}], "messages[0]"),
        ([{"role": "user", "content": "x", "timestamp": "2026-01-01T00:00:00"}], "timestamp"),
        ([{"role": "user", "content": "x" * 300_000}], "bytes"),
        (["hello"], "messages[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_conversation_that_no_note_can_be_made_of_is_refused(messages: Any, told_: str) -> None:
    with pytest.raises(InvalidError, match=told_.replace("[", r"\[")):
        check_messages(messages, Settings())


def test_messages_may_be_mappings_or_records() -> None:
    record = SynthesisMessage(role="assistant", content="hi", name="bot")

    assert check_messages([record, {"role": "assistant", "content": "hi", "name": "bot"}], Settings()) == (record,) * 2


def test_a_request_survives_the_queue() -> None:
    request = note_request(numbered_fact(1), numbered_fact(2), session_id="monday")

    assert parse_task(request.model_dump(mode="json", exclude_defaults=True) | {"kind": "memory"}) == request


# -- failing ----------------------------------------------------------------------------------


async def test_a_task_that_fails_for_good_tells_its_reason_and_its_webhook(
    bench: SynthesisHarness, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: str) -> None:
        raise UnavailableError("embedder", "it does not answer")

    monkeypatch.setattr(bench.pipeline._resolver, "embed", never)
    bench.worker.start()
    request = note_request(numbered_fact(1)).model_copy(update={"callback_url": "https://example.com/hook"})
    task = await bench.intake.put(request)

    failed = await bench.intake.wait(task.task_id, timeout=60)

    assert (failed.status, failed.result) == ("failed", None)
    assert "it does not answer" in (failed.error or "")
    ((task_id, url, payload),) = told.calls
    assert (task_id, url, payload["status"]) == (task.task_id, "https://example.com/hook", "failed")
    assert "it does not answer" in str(payload["error"])

    monkeypatch.undo()
    assert await bench.intake.redrive(task.task_id)
    assert (await bench.intake.wait(task.task_id, timeout=60)).status == "done"
    await bench.check(facts=[numbered_fact(1)])


# -- the worker -------------------------------------------------------------------------------


def gate(panel: ScriptedAgents) -> tuple[asyncio.Event, asyncio.Event]:
    """Judging says when it begins, and waits to be let go on."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def judging(_: Note, said: list[Resolution]) -> list[Resolution]:
        began.set()
        await may_end.wait()
        return said

    panel.judging = judging
    return began, may_end


async def test_draining_ends_what_is_under_way_and_begins_nothing(
    bench: SynthesisHarness, panel: ScriptedAgents, told: Told
) -> None:
    began, may_end = gate(panel)
    bench.worker.start()
    first = await bench.intake.put(note_request(numbered_fact(1)))
    await bench.intake.wait(first.task_id, timeout=60)
    under_way = await bench.intake.put(note_request(numbered_fact(2)))
    await began.wait()

    draining = asyncio.create_task(bench.worker.drain())
    await wait_until(lambda: not bench.worker.is_running, description="the worker drains")
    later = await bench.intake.put(note_request(numbered_fact(3)))
    assert not draining.done()
    may_end.set()
    await draining

    assert (await bench.intake.status(under_way.task_id)).status == "done"
    assert (await bench.intake.status(later.task_id)).status == "pending"
    assert told.ended.is_set()
    assert bench.worker.under_way == 0
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_no_more_tasks_are_worked_on_at_a_time_than_were_asked_for(
    store: SharedMemoryStore, panel: ScriptedAgents
) -> None:
    bench = make_synthesis_harness(store, panel, concurrency=3)
    for number in range(6):
        user = f"user-{number}"
        await bench.intake.put(note_request(numbered_fact(1), user_id=user))
    while await bench.worker.work_once():
        pass
    _, may_end = gate(panel)
    tasks = [await bench.intake.put(note_request(numbered_fact(2), user_id=f"user-{number}")) for number in range(6)]

    bench.worker.start()
    await wait_until(lambda: panel.calls["judge"] == 3, description="three tasks are judged")

    assert bench.worker.under_way == 3
    may_end.set()
    assert {(await bench.intake.wait(task.task_id, timeout=60)).status for task in tasks} == {"done"}
    await bench.check()


async def test_a_process_that_is_not_to_work_leaves_tasks_to_others(panel: ScriptedAgents) -> None:
    server = FakeServer()
    async with fake_hub(server=server) as idle, fake_hub(server=server) as busy:
        asks = make_synthesis_harness(idle.store("desk"), panel, concurrency=0)
        asks.worker.start()
        works = make_synthesis_harness(busy.store("desk"), panel)
        works.worker.start()

        task = await asks.intake.put(note_request(numbered_fact(1)))

        assert not asks.worker.is_running
        assert (await asks.intake.wait(task.task_id, timeout=60)).status == "done"


# -- batches ----------------------------------------------------------------------------------


def say(number: int) -> dict[str, str]:
    return {"role": "user", "content": numbered_fact(number)}


def batcher(bench: SynthesisHarness, intake: Any = None, **choices: Any) -> Batcher:
    store = bench.store
    chosen: dict[str, Any] = {"app_id": APP, "user_id": USER, "size": 3, "wait_s": 3600.0} | choices
    return Batcher(knowledge_of(store), scope_of(store), intake or bench.intake, **chosen)


async def said_in_tasks(bench: SynthesisHarness) -> list[str]:
    """The messages of all requests for notes that wait."""
    waiting = [*await bench.intake.queue.peek(1000), *await bench.intake.queue.peek(1000, state="delayed")]
    payloads = [task.payload for task in waiting if task.payload["kind"] == "memory"]
    return [message["content"] for payload in payloads for message in payload["messages"]]


async def test_a_full_batch_becomes_one_task(bench: SynthesisHarness) -> None:
    batch = batcher(bench)

    put = [await batch.add(say(number)) for number in range(4)]

    assert [len(tasks) for tasks in put] == [0, 0, 1, 0]
    assert await said_in_tasks(bench) == [numbered_fact(0), numbered_fact(1), numbered_fact(2)]
    assert await batch.waiting() == 1


async def _notes_of(bench: SynthesisHarness) -> list[Note]:
    async def are_there() -> bool:
        return bool(await bench.notes())

    await wait_until(are_there, description="the tail has become a note")
    return await bench.notes()


async def test_a_batch_that_is_not_full_goes_when_its_time_is_over(bench: SynthesisHarness) -> None:
    bench.worker.start()

    await batcher(bench, wait_s=0.05).add(say(1))
    await batcher(bench, wait_s=0.05).add(say(2))

    (note,) = await _notes_of(bench)
    assert [message.content for message in note.messages] == [numbered_fact(1), numbered_fact(2)]


async def test_flushing_puts_what_waits_and_nothing_twice(bench: SynthesisHarness) -> None:
    batch = batcher(bench)
    await batch.add(say(1))

    tasks = await batch.flush()

    assert (len(tasks), await batch.flush(), await batch.waiting()) == (1, [], 0)
    assert await said_in_tasks(bench) == [numbered_fact(1)]


async def test_messages_that_are_too_large_together_go_in_two_batches(bench: SynthesisHarness) -> None:
    batch = batcher(bench)
    large = {"role": "user", "content": "x" * 150_000}

    await batch.add(large)
    await batch.add(large)

    assert (await batch.waiting(), len(await said_in_tasks(bench))) == (1, 1)


async def test_many_who_add_to_one_batch_lose_nothing_and_double_nothing(bench: SynthesisHarness) -> None:
    await asyncio.gather(*(batcher(bench).add(say(number)) for number in range(20)))
    await asyncio.gather(*(batcher(bench).flush() for _ in range(3)))

    assert sorted(await said_in_tasks(bench)) == sorted(numbered_fact(number) for number in range(20))
    assert await batcher(bench).waiting() == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_wherever_a_batcher_dies_each_message_ends_in_one_note(
    store: SharedMemoryStore, panel: ScriptedAgents, *, after: bool
) -> None:
    for point in range(1, 9):
        user, fuse = f"user-{point}", CrashPoint(point, after=after)
        bench = make_synthesis_harness(store, panel)
        dying = _mortal(batcher(bench, CrashingProxy(bench.intake, fuse), user_id=user, size=2, wait_s=0.0), fuse)
        said = []
        try:
            for number in (1, 2, 3):
                said.append(numbered_fact(number))
                await dying.add(say(number))
        except SimulatedCrashError:
            pass

        while await bench.worker.work_once():
            pass

        kept = [m.content for note in await bench.notes() if note.user_id == user for m in note.messages]
        # It is unknown whether the last one was added.
        assert sorted(kept) in (sorted(said), sorted(said[:-1])), point
        assert await batcher(bench, user_id=user).waiting() == 0
    await bench.check()


def _mortal(batch: Batcher, fuse: CrashPoint) -> Batcher:
    """Each write of it may be the last, too."""
    scripts: Any = CrashingProxy(batch._value_scripts, fuse)
    batch._value_scripts = scripts
    return batch


@pytest.mark.parametrize(("field", "value"), [("size", 0), ("size", 31), ("wait_s", -1), ("wait_s", float("inf"))])
async def test_a_batcher_that_makes_no_sense_is_refused(bench: SynthesisHarness, field: str, value: float) -> None:
    with pytest.raises(InvalidError) as refused:
        batcher(bench, **{field: value})

    assert refused.value.field == field


async def test_a_message_that_is_none_is_refused_and_nothing_waits(bench: SynthesisHarness) -> None:
    batch = batcher(bench)

    with pytest.raises(InvalidError):
        await batch.add({"role": "user", "content": ""})

    assert (await batch.waiting(), await bench.intake.list()) == (0, [])
