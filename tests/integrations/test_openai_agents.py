"""Sessions of the OpenAI Agents SDK: as its own sessions, under its own runner, compacted by the SDK, and cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agents import Runner, SQLiteSession, function_tool
from agents.memory import OpenAIResponsesCompactionSession, Session, SessionSettings
from support.scripted_agents_model import OFFLINE, agent_with, called, random_id, said

from sharedmem import CorruptionError, Hub, InvalidError, Settings, SharedMemoryStore, UsageError
from sharedmem import sync as blocking
from sharedmem.clock import new_id
from sharedmem.integrations.openai_agents import SharedMemSession
from sharedmem.testing import ManualClock, fake_hub


@pytest.fixture
async def session(store: SharedMemoryStore) -> SharedMemSession:
    return SharedMemSession("ticket-7", store)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str, id_: str | None = None) -> Any:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return item if id_ is None else {**item, "id": id_}


def numbered(first: int, end: int) -> list[Any]:
    return [user(str(number)) for number in range(first, end)]


def texts(items: list[Any]) -> list[str]:
    """What was said, in short."""
    found = []
    for item in items:
        content = item.get("content", item.get("output", item.get("name", "")))
        found.append(content if isinstance(content, str) else content[0]["text"])
    return found


@function_tool
def socket_of(lamp: str) -> str:
    """Name the socket of a lamp."""
    return f"E27 for {lamp}"


# -- under the SDK's own runner -------------------------------------------------------------------


async def test_a_second_run_knows_what_the_first_one_said(store: SharedMemoryStore) -> None:
    agent, model = agent_with(
        called("socket_of", '{"lamp": "desk"}'), said("It is E27."), said("You asked for a lamp.")
    )
    agent.tools = [socket_of]

    first = await Runner.run(agent, "Which socket?", session=SharedMemSession("t", store), run_config=OFFLINE)
    second = await Runner.run(agent, "What did I ask?", session=SharedMemSession("t", store), run_config=OFFLINE)

    assert (first.final_output, second.final_output) == ("It is E27.", "You asked for a lamp.")
    history = ["Which socket?", "socket_of", "E27 for desk", "It is E27.", "What did I ask?"]
    assert texts(model.inputs[-1]) == history
    assert texts(await SharedMemSession("t", store).get_items()) == [*history, "You asked for a lamp."]


async def test_a_streamed_run_is_stored_likewise(session: SharedMemSession) -> None:
    agent, _ = agent_with(said("Hello."))

    run = Runner.run_streamed(agent, "Hi", session=session, run_config=OFFLINE)
    async for _event in run.stream_events():
        pass

    assert texts(await session.get_items()) == ["Hi", "Hello."]


@pytest.fixture
def default_loop() -> Iterator[None]:
    """The event loop that the SDK makes for runs without await, and leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("default_loop")
def test_a_run_without_await_uses_a_store_of_the_sync_face(redis_url: str, settings: Settings) -> None:
    agent, model = agent_with(said("one"), said("two"))
    with blocking.Hub.open(redis_url, settings=settings) as hub:
        store = hub.store(f"test-{new_id(8)}")
        session = SharedMemSession("t", store)
        Runner.run_sync(agent, "first", session=session, run_config=OFFLINE)
        Runner.run_sync(agent, "second", session=session, run_config=OFFLINE)
        store.clear()

    assert texts(model.inputs[-1]) == ["first", "one", "second"]


async def test_a_run_reads_as_many_items_as_the_settings_say(store: SharedMemoryStore) -> None:
    agent, model = agent_with(said("yes"), said("yes"))
    limited = SharedMemSession("t", store, session_settings=SessionSettings(limit=2))
    await limited.add_items(numbered(0, 5))

    await Runner.run(agent, "now", session=limited, run_config=OFFLINE)

    assert texts(model.inputs[0]) == ["3", "4", "now"]


# -- the contract ---------------------------------------------------------------------------------


