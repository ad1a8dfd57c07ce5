"""The OpenAPI 3.1 document, built from the table of operations, with its examples and its endpoints."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sharedmem.api import Operation
from sharedmem.faces.rest.context import DEFAULT_LIMIT, MAX_LIMIT, Binding, Endpoint, Spelling
from sharedmem.faces.rest.handlers import PREFIX
from sharedmem.faces.rest.problems import MEDIA_TYPE
from sharedmem.text.escaping import csp_hash

_OF_FIELDS: Mapping[str, Any] = MappingProxyType(
    {
        "key": "plan",
        "keys": ["plan", "chat:team-alpha:topic"],
        "value": {"step": 3, "owner": "planner"},
        "values": {"colour": "green"},
        "ttl": 3600,
        "field": "colour",
        "fields": ["colour"],
        "source": "waiting",
        "destination": "done",
        "channel": "news",
        "message": {"text": "The build is green."},
        "session": "desk-1",
        "event": {"role": "user", "content": "Where is my parcel?"},
        "query": "when does the lease end?",
        "question": "when does the lease end?",
        "conversation": [{"role": "user", "content": "The lease ends in May."}],
        "symbol": "BTC",
        "action": "BUY",
        "confidence": 0.8,
        "reasoning": "The trend is strong.",
        "plan_hash": "9f86d081",
        "fence": 41,
        "status": "success",
        "executed": True,
        "name": "index",
        "limit": 100,
        "per": 60,
        "queue": "mail",
        "id": "7f3a",
        "token": 41,
        "payload": {"to": "ada@example.org"},
        "payloads": [{"to": "ada@example.org"}],
        "error": "the address does not exist",
        "item": {"memory": "The lease ends in May.", "category": "office"},
        "items": [{"memory": "The lease ends in May.", "category": "office"}],
        "changes": {"memory": "The lease ends in June."},
        "thread_id": "main",
        "prompt": "What is the capital of Norway?",
        "response": "Oslo",
        "episode": {
            "id": "first",
            "group_id": "acme:ada",
            "content": "Ada lives in Oslo.",
            "occurred_at": "2020-01-01T00:00:00Z",
        },
        "parties": 3,
        "n": 10,
        "phrase": "lease May",
        "embedding": [0.1, 0.2],
        "filters": {"category": "office"},
        "entities": ["Ada"],
        "alias": "Countess of Lovelace",
        "type": "lives_in",
        "target": "Oslo",
        "fact_id": "7f3a",
        "group_id": "acme:ada",
        "entity": "Ada",
        "episode_id": "first",
        "entries": [{"role": "user", "content": "Where is my parcel?"}],
        "new_id": "7f3b",
        "after": "1795000000000000",
        "patch": {"topic": "parcel", "draft": None},
        "when": "2021-01-01T00:00:00Z",
        "a": "Ada",
        "b": "Oslo",
        "into": "Oslo",
        "app_id": "support",
        "user_id": "ada",
        "memory_id": "note-7f3a",
        "task_id": "7f3a",
        "new_status": "archived",
        "rules": {"rules": [{"statuses": ["deleted"], "max_age_days": 30}]},
        "messages": [
            {"role": "user", "content": "My parcel 4711 has not come."},
            {"role": "assistant", "content": "It is at the depot; it comes on Friday."},
        ],
    }
)
"""By the name of a field."""
_EPISODE = _OF_FIELDS["episode"]
_ELSEWHERE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "set.add": {"values": ["red", "green"]},
        "set.delete": {"values": ["red"]},
        "graph.add_many": {"episodes": [_EPISODE]},
        "knowledge.recall": {"values": ["plan"]},
    }
)
"""By operation and field, where a name means something else."""


def example_of(operation: str, field: str) -> Any:
    """Return an example of a field in the request of an operation; None without one."""
    return _ELSEWHERE.get(operation, {}).get(field, _OF_FIELDS.get(field))


_TAGS: Mapping[str, str] = MappingProxyType(
    {
        "store": "Values, lists, hashes, sets and counters. A key without `:` is the caller's own.",
        "messages": "Messages to current subscribers.",
        "namespace": "The whole namespace of the caller.",
        "episodes": "Events of sessions, and their summaries.",
        "conversations": "Logs of entries with a revision, their forks, and a state beside each.",
        "decisions": "Plans, their executions, and how those went.",
        "coordination": "Locks, rate limits, and who is here.",
        "queues": "Tasks for workers, done at least once.",
        "memory": "Semantic memory.",
        "cache": "Answers of models that were paid for once.",
        "durable": "What is kept outside of Redis: how far it is behind, what it rejected, and how it comes back.",
        "graph": "Knowledge graphs: entities and facts with valid time and transaction time.",
        "knowledge": "What an agent should know now, and filing what was said: memory, graph and notes at once.",
        "synthesis": "Notes made of conversations, which resolve contradictions.",
    }
)
"""Descriptions of the groups of operations."""

Schema = dict[str, Any]
_DEFS = "#/components/schemas/{model}"
_CURSOR: Schema = {"type": "string", "description": "The `next_cursor` of the page before."}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_NEXT: Schema = {
    "anyOf": [{"type": "string"}, {"type": "null"}],
    "description": "Where the next page begins; null after the last one.",
}
_REFUSALS = {
    400: "The request is not as it should be.",
    401: "There is no token, or an unknown one.",
    403: "The caller has no right to do this.",
    404: "The thing asked for does not exist.",
    409: "Another writer was faster, or the key holds another type of data.",
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
    422: "The Idempotency-Key belongs to another request.",
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


def build_document(title: str, version: str, endpoints: Iterable[Endpoint]) -> Schema:
    """Return the OpenAPI document.

    Args:
        title, version: of the service.
        endpoints: what it offers; generators shall not see former routes.
    """
    schemas: Schema = {"Problem": _PROBLEM}
    paths: Schema = {}
    for endpoint in endpoints:
        if endpoint.successor:
            continue
        told = dict(endpoint.document() if callable(endpoint.document) else endpoint.document)
        schemas |= told.pop("$defs", {})
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = _complete_operation(endpoint, told)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "summary": "Shared memory for AI agents."},
        "tags": [{"name": name, "description": told} for name, told in _TAGS.items()],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
            "responses": _error_responses(),
        },
    }


def describe_operation(row: Operation[Any], binding: Binding) -> Schema:
    """The OpenAPI object of an operation; `$defs` holds the schemas it refers to.

    Args:
        row: what is done.
        binding: how its request is read.
    """
    takes = row.takes.model_json_schema(ref_template=_DEFS)
    answered, defs = _answer_schema(row)
    told: Schema = {
        "summary": row.summary,
        "tags": [row.tag],
        "parameters": [*_query(row, takes, binding), *_headers(row)],
        "responses": _responses(row, answered),
        "$defs": takes.get("$defs", {}) | defs,
    }
    if row.answer:
        told["x-answer"] = row.answer
    if row.former_names:
        told["x-formerly"] = list(row.former_names)
    if binding.has_body and binding.fields:
        told["requestBody"] = _body(row, takes, binding)
    return told


def _complete_operation(endpoint: Endpoint, told: Schema) -> Schema:
    in_path = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    described_here = {one["name"] for one in told.get("parameters", []) if one["in"] == "path"}
    named = [_path_parameter(endpoint.name, name) for name in in_path if name not in described_here]
    responses = {str(status): reply for status, reply in told.get("responses", {}).items()}
    refusals = {str(status): _error_response(status) for status in _REFUSALS}
    return told | {
        "operationId": endpoint.name.replace(".", "_"),
        "x-operation": endpoint.name,
        "parameters": [*named, *told.get("parameters", [])],
        "responses": responses | {status: one for status, one in refusals.items() if status not in responses},
    }


def _path_parameter(operation: str, name: str) -> Schema:
    schema: Schema = {"type": "string", "minLength": 1}
    example = example_of(operation, name)
    told: Schema = {"name": name, "in": "path", "required": True, "schema": schema}
    return told if example is None else told | {"example": example}


def _query(row: Operation[Any], takes: Schema, binding: Binding) -> list[Schema]:
    route = row.http
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
    """Return the schema of a query parameter: without null, which is said by leaving the parameter out."""
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if not options:
        return schema
    kept = {name: part for name, part in schema.items() if name not in {"anyOf", "default"}}
    return kept | (options[0] if len(options) == 1 else {"anyOf": options})


def _headers(row: Operation[Any]) -> list[Schema]:
    route = row.http
    text: Schema = {"type": "string"}
    if route.conditional:
        return [{"name": name, "in": "header", "schema": text} for name in ("If-Match", "If-None-Match")]
    if route.method == "POST" and row.needs == "write":
        told = "The same key again returns the same response, for a day, and nothing is done twice."
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        return [{"name": "Idempotency-Key", "in": "header", "schema": schema, "description": told}]
    return []


def _body(row: Operation[Any], takes: Schema, binding: Binding) -> Schema:
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


def _responses(row: Operation[Any], answered: Schema) -> dict[int, Schema]:
    route = row.http
    told: Schema = {"description": row.summary, "content": {"application/json": {"schema": answered}}}
    found: dict[int, Schema] = {204: {"description": "Done."}} if row.gives is None else {200: told}
    where: Schema = {"Location": {"schema": {"type": "string"}, "description": "Path of what is new."}}
    if route.page is not None:
        told["content"] |= {"text/html": {"schema": {"type": "string"}}}
    if route.created:
        found[route.created] = told | ({"headers": where} if route.location else {})
        if route.is_new is None:
            del found[200]
    if route.conditional:
        tag: Schema = {"ETag": {"schema": {"type": "string"}, "description": "The version, for If-Match."}}
        found[200] = told | {"headers": tag}
        found[412] = _error_response(412)
        if route.method == "GET":
            found[304] = {"description": "The caller has this version already.", "headers": tag}
        else:
            found[201] = told | {"headers": tag | where}
    if route.method not in {"GET", "DELETE"}:
        found |= {status: _error_response(status) for status in _OF_BODIES}
    return found


def _error_response(status: int) -> Schema:
    return {"$ref": f"#/components/responses/{status}"}


def _error_responses() -> Schema:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        str(status): {"description": why, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status, why in (_REFUSALS | _OF_BODIES | _OF_CONDITIONS).items()
    }


def _answer_schema(row: Operation[Any]) -> tuple[Schema, Schema]:
    route = row.http
    if row.gives is None:
        return {}, {}
    mode: JsonSchemaMode = "serialization"
    adapter: TypeAdapter[Any] = TypeAdapter(cast("type[Any]", row.gives))
    schema = adapter.json_schema(mode=mode, ref_template=_DEFS)
    defs = schema.pop("$defs", {})
    if route.absent:
        schema = _without_null(schema)
    if row.answer:
        held = schema or {"description": "Any value of JSON."}
        return {"type": "object", "required": [row.answer], "properties": {row.answer: held}}, defs
    if not route.paging:
        return schema, defs
    properties = {"items": schema} if schema.get("type") == "array" else dict(schema["properties"])
    properties.pop("cursor", None)
    return {
        "type": "object",
        "required": [*properties, "next_cursor"],
        "properties": properties | {"next_cursor": _NEXT},
    }, defs


PATH = "/openapi.json"
_JSON = "application/json"
_MOST_ROOTS = 16


class _EncodedDocument(NamedTuple):
    """The description as bytes."""

    tag: str
    plain: bytes
    packed: bytes


class OpenApiEndpoints:
    """Answers `/openapi.json` and `/docs`.

    Args:
        title: of the page.
        made: makes the description; called once, in a thread.
    """

    def __init__(self, title: str, made: Callable[[], Mapping[str, Any]]) -> None:
        self._title = title
        self._made = made
        self._spelled: dict[str, _EncodedDocument] = {}
        self._spelling = asyncio.Lock()

    async def document(self, request: Request) -> Response:
        """The description; 304 for who has it, gzip for who takes that."""
        spelled = await self._of(request.scope.get("root_path", ""))
        headers = {"etag": spelled.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if spelled.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if _accepts_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
            return Response(spelled.packed, headers=headers, media_type=_JSON)
        return Response(spelled.plain, headers=headers, media_type=_JSON)

    async def page(self, request: Request) -> Response:
        """Return the page that shows the description; it loads nothing but `/openapi.json`."""
        shell, policy = _page()
        address = escape(request.scope.get("root_path", "") + PATH)
        headers = {"content-security-policy": policy, "x-content-type-options": "nosniff"}
        return HTMLResponse(shell.substitute(title=escape(self._title), address=address), headers=headers)

    async def _of(self, root: str) -> _EncodedDocument:
        if root in self._spelled:
            return self._spelled[root]
        async with self._spelling:
            if root in self._spelled:
                return self._spelled[root]
            spelled = await asyncio.to_thread(self._spell, root)
            if len(self._spelled) < _MOST_ROOTS:
                self._spelled[root] = spelled
            return spelled

    def _spell(self, root: str) -> _EncodedDocument:
        # Where the application is mounted, clients find the paths below its root.
        told = dict(self._made()) | ({"servers": [{"url": root}]} if root else {})
        plain = orjson.dumps(told)
        return _EncodedDocument(f'"{hashlib.sha256(plain).hexdigest()[:32]}"', plain, gzip.compress(plain, mtime=0))


@cache
def _page() -> tuple[Template, str]:
    """Return the page, and the policy by which it runs its own script alone and calls this service alone."""
    folder = files(__package__) / "docs_page"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    shell = (folder / "page.html").read_text(encoding="utf-8")
    rules = (
        "default-src 'none'",
        f"script-src {csp_hash(script)}",
        f"style-src {csp_hash(style)}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return Template(shell.replace("$style", style).replace("$script", script.replace("$", "$$"))), "; ".join(rules)


def _accepts_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
