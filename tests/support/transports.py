"""Ways to a real server that a hub would not choose by itself."""

from __future__ import annotations

from sharedmem import Settings
from sharedmem.clock import Clock
from sharedmem.hub import Connection
from sharedmem.redis.address import RedisAddress, parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import open_client
from sharedmem.redis.pooled import PooledConnection
from support.contexts import transport_and_driver_of


async def connect_pooled(settings: Settings, clock: Clock) -> Connection:
    """For `Hub(connect=...)`: redis-py carries the ordinary calls too."""
    address = address_of(settings)
    driver = pooled_connection_to(settings, clock)
    line = RedisClient(None, lambda: driver, address=str(address), clock=clock, retry_for_s=settings.retry_for_s)
    return Connection(line, address.url, address.mode, _do_nothing)


def address_of(settings: Settings) -> RedisAddress:
    """The server that the settings name."""
    assert settings.redis_url is not None
    return parse_address(settings.redis_url, settings)


def pooled_connection_to(settings: Settings, clock: Clock) -> PooledConnection:
    """The driver as hubs set it up."""
    _, driver = transport_and_driver_of(open_client(address_of(settings), settings, clock))
    assert isinstance(driver, PooledConnection)
    return driver


async def _do_nothing() -> None:
    """There is nothing to give back."""
