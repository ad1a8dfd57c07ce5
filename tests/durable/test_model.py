"""The store is the same dictionary when a durable tier stands behind it, whatever Redis forgets.

The machine of `test_store_model`, with more rules: changes are carried to the tier, keys are evicted with or without
their states, copies expire, Redis is emptied. The model hears of none of them, except for what is ephemeral.
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
from hypothesis.errors import Flaky
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from redis import Redis
from store.test_model import CLIENTS, FIELDS, KEYS, MEMBERS, VALUES, Model, StoreMachine
from support.contexts import async_twin_of, client_of, portal_of
from support.example_budget import example_count
from support.redis_process import RedisProcess

from sharedmem import Settings, SharedMemoryError, WrongTypeError
from sharedmem.redis.replies import Reply
from sharedmem.sync import Hub, SharedMemoryStore
from sharedmem.testing import ManualClock, connect_to_fake

CACHE_S, EPHEMERAL_S, TTL_S = 3600, 7200, 10 * 86_400
EXAMPLES = example_count(7, thorough=25)
RULES = {"by rule": {"model-*": "knowledge"}, "sessions": {"model-*": "session"}, "through": {"model-*": "knowledge"}}
_TAKE_KIND = frozenset({"write", "write_many", "append", "hset", "hincrby", "sadd", "incr", "update"})
_SHORT_S, _LOOK_S = 1.0, 0.02


class World(NamedTuple):
    """Where a machine lives."""

    hubs: list[Hub]
    bare: Redis
    manner: str
    """How keys last: `by rule`, `by argument` of each call, as `sessions`, or `through`."""
    clock: SharedClock | None
    """Of the fake server."""


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


class Saying:
    """A store whose calls say that the key is to last: all of them, or only the ones that make the key."""

    def __init__(self, store: SharedMemoryStore, machine: TierMachine, *, always: bool) -> None:
        self._store = store
        self._machine = machine
        self._always = always

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        return call if name not in _TAKE_KIND else lambda key, *args, **named: self._said(call, key, *args, **named)

    def _said(self, call: Any, key: Any, *args: Any, **named: Any) -> Any:
        keys = [key] if isinstance(key, str) else list(key)
        if self._always or not all(one in self._machine.before for one in keys):
            self._machine.model.said.update(keys)
            named["kind"] = "knowledge"
        return call(key, *args, **named)


class LastingModel(Model):
    """A model that knows which keys expire some day, and which are ephemeral."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines: dict[str, float] = {}
        self.ephemeral: set[str] = set()
        self.touched: set[str] = set()
        self.said: set[str] = set()
        """Those of which the call has said that they are to last."""

    def put(self, key: str, kind: str, value: Any, *, version: int = 0) -> None:
        if version or key not in self.held:
            self.deadlines.pop(key, None)
        self.touched.add(key)
        super().put(key, kind, value, version=version)

    def lose(self, keys: set[str]) -> None:
        """Some keys are gone, with all that is known of them."""
        for key in keys:
            self.held.pop(key, None)

    def is_any(self, key: str, *kinds: str) -> bool:
        return key not in self.held or self.held[key][0] in kinds


