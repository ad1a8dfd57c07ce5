"""The query language of RediSearch: queries as text, their replies, and scores that overflow.

This is the only module that contains the query language. Values of users are sent beside the text, as PARAMS. The text
itself contains only names of fields and numbers of parameters, so that no value can change the meaning of a query.

Hits by words must be ranked as BM25 ranks them, with or without filters. RediSearch 2.10 makes that hard: an OR
below an AND adds up only some of its branches, a tag adds its own score, and an OR of more than twenty ANDs counts
records twice. So each word has the filter in its own branch, with weight 0, and branches are in groups of sixteen. A
weight counts for an expression of several parts, and is ignored for a single tag: a value that no record has is added
to a single tag.

RediSearch 2.10 also counts a changed record twice until its garbage collector has run. If a word then seems to be in
more records than there are, the count of records without it falls below zero and wraps round, and the most common word
gets the score of a very rare one. Newer servers use zero. So does this module: such a word still finds its records, and
adds nothing to their score. `OverflowGuard` detects it by a score that no query should have; then the index queries
each word by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.service_keys import corruption_error
from sharedmem.search.protocol import Between, Condition, Either, Every, IndexHit, Inverse, RecordPage, Tagged, Worded
from sharedmem.text.analysis import NO_TAG, encode_tag, split_tags

NAMESPACE_TAG = "ns"
DISTANCE = "d"
_AT_ANY_DISTANCE = "@vector:[VECTOR_RANGE 2.1 $v]"
_GROUP = 16
_FEW = 10_000
"""Records up to which a scan is as fast as a search of the graph, and misses none (batches miss 6 in 100)."""
_COMMON_NAMES = 256
_NAMES = tuple(f"t{number}" for number in range(_COMMON_NAMES))
_FACTS: tuple[Argument, ...] = ("RETURN", 1, "facts")
_NO_CONTENT: tuple[Argument, ...] = ("NOCONTENT",)
_FACTS_AND_DISTANCE: tuple[Argument, ...] = ("RETURN", 2, "facts", DISTANCE)
_DISTANCE_ALONE: tuple[Argument, ...] = ("RETURN", 1, DISTANCE)


class RenderedFilter(NamedTuple):
    """Filters in the query language."""

    text: str
    """Empty if everything matches."""
    params: tuple[Argument, ...]
    """Names and values, alternating."""
    weightless: str
    """The tags and intervals as part of a search by words, to which they add no score."""
    required: str = ""
    """The required words, likewise; negations, which cannot be the first part of an AND."""


NO_FILTER = RenderedFilter("", (), "")


class _FilterWriter:
    """Writes filters as text, and collects the values that are sent beside the text."""

    def __init__(self, family: RecordFamily) -> None:
        self._family = family
        self._nobody = ""
        self.params: list[Argument] = []
        self.parts: list[str] = []
        self.weightless: list[str] = []
        self.required: list[str] = []

    def write(self, condition: Condition) -> None:
        match condition:
            case Tagged():
                self._write_tagged(condition)
            case Between():
                self.parts.append(self._interval(condition))
                # A number adds nothing to a score by itself.
                self.weightless.append(self.parts[-1])
            case Every():
                for each in condition.conditions:
                    self.write(each)
            case Worded():
                self.parts.append(self._part(condition))
                # Weights do not hold for words: one word keeps its score, several may take that of the whole query.
                self.required.append(f"(-(-{self.parts[-1]}))")
            case _:
                self.parts.append(self._part(condition))

    def _part(self, condition: Condition) -> str:
        """Return a condition as one part, which may stand below any other."""
        match condition:
            case Tagged():
                return f"({self._tag(condition.field, self._values(condition))})"
            case Between():
                return f"({self._interval(condition)})"
            case Worded(terms, field):
                if not field.isascii() or not field.isidentifier():
                    raise InvalidError("filter", field, "give the name of a field with words")
                words = [f"@{field}:{self._add(term)}" for term in terms if term.isalnum()]
                return f"({' '.join(words)})" if words and len(words) == len(terms) else self._no_record()
            case Either(conditions):
                return f"({'|'.join(map(self._part, conditions))})" if conditions else self._no_record()
            case Inverse(inner):
                return f"(-{self._part(inner)})"
            case Every(conditions):
                inner_parts = sorted(map(self._part, conditions), key=lambda part: part.startswith("(-"))
                return f"({' '.join(inner_parts)})" if conditions else f"(-{self._no_record()})"

    def _no_record(self) -> str:
        return f"({self._tag(self._family.tags[0], [self._no_value()])})"

    def _values(self, condition: Tagged) -> list[str]:
        # Without values nothing can match.
        return [self._add(encode_tag(value)) for value in condition.values] or [self._no_value()]

    def _tag(self, field: str, names: Sequence[str]) -> str:
        if field not in self._family.tags:
            known = ", ".join(self._family.tags)
            raise InvalidError("filter", field, f"the tags of {self._family.name} are {known}")
        return f"@{field}:{{{'|'.join(names)}}}"

    def _write_tagged(self, condition: Tagged) -> None:
        names = self._values(condition)
        self.parts.append(self._tag(condition.field, names))
        several = names if len(names) > 1 else [*names, self._no_value()]
        self.weightless.append(f"(({self._tag(condition.field, several)})=>{{$weight:0}})")

    def _interval(self, condition: Between) -> str:
        field, known = condition.field, self._family.numbers
        if field not in known:
            raise InvalidError("filter", field, f"the numbers of {self._family.name} are {', '.join(known)}")
        low = "-inf" if condition.low is None else self._add(_format_number(field, condition.low))
        high = "inf" if condition.high is None else self._add(_format_number(field, condition.high))
        return f"@{field}:[{low} {high}]"

    def _add(self, value: Argument) -> str:
        name = f"f{len(self.params) // 2}"
        self.params += name, value
        return f"${name}"

    def _no_value(self) -> str:
        self._nobody = self._nobody or self._add(NO_TAG)
        return self._nobody


def render_filter(filters: Every, family: RecordFamily) -> RenderedFilter:
    """Return filters in the query language.

    Args:
        filters: the caller's conditions.
        family: the family whose fields the filters may name.

    Raises:
        InvalidError: a filter names no field of the family, or a number is invalid.
    """
    if not filters.conditions:
        return NO_FILTER
    writer = _FilterWriter(family)
    writer.write(filters)
    # An intersection that begins with a negation loses hits.
    parts = sorted(writer.parts, key=lambda part: part.startswith("(-"))
    return RenderedFilter(" ".join(parts), tuple(writer.params), " ".join(writer.weightless), " ".join(writer.required))


def within_namespace(filters: RenderedFilter, namespace: str) -> RenderedFilter:
    """Return the filters limited to one namespace, for an index of several namespaces."""
    text = f"@{NAMESPACE_TAG}:{{$n}} {filters.text}".rstrip()
    weightless = f"((@{NAMESPACE_TAG}:{{$n|$o}})=>{{$weight:0}}) {filters.weightless}".rstrip()
    params = ("n", namespace, "o", NO_TAG, *filters.params)
    return RenderedFilter(text, params, weightless, filters.required)


def _format_number(field: str, value: float) -> str:
    if math.isnan(value):
        raise InvalidError(f"filter {field}", value, "give a number")
    return repr(float(value))


# -- whole commands -------------------------------------------------------------------------------


def search_by_words(
    scoring: Sequence[str],
    silent: Sequence[str],
    filters: RenderedFilter,
    *,
    scorer: str,
    limit: int,
    with_facts: bool = True,
) -> tuple[Argument, ...]:
    """Return the arguments after `FT.SEARCH <index>` to find records by words, with scores and facts.

    Args:
        scoring: the words, ASCII letters and digits each, with the prefix of their namespace. The prefix alone does not
            protect: a client that writes records can write any word.
        silent: further words, which add nothing to the score.
        filters: conditions besides the words.
        scorer: the scorer of the server.
        limit: most hits.
        with_facts: whether hits come with their facts.
    """
    text = _any_term(len(scoring), len(silent), filters.weightless, filters.required)
    words = _term_params((*scoring, *silent))
    # Verbatim: the words are stems already.
    content = _FACTS if with_facts else _NO_CONTENT
    head = (text, "VERBATIM", "SCORER", scorer, "WITHSCORES", *content, "LIMIT", 0, limit)
    return (*head, *_params_clause((*words, *filters.params)))


def top_score_query(term: str, filters: RenderedFilter, *, scorer: str) -> tuple[Argument, ...]:
    """Return the arguments after `FT.SEARCH <index>` for a word's best score, and how many records contain it."""
    text = _any_term(1, 0, filters.weightless)
    head = (text, "VERBATIM", "SCORER", scorer, "WITHSCORES", "NOCONTENT", "LIMIT", 0, 1)
    return (*head, *_params_clause((*_term_params((term,)), *filters.params)))


