"""`sharedmem console`: a link for one person, who may look, or with --write change things under a name."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.redis_process import RedisProcess
from support.shell import Launch, Shell, ShellResult, finish, read_json_line, start

WITHOUT_REST = "import sys; sys.modules['starlette'] = None; from sharedmem.faces.cli import main; main()"

pytestmark = pytest.mark.usefixtures("hashing_embedder")


@pytest.mark.parametrize("writes", [False, True])
async def test_its_link_is_exchanged_once_for_the_rights_that_were_asked_for(
    launch: Launch, place: tuple[str, ...], writes: bool
) -> None:
    server = launch("console", "--no-browser", "--actor", "vera", *(["--write"] if writes else []), *place)
    shown = read_json_line(server)
    link = urlsplit(str(shown["url"]))
    code = parse_qs(urlsplit(link.fragment).query)["code"][0]
    async with httpx2.AsyncClient(base_url=f"http://{link.netloc}", timeout=60) as calling:
        page = await calling.get(link.path)
        stranger = await calling.get("/api/v1/caller")
        wrong = await calling.post("/console/login", json={"code": "x"})
        token = (await calling.post("/console/login", json={"code": code})).json()["token"]
        again = await calling.post("/console/login", json={"code": code})
        headers = {"authorization": f"Bearer {token}"}
        caller = (await calling.get("/api/v1/caller", headers=headers)).json()
        written = await calling.put("/api/v1/store/values/plan", json={"value": 1}, headers=headers)
    server.send_signal(signal.SIGTERM)
    ended = finish(server)

    assert (page.status_code, stranger.status_code, wrong.status_code, again.status_code) == (200, 401, 401, 401)
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert (caller["actor"], caller["read_only"], caller["label"]) == ("vera", not writes, "console")
    assert written.status_code == (200 if writes else 403)
    assert ended.code == 0
    assert token not in ended.out + ended.err


def assert_one_sentence(done: ShellResult, code: int, words: str) -> None:
    """A newcomer reads one line, and nothing of Python."""
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_sentence(shell("console", "--no-browser", "--port", str(port)), 9, f"127.0.0.1:{port}")


def test_a_server_that_is_away_is_named() -> None:
    done = finish(start("console", "--no-browser", "--url", "redis://127.0.0.1:1"))

    assert_one_sentence(done, 7, "Redis at redis://127.0.0.1:1: [Errno 111] Connection refused; is it running")


def test_a_wrong_password_is_told_and_never_repeated() -> None:
    with RedisProcess(tcp=True, password="right") as redis:
        done = finish(start("console", "--no-browser", "--url", f"redis://:guessed@127.0.0.1:{redis.port}"))

    assert_one_sentence(done, 9, "user or password is wrong")
    assert "guessed" not in done.err


def test_without_the_extra_one_sentence_says_what_to_install(data_dir: Path) -> None:
    done = finish(start("console", "--data-dir", str(data_dir), program=WITHOUT_REST))

    assert_one_sentence(done, 8, "pip install 'sharedmem-hub[server]'")


def test_ctrl_c_ends_it_without_a_word(launch: Launch, place: tuple[str, ...]) -> None:
    server = launch("console", "--no-browser", *place)
    read_json_line(server)
    server.send_signal(signal.SIGINT)
    ended = finish(server)

    assert (ended.code, ended.err) == (0, "")
