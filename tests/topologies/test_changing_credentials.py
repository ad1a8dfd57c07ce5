"""Credentials that expire: a hub logs in with those of the moment, and its live connections change before the end.

The identity provider is a script, the server is real: an old user is deleted, which closes each connection that still
has its log-in, as Azure does when a token expires.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis.auth.idp import IdentityProviderInterface
from redis.auth.token import SimpleToken, TokenInterface
from redis.auth.token_manager import RetryPolicy, TokenManagerConfig
from redis.credentials import UsernamePasswordCredentialProvider
from redis_entraid.cred_provider import EntraIdCredentialsProvider
from support.closed_iterators import closed_at_exit
from support.redis_process import RedisProcess
from support.rotating_credentials import RotatingCredentials
from support.topologies import Certificates, redis_cluster, sentinel_group
from support.waiting import wait_until

from sharedmem import ConfigError, Hub, Message, Settings, SharedMemoryStore, UnavailableError
from sharedmem import sync as blocking
from sharedmem.redis.entra import EntraCredentials
from sharedmem.testing import ManualClock

_LARGE = "x" * 200_000
"""Larger than what the multiplexed connection carries."""
_FIRST, _SECOND, _THIRD = "first-s3cret", "second-s3cret", "third-s3cret"


@pytest.fixture(scope="module")
def module_server() -> Iterator[RedisProcess]:
    with RedisProcess(tcp=True) as server:
        yield server


@pytest.fixture
def server(module_server: RedisProcess) -> RedisProcess:
    module_server.tell("FLUSHALL")
    for user in ("one", "two", "ada"):
        module_server.tell("ACL", "DELUSER", user)
    allow(module_server, "one", _FIRST)
    return module_server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, retry_for_s=10)


@pytest.fixture
def provider() -> RotatingCredentials:
    return RotatingCredentials("one", _FIRST)


@pytest.fixture
async def hub(server: RedisProcess, settings: Settings, provider: RotatingCredentials) -> AsyncIterator[Hub]:
    async with Hub.open(server.url, settings=settings, credentials=provider) as hub:
        yield hub


def allow(server: RedisProcess, user: str, password: str) -> None:
    """Make a user, or give it another password: then the old one is over."""
    server.tell("ACL", "SETUSER", user, "reset", "on", f">{password}", "~*", "&*", "+@all")


def logged_in(server: RedisProcess, user: str) -> int:
    """The number of connections of a user."""
    found: Any = server.tell("CLIENT LIST")
    return [entry["user"] for entry in found].count(user)


def is_over(server: RedisProcess, user: str) -> bool:
    """Whether no connection has the log-in of a user any more."""
    return not logged_in(server, user)


def has_come(server: RedisProcess, user: str) -> bool:
    """Whether a connection has the log-in of a user."""
    return logged_in(server, user) > 0


async def use(store: SharedMemoryStore) -> None:
    """Use the multiplexed connection, and those of the pools."""
    await asyncio.gather(*(store.write(f"k{at}", at) for at in range(10)))
    await store.write("large", _LARGE)
    assert await store.read("large") == _LARGE
    assert await store.read("k3") == 3
    assert [key async for key in store.keys("k3")]


# -- rotation -------------------------------------------------------------------------------------


async def test_live_connections_log_in_again_before_the_old_log_in_is_over(
    server: RedisProcess, hub: Hub, provider: RotatingCredentials
) -> None:
    store = hub.store("team", near_cache=True)
    async with store.subscription("news") as news, closed_at_exit(store.watch("k*")) as changes:
        watching = asyncio.ensure_future(anext(changes))
        await use(store)
        assert (await asyncio.wait_for(watching, 30)).key.endswith(("k0", "k1"))
        before = logged_in(server, "one")

        allow(server, "two", _SECOND)
        await provider.rotate("two", _SECOND)
        await wait_until(partial(is_over, server, "one"), description="no connection has the old log-in")
        generation = hub._require_open().connection.client.generation
        server.tell("ACL", "DELUSER", "one")
        await use(store)
        await store.publish("news", "still here")
        heard = await asyncio.wait_for(anext(news), 30)

        assert before >= 4
        assert isinstance(heard, Message)
        assert heard.value == "still here"
        assert hub._require_open().connection.client.generation == generation


async def test_a_blocking_read_and_a_waiter_go_on_over_a_rotation(
    server: RedisProcess, hub: Hub, provider: RotatingCredentials
) -> None:
    store = hub.store("team")
    async with store.lock("door", lease=60):
        waiting = asyncio.create_task(store.lock("door", lease=60, wait=60).__aenter__())
        await wait_until(lambda: logged_in(server, "one") >= 2, description="the waiter listens")
        allow(server, "two", _SECOND)
        await provider.rotate("two", _SECOND)
        await wait_until(partial(is_over, server, "one"), description="no connection has the old log-in")
        server.tell("ACL", "DELUSER", "one")

    assert await asyncio.wait_for(waiting, 30)


async def test_a_subscription_that_logs_in_during_a_rotation_does_not_keep_the_old_log_in(
    server: RedisProcess, hub: Hub, provider: RotatingCredentials
) -> None:
    store = hub.store("team")
    await store.write("k", 1)
    release = provider.hold_next()

    async def hear() -> object:
        async with store.subscription("news") as news:
            return await anext(news)

    hearing = asyncio.create_task(hear())
    await asyncio.wait_for(provider.held.wait(), 30)
    allow(server, "two", _SECOND)
    await provider.rotate("two", _SECOND)
    await wait_until(partial(has_come, server, "two"), description="the others have the new log-in")
    others = logged_in(server, "two")
    release.set()
    await wait_until(lambda: logged_in(server, "two") > others, description="the subscription has it, too")
    server.tell("ACL", "DELUSER", "one")
    await store.publish("news", "still here")

    assert isinstance(await asyncio.wait_for(hearing, 30), Message)


async def test_a_hub_survives_many_rotations_under_load(
    server: RedisProcess, hub: Hub, provider: RotatingCredentials
) -> None:
    store, done = hub.store("team"), asyncio.Event()

    async def work(name: str) -> int:
        count = 0
        while not done.is_set():
            count += 1
            assert await store.incr(name) == count
            await store.write(f"large-{name}", _LARGE)
        return count

    workers = [asyncio.create_task(work(f"n{at}")) for at in range(4)]
    users = ["one", "two"] * 3
    for old, new in pairwise(users):
        allow(server, new, f"of-{new}")
        await provider.rotate(new, f"of-{new}")
        await wait_until(partial(is_over, server, old), description="nobody has the old log-in")
        server.tell("ACL", "DELUSER", old)
    done.set()

    assert all(await asyncio.gather(*workers))


async def test_a_lost_connection_comes_back_with_the_password_of_the_moment(
    server: RedisProcess, hub: Hub, provider: RotatingCredentials
) -> None:
    store = hub.store("team")
    await use(store)

    allow(server, "one", _SECOND)
    provider.login = ("one", _SECOND)
    server.tell("CLIENT", "KILL", "USER", "one")
    await use(store)

    assert logged_in(server, "one") >= 2


class SilentCredentials:
    """A provider that cannot renew: the control of the tests above."""

    def __init__(self) -> None:
        self.login = ("one", _FIRST)

    async def get_credentials_async(self) -> tuple[str, str]:
        return self.login


async def test_connections_of_a_provider_that_does_not_renew_are_lost_and_come_back(
    server: RedisProcess, settings: Settings
) -> None:
    silent = SilentCredentials()
    async with Hub.open(server.url, settings=settings, credentials=silent) as hub:
        await use(hub.store("team"))
        generation = hub._require_open().connection.client.generation

        allow(server, "two", _SECOND)
        silent.login = ("two", _SECOND)
        assert logged_in(server, "one") >= 2
        server.tell("ACL", "DELUSER", "one")
        await use(hub.store("team"))

        assert hub._require_open().connection.client.generation > generation


async def test_a_live_connection_whose_log_in_the_server_has_ended_logs_in_again(settings: Settings) -> None:
    with RedisProcess(tcp=True, password="of-the-administrator") as guarded:
        allow(guarded, "one", _FIRST)
        async with Hub.open(guarded.url, settings=settings, credentials=SilentCredentials()) as hub:
            client, store = hub._require_open().connection.client, hub.store("team")
            await store.write("k", 1)

            for _ in range(2):
                await client.call("RESET")  # from now on this connection has no user
                assert await store.read("k") == 1
            await client.call("RESET")
            assert await store.incr("n") == 1


async def test_a_provider_that_says_nothing_is_asked_by_the_clock(
    server: RedisProcess, settings: Settings, provider: RotatingCredentials
) -> None:
    clock = ManualClock()
    async with Hub(server.url, settings=settings, clock=clock, credentials=provider) as hub:
        await use(hub.store("team"))
        allow(server, "two", _SECOND)
        provider.login = ("two", _SECOND)

        async def is_renewed() -> bool:
            clock.advance(31)
            return not logged_in(server, "one")

        await wait_until(is_renewed, description="all connections have the new log-in")
        await use(hub.store("team"))


# -- other topologies -----------------------------------------------------------------------------


async def test_all_servers_of_a_cluster_get_the_new_log_in(settings: Settings, provider: RotatingCredentials) -> None:
    async with redis_cluster() as cluster:
        for master in cluster.masters:
            allow(master, "one", _FIRST)
        async with Hub.open(cluster.url, settings=settings, credentials=provider) as hub:
            stores = [hub.store(f"team-{at}") for at in range(6)]
            for store in stores:
                await use(store)
            for master in cluster.masters:
                allow(master, "two", _SECOND)
            await provider.rotate("two", _SECOND)
            for master in cluster.masters:
                await wait_until(partial(is_over, master, "one"), description="no old log-in")
                master.tell("ACL", "DELUSER", "one")
            for store in stores:
                await use(store)


async def test_a_master_behind_sentinels_gets_the_new_log_in(settings: Settings, provider: RotatingCredentials) -> None:
    async with sentinel_group() as group:
        allow(group.master, "one", _FIRST)
        async with Hub.open(group.url, settings=settings, credentials=provider) as hub:
            store = hub.store("team")
            async with store.subscription("news") as news:
                await use(store)
                allow(group.master, "two", _SECOND)
                await provider.rotate("two", _SECOND)
                await wait_until(partial(is_over, group.master, "one"), description="no old log-in")
                group.master.tell("ACL", "DELUSER", "one")
                await use(store)
                await store.publish("news", "still here")
                heard = await asyncio.wait_for(anext(news), 30)

    assert isinstance(heard, Message)


# -- providers ------------------------------------------------------------------------------------


def test_a_hub_without_await_takes_a_provider_without_await(server: RedisProcess, settings: Settings) -> None:
    plain = UsernamePasswordCredentialProvider("one", _FIRST)

    with blocking.Hub.open(server.url, settings=settings, credentials=plain) as hub:
        hub.store("team").write("k", 1)

        assert logged_in(server, "one")


class ScriptedIdentity(IdentityProviderInterface):
    """Gives redis-entraid's provider a new token each time."""

    def __init__(self, server: RedisProcess) -> None:
        self._server = server
        self._number = 0

    def request_token(self, force_refresh: bool = False) -> TokenInterface:
        """Return a token, with which the server lets in its user."""
        if force_refresh or not self._number:
            self._number += 1
        user = ("one", "two")[self._number % 2]
        allow(self._server, user, f"token-{self._number}")
        now_ms = time.time() * 1000
        return SimpleToken(f"token-{self._number}", now_ms + 2_000, now_ms, {"oid": user})


