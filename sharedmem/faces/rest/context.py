"""One REST call: the request with the store and rights of its caller, what an operation takes of it, and its answer.

Fields come from the path, then from the query (GET, DELETE) or from a JSON object in the body (all others). Lists come
in pages, with an opaque cursor to the next page.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode

import orjson
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from sharedmem.api import Operation
from sharedmem.api.operation import HttpRoute
from sharedmem.errors import InvalidError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.bodies import RequestError, body_chunks, json_bytes, whole_body
from sharedmem.faces.limits import CpuQuotas
from sharedmem.faces.rest.problems import FieldsError, MediaTypeError
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.redis.scope import Need
from sharedmem.store import SharedMemoryStore


@dataclass(slots=True)
class Call:
    """What an endpoint is given."""

    request: Request
    hub: Hub
    store: SharedMemoryStore
    """The namespace with the rights of the caller."""
    bearer: Bearer
    caller: str
    """Tells callers apart without telling their tokens: a digest, or `everyone` where there are no tokens."""
    params: dict[str, str]
    """The parameters in the path, decoded."""
    terms: RestOptions
    closing: asyncio.Event
    """Set when the service ends: streams should say so to their readers and end too."""
    quotas: CpuQuotas
    """Bulk work runs in here, on the CPU time of the caller."""
    _body: bytes | None = field(default=None, repr=False)

    def header(self, name: str) -> str | None:
        """A header in lower case letters, or None."""
        return self.request.headers.get(name)

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            BodyTooLargeError: it is longer than the terms say; the rest was not read.
            SlowBodyError: it was not here in time.
        """
        if self._body is None:
            self._body = await whole_body(
                self.request.stream(),
                announced=self.request.headers.get("content-length", "0"),
                most_bytes=self.terms.max_body_bytes,
                patience_s=self.terms.body_patience_s,
            )
        return self._body

    def chunks(self, most_bytes: int) -> AsyncGenerator[bytes, None]:
        """The body as it comes in; each chunk may take as long as otherwise the whole body.

        Args:
            most_bytes: of all chunks together.

        Raises (when read):
            BodyTooLargeError: it is longer.
            SlowBodyError: a chunk was not here in time.
        """
        return body_chunks(
            self.request.stream(),
            announced=self.request.headers.get("content-length", "0"),
            most_bytes=most_bytes,
            patience_s=self.terms.body_patience_s,
        )


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response that holds a value."""
    return Response(json_bytes(value), status, headers, "application/json")


Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, Response]]
Gate: TypeAlias = Callable[[Call], Awaitable[Mapping[str, str]]]
"""Called before each call: returns headers for the response, or raises LimitedError."""


@dataclass(frozen=True)
class Endpoint:
    """The handler of a path: an operation, or a stream.

    Args:
        method: `GET` and so on.
        path: below `/api/v1`; `{name}` matches one part of the path, percent-encoded.
        name: of the operation.
        handler: answers.
        document: the OpenAPI operation object, without operationId and the parameters of the path; or makes it.
    """

    method: str
    path: str
    name: str
    handler: Handler
    document: dict[str, Any] | Callable[[], dict[str, Any]]
    is_limited: bool = True
    """Whether the answer has to be here in the time of the terms; streams may take longer to begin."""
    is_bulk: bool = False
    """Whether it counts for the caller's quota of CPU time; streams see to that themselves."""
    successor: str = ""
    """The path to use instead, where this one is a former one of the operation."""
    needs: Need = "read"
    """What the caller must be allowed to do."""
    waits: bool = False
    """Whether it may wait for others, and should stop when its caller has left."""


# -- options --------------------------------------------------------------------------------------


_MIB = 1024 * 1024


@dataclass(frozen=True)
class RestOptions:
    """What may be chosen.

    Args:
        max_body_bytes: longer bodies are refused with 413, before they are read.
        max_depth: arrays and objects inside of each other; deeper ones are refused with 400.
        body_patience_s: seconds within which a body has to be here, or it is refused with 408.
        longest_wait_s: seconds for which a call may wait for a task, a result or a lock; longer wishes are cut.
        answer_within_s: seconds after which a call is given up with 504.
        cors_origins: pages that browsers may let in (`https://app.example.org`); none by default.
        idempotency_ttl_s: seconds for which the answer to an `Idempotency-Key` is kept.
    """

    max_body_bytes: int = 4 * _MIB
    max_depth: int = 64
    body_patience_s: float = 20.0
    longest_wait_s: float = 30.0
    answer_within_s: float = 90.0
    cors_origins: tuple[str, ...] = ()
    idempotency_ttl_s: float = 86_400.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_depth", "body_patience_s", "answer_within_s", "idempotency_ttl_s"):
            if not getattr(self, name) > 0:
                raise InvalidError(name, getattr(self, name), "give more than 0")


