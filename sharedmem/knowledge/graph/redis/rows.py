"""How the records of a graph lie in Redis: pure functions between rows and what is stored.

A row is a hash (`KeySpace.record`) named `<group>/<kind>/<id>`, of kind `e` episode, `n` entity or `f` fact. Its `body`
is the JSON of the row, from which everything else in the hash follows but `version` and `vector`. What lies beside it
(`entries`) follows from it too, so that a record which comes back from the durable tier brings that along:

- in `edges`, for each version of a fact, a member for each of its ends: `<entity>^<kind><section><times><way><type>^`
  `<other end>^<fact>`, where `^` is U+001F, the kind `r` for relations and `a` for attributes, the way `>` or `<`. In
  section `c` is what is known now and has an open end (times: start, recorded), in `e` what is known now and ends (end,
  start, recorded), in `s` what was superseded (superseded, start, end, recorded); the start is counted back from the
  end of time;
- in `claims`, for each claim and each of its lines `l<line>^<source>^<target>^<JSON>`, and for each entity it was said
  with `b<entity>^<line>^<claim>`;
- in `told`, the register of the group: `e<letter><occurred><id>` an episode, with `t<digest of its session>` for the
  `e` too, `n<id>` an entity, `o<id>` one that was merged, `f<id>` a fact, `p<end><id>` one that ends or is known to be
  wrong; names by their owners are there too (`lua/include/graph.lua`), and `x<id>` a name for which the row of its
  entity has no room, which is a record of its own, of kind `x`;
- in `names`, for an entity that was merged, what it was merged into.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from sharedmem.knowledge.graph.naming import spelled_group, trigrams
from sharedmem.knowledge.graph.records import Claim, Edge, EntityRow, EpisodeRow, FactRow, Row, Version
from sharedmem.knowledge.graph.times import OPEN, UNKNOWN_START, newest_first, sortable
from sharedmem.search.analysis import document_terms, prefix_of
from sharedmem.search.tags import spelled
from sharedmem.wire.replies import Argument

BETWEEN = "\x1f"
KINDS = {EpisodeRow: "e", EntityRow: "n", FactRow: "f"}
_DIGITS = 18
_TIMES = {"c": 2, "e": 3, "s": 4}
_BESIDE_BODY = ("version", "vector")
_CLAIM_FIELDS = tuple(Claim.__slots__)
_EPISODE_FIELDS, _ENTITY_FIELDS, _FACT_FIELDS = (
    tuple(name for name in row.__slots__ if name not in _BESIDE_BODY) for row in (EpisodeRow, EntityRow, FactRow)
)
_claim_values = attrgetter(*_CLAIM_FIELDS)
_episode_values = attrgetter(*_EPISODE_FIELDS)
_entity_values = attrgetter(*_ENTITY_FIELDS)
_fact_values = attrgetter(*_FACT_FIELDS)
_EPOCH = 62_135_596_800_000_000
"""Microseconds from the beginning of the year 1 to that of 1970."""


class Entries(NamedTuple):
    """What lies beside a row."""

    edges: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    into: frozenset[tuple[str, str]] = frozenset()
    """(entity, what it was merged into), which lies in `names` under `>` and the entity."""


NOTHING = Entries()


def record_id(group: str, row: Row) -> str:
    """How the record of a row is named in its namespace."""
    return record_named(group, KINDS[type(row)], row.id)


def name_id(name: str) -> str:
    """The id of the record of a normalised name."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def name_body(name: str, entity: str) -> bytes:
    """The JSON of such a record."""
    return orjson.dumps({"name": name, "entity": entity})


def record_named(group: str, kind: str, id_: str) -> str:
    """How a record is named in its namespace."""
    return f"{spelled_group(group)}/{kind}/{id_}"


def unspelled_group(text: str) -> str:
    """The group that stands so in keys."""
    return text.replace("%2F", "/").replace("%25", "%")


# -- bodies -----------------------------------------------------------------------------------------