async def test_the_provider_of_redis_entraid_renews_the_log_in(server: RedisProcess, settings: Settings) -> None:
    pace = TokenManagerConfig(0.1, 0, 1_000, RetryPolicy(3, 3))
    entraid = EntraIdCredentialsProvider(ScriptedIdentity(server), pace)
    async with Hub.open(server.url, settings=settings, credentials=entraid) as hub:
        store = hub.store("team")
        for user in ("one", "two", "one"):
            await wait_until(partial(has_come, server, user), description="the log-in is renewed")
            await use(store)
    entraid._token_mgr.stop()


def token_of(user: str) -> str:
    """A token as those of Entra ID: the object id is a claim."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, {"oid": user}, "signature")]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class AzureCredential:
    """Replaces a credential of azure-identity."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def get_token(self, *scopes: str, **_: object) -> Any:
        assert scopes == ("https://redis.azure.com/.default",)
        return SimpleNamespace(token=self.token, expires_on=0)


async def test_a_token_of_entra_id_logs_in_as_its_object_id(server: RedisProcess, settings: Settings) -> None:
    user = "4fa1c0de-0000-4000-8000-000000000001"
    allow(server, user, token_of(user))
    credential: Any = AzureCredential(token_of(user))

    async with Hub.open(server.url, settings=settings, credentials=EntraCredentials(credential)) as hub:
        await hub.store("team").write("k", 1)
        found = logged_in(server, user)
    server.tell("ACL", "DELUSER", user)

    assert found
    allow(server, "named", "opaque")
    credential.token = "opaque"
    async with Hub.open(
        server.url, settings=settings, credentials=EntraCredentials(credential, username="named")
    ) as hub:
        await hub.store("team").write("k", 1)
    with pytest.raises(UnavailableError, match="no claim `oid`"):
        await Hub.open(server.url, settings=settings, credentials=EntraCredentials(credential))


