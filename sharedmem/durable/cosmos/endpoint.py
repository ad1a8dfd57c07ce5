"""The endpoint of a Cosmos DB account, parsed from the settings, and the errors for its error responses; no I/O.

An error response is mapped to an error of this library, and it is decided whether to retry.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from sharedmem.errors import (
    AccessDeniedError,
    ConfigError,
    InternalError,
    LimitedError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
    UsageError,
)

EMULATOR_SCHEME = "cosmos+http"
_SCHEMES = {"cosmos": "https", EMULATOR_SCHEME: "http"}
# Documented by Microsoft: every emulator has this key.
_EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGgyPMbIZnqyMsEcaGQy67XIw/Jw=="


class CosmosTimeouts(NamedTuple):
    """Timeouts for the service."""

    request_s: float = 5.0
    """Timeout of one request; the SDK's own timeouts do not end a slow one."""
    total_s: float = 15.0
    """Timeout of a request with its retries."""


class CosmosEndpoint(NamedTuple):
    """The address of an account."""

    url: str
    is_emulator: bool


def parse_endpoint(url: str) -> CosmosEndpoint:
    """Return the account that a `durable_url` names.

    Args:
        url: `cosmos://host[:port]`, or `cosmos+http://host:port` for an emulator.

    Raises:
        ConfigError: the scheme is unknown, the host is missing, or there is a path, query or credentials.
    """
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        sound = scheme in _SCHEMES and parts.hostname and not (parts.path.strip("/") or parts.query or parts.username)
        port = parts.port
    except ValueError:
        sound, port = None, None
    if not sound:
        problem = "write it like cosmos://account.documents.azure.com; the names of database and container are settings"
        raise ConfigError("durable_url", "the durable tier's settings", problem)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return CosmosEndpoint(f"{_SCHEMES[scheme]}://{host}{f':{port}' if port else ''}/", scheme == EMULATOR_SCHEME)


def key_for(endpoint: CosmosEndpoint, key: SecretStr | None) -> str | None:
    """Return the account key, or None where Entra ID logs in.

    Raises:
        ConfigError: the key is invalid; the error does not quote it.
    """
    if key is None:
        return _EMULATOR_KEY if endpoint.is_emulator else None
    text = key.get_secret_value()
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        # The cause is left out, since an error must not contain the key.
        problem = "it is not an account key (those are base64); copy the primary or secondary key of the account"
        raise login_error(problem, with_key=True) from None
    return text


# -- errors of an account ------------------------------------------------------------------------


_SERVICE = "the durable tier (Cosmos DB)"
_OWNER_IS_MISSING = 1003
_SESSION_NOT_AVAILABLE = 1002
_WRITES_ARE_ELSEWHERE = 3
_ACCOUNT_IS_MOVING = 1008
NO_ANSWER = 0
"""The status of a request without a response."""
# 449: two writes met; 410 and 403/3: a partition or the write region is moving.
_TRANSIENT_STATUSES = frozenset({NO_ANSWER, 408, 410, 449, 500, 502, 503, 504})
_MOST_CHARS = 300

EXPECTED_STATUSES = frozenset({400, 404, 409, 412, 413})
"""Statuses about a single document; the caller handles them."""


class ErrorResponse(NamedTuple):
    """An error response of the service."""

    status: int
    substatus: int = 0
    message: str = ""
    retry_after_s: float | None = None


class CosmosTarget(NamedTuple):
    """The account and the identity of a connection, for errors."""

    database: str
    container: str
    with_key: bool

    @property
    def identity(self) -> str:
        """The kind of identity of this connection."""
        return "account key" if self.with_key else "Entra ID identity"


def is_expected(refusal: ErrorResponse) -> bool:
    """Return whether it is about a single document only."""
    if refusal.status == 404:
        return refusal.substatus not in {_OWNER_IS_MISSING, _SESSION_NOT_AVAILABLE}
    return refusal.status in EXPECTED_STATUSES


def is_transient(refusal: ErrorResponse) -> bool:
    """Return whether a retry may help."""
    if refusal.status == 403:
        return refusal.substatus in {_WRITES_ARE_ELSEWHERE, _ACCOUNT_IS_MOVING}
    return refusal.status in _TRANSIENT_STATUSES or refusal.status == 429 or refusal.substatus == _SESSION_NOT_AVAILABLE


def to_error(refusal: ErrorResponse, target: CosmosTarget) -> SharedMemoryError:
    """Return the error for the caller, if a retry cannot help or has failed."""
    if refusal.status == 429:
        return LimitedError(
            f"{_SERVICE} is out of request units for container {target.container!r}", refusal.retry_after_s or 1.0
        )
    if refusal.status == NO_ANSWER:
        return unreachable_error(shorten_message(refusal.message))
    if is_transient(refusal):
        return unreachable_error(f"it replied {refusal.status}: {shorten_message(refusal.message)}")
    if refusal.status in {401, 403}:
        place = f"{target.database}/{target.container}"
        return AccessDeniedError(
            target.identity, place, "read and write", _access_denied_error(refusal, with_key=target.with_key)
        )
    if refusal.status == 404:
        return container_missing_error(target)
    if refusal.status == 400:
        return ConfigError(
            "cosmos_container",
            "the durable tier's settings",
            f"container {target.container!r} rejects a request of sharedmem ({shorten_message(refusal.message)}); "
            "compare its indexing policy with docs/cosmos.md",
        )
    return InternalError(f"{_SERVICE} replied {refusal.status} unexpectedly: {shorten_message(refusal.message)}")


def container_missing_error(target: CosmosTarget) -> NotFoundError:
    """Return the error for a container that does not exist (any more)."""
    return NotFoundError(
        "Cosmos DB container",
        f"{target.database}/{target.container}",
        "correct cosmos_database and cosmos_container, or deploy deploy/cosmos.bicep",
    )


def not_open_error(why: str) -> UsageError:
    """Return the error for a store that is not open, or closed."""
    return UsageError(_SERVICE, why)


def unreachable_error(why: str) -> UnavailableError:
    """Return the error for a missing or useless response."""
    return UnavailableError(_SERVICE, why)


def _access_denied_error(refusal: ErrorResponse, *, with_key: bool) -> str:
    """Return the reason of a rejected access, and the remedy."""
    reason = shorten_message(refusal.message)
    if refusal.status == 401 and with_key:
        return f"cosmos_key is wrong or was rotated; copy the account's current one ({reason})"
    if refusal.status == 401:
        return f"the token from Entra ID was rejected; log in to the account's tenant ({reason})"
    if with_key:
        return f"a firewall, a read-only key or disabled keys (disableLocalAuth) prevents the access ({reason})"
    return f"assign it the role 'Cosmos DB Built-in Data Contributor' on the account, see docs/cosmos.md ({reason})"


def login_error(problem: str, *, with_key: bool) -> ConfigError:
    """Return the error for credentials that cannot work."""
    origin = "the durable tier's settings" if with_key else "not set, hence Entra ID"
    return ConfigError("cosmos_key", origin, problem)


def shorten_message(message: str) -> str:
    """Return the message of the service on one line: the message in its JSON, or the text itself."""
    try:
        text = json.loads(message)["message"]
    except (ValueError, TypeError, KeyError):
        text = message
    line = " ".join(str(text).split())
    return line if len(line) <= _MOST_CHARS else f"{line[: _MOST_CHARS - 3]}..."
