"""Rounds of random work on keys that last, in each of which something is killed or lost, and what must be true after.

What an agent was told by a call counts as promised when the tier was waited for (`through`), when Redis has outlived
the round, or when it was carried to the tier before Redis lost anything. What is promised is readable afterwards, or
something that was attempted later.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from redis.exceptions import RedisError

from sharedmem import Hub, Settings, SharedMemoryStore
from support.bare_server import BareServer
from support.durable_agents import COUNTED, TOTALLED, Call

_TESTS = Path(__file__).resolve().parent.parent
_PATIENCE_S = 40.0
_KEYS = [f"{kind}{agent}-{number}" for kind in "vlhs" for agent in (0, 1) for number in (0, 1)]
_EVICT = """
local state = redis.call('GET', KEYS[2])
if state ~= 'cached' and state ~= 'kept' and state ~= 'expires' then return 0 end
if ARGV[1] == '1' then redis.call('UNLINK', KEYS[2]) end
return redis.call('UNLINK', KEYS[1])
"""
_END_LEASE = """
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 8) == 'loading ' then redis.call('DEL', KEYS[1]) end
"""


# -- what was promised, and what is seen ------------------------------------------------------------


@dataclass
class Attempt:
    """A call of an agent, and what became of it."""

    call: Call
    outcome: str = "tried"
    version: int | None = None
    promised: bool = False

    @property
    def is_acknowledged(self) -> bool:
        return self.outcome == "acknowledged"


Attempts = Sequence[Attempt]
Seen = dict[str, object]
"""What keys hold; those that are nowhere are left out."""


def violations(agents: Sequence[Attempts], seen: Seen) -> list[str]:
    """What is not as it was promised, in sentences.

    Args:
        agents: what each of them has attempted, in order.
        seen: what is readable afterwards.
    """
    found = [*_versions(agents)]
    every = [attempt for attempts in agents for attempt in attempts if attempt.outcome != "refused"]
    for key in (COUNTED, TOTALLED):
        counts = [attempt for attempt in every if attempt.call.key == key]
        number, least = seen.get(key, 0), sum(attempt.promised for attempt in counts)
        if not isinstance(number, int) or not least <= number <= len(counts):
            found.append(f"{key} is {number}; {least} were promised, {len(counts)} attempted")
    for key in _KEYS:
        found += _of_key(key, [attempt for attempt in every if attempt.call.key == key], seen.get(key))
    return found


def _of_key(key: str, attempts: Attempts, value: object) -> Iterable[str]:
    parts = {attempt.call.part for attempt in attempts if attempt.call.what not in {"delete", "expire", "read"}}
    held = _parts(key, value)
    if strange := held.keys() - parts:
        yield f"{key} has {sorted(strange)}, which nobody put there"
    for part in sorted(parts):
        allowed = _allowed(attempts, part)
        if held.get(part) not in allowed:
            yield f"{key}/{part} is {held.get(part)}; allowed: {allowed}"
    if isinstance(value, list) and value != sorted(set(value)):
        yield f"{key} is out of order: {value}"


def _allowed(attempts: Attempts, part: str) -> list[int | None]:
    """What a part may be: as the last promise said, or as any later attempt."""
    allowed: list[int | None] = [None]
    for attempt in attempts:
        what, _, of_part, value = attempt.call
        if what in {"expire", "read"} or (what != "delete" and of_part != part):
            continue
        state = None if what in {"delete", "hdel", "srem"} else int(part) if what == "sadd" else value
        allowed = [state] if attempt.promised else [*allowed, state]
    return allowed


def _parts(key: str, value: object) -> dict[str, int]:
    match value:
        case None:
            return {}
        case dict():
            return dict(value)
        case list():
            return {str(item): item for item in value}
        case set():
            # A member has no value: it is told as whatever the last attempt said.
            return {str(member): member for member in value}
        case int():
            return {"": value}
    raise AssertionError(f"{key} holds {value!r}")


def _versions(agents: Sequence[Attempts]) -> Iterable[str]:
    told = [[attempt.version for attempt in attempts if attempt.version is not None] for attempts in agents]
    for versions in told:
        if versions != sorted(set(versions)):
            yield f"versions went back: {versions}"
    every = [version for versions in told for version in versions]
    if len(every) != len(set(every)):
        yield "a version was told twice"


# -- a server that loses things ---------------------------------------------------------------------


class LosingServer(BareServer):
    """A server with an append-only file, which can be set back to what it was."""

    def __init__(self, fsync: str) -> None:
        super().__init__(appendonly="yes", appendfsync=fsync, auto_aof_rewrite_percentage=0)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def position(self) -> int:
        """Where it is now, to be set back to."""
        return self._log().stat().st_size

    def set_back(self, position: int) -> None:
        """Kill it, and start it with what it held before."""
        self.kill()
        if self.position() > position:
            os.truncate(self._log(), position)
        self.start()

    def lose_disk(self) -> None:
        """Kill it, and start it with nothing."""
        self.kill()
        shutil.rmtree(self._data)
        self._data.mkdir()
        self.start()

    def _log(self) -> Path:
        return max(self._data.glob("appendonlydir/*.incr.aof"))


# -- agents -----------------------------------------------------------------------------------------


class Agent:
    """An agent as its master sees it.

    Args:
        pid: its process.
        lines: what it tells.
        orders: where it gets its orders from.
    """

    def __init__(self, pid: int, lines: asyncio.StreamReader, orders: asyncio.StreamWriter) -> None:
        self._pid, self._lines, self._orders = pid, lines, orders
        self.is_alive = True
        self.attempts: list[Attempt] = []

    def kill(self) -> None:
        """End it with SIGKILL."""
        os.kill(self._pid, signal.SIGKILL)
        self.is_alive = False

    async def obey(self, order: dict[str, Any], told: Callable[[str], None]) -> None:
        """Give an order, and take down what it does until it is done or dead."""
        self.attempts = []
        self._orders.write(json.dumps(order).encode() + b"\n")
        while line := await self._lines.readline():
            if not line.endswith(b"\n"):
                break
            what, *words = json.loads(line)
            if what == "done":
                return
            self._take_down(what, words)
            told(what)
        self.is_alive = False

    def _take_down(self, what: str, words: list[Any]) -> None:
        if what == "try":
            self.attempts.append(Attempt(Call(*words)))
        elif what != "carried":
            self.attempts[-1].outcome = what
            self.attempts[-1].version = words[0] if words else None

    def close(self) -> None:
        """It ends when it has nobody to listen to."""
        self._orders.close()


class Crew:
    """Agents that are replaced when they die."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="smc"))
        self._born: asyncio.Queue[Agent] = asyncio.Queue()
        self._agents: list[Agent] = []
        self._listener: asyncio.Server | None = None
        self._mother: Process | None = None

    async def __aenter__(self) -> Self:
        path = str(self._folder / "s")
        self._listener = await asyncio.start_unix_server(self._greet, path)
        words = (sys.executable, "-m", "support.durable_agents", path)
        environment = os.environ | {"PYTHONPATH": str(_TESTS)}
        self._mother = await asyncio.create_subprocess_exec(*words, stdin=PIPE, env=environment, cwd=_TESTS.parent)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self._agents:
            if agent.is_alive:
                agent.kill()
            agent.close()
        assert self._mother is not None
        assert self._listener is not None
        self._mother.kill()
        await self._mother.wait()
        self._listener.close()
        await self._listener.wait_closed()
        shutil.rmtree(self._folder)

    async def hands(self, number: int) -> list[Agent]:
        """So many living agents."""
        for agent in self._agents:
            if not agent.is_alive:
                agent.close()
        self._agents = [agent for agent in self._agents if agent.is_alive]
        while len(self._agents) < number:
            assert self._mother is not None
            assert self._mother.stdin is not None
            self._mother.stdin.write(b"one\n")
            async with asyncio.timeout(_PATIENCE_S):
                self._agents.append(await self._born.get())
        return self._agents[:number]

    async def _greet(self, lines: asyncio.StreamReader, orders: asyncio.StreamWriter) -> None:
        _, pid = json.loads(await lines.readline())
        self._born.put_nowait(Agent(pid, lines, orders))