async def test_the_setting_logs_in_with_entra_id_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    authority = Certificates(tmp_path).authority
    settings = Settings(data_dir=tmp_path, redis_auth="entra", tls_ca_file=authority)

    with pytest.raises(UnavailableError, match=r"EntraCredentials fails.*check its own log-in"):
        await Hub.open("rediss://127.0.0.1:9", settings=settings)


# -- errors ---------------------------------------------------------------------------------------


async def test_a_provider_that_fails_is_one_clear_sentence(
    server: RedisProcess, settings: Settings, provider: RotatingCredentials
) -> None:
    provider.failure = RuntimeError("the identity service is away\nwith details")

    with pytest.raises(UnavailableError) as caught:
        await Hub.open(server.url, settings=settings, credentials=provider)

    assert str(caught.value).endswith(
        "the credential provider RotatingCredentials fails (RuntimeError: the identity service is away); "
        "check its own log-in"
    )


async def test_a_provider_without_an_answer_does_not_hold_a_hub_forever(server: RedisProcess, tmp_path: Path) -> None:
    class Silent:
        async def get_credentials_async(self) -> tuple[str, str]:
            await asyncio.Event().wait()
            raise AssertionError

    settings = Settings(data_dir=tmp_path, connect_timeout_s=0.05)

    with pytest.raises(UnavailableError, match="connect_timeout_s"):
        await Hub.open(server.url, settings=settings, credentials=Silent())


