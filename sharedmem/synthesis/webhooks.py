"""Webhooks: queue the outcome of a task and deliver it over HTTP, signed, with retries, to public addresses only.

A host must be on the public network, also after name resolution (SSRF guard).
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

import orjson
from pydantic import ValidationError

from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.queue_access import check_count
from sharedmem.coordination.queues import Queues, TaskQueue
from sharedmem.errors import AccessDeniedError, InvalidError, SharedMemoryError, UnsupportedError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Record, Task
from sharedmem.redis.scope import Scope
from sharedmem.runtime import get_logger
from sharedmem.synthesis.webhook_signatures import ID_HEADER, signed_headers

if TYPE_CHECKING:
    import ssl


QUEUE = "synthesis-webhooks"
"""The task queue for calls."""
DELIVERIES = "webhook_deliveries"
"""Counter of calls, with the label `outcome`: delivered, refused, exhausted."""
RETRY_DELAYS_S = (1.0, 2.0)
"""Pauses between the attempts of one delivery, of which there is one more."""

_TIMEOUT_S = 10.0
# The longest delivery takes three times the timeout of an attempt, and the pauses.
_VISIBILITY_S = 60.0
# Attempts of workers that died; a call that the receiver refuses is not repeated.
_MOST_CLAIMS = 3
_DEDUP_WINDOW_S = 86_400.0
_MOST_AT_ONCE = 100
_RETRYABLE_STATUSES = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
_UNKNOWN_HOST_ERRORS = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_log = get_logger("webhooks")


class WebhookDelivery(Record):
    """The outcome of a call."""

    outcome: Literal["delivered", "refused", "exhausted"]
    """`refused`: a retry would be refused again; `exhausted`: no attempt has succeeded."""
    attempts: int
    status: int | None = None
    """Status of the last response; None if there was none."""
    error: str | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver has accepted it."""
        return self.outcome == "delivered"


class _WebhookCall(Record):
    """A call as the queue stores it."""

    url: str
    id: str
    task_id: str
    status: str
    timestamp: str
    result: object = None
    error: str | None = None

    def body(self) -> bytes:
        outcome = {"error": self.error} if self.error is not None else {"result": self.result}
        return orjson.dumps(self.model_dump(include={"id", "task_id", "status", "timestamp"}) | outcome, default=str)


class _AttemptResult(NamedTuple):
    status: int | None
    error: str | None
    again: bool = False


