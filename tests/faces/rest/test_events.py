"""Server-sent events: nothing is missed unsaid, readers may leave, and the service may end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from support.asgi_client import AsgiCaller, EventReader, StreamEvent, quote_segment
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.faces.auth import Bearer
from sharedmem.faces.rest import RestApplication, create_app
from sharedmem.faces.rest.events import EventEndpoints, EventStreamOptions
from sharedmem.faces.token_registry import TokenRegistry

Open = Callable[..., Awaitable[EventReader]]


@pytest.fixture
async def hub(redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
    async with Hub.open(redis_url, settings=settings.replace(change_log_length=100, subscriber_queue_length=5)) as hub:
        yield hub


@pytest.fixture
async def registry(hub: Hub) -> AsyncIterator[TokenRegistry]:
    registry = TokenRegistry(hub)
    yield registry
    for known in await registry.listed():
        await registry.revoke(known.entry.id)


@pytest.fixture
def app(hub: Hub, registry: TokenRegistry) -> RestApplication:
    return create_app(hub, admission=registry)


@pytest.fixture
async def ada(app: RestApplication, registry: TokenRegistry, namespace: str) -> AsgiCaller:
    return AsgiCaller(app, (await registry.create(Bearer.of(namespace, actor="ada")))[0])


@pytest.fixture
async def read(ada: AsgiCaller) -> AsyncIterator[Open]:
    """Opens streams, which end with the test."""
    async with AsyncExitStack() as stack:

        async def opened(path: str, **headers: str) -> EventReader:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            asked = await stack.enter_async_context(ada.asking("GET", path, headers=named))
            assert asked.status == 200, await asked.chunks.get()
            return EventReader(asked)

        yield opened


# -- changes --------------------------------------------------------------------------------------


async def test_changes_are_told_as_they_happen(ada: AsgiCaller, read: Open, namespace: str) -> None:
    changes = await read("/changes")
    started = await changes.next()

    version = (await ada("PUT", "/store/values/topic", {"value": "news"})).data["version"]
    change = await changes.next()

    assert started is not None
    assert (started.name, started.data) == ("started", {"cursor": started.id})
    assert change is not None
    assert (change.name, change.data["key"], change.data["actor"]) == ("change", f"{namespace}:ada:topic", "ada")
    assert (change.data["version"], change.data["cursor"]) == (version, change.id)
    assert changes.retry_ms == 1000


async def test_only_keys_that_match_are_told(ada: AsgiCaller, read: Open, namespace: str) -> None:
    changes = await read(f"/changes?pattern={quote_segment('plan-*')}")
    await changes.next()

    for key in ("other", "plan-1", "another", "plan-2"):
        await ada("PUT", f"/store/values/{key}", {"value": 1})
    seen = [await changes.next(), await changes.next()]

    assert [change.data["key"] for change in seen if change] == [f"{namespace}:ada:plan-1", f"{namespace}:ada:plan-2"]


async def test_who_comes_back_with_the_last_id_misses_nothing(ada: AsgiCaller, namespace: str) -> None:
    async with ada.asking("GET", "/changes") as asked:
        started = await EventReader(asked).next()
    assert started is not None
    for number in range(3):
        await ada("PUT", f"/store/values/k{number}", {"value": number})

    async with ada.asking("GET", "/changes", headers={"last-event-id": str(started.id)}) as asked:
        again = EventReader(asked)
        await again.next()
        first = await again.next()
    assert first is not None
    async with ada.asking("GET", f"/changes?since={first.id}") as asked:
        rest = EventReader(asked)
        seen = [await rest.next() for _ in range(3)]

    assert first.data["key"] == f"{namespace}:ada:k0"
    assert [(one.name, one.data.get("key")) for one in seen if one] == [
        ("started", None),
        ("change", f"{namespace}:ada:k1"),
        ("change", f"{namespace}:ada:k2"),
    ]


async def test_what_was_trimmed_meanwhile_is_told_as_a_gap(
    hub: Hub, ada: AsgiCaller, read: Open, namespace: str
) -> None:
    await ada("PUT", "/store/values/first", {"value": 1})
    store = hub.store(namespace, actor="ada")
    for _ in range(4):
        await store.write_many({f"k{number}": number for number in range(100)})

    changes = await read("/changes", last_event_id="1-0")
    await changes.next()
    gap = await changes.next()

    assert gap is not None
    assert (gap.name, gap.data["operation"]) == ("gap", "gap")


async def test_changes_that_an_actor_may_not_read_are_not_told(
    hub: Hub, app: RestApplication, registry: TokenRegistry, ada: AsgiCaller, namespace: str
) -> None:
    guest = AsgiCaller(
        app, (await registry.create(Bearer.of("lobby", actor="guest", grants=[f"{namespace}:shared:*"])))[0]
    )
    async with guest.asking("GET", f"/changes?pattern={quote_segment(f'{namespace}:shared:*')}") as asked:
        changes = EventReader(asked)
        await changes.next()
        await ada("PUT", "/store/values/private", {"value": 1})
        await hub.store(namespace).write("news", "all clear")
        change = await changes.next()

    assert change is not None
    assert change.data["key"] == f"{namespace}:shared:news"


async def test_what_cannot_be_followed_is_a_problem_and_no_stream(ada: AsgiCaller) -> None:
    for path, headers, status, code in (
        ("/changes?since=yesterday", {}, 400, "invalid"),
        ("/changes", {"last-event-id": "x"}, 400, "invalid"),
        ("/changes?pattern=other:*", {}, 403, "access_denied"),
        ("/changes?pattern=", {}, 400, "invalid"),
        ("/changes?patern=x", {}, 400, "invalid"),
        ("/channels/other:shared:x/messages", {}, 403, "access_denied"),
        ("/channels/a%7Bb/messages", {}, 400, "invalid"),
        ("/channels/news/messages?since=0", {}, 400, "invalid"),
    ):
        answer = await ada("GET", path, headers=headers)

        assert (answer.status, answer.data["code"]) == (status, code), path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_head_is_no_stream(ada: AsgiCaller) -> None:
    for path in ("/changes", "/channels/news/messages"):
        answer = await ada("HEAD", path)

        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")


# -- channels -------------------------------------------------------------------------------------


async def test_messages_are_told_from_now_on(ada: AsgiCaller, read: Open, namespace: str) -> None:
    await ada("POST", "/messages/news", {"message": "too early"})
    messages = await read("/channels/news/messages")
    started = await messages.next()

    sent = await ada("POST", "/messages/news", {"message": {"line\nbreak": "ü"}})
    message = await messages.next()

    assert (sent.status, sent.data) == (200, {"receivers": 1})
    assert started is not None
    assert (started.name, started.id) == ("started", None)
    assert message is not None
    assert message.data == {"channel": f"{namespace}:shared:news", "value": {"line\nbreak": "ü"}}
    assert (message.name, message.id) == ("message", None)


async def test_a_pattern_of_channels_is_followed(ada: AsgiCaller, read: Open, namespace: str) -> None:
    messages = await read(f"/channels/{quote_segment('room-*')}/messages")
    await messages.next()

    await ada("POST", "/messages/hall", {"message": 0})
    await ada("POST", "/messages/room-7", {"message": 7})
    message = await messages.next()

    assert message is not None
    assert message.data == {"channel": f"{namespace}:shared:room-7", "value": 7}


async def test_messages_that_were_not_read_are_reported_as_missed(ada: AsgiCaller) -> None:
    async with ada.asking("GET", "/channels/news/messages") as asked:
        reader = EventReader(asked)
        await reader.next()
        asked.takes.clear()
        for number in range(20):
            await ada("POST", "/messages/news", {"message": number})
        asked.takes.set()
        seen = [one async for one in until(reader, 19)]

    assert "missed" in [one.name for one in seen]
    assert len(seen) < 20


async def until(reader: EventReader, value: int) -> AsyncIterator[StreamEvent]:
    while (one := await reader.next()) is not None:
        yield one
        if one.data["value"] == value:
            return


# -- the end of a stream --------------------------------------------------------------------------


async def test_who_leaves_is_followed_no_more(ada: AsgiCaller) -> None:
    before = asyncio.all_tasks()

    async with ada.asking("GET", "/changes") as changes, ada.asking("GET", "/channels/x/messages") as messages:
        await EventReader(changes).next()
        await EventReader(messages).next()

    heard = await ada("POST", "/messages/x", {"message": "anybody?"})
    await wait_until(lambda: asyncio.all_tasks() <= before, description="nothing runs any more")
    assert heard.data == {"receivers": 0}


async def test_the_end_of_the_service_is_told(app: RestApplication, read: Open) -> None:
    streams = [await read("/changes"), await read("/channels/x/messages")]
    for stream in streams:
        await stream.next()

    app.state.service.end_streams()

    for stream in streams:
        last = await stream.next()
        assert last is not None
        assert (last.name, last.data["again_in_ms"]) == ("closing", 1000)
        assert await stream.next() is None


async def test_a_silent_stream_shows_that_it_lives(hub: Hub, registry: TokenRegistry, namespace: str) -> None:
    quick = EventEndpoints(registry, EventStreamOptions(tick_s=0.01))
    app = only(hub, registry, quick)
    token, _ = await registry.create(Bearer.of(namespace, actor="ada"))

    async with AsgiCaller(app, token).asking("GET", "/quick/changes") as asked:
        reader = EventReader(asked)
        await reader.next()
        while (await asked.chunks.get()) != b": still here\n\n":
            pass


async def test_a_token_that_is_taken_back_ends_its_streams(hub: Hub, registry: TokenRegistry, namespace: str) -> None:
    app = only(hub, registry, EventEndpoints(registry, EventStreamOptions(tick_s=0.01)))
    token, entry = await registry.create(Bearer.of(namespace, actor="ada"))

    async with AsgiCaller(app, token).asking("GET", "/quick/changes") as asked:
        reader = EventReader(asked)
        await reader.next()
        await registry.revoke(entry.id)
        last = await reader.next()

        assert last is not None
        assert (last.name, last.data["status"], last.data["code"]) == ("problem", 401, "unauthenticated")
        assert await reader.next() is None


async def test_a_reader_that_takes_nothing_is_left(hub: Hub, registry: TokenRegistry, namespace: str) -> None:
    app = only(hub, registry, EventEndpoints(registry, EventStreamOptions(tick_s=0.01, stalled_s=0.05)))
    token, _ = await registry.create(Bearer.of(namespace, actor="ada"))

    async with AsgiCaller(app, token).asking("GET", "/quick/changes") as asked:
        asked.takes.clear()
        async with asyncio.timeout(60):
            await asked.ended.wait()

    assert asked.status == 200


async def test_a_caller_has_so_many_streams_and_no_more(hub: Hub, registry: TokenRegistry, namespace: str) -> None:
    app = only(hub, registry, EventEndpoints(registry, EventStreamOptions(most_each=1, most=2)))
    callers = [
        AsgiCaller(app, (await registry.create(Bearer.of(namespace, actor=name)))[0]) for name in ("a", "b", "c")
    ]

    async with callers[0].asking("GET", "/quick/changes"):
        again = await callers[0]("GET", "/quick/changes")
        async with callers[1].asking("GET", "/quick/changes"):
            third = await callers[2]("GET", "/quick/changes")
    after = await read_one(callers[0])

    assert [answer.status for answer in (again, third)] == [429, 429]
    assert again.headers["retry-after"] == "1"
    assert after == 200


async def read_one(caller: AsgiCaller) -> int:
    async with caller.asking("GET", "/quick/changes") as asked:
        return asked.status


def only(hub: Hub, registry: TokenRegistry, streams: EventEndpoints) -> RestApplication:
    """A service whose streams have other manners, under a path of their own."""
    quick = [
        replace(endpoint, path=f"/quick{endpoint.path}", name=f"quick.{endpoint.name}")
        for endpoint in streams.endpoints()
    ]
    return create_app(hub, admission=registry, endpoints=quick)


# -- memories -------------------------------------------------------------------------------------


async def test_memories_that_come_to_match_a_query_are_told(ada: AsgiCaller, read: Open) -> None:
    filters = quote_segment('{"category": "port"}')
    events = await read(f"/memory/events?query=harbour&threshold=0.1&filters={filters}")
    started = await events.next()

    for category in ("office", "port"):
        memory = {"id": category, "memory": "The harbour was flooded", "category": category}
        assert (await ada("POST", "/memory/items", {"item": memory, "dedup": False})).status < 300
    event = await events.next()

    assert started is not None
    assert event is not None
    assert (event.name, event.data["id"], event.id) == ("written", "port", event.data["cursor"])


@pytest.mark.parametrize("query", ["", "query=", "query=a&threshold=x", "query=a&filters=no", "query=a&other=1"])
async def test_a_query_that_cannot_be_followed_is_refused(ada: AsgiCaller, query: str) -> None:
    assert (await ada("GET", f"/memory/events?{query}")).status == 400
