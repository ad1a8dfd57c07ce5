"""Check a group against its claims, and repair facts and index entries that do not follow from them.

The records of the episodes decide; everything else is computed from them and compared. While others write, a first
read, page by page, is not a snapshot. So everything that looks wrong is read once more, in one request with all its
dependencies, and only what is wrong there is reported. A repair is based on that second read,
and guarded like every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal

from sharedmem.graph.access import (
    BatchedCommits,
    CommitRetries,
    GraphAccess,
    IngestRules,
    TextEmbeddings,
    body_with_facts,
    with_stored_vector,
)
from sharedmem.graph.changes import ProjectionInputs, claim_timelines, read_dependencies
from sharedmem.graph.names import entity_id, normalize_name
from sharedmem.graph.projection import dependent_timelines, project
from sharedmem.graph.protocol import GraphBackend, GraphProgress
from sharedmem.graph.records import (
    Claim,
    CommitRequest,
    EntityRow,
    FactRow,
    IndexDiscrepancy,
    LookupRequest,
    LookupResult,
    StaleGroup,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.graph.resolver import entity_text
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import GraphCheck, GraphProblem

ProblemKind = Literal["missing_fact", "superfluous_fact", "wrong_interval", "wrong_superseded", "wrong_fact"]

_PAGE = 500
_LINES_AT_ONCE = 100
"""Lines that one step checks, besides the lines that they depend on."""
_LINES_BETWEEN_PAUSES = 200
_KINDS = ("episode", "summary", "statement")
_WRITE, _REMOVE = "write the fact that follows from the claims", "remove the fact"
_REPAIRS: Mapping[ProblemKind, str] = {
    "missing_fact": _WRITE,
    "superfluous_fact": _REMOVE,
    "wrong_interval": _WRITE,
    "wrong_superseded": _WRITE,
    "wrong_fact": _WRITE,
}


@dataclass(slots=True)
class _GroupContents:
    """The content of a group, read page by page."""

    episodes: int = 0
    claims: list[Claim] = field(default_factory=list)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By claim: its lines."""
    into: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """Ids of entities that have a record."""
    facts: dict[str, FactRow] = field(default_factory=dict)

    def canonical(self, id_: str) -> str:
        """Return the id of an entity after merges."""
        return self.into.get(id_, id_)

    def referred(self) -> dict[str, Claim]:
        """Return the ids of entities in claims, each with one such claim."""
        return {id_: claim for claim in self.claims for id_ in (claim.source, claim.target) if id_}


