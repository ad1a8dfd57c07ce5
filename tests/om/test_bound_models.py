"""Models of users in a namespace: their keys, rights, changes, indexes and queries, on a real server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis_om
from aredis_om import EmbeddedJsonModel, Field, GeoFilter, HashModel, JsonModel, KNNExpression, VectorFieldOptions
from support.contexts import client_of

from sharedmem import (
    AccessDeniedError,
    CorruptionError,
    Grant,
    Hub,
    InvalidError,
    NotFoundError,
    Settings,
    SharedMemoryStore,
    UnsupportedError,
    om,
)
from sharedmem.clock import new_id
from sharedmem.sync import Hub as BlockingHub

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
VECTOR = VectorFieldOptions.flat(
    type=VectorFieldOptions.TYPE.FLOAT32, dimension=3, distance_metric=VectorFieldOptions.DISTANCE_METRIC.COSINE
)


class Place(EmbeddedJsonModel, index=True):
    city: str = Field(index=True)


class Ticket(JsonModel, index=True):
    title: str = Field(index=True, full_text_search=True)
    status: str = Field(default="open", index=True)
    priority: int = Field(default=1, index=True, sortable=True)
    tags: list[str] = Field(default_factory=list, index=True)
    urgent: bool = Field(default=False, index=True)
    opened: datetime = Field(default=BEGAN, index=True, sortable=True)
    place: Place | None = None
    note: str = ""
    meaning: list[float] = Field(default_factory=list, vector_options=VECTOR)

    def headline(self) -> str:
        return f"{self.title} ({self.status})"


class Part(HashModel, index=True):
    code: str = Field(primary_key=True)
    status: str = Field(index=True)
    price: float = Field(default=0.0, index=True, sortable=True)
    spare: bool = Field(default=False, index=True)
    maker: str | None = Field(default=None, index=True)
    distance: float | None = None
    meaning: list[float] = Field(default_factory=list, vector_options=VECTOR)


class BlockingTicket(redis_om.JsonModel, index=True):  # type: ignore[misc, call-arg]  # it has no types
    title: str = redis_om.Field(index=True)


@pytest.fixture
def desk(open_store: Callable[[str], SharedMemoryStore]) -> SharedMemoryStore:
    return open_store("ada")


@pytest.fixture
def tickets(desk: SharedMemoryStore) -> Any:
    return om.bind(desk, Ticket)


@pytest.fixture
def parts(desk: SharedMemoryStore) -> Any:
    return om.bind(desk, Part)


# -- objects ----------------------------------------------------------------------------------------------


async def test_an_object_is_stored_under_the_namespaces_hash_tag_and_read_as_it_was(tickets: Any, hub: Hub) -> None:
    saved = await tickets(title="The crane is out of order", tags=["port"], place=Place(city="Oslo")).save()

    read = await tickets.get(saved.pk)
    assert read == saved
    assert isinstance(read, Ticket)
    assert read.headline() == "The crane is out of order (open)"
    assert saved.key().endswith(f"}}:$om:ada:Ticket:{saved.pk}")
    assert await tickets.all_pks() == [saved.pk]


async def test_a_hash_loses_what_an_object_has_no_longer(parts: Any) -> None:
    one = await parts(code="c1", status="new", maker="Ash", meaning=[1, 2, 3], spare=True).save()
    one.maker = None
    await one.save()

    read = await parts.get("c1")
    assert (read.maker, read.meaning, read.spare) == (None, [1.0, 2.0, 3.0], True)
    assert await parts(code="c1", status="x").save(nx=True) is None
    assert await parts(code="c2", status="x").save(xx=True) is None
    assert (await one.save(xx=True)).status == "new"
    with pytest.raises(InvalidError, match="either nx or xx"):
        one.save(nx=True, xx=True)


async def test_an_object_is_updated_and_deleted(tickets: Any) -> None:
    one = await tickets(title="Crane", place=Place(city="Oslo")).save()
    two, three = await tickets.add([tickets(title="Tide"), tickets(title="Pump")])

    await one.update(status="closed", place__city="Bergen")
    assert [(each.status, each.place.city) for each in [await tickets.get(one.pk)]] == [("closed", "Bergen")]
    with pytest.raises(InvalidError, match="the fields of Ticket are"):
        one.update(colour="red")
    assert await tickets.delete(one.pk) == 1
    assert await tickets.delete(one.pk) == 0
    assert await tickets.delete_many([two, three]) == 2
    with pytest.raises(NotFoundError, match="Ticket"):
        await tickets.get(one.pk)


async def test_an_object_expires_and_each_save_counts_anew(desk: SharedMemoryStore, parts: Any, hub: Hub) -> None:
    short = om.bind(desk, Part, ttl=600)
    one = await short(code="c1", status="x").save()
    long = await parts(code="c2", status="x").save()
    place = desk.access

    async def left(key: str) -> int:
        reply = await client_of(hub).call("PTTL", key)
        assert isinstance(reply, int)
        return reply

    assert place is not None
    assert 500_000 < await left(one.key()) <= 600_000
    assert await left(long.key()) == -1
    assert await long.expire(60)
    assert 0 < await left(long.key()) <= 60_000
    await long.save()
    assert 0 < await left(long.key()) <= 60_000
    await one.save(ttl=5)
    assert 0 < await left(one.key()) <= 5_000
    with pytest.raises(InvalidError, match="ttl"):
        await one.save(ttl=-1)
    with pytest.raises(UnsupportedError, match="whole object"):
        one.expire_field("status", 5)


async def test_what_another_client_has_spoilt_is_named(tickets: Any, hub: Hub) -> None:
    one = await tickets(title="Crane").save()
    await client_of(hub).call("JSON.SET", one.key(), "$.priority", '"high"')

    with pytest.raises(CorruptionError, match="does not fit the model Ticket"):
        await tickets.get(one.pk)


@pytest.mark.parametrize("pk", ["", "a{b", "}:$om:bob:Ticket:x", "a\x00", "a::b", "x" * 600])
async def test_a_key_cannot_leave_its_model(tickets: Any, pk: str) -> None:
    with pytest.raises(InvalidError):
        await tickets.get(pk)
    with pytest.raises(InvalidError):
        await tickets.delete(pk)


# -- rights -----------------------------------------------------------------------------------------------


async def test_an_actor_reads_anothers_objects_and_writes_them_only_with_a_grant(
    tickets: Any, open_store: Callable[[str], SharedMemoryStore], hub: Hub, namespace: str
) -> None:
    own = await tickets(title="Crane").save()
    theirs = om.bind(open_store("bob"), Ticket, scope="ada")

    assert (await theirs.get(own.pk)).title == "Crane"
    assert await theirs.find(theirs.title % "crane").count() == 1
    one = await theirs.get(own.pk)
    for call in (one.save, lambda: one.update(status="x"), lambda: theirs.delete(own.pk), lambda: one.expire(9)):
        with pytest.raises(AccessDeniedError, match="'bob' may not write"):
            await call()
    assert (await tickets.get(own.pk)).status == "open"

    granted = hub.store(namespace, actor="bob", grants=(Grant(pattern=f"{namespace}:ada:Ticket:*"),))
    await (await om.bind(granted, Ticket, scope="ada").get(own.pk)).update(status="closed")
    assert (await tickets.get(own.pk)).status == "closed"


async def test_objects_of_the_shared_scope_are_everybodys(
    desk: SharedMemoryStore, open_store: Callable[[str], SharedMemoryStore]
) -> None:
    mine, bobs = om.bind(desk.shared, Ticket), om.bind(open_store("bob").shared, Ticket)
    one = await mine(title="Crane").save()

    await (await bobs.get(one.pk)).update(status="closed")
    assert [each.status for each in await mine.find().all()] == ["closed"]
    assert await om.bind(desk, Ticket).find().count() == 0


async def test_a_stranger_reads_nothing(tickets: Any, hub: Hub) -> None:
    one = await tickets(title="Crane").save()
    elsewhere = hub.store(f"om-{new_id(6)}", actor="ada")
    other = om.bind(elsewhere, Ticket)

    with pytest.raises(NotFoundError):
        await other.get(one.pk)
    assert await other.find().count() == 0
    await elsewhere.clear()


# -- what the store knows of them -------------------------------------------------------------------------


async def test_changes_are_on_the_feed(tickets: Any, desk: SharedMemoryStore) -> None:
    one = await tickets(title="Crane").save()
    await tickets.delete(one.pk)

    seen = []
    async for change in desk.watch(since=0):
        if change.key.endswith(one.pk):
            seen.append((change.operation, change.key, change.actor))
        if len(seen) == 2:
            break

    key = f"{desk.namespace}:$om:ada:Ticket:{one.pk}"
    assert seen == [("om.save", key, "ada"), ("om.delete", key, "ada")]


async def test_usage_and_clear_know_objects_and_their_indexes(
    tickets: Any, parts: Any, store: SharedMemoryStore, hub: Hub
) -> None:
    await tickets(title="Crane").save()
    await parts(code="c1", status="x").save()
    assert await tickets.find().count() == 1
    before: Any = await client_of(hub).call("FT._LIST")

    usage = await store.usage()
    assert usage.types["ReJSON-RL"].keys == 1
    assert usage.types["hash"].keys == 1
    assert await store.clear() == 2
    assert await tickets.find().count() == 0
    await store.clear()
    after: Any = await client_of(hub).call("FT._LIST")
    assert [name for name in after if b"$om.index" in name and store.namespace.encode() in name] == []
    assert [name for name in before if b"$om.index" in name and store.namespace.encode() in name] != []


async def test_damage_to_an_object_is_named(tickets: Any, store: SharedMemoryStore, hub: Hub) -> None:
    one = await tickets(title="Crane").save()
    await client_of(hub).call("DEL", one.key())
    await client_of(hub).call("SET", one.key(), "x")

    assert list(await store.damaged_keys()) == [one.key()]


# -- queries ----------------------------------------------------------------------------------------------


@pytest.fixture
async def some(tickets: Any) -> Any:
    for number in range(8):
        await tickets(
            title=f"The {'crane' if number % 2 else 'pump'} number {number}",
            status="open" if number % 4 else "closed|open",
            priority=number,
            tags=[f"t{number % 3}", "a|b"],
            urgent=number > 5,
            opened=BEGAN + timedelta(minutes=number),
            place=Place(city="Oslo" if number < 3 else "Bergen"),
            note=f"note {number}",
            meaning=[float(number), 1.0, 0.0],
        ).save()
    return tickets


async def test_objects_are_found_by_every_kind_of_field(some: Any) -> None:
    async def found(*conditions: Any) -> list[int]:
        return [one.priority for one in await some.find(*conditions).sort_by("priority").all()]

    assert await found(some.status == "open") == [1, 2, 3, 5, 6, 7]
    assert await found(some.status == "closed|open") == [0, 4]
    assert await found(some.status << ["closed|open"], some.tags == "t0") == [0]
    assert await found(some.tags == "a|b", some.priority > 5) == [6, 7]
    assert await found(some.title % "CRANES number") == [1, 3, 5, 7]
    assert await found(some.title % "the pump") == [0, 2, 4, 6]
    assert await found(some.title == "The pump number 2") == [2]
    assert await found((some.urgent == True) & ~(some.priority == 7)) == [6]  # noqa: E712  # as redis-om spells it
    assert await found(some.place.city == "Oslo") == [0, 1, 2]
    assert await found(some.opened < BEGAN + timedelta(minutes=2)) == [0, 1]
    assert await found(some.note.endswith("3") | (some.priority == 4)) == [3, 4]
    assert [one.priority for one in await some.find().sort_by("-opened").page(1, 2)] == [6, 5]
    assert await some.find(some.priority >= 3).count() == 5
    assert await some.find(some.status == "open").sort_by("priority").values("priority").first() == {"priority": 1}


async def test_the_nearest_objects_are_found(some: Any, parts: Any) -> None:
    nearest = await some.find(some.urgent == False).nearest([5.0, 1.0, 0.0], k=2).all()  # noqa: E712  # see above
    assert [one.priority for one in nearest] == [5, 4]
    with pytest.raises(InvalidError, match="has 3 numbers"):
        await some.find().nearest([1.0]).all()

    await parts.add([parts(code=f"c{n}", status="x", meaning=[n, 1, 0]) for n in range(4)])
    knn = KNNExpression(
        k=1, vector_field=parts.meaning, score_field=parts.distance, reference_vector=struct.pack("<3f", 3, 1, 0)
    )
    (found,) = await parts.find(knn=knn).all()
    assert (found.code, found.distance) == ("c3", pytest.approx(0, abs=1e-6))


async def test_an_object_with_an_empty_vector_is_found_and_one_of_another_dimension_refused(
    tickets: Any, parts: Any
) -> None:
    await tickets(title="Crane").save()
    await parts(code="c1", status="x").save()

    assert [one.meaning for one in await tickets.find(tickets.title % "crane").all()] == [[]]
    assert [one.meaning for one in await parts.find(parts.status == "x").all()] == [[]]
    for model, values in ((tickets, {"title": "Tide"}), (parts, {"code": "c2", "status": "x"})):
        with pytest.raises(InvalidError, match="give 3 numbers"):
            await model(**values, meaning=[1.0]).save()


@pytest.mark.parametrize(
    "text",
    ["x} | @status:{open", "open*", "*", "%open%", "open|closed", "@status:{open}", "=>[KNN 1]", "", " ", "\x1f"],
)
async def test_hostile_text_matches_itself_alone(some: Any, parts: Any, text: str) -> None:
    assert await some.find(some.status == text).count() == 0
    assert await some.find(some.status << [text, text]).count() == 0
    assert await some.find(some.tags >> [text]).count() == 8
    assert await some.find((some.title % text) & (some.title % "zzz")).count() == 0
    assert await some.find(some.title == text).count() == 0
    await parts(code="odd", status=text).save()
    await parts(code="plain", status="open").save()
    assert [one.code for one in await parts.find(parts.status == text).all()] == ["odd"]
    assert [one.code for one in await parts.find(parts.status != text).all()] == ["plain"]


async def test_a_changed_model_has_an_index_of_its_own(desk: SharedMemoryStore, some: Any) -> None:
    changed = _ticket_with_indexed_note()

    other = om.bind(desk, changed)
    assert [one.priority for one in await other.find(other.note == "note 3").all()] == [3]
    assert await some.find(some.status == "open").count() == 6


def _ticket_with_indexed_note() -> Any:
    class Ticket(JsonModel, index=True):
        title: str
        priority: int = Field(index=True, sortable=True)
        note: str = Field(default="", index=True)

    return Ticket


async def test_an_index_finds_what_was_saved_before_it(tickets: Any) -> None:
    await asyncio.gather(*(tickets(title=f"Crane {number}", priority=number).save() for number in range(50)))

    assert await tickets.find(tickets.priority < 10).count() == 10


# -- what is refused --------------------------------------------------------------------------------------


async def test_a_query_changes_nothing(some: Any) -> None:
    with pytest.raises(UnsupportedError, match="delete_many"):
        await some.find().delete()
    with pytest.raises(UnsupportedError, match="of each object"):
        await some.find().update(status="x")
    assert await some.find().count() == 8


async def test_what_is_not_a_model_of_the_same_package_is_refused(desk: SharedMemoryStore) -> None:
    things: tuple[Any, ...] = (str, Place, object(), type("Ticket", (), {}))
    for thing in things:
        with pytest.raises(InvalidError, match="JsonModel or HashModel"):
            om.bind(desk, thing)
    with pytest.raises(InvalidError, match=r"a store of sharedmem\.sync"):
        om.bind(desk, BlockingTicket)
    with pytest.raises(InvalidError, match="scope"):
        om.bind(desk, Ticket, scope="a:b")
    with pytest.raises(InvalidError, match="ttl"):
        om.bind(desk, Ticket, ttl=0)


async def test_a_field_that_redis_om_would_split_is_refused(desk: SharedMemoryStore) -> None:
    class Listed(HashModel, index=True):
        names: str = Field(index=True, separator=",")

    with pytest.raises(InvalidError, match="a text is one value"):
        om.bind(desk, Listed)


async def test_a_place_on_the_map_cannot_be_asked_for(tickets: Any) -> None:
    with pytest.raises(InvalidError, match="give a text, number"):
        tickets.find(tickets.title == GeoFilter(0, 0, 1, "km"))


async def test_the_library_forgets_bound_models_and_needs_no_connection(tickets: Any) -> None:
    from aredis_om.model.model import model_registry

    assert [model for model in model_registry.values() if model is tickets] == []
    with pytest.raises(Exception, match="use the methods of the model"):
        tickets.db().get("x")


async def test_a_server_without_modules_says_what_is_missing(fake: Hub) -> None:
    with pytest.raises(UnsupportedError, match="JsonModel Ticket"):
        om.bind(fake.store("team", actor="ada"), Ticket)
    bound: Any = om.bind(fake.store("team", actor="ada"), Part)
    one = await bound(code="c1", status="x").save()
    assert (await bound.get("c1")).status == "x"
    assert await bound.all_pks() == ["c1"]
    with pytest.raises(UnsupportedError, match="a query for Part"):
        await bound.find().count()
    assert await bound.delete(one.pk) == 1


def test_a_blocking_model_returns_results(redis_url: str, settings: Settings) -> None:
    with BlockingHub.open(redis_url, settings=settings) as hub:
        name = f"om-{new_id(8)}"
        tickets: Any = om.bind(hub.store(name, actor="ada"), BlockingTicket)
        one = tickets(title="Crane").save()
        assert tickets.get(one.pk).title == "Crane"
        assert [each.title for each in tickets.find(tickets.title == "Crane")] == ["Crane"]
        one.update(title="Pump")
        assert tickets.find(tickets.title == "Pump").count() == 1
        assert tickets.delete(one.pk) == 1
        with pytest.raises(InvalidError, match=r"a store of sharedmem$"):
            om.bind(hub.store(name), Ticket)
        hub.store(name).clear()
