"""The gate of the REST service: each token calls as often as its rate says."""

from __future__ import annotations

from sharedmem.clock import Clock
from sharedmem.faces.rate_limits import TokenRateLimiter
from sharedmem.faces.rest.context import Call
from sharedmem.hub import Hub


class RateLimitGate:
    """A gate that lets each token in as often as it may.

    Args:
        hub: to the server that has the buckets; it has to be open when calls come.
        clock: the time to go by.
    """

    def __init__(self, hub: Hub, *, clock: Clock | None = None) -> None:
        self._allowances = TokenRateLimiter(hub, clock=clock)

    async def __call__(self, call: Call) -> dict[str, str]:
        """Count a call; returns the headers that tell its caller how it stands.

        Raises:
            RateLimitedError: the caller comes too often.
            UnavailableError: the bucket cannot be looked into.
        """
        standing = await self._allowances.take(call.bearer)
        return {} if standing is None else standing.headers()
