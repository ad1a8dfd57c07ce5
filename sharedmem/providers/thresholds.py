"""Similarity thresholds that were measured for embedders."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.config import Settings

_USUAL = 0.95
# By the name of the embedder: the similarity at which, with guards, 2 % of 7,464 pairs of different questions count as
# the same (docs/memory.md). More than a cache tolerates, since a merge can be undone.
_MEASURED = {
    "wordllama:l2_supercat-64": 0.949,
    "wordllama:l2_supercat-128": 0.943,
    "wordllama:l2_supercat-256": 0.936,
}


# At these 0.5 % of the same pairs are false hits (docs/cache.md).
_MEASURED_FOR_CACHE = {
    "wordllama:l2_supercat-64": 0.982,
    "wordllama:l2_supercat-128": 0.979,
    "wordllama:l2_supercat-256": 0.976,
}


def calibrated_similarity(embedder: str) -> float:
    """Return the measured similarity from which an embedder's prompts mean the same; 0 if it was not measured."""
    return _MEASURED_FOR_CACHE.get(embedder, 0.0)


def recommended_dedup_similarity(embedder: str) -> float:
    """Return the least `dedup_similarity` that calibration recommends for an embedder; 0.95 if it was not measured."""
    return _MEASURED.get(embedder, _USUAL)


class LowThreshold(NamedTuple):
    """A threshold of the settings from which memories that differ may be merged."""

    similarity: float
    recommended: float
    warning: str
    """What is wrong, in a sentence."""


def low_dedup_thresholds(settings: Settings, embedder: str) -> list[LowThreshold]:
    """Return the thresholds of the settings, also those of single namespaces, that are below the recommended one."""
    recommended = recommended_dedup_similarity(embedder)
    of_namespaces = {
        f"dedup_similarity of the namespaces {pattern}": rule.dedup_similarity
        for pattern, rule in settings.namespace_settings.items()
        if "dedup_similarity" in rule.model_fields_set
    }
    return [
        LowThreshold(
            similarity,
            recommended,
            f"{name} is {similarity:g}, below {recommended:g}, which calibration recommends for {embedder}:"
            " memories that differ may be merged",
        )
        for name, similarity in {"dedup_similarity": settings.dedup_similarity, **of_namespaces}.items()
        if similarity < recommended
    ]