def count_documents_with(term: str, filters: RenderedFilter) -> tuple[Argument, ...]:
    """Return the arguments after `FT.SEARCH <index>` to count the records that contain a word."""
    head = (_any_term(1, 0, filters.weightless), "VERBATIM", "SCORER", "DOCSCORE", "NOCONTENT", "LIMIT", 0, 0)
    return (*head, *_params_clause((*_term_params((term,)), *filters.params)))


def search_by_vector(
    vector: bytes,
    filters: RenderedFilter,
    *,
    k: int,
    policy: str = "",
    directed: bool = False,
    with_facts: bool = True,
) -> tuple[Argument, ...]:
    """Return the arguments after `FT.SEARCH <index>` to find the nearest records, with distances and facts.

    Args:
        vector: half-precision bytes.
        filters: conditions besides nearness.
        k: how many.
        policy: search policy of an approximate index.
        directed: leave out vectors of zeros, whose distance to anything is 0.
        with_facts: whether hits come with their facts.
    """
    text = _knn_clause(f"{filters.text} {_AT_ANY_DISTANCE}".lstrip() if directed else filters.text, policy)
    # Without LIMIT the server returns ten hits, without SORTBY in any order.
    content = _FACTS_AND_DISTANCE if with_facts else _DISTANCE_ALONE
    head = (text, "SORTBY", DISTANCE, *content, "LIMIT", 0, k)
    return (*head, *_params_clause(("k", k, "v", vector, *filters.params)))


