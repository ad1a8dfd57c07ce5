"""The tools of the protocol's reference memory server, over a graph: what clients of that server expect holds here."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from support.mcp_service import called, mcp_service, refused

from sharedmem.faces.auth import Bearer
from sharedmem.faces.mcp import McpOptions

TOOLS: tuple[Any, ...] = ("reference-memory",)
ADA = {"name": "Ada", "entityType": "Person", "observations": ["likes tea", "sails on Sundays"]}
HARBOUR = {"name": "Harbour Office", "entityType": "place", "observations": []}
WORKS = {"from": "Ada", "to": "Harbour Office", "relationType": "worksAt"}


@asynccontextmanager
async def reference(**options: Any) -> AsyncIterator[Client]:
    async with mcp_service(tools=TOOLS, **options) as service, Client(service.service.server) as client:
        yield client


async def test_the_nine_tools_have_the_schemas_of_the_reference() -> None:
    async with reference() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        required = {
            "create_entities": ["entities"],
            "create_relations": ["relations"],
            "add_observations": ["observations"],
            "delete_entities": ["entityNames"],
            "delete_observations": ["deletions"],
            "delete_relations": ["relations"],
            "read_graph": [],
            "search_nodes": ["query"],
            "open_nodes": ["names"],
        }
        assert {name: tool.input_schema.get("required", []) for name, tool in tools.items()} == required
        relation = tools["create_relations"].input_schema["$defs"]["ReferenceRelation"]
        assert sorted(relation["properties"]) == ["from", "relationType", "to"]


async def test_what_is_created_is_read_back_as_it_was_sent() -> None:
    async with reference() as client:
        assert await called(client, "create_entities", entities=[ADA, HARBOUR]) == {"entities": [ADA, HARBOUR]}
        assert await called(client, "create_relations", relations=[WORKS]) == {"relations": [WORKS]}
        assert await called(client, "read_graph") == {"entities": [ADA, HARBOUR], "relations": [WORKS]}
        assert await called(client, "open_nodes", names=["Harbour Office", "Nobody"]) == {
            "entities": [HARBOUR],
            "relations": [WORKS],
        }
        assert await called(client, "search_nodes", query="SAILS") == {"entities": [ADA], "relations": [WORKS]}


async def test_what_exists_is_not_created_again() -> None:
    async with reference() as client:
        await called(client, "create_entities", entities=[ADA])
        other = ADA | {"observations": ["hates tea"]}
        assert await called(client, "create_entities", entities=[other, HARBOUR, HARBOUR]) == {"entities": [HARBOUR]}
        assert (await called(client, "create_relations", relations=[WORKS, WORKS]))["relations"] == [WORKS]
        assert (await called(client, "create_relations", relations=[WORKS]))["relations"] == []
        added = [{"entityName": "Ada", "contents": ["likes tea", "has a boat", "has a boat"]}]
        assert await called(client, "add_observations", observations=added) == {
            "results": [{"entityName": "Ada", "addedObservations": ["has a boat"]}]
        }
        [ada] = (await called(client, "open_nodes", names=["Ada"]))["entities"]
        assert ada["observations"] == [*ADA["observations"], "has a boat"]


async def test_a_relation_of_one_type_may_have_many_ends() -> None:
    async with reference() as client:
        # Other graphs of ours end the earlier home, and store `employs` the other way round.
        sent = [
            {"from": "Bob", "to": "Paris", "relationType": "lives_in"},
            {"from": "Bob", "to": "Rome", "relationType": "lives_in"},
            {"from": "Skarn", "to": "Bob", "relationType": "employs"},
        ]
        for relation in sent:
            await called(client, "create_relations", relations=[relation])
        assert await called(client, "read_graph") == {"entities": [], "relations": sent}


async def test_what_is_deleted_is_gone_and_may_come_back() -> None:
    async with reference() as client:
        await called(client, "create_entities", entities=[ADA, HARBOUR])
        await called(client, "create_relations", relations=[WORKS])
        gone = [
            {"entityName": "Ada", "observations": ["likes tea", "never said"]},
            {"entityName": "X", "observations": ["a"]},
        ]
        assert (await called(client, "delete_observations", deletions=gone))["success"]
        assert (await called(client, "open_nodes", names=["Ada"]))["entities"][0]["observations"] == [
            "sails on Sundays"
        ]
        await called(client, "add_observations", observations=[{"entityName": "Ada", "contents": ["likes tea"]}])
        assert len((await called(client, "open_nodes", names=["Ada"]))["entities"][0]["observations"]) == 2
        assert (await called(client, "delete_relations", relations=[WORKS]))["success"]
        assert (await called(client, "read_graph"))["relations"] == []
        await called(client, "create_relations", relations=[WORKS])
        assert (await called(client, "delete_entities", entityNames=["Ada", "Nobody"]))["success"]
        assert await called(client, "read_graph") == {"entities": [HARBOUR], "relations": []}
        assert (await called(client, "create_entities", entities=[ADA]))["entities"] == [ADA]


async def test_an_entity_that_is_missing_lets_nothing_be_added() -> None:
    async with reference() as client:
        await called(client, "create_entities", entities=[HARBOUR])
        both = [{"entityName": name, "contents": ["is new"]} for name in ("Harbour Office", "Nobody")]
        assert "'Nobody'" in await refused(client, "add_observations", observations=both)
        for entity in (ADA | {"name": " "}, ADA | {"observations": ["x" * 5001]}, {"name": "Ada"}):
            await refused(client, "create_entities", entities=[HARBOUR | {"name": "New"}, entity])
        assert (await called(client, "read_graph"))["entities"] == [HARBOUR]


async def test_a_long_graph_comes_in_pages() -> None:
    many = {"name": "Ada", "entityType": "person", "observations": [f"fact number {n} of Ada" for n in range(60)]}
    async with reference(max_tokens=300) as client:
        await called(client, "create_entities", entities=[many, HARBOUR])
        await called(client, "create_relations", relations=[WORKS])
        pages = [await called(client, "read_graph")]
        while "next_cursor" in pages[-1]:
            pages.append(await called(client, "read_graph", cursor=pages[-1]["next_cursor"]))
        assert len(pages) > 2
        observations = [text for page in pages for entity in page["entities"] for text in entity["observations"]]
        assert observations == many["observations"]
        assert pages[-1]["relations"] == [WORKS]
        assert "next_cursor" in await refused(client, "read_graph", cursor="7000.")


async def test_without_write_it_reads_and_tenants_stay_apart() -> None:
    async with (
        mcp_service(Bearer.of("tides", actor="ada"), Bearer.of("other", actor="eve"), tools=TOOLS) as service,
        service.client("tides/ada") as ada,
        service.client("other/eve") as eve,
    ):
        await called(ada, "create_entities", entities=[ADA])
        await called(ada, "create_relations", relations=[WORKS])
        nothing: dict[str, Any] = {"entities": [], "relations": []}
        assert await called(eve, "read_graph") == nothing
        assert await called(eve, "search_nodes", query="tea") == nothing
        assert await called(eve, "open_nodes", names=["Ada"]) == nothing
        await refused(eve, "add_observations", observations=[{"entityName": "Ada", "contents": ["is mine"]}])
        await called(eve, "delete_observations", deletions=[{"entityName": "Ada", "observations": ["likes tea"]}])
        await called(eve, "delete_relations", relations=[WORKS])
        await called(eve, "delete_entities", entityNames=["Ada"])
        assert await called(ada, "read_graph") == {"entities": [ADA], "relations": [WORKS]}
    async with reference(write=False) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"read_graph", "search_nodes", "open_nodes"}


def test_it_is_offered_only_by_name() -> None:
    assert "reference-memory" not in McpOptions().tools


@pytest.fixture
def data_dir() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    yield base / "d"
    shutil.rmtree(base)


async def test_two_processes_with_four_clients_lose_no_write(data_dir: Path) -> None:
    # A smaller run of what benchmarks/mcp_http.py does with 2,000 writes.
    words = ["-m", "sharedmem", "--data-dir", str(data_dir), "--namespace", "tides", "serve", "mcp"]
    command = StdioServerParameters(command=sys.executable, args=[*words, "--as", "reference-memory", "--write"])
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Client(stdio_client(command))) for _ in range(2)]
        await called(servers[0], "create_entities", entities=[ADA | {"observations": []}])

        async def write(client: int) -> None:
            for number in range(15):
                said = [{"entityName": "Ada", "contents": [f"client {client} said {number}"]}]
                own = {"name": f"Note {client}-{number}", "entityType": "note", "observations": ["is new"]}
                await called(servers[client % 2], "add_observations", observations=said)
                await called(servers[client % 2], "create_entities", entities=[own])

        await asyncio.gather(*map(write, range(4)))
        [ada] = (await called(servers[0], "open_nodes", names=["Ada"]))["entities"]
        found = await called(servers[1], "search_nodes", query="is new")
    assert len(set(ada["observations"])) == 60
    assert len({entity["name"] for entity in found["entities"]}) == 60
