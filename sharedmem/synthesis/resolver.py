"""Resolve the conflicts of a new note with similar older notes, under the locks of their chains.

The new note is stored before this begins, as pending, so nothing is lost after an interruption. Any worker may start
again at any time: answers of models are cached, and stored notes are found.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sharedmem.errors import ConfigError, InvalidError, LimitedError, LockHeldError, LockLostError, UnavailableError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Note, NoteLink, Resolution
from sharedmem.providers.chunks import LONGEST_TOKENS, OVERLAP_TOKENS, TextChunk, split_into_chunks
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Vector, normalize
from sharedmem.runtime import elapsed_ms, get_logger
from sharedmem.synthesis.commit_plan import (
    FALLBACK,
    CommitPlan,
    NotesByVerdict,
    build_successor,
    check_report,
    complete_resolutions,
    group_by_verdict,
    link_to,
    merge_labels,
    plan_commit,
    related_to,
    skip_resolution,
    skip_updates,
)
from sharedmem.synthesis.evolution import ChainLocks, note_chain_id
from sharedmem.synthesis.fact_coverage import check_facts_preserved
from sharedmem.synthesis.note_text import own_text, replace_related_topics
from sharedmem.synthesis.protocol import (
    Agents,
    CommittedNotes,
    Consolidation,
    NewNote,
    NoteChange,
    NoteRepository,
    UserNotesVersion,
)
from sharedmem.synthesis.search import least_linked_similarity, link_candidates, note_thresholds, rank_links

# Below it, a handover to a thread takes longer than the work.
_AT_ONCE_CHARACTERS = 20_000


async def embed_note(
    embedder: Embedder, text: str, *, tokens: int = LONGEST_TOKENS, overlap: int = OVERLAP_TOKENS
) -> Vector | None:
    """Return the mean of the vectors of a note's pieces, at unit length. One call of the embedder.

    The related topics at its end do not count: they are those of other notes.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 7.1 Token-Based Chunking. Every piece
    has the same weight, also the last one, which is shorter.

    Args:
        embedder: the embedder, with its caches.
        text: the text to embed.
        tokens: most tokens of a piece; estimated from its characters without a tokenizer.
        overlap: tokens that a piece repeats of the one before it.

    Returns:
        The vector; None if the text is blank, or its vector is zero.

    Raises:
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
        InvalidError: `overlap` is invalid for pieces of so many tokens.
    """
    text = own_text(text)
    if not text.strip():
        return None
    pieces = await _text_pieces(text, tokens=tokens, overlap=overlap, model=embedder.name)
    vectors, _ = await embedder.embed([piece.text for piece in pieces])
    mean = normalize((vectors.astype(np.float64).sum(axis=0) / len(pieces)).astype(np.float32))
    return mean if mean.any() else None


async def _text_pieces(text: str, *, tokens: int, overlap: int, model: str) -> list[TextChunk]:
    if len(text) <= _AT_ONCE_CHARACTERS:
        return split_into_chunks([text], longest=tokens, overlap=overlap, model=model)
    return await asyncio.to_thread(split_into_chunks, [text], longest=tokens, overlap=overlap, model=model)


T = TypeVar("T")
OUTAGES = (UnavailableError, LimitedError, ConfigError)
"""Temporary failures, which are retried: every other failure of a model counts as an unusable answer."""
USELESS_ANSWERS = "synthesis_useless_answers"
"""Counter of unusable answers of models, with the label `part`."""

_MOST_LOCK_ATTEMPTS = 16
_MOST_COMMIT_ATTEMPTS = 8
# After that many rounds, further additions of others do not matter.
_CAREFUL_ATTEMPTS = 6
_VERDICT_TTL_S = 30 * 86_400
# Long enough for the next worker to continue; texts of users are stored no longer than needed.
_DRAFT_TTL_S = 86_400
# In characters. Notes that grew without limit would cost more with each consolidation, and match queries less well.
_LONGEST_NOTE = 50_000
_logger = get_logger("synthesis")


class LinkedNotes(NamedTuple):
    """The older notes that a new one resembles, best first, and the version of the search."""

    notes: tuple[Note, ...]
    seen: UserNotesVersion
    links: tuple[NoteLink, ...] = ()
    """The link to each of them."""

    @property
    def chains(self) -> frozenset[str]:
        """The chains of these notes."""
        return frozenset(note_chain_id(note) for note in self.notes)


class SuccessorDraft(NamedTuple):
    """The successor of several notes; without a note, the reason."""

    fresh: NewNote | None
    reason: str = ""
    left_out: tuple[str, ...] = ()
    """What it does not contain of the older notes, in sentences."""


class PendingNote:
    """One new note that is being settled.

    Args:
        note: the stored note.
        vector: its vector; None if its text has no meaning.
        is_last: whether this is the last attempt, which does not wait for outages of models.
    """

    def __init__(self, note: Note, vector: Vector | None, *, is_last: bool) -> None:
        self.note = note
        self.vector = vector
        self.is_last = is_last
        self.verdicts: dict[str, Resolution] = {}
        """By digest; those without an answer too, so that no question is repeated in this attempt."""
        self.drafts: dict[tuple[tuple[str, int], ...], SuccessorDraft] = {}


class ConflictResolver:
    """Settles new notes with older ones.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the notes.
        repository: stores the notes.
        agents: judge and write.
        chains: locks of the chains.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        namespace: str,
        *,
        repository: NoteRepository,
        agents: Agents,
        chains: ChainLocks,
    ) -> None:
        self._context = context
        self._embedder = context.embedder_of(namespace)
        self._repository = repository
        self._agents = agents
        self._chains = chains

    async def embed(self, text: str) -> Vector | None:
        """Return the vector of a text; None if it has no meaning, or there is no embedder."""
        return None if self._embedder is None else await embed_note(self._embedder, text)

    async def links(self, note: Note, vector: Vector | None) -> LinkedNotes:
        """Return the active notes of the same user, and session if any, that a new note is compared with. Two trips.

        Args:
            note: the new one.
            vector: its vector; without one it resembles nothing.
        """
        settings = self._context.settings
        threshold = note_thresholds(settings, self._context.embedder_name).link
        if vector is None:
            return LinkedNotes((), UserNotesVersion(note.app_id, note.user_id, 0))
        near, seen = await self._repository.near(
            note.app_id,
            vector,
            user_id=note.user_id,
            session_id=note.session_id,
            statuses=("active",),
            k=link_candidates(settings.synthesis_links),
            least_similarity=least_linked_similarity(threshold),
        )
        best = rank_links(
            (each for each in near if each.note.id != note.id),
            now=self._context.clock.now(),
            threshold=threshold,
            number=settings.synthesis_links,
        )
        links = tuple(link_to(note, each) for each in best)
        return LinkedNotes(tuple(each.note for each in best), seen, links)

    async def settle(self, case: PendingNote, chains: frozenset[str]) -> Note:
        """Decide on a pending note and the notes that it resembles, and store the changes in one step.

        Args:
            case: the note.
            chains: the chains that it seems to concern; they are read again under their locks.

        Returns:
            The note after the commit.

        Raises:
            UnavailableError, LimitedError, ConfigError: a model or the store is unavailable; the note stays pending.
            LockHeldError: other callers held a chain for a quarter of an hour; the note stays pending.
        """
        began = time.perf_counter()
        note = await self._settle(case, chains)
        _logger.info(
            "note settled",
            extra={
                "app_id": note.app_id,
                "note_id": note.id,
                "task_id": note.task_id,
                "status": note.status,
                "latency_ms": elapsed_ms(began),
            },
        )
        return note

    async def _settle(self, case: PendingNote, chains: frozenset[str]) -> Note:
        wanted = chains
        for _ in range(_MOST_LOCK_ATTEMPTS):
            try:
                async with self._chains.held(case.note.app_id, wanted | {note_chain_id(case.note)}) as fences:
                    outcome = await self._settled_under(case, fences)
            except LockLostError as error:
                _logger.warning("note %s is settled again: %s", case.note.id, error)
                continue
            except LockHeldError:
                if case.is_last:
                    break
                raise
            if isinstance(outcome, Note):
                return outcome
            wanted = outcome
        if case.is_last:
            return await self.accept(case.note, "its neighbours changed faster than it could be settled with them")
        raise UnavailableError(f"settling note {case.note.id!r}", "its neighbours keep changing")

    async def accept(self, note: Note, reason: str) -> Note:
        """Make a pending note active beside the notes that it resembles. One round trip, mostly.

        Args:
            note: the note as it was read.
            reason: why it could not be settled.
        """
        for _ in range(_MOST_LOCK_ATTEMPTS):
            change = NoteChange(note, status="active", reason="created", degraded=(*note.degraded, reason))
            done = await self._repository.commit(note.app_id, changes=(change,))
            if isinstance(done, CommittedNotes):
                return done.notes[note.id]
            stored = await self._stored(note)
            if stored is None or stored.status != "conflict_pending":
                return stored or note
            note = stored
        raise UnavailableError(f"storing note {note.id!r}", "it keeps changing")

    # -- under the locks

    async def _settled_under(self, case: PendingNote, fences: dict[str, int]) -> Note | frozenset[str]:
        """Return the note once it is settled; else the chains whose locks it needs.

        Other notes of the user may be added at any time. The locks are held meanwhile: otherwise other callers would
        change the judged notes, and they would be judged again.
        """
        outcome: Note | frozenset[str] = frozenset()
        for turn in range(_MOST_COMMIT_ATTEMPTS):
            outcome = await self._settled(case, fences, is_careful=turn < _CAREFUL_ATTEMPTS)
            if isinstance(outcome, Note) or not outcome <= fences.keys():
                break
        return outcome

    async def _settled(self, case: PendingNote, fences: dict[str, int], *, is_careful: bool) -> Note | frozenset[str]:
        stored = await self._stored(case.note)
        if stored is None or stored.status != "conflict_pending":
            # Another worker has settled it, or a user has decided; a missing note was erased.
            return stored or case.note
        links = await self.links(stored, case.vector)
        if not links.chains <= fences.keys():
            return links.chains
        step = await self._decided(case, stored, links)
        done = await self._repository.commit(
            stored.app_id,
            fresh=step.fresh,
            changes=step.changes,
            seen=links.seen if is_careful and case.vector is not None else None,
            fences=fences,
        )
        if isinstance(done, CommittedNotes):
            return done.notes[stored.id]
        return links.chains

    async def _stored(self, note: Note) -> Note | None:
        return (await self._repository.get(note.app_id, (note.id,))).get(note.id)

    async def _decided(self, case: PendingNote, new: Note, linked: LinkedNotes) -> CommitPlan:
        resolutions = await self._judged(case, new, linked.notes)
        verdicts = group_by_verdict(linked.notes, resolutions)
        draft = SuccessorDraft(None)
        if verdicts.updated:
            draft = await self._draft(case, new, verdicts, linked.links)
            if draft.fresh is None:
                resolutions = skip_updates(resolutions, draft.reason)
        lacks = sorted({one.reasoning for one in resolutions if one.decided_by == FALLBACK})
        return plan_commit(
            new,
            linked.notes,
            resolutions,
            links=linked.links,
            successor=draft.fresh,
            degraded=(*lacks, *draft.left_out),
        )

    # -- verdicts

    async def _judged(self, case: PendingNote, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        """Return one resolution for each, in their order; no question about the same two texts is repeated."""
        if not linked:
            return []
        digests = {note.id: self._digest("verdict", new, note) for note in linked}
        missing = [digest for digest in digests.values() if digest not in case.verdicts]
        for digest, kept in (await self._repository.remembered(new.app_id, missing) if missing else {}).items():
            if (recalled := _decode_verdict(kept)) is not None:
                case.verdicts[digest] = recalled
        unknown = [note for note in linked if digests[note.id] not in case.verdicts]
        given = {digests[one.memory_id]: one for one in await self._asked_to_judge(case, new, unknown)}
        case.verdicts |= given
        firm = {digest: _encode_verdict(one) for digest, one in given.items() if one.decided_by != FALLBACK}
        if firm:
            await self._repository.remember(new.app_id, firm, ttl_s=_VERDICT_TTL_S)
        return [case.verdicts[digests[note.id]].model_copy(update={"memory_id": note.id}) for note in linked]

    async def _asked_to_judge(self, case: PendingNote, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        if not linked:
            return []
        answer, reason = await self.useful(
            "judge", lambda: self._agents.judge(new, linked), is_last=case.is_last, else_="it was kept unchanged"
        )
        if answer is None:
            return [skip_resolution(note, reason) for note in linked]
        return complete_resolutions(linked, answer)

    # -- successors

    async def _draft(
        self, case: PendingNote, new: Note, verdicts: NotesByVerdict, links: Sequence[NoteLink]
    ) -> SuccessorDraft:
        """Return the successor of the new note and all with verdict UPDATE; it is requested once."""
        which = tuple((note.id, note.version) for note in verdicts.updated)
        if which not in case.drafts:
            case.drafts[which] = await self._drafted(case, new, verdicts, links)
        return case.drafts[which]

    async def _drafted(
        self, case: PendingNote, new: Note, verdicts: NotesByVerdict, links: Sequence[NoteLink]
    ) -> SuccessorDraft:
        updated = verdicts.updated
        written, reason = await self._consolidated(case, new, updated)
        if written is None:
            return SuccessorDraft(None, reason)
        if len(written.note) > _LONGEST_NOTE:
            return SuccessorDraft(None, f"the consolidation was rejected: it is longer than {_LONGEST_NOTE} characters")
        try:
            check_facts_preserved([own_text(note.memory_note) for note in (new, *updated)], own_text(written.note))
        except InvalidError as error:
            self._context.counters.increment(USELESS_ANSWERS, part="consolidate")
            return SuccessorDraft(None, f"the consolidation was rejected: {error}"[:500])
        vector, reason = await self.useful(
            "embed", lambda: self.embed(written.note), is_last=case.is_last, else_="no consolidation could be made"
        )
        if vector is None:
            return SuccessorDraft(None, reason or "the embedder found no meaning in the consolidation")
        labels = merge_labels(new, updated)
        topics = related_to(new, updated, apart=verdicts.skipped, text=written.note)
        successor = build_successor(
            new,
            updated,
            text=replace_related_topics(written.note, topics),
            labels=labels,
            links=links,
            report=check_report(written.report, (new, *updated), written.note),
            now=self._context.clock.now(),
        )
        return SuccessorDraft(NewNote(successor, vector), left_out=labels.left_out)

    async def _consolidated(
        self, case: PendingNote, new: Note, updated: Sequence[Note]
    ) -> tuple[Consolidation | None, str]:
        digest = self._digest("consolidation with report", new, *updated)
        kept = (await self._repository.remembered(new.app_id, (digest,))).get(digest)
        known = None if kept is None else _decode_consolidation(kept)
        if known is not None:
            return known, ""
        written, reason = await self.useful(
            "consolidate",
            lambda: self._agents.consolidate(new, updated),
            is_last=case.is_last,
            else_="no consolidation could be made",
        )
        if written is not None:
            answer = _CONSOLIDATION.dump_json(written)
            await self._repository.remember(new.app_id, {digest: answer}, ttl_s=_DRAFT_TTL_S)
        return written, reason

    # -- models

    async def useful(
        self, part: str, ask: Callable[[], Awaitable[T]], *, is_last: bool, else_: str
    ) -> tuple[T | None, str]:
        """Return a model's answer; or None, and a sentence about why there is no usable answer.

        Args:
            part: name of the step.
            ask: calls the model.
            is_last: whether this is the last attempt, which does not wait for outages.
            else_: what is done without the answer.

        Raises:
            UnavailableError, LimitedError, ConfigError: the model is unavailable, and a retry follows.
        """
        try:
            return await ask(), ""
        except OUTAGES as error:
            if not is_last:
                raise
            failure: Exception = error
        except Exception as error:  # noqa: BLE001  # whatever a model does, the new note is stored
            failure = error
        self._context.counters.increment(USELESS_ANSWERS, part=part)
        _logger.warning("%s: no usable answer; %s", part, else_, exc_info=failure)
        return None, f"{part} failed ({type(failure).__name__}: {str(failure)[:200]}); {else_}"

    def _digest(self, what: str, *notes: Note) -> str:
        """Return the digest of a question: the same texts for the same model are the same question."""
        whole = hashlib.sha256()
        for text in (what, self._agents.name, *(note.memory_note for note in notes)):
            data = text.encode()
            # Each length comes before its text, so that no text can be mistaken for the end of another.
            whole.update(len(data).to_bytes(8, "big"))
            whole.update(data)
        return whole.hexdigest()


_CONSOLIDATION = TypeAdapter(Consolidation)


def _decode_consolidation(kept: bytes) -> Consolidation | None:
    """Return a cached consolidation; None if another client has overwritten it."""
    try:
        return _CONSOLIDATION.validate_json(kept)
    except ValidationError:
        return None


def _encode_verdict(resolution: Resolution) -> bytes:
    return resolution.model_dump_json(exclude={"memory_id"}).encode()


def _decode_verdict(kept: bytes) -> Resolution | None:
    """Return a cached verdict; None if another client has overwritten it."""
    try:
        return Resolution.model_validate_json(b'{"memory_id":"",' + kept[1:])
    except ValidationError:
        return None
