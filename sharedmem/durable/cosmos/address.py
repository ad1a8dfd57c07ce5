"""The URL, key and timeouts of a Cosmos DB account, parsed from the settings; no I/O."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from sharedmem.durable.cosmos.errors import login_error
from sharedmem.errors import ConfigError

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
