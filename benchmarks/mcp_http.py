"""Costs of the MCP service beside REST in the same run; and whether several processes on one memory lose writes.

python benchmarks/mcp_http.py             two minutes
python benchmarks/mcp_http.py --quick     few and short rounds
python benchmarks/mcp_http.py --rival FOLDER/node_modules/@modelcontextprotocol/server-memory/dist/index.js --node PATH
python benchmarks/mcp_http.py --page docs/benchmarks.md

Each service is one process. A caller reads and writes a value by a tool of the stateless protocol (2026-07-28), and the
same value over REST. Then four clients of the SDK send 2,000 writes to two servers with one memory: `serve mcp --as
reference-memory`, and with `--rival` the reference server of the protocol (npm, needs Node).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from bench_report import Results, Row, Verdict, factor, put_on_page, save, show
from harness import Call, Effort, Fleet, Load, Server, close_sides, compare, machine, open_sides, private_server
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from rest_services import EMBEDDER, NAMESPACE, Services, started_process
from rest_sides import KEYS, filled, value_of
from rest_wire import HttpClient

FULL, QUICK = Effort(rounds=7, seconds=1.0), Effort(rounds=3, seconds=0.4)
RESULTS = Path(__file__).parent / "results" / "mcp.json"
ONE, SIXTEEN = Load("1 task"), Load("16 tasks", tasks=16)
OURS, REST = "mcp", "REST"
READ, WRITE = "read_value", "write_value"
LEAST_PER_S = 1_000
VERSION = "2026-07-28"
REFERENCE = "serve mcp --as reference-memory"
CLIENTS, WRITES, QUICK_WRITES = 4, 2_000, 200
_COMMAND = [sys.executable, "-c", "from sharedmem.faces.cli import main; main()"]


class McpResults(Results):
    """The results, and the writes that were lost."""

    written: dict[str, tuple[int, int, float]]
    """By server: acknowledged writes, lost ones, and how many a second."""

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        return {"written": self.written}

    def page_extra(self) -> Iterable[str]:
        """Return further lines of the page."""
        for server, (writes, lost, per_s) in self.written.items():
            yield ""
            of_all = f"{lost:,} of {writes:,} writes lost"
            yield f"Two processes of {server}, {CLIENTS} clients: {of_all}, {per_s:,.0f} a second."


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="What the MCP service costs.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--rival", type=Path, metavar="FILE", help="index.js of the reference memory server")
    parser.add_argument("--node", default="node", metavar="PATH", help="what runs it")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    asked = parser.parse_args()
    writes = QUICK_WRITES if asked.quick else WRITES
    with private_server() as redis, Fleet(1) as fleet:
        results = McpResults(machine() | {"server": redis.version, "embedder": EMBEDDER}, asked.quick)
        results.written = {}
        fleet.ask(1, filled, redis.urls["unix"])
        _measure(fleet, redis, QUICK if asked.quick else FULL, results)
        results.written[REFERENCE] = asyncio.run(_written(_ours(redis), writes))
    if asked.rival:
        with TemporaryDirectory() as folder:
            command = _rival(asked.node, asked.rival, Path(folder))
            results.written["the reference memory server"] = asyncio.run(_written(command, writes))
    goals = verdicts(results)
    show(results, goals, title="MCP / REST")
    print("\n".join(results.page_extra()))
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="mcp")
    return 0


# -- speed -----------------------------------------------------------------------------------------


def _measure(fleet: Fleet, redis: Server, effort: Effort, results: Results) -> None:
    mcp = [*_COMMAND, "--json", "serve", "mcp", "--http", "--write", "--port", "0"]
    rest = [*_COMMAND, "--json", "serve", "rest", "--port", "0"]
    url = redis.urls["unix"]
    with started_process(mcp, url) as (mcp_id, at), started_process(rest, url) as (rest_id, rest_at):
        services = Services(redis, {OURS: mcp_id, REST: rest_id}, {OURS: at, REST: rest_at})
        for call, tool, other in ((READ, read_by_tool, read_over_rest), (WRITE, write_by_tool, write_over_rest)):
            fleet.ask(1, open_sides, {OURS: partial(tool, at), REST: partial(other, rest_at)})
            for load in (ONE, SIXTEEN):
                print(f"{call}, {load.name}", file=sys.stderr, flush=True)
                compared = compare(fleet, services, [OURS, REST], load, effort)
                figures = compared.medians(OURS), compared.medians(REST), compared.ratios(OURS, REST)
                results.rows.append(Row(call, REST, load.name, "tcp", REST, *figures))
            fleet.ask(1, close_sides)


def _key(number: int) -> str:
    return f"{NAMESPACE}:shared:value-{number % KEYS}"


def _spelled(client: HttpClient, tool: str, arguments: dict[str, Any]) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return client.spelled("POST", "/mcp", body)


def _headers(tool: str) -> dict[str, str]:
    return {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }


def _succeeded(answer: bytes) -> None:
    if b'"isError":false' not in answer:
        raise RuntimeError(answer.decode("utf-8", "replace"))


@asynccontextmanager
async def read_by_tool(service: str) -> AsyncIterator[Call]:
    """Read a value by a tool."""
    async with HttpClient(service, _headers(READ)) as client:
        asked = [_spelled(client, READ, {"key": _key(number)}) for number in range(KEYS)]

        async def call(number: int) -> None:
            _succeeded(await client.send(asked[number % KEYS]))

        yield call


@asynccontextmanager
async def write_by_tool(service: str) -> AsyncIterator[Call]:
    """Write a value by a tool."""
    async with HttpClient(service, _headers(WRITE)) as client:

        async def call(number: int) -> None:
            arguments = {"key": _key(number), "value": value_of(number)}
            _succeeded(await client.send(_spelled(client, WRITE, arguments)))

        yield call


@asynccontextmanager
async def read_over_rest(service: str) -> AsyncIterator[Call]:
    """Read a value with its version over REST, as the tool does."""
    async with HttpClient(service) as client:
        asked = [client.spelled("GET", f"/api/v1/store/values/{_key(number)}") for number in range(KEYS)]
        yield lambda number: client.send(asked[number % KEYS])


@asynccontextmanager
async def write_over_rest(service: str) -> AsyncIterator[Call]:
    """Write a value over REST."""
    async with HttpClient(service) as client:

        def call(number: int) -> Any:
            body = orjson.dumps({"value": value_of(number)})
            return client.send(client.spelled("PUT", f"/api/v1/store/values/{_key(number)}", body))

        yield call


# -- writes of several processes -------------------------------------------------------------------


def _ours(redis: Server) -> StdioServerParameters:
    words = [
        "--url",
        redis.urls["unix"],
        "--namespace",
        "writes",
        "serve",
        "mcp",
        "--as",
        "reference-memory",
        "--write",
    ]
    return StdioServerParameters(
        command=_COMMAND[0], args=[*_COMMAND[1:], *words], env={"SHAREDMEM_EMBEDDER": EMBEDDER}
    )


def _rival(node: str, script: Path, folder: Path) -> StdioServerParameters:
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return StdioServerParameters(command=node, args=[str(script)], env=memory)


async def _written(command: StdioServerParameters, writes: int) -> tuple[int, int, float]:
    """Return acknowledged writes, lost ones, and how many a second."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Client(stdio_client(command))) for _ in range(2)]
        answered: set[str] = set()

        async def write(client: int) -> None:
            for number in range(writes // CLIENTS):
                name = f"Note {client}-{number}"
                entity = {"name": name, "entityType": "note", "observations": [f"client {client} wrote {number}"]}
                result = await servers[client % 2].call_tool("create_entities", {"entities": [entity]})
                if not result.is_error:
                    answered.add(name)

        begun = asyncio.get_running_loop().time()
        await asyncio.gather(*map(write, range(CLIENTS)))
        took_s = asyncio.get_running_loop().time() - begun
        found = {name async for name in _names(servers[0])}
    return len(answered), len(answered - found), len(answered) / took_s


async def _names(client: Client) -> AsyncIterator[str]:
    arguments: dict[str, Any] = {}
    while True:
        page = (await client.call_tool("read_graph", arguments)).structured_content or {}
        for entity in page["entities"]:
            yield entity["name"]
        if not page.get("next_cursor"):
            return
        arguments = {"cursor": page["next_cursor"]}


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: McpResults) -> list[Verdict]:
    """Return the goals of the service."""
    fast = results.find(READ, SIXTEEN)
    per_s = min((row.ours.calls_per_s for row in fast), default=0.0)
    beside = ", ".join(f"{row.ours.p99_us / 1000:.1f} / {row.theirs.p99_us / 1000:.1f} ms" for row in fast)
    least_us = max((row.ours.server_us for row in fast), default=1e6)
    by_cpu = f"{1e6 / least_us:,.0f} ({least_us:,.0f} µs a call)"
    ratio = ", ".join(factor(row.ratios.p99_us) for row in fast)
    _, lost, _ = results.written[REFERENCE]
    return [
        Verdict(
            f"{READ}: at least {LEAST_PER_S:,} a second in one process, 16 tasks", f"{per_s:,.0f}", per_s >= LEAST_PER_S
        ),
        Verdict(
            f"{READ}: the same by CPU of the service and Redis, if they had a core",
            by_cpu,
            least_us <= 1e6 / LEAST_PER_S,
        ),
        Verdict(f"{READ}: p99 beside that of REST, 16 tasks (no goal was set)", f"{beside}, {ratio}", None),
        Verdict("two processes, four clients: no write is lost", f"{lost:,} lost", lost == 0),
    ]


if __name__ == "__main__":
    sys.exit(main())