# -- pages of lists -------------------------------------------------------------------------------


DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


class PageBody(NamedTuple):
    """One page as the service returns it."""

    body: dict[str, Any]
    next_cursor: str | None


class Pagination(NamedTuple):
    """How one operation's list comes in pages."""

    field: str
    """Which of its fields is the cursor; empty where the list is cut here."""
    is_sorted: bool = True

    @classmethod
    def of(cls, route: HttpRoute) -> Pagination | None:
        """That of a route; None when it has no pages."""
        if not route.paging:
            return None
        is_cut_here = route.paging in {"names", "recent"}
        return cls("" if is_cut_here else route.paging, route.paging != "recent")

    def taken(self, query: dict[str, Any]) -> dict[str, Any]:
        """The query with the cursor as the operation takes it.

        Raises:
            FieldsError: it is no cursor of ours.
        """
        if not self.field:
            return {name: value for name, value in query.items() if name not in {"cursor", "limit"}}
        others = {name: value for name, value in query.items() if name not in {"cursor", self.field}}
        return others | ({self.field: decode_cursor(query["cursor"])} if "cursor" in query else {})

    def shown(self, found: Any, query: dict[str, str]) -> PageBody:
        """The page of an answer.

        Args:
            found: result of the operation: names in order, or a page of its own.
            query: what was asked for.
        """
        if not self.field:
            return self._of_names(found, query)
        assert isinstance(found, Record)
        told = dict(found)
        cursor = told.pop("cursor")
        following = encode_cursor(cursor) if cursor else None
        return PageBody(told | {"next_cursor": following}, following)

    def _of_names(self, names: list[str], query: dict[str, str]) -> PageBody:
        limit = _limit(query.get("limit"))
        start = self._after(names, decode_cursor(query["cursor"])) if "cursor" in query else 0
        items = names[start : start + limit]
        following = encode_cursor(items[-1]) if start + limit < len(names) else None
        return PageBody({"items": items, "next_cursor": following}, following)

    def _after(self, names: list[str], last: str) -> int:
        # By name and not by number, so that names that come and go move no others into the next page.
        if self.is_sorted:
            return bisect_right(names, last)
        if last not in names:
            raise FieldsError([("cursor", "its position is gone; begin again without a cursor")])
        return names.index(last) + 1


def next_link(path: str, query: list[tuple[str, str]], cursor: str) -> str:
    """The `Link` header that leads to the next page."""
    kept = [(name, value) for name, value in query if name != "cursor"]
    return f'<{path}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'


