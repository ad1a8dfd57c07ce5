"""Text analysis: normal forms by which texts are compared, terms and tags that an index contains, and sentences.

Search terms are the same for every index. A word is a run of letters and digits, in normal form (NFKC) and without
case, reduced to its English stem; stop words such as "the" are left out. Scripts without blanks between words,
such as Chinese, give their overlapping pairs of characters instead. Each is spelled only with `a-z` and `0-9`,
so that no server's tokenizer, stemmer or case folding can change it, and no text of a user can become part of the
query language.

Other rules split texts for another purpose, and keep what search terms leave out: `text.fact_tokens` numbers with
units, ids and links; `text.contradictions` negations, signs, capital letters and ends of sentences; `text.summaries`
compound words; the rules of graphs every sign that a rule may contain. They share `WORD` where they mean any word.

A tag is matched as a whole. Writers and filters encode tags alike. An index on a server drops the blanks around a tag's
value, ends it at a NUL and splits it at the separator. Values with such characters are percent-encoded (`%` and the
encoded value), so that each value matches only itself.

A phrase of a query is words in quotation marks, found only side by side and in this order. A text is split into
sentences the same way for statements, summaries, notes and the rules of graphs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import islice
from math import log
from typing import Protocol
from urllib.parse import quote, unquote

from sharedmem.text.vocabulary import ABBREVIATION_END, CALENDARS

WORD = re.compile(r"[^\W_]+")
"""Any word: a run of letters and digits, of every script."""


def normalize_text(text: str) -> str:
    """Return a text in compatible form (NFKC), without case and with single blanks.

    Hashes of memories and keys of the semantic cache are made from it: with another result they are not found.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text in normal form (`normalize_text`), as `MemoryItem.hash` has it."""
    return sha256(normalize_text(text).encode(errors="surrogatepass")).hexdigest()


def fold(text: str) -> str:
    """Return a text in compatible form without case; unlike `normalize_text`, in normal form again after that."""
    if text.isascii():
        return text.lower()
    # Folding the case does not always leave the normal form: U+0390 becomes three characters.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


# -- search terms -----------------------------------------------------------------------------

# "may" is missing on purpose: it is a month, and a name. Remainders after an apostrophe ("t", "ll") are included.
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
"""Words of a document that are indexed, stop words not counted, from its start."""
MOST_QUERY_TERMS = 32
"""Distinct words of a query that are searched for, from its start."""
LONGEST_TEXT = 200_000
"""Characters of a text that are read, from its start."""
LONGEST_QUERY = 10_000
"""Characters of a query that are read, from its start."""
LONGEST_TERM = 100
"""Most characters of a spelled word; the rest is cut off, in documents and queries alike."""
PREFIX_LENGTH = 8
"""Characters of the prefix of each word of a namespace, if several share an index."""

_HEX_PREFIX = "0u"
_LONGEST_COMPARED = 20_000
_SHORTEST_STEM = 3
_PASSAGE_WORDS = 120
# Sentences of a passage are not cut, but a text without any is.
_PASSAGE_PIECE = re.compile(r"(?:\S{1,256}\s*){1,60}")
# Han, kana, Hangul, Thai, Lao, Myanmar and Khmer, with their vowel signs, without their punctuation.
_DENSE = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u1000-\u103f\u1780-\u17d3\u1100-\u11ff\u3005-\u3007"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
DENSE_RUN = re.compile(f"[{_DENSE}]+")
"""Characters of a script without blanks between words."""
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_ANY_WORD = re.compile(rf"[{_DENSE}]+|(?:(?![{_DENSE}])[^\W_])+")
_OTHER_WORD = re.compile(rf"[{_DENSE}]|[^\W_\x00-\x7f]")
# Sorting the accents of one letter takes the square of their number: an endless run of them must be cut. Words of ASCII
# have none, so many of them are one piece.
_PIECE = re.compile(r"[\x00-\x7f]{1,1000}\s|\S{1,256}\s*")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def document_terms(text: str) -> list[str]:
    """Return the words of a document without stop words, in their order, with repetitions.

    Args:
        text: any text; only `LONGEST_TEXT` characters and `MOST_TERMS` words are read.
    """
    return list(islice(_terms(text[:LONGEST_TEXT]), MOST_TERMS))


def query_terms(text: str) -> tuple[str, ...]:
    """Return the distinct words of a query without stop words, in their order.

    Args:
        text: any text; only `LONGEST_QUERY` characters and `MOST_QUERY_TERMS` words are read.

    Returns:
        The words; empty if there are only stop words.
    """
    return tuple(islice(dict.fromkeys(_terms(text[:LONGEST_QUERY])), MOST_QUERY_TERMS))


def has_other_terms(text: str, terms: Container[str]) -> bool:
    """Return whether a text contains a word, stop words aside, that is not among some terms.

    It stops at the first one, so it takes less time than `query_terms` for most texts.
    """
    return any(term not in terms for term in _terms(text[:LONGEST_QUERY]))


def share_of_terms(terms: Sequence[str], text: str) -> float:
    """Return the share of some terms of a query that a text contains, in any form of the word; 0 without terms.

    It looks for their stems in the first 20,000 characters of the text, so it may see "art" in "party"; this takes a
    tenth of the time of `document_terms`.
    """
    if not terms:
        return 0.0
    folded = fold_text(text[:_LONGEST_COMPARED])
    return sum(stem in folded for stem in map(_bare_stem, terms)) / len(terms)


@lru_cache(maxsize=4096)
def find_passage(terms: Sequence[str], text: str) -> tuple[int, int] | None:
    """Return where the part of a long text is that has to do with some terms of a query.

    It is sentences in a row with 120 words together at most. The term that fewest sentences have counts most. As
    `share_of_terms` it looks for stems, in the first 20,000 characters.

    Returns:
        Offsets of the part; None if the text has 120 words at most, or no sentence a term.
    """
    if len(text) <= _PASSAGE_WORDS or not terms:
        return None
    compared = text[:_LONGEST_COMPARED]
    # Counted in pieces there are more: each ends after 256 characters, even within a word.
    if _count_words(compared) + len(compared) // 256 <= _PASSAGE_WORDS:
        return None
    pieces = list(_passage_pieces(compared))
    words = [_count_words(text[begin:end]) for begin, end in pieces]
    if sum(words) <= _PASSAGE_WORDS:
        return None
    stems = [_bare_stem(term) for term in terms]
    folded = [fold_text(text[begin:end]) for begin, end in pieces]
    found = [frozenset(stem for stem in stems if stem in piece) for piece in folded]
    held_by = Counter(stem for piece in found for stem in piece)
    worth = {stem: log(1 + len(pieces) / count) for stem, count in held_by.items()}

    best, first, last = 0.0, 0, 0
    for begin in (at for at, piece in enumerate(found) if piece):
        room, seen = _PASSAGE_WORDS, set[str]()
        for end in range(begin, len(pieces)):
            room -= words[end]
            if room < 0 and end > begin:
                break
            seen |= found[end]
            if found[end] and (value := sum(worth[stem] for stem in seen)) > best:
                best, first, last = value, begin, end
    if not best:
        return None
    first, last = _widened(first, last, words)
    return pieces[first][0], pieces[last][1]


def _widened(first: int, last: int, words: Sequence[int]) -> tuple[int, int]:
    """Return the first and last piece of a passage together with pieces around it, as many as there is room for."""
    room = _PASSAGE_WORDS - sum(words[first : last + 1])
    while True:
        before = first > 0 and words[first - 1] <= room
        after = last + 1 < len(words) and words[last + 1] <= room
        if not before and not after:
            return first, last
        if after:
            last += 1
            room -= words[last]
        if before and words[first - 1] <= room:
            first -= 1
            room -= words[first]


def _passage_pieces(text: str) -> Iterator[tuple[int, int]]:
    for begin, end in sentence_spans(text):
        for piece in _PASSAGE_PIECE.finditer(text, begin, end):
            yield piece.start(), piece.start() + len(piece[0].rstrip())


def _count_words(text: str) -> int:
    """Return the number of words; two characters of a script without blanks count as one."""
    return len(text.split()) + sum(len(run) for run in DENSE_RUN.findall(text)) // 2


def _bare_stem(term: str) -> str:
    """Return what each form of a word begins with."""
    if term.startswith(_HEX_PREFIX):
        digits = term[len(_HEX_PREFIX) :]
        return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode(errors="ignore")
    # The stem of "happy" is "happi".
    return term[:-1] if term.endswith("i") and len(term) > _SHORTEST_STEM else term


@lru_cache(maxsize=4096)
def namespace_term_prefix(namespace: str) -> str:
    """Return the prefix of each word of a namespace, if several share an index: `PREFIX_LENGTH` letters.

    Two namespaces may have the same one by chance (1 in 4 billion); it is no protection.
    """
    digest = blake2b(namespace.encode(), digest_size=PREFIX_LENGTH // 2)
    return digest.hexdigest().translate(_LETTERS)


def indexed_terms(text: str, namespace: str) -> str:
    """Return the words of a document for the field `terms` of its record; empty if there are only stop words.

    Args:
        text: as `document_terms` takes it.
        namespace: namespace of the record: its prefix is put before each word.
    """
    prefix, terms = namespace_term_prefix(namespace), document_terms(text)
    return prefix + f" {prefix}".join(terms) if terms else ""


def _terms(text: str) -> Iterator[str]:
    words = _ASCII_WORD.findall(text.lower()) if text.isascii() else _words(text)
    return map(stem_word, [word for word in words if word not in STOP_WORDS])


def fold_text(text: str) -> str:
    """Return a text of any length in compatible form without case, as search terms are made from it."""
    return text.lower() if text.isascii() else "".join(map(fold, _PIECE.findall(text)))


def _words(text: str) -> list[str]:
    folded = fold_text(text)
    if not _OTHER_WORD.search(folded):  # only its signs are others, such as quotation marks and dashes
        return _ASCII_WORD.findall(folded)
    return [word for run in _ANY_WORD.findall(folded) for word in _bigrams(run)]


def _bigrams(run: str) -> Iterator[str]:
    if len(run) < 2 or not DENSE_RUN.match(run):
        yield run
        return
    for place in range(len(run) - 1):
        yield run[place : place + 2]


@lru_cache(maxsize=65_536)
def stem_word(word: str) -> str:
    """Return the stem of a word in small letters, spelled as search terms are."""
    stem = _stemmer().stemWord(word[:LONGEST_TERM])
    if stem.isascii() and not stem.startswith(_HEX_PREFIX):
        return stem[:LONGEST_TERM]
    return f"{_HEX_PREFIX}{stem.encode().hex()}"[:LONGEST_TERM]


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's name


@lru_cache(maxsize=1)
def _stemmer() -> _Stemmer:
    import Stemmer  # noqa: PLC0415  # only loaded by searches

    # Size 0: words are cached here, already spelled.
    made: _Stemmer = Stemmer.Stemmer("english", 0)
    return made


# -- tags -----------------------------------------------------------------------------------------

TAG_SEPARATOR = "\x1f"
"""Separates the values of a tag field."""
NO_TAG = TAG_SEPARATOR
"""A value that no record has."""
_ENCODED_PREFIX = "%"
# Inside a value, blanks and signs have no meaning; at its ends blanks are dropped, and so is a backslash before one.
_PLAIN = re.compile(r"(?![%\s])[^\x00-\x1f\x7f\\]*(?<!\s)")


def encode_tag(value: str) -> str:
    """Encode a value for the hash and for filters."""
    if value and _PLAIN.fullmatch(value):
        return value
    return _ENCODED_PREFIX + quote(value, safe="", errors="surrogatepass")


def join_tags(values: Iterable[str]) -> str:
    """Encode the values of a tag field; write no field if none exist."""
    return TAG_SEPARATOR.join(map(encode_tag, values))


def split_tags(field: str) -> list[str]:
    """Decode the values of a tag field."""
    return [_decode_tag(value) for value in field.split(TAG_SEPARATOR)] if field else []


def _decode_tag(value: str) -> str:
    if value.startswith(_ENCODED_PREFIX):
        return unquote(value[len(_ENCODED_PREFIX) :], errors="surrogatepass")
    return value


# -- phrases in queries --------------------------------------------------------------------------


# Straight and typographic marks; a mark without a partner has no meaning.
_QUOTED = re.compile('"([^"]+)"|\u201c([^\u201c\u201d]+)\u201d')
_BETWEEN = r"[\W_]+"


def find_phrases(query: str) -> tuple[str, ...]:
    """Return the texts in quotation marks that contain a word."""
    found = ((match[1] or match[2]).strip() for match in _QUOTED.finditer(query))
    return tuple(dict.fromkeys(phrase for phrase in found if WORD.search(phrase)))


def contains_phrases(texts: Iterable[str], phrases: Iterable[str]) -> bool:
    """Return whether each phrase is in one of the texts: its words side by side, in this order.

    Case, and blanks and signs between the words, do not matter; inflected forms are other words.
    """
    folded = [fold_text(text[:LONGEST_TEXT]) for text in texts]
    return all(any(_pattern(phrase).search(text) for text in folded) for phrase in phrases)


@lru_cache(maxsize=512)
def _pattern(phrase: str) -> re.Pattern[str]:
    words = WORD.findall(fold_text(phrase))
    # Scripts without blanks between words have no ends of words to look for.
    begin = "" if DENSE_RUN.match(words[0]) else r"(?<![^\W_])"
    end = "" if DENSE_RUN.match(words[-1]) else r"(?![^\W_])"
    return re.compile(begin + _BETWEEN.join(map(re.escape, words)) + end)


# -- sentences ------------------------------------------------------------------------------------


# A sentence does not begin with signs of code, mathematics or markup alone: `... */`, `3! = 6`.
_SENTENCE_END = re.compile(
    r"(?<=[.!?…])[\"')\]\u201d\u00bb]?\s+(?=\S)(?![-*/<>=|{}()]+(?:\s|$)|\\)"
    r"|(?<=[\u3002\uff01\uff1f])|[\r\n\u2028\u2029]\s*"
)
_CLAUSE_END = re.compile(rf"{_SENTENCE_END.pattern}|;\s")
_SMALL_LETTER = re.compile(r"[\"'(\u201c\u201e\u00ab]?[a-zß-öø-ÿ]")
_ENDS_LINE = frozenset("\r\n\u2028\u2029")
_CLOSING = "\"')]\u201d\u00bb"
_LONGEST_ABBREVIATION = 12
_LONGEST_JOINED = 300
"""Length from which every full stop ends a sentence: a text of nothing but abbreviations has more than one."""
_LIST_NUMBER = re.compile(r"[\s#*>-]*\d{1,2}\.")
# A German date, `1. Mai 2026`: elsewhere months that follow a full stop have no capital.
_DAY = re.compile(r"(?<!\d)\d{1,2}\.$")
_MONTH = re.compile(rf"\s*(?:{'|'.join(CALENDARS['de'].months.split())})\b", re.IGNORECASE)


def split_sentences(text: str, *, small_letters: bool = False) -> list[str]:
    """Return the sentences and lines of a text, each with single blanks and none around it.

    Args:
        text: any text.
        small_letters: whether a sentence may begin with a small letter, as some models and people write.
    """
    spans = sentence_spans(text, small_letters=small_letters)
    pieces = (" ".join(text[begin:end].split()) for begin, end in spans)
    return [piece for piece in pieces if piece]


def sentence_spans(
    text: str, *, is_free: bytearray | None = None, clauses: bool = False, small_letters: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield where the sentences of a text begin and end. Linear in its length.

    Args:
        text: any text.
        is_free: for each character 0 inside a name, in which no sentence ends; None without names.
        clauses: whether a semicolon ends a sentence.
        small_letters: as `split_sentences` takes it.
    """
    begin = 0
    for found in (_CLAUSE_END if clauses else _SENTENCE_END).finditer(text):
        at, following = found.span()
        if _ENDS_LINE.isdisjoint(found[0]):
            if is_free is not None and not is_free[at - 1]:
                continue
            if at - begin < _LONGEST_JOINED and not found[0].startswith(";"):
                goes_on = not small_letters and _SMALL_LETTER.match(text, following)
                if goes_on or _is_abbreviation(text, begin, at, following):
                    continue
        # A closing quote after the full stop belongs to the sentence.
        yield begin, at + (text[at : at + 1] in _CLOSING and at < following)
        begin = following
    yield begin, len(text)


def _is_abbreviation(text: str, begin: int, at: int, following: int) -> bool:
    """Return whether the full stop before a place belongs to an abbreviation, a list number or the day of a date."""
    if text[at - 1] != ".":
        return False
    end = text[max(begin, at - _LONGEST_ABBREVIATION) : at]
    if ABBREVIATION_END.search(end) or (at - begin <= _LONGEST_ABBREVIATION and _LIST_NUMBER.fullmatch(end)):
        return True
    return bool(_DAY.search(end) and _MONTH.match(text, following))
