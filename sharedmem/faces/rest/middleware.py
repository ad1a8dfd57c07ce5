"""Middleware around every request: request ids, security headers, header limits, unexpected errors."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharedmem.clock import new_id
from sharedmem.errors import InternalError
from sharedmem.faces.rest.problems import REQUEST_ID, HeadersTooLargeError, problem_response
from sharedmem.runtime import get_logger

_SOUND_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# For clients that send a whole body before they look for an answer: so much is thrown away to let them see it.
_MOST_DRAINED_BYTES = 64 * 1024 * 1024
_DRAINED_WITHIN_S = 2.0
_MOST_HEADER_BYTES = 32 * 1024
_TOO_LARGE = 413
_UNREAD = frozenset({408, _TOO_LARGE})
# Of an answer: the server waits before each of them while the reader has not taken the ones before.
_PIECE_BYTES = 64 * 1024
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_logger = get_logger("rest")


class RequestMiddleware:
    """Gives each request an id, each response the headers of a careful service, and each failure a problem.

    Args:
        app: what is guarded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        token = REQUEST_ID.set(request_id.decode())
        sending = _ResponseSender(scope, receive, send, request_id)
        try:
            if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADER_BYTES:
                await problem_response(HeadersTooLargeError(_MOST_HEADER_BYTES))(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        except Exception as error:
            _logger.exception("request %s: %s %s failed", REQUEST_ID.get(), scope["method"], scope["path"])
            if sending.status:
                raise
            await problem_response(InternalError(repr(error)))(scope, receive, sending)
        finally:
            sending.log()
            REQUEST_ID.reset(token)


class _ResponseSender:
    """The way out of one response."""

    __slots__ = ("_began", "_receive", "_request_id", "_scope", "_send", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: bytes) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._began = time.perf_counter()
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._dress(message)
        elif self.status == _TOO_LARGE and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b""}
        await self._put(message)

    async def _put(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if len(body) <= _PIECE_BYTES:
            await self._send(message)
            return
        for start in range(0, len(body), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            is_last = end >= len(body)
            await self._send({**message, "body": body[start:end], "more_body": more if is_last else True})

    def log(self) -> None:
        """Log the response in a line, without the query, which may contain private data."""
        took_ms = (time.perf_counter() - self._began) * 1000
        told = {"request_id": self._request_id.decode(), "status": self.status, "took_ms": round(took_ms, 2)}
        _logger.debug("%s %s", self._scope["method"], self._scope["path"], extra=told)

    def _dress(self, message: MutableMapping[str, Any]) -> None:
        headers = message.setdefault("headers", [])
        present = {name for name, _ in headers}
        headers.append((b"x-request-id", self._request_id))
        headers.extend(pair for pair in _HEADERS if pair[0] not in present)
        if self.status in _UNREAD and b"connection" not in present:
            headers.append((b"connection", b"close"))

    async def _drain(self) -> None:
        left = _MOST_DRAINED_BYTES
        try:
            async with asyncio.timeout(_DRAINED_WITHIN_S):
                while left > 0:
                    message = await self._receive()
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return
                    left -= len(message.get("body", b""))
        except TimeoutError:
            return


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SOUND_ID.fullmatch(value):
            found: bytes = value
            return found
    return new_id().encode()