# -- a round ----------------------------------------------------------------------------------------


class Ground(NamedTuple):
    """Where rounds take place."""

    crew: Crew
    servers: dict[str, LosingServer]
    """By how often they force their log to disk."""
    tier: dict[str, Any]
    """The settings that name it."""


@dataclass
class Round:
    """One round: what is done is decided by the seed; how far it gets before the fault comes is not.

    Args:
        ground: where.
        seed: decides.
        fault: a name of `FAULTS`; None lets the seed decide.
        broken: what is broken on purpose (see `durable_agents.break_it`).
    """

    ground: Ground
    seed: int
    fault: str | None = None
    broken: str = ""
    steps: int = 16
    agents: list[Agent] = field(default_factory=list)
    _told: int = 0
    _wanted: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.fault = self.fault or self.dice.choice(sorted(FAULTS))
        manner = self.dice.choice(("know", "sess", "arg"))
        self.namespace = f"{manner}-{self.seed}"
        self.kind = "knowledge" if manner == "arg" else None
        self.durability = self.dice.choice(("behind", "behind", "through"))
        self.server = self.ground.servers[self.dice.choice(("always", "everysec"))]
        self.history: list[list[Attempt]] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "redis_url": self.server.url,
            "kind_rules": {"know-*": "knowledge", "sess-*": "session"},
            "session_durability": self.durability,
            "knowledge_durability": self.durability,
            "connect_timeout_s": 1.0,
            "response_timeout_s": 2.0,
            "retry_for_s": 30.0,
        } | self.ground.tier

    def __repr__(self) -> str:
        return f"<round {self.seed}: {self.namespace} {self.durability}, {self.fault}>"

    async def run(self) -> list[str]:
        """Work, break something, look; returns what is not as it was promised."""
        self.agents = await self.ground.crew.hands(3)
        *writers, carrier = self.agents
        works = [asyncio.create_task(writer.obey(self._order(at), self._hear)) for at, writer in enumerate(writers)]
        works.append(asyncio.create_task(carrier.obey(self._order(2, steps=0), lambda _: None)))
        pressing = asyncio.create_task(self._press())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                outlives = await FAULTS[self.fault or ""](self)
                self.end_leases()
                await asyncio.gather(*works)
        finally:
            pressing.cancel()
            for work in works:
                work.cancel()
        self.history = [writer.attempts for writer in writers]
        if outlives or self.durability == "through":
            self._promise()
        return await self._looked()

    def _order(self, agent: int, *, steps: int | None = None) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "broken": self.broken,
            "namespace": self.namespace,
            "kind": self.kind,
            "seed": f"{self.seed} {agent}",
            "agent": agent,
            "steps": self.steps if steps is None else steps,
            "rounds": 4,
        }

    def _hear(self, what: str) -> None:
        self._told += what == "acknowledged"
        if self._told >= self._wanted:
            self._reached.set()

    async def reach(self, told: int) -> None:
        """Return when so many calls were acknowledged, or a little later."""
        self._wanted = told
        self._reached.clear()
        if self._told < told:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._reached.wait()
        await asyncio.sleep(self.dice.choice((0, 0.001, 0.003)))

    def some(self) -> int:
        """How many acknowledged calls to wait for: anything up to most of them."""
        return self.dice.randrange(1, 2 * self.steps - 4)

    def acknowledged(self) -> list[Attempt]:
        """All calls so far that have returned."""
        return [one for agent in self.agents for one in agent.attempts if one.is_acknowledged]

    def _promise(self) -> None:
        for attempt in self.acknowledged():
            attempt.promised = True

    async def barrier(self) -> None:
        """Let the tier have all that was acknowledged so far."""
        had = self.acknowledged()
        hub = Hub.open(settings=Settings(**self.settings))
        async with hub:
            if self.broken:
                from support.durable_agents import break_it

                await break_it(hub, self.broken)
            await hub.durable.drain(self.namespace)
        for attempt in had:
            attempt.promised = True

    def end_leases(self) -> None:
        """Whoever brought a key back when it died holds the others up for ten seconds, which a round has not."""
        head = f"sm:{{{self.namespace}}}:$kept.state:shared:"
        with self.server.client() as client:
            for key in (*_KEYS, COUNTED, TOTALLED):
                client.eval(_END_LEASE, 1, f"{head}{key}")

    async def _press(self) -> None:
        """Let the server be short of memory now and then: what the tier has goes."""
        head = f"sm:{{{self.namespace}}}:"
        while True:
            key = self.dice.choice(_KEYS)
            with suppress(RedisError, OSError):
                self.server.tell(
                    "EVAL", _EVICT, 2, f"{head}shared:{key}", f"{head}$kept.state:shared:{key}", self.dice.randrange(2)
                )
            await asyncio.sleep(0.003)

    # -- afterwards

    async def _looked(self) -> list[str]:
        async with Hub.open(settings=Settings(**self.settings)) as hub:
            store = hub.store(self.namespace)
            seen = await _seen(store)
            found = violations(self.history, seen)
            await hub.durable.drain(self.namespace)
            verified = await hub.durable.verify(self.namespace)
            found += [f"the sides differ: {difference}" for difference in verified.differences]
            self._evict_all()
            if (again := await _seen(store)) != seen:
                found.append(f"Redis had {seen}, the tier has {again}")
        return found

    def _evict_all(self) -> None:
        head = f"sm:{{{self.namespace}}}:"
        with self.server.client() as client:
            for key in (*_KEYS, COUNTED, TOTALLED):
                client.unlink(f"{head}shared:{key}", f"{head}$kept.state:shared:{key}")


