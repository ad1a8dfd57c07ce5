"""docs/security.md: who may change and delete what an actor has added to memory, notes and graphs.

Bob adds everything. Eve is another actor of the namespace, dan holds a grant, and a store without an actor speaks for
the namespace itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import fakeredis
import pytest
from support.asgi_client import AsgiCaller
from support.contexts import knowledge_of
from support.graph_rows import GROUP, day
from support.note_chains import make_chain_note
from support.note_harness import NoteHarness

from sharedmem import AccessDeniedError, Hub, InvalidError, Settings, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.faces.auth import Bearer
from sharedmem.faces.rest import create_app
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.memory.repository import MemoryRepository
from sharedmem.models import MemoryItem, RetentionRule, RetentionRules
from sharedmem.redis.scope import EVERYONE, Identity, check_grants
from sharedmem.testing import ManualClock, fake_hub

APP, USER = "support", "user-1"
TEXT = "The lift in house four is broken."
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
async def owned(open_hub: Open) -> AsyncIterator[Hub]:
    """A hub in which what an actor adds is its own."""
    async with open_hub(memory_rights="owner") as hub:
        yield hub


@pytest.fixture
async def team(owned: Hub) -> AsyncIterator[str]:
    """A namespace of this test alone."""
    name = f"test-{new_id(8)}"
    yield name
    await owned.store(name).clear()


class Added(NamedTuple):
    """What bob has added."""

    memory: str
    changed: str
    """A memory that bob has changed."""
    deleted: str
    """A memory that bob has deleted."""
    episode: str
    bare: str
    """An episode whose facts were not extracted."""
    fact: str
    note: str


async def added_by(bob: SharedMemoryStore, team: SharedMemoryStore) -> Added:
    memory = await bob.memory.add(TEXT)
    changed = await bob.memory.add("Ada drinks tea with milk.")
    await bob.memory.update(changed.id, memory="Ada drinks tea with lemon.")
    deleted = await bob.memory.add("The office closes at noon.")
    await bob.memory.delete(deleted.id)
    fact = await bob.graph.add_relationship("Ada", "lives_in", "Lyon", group_id=GROUP, valid_from=day(1))
    bare = await bob.graph.add_episode("Carl met Dora.", group_id=GROUP, occurred_at=day(2), extract=False)
    await bob.graph.add_relationship("Adele", "knows", "Dora", group_id=GROUP, valid_from=day(1))
    await team.graph.merge("Adele", "Ada", group_id=GROUP)
    task = await bob.synthesis.add_memory(app_id=APP, user_id=USER, messages=[{"role": "user", "content": TEXT}])
    done = await bob.synthesis.wait(task.task_id, timeout=60)
    assert done.result is not None, done
    return Added(
        memory=memory.id,
        changed=changed.id,
        deleted=deleted.id,
        episode=fact.episode_ids[-1],
        bare=bare.id,
        fact=fact.id,
        note=done.result["memory_id"],
    )


class Case(NamedTuple):
    """A call that changes or deletes what bob has added."""

    grant: str
    """What dan needs for it, in the namespace."""
    call: Callable[[SharedMemoryStore, Added], Awaitable[Any]]
    is_authors: bool = True
    """Whether bob may do it: it concerns what he has added, and nothing of others."""


async def import_newer(store: SharedMemoryStore, added: Added) -> None:
    newer = MemoryItem(
        id=added.memory, memory="The lift works.", created_at=day(1), updated_at=datetime.now(UTC) + timedelta(days=1)
    )
    assert await store.memory.import_([newer]) == 1


CASES = {
    "memory.update": Case("bob:memory", lambda store, added: store.memory.update(added.memory, memory="It works.")),
    "memory.delete": Case("bob:memory", lambda store, added: store.memory.delete(added.memory)),
    "memory.delete_all": Case("bob:memory", lambda store, _: store.memory.delete_all({})),
    "memory.undo": Case("bob:memory", lambda store, added: store.memory.undo(added.changed)),
    "memory.undo of a deletion": Case("bob:memory", lambda store, added: store.memory.undo(added.deleted)),
    "memory.import_": Case("bob:memory", import_newer),
    "graph.undo": Case("bob:graph", lambda store, added: store.graph.undo(added.episode, group_id=GROUP)),
    "graph.invalidate": Case("bob:graph", lambda store, added: store.graph.invalidate(added.fact, group_id=GROUP)),
    "graph.extract": Case("bob:graph", lambda store, added: store.graph.extract(added.bare, group_id=GROUP)),
    "graph.add_relationship to an episode": Case(
        "bob:graph",
        lambda store, added: store.graph.add_relationship(
            "Carl", "lives_in", "Nice", group_id=GROUP, episode=added.bare
        ),
    ),
    "graph.add_episode under the id of a statement": Case(
        "bob:graph",
        lambda store, added: store.graph.add_episode("Ada lives in Nice.", group_id=GROUP, id=added.episode),
    ),
    "graph.merge": Case("*", lambda store, _: store.graph.merge("Dora", "Ada", group_id=GROUP), is_authors=False),
    "graph.unmerge": Case("*", lambda store, _: store.graph.unmerge("Adele", group_id=GROUP), is_authors=False),
    "graph.delete_by_group": Case("*", lambda store, _: store.graph.delete_by_group(GROUP), is_authors=False),
    "synthesis.delete_memory": Case(
        "bob:notes", lambda store, added: store.synthesis.delete_memory(added.note, app_id=APP)
    ),
    "synthesis.update_memory_status": Case(
        "bob:notes", lambda store, added: store.synthesis.update_memory_status(added.note, "deleted", app_id=APP)
    ),
    "synthesis.erase": Case("bob:notes", lambda store, _: store.synthesis.erase(app_id=APP)),
    "synthesis.erase a user": Case("bob:notes", lambda store, _: store.synthesis.erase(app_id=APP, user_id=USER)),
}


async def told(store: SharedMemoryStore) -> list[str]:
    """Every change of the namespace so far."""
    last = await store.shared.write("mark", 1, ttl=60)
    found: list[str] = []
    async for change in store.watch(f"{store.namespace}:*", since=0):
        if change.version == last:
            break
        if not change.key.endswith(":mark"):
            found.append(f"{change.operation} {change.key}")
    return found


@pytest.mark.parametrize("name", CASES)
async def test_what_an_actor_has_added_only_its_author_the_namespace_and_holders_of_grants_change(
    owned: Hub, team: str, name: str
) -> None:
    case, whole = CASES[name], owned.store(team)
    added = await added_by(owned.store(team, actor="bob"), whole)
    before = await told(whole)

    with pytest.raises(AccessDeniedError) as refused:
        await case.call(owned.store(team, actor="eve"), added)
    others = check_grants([f"{team}:carl:*", f"{team}:?:{case.grant.rpartition(':')[2]}"])
    with pytest.raises(AccessDeniedError):
        await case.call(owned.store(team, actor="eve", grants=others), added)

    assert await told(whole) == before
    assert f"grants=('{team}:{case.grant}',)" in str(refused.value)
    await case.call(owned.store(team, actor="dan", grants=(f"{team}:{case.grant}",)), added)
    assert await told(whole) != before


@pytest.mark.parametrize("name", CASES)
async def test_the_author_and_the_namespace_itself_may(owned: Hub, team: str, name: str) -> None:
    case, bob, whole = CASES[name], owned.store(team, actor="bob"), owned.store(team)
    added = await added_by(bob, whole)
    before = await told(whole)

    await case.call(bob if case.is_authors else whole, added)

    assert await told(whole) != before


@pytest.mark.parametrize("name", CASES)
async def test_shared_lets_every_actor_of_the_namespace_do_it(open_hub: Open, team: str, name: str) -> None:
    async with open_hub() as hub:
        whole = hub.store(team)
        added = await added_by(hub.store(team, actor="bob"), whole)
        before = await told(whole)

        await CASES[name].call(hub.store(team, actor="eve"), added)

        assert await told(whole) != before


# -- authors ----------------------------------------------------------------------------------


async def test_who_adds_is_the_author_whatever_the_item_says(owned: Hub, team: str) -> None:
    eve, whole = owned.store(team, actor="eve"), owned.store(team)
    forged = MemoryItem(id="one", memory=TEXT, created_by="bob", agent_id="bob")
    await eve.memory.add(forged)
    episode = await eve.graph.add_episode("Carl met Dora.", group_id=GROUP, extract=False)
    await whole.memory.add(MemoryItem(id="two", memory="The office closes at noon."))
    await eve.memory.import_([MemoryItem(id="three", memory="Ada drinks tea.", created_by="bob")])
    await whole.memory.import_([MemoryItem(id="four", memory="Bob drinks tea.", created_by="bob")])

    items = [await whole.memory.get(id_) for id_ in ("one", "two", "three", "four")]

    assert [item and item.created_by for item in items] == ["eve", "shared", "eve", "bob"]
    assert episode.episode.created_by == "eve"
    with pytest.raises(InvalidError, match="created_by"):
        await eve.memory.update("one", created_by="bob")  # type: ignore[call-arg]  # that is what is refused


async def test_what_says_the_same_is_merged_and_stays_its_authors(owned: Hub, team: str) -> None:
    bob, eve = owned.store(team, actor="bob"), owned.store(team, actor="eve")
    first = await bob.memory.add(TEXT)
    again = await eve.memory.add(TEXT)

    assert (again.id, again.merged) == (first.id, True)
    item = await eve.memory.get(first.id)
    assert item is not None
    assert (item.created_by, item.occurrences) == ("bob", 2)
    with pytest.raises(AccessDeniedError):
        await eve.memory.delete(first.id)


async def test_what_a_merge_is_split_into_is_of_who_said_it(owned: Hub, team: str) -> None:
    bob, eve = owned.store(team, actor="bob"), owned.store(team, actor="eve")
    first = await bob.memory.add(TEXT)
    await eve.memory.add(TEXT)
    await bob.memory.undo(first.id)

    found = {item.id: item.created_by async for item in bob.memory.export()}

    assert found.pop(first.id) == "bob"
    assert list(found.values()) == ["eve"]


async def test_an_actor_deletes_all_of_its_own_and_nothing_before_it_is_refused(owned: Hub, team: str) -> None:
    bob, eve = owned.store(team, actor="bob"), owned.store(team, actor="eve")
    for number in range(3):
        await eve.memory.add(f"House {number} has {number} windows.", dedup=False)
    await bob.memory.add(TEXT)

    with pytest.raises(AccessDeniedError):
        await eve.memory.delete_all({})
    assert (await bob.memory.stats()).count == 4
    assert await eve.memory.delete_all({"agent_id": "eve"}) == 3


async def test_what_is_replaced_meanwhile_by_another_author_is_not_deleted(owned: Hub, team: str) -> None:
    bob, eve = owned.store(team, actor="bob"), owned.store(team, actor="eve")
    await eve.memory.add(MemoryItem(id="one", memory="Ada drinks tea."))
    repository = MemoryRepository.of(knowledge_of(owned), team)
    held = repository.held

    async def held_and_replaced(ids: Any) -> Any:
        repository.held = held  # type: ignore[method-assign]  # once
        found = await held(ids)
        await eve.memory.delete("one")
        await bob.memory.add(MemoryItem(id="one", memory=TEXT))
        return found

    repository.held = held_and_replaced  # type: ignore[method-assign]  # what happens between a look and a write
    with pytest.raises(AccessDeniedError):
        await eve.memory.delete("one")
    assert (item := await bob.memory.get("one")) is not None
    assert item.created_by == "bob"


async def test_a_fact_that_others_say_too_is_not_closed_also_when_they_say_it_meanwhile(
    open_hub: Open, owned: Hub, team: str
) -> None:
    graph = owned.store(team, actor="eve").graph
    fact = await graph.add_relationship("Ada", "lives_in", "Lyon", group_id=GROUP, valid_from=day(1))
    commit = graph.backend.commit
    async with open_hub(memory_rights="owner") as hub:
        bob = hub.store(team, actor="bob").graph

        async def told_first(*args: Any, **more: Any) -> Any:
            graph.backend.commit = commit  # type: ignore[method-assign]  # once
            await bob.add_relationship("Ada", "lives_in", "Lyon", group_id=GROUP, valid_from=day(1))
            return await commit(*args, **more)

        graph.backend.commit = told_first  # type: ignore[method-assign]  # what happens between a look and a write
        with pytest.raises(AccessDeniedError):
            await graph.invalidate(fact.id, group_id=GROUP)
        (known,) = await bob.facts("Ada", group_id=GROUP)
    assert known.valid_to is None


async def test_the_summary_of_a_thread_is_renewed_by_any_caller(owned: Hub, team: str) -> None:
    bob, eve = owned.store(team, actor="bob"), owned.store(team, actor="eve")
    await bob.memory.add(TEXT, thread_id="t1", messages=[{"role": "user", "content": TEXT}])
    await bob.memory.summarize_thread("t1")
    said = "It is repaired on Monday."
    await eve.memory.add(said, thread_id="t1", messages=[{"role": "user", "content": said}])

    assert "Monday" in await eve.memory.summarize_thread("t1")


async def test_an_actor_forgets_what_it_has_asked_for_but_no_tasks_of_others(open_hub: Open, team: str) -> None:
    async with open_hub(memory_rights="owner", synthesis_concurrency=0) as hub:
        bob, eve = hub.store(team, actor="bob"), hub.store(team, actor="eve")
        said = [{"role": "user", "content": TEXT}]
        await bob.synthesis.add_memory(app_id=APP, user_id="bobs", messages=said)
        await eve.synthesis.add_memory(app_id=APP, user_id="eves", messages=said)

        with pytest.raises(AccessDeniedError):
            await eve.synthesis.erase(app_id=APP)
        assert len(await bob.synthesis.tasks()) == 2
        assert (await eve.synthesis.erase(app_id=APP, user_id="eves")).tasks == 1


# -- old notes --------------------------------------------------------------------------------


OLD_NOTES: dict[str, Callable[[SharedMemoryStore], Awaitable[Any]]] = {
    "restore": lambda store: store.synthesis.restore_memory("gone", app_id="desk"),
    "archive": lambda store: store.synthesis.archive(app_id="desk"),
    "unarchive": lambda store: store.synthesis.unarchive("put away", app_id="desk"),
    "retain": lambda store: store.synthesis.retain(
        RetentionRules(rules=(RetentionRule(max_age_days=1),), keeps_heads=False), app_id="desk"
    ),
    "fsck": lambda store: store.synthesis.fsck(app_id="desk", repair=True),
}


@pytest.mark.parametrize("name", OLD_NOTES)
async def test_notes_are_put_away_restored_repaired_and_retired_for_good_by_their_authors_alone(name: str) -> None:
    clock = ManualClock()
    settings = Settings(embedder="hashing", memory_rights="owner")
    async with fake_hub(clock=clock, settings=settings) as hub:
        bob, ground = hub.store("team", actor="bob"), NoteHarness(hub.store("team"), clock)
        await ground.put(make_chain_note("put away", created_by="bob"))
        ground.pass_years(11)
        await bob.synthesis.archive(app_id="desk")
        await ground.put(
            make_chain_note("old", created_by="bob"),
            make_chain_note("gone", created_by="bob", status="deleted", status_reason="manual_update"),
        )
        if name == "fsck":
            await ground.put(make_chain_note("torn", created_by="bob", status="updated", next_id="nowhere"))
        before = await ground.all()

        with pytest.raises(AccessDeniedError):
            await OLD_NOTES[name](hub.store("team", actor="eve"))

        assert await ground.all() == before
        await OLD_NOTES[name](bob)
        assert await ground.all() != before


# -- every face -------------------------------------------------------------------------------


async def test_over_rest_the_refusal_is_a_403_that_says_what_a_token_lacks() -> None:
    async with fake_hub(settings=Settings(embedder="hashing", memory_rights="owner")) as hub:
        registry = TokenRegistry(hub)
        app = create_app(hub, admission=registry)
        bob, eve = [
            AsgiCaller(app, (await registry.create(Bearer.of("acme", actor=actor)))[0]) for actor in ("bob", "eve")
        ]
        id_ = (await bob("POST", "/memory/items", {"item": {"memory": TEXT}})).data["id"]
        refused = await eve("DELETE", f"/memory/items/{id_}")
        done = await bob("DELETE", f"/memory/items/{id_}")

    assert refused.status == 403
    assert "--grant acme:bob:memory" in refused.data["detail"]
    assert done.status in {200, 204}


# -- the rule itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actor", "author", "grants", "may"),
    [
        ("bob", "bob", (), True),
        ("eve", "bob", (), False),
        (None, "bob", (), True),
        ("eve", "bob", ("team:bob:memory",), True),
        ("eve", "bob", ("team:bob:*",), True),
        ("eve", "bob", ("team:b*:memory",), True),
        ("eve", "bob", ("team:bob:notes",), False),
        ("eve", "bob", ("other:bob:*",), False),
        ("eve", "shared", (), False),
        ("shared", "shared", (), False),
        ("eve", "shared", ("team:shared:memory",), True),
        ("bob", EVERYONE, (), False),
        ("bob", EVERYONE, ("team:*",), True),
        ("bob", EVERYONE, ("team:*:memory",), True),
        ("bob", EVERYONE, ("team:?:memory", "team:b*:memory"), False),
    ],
)
def test_the_right_to_change_is_the_right_to_write_in_the_authors_name(
    actor: str | None, author: str, grants: tuple[str, ...], *, may: bool
) -> None:
    def identity(**more: Any) -> Identity:
        return Identity("team", actor, grants=check_grants(grants), **more)

    assert identity(memory_rights="owner").may_change(author, "memory") is may
    assert identity(memory_rights="shared").may_change(author, "memory")
    assert identity(memory_rights="owner", policy="open").may_change(author, "memory")
