"""Ways to a real server that a hub would not choose by itself."""

from __future__ import annotations

from sharedmem import Settings
from sharedmem.clock import Clock
from sharedmem.hub import Connection
from sharedmem.wire.address import Address, read_address
from sharedmem.wire.connection import open_line
from sharedmem.wire.driver import Driver
from sharedmem.wire.line import Line


async def connect_by_driver(settings: Settings, clock: Clock) -> Connection:
    """For `Hub(connect=...)`: redis-py carries the ordinary calls too."""
    address = address_of(settings)
    driver = driver_to(settings, clock)
    line = Line(driver, driver, address=str(address), clock=clock, retry_for_s=settings.retry_for_s)
    return Connection(line, address.url, address.mode, _nothing)


def address_of(settings: Settings) -> Address:
    """The server that the settings name."""
    assert settings.redis_url is not None
    return read_address(settings.redis_url, settings)


def driver_to(settings: Settings, clock: Clock) -> Driver:
    """The driver as hubs set it up."""
    driver = open_line(address_of(settings), settings, clock)._driver
    assert isinstance(driver, Driver)
    return driver


async def _nothing() -> None:
    """There is nothing to give back."""
