"""Find the endpoint that a request means, and handle it: conditions (ETags), idempotency key, operation, answer.

A path is split before its parts are decoded, so that a key may hold `/` as `%2F`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from functools import reduce
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from starlette.responses import HTMLResponse, Response

from sharedmem.api import Operation
from sharedmem.errors import LockHeldError, NotFoundError, ResultNotKeptError, SharedMemoryError, VersionConflictError
from sharedmem.faces.bodies import RequestError
from sharedmem.faces.rest.context import (
    Binding,
    Call,
    Endpoint,
    Handler,
    Pagination,
    json_response,
    next_link,
    query_of,
)
from sharedmem.faces.rest.problems import (
    AnswerNotKeptError,
    FieldsError,
    MethodError,
    NoSuchPathError,
    PreconditionError,
    ReusedKeyError,
    UnderWayError,
)
from sharedmem.models import Entry
from sharedmem.redis.scripts.executor import repeatable_as

_FIELD = re.compile(r"\{([\w.]+)\}")
_WEIGHT = re.compile(r"[01](?:\.\d{0,3})?")
_TAG = re.compile(r'(W/)?"([^"]*)"')
_UNVERSIONED = "; a counter, or a string that another client has set, is written without If-Match"
_TAGS = re.compile(r'\s*(?:W/)?"[^"]*"\s*(?:,\s*(?:W/)?"[^"]*"\s*)*')


def etag_of(version: int) -> str:
    """The ETag of a version."""
    return f'"{version}"'


def not_modified(call: Call, entry: Entry) -> Response | None:
    """A 304, when the caller has this version already.

    Raises:
        PreconditionError: the caller wants another version.
        FieldsError: a header is not as it should be.
    """
    matches = call.header("if-match")
    if matches is not None and not _matches_version(matches, entry.version, "if-match", weakly=False):
        raise PreconditionError(f"the value is at version {entry.version}, which If-Match does not name")
    knows = call.header("if-none-match")
    if knows is None or not _matches_version(knows, entry.version, "if-none-match", weakly=True):
        return None
    return Response(status_code=304, headers={"etag": etag_of(entry.version)})


async def write_condition(call: Call) -> dict[str, Any]:
    """What a conditional write expects, as the operation takes it. `If-Match: *` asks for the version: one round trip.

    Raises:
        PreconditionError: the condition requires a value, and the key has none.
        FieldsError: a header is not as it should be.
    """
    matches, knows = call.header("if-match"), call.header("if-none-match")
    if matches is not None and knows is not None:
        raise FieldsError([("if-match", "give If-Match or If-None-Match, not both")])
    if knows is not None:
        if knows.strip() != "*":
            raise FieldsError([("if-none-match", "give * here: write only when there is no value yet")])
        return {"if_version": 0}
    return {} if matches is None else {"if_version": await _version(call, matches.strip())}


def precondition_error(call: Call, error: SharedMemoryError) -> SharedMemoryError:
    """Turn a conflict of versions into a failed precondition if the caller gave one."""
    asked = call.header("if-match") is not None or call.header("if-none-match") is not None
    return PreconditionError(str(error)) if asked and isinstance(error, VersionConflictError) else error


async def _version(call: Call, header: str) -> int:
    if header == "*":
        entry = await call.store.entry(call.params["key"])
        if entry is None:
            raise PreconditionError("there is no value, as If-Match: * demands; leave the header out to write one")
        if not entry.version:
            raise PreconditionError(f"the value has no version{_UNVERSIONED}")
        return entry.version
    found = _TAG.fullmatch(header)
    if found is None or found[1] or not (found[2].isascii() and found[2].isdigit() and len(found[2]) <= 18):
        raise FieldsError([("if-match", 'give one ETag as a read has returned it, such as "1763770000000000"')])
    if not int(found[2]):
        raise PreconditionError(f'"0" is no version{_UNVERSIONED}')
    return int(found[2])


def _matches_version(header: str, version: int, name: str, *, weakly: bool) -> bool:
    if header.strip() == "*":
        return True
    if not _TAGS.fullmatch(header):
        raise FieldsError([(name, "give ETags in quotes, separated by commas, or *")])
    return any(tag == str(version) and (weakly or not weak) for weak, tag in _TAG.findall(header))


HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
_LONGEST_KEY = 255
_LEASE_S = 30.0


class _FailedError(Exception):
    """The call itself has failed: nothing is kept, and the next one with this key does it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def run_once(call: Call, answer: Handler) -> Response:
    """The answer to a call that has an `Idempotency-Key`; what fails is not kept and may be tried again.

    Two round trips more than the call itself, one when the answer is there already. Large answers are in the blob
    store.

    Raises:
        FieldsError: the key is invalid.
        ReusedKeyError: it belongs to another request.
        UnderWayError: the first request with it still runs.
        AnswerNotKeptError: the first request with it was done, but its answer could not be kept.
    """
    key = _key(call)
    digest = await _digest(call)
    ran = False

    async def run() -> dict[str, Any]:
        nonlocal ran
        ran = True
        # If the server is killed before the answer is kept, the retry runs this again.
        try:
            with repeatable_as(f"{key.rpartition('.')[2]}-{digest[:32]}"):
                return _stored_response(await answer(call), digest)
        except Exception as error:
            raise _FailedError(error) from error

    try:
        told = await call.store.once(key, run, ttl=call.terms.idempotency_ttl_s, lease=_LEASE_S, wait=0)
    except _FailedError as failed:
        raise failed.cause from None
    except LockHeldError:
        raise UnderWayError from None
    except ResultNotKeptError as error:
        raise AnswerNotKeptError from error
    if told["digest"] != digest:
        raise ReusedKeyError
    headers = told["headers"] if ran else told["headers"] | {REPLAYED: "true"}
    return Response(told["body"], told["status"], headers)


