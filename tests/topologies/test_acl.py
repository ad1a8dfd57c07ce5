"""With the rules of `store.access.acl_rules` the server refuses, also to a raw client, what the library would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from support.redis_process import RedisProcess
from support.topologies import redis_cluster

from sharedmem import AccessDeniedError, Hub, InvalidError, Settings, SharedMemoryStore, UnsupportedError
from sharedmem.embedded.binaries import find_server
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.scripts import scripts

_PASSWORD = "s3cret-of-ada"


_SEARCH = find_server().modules.get("search")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    modules: dict[str, Any] = {"loadmodule": _SEARCH} if _SEARCH else {}
    with RedisProcess(tcp=True, **modules) as server:
        yield server


@pytest.fixture
async def hub(server: RedisProcess, tmp_path: Path) -> AsyncIterator[Hub]:
    """The administrator's hub."""
    async with Hub.open(server.url, settings=Settings(data_dir=tmp_path)) as hub:
        yield hub


def _rights(hub: Hub) -> SharedMemoryStore:
    """The store of ada in team: reads news, and may write tasks in other."""
    return hub.store("team", actor="ada", subscribe=("news",), grants=("other:tasks:*",))


@pytest.fixture
async def ada(hub: Hub, server: RedisProcess) -> AsyncIterator[Any]:
    """A raw client as ada."""
    await _rights(hub).access.apply("ada", password=_PASSWORD)
    client = Redis(port=server.port, username="ada", password=_PASSWORD, protocol=2)
    yield client
    await client.aclose()


@pytest.fixture
async def ada_hub(ada: Any, server: RedisProcess, tmp_path: Path) -> AsyncIterator[Hub]:
    """The library as ada."""
    settings = Settings(data_dir=tmp_path, redis_username="ada", redis_password=_PASSWORD)
    async with Hub.open(server.url, settings=settings) as hub:
        yield hub


async def test_a_limited_user_has_the_whole_store_but_for_lists_of_keys(hub: Hub, ada_hub: Hub) -> None:
    store = _rights(ada_hub)
    await hub.store("news", actor="editor").write("today", "rain")
    await hub.store("team", actor="bob").write("note", "from bob")

    version = await store.write("k", {"a": 1})
    assert await store.write("k", 2, if_version=version) > version
    assert await store.update("k", lambda value: value + 1) == 3
    assert await store.append("list", 1, max_length=5) == 1
    assert await store.hset("hash", "field", 1) == 1
    assert await store.hincrby("hash", "field", 2) == 3
    assert await store.sadd("set", "x") == 1
    assert await store.smove("set", "set-2", "x")
    assert await store.spop("set-2") == "x"
    assert await store.incr("counter") == 1
    assert await store.expire("counter", 60)
    assert await store.delete("list")
    assert await store.read_many(["k", "team:bob:note", "news:editor:today"]) == {
        "k": 3,
        "team:bob:note": "from bob",
        "news:editor:today": "rain",
    }
    await store.write_many({"shared-ish": 1, "team:shared:plan": 2, "other:tasks:1": 3, "global:board:x": 4})
    for listing in (store.usage(), anext(store.keys()), store.clear(), ada_hub.namespaces()):
        with pytest.raises(AccessDeniedError):
            await listing


async def test_a_limited_user_may_not_let_the_server_track_keys(ada_hub: Hub) -> None:
    near = ada_hub.store("team", actor="ada", near_cache=True)

    for _ in range(2):
        with pytest.raises(AccessDeniedError, match=r"(?i)client"):
            await near.read("k")


async def test_a_limited_user_hears_and_speaks(hub: Hub, ada_hub: Hub) -> None:
    store = _rights(ada_hub)
    async with store.subscription("team:*", "news:shared:today") as channels:
        assert await store.publish("plans", 1) == 1
        await hub.store("news").publish("today", "rain")

        assert [(await anext(channels)).value for _ in range(2)] == [1, "rain"]


