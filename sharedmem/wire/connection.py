"""Opens the line to a server, and finds out what that server can do."""

from __future__ import annotations

from typing import Any

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.errors import SharedMemoryError
from sharedmem.models import Powers
from sharedmem.wire.address import Address
from sharedmem.wire.changes import as_list, text_of
from sharedmem.wire.driver import Client, Driver
from sharedmem.wire.lane import Lane
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Reply, ServerError

_REMEDIES = {
    "search": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64; until then exact search",
    "json_documents": "use Redis 8 or later, or pip install 'sharedmem-hub[embedded]' on Linux x86_64",
    "graph": "ask for it: embedded_modules=('search', 'json', 'graph'), or load the FalkorDB module",
    "vector_sets": "use Redis 8 or later",
}


def open_line(address: Address, settings: Settings, clock: Clock) -> Line:
    """The line to an address, not yet connected."""
    driver = Driver(*_clients(address, settings), response_timeout_s=settings.response_timeout_s)
    transport: Lane | Driver = driver
    if address.mode == "standalone":
        transport = Lane(
            address,
            connect_timeout_s=settings.connect_timeout_s,
            response_timeout_s=settings.response_timeout_s,
        )
    return Line(transport, driver, address=str(address), clock=clock, retry_for_s=settings.retry_for_s)


def _clients(address: Address, settings: Settings) -> tuple[Client, redis.Redis]:
    """(client for ordinary calls, client that may wait)."""
    options = _options(address, settings)
    patient = options | {"socket_timeout": None}
    if address.mode == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        host, port = address.hosts[0]
        cluster: Any = RedisCluster(startup_nodes=nodes, **options, cluster_error_retry_attempts=1)
        return cluster, redis.Redis(host=host, port=port, **patient)
    if address.mode == "sentinel":
        return _by_sentinel(address, options), _by_sentinel(address, patient)
    place: dict[str, Any] = {"unix_socket_path": address.path}
    if not address.path:
        place = dict(zip(("host", "port"), address.hosts[0], strict=True))
    unlimited = redis.Redis(**place, db=address.database, **patient)
    ordinary = redis.Redis(**place, db=address.database, **options)
    # A full pool makes callers wait in line instead of failing them.
    queueing: redis.BlockingConnectionPool = redis.BlockingConnectionPool(
        connection_class=ordinary.connection_pool.connection_class,
        max_connections=settings.max_connections,
        timeout=settings.response_timeout_s,
        **ordinary.connection_pool.connection_kwargs,
    )
    return redis.Redis.from_pool(queueing), unlimited


def _by_sentinel(address: Address, options: dict[str, Any]) -> redis.Redis:
    sentinel: Any = Sentinel  # its constructor carries no types
    watchers = sentinel(list(address.hosts), sentinel_kwargs=_without_login(options), **options)
    master: redis.Redis = watchers.master_for(address.service or "", db=address.database)
    return master


def _without_login(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in {"username", "password"}}


def _options(address: Address, settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),  # retries are ours, with an operation id
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


async def detect_powers(line: Line, mode: str) -> Powers:
    """What the server can do; what it refuses to tell counts as absent. A few round trips."""
    facts = await server_facts(line, "server")
    name = "valkey" if "valkey_version" in facts or facts.get("server_name") == "valkey" else "redis"
    modules = await _module_names(line)
    found = {
        "search": "search" in modules,
        "json_documents": "ReJSON" in modules,
        "graph": "graph" in modules,
        "vector_sets": await _knows(line, "VADD"),
    }
    return Powers(
        server=name if facts else "fakeredis",
        version=facts.get("valkey_version", facts.get("redis_version", "unknown")),
        mode=mode,
        persistence=await _persistence(line),
        missing={power: _REMEDIES[power] for power, there in found.items() if not there},
        **found,
    )


async def server_facts(line: Line, section: str) -> dict[str, str]:
    """One section of INFO as text; empty where the server does not tell."""
    reply = await _asked(line, "INFO", section)
    lines = text_of(reply).splitlines() if isinstance(reply, bytes) else []
    return dict(part.split(":", 1) for part in lines if ":" in part)


async def _module_names(line: Line) -> set[str]:
    modules = [as_list(module) for module in as_list(await _asked(line, "MODULE", "LIST"))]
    return {text_of(module[1]) for module in modules if len(module) > 1}


async def _knows(line: Line, command: str) -> bool:
    answer = as_list(await _asked(line, "COMMAND", "INFO", command))
    return bool(answer) and bool(as_list(answer[0]))


async def _persistence(line: Line) -> str:
    replies = [as_list(await _asked(line, "CONFIG", "GET", name)) for name in ("appendonly", "appendfsync")]
    values = [text_of(reply[1]) if len(reply) > 1 else None for reply in replies]
    if values[0] is None:
        return "unknown"
    return values[1] or "unknown" if values[0] == "yes" else "no"


async def _asked(line: Line, *args: str) -> Reply:
    try:
        return await line.call(*args)
    except (ServerError, SharedMemoryError):
        return None
