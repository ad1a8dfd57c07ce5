"""The layouts of new containers, and the comparison of an existing one with its layout; no I/O.

Partition key, vector policy and full-text policy of a container cannot be changed later. The forms are those of the
service's REST interface, which the SDK passes on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sharedmem.errors import ConfigError, InvalidError

_MOST_DIMENSIONS = 4_096

_Policy = dict[str, Any]


class ContainerLayout(NamedTuple):
    """The properties of a new container."""

    partition_key: tuple[str, ...]
    indexing: _Policy
    vectors: _Policy | None = None
    full_text: _Policy | None = None
    setting: str = "cosmos_container"
    """Name of the setting with the container's name."""
    name: str = ""
    """Name of the container, if the layout defines it."""


def records_layout() -> ContainerLayout:
    """Return the layout of the records container: only queried fields are indexed, never the exact text."""
    return ContainerLayout(
        partition_key=("/namespace", "/scope", "/key"),
        indexing=_indexing(
            ["/namespace/?", "/scope/?", "/key/?", "/element/?", "/type/?", "/stamp/?", "/deleted/?", "/body/*"],
            [
                _composite("ascending", "/namespace", "/key", "/element"),
                _composite("descending", "/namespace", "/stamp"),
                _composite("descending", "/namespace", "/type", "/stamp"),
            ],
        ),
    )


def _indexing(included: Sequence[str], composites: Sequence[list[dict[str, str]]]) -> _Policy:
    return {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": path} for path in included],
        "excludedPaths": [{"path": "/*"}, {"path": '/"_etag"/?'}],
        "compositeIndexes": list(composites),
    }


def _composite(order: str, *paths: str) -> list[dict[str, str]]:
    return [{"path": path, "order": order} for path in paths]


def memories_layout(dimensions: int, *, many: bool = False, shard_by_tenant: bool = False) -> ContainerLayout:
    """Return the layout of `memories` for semantic memory: with a vector index and a full-text index.

    Args:
        dimensions: dimensions of the embedder; they cannot be changed later. 0: no vectors.
        many: whether there will be more than 100,000 memories: then the vector index is a graph (diskANN).
        shard_by_tenant: one vector index per tenant, for many tenants whose searches never cross.

    Raises:
        InvalidError: the service does not support these dimensions.
    """
    index = _vector_index(dimensions, "/tenant_id" if shard_by_tenant else "", many=many)
    return _searchable_layout(("/tenant_id", "/thread_id"), index, ("/content", "/memory"), dimensions)._replace(
        setting="cosmos_memories"
    )


def graphs_layout(
    dimensions: int, *, name: str = "graphs", many: bool = False, shard_by_tenant: bool = False
) -> ContainerLayout:
    """Return the layout of `graphs` for knowledge graphs, with a vector and a full-text index like `memories`.

    Args:
        dimensions, many, shard_by_tenant: as `memories_layout`.
        name: name of the container.

    Raises:
        InvalidError: the service does not support these dimensions.
    """
    index = _vector_index(dimensions, "/namespace" if shard_by_tenant else "", many=many)
    return _searchable_layout(("/namespace", "/group_id"), index, ("/text",), dimensions)._replace(
        setting="cosmos_graphs", name=name
    )


def _vector_index(dimensions: int, shard: str, *, many: bool) -> _Policy:
    if not 0 <= dimensions <= _MOST_DIMENSIONS:
        advice = f"Cosmos DB supports vectors of up to {_MOST_DIMENSIONS:,} numbers"
        raise InvalidError("dimensions", dimensions, advice)
    index: _Policy = {"path": "/embedding", "type": "diskANN" if many else "quantizedFlat"}
    return index | ({"vectorIndexShardKey": [shard]} if shard else {})


