"""Quotas: how much CPU time the bulk work of each token may take, through all workers together.

The bucket of a token is in Redis, beside the one of its rate. A worker takes CPU time out of it a second at a time,
before it is used; a step that has used more is paid for afterwards. What a worker has left it keeps for the next bulk
work of that token.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sharedmem.errors import LimitedError
from sharedmem.faces.auth import Bearer, TokenEntry
from sharedmem.hub import Hub
from sharedmem.hub.hub import token_storage_of
from sharedmem.runtime import CpuMeter, Metered

_T = TypeVar("_T")
_HOUR_MS = 3_600_000
_BLOCK_MS = 1000
_MOST_KNOWN = 10_000


class QuotaError(LimitedError):
    """The bulk work of a token has used up its CPU time."""

    def __init__(self, quota_s: int, retry_after: float) -> None:
        told = f"the bulk work of this token may take {quota_s} CPU seconds an hour and has done so"
        advice = "what it has done stays; send the rest later, or in smaller parts"
        super().__init__(f"{told}; {advice}", round(retry_after, 3))


@dataclass(slots=True)
class _Account:
    """What one token has used here, and what of it is paid for."""

    meter: CpuMeter = field(default_factory=CpuMeter)
    paid_s: float = 0.0
    paying: asyncio.Lock = field(default_factory=asyncio.Lock)


class CpuQuotas:
    """The CPU time of bulk work, by token.

    Args:
        hub: to the server that has the buckets; its setting `bulk_cpu_s` is the quota. It has to be open when calls
            come.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._accounts: dict[str, _Account] = {}

    async def run(self, bearer: Bearer, work: Coroutine[Any, Any, _T]) -> _T:
        """Do some bulk work of a caller; one round trip for each second of CPU time.

        Raises:
            QuotaError: its CPU time is used up; work that is under way then is cancelled.
            UnavailableError: the bucket cannot be looked into.
        """
        quota_s = self._hub.settings.bulk_cpu_s
        if not isinstance(bearer, TokenEntry) or quota_s == 0:
            return await work
        account = self._account(bearer.sha256)

        async def pay() -> None:
            if account.meter.seconds >= account.paid_s:
                await self._pay(account, bearer, quota_s)

        try:
            await pay()
        except BaseException:
            work.close()
            raise
        return await Metered(work, account.meter, pay)

    async def _pay(self, account: _Account, entry: TokenEntry, quota_s: int) -> None:
        async with account.paying:
            while (owed_s := account.meter.seconds - account.paid_s) >= 0:
                burst_ms = quota_s * 1000
                # More than the whole quota is never in the bucket.
                cost_ms = min(max(_BLOCK_MS, math.ceil(owed_s * 1000)), burst_ms)
                taken = await token_storage_of(self._hub).take(
                    entry.namespace, f"{entry.id}.cpu", limit=burst_ms, per_ms=_HOUR_MS, burst=burst_ms, cost=cost_ms
                )
                if not taken.allowed:
                    raise QuotaError(quota_s, taken.retry_us / 1_000_000)
                account.paid_s += cost_ms / 1000

    def _account(self, digest: str) -> _Account:
        account = self._accounts.get(digest)
        if account is None:
            while len(self._accounts) >= _MOST_KNOWN:
                del self._accounts[next(iter(self._accounts))]
            account = self._accounts[digest] = _Account()
        return account
