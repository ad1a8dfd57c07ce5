"""A tool: arguments, rights, idempotency and errors of one call of an operation, in the forms of the protocol.

An error is our sentence in the protocol's own form, without what is private to the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from mcp.server import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent, ToolAnnotations
from pydantic import ConfigDict, Field, ValidationError

from sharedmem.api.operation import find_operation
from sharedmem.errors import (
    AccessDeniedError,
    Codes,
    InternalError,
    InvalidError,
    LockHeldError,
    NotFoundError,
    SharedMemoryError,
)
from sharedmem.faces.bodies import json_bytes
from sharedmem.faces.mcp.callers import Callers, McpCaller, idempotency_key_of
from sharedmem.faces.mcp.options import McpOptions, Profile
from sharedmem.models import Record
from sharedmem.redis.scripts.executor import repeatable_as
from sharedmem.runtime import get_logger
from sharedmem.store import SharedMemoryStore

_LONGEST_KEY = 255
_logger = get_logger("mcp")


@dataclass(frozen=True)
class ToolCall:
    """What a tool is given beside its arguments."""

    caller: McpCaller
    store: SharedMemoryStore
    """The namespace with the rights of the caller."""
    options: McpOptions
    idempotency_key: str | None
    """Marks retries of one call; digested with its caller."""

    async def run(self, operation: str, *, shared: bool = False, **fields: Any) -> Any:
        """Run an operation of the table with the rights of the caller.

        Args:
            operation: its name.
            shared: whether plain keys are in the scope that all actors share.
            fields: of its request; fields that are None are left out.

        Raises:
            ReadOnlyError: it changes something, and the caller may only read.
            InvalidError: a field is not as the operation takes it.
            SharedMemoryError: what the operation raises.
        """
        row = find_operation(operation)
        if row.needs == "write" and not self.caller.may_write:
            raise ReadOnlyError(operation)
        request = row.request({name: value for name, value in fields.items() if value is not None})
        return await row.run(self.store.shared if shared else self.store, request)


@dataclass(frozen=True)
class ToolKind:
    """What a client may know of a tool before it calls it."""

    title: str
    profile: Profile
    writes: bool = False
    destructive: bool = False
    """Whether it may overwrite or delete something that cannot be brought back by another tool."""
    idempotent: bool = True
    """Whether a second call with the same arguments changes nothing more."""
    at_once: bool = False
    """Whether it waits for nothing but Redis: its answer needs no stream that keeps the connection alive meanwhile."""

    def annotations(self) -> ToolAnnotations:
        """Return it in the form of the protocol."""
        return ToolAnnotations(
            title=self.title,
            read_only_hint=not self.writes,
            destructive_hint=self.writes and self.destructive,
            idempotent_hint=self.idempotent,
            open_world_hint=False,
        )


class SharedMemTool(Tool):
    """A tool over an operation of the table."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: ToolKind = Field(exclude=True)
    callers: Callers = Field(exclude=True)
    options: McpOptions = Field(exclude=True)

    @classmethod
    def over(
        cls, fn: Callable[..., Awaitable[Record]], kind: ToolKind, callers: Callers, options: McpOptions
    ) -> SharedMemTool:
        """Return the tool that a coroutine function is; its arguments and its docstring describe it.

        Args:
            fn: takes a `ToolCall` as `ctx`, and the arguments.
            kind: what clients may know of it.
            callers: finds out who calls.
            options: the bounds of its answers.
        """
        made = Tool.from_function(
            fn, title=kind.title, context_kwarg="ctx", annotations=kind.annotations(), structured_output=True
        )
        made.fn_metadata.arg_model.model_config["extra"] = "forbid"
        made.fn_metadata.arg_model.model_rebuild(force=True)
        fields = {name: getattr(made, name) for name in Tool.model_fields}
        fields["parameters"] = made.fn_metadata.arg_model.model_json_schema(by_alias=True)
        fields["description"] = _plain(made.description)
        return cls(**fields, kind=kind, callers=callers, options=options)

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = True) -> Any:  # noqa: ARG002  # the name is that of `Tool`
        """Call the tool; every error of ours is a result that says so."""
        found = await self.answer(arguments, context.request_context)
        if isinstance(found, CallToolResult):
            return found
        return CallToolResult(
            content=[TextContent(type="text", text=json_bytes(found).decode())], structured_content=found
        )

    async def answer(
        self, arguments: dict[str, Any], asked: ServerRequestContext[Any, Any]
    ) -> dict[str, Any] | CallToolResult:
        """Call the tool; returns its structured content, or an error as a result."""
        try:
            _check_depth(arguments, self.options.max_depth)
            given = self._validated(arguments)
            call = self._call(asked)
            return await self._run_once(call, arguments, given)
        except SharedMemoryError as error:
            if isinstance(error, InternalError):
                _logger.exception("tool %s failed", self.name)
            return error_result(error)
        except Exception as error:
            _logger.exception("tool %s failed", self.name)
            return error_result(InternalError(repr(error)))

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ArgumentsError.of(self.name, error) from None

    def _call(self, asked: ServerRequestContext[Any, Any]) -> ToolCall:
        caller = self.callers.of(asked)
        if self.kind.writes and not caller.may_write:
            raise ReadOnlyError(self.name)
        key = idempotency_key_of(asked)
        if key is not None:
            if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
                raise InvalidError("idempotencyKey", key, f"give 1 to {_LONGEST_KEY} characters that can be printed")
            # Digested with the caller: no caller can ask for the answers of another one.
            key = hashlib.sha256(f"{caller.id}\n{self.name}\n{key}".encode()).hexdigest()
        return ToolCall(caller, self.callers.store(caller), self.options, key)

    async def _run_once(self, call: ToolCall, arguments: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        if call.idempotency_key is None or not self.kind.writes:
            return await self._answer(call, given)
        digest = hashlib.sha256(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)).hexdigest()

        async def run() -> dict[str, Any]:
            # If the server is killed before the answer is kept, the retry runs this again.
            try:
                with repeatable_as(f"{call.idempotency_key}-{digest[:32]}"):
                    return {"arguments": digest, "answer": await self._answer(call, given)}
            except SharedMemoryError as error:
                raise _FailedCallError(error) from error

        try:
            kept = await call.store.once(
                f"mcp.once.{call.idempotency_key}",
                run,
                ttl=self.options.idempotency_ttl_s,
                lease=self.options.idempotency_lease_s,
                wait=self.options.longest_wait_s,
            )
        except _FailedCallError as failed:
            raise failed.cause from None
        except LockHeldError:
            raise RetryUnderWayError(self.options.idempotency_lease_s) from None
        if kept["arguments"] != digest:
            raise ArgumentsError("this idempotency key belongs to another call; use a new key for a new call")
        found: dict[str, Any] = kept["answer"]
        return found

    async def _answer(self, call: ToolCall, given: dict[str, Any]) -> dict[str, Any]:
        found: Record = await self.fn(call, **given)
        return found.model_dump(mode="json", exclude_none=True, by_alias=True)


class _FailedCallError(Exception):
    """The call itself has failed: nothing is kept, and the next one with this key does it."""

    def __init__(self, cause: SharedMemoryError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _plain(docstring: str) -> str:
    """Return a docstring as the description of a tool: without the indentation of Python."""
    return "\n".join(line.strip() for line in docstring.strip().splitlines())


def _check_depth(document: object, most: int) -> None:
    """Look how deep arrays and objects lie inside of each other.

    Raises:
        ArgumentsError: deeper than `most`.
    """
    level = [document]
    for _ in range(most):
        level = [part for whole in level for part in _parts(whole) if isinstance(part, dict | list)]
        if not level:
            return
    raise ArgumentsError(f"arrays and objects are nested more than {most} levels deep; make it flatter")


def _parts(whole: object) -> Any:
    return whole.values() if isinstance(whole, dict) else whole


# -- errors ---------------------------------------------------------------------------------------


_PRIVATE = "this service failed; the log of the server says how"
# Settings of the server, and bugs, are not shown to callers.
_KEPT_BACK = frozenset({"config", "internal", "error", "usage", "not_picklable"})
_MOST_FIELDS = 20


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
