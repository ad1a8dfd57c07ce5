"""The store does what a dictionary would do: random calls by several clients, compared with a small model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from redis import Redis
from support import shared_models
from support.example_budget import example_count
from support.shared_models import Clients, check_that_it_notices, run_machine

from sharedmem import InvalidError, VersionConflictError, WrongTypeError
from sharedmem.clock import new_id
from sharedmem.sync import Hub, SharedMemoryStore

clients = shared_models.clients
KEYS = st.sampled_from(["a", "b", "c"])
CLIENTS = st.integers(0, 1)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.binary(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
MEMBERS = st.integers(0, 3) | st.sampled_from(["x", b"x"])
FIELDS = st.sampled_from(["f", "g"])


class Model:
    """What a namespace holds: for each key its type, its value, and the version of whole values."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.changes = 0

    def get(self, key: str, kind: str, empty: Any) -> Any:
        found, value = self.held.get(key, (kind, empty))
        if found != kind:
            raise InvalidError("key", key, "it holds another type")
        return value

    def put(self, key: str, kind: str, value: Any, *, version: int = 0) -> None:
        self.held.pop(key, None)
        self.versions[key] = version
        if kind in {"value", "counter"} or value:  # an empty list, hash or set is no longer there
            self.held[key] = (kind, value)

    def of(self, kind: str) -> dict[str, Any]:
        return {key: value for key, (found, value) in self.held.items() if found == kind}


