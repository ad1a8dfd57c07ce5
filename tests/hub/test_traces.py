"""Traces: calls as spans by the conventions of OpenTelemetry, one trace across queues, processes and services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import httpx2
import pytest
from fakeredis import FakeServer
from mcp import Client
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from support.mcp_service import mcp_service
from support.rest_server import running_rest_server
from support.spans import RecordedSpans, recorded_spans

from sharedmem import Hub
from sharedmem.client import SharedMemoryClient
from sharedmem.config import Settings
from sharedmem.errors import NotFoundError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer
from sharedmem.testing import fake_hub

QUERY, FACT = "where do we meet", "we meet in the old library"


@pytest.fixture
def spans() -> Iterator[RecordedSpans]:
    with recorded_spans() as recorded:
        yield recorded


def traced(server: FakeServer | None = None, **settings: bool) -> AbstractAsyncContextManager[Hub]:
    return fake_hub(settings=Settings(access="open", embedder="hashing", **settings), server=server)


async def test_one_trace_leads_from_an_agent_that_decides_to_the_one_that_resumes_its_work(
    spans: RecordedSpans,
) -> None:
    agent = trace.get_tracer("agent")
    server = FakeServer()
    async with traced(server) as here, traced(server) as elsewhere:
        store = here.store("team", actor="ada")
        with agent.start_as_current_span("invoke_agent ada"):
            await store.memory.search(QUERY)
            await store.decisions.save_plan("talks", "library", "meet", 0.9, "quiet")
            await store.queue("errands").put({"place": "library"})

        other = elsewhere.store("team", actor="bob")

        async def errand() -> str:
            await other.memory.add(FACT)
            return "done"

        async with other.queue("errands").claimed() as task:
            assert task is not None
            await other.once("errand", errand, ttl=60)

    assert spans.tree() == [
        "invoke_agent ada",
        [
            "search_memory team",
            "sharedmem.decisions.save_plan",
            "send errands",
            ["process errands", ["sharedmem.once", ["create_memory team"]]],
        ],
    ]
    assert len({span.context.trace_id for span in spans.all() if span.context}) == 1
    assert spans.one("process errands").kind is SpanKind.CONSUMER


async def test_spans_of_memory_have_ids_and_no_texts(spans: RecordedSpans) -> None:
    async with traced() as hub:
        memory = hub.store("team").memory
        added = await memory.add(FACT)
        await memory.search(QUERY)
        await memory.update(added.id, memory=f"{FACT} on Mondays")
        await memory.delete(added.id)

    for name in ("create_memory", "update_memory", "delete_memory", "search_memory"):
        found = spans.one(f"{name} team").attributes or {}
        assert found["gen_ai.operation.name"] == name
        assert found["gen_ai.memory.store.id"] == "team"
        assert found["gen_ai.memory.record.id"] == added.id
    told = repr([span.attributes for span in spans.all()])
    assert "library" not in told
    assert "where" not in told


async def test_queries_and_records_are_in_spans_if_the_setting_asks_for_them(spans: RecordedSpans) -> None:
    async with traced(trace_content=True) as hub:
        memory = hub.store("team").memory
        await memory.add(FACT)
        await memory.search(QUERY)

    found = spans.one("search_memory team").attributes or {}
    assert found["gen_ai.memory.query.text"] == QUERY
    assert FACT in str(found["gen_ai.memory.records"])


async def test_a_failed_call_has_the_code_of_its_error_and_not_its_message(spans: RecordedSpans) -> None:
    async with traced() as hub:
        with pytest.raises(NotFoundError):
            await hub.store("team").memory.update("no-such-secret", memory="a")

    span = spans.one("update_memory team")
    assert (span.attributes or {})["error.type"] == "not_found"
    assert not span.status.is_ok
    assert "secret" not in span.to_json()


async def test_calls_of_redis_are_spans_below_if_the_setting_asks_for_them(spans: RecordedSpans) -> None:
    async with traced(trace_redis=True) as hub:
        with trace.get_tracer("agent").start_as_current_span("agent"):
            await hub.store("team").write("secret-plan", "secret-value")
        await hub.store("team").read("secret-plan")

    assert spans.tree() == ["agent", ["EVALSHA value_write"]]
    span = spans.one("EVALSHA value_write")
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes or {}) == {
        "db.system.name": "redis",
        "db.operation.name": "EVALSHA",
        "db.stored_procedure.name": "value_write",
    }
    assert "secret" not in span.to_json()


async def test_callers_that_get_the_result_of_another_run_are_linked_to_it(spans: RecordedSpans) -> None:
    async with traced() as hub:
        store = hub.store("team")
        for _ in range(2):
            assert await store.once("count", lambda: {"count": 3}, ttl=60) == {"count": 3}

    first, second = spans.all()
    assert [link.context.span_id for link in second.links] == [first.context.span_id if first.context else 0]
    assert (second.attributes or {})["sharedmem.once.ran"] is False


async def test_a_task_has_the_trace_of_its_put_for_workers_of_any_kind(spans: RecordedSpans) -> None:
    async with traced() as hub:
        queue = hub.store("team").queue("errands")
        await queue.put({"n": 1}, id="one")
        await queue.put_many([2, b"\x043"])
        tasks = await queue.claim_many(3)

    sent = [span.context.span_id for span in spans.all() if span.name == "send errands" and span.context]
    parents = [(task.traceparent or "").split("-")[2] for task in tasks]
    assert parents == [f"{sent[0]:016x}", f"{sent[1]:016x}", f"{sent[1]:016x}"]
    assert [task.payload for task in tasks] == [{"n": 1}, 2, b"\x043"]


async def test_a_trace_goes_on_in_the_rest_service(spans: RecordedSpans) -> None:
    async with running_rest_server() as (server, _), SharedMemoryClient(server.url) as client:
        with trace.get_tracer("agent").start_as_current_span("agent"):
            await client.call("memory.search", query=QUERY)
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as other:
            answer = await other.get("/api/v1/kv/none", headers={"traceparent": "00-nonsense"})

    assert answer.status_code == 404
    tree = spans.tree()
    assert tree[:2] == ["agent", ["POST /api/v1/memory/search", ["search_memory default"]]]
    assert (spans.one("POST /api/v1/memory/search").attributes or {})["http.response.status_code"] == 200


async def test_a_trace_goes_on_in_the_grpc_service(spans: RecordedSpans) -> None:
    everyone = Bearer(namespace="team", actor="ada")
    async with (
        traced() as hub,
        MemoryServer(hub, GrpcAddress(port=0), everyone=everyone, grace_s=1) as server,
        MemoryClient(server.target) as client,
    ):
        with trace.get_tracer("agent").start_as_current_span("agent"):
            await client.decisions.save_plan("talks", "library", "meet", 0.9, "quiet")

    (name, children) = spans.tree()[1]
    assert name.endswith("/SavePlan")
    assert children == ["sharedmem.decisions.save_plan"]


async def test_calls_of_tools_are_spans_of_the_protocol_around_those_of_memory(spans: RecordedSpans) -> None:
    async with mcp_service() as service, Client(service.service.server) as client:
        await client.call_tool("search_memory", {"query": QUERY})

    tool = next(span for span in spans.all() if span.name.startswith("tools/call") and span.kind is SpanKind.SERVER)
    assert (tool.attributes or {})["mcp.method.name"] == "tools/call"
    assert any(span.parent and tool.context and span.parent.span_id == tool.context.span_id for span in spans.all())
