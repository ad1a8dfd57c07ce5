"""Recognize which entities a question names, by looking up runs of its words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sharedmem.graph.resolution.names import normalize_name
from sharedmem.text.analysis import STOP_WORDS

LONGEST_RUN = 6
"""Words of a name that are looked for together."""
MOST_WORDS = 64
"""Words of a question that are looked at: the first ones."""
_SHORTEST_PART = 3
_DIGIT = re.compile(r"\d")
_POSSESSIVE = re.compile(r"['\u2019]s?$")


class WordRun(NamedTuple):
    """Words of a question that stand together."""

    name: str
    """As names are compared."""
    first: int
    """Place of its first word."""
    length: int


def word_runs(query: str) -> list[WordRun]:
    """Every run of words of a question that could be a name, longest first; `Ada's` is looked for as `Ada` too."""
    words = normalize_name(query).split(" ")[:MOST_WORDS]
    return [
        WordRun(name, first, length)
        for length in range(min(LONGEST_RUN, len(words)), 0, -1)
        for first in range(len(words) - length + 1)
        for name in _spellings(" ".join(words[first : first + length]))
    ]


def match_entities(runs: Iterable[WordRun], known: Mapping[str, str]) -> dict[str, str]:
    """The ids of the entities that a question names, by name; of names within names the longest counts.

    Args:
        runs: longest first.
        known: ids of entities by name.
    """
    taken: set[int] = set()
    found: dict[str, str] = {}
    for run in runs:
        places = range(run.first, run.first + run.length)
        if run.name in known and taken.isdisjoint(places):
            taken.update(places)
            found[run.name] = known[run.name]
    return found


def match_partial_names(query: str, known: Mapping[str, str]) -> dict[str, str]:
    """Ids by the part of a name that a question says, such as `Ada` of `Ada Lovelace`, where only one can be meant.

    Args:
        query: a part of a name must be written as one there: with a capital letter or a digit, and not as first word.
        known: names of entities that resemble the question most, by id.
    """
    said = {
        _strip_possessive(normalize_name(word))
        for word in query.split()[1:]
        if word[0].isupper() or _DIGIT.search(word)
    }
    bearers: dict[str, list[str]] = {}
    for id_, name in known.items():
        for part in said.intersection(normalize_name(name).split(" ")):
            bearers.setdefault(part, []).append(id_)
    return {part: ids[0] for part, ids in bearers.items() if len(ids) == 1 and len(part) >= _SHORTEST_PART}


def _strip_possessive(name: str) -> str:
    return _POSSESSIVE.sub("", name)


def _spellings(words: str) -> Iterator[str]:
    name = normalize_name(words)
    if not name or name in STOP_WORDS:
        return
    yield name
    bare = _strip_possessive(name)
    if bare and bare != name and bare not in STOP_WORDS:
        yield bare