def encode(row: Row) -> bytes:
    """The JSON of a row, without its version and its vector."""
    if isinstance(row, FactRow):
        body = dict(zip(_FACT_FIELDS, _fact_values(row), strict=True))
        body["versions"] = [tuple(version) for version in row.versions]
    elif isinstance(row, EntityRow):
        body = dict(zip(_ENTITY_FIELDS, _entity_values(row), strict=True))
    else:
        body = dict(zip(_EPISODE_FIELDS, _episode_values(row), strict=True))
        body["body"] = orjson.Fragment(row.body)
        body["claims"] = [dict(zip(_CLAIM_FIELDS, _claim_values(claim), strict=True)) for claim in row.claims]
    return orjson.dumps(body)


def decode(kind: str, body: bytes, *, version: int, vector: bytes | None = None) -> Row:
    """The row of a body; whatever else stands in it is left out.

    Raises:
        ValueError: it is none: another client has written there.
    """
    try:
        return _decoded(kind, orjson.loads(body), {"version": version, "vector": vector or None})
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"no record of a graph: {error!r}") from error


def _decoded(kind: str, body: dict[str, Any], beside: dict[str, Any]) -> Row:
    if kind == "f":
        known = {name: body[name] for name in _FACT_FIELDS}
        known["versions"] = tuple(Version(*version) for version in body["versions"])
        return FactRow(**_with_tuples(known, "lines", "episodes"), **beside)
    if kind == "n":
        known = {name: body[name] for name in _ENTITY_FIELDS}
        return EntityRow(**_with_tuples(known, "names", "aliases"), **beside)
    known = {name: body[name] for name in _EPISODE_FIELDS}
    known["body"] = orjson.dumps(body["body"])
    known["claims"] = tuple(Claim(**claim) for claim in body["claims"])
    known["lines"] = tuple(tuple(lines) for lines in body["lines"])
    return EpisodeRow(**known, **beside)


