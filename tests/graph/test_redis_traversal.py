"""Edges and walks of the Redis backend, held against looking at every fact."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from support import backends
from support.contexts import knowledge_of
from support.graph_rows import fact_row, stamp

from sharedmem import Hub
from sharedmem.graph.backends.redis import RedisBackend
from sharedmem.graph.records import (
    LATEST,
    OPEN,
    UNKNOWN_START,
    BitemporalPoint,
    CommitReceipt,
    CommitRequest,
    Edge,
    FactRow,
    LookupRequest,
    Version,
)

GROUP = "acme:walks"
PEOPLE = "abcdefgh"
DAYS = 6


hub = backends.hub_on_fakeredis


def some_versions(dice: random.Random) -> tuple[Version, ...]:
    """What was known of a fact one after the other; mostly it holds on."""
    start = UNKNOWN_START if dice.random() < 0.1 else stamp(dice.randrange(DAYS))
    learned = sorted(dice.sample(range(DAYS), dice.randint(1, 3)))
    until = [*(stamp(day) for day in learned[1:]), OPEN if dice.random() < 0.8 else stamp(DAYS)]
    ends = [
        OPEN if dice.random() < 0.5 else max(start, stamp(0)) + dice.randint(1, stamp(3) - stamp(0)) for _ in learned
    ]
    return tuple(
        Version(start, end, stamp(day), superseded) for day, end, superseded in zip(learned, ends, until, strict=True)
    )


def some_facts(dice: random.Random) -> list[FactRow]:
    facts = []
    for number in range(40):
        source, target = dice.choices(PEOPLE, k=2)
        type_ = dice.choice(("knows", "likes", "@age"))
        facts.append(fact_row(f"f{number:02}", source, type_, target, *some_versions(dice), value=number))
    return facts


def some_time(dice: random.Random) -> BitemporalPoint:
    known = LATEST if dice.random() < 0.4 else stamp(dice.randrange(-1, DAYS + 1))
    return BitemporalPoint(stamp(dice.randrange(-1, DAYS + 3) + dice.choice((0, 0.5))), known)


def edges_at(facts: Iterable[FactRow], when: BitemporalPoint, entity: str) -> set[Edge]:
    """Those of an entity that hold, found the slow way."""
    found = set()
    for fact in facts:
        for version in fact.versions:
            if version.holds(when.world, when.known) and entity in {fact.source, fact.target}:
                forward = entity == fact.source
                other = fact.target if forward else fact.source
                found.add(Edge(entity, other, forward, fact.type, fact.id, version))
    return found


def distances(facts: Iterable[FactRow], when: BitemporalPoint, start: str, depth: int) -> dict[str, int]:
    """Fewest steps to everyone within reach, found the slow way."""
    reached, border = {start: 0}, [start]
    for far in range(1, depth + 1):
        found = {edge.other for entity in border for edge in edges_at(facts, when, entity)} - {""}
        border = sorted(found - reached.keys())
        reached |= dict.fromkeys(border, far)
    return reached


async def written(hub: Hub, facts: list[FactRow]) -> RedisBackend:
    backend = RedisBackend(knowledge_of(hub), "walks", b"tester")
    seen = await backend.look(GROUP, LookupRequest())
    done = await backend.commit(GROUP, CommitRequest(guards=(), facts=tuple(facts)), seen=seen.version)
    assert isinstance(done, CommitReceipt)
    return backend


@pytest.mark.parametrize("seed", range(8))
async def test_edges_are_those_that_hold_at_any_pair_of_times(hub: Hub, seed: int) -> None:
    dice = random.Random(seed)
    facts = some_facts(dice)
    backend = await written(hub, facts)

    for _ in range(30):
        when, entity = some_time(dice), dice.choice(PEOPLE)
        found = await backend.edges(GROUP, entity, when=when, limit=1_000)
        attributes = await backend.edges(GROUP, entity, when=when, limit=1_000, types=("@",))

        expected = edges_at(facts, when, entity)
        assert set(found) == expected
        assert len(found) == len(expected)
        assert [edge.version.start for edge in found] == sorted((edge.version.start for edge in found), reverse=True)
        assert set(attributes) == {edge for edge in expected if edge.type == "@age"}


@pytest.mark.parametrize("seed", range(8))
async def test_every_version_of_every_edge_is_there(hub: Hub, seed: int) -> None:
    facts = some_facts(random.Random(seed))
    backend = await written(hub, facts)

    for entity in PEOPLE:
        found = await backend.edges(GROUP, entity, when=None, limit=1_000)

        expected = [
            (fact.id, version) for fact in facts for version in fact.versions if entity in {fact.source, fact.target}
        ]
        assert sorted((edge.fact, edge.version) for edge in found) == sorted(expected)


@pytest.mark.parametrize("seed", range(8))
async def test_walks_tell_true_distances_at_any_pair_of_times(hub: Hub, seed: int) -> None:
    dice = random.Random(seed)
    facts = some_facts(dice)
    relations = [fact for fact in facts if fact.target]
    backend = await written(hub, facts)

    for _ in range(20):
        when, start, depth = some_time(dice), dice.choice(PEOPLE), dice.randint(1, 4)
        walked = await backend.walk(GROUP, [start], when=when, depth=depth, fan_out=100, limit=1_000)

        reached = {start: 0}
        for distance, edge in walked.edges:
            assert edge in edges_at(relations, when, edge.entity)
            reached.setdefault(edge.other, distance)
        expected = distances(relations, when, start, depth)
        assert reached == expected
        inner = [entity for entity, far in expected.items() if far < depth]
        around = {edge.fact for entity in inner for edge in edges_at(relations, when, entity)}
        assert sorted(edge.fact for _, edge in walked.edges) == sorted(around)
        assert not walked.truncated