class TierMachine(StoreMachine):
    """Two hubs with a durable tier work on one namespace, and Redis loses what the tier has."""

    world: World

    def __init__(self) -> None:
        self.hubs, self.bare = self.world.hubs, self.world.bare
        super().__init__()
        self.model: LastingModel = LastingModel()
        self.changes_before = 0
        self.before: dict[str, tuple[str, Any]] = {}
        self.plain_stores = self.stores
        self.by_argument = self.world.manner == "by argument"
        if self.by_argument:
            told: Any = [Saying(store, self, always=number == 0) for number, store in enumerate(self.stores)]
            self.stores = told

    def key_of(self, key: str) -> str:
        return f"sm:{{{self.namespace}}}:shared:{key}"

    def state_of(self, key: str) -> str:
        return f"sm:{{{self.namespace}}}:$kept.state:shared:{key}"

    # The bare client knows nothing of the clock that the fake server goes by, hence not by that.

    def is_in_redis(self, key: str) -> bool:
        return self.ask("EXISTS", self.key_of(key)) == 1

    def state(self, key: str) -> Reply:
        return self.ask("GET", self.state_of(key))

    def ask(self, *command: str) -> Reply:
        hub = self.hubs[0]
        return portal_of(hub).run(client_of(async_twin_of(hub)).call(*command))

    @property
    def now(self) -> float:
        return 0.0 if self.world.clock is None else self.world.clock.monotonic()

    # -- invisible steps

    @rule(client=CLIENTS)
    def drain(self, client: int) -> None:
        self.hubs[client].durable.drain(self.namespace)

    @precondition(lambda self: self.world.clock is None)  # a clock that turns itself does not wait for the worker
    @rule(key=KEYS)
    def evict(self, key: str) -> None:
        self.bare.unlink(self.key_of(key))
        self.model.lose({key} & self.model.ephemeral)

    @rule(key=KEYS, what=st.sampled_from(["both", "state", "key"]))
    def evict_what_is_drained(self, key: str, what: str) -> None:
        if key in self.model.ephemeral:
            return
        self.drain(0)
        if what == "state" and key in self.model.deadlines:
            return  # a copy cannot be told from what expires by itself: it stays too long rather than not long enough
        if what != "key":
            self.bare.unlink(self.state_of(key))
        if what != "state":
            self.bare.unlink(self.key_of(key))

    @rule(client=CLIENTS)
    def compare(self, client: int) -> None:
        """Not even the tier's own comparison notices."""
        self.drain(client)
        found = self.hubs[client].durable.verify(self.namespace)
        assert (found.waiting, found.differences) == (0, [])

    @rule()
    def lose_redis(self) -> None:
        self.drain(0)
        self.bare.flushall()
        self.model.lose(self.model.ephemeral)
        self.model.changes = 0

    @precondition(lambda self: self.world.clock is not None)
    @rule()
    def let_copies_expire(self) -> None:
        self.pass_time(CACHE_S + 1)

    def pass_time(self, seconds: float) -> None:
        assert self.world.clock is not None
        self.world.clock.advance(seconds)
        self.model.lose({key for key, deadline in self.model.deadlines.items() if deadline <= self.now})

    # -- expiry

    @precondition(lambda self: self.world.manner != "sessions")
    @rule(client=CLIENTS, key=KEYS)
    def expire(self, client: int, key: str, ttl_s: float = TTL_S) -> None:
        there = key in self.model.held
        assert self.stores[client].expire(key, ttl_s) is there
        if there:
            self.model.deadlines[key] = self.now + ttl_s
            self.model.touched.add(key)
            self.model.changes += 1

    @precondition(lambda self: self.world.manner != "sessions")
    @rule(client=CLIENTS, key=KEYS)
    def persist(self, client: int, key: str) -> None:
        expires = key in self.model.held and key in self.model.deadlines
        assert self.stores[client].persist(key) is expires
        if expires:
            del self.model.deadlines[key]
            self.model.touched.add(key)
            self.model.changes += 1

    @precondition(lambda self: self.world.clock is not None and self.world.manner != "sessions")
    @rule(client=CLIENTS, key=KEYS, lost=st.sampled_from(["nothing", "key", "all", "key late"]))
    def let_a_key_expire(self, client: int, key: str, lost: str) -> None:
        self.expire(client, key, 60)
        if lost == "all":
            self.lose_redis()
        elif lost == "key" and key not in self.model.ephemeral:
            self.evict_what_is_drained(key, "both")
        self.pass_time(61)
        if lost == "key late":
            self.drain(0)

    # -- kinds

    @precondition(lambda self: self.world.manner != "sessions")
    @rule(client=CLIENTS, key=KEYS, member=MEMBERS)
    def make_ephemeral(self, client: int, key: str, member: Any) -> None:
        """Whatever the key was, from now on it is in Redis alone."""
        store, model = self.plain_stores[client], self.model
        kind, before = model.held.get(key, ("list", []))
        if kind == "list":
            store.append(key, member, kind="ephemeral")
            model.put(key, kind, [*before, member])
        elif kind == "hash":
            store.hset(key, "f", member, kind="ephemeral")
            model.put(key, kind, before | {"f": member})
        elif kind == "set":
            store.sadd(key, member, kind="ephemeral")
            model.put(key, kind, before | {member})
        else:
            model.put(key, "value", member, version=store.write(key, member, kind="ephemeral"))
        model.changes += 1
        model.deadlines[key] = self.now + EPHEMERAL_S
        model.touched.discard(key)
        model.ephemeral.add(key)

    # -- calls

    @rule(client=CLIENTS, key=KEYS, value=VALUES)
    def write(self, client: int, key: str, value: Any) -> None:
        if not self.model.is_any(key, "value", "counter") and self.is_in_redis(key):
            with pytest.raises(WrongTypeError):
                self.stores[client].write(key, value)
            return
        # What is not in Redis is not brought back only to be written over.
        version = self.stores[client].write(key, value)
        assert version > max(self.model.versions.values(), default=0)
        self.model.put(key, "value", value, version=version)
        self.model.changes += 1

    @rule(client=CLIENTS, one=VALUES, other=VALUES)
    def write_many(self, client: int, one: Any, other: Any) -> None:
        values = {"a": one, "b": other}
        if not all(self.model.is_any(key, "value", "counter") for key in values):
            return
        for key, version in self.stores[client].write_many(values).items():
            self.model.put(key, "value", values[key], version=version)
            self.model.changes += 1

    @rule(client=CLIENTS, key=KEYS, value=VALUES)
    def update(self, client: int, key: str, value: Any) -> None:
        deadline = self.model.deadlines.get(key) if key in self.model.held else None
        super().update(client, key, value)
        if deadline is not None and not (self.by_argument and client == 0):
            self.model.deadlines[key] = deadline

    @rule(key=KEYS, client=CLIENTS, value=st.integers(-99, 99))
    def write_by_a_bare_client(self, key: str, client: int, value: int) -> None:
        """What another client writes lasts from the next call on that changes it."""
        # Until then it may be dropped like a copy: by a worker whose changes another hub has settled meanwhile, and
        # Redis has lost since. That worker has its own time on a real server.
        for may_be_dropped in (self.world.clock is None, False):
            self.bare.set(self.key_of(key), value)
            self.model.deadlines.pop(key, None)
            self.model.put(key, "counter", value)
            try:
                found = self.stores[client].incr(key, 0)
            except WrongTypeError:
                assert may_be_dropped
                continue
            self.model.changes += 1
            if found == value:
                return
            assert may_be_dropped

    def delete_by_a_bare_client(self, key: str) -> None:
        """That is an eviction here."""

    @rule(client=CLIENTS, key=KEYS, field=FIELDS, by=st.integers(-9, 9))
    def hincrby(self, client: int, key: str, field: str, by: int) -> None:
        fields = self.model.held.get(key, ("hash", {}))[1]
        if not self.model.is_any(key, "hash") or not _is_small(fields.get(field, 0)):
            return
        number = fields.get(field, 0) + by
        assert self.stores[client].hincrby(key, field, by) == number
        self.model.put(key, "hash", fields | {field: number})
        self.model.changes += 1

    @rule(client=CLIENTS, key=KEYS, member=MEMBERS)
    def sadd(self, client: int, key: str, member: Any) -> None:
        kind, members = self.before.get(key, ("none", ()))
        is_unknown = self.is_in_redis(key) and self.state(key) is None
        super().sadd(client, key, member)
        if kind == "set" and member in members:
            # The life of a session begins anew with each call; what was ephemeral or unknown begins to last.
            lasts = not self.by_argument or key in self.model.said
            begins = lasts if key in self.model.ephemeral else is_unknown
            self.model.changes += begins or self.world.manner == "sessions"

    @rule(client=CLIENTS, key=KEYS)
    def spop(self, client: int, key: str) -> None:
        if not self.model.is_any(key, "set"):
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
        if not self.model.is_any(source, "set") or not self.model.is_any(destination, "set"):
            return
        if self.by_argument and destination not in self.model.held:
            return  # it would not last, and no argument of a move could say so
        members = self.model.get(source, "set", set())
        assert self.stores[client].smove(source, destination, member) is (member in members)
        if member in members:
            if source == destination:  # it stays, and the deadline of the set too; but that is a change
                self.model.touched.add(source)
            else:
                self.model.put(source, "set", members - {member})
                self.model.put(destination, "set", self.model.get(destination, "set", set()) | {member})
            self.model.changes += 2

    # -- after each step

    @invariant()
    def what_is_changed_by_a_lasting_call_lasts(self) -> None:
        model = self.model
        if model.changes != self.changes_before:
            model.ephemeral -= model.touched & model.said if self.by_argument else model.touched
        model.ephemeral &= model.held.keys()
        model.touched.clear()
        model.said.clear()
        self.before = dict(model.held)
        self.changes_before = model.changes

    # -- now and then

    @rule()
    def everyone_sees_what_the_model_holds(self) -> None:
        super().everyone_sees_what_the_model_holds()
        for store in self.stores:
            for key, members in self.model.of("list").items():
                assert store.read_list(key) == members
            for key in self.model.of("value"):
                entry = store.entry(key)
                assert entry is not None
                assert entry.version == self.model.versions[key]
            if self.world.manner != "sessions":
                expiring = {key for key in self.model.held if store.ttl(key) is not None}
                assert expiring == self.model.deadlines.keys() & self.model.held.keys()

    def teardown(self) -> None:
        self.everyone_sees_what_the_model_holds()
        self.lose_redis()
        self.everyone_sees_what_the_model_holds()
        super().teardown()
        self.model.held.clear()
        self.everyone_sees_what_the_model_holds()
        self.lose_redis()
        self.everyone_sees_what_the_model_holds()


