"""The layout of a group in Redis: keys, records, index entries, and restoring from the durable tier.

A row is a hash (`KeySpace.record`) named `<group>/<kind>/<id>`, of kind `e` episode, `n` entity or `f` fact. Its `body`
is the JSON of the row, from which everything else in the hash follows but `version` and `vector`. The index entries
(`index_entries`) follow from it too, so that a record restored from the durable tier gets them as well:

- in `edges`, for each version of a fact, a member for each of its ends: `<entity>^<kind><section><times><way><type>^`
  `<other end>^<fact>`, where `^` is U+001F, the kind `r` for relations and `a` for attributes, the way `>` or `<`.
  Section `c` is known now and has an open end (times: start, recorded), `e` is known now and ends (end, start,
  recorded), `s` was superseded (superseded, start, end, recorded); the start is counted back from the
  end of time;
- in `claims`, for each claim and each of its lines `l<line>^<source>^<target>^<JSON>`, and for each entity with which
  it was recorded `b<entity>^<line>^<claim>`;
- in `told`, the register of the group: `e<letter><occurred><id>` an episode, with `t<digest of its session>` for the
  `e` too, `n<id>` an entity, `o<id>` a merged one, `f<id>` a fact, `p<end><id>` a fact that ends or is known to be
  wrong; names by their owners are there too (`lua/include/graph.lua`), and `x<id>` a name that does not fit into the
  row of its entity and is a record of its own, of kind `x`;
- in `names`, for a merged entity, the entity it was merged into.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import orjson

from sharedmem.errors import SharedMemoryError
from sharedmem.graph.names import encode_group, trigrams
from sharedmem.graph.records import (
    OPEN,
    UNKNOWN_START,
    Claim,
    Edge,
    EntityChange,
    EntityRow,
    EpisodeRow,
    FactRow,
    Row,
    Version,
    ascending_text,
    descending_text,
)
from sharedmem.models import DurableRecord
from sharedmem.redis.durability import LOG_MODE, DurabilityModes
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Argument, ServerError, public_key_error
from sharedmem.redis.scripts.knowledge import GRAPH_FAMILY
from sharedmem.text.analysis import document_terms, encode_tag, namespace_term_prefix

SEPARATOR = "\x1f"
KIND_CODES = {EpisodeRow: "e", EntityRow: "n", FactRow: "f"}
_DIGITS = 18
_TIMES = {"c": 2, "e": 3, "s": 4}
_OUTSIDE_BODY = ("version", "vector")
_VERSIONED = ("start", "changes")
"""Fields of an entity's body that describe its versions."""
_CLAIM_FIELDS = tuple(Claim.__slots__)
_EPISODE_FIELDS, _ENTITY_FIELDS, _FACT_FIELDS = (
    tuple(name for name in row.__slots__ if name not in _OUTSIDE_BODY) for row in (EpisodeRow, EntityRow, FactRow)
)
_claim_values = attrgetter(*_CLAIM_FIELDS)
_episode_values = attrgetter(*_EPISODE_FIELDS)
_entity_values = attrgetter(*_ENTITY_FIELDS)
_fact_values = attrgetter(*_FACT_FIELDS)
_fact_items = itemgetter(*_FACT_FIELDS)
_CLAIMS, _NO_CLAIMS, _UNDONE = b',"claims":[', b',"claims":[],"lines":[]', b',"undone":'
"""Parts of the JSON of an episode, whose last fields are its claims, its lines, and when it was undone."""
_CONTENT = b'{"content":%b,'
"""Begin of the body of an episode: its text is left out where it is the content."""
_new_version, _new_edge = partial(tuple.__new__, Version), partial(tuple.__new__, Edge)
"""Build named tuples in a third of the time: there are a hundred in a walk."""
_EPOCH = 62_135_596_800_000_000
"""Microseconds from the beginning of the year 1 to that of 1970."""


class IndexEntries(NamedTuple):
    """The index entries of a row."""

    edges: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    into: frozenset[tuple[str, str]] = frozenset()
    """(entity, what it was merged into), stored in `names` under `>` and the entity."""


NO_ENTRIES = IndexEntries()


def row_record_id(group: str, row: Row) -> str:
    """Return the id of a row's record in its namespace."""
    return make_record_id(group, KIND_CODES[type(row)], row.id)