@dataclass(frozen=True, slots=True)
class _Region:
    """Some lines of a group at one moment, with all dependencies of their facts."""

    seeds: frozenset[str]
    seen: LookupResult
    vocabulary: Vocabulary

    def canonical(self, id_: str) -> str:
        """Return the id of an entity after merges."""
        return self.seen.into.get(id_, id_)

    def claims(self) -> Iterator[Claim]:
        """Yield the claims of the episodes; a claim that is only in the index does not count."""
        return chain.from_iterable(row.claims for row in self.seen.episodes.values())

    def projection(self) -> ProjectionInputs:
        """Return the lines with the claims that belong to them."""
        lines: dict[str, list[Claim]] = {line: [] for line in self.seen.claims}
        empty = ProjectionInputs(self.vocabulary, self.canonical, {})
        for claim in self.claims():
            for line in claim_timelines(claim, empty):
                if line in lines:
                    lines[line].append(claim)
        return ProjectionInputs(self.vocabulary, self.canonical, {line: tuple(each) for line, each in lines.items()})

    def right(self) -> dict[str, FactRow]:
        """Return the facts that follow from the claims."""
        projection = self.projection()
        rows = project(projection.lines, former={}, vocabulary=self.vocabulary, canonical=self.canonical)
        return {row.id: row for row in rows}

    def misplaced(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return claims of the seeds that are, or belong, in other lines: (actual lines, right lines)."""
        projection, found = ProjectionInputs(self.vocabulary, self.canonical, {}), {}
        for row in self.seen.episodes.values():
            for claim, held in zip(row.claims, row.lines, strict=True):
                right = claim_timelines(claim, projection)
                if set(held) != set(right) and not self.seeds.isdisjoint((*held, *right)):
                    found[claim.id] = held, right
        return found

    def wanted(self, reading: _GroupContents, where: Mapping[str, set[str]]) -> LookupRequest:
        """Return the request for everything that must be read, as far as it is known by now."""
        projection = self.projection()
        standing = [claim for line in self.seeds for claim in projection.lines.get(line, ())]
        lines = self.seeds | dependent_timelines(standing, self.vocabulary, self.canonical)
        lines |= {line for both in self.misplaced().values() for line in chain(*both)}
        episodes = {claim.episode for each in self.seen.claims.values() for claim in each}
        episodes |= {id_ for line in lines for id_ in where.get(line, ())}
        facts = {id_ for id_, row in reading.facts.items() if not lines.isdisjoint(row.lines)}
        ids = {id_ for claim in self.claims() for id_ in (claim.source, claim.target) if id_}
        return _sorted(lines, episodes, ids, facts | self.right().keys())

    def differences(self) -> list[tuple[ProblemKind, str, FactRow | None, FactRow | None]]:
        """Return (kind, id, the fact as it is, the fact as it should be)."""
        right, lines = self.right(), self.seen.claims.keys()
        # A fact with a line that was not read cannot be judged here; another seed covers it.
        stored = {id_: row for id_, row in self.seen.facts.items() if id_ in right or lines >= set(row.lines)}
        ids = sorted(right.keys() | stored.keys())
        each = ((_problem_kind(stored.get(id_), right.get(id_)), id_) for id_ in ids)
        return [(kind, id_, stored.get(id_), right.get(id_)) for kind, id_ in each if kind is not None]


class GraphIntegrity:
    """Checks and repairs the groups of a namespace.

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
        self._turns = CommitRetries.of(context, access.namespace)
        self._vocabulary = rules.vocabulary
        self._meanings = TextEmbeddings(context, access.namespace)
        self._rewrites = BatchedCommits(backend, self._meanings)

    async def check(self, group_id: str, *, repair: bool, progress: GraphProgress | None = None) -> GraphCheck:
        """Compare the content of a group with its episodes, and repair it if `repair` is set.

        Raises:
            ConflictError, AccessDeniedError, UnavailableError: as `Graph.check`.
        """
        group = await self._access.enter(group_id, "write" if repair else "read")
        problems, nameless = await self._index(group, repair=repair)
        reading = await self._read(group, progress)
        referred = reading.referred()
        for id_ in sorted((referred.keys() | {reading.canonical(id_) for id_ in referred}) - reading.known):
            nameless.setdefault(id_, "")
        for id_, name in sorted(nameless.items()):
            lacking = partial(self._entity, group, id_, name, referred.get(id_), repair=repair)
            problems += await self._turns.until_written(group, lacking)
        problems += await self._facts(group, reading, repair=repair)
        return GraphCheck(
            group_id=group,
            episodes=reading.episodes,
            claims=len(reading.claims),
            facts=len(reading.facts),
            entities=len(reading.known),
            problems=tuple(sorted(problems, key=lambda problem: (problem.id, problem.kind))),
        )

    # -- the index

    async def _index(self, group: str, *, repair: bool) -> tuple[list[GraphProblem], dict[str, str]]:
        """Return the problems of the index, and the entities without a record that names lead to, each with one."""
        problems, nameless = [], dict[str, str]()
        async for page in self._backend.strays(group):
            own = [stray for stray in page if not _is_lost_name(stray)]
            nameless |= {stray.id: stray.entry[1:] for stray in page if _is_lost_name(stray)}
            if repair and own:
                await self._backend.mend(group, own)
            problems += [_entry_problem(stray, repaired=repair) for stray in own]
        return problems, nameless

    # -- reading

    async def _read(self, group: str, progress: GraphProgress | None) -> _GroupContents:
        reading = _GroupContents()
        for kind in _KINDS:
            async for page in self._ids(group, kind):
                rows = (await self._backend.look(group, LookupRequest(episodes=page))).episodes.values()
                reading.episodes += len(rows)
                for row in rows:
                    reading.claims += row.claims
                    reading.held |= {claim.id: held for claim, held in zip(row.claims, row.lines, strict=True)}
                if progress is not None:
                    progress(reading.episodes, reading.episodes)
        ids = sorted(reading.referred())
        ends: set[str] = set()
        for page in _pages(ids):
            seen = await self._backend.look(group, LookupRequest(entities=page))
            reading.into |= seen.into
            reading.known |= seen.entities.keys()
            ends |= set(seen.into.values())
        for page in _pages(sorted(ends - reading.known)):
            reading.known |= (await self._backend.look(group, LookupRequest(entities=page))).entities.keys()
        async for page in self._ids(group, "fact"):
            facts = (await self._backend.look(group, LookupRequest(facts=page))).facts
            reading.facts |= {id_: replace(row, vector=None) for id_, row in facts.items()}
        return reading

    async def _ids(self, group: str, kind: str) -> AsyncIterator[tuple[str, ...]]:
        after = ""
        while True:
            page, after = await self._backend.listed(group, kind, after=after, limit=_PAGE)
            if page:
                yield tuple(page)
            if not after:
                return

    # -- entities

    async def _entity(
        self, group: str, id_: str, name: str, claim: Claim | None, *, repair: bool
    ) -> list[GraphProblem] | StaleGroup:
        """Return the problems of an entity without a record: none if it exists now, or nothing refers to it now."""
        shown = _name_of(id_, name, claim)
        normal = normalize_name(shown)
        episodes = (claim.episode,) if claim is not None else ()
        wanted = LookupRequest(names=tuple(filter(None, (normal,))), entities=(id_,), episodes=episodes)
        seen = await self._backend.look(group, wanted)
        if id_ in seen.entities or (not seen.episodes and seen.owners.get(normal) != id_):
            return []
        if repair:
            is_own = entity_id(normal) == id_ or seen.owners.get(normal) == id_
            names = (normal,) if normal and is_own and seen.owners.get(normal, id_) == id_ else ()
            row = EntityRow(id_, shown, "", names, (), 0, "", claim.recorded if claim is not None else 1)
            halves = await self._meanings.halves([entity_text(row)])
            changes = CommitRequest(
                guards=(f"@{id_}", *(f"={one}" for one in names)),
                entities=(replace(row, vector=halves.get(entity_text(row))),),
                names=tuple((one, id_) for one in names),
            )
            if isinstance(await self._backend.commit(group, changes, seen=seen.version), StaleGroup):
                return StaleGroup()
        problem = "claims, names or merges refer to it, but it has no record"
        repairing = f"write a record with the name {shown!r}"
        return [GraphProblem(kind="missing_entity", id=id_, explanation=problem, repair=repairing, repaired=repair)]

    # -- facts and claims

    async def _facts(self, group: str, reading: _GroupContents, *, repair: bool) -> list[GraphProblem]:
        """Read again everything that looks wrong in a first read."""
        where: dict[str, set[str]] = {}
        suspects: list[set[str]] = []
        projection = ProjectionInputs(self._vocabulary, reading.canonical, {})
        for claim in reading.claims:
            right = claim_timelines(claim, projection)
            for line in right:
                where.setdefault(line, set()).add(claim.episode)
            if set(right) != set(reading.held[claim.id]):
                suspects.append({*right, *reading.held[claim.id]})
        suspects += [set(row.lines) for row in await self._different(reading)]
        problems: list[GraphProblem] = []
        for seeds in _batches(suspects):
            step = partial(self._region, group, seeds, reading, where, repair=repair)
            problems += await self._turns.until_written(group, step)
        # Two batches may find the same problem; in a repair the first one has solved it.
        return list({(problem.kind, problem.id): problem for problem in reversed(problems)}.values())

    async def _different(self, reading: _GroupContents) -> list[FactRow]:
        """Return facts that differ from what follows from the claims: the stored state, or the right one."""
        left, found = dict(reading.facts), list[FactRow]()
        for lines in _components(reading, self._vocabulary):
            rows = project(lines, former={}, vocabulary=self._vocabulary, canonical=reading.canonical)
            for row in rows:
                held = left.pop(row.id, None)
                if _problem_kind(held, row) is not None:
                    found += [row] if held is None else [row, held]
            await asyncio.sleep(0)
        return [*found, *left.values()]

    async def _region(
        self, group: str, seeds: frozenset[str], reading: _GroupContents, where: Mapping[str, set[str]], *, repair: bool
    ) -> list[GraphProblem] | StaleGroup:
        region = await self._looked(group, seeds, reading, where)
        differences, misplaced = region.differences(), region.misplaced()
        if repair and (differences or misplaced):
            changes, former = _repairs(region, differences, misplaced)
            outcome = await self._rewrites.write(group, changes, former, seen=region.seen.version)
            if isinstance(outcome, StaleGroup):
                return outcome
        problems = [_fact_problem(kind, id_, held, right, repaired=repair) for kind, id_, held, right in differences]
        return problems + [
            GraphProblem(
                kind="misplaced_claim",
                id=id_,
                explanation=f"it is in {_sorted_timelines(held)} and belongs in {_sorted_timelines(right)}",
                repair="move it, as the interrupted merge would have",
                repaired=repair,
            )
            for id_, (held, right) in misplaced.items()
        ]

    async def _looked(
        self, group: str, seeds: frozenset[str], reading: _GroupContents, where: Mapping[str, set[str]]
    ) -> _Region:
        """Return a region with all its dependencies, all from one read."""
        asked = _sorted(seeds, {id_ for line in seeds for id_ in where.get(line, ())}, (), ())
        while True:
            region = _Region(seeds, await self._backend.look(group, asked), self._vocabulary)
            wanted = region.wanted(reading, where)
            if all(set(getattr(asked, part)) >= set(getattr(wanted, part)) for part in _LOOKUP_FIELDS):
                return region
            asked = LookupRequest(
                lines=_union(asked.lines, wanted.lines),
                episodes=_union(asked.episodes, wanted.episodes),
                entities=_union(asked.entities, wanted.entities),
                facts=_union(asked.facts, wanted.facts),
            )


_LOOKUP_FIELDS = ("lines", "episodes", "entities", "facts")


def _repairs(
    region: _Region,
    differences: Sequence[tuple[ProblemKind, str, FactRow | None, FactRow | None]],
    misplaced: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
) -> tuple[CommitRequest, dict[str, FactRow]]:
    """Return the rows that a repair writes, and the facts that they replace."""
    former = {id_: held for _, id_, held, _ in differences if held is not None}
    facts = tuple(with_stored_vector(right, held) for *_, held, right in differences if right is not None)
    ended = {id_ for _, id_, _, right in differences if right is None}
    come: dict[str, list[str]] = {}
    for fact in facts:
        for episode in fact.episodes:
            come.setdefault(episode, []).append(fact.id)
    pairs = []
    for row in region.seen.episodes.values():
        each = zip(row.claims, row.lines, strict=True)
        lines = tuple(misplaced[claim.id][1] if claim.id in misplaced else held for claim, held in each)
        body = body_with_facts(row, ended=ended, come=come.get(row.id, ()))
        pairs.append((row, replace(row, lines=lines, body=body)))
    changed = [(before, after) for before, after in pairs if before != after]
    own = region.seen.claims.keys()
    changes = CommitRequest(
        guards=tuple(sorted(own)),
        steady=read_dependencies(region.projection(), region.claims(), own),
        episodes=tuple(after for _, after in changed),
        facts=facts,
        former=(*(before for before, _ in changed), *former.values()),
    )
    return changes, former


def _problem_kind(held: FactRow | None, right: FactRow | None) -> ProblemKind | None:
    """Return how a fact differs from the right one; None if it does not."""
    if held is None or right is None:
        return None if held is right else "missing_fact" if held is None else "superfluous_fact"
    if held.versions != right.versions:
        same = [version._replace(superseded=0) for version in held.versions] == [
            version._replace(superseded=0) for version in right.versions
        ]
        return "wrong_superseded" if same else "wrong_interval"
    return None if replace(held, version=0, vector=None) == replace(right, version=0, vector=None) else "wrong_fact"


def _fact_problem(
    kind: ProblemKind, id_: str, held: FactRow | None, right: FactRow | None, *, repaired: bool
) -> GraphProblem:
    row = right or held
    assert row is not None
    problem = {
        "missing_fact": "follows from the claims but does not exist",
        "superfluous_fact": "exists but follows from no claim",
        "wrong_interval": "begins, ends or was recorded at other moments than in the claims",
        "wrong_superseded": "has a version that was superseded at another moment than in the claims",
        "wrong_fact": "has other names, lines or episodes than in the claims",
    }[kind]
    explanation = f"{row.text!r} {problem}"
    return GraphProblem(kind=kind, id=id_, explanation=explanation, repair=_REPAIRS[kind], repaired=repaired)


def _entry_problem(stray: IndexDiscrepancy, *, repaired: bool) -> GraphProblem:
    place = f"{stray.entry[:80]!r} in the {stray.part} of the index"
    if stray.is_there:
        problem, repair = f"{place} belongs to no record", "remove the entry"
    else:
        problem, repair = f"{place} is missing", "add the entry"
    kind: Literal["dangling_entry", "missing_entry"] = "dangling_entry" if stray.is_there else "missing_entry"
    return GraphProblem(kind=kind, id=stray.id, explanation=problem, repair=repair, repaired=repaired)


def _is_lost_name(stray: IndexDiscrepancy) -> bool:
    return stray.part == "names" and stray.entry.startswith("=") and stray.is_there


def _name_of(id_: str, name: str, claim: Claim | None) -> str:
    """Return a name for an entity without a record: from a claim, else a name that leads to it, else its id."""
    name_in_claim = "" if claim is None else claim.source_name if claim.source == id_ else claim.target_name
    return name_in_claim or name or id_.rpartition("-")[0].replace("-", " ") or id_


def _components(reading: _GroupContents, vocabulary: Vocabulary) -> Iterator[dict[str, list[Claim]]]:
    """Yield the lines with their claims, in parts; lines that depend on each other are in the same part."""
    projection = ProjectionInputs(vocabulary, reading.canonical, {})
    parent: dict[str, str] = {}

    def root(line: str) -> str:
        while parent.setdefault(line, line) != line:
            parent[line] = line = parent[parent[line]]
        return line

    by_line: dict[str, list[Claim]] = {}
    for claim in reading.claims:
        lines = claim_timelines(claim, projection)
        for line in lines:
            by_line.setdefault(line, []).append(claim)
            parent[root(line)] = root(lines[0])
    together: dict[str, list[str]] = {}
    for line in by_line:
        together.setdefault(root(line), []).append(line)
    some: dict[str, list[Claim]] = {}
    for lines_ in together.values():
        some |= {line: by_line[line] for line in lines_}
        if len(some) >= _LINES_BETWEEN_PAUSES:
            yield some
            some = {}
    yield some


def _batches(suspects: Iterable[set[str]]) -> Iterator[frozenset[str]]:
    """Yield lines that look wrong, some at a time."""
    some: set[str] = set()
    for lines in sorted({frozenset(one) for one in suspects}, key=sorted):
        some |= lines
        if len(some) >= _LINES_AT_ONCE:
            yield frozenset(some)
            some = set()
    if some:
        yield frozenset(some)


def _pages(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(ids[first : first + _PAGE]) for first in range(0, len(ids), _PAGE))


def _sorted(
    lines: Iterable[str], episodes: Iterable[str], entities: Iterable[str], facts: Iterable[str]
) -> LookupRequest:
    return LookupRequest(
        lines=tuple(sorted(lines)),
        episodes=tuple(sorted(episodes)),
        entities=tuple(sorted(entities)),
        facts=tuple(sorted(facts)),
    )


def _union(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))


def _sorted_timelines(lines: Sequence[str]) -> str:
    return " and ".join(map(repr, lines)) or "no line"
