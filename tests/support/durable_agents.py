"""Agents as processes that live for many rounds, work at random on keys that last, and are killed without warning.

`python -m support.durable_agents <socket>` is one of them. It connects to the socket, takes orders as lines of JSON,
and reports each call before it is made and when it has returned.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple

from sharedmem import (
    DurabilityPendingError,
    Hub,
    Settings,
    SharedMemoryError,
    SharedMemoryStore,
    UnavailableError,
    VersionConflictError,
)
from sharedmem.durable.protocol import Durable
from sharedmem.models import DurableRecord, Outcome, Put
from support.contexts import tier_of

FAR_S = 1_000_000
_LATER_S, _BREATH_S = 0.2, 0.005
_OPEN_FOR_S = 30.0
COUNTED, TOTALLED = "count", "total"
_FIELDS, _MEMBERS = ("f", "g"), (0, 1, 2)


class PlannedCall(NamedTuple):
    """What an agent is about to do."""

    what: str
    key: str
    part: str
    """Field of a hash, member of a set, item of a list; else nothing."""
    value: int


# -- what there is to do --------------------------------------------------------------------------


def choose_call(dice: random.Random, agent: int, number: int) -> PlannedCall:
    """A call at random: a look at any key, or a change of the agent's own, in which it has no rival, or of all's."""
    kind = dice.choices("vlhsct", (8, 5, 5, 4, 2, 2))[0]
    if dice.random() < 0.1:
        shared = {"c": COUNTED, "t": TOTALLED}
        return PlannedCall("look", shared.get(kind, f"{kind}{dice.randrange(2)}-{dice.randrange(2)}"), "", 0)
    key = f"{kind}{agent}-{dice.randrange(2)}"
    if kind in "ct":
        return PlannedCall({"c": "incr", "t": "update_total"}[kind], {"c": COUNTED, "t": TOTALLED}[kind], "", 1)
    if dice.random() < 0.1:
        return PlannedCall(dice.choice(("delete", "delete", "expire")), key, "", 0)
    if kind == "v":
        return PlannedCall(dice.choice(("write", "write", "write_if", "update", "read")), key, "", number)
    if kind == "l":
        return PlannedCall("append", key, str(number), number)
    if kind == "h":
        return PlannedCall(dice.choice(("hset", "hset", "hdel")), key, dice.choice(_FIELDS), number)
    return PlannedCall(dice.choice(("sadd", "sadd", "srem")), key, str(dice.choice(_MEMBERS)), number)


async def write_if(store: SharedMemoryStore, call: PlannedCall, kind: str | None) -> int:
    """Write over what is there."""
    entry = await store.entry(call.key)
    return await store.write(call.key, call.value, kind=kind, if_version=entry.version if entry else 0)


_MADE: dict[str, Callable[[SharedMemoryStore, PlannedCall, str | None], Awaitable[object]]] = {
    "write": lambda store, call, kind: store.write(call.key, call.value, kind=kind),
    "write_if": write_if,
    "update": lambda store, call, kind: store.update(call.key, lambda _: call.value, kind=kind),
    "update_total": lambda store, call, kind: store.update(call.key, _increment, default=0, kind=kind),
    "incr": lambda store, call, kind: store.incr(call.key, kind=kind),
    "append": lambda store, call, kind: store.append(call.key, call.value, kind=kind),
    "hset": lambda store, call, kind: store.hset(call.key, call.part, call.value, kind=kind),
    "hdel": lambda store, call, _: store.hdel(call.key, call.part),
    "sadd": lambda store, call, kind: store.sadd(call.key, int(call.part), kind=kind),
    "srem": lambda store, call, _: store.srem(call.key, int(call.part)),
    "delete": lambda store, call, _: store.delete(call.key),
    "expire": lambda store, call, _: store.expire(call.key, FAR_S),
    "look": lambda store, call, _: store.exists(call.key),
    "read": lambda store, call, _: store.read(call.key),
}
WRITES = frozenset({"write", "write_if"})
"""They answer a version."""
_REPORTED_ANSWERS = WRITES | {"read"}
_MAY_REMOVE = frozenset({"delete", "hdel", "srem"})
_CHANGES = frozenset({"write", "write_if", "update", "update_total", "incr", "append", "hset", "sadd"})


def _increment(total: int) -> int:
    return total + 1


class NamedKinds:
    """The kind that each call names.

    Args:
        kind: of all keys; None where rules give it.
        says_it_once: whether a key's calls name it only until one of them was acknowledged, and the next rely on it.
    """

    def __init__(self, kind: str | None, *, says_it_once: bool) -> None:
        self._kind, self._says_it_once = kind, says_it_once
        self._named: set[str] = set()

    def of(self, call: PlannedCall) -> str | None:
        """The kind to name in this call."""
        return None if self._says_it_once and call.key in self._named else self._kind

    def acknowledged(self, call: PlannedCall) -> None:
        """Hear that a call has taken effect."""
        if call.what in _CHANGES:
            self._named.add(call.key)

    def begun(self, call: PlannedCall) -> None:
        """Hear of a call that may remove its key."""
        if call.what in _MAY_REMOVE:
            self._named.discard(call.key)


async def _open_hub(settings: dict[str, Any], stack: AsyncExitStack) -> Hub:
    """Open a hub; on a busy machine, or while the server starts anew, one connection more may be needed."""
    ends_at = time.monotonic() + _OPEN_FOR_S
    while True:
        try:
            return await stack.enter_async_context(Hub.open(settings=Settings(**settings)))
        except UnavailableError:
            if time.monotonic() > ends_at:
                raise


# -- an agent -------------------------------------------------------------------------------------


class DurableAgent:
    """Carries out orders until the test closes the socket.

    Args:
        orders: where they come from.
        out: where it reports what it does.
    """

    def __init__(self, orders: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        self._orders, self._out = orders, out
        self._hubs: dict[str, Hub] = {}

    async def serve(self) -> None:
        """Carry out order by order."""
        self._report("pid", os.getpid())
        async with AsyncExitStack() as stack:
            while line := await self._orders.readline():
                await self._carry_out(json.loads(line), stack)

    async def _carry_out(self, order: dict[str, Any], stack: AsyncExitStack) -> None:
        hub = await self._hub(order["settings"], order["broken"], stack)
        store = hub.store(order["namespace"])
        kinds = NamedKinds(order["kind"], says_it_once=order.get("says_kind_once", False))
        if order["calls"]:
            await self._work(store, [PlannedCall(*call) for call in order["calls"]], kinds)
        elif order["steps"]:
            dice = random.Random(order["seed"])
            calls = (choose_call(dice, order["agent"], at) for at in range(order["steps"]))
            await self._work(store, calls, kinds)
        else:
            await self._carry(hub, order["namespace"])
        self._report("done")

    async def _hub(self, settings: dict[str, Any], broken: str, stack: AsyncExitStack) -> Hub:
        name = json.dumps([settings, broken])
        if name not in self._hubs:
            hub = await _open_hub(settings, stack)
            await install_broken_tier(hub, broken)
            self._hubs[name] = hub
        return self._hubs[name]

    async def _work(self, store: SharedMemoryStore, calls: Iterable[PlannedCall], kinds: NamedKinds) -> None:
        for call in calls:
            self._report("try", time.monotonic(), *call)
            kinds.begun(call)
            try:
                answer = await _MADE[call.what](store, call, kinds.of(call))
            except VersionConflictError:
                self._report("refused")
            except (DurabilityPendingError, UnavailableError):
                self._report("unknown")
            else:
                kinds.acknowledged(call)
                self._report("acknowledged", answer if call.what in _REPORTED_ANSWERS else None)

    async def _carry(self, hub: Hub, namespace: str) -> None:
        """Only carry what the others leave, until there is another line."""
        enough = asyncio.ensure_future(self._orders.readline())
        while not enough.done():
            await hub.durable.drain(namespace)
            await asyncio.sleep(_BREATH_S)

    def _report(self, *words: object) -> None:
        # It is in the socket, which outlives this process, before the next thing is done.
        self._out.write(json.dumps(words).encode() + b"\n")


# -- what is broken on purpose, for the controls ---------------------------------------------------


class AckBeforePutDurable:
    """A tier that says it has things before it has them.

    Args:
        durable: the real one.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._later: set[asyncio.Task[object]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._durable, name)

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store them in a while."""
        later = asyncio.create_task(self._put_later(list(records)))
        self._later.add(later)
        later.add_done_callback(self._later.discard)
        return [Put(outcome=Outcome.STORED)] * len(records)

    async def _put_later(self, records: Sequence[DurableRecord]) -> None:
        await asyncio.sleep(_LATER_S)
        with suppress(SharedMemoryError):
            await self._durable.put(records)


class DropTombstonesDurable:
    """A tier that hears of no deletion.

    Args:
        durable: the real one.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._durable, name)

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store the documents that are no tombstones."""
        await self._durable.put([record for record in records if not record.deleted])
        return [Put(outcome=Outcome.STORED)] * len(records)


_BROKEN: dict[str, Callable[[Durable], Any]] = {
    "acknowledges before it puts": AckBeforePutDurable,
    "keeps what is deleted": DropTombstonesDurable,
}


async def install_broken_tier(hub: Hub, what: str) -> None:
    """Give a hub a tier that is broken in some way; as it is by default."""
    tier: Any = tier_of(hub)  # a control reaches where no user can
    if what:
        tier.relay._delivery._durable = _BROKEN[what](tier.store)


async def _run_agent(path: str) -> None:
    orders, out = await asyncio.open_unix_connection(path)
    await DurableAgent(orders, out).serve()


if __name__ == "__main__":
    asyncio.run(_run_agent(sys.argv[1]))
