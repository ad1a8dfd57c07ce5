"""One batch of additions, judged and written: what is new, and what is merged into what is there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import orjson

from sharedmem.errors import UnavailableError, VersionConflictError
from sharedmem.knowledge.memory.base import MEMORY
from sharedmem.knowledge.memory.dedup import Held, is_alike, merged, says_the_same
from sharedmem.knowledge.memory.desk import Behind, Desk, Outcome, Verdict
from sharedmem.knowledge.memory.documents import encode_body, encode_change
from sharedmem.knowledge.memory.drafts import Draft
from sharedmem.knowledge.memory.neighbours import Neighbours
from sharedmem.models import AddResult, MemoryItem
from sharedmem.wire.remembering import Write
from sharedmem.wire.vectors import Vector, from_half, to_half

_MOST_ROUNDS = 200
_TO_THE_LETTER = 1.0
_BELOW_ONE = 0.999999
"""The most that nearness in meaning says: only the same words are the same to the letter."""


@dataclass(slots=True, eq=False)
class Case:
    """A draft under way."""

    draft: Draft
    place: int
    """In its batch."""
    near: dict[str, float] = field(default_factory=dict)
    """What may be the same, by similarity."""
    over: str = ""
    """Who has its digest in vain."""
    twins: list[Case] = field(default_factory=list)
    """Those of its batch that say the same to the letter."""
    into: Held | None = None
    """What it is merged into, in this round."""

    @property
    def looks_around(self) -> bool:
        """Whether near memories are duplicates too."""
        draft = self.draft
        return draft.dedup and not draft.is_exact and draft.vector is not None

    @property
    def vector(self) -> Vector:
        """What it means, where it looks around."""
        assert self.draft.vector is not None
        return self.draft.vector

    def candidates(self) -> Iterable[str]:
        """What it has to be compared with; a name that is given may be there already."""
        return (self.draft.item.id, *self.near) if self.draft.is_named else self.near

    def whole(self, now: datetime) -> MemoryItem:
        """Its item with its twins in it."""
        item = self.draft.item
        for twin in self.twins:
            item = merged(item, twin.draft.item, now)
        return item


class Bench:
    """Writes the drafts of one actor.

    Args:
        desk: their namespace.
        neighbours: finds what is near in it.
        drafts: as many as one script may write.
    """

    def __init__(self, desk: Desk, neighbours: Neighbours, drafts: Sequence[Draft]) -> None:
        self._desk = desk
        self._neighbours = neighbours
        self._minds = desk.minds
        self._actor = drafts[0].actor
        self._told = encode_change("added", self._actor.decode())
        self._threshold = desk.minds.settings.dedup_similarity
        self._cases = [Case(draft, place) for place, draft in enumerate(drafts)]
        self._results: list[AddResult | Exception | None] = [None] * len(drafts)
        self._seen: int | None = None
        self._near_places: dict[int, dict[int, float]] | None = None
        self.waiting = 0
        """Memories of the namespace that wait for their embedding."""

    @property
    def results(self) -> list[AddResult | Exception]:
        """What became of each draft."""
        return [result if result is not None else _unsettled() for result in self._results]

    def fail(self, error: Exception) -> None:
        """What has no result yet has failed."""
        self._results = [error if result is None else result for result in self._results]

    async def settle(self) -> None:
        """Write them all.

        Raises:
            SharedMemoryError: the server cannot be asked; `results` tell how far it got.
        """
        cases = _without_twins(self._cases)
        await self._look_around(cases)
        for _ in range(_MOST_ROUNDS):
            if not cases:
                return
            cases = await self._round(cases)

    async def _look_around(self, cases: Sequence[Case]) -> None:
        """Find what is near; from here on only what changes can be nearer."""
        looking = [case for case in cases if case.looks_around]
        if not looking:
            return
        near = await self._neighbours.of([case.draft for case in looking])
        for case, found in zip(looking, near.found, strict=True):
            case.near |= {id_: min(similarity, _BELOW_ONE) for id_, similarity in found.items()}
        self._seen = near.version

    async def _round(self, cases: list[Case]) -> list[Case]:
        """Write what can be written now; returns what is left."""
        held = await self._desk.held(id_ for case in cases for id_ in case.candidates())
        now = self._minds.clock.now()
        ready, later = self._judged(cases, held)
        depends = any(case.looks_around and case.into is None for case in ready)
        writes = [self._write_of(case, now) for case in ready]
        outcome = await self._desk.write(self._actor, writes, seen=self._seen if depends else None)
        if isinstance(outcome, Behind):
            await self._catch_up(outcome, cases)
            return cases
        self.waiting = outcome.waiting
        written = [int(verdict.rest[0]) for verdict in outcome.verdicts if verdict.word == "ok"]
        if depends and written:
            self._saw(max(written), ready, outcome)
        verdicts = zip(ready, outcome.verdicts, strict=True)
        left = [case for case, verdict in verdicts if not self._understood(case, verdict)]
        return sorted([*left, *later], key=lambda case: case.place)

    def _saw(self, version: int, ready: Sequence[Case], outcome: Outcome) -> None:
        """Nobody else has changed anything until that version."""
        assert self._seen is not None
        done = (case for case, verdict in zip(ready, outcome.verdicts, strict=True) if verdict.word == "ok")
        fresh = [(case.draft.item, case.vector) for case in done if case.into is None and case.draft.vector is not None]
        self._neighbours.learn(self._seen, version, fresh)
        self._seen = version

    def _judged(self, cases: Sequence[Case], held: dict[str, Held]) -> tuple[list[Case], list[Case]]:
        """(what can be written now, with what it is merged into; what has to wait for one of these)."""
        ready: list[Case] = []
        later: list[Case] = []
        taken: set[str] = set()
        for case in cases:
            case.into = self._same(case, held)
            target = case.into.item.id if case.into else case.draft.item.id
            if target in taken or (case.into is None and self._is_near_new(case, ready)):
                later.append(case)
            else:
                ready.append(case)
                taken.add(target)
        return ready, later

    def _same(self, case: Case, held: dict[str, Held]) -> Held | None:
        """The memory that says the same, if there is one; not the one of that id, which the script finds."""
        if case.draft.item.id in held:
            return None
        for id_, similarity in sorted(case.near.items(), key=lambda pair: (-pair[1], pair[0])):
            found = held.get(id_)
            if found is not None and _is_same(case, found):
                return found
            del case.near[id_]
            if similarity == _TO_THE_LETTER:
                # Whoever has the digest is gone, or says something else by now.
                case.over = id_
        return None

    def _is_near_new(self, case: Case, ready: Sequence[Case]) -> bool:
        """Whether it says the same as a new one of this round; it waits until that is written."""
        if not case.looks_around:
            return False
        near = self._between().get(case.place, {})
        for other in ready:
            similarity = near.get(other.place)
            if similarity is not None and other.into is None and says_the_same(case.draft, other.draft.item):
                case.near[other.draft.item.id] = min(similarity, _BELOW_ONE)
                return True
        return False

    def _between(self) -> dict[int, dict[int, float]]:
        """Which cases of the batch are near to each other, by place, and how near."""
        if self._near_places is None:
            self._near_places = _near_places(self._cases, self._threshold)
        return self._near_places

    async def _catch_up(self, behind: Behind, cases: Sequence[Case]) -> None:
        """Look at what others have changed meanwhile, and at that alone."""
        if not behind.version:
            self._neighbours.forget()
            await self._look_around(cases)
            return
        held = (await self._desk.held(behind.ids)).values()
        changed = [(one.item, from_half(one.vector)) for one in held if one.vector is not None]
        assert self._seen is not None
        self._neighbours.learn(self._seen, behind.version, changed)
        self._seen = behind.version
        if not changed:
            return
        matrix = np.stack([vector for _, vector in changed])
        for case in cases:
            if case.looks_around:
                near = np.vecdot(matrix, case.vector).tolist()
                pairs = zip(changed, near, strict=True)
                case.near |= {item.id: min(s, _BELOW_ONE) for (item, _), s in pairs if s >= self._threshold}

    def _write_of(self, case: Case, now: datetime) -> Write:
        draft, item = case.draft, case.whole(now)
        vector = None if draft.vector is None else to_half(draft.vector)
        if case.into is None:
            turn = "" if item.turn_index is None else item.turn_index
            return self._desk.write_of(
                "added",
                item,
                self._told,
                draft.digest,
                vector,
                over=case.over if draft.dedup else "*",
                waits=draft.waits,
                turn=turn,
            )
        old = case.into
        similarity = self._similarity(case)
        told = encode_change(
            "merged", self._actor.decode(), similarity=similarity, merged=orjson.loads(encode_body(item))
        )
        return self._desk.write_of(
            "merged",
            merged(old.item, item, now),
            told,
            old.digest,
            old.vector,
            before=old,
            waits=old.vector is None and self._minds.embedder is not None,
            turn=old.item.turn_index or 0,
        )

    def _similarity(self, case: Case) -> float:
        if case.into is None or case.into.digest == case.draft.digest:
            return _TO_THE_LETTER
        return round(case.near[case.into.item.id], 6)

    def _understood(self, case: Case, verdict: Verdict) -> bool:
        """Whether this settles a case."""
        word, rest = verdict
        id_ = case.draft.item.id
        if word == "stale":
            return False
        if word == "dup":
            case.near[rest[0]] = _TO_THE_LETTER
            return False
        if word == "here" and rest[2] != case.draft.digest:
            key = f"{self._desk.namespace}:${MEMORY}:{id_}"
            self._note(case, VersionConflictError(key, 0, int(rest[0])))
            return True
        version = int(rest[0])
        if case.into is None:
            self._note(case, AddResult(id=id_, version=version, embedded=not case.draft.waits))
        else:
            embedded = case.into.vector is not None or self._minds.embedder is None
            similarity = self._similarity(case)
            result = AddResult(
                id=case.into.item.id, merged=True, similarity=similarity, version=version, embedded=embedded
            )
            self._note(case, result)
        return True

    def _note(self, case: Case, result: AddResult | Exception) -> None:
        self._results[case.place] = result
        if not case.twins:
            return
        twin = result
        if isinstance(result, AddResult):
            twin = result.model_copy(update={"merged": True, "similarity": result.similarity or _TO_THE_LETTER})
        for one in case.twins:
            self._results[one.place] = twin


def _without_twins(cases: Sequence[Case]) -> list[Case]:
    """The cases that say something of their own; what is said again goes with the first that says it."""
    first: dict[str, Case] = {}
    found: list[Case] = []
    for case in cases:
        digest = case.draft.digest
        if case.draft.dedup and digest in first:
            first[digest].twins.append(case)
            continue
        found.append(case)
        if case.draft.dedup:
            first[digest] = case
    return found


def _near_places(cases: Sequence[Case], threshold: float) -> dict[int, dict[int, float]]:
    looking = [case for case in cases if case.looks_around]
    if len(looking) < 2:
        return {}
    matrix = np.stack([case.vector for case in looking])
    found: dict[int, dict[int, float]] = {}
    similarities = np.vecdot(matrix[:, None], matrix[None])
    for row, column in np.argwhere(similarities >= threshold).tolist():
        if row != column:
            near = found.setdefault(looking[row].place, {})
            near[looking[column].place] = float(similarities[row, column])
    return found


def _is_same(case: Case, held: Held) -> bool:
    if held.digest == case.draft.digest and is_alike(case.draft, held.item):
        return True
    return case.looks_around and held.vector is not None and says_the_same(case.draft, held.item)


def _unsettled() -> UnavailableError:
    return UnavailableError("memory", "others change the same memories as often as this one is written; try again")
