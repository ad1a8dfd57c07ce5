"""Keeping the notes of a namespace: checking and repairing their chains, putting them away, erasing them."""

from __future__ import annotations

from collections.abc import Callable

from sharedmem.models import NoteCheck
from sharedmem.synthesis.base import SynthesisBase
from sharedmem.synthesis.repairing import fsck
from sharedmem.telemetry import measured

Progress = Callable[[int], None]


class Keeping(SynthesisBase):
    """What operators do with notes."""

    @measured("synthesis.fsck")
    async def fsck(self, *, app_id: str, repair: bool = False, progress: Progress | None = None) -> NoteCheck:
        """Check that no message is lost, no chain has two heads, and none leads nowhere or in a circle.

        Reads every note of the app, a few hundred a round trip. Repairing removes nothing.

        Args:
            app_id: whose.
            repair: whether to mend what is found.
            progress: called with how many notes were looked at.

        Raises:
            InvalidError: the id is refused.
            AccessDeniedError, UnavailableError: as `read`; repairing as `write`.
        """
        self._permit("write" if repair else "read")
        return await fsck(self._parts.shelf, self._parts.chains, app_id, repair=repair, progress=progress)
