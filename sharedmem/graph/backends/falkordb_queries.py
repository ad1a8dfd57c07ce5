"""The Cypher of the backend, and the conversion of rows to properties and back. Pure.

Every query is a constant of this module, and callers' values are parameters.

A graph holds one group. Each record is stored whole as JSON in `row`; the other properties are for queries.

`(:Head)`                                   its version, and the version with which it began
`(:Told:Episode|Summary|Statement)`         an episode, `-[:SAYS]->(:Claim)`
`(:Claim)-[:IN]->(:Line)`                   the lines of a claim; lines and names have `changed`, as guards
`(:Claim)-[:ABOUT]->(:Entity)`              the entities of a claim as recorded, before any merges
`(:Name)-[:NAMES]->(:Entity)`               the entity that a normalised name means
`(:Entity)-[:MERGED_INTO]->(:Entity)`       an entity that was merged into another
`(:Entity)-[:FACT|PAST]->(:Entity|:Value)`  a fact with all its versions; an attribute leads to a value of its own
`(:Merge)`                                  the log of merges
`(:Done)`                                   commits of the last minutes, to recognise a repeated one
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any

import orjson

from sharedmem.graph.names import trigrams
from sharedmem.graph.records import (
    OPEN,
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
from sharedmem.models import EntityMerge
from sharedmem.redis.vectors import Vector, from_half
from sharedmem.text.analysis import document_terms

EPISODES: dict[KindCode, str] = {"e": "Episode", "s": "Summary", "m": "Statement"}
FACTS: dict[KindCode, str] = {"f": "FACT", "p": "PAST"}
PLACES: dict[KindCode, str] = {**EPISODES, "n": "Entity", **FACTS}
"""Labels of records by letter."""

# Recall of an HNSW index rises with the last number (see EVIDENCE); the module's own is 10.
_HNSW = "similarityFunction: 'cosine', M: 16, efConstruction: 200, efRuntime: 100"
_RANGES = (
    "(n:Told) ON (n.id)",
    "(n:Episode) ON (n.place, n.within, n.start)",
    "(n:Summary) ON (n.place, n.within, n.start)",
    "(n:Statement) ON (n.within, n.start)",
    "(n:Entity) ON (n.id, n.start)",
    "(n:Name) ON (n.id)",
    "(n:Line) ON (n.id)",
    "(n:Value) ON (n.id)",
    "(n:Merge) ON (n.id)",
    "(n:Session) ON (n.id)",
    "(n:Done) ON (n.id, n.until)",
    "()-[n:FACT]->() ON (n.id, n.place, n.start, n.end)",
    "()-[n:PAST]->() ON (n.id, n.place, n.start)",
)

BEGIN = """
MERGE (h:Head)
ON CREATE SET h.born = timestamp() * 1000 + 999, h.version = timestamp() * 1000 + 999
RETURN h.born
"""
"""Later than anything that an earlier graph of this key has written: that was before or within this millisecond."""

BORN = "MATCH (h:Head) RETURN h.born"
INDEXES_UNDER_WAY = "CALL db.indexes() YIELD status WITH status WHERE status <> 'OPERATIONAL' RETURN status"

LOOK = """
MATCH (h:Head) RETURN 'version' AS kind, '' AS id, h.version AS number, null AS row, null AS more
UNION ALL
UNWIND $names AS x MATCH (:Name {id: x})-[:NAMES]->(e)
WITH x, e MATCH (e)-[:MERGED_INTO*0..]->(z) WHERE NOT (z)-[:MERGED_INTO]->()
RETURN 'name' AS kind, x AS id, null AS number, e.id AS row, [z.id] AS more
UNION ALL
UNWIND $lines AS x MATCH (:Line {id: x})<-[:IN]-(c)
RETURN 'line' AS kind, x AS id, null AS number, null AS row, collect(c.row) AS more
UNION ALL
UNWIND $lines AS x MATCH (:Line {id: x})<-[:IN]-()-[:ABOUT]->(e)
WITH DISTINCT e MATCH (e)-[:MERGED_INTO*1..]->(z) WHERE NOT (z)-[:MERGED_INTO]->()
RETURN 'into' AS kind, e.id AS id, null AS number, z.id AS row, null AS more
UNION ALL
UNWIND $entities AS x MATCH (e:Entity {id: x})
WITH x, e MATCH (e)-[:MERGED_INTO*1..]->(z) WHERE NOT (z)-[:MERGED_INTO]->()
RETURN 'into' AS kind, x AS id, null AS number, z.id AS row, null AS more
UNION ALL
UNWIND $episodes AS x MATCH (n:Told {id: x}) OPTIONAL MATCH (n)-[:SAYS]->(c)
RETURN 'episode' AS kind, x AS id, n.version AS number, n.row AS row, collect(c.row) AS more
UNION ALL
UNWIND $entities AS x MATCH (n:Entity {id: x}) WHERE n.row IS NOT NULL
RETURN 'entity' AS kind, x AS id, n.version AS number, n.row AS row, null AS more
UNION ALL
UNWIND $facts AS x MATCH ()-[r:FACT {id: x}]->()
RETURN 'fact' AS kind, x AS id, r.version AS number, r.row AS row, null AS more
UNION ALL
UNWIND $facts AS x MATCH ()-[r:PAST {id: x}]->()
RETURN 'fact' AS kind, x AS id, r.version AS number, r.row AS row, null AS more
"""

_VECTOR = "vecf32([y IN split(x.vector, ',') | toFloat(y)])"


def _put_episodes(label: str) -> str:
    return f"""