def encode_cursor(place: str) -> str:
    """A cursor for the outside: nothing to be read or made up."""
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """The place that a cursor means.

    Raises:
        FieldsError: it is not a cursor of this service.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise FieldsError([("cursor", "it is invalid; give the next_cursor of a page as it is")]) from None


def _limit(said: str | None) -> int:
    if said is None:
        return DEFAULT_LIMIT
    if not (said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= MAX_LIMIT):
        raise FieldsError([("limit", f"give a whole number from 1 to {MAX_LIMIT}")])
    return int(said)


# -- what an operation takes of a request ---------------------------------------------------------


Schema: TypeAlias = dict[str, Any]
Spelling = Literal["text", "list", "json"]
"""The form of a field in a query: as it is, repeated, or as JSON."""

BODILESS = frozenset({"GET", "DELETE"})
_MOST_PARAMETERS = 1000
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_JSON_TYPES = ("application/json", "text/json")


class Binding:
    """How the request of one operation is read.

    Args:
        row: the operation.
    """

    def __init__(self, row: Operation[Any]) -> None:
        route = row.http
        self._takes = row.takes
        self.in_path = tuple(part[1:-1] for part in route.path.split("/") if part.startswith("{"))
        self.has_body = route.method not in BODILESS
        self.schema: Schema = row.takes.model_json_schema()
        self._page = Pagination.of(route)
        self._waits = "wait" in row.takes.model_fields
        fields = {name: part for name, part in self.schema.get("properties", {}).items() if name not in self.in_path}
        self.fields: dict[str, Schema] = fields
        self.spellings: dict[str, Spelling] = {name: self._spelling(part) for name, part in fields.items()}

    async def request(self, call: Call, given: Mapping[str, Any] = _NOTHING) -> Record:
        """What the operation takes.

        Args:
            call: the request.
            given: fields that are known from elsewhere, such as headers.

        Raises:
            RequestError: it is not as it should be; what was sent is not quoted.
        """
        fields = await self._from_body(call) if self.has_body else self._from_query(call)
        for known in (given, call.params):
            for name, value in known.items():
                if name in fields and fields[name] != value:
                    raise FieldsError([(name, "it is said twice, and not the same; leave it out here")])
                fields[name] = value
        if self._waits:
            # A call that waits without end in Python does not wait over HTTP unless it says for how long.
            usual = self._takes.model_fields["wait"].default or 0.0
            fields["wait"] = _limit_wait(fields.get("wait", usual), call.terms.longest_wait_s)
        try:
            return self._takes.model_validate(fields)
        except ValidationError as error:
            raise FieldsError.of(error) from None

    async def _from_body(self, call: Call) -> dict[str, Any]:
        if call.request.scope["query_string"]:
            raise RequestError("this call takes no query; put its fields into the body as a JSON object")
        body = await call.body()
        return json_object(call, body) if body else {}

    def _from_query(self, call: Call) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, value in query_of(call):
            spelling = self.spellings.get(name, "text")
            if spelling == "list":
                fields.setdefault(name, []).append(value)
            elif name in fields:
                raise FieldsError([(name, "it is given more than once")])
            else:
                fields[name] = _shallow(call, name, value) if spelling == "json" else value
        return self._page.taken(fields) if self._page else fields

    def _spelling(self, part: Schema) -> Spelling:
        kinds = {option.get("type") for option in self._options(part)}
        if "array" in kinds:
            return "list"
        return "json" if kinds & {"object", None} else "text"

    def _options(self, part: Schema) -> list[Schema]:
        part = self._resolved(part)
        options: list[Schema] = part.get("anyOf", [part])
        return [self._resolved(option) for option in options]

    def _resolved(self, part: Schema) -> Schema:
        reference = part.get("$ref")
        if reference is None:
            return part
        found: Schema = self.schema["$defs"][str(reference).rpartition("/")[2]]
        return found


def query_of(call: Call) -> list[tuple[str, str]]:
    """The parameters of the query, in order.

    Raises:
        RequestError: they are no text in UTF-8, or too many.
    """
    raw = call.request.scope["query_string"]
    if not raw:
        return []
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise RequestError("the query is no list of parameters in UTF-8, percent-encoded") from None


def json_object(call: Call, body: bytes) -> dict[str, Any]:
    """A body that holds a JSON object.

    Raises:
        MediaTypeError, RequestError: it holds something else.
    """
    sent = (call.header("content-type") or _JSON_TYPES[0]).partition(";")[0].strip().lower()
    if call.header("content-encoding") not in {None, "identity"}:
        raise MediaTypeError(f"{sent}, encoded")
    if sent not in _JSON_TYPES and not sent.endswith("+json"):
        raise MediaTypeError(sent)
    document = parse_json("body", body)
    if not isinstance(document, dict):
        raise FieldsError([("body", "it should be a JSON object")])
    check_depth(document, call.terms.max_depth)
    return document


def parse_json(field: str, text: bytes) -> Any:
    """What a JSON text says.

    Raises:
        FieldsError: it is invalid.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # Its message names the place and never quotes the content.
        raise FieldsError([(field, f"it is no JSON in UTF-8: {error.msg}, line {error.lineno}")]) from None


def _shallow(call: Call, name: str, text: str) -> Any:
    document = parse_json(name, text.encode())
    check_depth(document, call.terms.max_depth)
    return document


def check_depth(document: object, most: int) -> None:
    """Look how deep arrays and objects lie inside of each other; as long as the document has parts.

    Raises:
        RequestError: deeper than `most`.
    """
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(most):
        level = [part for whole in level for part in _parts(whole) if isinstance(part, dict | list)]
        if not level:
            return
    raise RequestError(f"arrays and objects are nested more than {most} levels deep; make it flatter")


def _parts(whole: object) -> Any:
    return whole.values() if isinstance(whole, dict) else whole


def _limit_wait(wish: object, longest_s: float) -> object:
    """A time to wait that a connection can stand; what is no number is for the operation to refuse."""
    if wish is None:
        return longest_s
    try:
        return min(float(wish), longest_s) if isinstance(wish, int | float | str) else wish
    except ValueError:
        return wish