async def test_a_limited_user_follows_changes_and_shares_them(hub: Hub, ada_hub: Hub) -> None:
    store = _rights(ada_hub)
    changes = store.watch("team:bob:*", since=0)
    bob = hub.store("team", actor="bob")
    await asyncio.gather(*(bob.write(key, 1) for key in ("alone", "shared-1", "shared-2", "watched")))
    while (await anext(changes)).key != "team:bob:watched":
        pass
    async with store.consumer("readers", "one", since=0, max_deliveries=1) as consumer:
        mine = aiter(consumer)
        while (change := await anext(mine)).key != "team:bob:watched":
            assert await consumer.ack(change) == 1
        assert await consumer.ack(change) == 1
        assert await consumer.dead_letters() == []


async def test_a_limited_hub_knows_its_server_and_its_layout(hub: Hub, ada_hub: Hub) -> None:
    assert ada_hub.powers.server == hub.powers.server == "redis"
    assert ada_hub.powers.version == hub.powers.version
    assert ada_hub.powers.search == hub.powers.search
    assert (await ada_hub.health()).ok


async def test_a_limited_hub_refuses_a_newer_layout_too(
    hub: Hub, ada: Any, server: RedisProcess, tmp_path: Path
) -> None:
    server.tell("SET", "sm:$layout", 99)
    settings = Settings(data_dir=tmp_path, redis_username="ada", redis_password=_PASSWORD)
    try:
        with pytest.raises(UnsupportedError, match="layout 99"):
            async with Hub.open(server.url, settings=settings):
                pass
    finally:
        server.tell("SET", "sm:$layout", 1)


_SECRET_KEY = "sm:{secret}:shared:k"

