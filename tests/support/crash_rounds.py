"""Rounds of random work on keys that last, in each of which something is killed or lost.

What an agent was told by a call counts as promised when the tier was waited for (`through`), when Redis has outlived
the round, or when it was carried to the tier before Redis lost anything.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from sharedmem import Hub, Settings, SharedMemoryStore
from support.durable_agents import COUNTED, TOTALLED, install_broken_tier
from support.example_budget import example_count
from support.invariants import KEYS, RecordedCall, Seen, durability_violations, find_misreads
from support.process_groups import AgentHandle, AgentPool, RewindableRedis

ROUNDS = int(os.environ.get("SHAREDMEM_CRASH_ROUNDS", example_count(50, thorough=200)))
_PRESS_S = 0.004
_EVICT = """
for i = 1, #KEYS, 2 do
  local state, chance = redis.call('GET', KEYS[i + 1]), tonumber(string.sub(ARGV[1], i, i))
  if chance > 6 and (state == 'cached' or state == 'kept' or state == 'expires') then
    redis.call('UNLINK', KEYS[i])
    if chance > 7 then redis.call('UNLINK', KEYS[i + 1]) end
  end
end
"""
_END_LEASE = """
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 8) == 'loading ' then redis.call('DEL', KEYS[1]) end
"""


class RoundEnvironment(NamedTuple):
    """Where rounds take place."""

    agents: AgentPool
    servers: dict[str, RewindableRedis]
    """By how often they force their log to disk."""
    tier: dict[str, Any]
    """The settings that name it."""


@contextmanager
def both_servers() -> Iterator[dict[str, RewindableRedis]]:
    """Two servers, by how often they force their log to disk."""
    with RewindableRedis("always") as always, RewindableRedis("everysec") as everysec:
        yield {"always": always, "everysec": everysec}


@dataclass
class CrashRound:
    """One round: what is done is decided by the seed; how far it gets before the fault comes is not.

    Args:
        environment: where.
        seed: decides.
        fault: a name of `FAULTS`; None lets the seed decide.
        broken: what is broken on purpose (see `durable_agents.break_it`).
        steps: calls of each agent.
        manner: what names the kind: a rule (`know`, `sess`), each call (`arg`) or the call that makes the key
            (`once`); None lets the seed decide among the first three.
        durability: None lets the seed decide.
        patience_s: what agents have to end, faults and all.
    """

    environment: RoundEnvironment
    seed: int
    fault: str | None = None
    broken: str = ""
    steps: int = 14
    manner: str | None = None
    durability: str | None = None
    patience_s: float = 120.0
    agents: list[AgentHandle] = field(default_factory=list)
    _acknowledged: int = 0
    _at_work: int = 2
    _wanted: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.fault = self.fault or self.dice.choice(sorted(FAULTS))
        by_chance = self.dice.choice(("know", "sess", "arg"))
        self.manner = self.manner or by_chance
        self.namespace = f"{self.manner}-{self.seed}"
        self.kind = "knowledge" if self.manner in {"arg", "once"} else None
        by_chance = self.dice.choice(("behind", "behind", "through"))
        self.durability = self.durability or by_chance
        self.server = self.environment.servers[self.dice.choice(("always", "everysec"))]
        self.history: list[list[RecordedCall]] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "redis_url": self.server.url,
            "kind_rules": {"know-*": "knowledge", "sess-*": "session"},
            "session_durability": self.durability,
            "knowledge_durability": self.durability,
            "connect_timeout_s": 30.0,
            "response_timeout_s": 2.0,
            "retry_for_s": 30.0,
        } | self.environment.tier

    def __repr__(self) -> str:
        return f"<round {self.seed}: {self.namespace} {self.durability}, {self.fault}>"

    async def run(self) -> list[str]:
        """Work, break something, look; returns what is not as it was promised."""
        self.agents = await self.environment.agents.take(3)
        *writers, carrier = self.agents
        orders = [writer.carry_out(self._order(at), self._count) for at, writer in enumerate(writers)]
        works = [asyncio.create_task(order) for order in orders]
        carrying = asyncio.create_task(carrier.carry_out(self._order(2, steps=0), lambda _: None))
        pressing = asyncio.create_task(self._press())
        try:
            async with asyncio.timeout(self.patience_s):
                outlives = await self.suffer()
                self.end_leases()
                await asyncio.gather(*works)
                carrier.stop()
                await carrying
        finally:
            for work in (pressing, carrying, *works):
                work.cancel()
        self.history = [writer.attempts for writer in writers]
        if not outlives and self.durability != "through":
            return await self._looked()
        for attempt in self.acknowledged():
            attempt.promised = True
        return find_misreads(self.history) + await self._looked()

    async def suffer(self) -> bool:
        """Make the fault; returns whether Redis has all that it ever acknowledged."""
        return await FAULTS[self.fault or ""](self)

    def _order(self, agent: int, *, steps: int | None = None) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "broken": self.broken,
            "namespace": self.namespace,
            "kind": self.kind,
            "says_kind_once": self.manner == "once",
            "calls": [],
            "seed": f"{self.seed} {agent}",
            "agent": agent,
            "steps": self.steps if steps is None else steps,
        }

    def _count(self, what: str) -> None:
        self._acknowledged += what == "acknowledged"
        self._at_work -= what == "done"
        if self._acknowledged >= self._wanted or not self._at_work:
            self._reached.set()

    async def reach(self, calls: int) -> None:
        """Return when so many calls were acknowledged, or a little later."""
        self._wanted = calls
        self._reached.clear()
        if self._acknowledged < calls and self._at_work:
            await self._reached.wait()
        await asyncio.sleep(self.dice.choice((0, 0.001, 0.003)))

    @property
    def is_under_way(self) -> bool:
        """Whether an agent is still at work."""
        return self._at_work > 0

    def some(self) -> int:
        """How many acknowledged calls to wait for: anything up to most of them."""
        return self.dice.randrange(1, 2 * self.steps - 4)

    def acknowledged(self) -> list[RecordedCall]:
        """All calls so far that have returned."""
        return [one for agent in self.agents for one in agent.attempts if one.is_acknowledged]

    async def barrier(self) -> None:
        """Let the tier have all that was acknowledged so far."""
        for attempt in await self.carried():
            attempt.promised = True

    async def carried(self) -> list[RecordedCall]:
        """What was acknowledged before the call, once the tier has it."""
        had = self.acknowledged()
        hub = Hub.open(settings=Settings(**self.settings))
        async with hub:
            await install_broken_tier(hub, self.broken)
            await hub.durable.drain(self.namespace)
        return had

    def end_leases(self) -> None:
        """A hub that died while it loaded a key blocks the others for ten seconds, which a round has not."""
        with self.server.client() as client:
            for state in self._places()[1::2]:
                client.eval(_END_LEASE, 1, state)

    async def _press(self) -> None:
        """Let the server be short of memory now and then: what the tier has goes."""
        places = self._places()
        with self.server.client() as client:
            while True:
                with suppress(RedisError, OSError):
                    chances = "".join(self.dice.choices("0123456789", k=len(places)))
                    client.eval(_EVICT, len(places), *places, chances)
                await asyncio.sleep(_PRESS_S)

    def _places(self) -> list[str]:
        """Each key and its state."""
        head = f"sm:{{{self.namespace}}}:"
        keys = (*KEYS, COUNTED, TOTALLED)
        return [place for key in keys for place in (f"{head}shared:{key}", f"{head}$kept.state:shared:{key}")]

    # -- afterwards

    async def _looked(self) -> list[str]:
        async with Hub.open(settings=Settings(**self.settings)) as hub:
            store = hub.store(self.namespace)
            seen = await read_all_keys(store)
            found = durability_violations(self.history, seen)
            await hub.durable.drain(self.namespace)
            verified = await hub.durable.verify(self.namespace)
            found += [f"the sides differ: {difference}" for difference in verified.differences]
            self._evict_all()
            if (again := await read_all_keys(store)) != seen:
                found.append(f"Redis had {seen}, the tier has {again}")
        return found

    def _evict_all(self) -> None:
        with self.server.client() as client:
            client.unlink(*self._places())


async def read_all_keys(store: SharedMemoryStore) -> Seen:
    """What the agents' keys hold."""
    seen: Seen = {}
    for key in KEYS:
        match key[0]:
            case "l":
                seen[key] = await store.read_list(key)
            case "h":
                seen[key] = await store.hgetall(key)
            case "s":
                seen[key] = await store.smembers(key)
            case _:
                seen[key] = await store.read(key)
    return seen | {key: await store.read(key, 0) for key in (COUNTED, TOTALLED)}


