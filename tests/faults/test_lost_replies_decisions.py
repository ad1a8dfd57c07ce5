"""A decision whose reply was lost is repeated, and has happened once: plans, claims, ends, counts and events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings
from support.redis_process import RedisProcess

from sharedmem import AlreadyExecutedError, ClaimLostError, Hub
from sharedmem.decisions.decisions import Decisions
from sharedmem.models import ExecutionClaim, PlanRecord
from sharedmem.redis.scripts import DURABLE_SUFFIX, scripts

SESSION = "desk"
MOMENT = re.compile(rb"\d{13,16}")
Act = Callable[[Decisions, PlanRecord, ExecutionClaim], Awaitable[Any]]


@dataclass(frozen=True)
class Mutator:
    """One call that changes something.

    Args:
        meanwhile: what another client does between the lost reply and its repeat. Calls that say once more what is
            known already are harmless by themselves; behind another one's change a second application shows.
    """

    name: str
    script: str
    act: Act
    meanwhile: Act | None = None

    @property
    def digest(self) -> bytes:
        return scripts()[self.script].digest.encode()

    @property
    def kept_digest(self) -> bytes:
        """That of the script which is sent where a durable tier stands behind."""
        return scripts().get(self.script + DURABLE_SUFFIX, scripts()[self.script]).digest.encode()


MUTATORS = [
    Mutator("save_plan", "plan_save", lambda d, _, __: d.save_plan(SESSION, "ETH", "BUY", 0.5, "why")),
    Mutator("save_if_new", "plan_save", lambda d, _, __: d.save_if_new(SESSION, "ETH", "BUY", 0.5, "why")),
    Mutator("save_if_new of a duplicate", "plan_save", lambda d, _, __: d.save_if_new(SESSION, "A", "BUY", 0.5, "a")),
    Mutator("begin_execution", "execution_begin", lambda d, p, _: d.begin_execution(SESSION, p.plan_id)),
    Mutator("begin what runs", "execution_begin", lambda d, _, c: d.begin_execution(SESSION, c.plan_id)),
    Mutator(
        "renew",
        "execution_renew",
        lambda d, _, c: d.renew(SESSION, c.plan_id, c.fence),
        meanwhile=lambda d, _, c: d.finish(SESSION, c.plan_id, c.fence, status="success"),
    ),
    Mutator(
        "finish",
        "execution_record",
        lambda d, _, c: d.finish(SESSION, c.plan_id, c.fence, status="timeout", order_id="o"),
        meanwhile=lambda d, _, c: d.resolve(SESSION, c.plan_id, status="success"),
    ),
    Mutator(
        "mark_executed",
        "execution_record",
        lambda d, p, _: d.mark_executed(SESSION, p.plan_id, "A", "BUY", 0.5, "timeout", False, "o"),
        meanwhile=lambda d, p, _: d.resolve(SESSION, p.plan_id, status="success"),
    ),
    Mutator("erase", "session_forget", lambda d, _, __: d.erase(SESSION)),
]
each_mutator = pytest.mark.parametrize("mutator", MUTATORS, ids=lambda mutator: mutator.name)


async def footprint_of(
    mutator: Mutator, hub: Hub, namespace: str, direct: Hub, raw: Redis, proxy: ChaosProxy | None = None
) -> list[object]:
    """What a call answers and leaves behind, without the moments; only the call itself goes through the given hub.

    With a proxy, the call loses a reply there, and is repeated after what happens meanwhile.
    """
    calm = direct.store(namespace, actor="ada").decisions
    claimed = (await calm.save_if_new(SESSION, "B", "BUY", 0.5, "b")).plan
    claim = await calm.begin_execution(SESSION, claimed.plan_id)
    plan = (await calm.save_if_new(SESSION, "A", "BUY", 0.5, "a")).plan
    with proxy.refusing() if proxy is not None else nullcontext():
        call = asyncio.create_task(_outcome(mutator.act(hub.store(namespace, actor="ada").decisions, plan, claim)))
        await (proxy.cut.wait() if proxy is not None else call)
        if mutator.meanwhile is not None:
            await mutator.meanwhile(calm, plan, claim)
    answer = await call
    told = MOMENT.sub(b"*", re.sub(r"(remaining_ms|since_ms)=\d+", "", repr(answer)).encode())
    return [told, *(_content(raw, key) for key in sorted(raw.scan_iter(f"sm:{{{namespace}}}:$*")) if _counts(key))]


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except (AlreadyExecutedError, ClaimLostError) as error:
        return error


def _counts(key: bytes) -> bool:
    return b"$ops" not in key and b"$clock" not in key


def _content(server: Redis, key: bytes) -> tuple[bytes, list[bytes]]:
    client: Any = server  # redis-py types its answers for both of its faces at once
    reading: dict[bytes, Any] = {
        b"hash": lambda: [part for pair in client.hgetall(key).items() for part in pair],
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"stream": lambda: [told[b"op"] + b" " + told[b"by"] for _, told in client.xrange(key)],
    }
    name = key.partition(b"}:")[2]
    return name, sorted(MOMENT.sub(b"*", part) for part in reading[client.type(key)]())


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@each_mutator
async def test_a_decision_whose_reply_was_lost_has_happened_once(
    mutator: Mutator, times: int, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await footprint_of(mutator, direct, "calm", direct, raw)

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(mutator.digest, times)
        stormy = await footprint_of(mutator, hub, "storm", direct, raw, proxy)

    assert stormy == calm
    assert proxy.cuts == times


@each_mutator
async def test_a_decision_whose_reply_was_lost_leaves_the_durable_tier_its_documents_once(
    mutator: Mutator, bare_server: RedisProcess, proxy: ChaosProxy, tmp_path: Path
) -> None:
    tier = f"sqlite://{tmp_path}/durable.sqlite3"
    async with (
        Hub.open(settings=persistent_settings(bare_server.url, durable_url=tier)) as direct,
        Hub.open(settings=persistent_settings(proxy.url, durable_url=tier)) as hub,
    ):
        calm = await documents_of(mutator, direct, "calm", direct)
        proxy.lose_replies(mutator.kept_digest, 1)
        stormy = await documents_of(mutator, hub, "storm", direct)

    assert stormy == calm
    assert proxy.cuts == 1


async def documents_of(mutator: Mutator, hub: Hub, namespace: str, direct: Hub) -> list[bytes]:
    """What a call leaves in the durable tier, without the moments."""
    calm = direct.store(namespace, actor="ada").decisions
    claimed = (await calm.save_if_new(SESSION, "B", "BUY", 0.5, "b")).plan
    claim = await calm.begin_execution(SESSION, claimed.plan_id)
    plan = (await calm.save_if_new(SESSION, "A", "BUY", 0.5, "a")).plan
    await mutator.act(hub.store(namespace, actor="ada").decisions, plan, claim)
    await direct.durable.drain(namespace)
    assert (await direct.durable.lag(namespace)).dead == 0
    records = await direct.durable.records(f"{namespace}:$plan:shared:{SESSION}")
    told = [f"{one.element} {one.type} {one.size} {one.deleted} {one.body}".encode() for one in records]
    return sorted(MOMENT.sub(b"*", one) for one in told)


@each_mutator
async def test_control_without_operation_ids_a_lost_reply_shows(
    mutator: Mutator, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await footprint_of(mutator, direct, "calm", direct, raw)

    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(mutator.digest)
        stormy = await footprint_of(mutator, hub, "storm", direct, raw, proxy)

    assert stormy != calm


async def test_a_resolution_whose_reply_was_lost_has_happened_once(direct: Hub, proxy: ChaosProxy) -> None:
    calm = direct.store("storm").decisions
    plan = (await calm.save_if_new(SESSION, "A", "BUY", 0.5, "a")).plan
    await calm.mark_executed(SESSION, plan.plan_id, "A", "BUY", 0.5, "timeout", False)

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(scripts()["execution_record"].digest.encode())
        record = await hub.store("storm").decisions.resolve(SESSION, plan.plan_id, status="success")

    assert proxy.cuts == 1
    assert await calm.check_executed(SESSION, plan.plan_id) == (True, record)
    assert (await calm.get_execution_stats(SESSION)).total_executions == 1


async def test_a_claim_whose_reply_was_lost_belongs_to_its_executor_alone(direct: Hub, proxy: ChaosProxy) -> None:
    calm = direct.store("storm").decisions
    plan = (await calm.save_if_new(SESSION, "A", "BUY", 0.5, "a")).plan

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(scripts()["execution_begin"].digest.encode())
        claim = await hub.store("storm").decisions.begin_execution(SESSION, plan.plan_id)

    assert claim.started
    assert not (await calm.begin_execution(SESSION, plan.plan_id)).started
    with pytest.raises(ClaimLostError):
        await calm.finish(SESSION, plan.plan_id, claim.fence + 1, status="success")
    await calm.finish(SESSION, plan.plan_id, claim.fence, status="success")
    with pytest.raises(AlreadyExecutedError):
        await calm.finish(SESSION, plan.plan_id, claim.fence, status="error")
