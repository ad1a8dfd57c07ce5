"""Handlers: one operation of the table as a REST endpoint."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from sharedmem.api import Operation
from sharedmem.errors import NotFoundError, VersionConflictError
from sharedmem.faces.rest.context import Call, Endpoint, Handler
from sharedmem.faces.rest.etags import etag_of, not_modified, precondition_error, write_condition
from sharedmem.faces.rest.idempotency import HEADER, run_once
from sharedmem.faces.rest.pagination import Pagination, next_link
from sharedmem.faces.rest.problems import FieldsError
from sharedmem.faces.rest.request_binding import Binding, query_of
from sharedmem.faces.rest.responses import json_response
from sharedmem.faces.rest.router import raw_path_of
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
        handler = _reject_conditions(handler)
    if route.method == "POST" and row.needs == "write":
        handler = _with_idempotency(handler)
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
        return _entry_read_handler(row, binding) if route.method == "GET" else _entry_write_handler(row, binding)
    page = Pagination.of(route)
    if page is not None:
        return _page_handler(row, binding, page)

    async def handle(call: Call) -> Response:
        found = await row.run(call.store, await binding.request(call))
        if isinstance(found, SynthesisTask) and route.method == "POST":
            return json_response(
                found, HTTPStatus.ACCEPTED, {"location": f"{PREFIX}/tasks/{quote(found.task_id, safe='')}"}
            )
        if found is not None:
            return json_response(found, route.status)
        if route.absent:
            raise NotFoundError(route.absent, next(reversed(call.params.values())))
        return json_response(None) if row.gives is not None else Response(status_code=HTTPStatus.NO_CONTENT)

    return handle


def _entry_read_handler(row: Operation[Any, Any], binding: Binding[Any]) -> Handler:
    async def handle(call: Call) -> Response:
        entry: Entry = await row.run(call.store, await binding.request(call))
        return not_modified(call, entry) or json_response(vars(entry), headers={"etag": etag_of(entry.version)})

    return handle


def _entry_write_handler(row: Operation[Any, Any], binding: Binding[Any]) -> Handler:
    async def handle(call: Call) -> Response:
        asked = await binding.request(call, await write_condition(call))
        try:
            version: int = await row.run(call.store, asked)
        except VersionConflictError as error:
            raise precondition_error(call, error) from error
        return json_response(version, headers={"etag": etag_of(version)})

    return handle


def _page_handler(row: Operation[Any, Any], binding: Binding[Any], page: Pagination) -> Handler:
    async def handle(call: Call) -> Response:
        found = await row.run(call.store, await binding.request(call))
        query = query_of(call)
        shown = page.shown(found, dict(query))
        headers = {}
        if shown.next_cursor is not None:
            headers["link"] = next_link(raw_path_of(call.request.scope), query, shown.next_cursor)
        return json_response(shown.body, headers=headers)

    return handle


def _reject_conditions(handler: Handler) -> Handler:
    async def handle(call: Call) -> Response:
        # Whoever gives a condition relies on it: doing the work all the same would be worse than a refusal.
        for name in ("if-match", "if-none-match"):
            if call.header(name) is not None:
                raise FieldsError([(name, "this call goes by no version; leave the condition out")])
        return await handler(call)

    return handle


def _with_idempotency(handler: Handler) -> Handler:
    async def handle(call: Call) -> Response:
        return await (handler(call) if call.header(HEADER) is None else run_once(call, handler))

    return handle
