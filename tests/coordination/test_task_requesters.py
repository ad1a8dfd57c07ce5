"""docs/security.md: a task that runs later has the name and the rights of the actor who asked for it.

Hubs that share a server stand for processes. Each test opens synthesis with another actor than the requester first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TypeAlias

import fakeredis
import pytest
from support.asgi_client import AsgiCaller
from support.graph_rows import GROUP, day
from support.notes import open_note_repository
from support.waiting import wait_until

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.faces.auth import Bearer
from sharedmem.faces.rest import create_app
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.models import Change, Note
from sharedmem.synthesis.tasks import QUEUE
from sharedmem.testing import ManualClock, fake_hub

APP, USER = "support", "user-1"
Open: TypeAlias = Callable[..., AbstractAsyncContextManager[Hub]]


@pytest.fixture(params=["fake", "real"])
def open_hub(request: pytest.FixtureRequest, settings: Settings) -> Open:
    """Opens hubs of one server, with the settings of all tests except the given ones."""
    if request.param == "real":
        url = request.getfixturevalue("redis_url")
        return lambda **changed: Hub.open(url, settings=settings.replace(**changed))
    server = fakeredis.FakeServer()
    return lambda **changed: fake_hub(server=server, settings=settings.replace(**changed))


@pytest.fixture
async def team(open_hub: Open) -> AsyncIterator[str]:
    """A namespace of this test alone."""
    name = f"test-{new_id(8)}"
    yield name
    async with open_hub() as hub:
        await hub.store(name).clear()


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def ask(store: SharedMemoryStore, text: str = "The lift in house four is broken.") -> str:
    """Ask for a note; the id of the task."""
    task = await store.synthesis.add_memory(app_id=APP, user_id=USER, session_id=new_id(8), messages=said(text))
    return task.task_id


async def names_of(store: SharedMemoryStore, task_id: str) -> tuple[str | None, set[str]]:
    """Of the note that a task makes: its author, and all who have signed a change of it."""
    done = await store.synthesis.wait(task_id, timeout=60)
    assert done.result is not None, done
    note = await store.synthesis.get_memory(done.result["memory_id"], app_id=APP)
    assert note is not None
    signed = {change.actor for change in await changes(store) if change.key.endswith(f"/{note.id}")}
    return note.created_by, signed


async def changes(store: SharedMemoryStore) -> list[Change]:
    """All changes of the namespace so far."""
    last = await store.shared.write("mark", 1, ttl=60)
    found: list[Change] = []
    async for change in store.watch(f"{store.namespace}:*", since=0):
        if change.version == last:
            return found
        found.append(change)
    raise AssertionError("the watch has ended")


# -- notes ------------------------------------------------------------------------------------


async def test_a_note_belongs_to_its_requester_whichever_actor_opened_synthesis_first(
    open_hub: Open, team: str
) -> None:
    async with open_hub() as hub:
        stores = [hub.store(team, actor="ada"), hub.store(team, actor="bob"), hub.store(team)]
        tasks = [await ask(store) for store in stores]

        assert [await names_of(stores[0], task) for task in tasks] == [
            ("ada", {"ada"}),
            ("bob", {"bob"}),
            ("shared", {"shared"}),
        ]


async def test_a_note_is_its_requesters_when_the_process_of_another_actor_makes_it(open_hub: Open, team: str) -> None:
    async with open_hub(synthesis_concurrency=0) as asking, open_hub() as working:
        task = await ask(asking.store(team, actor="bob"))
        ada = working.store(team, actor="ada")
        ada.synthesis.start()

        assert await names_of(ada, task) == ("bob", {"bob"})


async def test_a_task_of_a_worker_that_died_is_still_its_requesters(open_hub: Open, team: str) -> None:
    async with open_hub(synthesis_concurrency=0) as asking, open_hub() as working:
        task = await ask(asking.store(team, actor="bob"))
        taken = await asking.store(team, actor="eve").queue(QUEUE, visibility=0.2).claim()
        assert taken is not None  # and its worker is heard of no more
        ada = working.store(team, actor="ada")
        ada.synthesis.start()

        assert await names_of(ada, task) == ("bob", {"bob"})


async def test_a_task_that_is_tried_again_by_hand_is_still_its_requesters(open_hub: Open, team: str) -> None:
    async with open_hub(synthesis_concurrency=0) as asking, open_hub() as working:
        task = await ask(asking.store(team, actor="bob"))
        queue = asking.store(team, actor="eve").queue(QUEUE)
        taken = await queue.claim()
        assert taken is not None
        await queue.fail(taken, "the model was away")
        ada = working.store(team, actor="ada")
        assert await ada.synthesis.retry_task(task)

        assert await names_of(ada, task) == ("bob", {"bob"})


async def test_the_note_of_a_batch_is_of_the_actor_who_began_the_batch(open_hub: Open, team: str) -> None:
    async with open_hub() as hub:
        ada, bob = hub.store(team, actor="ada"), hub.store(team, actor="bob")
        ada.synthesis.start()
        await bob.synthesis.batcher(app_id=APP, user_id=USER, size=2).add(said("The lift is broken.")[0])
        (task,) = await ada.synthesis.batcher(app_id=APP, user_id=USER, size=2).add(said("Since when?")[0])

        assert await names_of(ada, task) == ("bob", {"bob"})


async def test_a_batch_that_waits_no_longer_is_its_requesters_too(open_hub: Open, team: str) -> None:
    async with open_hub() as hub:
        ada, bob = hub.store(team, actor="ada"), hub.store(team, actor="bob")
        ada.synthesis.start()
        await bob.synthesis.batcher(app_id=APP, user_id=USER, wait_s=0.0).add(said("The lift is broken.")[0])

        async def is_there() -> bool:
            return bool(await notes(hub, team))

        await wait_until(is_there, description="the batch has become a note")
        assert [note.created_by for note in await notes(hub, team)] == ["bob"]


async def notes(hub: Hub, team: str) -> list[Note]:
    return await open_note_repository(hub, team).page(APP)


# -- over REST --------------------------------------------------------------------------------


async def test_with_many_tokens_each_note_is_its_own_actors_also_when_the_first_token_is_revoked() -> None:
    async with fake_hub() as hub:
        registry = TokenRegistry(hub)
        app = create_app(hub, admission=registry)
        first, entry = await registry.create(Bearer.of("acme", actor="ada"))
        second, _ = await registry.create(Bearer.of("acme", actor="bob"))
        ada, bob = AsgiCaller(app, first), AsgiCaller(app, second)
        body = {"app_id": APP, "user_id": USER, "messages": said("The lift is broken.")}

        def asked(session: str) -> object:
            return body | {"session_id": session}

        tasks = [
            (await ada("POST", "/memories", asked("one"))).data["task_id"],
            (await bob("POST", "/memories", asked("two"))).data["task_id"],
        ]
        await registry.revoke(entry.id)
        refused = await ada("POST", "/memories", asked("three"))
        tasks.append((await bob("POST", "/memories", asked("four"))).data["task_id"])
        look = hub.store("acme")
        found = [await names_of(look, task) for task in tasks]

    assert refused.status == 401
    # What was accepted before the token was revoked is done; nothing else is done in that name.
    assert found == [("ada", {"ada"}), ("bob", {"bob"}), ("bob", {"bob"})]


# -- graphs and memories ----------------------------------------------------------------------


async def test_a_summary_of_a_conversation_is_of_the_actor_whose_turn_made_it_due(open_hub: Open, team: str) -> None:
    async with open_hub(graph_summary_every=2) as hub:
        ada, bob = hub.store(team, actor="ada"), hub.store(team, actor="bob")
        for number, store in enumerate((ada, ada, bob, bob)):
            await store.graph.add_episode(
                f"On day {number} the ferry was late.",
                group_id=GROUP,
                occurred_at=day(number),
                session="one" if store is ada else "two",
                extract=False,
            )

        async def are_there() -> bool:
            return (await ada.graph.stats(group_id=GROUP)).summaries == 2

        await wait_until(are_there, description="both summaries are there")
        summaries = await ada.graph.episodes(group_id=GROUP, kind="summary")
        ids = {summary.session: summary.id for summary in summaries}
        signed = {change.key.rpartition("/")[2]: change.actor for change in await changes(ada)}

    assert {session: _signer(signed, id_) for session, id_ in ids.items()} == {"one": "ada", "two": "bob"}


def _signer(signed: dict[str, str], id_: str) -> set[str] | str:
    found = {actor for key, actor in signed.items() if id_ in key}
    return found.pop() if len(found) == 1 else found


async def test_an_expired_memory_is_not_deleted_in_the_name_of_a_concurrent_writer() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        ada, bob = hub.store("team", actor="ada"), hub.store("team", actor="bob")
        await ada.memory.add("The lift is broken.", ttl=60)
        clock.advance(timedelta(days=1).total_seconds())
        for number in range(20):
            await bob.memory.add(f"House {number} has {number} windows.", dedup=False)
        expired = [change.actor for change in await changes(bob) if change.operation == "memory.expired"]

    assert expired == ["shared"]
