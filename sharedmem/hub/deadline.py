"""How long a hub may take to open, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sharedmem.errors import UnavailableError


class OpenDeadline:
    """One limit for all steps of the opening of a hub; begins when it is made.

    Args:
        limit_s: seconds that all steps may take together.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._ends_at = asyncio.get_running_loop().time() + limit_s

    @asynccontextmanager
    async def step(self, server: str, awaited: str) -> AsyncIterator[None]:
        """Run one step.

        Args:
            server: what is asked in this step, for the error.
            awaited: what the hub waits for in it, for the error.

        Raises:
            UnavailableError: the deadline passed in this step.
        """
        timeout = asyncio.timeout_at(self._ends_at)
        try:
            async with timeout:
                yield
        except TimeoutError as error:
            if not timeout.expired():
                raise
            why = (
                f"the hub could not be opened within connect_timeout_s = {self._limit_s:g} s; it still waited for"
                f" {awaited}. Look at the server and the network, or raise connect_timeout_s"
            )
            raise UnavailableError(server, why) from error
