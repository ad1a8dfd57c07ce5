"""Merging: two entities turn out to be one, or turn out not to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.knowledge.graph.base import check_limit
from sharedmem.knowledge.graph.lookups import Lookups, Page
from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.naming import check_entity_name, check_whole, normalised
from sharedmem.knowledge.graph.protocol import GraphProgress
from sharedmem.knowledge.graph.records import Behind, Changes, EntityRow, Seen, Wanted, earliest
from sharedmem.knowledge.graph.relocating import Move, Relocation
from sharedmem.knowledge.graph.resolving import ALIASES_AT_ONCE, entity_text, with_alias
from sharedmem.knowledge.graph.turns import Turns
from sharedmem.models import Entity, EntityMerge
from sharedmem.telemetry import measured

_MOST_ALIASES = 10_000
_BEHIND = "\x1f"
"""Between an entity and the last of its names that was answered."""


@dataclass(frozen=True, slots=True)
class _Meant:
    """An entity that a caller means."""

    row: EntityRow
    """Its own, whatever it was merged into."""
    end: str
    """What it was merged into in the end; itself when it was not."""


class Merging(Lookups):
    """Says of entities that they are one, and takes that back."""

    @measured("graph.merge")
    async def merge(
        self, source: str, into: str, *, group_id: str, reason: str = "", progress: GraphProgress | None = None
    ) -> EntityMerge:
        """Say that two entities are one: all that is and will be said of the first holds of the second.

        Its names lead to the other one at once, in one atomic step; then its facts move there, in steps of 100 lines of
        facts, each atomic. When that was cut off, the same call goes on with it; make it before you merge or unmerge
        these entities otherwise. Nothing is lost: `unmerge` takes the two apart again. Five round trips, and about
        four for each step.

        Args:
            source: name or id of the entity that is the other one.
            into: name or id of the one that stays; what that was merged into itself counts.
            group_id: whose graph.
            reason: why, for the log.
            progress: called with (lines done, lines known so far).

        Returns:
            The merge; the one of before when both were merged already.

        Raises:
            InvalidError: both are the same, or the second was merged into the first.
            NotFoundError: the group knows nobody of that name or id.
            ConflictError: the first was merged into a third one, or others merge the same entities meanwhile.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server stayed away.
        """
        group = await self._enter(group_id, "write")
        self._check_everyone(source)
        turns = Turns.of(self._minds, self._namespace)
        merge = await turns.until_written(group, lambda: self._redirect(group, source, into, reason))
        logged = await self._logged(group)
        said = (merge.source_id, *_merged_into(merge.source_id, logged))
        new = await self._end(group, merge.source_id)
        move = Move(said, old=merge.source_id, new=new, between=_chain(merge.into_id, logged))
        await self._relocation(turns).move(group, move, progress)
        return merge

    @measured("graph.unmerge")
    async def unmerge(self, entity: str, *, group_id: str, progress: GraphProgress | None = None) -> EntityMerge:
        """Take a merge back: the entity's names lead to itself again, and what was said with them is said of it.

        What was said with the names of the other one stays there. As with `merge`, the same call goes on with what was
        cut off. Five round trips, and about four for each step of 100 lines of facts.

        Args:
            entity: name or id of the one that was merged, by a call of `merge` or because of its name.
            group_id: whose graph.
            progress: called with (lines done, lines known so far).

        Returns:
            The merge, with `undone_at`; the one of before when it was taken back already.

        Raises:
            InvalidError: it was merged into nothing.
            NotFoundError: the group knows nobody of that name or id.
            ConflictError: others merge the same entities meanwhile.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server stayed away.
        """
        group = await self._enter(group_id, "write")
        self._check_everyone(entity)
        turns = Turns.of(self._minds, self._namespace)
        merge = await turns.until_written(group, lambda: self._parted(group, entity))
        logged = await self._logged(group)
        said = (merge.source_id, *_merged_into(merge.source_id, logged))
        old = await self._end(group, merge.into_id)
        move = Move(said, old=old, new=merge.source_id, between=_chain(merge.into_id, logged))
        await self._relocation(turns).move(group, move, progress)
        return merge

    @measured("graph.aliases")
    async def aliases(self, entity: str, *, group_id: str, after: str = "", limit: int = 1000) -> Page[str]:
        """A page of all names that lead to an entity, those of entities that were merged into it too.

        Two round trips, and one for each of the entities whose names are on the page.

        Args:
            entity: its name or id.
            group_id: whose graph.
            after: the `cursor` of the page before.
            limit: names at most, up to 10,000.

        Returns:
            Names as they are compared: in small letters, without punctuation around them.

        Raises:
            InvalidError: the limit is none.
            NotFoundError: the group knows nobody of that name or id.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server stayed away.
        """
        group = await self._enter(group_id, "read")
        check_limit(limit, _MOST_ALIASES)
        meant = _meant(entity, group, await self._seen(group, entity))
        entities = [meant.end, *_merged_into(meant.end, await self._logged(group))]
        begin, _, last = after.partition(_BEHIND)
        found: list[str] = []
        for id_ in entities[entities.index(begin) if begin in entities else 0 :]:
            names, last = await self._backend.names_of(group, id_, after=last, limit=limit - len(found))
            found += names
            if last or len(found) >= limit:
                return Page(found, cursor=_cursor(entities, id_, last))
        return Page(found, cursor="")

    @measured("graph.add_alias")
    async def add_alias(self, entity: str, alias: str | Sequence[str], *, group_id: str) -> Entity:
        """Another name that leads to an entity, or several. Five round trips, and two for each 300 names more.

        Args:
            entity: its name or id.
            alias: the other name, as people write it; or any number of them.
            group_id: whose graph.

        Raises:
            InvalidError: it can be no name.
            NotFoundError: the group knows nobody of the entity's name or id.
            ConflictError: the alias is the name of another entity; of several, those before it lead here now.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server stayed away.
        """
        group = await self._enter(group_id, "write")
        spelled = [check_entity_name("alias", each) for each in ([alias] if isinstance(alias, str) else alias)]
        turns = Turns.of(self._minds, self._namespace)
        for first in range(0, max(1, len(spelled)), ALIASES_AT_ONCE):
            some = spelled[first : first + ALIASES_AT_ONCE]
            row = await turns.until_written(group, partial(self._called, group, entity, some))
        return (await self._entities(group, [row], self._when(None, None)))[0]

    async def _redirect(self, group: str, source: str, into: str, reason: str) -> EntityMerge | Behind:
        """Let one entity's names lead to another one."""
        seen = await self._seen(group, source, into)
        first, second = _meant(source, group, seen), _meant(into, group, seen)
        if first.row.merged_into and first.row.id != second.row.id and first.end == second.end:
            return EntityMerge.model_validate_json(first.row.merge)
        _check_merge(first, second)
        now = self._minds.clock.now()
        merge = EntityMerge(
            source_id=first.row.id, into_id=second.end, at=now, by=self._actor, reason=reason or "told so"
        )
        return await self._written(group, seen, first, merge)

    async def _parted(self, group: str, entity: str) -> EntityMerge | Behind:
        """Let the names of an entity lead to itself again."""
        seen = await self._seen(group, entity)
        meant = _meant(entity, group, seen)
        if not meant.row.merge:
            raise InvalidError("entity", entity, "it was merged into nothing; there is nothing to take apart")
        logged = EntityMerge.model_validate_json(meant.row.merge)
        if not meant.row.merged_into:
            return logged
        undone = logged.model_copy(update={"undone_at": self._minds.clock.now()})
        return await self._written(group, seen, meant, undone)

    async def _written(self, group: str, seen: Seen, meant: _Meant, merge: EntityMerge) -> EntityMerge | Behind:
        row = meant.row
        into = "" if merge.undone_at else merge.into_id
        logged = merge.model_dump_json()
        changes = Changes(
            # The end as well: who follows a chain of merges relies on its beginning and its end alone.
            guards=tuple(dict.fromkeys((f"@{row.id}", f"@{merge.into_id}", f"@{meant.end}"))),
            entities=(replace(row, merged_into=into, merge=logged),),
            former=(row,),
            merges=((row.id, logged.encode()),),
            told=(("graph.unmerged" if merge.undone_at else "graph.merged", row.id),),
        )
        outcome = await self._backend.commit(group, changes, seen=seen.version)
        return outcome if isinstance(outcome, Behind) else merge

    async def _called(self, group: str, entity: str, aliases: Sequence[str]) -> EntityRow | Behind:
        seen = await self._seen(group, entity, *aliases)
        meant = _meant(entity, group, seen)
        row, names = meant.row, dict[str, str]()
        for alias in aliases:
            normal = normalised(alias)
            if seen.names.get(normal, meant.end) != meant.end:
                raise ConflictError(f"{alias!r} is the name of another entity; merge the two if they are one")
            if normal not in seen.names and normal not in names:
                names[normal] = row.id
                row = with_alias(row, normal, alias)
        if not names:
            return row
        halves = await Meanings(self._minds, self._namespace).halves([entity_text(row)])
        row = replace(row, vector=halves.get(entity_text(row)))
        guards = (f"@{row.id}", *(f"={name}" for name in names))
        changes = Changes(guards=guards, entities=(row,), former=(meant.row,), names=tuple(names.items()))
        outcome = await self._backend.commit(group, changes, seen=seen.version)
        return outcome if isinstance(outcome, Behind) else row

    async def _seen(self, group: str, *named: str) -> Seen:
        """What names or ids lead to, with the rows of their owners. One round trip; two where an alias is told."""
        names = tuple(filter(None, (normalised(check_whole("entity", name)) for name in named)))
        seen = await self._backend.look(group, Wanted(names=names, entities=named))
        further = {*seen.owners.values(), *seen.names.values(), *seen.into.values()} - seen.entities.keys()
        if further:
            more = await self._backend.look(group, Wanted(entities=tuple(sorted(further))))
            seen = replace(
                seen,
                version=earliest(seen.version, more.version),
                entities=seen.entities | more.entities,
                into=seen.into | more.into,
            )
        return seen

    async def _end(self, group: str, id_: str) -> str:
        return (await self._backend.look(group, Wanted(entities=(id_,)))).into.get(id_, id_)

    async def _logged(self, group: str) -> dict[str, EntityMerge]:
        """The newest merge of each entity that was ever merged."""
        merges = map(EntityMerge.model_validate_json, await self._backend.merges(group))
        return {merge.source_id: merge for merge in merges}

    def _relocation(self, turns: Turns) -> Relocation:
        meanings = Meanings(self._minds, self._namespace)
        return Relocation(self._backend, turns, self._ways.vocabulary, meanings)


