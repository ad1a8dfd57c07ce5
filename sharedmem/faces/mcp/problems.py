"""Errors of tools: our sentence in the protocol's own form, without what is private to the server."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent
from pydantic import ValidationError

from sharedmem.errors import AccessDeniedError, Codes, InternalError, InvalidError, NotFoundError, SharedMemoryError
from sharedmem.runtime import get_logger

_PRIVATE = "this service failed; the log of the server says how"
# Settings of the server, and bugs, are not shown to callers.
_KEPT_BACK = frozenset({"config", "internal", "error", "usage", "not_picklable"})
_MOST_FIELDS = 20
_logger = get_logger("mcp")


class ArgumentsError(InvalidError):
    """The arguments of a tool are invalid."""

    def __init__(self, sentence: str) -> None:
        SharedMemoryError.__init__(self, sentence)
        self.field = ""

    @classmethod
    def of(cls, tool: str, error: ValidationError) -> ArgumentsError:
        """Return what pydantic found, in our words; what was sent is not quoted, since it may be secret."""
        found = error.errors(include_url=False, include_input=False, include_context=False)
        told = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg'].removeprefix('Value error, ')}"
            for one in found[:_MOST_FIELDS]
        )
        return cls(f"the arguments of {tool} are refused: {told}")


class ReadOnlyError(AccessDeniedError):
    """The caller may only read through this server."""

    codes = Codes("access_denied", 403, "PERMISSION_DENIED", 5)

    def __init__(self, operation: str) -> None:
        advice = "ask the operator to start the server with --write, or for a token without --read-only"
        SharedMemoryError.__init__(self, f"{operation} changes something, and this caller may only read; {advice}")
        self.actor, self.key, self.need = "", "", "write"


class RetryUnderWayError(SharedMemoryError):
    """A call with the same idempotency key is under way."""

    codes = Codes("request_under_way", 409, "ABORTED", 4)

    def __init__(self, lease_s: float) -> None:
        super().__init__(
            "a call with this idempotency key is under way, or its server was killed in it; call again in up to"
            f" {lease_s:g} s"
        )
        self.retry_after = 1.0


def sentence_of(error: SharedMemoryError) -> str:
    """Return the sentence of an error for a caller of a service."""
    is_private = isinstance(error, InternalError) or error.code in _KEPT_BACK
    return _PRIVATE if is_private else error.message_for("token")


def protocol_error(error: SharedMemoryError) -> MCPError:
    """Return an error as the protocol has it, for requests other than calls of tools."""
    if isinstance(error, InternalError):
        _logger.error("a request failed", exc_info=error)
    is_asked_wrongly = isinstance(error, InvalidError | NotFoundError | AccessDeniedError)
    code = INVALID_PARAMS if is_asked_wrongly else INTERNAL_ERROR
    return MCPError(code, sentence_of(error), {"code": error.code})


def error_result(error: SharedMemoryError) -> CallToolResult:
    """Return an error as the result of a tool: the model reads the sentence, a program the code."""
    meta: dict[str, object] = {"sharedmem/code": error.code}
    retry_after = getattr(error, "retry_after", None)
    if isinstance(retry_after, int | float):
        meta["sharedmem/retryAfter"] = retry_after
    return CallToolResult(content=[TextContent(type="text", text=sentence_of(error))], is_error=True, _meta=meta)
