"""Text analysis: the search terms of documents and queries, the same for every index, and the dates a query names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple, Protocol

# "may" is missing on purpose: it is a month, and a name. What an apostrophe leaves behind ("t", "ll") is here.
_WORDS = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
am is are was were be been being do does did doing done have has had having
can could shall should will would might must
and or but nor if then than because as while though although until unless since so
at by for from in into of off on onto out over to toward towards under up upon with without within
about above across after against along among around before behind below beneath beside between beyond down during
through throughout via
what which who whom whose when where why how whether
there here not no any some each every either neither both all such own same other another
too very just also only even still yet ever again once more most much many few less least
s t d ll m re ve don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn ain
"""
STOP_WORDS = frozenset(_WORDS.split())


MOST_TERMS = 20_000
"""Words of a document that are indexed, stop words not counted: the first ones."""
MOST_QUERY_TERMS = 32
"""Distinct words of a query that are looked for: the first ones."""
LONGEST_TEXT = 200_000
"""Characters of a text that are looked at: the first ones."""
LONGEST_QUERY = 10_000
"""Characters of a query that are looked at: the first ones."""
LONGEST_TERM = 100
"""Characters of a spelled word; the rest is cut off, of documents and queries alike."""
PREFIX_LENGTH = 8
"""Characters of what stands before each word of a namespace where several share an index."""

_HEX_PREFIX = "0u"
# Han, kana, Hangul, Thai, Lao, Myanmar and Khmer, with their vowel signs, without their punctuation.
_DENSE = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u1000-\u103f\u1780-\u17d3\u1100-\u11ff\u3005-\u3007"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_DENSE_RUN = re.compile(f"[{_DENSE}]+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_ANY_WORD = re.compile(rf"[{_DENSE}]+|(?:(?![{_DENSE}])[^\W_])+")
# Sorting the accents of one letter takes the square of their number: an endless run of them must be cut.
_PIECE = re.compile(r"\S{1,256}\s*")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def document_terms(text: str) -> list[str]:
    """The words of a document that say something, in their order, each as often as it stands there.

    Args:
        text: any; what goes beyond `LONGEST_TEXT` characters or `MOST_TERMS` words is not looked at.
    """
    return list(islice(_terms(text[:LONGEST_TEXT]), MOST_TERMS))


def query_terms(text: str) -> tuple[str, ...]:
    """The distinct words of a query that say something, in their order.

    Args:
        text: any; what goes beyond `LONGEST_QUERY` characters or `MOST_QUERY_TERMS` words is not looked at.

    Returns:
        The words; none when there are only stop words.
    """
    return tuple(islice(dict.fromkeys(_terms(text[:LONGEST_QUERY])), MOST_QUERY_TERMS))


@lru_cache(maxsize=4096)
def namespace_term_prefix(namespace: str) -> str:
    """What stands before each word of a namespace where several share an index: `PREFIX_LENGTH` letters.

    Two namespaces may have the same one by chance (1 in 4 billion); it is no protection.
    """
    digest = blake2b(namespace.encode(), digest_size=PREFIX_LENGTH // 2)
    return digest.hexdigest().translate(_LETTERS)


def indexed_terms(text: str, namespace: str) -> str:
    """The words of a document as its record has them in the field `terms`; empty when none says anything.

    Args:
        text: as `document_terms` takes it.
        namespace: whose record it is: its prefix stands before each word.
    """
    prefix, terms = namespace_term_prefix(namespace), document_terms(text)
    return prefix + f" {prefix}".join(terms) if terms else ""


def _terms(text: str) -> Iterator[str]:
    return (_encode_term(word) for word in _words(text) if word not in STOP_WORDS)


def _words(text: str) -> Iterator[str]:
    if text.isascii():
        yield from _ASCII_WORD.findall(text.lower())
        return
    for match in _ANY_WORD.finditer("".join(map(_fold, _PIECE.findall(text)))):
        yield from _bigrams(match[0])


def _fold(piece: str) -> str:
    # Once more after folding the case, which does not always leave the normal form.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", piece).casefold())


def _bigrams(run: str) -> Iterator[str]:
    if len(run) < 2 or not _DENSE_RUN.match(run):
        yield run
        return
    for place in range(len(run) - 1):
        yield run[place : place + 2]


@lru_cache(maxsize=65_536)
def _encode_term(word: str) -> str:
    stem = _stemmer().stemWord(word[:LONGEST_TERM])
    if stem.isascii() and not stem.startswith(_HEX_PREFIX):
        return stem[:LONGEST_TERM]
    return f"{_HEX_PREFIX}{stem.encode().hex()}"[:LONGEST_TERM]


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's name


@lru_cache(maxsize=1)
def _stemmer() -> _Stemmer:
    import Stemmer  # noqa: PLC0415  # only who searches loads it

    # Size 0: words are remembered here, already spelled.
    made: _Stemmer = Stemmer.Stemmer("english", 0)
    return made


# -- dates that a query names: `on 7 May 2023`, `in July`, `2023-05-07` -----------------------------------

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NUMBERS = {name[:3].lower(): number for number, name in enumerate(MONTHS, 1)}
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)-(\d\d)\b")
# Without a number beside it, a word must stand before it: May, April and June are more than months.
_SPELLED = re.compile(
    r"""
    (?: \b (?P<lead> in | during | since | until | last | early | late | mid | around ) [\s-]+ )?
    (?: \b (?P<day> \d{1,2} ) (?: st | nd | rd | th )? \s+ (?: of \s+ )? )?
    \b (?P<month> jan(?:uary)? | feb(?:ruary)? | mar(?:ch)? | apr(?:il)? | may | june? | july? | aug(?:ust)?
        | sept?(?:ember)? | oct(?:ober)? | nov(?:ember)? | dec(?:ember)? ) \b \.?
    (?: \s+ (?P<day_behind> \d{1,2} ) (?: st | nd | rd | th )? \b )?
    (?: ,? \s+ (?P<year> (?: 19 | 20 ) \d\d ) \b )?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ONE_DAY = timedelta(days=1)
# Years 6 and 9987: what lies beyond has a clock that nobody trusts, and must not break the calendar.
_EARLIEST_MS, _LATEST_MS = -62_000_000_000_000, 253_000_000_000_000


class NamedDate(NamedTuple):
    """A date, as far as it is told."""

    year: int | None
    month: int
    day: int | None

    def covers(self, at: datetime) -> bool:
        """Whether this moment may be meant; of a day also those beside it, as time zones differ."""
        if self.day is None:
            return at.month == self.month and self.year in {None, at.year}
        return any(
            (day.month, day.day) == (self.month, self.day) and self.year in {None, day.year}
            for day in (at, at - _ONE_DAY, at + _ONE_DAY)
        )


def find_named_dates(query: str) -> tuple[NamedDate, ...]:
    """The days and months that a query names, in English or as ISO dates."""
    found = [NamedDate(int(year), int(month), int(day)) for year, month, day in _ISO.findall(query)]
    for match in _SPELLED.finditer(query):
        day = match["day"] or match["day_behind"]
        if day or match["year"] or match["lead"]:
            year = int(match["year"]) if match["year"] else None
            found.append(NamedDate(year, _NUMBERS[match["month"][:3].lower()], int(day) if day else None))
    return tuple(found)


def datetime_from_ms(at_ms: int) -> datetime:
    """The moment of milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(at_ms, _EARLIEST_MS), _LATEST_MS))