CALL {{
  WITH next UNWIND $put{label} AS x
  MERGE (n:Told:{label} {{id: x.id}})
  SET n += x.properties, n.version = next, n.vector = coalesce({_VECTOR}, n.vector)
  WITH n OPTIONAL MATCH (n)-[:SAYS]->(c:Claim) DETACH DELETE c
  RETURN count(n) AS put{label}
}}"""


def _put_facts(kind: str, other: str, far: str) -> str:
    return f"""
CALL {{
  WITH next UNWIND $put{kind}{far} AS x
  MATCH (a:Entity {{id: x.source}}) MATCH (b:{far} {{id: x.target}})
  OPTIONAL MATCH (a)-[o:{other} {{id: x.id}}]->(b)
  MERGE (a)-[r:{kind} {{id: x.id}}]->(b)
  SET r += x.properties, r.version = next, r.vector = coalesce({_VECTOR}, r.vector, o.vector)
  DELETE o
  RETURN count(r) AS put{kind}{far}
}}"""


def _note_changed(label: str) -> str:
    return f"""
CALL {{
  WITH next UNWIND $changed{label} AS x MERGE (g:{label} {{id: x}}) SET g.changed = next
  RETURN count(g) AS changed{label}
}}"""


def _count_changed(label: str) -> str:
    return f"""
CALL {{
  UNWIND $guarded{label} AS x MATCH (g:{label} {{id: x}}) WHERE g.changed > $seen
  RETURN count(g) AS guarded{label}
}}"""


def _count_other(label: str) -> str:
    return f"""