def _is_small(value: object) -> bool:
    return type(value) is int and abs(value) < 2**60


@pytest.fixture(params=["by rule", "by argument", "sessions", "through"])
def manner(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(params=["fakeredis", "redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path, manner: str) -> Iterator[World]:
    """Two hubs with a tier, and a bare client of their server."""
    settings = Settings(
        data_dir=tmp_path,
        durable_url=f"sqlite://{tmp_path}/durable.sqlite3",
        kind_rules=RULES.get(manner, {}),
        knowledge_durability="through" if manner == "through" else "behind",
        knowledge_cache_s=CACHE_S,
        ephemeral_ttl_s=EPHEMERAL_S,
    )
    with ExitStack() as stack:
        clock: SharedClock | None = None
        if request.param == "fakeredis":
            clock = SharedClock()
            server = fakeredis.FakeServer()
            opened = [Hub(settings=settings, clock=clock, connect=connect_to_fake(server)) for _ in range(2)]
            bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
        else:
            private = stack.enter_context(RedisProcess())
            opened = [Hub.open(private.url, settings=settings) for _ in range(2)]
            bare = private.client()
        hubs = [stack.enter_context(hub) for hub in opened]
        yield World(hubs, stack.enter_context(bare), manner, clock)


def run(machine: type[TierMachine], world: World, **effort: Any) -> None:
    bound: Any = type("Bound", (machine,), {"world": world})
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    # How far a worker has come is not repeatable, hence of several failures the first is told.
    effort |= {"deadline": None, "suppress_health_check": quiet, "report_multiple_bugs": False}
    run_state_machine_as_test(bound, settings=effort_of(**effort))


def test_callers_do_not_notice_what_redis_forgets(world: World) -> None:
    run(TierMachine, world, max_examples=EXAMPLES, stateful_step_count=30)


@pytest.mark.parametrize("manner", ["by rule"], indirect=True)
def test_control_what_was_not_carried_yet_is_missed(world: World) -> None:
    class Hasty(TierMachine):
        @rule(client=CLIENTS)
        def drain(self, client: int) -> None:
            self.bare.unlink(f"sm:{{{self.namespace}}}:$outbox")  # and nothing was carried
            super().drain(client)

    no_shrinking = {"phases": (Phase.generate,), "database": None}
    # A miss that a repeat does not show again, since the worker came further, is told as flaky.
    missed = (AssertionError, SharedMemoryError, pytest.fail.Exception, ExceptionGroup, Flaky)
    with pytest.raises(missed):
        run(Hasty, world, max_examples=50, stateful_step_count=30, **no_shrinking)
