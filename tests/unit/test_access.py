"""Who may touch what: decided purely, refused by name, and by the server's ACL exactly alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from redis import Redis
from support.example_budget import example_count
from support.redis_process import RedisProcess

from sharedmem import AccessDeniedError, Grant, Hub, InvalidError, SharedMemoryStore
from sharedmem.redis.keys import KeySpace, absolute_key
from sharedmem.redis.scope import Identity, acl_rules, check_grants

Need = Literal["read", "write"]

_ADA = Identity(
    namespace="team",
    actor="ada",
    subscribe=("news",),
    grants=check_grants(("other:tasks:*", Grant(pattern="lib:books:?", writes=False))),
)
_TABLE: list[tuple[str, bool, bool]] = [
    # key, may read, may write
    ("team:ada:k", True, True),
    ("team:ada", True, True),
    ("team:shared:k", True, True),
    ("team:bob:k", True, False),
    ("team:ada2:k", True, False),
    ("team:Ada:k", True, False),
    ("team:ad:a", True, False),
    ("team1:ada:k", False, False),
    ("Team:ada:k", False, False),
    ("tea:ada:k", False, False),
    ("ada:shared:k", False, False),
    ("global:any:k", True, True),
    ("global2:any:k", False, False),
    ("news:editor:today", True, False),
    ("news2:editor:today", False, False),
    ("other:tasks:1", True, True),
    ("other:tasks:a:b:c", True, True),
    ("other:tasks", False, False),
    ("other:tasksx:1", False, False),
    ("other:Tasks:1", False, False),
    ("xother:tasks:1", False, False),
    ("lib:books:1", True, False),
    ("lib:books:12", False, False),
    ("lib:books:?", True, False),
    ("lib:books:é", False, False),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    """A client of a server whose users may come and go."""
    with RedisProcess() as server, server.client() as client:
        yield client


@pytest.mark.parametrize(("key", "read", "write"), _TABLE)
def test_rights_are_decided_without_a_server(key: str, read: bool, write: bool) -> None:
    assert (_ADA.may("read", key), _ADA.may("write", key)) == (read, write)


@pytest.mark.parametrize(("key", "read", "write"), _TABLE)
def test_the_servers_acl_decides_alike(server: Redis, key: str, read: bool, write: bool) -> None:
    may = _acl_of(server, _ADA)

    assert (may("read", key), may("write", key)) == (read, write)


_NAMES = st.sampled_from(["team", "team1", "Team", "tea", "ada", "bob", "a-b", "a.b", "x^y", "ü", "global", "shared"])
_TEXT = st.text(alphabet="ab-^.é$|", min_size=1, max_size=3)
_WILD = st.text(alphabet="ab[]^-\\*?é.+", min_size=1, max_size=4)
_RESTS = st.lists(_NAMES | _TEXT | _WILD, min_size=1, max_size=3).map(":".join)
_KEYS = st.builds("{}:{}".format, _NAMES, _RESTS)
_GRANTS = st.builds(Grant, pattern=_KEYS, writes=st.booleans())
_IDENTITIES = st.builds(
    lambda namespace, actor, subscribe, grants: (namespace, actor, tuple(subscribe), tuple(grants)),
    _NAMES,
    st.none() | _NAMES,
    st.lists(_NAMES, max_size=2),
    st.lists(_GRANTS, max_size=3),
)


@settings(max_examples=example_count(50, thorough=150), deadline=None)
@example(("team", "ada", (), (Grant(pattern="x:[ab]*"),)), ["x:a", "x:[ab]", "x:b1"])
@example(("team", "ada", (), (Grant(pattern="x:a\\*"),)), ["x:a*", "x:a\\", "x:a\\b"])
@example(("team", "ada", (), (Grant(pattern="x:??"),)), ["x:é", "x:ab", "x:éé"])
@given(_IDENTITIES, st.lists(_KEYS, min_size=1, max_size=8))
def test_library_and_server_agree_on_whatever_names_and_patterns(
    server: Redis, who: tuple[str, str | None, tuple[str, ...], tuple[Grant, ...]], keys: list[str]
) -> None:
    namespace, actor, subscribe, grants = who
    try:
        identity = Identity(namespace, actor, subscribe, check_grants(grants))
        checked = [absolute_key(key, namespace, "shared") for key in keys]
    except InvalidError:
        reject()
    may = _acl_of(server, identity)

    for key in checked:
        for need in ("read", "write"):
            assert may(need, key) == identity.may(need, key), (need, key)


_ALIKE = ["{0}", "{0}1", "{0}10", "{0}-1", "x{0}", "ada"]


@pytest.fixture
async def alike(hub: Hub, namespace: str) -> AsyncIterator[dict[str, SharedMemoryStore]]:
    """Namespaces that could be taken for each other, by name; each holds one key `k` with that name in it."""
    names = [form.format(namespace) for form in _ALIKE] + [namespace.upper()]
    stores = {name: hub.store(name) for name in names}
    for name, store in stores.items():
        await store.write("k", name)
    yield stores
    for store in stores.values():
        await store.clear()


async def test_namespaces_that_look_alike_are_strangers(alike: dict[str, SharedMemoryStore]) -> None:
    for name, store in alike.items():
        assert [key async for key in store.keys("*")] == [f"{name}:shared:k"]
        assert (await store.usage()).keys == 1
        for other in set(alike) - {name}:
            with pytest.raises(AccessDeniedError, match=f"may not read '{other}:shared:k'"):
                await store.read(f"{other}:shared:k")
            with pytest.raises(AccessDeniedError):
                await anext(store.watch(f"{other}:*", since=0))


async def test_clearing_a_namespace_leaves_those_that_look_alike(
    alike: dict[str, SharedMemoryStore], namespace: str
) -> None:
    assert await alike.pop(namespace).clear() == 1

    assert [await store.read("k") for store in alike.values()] == list(alike)


async def test_messages_stay_in_their_namespace(alike: dict[str, SharedMemoryStore], namespace: str) -> None:
    async with alike[namespace].subscription("news", "n*") as mine:
        for name, store in alike.items():
            await store.publish("news", name)
        await alike[namespace].publish("news", "last")

        heard = [(await anext(mine)).value for _ in range(4)]

    assert heard == [namespace, namespace, "last", "last"]


async def test_an_actor_that_is_called_like_a_namespace_gets_nothing_by_it(hub: Hub, namespace: str) -> None:
    await hub.store(namespace).write("k", 1)
    impostor = hub.store(f"{namespace}-2", actor=namespace)

    for key in (f"{namespace}:shared:k", f"{namespace}:{namespace}:k"):
        with pytest.raises(AccessDeniedError):
            await impostor.read(key)
        with pytest.raises(AccessDeniedError):
            await impostor.write(key, 2)


@pytest.mark.parametrize("key", ["a*", "a?", "a[bc]", "a\\*", "a.b", "(a|b)", "^a$", "[^x]*"])
async def test_what_would_be_a_pattern_elsewhere_is_only_a_name_in_a_key(store: SharedMemoryStore, key: str) -> None:
    await store.write_many({"ab": 1, "abc": 2, "a": 3, key: "this one"})

    assert await store.read_many([key]) == {key: "this one"}
    assert await store.delete(key)
    assert await store.read_many(["ab", "abc", "a"]) == {"ab": 1, "abc": 2, "a": 3}


async def test_brackets_of_a_channel_pattern_mean_themselves(store: SharedMemoryStore) -> None:
    async with store.subscription("a[bc]*") as channel:
        await store.publish("ab1", "not meant")
        await store.publish("a[bc]1", "meant")

        assert (await anext(channel)).value == "meant"


async def test_a_subscription_hears_no_more_than_its_grant_reaches(hub: Hub, namespace: str) -> None:
    owner = hub.store(f"{namespace}-other")
    ada = hub.store(namespace, actor="ada", grants=(f"{namespace}-other:a?c",))
    async with ada.subscription(f"{namespace}-other:a*c") as channels:
        for channel in ("abbc", "a*c:x", "ac", "abc"):
            await owner.publish(f"{namespace}-other:{channel}", channel)

        assert (await anext(channels)).value == "abc"
    with pytest.raises(AccessDeniedError, match="actor 'ada' may not read"):
        async with ada.subscription(f"{namespace}-other:*"):
            pass


async def test_a_watcher_by_grant_sees_only_what_is_granted(hub: Hub, namespace: str) -> None:
    owner = hub.store(namespace)
    for key in ("secrets:k", "tasks:12", "tasks2:1", "tasks:1"):
        await owner.write(f"{namespace}:{key}", 1)
    guest = hub.store(f"{namespace}-guests", actor="ada", grants=(f"{namespace}:tasks:?",))

    seen = await anext(guest.watch(f"{namespace}:tasks:*", since=0))

    assert seen.key == f"{namespace}:tasks:1"
    assert [key async for key in guest.keys(f"{namespace}:tasks:*")] == [f"{namespace}:tasks:1"]


@pytest.mark.parametrize(
    "grant", ["*", "*:*", "t*:x", "te?m:x", "team", "team:", ":x", "team:$clock", "te[a]m:x", "{t}:x"]
)
async def test_a_grant_without_a_namespace_of_its_own_is_refused(hub: Hub, grant: str) -> None:
    with pytest.raises(InvalidError):
        hub.store("team", actor="ada", grants=(grant,))


@pytest.mark.parametrize("name", ["*", "te*", "t?", "[t]", "te\\am", "a:b", "a b", "$ops", "", "{t}", "a\n"])
async def test_a_name_that_could_widen_a_pattern_is_refused(hub: Hub, name: str) -> None:
    for options in ({"namespace": name}, {"namespace": "t", "actor": name}, {"namespace": "t", "subscribe": (name,)}):
        with pytest.raises(InvalidError):
            hub.store(**options)


async def test_a_refusal_names_the_actor_the_key_and_what_would_help(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace, actor="ada")

    with pytest.raises(AccessDeniedError) as refused:
        await store.write("elsewhere:tasks:1", 1)

    assert str(refused.value) == (
        f"actor 'ada' may not write 'elsewhere:tasks:1'; it may write {namespace}:ada:*, {namespace}:shared:* and"
        " global:*; open the store with grants=('elsewhere:tasks:1',) to add this"
    )
    assert not store.access.may("write", "elsewhere:tasks:1")
    assert store.access.may("write", "k")


def _acl_of(server: Redis, identity: Identity) -> Callable[[Need, str], bool]:
    """Asks the server what a user with the rules of an identity may."""
    keyspace = KeySpace("sm", client="any")
    rules = acl_rules(identity, keyspace, password="p")
    server.execute_command("ACL", "SETUSER", "tested", *rules)  # type: ignore[no-untyped-call]  # not typed by redis-py

    def may(need: Need, key: str) -> bool:
        command = ("GET",) if need == "read" else ("SET", "value")
        words = (command[0], keyspace.target(key).physical, *command[1:])
        verdict = server.execute_command("ACL", "DRYRUN", "tested", *words)  # type: ignore[no-untyped-call]  # likewise
        return bool(verdict == b"OK")

    return may