class Webhooks:
    """Calls to the `callback_url`s of tasks in one namespace.

    Args:
        context: dependencies that the hub shares with its stores; its settings contain `webhook_secret` and
            `webhook_private`.
        scope: the namespace and the actor.
        resolve: looks up addresses of hosts; None asks the system.
        tls: how certificates of receivers are verified; None uses the default authorities of the HTTP client.
        timeout_s: seconds for one attempt, from looking up the address to the status of the answer.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        scope: Scope,
        *,
        resolve: ResolveHost | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._context = context
        self._scope = scope
        self._resolve = resolve
        self._tls = tls
        self._timeout_s = timeout_s

    @property
    def queue(self) -> TaskQueue:
        """The queue of calls; failed calls are its dead letters."""
        queues = Queues(NameAccess(self._context, self._scope))
        return queues.queue(QUEUE, visibility=_VISIBILITY_S, max_attempts=_MOST_CLAIMS, result_ttl=_DEDUP_WINDOW_S)

    async def check(self, callback_url: str) -> None:
        """Reject a URL that cannot be called, before any other work. No round trip, one look-up of a name.

        A name that cannot be resolved now passes: each call resolves it again.

        Args:
            callback_url: http or https, without credentials, of a host on the public network.

        Raises:
            InvalidError: the URL is invalid.
            UnsupportedError: the HTTP client is not installed.
        """
        if find_spec("httpx2") is None:
            raise UnsupportedError("calling webhooks", "pip install 'sharedmem-hub[synthesis]'")
        destination = parse_url(callback_url)
        if self._context.settings.webhook_private:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._addresses(destination)
        except OSError as error:
            # A TimeoutError is one as well; both may be over when the call is made.
            if error.errno in _UNKNOWN_HOST_ERRORS:
                advice = "this name cannot be resolved; give one that can be reached from here"
                raise InvalidError("callback_url", destination.host, advice) from error

    async def announce(self, task_id: str, callback_url: str, payload: Mapping[str, object]) -> str:
        """Queue a call with the outcome of a task, once, however often this is called. One round trip.

        Args:
            task_id: id of the task.
            callback_url: URL of the receiver.
            payload: `status`, and `result` or `error`. A result that is too large for the queue is left out,
                and the call contains a note to fetch it.

        Returns:
            The id of the delivery, which is sent to the receiver as well.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `TaskQueue.put`.
        """
        status = str(payload.get("status", "done"))
        named = f"{self._scope.identity.namespace}\0{task_id}\0{status}"
        call = _WebhookCall(
            url=callback_url,
            id=hashlib.sha256(named.encode()).hexdigest()[:32],
            task_id=task_id,
            status=status,
            timestamp=self._context.clock.now().isoformat(),
            result=payload.get("result"),
            error=None if payload.get("error") is None else str(payload["error"]),
        )
        try:
            await self._put(call)
        except InvalidError:
            asked = {"is_left_out": True, "reason": "it is too large to be sent; get the task"}
            await self._put(call.model_copy(update={"result": asked}))
        return call.id

    async def deliver(self, payload: object) -> WebhookDelivery:
        """Make a call: at most three attempts, with pauses of one and two seconds.

        Temporary failures are retried: no response in time, no connection, 429, 503, 504. Any other response but
        success is a refusal, and so is a redirect, and an address that is not on the public network.

        Args:
            payload: of a task of the queue.

        Returns:
            The outcome; failures do not raise.
        """
        try:
            call = _WebhookCall.model_validate(payload)
            destination = parse_url(call.url)
        except (ValidationError, InvalidError) as error:
            return self._counted(WebhookDelivery(outcome="refused", attempts=0, error=_error_text(error)))
        return self._counted(await self._delivered(call, destination))

    async def work(self, *, concurrency: int = 8) -> None:
        """Make calls until cancelled; an interrupted call is repeated by another worker.

        Args:
            concurrency: most calls at a time, up to 100.

        Raises:
            InvalidError: `concurrency` is invalid.
            AccessDeniedError: as `TaskQueue.claim`.
        """
        slots = range(check_count("concurrency", concurrency, most=_MOST_AT_ONCE))
        workers = [asyncio.ensure_future(self._work_on()) for _ in slots]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def work_once(self, *, wait: float | None = 0.0) -> WebhookDelivery | None:
        """Make the next call, and report its outcome to the queue; return None if there is no call.

        Args:
            wait: seconds to wait for a call; None waits without limit.

        Raises:
            ClaimLostError, AccessDeniedError, UnavailableError: as `TaskQueue.claim` and `TaskQueue.ack`.
        """
        task = await self.queue.claim(wait=wait)
        return None if task is None else await self._handled(task)

    # -- the queue

    async def _put(self, call: _WebhookCall) -> None:
        await self.queue.put(call.model_dump(), id=call.id, unique_for=_DEDUP_WINDOW_S)

    async def _work_on(self) -> None:
        while True:
            try:
                await self.work_once(wait=None)
            except AccessDeniedError:
                raise
            except Exception as error:  # noqa: BLE001  # a worker survives errors of its tasks
                _log.warning("no webhook can be claimed now", exc_info=error)
                await self._context.clock.sleep(getattr(error, "retry_after", 1.0))

    async def _handled(self, task: Task) -> WebhookDelivery:
        queue = self.queue
        try:
            delivery = await self.deliver(task.payload)
        except BaseException:
            # Without this its visibility timeout would end too, only later.
            with suppress(SharedMemoryError):
                await queue.retry(task, error="the worker was stopped", delay=0)
            raise
        if delivery.is_delivered:
            await queue.ack(task, delivery.model_dump())
        else:
            _log.warning("webhook of task %s: %s", task.id, delivery.error)
            await queue.fail(task, delivery.error or delivery.outcome)
        return delivery

    def _counted(self, delivery: WebhookDelivery) -> WebhookDelivery:
        self._context.counters.increment(DELIVERIES, outcome=delivery.outcome)
        return delivery

    # -- a call

    async def _delivered(self, call: _WebhookCall, destination: Destination) -> WebhookDelivery:
        attempts, tried = 1, await self._tried(call, destination)
        for pause_s in RETRY_DELAYS_S:
            if not tried.again:
                break
            await self._context.clock.sleep(pause_s)
            attempts, tried = attempts + 1, await self._tried(call, destination)
        outcome: Literal["delivered", "refused", "exhausted"] = "exhausted" if tried.again else "refused"
        if tried.error is None:
            outcome = "delivered"
        return WebhookDelivery(outcome=outcome, attempts=attempts, status=tried.status, error=tried.error)

    async def _tried(self, call: _WebhookCall, destination: Destination) -> _AttemptResult:
        import httpx2  # noqa: PLC0415  # only needed with webhooks

        host = destination.host
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._status(call, destination, await self._addresses(destination))
        except InvalidError as error:
            return _AttemptResult(None, _error_text(error))
        except TimeoutError:
            return _AttemptResult(None, f"no answer from {host} within {self._timeout_s:g} s", again=True)
        except (OSError, httpx2.HTTPError) as error:
            return _AttemptResult(None, f"{host}: {_error_text(error)}", again=True)
        return _classify_status(status, host)

    async def _addresses(self, destination: Destination) -> tuple[str, ...]:
        private = self._context.settings.webhook_private
        return await resolve_public(destination, private=private, resolve=self._resolve)

    async def _status(self, call: _WebhookCall, destination: Destination, addresses: tuple[str, ...]) -> int:
        """Return the status of the response from the first address that accepts a connection."""
        import httpx2  # noqa: PLC0415  # likewise

        for address in addresses[:-1]:
            with suppress(httpx2.ConnectError):
                return await self._posted(call, destination, address)
        return await self._posted(call, destination, addresses[-1])

    async def _posted(self, call: _WebhookCall, destination: Destination, address: str) -> int:
        import httpx2  # noqa: PLC0415  # likewise

        tls = self._tls if self._tls is not None else await asyncio.to_thread(_default_tls)
        # A client for each attempt: no proxy of the environment, no cookie and no connection of an earlier one.
        async with httpx2.AsyncClient(timeout=None, trust_env=False, follow_redirects=False, verify=tls) as client:
            sending = client.stream(
                "POST",
                destination.url_at(address),
                content=(body := call.body()),
                headers=self._headers(call, destination, body),
                # The certificate must be that of the name, not that of the address.
                extensions={"sni_hostname": destination.host},
            )
            # The rest of the response is not read, so it cannot be too large or too slow.
            async with sending as response:
                return response.status_code

    def _headers(self, call: _WebhookCall, destination: Destination, body: bytes) -> dict[str, str]:
        headers = {
            "Host": destination.authority,
            "Content-Type": "application/json",
            "User-Agent": "sharedmem-webhook/1",
            ID_HEADER: call.id,
        }
        secret = self._context.settings.webhook_secret
        if secret is not None and (shared := secret.get_secret_value()):
            now = int(self._context.clock.now().timestamp())
            headers |= signed_headers(shared, call.id, body, timestamp=now)
        return headers

    def __repr__(self) -> str:
        return f"<Webhooks of {self._scope.identity.namespace}>"


def _classify_status(status: int, host: str) -> _AttemptResult:
    """Return the meaning of a status: success, a temporary failure, or a refusal."""
    if 200 <= status < 300:
        return _AttemptResult(status, None)
    if 300 <= status < 400:
        return _AttemptResult(status, f"{host} redirects (HTTP {status}), which is not followed; give the final URL")
    return _AttemptResult(status, f"{host} responds with HTTP {status}", again=status in _RETRYABLE_STATUSES)


def _error_text(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "the task in the queue is not a webhook"
    return f"{type(error).__name__}: {error}".rstrip(": ")[:300]


@cache
def _default_tls() -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415  # likewise

    # This reads the certificates of the machine.
    return httpx2.create_ssl_context()


# -- allowed addresses ---------------------------------------------------------------------------


ResolveHost: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host and port, as texts; raises `OSError` if none exist."""
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_FIELD = "callback_url"
_LONGEST_URL, _LONGEST_HOST = 2_000, 253
_PORTS = {"http": 80, "https": 443}
_VALID_URL = re.compile(r"[!-~]+")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# A last label of this kind is read as a number by the resolvers of most systems.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Addresses that Python counts as global, but that lead to machines outside of the public network.
_BLOCKED_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # Azure's metadata
        "2002::/16",  # 6to4: any IPv4 address may be inside
        "3fff::/20",  # documentation
    )
)