async def _seen(store: SharedMemoryStore) -> Seen:
    seen: Seen = {}
    for key in _KEYS:
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


async def a_client(round_: Round) -> bool:
    await round_.reach(round_.some())
    round_.agents[0].kill()
    return True


async def both_clients(round_: Round) -> bool:
    await round_.reach(round_.some())
    round_.agents[0].kill()
    round_.agents[1].kill()
    return True


async def the_carrier(round_: Round) -> bool:
    await round_.reach(round_.some())
    round_.agents[2].kill()
    return True


async def the_server(round_: Round) -> bool:
    await round_.reach(round_.some())
    await asyncio.to_thread(round_.server.restart)
    # With `everysec` a reply may be ahead of the log.
    return round_.server is round_.ground.servers["always"]


async def a_flush(round_: Round) -> bool:
    await round_.reach(round_.some())
    await round_.barrier()
    round_.server.tell("FLUSHALL")
    return False


async def the_disk(round_: Round) -> bool:
    await round_.reach(round_.some())
    await round_.barrier()
    await asyncio.to_thread(round_.server.lose_disk)
    return False


async def time(round_: Round) -> bool:
    first, then = sorted((round_.some(), round_.some()))
    await round_.reach(first)
    position = round_.server.position()
    await round_.reach(then)
    await round_.barrier()
    await asyncio.to_thread(round_.server.set_back, position)
    return False


async def power(round_: Round) -> bool:
    first, then = sorted((round_.some(), round_.some()))
    await round_.reach(first)
    position = round_.server.position()
    await round_.reach(then)
    await asyncio.to_thread(round_.server.set_back, position)
    return False


async def a_client_and_all(round_: Round) -> bool:
    await round_.reach(round_.some())
    await round_.barrier()
    round_.agents[0].kill()
    round_.server.tell("FLUSHALL")
    return False


FAULTS = {
    fault.__name__: fault
    for fault in (
        a_client, both_clients, the_carrier, the_server, a_flush, the_disk, time, power, a_client_and_all,
    )
}  # fmt: skip
