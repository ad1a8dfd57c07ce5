"""Processes that make notes of one topic at the same time leave one note that knows it all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.bare_server import BareServer
from support.children import children
from support.synthesis_ground import Panel, bench_of
from support.synthesizers import MODULE, NAMESPACE, chosen

from sharedmem import Hub

WRITERS, EACH = 16, 2


@pytest.fixture
def server() -> Iterator[BareServer]:
    with BareServer() as server:
        yield server


async def test_sixteen_processes_on_one_topic_leave_one_head_that_knows_all_facts(server: BareServer) -> None:
    async with children(WRITERS, "add", server.url, EACH, module=MODULE) as writers:
        told = await asyncio.gather(*(writer.rest() for writer in writers))

    lines = [line for lines in told for line in lines]
    facts = [" ".join(words) for _, *words in lines]
    assert [status for status, *_ in lines] == ["done"] * WRITERS * EACH
    async with Hub.open(settings=chosen(server.url)) as hub:
        bench = bench_of(hub.store(NAMESPACE), Panel())
        (head,) = await bench.heads()
        assert [fact for fact in facts if fact not in head.memory_note] == []
        await bench.check(said=facts)
