"""The tools of the MCP face, as a client of the protocol sees them."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp import Client
from support.mcp_service import called, mcp_service, refused

from sharedmem.errors import InvalidError
from sharedmem.faces.mcp import McpOptions
from sharedmem.faces.mcp.pages import tokens_of

FLOOD = "The harbour of Skarn was flooded in 1962."


async def test_there_are_fewer_than_twenty_tools_each_with_annotations_and_schemas() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == 19
        for tool in tools:
            assert tool.description
            assert tool.output_schema
            assert tool.input_schema["additionalProperties"] is False
            assert "ctx" not in tool.input_schema["properties"]
            assert tool.annotations
            assert tool.annotations.open_world_hint is False


async def test_without_write_no_tool_changes_anything() -> None:
    async with mcp_service(write=False) as service, Client(service.service.server) as client:
        tools = (await client.list_tools()).tools
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert "Unknown tool" in await refused(client, "remember", content=FLOOD)
        assert (await called(client, "search_memory", query="flood"))["memories"] == []


async def test_a_profile_offers_its_tools_alone() -> None:
    async with mcp_service(tools=("graph",)) as service, Client(service.service.server) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"graph_facts", "note_fact"}


async def test_the_profile_context_answers_from_all_that_is_known_without_the_right_to_write() -> None:
    async with mcp_service(tools=("memory", "context")) as service, Client(service.service.server) as client:
        await called(client, "remember", content=FLOOD)
        known = await called(client, "recall_context", question="when was the harbour of Skarn flooded?", tokens=200)
        nothing = await called(client, "recall_context", question="who won at chess?")
    async with mcp_service(tools=("context",), write=False) as service, Client(service.service.server) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["recall_context"]

    assert FLOOD in known["text"]
    assert 0 < known["tokens"] <= 200
    assert (nothing["text"], nothing["tokens"]) == ("", 0)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(InvalidError, match="memory, coordination, graph, notes"):
        McpOptions(tools=("all",))  # type: ignore[arg-type]  # what the test is about


async def test_what_one_agent_remembers_is_found_changed_and_brought_back() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        stored = await called(client, "remember", content=FLOOD, tags=["harbour"])
        again = await called(client, "remember", content=FLOOD, tags=["harbour"])
        assert (again["id"], again["merged"]) == (stored["id"], True)
        found = await called(client, "search_memory", query="when was the flood?", tags=["harbour"])
        assert [memory["content"] for memory in found["memories"]] == [FLOOD]
        await called(client, "update_memory", id=stored["id"], content="It was flooded in 1963.")
        assert (await called(client, "undo", id=stored["id"]))["content"] == FLOOD
        assert (await called(client, "forget", id=stored["id"], reason="wrong"))["deleted"]
        assert "does not exist" in await refused(client, "get_memory", id=stored["id"])
        assert (await called(client, "undo", id=stored["id"]))["content"] == FLOOD
        results = (await called(client, "search", query="flood"))["results"]
        assert (await called(client, "fetch", id=results[0]["id"]))["text"] == FLOOD


async def test_pages_hold_everything_once_and_no_more_than_the_budget() -> None:
    async with mcp_service(max_tokens=300) as service, Client(service.service.server) as client:
        written = {f"Ship number {number} lies in harbour {number * 7}." for number in range(30)}
        for text in written:
            await service.hub.store("default").memory.add(text, dedup=False)
        for tool, arguments in (("recent_memories", {}), ("search_memory", {"query": "ship harbour"})):
            seen: list[str] = []
            cursor: str | None = None
            for _ in range(60):
                page = await called(client, tool, limit=20, cursor=cursor, **arguments)
                assert tokens_of(page) <= 300
                seen += [memory["content"] for memory in page["memories"]]
                cursor = page.get("next_cursor")
                if cursor is None:
                    break
            assert sorted(seen) == sorted(written), tool


async def test_a_long_memory_comes_in_parts() -> None:
    async with mcp_service(max_tokens=300) as service, Client(service.service.server) as client:
        text = " ".join(f"word{number}" for number in range(2000))
        stored = await called(client, "remember", content=text)
        parts, cursor = "", None
        while True:
            page = await called(client, "get_memory", id=stored["id"], cursor=cursor)
            assert tokens_of(page) <= 300
            parts, cursor = parts + page["memory"]["content"], page.get("next_cursor")
            if cursor is None:
                break
        assert parts == text


@pytest.mark.parametrize("word", ["word", '"\\\n', "Grüße 🌊"])
async def test_the_parts_of_a_long_value_are_its_json_text(word: str) -> None:
    value = {"text": [f"{word}{number}" for number in range(400)], "none": None}
    async with mcp_service(max_tokens=300) as service, Client(service.service.server) as client:
        written = await called(client, "write_value", key="plan", value=value)
        parts, cursor = "", None
        while True:
            page = await called(client, "read_value", key="plan", cursor=cursor)
            assert tokens_of(page) <= 300
            assert (page["version"], "value" in page) == (written["version"], False)
            parts, cursor = parts + page["part"], page.get("next_cursor")
            if cursor is None:
                break
        assert json.loads(parts) == value


async def test_parts_are_of_one_version() -> None:
    async with mcp_service(max_tokens=300) as service, Client(service.service.server) as client:
        text = "word " * 2000
        await called(client, "write_value", key="plan", value=text)
        stored = await called(client, "remember", content=text)
        value = await called(client, "read_value", key="plan")
        memory = await called(client, "get_memory", id=stored["id"])
        await called(client, "write_value", key="plan", value=text.upper())
        await called(client, "update_memory", id=stored["id"], content=text.upper())

        late = await client.call_tool("read_value", {"key": "plan", "cursor": value["next_cursor"]})
        later = await client.call_tool("get_memory", {"id": stored["id"], "cursor": memory["next_cursor"]})

        for answer in (late, later):
            assert answer.is_error
            assert "read it again from the beginning" in str(answer.content)


async def test_a_value_is_written_only_over_the_version_that_was_read() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        first = await called(client, "write_value", key="plan", value={"a": None}, if_version=0)
        read = await called(client, "read_value", key="plan")
        assert (read["value"], read["version"]) == ({"a": None}, first["version"])
        assert "expected no value" in await refused(client, "write_value", key="plan", value=2, if_version=0)


async def test_a_task_goes_to_one_agent_and_ends_with_its_result() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        put = await service.hub.store("default").queue("work").put({"file": "a"})
        task = (await called(client, "claim_task", queue="work"))["task"]
        assert task["payload"] == {"file": "a"}
        assert "task" not in await called(client, "claim_task", queue="work")
        done = await called(
            client, "finish_task", queue="work", id=task["id"], token=task["token"], result={"ok": True}
        )
        assert done["state"] == "done"
        assert (await service.hub.store("default").queue("work").result(put.id)).value == {"ok": True}


async def test_facts_messages_and_decisions_are_shared() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        await called(client, "note_fact", subject="Ada", relation="works_for", object="Skarn")
        assert (await called(client, "graph_facts", entity="Ada"))["facts"][0]["object"] == "Skarn"
        for number in range(3):
            await called(client, "post_message", channel="team", content={"n": number})
        first = await called(client, "read_messages", channel="team", limit=2)
        rest = await called(client, "read_messages", channel="team", after=first["next_cursor"])
        assert [m["content"]["n"] for m in first["messages"] + rest["messages"]] == [0, 1, 2]
        assert (await called(client, "save_decision", topic="t", action="buy", reasoning="cheap"))["saved"]
        assert not (await called(client, "save_decision", topic="t", action="buy", reasoning="cheap"))["saved"]
        assert (await called(client, "who_is_here"))["actors"] == []


async def test_invalid_arguments_are_refused_in_our_words_and_nothing_is_written() -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        nested: object = 1
        for _ in range(100):
            nested = [nested]
        assert "content: Input should be a valid string" in await refused(client, "remember", content=5)
        assert "contents: Extra inputs" in await refused(client, "remember", content="x", contents="y")
        assert "more than 64 levels deep" in await refused(client, "write_value", key="k", value=nested)
        assert "next_cursor" in await refused(client, "search_memory", query="x", cursor="; drop")
        assert "secret-value" not in await refused(client, "recent_memories", limit="secret-value")
        assert await service.hub.store("default").memory.list() == []


async def test_a_retry_with_the_same_key_has_one_effect() -> None:
    async with mcp_service() as service:
        async with service.client(**{"idempotency-key": "k-1"}) as client:
            answers = await asyncio.gather(
                *(called(client, "post_message", channel="c", content="hi") for _ in range(5))
            )
            assert answers == [{"channel": "c", "messages": 1}] * 5
            assert "another call" in await refused(client, "post_message", channel="c", content="other")
            meta = {"sharedmem/idempotencyKey": "k-2"}
            for _ in range(2):
                await client.call_tool("post_message", {"channel": "c", "content": "again"}, meta=meta)  # type: ignore[arg-type]
        assert len(await service.hub.store("default").episodes.events("c")) == 2
