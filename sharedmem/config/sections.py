"""The section `memory:` of a settings file: the nested names of the source's file, as settings with flat names.

Names may be written as there (`shortTerm`) or with underscores (`short_term`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from sharedmem.errors import ConfigError

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