def _with_tuples(known: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        known[name] = tuple(known[name])
    return known


# -- hashes -----------------------------------------------------------------------------------------


def fields(row: Row, namespace: str, group: str, *, now: int) -> list[Argument]:
    """The fields of a row's hash with their values in turn, its body first, without its version.

    Args:
        row: what to store.
        namespace, group: whose.
        now: stamp of the time by which a fact counts as past.
    """
    letter = letter_of(row, now)
    words: list[Argument] = ["body", encode(row), "terms", _terms(row, prefix_of(namespace)), "facts", letter]
    words += ("ns", namespace, "shelf", spelled(shelf(group, letter)), "at", repr(at_ms(_at(row))))
    if isinstance(row, EpisodeRow) and row.session:
        words += ("session", spelled(row.session))
    if row.vector:
        words += ("vector", row.vector)
    return words


def shelf(group: str, letter: str) -> str:
    """What tells the records of one letter of a group in a search."""
    return f"{spelled_group(group)}/{letter}"


def letter_of(row: Row, now: int) -> str:
    """What kind of record it is, as a search tells them apart (`records.Letter`)."""
    if isinstance(row, EpisodeRow):
        return row.letter
    if isinstance(row, EntityRow):
        return "n"
    current = row.current
    return "f" if current is not None and current.end > now else "p"


def at_ms(stamp: int) -> float:
    """A stamp as milliseconds since 1970."""
    return (stamp - 1 - _EPOCH) / 1000


def _at(row: Row) -> int:
    if isinstance(row, EpisodeRow):
        return row.occurred
    if isinstance(row, EntityRow):
        return row.recorded
    return row.versions[-1].start if row.versions else UNKNOWN_START


def _terms(row: Row, prefix: str) -> str:
    if isinstance(row, EntityRow):
        words = document_terms(" ".join((row.name, *row.aliases, row.summary)))
        words += dict.fromkeys(gram for name in row.names for gram in trigrams(name))
    else:
        words = document_terms(row.text)
    return prefix + f" {prefix}".join(words) if words else ""


# -- what lies beside -------------------------------------------------------------------------------


def entries(row: Row) -> Entries:
    """What lies beside a row."""
    if isinstance(row, FactRow):
        return Entries(edges=frozenset(_edges(row)), told=frozenset(_told_of_fact(row)))
    if isinstance(row, EntityRow):
        if not row.merged_into:
            return Entries(told=frozenset((f"n{row.id}",)))
        told = frozenset((f"n{row.id}", f"o{row.id}"))
        return Entries(told=told, into=frozenset(((row.id, row.merged_into),)))
    return Entries(claims=frozenset(_claims(row)), told=frozenset(_told_of_episode(row)))


def _edges(row: FactRow) -> Iterator[str]:
    kind = "r" if row.target else "a"
    for version in row.versions:
        times = _times(version)
        yield f"{row.source}{BETWEEN}{kind}{times}>{row.type}{BETWEEN}{row.target}{BETWEEN}{row.id}"
        # What leads back to where it came from is one edge, not two.
        if row.target and row.target != row.source:
            yield f"{row.target}{BETWEEN}{kind}{times}<{row.type}{BETWEEN}{row.source}{BETWEEN}{row.id}"


def _times(version: Version) -> str:
    start, recorded = newest_first(version.start), sortable(version.recorded)
    if version.superseded != OPEN:
        return f"s{sortable(version.superseded)}{start}{sortable(version.end)}{recorded}"
    if version.end != OPEN:
        return f"e{sortable(version.end)}{start}{recorded}"
    return f"c{start}{recorded}"


def _told_of_fact(row: FactRow) -> Iterator[str]:
    yield f"f{row.id}"
    current = row.current
    if current is None or current.end != OPEN:
        yield f"p{sortable(current.end if current else 0)}{row.id}"


def _told_of_episode(row: EpisodeRow) -> Iterator[str]:
    place = f"{sortable(row.occurred)}{row.id}"
    yield f"e{row.letter}{place}"
    yield f"{session_head(row.session, row.letter)}{place}"


def session_head(session: str, letter: str) -> str:
    """What the members of the register begin with that tell the episodes of a session; empty: of none."""
    return f"t{blake2b(session.encode(errors='surrogatepass'), digest_size=8).hexdigest()}{letter}"


def listed_record(group: str, member: str) -> str | None:
    """The record for which a member of the register stands, if it is the one that stands for it."""
    if member[0] == "e":
        return record_named(group, "e", member[2 + _DIGITS :])
    return record_named(group, member[0], member[1:]) if member[0] in "nfx" else None


def _claims(row: EpisodeRow) -> Iterator[str]:
    for claim, lines in zip(row.claims, row.lines, strict=True):
        packed = orjson.dumps(_claim_values(claim)).decode()
        for line in lines:
            yield f"l{line}{BETWEEN}{claim.source}{BETWEEN}{claim.target}{BETWEEN}{packed}"
            for said in {claim.source, claim.target} - {""}:
                yield f"b{said}{BETWEEN}{line}{BETWEEN}{claim.id}"


def claim_of(member: bytes) -> Claim:
    """The claim that a member of a line tells."""
    return Claim(*orjson.loads(member.split(b"\x1f", 3)[3]))


def edge_of(member: bytes) -> Edge:
    """The edge that a member tells."""
    entity, head, other, fact = member.decode().split(BETWEEN)
    section = head[1]
    behind = 2 + _TIMES[section] * _DIGITS
    times = [int(head[at : at + _DIGITS]) for at in range(2, behind, _DIGITS)]
    version = _version(section, times)
    return Edge(entity, other, head[behind] == ">", head[behind + 1 :], fact, version)


def _version(section: str, times: list[int]) -> Version:
    if section == "c":
        back, recorded = times
        return Version(OPEN - back, OPEN, recorded, OPEN)
    if section == "e":
        end, back, recorded = times
        return Version(OPEN - back, end, recorded, OPEN)
    superseded, back, end, recorded = times
    return Version(OPEN - back, end, recorded, superseded)
