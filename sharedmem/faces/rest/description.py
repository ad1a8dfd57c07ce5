"""The description of the service as it is sent: made once a process, whoever asks, and not sent twice to the same."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

PATH = "/openapi.json"
_JSON = "application/json"
_MOST_ROOTS = 16


class _Spelled(NamedTuple):
    """The description as bytes."""

    tag: str
    plain: bytes
    packed: bytes


class Description:
    """Answers `/openapi.json` and `/docs`.

    Args:
        title: of the page.
        made: makes the description; called once, in a thread.
    """

    def __init__(self, title: str, made: Callable[[], Mapping[str, Any]]) -> None:
        self._title = title
        self._made = made
        self._spelled: dict[str, _Spelled] = {}
        self._spelling = asyncio.Lock()

    async def document(self, request: Request) -> Response:
        """The description; 304 for who has it, gzip for who takes that."""
        spelled = await self._of(request.scope.get("root_path", ""))
        headers = {"etag": spelled.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if spelled.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if _takes_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
            return Response(spelled.packed, headers=headers, media_type=_JSON)
        return Response(spelled.plain, headers=headers, media_type=_JSON)

    async def page(self, request: Request) -> Response:
        """The description for people; the page loads its scripts from elsewhere."""
        return get_swagger_ui_html(openapi_url=request.scope.get("root_path", "") + PATH, title=self._title)

    async def _of(self, root: str) -> _Spelled:
        if root in self._spelled:
            return self._spelled[root]
        async with self._spelling:
            if root in self._spelled:
                return self._spelled[root]
            spelled = await asyncio.to_thread(self._spell, root)
            if len(self._spelled) < _MOST_ROOTS:
                self._spelled[root] = spelled
            return spelled

    def _spell(self, root: str) -> _Spelled:
        # Where the application is mounted, clients find the paths below its root.
        told = dict(self._made()) | ({"servers": [{"url": root}]} if root else {})
        plain = orjson.dumps(told)
        return _Spelled(f'"{hashlib.sha256(plain).hexdigest()[:32]}"', plain, gzip.compress(plain, mtime=0))


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