class StoreMachine(RuleBasedStateMachine):
    """Two hubs and a bare client work on one namespace; each answer is the model's."""

    hubs: list[Hub]
    bare: Redis

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{new_id(8)}"
        self.stores: list[SharedMemoryStore] = [hub.store(self.namespace) for hub in self.hubs]
        self.model = Model()

    def same(self, real: Callable[[], Any], modelled: Callable[[], Any]) -> bool:
        """Whether both have succeeded: both answer the same, or both refuse."""
        try:
            wanted = modelled()
        except InvalidError:
            with pytest.raises(InvalidError):
                real()
            return False
        found = real()
        assert found == wanted
        assert type(found) is type(wanted)
        return True

    # -- whole values

    @rule(client=CLIENTS, key=KEYS, value=VALUES)
    def write(self, client: int, key: str, value: Any) -> None:
        if key in self.model.held and self.model.held[key][0] not in {"value", "counter"}:
            with pytest.raises(WrongTypeError):
                self.stores[client].write(key, value)
            return
        version = self.stores[client].write(key, value)
        assert version > max(self.model.versions.values(), default=0)
        self.model.put(key, "value", value, version=version)
        self.model.changes += 1

    @rule(client=CLIENTS, key=KEYS, value=VALUES, guess=st.sampled_from(["current", "absent", "old"]))
    def write_if(self, client: int, key: str, value: Any, guess: str) -> None:
        kind = self.model.held.get(key, ("none", None))[0]
        known = self.model.versions.get(key, 0)
        version = {"current": known, "absent": 0, "old": max(known - 1, 1)}[guess]
        call = partial(self.stores[client].write, key, value, if_version=version)
        if kind in {"list", "hash", "set"}:
            with pytest.raises(WrongTypeError):
                call()
        elif (version == 0 and kind == "none") or (version == known != 0 and kind == "value"):
            self.model.put(key, "value", value, version=call())
            self.model.changes += 1
        else:
            with pytest.raises(VersionConflictError) as caught:
                call()
            assert caught.value.current == (known if kind == "value" else 0)

    @rule(key=KEYS, value=st.integers(-99, 99))
    def write_by_a_bare_client(self, key: str, value: int) -> None:
        self.bare.set(f"sm:{{{self.namespace}}}:shared:{key}", value)
        self.model.put(key, "counter", value)

    @rule(client=CLIENTS, key=KEYS)
    def delete(self, client: int, key: str) -> None:
        there = self.model.held.pop(key, None) is not None
        assert self.stores[client].delete(key) is there
        self.model.changes += there

    @rule(key=KEYS)
    def delete_by_a_bare_client(self, key: str) -> None:
        self.bare.delete(f"sm:{{{self.namespace}}}:shared:{key}")
        self.model.held.pop(key, None)

    @rule(client=CLIENTS, key=KEYS, value=VALUES)
    def update(self, client: int, key: str, value: Any) -> None:
        self.model.changes += self.same(
            lambda: self.stores[client].update(key, lambda before: [before, value]),
            lambda: [self.readable(key), value],
        )
        if self.model.held.get(key, ("value", None))[0] in {"value", "counter"}:
            entry = self.stores[client].entry(key)
            assert entry is not None
            self.model.put(key, "value", entry.value, version=entry.version)

    def readable(self, key: str) -> Any:
        kind, value = self.model.held.get(key, ("value", None))
        if kind not in {"value", "counter"}:
            raise WrongTypeError(key, kind, "value")
        return value

    # -- structures

    @rule(client=CLIENTS, key=KEYS, value=VALUES, most=st.none() | st.integers(1, 3))
    def append(self, client: int, key: str, value: Any, most: int | None) -> None:
        def modelled() -> int:
            kept = [*self.model.get(key, "list", []), value][-(most or 100) :]
            self.model.put(key, "list", kept)
            return len(kept)

        self.model.changes += self.same(lambda: self.stores[client].append(key, value, max_length=most), modelled)

    @rule(client=CLIENTS, key=KEYS, start=st.integers(-4, 4), end=st.integers(-4, 4))
    def read_list(self, client: int, key: str, start: int, end: int) -> None:
        def modelled() -> list[Any]:
            kept = self.model.get(key, "list", [])
            first = max(start + len(kept), 0) if start < 0 else start
            last = end + len(kept) if end < 0 else end
            return [value for number, value in enumerate(kept) if first <= number <= last]

        self.same(lambda: self.stores[client].read_list(key, start, end), modelled)

    @rule(client=CLIENTS, key=KEYS, field=FIELDS, value=VALUES)
    def hset(self, client: int, key: str, field: str, value: Any) -> None:
        def modelled() -> int:
            fields = self.model.get(key, "hash", {})
            self.model.put(key, "hash", fields | {field: value})
            return int(field not in fields)

        self.model.changes += self.same(lambda: self.stores[client].hset(key, field, value), modelled)

    @rule(client=CLIENTS, key=KEYS, field=FIELDS)
    def hdel(self, client: int, key: str, field: str) -> None:
        def modelled() -> int:
            fields = self.model.get(key, "hash", {})
            there = field in fields
            if there:
                self.model.put(key, "hash", {name: value for name, value in fields.items() if name != field})
                self.model.changes += 1
            return int(there)

        self.same(lambda: self.stores[client].hdel(key, field), modelled)

    @rule(client=CLIENTS, key=KEYS, member=MEMBERS)
    def sadd(self, client: int, key: str, member: Any) -> None:
        def modelled() -> int:
            members = self.model.get(key, "set", set())
            self.model.changes += member not in members
            self.model.put(key, "set", members | {member})
            return int(member not in members)

        self.same(lambda: self.stores[client].sadd(key, member), modelled)

    @rule(client=CLIENTS, key=KEYS, member=MEMBERS)
    def srem(self, client: int, key: str, member: Any) -> None:
        def modelled() -> int:
            members = self.model.get(key, "set", set())
            if member not in members:
                return 0
            self.model.changes += 1
            self.model.put(key, "set", members - {member})
            return 1

        self.same(lambda: self.stores[client].srem(key, member), modelled)

    @rule(client=CLIENTS, key=KEYS, by=st.integers(-(2**62), 2**62))
    def incr(self, client: int, key: str, by: int) -> None:
        def modelled() -> int:
            number: int = self.model.get(key, "counter", 0) + by
            if not -(2**63) <= number < 2**63:
                raise InvalidError("key", key, "out of range")
            self.model.put(key, "counter", number)
            return number

        self.model.changes += self.same(lambda: self.stores[client].incr(key, by), modelled)

    # -- always

    @invariant()
    def everyone_sees_what_the_model_holds(self) -> None:
        for store in self.stores:
            assert store.read_many(["a", "b", "c"]) == self.model.of("value") | self.model.of("counter")
            for key, members in self.model.of("set").items():
                assert store.smembers(key) == members
            for key, fields in self.model.of("hash").items():
                assert store.hgetall(key) == fields
            found = store.keys()
            assert {key.rpartition(":")[2] for key in found} == set(self.model.held)

    def teardown(self) -> None:
        self.stores[0].write("end", None)
        told = 0
        for change in self.stores[1].watch(since=0):
            if change.key.endswith(":end"):
                break
            told += 1
        self.stores[0].clear()
        assert told == self.model.changes, "every change is announced once, and nothing else"


def test_the_store_is_a_dictionary_that_clients_share(clients: Clients) -> None:
    run_machine(StoreMachine, clients, max_examples=example_count(7, thorough=20), stateful_step_count=30)


def test_the_model_notices_a_wrong_answer(clients: Clients) -> None:
    class Forgetful(StoreMachine):
        @rule(client=CLIENTS, key=KEYS)
        def delete(self, client: int, key: str) -> None:
            self.stores[client].delete(key)  # and the model is not told

    check_that_it_notices(Forgetful, clients)
