"""Whole namespaces as streams: out of the service as they are read, and into it, checked before anything is used.

Only a token that speaks for the namespace itself may do either, and only with that namespace.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sharedmem.archive.files import UnpackLimits
from sharedmem.archive.transfer import Imported
from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.faces.bodies import RequestError
from sharedmem.faces.limits import CallerSlots
from sharedmem.faces.rest.context import Call, Endpoint, json_response
from sharedmem.faces.rest.disconnect import StreamSender, cancel_on_exit, run_until_disconnect, wait_for_disconnect
from sharedmem.faces.rest.problems import FieldsError

EXPORT, IMPORT = "/namespace/export", "/namespace/import"
_PACKED, _PLAIN = "application/zstd", "application/x-ndjson"
_MAGIC = b"\x28\xb5\x2f\xfd"
_WRITTEN_AT_ONCE = 1 << 20
_BACK_AFTER_S = 5.0
_UNPACKED = UnpackLimits(max_bytes=1 << 32, max_ratio=100, free_bytes=1 << 26)
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class ArchiveOptions:
    """How much is carried.

    Args:
        most_import_bytes: longer archives are refused with 413.
        unpacked: most text of a compressed archive; longer ones are rejected with 400.
        most_at_once: exports and imports of this process; more are refused with 429.
        most_each: exports and imports of one caller.
    """

    most_import_bytes: int = 1 << 30
    unpacked: UnpackLimits = _UNPACKED
    most_at_once: int = 16
    most_each: int = 2


class ArchiveEndpoints:
    """The exports and imports of one service.

    Args:
        carrying: how much it carries.
    """

    def __init__(self, carrying: ArchiveOptions | None = None) -> None:
        self._carrying = carrying or ArchiveOptions()
        most, most_each = self._carrying.most_at_once, self._carrying.most_each
        self._slots = CallerSlots("exports and imports", most=most, most_each=most_each, retry_after=_BACK_AFTER_S)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints."""
        return (
            Endpoint("GET", EXPORT, "namespace.export", self.export, _EXPORT_DOCUMENT, is_limited=False),
            Endpoint(
                "POST", IMPORT, "namespace.import", self.import_, _IMPORT_DOCUMENT, is_limited=False, needs="write"
            ),
        )

    async def export(self, call: Call) -> Response:
        """The archive of the caller's namespace.

        Raises:
            AccessDeniedError: the caller does not speak for the namespace itself.
            NotFoundError, UnavailableError, UnsupportedError: as `Archives.stream`.
            LimitedError: too many of these are under way.
        """
        namespace, is_packed = _namespace(call), _flag(call, "compressed", default=True)
        pieces = call.hub.archive.stream(namespace, compressed=is_packed)
        assert isinstance(pieces, AsyncGenerator)
        self._slots.check(call.caller)
        held = AsyncExitStack()
        held.enter_context(self._slots.taken(call.caller))
        await held.enter_async_context(aclosing(pieces))
        try:
            # An unreadable archive is a problem response: nothing of the answer is sent yet.
            first = await call.quotas.run(call.bearer, _next_chunk(pieces))
        except BaseException:
            await held.aclose()
            raise
        name = quote(f"{namespace}.jsonl{'.zst' if is_packed else ''}")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "cache-control": "no-store"}
        return _Download(call, first, pieces, held, headers=headers, kind=_PACKED if is_packed else _PLAIN)

    async def import_(self, call: Call) -> Response:
        """Put the archive in the body into the caller's namespace.

        Raises:
            AccessDeniedError: the caller does not speak for the namespace itself.
            RequestError: the archive is damaged, cut, or of another namespace; nothing is changed then.
            BodyTooLargeError, SlowBodyError: it is too long, or stops to come.
            LimitedError: too many of these are under way, or the CPU time of the caller is used up.
            ClientDisconnect: the caller has left; what was imported by then stays.
        """
        namespace, replaces = _namespace(call), _flag(call, "replace", default=False)
        self._slots.check(call.caller)
        with self._slots.taken(call.caller), tempfile.TemporaryDirectory(prefix="sharedmem-") as folder:
            file = await self._received(call, Path(folder))
            work = call.hub.archive.import_(file, namespace=namespace, replace=replaces, limits=self._carrying.unpacked)
            try:
                done = await run_until_disconnect(call.quotas.run(call.bearer, work), call.request.receive)
            except InvalidError as error:
                # The place of the temporary file is not shown to callers.
                raise RequestError(str(error).replace(str(file), "archive")) from error
        return json_response(done.model_dump(exclude={"file"}))

    async def _received(self, call: Call, folder: Path) -> Path:
        """The body as a file."""
        async with aclosing(call.chunks(self._carrying.most_import_bytes)) as chunks:
            try:
                return await _write_chunks(chunks, folder)
            except ClientDisconnect:
                raise RequestError("the body ended before it was whole; send it again") from None


