"""Turn the problem documents of the service back into the errors of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from pydantic_core import from_json

from sharedmem import errors
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
