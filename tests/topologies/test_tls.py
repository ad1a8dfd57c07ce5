"""A store over TLS: who is not trusted is told so by name, on the fast lane and on redis-py's connections alike."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.chaos_proxy import ChaosProxy
from support.redis_process import RedisProcess
from support.topologies import Certificates

from sharedmem import ConfigError, Hub, Message, Missed, Settings, UnavailableError
from sharedmem.sync import Hub as BlockingHub

_LARGE = "x" * 200_000
"""Larger than what the multiplexed connection carries."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    with RedisProcess(tcp=True) as server:
        yield server


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def trusting(certificates: Certificates, tmp_path: Path) -> Settings:
    """Settings that trust the server's authority."""
    return Settings(data_dir=tmp_path, tls_ca_file=certificates.authority)


async def test_everything_goes_through_tls(
    server: RedisProcess, certificates: Certificates, trusting: Settings
) -> None:
    async with (
        ChaosProxy(server.url, tls=certificates.of_server()) as proxy,
        Hub.open(proxy.url, settings=trusting) as hub,
    ):
        store = hub.store("team")
        async with store.subscription("news") as news:
            await asyncio.gather(*(store.write(f"k{at}", at) for at in range(100)))
            await store.write("large", _LARGE)
            await store.publish("news", "hello")

            assert await anext(news) == Message(channel="team:shared:news", value="hello")
            assert await store.read_many(["k7", "large"]) == {"k7": 7, "large": _LARGE}
        assert hub.url == proxy.url


async def test_blocking_reads_have_tls_connections_of_their_own(
    server: RedisProcess, certificates: Certificates, trusting: Settings
) -> None:
    async with ChaosProxy(server.url, tls=certificates.of_server()) as proxy:

        def read_often() -> None:
            with BlockingHub.open(proxy.url, settings=trusting) as hub, server.client() as onlooker:
                store = hub.store("team")
                store.write("k", "over TLS")
                before = len(onlooker.client_list())
                assert [store.read("k") for _ in range(30)] == ["over TLS"] * 30
                assert len(onlooker.client_list()) == before + 1

        await asyncio.to_thread(read_often)


async def test_a_cut_tls_connection_comes_back(
    server: RedisProcess, certificates: Certificates, trusting: Settings
) -> None:
    async with (
        ChaosProxy(server.url, tls=certificates.of_server()) as proxy,
        Hub.open(proxy.url, settings=trusting) as hub,
    ):
        store = hub.store("cut")
        async with store.subscription("news") as news:
            proxy.reset_all()

            assert await store.incr("counter") == 1
            assert isinstance(await anext(news), Missed)


async def test_a_client_shows_its_certificate(
    server: RedisProcess, certificates: Certificates, trusting: Settings
) -> None:
    known = trusting.replace(tls_cert_file=certificates.client, tls_key_file=certificates.client_key)
    async with (
        ChaosProxy(server.url, tls=certificates.of_server(asks_clients=True)) as proxy,
        Hub.open(proxy.url, settings=known) as hub,
    ):
        store = hub.store("shown")
        await store.write("large", _LARGE)

        assert await store.read("large") == _LARGE


async def test_a_client_without_the_certificate_it_needs_is_told(
    certificates: Certificates, trusting: Settings
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(_refuse, listener, certificates.of_server(asks_clients=True)))
        with pytest.raises(ConfigError, match=r"does not accept the client certificate.*tls_cert_file"):
            async with Hub.open(f"rediss://127.0.0.1:{listener.getsockname()[1]}", settings=trusting):
                pass
        await refusing


async def test_a_server_that_hangs_up_without_a_word_may_want_a_certificate(
    server: RedisProcess, certificates: Certificates, trusting: Settings
) -> None:
    async with ChaosProxy(server.url, tls=certificates.of_server(asks_clients=True)) as proxy:
        with pytest.raises(UnavailableError, match=r"no client certificate is set.*tls_cert_file"):
            async with Hub.open(proxy.url, settings=trusting):
                pass


async def test_a_server_of_an_unknown_authority_is_not_trusted(
    server: RedisProcess, certificates: Certificates, tmp_path: Path
) -> None:
    async with ChaosProxy(server.url, tls=certificates.of_server()) as proxy:
        with pytest.raises(ConfigError, match=r"server's certificate is not trusted.*tls_ca_file"):
            async with Hub.open(proxy.url, settings=Settings(data_dir=tmp_path)):
                pass


async def test_redis_py_does_not_trust_it_either(
    server: RedisProcess, certificates: Certificates, tmp_path: Path
) -> None:
    async with ChaosProxy(server.url, tls=certificates.of_server()) as proxy:
        sentinel = proxy.url.replace("rediss:", "rediss+sentinel:").replace("/0", "/mymaster")
        cluster = proxy.url.replace("rediss:", "rediss+cluster:").removesuffix("/0")
        for url in (cluster, sentinel):
            with pytest.raises(ConfigError, match="certificate is not trusted"):
                async with Hub.open(url, settings=Settings(data_dir=tmp_path)):
                    pass


async def test_a_certificate_for_another_name_is_not_trusted(
    server: RedisProcess, certificates: Certificates, trusting: Settings
) -> None:
    async with ChaosProxy(server.url, tls=certificates.of_server("redis.example.org")) as proxy:
        with pytest.raises(ConfigError, match=r"not trusted.*127\.0\.0\.1.*host name from the certificate"):
            async with Hub.open(proxy.url, settings=trusting):
                pass


async def test_without_checks_any_certificate_will_do(
    server: RedisProcess, certificates: Certificates, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path, tls_verify=False)
    async with (
        ChaosProxy(server.url, tls=certificates.of_server("redis.example.org")) as proxy,
        Hub.open(proxy.url, settings=settings) as hub,
    ):
        store = hub.store("unchecked")
        await store.write("large", _LARGE)

        assert await store.read("large") == _LARGE


@pytest.mark.parametrize("name", ["tls_ca_file", "tls_cert_file"])
async def test_a_tls_file_that_is_missing_or_none_is_named(name: str, tmp_path: Path) -> None:
    missing = Settings.model_validate({name: tmp_path / "missing.pem"})
    text = tmp_path / "text.pem"
    text.write_text("no certificate")

    for settings, problem in (
        (missing, "there is no file"),
        (missing.replace(**{name: text}), "is not a valid TLS file"),
    ):
        with pytest.raises(ConfigError, match=f"{name}.*argument.*{problem}"):
            async with Hub.open("rediss://127.0.0.1:1", settings=settings):
                pass


async def test_a_server_that_speaks_no_tls_is_told(server: RedisProcess, tmp_path: Path) -> None:
    # It takes the greeting for the beginning of a command and waits for the rest.
    with pytest.raises(UnavailableError, match=r"connect_timeout_s = 0\.3 s; it still waited for the TLS"):
        async with Hub.open(
            f"rediss://127.0.0.1:{server.port}", settings=Settings(data_dir=tmp_path, connect_timeout_s=0.3)
        ):
            pass


def _refuse(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Turn one client away as OpenSSL does: with an alert that says why."""
    accepted, _ = listener.accept()
    accepted.settimeout(10)
    secured = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
    with suppress(ssl.SSLError):
        secured.do_handshake()
    with socket.socket(fileno=secured.detach()) as plain:
        plain.settimeout(10)
        plain.shutdown(socket.SHUT_WR)
        while plain.recv(4096):
            """What the client still had to say; unread it would wipe the alert out."""