def search_by_vector_field(field: str, vector: bytes, filters: RenderedFilter, *, k: int) -> tuple[Argument, ...]:
    """Return the arguments after `FT.SEARCH <index>` to list the objects of a user's model whose field is nearest.

    Args:
        field: of the model.
        vector: bytes as the field has them.
        filters: the conditions.
        k: how many.
    """
    if not field.isascii() or not field.isidentifier():
        raise InvalidError("field", field, "give the name of a field with vectors")
    text = f"({filters.text})" if filters.text else "*"
    head = (f"{text}=>[KNN $k @{field} $v AS {DISTANCE}]", "SORTBY", DISTANCE, "RETURN", 1, DISTANCE, "LIMIT", 0, k)
    return (*head, *_params_clause(("k", k, "v", vector, *filters.params)))


def search_documents(
    filters: RenderedFilter, *, newest: str | None, oldest: str | None, offset: int, limit: int
) -> tuple[Argument, ...]:
    """As `search_by_filter`, for the documents themselves."""
    head, *rest = search_by_filter(filters, newest=newest, oldest=oldest, offset=offset, limit=limit)
    return (head, *rest[1:])


def named_documents(reply: Reply, home: bytes) -> tuple[list[tuple[str, dict[bytes, bytes]]], int]:
    """Return (each hit of `[total, key, [field, value, ...], ...]` with its fields, how many there are in all)."""
    words, start = _as_items(reply), len(home)
    rows = zip(words[1::2], words[2::2], strict=True)
    found = [
        (str(key[start:], "utf-8", "replace"), dict(zip(row[::2], row[1::2], strict=True)))
        for key, row in rows
        if row and key.startswith(home)
    ]
    return found, words[0]


