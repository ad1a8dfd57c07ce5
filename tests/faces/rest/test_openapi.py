"""The description of the REST service is true: whatever is asked by it is answered by it, and never with a failure."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.rest_server import TERMS, client_of_app, open_service

from sharedmem import Hub, Settings
from sharedmem.api.operation import operations
from sharedmem.faces.rest import create_app
from sharedmem.faces.rest.handlers import PREFIX
from sharedmem.testing import fake_hub

CHECKS: list[Any] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DESCRIPTION: dict[str, Any] = create_app(Hub(settings=Settings()), admission="open_to_all").openapi()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
FEW = settings(
    max_examples=2,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Caller(NamedTuple):
    """Calls a service from a test that is no coroutine."""

    loop: asyncio.AbstractEventLoop
    http: httpx2.AsyncClient

    def send(self, case: Case[Any]) -> httpx2.Response:
        sent: dict[str, Any] = dict(case.as_transport_kwargs(base_url="http://memory"))
        wanted: dict[str, Any] = {name: sent[name] for name in ("method", "url", "params", "json") if name in sent}
        # Also what no client would let through.
        headers = [(name.encode(), str(value).encode()) for name, value in sent["headers"].items()]
        if sent.get("data") is not None:
            wanted |= {"content": sent["data"]}
        return self.loop.run_until_complete(self.http.request(headers=headers, **wanted))


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    loop = asyncio.new_event_loop()
    opening = open_service(terms=TERMS)
    open_desk = loop.run_until_complete(opening.__aenter__())
    yield Caller(loop, client_of_app(open_desk.app))
    loop.run_until_complete(opening.__aexit__(None, None, None))
    loop.close()


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("name", sorted(operations()))
def test_what_is_asked_for_is_answered_as_described(name: str, mode: GenerationMode, caller: Caller) -> None:
    route = operations()[name].http
    operation = SCHEMA[PREFIX + route.path][route.method]

    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case[Any]) -> None:
        response = caller.send(case)
        # The fake server lacks a command or two, which is told as it should be.
        checks = CHECKS if response.status_code == 501 else [not_a_server_error, *CHECKS]
        case.validate_response(response, checks=checks)

    ask()


def test_each_operation_has_one_route_and_each_route_an_operation() -> None:
    assert len({(row.http.method, row.http.path) for row in operations().values()}) == len(operations())


@pytest.mark.parametrize("name", sorted(operations()))
def test_each_operation_is_described_under_its_name_with_an_example_that_works(name: str) -> None:
    row, route = operations()[name], operations()[name].http
    told = DESCRIPTION["paths"][PREFIX + route.path][route.method.lower()]
    given = {one["name"]: one["example"] for one in told["parameters"] if "example" in one}
    if told.get("requestBody", {}).get("required"):
        given |= told["requestBody"]["content"]["application/json"]["example"]

    assert (told["x-operation"], told["summary"], told["tags"]) == (name, row.summary, [row.tag])
    row.takes.model_validate(given)


OPERATIONS = [one for item in DESCRIPTION["paths"].values() for one in item.values()]


def test_ids_of_operations_are_names_of_functions_and_unique() -> None:
    ids = [one["operationId"] for one in OPERATIONS]

    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not one.isidentifier()] == []


@pytest.mark.parametrize("told", OPERATIONS, ids=lambda told: str(told["operationId"]))
def test_each_operation_describes_its_request_its_answer_and_its_errors(told: dict[str, Any]) -> None:
    good = {status: one for status, one in told["responses"].items() if status.startswith("2")}
    schemas = [form["schema"] for one in good.values() for form in one.get("content", {}).values()]
    asked = [one.get("schema") or one["content"]["application/json"]["schema"] for one in told["parameters"]]
    asked += [form["schema"] for form in told.get("requestBody", {"content": {}})["content"].values()]

    assert {"400", "401", "403", "404", "409", "429", "500", "503"} <= told["responses"].keys()
    assert good.keys() == {"204"} or schemas
    assert all(schemas)
    assert all(asked)


def test_each_answer_is_an_object_with_named_fields() -> None:
    schemas = DESCRIPTION["components"]["schemas"]

    def is_object(schema: dict[str, Any]) -> bool:
        if "$ref" in schema:
            return is_object(schemas[schema["$ref"].rpartition("/")[2]])
        options = schema.get("anyOf", [])
        return all(map(is_object, options)) if options else bool(schema.get("properties"))

    bare = [
        told["operationId"]
        for told in OPERATIONS
        for status, one in told["responses"].items()
        if status.startswith("2")
        for kind, form in one.get("content", {}).items()
        if kind == "application/json" and not is_object(form["schema"])
    ]
    assert bare == []


def test_the_description_is_sound_and_says_how_to_show_a_token() -> None:
    SCHEMA.validate()

    assert DESCRIPTION["openapi"] == "3.1.0"
    assert DESCRIPTION["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert {row.tag for row in operations().values()} <= {tag["name"] for tag in DESCRIPTION["tags"]}
    assert len(str(DESCRIPTION)) < 600_000


async def test_the_page_for_people_loads_nothing_from_elsewhere() -> None:
    async with fake_hub() as hub, client_of_app(create_app(hub, admission="open_to_all")) as http:
        page = await http.get("/docs")

    assert re.findall(r"https?://", page.text) == []
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)", page.text) == []
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
