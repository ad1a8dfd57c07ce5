"""What a step changes, as the parameters of the one query that writes it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sharedmem.knowledge.graph.falkordb.queries import EPISODES, FACTS
from sharedmem.knowledge.graph.falkordb.rows import (
    claim_row,
    entity_properties,
    episode_properties,
    fact_properties,
    letter_of,
    vector_of,
    within,
)
from sharedmem.knowledge.graph.naming import trigrams
from sharedmem.knowledge.graph.records import Changes, EntityRow, EpisodeRow, FactRow, Row
from sharedmem.knowledge.graph.times import stamp_of
from sharedmem.models import EntityMerge
from sharedmem.search.analysis import document_terms

Put = dict[str, Any]
_GUARDED = {"": "Line", "=": "Name", "@": "Entity"}


def parameters_of(changes: Changes, *, now: int) -> dict[str, Any]:
    """Everything that `queries.COMMIT` takes of a step.

    Args:
        changes: the step.
        now: by which facts are past or not.
    """
    gone = list(_gone(changes))
    former = {(type(row), row.id): row for row in changes.former}
    return {
        **_guards(changes),
        "hadTold": _had(changes.episodes, former),
        "hadEntity": _had(changes.entities, former),
        "ends": sorted(set(_ends(changes))),
        "putEntities": [_entity(row) for row in changes.entities],
        "into": [{"id": row.id, "into": row.merged_into} for row in changes.entities if row.merged_into],
        **{
            f"put{label}": [_episode(row) for row in changes.episodes if row.letter == letter]
            for letter, label in EPISODES.items()
        },
        "claims": [claim for row in changes.episodes for claim in _claims(row)],
        "goneFacts": [row.id for row in gone],
        "values": [{"id": row.id, "value": row.value} for row in changes.facts if not row.target],
        **_facts(changes.facts, now),
        "named": [{"name": name, "entity": entity} for name, entity in changes.names],
        "merged": [_merge(entity, told) for entity, told in changes.merges],
        "turns": [{"id": within(session), "session": session, "more": more} for session, more in _turns(changes)],
    }


def words_of(terms: Iterable[str]) -> str:
    """Words as the module indexes and finds them.

    With a digit behind, it neither stems them nor drops those that say nothing: `search.analysis` has done both.
    """
    return " ".join(f"{term}0" for term in terms)


def any_of(terms: Sequence[str]) -> str:
    """A full-text query for any of some words. These hold letters and digits alone, so that nothing is an operator."""
    return "|".join(f"{term}0" for term in terms)


def _guards(changes: Changes) -> dict[str, list[str]]:
    guarded, changed = _by_label((*changes.guards, *changes.steady)), _by_label(changes.guards)
    return {
        **{f"guarded{label}": found for label, found in guarded.items()},
        **{f"changed{label}": found for label, found in changed.items()},
    }


def _by_label(guards: Iterable[str]) -> dict[str, list[str]]:
    """Guards by what bears them."""
    found: dict[str, list[str]] = {label: [] for label in _GUARDED.values()}
    for guard in dict.fromkeys(guards):
        kind = guard[:1] if guard[:1] in _GUARDED else ""
        found[_GUARDED[kind]].append(guard.removeprefix(kind))
    return found


def _gone(changes: Changes) -> Iterator[FactRow]:
    stay = {row.id for row in changes.facts}
    return (row for row in changes.former if isinstance(row, FactRow) and row.id not in stay)


def _had(rows: Iterable[EpisodeRow | EntityRow], former: Mapping[tuple[type, str], Row]) -> list[Put]:
    """The versions that records must have to be replaced. Of facts any: their lines guard them."""
    return [{"id": row.id, "version": former.get((type(row), row.id), row).version} for row in rows]


def _turns(changes: Changes) -> Iterable[tuple[str, int]]:
    """How many episodes each session gets."""
    known = {row.id for row in changes.former if isinstance(row, EpisodeRow)}
    new = (row for row in changes.episodes if row.letter == "e" and row.id not in known)
    return Counter(row.session for row in new).items()


def _ends(changes: Changes) -> Iterator[str]:
    """The entities that there must be for what leads to them."""
    for fact in changes.facts:
        yield from filter(None, (fact.source, fact.target))
    yield from (row.merged_into for row in changes.entities if row.merged_into)
    yield from (entity for _, entity in changes.names if entity)


def _episode(row: EpisodeRow) -> Put:
    words = words_of(document_terms(row.text))
    return {"id": row.id, "properties": episode_properties(row, words), "vector": vector_of(row)}


def _entity(row: EntityRow) -> Put:
    told = document_terms(" ".join((row.name, *row.aliases, row.summary)))
    words = words_of([*told, *dict.fromkeys(run for name in row.names for run in trigrams(name))])
    return {"id": row.id, "properties": entity_properties(row, words), "vector": vector_of(row)}


def _claims(row: EpisodeRow) -> Iterator[Put]:
    for place, (claim, lines) in enumerate(zip(row.claims, row.lines, strict=True)):
        about = list(dict.fromkeys(filter(None, (claim.source, claim.target))))
        yield {
            "episode": row.id,
            "id": claim.id,
            "row": claim_row(claim, lines, place),
            "lines": list(dict.fromkeys(lines)),
            "about": about,
        }


def _facts(rows: Iterable[FactRow], now: int) -> dict[str, list[Put]]:
    found: dict[str, list[Put]] = {f"put{kind}{far}": [] for kind in FACTS.values() for far in ("Entity", "Value")}
    for row in rows:
        far = "Entity" if row.target else "Value"
        found[f"put{FACTS[letter_of(row, now)]}{far}"].append(_fact(row))
    return found


def _fact(row: FactRow) -> Put:
    return {
        "id": row.id,
        "source": row.source,
        "target": row.target or row.id,
        "properties": fact_properties(row, words_of(document_terms(row.text))),
        "vector": vector_of(row),
    }


def _merge(entity: str, told: bytes) -> Put:
    return {"id": entity, "at": stamp_of("at", EntityMerge.model_validate_json(told).at), "row": told.decode()}
