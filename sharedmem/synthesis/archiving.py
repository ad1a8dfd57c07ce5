"""Archiving: chains that nobody has needed for years are put away, and found again on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sharedmem.errors import ConflictError, NotFoundError
from sharedmem.knowledge.minds import Minds
from sharedmem.models import ArchiveReport, Note
from sharedmem.synthesis.archives import Archived, Archives, path_of
from sharedmem.synthesis.chains import Chains
from sharedmem.synthesis.checking import age_key, problems
from sharedmem.synthesis.evolution import Embed, under_locks
from sharedmem.synthesis.lineage import together
from sharedmem.synthesis.protocol import Behind, Change, Permit, Shelf
from sharedmem.synthesis.repairing import every_note, lean
from sharedmem.synthesis.scoring import LEAST_RECENCY, decay
from sharedmem.synthesis.shelf.committing import MOST_AT_ONCE
from sharedmem.synthesis.shelf.rows import chain_of

_RETIRED_OR_ACTIVE = ("active", "updated")


def is_faded(note: Note, *, now: datetime, after_days: int) -> bool:
    """Whether a note is old enough to be put away, and its recency has fallen below 0.01.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Memory Evolution Decay and Long-Term Storage. The
    recency that scores go by never falls below 0.01, so that by the letter nothing would ever be archived: here it
    counts without that floor (`scoring.decay`), and is below it after 50,429 hours, some 5.8 years. Age counts from
    when the note was made or last changed, whatever came later.

    Args:
        note: which.
        now: when.
        after_days: least age in days.
    """
    age = now - max(note.created_at, note.updated_at)
    return age >= timedelta(days=after_days) and decay(note.created_at, note.updated_at, now=now) < LEAST_RECENCY


def is_ripe(chain: Sequence[Note], *, now: datetime, after_days: int) -> bool:
    """Whether a whole chain may be archived: all of it has faded, its head is active or updated, and it is sound.

    A chain goes whole or not at all: an old version of a memory that was changed lately stays with it.

    Args:
        chain: all notes that hang together.
        now: when.
        after_days: least age in days.
    """
    heads = [note for note in chain if note.next_id is None]
    if len(heads) != 1 or heads[0].status not in _RETIRED_OR_ACTIVE or problems(chain):
        return False
    return all(is_faded(note, now=now, after_days=after_days) for note in chain if note.status != "archived")


class Archiving:
    """Puts chains of one namespace away, and brings them back.

    Args:
        minds: what the hub lends.
        shelf: where the notes are.
        chains: the locks of their chains.
        archives: where their texts go.
        embed: makes their vectors when they come back.
        permit: raises where a note must stay where it is.
    """

    def __init__(
        self, minds: Minds, *, shelf: Shelf, chains: Chains, archives: Archives, embed: Embed, permit: Permit
    ) -> None:
        self._permit = permit
        self._shelf = shelf
        self._chains = chains
        self._archives = archives
        self._embed = embed
        self._clock = minds.clock
        self._after_days = minds.settings.synthesis_archive_after_days

    async def archive(
        self, app_id: str, *, dry_run: bool = False, progress: Callable[[int], None] | None = None
    ) -> ArchiveReport:
        """Put away what has faded (see `is_ripe`).

        Of each chain the texts, messages and vectors go into one archive in the blob store, which is read back before
        anything else happens; then, in one commit under the chain's lock, its notes become `archived`/`age_decay` and
        remember where that is. A crash between the two leaves an archive that nobody refers to: the next call archives
        the chain again, and removes the other once it is an hour old.

        Args:
            app_id: whose.
            dry_run: whether to tell only what would be archived.
            progress: called with the number of notes looked at so far.

        Raises:
            ConflictError: others change a chain all the time, or hold its lock; what was archived until then stays so.
            AccessDeniedError, UnavailableError: as the shelf and the blob store.
        """
        notes = [lean(note) async for page in every_note(self._shelf, app_id, progress) for note in page]
        ripe = [chain for chain in together(notes) if self._is_ripe(chain)]
        if not dry_run:
            self._check_authors(note for chain in ripe for note in chain)
        archived: list[str] = []
        written = chains = 0
        for chain in ripe:
            ids, size = (_to_archive(chain), 0) if dry_run else await self._put_away(app_id, chain)
            archived += ids
            written += size
            chains += bool(ids)
        if notes and not dry_run:
            await self._sweep(app_id, notes)
        return ArchiveReport(
            app_id=app_id,
            looked_at=len(notes),
            archived=tuple(sorted(archived)),
            chains=chains,
            bytes=written,
            dry_run=dry_run,
        )

    async def recall_archived(self, app_id: str, memory_id: str) -> Note:
        """A memory with its text and messages, also when it is archived; nothing changes. Two reads of the blob store.

        Raises:
            NotFoundError: there is no such memory, or its archive is gone.
            UnavailableError: the blob store cannot be read.
        """
        note = await self._one(app_id, memory_id)
        if note.archival_location is None:
            return note
        try:
            kept = (await self._archives.get(app_id, note.archival_location))[memory_id]
        except (NotFoundError, KeyError):
            now = await self._one(app_id, memory_id)
            if now.archival_location is None:  # it came back in this moment
                return now
            raise
        return note.model_copy(update={"memory_note": kept.memory_note, "messages": kept.messages})

    async def archived(
        self, app_id: str, *, user_id: str | None = None, words: str = "", limit: int = 100
    ) -> list[Note]:
        """The memories that are archived, without their texts, newest first; searches do not find them any more.

        Looks through all notes of the app, two round trips for every 500.

        Args:
            app_id: whose.
            user_id: None means all users.
            words: only memories that have each of these in their tags, keywords, queries or open questions; any case.
            limit: how many at most.

        Raises:
            AccessDeniedError, UnavailableError: as the shelf.
        """
        wanted = words.casefold().split()
        found = [
            note
            async for page in every_note(self._shelf, app_id)
            for note in page
            if note.status == "archived" and user_id in (None, note.user_id) and _has(note, wanted)
        ]
        return sorted(found, key=age_key, reverse=True)[: max(limit, 0)]

    async def unarchive(self, app_id: str, memory_id: str) -> Note:
        """Bring a chain back from the archive: its notes are what they were, and found by searches again.

        Its age begins anew, so that it is not archived again at once. The archive is removed after that.

        Args:
            app_id: whose.
            memory_id: any note of the chain; one that is not archived is answered as it is.

        Raises:
            NotFoundError: there is no such memory, or its archive is gone.
            ConflictError: others change the chain all the time, or hold its lock.
            UnavailableError: the blob store cannot be read.
        """
        note = await self._one(app_id, memory_id)
        if note.archival_location is None:
            return note
        location = note.archival_location
        kept = await self._archives.get(app_id, location)
        vectors = {id_: await self._embed(one.memory_note) for id_, one in kept.items()}

        async def work(fences: Mapping[str, int]) -> Note | Behind | set[str]:
            now = await self._shelf.get(app_id, list(kept))
            needed = {chain_of(one) for one in now.values()}
            if not needed <= fences.keys():
                return needed
            self._check_authors(now.values())
            changes = [
                Change(one, kept[id_].status, kept[id_].status_reason, body=kept[id_], vector=vectors[id_])
                for id_, one in now.items()
                if one.archival_location == location
            ]
            behind = await self._commit(app_id, changes, fences)
            return behind or await self._one(app_id, memory_id)

        back = await under_locks(self._chains, app_id, kept.values(), work)
        await self._archives.remove(app_id, location)
        return back

    # -- parts

    def _is_ripe(self, chain: Sequence[Note]) -> bool:
        return is_ripe(chain, now=self._clock.now(), after_days=self._after_days)

    async def _one(self, app_id: str, memory_id: str) -> Note:
        note = (await self._shelf.get(app_id, [memory_id])).get(memory_id)
        if note is None:
            raise NotFoundError("memory", memory_id, f"app {app_id!r} has none of that id")
        return note

    def _check_authors(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._permit(note)

    async def _put_away(self, app_id: str, chain: Sequence[Note]) -> tuple[list[str], int]:
        """Archive one chain; the ids of its notes and the bytes written, none of a chain that was changed meanwhile."""
        ids = [note.id for note in chain]

        async def work(fences: Mapping[str, int]) -> tuple[list[str], int] | Behind | set[str]:
            now = await self._shelf.get(app_id, ids)
            if now.keys() != set(ids) or not self._is_ripe(list(now.values())):
                return [], 0
            needed = {chain_of(note) for note in now.values()}
            if not needed <= fences.keys():
                return needed
            self._check_authors(now.values())
            leaving = [now[id_] for id_ in _to_archive(now.values())]
            return await self._archived(app_id, leaving, fences)

        return await under_locks(self._chains, app_id, chain, work)

    async def _archived(
        self, app_id: str, notes: Sequence[Note], fences: Mapping[str, int]
    ) -> tuple[list[str], int] | Behind:
        archive = await self._archives.put(app_id, notes)
        behind = await self._commit(app_id, [self._leaving(note, archive) for note in notes], fences)
        if behind is not None:
            await self._archives.remove(app_id, archive.location)
            return behind
        return [note.id for note in notes], archive.bytes

    def _leaving(self, note: Note, archive: Archived) -> Change:
        return Change(
            note,
            status="archived",
            reason="age_decay",
            archived_at=self._clock.now(),
            archival_location=archive.location,
            drops_body=True,
        )

    async def _commit(self, app_id: str, changes: Sequence[Change], fences: Mapping[str, int]) -> Behind | None:
        """All changes, in one commit if the shelf takes as many; each part of them leaves notes that can be read."""
        for first in range(0, len(changes), MOST_AT_ONCE):
            some = changes[first : first + MOST_AT_ONCE]
            done = await self._shelf.commit(app_id, changes=some, fences=fences)
            if isinstance(done, Behind):
                if first:
                    raise ConflictError(f"the chain of memory {some[0].note.id!r} was changed halfway; do it again")
                return done
        return None

    async def _sweep(self, app_id: str, notes: Iterable[Note]) -> None:
        """Remove archives that none of all the app's notes referred to, neither now nor when they were an hour old."""
        referred = {path_of(note.archival_location) for note in notes if note.archival_location is not None}
        async for loose in self._archives.loose():
            if loose.app_id == app_id and loose.path not in referred:
                await self._archives.drop(loose)


def _to_archive(chain: Iterable[Note]) -> list[str]:
    return sorted(note.id for note in chain if note.status != "archived")


def _has(note: Note, wanted: Iterable[str]) -> bool:
    kept = (*note.tags, *note.keywords, *note.semantic_queries, *note.follow_up_potential)
    told = "\n".join(kept).casefold()
    return all(word in told for word in wanted)
