"""Build the client for an address, and parse the features of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.errors import SharedMemoryError
from sharedmem.models import Powers
from sharedmem.redis.address import RedisAddress, check_tls
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient, TracedRedisClient, Transport
from sharedmem.redis.cluster import Cluster, ClusterMultiplexedConnection, ClusterPooledConnection, Node
from sharedmem.redis.multiplexer import MultiplexedConnection
from sharedmem.redis.pooled import PooledConnection, SentinelPooledConnection
from sharedmem.redis.replies import Command, Reply, ServerError

_REMEDIES = {
    "search": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64; until then exact search",
    "json_documents": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64",
    "graph": "set SHAREDMEM_EMBEDDED_MODULES=search,json,graph, or load the FalkorDB module into your server",
    "vector_sets": "use Redis 8 or later",
}
# Blocking calls and subscriptions use one connection each, without a time limit.
_WITHOUT_TIMEOUT: dict[str, Any] = {"socket_timeout": None, "max_connections": 1 << 31}


def open_client(address: RedisAddress, settings: Settings, clock: Clock) -> RedisClient:
    """Return the client for an address, not yet connected.

    Raises:
        ConfigError: a TLS file does not exist or is invalid.
    """
    check_tls(address, settings)
    transport, driver = _open_transports(address, settings)
    kind = TracedRedisClient if settings.trace_redis else RedisClient
    return kind(transport, driver, address=str(address), clock=clock, retry_for_s=settings.retry_for_s)


def _open_transports(
    address: RedisAddress, settings: Settings
) -> tuple[Transport, PooledConnection | ClusterPooledConnection]:
    if address.mode == "cluster":
        cluster = Cluster(address.hosts, lambda place: _open_node(address.at(place), settings))
        return ClusterMultiplexedConnection(cluster), ClusterPooledConnection(cluster)
    if address.mode == "sentinel":
        driver = _sentinel_driver(address, settings)
        return driver, driver
    return _open_node(address, settings)


def _open_node(address: RedisAddress, settings: Settings) -> Node:
    """Return the connections to one server."""
    lane = MultiplexedConnection(
        address, connect_timeout_s=settings.connect_timeout_s, response_timeout_s=settings.response_timeout_s
    )
    place: dict[str, Any] = {"unix_socket_path": address.path}
    if not address.path:
        place = dict(zip(("host", "port"), address.hosts[0], strict=True))
    options = _options(address, settings) | place | {"db": address.database}
    driver = PooledConnection(
        redis.Redis(**options),
        redis.Redis(**options | _WITHOUT_TIMEOUT),
        response_timeout_s=settings.response_timeout_s,
        at_once=settings.max_connections,
    )
    return Node(lane, driver)


def _sentinel_driver(address: RedisAddress, settings: Settings) -> PooledConnection:
    sentinel: Any = Sentinel  # its constructor carries no types
    options = _options(address, settings) | {"db": address.database}
    return SentinelPooledConnection(
        sentinel(list(address.hosts), sentinel_kwargs=_sentinel_options(options, len(address.hosts)), **options),
        address.service or "",
        patient=_WITHOUT_TIMEOUT,
        response_timeout_s=settings.response_timeout_s,
        at_once=settings.max_connections,
    )


def _sentinel_options(options: dict[str, Any], count: int) -> dict[str, Any]:
    # Sentinels are asked one after the other: silent ones must leave time for the last one and for the master.
    share_s = options["socket_connect_timeout"] / (count + 1)
    own = {"socket_connect_timeout": share_s, "socket_timeout": min(share_s, options["socket_timeout"])}
    # Sentinels have users and databases of their own.
    return {name: value for name, value in options.items() if name not in {"username", "password", "db"}} | own


def _options(address: RedisAddress, settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),  # sharedmem retries itself, with an operation id
        "max_connections": settings.max_connections,
        "socket_timeout": settings.response_timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "username": address.username,
        "password": address.password,
    }
    if address.tls:
        options |= {
            "ssl": True,
            "ssl_ca_certs": address.tls_ca_file,
            "ssl_certfile": address.tls_cert_file,
            "ssl_keyfile": address.tls_key_file,
            "ssl_cert_reqs": "required" if address.tls_verify else "none",
            "ssl_check_hostname": address.tls_verify,
        }
    return options


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
    greeting, facts = _parse_pairs(hello), _parse_info(info)
    # A user limited by ACL may only use HELLO; Valkey can be configured to identify as Redis there.
    name = "valkey" if "valkey_version" in facts else text_of(greeting.get("server", b"unknown"))
    modules = {text_of(_parse_pairs(module).get("name")) for module in as_list(greeting.get("modules"))}
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
        return _parse_info(await line.call("INFO", section))
    except (ServerError, SharedMemoryError):
        return {}


def _parse_info(reply: Reply) -> dict[str, str]:
    lines = text_of(reply).splitlines() if isinstance(reply, bytes) else []
    return dict(part.split(":", 1) for part in lines if ":" in part)


def _parse_pairs(reply: Reply) -> dict[str, Reply]:
    """Return a reply of names and values in turn."""
    words = as_list(reply)
    return {text_of(words[i]): words[i + 1] for i in range(0, len(words) - 1, 2)}


def _parse_persistence(replies: Sequence[Reply]) -> str:
    """Return the mode of the append-only file from replies to CONFIG GET."""
    values = [text_of(words[1]) if len(words) > 1 else None for words in map(as_list, replies)]
    if values[0] is None:
        return "unknown"
    return values[1] or "unknown" if values[0] == "yes" else "no"
