"""Problems: each error as application/problem+json (RFC 9457), by the one table of errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.responses import Response

from sharedmem.errors import Codes, InternalError, SharedMemoryError
from sharedmem.faces.bodies import RequestError

MEDIA_TYPE = "application/problem+json"
REQUEST_ID: ContextVar[str] = ContextVar("id of the present request", default="")
_TYPES = "urn:sharedmem:problem:"
_MOST_FIELDS = 20


class FieldsError(RequestError):
    """Fields of a request that are not as they should be."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        told = "; ".join(f"{field}: {problem}" for field, problem in problems[:_MOST_FIELDS])
        super().__init__(f"the request is refused: {told}")
        self.problems = problems[:_MOST_FIELDS]

    @classmethod
    def of(cls, error: ValidationError) -> FieldsError:
        """The same in our words; what was sent is not quoted, since it may be secret."""
        found = error.errors(include_url=False, include_input=False, include_context=False)
        return cls([(".".join(map(str, one["loc"])) or "body", _wording(one["type"], one["msg"])) for one in found])


class MediaTypeError(RequestError):
    """A body is of a type that the service does not read."""

    codes = Codes("unsupported_media_type", 415, "INVALID_ARGUMENT", 2)

    def __init__(self, sent: str) -> None:
        super().__init__(f"bodies of type {sent[:80]!r} are not read here; send content-type: application/json")


class HeadersTooLargeError(RequestError):
    """The headers are longer than the service takes."""

    codes = Codes("headers_too_large", 431, "RESOURCE_EXHAUSTED", 2)

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the headers are longer than {most_bytes} bytes; send fewer or shorter ones")


class NoSuchPathError(RequestError):
    """The service has no such path."""

    codes = Codes("no_such_path", 404, "UNIMPLEMENTED", 2)

    def __init__(self) -> None:
        super().__init__("there is no such path; /openapi.json lists all paths; encode '/' in names")


class MethodError(RequestError):
    """The path exists, but not with this method."""

    codes = Codes("method_not_allowed", 405, "UNIMPLEMENTED", 2)

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(f"this path does not accept {method[:20]}; use {self.allowed}")


class PreconditionError(RequestError):
    """What `If-Match` or `If-None-Match` demands does not hold."""

    codes = Codes("precondition_failed", 412, "ABORTED", 4)


class ReusedKeyError(RequestError):
    """An `Idempotency-Key` was used for another request before."""

    codes = Codes("idempotency_key_reused", 422, "INVALID_ARGUMENT", 2)

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key belongs to another request; use a new key for a new request")


class UnderWayError(SharedMemoryError):
    """The same request runs right now."""

    codes = Codes("request_under_way", 409, "ABORTED", 4)

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is under way; ask again for its answer")
        self.retry_after = 1.0


class AnswerNotKeptError(SharedMemoryError):
    """The request was done under this Idempotency-Key, but its answer is not kept."""

    codes = Codes("answer_not_kept", 410, "NOT_FOUND", 3)

    def __init__(self) -> None:
        why = "the request with this Idempotency-Key was done and is not done again, but its answer could not be kept"
        super().__init__(f"{why}; read what it has changed, and send a new request under a new key")


class OverdueError(SharedMemoryError):
    """The answer took too long."""

    codes = Codes("overdue", 504, "DEADLINE_EXCEEDED", 7)

    def __init__(self, within_s: float) -> None:
        super().__init__(f"no answer came within {within_s:g} s; it may have done its work: look before you repeat it")


def problem_response(error: SharedMemoryError) -> Response:
    """Return an error as a response, with the same code and sentence as every other face."""
    codes = error.codes
    sentence = _PRIVATE if isinstance(error, InternalError) or codes.code in _KEPT_BACK else error.message_for("token")
    told: dict[str, Any] = {
        "type": _TYPES + codes.code,
        "title": _title(error),
        "status": codes.http_status,
        "detail": sentence,
        "code": codes.code,
        "request_id": REQUEST_ID.get(),
    }
    headers = _headers(error)
    if isinstance(error, FieldsError):
        told["errors"] = [{"field": field, "problem": text} for field, text in error.problems]
    if "retry-after" in headers:
        told["retry_after"] = getattr(error, "retry_after", None)
    return Response(orjson.dumps(told, default=str), codes.http_status, headers, MEDIA_TYPE)


_PRIVATE = "this service failed; the log of the server says how, under this request_id"
# Settings of the server, and bugs, are not shown to callers.
_KEPT_BACK = frozenset({"config", "internal", "error", "usage", "not_picklable"})


def status_problem(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal that the web framework has made itself."""
    title = HTTPStatus(status).phrase
    code = title.lower().replace(" ", "_")
    told = {
        "type": _TYPES + code,
        "title": title,
        "status": status,
        "detail": title,
        "code": code,
        "request_id": REQUEST_ID.get(),
    }
    return Response(orjson.dumps(told), status, headers, MEDIA_TYPE)


def _title(error: SharedMemoryError) -> str:
    # The first sentence of the class says what kind of error it is.
    return (type(error).__doc__ or "An error.").strip().splitlines()[0].rstrip(".")


def _headers(error: SharedMemoryError) -> dict[str, str]:
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    retry_after = getattr(error, "retry_after", None)
    if isinstance(retry_after, int | float):
        headers["retry-after"] = str(max(1, math.ceil(retry_after)))
    challenge = getattr(error, "challenge", None)
    if challenge is not None or error.codes.http_status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = challenge or 'Bearer realm="sharedmem"'
    if isinstance(error, MethodError):
        headers["allow"] = error.allowed
    return headers


def _wording(kind: str, message: str) -> str:
    return "there is no such field" if kind == "extra_forbidden" else message.removeprefix("Value error, ")
