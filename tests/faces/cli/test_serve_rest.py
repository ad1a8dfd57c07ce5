"""`sharedmem serve rest`: where it says that it is, whom it lets in, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import httpx2
import pytest
from support.shell import Launch, Shell, finish, on_a_terminal, read_json_line, start

from sharedmem import AccessDeniedError
from sharedmem.client import SharedMemoryClient

FINDINGS = "/api/v1/store/values/findings"
MESSAGES = [{"role": "user", "content": "My delivery address is Elm Street 4, Leeds."}]
START_MCP = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
WITHOUT_REST = "import sys; sys.modules['starlette'] = None; from sharedmem.faces.cli import main; main()"
# Once a process handles signals, the server is up and has said so; every event loop does that in its own way.
ENDS_WHEN_SERVED = """
import os, signal, threading, time
from sharedmem.faces.cli import main

def end():
    while "sighandler" not in getattr(signal.getsignal(signal.SIGTERM), "__name__", ""):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end, daemon=True).start()
main()
"""

pytestmark = pytest.mark.usefixtures("hashing_embedder")


@pytest.fixture
def serve(launch: Launch, place: tuple[str, ...]) -> Launch:
    """Starts servers in processes of their own; each process ends with the test."""
    return lambda *words: launch("serve", "rest", "--port", "0", *words, *place)


async def test_everything_is_served_until_it_is_told_to_end(serve: Launch, shell: Shell) -> None:
    server = serve("--actor", "ada")
    serving = read_json_line(server)
    url = str(serving["url"])

    async with SharedMemoryClient(url) as memory:
        version = await memory.call("value.write", key="findings", value={"topic": "tides"})
        task = await memory.add_memory(app_id="shop", user_id="ada", messages=MESSAGES)
        done = await memory.wait(task.task_id, timeout=60)
    async with httpx2.AsyncClient(base_url=url, timeout=60) as calling:
        read = await calling.get(FINDINGS)
        health = await calling.get("/health")
    server.send_signal(signal.SIGTERM)
    ended = finish(server)

    assert serving == {
        "url": url,
        "tls": False,
        "tokens": None,
        "memory": f"unix://{shell.data_dir}/redis.sock?db=0",
        "namespace": shell.namespace,
        "workers": 1,
        "mcp": None,
        "console": None,
    }
    assert (read.json()["key"], read.headers["etag"]) == (f"{shell.namespace}:ada:findings", f'"{version}"')
    assert done.status == "done"
    assert health.json()["status"] == "ready"
    assert (ended.code, ended.out, ended.err) == (0, "", "")


async def test_two_processes_let_in_those_whose_tokens_are_known_and_end_together(
    serve: Launch, shell: Shell, tmp_path: Path
) -> None:
    file, origin = tmp_path / "tokens.yaml", "https://app.example.org"
    kept = (await asyncio.to_thread(shell, "token", "create", "--actor", "planner")).data
    filed = (await asyncio.to_thread(shell, "token", "create", "--actor", "page", "--file", str(file))).data
    words = ("--tokens", "registry", "--tokens", str(file), "--cors", origin, "--max-body-mib", "1")
    server = serve("--workers", "2", *words)
    serving = read_json_line(server)
    url = str(serving["url"])

    async with SharedMemoryClient(url, token=kept["token"]) as memory:
        versions = [await memory.call("value.write", key="plan", value=n) for n in range(8)]
        await asyncio.to_thread(shell, "token", "revoke", kept["id"])
        refused = await refusal(memory)
    async with SharedMemoryClient(url) as stranger:
        with pytest.raises(AccessDeniedError, match="no token"):
            await stranger.get_connection_pool_stats()
    async with httpx2.AsyncClient(
        base_url=url, headers={"authorization": f"Bearer {filed['token']}"}, timeout=60
    ) as page:
        welcome = await page.get(f"/api/v1/store/values/{shell.namespace}:planner:plan", headers={"origin": origin})
        elsewhere = await page.get(FINDINGS, headers={"origin": "https://elsewhere.example.org"})
        large = await page.put(FINDINGS, content=b" " * (1 << 20) + b"{}", headers={"content-type": "application/json"})
    children = children_of(server.pid)
    server.send_signal(signal.SIGTERM)
    ended = finish(server)

    assert (serving["workers"], serving["tokens"]) == (2, f"registry and {file}")
    assert "not known" in str(refused)
    assert (welcome.json()["value"], welcome.json()["version"]) == (7, versions[-1])
    assert welcome.headers["access-control-allow-origin"] == origin
    assert "access-control-allow-origin" not in elsewhere.headers
    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
    assert len(children) == 2
    assert (ended.code, ended.out) == (0, "")
    assert not any(map(is_there, children))


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_there(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


async def refusal(memory: SharedMemoryClient) -> AccessDeniedError:
    while True:
        try:
            await memory.get_connection_pool_stats()
        except AccessDeniedError as refused:
            return refused


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tokens", "nowhere.yaml"], "'tokens' (from file nowhere.yaml): it cannot be read"),
        (["--host", "0.0.0.0"], "give tokens and a certificate with its key"),
        (["--host", "0.0.0.0", "--tokens", "registry"], "give tokens and a certificate with its key"),
        (["--tls-cert", "c.pem"], "give both or none"),
        (["--tls-cert", "c.pem", "--tls-key", "k.pem"], "it cannot be read"),
        (["--port", "70000"], "'port'"),
    ],
)
def test_a_server_that_would_not_do_is_not_started(shell: Shell, words: list[str], says: str, workers: str) -> None:
    done = shell("serve", "rest", *words, "--workers", workers)

    assert (done.code, done.out) == (9, "")
    assert says in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_tokens_are_refused_where_every_token_would_have_all_rights(shell: Shell, workers: str) -> None:
    shell.patch.setenv("SHAREDMEM_ACCESS", "open")

    done = shell("serve", "rest", "--tokens", "registry", "--workers", workers)

    assert (done.code, done.out) == (9, "")
    assert "tokens would separate no callers" in done.err


@pytest.mark.parametrize("workers", ["0", "257"])
def test_there_are_one_or_more_processes(shell: Shell, workers: str) -> None:
    done = shell("serve", "rest", "--workers", workers)

    assert (done.code, done.out) == (2, "")
    assert done.err == f"sharedmem: workers {workers} is refused: give 1 to 256\n"


def test_a_port_in_use_is_told_in_one_sentence(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for workers in ("1", "2"):
            done = shell("serve", "rest", "--port", str(port), "--workers", workers)

            assert (done.code, done.out) == (9, "")
            assert f"cannot listen at 127.0.0.1:{port}" in done.err
            assert done.err.count("\n") == 1


def test_without_the_extra_one_sentence_says_what_to_install(data_dir: Path) -> None:
    done = finish(start("serve", "rest", "--data-dir", str(data_dir), program=WITHOUT_REST))

    assert done.code == 8
    assert "pip install 'sharedmem-hub[server]'" in done.err
    assert done.err.count("\n") == 1


def test_serving_without_more_words_serves_rest_and_shows_a_line_to_try(data_dir: Path) -> None:
    done = on_a_terminal("serve", "--port", "0", "--data-dir", str(data_dir), program=ENDS_WHEN_SERVED)

    assert done.code == 0
    assert "curl http://127.0.0.1:" in done.out
    assert "/openapi.json" in done.out
    assert "every user of this machine" in done.out


async def test_mcp_is_served_beside_rest_and_for_readers_unless_it_may_write(serve: Launch) -> None:
    server = serve("--mcp")
    serving = read_json_line(server)
    listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    async with httpx2.AsyncClient(base_url=str(serving["url"]), timeout=60) as calling:
        opened = await calling.post("/mcp", json=START_MCP, headers=headers)
        session = headers | {"mcp-session-id": opened.headers["mcp-session-id"]}
        tools = await calling.post("/mcp", json=listed, headers=session)
        health = await calling.get("/health")
    server.send_signal(signal.SIGTERM)

    assert serving["mcp"] == f"{serving['url']}/mcp"
    assert '"name":"read_value"' in tools.text
    assert '"name":"write_value"' not in tools.text
    assert health.status_code == 200
    assert finish(server).code == 0


def test_writing_over_mcp_needs_mcp(serve: Launch) -> None:
    ended = finish(serve("--mcp-write"))
    assert ended.code == 2
    assert "--mcp" in ended.err
