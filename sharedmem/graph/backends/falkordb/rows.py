"""Convert rows to node and edge properties and back, and commits to query parameters. Pure.

Each record is stored whole as JSON in `row`; the other properties are for queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any

import orjson

from sharedmem.graph.backends.falkordb.queries import EPISODES, FACTS
from sharedmem.graph.records import (
    Claim,
    CommitRequest,
    EntityChange,
    EntityRow,
    EpisodeRow,
    FactRow,
    KindCode,
    Row,
    Version,
    ascending_text,
    to_stamp,
)
from sharedmem.graph.resolution.names import trigrams
from sharedmem.models import EntityMerge
from sharedmem.redis.vectors import Vector, from_half
from sharedmem.text.analysis import document_terms

Properties = dict[str, Any]
_OUTSIDE_JSON = frozenset({"id", "version", "vector", "claims", "lines", "body"})
"""Fields that are stored as a property or a node of their own, or are not texts yet."""
_PLACE_DIGITS = 12
_DIGEST = re.compile(rf"[0-9a-f]{{{_PLACE_DIGITS},}}")
PLACE_LIMIT: int = 16**_PLACE_DIGITS
_NEVER = Version(0, 0, 0, 0)


def episode_properties(row: EpisodeRow, words: str) -> Properties:
    """Return the properties of the node of an episode, a summary or a statement."""
    return {
        "id": row.id,
        "row": _json({**_row_fields(row), "body": row.body.decode()}),
        "letter": row.letter,
        "place": episode_place(row),
        "start": row.occurred,
        "session": row.session,
        "within": session_property(row.session),
        "words": words,
    }


def entity_properties(row: EntityRow, words: str) -> Properties:
    """Return the properties of the node of an entity."""
    return {
        "id": row.id,
        "row": _json({**_row_fields(row), "changes": [list(change) for change in row.changes]}),
        "name": row.name,
        "type": row.type,
        "start": row.recorded,
        "words": words,
    }


def fact_properties(row: FactRow, words: str) -> Properties:
    """Return the properties of the edge of a fact; the four numbers are of the version recorded last."""
    last = row.versions[-1] if row.versions else _NEVER
    return {
        "id": row.id,
        "row": _json({**_row_fields(row), "lines": row.lines, "versions": [list(each) for each in row.versions]}),
        "place": fact_place(row.id),
        "source": row.source,
        "target": row.target,
        "type": row.type,
        "text": row.text,
        **last._asdict(),
        "versions": [number for each in row.versions for number in each],
        "words": words,
    }


def claim_row(claim: Claim, lines: Iterable[str], place: int) -> str:
    """Return the `row` of the node of a claim: the claim, its lines, and its position in its episode."""
    return _json({"claim": _row_fields(claim), "lines": list(lines), "place": place})


def parse_episode(id_: str, row: str, version: int, claims: Iterable[str]) -> EpisodeRow:
    """Return the episode of a node, with the rows of its claims."""
    ordered = sorted(map(orjson.loads, claims), key=lambda each: each["place"])
    fields = orjson.loads(row)
    return EpisodeRow(
        **{**fields, "body": fields["body"].encode()},
        id=id_,
        version=version,
        claims=tuple(Claim(**each["claim"]) for each in ordered),
        lines=tuple(tuple(each["lines"]) for each in ordered),
    )


def parse_entity(id_: str, row: str, version: int) -> EntityRow:
    """Return the entity of a node."""
    fields = _with_tuples(orjson.loads(row), ("names", "aliases"))
    changes = tuple(EntityChange(*change) for change in fields.pop("changes", ()))
    return EntityRow(**fields, changes=changes, id=id_, version=version)


def parse_fact(id_: str, row: str, version: int) -> FactRow:
    """Return the fact of an edge."""
    fields = _with_tuples(orjson.loads(row), ("lines", "episodes"))
    return FactRow(
        **{**fields, "versions": tuple(Version(*each) for each in fields["versions"])}, id=id_, version=version
    )


def parse_claim(row: str) -> Claim:
    """Return the claim of a node."""
    return Claim(**orjson.loads(row)["claim"])


def parse_versions(numbers: list[int]) -> tuple[Version, ...]:
    """Return the versions of a fact, four numbers each."""
    return tuple(Version(*numbers[at : at + 4]) for at in range(0, len(numbers), 4))


def episode_place(row: EpisodeRow) -> str:
    """Return the key by which episodes are listed: when they occurred, then their ids."""
    return f"{ascending_text(row.occurred)}/{row.id}"


def fact_place(id_: str) -> int:
    """Return the number below `PLACE_LIMIT` by which facts are listed, in the order of ids that are digests."""
    digest = id_ if _DIGEST.fullmatch(id_) else blake2b(id_.encode()).hexdigest()
    return int(digest[:_PLACE_DIGITS], 16)


def session_property(session: str) -> str:
    """Return the property that the episodes of a session share: short, and a text even for those without a session."""
    return blake2b(session.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def kind_code(row: FactRow, now: int) -> KindCode:
    """Return `f` for a fact that is known to be true now or in the future, `p` for any other."""
    return "f" if row.current is not None and row.current.end > now else "p"


def vector_text(vector: Vector | None) -> str | None:
    """Return a vector as text, which the server reads faster than a list; None for one of zeros."""
    return ",".join(f"{number:.6g}" for number in vector.tolist()) if vector is not None and vector.any() else None


def row_vector_text(row: Row) -> str | None:
    """Return the vector of a row as text; None keeps the stored one."""
    return None if row.vector is None else vector_text(from_half(row.vector))


def _row_fields(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name not in _OUTSIDE_JSON}


def _with_tuples(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {**fields, **{name: tuple(fields[name]) for name in names}}


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()


NodeParameters = dict[str, Any]
_GUARDED = {"": "Line", "=": "Name", "@": "Entity"}


def commit_parameters(changes: CommitRequest, *, now: int) -> dict[str, Any]:
    """Return all parameters of `queries.COMMIT` for a step.

    Args:
        changes: the step.
        now: the time that separates past facts from others.
    """
    removed = list(_removed_rows(changes))
    former = {(type(row), row.id): row for row in changes.former}
    return {
        **_guards(changes),
        "hadTold": _expected_versions(changes.episodes, former),
        "hadEntity": _expected_versions(changes.entities, former),
        "ends": sorted(set(_required_entities(changes))),
        "putEntities": [_entity(row) for row in changes.entities],
        "into": [{"id": row.id, "into": row.merged_into} for row in changes.entities if row.merged_into],
        **{
            f"put{label}": [_episode(row) for row in changes.episodes if row.letter == letter]
            for letter, label in EPISODES.items()
        },
        "claims": [claim for row in changes.episodes for claim in _claims(row)],
        "goneFacts": [row.id for row in removed],
        "values": [{"id": row.id, "value": row.value} for row in changes.facts if not row.target],
        **_facts(changes.facts, now),
        "named": [{"name": name, "entity": entity} for name, entity in changes.names],
        "merged": [_merge(entity, body) for entity, body in changes.merges],
        "turns": [
            {"id": session_property(session), "session": session, "more": more}
            for session, more in _turn_counts(changes)
        ],
    }


def index_words(terms: Iterable[str]) -> str:
    """Return words as the module indexes and finds them.

    With a digit appended, it neither stems them nor drops stop words: `text.analysis` has done both.
    """
    return " ".join(f"{term}0" for term in terms)


def any_word_query(terms: Sequence[str]) -> str:
    """Return a full-text query for any of some words. They contain only letters and digits, so none is an operator."""
    return "|".join(f"{term}0" for term in terms)


def _guards(changes: CommitRequest) -> dict[str, list[str]]:
    guarded, changed = _by_label((*changes.guards, *changes.steady)), _by_label(changes.guards)
    return {
        **{f"guarded{label}": found for label, found in guarded.items()},
        **{f"changed{label}": found for label, found in changed.items()},
    }


def _by_label(guards: Iterable[str]) -> dict[str, list[str]]:
    """Return guards by the label of their nodes."""
    found: dict[str, list[str]] = {label: [] for label in _GUARDED.values()}
    for guard in dict.fromkeys(guards):
        kind = guard[:1] if guard[:1] in _GUARDED else ""
        found[_GUARDED[kind]].append(guard.removeprefix(kind))
    return found


def _removed_rows(changes: CommitRequest) -> Iterator[FactRow]:
    stay = {row.id for row in changes.facts}
    return (row for row in changes.former if isinstance(row, FactRow) and row.id not in stay)


def _expected_versions(
    rows: Iterable[EpisodeRow | EntityRow], former: Mapping[tuple[type, str], Row]
) -> list[NodeParameters]:
    """Return the expected versions of the replaced records. Facts have none: their lines guard them."""
    return [{"id": row.id, "version": former.get((type(row), row.id), row).version} for row in rows]


def _turn_counts(changes: CommitRequest) -> Iterable[tuple[str, int]]:
    """Return how many episodes are added to each session."""
    known = {row.id for row in changes.former if isinstance(row, EpisodeRow)}
    new = (row for row in changes.episodes if row.letter == "e" and row.id not in known)
    return Counter(row.session for row in new).items()


def _required_entities(changes: CommitRequest) -> Iterator[str]:
    """Yield the entities that must exist because records refer to them."""
    for fact in changes.facts:
        yield from filter(None, (fact.source, fact.target))
    yield from (row.merged_into for row in changes.entities if row.merged_into)
    yield from (entity for _, entity in changes.names if entity)


def _episode(row: EpisodeRow) -> NodeParameters:
    words = index_words(document_terms(row.text))
    return {"id": row.id, "properties": episode_properties(row, words), "vector": row_vector_text(row)}


def _entity(row: EntityRow) -> NodeParameters:
    terms = document_terms(" ".join((row.name, *row.aliases, row.summary)))
    words = index_words([*terms, *dict.fromkeys(run for name in row.names for run in trigrams(name))])
    return {"id": row.id, "properties": entity_properties(row, words), "vector": row_vector_text(row)}


def _claims(row: EpisodeRow) -> Iterator[NodeParameters]:
    for place, (claim, lines) in enumerate(zip(row.claims, row.lines, strict=True)):
        about = list(dict.fromkeys(filter(None, (claim.source, claim.target))))
        yield {
            "episode": row.id,
            "id": claim.id,
            "row": claim_row(claim, lines, place),
            "lines": list(dict.fromkeys(lines)),
            "about": about,
        }


def _facts(rows: Iterable[FactRow], now: int) -> dict[str, list[NodeParameters]]:
    found: dict[str, list[NodeParameters]] = {
        f"put{kind}{far}": [] for kind in FACTS.values() for far in ("Entity", "Value")
    }
    for row in rows:
        far = "Entity" if row.target else "Value"
        found[f"put{FACTS[kind_code(row, now)]}{far}"].append(_fact(row))
    return found


def _fact(row: FactRow) -> NodeParameters:
    return {
        "id": row.id,
        "source": row.source,
        "target": row.target or row.id,
        "properties": fact_properties(row, index_words(document_terms(row.text))),
        "vector": row_vector_text(row),
    }


def _merge(entity: str, body: bytes) -> NodeParameters:
    return {"id": entity, "at": to_stamp("at", EntityMerge.model_validate_json(body).at), "row": body.decode()}
