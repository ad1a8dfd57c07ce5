"""The console: a page in the browser over the REST service, and one-time links that let a person in.

The page is built from `console/`; its files are beside this module. It speaks the public API alone, so serving it is a
matter of files, of the policy that keeps strangers' scripts out, and of `POST /console/login`.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import mimetypes
import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import ConfigError, SharedMemoryError
from sharedmem.faces.auth import TokenRefusedError
from sharedmem.faces.rest.context import json_response
from sharedmem.faces.rest.problems import problem_response

_FOLDER = "console_files"
_INDEX = "index.html"
_PLACE = "/console"
# Scripts, styles, pictures and calls go to this service alone. No other page frames it, and no form leaves it.
_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LINK_WITHIN = timedelta(minutes=10)
_MOST_BODY_BYTES = 1000
_YEAR_S = 31_536_000


class LinkRefusedError(TokenRefusedError):
    """A one-time link that is not accepted any more."""

    def __init__(self, problem: str) -> None:
        SharedMemoryError.__init__(self, f"{problem}; start `sharedmem console` again for another, or show a token")
        self.actor, self.key, self.need = "", "", ""
        self.shown, self.knows = True, True


class _File(NamedTuple):
    """A file of the page, as it is sent."""

    body: bytes
    packed: bytes
    kind: str
    etag: str
    is_hashed: bool
    """Whether its name contains a hash of its content, so that it never changes."""


class LoginCode:
    """A code that is exchanged for a token once, within ten minutes.

    Args:
        token: what it is exchanged for.
        clock: source of the time.
    """

    def __init__(self, token: str, *, clock: Clock | None = None) -> None:
        self._token = token
        self._clock = clock or SystemClock()
        self._until = self._clock.now() + _LINK_WITHIN
        self._is_used = False
        self.code = secrets.token_urlsafe(24)

    def redeem(self, code: str) -> str:
        """Return the token, once.

        Raises:
            LinkRefusedError: it is another code, was redeemed before, or is older than ten minutes.
        """
        if not hmac.compare_digest(code.encode(), self.code.encode()):
            raise LinkRefusedError("this link is of a console that has ended")
        if self._is_used:
            raise LinkRefusedError("this link has been used, and lets one person in once")
        if self._clock.now() > self._until:
            raise LinkRefusedError("this link has expired: it was good for ten minutes")
        self._is_used = True
        return self._token

    def __repr__(self) -> str:
        return f"<LoginCode {'used' if self._is_used else 'unused'}>"


class Console:
    """The page, and the one-time link to it.

    Args:
        login: the code of the link; None where callers show tokens of their own.

    Raises:
        ConfigError: the page is not part of this installation.
    """

    def __init__(self, login: LoginCode | None = None) -> None:
        folder = files("sharedmem.faces.rest") / _FOLDER
        if not (folder / _INDEX).is_file():
            raise ConfigError("console", "argument", "its page has not been built: `make console` builds it")
        self._login = login
        self._files: Mapping[str, _File] = dict(_read(folder, ""))

    def routes(self) -> list[BaseRoute]:
        """Return what an application serves."""
        return [
            Route(_PLACE, _redirect, methods=["GET"]),
            Route(f"{_PLACE}/login", self._redeem, methods=["POST"]),
            Route(f"{_PLACE}/{{path:path}}", self._file, methods=["GET"]),
        ]

    async def _file(self, request: Request) -> Response:
        path = request.path_params["path"] or _INDEX
        found = self._files.get(path)
        if found is None:
            return Response("there is no such file", 404, media_type="text/plain")
        headers = {
            "etag": found.etag,
            "vary": "accept-encoding",
            "cache-control": f"public, max-age={_YEAR_S}, immutable" if found.is_hashed else "no-cache",
            "content-security-policy": _POLICY,
            "cross-origin-opener-policy": "same-origin",
        }
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(found.packed, headers=headers, media_type=found.kind)
        return Response(found.body, headers=headers, media_type=found.kind)

    async def _redeem(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY_BYTES:
                break
        if self._login is None:
            return problem_response(LinkRefusedError("this service accepts no links"))
        try:
            token = self._login.redeem(_code_in(body))
        except LinkRefusedError as refused:
            return problem_response(refused)
        return json_response({"token": token}, headers={"cache-control": "no-store"})


async def _redirect(request: Request) -> Response:
    return RedirectResponse(request.url.path.rstrip("/").rpartition("/")[2] + "/")


def _code_in(body: bytes) -> str:
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    return str(told.get("code", "")) if isinstance(told, dict) else ""


def _read(folder: Traversable, before: str) -> Iterable[tuple[str, _File]]:
    for entry in folder.iterdir():
        name = before + entry.name
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        else:
            body = entry.read_bytes()
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            digest = hashlib.sha256(body).hexdigest()[:32]
            yield name, _File(body, gzip.compress(body, mtime=0), kind, f'"{digest}"', is_hashed=bool(before))
