"""HTTP as both clients use it: URL and headers of the service, operations as requests, pages and errors of replies.

Problem documents of the service become the errors of the library again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json

from sharedmem import errors
from sharedmem.clock import new_id
from sharedmem.errors import (
    AccessDeniedError,
    ConflictError,
    InternalError,
    InvalidError,
    LimitedError,
    ResultNotKeptError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
    restored,
)
from sharedmem.models import Record
from sharedmem.runtime.concurrency import backoff_pause
from sharedmem.runtime.telemetry import trace_headers

DEFAULT_URL = "http://127.0.0.1:8420"
_UNIX_SCHEME = "unix:"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class ServiceUrl(NamedTuple):
    """Where a service is."""

    url: str
    socket: str | None
    """Path of the unix socket that requests go through; None for TCP."""

    @property
    def shown(self) -> str:
        """The address as errors show it."""
        return f"{_UNIX_SCHEME}{self.socket}" if self.socket else self.url


def parse_service_url(base_url: str) -> ServiceUrl:
    """Parse a base URL.

    Args:
        base_url: `http://host:port`, `https://...`, or `unix:/path/of.sock`.

    Raises:
        InvalidError: it is invalid, or contains credentials.
        UnsupportedError: the HTTP client is not installed.
    """
    if find_spec("httpx2") is None:
        raise UnsupportedError("the client", "pip install 'sharedmem-hub[client]'")
    if base_url.startswith(_UNIX_SCHEME):
        path = base_url.removeprefix(_UNIX_SCHEME).removeprefix("//")
        return ServiceUrl("http://localhost", path)
    parts = urlsplit(base_url)
    if "@" in parts.netloc:
        raise InvalidError("base_url", "...", "leave credentials out of it; give the token as token=")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise InvalidError("base_url", base_url, "give it as http://host:port, https://host or unix:/path/of.sock")
    return ServiceUrl(base_url.rstrip("/"), None)


def base_headers(token: str | None) -> dict[str, str]:
    """Return the headers of every request.

    Raises:
        InvalidError: the token is invalid.
    """
    headers = {"Accept": "application/json"}
    if token is None:
        return headers
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidError("token", "***", "give it just as `sharedmem token` has shown it")
    return headers | {"Authorization": f"Bearer {token}"}


def request_headers(request: HttpRequest) -> dict[str, str]:
    """Return the headers of one request; a retry has the same idempotency key, so the service does it once."""
    headers = trace_headers()
    if request.content is None:
        return headers
    headers["Content-Type"] = "application/json"
    return headers | {"Idempotency-Key": new_id(32)} if request.method == "POST" else headers


def check_reply(status: int, content: bytes, *, server: str) -> bytes:
    """Return the content of a successful reply.

    Raises:
        SharedMemoryError: the reply is an error.
    """
    if not 200 <= status < 300:
        raise_problem(status, content, server=server)
    return content or b"null"


class RetryState:
    """When to send a request again.

    Args:
        retry_for_s: seconds until no retry is made.
        now_s: the time now.
    """

    def __init__(self, retry_for_s: float, now_s: float) -> None:
        self._ends_at = now_s + retry_for_s
        self._attempts = 0

    def pause_s(self, error: SharedMemoryError, now_s: float) -> float:
        """Return the seconds until the next try: random with a growing bound, at least what the server asks for.

        Raises:
            SharedMemoryError: the error itself, when a retry cannot help or there is no time for it.
        """
        asked_s = getattr(error, "retry_after", None)
        if not isinstance(asked_s, int | float):
            raise error
        spread = backoff_pause(self._attempts, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        # A server that did not answer has set no `retry_after`.
        pause = spread if error.__cause__ is not None else max(asked_s, spread)
        if now_s + pause > self._ends_at:
            raise error
        self._attempts += 1
        return pause


# -- operations and their requests ----------------------------------------------------------------


T = TypeVar("T")
OPENAPI_PATH = "/openapi.json"
_METHODS = ("get", "post", "put", "patch", "delete")
_BODILESS = frozenset({"GET", "DELETE"})


@dataclass(frozen=True)
class ServiceOperation(Generic[T]):
    """An operation as a client calls it: its route, and the form of its answer."""

    name: str
    method: str
    path: str
    """`{field}` is a field of the request."""
    gives: Any = Any
    """Type of the answer."""
    as_json: frozenset[str] = frozenset()
    """Fields that the query holds as JSON."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values that the service assumes for fields that are not sent."""
    answer_field: str = ""
    """Field of the reply that holds the answer; empty where the reply is the answer."""
    none_if_absent: bool = False
    """Whether the call returns None for a thing that does not exist, as the library does."""

    @cached_property
    def reply(self) -> TypeAdapter[Any]:
        """Parses the reply; made when it is first needed."""
        return TypeAdapter(dict[str, self.gives] if self.answer_field else self.gives)  # type: ignore[name-defined]  # made here

    def answer(self, reply: Any) -> T:
        """Return what a reply holds.

        Raises:
            KeyError: it has another form.
        """
        held: T = reply[self.answer_field] if self.answer_field else reply
        return held

    def needed(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields that a request needs, without the defaults of the service."""
        return {name: value for name, value in fields.items() if not self._is_default(name, value)}

    def _is_default(self, name: str, value: object) -> bool:
        if name not in self.defaults:
            return False
        default = self.defaults[name]
        return value is default or (type(value) is type(default) and value == default)


class HttpRequest(NamedTuple):
    """A request; every retry sends it unchanged."""

    operation: str
    method: str
    path: str
    """With its query, percent-encoded."""
    query: tuple[tuple[str, str], ...]
    content: bytes | None
    """JSON."""


def parse_routes(description: bytes) -> dict[str, ServiceOperation[Any]]:
    """Return the operations that a service describes, by name.

    Args:
        description: OpenAPI as JSON.

    Raises:
        ValueError: it is not JSON.
    """
    document = from_json(description)
    described = [
        (told, method.upper(), path)
        for path, item in document["paths"].items()
        for method, told in item.items()
        if method in _METHODS
    ]
    found: dict[str, ServiceOperation[Any]] = {}
    for told, method, path in described:
        name, field_name = told.get("x-operation", told["operationId"]), told.get("x-answer", "")
        operation: ServiceOperation[Any] = ServiceOperation(
            name, method, path, as_json=_json_query_fields(told), answer_field=field_name
        )
        found |= dict.fromkeys((name, *told.get("x-formerly", ())), operation)
    return found


def find_route(operation: str, routes: Mapping[str, ServiceOperation[Any]], server: str) -> ServiceOperation[Any]:
    """Return an operation that a service describes.

    Raises:
        UnsupportedError: this service does not offer it.
    """
    route = routes.get(operation)
    if route is None:
        near = sorted(name for name in routes if name.startswith(operation.partition(".")[0])) or sorted(routes)
        offered = ", ".join(near[:12]) or "nothing"
        raise UnsupportedError(f"the operation {operation[:80]!r} at {server}", f"it offers {offered}")
    return route


def build_request(operation: ServiceOperation[Any], fields: Mapping[str, object]) -> HttpRequest:
    """Build the request for an operation.

    Args:
        operation: what is called.
        fields: of its request.

    Raises:
        InvalidError: a field is missing in the path, or JSON cannot hold one.
    """
    rest = dict(fields)
    path = "/".join(_path_segment(part, rest) for part in operation.path.split("/"))
    if operation.method in _BODILESS:
        query = tuple(pair for name, value in rest.items() for pair in _query_pairs(name, value, operation))
        return HttpRequest(operation.name, operation.method, path, query, None)
    return HttpRequest(operation.name, operation.method, path, (), _to_json(rest))


def memory_fields(item: BaseModel | Mapping[str, Any] | str) -> BaseModel | Mapping[str, Any]:
    """Return the fields of a memory, given as a record, as a mapping, or as its text alone."""
    return {"memory": item} if isinstance(item, str) else item


def _path_segment(part: str, fields: dict[str, object]) -> str:
    if not part.startswith("{"):
        return part
    value = fields.pop(part[1:-1], None)
    if value is None or value == "":
        raise InvalidError(part[1:-1], value, "this call needs it")
    text = quote(str(value), safe="")
    # Unescaped, these two would name a folder of the path.
    return text.replace(".", "%2E") if text in {".", ".."} else text


def _query_pairs(name: str, value: object, operation: ServiceOperation[Any]) -> list[tuple[str, str]]:
    if name in operation.as_json or isinstance(value, Mapping | BaseModel):
        return [(name, _to_json(value).decode())]
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return [(name, _query_text(one)) for one in values]


def _query_text(value: object) -> str:
    return value if isinstance(value, str) else _to_json(value).decode().strip('"')


def _to_json(value: object) -> bytes:
    try:
        return to_json(_json_form(value), inf_nan_mode="null")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError("fields", "...", f"JSON cannot hold them: {error}") from error


def _json_form(value: object) -> object:
    """Return a value as what JSON has: pydantic alone would also take keys and bytes that do not come back as such.

    Raises:
        TypeError: JSON has no form for it.
    """
    match value:
        case BaseModel():
            return value.model_dump(mode="json", exclude_unset=True)
        case Mapping():
            return {_json_key(key): _json_form(one) for key, one in value.items()}
        case list() | tuple():
            return [_json_form(one) for one in value]
        case set() | frozenset():
            return [_json_form(one) for one in sorted(value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _json_form(asdict(value))
    return _json_scalar(value)


def _json_scalar(value: object) -> object:
    match value:
        case Enum():
            return _json_form(value.value)
        case int() if not -(2**63) <= value < 2**64:
            raise TypeError("an integer has more than 64 bits")
        case None | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _json_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key is a {type(key).__name__}, not a text")
    return key


def _json_query_fields(told: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(one["name"] for one in told.get("parameters", ()) if one.get("in") == "query" and "content" in one)


# -- pages of lists -------------------------------------------------------------------------------


class ListPage(Record, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None
    """Give it as `cursor` to read the next page; None after the last one."""
    total: int | None = None
    """How many there are on all pages, where the service counts them."""


# -- errors ---------------------------------------------------------------------------------------


_BY_CODE: dict[str, type[SharedMemoryError]] = {
    known.codes.code: known
    for known in reversed(vars(errors).values())
    if isinstance(known, type) and issubclass(known, SharedMemoryError)
}
# Errors of the REST service alone, or of a proxy in front of it, have no code of the library.
_BY_STATUS: Mapping[int, type[SharedMemoryError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    # A missing thing has a code: without one the service does not know the path.
    404: UnsupportedError,
    405: UnsupportedError,
    409: ConflictError,
    410: ResultNotKeptError,
    429: LimitedError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}
# Attributes that the classes have and problem documents do not contain.
_DEFAULT_ATTRIBUTES: Mapping[type[SharedMemoryError], Mapping[str, object]] = {
    AccessDeniedError: {"actor": "", "key": "", "need": ""},
    InvalidError: {"field": ""},
    LimitedError: {"retry_after": 1.0},
    ResultNotKeptError: {"name": ""},
    UnavailableError: {"retry_after": 1.0},
    UnsupportedError: {"power": ""},
}
_MAX_EXCERPT = 200


def raise_problem(status: int, content: bytes, *, server: str) -> NoReturn:
    """Raise the error that a reply describes.

    Args:
        status: of HTTP, 300 or more.
        content: body of the reply.
        server: address of the service, for messages.

    Raises:
        SharedMemoryError: of the class that the service raised, by its code; without a code, the class nearest to
            the HTTP status. `retry_after` is set where a retry can help.
    """
    if 300 <= status < 400:
        raise InvalidError("base_url", server, f"it redirects (HTTP {status}); give the URL that it redirects to")
    told = _parse_problem(content)
    kind = _BY_CODE.get(str(told.get("code"))) or _class_for_status(status)
    error = restored(kind, (_problem_message(told, content, status, server),), _error_attributes(kind, told))
    if request := told.get("request_id"):
        error.add_note(f"request {request} at {server}")
    raise error


def unreachable_error(server: str, why: str) -> UnavailableError:
    """Return the error of a server that did not answer.

    Args:
        server: address of the service.
        why: what happened.
    """
    advice = "is `sharedmem serve rest` running there, and are port and TLS right?"
    return UnavailableError(server, f"{why}; {advice}")


def unexpected_reply_error(server: str, operation: str, problem: Exception) -> InternalError:
    """Return the error of a reply that has another form than the operation returns."""
    told = f"{server} answers {operation} in a form that this client does not know; are both of the same version?"
    return InternalError(f"{told} ({str(problem)[:_MAX_EXCERPT]})")


def _parse_problem(content: bytes) -> dict[str, object]:
    try:
        told = from_json(content)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _class_for_status(status: int) -> type[SharedMemoryError]:
    return _BY_STATUS.get(status) or (InvalidError if status < 500 else InternalError)


def _problem_message(told: Mapping[str, object], content: bytes, status: int, server: str) -> str:
    if isinstance(detail := told.get("detail"), str):
        return detail
    text = " ".join(content[:2_000].decode("utf-8", "replace").split())
    return f"{server} answers HTTP {status}: {text[:_MAX_EXCERPT] or 'no reason given'}"


def _error_attributes(kind: type[SharedMemoryError], told: Mapping[str, object]) -> dict[str, object]:
    found = {name: value for base in kind.__mro__ for name, value in _DEFAULT_ATTRIBUTES.get(base, {}).items()}
    retry_after = told.get("retry_after")
    if isinstance(retry_after, int | float):
        found["retry_after"] = float(retry_after)
    fields = told.get("errors")
    if isinstance(fields, list) and fields and isinstance(fields[0], dict):
        found["field"] = str(fields[0].get("field", ""))
    return found
