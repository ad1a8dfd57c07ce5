"""Binding: a request of HTTP becomes the request that an operation takes.

Fields come from the path, then from the query (GET, DELETE) or from a JSON object in the body (all others).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl

import orjson
from pydantic import ValidationError

from sharedmem.api import Operation
from sharedmem.faces.bodies import RequestError
from sharedmem.faces.rest.context import Call
from sharedmem.faces.rest.pagination import Pagination
from sharedmem.faces.rest.problems import FieldsError, MediaTypeError
from sharedmem.models import Record

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
    level = [document]
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