def _key(call: Call) -> str:
    key = call.header(HEADER) or ""
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
        raise FieldsError([(HEADER, f"give 1 to {_LONGEST_KEY} characters that can be printed")])
    # Digested with the caller: no caller can ask for the answers of another one.
    return "rest.once." + hashlib.sha256(f"{call.caller}\n{key}".encode()).hexdigest()


async def _digest(call: Call) -> str:
    scope = call.request.scope
    told = hashlib.sha256(f"{scope['method']} {scope['path']}\n".encode())
    told.update(scope["query_string"] + b"\n" + await call.body())
    return told.hexdigest()


def _stored_response(response: Response, digest: str) -> dict[str, Any]:
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return {"digest": digest, "status": response.status_code, "headers": headers, "body": bytes(response.body)}


def endpoints_of(
    row: Operation[Any], describe: Callable[[Operation[Any], Binding], dict[str, Any]]
) -> Iterator[Endpoint]:
    """Return the endpoints of an operation and of its former routes.

    Args:
        row: what is done.
        describe: makes the OpenAPI object.
    """
    route, binding = row.http, Binding(row)
    handler = _handler(row, binding)
    if route.method != "GET" and not route.conditional:
        handler = _reject_conditions(handler)
    if route.method == "POST" and row.needs == "write":
        handler = _with_idempotency(handler)
    endpoint = Endpoint(
        route.method,
        route.path,
        row.name,
        handler,
        lambda: describe(row, binding),
        is_bulk=route.bulk,
        needs=row.needs,
        waits="wait" in row.takes.model_fields,
    )
    yield endpoint
    for former in row.former_routes:
        yield replace(endpoint, method=former.method, path=former.path, successor=route.path)


def _handler(row: Operation[Any], binding: Binding) -> Handler:
    route = row.http
    if route.conditional:
        return _entry_read_handler(row, binding) if route.method == "GET" else _entry_write_handler(row, binding)
    page = Pagination.of(route)
    if page is not None:
        return _page_handler(row, binding, page)
    if route.page is not None:
        return _html_handler(row, binding, route.page)

    async def handle(call: Call) -> Response:
        asked = await binding.request(call)
        found = await row.run(call.store, asked)
        if route.created and (route.is_new is None or route.is_new(found)):
            headers = {"location": PREFIX + _filled(route.location, found, asked)} if route.location else {}
            return json_response(row.body(found), route.created, headers)
        if row.gives is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if found is None and route.absent:
            raise NotFoundError(route.absent, next(reversed(call.params.values())))
        return json_response(row.body(found))

    return handle


def _html_handler(row: Operation[Any], binding: Binding, page_of: Callable[[Any], str | None]) -> Handler:
    async def handle(call: Call) -> Response:
        found = await row.run(call.store, await binding.request(call))
        page = page_of(found) if _prefers_html(call.header("accept") or "") else None
        if page is None:
            return json_response(row.body(found), headers={"vary": "accept"})
        # A page of texts of users must not act as a page of this service: it gets an origin of its own.
        return HTMLResponse(page, headers={"vary": "accept", "content-security-policy": "sandbox allow-scripts"})

    return handle


def _prefers_html(accept: str) -> bool:
    """Whether a caller names HTML and wants JSON less: browsers do, and what accepts anything does not."""
    weights: dict[str, float] = {}
    for entry in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        weights[kind] = _weight(parameters)
    json = weights.get("application/json", weights.get("application/*", weights.get("*/*", 0.0)))
    return weights.get("text/html", 0.0) > json


def _weight(parameters: Iterable[str]) -> float:
    found = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    return float(found) if _WEIGHT.fullmatch(found) else 0.0


def _filled(location: str, answer: object, request: object) -> str:
    """Return a location with the fields of the answer, or else of the request."""

    def value(found: re.Match[str]) -> str:
        names = found[1].split(".")
        whole = answer if hasattr(answer, names[0]) else request
        return quote(str(reduce(getattr, names, whole)), safe="")

    return _FIELD.sub(value, location)