CALL {{
  UNWIND $had{label} AS x OPTIONAL MATCH (n:{label} {{id: x.id}})
  WITH x, n WHERE coalesce(n.version, 0) <> x.version RETURN count(x) AS had{label}
}}"""


COMMIT = f"""
MATCH (h:Head) WHERE h.born <= $seen
OPTIONAL MATCH (d:Done {{id: $token}})
WITH h, d WHERE d IS NULL
{"".join(map(_count_changed, ("Line", "Name", "Entity")))}{"".join(map(_count_other, ("Told", "Entity")))}
WITH h, guardedLine + guardedName + guardedEntity + hadTold + hadEntity AS behind WHERE behind = 0
WITH h, CASE WHEN h.version < timestamp() * 1000 THEN timestamp() * 1000 ELSE h.version + 1 END AS next
SET h.version = next
CREATE (:Done {{id: $token, version: next, until: timestamp() + $keep}})
WITH next
CALL {{ MATCH (d:Done) WHERE d.until < timestamp() DELETE d RETURN count(d) AS lapsed }}
CALL {{ UNWIND $ends AS x MERGE (e:Entity {{id: x}}) RETURN count(e) AS ends }}
CALL {{
  WITH next UNWIND $putEntities AS x
  MERGE (n:Entity {{id: x.id}})
  SET n += x.properties, n.version = next, n.vector = coalesce({_VECTOR}, n.vector)
  WITH n OPTIONAL MATCH (n)-[m:MERGED_INTO]->() DELETE m
  RETURN count(n) AS putEntities
}}
CALL {{
  UNWIND $into AS x MATCH (n:Entity {{id: x.id}}) MATCH (z:Entity {{id: x.into}})
  CREATE (n)-[:MERGED_INTO]->(z) RETURN count(n) AS into
}}
{"".join(map(_put_episodes, EPISODES.values()))}
CALL {{
  UNWIND $claims AS x MATCH (n:Told {{id: x.episode}})
  CREATE (n)-[:SAYS]->(c:Claim {{id: x.id, row: x.row}})
  FOREACH (y IN x.lines | MERGE (l:Line {{id: y}}) CREATE (c)-[:IN]->(l))
  FOREACH (y IN x.about | MERGE (e:Entity {{id: y}}) CREATE (c)-[:ABOUT]->(e))
  RETURN count(c) AS claims
}}
CALL {{ UNWIND $goneFacts AS x MATCH ()-[r:FACT {{id: x}}]->() DELETE r RETURN count(r) AS goneNow }}
CALL {{ UNWIND $goneFacts AS x MATCH ()-[r:PAST {{id: x}}]->() DELETE r RETURN count(r) AS gonePast }}
CALL {{ UNWIND $goneFacts AS x MATCH (v:Value {{id: x}}) DELETE v RETURN count(v) AS goneValues }}
CALL {{ UNWIND $values AS x MERGE (v:Value {{id: x.id}}) SET v.value = x.value RETURN count(v) AS values }}
{_put_facts("FACT", "PAST", "Entity")}{_put_facts("FACT", "PAST", "Value")}
{_put_facts("PAST", "FACT", "Entity")}{_put_facts("PAST", "FACT", "Value")}
CALL {{
  UNWIND $named AS x MERGE (n:Name {{id: x.name}})
  WITH n OPTIONAL MATCH (n)-[m:NAMES]->() DELETE m RETURN count(n) AS unnamed
}}
CALL {{
  UNWIND $named AS x WITH x WHERE x.entity <> ''
  MATCH (n:Name {{id: x.name}}) MATCH (e:Entity {{id: x.entity}})
  CREATE (n)-[:NAMES]->(e) RETURN count(n) AS named
}}
CALL {{
  UNWIND $merged AS x MERGE (m:Merge {{id: x.id}}) SET m.at = x.at, m.row = x.row
  RETURN count(m) AS merged
}}
CALL {{
  UNWIND $turns AS x MERGE (s:Session {{id: x.id}}) SET s.turns = coalesce(s.turns, 0) + x.more
  RETURN count(s) AS counted
}}
CALL {{ UNWIND $turns AS x MATCH (s:Session {{id: x.id}}) RETURN collect([x.session, s.turns]) AS turns }}
{"".join(map(_note_changed, ("Line", "Name", "Entity")))}
RETURN next, turns
"""

VERDICT = """
OPTIONAL MATCH (h:Head) OPTIONAL MATCH (d:Done {id: $token})
CALL { UNWIND $turns AS x MATCH (s:Session {id: x.id}) RETURN collect([x.session, s.turns]) AS turns }
RETURN h.born, d.version, turns
"""

_HOLDS_NOW = f"r.superseded = {OPEN} AND r.start <= $world AND $world < r.end"
_HELD = """any(i IN range(0, size(r.versions) / 4 - 1) WHERE
    r.versions[4 * i] <= $world AND $world < r.versions[4 * i + 1]
    AND r.versions[4 * i + 2] <= $known AND $known < r.versions[4 * i + 3])"""
_SHOWN = "r.id, r.type, r.source, r.target, r.versions"


def _walk(holds: str) -> str:
    return f"""