def named_distances(reply: Reply, home: bytes) -> dict[str, float]:
    """Return the distance of each hit of `[total, key, [distance], ...]`, the nearest first."""
    words, start = _as_items(reply), len(home)
    rows = zip(words[1::2], words[2::2], strict=True)
    return {str(key[start:], "utf-8", "replace"): float(row[1]) for key, row in rows if row and key.startswith(home)}


def search_by_filter(
    filters: RenderedFilter, *, newest: str | None, oldest: str | None = None, offset: int, limit: int
) -> tuple[Argument, ...]:
    """Return the arguments after `FT.SEARCH <index>` to list the records that match filters."""
    order = () if newest is None else ("SORTBY", newest, "DESC")
    if oldest is not None:
        order = ("SORTBY", oldest, "ASC")
    head = (filters.text or "*", "NOCONTENT", "SCORER", "DOCSCORE", *order, "LIMIT", offset, limit)
    return (*head, *_params_clause(filters.params))


def count_by_value(filters: RenderedFilter, tag: str) -> tuple[Argument, ...]:
    """Return the arguments after `FT.AGGREGATE <index>` to count records by the values of a tag."""
    head = (filters.text or "*", "LOAD", 1, f"@{tag}", "GROUPBY", 1, f"@{tag}", "REDUCE", "COUNT", 0, "AS", "n")
    return (*head, *_params_clause(filters.params))


def hybrid_policy(matching: int | None) -> str:
    """Return the search policy of an approximate index.

    Args:
        matching: how many records match the filter; None without a filter.
    """
    if matching is None:
        return "EF_RUNTIME 100"
    if matching <= _FEW:
        return "HYBRID_POLICY ADHOC_BF"
    # Batches of 100 take 60 % of the time for one or ten hits, but miss the nearest one in 3 of 100 searches more.
    return "HYBRID_POLICY BATCHES BATCH_SIZE 500 EF_RUNTIME 200"


@lru_cache(maxsize=2048)
def _any_term(scoring: int, silent: int, condition: str, required: str = "") -> str:
    words = [f"@terms:$t{number}" for number in range(scoring + silent)]
    if required:
        # Silent words are left out: the required ones find every record already.
        return _alternatives([f"({condition} {word} {required})" for word in words[:scoring] or [""]])
    if not condition and not silent:
        return "|".join(words)
    branches = [*words[:scoring], *(f"(-(-{word}))" for word in words[scoring:])]
    if condition:
        # The condition first: an AND that begins with a negation, as for a silent word, loses nearly all of its hits.
        branches = [f"({condition} {branch})" for branch in branches]
    return _alternatives(branches)


def _alternatives(branches: list[str]) -> str:
    while len(branches) > _GROUP:
        groups = (branches[at : at + _GROUP] for at in range(0, len(branches), _GROUP))
        branches = [f"({'|'.join(group)})" for group in groups]
    return "|".join(branches)


@lru_cache(maxsize=2048)
def _knn_clause(condition: str, policy: str) -> str:
    scope = f"({condition})" if condition else "*"
    return f"{scope}=>[KNN $k @vector $v {policy} AS {DISTANCE}]"


def _term_params(terms: Sequence[str]) -> tuple[Argument, ...]:
    count = len(terms)
    names = _NAMES if count <= _COMMON_NAMES else tuple(f"t{number}" for number in range(count))
    return tuple(chain.from_iterable(zip(names, terms, strict=False)))


def _params_clause(words: tuple[Argument, ...]) -> tuple[Argument, ...]:
    return ("PARAMS", len(words), *words, "DIALECT", 2) if words else ("DIALECT", 2)


# -- replies (RESP2 lists) --------------------------------------------------------------------------

