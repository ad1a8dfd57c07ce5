"""The settings of a hub: fields with their defaults and limits, read from arguments, environment and files.

`Settings` is one frozen record. `Settings(...)` uses only its arguments and the defaults; `Settings.load()` merges
arguments, the environment (`SHAREDMEM_<FIELD>`), the nearest file and the defaults, in this order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from sharedmem.config.model_services import key_variables
from sharedmem.config.setting_groups import (
    TEN_YEARS_S,
    MemorySettings,
    NamespaceRules,
    NamespaceSettings,
    ObservabilitySettings,
    PatternRules,
    ProviderSettings,
    SynthesisSettings,
    parse_json,
    rule_of,
    rules_as_given,
)
from sharedmem.config.sources import (
    PATHS,
    expand_user,
    read_file,
    suggest_variable,
    unknown_variables,
    variable_of,
)
from sharedmem.deferred_builds import DEFER_BUILD
from sharedmem.errors import ConfigError, NotFoundError

NO_TIER = "none"
DURABLE_SCHEMES = ("sqlite", "cosmos", "cosmos+http")
SCHEMES = ("unix", "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")

_MASK = "***"
_SECRET = frozenset(
    {
        *("redis_url", "redis_password", "cosmos_key", "blob_key"),
        *("embedding_key", "llm_key", "reranker_key", "webhook_secret"),
    }
)
_HOUR_S = 3600
_LONGEST_STRING_BYTES = 512 * 1024 * 1024

# Greedy up to the last "@": of a malformed URL, rather hide too much than too little.
_USER_PASSWORD = re.compile(r"(?<=://)([^:]*):.*@", re.DOTALL)
_CREDENTIALS = re.compile(r"://[^\s]*[@?]")
_QUERY_PASSWORD = re.compile(r"([?&][^=&#]*password=)[^&#]*", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(?::(\d{1,5}))?")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORBIDDEN_IN_NAMES = re.compile(r"[{}:\x00-\x1f\x7f]")


def masked(url: str) -> str:
    """Return the URL with every password in it shown as `***`, fit for logs and people."""
    return _QUERY_PASSWORD.sub(rf"\g<1>{_MASK}", _USER_PASSWORD.sub(rf"\g<1>:{_MASK}@", url))


class Kind(StrEnum):
    """The class of a key, which decides how long its value lives, and where."""

    EPHEMERAL = "ephemeral"
    SESSION = "session"
    KNOWLEDGE = "knowledge"


class KindRules(PatternRules[Kind]):
    """Key patterns with the kind of each."""

    def __repr__(self) -> str:
        return repr({pattern: str(kind) for pattern, kind in self.items()})


class Setting(BaseModel):
    """One setting for display: secrets are masked."""

    model_config = ConfigDict(frozen=True, defer_build=DEFER_BUILD)

    name: str
    value_shown: str
    origin: str
    """`argument`, `environment SHAREDMEM_X`, `file /x/sharedmem.yaml` or `default`."""
    help: str


def _check_url(url: str) -> str:
    """Return the URL if it is valid; messages never quote it, since it may contain a password."""
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or "://" not in url:
        raise ValueError(f"it should begin with one of {', '.join(f'{known}://' for known in SCHEMES)}")
    if not url.isprintable() or " " in url:
        raise ValueError("it should contain no blanks, line breaks or control characters; percent-encode them")
    try:
        parts = urlsplit(url)
    except ValueError:
        # The cause is left out: it quotes the part with the password.
        raise ValueError("it is not a URL; write it like redis://host:6379/0") from None
    if scheme == "unix":
        _check_socket(parts.netloc, parts.path)
        return url
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("it has an '@' after the host; percent-encode '/', '?', '#' and '@' inside the password")
    _check_hosts(parts.netloc, several="+" in scheme)
    if "+" not in scheme and not re.fullmatch(r"(/\d*)?", parts.path):
        raise ValueError("its path should be a database number, as in redis://host:6379/0")
    return url


def _check_socket(before_path: str, path: str) -> None:
    if (before_path and not before_path.endswith("@")) or path in {"", "/"}:
        raise ValueError("it should name an absolute path: unix:///run/redis.sock (three slashes)")


def _check_hosts(netloc: str, *, several: bool) -> None:
    hosts = netloc.rpartition("@")[2]
    for host in hosts.split(",") if several else [hosts]:
        found = _HOST.fullmatch(host)
        if found is None or not 0 < int(found[1] or 6379) < 65_536:
            example = "host:26379,other:26379" if several else "host:6379"
            raise ValueError(f"it should name its host and a port from 1 to 65535, as in //{example}")


def _check_prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError("it should have 1 to 64 letters, digits, '_', '.' or '-'; no braces, colons or spaces")
    return text


def _check_name(text: str) -> str:
    if not 0 < len(text) <= 256 or _FORBIDDEN_IN_NAMES.search(text) or text.startswith("$"):
        raise ValueError("it should have 1 to 256 characters, no braces, colons or control characters, no '$' first")
    return text


def _check_durable_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if url != NO_TIER and (scheme not in DURABLE_SCHEMES or not separator or not rest.strip("/")):
        raise ValueError("it should be sqlite:///path/file.db, cosmos://account.documents.azure.com, or none")
    if not url.isprintable() or "@" in rest:
        raise ValueError("it should contain no control characters and no credentials; give those as cosmos_key")
    return url


_BUCKET = r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](?:/[A-Za-z0-9._=+-]+)*/?"


def _check_blob_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    account, slash, container = rest.partition("/")
    is_azure = scheme in {"azure", "azure+http"} and bool(account and slash and container)
    is_bucket = scheme in {"s3", "gs"} and re.fullmatch(_BUCKET, rest) is not None
    if not url.isprintable() or "@" in rest or "?" in rest:
        advice = "give an Azure key as blob_key, others as AWS and Google Cloud take them"
        raise ValueError(f"it should contain no control characters and no credentials; {advice}")
    if not separator or not (is_azure or is_bucket):
        raise ValueError("it should be azure://account.blob.core.windows.net/container, s3://bucket or gs://bucket")
    return url


def _parse_comma_list(value: object) -> object:
    """Return the names in `search,json`, so that an environment variable can contain several; `[]`: no name."""
    if not isinstance(value, str):
        return value
    return [name for part in value.strip("[] ").split(",") if (name := part.strip("\"' "))]


def _parse_yaml_no(value: object) -> object:
    """Return the word `no`, which YAML parses as false."""
    return "no" if value is False else value


def _user_data_dir() -> Path:
    from platformdirs import user_data_path  # noqa: PLC0415  only the default needs it; the import stays light

    return user_data_path("sharedmem")


_DEFAULT_RULES = KindRules(
    {"temp:*": Kind.EPHEMERAL, "chat:*": Kind.SESSION, "workflow:*": Kind.SESSION, "knowledge:*": Kind.KNOWLEDGE}
)
_Ttl = Annotated[int, Field(ge=1, le=TEN_YEARS_S)]
_Url = Annotated[str, AfterValidator(_check_url)]
_Prefix = Annotated[str, AfterValidator(_check_prefix)]
_Name = Annotated[str, AfterValidator(_check_name)]
_DurableUrl = Annotated[str, AfterValidator(_check_durable_url)]
_BlobUrl = Annotated[str, AfterValidator(_check_blob_url)]
_Pattern = Annotated[str, Field(min_length=1)]
_Rules = Annotated[
    Mapping[_Pattern, Kind], BeforeValidator(parse_json), AfterValidator(KindRules), PlainSerializer(dict)
]
_Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_parse_comma_list)]
_Fsync = Annotated[Literal["everysec", "always", "no"], BeforeValidator(_parse_yaml_no)]
_Auth = Literal["password", "entra"]
_Durability = Literal["behind", "through"]
_Wait = Annotated[float, Field(gt=0, le=_HOUR_S, allow_inf_nan=False)]


class Settings(MemorySettings, ProviderSettings, SynthesisSettings, ObservabilitySettings):
    """All settings: validated, frozen, safe to share between tasks, threads and processes.

    `Settings(redis_url="redis://localhost")` uses the arguments and the defaults, nothing else. Raises
    `ConfigError`, which names the field and the origin of its value. Neither `repr` nor JSON show a secret;
    `redis_password.get_secret_value()` and the attribute `redis_url` contain the real ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=DEFER_BUILD)

    redis_url: _Url | None = Field(
        None,
        description="Server to use: unix://, redis://, rediss://, and redis+sentinel:// or redis+cluster:// "
        "(rediss+... with TLS). Without it the embedded server is used.",
    )
    redis_username: str | None = Field(None, description="User name at the server, when the URL has none.")
    redis_password: SecretStr | None = Field(None, description="Password at the server, when the URL has none.")
    redis_auth: _Auth = Field(
        "password",
        description="How to log in at the server: password, or entra (tokens of Entra ID, for Azure; over TLS).",
    )
    tls_ca_file: Path | None = Field(None, description="PEM file of the certificate authorities for the server.")
    tls_cert_file: Path | None = Field(None, description="PEM file of the client's own certificate.")
    tls_key_file: Path | None = Field(None, description="PEM file of the key to the client's certificate.")
    tls_verify: bool = Field(default=True, description="Whether the server's certificate and name are checked.")
    data_dir: Path = Field(
        default_factory=_user_data_dir, description="Folder of the embedded server's data; created when missing."
    )
    prefix: _Prefix = Field("sm", description="First part of every key in Redis.")
    namespace: _Name = Field("default", description="Namespace that the command line works in.")
    actor: _Name | None = Field(None, description="Actor that the command line works as; shared scope without it.")
    access: Literal["namespaced", "open"] = Field(
        "namespaced", description="Access policy: namespaced (by namespace and grants), or open to all actors."
    )
    memory_rights: Literal["shared", "owner"] = Field(
        "shared",
        description="Who may change and delete memories, notes and graphs: shared (every actor that may write in the "
        "namespace) or owner (their author, actors with a grant, and the namespace itself).",
    )
    kind_rules: _Rules = Field(
        _DEFAULT_RULES,
        description="Kind of memory by key pattern: ephemeral, session or knowledge. Given rules replace the "
        "default ones; in the environment write JSON.",
    )
    ephemeral_ttl_s: _Ttl = Field(3600, description="Lifetime of ephemeral values in seconds.")
    session_ttl_s: _Ttl = Field(604_800, description="Lifetime of session values in seconds.")
    connect_timeout_s: _Wait = Field(
        5.0,
        description="Seconds that opening a hub may take: connection, log-in, scripts, durable tier; later, seconds to "
        "wait for a connection. Starting a private server and creating a database have limits of their own.",
    )
    response_timeout_s: _Wait = Field(5.0, description="Seconds after which a connection without progress is closed.")
    retry_for_s: float = Field(
        10.0,
        ge=0,
        le=_HOUR_S,
        allow_inf_nan=False,
        description="Seconds during which a call whose reply was lost is repeated; 0: not repeated.",
    )
    max_connections: int = Field(50, ge=1, le=10_000, description="Most connections that one hub opens.")
    change_log_length: int = Field(
        100_000,
        ge=1,
        le=1_000_000_000,
        description="Entries in the change feed of a namespace, approximately: a change, or up to 16 of one call.",
    )
    near_cache_staleness_s: float = Field(
        1.0,
        gt=0,
        le=60,
        allow_inf_nan=False,
        description="Longest age in seconds of the copies that stores with near_cache=True read in their process.",
    )
    near_cache_bytes: int = Field(
        16_777_216, ge=0, le=1 << 40, description="Approximate memory of a hub for these copies; the oldest go first."
    )
    blob_threshold_bytes: int = Field(
        262_144, ge=1, le=_LONGEST_STRING_BYTES, description="Encoded bytes above which a value becomes a blob file."
    )
    blob_dir: Path | None = Field(None, description="Folder of the blob files; without it `blobs` in data_dir.")
    blob_url: _BlobUrl | None = Field(
        None,
        description="Container or bucket of the blobs instead of a folder: "
        "azure://account.blob.core.windows.net/container, s3://bucket or gs://bucket.",
    )
    blob_key: SecretStr | None = Field(
        None, description="Account key of an azure blob_url; without it Entra ID logs in."
    )
    export_dir: Path | None = Field(
        None, description="Folder of the daily exports: for `sharedmem exports`, and for metrics about their age."
    )
    durable_url: _DurableUrl | None = Field(
        None,
        description="Durable tier: sqlite:///path/file.db, cosmos://account.documents.azure.com, or none. Default: the "
        "one that other hubs of that server use; with the embedded server a file in data_dir.",
    )
    cosmos_key: SecretStr | None = Field(None, description="Account key of Cosmos DB; without it Entra ID logs in.")
    cosmos_database: _Name = Field("sharedmem", description="Database in Cosmos DB; created when missing.")
    cosmos_container: _Name = Field("records", description="Container in that database; created when missing.")
    cosmos_memories: _Name = Field("memories", description="Container for memories there; created when missing.")
    cosmos_graphs: _Name = Field("graphs", description="Container for knowledge graphs there; created when missing.")
    cosmos_many_memories: bool = Field(
        default=False, description="Whether there will be more than 100,000 memories: then the vector index is diskANN."
    )
    cosmos_index_by_tenant: bool = Field(
        default=False, description="Whether each namespace has a vector index of its own in Cosmos DB."
    )
    session_durability: _Durability = Field(
        "behind", description="When a write of kind session returns: behind (before it is durable) or through (after)."
    )
    knowledge_durability: _Durability = Field("behind", description="The same for kind knowledge.")
    log_durability: _Durability = Field("behind", description="The same for plans and executions.")
    knowledge_cache_s: _Ttl = Field(
        3600, description="Seconds for which a durable knowledge value stays in Redis; later, reads load it again."
    )
    durable_queue_length: int = Field(
        100_000,
        ge=1,
        le=100_000_000,
        description="Changes that may wait for the durable tier before writes are refused.",
    )
    embedded: Literal["auto", "never"] = Field(
        "auto", description="Whether a private server may be started without redis_url: auto or never."
    )
    embedded_modules: _Names = Field(
        ("search", "json"), description="Modules the embedded server loads; comma-separated in the environment."
    )
    embedded_fsync: _Fsync = Field(
        "everysec", description="How often the embedded server syncs its log to disk: everysec, always or no."
    )
    embedded_port: int = Field(
        0, ge=0, le=65_535, description="Loopback TCP port of the embedded server beside its socket; 0: no port."
    )
    bulk_cpu_s: int = Field(
        600,
        ge=0,
        le=86_400,
        description="CPU seconds an hour for the bulk work of one token (REST: imports, exports, batches, whole "
        "namespaces); 0: no limit.",
    )
    subscriber_queue_length: int = Field(
        10_000, ge=1, le=10_000_000, description="Messages queued for a slow subscriber before the oldest are dropped."
    )
    plans_per_session: int = Field(
        100, ge=1, le=10_000, description="Plans that a session stores; beyond this the oldest are deleted."
    )
    decision_history: bool = Field(
        default=False,
        description="Whether the durable tier keeps plans and executions that sessions no longer list (`history`).",
    )
    episode_events: int = Field(
        10_000, ge=1, le=10_000_000, description="Events that an episode stores; beyond this the oldest are deleted."
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(
        cls, *, start: Path | None = None, environment: Mapping[str, str] | None = None, **arguments: object
    ) -> Self:
        """Merge the arguments, the environment, the nearest file and the defaults; the first source with a value wins.

        The file is `SHAREDMEM_CONFIG`, else the nearest `sharedmem.yaml` or `pyproject.toml` with
        `[tool.sharedmem]` from `start` (default: the working directory) up to the home folder or the root.
        Paths in a file are relative to it. An argument that is None and an empty variable count as not given;
        `environment` defaults to that of the process.

        A variable that begins with `SHAREDMEM_` and is not a setting raises an error, unless Kubernetes sets it.

        Raises `ConfigError` with the field, its origin and the problem. It reads files: call it in a thread
        from a running event loop.
        """
        variables = os.environ if environment is None else environment
        for name, meant in unknown_environment(variables).items():
            field = name[len("SHAREDMEM_") :].lower()
            raise ConfigError(field, f"environment {name}", f"there is no such setting; {meant}")
        given = {name: value for name, value in arguments.items() if value is not None}
        from_environment = {name: value for name in cls.model_fields if (value := variables.get(variable_of(name)))}
        from_file, origins = read_file(variables, start or Path.cwd())
        origins |= {name: f"environment {variable_of(name)}" for name in from_environment}
        origins |= dict.fromkeys(given, "argument")
        merged = from_file | from_environment | given
        for field, variable in key_variables(merged, variables).items():
            merged[field], origins[field] = variables[variable], f"environment {variable}"
        return cls.model_validate(merged, context=origins)

    def replace(self, **arguments: object) -> Self:
        """Return the same settings with some values replaced, validated again. Raises `ConfigError`."""
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        origins = self._origins | dict.fromkeys(arguments, "argument")
        return self.model_validate(kept | arguments, context=origins)

    def for_namespace(self, namespace: str) -> Self:
        """Return the settings that hold in a namespace: these, with what `namespace_settings` says about it."""
        given = rule_of(self.namespace_settings, namespace)
        return self._with_rule(given) if given else self

    def origin(self, field: str) -> str:
        """Return the origin of a value: `argument`, `environment SHAREDMEM_X`, `file /x/y.yaml` or `default`.

        A value in a section of a file has that too: `file /x/y.yaml (memory.ttl.longTerm)`.

        Raises `NotFoundError` when there is no such setting.
        """
        if field not in type(self).model_fields:
            raise NotFoundError("setting", field, _suggest_setting(field))
        return self._origins.get(field, "default")

    def describe(self) -> list[Setting]:
        """Return every setting in the order of the documentation, with its origin; passwords are masked."""
        return [
            Setting(
                name=name,
                value_shown=_format_value(getattr(self, name)),
                origin=self.origin(name),
                help=field.description or "",
            )
            for name, field in type(self).model_fields.items()
        ]

    def blob_path(self) -> Path:
        """Return the folder of the blob files: `blob_dir`, else `blobs` in `data_dir`."""
        return self.blob_dir or self.data_dir / "blobs"

    def __eq__(self, other: object) -> bool:
        # Only values count: equal settings from different sources are equal.
        return isinstance(other, Settings) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    __str__ = BaseModel.__repr__

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name in type(self).model_fields:
            if name in self.model_fields_set:
                value = getattr(self, name)
                yield name, masked(value) if name == "redis_url" and value else value

    def model_post_init(self, context: Any, /) -> None:
        """Store the origin of each value; without a given origin it is an argument."""
        self._origins = dict(context) if context else dict.fromkeys(self.model_fields_set, "argument")

    @field_serializer("redis_url", when_used="json-unless-none")
    def _masked_in_json(self, url: str) -> str:
        return masked(url)

    def _with_rule(self, given: Mapping[str, object]) -> Self:
        """Return these settings with the settings of a namespace, which has no namespaces of its own."""
        kept = {name: getattr(self, name) for name in self.model_fields_set if name != "namespace_settings"}
        origins = self._origins | dict.fromkeys(given, self.origin("namespace_settings"))
        return self.model_validate(kept | dict(given), context=origins)

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.search_limit > self.search_max_limit:
            problem = f"{self.search_limit} is refused: it should be at most search_max_limit, which is"
            origin = self.origin("search_limit" if "search_limit" in self.model_fields_set else "search_max_limit")
            raise ConfigError("search_limit", origin, f"{problem} {self.search_max_limit}")
        for pattern, given in rules_as_given(self.namespace_settings).items():
            try:
                self._with_rule(given)
            except ConfigError as error:
                problem = f"the settings of {pattern!r} do not fit: {error}"
                raise ConfigError("namespace_settings", self.origin("namespace_settings"), problem) from None
        return self

    @field_validator(*PATHS)
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        # A later change of the working directory must not move the data.
        return path and expand_user(path).absolute()

    @model_validator(mode="wrap")
    @classmethod
    def _translate_errors(cls, values: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            raise _config_error(error, info.context or {}) from error


def unknown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that begin with `SHAREDMEM_` but set nothing, sorted, with a suggestion for each."""
    fields = Settings.model_fields
    return {name: suggest_variable(name, fields) for name in unknown_variables(environment, fields)}


def _format_value(value: object) -> str:
    """Return the value as a user would write it; secrets are masked."""
    match value:
        case None:
            return "not set"
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(map(str, value))
        case NamespaceRules():
            return json.dumps(rules_as_given(value)) if value else "none"
        case KindRules():
            return ", ".join(f"{pattern} = {kind}" for pattern, kind in value.items())
        case str():
            return masked(value)
    return str(value)


def _suggest_setting(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

    near = get_close_matches(name, Settings.model_fields, n=1)
    return f"did you mean {near[0]!r}?" if near else "`sharedmem config` lists all settings"


_WISHES = {
    "string_type": "it should be text; put it in quotes",
    "bool_type": "it should be true or false",
    "bool_parsing": "it should be true or false",
    "path_type": "it should be the path of a file or folder, as text",
}
"""What a setting should be, where pydantic says it for its own readers."""


def _config_error(error: ValidationError, origins: Mapping[str, str]) -> ConfigError:
    """Return the first problem that pydantic found, in words that name the field and its origin."""
    problem = error.errors()[0]
    field = str(problem["loc"][0]) if problem["loc"] else "config"
    origin = origins.get(field, "argument")
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        return ConfigError(field, origin, f"there is no such setting; {_suggest_setting(field)}")
    if problem["type"] == "extra_forbidden":
        pattern, name = problem["loc"][1:3]
        known = ", ".join(NamespaceSettings.model_fields)
        return ConfigError(field, origin, f"{pattern!r} has {name!r}; a namespace may have its own {known}")
    return ConfigError(field, origin, _describe_problem(field, problem))


def _describe_problem(field: str, problem: ErrorDetails) -> str:
    where = "".join(f" at {part!r}" for part in problem["loc"][1:] if part != "[key]")
    # A URL with credentials in it is refused by most settings: they are not for the message either.
    is_secret = field in _SECRET or _CREDENTIALS.search(str(problem["input"])) is not None
    found = "its value" if is_secret else f"{problem['input']!r:.80}"
    wish = re.sub("^(Input|String) should", "it should", problem["msg"].removeprefix("Value error, "))
    wish = _WISHES.get(problem["type"], wish)
    return f"{found}{where} is refused: {wish}"
