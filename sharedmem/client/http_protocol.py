"""What both HTTP clients share: service URL, headers, checks of replies, retries."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit

from sharedmem.client.errors import raise_problem
from sharedmem.client.routes import HttpRequest
from sharedmem.clock import new_id
from sharedmem.errors import InvalidError, SharedMemoryError, UnsupportedError
from sharedmem.runtime.backoff import backoff_pause
from sharedmem.runtime.spans import trace_headers

DEFAULT_URL = "http://127.0.0.1:8420"
_UNIX_SCHEME = "unix:"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class ServiceUrl(NamedTuple):
    """Where a service is."""

    url: str
    socket: str | None
    """Path of the unix socket that requests go through; None for TCP."""

    @property
    def shown(self) -> str:
        """The address as errors show it."""
        return f"{_UNIX_SCHEME}{self.socket}" if self.socket else self.url


def parse_service_url(base_url: str) -> ServiceUrl:
    """Parse a base URL.

    Args:
        base_url: `http://host:port`, `https://...`, or `unix:/path/of.sock`.

    Raises:
        InvalidError: it is invalid, or contains credentials.
        UnsupportedError: the HTTP client is not installed.
    """
    if find_spec("httpx2") is None:
        raise UnsupportedError("the client", "pip install 'sharedmem-hub[client]'")
    if base_url.startswith(_UNIX_SCHEME):
        path = base_url.removeprefix(_UNIX_SCHEME).removeprefix("//")
        return ServiceUrl("http://localhost", path)
    parts = urlsplit(base_url)
    if "@" in parts.netloc:
        raise InvalidError("base_url", "...", "leave credentials out of it; give the token as token=")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise InvalidError("base_url", base_url, "give it as http://host:port, https://host or unix:/path/of.sock")
    return ServiceUrl(base_url.rstrip("/"), None)


def base_headers(token: str | None) -> dict[str, str]:
    """Return the headers of every request.

    Raises:
        InvalidError: the token is invalid.
    """
    headers = {"Accept": "application/json"}
    if token is None:
        return headers
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidError("token", "***", "give it just as `sharedmem token` has shown it")
    return headers | {"Authorization": f"Bearer {token}"}


def request_headers(request: HttpRequest) -> dict[str, str]:
    """Return the headers of one request; a retry has the same idempotency key, so the service does it once."""
    headers = trace_headers()
    if request.content is None:
        return headers
    headers["Content-Type"] = "application/json"
    return headers | {"Idempotency-Key": new_id(32)} if request.method == "POST" else headers


def check_reply(status: int, content: bytes, *, server: str) -> bytes:
    """Return the content of a successful reply.

    Raises:
        SharedMemoryError: the reply is an error.
    """
    if not 200 <= status < 300:
        raise_problem(status, content, server=server)
    return content or b"null"


class RetryState:
    """When to send a request again.

    Args:
        retry_for_s: seconds until no retry is made.
        now_s: the time now.
    """

    def __init__(self, retry_for_s: float, now_s: float) -> None:
        self._ends_at = now_s + retry_for_s
        self._attempts = 0

    def pause_s(self, error: SharedMemoryError, now_s: float) -> float:
        """Return the seconds until the next try: random with a growing bound, at least what the server asks for.

        Raises:
            SharedMemoryError: the error itself, when a retry cannot help or there is no time for it.
        """
        asked_s = getattr(error, "retry_after", None)
        if not isinstance(asked_s, int | float):
            raise error
        spread = backoff_pause(self._attempts, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        # A server that did not answer has set no `retry_after`.
        pause = spread if error.__cause__ is not None else max(asked_s, spread)
        if now_s + pause > self._ends_at:
            raise error
        self._attempts += 1
        return pause
