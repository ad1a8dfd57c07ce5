"""The other side of the benchmark of synthesis: omnimemory, the original design's implementation, on a Chroma server.

It gets the same conversations, embedder and answers of a language model, through the library by which it calls
models. It is not a dependency of ours: if it is not installed, it is not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from harness import Call, WorkerState
from synthesis_data import (
    APP,
    DIMENSION,
    SubjectEmbedder,
    consolidated,
    conversation,
    decisions,
    note_of,
    question,
    reading_of,
    user_of,
)

from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embedder

NAME, INSTALL = "omnimemory", "pip install omnimemory"
QUERIED = "bench-queried"
"""Its app for the notes of queries."""
_STARTS_WITHIN_S, _STOPS_WITHIN_S = 60.0, 10.0
_AT_ONCE = 500


def absence() -> str:
    """Return why the rival is missing; empty if it is installed."""
    if find_spec(NAME) is None:
        return f"{NAME} is not installed here: {INSTALL}"
    return "" if _chroma() else f"{NAME} has no vector store to run on: there is no `chroma` command"


def installed_version() -> str:
    """Return its name and version."""
    return f"{NAME} {version(NAME)} on Chroma {version('chromadb')}"


def _chroma() -> str | None:
    beside = Path(sys.executable).with_name("chroma")
    return str(beside) if beside.exists() else shutil.which("chroma")


@contextmanager
def chroma_server() -> Iterator[tuple[int, int]]:
    """Start its vector store in a process of its own with data of its own; yield process id and port."""
    command = _chroma()
    assert command is not None
    with TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
        taken.close()
        asked = [command, "run", "--path", folder, "--host", "127.0.0.1", "--port", str(port)]
        quiet = os.environ | {"ANONYMIZED_TELEMETRY": "False"}
        with subprocess.Popen(asked, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(process, port)
                yield process.pid, port
            finally:
                process.terminate()
                try:
                    process.wait(_STOPS_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    last = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < last and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("chroma does not start")


# -- its model and embedder ------------------------------------------------------------------------


def _replace_litellm(embedder: Embedder) -> None:
    """Replace LiteLLM, by which it calls models and embedders."""
    litellm = import_module("omnimemory.core.llm").litellm

    async def complete(messages: Sequence[dict[str, str]], **_: object) -> object:
        answer = _answer(messages[-1]["content"], messages[0]["content"])
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=json.dumps(answer)))])

    async def embed(input: str, **_: object) -> object:  # noqa: A002  # the name of theirs
        vectors = (await embedder.embed([input])).vectors
        return SimpleNamespace(data=[{"embedding": vectors[0].tolist()}])

    litellm.acompletion, litellm.aembedding = complete, embed


def _answer(prompt: str, task: str) -> object:
    prompts = import_module("omnimemory.core.system_prompts")
    if task == prompts.episodic_memory_constructor_system_prompt:
        return reading_of(prompt).episodic
    if task == prompts.summarizer_memory_constructor_system_prompt:
        return reading_of(prompt).summary
    given = json.loads(prompt[prompt.index("{") :])
    if "linked_memories" in given:
        return decisions([old["memory_id"] for old in given["linked_memories"]])
    notes = [*given["existing_memories"], given["new_memory"]]
    return consolidated([one["natural_memory_note"] for one in notes])


def _environment(port: int, folder: str) -> dict[str, str]:
    asked = {f"{what}_{name}": "bench" for what in ("LLM", "EMBEDDING") for name in ("API_KEY", "MODEL")}
    return asked | {
        "LLM_PROVIDER": "openai",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_DIMENSIONS": str(DIMENSION),
        "OMNI_MEMORY_PROVIDER": "chromadb-remote",
        "CHROMA_HOST": "127.0.0.1",
        "CHROMA_PORT": str(port),
        "LOG_LEVEL": "CRITICAL",
        "LOG_DIR": folder,
        "ANONYMIZED_TELEMETRY": "False",
        # Otherwise it requests prices of models over the network, and waits for the response.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


@asynccontextmanager
async def _opened(port: int, embedder: Embedder) -> AsyncIterator[Any]:
    with TemporaryDirectory() as folder:
        os.environ.update(_environment(port, folder))
        _replace_litellm(embedder)
        sdk = import_module("omnimemory.sdk").OmniMemorySDK()
        if not await sdk.warm_up():
            raise RuntimeError(f"{NAME} does not reach its vector store")
        yield sdk


# -- adding ----------------------------------------------------------------------------------------


@asynccontextmanager
async def note(port: int, app: str) -> AsyncIterator[Call]:
    """Add a memory about a new subject, and wait for its note."""
    numbers = count()
    async with _opened(port, SubjectEmbedder()) as sdk:
        yield lambda _: _finished(sdk, app, 2 * next(numbers))


@asynccontextmanager
async def pair(port: int, app: str) -> AsyncIterator[Call]:
    """Add a memory, wait for its note, add another one about the same, and wait until both are consolidated."""
    numbers = count()
    async with _opened(port, SubjectEmbedder()) as sdk:

        async def call(_: int) -> object:
            number = 2 * next(numbers)
            await _finished(sdk, app, number)
            return await _finished(sdk, app, number + 1, user=user_of(number))

        yield call


async def _finished(sdk: Any, app: str, number: int, user: str = "") -> object:
    make = import_module("omnimemory.core.schemas")
    messages = [make.Message(**message) for message in conversation(number)]
    given = make.UserMessages(app_id=app, user_id=user or user_of(number // 2), session_id=None, messages=messages)
    task = await sdk.add_memory(given)
    done = await sdk._background_tasks[task["task_id"]]  # noqa: SLF001  # it has no other way to wait for a task
    if not done.get("success"):
        raise RuntimeError(f"{NAME} has not made memory {number}: {done}")
    return done


# -- asking ----------------------------------------------------------------------------------------


async def filled(_: WorkerState, port: int, size: int) -> None:
    """Run a job: store the notes for queries, as it would have stored them, in bulk."""
    embedder = HashingEmbedder(DIMENSION)
    async with _opened(port, embedder) as sdk, sdk.memory_manager.connection_pool.get_handler(sdk.llm_connection) as db:
        collection = await db._ensure_collection(QUERIED)  # noqa: SLF001  # it stores one at a time
        for first in range(0, size, _AT_ONCE):
            notes = [note_of(number) for number in range(first, min(first + _AT_ONCE, size))]
            texts = [note.memory_note for note in notes]
            await collection.add(
                ids=[note.id for note in notes],
                embeddings=(await embedder.embed(texts)).vectors.tolist(),
                documents=texts,
                metadatas=[db._serialize_metadata(_metadata(note)) for note in notes],  # noqa: SLF001  # likewise
            )


def _metadata(note: Any) -> dict[str, object]:
    return {
        "document_id": note.id,
        "app_id": QUERIED,
        "user_id": note.user_id,
        "session_id": "none",
        "created_at": note.created_at.isoformat(),
        "updated_at": note.updated_at.isoformat(),
        "embedding_dimensions": DIMENSION,
        "status": "active",
        "status_reason": "created",
        "next_id": None,
        "tags": list(note.tags),
        "keywords": list(note.keywords),
        "text": note.memory_note,
    }


@asynccontextmanager
async def query(port: int) -> AsyncIterator[Call]:
    """Query notes."""
    async with _opened(port, HashingEmbedder(DIMENSION)) as sdk:

        async def call(number: int) -> object:
            found = await sdk.query_memory(app_id=QUERIED, query=question(number))
            if not found:
                raise RuntimeError(f"{NAME} finds nothing")
            return found

        yield call


def app_of(contest: str) -> str:
    """Return an app of its own for each contest: its names must have ten letters."""
    return f"{APP}-{contest}"
