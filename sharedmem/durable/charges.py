"""What all hubs of a server have spent on the durable tier: a total in Redis that each hub adds to."""

from __future__ import annotations

import asyncio

from sharedmem.clock import Clock, from_microseconds
from sharedmem.durable.protocol import Durable
from sharedmem.errors import AccessDeniedError, SharedMemoryError
from sharedmem.models import Spending
from sharedmem.redis.client import RedisClient
from sharedmem.redis.replies import ServerError
from sharedmem.runtime import get_logger

_UNITS, _SINCE = "request_units", "since_ms"
_logger = get_logger("durable")


class TierSpending:
    """The request units of one hub, and the total of all hubs.

    The total is approximate: what a hub spends in the seconds before it is killed is missing, and a report whose reply
    was lost may count twice.

    Args:
        client: client of the server.
        key: key of the hash with the total.
        durable: the store that charges this hub.
        clock: gives the time of the first report.
    """

    def __init__(self, client: RedisClient, key: bytes, durable: Durable, clock: Clock) -> None:
        self._client = client
        self._key = key
        self._durable = durable
        self._clock = clock
        self._reported = 0.0
        self._is_allowed = True
        self._turn = asyncio.Lock()

    async def report(self) -> None:
        """Add what this hub spent since its last report. Two round trips; none if it spent nothing."""
        async with self._turn:
            spent = self._durable.charges().request_units
            units = round(spent - self._reported, 2)
            if units > 0 and self._is_allowed and await self._add(units):
                self._reported = spent

    async def _add(self, units: float) -> bool:
        """Add units to the total; return whether that succeeded."""
        since_ms = round(self._clock.now().timestamp() * 1000)
        try:
            await self._client.call("HSETNX", self._key, _SINCE, since_ms)
            await self._client.call("HINCRBYFLOAT", self._key, _UNITS, repr(units))
        except (AccessDeniedError, ServerError) as refused:
            # A user limited by an older ACL, or a foreign value under the key: no later report can succeed either.
            self._is_allowed = False
            _logger.warning("request units of this hub are missing in the total of the server: %s", refused)
        except SharedMemoryError as error:
            _logger.info("request units are not reported yet: %s", error)
        else:
            return True
        return False

    async def total(self) -> Spending:
        """Return the total of all hubs. One round trip, after that of a report.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        await self.report()
        try:
            reply = await self._client.call("HMGET", self._key, _UNITS, _SINCE)
        except ServerError:  # a foreign value, of which `report` has warned
            reply = None
        units, since = reply if isinstance(reply, list) else (None, None)
        return Spending(
            request_units=round(float(units), 2) if isinstance(units, bytes) else 0.0,
            since=from_microseconds(int(since) * 1000) if isinstance(since, bytes) else None,
        )
