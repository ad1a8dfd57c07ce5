"""Routes of operations: method and path of each, and how a request is built from its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from sharedmem.errors import InvalidError, UnsupportedError

PREFIX = "/api/v1"
OPENAPI_PATH = "/openapi.json"
_METHODS = ("get", "post", "put", "patch", "delete")
_BODILESS = frozenset({"GET", "DELETE"})


class ServiceRoute(NamedTuple):
    """Method and path of an operation."""

    method: str
    path: str
    """`{field}` is a field of the request."""
    as_json: frozenset[str] = frozenset()
    """Fields that the query holds as JSON."""


class HttpRequest(NamedTuple):
    """A request; every retry sends it unchanged."""

    operation: str
    method: str
    path: str
    """With its query, percent-encoded."""
    query: tuple[tuple[str, str], ...]
    content: bytes | None
    """JSON."""


# All others come from the OpenAPI description of the service.
KNOWN_ROUTES: Mapping[str, ServiceRoute] = {
    "synthesis.add_memory": ServiceRoute("POST", f"{PREFIX}/memories"),
    "synthesis.query_memory": ServiceRoute("GET", f"{PREFIX}/memories/query"),
    "synthesis.get_memory": ServiceRoute("GET", f"{PREFIX}/memories/{{memory_id}}"),
    "synthesis.delete_memory": ServiceRoute("DELETE", f"{PREFIX}/memories/{{memory_id}}"),
    "synthesis.update_memory_status": ServiceRoute("PUT", f"{PREFIX}/memories/{{memory_id}}/status"),
    "synthesis.restore_memory": ServiceRoute("POST", f"{PREFIX}/memories/{{memory_id}}/restore"),
    "synthesis.traverse_memory_evolution_chain": ServiceRoute("GET", f"{PREFIX}/memories/{{memory_id}}/evolution"),
    "synthesis.generate_evolution_graph": ServiceRoute("GET", f"{PREFIX}/memories/{{memory_id}}/evolution/graph"),
    "synthesis.add_agent_memory": ServiceRoute("POST", f"{PREFIX}/agent/memories"),
    "synthesis.summarize_conversation": ServiceRoute("POST", f"{PREFIX}/agent/summaries"),
    "synthesis.get_task_status": ServiceRoute("GET", f"{PREFIX}/tasks/{{task_id}}"),
    "synthesis.get_connection_pool_stats": ServiceRoute("GET", f"{PREFIX}/system/pool-stats"),
}


def parse_routes(description: bytes) -> dict[str, ServiceRoute]:
    """Return the routes that a service describes, by operation.

    Args:
        description: OpenAPI as JSON.

    Raises:
        ValueError: it is not JSON.
    """
    document = from_json(description)
    return {
        told["operationId"]: ServiceRoute(method.upper(), path, _json_query_fields(told))
        for path, item in document["paths"].items()
        for method, told in item.items()
        if method in _METHODS
    }


def find_route(operation: str, routes: Mapping[str, ServiceRoute], server: str) -> ServiceRoute:
    """Return the route of an operation.

    Raises:
        UnsupportedError: this service does not offer it.
    """
    route = routes.get(operation)
    if route is None:
        near = sorted(name for name in routes if name.startswith(operation.partition(".")[0])) or sorted(routes)
        offered = ", ".join(near[:12]) or "nothing"
        raise UnsupportedError(f"the operation {operation[:80]!r} at {server}", f"it offers {offered}")
    return route


def build_request(operation: str, route: ServiceRoute, fields: Mapping[str, object]) -> HttpRequest:
    """Build the request for an operation.

    Args:
        operation: its name.
        route: its method and path.
        fields: of its request; those that are None are left out.

    Raises:
        InvalidError: a field is missing in the path, or JSON cannot hold one.
    """
    rest = {name: value for name, value in fields.items() if value is not None}
    path = "/".join(_path_segment(part, rest) for part in route.path.split("/"))
    if route.method in _BODILESS:
        query = tuple(pair for name, value in rest.items() for pair in _query_pairs(name, value, route))
        return HttpRequest(operation, route.method, path, query, None)
    return HttpRequest(operation, route.method, path, (), _to_json(rest))


def _path_segment(part: str, fields: dict[str, object]) -> str:
    if not part.startswith("{"):
        return part
    value = fields.pop(part[1:-1], None)
    if value is None or value == "":
        raise InvalidError(part[1:-1], value, "this call needs it")
    text = quote(str(value), safe="")
    # Unescaped, these two would name a folder of the path.
    return text.replace(".", "%2E") if text in {".", ".."} else text


def _query_pairs(name: str, value: object, route: ServiceRoute) -> list[tuple[str, str]]:
    if name in route.as_json or isinstance(value, Mapping | BaseModel):
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
