"""docs/defaults.md: the section `memory:` of a settings file, and settings of single namespaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sharedmem.config import Settings
from sharedmem.errors import ConfigError

SOURCE_FILE = """
memory:
  enabled: true
  cosmos:
    endpoint: https://your-cosmos.documents.azure.com:443/
    databaseId: loom
    containerId: memories
    useSystemManagedIdentity: true
  embedding:
    provider: azure-openai
    model: text-embedding-3-small
    dimensions: 1536
    endpoint: https://your-openai.openai.azure.com/
  deduplication:
    enabled: true
    threshold: 0.95
  semanticCache:
    enabled: true
    threshold: 0.98
    ttl: 3600
  ttl:
    shortTerm: 86400    # 24 hours
    longTerm: -1        # Never expire
    cache: 3600         # 1 hour
  search:
    defaultLimit: 10
    maxLimit: 100
    hybridSearch: true
    vectorIndexType: quantizedFlat
"""


def load(folder: Path, text: str, environment: Mapping[str, str] | None = None) -> Settings:
    (folder / "sharedmem.yaml").write_text(text)
    return Settings.load(start=folder, environment=environment or {})


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return str(caught.value)


def test_the_file_of_the_source_is_read_as_it_is(tmp_path: Path) -> None:
    settings = load(tmp_path, SOURCE_FILE)

    assert settings.durable_url == "cosmos://your-cosmos.documents.azure.com"
    assert (settings.cosmos_database, settings.cosmos_memories, settings.cosmos_many_memories) == (
        "loom",
        "memories",
        False,
    )
    assert (settings.embedder, settings.embedding_dimension) == ("azure:text-embedding-3-small", 1536)
    assert settings.embedding_url == "https://your-openai.openai.azure.com"
    assert (settings.memory_enabled, settings.dedup_enabled, settings.cache_enabled) == (True, True, True)
    assert (settings.dedup_similarity, settings.cache_similarity) == (0.95, 0.98)
    assert (settings.short_term_ttl_s, settings.long_term_ttl_s, settings.cache_ttl_s) == (86_400, -1, 3600)
    assert (settings.search_limit, settings.search_max_limit, settings.search_mode) == (10, 100, "hybrid")
    assert settings.origin("search_limit") == f"file {tmp_path / 'sharedmem.yaml'} (memory.search.defaultLimit)"


def test_sections_take_names_with_underscores_and_stand_beside_flat_names(tmp_path: Path) -> None:
    text = "prefix: team\nmemory:\n  ttl: {short_term: 60, long_term: 7200}\n  search: {hybrid_search: false}\n"

    settings = load(tmp_path, text)

    assert (settings.prefix, settings.short_term_ttl_s, settings.long_term_ttl_s) == ("team", 60, 7200)
    assert settings.search_mode == "semantic"


def test_the_environment_beats_a_section_as_it_beats_a_flat_name(tmp_path: Path) -> None:
    text = "memory:\n  deduplication: {enabled: true}\n"

    assert not load(tmp_path, text, {"SHAREDMEM_DEDUP_ENABLED": "false"}).dedup_enabled


def test_a_section_may_be_in_pyproject_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.sharedmem.memory.search]\nmaxLimit = 50\n")

    assert Settings.load(start=tmp_path, environment={}).search_max_limit == 50


def test_an_empty_section_sets_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "memory:\n") == load(tmp_path, "memory:\n  ttl:\n") == Settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dedup_similarity: 0.9\nmemory: {deduplication: {threshold: 0.9}}", "dedup_similarity and as memory.dedup"),
        ("memory: {ttl: {shortTerm: 5, short_term: 5}}", "memory.ttl.shortTerm.*two spellings"),
        (
            "memory: {ttl: {cache: 5}, semanticCache: {ttl: 6}}",
            "cache_ttl_s.*memory.ttl.cache and memory.semanticCache.ttl both set it",
        ),
        ("memory: {deduplication: {treshold: 0.9}}", "did you mean memory.deduplication.threshold"),
        ("memory: {semantic: {}}", "memory.semantic.*there is no such setting"),
        ("memory: 5", "memory.*it should hold names with values, not a int"),
        ("memory: {ttl: 5}", "memory.ttl.*not a int"),
        ("memory: {ttl: {longTerm: 0}}", "long_term_ttl_s.*memory.ttl.longTerm.*-1 for ever"),
        ("memory: {ttl: {shortTerm: soon}}", "short_term_ttl_s.*memory.ttl.shortTerm"),
        ("memory: {search: {hybridSearch: maybe}}", "memory.search.hybridSearch.*'maybe' is refused"),
        ("memory: {search: {vectorIndexType: [flat]}}", "vectorIndexType.*quantizedFlat or diskANN"),
        ("memory: {search: {defaultLimit: 11, maxLimit: 10}}", "search_limit.*at most search_max_limit, which is 10"),
        ("memory: {embedding: {model: m}}", "memory.embedding.provider.*openai or azure-openai"),
        ("memory: {embedding: {provider: clay, model: m}}", "embedder.*'clay:m' is refused"),
        ("memory: {cosmos: {endpoint: 'ftp://x'}}", "durable_url.*memory.cosmos.endpoint"),
        ("memory: {cosmos: {useSystemManagedIdentity: 1}}", "useSystemManagedIdentity.*true or false"),
        ("cosmos_key: k\nmemory: {cosmos: {useSystemManagedIdentity: true}}", "cosmos_key.*uses no key"),
    ],
)
def test_what_a_section_cannot_hold_is_refused_by_its_place(tmp_path: Path, text: str, words: str) -> None:

    assert re.search(words, refusal(tmp_path, text))


def test_a_key_in_a_section_is_shown_nowhere(tmp_path: Path) -> None:
    text = "memory: {embedding: {apiKey: {is: hunter2}}}"

    assert "hunter2" not in refusal(tmp_path, text)
    assert "hunter2" not in repr(load(tmp_path, "memory: {embedding: {apiKey: hunter2}}"))


# -- settings of single namespaces ----------------------------------------------------------------


def test_the_first_pattern_that_matches_a_namespace_decides() -> None:
    rules = {"sandbox-a": {"dedup_enabled": False}, "sandbox-*": {"search_limit": 3}}
    settings = Settings(dedup_similarity=0.9, namespace_settings=rules)

    one, other, elsewhere = (settings.for_namespace(name) for name in ("sandbox-a", "sandbox-b", "team"))

    assert (one.dedup_enabled, one.search_limit, one.dedup_similarity) == (False, 10, 0.9)
    assert (other.dedup_enabled, other.search_limit) == (True, 3)
    assert elsewhere is settings


def test_namespaces_may_be_set_in_the_environment_as_json_and_are_shown(tmp_path: Path) -> None:
    settings = Settings.load(
        start=tmp_path, environment={"SHAREDMEM_NAMESPACE_SETTINGS": '{"a": {"cache_enabled": false}}'}
    )

    (shown,) = (one for one in settings.describe() if one.name == "namespace_settings")
    assert not settings.for_namespace("a").cache_enabled
    assert shown.value_shown == '{"a": {"cache_enabled": false}}'
    assert settings.model_dump(mode="json")["namespace_settings"] == {"a": {"cache_enabled": False}}
    assert hash(settings) == hash(settings.replace())


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"a": {"prefix": "x"}}, "'a' has 'prefix'; a namespace may have its own memory_enabled"),
        ({"a": {"search_limit": 0}}, "at 'a' at 'search_limit' is refused"),
        ({"a": {"search_limit": 200}}, "at most search_max_limit, which is 100"),
        ({"": {}}, "is refused"),
        ({"a": 5}, "at 'a' is refused"),
        ("no json", "it should be JSON"),
    ],
)
def test_what_a_namespace_cannot_have_is_refused(rules: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Settings().replace(namespace_settings=rules)
    assert "namespace_settings" in str(caught.value)