_DISTANCE = DISTANCE.encode()
_candidate = partial(tuple.__new__, IndexHit)
"""Builds a named tuple in a third of the time: there are hundreds in a search."""


def scored_hits(reply: Reply, home: bytes, *, with_facts: bool = True) -> list[IndexHit]:
    """Return the hits of a search by words, best first; ties by id.

    Args:
        reply: `[total, key, score, [facts, ...], ...]`; without facts `[total, key, score, ...]`.
        home: prefix of the keys of the namespace's records; others are left out.
        with_facts: whether the search was for facts too.
    """
    words = _as_items(reply)
    if not with_facts:
        bare = zip(_record_ids(words[1::2], home), map(float, words[2::2]), strict=True)
        return _sort_ties([_candidate((id_, score, b"")) for id_, score in bare if id_])
    # A record that has just expired has no fields.
    rows = zip(_record_ids(words[1::3], home), map(float, words[2::3]), words[3::3], strict=True)
    found = [(id_, score, fields[1] if fields else b"") for id_, score, fields in rows if id_ and fields is not None]
    return _sort_ties(list(map(_candidate, found)))


def near_hits(reply: Reply, home: bytes) -> list[IndexHit]:
    """Return the hits of a search by meaning, most similar first; ties by id.

    Args:
        reply: `[total, key, [distance and facts by name], ...]`.
        home: as for `scored_hits`.
    """
    words = _as_items(reply)
    rows = zip(_record_ids(words[1::2], home), words[2::2], strict=True)
    # The distance is the first field of a hit that has both; a loop without calls, for there are hundreds of hits.
    found = [
        _candidate((id_, 1.0 - float(fields[1]), fields[3]))
        if len(fields) == 4 and fields[0] == _DISTANCE
        else _near_hit(id_, fields)
        for id_, fields in rows
        if id_ and fields
    ]
    # A vector of zeros has no direction, so nothing is near to it.
    return _sort_ties([hit for hit in found if hit[1] == hit[1]])  # NaN alone differs from itself


def has_zero_distance(reply: Reply, taken: int) -> bool:
    """Return whether a hit has distance 0, which the server cannot sort by: it may have left out nearer ones.

    Args:
        reply: reply to a search by meaning.
        taken: how many of its hits `near_hits` returned; if all, there is no such hit.
    """
    fields = _as_items(reply)[2::2]
    return taken < len(fields) and any(row and math.isnan(_distance_and_facts(row)[0]) for row in fields)


def named_hits(reply: Reply, home: bytes) -> RecordPage:
    """Return the hits of `[total, key, ...]`, in their order."""
    words, start = _as_items(reply), len(home)
    return RecordPage([str(key[start:], "utf-8", "replace") for key in words[1:] if key.startswith(home)], words[0])


def top_score(reply: Reply) -> tuple[int, float]:
    """Return (hits in all, score of the best) of `[total, key, score]`."""
    words = _as_items(reply)
    return words[0], float(words[2]) if len(words) > 2 else 0.0


def parse_counts(reply: Reply) -> dict[str, int]:
    """Return how many records there are by value, of `[groups, [tag, values, "n", count], ...]`.

    A group is the whole value of the field, so it must still be split.
    """
    found: Counter[str] = Counter()
    for row in _as_items(reply)[1:]:
        field, count = (row[1] or b"").decode(errors="replace"), int(row[3])
        for value in dict.fromkeys(split_tags(field)) or ("",):
            found[value] += count
    return dict(found)


def newest_version(reply: Reply, log: bytes) -> int:
    """Return the score of `[member, score]`, 0 if none exists.

    Args:
        reply: the newest member of a family's log.
        log: the key of that log.

    Raises:
        CorruptionError: another client has overwritten the log.
    """
    words = _as_items(reply)
    version = float(words[1]) if words else 0.0
    if not math.isfinite(version):
        raise corruption_error(log, f"its highest score is {version}")
    return int(version)


