"""Rows as the properties of nodes and edges, and back.

Each record carries itself whole as JSON in `row`; the other properties are what queries ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from hashlib import blake2b
from typing import Any

import orjson

from sharedmem.knowledge.graph.records import Claim, EntityRow, EpisodeRow, FactRow, Letter, Row, Version
from sharedmem.knowledge.graph.times import sortable
from sharedmem.wire.vectors import Vector, from_half

Properties = dict[str, Any]
_BESIDE = frozenset({"id", "version", "vector", "claims", "lines", "body"})
"""What is kept as a property or a node of its own, or is no text yet."""
_PLACE_DIGITS = 12
_DIGEST = re.compile(rf"[0-9a-f]{{{_PLACE_DIGITS},}}")
PLACES: int = 16**_PLACE_DIGITS
_NEVER = Version(0, 0, 0, 0)


def episode_properties(row: EpisodeRow, words: str) -> Properties:
    """Of the node of an episode, a summary or a statement."""
    return {
        "id": row.id,
        "row": _json({**_plain(row), "body": row.body.decode()}),
        "letter": row.letter,
        "place": place_of(row),
        "start": row.occurred,
        "session": row.session,
        "within": within(row.session),
        "words": words,
    }


def entity_properties(row: EntityRow, words: str) -> Properties:
    """Of the node of an entity."""
    return {
        "id": row.id,
        "row": _json(_plain(row)),
        "name": row.name,
        "type": row.type,
        "start": row.recorded,
        "words": words,
    }


def fact_properties(row: FactRow, words: str) -> Properties:
    """Of the edge of a fact; the four numbers are those of the version that was recorded last."""
    last = row.versions[-1] if row.versions else _NEVER
    return {
        "id": row.id,
        "row": _json({**_plain(row), "lines": row.lines, "versions": [list(each) for each in row.versions]}),
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
    """The `row` of the node of a claim: itself, the lines in which it stands, and where it stood in its episode."""
    return _json({"claim": _plain(claim), "lines": list(lines), "place": place})


def episode_of(id_: str, row: str, version: int, claims: Iterable[str]) -> EpisodeRow:
    """The episode of a node, with the rows of its claims."""
    said = sorted(map(orjson.loads, claims), key=lambda each: each["place"])
    told = orjson.loads(row)
    return EpisodeRow(
        **{**told, "body": told["body"].encode()},
        id=id_,
        version=version,
        claims=tuple(Claim(**each["claim"]) for each in said),
        lines=tuple(tuple(each["lines"]) for each in said),
    )


def entity_of(id_: str, row: str, version: int) -> EntityRow:
    """The entity of a node."""
    return EntityRow(**_with_tuples(orjson.loads(row), ("names", "aliases")), id=id_, version=version)


def fact_of(id_: str, row: str, version: int) -> FactRow:
    """The fact of an edge."""
    told = _with_tuples(orjson.loads(row), ("lines", "episodes"))
    return FactRow(**{**told, "versions": tuple(Version(*each) for each in told["versions"])}, id=id_, version=version)


def claim_of(row: str) -> Claim:
    """The claim of a node."""
    return Claim(**orjson.loads(row)["claim"])


def versions_of(numbers: list[int]) -> tuple[Version, ...]:
    """The versions of a fact, four numbers each."""
    return tuple(Version(*numbers[at : at + 4]) for at in range(0, len(numbers), 4))


def place_of(row: EpisodeRow) -> str:
    """What episodes are listed by: when they occurred, then their ids."""
    return f"{sortable(row.occurred)}/{row.id}"


def fact_place(id_: str) -> int:
    """What facts are listed by: a number below `PLACES`, in the order of ids that are digests, as the graph's are."""
    digest = id_ if _DIGEST.fullmatch(id_) else blake2b(id_.encode()).hexdigest()
    return int(digest[:_PLACE_DIGITS], 16)


def within(session: str) -> str:
    """What the episodes of a session have in common: short, and a text even for those without a session."""
    return blake2b(session.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def letter_of(row: FactRow, now: int) -> Letter:
    """`f` for what is known to be true now or in the future, `p` for what is not."""
    return "f" if row.current is not None and row.current.end > now else "p"


def numbers_of(vector: Vector | None) -> str | None:
    """A vector as text, which the server reads faster than a list; None for one that is near to nothing."""
    return ",".join(f"{number:.6g}" for number in vector.tolist()) if vector is not None and vector.any() else None


def vector_of(row: Row) -> str | None:
    """The vector of a row as text; None leaves the one that lies there."""
    return None if row.vector is None else numbers_of(from_half(row.vector))


def _plain(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name not in _BESIDE}


def _with_tuples(told: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {**told, **{name: tuple(told[name]) for name in names}}


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()
