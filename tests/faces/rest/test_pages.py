"""A browser gets the page of a chain as HTML; programs get JSON as before."""

from __future__ import annotations

import httpx2
import pytest
from support.rest_server import API, open_service

from sharedmem.faces.auth import Bearer

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
TALK = [{"role": "user", "content": "Order <b>A-17</b> goes to 7 Oak Road."}]


@pytest.fixture
async def drawing(http: httpx2.AsyncClient) -> str:
    """The path of the drawing of a note."""
    asked = {"app_id": "shop", "user_id": "ada", "messages": TALK}
    accepted = (await http.post(f"{API}/memories", json=asked)).json()
    done = (await http.get(f"{API}/tasks/{accepted['task_id']}", params={"wait": 30})).json()
    while done["status"] != "done":
        done = (await http.get(f"{API}/tasks/{accepted['task_id']}", params={"wait": 30})).json()
    return f"{API}/memories/{done['result']['memory_id']}/evolution/graph?app_id=shop"


async def test_a_browser_gets_a_page_in_an_origin_of_its_own(http: httpx2.AsyncClient, drawing: str) -> None:
    page = await http.get(f"{drawing}&format=html", headers={"accept": BROWSER})

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    assert "<b>A-17" not in page.text
    assert page.headers["content-security-policy"] == "sandbox allow-scripts"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "accept" in page.headers["vary"]
    whole = (await http.get(f"{drawing}&format=html", headers={"accept": "application/json"})).json()
    assert whole == {"format": "html", "text": page.text}


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/json",
        "text/html;q=0.5, application/json",
        "text/html;q=0.5, application/*;q=0.5",
        "text/html;q=0",
        "text/html;q=lots",
        "text/html;q=nan",
        ";;,,text/*",
        "",
    ],
)
async def test_a_caller_that_does_not_prefer_html_gets_json(
    http: httpx2.AsyncClient, drawing: str, accept: str
) -> None:
    answered = await http.get(f"{drawing}&format=html", headers={"accept": accept})

    assert answered.headers["content-type"] == "application/json"
    assert "accept" in answered.headers["vary"]
    assert answered.json()["format"] == "html"


@pytest.mark.parametrize(
    "accept", ["text/html", "Text/HTML; charset=utf-8, */*;q=0.1", "application/json;q=0.2,text/html"]
)
async def test_html_may_be_asked_for_in_other_words(http: httpx2.AsyncClient, drawing: str, accept: str) -> None:
    answered = await http.get(f"{drawing}&format=html", headers={"accept": accept})

    assert answered.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("format_", ["mermaid", "dot"])
async def test_a_browser_gets_other_formats_as_before(http: httpx2.AsyncClient, drawing: str, format_: str) -> None:
    answered = await http.get(f"{drawing}&format={format_}", headers={"accept": BROWSER})

    assert answered.headers["content-type"] == "application/json"
    assert answered.json()["format"] == format_


async def test_what_is_refused_is_a_problem_for_browsers_too(http: httpx2.AsyncClient, drawing: str) -> None:
    unknown = await http.get(f"{drawing}&format=pdf", headers={"accept": BROWSER})
    missing = await http.get(
        f"{API}/memories/nothing/evolution/graph?app_id=shop&format=html", headers={"accept": BROWSER}
    )

    assert (unknown.status_code, unknown.headers["content-type"]) == (400, "application/problem+json")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


async def test_a_page_takes_a_token_as_everything_does() -> None:
    async with open_service(Bearer.of("team", actor="ada")) as service, service.client() as stranger:
        answered = await stranger.get(
            f"{API}/memories/note-1/evolution/graph?app_id=shop&format=html", headers={"accept": BROWSER}
        )

    assert answered.status_code == 401