async def test_a_session_is_one_by_the_sdk_s_protocol(session: SharedMemSession) -> None:
    assert isinstance(session, Session)
    assert session.session_id == "ticket-7"
    assert "ticket-7" in repr(session)


async def test_random_calls_have_the_results_of_the_sdk_s_own_session(store: SharedMemoryStore) -> None:
    for seed in range(5):
        chance, name = random.Random(seed), f"s{seed}"
        ours, theirs = SharedMemSession(name, store), SQLiteSession(name)
        for number in range(40):
            batch = [user(f"{number} ü\x00\n{part}") for part in range(chance.randint(0, 3))]
            call = chance.choices(["add", "pop", "get", "clear"], [5, 3, 2, 0.3])[0]
            for one in (ours, theirs):
                await one.add_items(batch) if call == "add" else None
            limit = chance.choice([None, 0, 1, 3, 1000])
            steps: dict[str, Callable[[Any], Awaitable[Any]]] = {
                "pop": lambda one: one.pop_item(),
                "clear": lambda one: one.clear_session(),
                "get": lambda one, limit=limit: one.get_items(limit),  # type: ignore[misc]  # bound here
            }
            if call != "add":
                assert await steps[call](ours) == await steps[call](theirs)
        assert await ours.get_items() == await theirs.get_items()
        theirs.close()


async def test_items_come_back_as_they_were(session: SharedMemSession) -> None:
    items: list[Any] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * 40},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1e400}'},
        {"type": "function_call_output", "call_id": "c", "output": "\x00 \ud7ff 🙂"},
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:" + "x" * 3_000_000, "detail": "auto"}],
        },
        {"role": "user", "content": "", "extra": {"deep": [None, True, 1 << 70, 0.1]}},
    ]

    await session.add_items(items)

    assert await session.get_items() == items
    assert [await session.pop_item() for _ in items] == items[::-1]
    assert await session.pop_item() is None


async def test_long_sessions_are_read_in_whole_and_from_the_end(session: SharedMemSession) -> None:
    await session.add_items(numbered(0, 10_100))

    assert texts(await session.get_items()) == [str(number) for number in range(10_100)]
    assert texts(await session.get_items(10_050)) == [str(number) for number in range(50, 10_100)]
    assert texts(await session.get_items(129)) == [str(number) for number in range(9_971, 10_100)]
    assert len(await session.get_items(1 << 31)) == 10_100


async def test_a_limit_that_is_given_beats_the_settings(store: SharedMemoryStore) -> None:
    session = SharedMemSession("t", store, session_settings=SessionSettings(limit=1))
    await session.add_items(numbered(0, 4))

    assert texts(await session.get_items()) == ["3"]
    assert texts(await session.get_items(3)) == ["1", "2", "3"]
    assert await session.get_items(0) == []


# -- added once -----------------------------------------------------------------------------------


async def test_an_item_with_a_random_id_is_stored_once(session: SharedMemSession) -> None:
    answer, question = assistant("E27", random_id("msg")), user("Which socket?")
    await session.add_items([question, answer])

    await session.add_items([answer])
    await session.add_items([answer, user("Thanks")])
    changed: Any = {**answer, "status": "incomplete"}
    await session.add_items([changed])

    assert texts(await session.get_items()) == ["Which socket?", "E27", "Thanks", "E27"]


async def test_an_item_that_was_popped_can_be_added_again(session: SharedMemSession) -> None:
    answer = assistant("E27", random_id("msg"))
    await session.add_items([answer])
    await session.pop_item()
    await session.add_items([answer])
    await session.clear_session()
    await session.add_items([answer])

    assert await session.get_items() == [answer]


async def test_equal_items_without_a_random_id_are_all_stored(session: SharedMemSession) -> None:
    items = [user("yes"), assistant("ok", "__fake_id__"), assistant("ok", "1"), assistant("ok")]

    await session.add_items(items)
    await session.add_items(items)

    assert await session.get_items() == items * 2


# -- apart ----------------------------------------------------------------------------------------