def name_record_id(name: str) -> str:
    """Return the id of the record of a normalised name."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def name_body(name: str, entity: str) -> bytes:
    """Return the JSON of such a record."""
    return orjson.dumps({"name": name, "entity": entity})


def make_record_id(group: str, kind: str, id_: str) -> str:
    """Return the id of a record in its namespace."""
    return f"{encode_group(group)}/{kind}/{id_}"


def decode_group(text: str) -> str:
    """Return the group from its encoding in keys."""
    return text.replace("%2F", "/").replace("%25", "%")


# -- bodies -----------------------------------------------------------------------------------------


def encode_row(row: Row) -> bytes:
    """Return the JSON of a row, without its version and its vector."""
    if isinstance(row, FactRow):
        body = dict(zip(_FACT_FIELDS, _fact_values(row), strict=True))
        body["versions"] = [tuple(version) for version in row.versions]
    elif isinstance(row, EntityRow):
        body = dict(zip(_ENTITY_FIELDS, _entity_values(row), strict=True))
        body["changes"] = [tuple(change) for change in row.changes]
    else:
        body = dict(zip(_EPISODE_FIELDS, _episode_values(row), strict=True))
        if row.body.startswith(_CONTENT % orjson.dumps(row.text)):
            del body["text"]
        body["body"] = orjson.Fragment(row.body)
        body["claims"] = list(_claim_bodies(row))
    return orjson.dumps(body)


def _claim_bodies(row: EpisodeRow) -> Iterator[dict[str, Any]]:
    """Yield the fields of the claims of an episode, except what follows from the episode or is usual."""
    usual = _usual_claim(row.id, row.occurred, row.recorded)
    for number, claim in enumerate(row.claims):
        usual["number"] = number
        fields = zip(_CLAIM_FIELDS, _claim_values(claim), strict=True)
        yield {name: value for name, value in fields if usual.get(name) != value}


def _usual_claim(episode: str, occurred: int, recorded: int) -> dict[str, Any]:
    """Return the fields that a claim of an episode has if its body does not name them."""
    times = {"start": occurred, "end": OPEN, "recorded": recorded, "retracted": OPEN}
    return {"episode": episode, "says": "holds", "target": "", "target_name": "", "value": "", **times, "text": ""}


def decode_row(kind: str, body: bytes, *, version: int, vector: bytes | None = None, with_claims: bool = True) -> Row:
    """Return the row of a body; further fields are ignored.

    Args:
        kind: letter of its kind.
        body: JSON of the row.
        version, vector: of its record.
        with_claims: see `LookupRequest.with_claims`.

    Raises:
        ValueError: the body is not a row: another client has written there.
    """
    try:
        fields = orjson.loads(body if with_claims else _without_claims(body))
        if kind == "f":
            return _parse_fact(fields, version, vector or None)
        if kind == "n":
            return _parse_entity(fields, version, vector or None)
        return _parse_episode(fields, version, vector or None, with_claims=with_claims)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"not a record of a graph: {error!r}") from error


def _without_claims(body: bytes) -> bytes:
    """Return the JSON of an episode without its claims and lines, which are most of it."""
    begin, end = body.rfind(_CLAIMS), body.rfind(_UNDONE)
    # No text in JSON contains these bytes, since its quotes are escaped; a content that has such fields comes before.
    return b"".join((body[:begin], _NO_CLAIMS, body[end:])) if 0 <= begin < end else body


def _parse_fact(body: dict[str, Any], version: int, vector: bytes | None) -> FactRow:
    id_, lines, source, source_name, type_, target, target_name, value, text, versions, episodes = _fact_items(body)
    # Positional arguments and lists take half the time of keywords and generators: a retrieval decodes a hundred rows.
    return FactRow(
        id_,
        tuple(lines),
        source,
        source_name,
        type_,
        target,
        target_name,
        value,
        text,
        tuple([Version(*each) for each in versions]),
        tuple(episodes),
        version,
        vector,
    )


def _parse_entity(body: dict[str, Any], version: int, vector: bytes | None) -> EntityRow:
    # Records of earlier releases have no versions.
    known = {name: body[name] for name in _ENTITY_FIELDS if name in body or name not in _VERSIONED}
    known["names"], known["aliases"] = tuple(known["names"]), tuple(known["aliases"])
    known["changes"] = tuple([EntityChange(*change) for change in body.get("changes", ())])
    return EntityRow(**known, version=version, vector=vector)


def _parse_episode(body: dict[str, Any], version: int, vector: bytes | None, *, with_claims: bool) -> EpisodeRow:
    # Records of earlier releases have all fields.
    if "text" not in body:
        body["text"] = body["body"]["content"]
    known = {name: body[name] for name in _EPISODE_FIELDS}
    known["body"] = orjson.dumps(body["body"])
    usual = _usual_claim(known["id"], known["occurred"], known["recorded"])
    known["claims"] = tuple([Claim(**{**usual, "number": n, **claim}) for n, claim in enumerate(body["claims"])])
    known["lines"] = tuple(map(tuple, body["lines"]))
    return EpisodeRow(**known, version=version if with_claims else 0, vector=vector)


# -- hashes -----------------------------------------------------------------------------------------


def hash_fields(row: Row, namespace: str, group: str, *, now: int) -> list[Argument]:
    """Return the fields of a row's hash with their values in turn, its body first, without its version.

    Args:
        row: the row to store.
        namespace, group: namespace and group of the row.
        now: stamp of the time by which a fact counts as past.
    """
    letter = kind_code(row, now)
    words: list[Argument] = [
        "body",
        encode_row(row),
        "terms",
        _terms(row, namespace_term_prefix(namespace)),
        "facts",
        letter,
    ]
    words += ("ns", namespace, "shelf", encode_tag(search_scope(group, letter)), "at", repr(stamp_ms(_at(row))))
    if isinstance(row, EpisodeRow) and row.session:
        words += ("session", encode_tag(row.session))
    if row.vector:
        words += ("vector", row.vector)
    return words


def search_scope(group: str, letter: str) -> str:
    """Return the value that limits a search to the records of one letter of a group."""
    return f"{encode_group(group)}/{letter}"


def kind_code(row: Row, now: int) -> str:
    """Return the kind of a record for searches (`records.Letter`)."""
    if isinstance(row, EpisodeRow):
        return row.letter
    if isinstance(row, EntityRow):
        return "n"
    current = row.current
    return "f" if current is not None and current.end > now else "p"


def stamp_ms(stamp: int) -> float:
    """Return a stamp as milliseconds since 1970."""
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


# -- index entries ----------------------------------------------------------------------------------


def index_entries(row: Row) -> IndexEntries:
    """Return the index entries of a row."""
    if isinstance(row, FactRow):
        return IndexEntries(edges=frozenset(_edges(row)), told=frozenset(_fact_register(row)))
    if isinstance(row, EntityRow):
        if not row.merged_into:
            return IndexEntries(told=frozenset((f"n{row.id}",)))
        register = frozenset((f"n{row.id}", f"o{row.id}"))
        return IndexEntries(told=register, into=frozenset(((row.id, row.merged_into),)))
    return IndexEntries(claims=frozenset(_claims(row)), told=frozenset(_episode_register(row)))


def join_entries(parts: Iterable[IndexEntries]) -> IndexEntries:
    """Return all index entries of several rows."""
    every = [NO_ENTRIES, *parts]
    return IndexEntries(*(frozenset().union(*column) for column in zip(*every, strict=True)))


def _edges(row: FactRow) -> Iterator[str]:
    kind = "r" if row.target else "a"
    for version in row.versions:
        times = _times(version)
        yield f"{row.source}{SEPARATOR}{kind}{times}>{row.type}{SEPARATOR}{row.target}{SEPARATOR}{row.id}"
        # A relation from an entity to itself is one edge, not two.
        if row.target and row.target != row.source:
            yield f"{row.target}{SEPARATOR}{kind}{times}<{row.type}{SEPARATOR}{row.source}{SEPARATOR}{row.id}"


def _times(version: Version) -> str:
    start, recorded = descending_text(version.start), ascending_text(version.recorded)
    if version.superseded != OPEN:
        return f"s{ascending_text(version.superseded)}{start}{ascending_text(version.end)}{recorded}"
    if version.end != OPEN:
        return f"e{ascending_text(version.end)}{start}{recorded}"
    return f"c{start}{recorded}"


def _fact_register(row: FactRow) -> Iterator[str]:
    yield f"f{row.id}"
    current = row.current
    if current is None or current.end != OPEN:
        yield f"p{ascending_text(current.end if current else 0)}{row.id}"


def _episode_register(row: EpisodeRow) -> Iterator[str]:
    place = f"{ascending_text(row.occurred)}{row.id}"
    yield f"e{row.letter}{place}"
    yield f"{session_prefix(row.session, row.letter)}{place}"


def session_prefix(session: str, letter: str) -> str:
    """Return the prefix of the register's members for the episodes of a session; empty: without a session."""
    return f"t{blake2b(session.encode(errors='surrogatepass'), digest_size=8).hexdigest()}{letter}"


