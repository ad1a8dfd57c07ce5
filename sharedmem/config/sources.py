"""Sources of settings: environment variables, sharedmem.yaml and [tool.sharedmem] of pyproject.toml.

The section `memory:` of a file has the nested names of the source's file, which become settings with flat names. Names
may be written as there (`shortTerm`) or with underscores (`short_term`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from sharedmem.errors import ConfigError

CONFIG_VARIABLE = "SHAREDMEM_CONFIG"
PATHS = ("data_dir", "blob_dir", "export_dir", "tls_ca_file", "tls_cert_file", "tls_key_file", "log_file")


def expand_user(path: Path) -> Path:
    """Return the path with its `~` expanded.

    Raises:
        ValueError: the `~` names an unknown user.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError("its '~' names a user without a home folder; write the whole path") from error


def read_file(variables: Mapping[str, str], start: Path) -> tuple[dict[str, object], dict[str, str]]:
    """Return the values of the settings file in use, and the origin of each; its paths are relative to it."""
    named = variables.get(CONFIG_VARIABLE)
    path, values = _read_named(named) if named else _read_nearest(start)
    if path is None:
        return {}, {}
    values |= {name: _relative_to_file(path, values[name]) for name in PATHS if name in values}
    origins = dict.fromkeys(values, f"file {path}")
    if MEMORY_SECTION not in values:
        return values, origins
    section = values.pop(MEMORY_SECTION)
    for found in flatten_memory_section(section, values, f"file {path}"):
        values[found.field] = found.value
        origins[found.field] = f"file {path} ({found.place})"
    return values, origins


def _relative_to_file(file: Path, value: object) -> object:
    # "~" waits for the validator: joined to the folder it would have no meaning.
    return file.parent / value if isinstance(value, str) and not value.startswith("~") else value


def _read_named(name: str) -> tuple[Path, dict[str, object]]:
    origin = f"environment {CONFIG_VARIABLE}"
    try:
        path = expand_user(Path(name)).absolute()
    except ValueError as error:
        raise ConfigError("config", origin, str(error)) from error
    if not path.is_file():
        raise ConfigError("config", origin, f"there is no file {str(path)!r}; correct or unset {CONFIG_VARIABLE}")
    if path.suffix in {".yaml", ".yml"}:
        return path, _read_yaml(path)
    values = _read_toml(path) if path.suffix == ".toml" else None
    if values is None:
        raise ConfigError("config", origin, f"{str(path)!r} is neither YAML (.yaml) nor TOML with [tool.sharedmem]")
    return path, values


def _read_nearest(start: Path) -> tuple[Path | None, dict[str, object]]:
    for folder in _parent_folders(start.absolute()):
        if (path := folder / "sharedmem.yaml").is_file():
            return path, _read_yaml(path)
        if (path := folder / "pyproject.toml").is_file() and (values := _read_toml(path)) is not None:
            return path, values
    return None, {}


