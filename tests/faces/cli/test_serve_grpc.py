"""`sharedmem serve grpc`, and the tokens that it lets in."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.shell import Launch, Shell, finish, on_a_terminal, read_json_line, start

from sharedmem import AccessDeniedError
from sharedmem.faces.auth import TokenFile
from sharedmem.faces.grpc import MemoryClient

WITHOUT_GRPC = "import sys; sys.modules['grpc_health'] = None; from sharedmem.faces.cli import main; main()"
# Once the event loop hears signals, the server is up and has said so.
ENDS_WHEN_SERVED = """
import os, signal, threading, time
from sharedmem.faces.cli import main

def end():
    while getattr(signal.getsignal(signal.SIGTERM), "__name__", "") != "_sighandler_noop":
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end, daemon=True).start()
main()
"""


@pytest.fixture
def serve(launch: Launch, place: tuple[str, ...]) -> Launch:
    """Starts servers in processes of their own; each process ends with the test."""
    return lambda *words: launch("serve", "grpc", "--port", "0", *words, *place)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
async def test_agents_share_a_memory_until_it_is_told_to_end(serve: Launch, shell: Shell, end: signal.Signals) -> None:
    server = serve("--actor", "ada")
    serving = read_json_line(server)

    async with MemoryClient(str(serving["target"])) as memory:
        await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "up")
        assert await memory.decisions.sessions() == ["btc"]
        await memory.decisions.erase("btc")
    server.send_signal(end)
    done = finish(server)

    assert (done.code, done.out, done.err) == (0, "", "")
    assert serving == {
        "target": serving["target"],
        "tls": False,
        "tokens": None,
        "memory": f"unix://{shell.data_dir}/redis.sock?db=0",
        "namespace": shell.namespace,
        "metrics": None,
    }


async def test_the_metrics_of_its_calls_are_on_a_port_of_their_own(serve: Launch) -> None:
    server = serve("--actor", "ada", "--metrics-port", "0")
    serving = read_json_line(server)

    async with MemoryClient(str(serving["target"])) as memory:
        await memory.decisions.save_plan("eth", "ETH", "BUY", 0.5, "up")
        await memory.decisions.erase("eth")
    text = await asyncio.to_thread(fetch, str(serving["metrics"]))

    assert str(serving["metrics"]).startswith("http://127.0.0.1:")
    assert 'sharedmem_grpc_requests_total{method="SavePlan",status="OK"} 1' in text
    assert 'sharedmem_operation_seconds_count{operation="decisions.save_plan"} 1' in text


def fetch(url: str) -> str:
    with urlopen(url) as answer:
        return str(answer.read().decode())


async def test_a_token_of_the_command_opens_the_door(shell: Shell, serve: Launch, tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    made = shell(
        *("token", "create", "--actor", "planner", "--grant", "chat:team*", "--subscribe", "news"), "--file", str(file)
    ).data
    serving = read_json_line(serve("--tokens", str(file)))

    async with MemoryClient(str(serving["target"]), token=made["token"]) as memory:
        assert await memory.publish("chat:team-a", "hello") == 0
        with pytest.raises(AccessDeniedError):
            await memory.publish("chat:other", "hello")
    async with MemoryClient(str(serving["target"])) as memory:
        with pytest.raises(AccessDeniedError, match="no token"):
            await memory.decisions.sessions()

    assert serving["tokens"] == str(file)
    assert made["kept_in"] == str(file)
    assert made["token"] not in file.read_text()


async def test_a_token_of_the_registry_opens_the_door_until_it_is_taken_back(shell: Shell, serve: Launch) -> None:
    made = await asyncio.to_thread(shell, "token", "create", "--actor", "planner")
    serving = read_json_line(serve("--tokens", "registry"))

    async with MemoryClient(str(serving["target"]), token=made.data["token"]) as memory:
        assert await memory.decisions.sessions() == []
        await asyncio.to_thread(shell, "token", "revoke", made.data["id"])
        refused = await refusal(memory)

    assert "not known" in str(refused)
    assert serving["tokens"] == "registry"


async def refusal(memory: MemoryClient) -> AccessDeniedError:
    while True:
        try:
            await memory.decisions.sessions()
        except AccessDeniedError as refused:
            return refused


async def test_a_token_is_shown_with_the_entry_to_keep(shell: Shell, tmp_path: Path) -> None:
    made = (await asyncio.to_thread(shell, "token", "create", "--actor", "planner")).data

    file = tmp_path / "tokens.json"
    file.write_text(json.dumps([made["entry"]]))
    bearer = await TokenFile.read(file).admit(f"Bearer {made['token']}")
    assert (bearer.namespace, bearer.actor) == (shell.namespace, "planner")
    assert made["kept_in"] == "registry"


def test_people_see_how_to_go_on(data_dir: Path, tmp_path: Path) -> None:
    place = ("--data-dir", str(data_dir))

    screen = on_a_terminal("token", "create", "--actor", "planner", "--expires-in", "2h", *place).out
    file = str(tmp_path / "t.yaml")
    added = on_a_terminal("token", "create", "--whole-namespace", "--file", file, *place).out
    listed = on_a_terminal("token", "list", "--file", file, *place).out

    assert "shown this once" in screen
    assert "the registry" in screen
    assert "good until" in screen
    assert "t.yaml" in added
    assert "(all)" in listed


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["serve", "grpc", "--tokens", "nowhere.yaml"], 9, "'tokens' (from file nowhere.yaml): it cannot be read"),
        (["serve", "grpc", "--host", "0.0.0.0"], 9, "give tokens and a certificate with its key"),
        (["serve", "grpc", "--tls-cert", "c.pem"], 9, "give both or none"),
        (["serve", "grpc", "--max-message-bytes", "1"], 9, "'max_message_bytes'"),
        (["serve", "grpc", "--port", "70000"], 9, "'port'"),
        (["token", "create"], 2, "name the actor of the token with --actor"),
        (["token", "create", "--actor", "a", "--whole-namespace"], 2, "name the actor of the token with --actor"),
        (["token", "create", "--actor", "a b"], 2, "leave out blanks"),
        (["token", "create", "--actor", "a", "--grant", "plain"], 2, "<namespace>:<scope>:<identifier>"),
        (["token", "create", "--actor", "a", "--rate", "often"], 2, "100/s"),
        (["token", "create", "--actor", "a", "--rate", "0/s"], 2, "100000 calls"),
        (["token", "create", "--actor", "a", "--burst", "3"], 2, "it goes with --rate"),
        (["token", "create", "--actor", "a", "--expires-in", "soon"], 2, "90s, 15min, 12h, 30d"),
        (["token", "create", "--actor", "a", "--expires-in", "0d"], 2, "still to come"),
        (["token", "create", "--actor", "a", "--label", "x" * 201], 2, "200 characters"),
        (["token", "create", "--actor", "a", "--file", "no/such/folder"], 9, "cannot be written"),
        (["token", "revoke", "abc"], 3, "`sharedmem token list` shows"),
        (["token", "list", "--file", "nowhere.yaml"], 9, "it cannot be read"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(shell: Shell, words: list[str], code: int, says: str) -> None:
    done = shell(*words)

    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_port_in_use_is_told_in_one_sentence(serve: Launch, data_dir: Path) -> None:
    port = str(read_json_line(serve())["target"]).rpartition(":")[2]

    done = finish(start("serve", "grpc", "--port", port, "--data-dir", str(data_dir)))

    assert done.code == 9
    assert done.err.startswith(f"sharedmem: setting 'port' (from argument): cannot listen at 127.0.0.1:{port}")
    assert done.err.count("\n") == 1


def test_without_the_extra_one_sentence_says_what_to_install(data_dir: Path) -> None:
    done = finish(start("serve", "grpc", "--data-dir", str(data_dir), program=WITHOUT_GRPC))

    assert done.code == 8
    assert done.err == "sharedmem: the gRPC face is not available here: pip install 'sharedmem-hub[grpc]'\n"


def test_a_terminal_shows_how_to_try_it(data_dir: Path) -> None:
    done = on_a_terminal("serve", "grpc", "--port", "0", "--data-dir", str(data_dir), program=ENDS_WHEN_SERVED)

    assert done.code == 0
    assert "gRPC is served" in done.out
    assert "MemoryClient(" in done.out