def listed_record(group: str, member: str) -> str | None:
    """Return the record of a member of the register, if the member is the one that represents it."""
    if member[0] == "e":
        return make_record_id(group, "e", member[2 + _DIGITS :])
    return make_record_id(group, member[0], member[1:]) if member[0] in "nfx" else None


def _claims(row: EpisodeRow) -> Iterator[str]:
    for claim, lines in zip(row.claims, row.lines, strict=True):
        packed = orjson.dumps(_claim_values(claim)).decode()
        for line in lines:
            yield f"l{line}{SEPARATOR}{claim.source}{SEPARATOR}{claim.target}{SEPARATOR}{packed}"
            for entity in {claim.source, claim.target} - {""}:
                yield f"b{entity}{SEPARATOR}{line}{SEPARATOR}{claim.id}"


def parse_claim(member: bytes) -> Claim:
    """Return the claim in a member of a line."""
    return Claim(*orjson.loads(member.split(b"\x1f", 3)[3]))


def parse_edge(member: bytes) -> Edge:
    """Return the edge in a member."""
    entity, head, other, fact = member.decode().split(SEPARATOR)
    section = head[1]
    if section == "c":
        # Most edges of a walk.
        known = _new_version((OPEN - int(head[2:20]), OPEN, int(head[20:38]), OPEN))
        return _new_edge((entity, other, head[38] == ">", head[39:], fact, known))
    behind = 2 + _TIMES[section] * _DIGITS
    times = [int(head[at : at + _DIGITS]) for at in range(2, behind, _DIGITS)]
    version = _version(section, times)
    return Edge(entity, other, head[behind] == ">", head[behind + 1 :], fact, version)