class Destination(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str
    """In lower case, as ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""

    @property
    def authority(self) -> str:
        """Host and port as the `Host` header names them."""
        return self._at(self.host)

    def url_at(self, address: str) -> str:
        """Return the URL with an address in place of the name."""
        return f"{self.scheme}://{self._at(address)}{self.target}"

    def _at(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        return shown if self.port == _PORTS[self.scheme] else f"{shown}:{self.port}"


def parse_url(url: str) -> Destination:
    """Return the parts of a URL that is allowed for a webhook; its address is not checked here.

    Args:
        url: absolute.

    Raises:
        InvalidError: it is not http or https, has credentials, or its host is neither a name nor a usual address.
    """
    if not isinstance(url, str) or not _VALID_URL.fullmatch(url) or "\\" in url or len(url) > _LONGEST_URL:
        advice = f"give a URL of at most {_LONGEST_URL} printable ASCII characters, others percent-encoded"
        raise InvalidError(_FIELD, "...", advice)
    parts = _split(url)
    if parts.scheme not in _PORTS:
        raise InvalidError(_FIELD, parts.scheme, "begin it with https:// or http://")
    if "@" in parts.netloc:
        raise InvalidError(_FIELD, "...", "leave user and password out of it; calls are signed instead")
    host, port = _host(parts), _port(parts)
    query = f"?{parts.query}" if parts.query else ""
    return Destination(parts.scheme, host, port, f"{parts.path or '/'}{query}")


def refusal_reason(address: str) -> str | None:
    """Return why an address is rejected; None if it is on the public network.

    Args:
        address: an address from the resolver. For an IPv6 address with an IPv4 address inside, that one decides.
    """
    try:
        found: IpAddress = ipaddress.ip_address(address)
    except ValueError:
        return "is not an address"
    if isinstance(found, ipaddress.IPv6Address):
        inner = _embedded_address(found)
        if inner is None and found not in _PUBLIC_V6:
            return "is not on the public network"
        found = inner or found
    if not found.is_global or found.is_multicast or any(found in network for network in _BLOCKED_NETWORKS):
        return "is not on the public network"
    return None


async def resolve_public(
    destination: Destination, *, private: bool, resolve: ResolveHost | None = None
) -> tuple[str, ...]:
    """Look up the addresses of a host once, so that the caller connects to the addresses that were checked.

    Args:
        destination: the parsed URL.
        private: whether addresses of private networks are allowed.
        resolve: the resolver; None for the system's.

    Raises:
        InvalidError: one of the addresses is not on the public network, even if others are.
        OSError: the name cannot be resolved now.
    """
    addresses = await (resolve or system_resolve)(destination.host, destination.port)
    for address in () if private else addresses:
        if reason := refusal_reason(address):
            advice = f"it leads to {address}, which {reason}; the setting webhook_private would allow it"
            raise InvalidError(_FIELD, destination.host, advice)
    if not addresses:
        raise OSError(f"{destination.host} has no address")
    return tuple(addresses)


async def system_resolve(host: str, port: int) -> list[str]:
    """Return the system's addresses of a host, in the order in which it would try them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _embedded_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise InvalidError(_FIELD, "...", "its host is neither a name nor an address") from None


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise InvalidError(_FIELD, parts.netloc, "give a port from 1 to 65535, or none")
    return port or _PORTS[parts.scheme]


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    if _is_address(host, bracketed=parts.netloc.startswith("[")) or _is_name(host):
        return host
    raise InvalidError(_FIELD, host, "name a host, or give an address in its usual spelling")


def _is_address(host: str, *, bracketed: bool) -> bool:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return bracketed == (found.version == 6) and "%" not in host


def _is_name(host: str) -> bool:
    labels = host.split(".")
    return (
        len(host) <= _LONGEST_HOST
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )
