"""Answering: one operation of the table as an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from sharedmem.errors import NotFoundError, VersionConflictError
from sharedmem.faces.operations import Operation
from sharedmem.faces.rest.answers import answer
from sharedmem.faces.rest.binding import Binding, query_of
from sharedmem.faces.rest.call import Call, Endpoint, Handler
from sharedmem.faces.rest.conditions import as_precondition, expectation, tag_of, unchanged
from sharedmem.faces.rest.idempotency import HEADER, once
from sharedmem.faces.rest.paging import Page, link
from sharedmem.faces.rest.paths import raw_path_of
from sharedmem.faces.rest.problems import FieldsError
from sharedmem.faces.rest.routes import BULK, PREFIX, Route
from sharedmem.models import Entry, SynthesisTask


def endpoint_of(
    row: Operation[Any, Any],
    route: Route,
    describe: Callable[[Operation[Any, Any], Route, Binding[Any]], dict[str, Any]],
) -> Endpoint:
    """The endpoint of an operation.

    Args:
        row: what is done.
        route: where it is answered.
        describe: makes the OpenAPI object.
    """
    binding = Binding(row, route)
    handler = _handler(row, route, binding)
    if route.method != "GET" and not route.conditional:
        handler = _unconditional(handler)
    if route.method == "POST" and row.needs == "write":
        handler = _once_where_asked(handler)
    waits = "wait" in row.takes.model_fields
    return Endpoint(
        route.method,
        route.path,
        row.name,
        handler,
        lambda: describe(row, route, binding),
        is_bulk=row.name in BULK,
        waits=waits,
    )


def _handler(row: Operation[Any, Any], route: Route, binding: Binding[Any]) -> Handler:
    if route.conditional:
        return _reading(row, binding) if route.method == "GET" else _writing(row, binding)
    page = Page.of(route)
    if page is not None:
        return _paging(row, binding, page)

    async def handle(call: Call) -> Response:
        found = await row.run(call.store, await binding.request(call))
        if isinstance(found, SynthesisTask) and route.method == "POST":
            return answer(found, HTTPStatus.ACCEPTED, {"location": f"{PREFIX}/tasks/{quote(found.task_id, safe='')}"})
        if found is not None:
            return answer(found, route.status)
        if route.absent:
            raise NotFoundError(route.absent, next(reversed(call.params.values())))
        return answer(None) if row.gives is not None else Response(status_code=HTTPStatus.NO_CONTENT)

    return handle


def _reading(row: Operation[Any, Any], binding: Binding[Any]) -> Handler:
    async def handle(call: Call) -> Response:
        entry: Entry = await row.run(call.store, await binding.request(call))
        return unchanged(call, entry) or answer(vars(entry), headers={"etag": tag_of(entry.version)})

    return handle


def _writing(row: Operation[Any, Any], binding: Binding[Any]) -> Handler:
    async def handle(call: Call) -> Response:
        asked = await binding.request(call, await expectation(call))
        try:
            version: int = await row.run(call.store, asked)
        except VersionConflictError as error:
            raise as_precondition(call, error) from error
        return answer(version, headers={"etag": tag_of(version)})

    return handle


def _paging(row: Operation[Any, Any], binding: Binding[Any], page: Page) -> Handler:
    async def handle(call: Call) -> Response:
        found = await row.run(call.store, await binding.request(call))
        query = query_of(call)
        shown = page.shown(found, dict(query))
        headers = {}
        if shown.next_cursor is not None:
            headers["link"] = link(raw_path_of(call.request.scope), query, shown.next_cursor)
        return answer(shown.body, headers=headers)

    return handle


def _unconditional(handler: Handler) -> Handler:
    async def handle(call: Call) -> Response:
        # Whoever gives a condition relies on it: doing the work all the same would be worse than a refusal.
        for name in ("if-match", "if-none-match"):
            if call.header(name) is not None:
                raise FieldsError([(name, "this call goes by no version; leave the condition out")])
        return await handler(call)

    return handle


def _once_where_asked(handler: Handler) -> Handler:
    async def handle(call: Call) -> Response:
        return await (handler(call) if call.header(HEADER) is None else once(call, handler))

    return handle
