"""Tokens of Entra ID as credentials of Redis: for Azure Managed Redis and Azure Cache for Redis."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from sharedmem.errors import UnsupportedError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_SCOPE = "https://redis.azure.com/.default"


class EntraCredentials:
    """Logs in with tokens of Entra ID: those of a managed identity, a workload identity, or a developer's log-in.

    azure-identity caches a token, and gets another one in the last five minutes of its life.

    Args:
        credential: returns tokens; the caller closes it. None: `DefaultAzureCredential`, closed with the hub.
        username: object id of the identity; None: as the token says.

    Raises:
        UnsupportedError: the extra `entra` is not installed.
    """

    def __init__(self, credential: AsyncTokenCredential | None = None, *, username: str | None = None) -> None:
        self._owned = _default_credential() if credential is None else None
        self._credential: Any = credential or self._owned
        self._username = username

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return (object id, token)."""
        token: str = (await self._credential.get_token(_SCOPE)).token
        return self._username or _object_id(token), token

    def on_next(self, callback: Callable[[Any], Any], /) -> None:
        """Do nothing: the hub asks twice a minute, so it has a new token minutes before the old one expires."""

    def on_error(self, callback: Callable[[Exception], Any], /) -> None:
        """Do nothing, as `on_next`."""

    async def close(self) -> None:
        """Close the connections of a credential that no caller gave."""
        if self._owned is not None:
            await self._owned.close()


def _default_credential() -> AsyncTokenCredential:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  # it takes long to load
    except ImportError as error:
        raise UnsupportedError("logging in with Entra ID", "pip install 'sharedmem-hub[entra]'") from error
    return DefaultAzureCredential()


def _object_id(token: str) -> str:
    """Return the claim `oid` of a token; the server checks the token, so nothing is checked here."""
    try:
        claims = token.split(".")[1]
        return str(orjson.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["oid"])
    except (IndexError, KeyError, ValueError, TypeError):
        raise ValueError("the token has no claim `oid`; set redis_username to the object id of the identity") from None
