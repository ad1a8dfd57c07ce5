"""A local HTTP server that speaks as OpenAI's, and as the rerankers of Cohere and Jina, and misbehaves when told to."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.redis.vectors import Vector

KEY = "sk-local-9f8e7d6c5b4a"
_HEAD_LIMIT = 1 << 20


class Request(NamedTuple):
    """What was asked."""

    path: str
    """With its query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any


class Answer(NamedTuple):
    """What to answer once, instead of what is right."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    hangs: bool = False
    """Say nothing, until the other side gives up."""
    cuts: bool = False
    """Close the connection before everything is said."""


def refusal(status: int, message: str, *, code: str = "", **headers: str) -> Answer:
    """An error as the API words it; header names with underscores."""
    body = orjson.dumps({"error": {"message": message, "code": code}})
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def chat(content: str | None, *, finish: str = "stop", usage: tuple[int, int] | None = (11, 7)) -> Answer:
    """A whole chat answer."""
    choice = {"message": {"content": content}, "finish_reason": finish}
    answer: dict[str, Any] = {"choices": [choice]}
    if usage is not None:
        answer["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return Answer(body=orjson.dumps(answer))


def stream(parts: Sequence[str], *, ends: bool = True) -> Answer:
    """A chat answer as server-sent events; without an end, the connection closes in good order after the last part."""
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": part}}]} for part in parts]
    if ends:
        events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    lines = [b"data: " + orjson.dumps(event) for event in events]
    lines += [b"data: [DONE]"] if ends else []
    return Answer(headers={"Content-Type": "text/event-stream"}, body=b"\n\n".join(lines) + b"\n\n")


@dataclass
class OpenAIServer:
    """What the server was asked, and what it will answer."""

    url: str = ""
    key: str = KEY
    dimension: int = 1536
    requests: list[Request] = field(default_factory=list)
    answers: deque[Answer] = field(default_factory=deque)
    """Taken one by one; when there are none left, it answers what is right."""
    busy: int = 0
    busiest: int = 0
    """Requests that were under way at one time, at most."""

    def will(self, *answers: Answer) -> None:
        """Answer so to the next requests."""
        self.answers.extend(answers)

    @property
    def texts(self) -> list[str]:
        """All texts that were to be embedded."""
        return [text for request in self.requests for text in request.body["input"]]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        try:
            while request := await _read(reader):
                self.requests.append(request)
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                answer = await self._answer(request)
                self.busy -= 1
                if answer.hangs:
                    await reader.read()
                await _send(writer, answer)
                if answer.cuts:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request) -> Answer:
        await asyncio.sleep(0)
        if self.answers:
            return self.answers.popleft()
        shown = request.headers.get("api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if shown != self.key:
            return refusal(401, f"Incorrect API key provided: {shown}", code="invalid_api_key")
        if "/embeddings" in request.path:
            return await self._embeddings(request.body)
        if request.path.endswith("/rerank"):
            return _reranking(request.body)
        return refusal(500, "no answer was prepared")

    async def _embeddings(self, body: Any) -> Answer:
        texts = body["input"]
        vectors, _ = await HashingEmbedder(body.get("dimensions", self.dimension)).embed(texts)
        # Not in order: only the index identifies them.
        coded = [_coded(vector, body.get("encoding_format", "float")) for vector in vectors]
        data = [{"index": index, "embedding": coded[index]} for index in reversed(range(len(texts)))]
        usage = {"prompt_tokens": 10 * len(texts), "total_tokens": 10 * len(texts)}
        return Answer(body=orjson.dumps({"data": data, "model": body["model"], "usage": usage}))


def _reranking(body: Any) -> Answer:
    """Scores by the share of the query's words, best first; in Cohere's form for `rerank-...`, else in Jina's."""
    words = set(body["query"].lower().split())
    shares = [len(words & set(text.lower().split())) / len(words) for text in body["documents"]]
    best_first = sorted(range(len(shares)), key=lambda index: -shares[index])
    return reranked({index: shares[index] for index in best_first}, cohere=body["model"].startswith("rerank-"))


def reranked(scores: Mapping[int, Any], *, cohere: bool = False) -> Answer:
    """An answer with scores by index."""
    results = [{"index": index, "relevance_score": score} for index, score in scores.items()]
    usage = {"meta": {"billed_units": {"search_units": 1}}} if cohere else {"usage": {"total_tokens": 10 * len(scores)}}
    return Answer(body=orjson.dumps({"results": results, **usage}))


def _coded(vector: Vector, encoding: str) -> str | list[float]:
    """A vector as the service sends it: numbers as JSON, or the base64 of little-endian float32."""
    numbers: list[float] = vector.tolist()
    return b64encode(vector.astype("<f4").tobytes()).decode() if encoding == "base64" else numbers


@asynccontextmanager
async def openai_server() -> AsyncIterator[OpenAIServer]:
    """A server on a free port of the loopback interface."""
    served = OpenAIServer()
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(served.handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD_LIMIT)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield served
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def openai_server_aside() -> Iterator[OpenAIServer]:
    """The same in a thread of its own, for tests that block."""
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        serving = openai_server()
        loop = runner.get_loop()
        served = loop.run_until_complete(serving.__aenter__())
        running = thread.submit(loop.run_forever)
        try:
            yield served
        finally:
            loop.call_soon_threadsafe(loop.stop)
            running.result()
            loop.run_until_complete(serving.__aexit__(None, None, None))


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split(" ")[1], headers, orjson.loads(body))


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} -", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    body = answer.body[: len(answer.body) // 2] if answer.cuts else answer.body
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()
