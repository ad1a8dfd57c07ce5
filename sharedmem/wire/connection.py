"""Opens the line to a server, and finds out what that server can do."""

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
from sharedmem.wire.address import Address, check_tls
from sharedmem.wire.changes import as_list, text_of
from sharedmem.wire.cluster import Cluster, ClusterDriver, ClusterLane, Node
from sharedmem.wire.driver import Driver, SentinelDriver
from sharedmem.wire.lane import Lane
from sharedmem.wire.line import Line, Transport
from sharedmem.wire.replies import Command, Reply, ServerError

_REMEDIES = {
    "search": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64; until then exact search",
    "json_documents": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64",
    "graph": "set SHAREDMEM_EMBEDDED_MODULES=search,json,graph, or load the FalkorDB module into your server",
    "vector_sets": "use Redis 8 or later",
}
# Blocking calls and subscriptions hold a connection each, for as long as they like.
_PATIENT: dict[str, Any] = {"socket_timeout": None, "max_connections": 1 << 31}


def open_line(address: Address, settings: Settings, clock: Clock) -> Line:
    """The line to an address, not yet connected.

    Raises:
        ConfigError: a TLS file is not there, or is none.
    """
    check_tls(address, settings)
    transport, driver = _carriers(address, settings)
    return Line(transport, driver, address=str(address), clock=clock, retry_for_s=settings.retry_for_s)


def _carriers(address: Address, settings: Settings) -> tuple[Transport, Driver | ClusterDriver]:
    if address.mode == "cluster":
        cluster = Cluster(address.hosts, lambda place: _node(address.at(place), settings))
        return ClusterLane(cluster), ClusterDriver(cluster)
    if address.mode == "sentinel":
        driver = _sentinel_driver(address, settings)
        return driver, driver
    return _node(address, settings)


def _node(address: Address, settings: Settings) -> Node:
    """The ways to one server."""
    lane = Lane(address, connect_timeout_s=settings.connect_timeout_s, response_timeout_s=settings.response_timeout_s)
    place: dict[str, Any] = {"unix_socket_path": address.path}
    if not address.path:
        place = dict(zip(("host", "port"), address.hosts[0], strict=True))
    options = _options(address, settings) | place | {"db": address.database}
    driver = Driver(
        redis.Redis(**options),
        redis.Redis(**options | _PATIENT),
        response_timeout_s=settings.response_timeout_s,
        at_once=settings.max_connections,
    )
    return Node(lane, driver)


def _sentinel_driver(address: Address, settings: Settings) -> Driver:
    sentinel: Any = Sentinel  # its constructor carries no types
    options = _options(address, settings) | {"db": address.database}
    return SentinelDriver(
        sentinel(list(address.hosts), sentinel_kwargs=_for_sentinels(options, len(address.hosts)), **options),
        address.service or "",
        patient=_PATIENT,
        response_timeout_s=settings.response_timeout_s,
        at_once=settings.max_connections,
    )


def _for_sentinels(options: dict[str, Any], count: int) -> dict[str, Any]:
    # They are asked one after the other: those that are silent leave time for the last one, and for the master.
    share_s = options["socket_connect_timeout"] / (count + 1)
    own = {"socket_connect_timeout": share_s, "socket_timeout": min(share_s, options["socket_timeout"])}
    # Sentinels have users and databases of their own.
    return {name: value for name, value in options.items() if name not in {"username", "password", "db"}} | own


def _options(address: Address, settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),  # retries are ours, with an operation id
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


POWER_QUESTIONS: tuple[Command, ...] = (
    ("HELLO",),
    ("INFO", "server"),
    ("COMMAND", "INFO", "VADD"),
    ("CONFIG", "GET", "appendonly"),
    ("CONFIG", "GET", "appendfsync"),
)
"""What a server is asked to learn what it can do."""


def powers_of(replies: Sequence[Reply], mode: str) -> Powers:
    """What the server can do; what it refuses to tell counts as absent.

    Args:
        replies: to `POWER_QUESTIONS`; a refusal is a `ServerError`.
        mode: how the server is reached.
    """
    hello, info, vector_sets, *persistence = (None if isinstance(reply, ServerError) else reply for reply in replies)
    greeting, facts = _pairs(hello), _facts(info)
    # Only a greeting is not refused to a user limited by ACL; Valkey greets as Redis when it was told to.
    name = "valkey" if "valkey_version" in facts else text_of(greeting.get("server", b"unknown"))
    modules = {text_of(_pairs(module).get("name")) for module in as_list(greeting.get("modules"))}
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
        persistence=_persistence(persistence),
        missing={power: _REMEDIES[power] for power, there in found.items() if not there},
        **found,
    )


async def server_facts(line: Line, section: str) -> dict[str, str]:
    """One section of INFO as text; empty where the server does not tell."""
    try:
        return _facts(await line.call("INFO", section))
    except (ServerError, SharedMemoryError):
        return {}


def _facts(reply: Reply) -> dict[str, str]:
    lines = text_of(reply).splitlines() if isinstance(reply, bytes) else []
    return dict(part.split(":", 1) for part in lines if ":" in part)


def _pairs(reply: Reply) -> dict[str, Reply]:
    """A reply of names and values in turn."""
    words = as_list(reply)
    return {text_of(words[i]): words[i + 1] for i in range(0, len(words) - 1, 2)}


def _persistence(replies: Sequence[Reply]) -> str:
    """What CONFIG GET says of the append-only file, and of when it is synced."""
    values = [text_of(words[1]) if len(words) > 1 else None for words in map(as_list, replies)]
    if values[0] is None:
        return "unknown"
    return values[1] or "unknown" if values[0] == "yes" else "no"
