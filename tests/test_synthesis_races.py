"""Processes that make notes of one topic at the same time leave one note that knows it all."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bare_server import BareServer
from support.synthesis_ground import Panel, bench_of
from support.synthesizers import EACH, MODULE, NAMESPACE, chosen

from sharedmem import Hub

WRITERS = 16
_TESTS = Path(__file__).resolve().parent


@pytest.fixture
def server() -> Iterator[BareServer]:
    with BareServer() as server:
        yield server


async def test_sixteen_processes_on_one_topic_leave_one_head_that_knows_all_facts(server: BareServer) -> None:
    words = (sys.executable, "-m", MODULE, "swarm", server.url, str(WRITERS))
    environment = os.environ | {"PYTHONPATH": str(_TESTS)}
    swarm = await asyncio.create_subprocess_exec(*words, stdout=PIPE, env=environment, cwd=_TESTS.parent)
    told, _ = await swarm.communicate()

    lines = [line.split() for line in told.decode().splitlines()]
    facts = [" ".join(words) for _, *words in lines]
    assert [status for status, *_ in lines] == ["done"] * WRITERS * EACH
    async with Hub.open(settings=chosen(server.url)) as hub:
        bench = bench_of(hub.store(NAMESPACE), Panel())
        (head,) = await bench.heads()
        assert [fact for fact in facts if fact not in head.memory_note] == []
        await bench.check(said=facts)
