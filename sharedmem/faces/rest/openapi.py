"""The description of the service: OpenAPI 3.1, made of the table of operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from fastapi import FastAPI
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from sharedmem.faces.operations import Operation
from sharedmem.faces.rest.binding import Binding, Spelling
from sharedmem.faces.rest.call import Endpoint
from sharedmem.faces.rest.examples import example_of
from sharedmem.faces.rest.paging import MOST, USUAL
from sharedmem.faces.rest.problems import MEDIA_TYPE
from sharedmem.faces.rest.routes import PREFIX, TAGS, Route

Schema = dict[str, Any]
_DEFS = "#/components/schemas/{model}"
_CURSOR: Schema = {"type": "string", "description": "The `next_cursor` of the page before."}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL}
_NEXT: Schema = {
    "anyOf": [{"type": "string"}, {"type": "null"}],
    "description": "Where the next page begins; null after the last one.",
}
_REFUSALS = {
    400: "The request is not as it should be.",
    401: "There is no token, or an unknown one.",
    403: "The caller has no right to do this.",
    404: "The thing asked for does not exist.",
    409: "Somebody else was faster, or the key holds another type of data.",
    413: "The body is too long.",
    429: "The caller comes too often; Retry-After says when to come again.",
    500: "The service failed.",
    501: "This server lacks what the call needs.",
    503: "Redis, or what else is needed, does not answer just now.",
    504: "The answer took too long.",
}
_OF_BODIES = {
    408: "The body did not come in time.",
    410: "The request with this Idempotency-Key was done, but its answer is not kept.",
    415: "The body is not of type application/json.",
    422: "The Idempotency-Key stands for another request.",
}
_OF_CONDITIONS = {412: "Another version is there than the condition demands."}
_PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What was wrong, with which thing, and what to do."},
        "code": {"type": "string", "description": "Stable, for programs."},
        "request_id": {"type": "string"},
        "retry_after": {"type": "number", "description": "Seconds."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "problem"],
                "properties": {"field": {"type": "string"}, "problem": {"type": "string"}},
            },
        },
    },
}


def document(app: FastAPI, endpoints: Iterable[Endpoint]) -> Schema:
    """The whole description; made once.

    Args:
        app: whose title and version are told.
        endpoints: what is answered.
    """
    if app.openapi_schema is None:
        schemas: Schema = {"Problem": _PROBLEM}
        paths: Schema = {}
        for endpoint in endpoints:
            told = dict(endpoint.document() if callable(endpoint.document) else endpoint.document)
            schemas |= told.pop("$defs", {})
            paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = _completed(endpoint, told)
        app.openapi_schema = {
            "openapi": "3.1.0",
            "info": {"title": app.title, "version": app.version, "summary": "Shared memory for AI agents."},
            "tags": [{"name": name, "description": told} for name, told in TAGS.items()],
            "security": [{"bearer": []}],
            "paths": paths,
            "components": {
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
                "schemas": schemas,
                "responses": _refusals(),
            },
        }
    return app.openapi_schema


def described(row: Operation[Any, Any], route: Route, binding: Binding[Any]) -> Schema:
    """The OpenAPI object of an operation; `$defs` holds the schemas it refers to.

    Args:
        row: what is done.
        route: where it is answered.
        binding: how its request is read.
    """
    takes = row.takes.model_json_schema(ref_template=_DEFS)
    answered, defs = _answer_schema(row, route)
    told: Schema = {
        "summary": row.summary,
        "tags": [route.tag],
        "parameters": [*_query(row, takes, binding, route), *_headers(row, route)],
        "responses": _responses(row, route, answered),
        "$defs": takes.get("$defs", {}) | defs,
    }
    if binding.has_body and binding.fields:
        told["requestBody"] = _body(row, takes, binding)
    return told


def _completed(endpoint: Endpoint, told: Schema) -> Schema:
    in_path = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    described_here = {one["name"] for one in told.get("parameters", []) if one["in"] == "path"}
    named = [_path_parameter(endpoint.name, name) for name in in_path if name not in described_here]
    responses = {str(status): reply for status, reply in told.get("responses", {}).items()}
    refusals = {str(status): _refusal(status) for status in _REFUSALS}
    return told | {
        "operationId": endpoint.name,
        "parameters": [*named, *told.get("parameters", [])],
        "responses": responses | {status: one for status, one in refusals.items() if status not in responses},
    }


def _path_parameter(operation: str, name: str) -> Schema:
    schema: Schema = {"type": "string", "minLength": 1}
    example = example_of(operation, name)
    told: Schema = {"name": name, "in": "path", "required": True, "schema": schema}
    return told if example is None else told | {"example": example}


def _query(row: Operation[Any, Any], takes: Schema, binding: Binding[Any], route: Route) -> list[Schema]:
    if binding.has_body:
        return []
    required = set(takes.get("required", ()))
    found = [
        _query_parameter(
            row.name,
            name,
            takes["properties"][name],
            spelling=binding.spellings[name],
            is_required=name in required,
        )
        for name in binding.fields
        if not (route.paging and name in {"cursor", route.paging})
    ]
    if route.paging:
        found.append({"name": "cursor", "in": "query", "schema": _CURSOR})
        if "limit" not in binding.fields:
            found.append({"name": "limit", "in": "query", "schema": _LIMIT})
    return found


def _query_parameter(operation: str, name: str, schema: Schema, *, spelling: Spelling, is_required: bool) -> Schema:
    told: Schema = {"name": name, "in": "query", "required": is_required}
    shown = _without_null(schema)
    if spelling == "json":
        return told | {"content": {"application/json": {"schema": shown}}}
    example = example_of(operation, name) if is_required else None
    return told | {"schema": shown} | ({} if example is None else {"example": example})


def _without_null(schema: Schema) -> Schema:
    """What can stand in a query: nothing is told by leaving a parameter out."""
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if not options:
        return schema
    kept = {name: part for name, part in schema.items() if name not in {"anyOf", "default"}}
    return kept | (options[0] if len(options) == 1 else {"anyOf": options})


def _headers(row: Operation[Any, Any], route: Route) -> list[Schema]:
    text: Schema = {"type": "string"}
    if route.conditional:
        return [{"name": name, "in": "header", "schema": text} for name in ("If-Match", "If-None-Match")]
    if route.method == "POST" and row.needs == "write":
        told = "The same key again is answered as before, for a day, and nothing is done twice."
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        return [{"name": "Idempotency-Key", "in": "header", "schema": schema, "description": told}]
    return []


def _body(row: Operation[Any, Any], takes: Schema, binding: Binding[Any]) -> Schema:
    required = [name for name in takes.get("required", ()) if name in binding.fields]
    properties = {name: takes["properties"][name] for name in binding.fields}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    content: Schema = {"schema": schema}
    example = {name: example_of(row.name, name) for name in required}
    if example and None not in example.values():
        content["example"] = example
    return {"required": bool(required), "content": {"application/json": content}}


def _responses(row: Operation[Any, Any], route: Route, answered: Schema) -> dict[int, Schema]:
    told = {"description": row.summary, "content": {"application/json": {"schema": answered}}}
    found: dict[int, Schema] = {204: {"description": "Done."}} if row.gives is None else {route.status: told}
    if route.method == "POST" and "SynthesisTask" in repr(row.gives):
        where = {"Location": {"schema": {"type": "string"}, "description": "Where to ask how far it is."}}
        found[202] = told | {"headers": where}
    if route.conditional:
        tag = {"ETag": {"schema": {"type": "string"}, "description": "The version, for If-Match."}}
        found[route.status]["headers"] = tag
        found[412] = _refusal(412)
        if route.method == "GET":
            found[304] = {"description": "The caller has this version already.", "headers": tag}
    if route.method not in {"GET", "DELETE"}:
        found |= {status: _refusal(status) for status in _OF_BODIES}
    return found


def _refusal(status: int) -> Schema:
    return {"$ref": f"#/components/responses/{status}"}


def _refusals() -> Schema:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        str(status): {"description": why, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status, why in (_REFUSALS | _OF_BODIES | _OF_CONDITIONS).items()
    }


def _answer_schema(row: Operation[Any, Any], route: Route) -> tuple[Schema, Schema]:
    if row.gives is None:
        return {}, {}
    mode: JsonSchemaMode = "serialization"
    adapter: TypeAdapter[Any] = TypeAdapter(cast("type[Any]", row.gives))
    schema = adapter.json_schema(mode=mode, ref_template=_DEFS)
    defs = schema.pop("$defs", {})
    if route.absent:
        schema = _without_null(schema)
    if not route.paging:
        return schema, defs
    properties = {"items": schema} if schema.get("type") == "array" else dict(schema["properties"])
    properties.pop("cursor", None)
    return {
        "type": "object",
        "required": [*properties, "next_cursor"],
        "properties": properties | {"next_cursor": _NEXT},
    }, defs
