"""docs/security.md: a Redis ACL user reaches the memories of its namespace and no others, whatever it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from support import embedded_fixtures

from sharedmem import AccessDeniedError, Hub, Settings
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.scope import Identity, acl_rules, check_grants

data_dir = embedded_fixtures.data_dir
PASSWORD = "correct horse"
SPACE = KeySpace("sm", client="any")
OWN, SHARED = f"{SPACE.own_index('memory', 'research')}a:1", f"{SPACE.shared_index('memory')}a:1"
FOREIGN = f"{SPACE.own_index('memory', 'payroll')}a:1"
NEWS = f"{SPACE.own_index('memory', 'news')}a:1"
SECRET = SPACE.record("memory", "payroll", "s1").decode()


@pytest.fixture
async def operator(data_dir: Path) -> AsyncIterator[Hub]:
    async with Hub.open(settings=Settings(data_dir=data_dir), embedder=HashingEmbedder()) as hub:
        yield hub


@pytest.fixture
async def raw(operator: Hub) -> AsyncIterator[Any]:
    """A bare client of the ACL user of ada in `research`, who also reads `news`; each namespace has a memory."""
    ada = operator.store("research", actor="ada", subscribe=("news",), grants=("payroll:shared:jobs*",))
    await ada.access.apply("ada", password=PASSWORD)
    async with Redis.from_url(operator.url) as root:
        for namespace, index in (("research", OWN), ("payroll", FOREIGN), ("news", NEWS)):
            await _made(root, index, SPACE.records("memory", namespace))
            await root.hset(SPACE.record("memory", namespace, "s1"), mapping={"terms": "word", "body": namespace})
        await _made(root, SHARED, SPACE.family("memory"))
    async with Redis.from_url(operator.url, username="ada", password=PASSWORD, protocol=2) as client:
        yield client


async def _made(root: Any, index: str, prefix: str) -> None:
    await root.execute_command("FT.CREATE", index, "PREFIX", 1, prefix, "SCHEMA", "terms", "TEXT")


async def test_a_user_searches_the_index_of_its_namespace_and_of_those_it_may_read(raw: Any) -> None:
    for index, namespace in ((OWN, b"research"), (NEWS, b"news")):
        found = await raw.execute_command("FT.SEARCH", index, "word")
        counted = await raw.execute_command("FT.AGGREGATE", index, "*", "LOAD", 1, "@body")

        assert (found[0], found[2][3]) == (1, namespace)
        assert counted[1] == [b"body", namespace]
        assert await raw.execute_command("FT.INFO", index)


@pytest.mark.parametrize(
    "command",
    [
        ("FT.SEARCH", SHARED, "word"),
        ("FT.SEARCH", FOREIGN, "word"),
        ("FT.SEARCH", SHARED, "word", "INKEYS", "1", SECRET),
        ("FT.AGGREGATE", SHARED, "*", "LOAD", "*"),
        ("FT.INFO", SHARED),
        ("FT.PROFILE", OWN, "SEARCH", "QUERY", "word"),
        ("FT.CREATE", f"{OWN}evil", "PREFIX", 1, SPACE.family("memory"), "SCHEMA", "terms", "TEXT"),
        ("FT.ALTER", OWN, "SCHEMA", "ADD", "body", "TEXT"),
        ("FT.ALIASADD", f"{OWN}evil", SHARED),
        ("FT.DROPINDEX", OWN),
        ("FT._LIST",),
        ("FT.CURSOR", "READ", OWN, 1),
        ("FT.CONFIG", "GET", "*"),
        ("HGETALL", SECRET),
        ("HSET", SECRET, "body", "forged"),
        ("COPY", SECRET, "sm:{research}:ada:copy"),
        ("ZRANGE", SPACE.record_log("memory", "payroll"), 0, -1),
        ("ZRANGE", SPACE.record_item("memory", "payroll", "turns", "jobs"), 0, -1),
        ("HSET", SPACE.record("memory", "news", "s1"), "body", "forged"),
        ("EVAL", "return redis.call('FT.SEARCH', KEYS[1], 'word')", 1, SHARED),
        ("EVAL", "return redis.call('HGETALL', ARGV[1])", 0, SECRET),
    ],
    ids=lambda command: " ".join(map(str, command))[:60],
)
async def test_the_server_refuses_what_would_show_or_forge_another_tenants_memories(
    raw: Any, command: tuple[str, ...]
) -> None:
    with pytest.raises(ResponseError, match=r"(?i)no permissions"):
        await raw.execute_command(*command)


async def test_a_user_reads_and_writes_the_memories_of_its_namespace(raw: Any) -> None:
    own = SPACE.record("memory", "research", "s2")
    log = SPACE.record_log("memory", "research")
    state = SPACE.state(SPACE.target("research:$memory:s2"))

    await raw.hset(own, mapping={"terms": "plum", "body": "fruit"})
    await raw.zadd(log, {"s2": 1})
    await raw.set(state, "kept")

    assert (await raw.execute_command("FT.SEARCH", OWN, "plum"))[0] == 1
    assert await raw.hget(SPACE.record("memory", "news", "s1"), "body") == b"news"


@pytest.fixture
async def limited(operator: Hub) -> AsyncIterator[Hub]:
    """A hub logged in as the user of ada in `research`."""
    await operator.store("research", actor="ada").access.apply("ada", password=PASSWORD)
    settings = operator.settings.replace(redis_url=operator.url, redis_username="ada", redis_password=PASSWORD)
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub:
        yield hub


async def test_a_user_remembers_and_recalls_where_its_namespace_has_an_index_of_its_own(
    operator: Hub, limited: Hub
) -> None:
    await operator.store("payroll").memory.add("the salary of the harbour master")
    await operator.store("research").memory.add("the harbour master owns the tide table")
    for family in ("memory", "cache"):
        await operator.index.promote("research", family=family)
    ada = limited.store("research", actor="ada")

    added = await ada.memory.add("invoices are paid on Fridays", messages=[{"role": "user", "content": "Fridays"}])
    await ada.memory.update(added.id, importance="high")
    await ada.cache.put("who owns the tide table?", "the harbour master")

    assert [hit.item.memory for hit in await ada.memory.search("harbour master salary")][:1] == [
        "the harbour master owns the tide table"
    ]
    assert (await ada.memory.stats()).count == 2
    cached = await ada.cache.check("who owns the tide table?")
    assert cached is not None
    assert cached.response == "the harbour master"
    assert await ada.memory.delete(added.id)
    await limited.durable.drain("research", timeout=60)
    with pytest.raises(AccessDeniedError):
        await limited.store("payroll").memory.get("any")


async def test_a_user_that_may_not_search_the_shared_index_gets_advice(operator: Hub, limited: Hub) -> None:
    await operator.store("research").memory.add("the harbour master owns the tide table")

    with pytest.raises(AccessDeniedError, match=r"sharedmem --namespace research index promote$"):
        await limited.store("research", actor="ada").memory.search("tide")


def test_a_server_without_a_query_engine_is_told_nothing_of_it() -> None:
    identity = Identity("research", "ada", subscribe=("news",), grants=check_grants(("payroll:shared:jobs*",)))

    plain = acl_rules(identity, SPACE, password="p")
    searching = acl_rules(identity, SPACE, password="p", searches=True)

    assert not any("ft." in rule for rule in plain)
    indexes = [
        f"~sm:{{{name}}}:${family}.index:*"
        for name in ("research", "news")
        for family in ("memory", "cache", "graph", "note")
    ]
    indexes += [f"~{SPACE.object_index(name)}*" for name in ("research", "news")]
    assert set(searching) - set(plain) == {f"(-@all +ft.search +ft.aggregate +ft.info {' '.join(indexes)})"}


def test_a_grant_for_some_keys_reaches_no_memories() -> None:
    identity = Identity("research", "ada", grants=check_grants(("payroll:shared:jobs*", "desk:*")))

    rules = acl_rules(identity, SPACE, password="p", searches=True)

    assert not any("$memory" in rule and "payroll" in rule for rule in rules)
    assert f"~{SPACE.records_glob('memory', 'desk').decode()}" in rules
