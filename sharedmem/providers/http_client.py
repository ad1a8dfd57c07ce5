"""The HTTP client of model services, and their endpoints: URL, key or Entra ID login, and settings.

The client has timeouts, limited concurrency, and retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import orjson
from pydantic import SecretStr

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.config.model_services import MODEL_SERVICES
from sharedmem.errors import ConfigError, LimitedError, SharedMemoryError, UnavailableError, UnsupportedError
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import backoff

if TYPE_CHECKING:
    import httpx2
    from azure.core.credentials_async import AsyncTokenCredential


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
    return error if isinstance(error, str) else f"{error.get('message', '')} ({error.get('code', error.get('type'))})"


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


# -- endpoints -----------------------------------------------------------------------------------


_SCOPE = "https://cognitiveservices.azure.com/.default"


class EntraLogin:
    """Tokens for the account that runs this process: a managed identity, a workload identity, or a developer's login.

    Args:
        field: the setting that could contain a key instead, for errors.
        credential: returns tokens; None tries all credentials of azure-identity.

    Raises:
        UnsupportedError: azure-identity is not installed.
    """

    def __init__(self, field: str, credential: AsyncTokenCredential | None = None) -> None:
        self._field = field
        self._credential = credential or _default_credential(field)

    async def token(self) -> str:
        """Return a token that is valid now; azure-identity caches and renews it.

        Raises:
            ConfigError: no account is logged in.
        """
        from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415  only needed without a key

        try:
            return (await self._credential.get_token(_SCOPE)).token
        except ClientAuthenticationError as error:
            problem = "it is not set, and Entra ID finds no login; set it, or run `az login`"
            raise ConfigError(self._field, "default", problem) from error

    async def close(self) -> None:
        """Close connections."""
        await self._credential.close()


def _default_credential(field: str) -> AsyncTokenCredential:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  it takes long to load
    except ImportError as error:
        remedy = f"pip install azure-identity aiohttp, or set {field}"
        raise UnsupportedError("logging in at Azure with Entra ID", remedy) from error
    return DefaultAzureCredential()


_OPENAI = MODEL_SERVICES["openai"].base_url or ""
_ANTHROPIC_VERSION = "2023-06-01"
_API_VERSION = "2024-10-21"
_AZURE_V1 = "/openai/v1"


class ServiceRole(NamedTuple):
    """The settings of one kind of service, and its path."""

    chooser: str
    """The setting with provider and model."""
    url: str
    key: str
    timeout: str
    path: str
    counted_as: str


EMBEDDING = ServiceRole(
    "embedder", "embedding_url", "embedding_key", "embedding_timeout_s", "embeddings", "embedding_requests"
)
CHAT = ServiceRole("llm", "llm_url", "llm_key", "llm_timeout_s", "chat/completions", "llm_requests")
RERANKING = ServiceRole("reranker", "reranker_url", "reranker_key", "reranker_timeout_s", "rerank", "rerank_requests")


@dataclass(frozen=True)
class ModelEndpoint:
    """A service that requests are sent to; its `repr` shows no key."""

    provider: str
    """One of `config.model_services.MODEL_SERVICES`."""
    model: str
    url: str
    """The complete URL, with path and query."""
    role: ServiceRole
    settings: Settings = field(repr=False)
    key: str | None = field(repr=False)
    login: EntraLogin | None = field(repr=False)
    """Login for Azure, instead of a key."""

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self.provider}:{self.model}"

    @property
    def host(self) -> str:
        """Host of the service, for errors."""
        return urlsplit(self.url).netloc

    @property
    def is_compatible_only(self) -> bool:
        """Whether this is another provider's service with the API of OpenAI."""
        return self.provider != "azure" and not self.url.startswith(_OPENAI)

    async def headers(self) -> dict[str, str]:
        """Return the headers for authentication.

        Raises:
            ConfigError: no account is logged in.
        """
        if self.login is not None:
            return {"Authorization": f"Bearer {await self.login.token()}"}
        version = {"anthropic-version": _ANTHROPIC_VERSION} if self.provider == "anthropic" else {}
        if self.key is None:
            return version
        match self.provider:
            case "azure":
                return {"api-key": self.key}
            case "anthropic":
                return {**version, "x-api-key": self.key}
        return {"Authorization": f"Bearer {self.key}"}

    async def close(self) -> None:
        """Close connections."""
        if self.login is not None:
            await self.login.close()

    def config_error(self, setting: str, problem: str) -> ConfigError:
        """Return an error with the setting and the origin of its value."""
        return ConfigError(setting, self.settings.origin(setting), problem)


def open_endpoint(settings: Settings, role: ServiceRole) -> ModelEndpoint:
    """Return the service that settings choose for a role.

    Raises:
        ConfigError: its URL or key is missing, or the key is invalid.
        UnsupportedError: Azure without a key requires azure-identity, which is not installed.
    """
    provider, _, model = getattr(settings, role.chooser).partition(":")
    base: str | None = getattr(settings, role.url)
    key = _api_key(settings, role)
    if provider == "azure" and base is None:
        problem = "azure needs it; set it to the resource, as in https://<name>.openai.azure.com"
        raise ConfigError(role.url, settings.origin(role.url), problem)
    service = MODEL_SERVICES[provider]
    if service.key_variables and base is None and key is None:
        problem = f"{service.label} needs it; set it, or set {role.url} to a service that takes no key"
        raise ConfigError(role.key, settings.origin(role.key), problem)
    login = EntraLogin(role.key) if provider == "azure" and key is None else None
    if provider == "azure":
        url = _azure_url(base or "", model, role.path)
    else:
        url = _join_url(base or service.base_url or "", "messages" if provider == "anthropic" else role.path)
    return ModelEndpoint(provider, model, url, role, settings, key, login)


def _api_key(settings: Settings, role: ServiceRole) -> str | None:
    secret: SecretStr | None = getattr(settings, role.key)
    # Files with secrets often end with a line break.
    key = secret.get_secret_value().strip() if secret else ""
    if not key.isascii() or not key.isprintable():
        problem = "its value is refused: a key has ASCII letters and signs only"
        raise ConfigError(role.key, settings.origin(role.key), problem)
    return key or None


def _azure_url(base: str, deployment: str, path: str) -> str:
    parts = urlsplit(base)
    if parts.path.endswith(_AZURE_V1):
        return _join_url(base, path)
    resource = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query or f"api-version={_API_VERSION}", ""))
    return _join_url(resource, f"openai/deployments/{quote(deployment, safe='')}/{path}")


def _join_url(base: str, path: str) -> str:
    parts = urlsplit(base)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{path}", parts.query, ""))
