"""Logging in at Azure with Entra ID instead of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharedmem.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_SCOPE = "https://cognitiveservices.azure.com/.default"


class EntraLogin:
    """Tokens for whoever runs this: a managed identity, a workload identity, or a developer's login.

    Args:
        field: the setting that could hold a key instead, told in errors.
        credential: what gets tokens; None tries what azure-identity knows.

    Raises:
        UnsupportedError: azure-identity is not installed.
    """

    def __init__(self, field: str, credential: AsyncTokenCredential | None = None) -> None:
        self._field = field
        self._credential = credential or _default_credential(field)

    async def token(self) -> str:
        """A token that is valid now; kept and renewed by azure-identity.

        Raises:
            ConfigError: nobody is logged in.
        """
        from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415  who has a key does not need it

        try:
            return (await self._credential.get_token(_SCOPE)).token
        except ClientAuthenticationError as error:
            problem = "it is not set, and Entra ID logs nobody in; set it, or run `az login`"
            raise ConfigError(self._field, "default", problem) from error

    async def close(self) -> None:
        """Give back connections."""
        await self._credential.close()


def _default_credential(field: str) -> AsyncTokenCredential:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  it takes long to load
    except ImportError as error:
        remedy = f"pip install azure-identity aiohttp, or set {field}"
        raise UnsupportedError("logging in at Azure with Entra ID", remedy) from error
    return DefaultAzureCredential()
