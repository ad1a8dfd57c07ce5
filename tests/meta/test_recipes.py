"""The recipes of docs/recipes.md run as they are: under uvicorn, gunicorn, a Celery worker and in a notebook."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import nbformat
import pytest
from nbclient import NotebookClient
from support.doc_pages import blocks
from support.redis_process import RedisProcess, free_port

from sharedmem import Hub, InvalidError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
RUN_AS = "tests/meta/test_recipes.py runs it as "
PATIENCE_S = 60.0


def sources(name: str) -> list[str]:
    """The blocks of the page that are run under a name."""
    return [block.text for block in blocks(PAGE) if (block.left_out or "") == RUN_AS + name]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    with RedisProcess(tcp=True) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("app.py", "tasks.py"):
        (source,) = sources(name)
        (tmp_path / name).write_text(source, "utf-8")
    return tmp_path


@contextmanager
def running(command: list[str], folder: Path, server: RedisProcess) -> Iterator[subprocess.Popen[str]]:
    """A program of the page; it must end well when it is asked to."""
    environment = os.environ | {"SHAREDMEM_REDIS_URL": server.url}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=environment, stdout=log, stderr=log, text=True
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) in {0, -signal.SIGTERM}, (folder / "log").read_text()
            assert "Traceback" not in (folder / "log").read_text()
        finally:
            process.kill()
            process.wait()


def wait_until_it_answers(client: httpx2.Client, folder: Path) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.get("/statistics")
        except httpx2.TransportError:
            assert time.monotonic() < ends_at, (folder / "log").read_text()
            time.sleep(0.05)  # nothing announces that a port listens
        else:
            return


@pytest.mark.parametrize(
    "command",
    [
        ["uvicorn", "app:app", "--port"],
        ["gunicorn", "app:app", "--worker-class", "asgi", "--workers", "2", "--preload", "--bind"],
    ],
    ids=["uvicorn", "gunicorn"],
)
async def test_an_answer_that_many_ask_for_at_once_is_computed_once(
    command: list[str], folder: Path, server: RedisProcess
) -> None:
    port = free_port()
    question = f"leave-{command[0]}"
    address = str(port) if command[0] == "uvicorn" else f"127.0.0.1:{port}"
    with (
        running([*command, address], folder, server),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        wait_until_it_answers(client, folder)
        before = client.get("/statistics").json()["answers computed"]
        async with httpx2.AsyncClient(base_url=client.base_url, timeout=PATIENCE_S) as clients:
            answers = await asyncio.gather(*(clients.post(f"/answers/{question}") for _ in range(20)))
        computed = client.get("/statistics").json()["answers computed"] - before
        refused = client.post(f"/answers/{'x' * 2000}")

    assert {answer.json()["answer"] for answer in answers} == {f"{question}: ask the team in room 12"}
    assert computed == 1
    assert refused.status_code == InvalidError.codes.http_status


def results_of_celery(folder: Path, server: RedisProcess) -> str:
    """What a program prints that asks for one summary ten times."""
    asking = (
        "import tasks; results = [tasks.summarize.delay('report-7') for _ in range(10)];"
        f"print({{result.get(timeout={PATIENCE_S}) for result in results}})"
    )
    asked = subprocess.run(
        [sys.executable, "-c", asking],
        cwd=folder,
        env=os.environ | {"SHAREDMEM_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    return asked.stdout or asked.stderr


async def test_workers_of_celery_write_a_summary_once(folder: Path, server: RedisProcess) -> None:
    with running(["celery", "--app", "tasks", "worker", "--concurrency", "2", "--loglevel", "WARNING"], folder, server):
        printed = await asyncio.to_thread(results_of_celery, folder, server)

    assert printed == "{'report-7, in short'}\n"
    async with Hub.open(server.url) as hub:
        assert await hub.store("library").shared.read("summaries-written") == 1


def test_a_notebook_opens_a_hub_and_shows_what_it_finds(server: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_REDIS_URL", server.url)
    cells = [*sources("a cell"), "await hub.close()"]
    parts = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells]
    book = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": parts}
    notebook = nbformat.reads(json.dumps(book), as_version=4)  # type: ignore[no-untyped-call]  # it has no types

    NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3").execute()

    shown = notebook.cells[1].outputs[-1]["data"]["text/plain"]
    assert "learning rate of 0.001" in shown