async def test_credentials_that_the_server_does_not_accept_are_named(server: RedisProcess, settings: Settings) -> None:
    wrong = RotatingCredentials("one", _THIRD)

    with pytest.raises(UnavailableError, match=r"credentials of RotatingCredentials for the user 'one' \(WRONGPASS\)"):
        await Hub.open(server.url, settings=settings, credentials=wrong)


async def test_a_failed_renewal_is_a_warning_and_the_next_one_counts(
    server: RedisProcess, hub: Hub, provider: RotatingCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    store = hub.store("team")
    await use(store)

    await provider.fail(RuntimeError(f"no new token instead of {_FIRST}"))
    await wait_until(lambda: "earlier credentials stay in use" in caplog.text, description="the warning")
    await store.write("k", "by the old log-in")
    allow(server, "two", _SECOND)
    await provider.rotate("two", _SECOND)
    await wait_until(partial(is_over, server, "one"), description="the next token")

    assert await store.read("k") == "by the old log-in"
    assert _FIRST not in caplog.text


async def test_no_secret_is_in_a_log_or_a_repr(
    server: RedisProcess, settings: Settings, provider: RotatingCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Hub.open(server.url, settings=settings, credentials=provider) as hub:
        await use(hub.store("team"))
        allow(server, "two", _SECOND)
        await provider.rotate("two", _SECOND)
        await wait_until(partial(is_over, server, "one"), description="the new log-in")
        client = hub._require_open().connection.client
        shown = f"{hub!r} {hub.url} {client!r} {vars(client)!r} {client._credentials!r} {client._credentials.latest!r}"  # type: ignore[union-attr]  # it has some

    for secret in (_FIRST, _SECOND):
        assert secret not in caplog.text + shown


async def test_what_contradicts_a_provider_is_refused(
    server: RedisProcess, settings: Settings, provider: RotatingCredentials
) -> None:
    entra = settings.replace(redis_auth="entra")

    with pytest.raises(ConfigError, match="beside a provider"):
        await Hub.open(server.url.replace("//", "//user:pass@"), settings=settings, credentials=provider)
    with pytest.raises(ConfigError, match="SHAREDMEM_REDIS_URL"):
        await Hub.open(settings=settings, credentials=provider)
    with pytest.raises(ConfigError, match="SHAREDMEM_REDIS_URL"):
        await Hub.open(settings=entra)
    with pytest.raises(ConfigError, match="rediss://"):
        await Hub.open(server.url, settings=entra)
    with pytest.raises(ConfigError, match="beside a provider"):
        await Hub.open("rediss://:pass@127.0.0.1:9", settings=entra)
