"""Agents as processes that live for many rounds, work at random on keys that last, and are killed without warning.

`python -m support.durable_agents <socket>` is their mother, who has imported everything: each line of her input makes
her fork one in a few milliseconds. An agent connects to the socket, takes orders as lines of JSON, and tells each call
before it is made and when it has returned.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from sharedmem import DurabilityPendingError, Hub, Settings, SharedMemoryStore, VersionConflictError
from sharedmem.durable.protocol import Durable
from sharedmem.models import DurableRecord, Outcome, Put
from sharedmem.wire.scripts import scripts

FAR_S = 1_000_000
COUNTED, TOTALLED = "count", "total"
_FIELDS, _MEMBERS = ("f", "g"), (0, 1, 2)


class Call(NamedTuple):
    """What an agent is about to do."""

    what: str
    key: str
    part: str
    """Field of a hash, member of a set, item of a list; else nothing."""
    value: int


# -- what there is to do --------------------------------------------------------------------------


def chosen(dice: random.Random, agent: int, number: int) -> Call:
    """A call at random: on the agent's own keys, in which it has no rival, or on those of all."""
    kind = dice.choices("vlhsct", (8, 5, 5, 4, 2, 2))[0]
    if kind in "ct":
        return Call({"c": "incr", "t": "update_total"}[kind], {"c": COUNTED, "t": TOTALLED}[kind], "", 1)
    key = f"{kind}{agent}-{dice.randrange(2)}"
    if dice.random() < 0.12:
        return Call(dice.choice(("delete", "expire", "read")), key, "", 0)
    if kind == "v":
        return Call(dice.choice(("write", "write", "write_if", "update")), key, "", number)
    if kind == "l":
        return Call("append", key, str(number), number)
    if kind == "h":
        return Call(dice.choice(("hset", "hset", "hdel")), key, dice.choice(_FIELDS), number)
    return Call(dice.choice(("sadd", "sadd", "srem")), key, str(dice.choice(_MEMBERS)), number)


async def made(store: SharedMemoryStore, call: Call, kind: str | None) -> int | None:
    """Make a call; returns the version that it told, if any."""
    key, part, value = call.key, call.part, call.value
    match call.what:
        case "write":
            return await store.write(key, value, kind=kind)
        case "write_if":
            entry = await store.entry(key)
            return await store.write(key, value, kind=kind, if_version=entry.version if entry else 0)
        case "update":
            await store.update(key, lambda _: value, kind=kind)
        case "update_total":
            await store.update(key, lambda total: total + 1, default=0, kind=kind)
        case "incr":
            await store.incr(key, kind=kind)
        case "append":
            await store.append(key, value, kind=kind)
        case "hset":
            await store.hset(key, part, value, kind=kind)
        case "hdel":
            await store.hdel(key, part)
        case "sadd":
            await store.sadd(key, int(part), kind=kind)
        case "srem":
            await store.srem(key, int(part))
        case "delete":
            await store.delete(key)
        case "expire":
            await store.expire(key, FAR_S)
        case "read":
            await store.exists(key)
    return None


# -- an agent -------------------------------------------------------------------------------------


class Agent:
    """Carries out orders until its mother's master is gone.

    Args:
        orders: where they come from.
        out: where it tells what it does.
    """

    def __init__(self, orders: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        self._orders, self._out = orders, out
        self._hubs: dict[str, Hub] = {}

    async def serve(self) -> None:
        """Carry out order by order."""
        self._tell("pid", os.getpid())
        async with AsyncExitStack() as stack:
            while line := await self._orders.readline():
                await self._obey(json.loads(line), stack)

    async def _obey(self, order: dict[str, Any], stack: AsyncExitStack) -> None:
        hub = await self._hub(order["settings"], order["broken"], stack)
        store = hub.store(order["namespace"])
        if order["steps"]:
            await self._work(store, order)
        else:
            await self._carry(hub, order["namespace"], order["rounds"])
        self._tell("done")

    async def _hub(self, settings: dict[str, Any], broken: str, stack: AsyncExitStack) -> Hub:
        name = json.dumps([settings, broken])
        if name not in self._hubs:
            hub = await stack.enter_async_context(Hub.open(settings=Settings(**settings)))
            await break_it(hub, broken)
            self._hubs[name] = hub
        return self._hubs[name]

    async def _work(self, store: SharedMemoryStore, order: dict[str, Any]) -> None:
        dice = random.Random(order["seed"])
        for number in range(order["steps"]):
            call = chosen(dice, order["agent"], number)
            self._tell("try", *call)
            try:
                version = await made(store, call, order["kind"])
            except VersionConflictError:
                self._tell("refused")
            except DurabilityPendingError:
                self._tell("pending")
            else:
                self._tell("acknowledged", version)

    async def _carry(self, hub: Hub, namespace: str, rounds: int) -> None:
        """Only carry what the others leave, again and again."""
        for _ in range(rounds):
            await hub.durable.drain(namespace)
            self._tell("carried")

    def _tell(self, *words: object) -> None:
        # It is in the socket, which outlives this process, before the next thing is done.
        self._out.write(json.dumps(words).encode() + b"\n")


# -- what is broken on purpose, for the controls ---------------------------------------------------


class Hasty:
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
        await asyncio.sleep(0.2)
        await self._durable.put(records)


async def break_it(hub: Hub, what: str) -> None:
    """Let a hub acknowledge before it puts, or fill without a lease; nothing by default."""
    tier: Any = hub._open_parts().tier  # a control reaches where no user can
    if what == "acknowledges before it puts":
        tier.drainer._carrier._durable = Hasty(tier.store)
    elif what == "fills without a lease":
        source = scripts()["key_fill"].source
        lease = "redis.call('GET', state) ~= 'loading ' .. token or redis.call('EXISTS', key) == 1"
        assert lease in source
        digest = await tier._line.call("SCRIPT", "LOAD", source.replace(lease, "false"))
        tier.loader._keeping._sender._digests["key_fill"] = digest


# -- their mother ---------------------------------------------------------------------------------


async def _live(path: str) -> None:
    orders, out = await asyncio.open_unix_connection(path)
    await Agent(orders, out).serve()


def _bear(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin.readline():
        if os.fork() == 0:
            os.close(0)
            try:
                asyncio.run(_live(path))
            finally:
                os._exit(0)


if __name__ == "__main__":
    _bear(sys.argv[1])