def parse_pairs(reply: Reply) -> dict[str, Any]:
    """Return a list of alternating names and values as a mapping."""
    words = _as_items(reply)
    return {words[at].decode(): words[at + 1] for at in range(0, len(words) - 1, 2)}


def _record_ids(keys: list[bytes], home: bytes) -> list[str]:
    """Return the ids of the namespace's records among these keys; keys of others are left out."""
    start = len(home)
    return [str(key[start:], "utf-8", "replace") if key.startswith(home) else "" for key in keys]


def _near_hit(id_: str, fields: list[bytes]) -> IndexHit:
    far, facts = _distance_and_facts(fields)
    return IndexHit(id_, 1.0 - far, facts)


def _distance_and_facts(fields: list[bytes]) -> tuple[float, bytes]:
    if len(fields) == 4:
        return (float(fields[1]), fields[3]) if fields[0] == _DISTANCE else (float(fields[3]), fields[1])
    return (float(fields[1]) if fields[0] == _DISTANCE else math.nan), b""


def _sort_ties(found: list[IndexHit]) -> list[IndexHit]:
    """Return hits, which are in the order of their scores, with equal scores in the order of their ids."""
    if len({hit[1] for hit in found}) < len(found):
        found.sort(key=_sort_key)
    return found


def _sort_key(hit: IndexHit) -> tuple[float, str]:
    return -hit.score, hit.id


def _as_items(reply: Reply) -> list[Any]:
    assert isinstance(reply, list)
    return reply


# -- scores that overflow ---------------------------------------------------------------------------

IMPLAUSIBLE = 30.0
"""A score from which the words are checked: a wrapped word gives some forty, five rare words together about as much."""
_LARGE_INDEX = 2000
"""Number of records from which rare words may really have such a score."""
_REMEMBERED_S = 5.0
_MOST_REMEMBERED = 1000
_HIGHEST_GAIN = 2.2
_SLACK = 1.0


class ScoredTerms(NamedTuple):
    """The words of a query."""

    scoring: list[str]
    silent: list[str]
    """Words that find records but add nothing to the score."""


class OverflowGuard:
    """The words whose score has overflowed recently."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._calm: dict[str, float] = {}

    def is_suspicious(self, namespace: str, score: float, now: float) -> bool:
        """Return whether the words of a hit with this score may have overflowed."""
        return score >= IMPLAUSIBLE and self._calm.get(namespace, 0.0) <= now

    def note_plausible(self, namespace: str, documents: int, now: float) -> None:
        """Record that the words of a score had not overflowed; with many records, trust others for a moment."""
        if documents >= _LARGE_INDEX:
            self._calm[namespace] = now + _REMEMBERED_S

    def split_overflowed(self, terms: list[str], now: float) -> ScoredTerms:
        """Return the words of a query, with those separated that have overflowed."""
        if not self._until:
            return ScoredTerms(terms, [])
        silent = [term for term in terms if self._until.get(term, 0.0) > now]
        return (
            ScoredTerms([term for term in terms if term not in silent], silent)
            if silent
            else ScoredTerms(terms, silent)
        )

    def remember(self, terms: Iterable[str], now: float) -> None:
        """Record words that overflow now; the garbage collector will run sooner or later."""
        if len(self._until) > _MOST_REMEMBERED:
            self._until.clear()
        self._until |= dict.fromkeys(terms, now + _REMEMBERED_S)


def overflowed_terms(terms: Sequence[str], replies: Sequence[Reply], documents: int) -> list[str]:
    """Return the words whose own best score is higher than possible.

    Args:
        terms: the words of the queries, one by one.
        replies: for each word, its best hit with its score.
        documents: number of documents in the index.
    """
    found = []
    for term, reply in zip(terms, replies, strict=True):
        holders, score = top_score(reply)
        rarest = math.log((documents + 1) / (min(holders, documents) + 0.5))
        if score > _HIGHEST_GAIN * max(rarest, 0.0) + _SLACK:
            found.append(term)
    return found
