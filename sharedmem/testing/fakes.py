"""A hub on fakeredis: everything but the server is real, and a test starts in milliseconds."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.errors import UnsupportedError
from sharedmem.hub import Connect, Connection, Hub
from sharedmem.redis.client import RedisClient, TracedRedisClient
from sharedmem.redis.pooled import PooledConnection
from sharedmem.redis.scripts import scripts
from sharedmem.testing.clock import ManualClock

if TYPE_CHECKING:
    from fakeredis import FakeServer

    from sharedmem.providers.protocol import Embedder, LanguageModel

_URL = "fakeredis://"


@asynccontextmanager
async def fake_hub(
    *,
    clock: ManualClock | None = None,
    settings: Settings | None = None,
    server: FakeServer | None = None,
    embedder: Embedder | None = None,
    model: LanguageModel | None = None,
) -> AsyncIterator[Hub]:
    """Open a hub without a server, for the tests of agents; its data is deleted afterwards.

    Args:
        clock: advance it to let TTLs and leases expire; None uses the machine's clock.
        settings: None uses the defaults, without the environment. Without a data or blob folder in them,
            blobs are stored in a temporary one.
        server: a `fakeredis.FakeServer` that several hubs share, each like another process; None creates one.
        embedder: computes vectors; None uses the settings, or the hashing embedder if they have
            none: the same texts have the same vectors everywhere.
        model: writes summaries; None uses the settings.

    Raises:
        UnsupportedError: fakeredis is not installed.
    """
    chosen = settings or Settings()
    with tempfile.TemporaryDirectory(prefix="sharedmem-") as folder:
        if chosen.model_fields_set.isdisjoint({"data_dir", "blob_dir"}):
            chosen = chosen.replace(data_dir=Path(folder))
        if chosen.embedder == "auto":
            chosen = chosen.replace(embedder="hashing")
        connect = connect_to_fake(server)
        async with Hub(settings=chosen, clock=clock, connect=connect, embedder=embedder, model=model) as hub:
            yield hub


def connect_to_fake(server: FakeServer | None = None) -> Connect:
    """Return the argument `connect` for a `Hub` or sync hub on fakeredis.

    Args:
        server: a `fakeredis.FakeServer` that several hubs share; None creates one.

    Raises:
        UnsupportedError: fakeredis is not installed.
    """
    fakeredis = _connect_fakeredis()
    shared = fakeredis.FakeServer() if server is None else server
    # So that no hub sends what is in this process already.
    shared.script_cache |= _known_scripts()

    async def connect(settings: Settings, clock: Clock) -> Connection:
        from sharedmem.testing.fake_connection import connection_class  # noqa: PLC0415  # needs fakeredis

        carrier = connection_class(clock if isinstance(clock, ManualClock) else None)
        clients = [fakeredis.aioredis.FakeRedis(server=shared, protocol=2, connection_class=carrier) for _ in range(2)]
        driver = PooledConnection(
            *clients, response_timeout_s=settings.response_timeout_s, at_once=settings.max_connections
        )
        kind = TracedRedisClient if settings.trace_redis else RedisClient
        line = kind(None, lambda: driver, address=_URL, clock=clock, retry_for_s=settings.retry_for_s)
        return Connection(line, _URL, "standalone", _do_nothing)

    return connect


def _connect_fakeredis() -> Any:
    try:
        import fakeredis  # noqa: PLC0415  # optional: only tests need it

        importlib.import_module("lupa")  # fakeredis runs scripts with it
    except ImportError as error:
        raise UnsupportedError("a fake hub", "pip install 'sharedmem-hub[testing]'") from error
    return fakeredis


@cache
def _known_scripts() -> dict[bytes, bytes]:
    """Return the text of every script by its SHA-1 digest, as fakeredis keeps them."""
    return {script.digest.encode(): script.source.encode() for script in scripts().values()}


async def _do_nothing() -> None:
    """Do nothing: there is nothing to close."""
