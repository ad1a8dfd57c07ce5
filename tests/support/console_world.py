"""A team at work in one namespace, with something to see in each view of the console; the same each time it is made."""

from __future__ import annotations

from datetime import UTC, datetime

from sharedmem import Hub, UnsupportedError
from sharedmem.faces.auth import Bearer, Rate
from sharedmem.faces.token_registry import TokenRegistry
from support.contexts import client_of
from support.waiting import wait_until

GROUP = "harbour"
SESSION = "desk-1"
MEMORIES = (
    ("The harbour was flooded on 3 March; the gate held.", "researcher", "events"),
    ("Ada prefers short answers with the source in brackets.", "planner", "preferences"),
    ("The rent of the north office is 900 euro a month.", "planner", "contracts"),
    ("The lease of the north office ends in May.", "writer", "contracts"),
    ("Buoy B-17 measured a tide of 4.3 m at noon.", "researcher", "measurements"),
    ("The almanac expects a rise of 4.2 m for spring tides.", "researcher", "measurements"),
)
TALK = (
    ("user", "Do the gates hold at the next spring tide?"),
    ("assistant", "The almanac expects 4.2 m, buoy B-17 measured 4.3 m; the gates hold 5 m."),
    ("user", "Who checked the gate of the north basin?"),
    ("assistant", "The harbour office, on 3 March. I have asked for the report."),
)


async def fill(hub: Hub, namespace: str) -> None:
    """Make the world.

    Args:
        hub: open.
        namespace: empty.
    """
    await _data(hub, namespace)
    await _memory(hub, namespace)
    await _graph(hub, namespace)
    await _work(hub, namespace)
    await _decisions(hub, namespace)
    await _agreement(hub, namespace)
    await _durable(hub, namespace)


async def _data(hub: Hub, namespace: str) -> None:
    for actor in ("planner", "researcher", "writer"):
        store = hub.store(namespace, actor=actor)
        await store.write("plan", {"step": 3, "owner": actor, "steps": ["collect", "compare", "write"]})
        await store.hset("profile", mapping={"role": actor, "busy": actor == "writer"})
        await store.incr("runs", 4)
        await store.presence.announce(role=actor, ttl=600)
    store = hub.store(namespace, actor="researcher")
    await store.sadd("topics", "gates", "rents", "tides")
    await store.append("log", "read the almanac")
    await store.append("log", "asked the harbour office")
    await store.write("draft", "The gates hold.", ttl=86_400)


async def _memory(hub: Hub, namespace: str) -> None:
    for text, actor, category in MEMORIES:
        memory = hub.store(namespace, actor=actor).memory
        await memory.add(text, user_id="ada", category=category, thread_id="tides")
    store = hub.store(namespace, actor="writer")
    entries = [{"role": role, "content": text} for role, text in TALK]
    await store.conversations.append("tides", entries, tags={"user": "ada", "agent": "writer"})
    await store.conversations.fork("tides", "tides-what-if")
    await store.cache.put("Do the gates hold?", "They hold 5 m.", tags=["tides"])
    await store.cache.check("Do the gates hold?")
    await store.cache.check("Who pays the rent?")


async def _graph(hub: Hub, namespace: str) -> None:
    graph = hub.store(namespace, actor="researcher").graph
    for subject, relation, target, year in (
        ("Ada Byron", "works_at", "Harbour Office", 2024),
        ("Ada Byron", "works_at", "North Basin", 2026),
        ("Harbour Office", "owns", "Gate 5", 2020),
        ("Buoy B-17", "located_in", "North Basin", 2025),
        ("Gate 5", "located_in", "North Basin", 2021),
    ):
        since = datetime(year, 3, 1, tzinfo=UTC)
        await graph.add_relationship(subject, relation, target, group_id=GROUP, valid_from=since)


async def _work(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace, actor="planner")
    mail = store.queue("mail", max_attempts=1)
    for name in ("ada", "bob", "cleo", "dan"):
        await mail.put({"to": f"{name}@example.org", "about": "spring tide"})
    failed = await mail.claim()
    assert failed is not None
    await mail.fail(failed, "the address does not exist")
    await mail.claim()
    await store.queue("pages").put({"page": 7}, delay=3600)


async def _decisions(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace, actor="planner")
    plan = await store.decisions.save_plan(SESSION, "GATE-5", "CLOSE", 0.9, "The tide rises above four metres.")
    await store.decisions.save_if_new(SESSION, "GATE-5", "CLOSE", 0.9, "The tide rises above four metres.")
    await store.decisions.save_plan(SESSION, "GATE-6", "HOLD", 0.6, "Nothing is known of gate six.")
    await store.decisions.begin_execution(SESSION, plan, lease=600)
    ended = await store.decisions.save_plan(SESSION, "GATE-7", "OPEN", 0.8, "The ebb has begun, and a barge waits.")
    claim = await store.decisions.begin_execution(SESSION, ended)
    await store.decisions.finish(SESSION, ended, claim.fence, status="success", order_id="lever-2")
    lost = await store.decisions.save_plan(SESSION, "GATE-8", "CLOSE", 0.7, "The forecast was raised to 4.4 metres.")
    await store.decisions.begin_execution(SESSION, lost, lease=0.05)


async def _agreement(hub: Hub, namespace: str) -> None:
    planner, researcher = (hub.store(namespace, actor=actor) for actor in ("planner", "researcher"))
    await planner.lease_acquire("scheduler", kind="leader", lease=600)
    await planner.lease_acquire("almanac", lease=600)
    for store in (planner, researcher):
        await store.lease_acquire("gauges", kind="semaphore", limit=3, lease=600)
    await researcher.lease_acquire("report", kind="rwlock", lease=600)
    await planner.rate_limit("forecasts", limit=100, per=600).take(12)


async def _durable(hub: Hub, namespace: str) -> None:
    try:
        await hub.durable.drain(namespace)
    except UnsupportedError:
        return
    await reject_one(hub, namespace)
    # The server is this world's own, and keeps its tokens when the namespace is cleared.
    registry = TokenRegistry(hub)
    if not await registry.listed():
        await _tokens(registry, namespace)


async def _tokens(registry: TokenRegistry, namespace: str) -> None:
    everything = [f"{namespace}:*"]
    lead = Bearer.of(namespace, actor="anna", grants=everything, administrator=True)
    _, entry = await registry.create(lead, label="Anna, support")
    for actor, label, rate in (("planner", "the desk", "100/s"), ("researcher", "reads almanacs", "600/min")):
        await registry.create(Bearer.of(namespace, actor=actor), label=label, rate=Rate.of(rate), made_by=entry.id)
    await registry.create(Bearer.of(namespace, actor="rita", read_only=True), label="looks on", made_by=entry.id)
    await registry.create(Bearer.of(namespace, operator=True), label="dashboards")


async def reject_one(hub: Hub, namespace: str) -> None:
    """Let another client leave something in the outbox that the durable tier cannot take.

    Args:
        hub: with a durable tier.
        namespace: it has keys in the tier.
    """

    async def is_rejected() -> bool:
        return bool(await hub.durable.dead_letters(namespace))

    await client_of(hub).call("XADD", f"sm:{{{namespace}}}:$outbox", "*", "tide-table", "4.2 m")
    await wait_until(is_rejected, description="it is a dead letter")
