"""The client asks a service over HTTP as one asks the library: same names, same records, same errors, nothing twice."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import orjson
import pytest

from sharedmem import errors
from sharedmem.client import SharedMemoryClient
from sharedmem.client.http_protocol import ServiceOperation, build_request
from sharedmem.client.sync import SharedMemoryClient as BlockingClient
from sharedmem.clock import SystemClock
from sharedmem.errors import (
    AccessDeniedError,
    ConflictError,
    InternalError,
    InvalidError,
    LimitedError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
)
from sharedmem.models import ConversationSummary, Note, SynthesisMessage, SynthesisTask

TOKEN = "smt_0123456789"
WRITE: ServiceOperation[object] = ServiceOperation("value.write", "POST", "/write")
TASK = {"task_id": "0000000000000001", "status": "done", "attempts": 1, "result": {"memory_id": "note-1"}}
NOTE = Note(
    id="note-1",
    app_id="shop",
    user_id="mara",
    memory_note="## Summary",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    updated_at=datetime(2026, 1, 1, tzinfo=UTC),
)
MESSAGES = [{"role": "user", "content": "I moved to Malmö"}]


class HastyClock(SystemClock):
    """Time passes when a task sleeps, and at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Script:
    """A service that answers what it is told to, one after the other; the last one stays."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = deque(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    @property
    def client(self) -> SharedMemoryClient:
        return self.opened()

    def opened(self, **arguments: Any) -> SharedMemoryClient:
        chosen: dict[str, Any] = {"clock": HastyClock(), "token": TOKEN} | arguments
        return SharedMemoryClient("http://hub:8420", transport=httpx2.MockTransport(self), **chosen)


def told(content: object, status: int = 200, **headers: str) -> httpx2.Response:
    body = orjson.dumps(content, default=lambda record: record.model_dump(mode="json"))
    return httpx2.Response(status, content=body, headers=headers)


def problem(status: int, code: str, detail: str = "what went wrong", **more: object) -> httpx2.Response:
    return told({"status": status, "code": code, "detail": detail, "request_id": "r-1"} | more, status)


Ask = Callable[[SharedMemoryClient], Any]


# -- requests -----------------------------------------------------------------------------------------


def asked(request: httpx2.Request) -> tuple[str, str, Any]:
    """Method, path with query, and body of a request."""
    body = orjson.loads(request.content) if request.content else None
    return request.method, request.url.raw_path.decode(), body


@pytest.mark.parametrize(
    ("ask", "answer", "method", "path", "body"),
    [
        (
            lambda memory: memory.add_memory(app_id="shop", user_id="mara", messages=MESSAGES),
            TASK,
            "POST",
            "/api/v1/memories",
            {"app_id": "shop", "user_id": "mara", "messages": MESSAGES},
        ),
        (
            lambda memory: memory.add_agent_memory(app_id="shop", user_id="mara", messages="I know", session_id="s"),
            TASK,
            "POST",
            "/api/v1/agent/memories",
            {"app_id": "shop", "user_id": "mara", "messages": "I know", "session_id": "s"},
        ),
        (
            lambda memory: memory.query_memory(app_id="shop", query="where & when?", n_results=3, user_id="mara"),
            {"items": []},
            "GET",
            "/api/v1/memories/query?app_id=shop&query=where+%26+when%3F&n_results=3&user_id=mara",
            None,
        ),
        (
            lambda memory: memory.get_memory("a/b?c", app_id="shop"),
            NOTE,
            "GET",
            "/api/v1/memories/a%2Fb%3Fc?app_id=shop",
            None,
        ),
        (
            lambda memory: memory.delete_memory("1", app_id="ü"),
            {"deleted": True},
            "DELETE",
            "/api/v1/memories/1?app_id=%C3%BC",
            None,
        ),
    ],
)
async def test_calls_become_requests(ask: Ask, answer: object, method: str, path: str, body: object) -> None:
    service = Script(told(answer))

    await ask(service.client)

    (request,) = service.requests
    assert asked(request) == (method, path, body)
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


async def test_answers_are_the_records_of_the_library() -> None:
    assert await Script(told(NOTE)).client.get_memory("note-1", app_id="shop") == NOTE
    assert await Script(told(TASK)).client.get_task_status("1") == SynthesisTask.model_validate(TASK)
    summing = Script(told({"summary": "she moved"})).client.summarize_conversation
    assert await summing(app_id="a", user_id="u", messages="x") == ConversationSummary(summary="she moved")


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), b'"2026-01-01T00:00:00+00:00"'),
        (date(2026, 1, 1), b'"2026-01-01"'),
        (UUID(int=5), b'"00000000-0000-0000-0000-000000000005"'),
        (Colour.RED, b'"red"'),
        (Point(1), b'{"x":1}'),
        ({"b", "a"}, b'["a","b"]'),
        ([SynthesisMessage(role="user", content="Malmö")], b'[{"role":"user","content":"Malm\xc3\xb6"}]'),
        ((True, None, 0.5, math.nan), b"[true,null,0.5,null]"),
        (2**64 - 1, b"18446744073709551615"),
    ],
)
def test_values_of_python_are_sent_as_json(value: object, sent: bytes) -> None:
    request = build_request(WRITE, {"value": value})

    assert request.content == b'{"value":' + sent + b"}"


@pytest.mark.parametrize("value", [b"bytes", {1: "a key that would come back as a text"}, 2**64, "\ud800", {object}])
def test_what_would_come_back_as_something_else_is_refused(value: object) -> None:
    with pytest.raises(InvalidError, match="JSON cannot hold"):
        build_request(WRITE, {"value": value})


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)

    with pytest.raises(InvalidError, match="JSON cannot hold"):
        build_request(WRITE, {"value": ring})


async def test_a_note_that_is_not_there_is_none() -> None:
    assert await Script(problem(404, "not_found")).client.get_memory("1", app_id="shop") is None


async def test_a_task_is_looked_after_until_it_is_done() -> None:
    clock = HastyClock()
    service = Script(*[told(TASK | {"status": status}) for status in ("pending", "running", "running", "done")])

    task = await service.opened(clock=clock).wait("1")

    assert (task.status, len(service.requests)) == ("done", 4)
    assert clock.slept == sorted(clock.slept)


async def test_a_task_that_takes_too_long_is_answered_as_it_stands() -> None:
    clock = HastyClock()
    service = Script(told(TASK | {"status": "running"}))

    task = await service.opened(clock=clock).wait("1", timeout=3)

    assert task.status == "running"
    assert sum(clock.slept) == pytest.approx(3)


# -- errors -------------------------------------------------------------------------------------------

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SharedMemoryError)]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
async def test_each_error_comes_back_as_what_it_was(kind: type[SharedMemoryError]) -> None:
    service = Script(problem(kind.codes.http_status, kind.codes.code, "the sentence of the service"))

    with pytest.raises(SharedMemoryError) as raised:
        await service.opened(retry_for=0).warm_up()

    assert type(raised.value) is kind
    assert str(raised.value) == "the sentence of the service"
    assert raised.value.__notes__ == ["request r-1 at http://hub:8420"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (problem(401, "unauthenticated", "show a token"), AccessDeniedError, "show a token"),
        (problem(413, "body_too_large", "send less"), InvalidError, "send less"),
        (problem(404, "no_such_path", "nothing here"), UnsupportedError, "nothing here"),
        (problem(409, "request_under_way", "wait"), ConflictError, "wait"),
        (httpx2.Response(502, content=b"<h1>Bad  gateway</h1>"), UnavailableError, "HTTP 502: <h1>Bad gateway"),
        (httpx2.Response(404, content=b""), UnsupportedError, "no reason given"),
        (httpx2.Response(500, content=b"[1]"), InternalError, "HTTP 500"),
        (httpx2.Response(418), InvalidError, "HTTP 418"),
        (httpx2.Response(200, content=b"<html>"), InternalError, "same version"),
        (told({"mode": "pool"}), InternalError, "same version"),
        (httpx2.Response(301, headers={"Location": "http://evil/"}), InvalidError, "redirects"),
    ],
)
async def test_what_only_services_and_proxies_say_is_told_in_our_words(
    answer: httpx2.Response, kind: type[SharedMemoryError], words: str
) -> None:
    service = Script(answer)

    with pytest.raises(kind, match=words):
        await service.opened(retry_for=0).get_connection_pool_stats()

    assert len(service.requests) == 1


async def test_an_error_names_the_field_that_was_wrong() -> None:
    service = Script(problem(400, "invalid", errors=[{"field": "app_id", "problem": "Field required"}]))

    with pytest.raises(InvalidError) as raised:
        await service.client.warm_up()

    assert raised.value.field == "app_id"


# -- asking again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        problem(503, "unavailable", retry_after=0.5),
        problem(429, "limited", retry_after=0.5),
        problem(409, "request_under_way", retry_after=0.5),
        httpx2.Response(502),
        httpx2.ConnectError("refused"),
        httpx2.ReadError("gone"),
        httpx2.RemoteProtocolError("cut off"),
    ],
    ids=str,
)
async def test_what_passes_is_asked_again_under_the_same_key(failure: httpx2.Response | Exception) -> None:
    service = Script(failure, failure, told(TASK))

    task = await service.client.add_memory(app_id="shop", user_id="mara", messages=MESSAGES)

    assert task.task_id == TASK["task_id"]
    keys = {request.headers["idempotency-key"] for request in service.requests}
    assert (len(service.requests), len(keys)) == (3, 1)


async def test_two_calls_have_two_keys() -> None:
    service = Script(told(TASK))
    for _ in range(2):
        await service.client.add_memory(app_id="shop", user_id="mara", messages=MESSAGES)

    first, second = (request.headers["idempotency-key"] for request in service.requests)
    assert first != second


@pytest.mark.parametrize("code", ["durability_pending", "invalid", "conflict", "internal"])
async def test_what_does_not_pass_is_not_asked_again(code: str) -> None:
    service = Script(problem(504 if code == "durability_pending" else 400, code))

    with pytest.raises(SharedMemoryError):
        await service.client.warm_up()

    assert len(service.requests) == 1


async def test_the_service_says_how_long_to_wait() -> None:
    clock = HastyClock()
    service = Script(problem(429, "limited", retry_after=7), told(TASK))

    await service.opened(clock=clock).get_task_status("1")

    assert clock.slept == [7.0]


async def test_a_caller_that_would_wait_too_long_gets_an_error_at_once() -> None:
    clock = HastyClock()
    service = Script(problem(429, "limited", "too many", retry_after=60))

    with pytest.raises(LimitedError) as raised:
        await service.opened(clock=clock).get_task_status("1")

    assert (raised.value.retry_after, clock.slept) == (60, [])


async def test_a_service_that_stays_away_is_given_up() -> None:
    clock = HastyClock()
    service = Script(httpx2.ConnectError("refused"))

    with pytest.raises(UnavailableError, match=r"http://hub:8420.*refused.*serve rest"):
        await service.opened(clock=clock, retry_for=5).get_task_status("1")

    assert 5 - 2 < sum(clock.slept) <= 5


async def test_a_service_that_does_not_answer_is_given_up() -> None:
    async def silent(_: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    memory = SharedMemoryClient("http://hub", timeout=0.02, retry_for=0, transport=httpx2.MockTransport(silent))
    with pytest.raises(UnavailableError, match=r"no answer within 0\.02 s"):
        await memory.warm_up()


# -- where and who ----------------------------------------------------------------------------------------


def test_a_token_is_in_no_repr() -> None:
    for memory in (SharedMemoryClient("http://hub", token=TOKEN), BlockingClient("http://hub", token=TOKEN)):
        assert repr(memory) == "<SharedMemoryClient of http://hub>"


@pytest.mark.parametrize("token", ["", "two words", "line\nfeed", "tökén"])
def test_what_cannot_be_a_token_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(InvalidError, match=r"'\*\*\*'"):
        SharedMemoryClient(token=token)


@pytest.mark.parametrize("url", ["", "hub:8420", "ftp://hub", "http://", "http://a:b@hub/", "http://hub/?x=1"])
def test_what_cannot_be_a_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidError, match="base_url"):
        SharedMemoryClient(url)


async def test_a_service_may_be_behind_a_unix_socket(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = orjson.dumps(TASK)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    path = tmp_path / "s"
    async with await asyncio.start_unix_server(serve, path):
        async with SharedMemoryClient(f"unix:{path}") as memory:
            assert (await memory.get_task_status("1")).status == "done"
        with BlockingClient(f"unix://{path}") as blocking:
            assert (await asyncio.to_thread(blocking.get_task_status, "1")).status == "done"


# -- without await ------------------------------------------------------------------------------------------


def public(kind: type) -> Mapping[str, inspect.Signature]:
    named = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in named if not name.startswith("_")}


def test_both_clients_have_the_same_calls() -> None:
    assert public(SharedMemoryClient) == public(BlockingClient)


def test_the_blocking_client_asks_again_and_raises_alike() -> None:
    slept: list[float] = []
    service = Script(problem(503, "unavailable", retry_after=0.5), told(TASK), problem(403, "access_denied", "no"))
    with BlockingClient("http://hub", sleep=slept.append, transport=httpx2.MockTransport(service)) as memory:
        task = memory.add_memory(app_id="shop", user_id="mara", messages=MESSAGES)
        with pytest.raises(AccessDeniedError, match="no"):
            memory.query_memory(app_id="shop", query="x")

    assert task.status == "done"
    assert slept == [0.5]


def test_the_blocking_client_waits_for_tasks() -> None:
    service = Script(*[told(TASK | {"status": status}) for status in ("pending", "running", "failed")])
    with BlockingClient("http://hub", sleep=lambda _: None, transport=httpx2.MockTransport(service)) as memory:
        assert memory.wait("1").status == "failed"


def test_threads_may_share_a_blocking_client() -> None:
    service = Script(told(NOTE))
    found: list[Note | None] = []
    with BlockingClient("http://hub", transport=httpx2.MockTransport(service)) as memory:
        threads = [
            threading.Thread(target=lambda: found.append(memory.get_memory("note-1", app_id="shop"))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert found == [NOTE] * 8