# What no user of team may do: by name, so that a failure tells.
_ATTACKS: dict[str, tuple[str | int, ...]] = {
    "read another namespace": ("GET", _SECRET_KEY),
    "read it among its own": ("MGET", "sm:{team}:ada:k", _SECRET_KEY),
    "write it": ("SET", _SECRET_KEY, 1),
    "read it by a script with a declared key": ("EVAL", "return redis.call('GET', KEYS[1])", 1, _SECRET_KEY),
    "read it by a script with a hidden key": ("EVAL", f"return redis.call('GET', '{_SECRET_KEY}')", 0),
    "read it in protected mode": ("EVAL", f"return redis.pcall('GET', '{_SECRET_KEY}')", 0),
    "copy it": ("COPY", _SECRET_KEY, "sm:{team}:ada:stolen"),
    "rename it": ("RENAME", _SECRET_KEY, "sm:{team}:ada:stolen"),
    "dump it": ("DUMP", _SECRET_KEY),
    "sort by it": ("SORT", "sm:{team}:ada:list", "BY", "nosort", "GET", "sm:{secret}:shared:*"),
    "sort by it, reading only": ("SORT_RO", "sm:{team}:ada:list", "BY", "nosort", "GET", "sm:{secret}:shared:*"),
    "see whether it exists": ("EXISTS", _SECRET_KEY),
    "see its changes": ("XRANGE", "sm:{secret}:$changes", "-", "+"),
    "turn its clock": ("SET", "sm:{secret}:$clock", 1),
    "a namespace whose name begins alike": ("GET", "sm:{team1}:shared:k"),
    "a namespace in other letters": ("GET", "sm:{Team}:shared:k"),
    "a namespace of its own name": ("GET", "sm:{ada}:shared:k"),
    "a key that only looks like its own": ("SET", "sm:{secret}:{team}:ada:k", 1),
    "another prefix": ("GET", "xx:{team}:ada:k"),
    "write another actor's key": ("SET", "sm:{team}:bob:k", 1),
    "append to another actor's list": ("RPUSH", "sm:{team}:bob:list", 1),
    "delete another actor's key": ("DEL", "sm:{team}:bob:k"),
    "write an actor whose name begins alike": ("SET", "sm:{team}:ada2:k", 1),
    "write another actor's key by a script": ("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "sm:{team}:bob:k"),
    "write where it may only read": ("SET", "sm:{news}:editor:today", 1),
    "write beyond its grant": ("SET", "sm:{other}:shared:k", 1),
    "read beyond its grant": ("GET", "sm:{other}:shared:k"),
    "write beside its grant": ("SET", "sm:{other}:tasksx:1", 1),
    "write the layout": ("SET", "sm:$layout", 2),
    "list keys": ("KEYS", "*"),
    "scan keys": ("SCAN", 0),
    "scan keys by a script": ("EVAL", "return redis.call('SCAN', '0')", 0),
    "a random key": ("RANDOMKEY",),
    "count keys": ("DBSIZE",),
    "read the statistics": ("INFO",),
    "flush all": ("FLUSHALL",),
    "flush the database": ("FLUSHDB",),
    "flush by a script": ("EVAL", "return redis.call('FLUSHALL')", 0),
    "read the configuration": ("CONFIG", "GET", "*"),
    "change the configuration": ("CONFIG", "SET", "requirepass", "x"),
    "flush the scripts": ("SCRIPT", "FLUSH"),
    "see the users": ("ACL", "LIST"),
    "raise its own rights": ("ACL", "SETUSER", "ada", "+@all", "~*"),
    "see the clients": ("CLIENT", "LIST"),
    "kill clients": ("CLIENT", "KILL", "TYPE", "normal"),
    "watch every key by tracking": ("CLIENT", "TRACKING", "ON", "REDIRECT", 1, "BCAST"),
    "watch all commands": ("MONITOR",),
    "swap databases": ("SWAPDB", 0, 1),
    "move a key away": ("MIGRATE", "127.0.0.1", 1, "sm:{team}:ada:k", 0, 100),
    "become a replica": ("REPLICAOF", "NO", "ONE"),
    "debug": ("DEBUG", "SLEEP", 0),
    "shut down": ("SHUTDOWN", "NOSAVE"),
    "load a module": ("MODULE", "LOAD", "x.so"),
    "load a function": ("FUNCTION", "LIST"),
    "see other channels": ("PUBSUB", "CHANNELS"),
    "speak in another namespace": ("PUBLISH", "sm:{secret}:shared:news", 1),
    "speak where it may only hear": ("PUBLISH", "sm:{news}:shared:today", 1),
    "speak as another actor": ("PUBLISH", "sm:{team}:bob:inbox", 1),
    "speak by a script": ("EVAL", "return redis.call('PUBLISH', 'sm:{secret}:shared:news', 1)", 0),
}
_SEARCHES: dict[str, tuple[str, ...]] = {
    "search all documents": ("FT.SEARCH", "secrets", "*"),
    "add them up": ("FT.AGGREGATE", "secrets", "*"),
    "list indexes": ("FT._LIST",),
    "drop an index": ("FT.DROPINDEX", "secrets"),
}


@pytest.mark.parametrize("command", _ATTACKS.values(), ids=_ATTACKS)
async def test_the_server_refuses(ada: Any, server: RedisProcess, command: tuple[str | int, ...]) -> None:
    server.tell("SET", _SECRET_KEY, "the secret")

    with pytest.raises(ResponseError) as refusal:
        await ada.execute_command(*command)

    words = ("has no permissions", "ACL failure", "DEBUG command not allowed", "MODULE command not allowed")
    assert isinstance(refusal.value, NoPermissionError) or any(word in str(refusal.value) for word in words)
    assert server.tell("GET", _SECRET_KEY) == b"the secret"


@pytest.mark.parametrize("command", _SEARCHES.values(), ids=_SEARCHES)
async def test_the_server_refuses_to_search_past_key_rules(
    ada: Any, server: RedisProcess, command: tuple[str, ...]
) -> None:
    if not _SEARCH:
        pytest.skip("no search module on this platform")

    with pytest.raises(NoPermissionError):
        await ada.execute_command(*command)


@pytest.mark.parametrize("channel", ["sm:{secret}:shared:news", "sm:{team1}:shared:news", "__redis__:invalidate"])
@pytest.mark.parametrize("how", ["subscribe", "psubscribe", "ssubscribe"])
async def test_the_server_refuses_to_let_it_hear(ada: Any, channel: str, how: str) -> None:
    async with ada.pubsub() as pubsub:
        await pubsub.execute_command(how.upper(), channel)

        with pytest.raises(NoPermissionError):
            await pubsub.parse_response()


async def test_the_librarys_own_scripts_reach_no_further(ada: Any, hub: Hub, server: RedisProcess) -> None:
    await hub.store("team", actor="bob").write("k", 1)
    space = KeySpace("sm", client="x").space("secret")
    digest = scripts()["key_delete"].digest
    keys = (space.clock, space.changes, space.operations, _SECRET_KEY.encode())
    with pytest.raises(NoPermissionError):
        await ada.evalsha(digest, 4, *keys, 0, 1, 0, "ada", 100)
    own = KeySpace("sm", client="x").space("team")
    with pytest.raises(NoPermissionError):
        await ada.evalsha(digest, 4, own.clock, own.changes, own.operations, "sm:{team}:bob:k", 0, 1, 0, "ada", 100)
    assert await hub.store("team", actor="bob").read("k") == 1


async def test_rules_name_the_user_only_by_what_it_may(hub: Hub, server: RedisProcess) -> None:
    rules = _rights(hub).access.acl_rules(password=_PASSWORD)

    assert rules[:4] == ["reset", "on", f">{_PASSWORD}", "-@all"]
    assert not any(rule in {"~*", "&*", "allkeys", "allchannels", "allcommands", "+@all"} for rule in rules)
    server.tell("ACL", "SETUSER", "by-hand", *rules)
    server.tell("ACL", "DELUSER", "by-hand")


async def test_a_user_that_is_applied_again_loses_what_it_had(hub: Hub, ada: Any, server: RedisProcess) -> None:
    await hub.store("team", actor="ada").access.apply("ada", password="another")

    async with Redis(port=server.port, username="ada", password="another", protocol=2) as client:
        with pytest.raises(NoPermissionError):
            await client.get("sm:{news}:editor:today")
    async with Redis(port=server.port, username="ada", password=_PASSWORD, protocol=2) as late:
        with pytest.raises(AuthenticationError):
            await late.ping()


@pytest.mark.parametrize("grant", ["other:my tasks:*", 'other:"quoted"', "other:(in):*"])
async def test_what_a_rule_cannot_say_is_refused(hub: Hub, grant: str) -> None:
    with pytest.raises(InvalidError, match="ACL rule"):
        hub.store("team", actor="ada", grants=(grant,)).access.acl_rules(password=_PASSWORD)


async def test_an_open_hub_has_no_rules_to_give(server: RedisProcess, tmp_path: Path) -> None:
    async with Hub.open(server.url, settings=Settings(data_dir=tmp_path, access="open")) as hub:
        with pytest.raises(UnsupportedError, match="namespaced"):
            hub.store("team").access.acl_rules(password=_PASSWORD)


async def test_a_password_that_is_refused_is_not_shown(hub: Hub, ada_hub: Hub) -> None:
    with pytest.raises(AccessDeniedError) as refused:
        await _rights(ada_hub).access.apply("eve", password="eves-own-secret")

    assert "eves-own-secret" not in _told(refused.value)


async def test_every_server_of_a_cluster_gets_the_user(tmp_path: Path) -> None:
    async with redis_cluster() as cluster, Hub.open(cluster.url, settings=Settings(data_dir=tmp_path)) as hub:
        await hub.store("team", actor="ada", grants=("rest:*",)).access.apply("ada", password=_PASSWORD)
        settings = Settings(data_dir=tmp_path, redis_username="ada", redis_password=_PASSWORD)
        async with Hub.open(cluster.url, settings=settings) as limited:
            store = limited.store("team", actor="ada", grants=("rest:*",))
            cluster.tell_all("SCRIPT", "FLUSH")

            assert [await store.incr(key) for key in ("counter", "rest:x:counter", "global:x:counter")] == [1, 1, 1]
            with pytest.raises(AccessDeniedError):
                await limited.store("third").incr("counter")


def _told(error: BaseException | None) -> str:
    """Everything that a traceback of an error would say."""
    words = []
    while error is not None:
        words += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(words)