class _Download(Response):
    """An archive that is sent as it is made; without its last line its reader knows that it is cut."""

    def __init__(
        self,
        call: Call,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        held: AsyncExitStack,
        *,
        headers: dict[str, str],
        kind: str,
    ) -> None:
        super().__init__(headers=headers, media_type=kind)
        del self.headers["content-length"]
        self._call, self._first, self._rest, self._held = call, first, rest, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        pipe = StreamSender(send)
        async with self._held:
            await pipe.begin(self.status_code, self.raw_headers)
            if scope["method"] == "HEAD":
                await pipe.end()
                return
            work = self._call.quotas.run(self._call.bearer, self._send(pipe))
            async with cancel_on_exit(work) as sending, cancel_on_exit(wait_for_disconnect(receive)) as left:
                await asyncio.wait({sending, left}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    await sending

    async def _send(self, pipe: StreamSender) -> None:
        await pipe.put(self._first)
        async for piece in self._rest:
            await pipe.put(piece)
        await pipe.end()


async def _next_chunk(pieces: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(pieces)


async def _write_chunks(chunks: AsyncGenerator[bytes, None], folder: Path) -> Path:
    text = await anext(chunks, b"")
    path = folder / ("archive.zst" if text.startswith(_MAGIC) else "archive")
    with await asyncio.to_thread(path.open, "wb") as file:
        async for chunk in chunks:
            text += chunk
            if len(text) >= _WRITTEN_AT_ONCE:
                await asyncio.to_thread(file.write, text)
                text = b""
        await asyncio.to_thread(file.write, text)
    return path


def _namespace(call: Call) -> str:
    """The namespace that the caller speaks for.

    Raises:
        AccessDeniedError: it is an actor in one, which may not have all of it.
    """
    if call.bearer.actor is not None:
        advice = "this requires a token for the whole namespace (`sharedmem token create --whole-namespace`)"
        raise AccessDeniedError(call.bearer.actor, f"{call.bearer.namespace}:*", "carry", advice)
    return call.bearer.namespace


def _flag(call: Call, name: str, *, default: bool) -> bool:
    query = call.request.query_params
    unknown = [(key[:40], "there is no such parameter") for key in query if key != name]
    said = _BOOLEANS.get(query.get(name, str(default).lower()))
    if unknown or said is None:
        raise FieldsError(unknown or [(name, "give true or false")])
    return said


# -- OpenAPI --------------------------------------------------------------------------------------


def _document(summary: str, description: str, flag: str, *, default: bool, told: dict[str, Any]) -> dict[str, Any]:
    parameter = {"name": flag, "in": "query", "schema": {"type": "boolean", "default": default}}
    return {
        "summary": summary,
        "tags": ["namespace"],
        "description": f"{description} Requires a token for the whole namespace.",
        "parameters": [parameter],
        "responses": {"200": told},
    }


_IMPORTED = Imported.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
_IMPORTED_DEFS = _IMPORTED.pop("$defs", {})
del _IMPORTED["properties"]["file"]
_IMPORTED["required"].remove("file")
_BINARY = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (_PACKED, _PLAIN)}
_EXPORT_DOCUMENT = _document(
    "The namespace as an archive.",
    "The archive is sent as it is read; one without its last line was cut.",
    "compressed",
    default=True,
    told={"description": "An archive.", "content": _BINARY},
)
_IMPORT_DOCUMENT = _document(
    "Put an archive back into its namespace.",
    "Nothing older replaces anything newer; a damaged archive, or one of another namespace, changes nothing.",
    "replace",
    default=False,
    told={"description": "What became of it.", "content": {"application/json": {"schema": _IMPORTED}}},
) | {"requestBody": {"required": True, "content": _BINARY}, "$defs": _IMPORTED_DEFS}
