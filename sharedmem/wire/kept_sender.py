"""Sends scripts whose changes are to last: they leave what they changed for the durable tier in the same step."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.wire.keys import Space
from sharedmem.wire.ledger import Ledger
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Argument
from sharedmem.wire.scripts import KEPT
from sharedmem.wire.sender import Sender
from sharedmem.wire.tier import ChangeLostError, Keep, KindUnknownError, Tier, UnsettledError

_MOST_TRIES = 20
_COLD = b"COLD"
_LOST = b"LOST"
_UNKNOWN = b"UNKNOWN"
_MARK = b"@"
_URGENT = b"!"


class KeptSender(Sender):
    """How callers reach their scripts where a durable tier stands behind.

    Args:
        line, ledger, change_log_length: as `Sender`.
        tier: what stands behind.
    """

    def __init__(self, line: Line, ledger: Ledger, tier: Tier, *, change_log_length: int) -> None:
        super().__init__(line, ledger, change_log_length=change_log_length)
        self._tier = tier

    async def mutate(
        self,
        script: str,
        space: Space,
        keys: Sequence[bytes],
        actor: bytes,
        args: Sequence[Argument],
        *,
        large: int = 0,
        keep: Keep | None = None,
    ) -> bytes:
        """As `Sender.mutate`; a key that may lie in the tier alone is brought back first.

        Raises:
            UnsettledError: the change is made, but the tier, which this kind of change waits for, does not have it.
            UnavailableError: the tier is needed to know what a key holds, or whether it lasts, and cannot be asked; or
                too much waits for it; or what Redis has lost is not restored in time; or Redis loses data again.
        """
        if keep is None:
            return await super().mutate(script, space, keys, actor, args, large=large)
        more_keys, more_args = self._tier.extras(keep)
        all_keys, all_args = [*keys, *more_keys], [*args, *more_args]
        if not self._tier.is_ready(space.namespace):
            await self._tier.join(space.namespace)
        was_unknown = False
        for _ in range(_MOST_TRIES):
            reply = await super().mutate(script + KEPT, space, all_keys, actor, all_args, large=large)
            if reply == _LOST:
                await self._tier.join(space.namespace, again=True)
            elif reply == _UNKNOWN:
                if was_unknown:
                    raise KindUnknownError(keep.targets[0].key)
                was_unknown = True
                await self._tier.join(space.namespace, again=True)
            elif reply == _COLD:
                await self._tier.recall_all(keep)
            else:
                return await self._settled(keep, reply)
        raise UnavailableError(f"key {keep.targets[0].key!r}", "it goes as often as it is brought back; try again")

    async def _settled(self, keep: Keep, reply: bytes) -> bytes:
        """The script's own reply, once the tier has those of its entries that are waited for."""
        if reply[:1] != _MARK:
            return reply
        mark, _, plain = reply[1:].partition(b" ")
        ids, urgent, stamps = mark.partition(_URGENT)
        namespace = keep.targets[0].space.namespace
        if not urgent:
            if ids:
                self._tier.note(namespace)
            return plain
        changed = {target.key: int(stamp) for target, stamp in zip(keep.targets, stamps.split(b","), strict=True)}
        try:
            await self._tier.settle(namespace, ids.split(b","), changed)
        except ChangeLostError:
            raise
        except SharedMemoryError as error:
            raise UnsettledError(plain, error) from error
        return plain
