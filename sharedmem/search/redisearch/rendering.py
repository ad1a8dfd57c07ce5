"""Queries as text: the only module that spells the query language.

Whatever comes from users travels beside the text, by PARAMS. The text itself holds names of fields and numbers of
parameters and nothing else, so that no value can change what a query means.

What is found by words must be ranked as BM25 ranks it, with or without filters. RediSearch 2.10 makes that hard: an OR
below an AND adds up only some of its branches, a tag adds its own score, and an OR of more than twenty ANDs counts
records twice. So each word has the filter in its own branch, where it weighs nothing, and branches stand in groups of
sixteen. A weight counts for what consists of several parts, and is ignored for a single tag: to that is added a value
that no record has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.search.filters import Between, Condition, Every, Tagged
from sharedmem.search.protocol import Family
from sharedmem.search.tags import NO_VALUE, spelled
from sharedmem.wire.replies import Argument

NAMESPACE_TAG = "ns"
DISTANCE = "d"
_GROUP = 16
_COMMON_NAMES = 256
_NAMES = tuple(f"t{number}" for number in range(_COMMON_NAMES))


class Rendered(NamedTuple):
    """What filters mean, in the query language."""

    text: str
    """Empty when everything is let through."""
    params: tuple[Argument, ...]
    """Names and values in turn."""
    weightless: str
    """The same as part of a search by words, to which it adds no score."""


NO_FILTER = Rendered("", (), "")
_WEIGHTLESS = "=>{$weight:0}"


class _Params:
    """Collects the values that travel beside the text."""

    def __init__(self) -> None:
        self.words: list[Argument] = []

    def add(self, value: Argument) -> str:
        name = f"f{len(self.words) // 2}"
        self.words += name, value
        return f"${name}"


def rendered(filters: Every, family: Family) -> Rendered:
    """What must hold of a record.

    Args:
        filters: what the caller wants.
        family: whose fields the filters may name.

    Raises:
        InvalidError: a filter names no field of the family, or a number is none.
    """
    if not filters.conditions:
        return NO_FILTER
    params = _Params()
    text = _every(filters, family, params)
    if not text:
        return NO_FILTER
    parts = text if " " in text or "|" in text else text.replace("}", f"|{params.add(NO_VALUE)}}}")
    return Rendered(text, tuple(params.words), f"(({parts}){_WEIGHTLESS})")


def narrowed(filters: Rendered, namespace: str) -> Rendered:
    """The same within one namespace, for an index that holds others too."""
    text = f"@{NAMESPACE_TAG}:{{$n}} {filters.text}".rstrip()
    return Rendered(text, ("n", spelled(namespace), *filters.params), "")


def _condition(condition: Condition, family: Family, params: _Params) -> str:
    if isinstance(condition, Tagged):
        return _tagged(condition, family, params)
    if isinstance(condition, Between):
        return _between(condition, family, params)
    return _every(condition, family, params)


def _every(every: Every, family: Family, params: _Params) -> str:
    return " ".join(filter(None, (_condition(each, family, params) for each in every.conditions)))


def _tagged(condition: Tagged, family: Family, params: _Params) -> str:
    if condition.field not in family.tags:
        raise InvalidError("filter", condition.field, f"the tags of {family.name} are {', '.join(family.tags)}")
    # Without values there is nothing that could hold.
    values = [spelled(value) for value in condition.values] or [NO_VALUE]
    return f"@{condition.field}:{{{'|'.join([params.add(value) for value in values])}}}"


def _between(condition: Between, family: Family, params: _Params) -> str:
    if condition.field not in family.numbers:
        raise InvalidError("filter", condition.field, f"the numbers of {family.name} are {', '.join(family.numbers)}")
    low = "-inf" if condition.low is None else params.add(_number(condition.field, condition.low))
    high = "inf" if condition.high is None else params.add(_number(condition.field, condition.high))
    return f"@{condition.field}:[{low} {high}]"


def _number(field: str, value: float) -> str:
    if math.isnan(value):
        raise InvalidError(f"filter {field}", value, "give a number")
    return repr(float(value))


# -- whole commands -------------------------------------------------------------------------------


def by_words(
    scoring: Sequence[str], silent: Sequence[str], filters: Rendered, *, scorer: str, limit: int
) -> tuple[Argument, ...]:
    """What follows `FT.SEARCH <index>` to find records by words, with scores and facts.

    Args:
        scoring: the words, ASCII letters and digits each; their namespace is in their prefix.
        silent: more of them, which add nothing to the score.
        filters: what must hold besides.
        scorer: how the server ranks.
        limit: how many are answered at most.
    """
    text = _any_word(len(scoring), len(silent), filters.weightless)
    words = _named_words((*scoring, *silent))
    # Verbatim: the words are stems already.
    head = (text, "VERBATIM", "SCORER", scorer, "WITHSCORES", "RETURN", 1, "facts", "LIMIT", 0, limit)
    return (*head, *_params((*words, *filters.params)))


def best_by_word(term: str, *, scorer: str) -> tuple[Argument, ...]:
    """What follows `FT.SEARCH <index>` for the best score that a word gives, and how many records hold it."""
    head = (_any_word(1, 0, ""), "VERBATIM", "SCORER", scorer, "WITHSCORES", "NOCONTENT", "LIMIT", 0, 1)
    return (*head, *_params(_named_words((term,))))


def by_meaning(vector: bytes, filters: Rendered, *, k: int, policy: str = "") -> tuple[Argument, ...]:
    """What follows `FT.SEARCH <index>` to find the nearest records, with distances and facts.

    Args:
        vector: half-precision bytes.
        filters: what must hold of them.
        k: how many.
        policy: how an approximate index goes about it.
    """
    text = _nearest(filters.text, policy)
    # Without LIMIT ten would be answered, without SORTBY in any order.
    head = (text, "SORTBY", DISTANCE, "RETURN", 2, "facts", DISTANCE, "LIMIT", 0, k)
    return (*head, *_params(("k", k, "v", vector, *filters.params)))


def by_filters(filters: Rendered, *, newest: str | None, offset: int, limit: int) -> tuple[Argument, ...]:
    """What follows `FT.SEARCH <index>` to name the records that filters let through."""
    order = () if newest is None else ("SORTBY", newest, "DESC")
    head = (filters.text or "*", "NOCONTENT", "SCORER", "DOCSCORE", *order, "LIMIT", offset, limit)
    return (*head, *_params(filters.params))


def by_value(filters: Rendered, tag: str) -> tuple[Argument, ...]:
    """What follows `FT.AGGREGATE <index>` to count records by the values of a tag."""
    head = (filters.text or "*", "LOAD", 1, f"@{tag}", "GROUPBY", 1, f"@{tag}", "REDUCE", "COUNT", 0, "AS", "n")
    return (*head, *_params(filters.params))


def policy_of(matching: int | None, documents: int, *, few: float) -> str:
    """How an approximate index should go about it.

    Args:
        matching: how many records the filter leaves; None without a filter.
        documents: how many there are.
        few: the share up to which looking at each of them is quicker, and exact.
    """
    if matching is None:
        return "EF_RUNTIME 100"
    if matching <= documents * few:
        return "HYBRID_POLICY ADHOC_BF"
    return "HYBRID_POLICY BATCHES EF_RUNTIME 200"


@lru_cache(maxsize=2048)
def _any_word(scoring: int, silent: int, condition: str) -> str:
    words = [f"@terms:$t{number}" for number in range(scoring + silent)]
    if not condition and not silent:
        return "|".join(words)
    branches = [*words[:scoring], *(f"(-(-{word}))" for word in words[scoring:])]
    if condition:
        branches = [f"({branch} {condition})" for branch in branches]
    return _alternatives(branches)


def _alternatives(branches: list[str]) -> str:
    while len(branches) > _GROUP:
        groups = (branches[at : at + _GROUP] for at in range(0, len(branches), _GROUP))
        branches = [f"({'|'.join(group)})" for group in groups]
    return "|".join(branches)


@lru_cache(maxsize=2048)
def _nearest(condition: str, policy: str) -> str:
    scope = f"({condition})" if condition else "*"
    return f"{scope}=>[KNN $k @vector $v {policy} AS {DISTANCE}]"


def _named_words(terms: Sequence[str]) -> tuple[Argument, ...]:
    count = len(terms)
    names = _NAMES if count <= _COMMON_NAMES else tuple(f"t{number}" for number in range(count))
    return tuple(chain.from_iterable(zip(names, terms, strict=False)))


def _params(words: tuple[Argument, ...]) -> tuple[Argument, ...]:
    return ("PARAMS", len(words), *words, "DIALECT", 2) if words else ("DIALECT", 2)