def _version(section: str, times: list[int]) -> Version:
    if section == "e":
        end, back, recorded = times
        return Version(OPEN - back, end, recorded, OPEN)
    superseded, back, end, recorded = times
    return Version(OPEN - back, end, recorded, superseded)


class GraphKeys:
    """The keys of the groups of one namespace.

    Args:
        keyspace: builds keys.
        namespace: namespace of the groups.
    """

    def __init__(self, keyspace: KeySpace, namespace: str) -> None:
        self.namespace = namespace
        self.space = keyspace.space(namespace)
        self.groups = keyspace.record_part(GRAPH_FAMILY, namespace, "groups")
        """The hash with the state of each group."""
        self._keyspace = keyspace
        self._records = keyspace.records(GRAPH_FAMILY, namespace).encode()

    def common(self, part: str) -> bytes:
        """Return one of the keys that all groups of the namespace share."""
        return self._keyspace.record_part(GRAPH_FAMILY, self.namespace, part)

    def part(self, group: str, part: str) -> bytes:
        """Return one of the keys beside the records of a group."""
        return self._keyspace.record_item(GRAPH_FAMILY, self.namespace, part, encode_group(group))

    def parts(self, group: str, *parts: str) -> list[bytes]:
        """Return several keys beside the records of a group."""
        return [self.part(group, part) for part in parts]

    def record(self, record_id: str) -> bytes:
        """Return the key of a record (`make_record_id`)."""
        return self._records + record_id.encode()

    def target(self, record_id: str) -> Target:
        """Return a record as the durable tier addresses it."""
        return self._keyspace.target(f"{self.namespace}:${GRAPH_FAMILY}:{record_id}")

    def log_modes(self, record_ids: Sequence[str]) -> DurabilityModes | None:
        """Return the durability modes of records: logs, which stay in Redis. None without records."""
        if not record_ids:
            return None
        return DurabilityModes(tuple(map(self.target, record_ids)), LOG_MODE * len(record_ids))

    def public_error(self, error: ServerError, group: str, address: str) -> SharedMemoryError:
        """Return the public error for an error of the server at an address, with the group as its key."""
        key = f"{self.namespace}:${GRAPH_FAMILY}:{encode_group(group)}"
        return public_key_error(error, address, key=key, held="foreign value", wanted="graph")


# -- records of the durable tier -----------------------------------------------------------------


_NAME = "x"
_BY_TIME = ("facts", "shelf")
"""Fields of a hash that change when a fact becomes past."""


class ExtraName(NamedTuple):
    """A name that does not fit into the row of its entity."""

    name: str
    entity: str


class DurableGraphRecord(NamedTuple):
    """A record as the durable tier stores it."""

    named: str
    """The end of its key: `<group>/<kind>/<id>`."""
    version: int
    row: Row | ExtraName | None
    """None if the record was deleted."""

    @property
    def group(self) -> str:
        """The group, as keys encode it."""
        return self.named.partition("/")[0]

    @property
    def kind(self) -> str:
        """The letter of its kind."""
        return self.named.split("/", 2)[1]


class StoredGraphRecord(NamedTuple):
    """The stored state of a record in Redis."""

    version: int = 0
    body: bytes = b""


