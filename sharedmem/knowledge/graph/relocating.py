"""Moving claims to the lines where they belong, after an entity was merged into another one or parted from it.

Claims keep the ids they were said with; which lines they stand in, and which facts follow, depends on what these ids
lead to. A hub with very many claims is moved page by page. Each page is a step of its own that is written whole or not
at all, so that a move which was cut off can be begun again: what lies where it belongs is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product

from sharedmem.errors import ConflictError
from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.planning import Ground, lines_of, steady_of
from sharedmem.knowledge.graph.projecting import fact_id, further_lines, project
from sharedmem.knowledge.graph.protocol import GraphBackend, GraphProgress
from sharedmem.knowledge.graph.records import (
    Behind,
    Changes,
    Claim,
    EpisodeRow,
    FactRow,
    Row,
    Seen,
    Wanted,
    earliest,
)
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.rewrites import Rewrites, kept, with_facts
from sharedmem.knowledge.graph.turns import Turns

LINES_AT_ONCE = 100
"""Lines that one step moves, besides those that depend on them."""
_MOST_MIXED = 5
"""Entities merged into each other of which it is considered that each may lie where any other does."""


@dataclass(frozen=True, slots=True)
class Move:
    """Whose claims move, and between whom."""

    said: tuple[str, ...]
    """Ids with which they were said."""
    old: str
    """The entity to which these led before."""
    new: str
    """The one to which they lead now."""
    between: tuple[str, ...] = ()
    """Others to which some may have led, where earlier moves were cut off."""

    def places(self, id_: str) -> set[str]:
        """Where what was said with an id may lie."""
        return {id_, self.old, self.new, *self.between, *self.said[:_MOST_MIXED]}


@dataclass(frozen=True, slots=True)
class Found:
    """Some lines and what depends on them."""

    seen: Seen
    """With `claims` of all these lines, and `into` of the entities in them as it is now."""
    move: Move
    vocabulary: Vocabulary

    def now(self, id_: str) -> str:
        """What an id leads to."""
        return self.seen.into.get(id_, id_)

    def ground(self) -> Ground:
        """The lines, and how the ids in them are to be read."""
        return Ground(self.vocabulary, self.now, self.seen.claims)

    def facts(self) -> dict[str, FactRow]:
        """What follows from all these lines."""
        rows = project(self.seen.claims, former={}, vocabulary=self.vocabulary, canonical=self.now)
        return {row.id: row for row in rows}

    def facts_ever(self) -> set[str]:
        """The ids of all facts that may have followed from these claims, wherever these led when they were written."""
        return {
            fact_id(source, type_, target, claim.value, claim.start)
            for claim in self._claims()
            if claim.says == "holds"
            for type_, source, target in self._readings(claim)
        }

    def lines(self) -> set[str]:
        """The lines in which these claims should stand, and all in which those that move may have stood."""
        return further_lines(self._claims(), self.vocabulary, self.now) | {
            line
            for claim in self._claims()
            if self.is_moving(claim)
            for type_, source, target in self._readings(claim)
            for line in self.vocabulary.lines(type_, source, target, claim.value)
        }

    def is_moving(self, claim: Claim) -> bool:
        """Whether it was said with a moved id."""
        return not {claim.source, claim.target}.isdisjoint(self.move.said)

    def _claims(self) -> Iterator[Claim]:
        return chain.from_iterable(self.seen.claims.values())

    def _readings(self, claim: Claim) -> Iterator[tuple[str, str, str]]:
        for source, target in product(self._places(claim.source), self._places(claim.target)):
            yield self.vocabulary.canonical(claim.type, source, target)

    def _places(self, id_: str) -> set[str]:
        if not id_:
            return {""}
        if id_ in self.move.said:
            return self.move.places(id_)
        tangled = len(self.move.said) > 1 or len(self.move.between) > 1
        return {id_, self.now(id_)} | (self.move.places(id_) if tangled else set())

    def moved(self) -> dict[str, set[str]]:
        """Ids of claims that were said with a moved id, by episode."""
        moved: dict[str, set[str]] = {}
        for claim in filter(self.is_moving, self._claims()):
            moved.setdefault(claim.episode, set()).add(claim.id)
        return moved


def changes_of_move(found: Found, former: Mapping[str, FactRow]) -> Changes | None:
    """What a step has to write so that some lines are as they should be. Pure.

    Args:
        found: the lines, with the episodes of the claims that move in `seen.episodes`.
        former: the facts that lie there, of those that should and those that should not.

    Returns:
        None when everything is where it belongs.
    """
    right = found.facts()
    fresh = {id_: kept(row, former.get(id_)) for id_, row in right.items()}
    changed = [row for id_, row in fresh.items() if row != former.get(id_)]
    gone = [row for id_, row in former.items() if id_ not in right]
    pairs = _rewritten(found, gone, changed)
    if not changed and not gone and not pairs:
        return None
    replaced: list[Row] = [before for before, _ in pairs]
    replaced += [*gone, *(former[row.id] for row in changed if row.id in former)]
    lines = {*found.seen.claims, *(line for _, row in pairs for lines in row.lines for line in lines)}
    return Changes(
        guards=tuple(sorted(lines)),
        steady=(f"@{found.move.old}", f"@{found.move.new}", *steady_of(found.ground(), (), lines)),
        episodes=tuple(after for _, after in pairs),
        facts=tuple(changed),
        former=tuple(replaced),
    )


def _rewritten(
    found: Found, gone: Iterable[FactRow], changed: Iterable[FactRow]
) -> list[tuple[EpisodeRow, EpisodeRow]]:
    """The episodes that are not as they should be, each with how it should be."""
    moved, ground = found.moved(), found.ground()
    ended = {row.id for row in gone}
    come: dict[str, list[str]] = {}
    for fact in changed:
        for id_ in fact.episodes:
            come.setdefault(id_, []).append(fact.id)
    pairs = []
    for row in found.seen.episodes.values():
        claims = moved.get(row.id, set())
        each = zip(row.claims, row.lines, strict=True)
        lines = tuple(lines_of(claim, ground) if claim.id in claims else held for claim, held in each)
        pairs.append((row, replace(row, lines=lines, body=with_facts(row, ended=ended, come=come.get(row.id, ())))))
    return [(before, after) for before, after in pairs if before != after]


def _check_end(seen: Seen, move: Move, *ids: str) -> None:
    if any(seen.into.get(id_, id_) != move.new for id_ in ids):
        raise ConflictError("somebody merges or parts the same entities meanwhile; look at them, then call it again")


class Relocation:
    """Moves the claims of some entities, page by page.

    Args:
        backend: keeps the graph.
        turns: among the tasks of one hub.
        vocabulary: how relations behave.
        meanings: vectors for facts that come to be.
    """

    def __init__(self, backend: GraphBackend, turns: Turns, vocabulary: Vocabulary, meanings: Meanings) -> None:
        self._backend = backend
        self._turns = turns
        self._vocabulary = vocabulary
        self._rewrites = Rewrites(backend, meanings)

    async def move(self, group: str, move: Move, progress: GraphProgress | None = None) -> None:
        """Move all of them. About four round trips a page of 100 lines, and one for each entity that was merged.

        Raises:
            ConflictError: somebody merges or parts the same entities meanwhile.
            UnavailableError: the server cannot be reached; begin again to go on.
        """
        after, done = "", 0
        while True:
            lines, after = await self._backend.lines_of(group, move.said, after=after, limit=LINES_AT_ONCE)
            if lines:
                await self._turns.until_written(group, partial(self._page, group, move, tuple(lines)))
            done += len(lines)
            if progress is not None:
                progress(done, done if not after else done + LINES_AT_ONCE)
            if not after:
                break
        for id_ in move.said:
            if id_ != move.new:
                await self._turns.until_written(group, partial(self._swept, group, move, id_))

    async def _swept(self, group: str, move: Move, id_: str) -> bool | Behind:
        """Take away what still lies at a merged entity, because an earlier move was cut off and never went on."""
        while edges := await self._backend.edges(group, id_, when=None, limit=LINES_AT_ONCE):
            ids = tuple(dict.fromkeys(edge.fact for edge in edges))
            seen = await self._backend.look(group, Wanted(facts=ids, entities=(id_,)))
            _check_end(seen, move, id_)
            former = tuple(seen.facts.values())
            if not former:
                return Behind()
            lines = sorted({line for row in former for line in row.lines})
            changes = Changes(guards=tuple(lines), steady=(f"@{id_}", f"@{move.new}"), former=former)
            if isinstance(await self._backend.commit(group, changes, seen=seen.version), Behind):
                return Behind()
        return True

    async def _page(self, group: str, move: Move, lines: Sequence[str]) -> bool | Behind:
        found = await self._found(group, move, lines)
        ids = tuple(sorted(found.facts_ever()))
        rows = await self._backend.look(group, Wanted(facts=ids, entities=move.said))
        _check_end(rows, move, *move.said)
        changes = changes_of_move(found, rows.facts)
        if changes is None:
            return True
        version = earliest(found.seen.version, rows.version)
        return await self._rewrites.write(group, changes, rows.facts, seen=version)

    async def _found(self, group: str, move: Move, lines: Sequence[str]) -> Found:
        """Some lines with all on which they depend, and the episodes of the claims that move."""
        found = Found(await self._backend.look(group, Wanted(lines=tuple(lines))), move, self._vocabulary)
        while True:
            missing = found.lines() - found.seen.claims.keys()
            episodes = found.moved().keys() - found.seen.episodes.keys()
            if not missing and not episodes:
                return found
            seen = await self._backend.look(
                group, Wanted(lines=tuple(sorted(missing)), episodes=tuple(sorted(episodes)))
            )
            found.seen.version = earliest(found.seen.version, seen.version)
            found.seen.claims |= seen.claims
            found.seen.into |= seen.into
            found.seen.episodes |= seen.episodes
