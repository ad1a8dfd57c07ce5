"""Keeping the notes of a namespace: checking and repairing their chains, putting them away, erasing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sharedmem.models import ArchiveReport, ForgetReport, Note, NoteCheck, RetentionRules
from sharedmem.synthesis.base import SynthesisBase
from sharedmem.synthesis.repairing import fsck
from sharedmem.synthesis.tasks import check_id
from sharedmem.telemetry import measured

NoteProgress: TypeAlias = Callable[[int], None]
"""Called with how many notes were looked at."""


class Keeping(SynthesisBase):
    """What operators do with notes."""

    @measured("synthesis.apps")
    async def apps(self) -> list[str]:
        """Return the ids of the apps that have notes, sorted. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `read`.
        """
        self._permit("read")
        return sorted(await self._parts.shelf.apps())

    @measured("synthesis.fsck")
    async def fsck(self, *, app_id: str, repair: bool = False, progress: NoteProgress | None = None) -> NoteCheck:
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
        check_id("app_id", app_id)
        parts = self._parts
        return await fsck(parts.shelf, parts.chains, app_id, repair=repair, permit=parts.permit, progress=progress)

    @measured("synthesis.archive")
    async def archive(
        self, *, app_id: str, dry_run: bool = False, progress: NoteProgress | None = None
    ) -> ArchiveReport:
        """Put old chains away: texts, messages and vectors go to the blob store, where they can still be read.

        A chain goes whole, when each of its notes is older than `synthesis_archive_after_days` and has faded.

        Args:
            app_id: whose.
            dry_run: whether to say only what would go.
            progress: called with how many notes were looked at.

        Raises:
            InvalidError: the id is refused.
            ConflictError: others change a chain all the time.
            AccessDeniedError, UnavailableError: as `write`; or the blob store cannot be used.
        """
        self._permit("write")
        check_id("app_id", app_id)
        return await self._parts.archiving.archive(app_id, dry_run=dry_run, progress=progress)

    @measured("synthesis.recall_archived")
    async def recall_archived(self, memory_id: str, *, app_id: str) -> Note:
        """A note with its text and messages, also when it was archived; it stays archived.

        Raises:
            NotFoundError: there is no such note, or its archive is gone.
            InvalidError, AccessDeniedError, UnavailableError: as `get_memory`; or the blob store cannot be read.
        """
        self._permit("read")
        return await self._parts.archiving.recall_archived(check_id("app_id", app_id), memory_id)

    @measured("synthesis.archived_memories")
    async def archived_memories(
        self, *, app_id: str, user_id: str | None = None, words: str = "", limit: int = 100
    ) -> list[Note]:
        """The notes that were put away, without their texts, newest first: queries do not find them any more.

        Reads every note of the app, a few hundred a round trip.

        Args:
            app_id: whose.
            user_id: None means all users of the app.
            words: only notes that have each of these among their tags, keywords, queries and open questions.
            limit: at most so many.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `fsck`.
        """
        self._permit("read")
        check_id("app_id", app_id)
        return await self._parts.archiving.archived(app_id, user_id=user_id, words=words, limit=limit)

    @measured("synthesis.unarchive")
    async def unarchive(self, memory_id: str, *, app_id: str) -> Note:
        """Bring the chain of an archived note back, with its texts and vectors; the note as it is then.

        Raises:
            NotFoundError: there is no such note, or its archive is gone.
            ConflictError: others change its chain all the time.
            InvalidError, AccessDeniedError, UnavailableError: as `archive`.
        """
        self._permit("write")
        return await self._parts.archiving.unarchive(check_id("app_id", app_id), memory_id)

    @measured("synthesis.forget")
    async def forget(
        self,
        *,
        app_id: str,
        user_id: str | None = None,
        dry_run: bool = False,
        progress: NoteProgress | None = None,
    ) -> ForgetReport:
        """Erase notes, their messages and archives, and tasks that wait, for good: here and in the durable tier.

        Broken off, it goes on when it is called again. A conversation of that user that is told meanwhile may leave a
        note: forget once more when nobody adds for that user any longer.

        Args:
            app_id: whose.
            user_id: None means all users of the app.
            dry_run: whether to count only; tasks are not counted then.
            progress: called with how many notes were looked at.

        Raises:
            InvalidError: an id is refused.
            AccessDeniedError, UnavailableError: as `write`; or the tier or the blob store cannot be reached.
        """
        self._permit("write")
        check_id("app_id", app_id)
        whose = None if user_id is None else check_id("user_id", user_id)
        return await self._parts.forgetting.forget(app_id, whose, dry_run=dry_run, progress=progress)

    @measured("synthesis.retain")
    async def retain(
        self,
        rules: RetentionRules,
        *,
        app_id: str,
        dry_run: bool = False,
        progress: NoteProgress | None = None,
    ) -> ForgetReport:
        """Erase what was retired and is older than rules allow; the current note of a chain stays.

        Args:
            rules: which retired notes may be how old.
            app_id: whose.
            dry_run: whether to count only.
            progress: called with how many notes were looked at.

        Raises:
            InvalidError: the id is refused.
            ConflictError: others change a chain all the time.
            AccessDeniedError, UnavailableError: as `forget`.
        """
        self._permit("write")
        check_id("app_id", app_id)
        return await self._parts.retention.apply(app_id, rules, dry_run=dry_run, progress=progress)
