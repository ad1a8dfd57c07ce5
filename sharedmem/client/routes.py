"""Operations as the service offers them: method and path of each, and how a request is built from its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json

from sharedmem.errors import InvalidError, UnsupportedError

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