# -- faults: each returns whether Redis has all that it ever acknowledged ----------------------------


async def no_process(_: CrashRound) -> bool:
    return True


async def a_client(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    round_.agents[0].kill()
    return True


async def both_clients(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    round_.agents[0].kill()
    round_.agents[1].kill()
    return True


async def the_carrier(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    round_.agents[2].kill()
    return True


async def the_server(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    await asyncio.to_thread(round_.server.restart)
    # With `everysec` a reply may be ahead of the log.
    return round_.server is round_.environment.servers["always"]


async def a_flush(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    await round_.barrier()
    round_.server.tell("FLUSHALL")
    return False


async def the_disk(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    await round_.barrier()
    await asyncio.to_thread(round_.server.lose_disk)
    return False


async def a_set_back(round_: CrashRound) -> bool:
    first, then = sorted((round_.some(), round_.some()))
    await round_.reach(first)
    position = round_.server.position()
    await round_.reach(then)
    await round_.barrier()
    await asyncio.to_thread(round_.server.set_back, position)
    return False


async def power(round_: CrashRound) -> bool:
    first, then = sorted((round_.some(), round_.some()))
    await round_.reach(first)
    position = round_.server.position()
    await round_.reach(then)
    await asyncio.to_thread(round_.server.set_back, position)
    return False


async def a_client_and_all(round_: CrashRound) -> bool:
    await round_.reach(round_.some())
    await round_.barrier()
    round_.agents[0].kill()
    round_.server.tell("FLUSHALL")
    return False


FAULTS = {
    fault.__name__: fault
    for fault in (
        no_process, a_client, both_clients, the_carrier, the_server, a_flush, the_disk, a_set_back, power,
        a_client_and_all,
    )
}  # fmt: skip
