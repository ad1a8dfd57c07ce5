"""How long adding one episode to a graph takes, without extraction, with rules, and with a language model.

The model is a local server that speaks the protocol of OpenAI and answers after a stated time, so that the rest of the
time is ours. Targets of the source document: 500 ms without extraction, 2 s with it.

python benchmarks/graph_ingestion.py                      100 episodes each, a model that answers after 600 ms
python benchmarks/graph_ingestion.py --latency-ms 1200
python benchmarks/graph_ingestion.py --episodes 20        a first impression
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

from graph_data import Prepared, World, episode_of, episodes
from graph_sides import embedder
from harness import machine, private_server
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from sharedmem import Hub, Settings
from sharedmem.graph.graph import Graph

GROUP = "bench:group"
FACTS = 1_000
MODEL_NAME = "openai:local"
WITHOUT, RULES, MODEL = "without extraction", "rules", "language model"
TARGETS_MS = {WITHOUT: 500, RULES: 2_000, MODEL: 2_000}
_TIDINGS = re.compile(
    r"(?P<person>.+) has moved to (?P<city>.+), works on (?P<project>.+) now, and has met (?P<other>.+)\."
)


class IngestionTimes(NamedTuple):
    """How long single episodes took, one after the other."""

    way: str
    ms: list[float]
    requests: int
    """Requests to the model."""
    latency_ms: float
    """Time of the model for one request."""

    def quantile(self, share: float) -> float:
        """Return the time within which a share of the episodes was added."""
        return sorted(self.ms)[min(len(self.ms) - 1, int(share * len(self.ms)))]

    @property
    def own_ms(self) -> float:
        """The mean time of an episode without that of the model."""
        return (sum(self.ms) - self.requests * self.latency_ms) / len(self.ms)

    @property
    def own_share(self) -> float:
        """The share of the time that is not the model's."""
        return self.own_ms * len(self.ms) / sum(self.ms)


# -- a model that answers after a stated time ------------------------------------------------------


def answer_of(episode: str) -> dict[str, object]:
    """Return what a model would answer about an episode of `graph_data`."""
    told = _TIDINGS.fullmatch(episode)
    if told is None:
        return {"entities": [], "relationships": [], "ended": []}
    types = {"person": "person", "city": "city", "project": "project", "other": "person"}
    entities: list[dict[str, object]] = [
        {"name": told[part], "type": type_, "aliases": [], "attributes": [], "summary": "", "known": None}
        for part, type_ in types.items()
    ]
    stated = (("lives_in", "city"), ("works_on", "project"), ("knows", "other"))
    relationships = [
        {
            "source": told["person"],
            "type": relation,
            "target": told[end],
            "fact": f"{told['person']} {relation.replace('_', ' ')} {told[end]}",
            "valid_from": None,
            "valid_to": None,
            "has_ended": False,
        }
        for relation, end in stated
    ]
    return {"entities": entities, "relationships": relationships, "ended": []}


async def _serve_model(latency_s: float, place: Connection) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _read_head(reader):
            length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]  # each has one
            asked = json.loads(await reader.readexactly(length))
            due = time.monotonic() + latency_s
            shown = json.loads(asked["messages"][-1]["content"])
            message = {"role": "assistant", "content": json.dumps(answer_of(shown.get("episode", "")))}
            usage = {"prompt_tokens": 1, "completion_tokens": 1}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()
            await asyncio.sleep(due - time.monotonic())
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    place.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _run_model(latency_s: float, place: Connection) -> None:
    asyncio.run(_serve_model(latency_s, place))


@contextmanager
def local_model(latency_ms: float) -> Iterator[str]:
    """Start the model in a process of its own, and return its URL; stop it when the block ends."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_run_model, args=(latency_ms / 1000, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


# -- measuring -------------------------------------------------------------------------------------


async def measure(url: str, model_url: str, count: int, latency_ms: float) -> list[IngestionTimes]:
    """Fill a graph, and add new episodes in each of the ways."""
    world = World(FACTS)
    usual = Settings(redis_url=url, durable_url="none", graph_summary_every=0)
    modelled = usual.replace(llm=MODEL_NAME, llm_url=model_url, llm_key=SecretStr("none"))
    numbers = iter(range(world.episodes, sys.maxsize))
    found = []
    async with Hub.open(settings=usual, embedder=embedder()) as hub:
        await hub.store("bench").graph.using(extractor=Prepared(world)).add_episodes(list(episodes(world, GROUP)))
    for way, settings in ((WITHOUT, usual), (RULES, usual), (MODEL, modelled)):
        async with Hub.open(settings=settings, embedder=embedder()) as hub:
            graph = hub.store("bench").graph
            await _timed(graph, world, islice(numbers, 3), extract=way != WITHOUT)
            before = _requests(hub)
            ms = await _timed(graph, world, islice(numbers, count), extract=way != WITHOUT)
            found.append(IngestionTimes(way, ms, _requests(hub) - before, latency_ms if way == MODEL else 0.0))
    return found


def _requests(hub: Hub) -> int:
    return int(hub.counters.read("llm_requests", model=MODEL_NAME, outcome="ok"))


async def _timed(graph: Graph, world: World, numbers: Iterator[int], *, extract: bool) -> list[float]:
    taken = []
    for number in numbers:
        episode = episode_of(world.tidings(number), GROUP)
        began = time.perf_counter()
        result = await graph.add_episode(episode, extract=extract)
        taken.append((time.perf_counter() - began) * 1000)
        if extract and result.episode.extraction != "done":
            raise RuntimeError(f"{episode.id} was not extracted: {result.warnings}")
    return taken


def show(found: list[IngestionTimes]) -> None:
    """Print the times."""
    table = Table(title=f"milliseconds for one episode, in a graph of {FACTS:,} facts")
    for name in ("way", "p50", "p95", "p99", "requests", "ours", "our share", "target", ""):
        table.add_column(name, justify="left" if name in {"way", ""} else "right")
    for one in found:
        target = TARGETS_MS[one.way]
        times = [f"{ms:,.1f}" for ms in (median(one.ms), one.quantile(0.95), one.quantile(0.99), one.own_ms)]
        word = "met" if one.quantile(0.99) <= target else "missed"
        asked = f"{one.requests} of {one.latency_ms:,.0f} ms" if one.requests else "0"
        table.add_row(one.way, *times[:3], asked, times[3], f"{one.own_share:.1%}", f"{target:,}", word)
    Console(width=140).print(table)


def main() -> int:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description="How long adding one episode to a graph takes.")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="episodes of each way (100)")
    parser.add_argument("--latency-ms", type=float, default=600, metavar="MS", help="time of the model (600)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the figures go")
    asked = parser.parse_args()
    with private_server() as server, local_model(asked.latency_ms) as model_url:
        found = asyncio.run(measure(server.urls["unix"], model_url, asked.episodes, asked.latency_ms))
    show(found)
    if asked.json:
        rows = [one._asdict() | {"own_ms": one.own_ms} for one in found]
        asked.json.write_text(json.dumps({"machine": machine(), "facts": FACTS, "ways": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