def _meant(named: str, group: str, seen: Seen) -> _Meant:
    """The entity of a name or id; an id comes first, as a name could be spelled like one."""
    id_ = named if named in seen.entities else seen.owners.get(normalised(named), "")
    if id_ not in seen.entities:
        raise NotFoundError("entity", named, f"no episode of group {group!r} has named it")
    return _Meant(seen.entities[id_], seen.into.get(id_, id_))


def _check_merge(first: _Meant, second: _Meant) -> None:
    if first.row.id == second.row.id:
        raise InvalidError("into", second.row.name, "both are the same entity; name two that turned out to be one")
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
    """All entities that lead to one by merges that stand, also one after the other; by id."""
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


def _chain(id_: str, logged: Mapping[str, EntityMerge]) -> tuple[str, ...]:
    """An entity and all that it was merged into, one after the other."""
    found = [id_]
    while found[-1] in logged and logged[found[-1]].undone_at is None and len(found) <= len(logged):
        found.append(logged[found[-1]].into_id)
    return tuple(found)


def _cursor(entities: list[str], id_: str, last: str) -> str:
    if last:
        return f"{id_}{_BEHIND}{last}"
    behind = entities[entities.index(id_) + 1 :]
    return f"{behind[0]}{_BEHIND}" if behind else ""