def _parent_folders(start: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the home folder (included) or the root."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises without a home folder; this does not
    for folder in (start, *start.parents):
        yield folder
        if folder == home:
            return


def _read_yaml(path: Path) -> dict[str, object]:
    import yaml  # noqa: PLC0415  only a file needs it; the import stays light

    try:
        values = yaml.safe_load(_read_text(path))
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else "it"
        problem = f"{line} is not valid YAML: {getattr(error, 'problem', None) or 'it cannot be read'}"
        # The cause is left out: it quotes the line, which may contain a password.
        raise ConfigError("config", f"file {path}", problem) from None
    return _check_mapping(path, {} if values is None else values)


def _read_toml(path: Path) -> dict[str, object] | None:
    """Return the values of `[tool.sharedmem]`; None if the file has no such table."""
    text = _read_text(path)
    if "sharedmem" not in text:
        return None  # most files belong to other projects: their size and mistakes do not matter
    import tomllib  # noqa: PLC0415  only a file needs it; the import stays light

    try:
        tools = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("config", f"file {path}", f"it is not valid TOML: {error.args[0]}") from None
    if not isinstance(tools, dict) or "sharedmem" not in tools:
        return None
    return _check_mapping(path, tools["sharedmem"])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError("config", f"file {path}", f"it cannot be read: {reason}") from error


def _check_mapping(path: Path, values: object) -> dict[str, object]:
    if not isinstance(values, dict):
        problem = f"it should hold lines like `prefix: sm`, not a {type(values).__name__}"
        raise ConfigError("config", f"file {path}", problem)
    return {str(name): value for name, value in values.items()}


TOKEN_VARIABLE = "SHAREDMEM_FENCING_TOKEN"  # noqa: S105  # a fencing token is no secret
"""Variable in which `sharedmem lock NAME -- COMMAND` passes the fencing token to the command."""

_PREFIX = "SHAREDMEM_"
# Variables of sharedmem that are not settings; those with the last prefix control the tests.
_OTHER_OWN_VARIABLES = frozenset({CONFIG_VARIABLE, TOKEN_VARIABLE, "SHAREDMEM_CRASH_ROUNDS"})
_TEST_PREFIX = "SHAREDMEM_TEST_"
# Variables that Kubernetes sets in every container for a service whose name begins with `sharedmem`.
_KUBERNETES_VARIABLE = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_KUBERNETES_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def variable_of(field: str) -> str:
    """Return the variable that sets a field."""
    return _PREFIX + field.upper()


def unknown_variables(environment: Mapping[str, str], fields: Iterable[str]) -> list[str]:
    """Return the names that begin with `SHAREDMEM_`, are not empty, and are neither settings nor foreign names."""
    known = _OTHER_OWN_VARIABLES.union(map(variable_of, fields))
    return sorted(
        name
        for name, value in environment.items()
        if value and name.upper().startswith(_PREFIX) and name not in known and not _is_foreign(name, value)
    )


def _is_foreign(name: str, value: str) -> bool:
    if name.startswith(_TEST_PREFIX) or _KUBERNETES_VARIABLE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _KUBERNETES_ADDRESS.match(value) is not None


def suggest_variable(variable: str, fields: Collection[str]) -> str:
    """Return advice for an unknown variable."""
    from difflib import get_close_matches  # noqa: PLC0415  # only a mistake needs it

    names = [*fields, CONFIG_VARIABLE.removeprefix(_PREFIX).lower()]
    near = get_close_matches(variable.upper().removeprefix(_PREFIX).lower(), names, n=1)
    return f"did you mean {variable_of(near[0])}?" if near else "unset it; `sharedmem config` lists all settings"


# -- the section memory: of a settings file -------------------------------------------------------


MEMORY_SECTION = "memory"
_PROVIDERS = {"azure-openai": "azure"}
_DEFAULT_MODEL = "text-embedding-3-small"
_WITH_MODEL = frozenset({"openai", "azure"})
_COSMOS_SCHEMES = {"https": "cosmos", "http": "cosmos+http"}
_HTTPS_PORT = 443


class SectionValue(NamedTuple):
    """A value of the section, as a setting."""

    field: str
    """The flat name of the setting."""
    value: object
    place: str
    """Its name in the file, such as `memory.ttl.shortTerm`."""


def _durable_url(value: object) -> object:
    """Return the URL of a Cosmos account as the setting takes it; anything else unchanged, to be refused there."""
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return value
    scheme = _COSMOS_SCHEMES.get(parts.scheme)
    if scheme is None or parts.path.strip("/") or not parts.hostname:
        return value
    return f"{scheme}://{parts.hostname}" + ("" if port in {None, _HTTPS_PORT} else f":{port}")


def _search_mode(value: object) -> object:
    if value is True:
        return "hybrid"
    if value is False:
        return "semantic"
    raise ValueError("it should be true (hybrid) or false (semantic)")


def _has_many_memories(value: object) -> object:
    if value not in ("quantizedFlat", "diskANN"):  # not a set, which takes no list
        raise ValueError("it should be quantizedFlat or diskANN")
    return value == "diskANN"


def _as_given(value: object) -> object:
    return value


class _NestedName(NamedTuple):
    field: str
    convert: Callable[[object], object] = _as_given


# The keys are the places in the section, without case and underscores.
_ENTRIES = {
    "enabled": _NestedName("memory_enabled"),
    "cosmos.endpoint": _NestedName("durable_url", _durable_url),
    "cosmos.databaseId": _NestedName("cosmos_database"),
    "cosmos.containerId": _NestedName("cosmos_memories"),
    "embedding.dimensions": _NestedName("embedding_dimension"),
    "embedding.apiKey": _NestedName("embedding_key"),
    "embedding.endpoint": _NestedName("embedding_url"),
    "embedding.batchSize": _NestedName("embedding_batch"),
    "deduplication.enabled": _NestedName("dedup_enabled"),
    "deduplication.threshold": _NestedName("dedup_similarity"),
    "semanticCache.enabled": _NestedName("cache_enabled"),
    "semanticCache.threshold": _NestedName("cache_similarity"),
    "semanticCache.ttl": _NestedName("cache_ttl_s"),
    "ttl.shortTerm": _NestedName("short_term_ttl_s"),
    "ttl.longTerm": _NestedName("long_term_ttl_s"),
    "ttl.cache": _NestedName("cache_ttl_s"),
    "search.defaultLimit": _NestedName("search_limit"),
    "search.maxLimit": _NestedName("search_max_limit"),
    "search.hybridSearch": _NestedName("search_mode", _search_mode),
    "search.vectorIndexType": _NestedName("cosmos_many_memories", _has_many_memories),
}
_PROVIDER, _MODEL, _IDENTITY = "embedding.provider", "embedding.model", "cosmos.useSystemManagedIdentity"
_KNOWN = {place.lower(): place for place in (*_ENTRIES, _PROVIDER, _MODEL, _IDENTITY)}
_SECTIONS = {place.partition(".")[0].lower() for place in _KNOWN.values() if "." in place}


def flatten_memory_section(section: object, flat: Collection[str], origin: str) -> list[SectionValue]:
    """Return the values of the section as settings.

    Args:
        section: the value of `memory`.
        flat: the flat names that the same file contains.
        origin: the file, for errors.

    Raises:
        ConfigError: a name is unknown or given twice, a section is not a mapping, or a value has no meaning here.
    """
    places = _read_places(section, origin)
    found = [_convert(place, value, origin) for place, value in places.items() if place in _ENTRIES]
    if _PROVIDER in places or _MODEL in places:
        found.append(_embedder(places, origin))
    if _IDENTITY in places:
        _check_identity(places[_IDENTITY], flat, origin)
    by_field: dict[str, SectionValue] = {}
    for one in found:
        other = by_field.setdefault(one.field, one)
        if one.field in flat:
            _fail(one.field, origin, f"it is given twice, as {one.field} and as {one.place}; keep one of them")
        if other.value != one.value:
            _fail(one.field, origin, f"{other.place} and {one.place} both set it, to different values; keep one")
    return list(by_field.values())


def _read_places(section: object, origin: str) -> dict[str, object]:
    """Return the values by their places, spelled as in `_KNOWN`."""
    found: dict[str, object] = {}
    for place, value in _leaves(section, origin):
        known = _KNOWN.get(place.replace("_", "").lower())
        if known is None:
            from difflib import get_close_matches  # noqa: PLC0415  # only a mistake needs it

            near = get_close_matches(place, _KNOWN.values(), n=1)
            advice = f"did you mean {MEMORY_SECTION}.{near[0]}?" if near else "`sharedmem config` lists all settings"
            _fail(f"{MEMORY_SECTION}.{place}", origin, f"there is no such setting; {advice}")
        if known in found:
            _fail(f"{MEMORY_SECTION}.{known}", origin, "it is given twice, in two spellings; keep one")
        found[known] = value
    return found


def _leaves(section: object, origin: str) -> Iterator[tuple[str, object]]:
    if section is None:
        return
    for name, value in _mapping(MEMORY_SECTION, section, origin).items():
        if name.replace("_", "").lower() not in _SECTIONS:
            yield name, value
        elif value is not None:
            inner = _mapping(f"{MEMORY_SECTION}.{name}", value, origin)
            yield from ((f"{name}.{part}", one) for part, one in inner.items())


def _mapping(place: str, value: object, origin: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        _fail(place, origin, f"it should hold names with values, not a {type(value).__name__}")
    return {str(name): one for name, one in value.items()}


def _convert(place: str, value: object, origin: str) -> SectionValue:
    entry, whole = _ENTRIES[place], f"{MEMORY_SECTION}.{place}"
    try:
        return SectionValue(entry.field, entry.convert(value), whole)
    except ValueError as error:
        _fail(whole, origin, f"{value!r:.80} is refused: {error}")


def _embedder(places: Mapping[str, object], origin: str) -> SectionValue:
    """Return the setting `embedder` from provider and model."""
    place = f"{MEMORY_SECTION}.{_PROVIDER}"
    given, model = places.get(_PROVIDER), places.get(_MODEL)
    if not isinstance(given, str):
        _fail(place, origin, "it should be openai or azure-openai, with the name of the model beside it")
    provider = _PROVIDERS.get(given, given)
    if model is None and provider in _WITH_MODEL:
        model = _DEFAULT_MODEL
    return SectionValue("embedder", provider if model is None else f"{provider}:{model}", place)


def _check_identity(value: object, flat: Collection[str], origin: str) -> None:
    """Check the choice between a managed identity and a key; it needs no setting, since a key decides."""
    place = f"{MEMORY_SECTION}.{_IDENTITY}"
    if not isinstance(value, bool):
        _fail(place, origin, f"{value!r:.80} is refused: it should be true or false")
    if value and "cosmos_key" in flat:
        _fail("cosmos_key", origin, f"it is given beside {place}: true, which uses no key; keep one of them")


def _fail(field: str, origin: str, problem: str) -> NoReturn:
    raise ConfigError(field, origin, problem)
