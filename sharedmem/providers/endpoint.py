"""The endpoint of a model service or reranker: its URL, its key or Entra ID login, and its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import SecretStr

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential


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


_OPENAI = "https://api.openai.com/v1"
_BASES = {"openai": _OPENAI, "cohere": "https://api.cohere.com/v2", "jina": "https://api.jina.ai/v1"}
_NAMES = {"openai": "OpenAI", "cohere": "Cohere", "jina": "Jina"}
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
    """`openai`, `azure`, `cohere` or `jina`."""
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
        return self.provider == "openai" and not self.url.startswith(_OPENAI)

    async def headers(self) -> dict[str, str]:
        """Return the headers for authentication.

        Raises:
            ConfigError: no account is logged in.
        """
        if self.login is not None:
            return {"Authorization": f"Bearer {await self.login.token()}"}
        if self.key is None:
            return {}
        return {"api-key": self.key} if self.provider == "azure" else {"Authorization": f"Bearer {self.key}"}

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
    if provider in _NAMES and base is None and key is None:
        problem = f"{_NAMES[provider]} needs it; set it, or set {role.url} to a service that takes no key"
        raise ConfigError(role.key, settings.origin(role.key), problem)
    login = EntraLogin(role.key) if provider == "azure" and key is None else None
    if provider == "azure":
        url = _azure_url(base or "", model, role.path)
    else:
        url = _join_url(base or _BASES[provider], role.path)
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
