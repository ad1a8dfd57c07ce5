"""Opening: an application opens its hub itself, when it starts or, where nobody starts it, when it is first called."""

from __future__ import annotations

import asyncio

from sharedmem.errors import UnavailableError
from sharedmem.hub import Hub


class HubOpening:
    """Opens a hub once, and closes it.

    Args:
        hub: not open yet.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._opening = asyncio.Lock()
        self._is_open = self._has_ended = False

    async def open(self) -> None:
        """Open the hub unless it is open; a failure is tried anew by the next call.

        Raises:
            UnavailableError: the server cannot be reached, or the application has ended.
            ConfigError, UnsupportedError: as entering a `Hub`.
        """
        if self._is_open:
            return
        async with self._opening:
            if self._has_ended:
                raise UnavailableError("this server", "it shuts down; call again")
            if not self._is_open:
                await self._hub.__aenter__()
                self._is_open = True

    async def close(self) -> None:
        """Close the hub, for good."""
        async with self._opening:
            self._has_ended, was_open, self._is_open = True, self._is_open, False
            if was_open:
                await self._hub.close()