def _searchable_layout(
    partition: tuple[str, str], vector_index: _Policy, texts: Sequence[str], dimensions: int
) -> ContainerLayout:
    """Return the layout of a container for searches by meaning and by words."""
    namespace, _ = partition
    return ContainerLayout(
        partition_key=partition,
        indexing={
            "indexingMode": "consistent",
            "automatic": True,
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/embedding/*"}, {"path": "/exact/?"}, {"path": '/"_etag"/?'}],
            "compositeIndexes": [
                _composite("ascending", namespace, "/key", "/element"),
                _composite("descending", namespace, "/stamp"),
                _composite("descending", namespace, "/type", "/stamp"),
            ],
            "vectorIndexes": [vector_index] if dimensions else [],
            "fullTextIndexes": [{"path": path} for path in texts],
        },
        vectors={"vectorEmbeddings": [_embeddings(dimensions)]} if dimensions else None,
        full_text={
            "defaultLanguage": "en-US",
            "fullTextPaths": [{"path": path, "language": "en-US"} for path in texts],
        },
    )


def _embeddings(dimensions: int) -> _Policy:
    return {"path": "/embedding", "dataType": "float32", "distanceFunction": "cosine", "dimensions": dimensions}


# -- an existing container ------------------------------------------------------------------------


def check_partition_key(container: str, layout: ContainerLayout, properties: Mapping[str, Any]) -> None:
    """Check that a container has the partition key of its layout.

    Raises:
        ConfigError: the partition key differs; it cannot be changed.
    """
    found = tuple((properties.get("partitionKey") or {}).get("paths") or ())
    if found != layout.partition_key:
        problem = (
            f"container {container!r} is partitioned by {_sorted_paths(found)}, "
            f"not by {_sorted_paths(layout.partition_key)}; "
            "this cannot be changed later: name another container, which will be created"
        )
        raise ConfigError(layout.setting, "the durable tier's settings", problem)


def check_policies(container: str, layout: ContainerLayout, properties: Mapping[str, Any]) -> None:
    """Check that a container has the vector and full-text policies of its layout.

    Raises:
        ConfigError: dimension, data type, distance or path differ, or a text is not indexed; this cannot be changed.
    """
    wrong = [*_vector_differences(layout, properties), *_text_differences(layout, properties)]
    if wrong:
        problem = (
            f"container {container!r} {'; it '.join(wrong)}; this cannot be changed later: name another container,"
            " which will be created, and copy the data (`sharedmem export`, `sharedmem import`)"
        )
        raise ConfigError(layout.setting, "the durable tier's settings", problem)


def _vector_differences(layout: ContainerLayout, properties: Mapping[str, Any]) -> list[str]:
    if layout.vectors is None:
        return []
    (wanted,) = layout.vectors["vectorEmbeddings"]
    policy = (properties.get("vectorEmbeddingPolicy") or {}).get("vectorEmbeddings") or []
    found = next((one for one in policy if one.get("path") == wanted["path"]), None)
    if found is None:
        return [f"has no vector policy for {wanted['path']}"]
    if found.get("dimensions") != wanted["dimensions"]:
        return [f"is for vectors of {found.get('dimensions')} numbers, the embedder has {wanted['dimensions']}"]
    alike = [name for name in ("dataType", "distanceFunction") if found.get(name) != wanted[name]]
    return [f"has {name} {found.get(name)!r} where {wanted[name]!r} is needed" for name in alike]


def _text_differences(layout: ContainerLayout, properties: Mapping[str, Any]) -> list[str]:
    if layout.full_text is None:
        return []
    policy = (properties.get("fullTextPolicy") or {}).get("fullTextPaths") or []
    found = {one.get("path") for one in policy}
    return [f"has no full-text policy for {path}" for path in _text_paths(layout) if path not in found]


def _text_paths(layout: ContainerLayout) -> list[str]:
    return [one["path"] for one in (layout.full_text or {}).get("fullTextPaths", [])]


def differences(container: str, layout: ContainerLayout, properties: Mapping[str, Any]) -> list[str]:
    """Return the other differences between a container and its layout, in sentences."""
    found = []
    if properties.get("defaultTtl") is None:
        found.append(
            f"container {container!r} has no default TTL, so that tombstones stay until they are purged; set it to -1"
        )
    missing = [one for one in layout.indexing.get("compositeIndexes", []) if one not in _composites(properties)]
    found += [
        f"container {container!r} lacks the composite index {_sorted_paths([part['path'] for part in one])} "
        f"({one[0]['order']}); queries fail until it is added"
        for one in missing
    ]
    return found + [f"container {container!r} {one}" for one in _index_differences(layout, properties)]


def _index_differences(layout: ContainerLayout, properties: Mapping[str, Any]) -> list[str]:
    """Return the problems that make searches slow, wrong or expensive; all of them can be corrected."""
    if layout.full_text is None:
        return []
    policy = properties.get("indexingPolicy") or {}
    texts = {one.get("path") for one in policy.get("fullTextIndexes") or []}
    found = [f"has no full-text index on {path}" for path in _text_paths(layout) if path not in texts]
    for wanted in layout.indexing.get("vectorIndexes", []):
        index = next((one for one in policy.get("vectorIndexes") or [] if one.get("path") == wanted["path"]), None)
        if index is None:
            found.append(f"has no vector index on {wanted['path']}; searches read every document")
        elif index.get("type") != wanted["type"]:
            found.append(f"has a vector index of type {index.get('type')}, where {wanted['type']} is set")
        elif (index.get("vectorIndexShardKey") or []) != wanted.get("vectorIndexShardKey", []):
            found.append("has a vector index with another vectorIndexShardKey than set")
    excluded = {one.get("path") for one in policy.get("excludedPaths") or []}
    if layout.vectors and "/embedding/*" not in excluded:
        found.append("indexes the numbers of vectors one by one; exclude /embedding/*, or each write costs many RU")
    return found


def _composites(properties: Mapping[str, Any]) -> list[list[dict[str, str]]]:
    policy = properties.get("indexingPolicy") or {}
    return [
        [{"path": part["path"], "order": part.get("order", "ascending")} for part in index]
        for index in policy.get("compositeIndexes") or []
    ]


def _sorted_paths(paths: Sequence[str]) -> str:
    return f"[{', '.join(paths)}]"
