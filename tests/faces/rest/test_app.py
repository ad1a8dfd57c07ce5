"""The REST service answers as the library does, and says what is wrong in one way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from faces.test_operations import NEEDS_AN_ACTOR, STEPS
from pydantic import TypeAdapter
from support import embedded_fixtures
from support.rest_server import API, ServiceHarness, client_of_app, format_operation_request, open_service

from sharedmem import ConfigError, Hub, InvalidError, Settings
from sharedmem.api.memory import MemoryFieldChanges
from sharedmem.api.operation import operations
from sharedmem.faces.auth import Bearer
from sharedmem.faces.rest import Call, RestOptions, create_app
from sharedmem.faces.rest.problems import problem_response
from sharedmem.models import MemoryItem
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir
ADA, BOB = Bearer.of("team", actor="ada"), Bearer.of("team", actor="bob")
STRANGER = Bearer.of("others", actor="eve")


@pytest.fixture
async def team() -> AsyncIterator[ServiceHarness]:
    async with open_service(ADA, BOB, STRANGER) as open_desk:
        yield open_desk


async def told(answered: httpx2.Response) -> dict[str, Any]:
    """What a problem says, which is sound as such."""
    assert answered.headers["content-type"] == "application/problem+json", answered.text
    body: dict[str, Any] = answered.json()
    assert body["status"] == answered.status_code
    assert body["type"] == f"urn:sharedmem:problem:{body['code']}"
    assert body["request_id"] == answered.headers["x-request-id"]
    assert body["title"]
    return body


# -- the table ------------------------------------------------------------------------------------


async def test_every_operation_answers_over_http_what_it_answers_in_python(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, embedded_modules=(), embedder="hashing", namespace="n", access="open")
    async with (
        Hub.open(settings=settings) as hub,
        client_of_app(create_app(hub, admission="open_to_all", terms=RestOptions(longest_wait_s=30))) as calling,
    ):
        before: dict[str, Any] = {}
        for name, parameters, expected in STEPS:
            if name in NEEDS_AN_ACTOR:
                continue
            fields = parameters(before) if callable(parameters) else parameters
            answered = await calling.request(**format_operation_request(name, fields))
            answer = before[name] = _answer(name, answered)
            assert expected(answer) if callable(expected) else answer == expected, (name, answered.text)


def _answer(name: str, answered: httpx2.Response) -> Any:
    row, route = operations()[name], operations()[name].http
    if answered.status_code == 204 or (route.absent and answered.status_code == 404):
        return None
    assert answered.is_success, (name, answered.text)
    adapter: TypeAdapter[Any] = TypeAdapter(cast("type[Any]", row.gives))
    if route.paging in {"names", "recent"}:
        return adapter.validate_python(answered.json()["items"])
    if route.paging:
        page = answered.json()
        return adapter.validate_python(
            page | {"cursor": page.pop("next_cursor") or ("" if "total" not in page else None)}
        )
    body = answered.json()
    assert isinstance(body, dict)
    return adapter.validate_python(body[row.answer] if row.answer else body)


async def test_an_actor_is_present_for_as_long_as_it_says_so(team: ServiceHarness) -> None:
    async with team.client("team/ada") as ada, team.client("team/bob") as bob:
        assert (await ada.put(f"{API}/presence", json={"role": "planner", "ttl": 60})).is_success

        (present,) = (await bob.get(f"{API}/presence")).json()["items"]
        assert (present["actor"], present["role"]) == ("ada", "planner")
        assert (await ada.delete(f"{API}/presence")).json() == {"left": True}
        assert (await bob.get(f"{API}/presence")).json() == {"items": []}


@pytest.mark.parametrize("key", ["a/b", "ümlaut/日本", "100%", "a b+c", "%2F", "?x=1#y", "value", ".hidden"])
async def test_a_key_may_hold_what_paths_are_made_of(http: httpx2.AsyncClient, key: str) -> None:
    written = await http.request(**format_operation_request("value.write", {"key": key, "value": key}))
    assert written.status_code == 200

    read = await http.request(**format_operation_request("value.read", {"key": key}))

    assert read.json() == {"value": key}


async def test_an_absolute_key_is_one_part_of_the_path(team: ServiceHarness) -> None:
    async with team.client("team/ada") as ada, team.client("team/bob") as bob:
        assert (await ada.put(f"{API}/store/values/plan", json={"value": 1})).status_code == 200

        assert (await bob.get(f"{API}/store/values/team:ada:plan/value")).json() == {"value": 1}
        assert (await bob.get(f"{API}/store/values/team%3Aada%3Aplan/value")).json() == {"value": 1}


async def test_a_lock_is_taken_kept_and_given_back_call_by_call(http: httpx2.AsyncClient) -> None:
    taken = (await http.post(f"{API}/locks/index", json={"lease": 60})).json()
    refused = await http.post(f"{API}/locks/index")
    kept = await http.put(f"{API}/locks/index/{taken['id']}", json={"lease": 90})

    assert (await told(refused))["code"] == "lock_held"
    assert (kept.json()["token"], kept.json()["remaining"]) == (taken["token"], 90)
    assert (await http.delete(f"{API}/locks/index/{taken['id']}")).json() == {"released": True}
    assert (await told(await http.put(f"{API}/locks/index/{taken['id']}")))["code"] == "lock_lost"
    assert (await told(await http.delete(f"{API}/locks/index/nonsense")))["status"] == 400


async def test_work_is_done_once_by_callers_in_any_language(team: ServiceHarness) -> None:
    async with team.client("team/ada") as ada, team.client("team/bob") as bob:
        begun = (await ada.post(f"{API}/once/report", json={"lease": 60})).json()
        refused = await bob.post(f"{API}/once/report")
        finished = {"token": begun["token"], "result": {"sum": 3}}
        assert (await ada.post(f"{API}/once/report/finish", json=finished)).status_code == 204
        done = (await bob.post(f"{API}/once/report")).json()
        late = await bob.post(f"{API}/once/report/finish", json=finished)

    assert (begun["done"], begun["attempt"]) == (False, 1)
    assert (await told(refused))["code"] == "lock_held"
    assert (done["done"], done["result"]) == (True, {"sum": 3})
    assert (await told(late))["code"] == "claim_lost"


@pytest.mark.parametrize(
    ("former", "now"),
    [
        (("GET", "/memory/use?limit=3"), "/memory/uses"),
        (("POST", "/graph/acme%3Aada/ask"), "/graph/acme%3Aada/search"),
    ],
)
async def test_a_former_route_is_answered_and_says_which_to_use(
    http: httpx2.AsyncClient, former: tuple[str, str], now: str
) -> None:
    method, path = former
    answered = await http.request(method, API + path, json={"query": "where?"} if method == "POST" else None)

    assert answered.is_success, answered.text
    assert answered.headers["deprecation"] == "@1795392000"
    assert answered.headers["link"] == f'<{API}{now}>; rel="successor-version"'
    assert "deprecation" not in (await http.get(f"{API}/memory/uses")).headers


async def test_a_former_route_says_so_when_it_refuses_too(http: httpx2.AsyncClient) -> None:
    refused = await http.get(f"{API}/memory/use?limit=0")

    assert (await told(refused))["status"] == 400
    assert "deprecation" in refused.headers


async def test_no_call_waits_longer_than_a_connection_lasts(http: httpx2.AsyncClient) -> None:
    claimed = await http.post(f"{API}/queues/mail/claim", json={"wait": None})

    assert (claimed.status_code, claimed.json()) == (200, {"task": None})


# -- who calls ------------------------------------------------------------------------------------


async def test_without_a_known_token_nothing_is_answered(team: ServiceHarness) -> None:
    async with team.client() as nobody, client_of_app(team.app, "smt_guessed") as guesser:
        for calling in (nobody, guesser):
            refused = await calling.get(f"{API}/presence")

            assert (await told(refused))["code"] == "unauthenticated"
            assert refused.headers["www-authenticate"].startswith("Bearer")
            assert "smt_guessed" not in refused.text


async def test_a_token_sees_its_own_tenant_only(team: ServiceHarness) -> None:
    async with team.client("team/ada") as ada, team.client("others/eve") as eve:
        await ada.put(f"{API}/store/values/plan", json={"value": "secret"})

        assert (await told(await eve.get(f"{API}/store/values/plan")))["status"] == 404
        refused = await eve.get(f"{API}/store/values/team:ada:plan")
        assert (await told(refused))["status"] == 403


async def test_a_gate_refuses_and_says_when_to_come_again() -> None:
    from sharedmem import LimitedError

    async def gate(call: Call) -> dict[str, str]:
        if call.params.get("key") == "often":
            raise LimitedError("this token may call once", 2.5)
        return {"ratelimit": "left"}

    async with (
        fake_hub(settings=Settings(access="open")) as hub,
        client_of_app(create_app(hub, admission="open_to_all", gate=gate)) as calling,
    ):
        refused = await calling.get(f"{API}/store/values/often")
        let_in = await calling.get(f"{API}/store/values/rarely")

    assert (await told(refused))["retry_after"] == 2.5
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3")
    assert (let_in.status_code, let_in.headers["ratelimit"]) == (404, "left")


# -- what is wrong --------------------------------------------------------------------------------


async def test_what_is_wrong_with_fields_is_told_by_their_paths_and_never_quoted(http: httpx2.AsyncClient) -> None:
    item = {"memory": ["hunter2"], "category": {"password": "hunter2"}}
    refused = await http.post(f"{API}/memory/items", json={"item": item, "hunter": "hunter2"})

    body = await told(refused)
    assert refused.status_code == 400
    assert {one["field"] for one in body["errors"]} == {"item.memory", "item.category", "hunter"}
    assert "hunter2" not in refused.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "no_such_path"),
        ("GET", API + "/nope", 404, "no_such_path"),
        ("GET", API + "/store/values/", 404, "no_such_path"),
        ("PATCH", API + "/presence", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", API + "/store/values/k", 404, "not_found"),
        ("GET", API + "/store/values/%ff", 400, "invalid"),
        ("GET", API + "/store/keys?pattern=a&pattern=b", 400, "invalid"),
        ("GET", API + "/store/keys?pattern=%ff", 400, "invalid"),
        ("GET", API + "/store/keys?patern=x", 400, "invalid"),
        ("GET", API + "/store/keys?limit=0", 400, "invalid"),
        ("GET", API + "/store/keys?limit=many", 400, "invalid"),
        ("GET", API + "/store/keys?cursor=*", 400, "invalid"),
        ("GET", API + "/store/scan?cursor=18446744073709551616", 400, "invalid"),
        ("GET", API + "/memory/items?filters=%7B", 400, "invalid"),
        ("GET", API + "/memory/items?filters=0", 400, "invalid"),
        ("GET", API + "/memory/stats?filters=true", 400, "invalid"),
        ("GET", API + "/store/lists/l?start=one", 400, "invalid"),
        ("GET", API + "/memory/items/gone", 404, "not_found"),
        ("DELETE", API + "/store/hashes/h/fields", 400, "invalid"),
    ],
)
async def test_each_refusal_is_a_problem(
    http: httpx2.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    body = await told(await http.request(method, path))

    assert (body["status"], body["code"]) == (status, code)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"[1]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"value": "\xff"}', "application/json", 400),
        (b'{"value": "\\ud800"}', "application/json", 400),
        (b'{"value": NaN}', "application/json", 400),
        (b'{"value": ' + b"[" * 70 + b"]" * 70 + b"}", "application/json", 400),
        (b'{"value": ' + b"[" * 100_000, "application/json", 400),
        (b"value=1", "application/x-www-form-urlencoded", 415),
        (b"{}", "application/xml", 415),
        (b'{"value": 1, "key": "another"}', "application/json", 400),
        (b'{"value": 1}', "application/vnd.team+json; charset=utf-8", 200),
        (b'{"value": ' + b"[" * 60 + b"]" * 60 + b"}", "application/json", 200),
        (b'{"value": ' + str(10**30).encode() + b"}", "application/json", 200),
    ],
)
async def test_a_body_is_json_or_refused(http: httpx2.AsyncClient, content: bytes, kind: str, status: int) -> None:
    answered = await http.put(f"{API}/store/values/k", content=content, headers={"content-type": kind})

    assert answered.status_code == status
    assert status == 200 or await told(answered)


async def test_a_packed_body_is_not_unpacked(http: httpx2.AsyncClient) -> None:
    packed = await http.put(f"{API}/store/values/k", content=b"\x1f\x8b", headers={"content-encoding": "gzip"})

    assert (await told(packed))["code"] == "unsupported_media_type"


def test_terms_that_would_refuse_everything_are_refused() -> None:
    with pytest.raises(InvalidError, match="max_body_bytes 0 is refused: give more than 0"):
        RestOptions(max_body_bytes=0)


async def test_a_body_that_is_too_long_is_refused_before_it_is_read() -> None:
    async with open_service(terms=RestOptions(max_body_bytes=100)) as open_desk, open_desk.client() as calling:
        announced = await calling.put(f"{API}/store/values/k", json={"value": "x" * 200})

        async def unannounced() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b'{"value"  '

        streamed = await calling.put(f"{API}/store/values/k", content=unannounced())

    for answered in (announced, streamed):
        assert (await told(answered))["code"] == "body_too_large"
        assert answered.headers["connection"] == "close"


@pytest.mark.parametrize("name", ["Authorization", "Idempotency-Key", "If-Match", "Content-Type"])
async def test_a_header_that_must_be_one_is_not_given_twice(http: httpx2.AsyncClient, name: str) -> None:
    answered = await http.get(f"{API}/presence", headers=[(name, "a"), (name, "b")])

    assert (await told(answered))["status"] == 400


async def test_a_failure_of_the_service_tells_nothing_of_its_inside(caplog: pytest.LogCaptureFixture) -> None:
    from sharedmem import InternalError

    async def gate(call: Call) -> dict[str, str]:
        raise RuntimeError(f"password of {call.hub.url}")

    async with fake_hub() as hub, client_of_app(create_app(hub, admission="open_to_all", gate=gate)) as calling:
        failed = await calling.get(f"{API}/presence")

    assert ((await told(failed))["status"], "password" in failed.text) == (500, False)
    assert "password of" in caplog.text
    assert failed.headers["x-request-id"] in caplog.text
    for error in (ConfigError("redis_url", "environment", "it is secret"), InternalError("secret")):
        assert b"secret" not in bytes(problem_response(error).body)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id_": "x"}, "changes.id_"),
        ({"self": 1}, "changes.self"),
        ({"if_version": 1}, "changes.if_version"),
        ({"version": 5}, "changes.version"),
        ({"tenant_id": "others"}, "changes.tenant_id"),
        ({"importance": None}, "changes.importance"),
        ({"tags": "x"}, "changes.tags"),
    ],
)
async def test_what_cannot_change_in_a_memory_is_refused_by_its_name(
    http: httpx2.AsyncClient, changes: dict[str, Any], field: str
) -> None:
    added = (await http.post(f"{API}/memory/items", json={"item": {"memory": "Tea is hot"}})).json()

    refused = await http.patch(f"{API}/memory/items/{added['id']}", json={"changes": changes})

    assert [one["field"] for one in (await told(refused))["errors"]] == [field]


async def test_a_memory_is_changed_only_as_it_was_seen(http: httpx2.AsyncClient) -> None:
    added = (await http.post(f"{API}/memory/items", json={"item": {"memory": "Tea is hot", "category": "x"}})).json()
    path, version = f"{API}/memory/items/{added['id']}", added["version"]

    changed = await http.patch(path, json={"changes": {"category": None, "tags": ["a"]}, "if_version": version})
    late = await http.patch(path, json={"changes": {"tags": ["b"]}, "if_version": version})

    assert (changed.json()["memory"], changed.json()["category"], changed.json()["tags"]) == ("Tea is hot", None, ["a"])
    assert (await told(late))["code"] == "version_conflict"


def test_every_field_of_a_memory_that_may_change_can_be_asked_to() -> None:
    fixed = {"id", "tenant_id", "thread_id", "turn_index", "hash", "created_at", "updated_at", "occurrences", "version"}
    fixed |= {"created_by", "adaptive_ttl"}

    assert set(MemoryFieldChanges.model_fields) == set(MemoryItem.model_fields) - fixed
    for name, kept in MemoryFieldChanges.model_fields.items():
        assert kept.annotation == MemoryItem.model_fields[name].annotation, name


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    async with (
        open_service(terms=RestOptions(answer_within_s=0.01, longest_wait_s=5)) as open_desk,
        open_desk.client() as calling,
    ):
        overdue = await calling.post(f"{API}/queues/q/claim", json={"wait": 5})

    assert (await told(overdue))["code"] == "overdue"


# -- pages ----------------------------------------------------------------------------------------


async def test_a_list_is_walked_page_by_page_by_cursor_and_by_link(http: httpx2.AsyncClient) -> None:
    names = [f"k{number}" for number in range(5)]
    await http.post(f"{API}/store/values", json={"values": dict.fromkeys(names, 1)})

    found: list[str] = []
    url: str | None = f"{API}/store/keys?pattern=k*&limit=2"
    while url is not None:
        answered = await http.get(url)
        page = answered.json()
        found += page["items"]
        assert ("link" in answered.headers) == (page["next_cursor"] is not None)
        url = answered.links["next"]["url"] if "link" in answered.headers else None

    assert [key.rpartition(":")[2] for key in found] == names


async def test_a_key_that_goes_between_pages_moves_no_other(http: httpx2.AsyncClient) -> None:
    await http.post(f"{API}/store/values", json={"values": {"a": 1, "b": 1, "c": 1}})
    first = (await http.get(f"{API}/store/keys", params={"limit": 2})).json()
    await http.delete(f"{API}/store/values/b")

    second = (await http.get(f"{API}/store/keys", params={"limit": 2, "cursor": first["next_cursor"]})).json()

    assert [key.rpartition(":")[2] for key in second["items"]] == ["c"]


async def test_sessions_come_in_pages_the_newest_first(http: httpx2.AsyncClient) -> None:
    for session in ("old", "new"):
        await http.post(f"{API}/episodes/{session}/events", json={"event": "x"})

    first = (await http.get(f"{API}/episodes", params={"limit": 1})).json()
    second = (await http.get(f"{API}/episodes", params={"limit": 1, "cursor": first["next_cursor"]})).json()

    assert (first["items"], second["items"], second["next_cursor"]) == (["new"], ["old"], None)


# -- around it ------------------------------------------------------------------------------------


async def test_every_answer_has_an_id_and_the_headers_of_a_careful_service(http: httpx2.AsyncClient) -> None:
    named = await http.get("/health/live", headers={"x-request-id": "trace-7"})
    forged = await http.get("/health/live", headers={"x-request-id": "a b<script>"})

    assert named.headers["x-request-id"] == "trace-7"
    assert "<" not in forged.headers["x-request-id"]
    assert forged.headers["x-content-type-options"] == "nosniff"
    assert "server" not in forged.headers


async def test_browsers_are_let_in_from_named_pages_only() -> None:
    ask = {"origin": "https://app.example.org", "access-control-request-method": "PUT"}
    async with open_service() as closed, closed.client() as calling:
        assert "access-control-allow-origin" not in (await calling.get("/", headers=ask)).headers
    async with (
        open_service(terms=RestOptions(cors_origins=("https://app.example.org",))) as opened,
        opened.client() as calling,
    ):
        allowed = await calling.options(f"{API}/store/values/k", headers=ask)
        other = await calling.get("/", headers={"origin": "https://evil.example.org"})

    assert allowed.headers["access-control-allow-origin"] == "https://app.example.org"
    assert "access-control-allow-origin" not in other.headers


async def test_it_says_what_it_is_and_how_it_is(http: httpx2.AsyncClient) -> None:
    about = (await http.get("/")).json()
    ready = await http.get(about["health"])

    assert (await http.get(about["openapi"])).json()["openapi"] == "3.1.0"
    assert (ready.status_code, ready.json()["status"], ready.json()["degraded"]) == (200, "ready", [])
    assert set(ready.json()["checks"]) == {"redis", "durable", "queues", "embedder"}


async def test_it_is_not_ready_without_redis_and_when_it_ends() -> None:
    async with open_service() as open_desk, open_desk.client() as calling:
        open_desk.app.state.service.end_streams()
        closing = await calling.get("/health/ready")
    closed = Hub(settings=Settings())
    async with client_of_app(create_app(closed, admission="open_to_all")) as calling:
        away = await calling.get("/health/ready")
        alive = await calling.get("/health/live")

    assert (closing.status_code, closing.json()["status"]) == (503, "closing")
    assert (away.status_code, away.json()["status"]) == (503, "down")
    assert alive.status_code == 200


async def test_an_application_may_open_its_hub_itself(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, embedded_modules=(), embedder="hashing", access="open")
    app = create_app(Hub(settings=settings), admission="open_to_all", opens_hub=True)
    async with client_of_app(app) as calling:
        async with app.router.lifespan_context(app):
            assert (await calling.get(f"{API}/presence")).json() == {"items": []}
        assert (await told(await calling.get(f"{API}/presence")))["code"] == "unavailable"


async def test_metrics_are_for_those_who_may_call() -> None:
    operator = Bearer.of("team", actor="ada", operator=True)
    async with open_service(operator) as team, team.client() as nobody, team.client("team/ada") as ada:
        team.hub.counters.increment("retries", call='wr"ite')
        team.hub.counters.observe("operation_seconds", 0.003, operation="memory.add")

        assert (await nobody.get("/metrics")).status_code == 401
        await nobody.get(f"{API}/presence")
        await ada.get(f"{API}/presence")
        text = (await ada.get("/metrics")).text

    assert 'sharedmem_retries_total{call="wr\\"ite"} 1' in text
    assert 'sharedmem_http_requests_total{operation="presence.list",status="401"} 1' in text
    assert 'sharedmem_http_seconds_count{operation="presence.list"} 2' in text
    assert 'sharedmem_operation_seconds_bucket{operation="memory.add",le="+Inf"} 1' in text


async def test_metrics_may_come_from_elsewhere() -> None:
    async def text() -> str:
        return "up 1\n"

    async with fake_hub() as hub, client_of_app(create_app(hub, admission="open_to_all", metrics_text=text)) as calling:
        assert (await calling.get("/metrics")).text == "up 1\n"


async def test_calls_at_once_do_not_mix(http: httpx2.AsyncClient) -> None:
    async def write_and_read(number: int) -> bool:
        await http.put(f"{API}/store/values/k{number}", json={"value": number})
        answered = await http.get(f"{API}/store/values/k{number}/value", headers={"x-request-id": f"r{number}"})
        return (answered.json()["value"], answered.headers["x-request-id"]) == (number, f"r{number}")

    assert all(await asyncio.gather(*(write_and_read(number) for number in range(20))))
