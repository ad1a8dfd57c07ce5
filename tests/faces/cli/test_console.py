"""`sharedmem console`: a link for one person, who may look, or with --write change things under a name."""

from __future__ import annotations

import signal
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.shell import Launch, finish, read_json_line

pytestmark = pytest.mark.usefixtures("hashing_embedder")


@pytest.mark.parametrize("writes", [False, True])
async def test_its_link_is_exchanged_once_for_the_rights_that_were_asked_for(
    launch: Launch, place: tuple[str, ...], writes: bool
) -> None:
    server = launch("console", "--no-browser", "--actor", "vera", *(["--write"] if writes else []), *place)
    shown = read_json_line(server)
    link = urlsplit(str(shown["url"]))
    code = parse_qs(urlsplit(link.fragment).query)["code"][0]
    async with httpx2.AsyncClient(base_url=f"http://{link.netloc}") as calling:
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
