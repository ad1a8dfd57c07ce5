"""The HTTP client of model services: timeouts, limited concurrency, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import orjson

from sharedmem.clock import Clock
from sharedmem.errors import ConfigError, LimitedError, SharedMemoryError, UnavailableError, UnsupportedError
from sharedmem.providers.endpoint import ModelEndpoint
from sharedmem.runtime import Counters
from sharedmem.runtime.backoff import backoff

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
Json: TypeAlias = Mapping[str, object]
_Receive: TypeAlias = Callable[["httpx2.Response"], Awaitable[T]]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LOGIN = frozenset({401, 403})
_SHOWN_CHARACTERS = 200


class RetryPolicy(NamedTuple):
    """Timeouts and concurrency of a service."""

    timeout_s: float
    """Seconds for one request."""
    retry_for_s: float
    """Seconds for all tries of one call."""
    concurrency: int
    """Concurrent requests."""


class GarbledError(Exception):
    """A response that does not fit the API; a later one may."""


class RefusedError(ConfigError):
    """The service refuses a request because of its content; `status` is the HTTP status."""

    def __init__(self, endpoint: ModelEndpoint, status: int, message: str) -> None:
        field = endpoint.role.chooser
        problem = f"{endpoint.host} refuses the request (HTTP {status}): {message}"
        super().__init__(field, endpoint.settings.origin(field), problem)
        self.status = status


class _TransientError(Exception):
    def __init__(self, error: SharedMemoryError, wait_s: float) -> None:
        super().__init__(error, wait_s)
        self.error = error
        self.wait_s = wait_s


class ModelHttpClient:
    """The client of one service; connections are opened with the first request, and kept.

    Args:
        endpoint: the service.
        patience: timeouts and concurrency.
        clock: for pauses between tries.
        counters: count `<counted_as>` by model and outcome, and `provider_retries`.
        counted_as: name of the counter of its requests.

    Raises:
        UnsupportedError: the HTTP client is not installed.
    """

    def __init__(
        self, endpoint: ModelEndpoint, *, patience: RetryPolicy, clock: Clock, counters: Counters, counted_as: str
    ) -> None:
        if find_spec("httpx2") is None:
            raise UnsupportedError(f"the provider {endpoint.provider}", "pip install 'sharedmem-hub[openai]'")
        self.endpoint = endpoint
        self._patience = patience
        self._clock = clock
        self._counters = counters
        self._counted_as = counted_as
        self._slots = asyncio.Semaphore(patience.concurrency)
        self._opening = asyncio.Lock()
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, body: Json, read: Callable[[object], T]) -> T:
        """Send a request and return what `read` makes of the JSON response.

        Args:
            body: sent as JSON.
            read: may raise `GarbledError`, after which the request is sent again.

        Raises:
            UnavailableError, LimitedError: it did not respond in time.
            ConfigError: it refuses the key, the model or the content (then a `RefusedError`).
        """

        async def receive(response: httpx2.Response) -> T:
            return read(_parse_json(await response.aread()))

        return await self._persist(body, receive)

    async def listen(self, body: Json, read: Callable[[AsyncIterator[bytes]], Awaitable[T]]) -> T:
        """Send a request whose response is read line by line while it arrives; see `ask`."""

        async def receive(response: httpx2.Response) -> T:
            return await read(_read_lines(response))

        return await self._persist(body, receive)

    async def close(self) -> None:
        """Close connections; may be called again."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        await self.endpoint.close()

    async def _persist(self, body: Json, receive: _Receive[T]) -> T:
        deadline = self._clock.monotonic() + self._patience.retry_for_s
        for pause in backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S):
            try:
                return await self._once(body, receive)
            except _TransientError as failure:
                wait_s = max(failure.wait_s, pause)
                if self._clock.monotonic() + wait_s > deadline:
                    raise failure.error from failure.__cause__
            self._counters.increment("provider_retries", model=self.endpoint.name)
            await self._clock.sleep(wait_s)
        raise AssertionError  # the pauses never end

    async def _once(self, body: Json, receive: _Receive[T]) -> T:
        outcome = "failed"
        client = await self._connected()
        try:
            async with self._slots, asyncio.timeout(self._patience.timeout_s), self._sent(client, body) as response:
                if response.status_code != HTTPStatus.OK:
                    outcome = "refused"
                    raise self._refusal(response, await response.aread())
                answer = await receive(response)
                outcome = "ok"
                return answer
        except TimeoutError as error:
            raise self._transient_error(f"no answer within {self._patience.timeout_s:g} s") from error
        except GarbledError as error:
            advice = f"check {self.endpoint.role.url} if this persists"
            raise self._transient_error(f"its response does not fit this API: {error}; {advice}") from error
        finally:
            self._counters.increment(self._counted_as, model=self.endpoint.name, outcome=outcome)

    @asynccontextmanager
    async def _sent(self, client: httpx2.AsyncClient, body: Json) -> AsyncIterator[httpx2.Response]:
        import httpx2  # noqa: PLC0415  only needed with such a provider

        headers = {"Content-Type": "application/json", **await self.endpoint.headers()}
        try:
            async with client.stream(
                "POST", self.endpoint.url, content=orjson.dumps(body), headers=headers
            ) as response:
                yield response
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise self.endpoint.config_error(self.endpoint.role.url, "its value is not a URL for requests") from error
        except httpx2.RequestError as error:
            raise self._transient_error(f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def _connected(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                # This reads the certificates of the machine.
                self._client = await asyncio.to_thread(_new_client)
            return self._client

    def _transient_error(self, why: str, *, wait_s: float = 0.0) -> _TransientError:
        failure = UnavailableError(f"{self.endpoint.name} at {self.endpoint.host}", why, retry_after=max(wait_s, 1.0))
        return _TransientError(failure, wait_s)

    def _refusal(self, response: httpx2.Response, content: bytes) -> Exception:
        status, role = response.status_code, self.endpoint.role
        message = self._message(content)
        if status in _LOGIN:
            # Its message is left out: it may quote the key.
            return self.endpoint.config_error(role.key, f"{self.endpoint.host} refuses it (HTTP {status}); check it")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return self._limited(response, message)
        if status in _TRANSIENT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._transient_error(f"HTTP {status}: {message}", wait_s=self._retry_after(response))
        if status == HTTPStatus.NOT_FOUND or 300 <= status < 400:
            problem = f"HTTP {status} at {self.endpoint.url}: {message}; check {role.url} and the name of the model"
            return self.endpoint.config_error(role.chooser, problem)
        return RefusedError(self.endpoint, status, message)

    def _limited(self, response: httpx2.Response, message: str) -> Exception:
        wait_s = self._retry_after(response)
        failure = LimitedError(f"{self.endpoint.name} asks for fewer requests: {message}", max(wait_s, 1.0))
        # A used-up quota does not come back after a pause.
        return failure if "insufficient_quota" in message else _TransientError(failure, wait_s)

    def _retry_after(self, response: httpx2.Response) -> float:
        """Return the seconds that the service asks to wait, by any header; 0 without one."""
        return retry_after_s(response.headers, self._clock.now())

    def _message(self, content: bytes) -> str:
        """Return its error message, on one short line, without the key."""
        text = content.decode("utf-8", "replace")
        if self.endpoint.key:
            text = text.replace(self.endpoint.key, "***")
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            text = _error_message(orjson.loads(text))
        shown = " ".join(text.split()) or "no reason given"
        return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."

    def __repr__(self) -> str:
        return f"<Service {self.endpoint.name} at {self.endpoint.host}>"


def _error_message(answer: Any) -> str:
    """Return the message of an error: in `error` (OpenAI), `message` (Cohere) or `detail` (Jina).

    Raises:
        LookupError, TypeError, AttributeError: it has another form.
    """
    if "error" not in answer:
        return str(answer["message"] if "message" in answer else answer["detail"])
    error = answer["error"]
    return error if isinstance(error, str) else f"{error.get('message', '')} ({error.get('code')})"


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float:
    """Return the seconds that `Retry-After` (in seconds, or as a date) or `retry-after-ms` asks to wait; else 0.

    Args:
        headers: headers of the response; names in lower case.
        now: the current time.
    """
    milliseconds, after = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return _parse_seconds(milliseconds) / 1000
        return _parse_seconds(after) if after is not None else 0.0
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(after or "")
    except ValueError:
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)


def _parse_seconds(text: str) -> float:
    seconds = float(text)
    return seconds if 0 <= seconds < float("inf") else 0.0


def _parse_json(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except ValueError:
        raise GarbledError("the response is not JSON") from None


async def _read_lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield lines, split at line feeds only: texts may contain other signs that Python treats as line ends."""
    rest = b""
    async for received in response.aiter_bytes():
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            yield line
    yield rest


def _new_client() -> httpx2.AsyncClient:
    import httpx2  # noqa: PLC0415  likewise

    # The caller limits the time: one limit for the whole request, not one for each of its steps.
    return httpx2.AsyncClient(timeout=None)