UNWIND $at AS x MATCH (a:Entity {{id: x}})
CALL {{
  WITH a MATCH (a)-[r:FACT|PAST]-(:Entity) WHERE {holds}
  WITH DISTINCT r ORDER BY r.start DESC, r.id LIMIT $most
  RETURN r
}}
RETURN x, {_SHOWN}
"""


def _edges(holds: str) -> str:
    return f"""
MATCH (a:Entity {{id: $entity}})-[r:FACT|PAST]-()
WHERE {holds} AND (size($types) = 0 OR r.type IN $types OR ($attributes AND r.target = ''))
WITH DISTINCT r ORDER BY r.start DESC, r.id LIMIT $most
RETURN $entity, {_SHOWN}
"""


WALK_NOW, WALK_THEN = _walk(_HOLDS_NOW), _walk(_HELD)
EDGES_NOW, EDGES_THEN, EDGES_EVER = _edges(_HOLDS_NOW), _edges(_HELD), _edges("true")


def _listed(label: str) -> str:
    return f"""
MATCH (n:{label}) WHERE ($within IS NULL OR n.within = $within) AND n.place > $after
RETURN n.id AS id, n.place AS place ORDER BY place LIMIT $most
"""


LISTED = {
    "episode": _listed("Episode"),
    "summary": _listed("Summary"),
    "statement": _listed("Statement"),
    "entity": """
MATCH (n:Entity) WHERE n.row IS NOT NULL AND n.id > $after
RETURN n.id AS id, n.id AS place ORDER BY place LIMIT $most
""",
    "merge": """
MATCH (m:Merge) WHERE m.id > $after
RETURN m.id AS id, m.id AS place ORDER BY place LIMIT $most
""",
}
LINES_OF = """
UNWIND $said AS x MATCH (:Entity {id: x})<-[:ABOUT]-(:Claim)-[:IN]->(l:Line) WHERE l.id > $after
RETURN DISTINCT l.id AS id, l.id AS place ORDER BY place LIMIT $most
"""
NAMES_OF = """
MATCH (:Entity {id: $entity})<-[:NAMES]-(n:Name) WHERE n.id > $after
RETURN n.id AS id, n.id AS place ORDER BY place LIMIT $most
"""
MERGES = "MATCH (m:Merge) RETURN m.row ORDER BY m.at, m.id"
STATS = """
CALL db.meta.stats() YIELD labels, relTypes
CALL { MATCH (n:Entity) WHERE n.row IS NOT NULL RETURN count(n) AS entities }
CALL { MATCH ()-[r:FACT]->() WHERE r.end <= $now RETURN count(r) AS lapsed }
RETURN labels.Episode, labels.Summary, labels.Statement, entities, relTypes.MERGED_INTO, relTypes.FACT, lapsed,
    relTypes.PAST, labels.Merge
"""
COUNTS = ("episodes", "summaries", "statements", "entities", "merged", "facts", "lapsed", "past", "merges")
"""The columns of `STATS`, in order; no row if the graph never existed."""


def _listed_facts(kind: str) -> str:
    return f"""
