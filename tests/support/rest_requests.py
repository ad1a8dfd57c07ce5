"""Requests for every endpoint of the service, made of its description: the lures that a thief would try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from support.asgi_client import PREFIX, quote_segment

Schema = Mapping[str, Any]
Lure = Callable[[str, str], str | int]
"""(name of a field, path) -> what to ask for."""
_REFERENCE = "#/components/schemas/"


class LureRequest(NamedTuple):
    """One request."""

    operation: str
    method: str
    path: str
    body: Any

    @property
    def violence(self) -> int:
        """Reading ones come before changing ones, and these before destroying ones."""
        return ("GET", "POST", "PUT", "PATCH", "DELETE").index(self.method) + 5 * ("erase" in self.path)


def lure_requests(document: Schema, lure: Lure, *, whole: bool) -> Iterator[LureRequest]:
    """A request for each endpoint.

    Args:
        document: the OpenAPI description.
        lure: gives the content of a field.
        whole: whether fields that may be left out are given too, if they are texts.
    """
    maker = _RequestBuilder(document, lure, whole=whole)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield maker.request(path, method.upper(), operation)


class _RequestBuilder:
    def __init__(self, document: Schema, lure: Lure, *, whole: bool) -> None:
        self._schemas = document["components"]["schemas"]
        self._lure = lure
        self._whole = whole

    def request(self, path: str, method: str, operation: Schema) -> LureRequest:
        filled, query = path, list[tuple[str, str]]()
        for one in operation["parameters"]:
            name = one["name"]
            if one["in"] == "path":
                filled = filled.replace(f"{{{name}}}", quote_segment(str(self._lure(name, path))))
            elif one["in"] == "query" and (one.get("required") or (self._whole and self._is_text(one))):
                query.append((name, str(self._lure(name, path))))
        content = operation.get("requestBody", {}).get("content", {})
        body = self._value(content["application/json"]["schema"], "", path) if "application/json" in content else None
        found = filled.removeprefix(PREFIX) + (f"?{urlencode(query)}" if query else "")
        return LureRequest(operation["x-operation"], method, found, body)

    def _is_text(self, parameter: Schema) -> bool:
        schema = self._resolved(parameter.get("schema", {}))
        return schema.get("type") == "string" and "enum" not in schema and "format" not in schema

    def _value(self, schema: Schema, name: str, path: str) -> Any:
        schema = self._resolved(schema)
        for fixed in ("const", "enum"):
            if fixed in schema:
                return schema[fixed] if fixed == "const" else schema[fixed][0]
        kind = schema.get("type", "any")
        plain: dict[str, Any] = {"boolean": False, "null": None, "integer": self._lure(name, path), "number": 1}
        if kind in plain:
            return plain[kind]
        if kind == "array":
            return [self._value(schema.get("items", {}), name, path)]
        if kind == "object":
            return self._fields(schema, path)
        return "2030-01-01T00:00:00Z" if schema.get("format") == "date-time" else str(self._lure(name, path))

    def _fields(self, schema: Schema, path: str) -> dict[str, Any]:
        required, properties = set(schema.get("required", ())), schema.get("properties", {})
        if not properties:
            return {str(self._lure("key", path)): str(self._lure("value", path))}
        wanted = {
            name: part
            for name, part in properties.items()
            if name in required or (self._whole and name != "callback_url" and self._is_text({"schema": part}))
        }
        return {name: self._value(part, name, path) for name, part in wanted.items()}

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            return self._resolved(self._schemas[schema["$ref"].removeprefix(_REFERENCE)])
        options = [one for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())) if one.get("type") != "null"]
        return self._resolved(options[0]) if options else schema