async def test_sessions_with_odd_ids_do_not_mix(store: SharedMemoryStore) -> None:
    odd = ["a", "a:b", "a b", "A", "ä*?[]{}", "team:shared:openai-agents:a", "x/../a", "\x00\n", "a%3Ab", "$a", "🙂"]
    for name in odd:
        await SharedMemSession(name, store).add_items([user(name)])

    assert [texts(await SharedMemSession(name, store).get_items()) for name in odd] == [[name] for name in odd]


async def test_namespaces_and_actors_do_not_see_each_other(settings: Settings) -> None:
    async with fake_hub(settings=settings) as hub:
        stores = [hub.store("red"), hub.store("blue"), hub.store("red", actor="ada"), hub.store("red", actor="bob")]
        for number, store in enumerate(stores):
            await SharedMemSession("t", store).add_items([user(str(number))])

        found = [texts(await SharedMemSession("t", store).get_items()) for store in stores]

    assert found == [["0"], ["1"], ["2"], ["3"]]


async def test_the_sessions_of_a_user_are_listed_and_erased(store: SharedMemoryStore) -> None:
    for name in ("t1", "t2"):
        await SharedMemSession(name, store, tags={"user": "u1"}).add_items([user("hello")])
    other = SharedMemSession("t3", store, tags={"user": "u2"})
    await other.add_items([user("hello")])

    listed = await store.conversations.list(user="u1")
    erased = await store.conversations.erase(user="u1")

    assert {each.key for each in listed.conversations} == {
        SharedMemSession(name, store).conversation_id for name in ("t1", "t2")
    }
    assert erased.conversations == 2
    assert await SharedMemSession("t1", store).get_items() == []
    assert texts(await other.get_items()) == ["hello"]


async def test_a_lifetime_begins_anew_with_each_use() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        session = SharedMemSession("t", hub.store("team"), ttl=60)
        lasting = SharedMemSession("lasting", hub.store("team"))
        for one in (session, lasting):
            await one.add_items([user("hello")])
        for use in (session.get_items, lambda: session.add_items([user("again")])):
            clock.advance(50)
            await use()
        clock.advance(50)
        kept = texts(await session.get_items())
        clock.advance(61)

        assert kept == ["hello", "again"]
        assert await session.get_items() == []
        assert texts(await lasting.get_items()) == ["hello"]


# -- side by side and cancelled ------------------------------------------------------------------------------------


async def test_of_two_hubs_that_pop_each_item_goes_to_one(redis_url: str, settings: Settings) -> None:
    namespace = f"test-{new_id(8)}"
    async with Hub.open(redis_url, settings=settings) as one, Hub.open(redis_url, settings=settings) as other:
        sessions = [SharedMemSession("t", hub.store(namespace)) for hub in (one, other)]
        await sessions[0].add_items(numbered(0, 100))
        popped = await asyncio.gather(*(session.pop_item() for session in sessions * 51))
        await one.store(namespace).clear()

    items: list[Any] = [item for item in popped if item is not None]
    assert sorted(map(int, texts(items))) == list(range(100))


async def test_a_change_ends_before_its_cancellation_is_raised(session: SharedMemSession) -> None:
    for number in range(20):
        adding = asyncio.create_task(session.add_items([user(str(number))]))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert texts(await session.get_items()) == [str(number)]

        popping = asyncio.create_task(session.pop_item())
        await asyncio.sleep(0)
        popping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await popping
        assert await session.get_items() == []


# -- compaction -----------------------------------------------------------------------------------


