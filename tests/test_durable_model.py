"""The store is the same dictionary when a durable tier stands behind it, and Redis forgets what it likes.

The machine of `test_store_model`, with more rules: changes are carried to the tier, keys are evicted with or without
their states, copies expire, Redis is emptied. The model hears of none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as effort_of
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from redis import Redis
from support.bare_server import BareServer
from support.losses import line_of
from test_store_model import CLIENTS, FIELDS, KEYS, MEMBERS, VALUES, Model, StoreMachine

from sharedmem import Settings, SharedMemoryError, WrongTypeError
from sharedmem.sync import Hub, SharedMemoryStore
from sharedmem.testing import ManualClock, connect_to_fake

CACHE_S = 3600
TTL_S = 10 * 86_400
STRUCTURES = ("list", "hash", "set")
_SHORT_S, _LOOK_S = 1.0, 0.02
_TAKE_KIND = frozenset({"write", "write_many", "append", "hset", "hincrby", "sadd", "incr", "update"})


class World(NamedTuple):
    """Where a machine lives."""

    hubs: list[Hub]
    bare: Redis
    manner: str
    """How keys last: `by rule`, `by argument` of each call, as `sessions`, or `through`."""
    clock: SharedClock | None
    """Of the fake server."""


class Saying:
    """A store whose calls say that the key is to last: all of them, or only those that make the key."""

    def __init__(self, store: SharedMemoryStore, machine: TierMachine, *, always: bool) -> None:
        self._store = store
        self._machine = machine
        self._always = always

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in _TAKE_KIND:
            return call

        def said(key: Any, *args: Any, **named: Any) -> Any:
            keys = [key] if isinstance(key, str) else list(key)
            if self._always or not all(one in self._machine.known for one in keys):
                named["kind"] = "knowledge"
            return call(key, *args, **named)

        return said


class LastingModel(Model):
    """A model that knows which keys expire some day."""

    def __init__(self) -> None:
        super().__init__()
        self.expiring: set[str] = set()

    def put(self, key: str, kind: str, value: Any, *, version: int = 0) -> None:
        if version or key not in self.held:
            self.expiring.discard(key)
        super().put(key, kind, value, version=version)


class TierMachine(StoreMachine):
    """Two hubs with a durable tier work on one namespace, and Redis loses what the tier has."""

    world: World

    def __init__(self) -> None:
        self.hubs, self.bare = self.world.hubs, self.world.bare
        super().__init__()
        self.model: LastingModel = LastingModel()
        # What is in Redis or the tier: a key that is deleted and made again is to be told its kind again.
        self.known: set[str] = set()
        self.by_argument = self.world.manner == "by argument"
        if self.by_argument:
            told: Any = [Saying(store, self, always=number == 0) for number, store in enumerate(self.stores)]
            self.stores = told

    def key_of(self, key: str) -> str:
        return f"{self.hubs[0].settings.prefix}:{{{self.namespace}}}:shared:{key}"

    def state_of(self, key: str) -> str:
        return f"{self.hubs[0].settings.prefix}:{{{self.namespace}}}:$kept.state:shared:{key}"

    def is_in_redis(self, key: str) -> bool:
        hub = self.hubs[0]
        return hub._portal.run(line_of(hub._async).call("EXISTS", self.key_of(key))) == 1  # noqa: SLF001

    def drain_all(self, client: int = 0) -> None:
        hub = self.hubs[client]
        hub._portal.run(hub._async.durable.drainer.drain(self.namespace))  # noqa: SLF001

    # -- what nobody notices

    @rule(client=CLIENTS)
    def drain(self, client: int) -> None:
        self.drain_all(client)

    @rule(key=KEYS)
    def evict(self, key: str) -> None:
        self.bare.unlink(self.key_of(key))

    @rule(key=KEYS, what=st.sampled_from(["both", "state"]))
    def evict_what_is_drained(self, key: str, what: str) -> None:
        self.drain_all()
        self.bare.unlink(self.state_of(key))
        if what == "both":
            self.bare.unlink(self.key_of(key))

    @rule()
    def lose_redis(self) -> None:
        self.drain_all()
        self.bare.flushall()
        self.model.changes = 0

    @precondition(lambda self: self.world.clock is not None)
    @rule()
    def let_copies_expire(self) -> None:
        self.pass_time(CACHE_S + 1)

    def pass_time(self, seconds: float) -> None:
        assert self.world.clock is not None
        self.world.clock.advance(seconds)

    # -- calls

    @rule(client=CLIENTS, key=KEYS, value=VALUES)
    def write(self, client: int, key: str, value: Any) -> None:
        if self.kind_of(key) in STRUCTURES and self.is_in_redis(key):
            with pytest.raises(WrongTypeError):
                self.stores[client].write(key, value)
            return
        # What is not in Redis is not loaded to be written over.
        version = self.stores[client].write(key, value)
        assert version > max(self.model.versions.values(), default=0)
        self.model.put(key, "value", value, version=version)
        self.model.changes += 1

    @rule(client=CLIENTS, one=VALUES, other=VALUES)
    def write_many(self, client: int, one: Any, other: Any) -> None:
        values = {"a": one, "b": other}
        kinds = {self.model.held.get(key, ("none", None))[0] for key in values}
        if kinds & set(STRUCTURES):
            return
        for key, version in self.stores[client].write_many(values).items():
            self.model.put(key, "value", values[key], version=version)
            self.model.changes += 1

    @rule(key=KEYS, client=CLIENTS, value=st.integers(-99, 99))
    def write_by_a_bare_client(self, key: str, client: int, value: int) -> None:
        """What another client writes lasts from the next call on that changes it."""
        self.bare.set(self.key_of(key), value)
        self.model.put(key, "counter", value)
        assert self.stores[client].incr(key, 0) == value
        self.model.changes += 1

    def delete_by_a_bare_client(self, key: str) -> None:
        """That is an eviction here."""

    @rule(client=CLIENTS, key=KEYS, field=FIELDS, by=st.integers(-9, 9))
    def hincrby(self, client: int, key: str, field: str, by: int) -> None:
        fields = self.model.held.get(key, ("hash", {}))[1] if self.kind_of(key) in {"hash", "none"} else None
        if fields is None or type(fields.get(field, 0)) is not int or abs(fields.get(field, 0)) > 2**60:
            return
        number = fields.get(field, 0) + by
        assert self.stores[client].hincrby(key, field, by) == number
        self.model.put(key, "hash", fields | {field: number})
        self.model.changes += 1

    @rule(client=CLIENTS, key=KEYS)
    def spop(self, client: int, key: str) -> None:
        if self.kind_of(key) not in {"set", "none"}:
            return
        members = self.model.get(key, "set", set())
        member = self.stores[client].spop(key)
        if not members:
            assert member is None
            return
        assert member in members
        self.model.put(key, "set", members - {member})
        self.model.changes += 1

    @rule(client=CLIENTS, source=KEYS, destination=KEYS, member=MEMBERS)
    def smove(self, client: int, source: str, destination: str, member: Any) -> None:
        if not {self.kind_of(source), self.kind_of(destination)} <= {"set", "none"}:
            return
        if self.by_argument and destination not in self.model.held:
            return  # it would not last, which no argument can say
        members = self.model.get(source, "set", set())
        assert self.stores[client].smove(source, destination, member) is (member in members)
        if member in members:
            self.model.put(source, "set", members - {member})
            self.model.put(destination, "set", self.model.get(destination, "set", set()) | {member})
            self.model.changes += 2

    # -- expiry

    @precondition(lambda self: self.world.manner != "sessions")
    @rule(client=CLIENTS, key=KEYS)
    def expire(self, client: int, key: str) -> None:
        there = key in self.model.held
        assert self.stores[client].expire(key, TTL_S) is there
        if there:
            self.model.expiring.add(key)
            self.model.changes += 1

    @precondition(lambda self: self.world.manner != "sessions")
    @rule(client=CLIENTS, key=KEYS)
    def persist(self, client: int, key: str) -> None:
        expires = key in self.model.held and key in self.model.expiring
        assert self.stores[client].persist(key) is expires
        self.model.changes += expires
        self.model.expiring.discard(key)

    @precondition(lambda self: self.world.clock is not None)
    @rule(client=CLIENTS, key=KEYS, lost=st.sampled_from(["nothing", "key", "all", "key late"]))
    def let_a_key_expire(self, client: int, key: str, lost: str) -> None:
        there = key in self.model.held
        assert self.stores[client].expire(key, 60) is there
        self.model.changes += there
        if lost == "all":
            self.lose_redis()
        elif lost == "key":
            self.evict_what_is_drained(key, "both")
        self.pass_time(61)
        if lost == "key late":
            self.drain_all()
        self.model.held.pop(key, None)

    @rule(client=CLIENTS, key=KEYS, value=VALUES)
    def update(self, client: int, key: str, value: Any) -> None:
        stays = key in self.model.held and key in self.model.expiring and not (self.by_argument and client == 0)
        super().update(client, key, value)
        if stays:
            self.model.expiring.add(key)

    def kind_of(self, key: str) -> str:
        return self.model.held.get(key, ("none", None))[0]

    # -- now and then

    @invariant()
    def remember_what_is_known(self) -> None:
        self.known = set(self.model.held)

    @rule()
    def everyone_sees_what_the_model_holds(self) -> None:
        super().everyone_sees_what_the_model_holds()
        for store in self.stores:
            for key, members in self.model.of("list").items():
                assert store.read_list(key) == members
            if self.world.manner != "sessions":
                assert {key for key in self.model.held if store.ttl(key)} == self.model.expiring & set(self.model.held)
            for key in self.model.of("value"):
                entry = store.entry(key)
                assert entry is not None
                assert entry.version == self.model.versions[key]

    def teardown(self) -> None:
        self.everyone_sees_what_the_model_holds()
        self.lose_redis()
        self.everyone_sees_what_the_model_holds()
        super().teardown()
        self.model.held.clear()
        self.everyone_sees_what_the_model_holds()
        self.lose_redis()
        self.everyone_sees_what_the_model_holds()


class SharedClock(ManualClock):
    """A clock for hubs whose event loops run in several threads: who sleeps looks again and again.

    It is far ahead of the machine's clock, by which the bare client goes: to that one nothing has expired.
    """

    def __init__(self) -> None:
        super().__init__(datetime(2100, 1, 1, tzinfo=UTC))
        self._turning = Lock()

    def advance(self, seconds: float) -> None:
        with self._turning:
            super().advance(seconds)

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        if seconds < _SHORT_S:
            self.advance(max(seconds, 0))
        await asyncio.sleep(0)
        while self.monotonic() < until:  # noqa: ASYNC110  # no event may cross threads
            await asyncio.sleep(_LOOK_S)


def settings_of(folder: Path, manner: str) -> Settings:
    rules = {"by rule": {"model-*": "knowledge"}, "sessions": {"model-*": "session"}, "through": {"model-*": "knowledge"}}
    return Settings(
        data_dir=folder,
        durable_url=f"sqlite://{folder}/durable.sqlite3",
        kind_rules=rules.get(manner, {}),
        knowledge_durability="through" if manner == "through" else "behind",
        knowledge_cache_s=CACHE_S,
    )


@pytest.fixture(params=["by rule", "by argument", "sessions", "through"])
def manner(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(params=["fakeredis", "redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path, manner: str) -> Iterator[World]:
    """Two hubs with a tier, and a bare client of their server."""
    settings = settings_of(tmp_path, manner)
    with ExitStack() as stack:
        if request.param == "fakeredis":
            clock: SharedClock | None = SharedClock()
            server = fakeredis.FakeServer()
            opened = [Hub(settings=settings, clock=clock, connect=connect_to_fake(server)) for _ in range(2)]
            bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
        else:
            clock = None
            private = stack.enter_context(BareServer())
            opened = [Hub.open(private.url, settings=settings) for _ in range(2)]
            bare = private.client()
        hubs = [stack.enter_context(hub) for hub in opened]
        yield World(hubs, stack.enter_context(bare), manner, clock)


def run(machine: type[TierMachine], world: World, **effort: Any) -> None:
    bound: Any = type("Bound", (machine,), {"world": world})
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    run_state_machine_as_test(bound, settings=effort_of(deadline=None, suppress_health_check=quiet, **effort))


def test_nobody_notices_what_redis_forgets(world: World) -> None:
    run(TierMachine, world, max_examples=20, stateful_step_count=30, report_multiple_bugs=False)
