"""Merge two entities into one or unmerge them, and move their claims to the timelines that they belong to.

Claims keep the ids that they were recorded with. Their lines and facts depend on what these ids lead to. A merge is
first recorded, as pending, and its names lead to the other entity; then the claims move, page by page, each page in
one atomic step; then the merge is recorded as complete. In a group one merge is pending at a time, and a caller that
finds it completes it first. So a caller that stopped half-way blocks no other, and each fact has two possible places.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product

from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.graph.access import (
    BatchedCommits,
    CommitRetries,
    EntityLookup,
    GraphAccess,
    IngestRules,
    Page,
    TextEmbeddings,
    body_with_facts,
    check_limit,
    with_stored_vector,
)
from sharedmem.graph.changes import ProjectionInputs, claim_timelines, read_dependencies
from sharedmem.graph.entity_versions import newest_recorded, with_alias, with_merge
from sharedmem.graph.names import check_encodable, check_entity_name, normalize_name
from sharedmem.graph.projection import dependent_timelines, fact_id, project
from sharedmem.graph.protocol import GraphBackend, GraphProgress
from sharedmem.graph.records import (
    Claim,
    CommitRequest,
    EntityRow,
    EpisodeRow,
    FactRow,
    LookupRequest,
    LookupResult,
    Row,
    StaleGroup,
    earliest_version,
    to_stamp,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.graph.resolver import ALIASES_AT_ONCE, entity_text
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Entity, EntityMerge

LINES_AT_ONCE = 100
"""Lines that one step moves, besides the lines that depend on them."""
_MERGING = "merges"
"""The guard that all merges of a group share: of callers that record one at the same time, one succeeds."""


@dataclass(frozen=True, slots=True)
class ClaimMove:
    """The ids whose claims move, with the old and the new entity."""

    moved_ids: tuple[str, ...]
    """Ids with which the claims were recorded."""
    old: str
    """The entity that these ids led to before."""
    new: str
    """The entity that they lead to now."""
    pending: EntityMerge
    """The merge as it is recorded until all have moved."""

    def is_under_way(self, seen: LookupResult) -> bool:
        """Return whether the merge is still pending; `seen` has the row of its source."""
        return _has_merge(seen, self.pending)


def _has_merge(seen: LookupResult, merge: EntityMerge) -> bool:
    row = seen.entities.get(merge.source_id)
    return row is not None and bool(row.merge) and EntityMerge.model_validate_json(row.merge) == merge


@dataclass(frozen=True, slots=True)
class RelocationState:
    """Some lines and what depends on them."""

    seen: LookupResult
    """With `claims` of all these lines, and `into` of the entities in them as it is now."""
    move: ClaimMove
    vocabulary: Vocabulary

    def now(self, id_: str) -> str:
        """Return the id of an entity after merges."""
        return self.seen.into.get(id_, id_)

    def projection(self) -> ProjectionInputs:
        """Return the lines, with the merges that apply to ids in them."""
        return ProjectionInputs(self.vocabulary, self.now, self.seen.claims)

    def facts(self) -> dict[str, FactRow]:
        """Return the facts that follow from these lines."""
        rows = project(self.seen.claims, former={}, vocabulary=self.vocabulary, canonical=self.now)
        return {row.id: row for row in rows}

    def facts_ever(self) -> set[str]:
        """Return the ids of all facts that may have followed from these claims, with any former merges."""
        return {
            fact_id(source, type_, target, claim.value, claim.start)
            for claim in self._claims()
            if claim.says == "holds"
            for type_, source, target in self._readings(claim)
        }

    def lines(self) -> set[str]:
        """Return the lines that these claims belong to, and those in which moved claims may have been."""
        return dependent_timelines(self._claims(), self.vocabulary, self.now) | {
            line
            for claim in self._claims()
            if self.is_moving(claim)
            for type_, source, target in self._readings(claim)
            for line in self.vocabulary.lines(type_, source, target, claim.value)
        }

    def is_moving(self, claim: Claim) -> bool:
        """Return whether a claim was recorded with a moved id."""
        return not {claim.source, claim.target}.isdisjoint(self.move.moved_ids)

    def _claims(self) -> Iterator[Claim]:
        return chain.from_iterable(self.seen.claims.values())

    def _readings(self, claim: Claim) -> Iterator[tuple[str, str, str]]:
        for source, target in product(self._places(claim.source), self._places(claim.target)):
            yield self.vocabulary.canonical(claim.type, source, target)

    def _places(self, id_: str) -> set[str]:
        if not id_:
            return {""}
        return {id_, self.move.old, self.move.new} if id_ in self.move.moved_ids else {id_, self.now(id_)}

    def moved(self) -> dict[str, set[str]]:
        """Return ids of claims that were recorded with a moved id, by episode."""
        moved: dict[str, set[str]] = {}
        for claim in filter(self.is_moving, self._claims()):
            moved.setdefault(claim.episode, set()).add(claim.id)
        return moved


def build_relocation(found: RelocationState, former: Mapping[str, FactRow]) -> CommitRequest | None:
    """Return the changes of a step that corrects some lines. Pure.

    Args:
        found: the lines, with the episodes of the claims that move in `seen.episodes`.
        former: the stored facts, right and wrong ones.

    Returns:
        The changes; None if everything is right already.
    """
    right = found.facts()
    fresh = {id_: with_stored_vector(row, former.get(id_)) for id_, row in right.items()}
    changed = [row for id_, row in fresh.items() if row != former.get(id_)]
    gone = [row for id_, row in former.items() if id_ not in right]
    pairs = _rewrite_episodes(found, gone, changed)
    if not changed and not gone and not pairs:
        return None
    replaced: list[Row] = [before for before, _ in pairs]
    replaced += [*gone, *(former[row.id] for row in changed if row.id in former)]
    lines = {*found.seen.claims, *(line for _, row in pairs for lines in row.lines for line in lines)}
    return CommitRequest(
        guards=tuple(sorted(lines)),
        steady=(f"@{found.move.old}", f"@{found.move.new}", *read_dependencies(found.projection(), (), lines)),
        episodes=tuple(after for _, after in pairs),
        facts=tuple(changed),
        former=tuple(replaced),
    )


def _rewrite_episodes(
    found: RelocationState, gone: Iterable[FactRow], changed: Iterable[FactRow]
) -> list[tuple[EpisodeRow, EpisodeRow]]:
    """Return the episodes that must change, each with its new state."""
    moved, projection = found.moved(), found.projection()
    ended = {row.id for row in gone}
    come: dict[str, list[str]] = {}
    for fact in changed:
        for id_ in fact.episodes:
            come.setdefault(id_, []).append(fact.id)
    pairs = []
    for row in found.seen.episodes.values():
        claims = moved.get(row.id, set())
        each = zip(row.claims, row.lines, strict=True)
        lines = tuple(claim_timelines(claim, projection) if claim.id in claims else held for claim, held in each)
        pairs.append(
            (row, replace(row, lines=lines, body=body_with_facts(row, ended=ended, come=come.get(row.id, ()))))
        )
    return [(before, after) for before, after in pairs if before != after]


class ClaimRelocation:
    """Moves the claims of some entities, page by page.

    Args:
        backend: stores the graph.
        turns: turns of the tasks of one hub.
        vocabulary: relation types.
        meanings: vectors for new facts.
    """

    def __init__(
        self, backend: GraphBackend, turns: CommitRetries, vocabulary: Vocabulary, meanings: TextEmbeddings
    ) -> None:
        self._backend = backend
        self._turns = turns
        self._vocabulary = vocabulary
        self._rewrites = BatchedCommits(backend, meanings)

    async def move(self, group: str, move: ClaimMove, progress: GraphProgress | None = None) -> None:
        """Move all claims. About four round trips for a page of 100 lines, and one for each entity that was merged.

        Several callers may move the same claims; the pages that come later find nothing to do.

        Raises:
            UnavailableError: the server cannot be reached; call it again to continue.
        """
        after, done = "", 0
        while True:
            lines, after = await self._backend.lines_of(group, move.moved_ids, after=after, limit=LINES_AT_ONCE)
            if lines:
                await self._turns.until_written(group, partial(self._page, group, move, tuple(lines)))
            done += len(lines)
            if progress is not None:
                progress(done, done if not after else done + LINES_AT_ONCE)
            if not after:
                break
        for id_ in move.moved_ids:
            if id_ != move.new:
                await self._turns.until_written(group, partial(self._swept, group, move, id_))

    async def _swept(self, group: str, move: ClaimMove, id_: str) -> bool | StaleGroup:
        """Remove facts that are still at a merged entity, because an earlier move was never finished."""
        while edges := await self._backend.edges(group, id_, when=None, limit=LINES_AT_ONCE):
            ids = tuple(dict.fromkeys(edge.fact for edge in edges))
            source = move.pending.source_id
            seen = await self._backend.look(group, LookupRequest(facts=ids, entities=(id_, source)))
            if not move.is_under_way(seen):
                return True
            former = tuple(seen.facts.values())
            if not former:
                return StaleGroup()
            lines = sorted({line for row in former for line in row.lines})
            steady = tuple(f"@{each}" for each in dict.fromkeys((source, id_, move.new)))
            changes = CommitRequest(guards=tuple(lines), steady=steady, former=former)
            if isinstance(await self._backend.commit(group, changes, seen=seen.version), StaleGroup):
                return StaleGroup()
        return True

    async def _page(self, group: str, move: ClaimMove, lines: Sequence[str]) -> bool | StaleGroup:
        found = await self._found(group, move, lines)
        ids = tuple(sorted(found.facts_ever()))
        rows = await self._backend.look(group, LookupRequest(facts=ids, entities=move.moved_ids))
        changes = build_relocation(found, rows.facts)
        if changes is None or not move.is_under_way(rows):
            return True
        version = earliest_version(found.seen.version, rows.version)
        return await self._rewrites.write(group, changes, rows.facts, seen=version)

    async def _found(self, group: str, move: ClaimMove, lines: Sequence[str]) -> RelocationState:
        """Return some lines with all their dependencies, and the episodes of the claims that move."""
        found = RelocationState(
            await self._backend.look(group, LookupRequest(lines=tuple(lines))), move, self._vocabulary
        )
        while True:
            missing = found.lines() - found.seen.claims.keys()
            episodes = found.moved().keys() - found.seen.episodes.keys()
            if not missing and not episodes:
                return found
            seen = await self._backend.look(
                group, LookupRequest(lines=tuple(sorted(missing)), episodes=tuple(sorted(episodes)))
            )
            found.seen.version = earliest_version(found.seen.version, seen.version)
            found.seen.claims |= seen.claims
            found.seen.into |= seen.into
            found.seen.episodes |= seen.episodes


_MOST_ALIASES = 10_000
_CURSOR_SEPARATOR = "\x1f"
"""Separates an entity and its last returned name in a cursor."""


@dataclass(frozen=True, slots=True)
class _NamedEntity:
    """An entity that a caller names."""

    row: EntityRow
    """The entity of the name itself, before merges."""
    end: str
    """The entity after merges; itself if it was not merged."""


class EntityMerges:
    """Merges entities, undoes merges, and adds names to entities.

    Args:
        context: dependencies that the hub shares with its stores.
        access: rights of the actor.
        backend: stores the graphs.
        rules: relation types and extractor.
    """

    def __init__(
        self, context: KnowledgeContext, access: GraphAccess, backend: GraphBackend, rules: IngestRules
    ) -> None:
        self._access = access
        self._backend = backend
        self._clock = context.clock
        self._lookup = EntityLookup(backend)
        self._embeddings = TextEmbeddings(context, access.namespace)
        self._turns = CommitRetries.of(context, access.namespace)
        self._relocation = ClaimRelocation(backend, self._turns, rules.vocabulary, self._embeddings)

    async def merge(
        self, group_id: str, source: str, into: str, *, reason: str, progress: GraphProgress | None
    ) -> EntityMerge:
        """Merge one entity into another; see `Graph.merge`."""
        group = await self._access.enter(group_id, "write")
        self._access.check_everyone(source)
        return await self._change(group, lambda: self._redirect(group, source, into, reason), progress)

    async def unmerge(self, group_id: str, entity: str, *, progress: GraphProgress | None) -> EntityMerge:
        """Undo the merge of an entity; see `Graph.unmerge`."""
        group = await self._access.enter(group_id, "write")
        self._access.check_everyone(entity)
        return await self._change(group, lambda: self._parted(group, entity), progress)

    async def complete(self, group: str, progress: GraphProgress | None = None) -> None:
        """Complete the merge of a group that is pending, if there is one. One round trip if no merge is pending."""
        logged = await self._logged(group)
        for pending in [merge for merge in logged.values() if merge.pending]:
            moved_ids = (pending.source_id, *_merged_into(pending.source_id, logged))
            old, new = pending.source_id, await self._end(group, pending.source_id)
            if pending.undone_at is not None:
                old, new = await self._end(group, pending.into_id), pending.source_id
            await self._relocation.move(group, ClaimMove(moved_ids, old, new, pending), progress)
            await self._turns.until_written(group, partial(self._recorded_complete, group, pending))

    async def _change(
        self, group: str, record: Callable[[], Awaitable[EntityMerge | StaleGroup]], progress: GraphProgress | None
    ) -> EntityMerge:
        """Record a merge once no other one is pending, and complete it."""
        while True:
            await self.complete(group, progress)
            merge = await self._turns.until_written(group, partial(self._recorded_alone, group, record))
            if merge is not None:
                await self.complete(group, progress)
                return merge.model_copy(update={"pending": False})

    async def _recorded_alone(
        self, group: str, record: Callable[[], Awaitable[EntityMerge | StaleGroup]]
    ) -> EntityMerge | StaleGroup | None:
        """Record a merge; None if another one became pending before it."""
        merge = await record()
        if not isinstance(merge, StaleGroup):
            return merge
        others = await self._logged(group)
        return None if any(other.pending for other in others.values()) else merge

    async def _recorded_complete(self, group: str, pending: EntityMerge) -> bool | StaleGroup:
        seen = await self._backend.look(group, LookupRequest(entities=(pending.source_id,)))
        if not _has_merge(seen, pending):
            return True
        row = seen.entities[pending.source_id]
        merge = pending.model_copy(update={"pending": False}).model_dump_json()
        changes = CommitRequest(
            guards=(f"@{row.id}",),
            entities=(replace(row, merge=merge),),
            former=(row,),
            merges=((row.id, merge.encode()),),
        )
        outcome = await self._backend.commit(group, changes, seen=seen.version)
        return outcome if isinstance(outcome, StaleGroup) else True

    async def aliases(self, group_id: str, entity: str, *, after: str, limit: int) -> Page[str]:
        """Return a page of the names that lead to an entity; see `Graph.aliases`."""
        group = await self._access.enter(group_id, "read")
        check_limit(limit, _MOST_ALIASES)
        meant = _find_named(entity, group, await self._seen(group, entity))
        entities = [meant.end, *_merged_into(meant.end, await self._logged(group))]
        begin, _, last = after.partition(_CURSOR_SEPARATOR)
        found: list[str] = []
        for id_ in entities[entities.index(begin) if begin in entities else 0 :]:
            names, last = await self._backend.names_of(group, id_, after=last, limit=limit - len(found))
            found += names
            if last or len(found) >= limit:
                return Page(found, cursor=_cursor(entities, id_, last))
        return Page(found, cursor="")

    async def add_alias(self, group_id: str, entity: str, alias: str | Sequence[str]) -> Entity:
        """Add names that lead to an entity; see `Graph.add_alias`."""
        group = await self._access.enter(group_id, "write")
        spelled = [check_entity_name("alias", each) for each in ([alias] if isinstance(alias, str) else alias)]
        for first in range(0, max(1, len(spelled)), ALIASES_AT_ONCE):
            some = spelled[first : first + ALIASES_AT_ONCE]
            row = await self._turns.until_written(group, partial(self._called, group, entity, some))
        return (await self._lookup.entities(group, [row], self._access.point_in_time(None, None)))[0]

    async def _redirect(self, group: str, source: str, into: str, reason: str) -> EntityMerge | StaleGroup:
        """Let one entity's names lead to another one."""
        seen = await self._seen(group, source, into)
        first, second = _find_named(source, group, seen), _find_named(into, group, seen)
        if first.row.merged_into and first.row.id != second.row.id and first.end == second.end:
            return EntityMerge.model_validate_json(first.row.merge)
        _check_merge(first, second)
        now = self._clock.now()
        merge = EntityMerge(
            source_id=first.row.id,
            into_id=second.end,
            at=now,
            by=self._access.signature,
            reason=reason or "requested",
            pending=True,
        )
        return await self._written(group, seen, first, merge)

    async def _parted(self, group: str, entity: str) -> EntityMerge | StaleGroup:
        """Let the names of an entity lead to itself again."""
        seen = await self._seen(group, entity)
        meant = _find_named(entity, group, seen)
        if not meant.row.merge:
            raise InvalidError("entity", entity, "it was not merged, so there is nothing to undo")
        logged = EntityMerge.model_validate_json(meant.row.merge)
        if not meant.row.merged_into:
            return logged
        undone = logged.model_copy(update={"undone_at": self._clock.now(), "pending": True})
        return await self._written(group, seen, meant, undone)

    async def _written(
        self, group: str, seen: LookupResult, meant: _NamedEntity, merge: EntityMerge
    ) -> EntityMerge | StaleGroup:
        row = meant.row
        into = "" if merge.undone_at else merge.into_id
        logged = merge.model_dump_json()
        after = with_merge(row, into, recorded=to_stamp("at", merge.undone_at or merge.at))
        if any(other.pending for other in (await self._logged(group)).values()):
            return StaleGroup()  # it became pending since `seen`, or is not in `seen`: no later one can slip in
        changes = CommitRequest(
            # The end as well: readers of a chain of merges depend only on its beginning and its end.
            guards=(_MERGING, *dict.fromkeys((f"@{row.id}", f"@{merge.into_id}", f"@{meant.end}"))),
            entities=(replace(after, merge=logged),),
            former=(row,),
            merges=((row.id, logged.encode()),),
            events=(("graph.unmerged" if merge.undone_at else "graph.merged", row.id),),
        )
        outcome = await self._backend.commit(group, changes, seen=seen.version)
        return outcome if isinstance(outcome, StaleGroup) else merge

    async def _called(self, group: str, entity: str, aliases: Sequence[str]) -> EntityRow | StaleGroup:
        seen = await self._seen(group, entity, *aliases)
        meant = _find_named(entity, group, seen)
        row, names = meant.row, dict[str, str]()
        now = to_stamp("now", self._clock.now())
        recorded = max(now, newest_recorded(row))
        for alias in aliases:
            normal = normalize_name(alias)
            if seen.names.get(normal, meant.end) != meant.end:
                raise ConflictError(f"{alias!r} is the name of another entity; merge the two if they are one")
            if normal not in seen.names and normal not in names:
                names[normal] = row.id
                row = with_alias(row, normal, alias, start=now, recorded=recorded)
        if not names:
            return row
        halves = await self._embeddings.halves([entity_text(row)])
        row = replace(row, vector=halves.get(entity_text(row)))
        guards = (f"@{row.id}", *(f"={name}" for name in names))
        changes = CommitRequest(guards=guards, entities=(row,), former=(meant.row,), names=tuple(names.items()))
        outcome = await self._backend.commit(group, changes, seen=seen.version)
        return outcome if isinstance(outcome, StaleGroup) else row

    async def _seen(self, group: str, *named: str) -> LookupResult:
        """Return the entities of names or ids, with their owners' rows. One round trip; two if an alias is given."""
        names = tuple(filter(None, (normalize_name(check_encodable("entity", name)) for name in named)))
        seen = await self._backend.look(group, LookupRequest(names=names, entities=named))
        further = {*seen.owners.values(), *seen.names.values(), *seen.into.values()} - seen.entities.keys()
        if further:
            more = await self._backend.look(group, LookupRequest(entities=tuple(sorted(further))))
            seen = replace(
                seen,
                version=earliest_version(seen.version, more.version),
                entities=seen.entities | more.entities,
                into=seen.into | more.into,
            )
        return seen

    async def _end(self, group: str, id_: str) -> str:
        return (await self._backend.look(group, LookupRequest(entities=(id_,)))).into.get(id_, id_)

    async def _logged(self, group: str) -> dict[str, EntityMerge]:
        """Return the newest merge of each entity that was ever merged."""
        merges = map(EntityMerge.model_validate_json, await self._backend.merges(group))
        return {merge.source_id: merge for merge in merges}