def compacting(session: SharedMemSession, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Any:
    """The SDK's session that compacts, with a service that needs its time."""

    async def compact(**_: Any) -> Any:
        if meanwhile is not None:
            await meanwhile()
        return SimpleNamespace(output=[{"type": "compaction", "encrypted_content": "summary"}], usage=None)

    client = cast("Any", SimpleNamespace(responses=SimpleNamespace(compact=compact)))
    return OpenAIResponsesCompactionSession(
        session.session_id,
        session,
        client=client,
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )


async def test_the_sdk_compacts_a_session_after_a_run(session: SharedMemSession) -> None:
    agent, model = agent_with(said("one"), said("two"), said("three"))
    model.response_id = "resp_1"

    for question in ("first", "second"):
        await Runner.run(agent, question, session=compacting(session), run_config=OFFLINE)
    compacted = await session.get_items()
    await Runner.run(agent, "third", session=session, run_config=OFFLINE)

    assert compacted == [{"type": "compaction", "encrypted_content": "summary"}]
    assert [item.get("type", "message") for item in model.inputs[-1]] == ["compaction", "message"]


class TransformingSession(SharedMemSession):
    """The SDK clears such a session and adds the summary: it may store items in a way of its own."""


@pytest.mark.parametrize("kind", [SharedMemSession, TransformingSession])
async def test_what_another_process_adds_while_a_summary_is_made_is_kept(
    kind: type[SharedMemSession], store: SharedMemoryStore
) -> None:
    session = kind("t", store)
    agent, model = agent_with(said("one"), said("two"))
    model.response_id = "resp_1"
    await Runner.run(agent, "first", session=session, run_config=OFFLINE)

    async def another() -> None:
        await session.add_items([user("from elsewhere")])

    await Runner.run(agent, "second", session=compacting(session, another), run_config=OFFLINE)

    left = [item.get("type", "message") for item in cast("Any", await session.get_items())]
    # The control shows what would be lost.
    assert left == (["message"] * 5 if kind is SharedMemSession else ["compaction"])


async def test_a_compaction_that_is_asked_for_replaces_all_items_in_one_step(session: SharedMemSession) -> None:
    await session.add_items(numbered(0, 5))

    before = await session.get_items()
    await compacting(session).run_compaction({"force": True, "compaction_mode": "input"})

    assert len(before) == 5
    assert await session.get_items() == [{"type": "compaction", "encrypted_content": "summary"}]


# -- errors ---------------------------------------------------------------------------------------


async def test_what_is_wrong_is_said_when_a_session_is_made(store: SharedMemoryStore) -> None:
    for wrong in ("", None, "x" * 600, "\ud800"):
        with pytest.raises(InvalidError, match="session_id"):
            SharedMemSession(cast("Any", wrong), store)
    with pytest.raises(InvalidError, match="store"):
        SharedMemSession("t", cast("Any", "redis://localhost"))
    with pytest.raises(InvalidError, match="ttl"):
        SharedMemSession("t", store, ttl=-1)
    with pytest.raises(InvalidError, match="tags"):
        SharedMemSession("t", store, tags={"tenant": "x"})


async def test_an_item_that_cannot_be_stored_is_refused_and_nothing_is_stored(session: SharedMemSession) -> None:
    with pytest.raises(InvalidError):
        await session.add_items([user("fine"), cast("Any", {"role": "user", "content": object()})])

    assert await session.get_items() == []


async def test_an_entry_of_another_client_that_is_no_item_is_an_error(
    store: SharedMemoryStore, session: SharedMemSession
) -> None:
    await session.add_items([user("hello")])
    await store.conversations.append(session.conversation_id, ["not an item"])

    with pytest.raises(CorruptionError, match="no item"):
        await session.get_items()


async def test_a_session_of_a_closed_hub_says_so() -> None:
    async with fake_hub() as hub:
        session = SharedMemSession("t", hub.store("team"))

    for call in (session.get_items, session.pop_item, session.clear_session, lambda: session.add_items([user("x")])):
        with pytest.raises(UsageError, match="closed"):
            await call()


def test_a_session_of_an_async_store_is_made_in_its_event_loop(settings: Settings) -> None:
    async def opened() -> SharedMemoryStore:
        async with fake_hub(settings=settings) as hub:
            return hub.store("team")

    store = asyncio.run(opened())

    with pytest.raises(UsageError, match=r"sharedmem\.sync"):
        SharedMemSession("t", store)
