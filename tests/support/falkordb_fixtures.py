"""A server with the graph module, the backend on it, and rows made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.graph.backends.falkordb import FalkorBackend
from sharedmem.graph.records import (
    LATEST,
    OPEN,
    UNKNOWN_START,
    BitemporalPoint,
    Claim,
    CommitReceipt,
    CommitRequest,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    KindCode,
    LookupRequest,
    Version,
    to_stamp,
)
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.vectors import Vector, normalize
from support.contexts import knowledge_of
from support.embedded_fixtures import need_module
from support.redis_process import RedisProcess

DIMENSION = 64
GROUP = "acme:s1"
EVER = Version(UNKNOWN_START, OPEN, 1, OPEN)
YEAR_1 = to_stamp("t", datetime(1, 1, 1, tzinfo=UTC))
YEAR_9999 = to_stamp("t", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
NOW = BitemporalPoint(to_stamp("t", datetime.now(UTC)), LATEST)
NASTY = (
    *("'", '"', "\\", "\\'", '\\"}) DETACH DELETE n //', "`x`", "$group", "{a: 1}", "]->() DELETE", "a\nb\tc\r"),
    *(
        "\x00",
        "a\x00b",
        "\ue000",
        "\ue0000\x00",
        "CYPHER x=1 RETURN 1",
        "*/ /*",
        "%s",
        "@a:{b}|c",
        "(foo|bar)",
        "-zebra",
    ),
    *("日本語 😀", "\u2028", "\x7f", " a ", "a\x01b\x1fc", "\u3000", "a,b", "A", "a;b|c", "x" * 2000),
)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    """A server with the graph module."""
    need_module("graph")
    from sharedmem.embedded.binaries import find_server

    with RedisProcess(loadmodule=find_server().modules["graph"]) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", embedder="hashing", embedding_dimension=DIMENSION)


@pytest.fixture
async def hub(server: RedisProcess, settings: Settings) -> AsyncIterator[Hub]:
    async with Hub.open(server.url, settings=settings) as hub:
        yield hub


@pytest.fixture
def namespace() -> str:
    return f"test-{new_id(8)}"


@pytest.fixture
def minds(hub: Hub, namespace: str) -> KnowledgeContext:
    return knowledge_of(hub)


@pytest.fixture
async def graph(minds: KnowledgeContext, hub: Hub, namespace: str) -> AsyncIterator[FalkorBackend]:
    yield FalkorBackend(minds, namespace)
    await hub.store(namespace).clear()


def entity(id_: str, **more: object) -> EntityRow:
    row = EntityRow(id_, id_.title(), "person", (id_,), (id_.title(),), 1, "", 7)
    return replace(row, **more)  # type: ignore[arg-type]  # a test names fields as it likes


def fact(source: str, target: str, *versions: Version, **more: object) -> FactRow:
    row = FactRow(
        id=f"{source}-{target}",
        lines=(f"{source}>knows>{target}",),
        source=source,
        source_name=source.title(),
        type="knows",
        target=target,
        target_name=target.title(),
        value="",
        text=f"{source} knows {target}",
        versions=versions or (EVER,),
        episodes=("e1",),
    )
    return replace(row, **more)  # type: ignore[arg-type]  # likewise


def attribute(source: str, name: str, value: str, *versions: Version) -> FactRow:
    return fact(source, "", *versions, id=f"{source}-{name}", type=f"@{name}", value=value, target_name="")


def claim(episode: str, number: int, source: str, target: str) -> Claim:
    return Claim(episode, number, "holds", source, source.title(), "knows", target, target.title(), "", 3, OPEN, 9)


def episode(id_: str, *claims: Claim, letter: KindCode = "e", occurred: int = 5, **more: object) -> EpisodeRow:
    row = EpisodeRow(
        id=id_,
        body=b'{"content":"caf\xc3\xa9"}',
        digest="d1",
        letter=letter,
        occurred=occurred,
        recorded=6,
        session="s",
        user="u",
        source="message",
        text="Marvin met Zelda",
        claims=claims,
        lines=tuple((f"{one.source}>knows>{one.target}",) for one in claims),
    )
    return replace(row, **more)  # type: ignore[arg-type]  # likewise


def vector(*numbers: float) -> Vector:
    wide = np.zeros(DIMENSION, dtype=np.float32)
    wide[: len(numbers)] = numbers
    return normalize(wide)


async def put(graph: FalkorBackend, *rows: EpisodeRow | EntityRow | FactRow, group: str = GROUP) -> int:
    """Write some rows over whatever is there."""
    fresh = CommitRequest(
        (),
        tuple(row for row in rows if isinstance(row, EpisodeRow)),
        tuple(row for row in rows if isinstance(row, EntityRow)),
        tuple(row for row in rows if isinstance(row, FactRow)),
    )
    return await write(graph, fresh, group=group)


async def write(graph: FalkorBackend, changes: CommitRequest, *, group: str = GROUP) -> int:
    seen = await graph.look(group, LookupRequest())
    done = await graph.commit(group, changes, seen=seen.version)
    assert isinstance(done, CommitReceipt)
    return done.version


def facts_of(edges: list[Edge]) -> list[str]:
    return [edge.fact for edge in edges]