def _find_named(named: str, group: str, seen: LookupResult) -> _NamedEntity:
    """Return the entity of a name or id; an id comes first, as a name could look like one."""
    id_ = named if named in seen.entities else seen.owners.get(normalize_name(named), "")
    if id_ not in seen.entities:
        raise NotFoundError("entity", named, f"no episode of group {group!r} names it")
    return _NamedEntity(seen.entities[id_], seen.into.get(id_, id_))


def _check_merge(first: _NamedEntity, second: _NamedEntity) -> None:
    if first.row.id == second.row.id:
        raise InvalidError("into", second.row.name, "both are the same entity; name two different ones")
    if second.end == first.row.id:
        raise InvalidError(
            "into", second.row.name, f"it was merged into {first.row.name!r}; unmerge it before you merge the other way"
        )
    if first.row.merged_into:
        raise ConflictError(
            f"{first.row.name!r} was merged into {first.row.merged_into!r} already; unmerge it first, "
            f"or merge {first.row.merged_into!r} into {second.row.name!r}"
        )


def _merged_into(id_: str, logged: Mapping[str, EntityMerge]) -> list[str]:
    """Return all entities that lead to one by current merges, direct or in a chain; by id."""
    sources: dict[str, list[str]] = {}
    for merge in logged.values():
        if merge.undone_at is None:
            sources.setdefault(merge.into_id, []).append(merge.source_id)
    found: dict[str, None] = {}
    open_ = [id_]
    while open_:
        fresh = [source for source in sources.get(open_.pop(), ()) if source not in found and source != id_]
        found |= dict.fromkeys(fresh)
        open_ += fresh
    return sorted(found)


def _cursor(entities: list[str], id_: str, last: str) -> str:
    if last:
        return f"{id_}{_CURSOR_SEPARATOR}{last}"
    behind = entities[entities.index(id_) + 1 :]
    return f"{behind[0]}{_CURSOR_SEPARATOR}" if behind else ""
