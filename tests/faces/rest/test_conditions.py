"""Versions and repeats over HTTP: ETag, If-Match, If-None-Match, and Idempotency-Key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from support.rest_server import API, ServiceHarness, client_of_app, open_service

from sharedmem import Settings
from sharedmem.faces.auth import Bearer
from sharedmem.faces.rest import create_app
from sharedmem.testing import fake_hub

VALUE = f"{API}/store/values/plan"
LIST = f"{API}/store/lists/log"
ADA, BOB = Bearer.of("team", actor="ada"), Bearer.of("team", actor="bob")


@pytest.fixture
async def team() -> AsyncIterator[ServiceHarness]:
    async with open_service(ADA, BOB) as open_desk:
        yield open_desk


def code(answered: httpx2.Response) -> object:
    return answered.json()["code"]


# -- versions -------------------------------------------------------------------------------------


async def test_the_tag_of_a_value_is_its_version(http: httpx2.AsyncClient) -> None:
    written = await http.put(VALUE, json={"value": {"step": 1}})
    read = await http.get(VALUE)

    assert written.headers["etag"] == read.headers["etag"] == f'"{written.json()["version"]}"'
    assert read.json()["value"] == {"step": 1}


async def test_a_value_that_is_known_is_not_sent_again(http: httpx2.AsyncClient) -> None:
    tag = (await http.put(VALUE, json={"value": 1})).headers["etag"]

    for known in (tag, f"W/{tag}", f'"1", {tag}', "*"):
        same = await http.get(VALUE, headers={"if-none-match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (await http.get(VALUE, headers={"if-none-match": '"1"'})).status_code == 200


async def test_only_the_first_of_two_who_have_read_the_same_writes(http: httpx2.AsyncClient) -> None:
    tag = (await http.put(VALUE, json={"value": 1})).headers["etag"]

    first = await http.put(VALUE, json={"value": 2}, headers={"if-match": tag})
    second = await http.put(VALUE, json={"value": 3}, headers={"if-match": tag})

    assert first.status_code == 200
    assert (second.status_code, code(second)) == (412, "precondition_failed")
    assert (await http.get(VALUE + "/value")).json() == {"value": 2}


async def test_of_those_who_make_a_value_one_succeeds(http: httpx2.AsyncClient) -> None:
    tries = [http.put(VALUE, json={"value": number}, headers={"if-none-match": "*"}) for number in range(5)]

    statuses = sorted([answered.status_code for answered in await asyncio.gather(*tries)])

    assert statuses == [201, 412, 412, 412, 412]


async def test_a_write_may_demand_that_there_is_a_value(http: httpx2.AsyncClient) -> None:
    absent = await http.put(VALUE, json={"value": 1}, headers={"if-match": "*"})
    await http.put(VALUE, json={"value": 1})
    present = await http.put(VALUE, json={"value": 2}, headers={"if-match": "*"})

    assert (absent.status_code, present.status_code) == (412, 200)


async def test_a_read_may_demand_a_version(http: httpx2.AsyncClient) -> None:
    tag = (await http.put(VALUE, json={"value": 1})).headers["etag"]

    assert (await http.get(VALUE, headers={"if-match": tag})).status_code == 200
    assert (await http.get(VALUE, headers={"if-match": '"1"'})).status_code == 412


async def test_a_conflict_without_a_condition_in_the_headers_stays_a_conflict(http: httpx2.AsyncClient) -> None:
    await http.put(VALUE, json={"value": 1})

    refused = await http.put(VALUE, json={"value": 2, "if_version": 7})

    assert (refused.status_code, code(refused)) == (409, "version_conflict")


@pytest.mark.parametrize(
    "headers",
    [
        {"if-match": "7"},
        {"if-match": 'W/"7"'},
        {"if-match": '"seven"'},
        {"if-match": '"7", "8"'},
        {"if-match": '"1234567890123456789012"'},
        {"if-none-match": '"7"'},
        {"if-none-match": "*", "if-match": '"7"'},
    ],
)
async def test_a_condition_that_cannot_be_held_to_is_refused(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    assert (await http.put(VALUE, json={"value": 1}, headers=headers)).status_code == 400
    assert (await http.get(VALUE + "/value")).status_code == 404


async def test_a_condition_is_not_ignored_where_nothing_goes_by_versions(http: httpx2.AsyncClient) -> None:
    await http.put(VALUE, json={"value": 1})

    refused = await http.delete(VALUE, headers={"if-match": '"1"'})

    assert refused.status_code == 400
    assert (await http.get(VALUE)).status_code == 200


# -- repeats --------------------------------------------------------------------------------------


async def test_a_repeated_post_is_done_once_and_answered_alike(http: httpx2.AsyncClient) -> None:
    first, again = [await http.post(LIST, json={"value": 1}, headers={"idempotency-key": "a"}) for _ in range(2)]

    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    assert first.headers["x-request-id"] != again.headers["x-request-id"]
    assert (await http.get(LIST)).json() == {"items": [1]}


async def test_a_large_answer_is_repeated_and_its_work_done_once(http: httpx2.AsyncClient) -> None:
    """docs/rest.md: an answer over 256 KiB is in the blob store."""
    for letter in "xyz":
        await http.post(f"{API}/store/sets/s", json={"values": [letter * 262_100]})

    popped = [await http.post(f"{API}/store/sets/s/pop", headers={"idempotency-key": "a"}) for _ in range(3)]

    assert [one.status_code for one in popped] == [200, 200, 200]
    assert popped[0].json() == popped[1].json() == popped[2].json()
    assert popped[2].headers["idempotency-replayed"] == "true"
    assert (await http.get(f"{API}/store/sets/s/size")).json() == {"size": 2}


async def test_work_whose_answer_cannot_be_kept_is_told_as_done_and_not_done_again(tmp_path: Path) -> None:
    (tmp_path / "no folder").touch()
    settings = Settings(access="open", blob_dir=tmp_path / "no folder")
    async with fake_hub(settings=settings) as hub, client_of_app(create_app(hub, admission="open_to_all")) as http:
        await http.post(f"{API}/store/sets/s", json={"values": ["x" * 262_100, "y" * 262_100]})

        first, again = [await http.post(f"{API}/store/sets/s/pop", headers={"idempotency-key": "a"}) for _ in range(2)]

        assert (first.status_code, len(first.json()["value"])) == (200, 262_100)
        assert (again.status_code, code(again)) == (410, "answer_not_kept")
        assert (await http.get(f"{API}/store/sets/s/size")).json() == {"size": 1}


async def test_an_answer_without_a_body_is_repeated_too(http: httpx2.AsyncClient) -> None:
    await http.post(f"{API}/queues/q/tasks", json={"payload": 1})
    task = (await http.post(f"{API}/queues/q/claim")).json()["task"]
    url, body, key = f"{API}/queues/q/tasks/{task['id']}/ack", {"token": task["token"]}, {"idempotency-key": "a"}

    answered = [await http.post(url, json=body, headers=key) for _ in range(2)]

    assert [one.status_code for one in answered] == [204, 204]


@pytest.mark.parametrize(("path", "body"), [(LIST, {"value": 2}), (LIST + "2", {"value": 1})])
async def test_a_key_stands_for_one_request(http: httpx2.AsyncClient, path: str, body: dict[str, int]) -> None:
    await http.post(LIST, json={"value": 1}, headers={"idempotency-key": "a"})

    other = await http.post(path, json=body, headers={"idempotency-key": "a"})

    assert (other.status_code, code(other)) == (422, "idempotency_key_reused")


async def test_what_fails_may_be_tried_again_under_its_key(http: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "a"}
    failed = await http.post(f"{API}/store/sets/s/pop", headers=key)
    await http.post(f"{API}/store/sets/s", json={"values": [1]})

    assert (failed.status_code, code(failed)) == (404, "not_found")
    assert (await http.post(f"{API}/store/sets/s/pop", headers=key)).json() == {"value": 1}


async def test_while_a_request_is_answered_its_repeat_is_told_to_wait(http: httpx2.AsyncClient) -> None:
    calls = [http.post(LIST, json={"value": 1}, headers={"idempotency-key": "a"}) for _ in range(8)]

    answered = await asyncio.gather(*calls)

    assert {one.status_code for one in answered} <= {200, 409}
    for one in answered:
        if one.status_code == 409:
            assert (code(one), one.headers["retry-after"]) == ("request_under_way", "1")
    assert (await http.get(LIST)).json() == {"items": [1]}


async def test_a_lock_that_is_held_is_no_request_under_way(http: httpx2.AsyncClient) -> None:
    await http.post(f"{API}/locks/index")

    refused = await http.post(f"{API}/locks/index", headers={"idempotency-key": "a"})

    assert code(refused) == "lock_held"


async def test_keys_of_different_callers_do_not_meet(team: ServiceHarness) -> None:
    path, key = f"{API}/store/lists/team:shared:log", {"idempotency-key": "a"}
    async with team.client("team/ada") as ada, team.client("team/bob") as bob:
        told = [await one.post(path, json={"value": 1}, headers=key) for one in (ada, bob, ada)]

    assert [one.json()["length"] for one in told] == [1, 2, 1]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x7fb"])
async def test_a_key_that_is_none_is_refused(http: httpx2.AsyncClient, key: str) -> None:
    refused = await http.post(LIST, json={"value": 1}, headers={"idempotency-key": key})

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "idempotency-key")


async def test_a_search_takes_no_notice_of_a_key(http: httpx2.AsyncClient) -> None:
    for word in ("lease", "rent"):
        found = await http.post(f"{API}/memory/search", json={"query": word}, headers={"idempotency-key": "a"})
        assert found.status_code == 200


async def test_a_value_without_a_version_cannot_be_what_a_write_matches(http: httpx2.AsyncClient) -> None:
    await http.post(f"{API}/store/counters/plan/increment", json={"by": 5})

    for tag in ("*", '"0"'):
        refused = await http.put(VALUE, json={"value": 1}, headers={"if-match": tag})
        assert (refused.status_code, code(refused)) == (412, "precondition_failed")
        assert "written without If-Match" in refused.json()["detail"]
    new = await http.put(VALUE, json={"value": 1}, headers={"if-none-match": "*"})
    assert new.status_code == 412
    assert "holds a value without a version" in new.json()["detail"]
    assert (await http.get(VALUE)).json()["value"] == 5
