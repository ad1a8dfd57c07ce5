"""Build the client for an address, and parse the features of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.errors import ConfigError, SharedMemoryError
from sharedmem.models import Powers
from sharedmem.redis.address import RedisAddress, check_tls
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import Driver, RedisClient, TracedRedisClient, Transport
from sharedmem.redis.credentials import CredentialProvider, Credentials
from sharedmem.redis.multiplexer import open_multiplexed
from sharedmem.redis.replies import Command, CredentialsError, Reply, ServerError, public_error

if TYPE_CHECKING:
    from sharedmem.redis.entra import EntraCredentials
    from sharedmem.redis.pooled import PooledConnection

_REMEDIES = {
    "search": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64; until then exact search",
    "json_documents": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64",
    "graph": "set SHAREDMEM_EMBEDDED_MODULES=search,json,graph, or load the FalkorDB module into your server",
    "vector_sets": "use Redis 8 or later",
}


def open_client(
    address: RedisAddress, settings: Settings, clock: Clock, provider: CredentialProvider | None = None
) -> RedisClient:
    """Return the client for an address, not yet connected.

    Args:
        address: the server.
        settings: timeouts, and how to log in.
        clock: for deadlines.
        provider: gives credentials; None: as the settings say.

    Raises:
        ConfigError: a TLS file does not exist or is invalid, or the settings contradict each other.
        UnsupportedError: the extra `entra` is not installed.
    """
    check_tls(address, settings)
    credentials = open_credentials(address, settings, clock, provider)
    transport, open_driver = _open_transports(address, settings, credentials)
    kind = TracedRedisClient if settings.trace_redis else RedisClient
    return kind(
        transport,
        open_driver,
        address=str(address),
        clock=clock,
        retry_for_s=settings.retry_for_s,
        credentials=credentials,
    )


def open_credentials(
    address: RedisAddress, settings: Settings, clock: Clock, provider: CredentialProvider | None = None
) -> Credentials | None:
    """Return the credentials that change, for `open_client`; None if user and password of the address log in.

    Raises:
        ConfigError, UnsupportedError: as `open_client`.
    """
    is_entra = provider is None and settings.redis_auth == "entra"
    if provider is None and not is_entra:
        return None
    if address.password is not None or (address.username is not None and not is_entra):
        problem = "there is a user or password beside a provider of credentials; keep one of them"
        raise ConfigError("redis_password", settings.origin("redis_password"), problem)
    close_provider = None
    if provider is None:
        provider = own = _open_entra(address, settings)
        close_provider = own.close
    return Credentials(
        provider,
        address=str(address),
        clock=clock,
        timeout_s=settings.connect_timeout_s,
        close_provider=close_provider,
    )


async def with_current_login(address: RedisAddress, settings: Settings, clock: Clock) -> RedisAddress:
    """Return an address with the user and password that log in now, for other programs.

    Raises:
        UnavailableError: the provider of credentials fails.
        ConfigError, UnsupportedError: as `open_client`.
    """
    credentials = open_credentials(address, settings, clock)
    if credentials is None:
        return address
    try:
        login = await credentials.login()
    except CredentialsError as error:
        raise public_error(error, str(address)) from error
    finally:
        await credentials.close()
    return replace(address, username=login.username, password=login.password)


def _open_entra(address: RedisAddress, settings: Settings) -> EntraCredentials:
    if not address.tls and not address.path:
        problem = "redis_auth=entra sends tokens, over TLS only; begin the URL with rediss://"
        raise ConfigError("redis_url", settings.origin("redis_url"), problem)
    from sharedmem.redis.entra import EntraCredentials  # noqa: PLC0415  # few hubs log in so

    return EntraCredentials(username=address.username)


def _open_transports(
    address: RedisAddress, settings: Settings, credentials: Credentials | None
) -> tuple[Transport | None, Callable[[], Driver]]:
    # What imports redis-py is imported when it is needed: it takes as long as a short command.
    if address.mode == "cluster":
        from sharedmem.redis.cluster import (  # noqa: PLC0415
            ClusterMultiplexedConnection,
            ClusterPooledConnection,
            open_cluster,
        )

        cluster = open_cluster(address, settings, credentials)
        return ClusterMultiplexedConnection(cluster), partial(ClusterPooledConnection, cluster)
    if address.mode == "sentinel":
        from sharedmem.redis.pooled import open_sentinel_pool  # noqa: PLC0415

        return None, partial(open_sentinel_pool, address, settings, credentials)
    return open_multiplexed(address, settings, credentials), partial(_open_pool, address, settings, credentials)


def _open_pool(address: RedisAddress, settings: Settings, credentials: Credentials | None) -> PooledConnection:
    from sharedmem.redis.pooled import open_pool  # noqa: PLC0415  # see above

    return open_pool(address, settings, credentials)


POWER_COMMANDS: tuple[Command, ...] = (
    ("HELLO",),
    ("INFO", "server"),
    ("COMMAND", "INFO", "VADD"),
    ("CONFIG", "GET", "appendonly"),
    ("CONFIG", "GET", "appendfsync"),
)
"""The commands that show the features of a server."""


def parse_powers(replies: Sequence[Reply], mode: str) -> Powers:
    """Return the features of a server; features that it does not report count as missing.

    Args:
        replies: replies to `POWER_COMMANDS`; a refusal is a `ServerError`.
        mode: mode of the connection.
    """
    hello, info, vector_sets, *persistence = (None if isinstance(reply, ServerError) else reply for reply in replies)
    greeting, facts = parse_pairs(hello), parse_info(info)
    # A user limited by ACL may only use HELLO; Valkey can be configured to identify as Redis there.
    name = "valkey" if "valkey_version" in facts else text_of(greeting.get("server", b"unknown"))
    modules = {text_of(parse_pairs(module).get("name")) for module in as_list(greeting.get("modules"))}
    found = {
        "search": "search" in modules,
        "json_documents": "ReJSON" in modules,
        "graph": "graph" in modules,
        "vector_sets": any(map(as_list, as_list(vector_sets))),
    }
    return Powers(
        server=name,
        version=facts.get("valkey_version") or text_of(greeting.get("version", b"unknown")),
        mode=mode,
        persistence=_parse_persistence(persistence),
        missing={power: _REMEDIES[power] for power, there in found.items() if not there},
        **found,
    )


async def read_server_info(line: RedisClient, section: str) -> dict[str, str]:
    """Return one section of INFO as text; empty if the server rejects the command."""
    try:
        return parse_info(await line.call("INFO", section))
    except (ServerError, SharedMemoryError):
        return {}


def parse_info(reply: Reply) -> dict[str, str]:
    """Return the fields of a reply to INFO as text; empty if it is no such reply."""
    lines = text_of(reply).splitlines() if isinstance(reply, bytes) else []
    return dict(part.split(":", 1) for part in lines if ":" in part)


def parse_pairs(reply: Reply) -> dict[str, Reply]:
    """Return a reply of names and values in turn."""
    words = as_list(reply)
    return {text_of(words[i]): words[i + 1] for i in range(0, len(words) - 1, 2)}


def _parse_persistence(replies: Sequence[Reply]) -> str:
    """Return the mode of the append-only file from replies to CONFIG GET."""
    values = [text_of(words[1]) if len(words) > 1 else None for words in map(as_list, replies)]
    if values[0] is None:
        return "unknown"
    return values[1] or "unknown" if values[0] == "yes" else "no"