def _entry_read_handler(row: Operation[Any], binding: Binding) -> Handler:
    async def handle(call: Call) -> Response:
        entry: Entry = await row.run(call.store, await binding.request(call))
        return not_modified(call, entry) or json_response(vars(entry), headers={"etag": etag_of(entry.version)})

    return handle


def _entry_write_handler(row: Operation[Any], binding: Binding) -> Handler:
    async def handle(call: Call) -> Response:
        asked = await binding.request(call, await write_condition(call))
        try:
            version: int = await row.run(call.store, asked)
        except VersionConflictError as error:
            raise precondition_error(call, error) from error
        headers = {"etag": etag_of(version)}
        if getattr(asked, "if_version", None) != 0:
            return json_response(row.body(version), headers=headers)
        # Written only because there was nothing: so this is new.
        headers["location"] = PREFIX + _filled(row.http.path, None, asked)
        return json_response(row.body(version), HTTPStatus.CREATED, headers)

    return handle


def _page_handler(row: Operation[Any], binding: Binding, page: Pagination) -> Handler:
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
        # A caller relies on the condition that it gives: doing the work all the same would be worse than a refusal.
        for name in ("if-match", "if-none-match"):
            if call.header(name) is not None:
                raise FieldsError([(name, "this call has no version; leave the condition out")])
        return await handler(call)

    return handle


def _with_idempotency(handler: Handler) -> Handler:
    async def handle(call: Call) -> Response:
        return await (handler(call) if call.header(HEADER) is None else run_once(call, handler))

    return handle


# -- paths ----------------------------------------------------------------------------------------


PREFIX = "/api/v1"
"""Path of the service, in front of the paths of its endpoints."""


class Match(NamedTuple):
    """An endpoint, and the parameters in its path."""

    endpoint: Endpoint
    params: dict[str, str]


class _RouteNode:
    """What may follow after some parts of a path."""

    __slots__ = ("any", "endpoints", "fixed")

    def __init__(self) -> None:
        self.fixed: dict[str, _RouteNode] = {}
        self.any: _RouteNode | None = None
        self.endpoints: dict[str, tuple[Endpoint, tuple[str, ...]]] = {}


class Router:
    """All endpoints of a service.

    Args:
        endpoints: each under a method and path of its own.
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _RouteNode()
        for endpoint in endpoints:
            self._add(endpoint)

    def find(self, method: str, raw_path: str) -> Match:
        """The endpoint of a request; as long as the path has parts.

        Args:
            method: as it was sent; HEAD means GET.
            raw_path: as it was sent, percent-encoded.

        Raises:
            NoSuchPathError, MethodError: no endpoint has this path, or this method.
            RequestError: the path is no text in UTF-8.
        """
        parts = raw_path[len(PREFIX) + 1 :].split("/")
        nodes = list(_matching_nodes(self._root, parts, ()))
        wanted = "GET" if method == "HEAD" else method
        for node, values in nodes:
            if wanted in node.endpoints:
                endpoint, names = node.endpoints[wanted]
                return Match(endpoint, {name: _decode_part(value) for name, value in zip(names, values, strict=True)})
        allowed = {known for node, _ in nodes for known in node.endpoints}
        if allowed:
            raise MethodError(method, allowed)
        raise NoSuchPathError

    def _add(self, endpoint: Endpoint) -> None:
        node, names = self._root, []
        for part in endpoint.path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                node.any = node.any or _RouteNode()
                node = node.any
            else:
                node = node.fixed.setdefault(part, _RouteNode())
        if endpoint.method in node.endpoints:
            raise ValueError(f"two endpoints for {endpoint.method} {endpoint.path}")
        node.endpoints[endpoint.method] = (endpoint, tuple(names))


def _matching_nodes(
    node: _RouteNode, parts: list[str], values: tuple[str, ...]
) -> Iterable[tuple[_RouteNode, tuple[str, ...]]]:
    """The nodes that the parts lead to, words before placeholders; there are few, as paths are short."""
    if not parts:
        yield node, values
        return
    first, rest = parts[0], parts[1:]
    if (fixed := node.fixed.get(first)) is not None:
        yield from _matching_nodes(fixed, rest, values)
    if node.any is not None and first:
        yield from _matching_nodes(node.any, rest, (*values, first))


def _decode_part(part: str) -> str:
    if "%" not in part and part.isascii():
        return part
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise RequestError("the path is no text in UTF-8; percent-encode names as UTF-8") from None


def raw_path_of(scope: MutableMapping[str, Any]) -> str:
    """The path of a request as it was sent, without what a proxy has put before it."""
    raw = scope.get("raw_path")
    path = raw.split(b"?")[0].decode("latin-1") if isinstance(raw, bytes) else quote(str(scope["path"]))
    root = str(scope.get("root_path") or "")
    return path[len(root) :] if root and path.startswith(root) else path