MATCH ()-[r:{kind}]->() WHERE r.place >= $low AND r.place < $high
RETURN r.place AS place, r.id AS id ORDER BY place, id LIMIT $most
"""


LISTED_FACTS = "UNION ALL".join(map(_listed_facts, FACTS.values()))
COUNTED_FACTS = "CALL db.meta.stats() YIELD relTypes RETURN relTypes.FACT, relTypes.PAST"


def indexes(dimension: int) -> Iterator[str]:
    """Yield statements to create the indexes of a new graph before it is used, without vectors if none exist."""
    yield from (f"CREATE INDEX FOR {each}" for each in _RANGES)
    for place in PLACES.values():
        pattern = f"()-[n:{place}]->()" if place in FACTS.values() else f"(n:{place})"
        yield f"CREATE FULLTEXT INDEX FOR {pattern} ON (n.words)"
        if dimension:
            yield f"CREATE VECTOR INDEX FOR {pattern} ON (n.vector) OPTIONS {{dimension: {dimension}, {_HNSW}}}"


def text_leg(search: int, letter: KindCode, *, is_narrowed: bool, has_session: bool) -> str:
    """Return the part of a search that finds records of a letter by their words."""
    call, it = _procedure_call("fulltext", letter, f"$any{search}")
    narrowed = _narrowed(search, it, is_narrowed=is_narrowed, has_session=has_session)
    where = f"WHERE {narrowed}" if narrowed else ""
    return f"""
CALL {{
  CALL {call} YIELD {it}, score WITH {it}, score {where}
  WITH {it}, score ORDER BY score DESC LIMIT $pool{search}
  RETURN {it}.id AS id, {it}.words AS words, score
}}
RETURN {search} AS search, 'text' AS part, '{letter}' AS letter, id, score, words
"""


def rarity_legs(search: int, letter: KindCode) -> list[str]:
    """Return the parts of a search that count the records of a letter, and the ones that contain each of its words."""
    call, it = _procedure_call("fulltext", letter, "x")
    counts = "relTypes" if letter in FACTS else "labels"
    shown = f"{search} AS search, '{{}}' AS part, '{letter}' AS letter"
    return [
        f"""
UNWIND $words{search} AS x CALL {{ WITH x CALL {call} YIELD {it} RETURN count({it}) AS holders }}
RETURN {shown.format("holders")}, x AS id, holders AS score, '' AS words
""",
        f"""
CALL db.meta.stats() YIELD {counts}
RETURN {shown.format("count")}, '' AS id, {counts}.{PLACES[letter]} AS score, '' AS words
""",
    ]


def vector_leg(search: int, letter: KindCode, *, is_narrowed: bool, has_session: bool) -> str:
    """Return the part of a search by vectors for one letter: exact among the records that match a filter.

    With a filter after it, the HNSW index would return too few hits; and a filter mostly leaves few records.
    """
    narrowed = _narrowed(search, "n", is_narrowed=is_narrowed, has_session=has_session)
    vector = f"vecf32([y IN split($vector{search}, ',') | toFloat(y)])"
    if narrowed:
        label = PLACES[letter]
        pattern = f"()-[n:{label}]->()" if letter in FACTS else f"(n:{label})"
        found = f"""UNWIND [{vector}] AS near MATCH {pattern} WHERE n.vector IS NOT NULL AND {narrowed}
  RETURN n.id AS id, vec.cosineDistance(n.vector, near) AS distance ORDER BY distance, id LIMIT $most{search}"""
    else:
        call, it = _procedure_call("vector", letter, f"'vector', $most{search}, {vector}")
        found = f"CALL {call} YIELD {it}, score RETURN {it}.id AS id, score AS distance"
    return f"""
CALL {{
  {found}
}}
RETURN {search} AS search, 'vector' AS part, '{letter}' AS letter, id, 1 - distance AS score, '' AS words
"""


def _procedure_call(index: str, letter: KindCode, rest: str) -> tuple[str, str]:
    """Return (call of a procedure, what it yields)."""
    kind, it = ("Relationships", "relationship") if letter in FACTS else ("Nodes", "node")
    return f"db.idx.{index}.query{kind}('{PLACES[letter]}', {rest})", it


def _narrowed(search: int, it: str, *, is_narrowed: bool, has_session: bool) -> str:
    times = [f"{it}.start >= $since{search}", f"{it}.start <= $until{search}"] if is_narrowed else []
    return " AND ".join([*([f"{it}.within = $within{search}"] if has_session else []), *times])


# -- rows as parameters and properties -----------------------------------------------------------


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