def parse_durable_record(record: DurableRecord) -> DurableGraphRecord:
    """Return the record in a document.

    Raises:
        ValueError, LookupError, TypeError: the document cannot be read.
    """
    named = record.key.split(":", 2)[2]
    kind = named.split("/", 2)[1]
    if record.deleted:
        return DurableGraphRecord(named, record.stamp, None)
    body: Any = orjson.loads(record.body)
    if not isinstance(body, dict):
        raise TypeError(f"{named} is not an object")
    if kind == _NAME:
        return DurableGraphRecord(named, record.version, _parse_name(record.body))
    vector = b64decode(body["embedding"]) if body.get("embedding") else None
    return DurableGraphRecord(
        named, record.version, decode_row(kind, record.body.encode(), version=record.version, vector=vector)
    )


def stable_hash_fields(one: DurableGraphRecord, namespace: str) -> dict[str, Argument]:
    """Return the fields of a record's hash that do not change with time; none for a deleted one."""
    if one.row is None:
        return {}
    words = _record_fields(one, namespace, now=0)
    pairs = {str(words[at]): words[at + 1] for at in range(0, len(words), 2)}
    return {"version": one.version} | {name: value for name, value in pairs.items() if name not in _BY_TIME}


def is_newer(one: DurableGraphRecord, held: StoredGraphRecord) -> bool:
    """Return whether a record replaces the stored one."""
    return one.version > held.version and (one.row is not None or held.version > 0)


def restore_arguments(
    pairs: Sequence[tuple[DurableGraphRecord, StoredGraphRecord]], namespace: str, *, now: int
) -> list[Argument]:
    """Return the arguments of `lua/graph_restore.lua` for some records of a group, each with its stored state."""
    words: list[Argument] = []
    for one, held in pairs:
        fields = _record_fields(one, namespace, now=now)
        words += (held.version, one.version if fields else 0, int(one.kind != _NAME), len(fields), *fields)
    rows = [one.row for one, _ in pairs]
    gone_ones = [row for one, held in pairs if one.row is None and (row := _stored_row(one, held)) is not None]
    before = join_entries([*(_entries(_stored_row(one, held)) for one, held in pairs), _registered_names(gone_ones)])
    after = join_entries(_entries(row) for row in rows)
    for old, new in zip(before[:3], after[:3], strict=True):
        words += _block(sorted(old - new))
        words += _block([word for member in sorted(new - old) for word in (0, member)])
    still = dict(after.into)
    unmerged = [word for id_, into in sorted(before.into) if id_ not in still for word in (f">{id_}", into)]
    words += _block([*unmerged, *(word for name, id_ in _names(gone_ones) for word in (f"={name}", id_))])
    words += _block([word for id_, into in sorted(after.into) for word in (f">{id_}", into)])
    words += _block(list(chain.from_iterable(_names(rows))))
    return words + _block(
        [word for row in rows if isinstance(row, EntityRow) and row.merge for word in (row.id, row.merge)]
    )


def _record_fields(one: DurableGraphRecord, namespace: str, *, now: int) -> list[Argument]:
    if one.row is None:
        return []
    if isinstance(one.row, ExtraName):
        return ["body", name_body(one.row.name, one.row.entity)]
    return hash_fields(one.row, namespace, decode_group(one.group), now=now)


def _stored_row(one: DurableGraphRecord, held: StoredGraphRecord) -> Row | ExtraName | None:
    """Return the stored row; None if it does not exist or cannot be read."""
    if not held.body:
        return None
    try:
        return _parse_name(held.body) if one.kind == _NAME else decode_row(one.kind, held.body, version=held.version)
    except (ValueError, LookupError, TypeError):
        return None


def _parse_name(body: str | bytes) -> ExtraName:
    fields = orjson.loads(body)
    return ExtraName(str(fields["name"]), str(fields["entity"]))


def _registered_names(rows: Iterable[Row | ExtraName | None]) -> IndexEntries:
    """Return the register entries for the names of some rows."""
    return IndexEntries(told=frozenset(f"a{id_}{SEPARATOR}{name}" for name, id_ in _names(rows)))


def _entries(row: Row | ExtraName | None) -> IndexEntries:
    if row is None:
        return NO_ENTRIES
    return (
        IndexEntries(told=frozenset((f"x{name_record_id(row.name)}",)))
        if isinstance(row, ExtraName)
        else index_entries(row)
    )


def _names(rows: Iterable[Row | ExtraName | None]) -> Iterable[tuple[str, str]]:
    """Return (name, entity) of all names in rows."""
    for row in rows:
        if isinstance(row, ExtraName):
            yield row
        elif isinstance(row, EntityRow):
            yield from ((name, row.id) for name in row.names)


def _block(words: Sequence[Argument]) -> list[Argument]:
    return [len(words), *words]
