"""The Redis backend of the graph on each kind of server, and rows written as its callers write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sharedmem import Hub
from sharedmem.clock import new_id
from sharedmem.graph.backends.redis import RedisBackend
from sharedmem.graph.backends.redis_layout import KIND_CODES
from sharedmem.graph.records import (
    LATEST,
    OPEN,
    BitemporalPoint,
    Claim,
    CommitReceipt,
    CommitRequest,
    EntityRow,
    EpisodeRow,
    FactRow,
    LookupRequest,
    Row,
)
from sharedmem.testing.fakes import fake_hub
from support.contexts import knowledge_of
from support.graph_rows import episode_row, stamp

GROUP = "acme:support/7%"
"""With what must be spelled out in keys."""
NOW = BitemporalPoint(stamp(1_000), LATEST)


@pytest.fixture(params=["server", "fake"])
async def any_hub(request: pytest.FixtureRequest) -> AsyncIterator[Hub]:
    if request.param == "server":
        request.getfixturevalue("redis_url")
        async with Hub.open(request.getfixturevalue("redis_url"), settings=request.getfixturevalue("settings")) as hub:
            yield hub
    else:
        async with fake_hub() as hub:
            yield hub


@pytest.fixture
async def backend(any_hub: Hub) -> AsyncIterator[RedisBackend]:
    namespace = f"test-{new_id(8)}"
    yield RedisBackend(knowledge_of(any_hub), namespace, b"tester")
    await any_hub.store(namespace).clear()


async def write(backend: RedisBackend, *rows: Row, group: str = GROUP, **more: object) -> CommitReceipt:
    """Write rows as who has just looked at them."""
    asked: dict[str, list[str]] = {"e": [], "n": [], "f": []}
    for row in rows:
        asked[KIND_CODES[type(row)]].append(row.id)
    wanted = LookupRequest(episodes=tuple(asked["e"]), entities=tuple(asked["n"]), facts=tuple(asked["f"]))
    seen = await backend.look(group, wanted)
    former = (*seen.episodes.values(), *seen.entities.values(), *seen.facts.values())
    written = await backend.commit(group, changes_of(*rows, former=former, **more), seen=seen.version)
    assert isinstance(written, CommitReceipt)
    return written


def changes_of(*rows: Row, **more: object) -> CommitRequest:
    sorted_rows = {
        "episodes": tuple(row for row in rows if isinstance(row, EpisodeRow)),
        "entities": tuple(row for row in rows if isinstance(row, EntityRow)),
        "facts": tuple(row for row in rows if isinstance(row, FactRow)),
    }
    return CommitRequest(**({"guards": ()} | sorted_rows | more))  # type: ignore[arg-type]  # as the caller names them


def episode_with_claims(id_: str, *claims: Claim) -> EpisodeRow:
    return replace(
        episode_row(id_, f"story of {id_}"),
        claims=claims,
        lines=tuple((f"{claim.source}>{claim.type}",) for claim in claims),
    )


def make_redis_claim(episode: str, number: int, source: str, target: str, type_: str = "lives_in") -> Claim:
    return Claim(
        episode, number, "holds", source, source.title(), type_, target, target.title(), "", stamp(0), OPEN, stamp(0)
    )


async def keys_left(hub: Hub, namespace: str) -> list[bytes]:
    line, keyspace = knowledge_of(hub).client, knowledge_of(hub).keyspace
    found = [key async for page in line.scan(keyspace.namespace_glob(namespace), near=None) for key in page]
    return [key for key in found if keyspace.is_in_namespace(key, namespace)]
