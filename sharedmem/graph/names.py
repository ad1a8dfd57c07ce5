"""Normalise, validate and compare names; validate groups and ids; derive the id of an entity from its name.

Two spellings belong to one entity certainly, perhaps, or not at all. Typing errors in names are of few kinds: a doubled
or missing letter, two exchanged letters, a missing accent, blank or apostrophe, and company names with or without their
legal form. Only these count as the same. Names that are merely alike (Anna and Anne, Boston and Bolton,
order 1234 and order 1235) belong to different entities about as often as to the same one, and a wrong merge does more
harm than a missing one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.text.analysis import fold
from sharedmem.text.contradictions import find_contradiction

try:
    from rapidfuzz import fuzz
    from rapidfuzz.distance import OSA
except ImportError:
    _is_installed = False  # the sync API imports this module without using a graph
else:
    _is_installed = True

LONGEST_NAME = 200
LONGEST_GROUP_BYTES = 256
LONGEST_ID_BYTES = 128
_NOT_IN_GROUPS = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_NOT_IN_IDS = re.compile(r"[\s#\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_BLANKS = re.compile(r"\s+")
_AROUND = " \t\r\n.,;:!?\"'`()[]<>\u201c\u201d\u2018\u2019\u00ab\u00bb"
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 32
_ID = re.compile(r"(?:[a-z0-9-]+-)?[0-9a-f]{10}")
_TRIGRAM = "0ug"
"""Words begin with `0u` only before hex digits (`text.analysis`), and `g` is not a hex digit."""
_PLAIN_RUN = re.compile(r"[a-z0-9]{3}")


def normalize_name(name: str) -> str:
    """Return a name without irrelevant differences: case, outer punctuation, kinds of blanks, width of letters."""
    return _BLANKS.sub(" ", fold(name)).strip(_AROUND)


def normalize_part(words: str) -> str:
    """Return words in a row of a normalised name, as `normalize_name` spells them by themselves."""
    return words.strip(_AROUND) if words.isascii() else normalize_name(words)


def check_encodable(field: str, text: str) -> str:
    """Return a text that UTF-8 can encode.

    Raises:
        InvalidError: it contains half a character, as of an argument that was not decoded properly.
    """
    if _SURROGATES.search(text):
        raise InvalidError(field, text, "it holds half a character (a lone surrogate); decode it properly")
    return text


def check_entity_name(field: str, name: str) -> str:
    """Return a checked name, without surrounding blanks.

    Raises:
        InvalidError: the name has no letter or digit, or is too long.
    """
    if not isinstance(name, str) or not normalize_name(name):
        raise InvalidError(field, name, "give a name with a letter or digit in it")
    if _SURROGATES.search(name):
        raise InvalidError(field, "...", "it holds half a character (a lone surrogate); decode it properly")
    if len(name) > LONGEST_NAME:
        raise InvalidError(field, f"{name[:40]}...", f"keep it within {LONGEST_NAME} characters")
    return check_encodable(field, _BLANKS.sub(" ", name).strip())


def entity_id(normal: str) -> str:
    """Return the id for a normalised name: readable, and the same in every process."""
    plain = unicodedata.normalize("NFKD", normal).encode("ascii", "ignore").decode()
    slug = _NOT_IN_SLUG.sub("-", plain).strip("-")[:_LONGEST_SLUG].strip("-")
    digest = blake2b(normal.encode(), digest_size=5).hexdigest()
    return f"{slug}-{digest}" if slug else digest


def looks_like_entity_id(name: str) -> bool:
    """Return whether a text could be the id of an entity."""
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def check_group(group: str) -> str:
    """Return a checked group, `tenant:session`.

    Raises:
        InvalidError: the group is empty, too long, or contains braces or control characters.
    """
    if not isinstance(group, str) or not group.strip():
        raise InvalidError("group_id", group, "give a group, such as 'acme:session-7'")
    if _NOT_IN_GROUPS.search(group):
        raise InvalidError("group_id", group, "leave out braces and control characters")
    if len(group.encode()) > LONGEST_GROUP_BYTES:
        raise InvalidError("group_id", f"{group[:40]}...", f"keep it within {LONGEST_GROUP_BYTES} bytes")
    return group


def check_id(field: str, id_: str) -> str:
    """Return a checked id of an episode.

    Raises:
        InvalidError: the id is empty, over 128 bytes, or contains blanks, braces or control characters.
    """
    if not isinstance(id_, str) or not id_ or _NOT_IN_IDS.search(id_):
        raise InvalidError(field, id_, "give a text without blanks, braces, '#' and control characters")
    if len(id_.encode()) > LONGEST_ID_BYTES:
        raise InvalidError(field, f"{id_[:40]}...", f"keep it within {LONGEST_ID_BYTES} bytes")
    return id_


def encode_group(group: str) -> str:
    """Return a group as a part of keys and ids: without `/`, which ends the group there."""
    return group.replace("%", "%25").replace("/", "%2F")


def trigrams(normal: str) -> list[str]:
    """Return the distinct runs of three characters of a normalised name with surrounding blanks, as words for a search.

    `text.analysis` never produces such words from a text, so that a word never finds an entity by its letters.
    """
    padded = f" {normal} "
    return list(dict.fromkeys(_encode_trigram(padded[place : place + 3]) for place in range(len(padded) - 2)))


def _encode_trigram(run: str) -> str:
    # Shorter than any run of three in hex: no two different runs have the same spelling.
    return f"{_TRIGRAM}{run if _PLAIN_RUN.fullmatch(run) else run.encode().hex()}"


SimilarityVerdict = Literal["same", "maybe", "other"]

_SHORTEST_SQUASHED = 4
"""Letters and digits from which names that differ only in blanks and signs are the same; `U.S.` and `us` are not."""
_SHORTEST_ALONE = 5
_SHORTEST_IN_COMPANY = 3
"""Least letters of a word with a typing error, in a name of one word or of several."""
_LONG_ENOUGH_TO_SWAP = 7
"""Least letters for exchanged letters; `Brian` and `Brain` are too short."""
_LONG_ENOUGH_FOR_ANY = 9
"""Letters from which any one wrong letter inside a word counts as a typing error; `Boston`, `Bolton` are too short."""
_ALIKE, _WITHIN = 80.0, 85.0
"""Of 100: likeness from which a judge may decide; of the whole names, and of the extra words of one name."""
_FAR = 0.6
"""Below this likeness no rule can match, and no further check is made."""

_IS_ADDRESS = re.compile(r"[@/\\_:]")
_NUMBERED = re.compile(r"\S*\d\S*")
_SIGN = re.compile(r"(?<!\d)[^\w+#]+|[^\w+#]+(?!\d)")
_WORD = re.compile(r"[^\W_]+[+#]*")
_ROMAN = re.compile(r"[ivxlcdm]+")
_APOSTROPHES = str.maketrans("", "", "'\u2019\u02bc`")
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe", "æ": "ae", "œ": "oe"})
_LEGAL_FORMS = {
    **dict.fromkeys(("inc", "incorporated"), "inc"),
    **dict.fromkeys(("corp", "corporation"), "corp"),
    **dict.fromkeys(("ltd", "limited"), "ltd"),
    **dict.fromkeys(("co", "company"), "co"),
    **{form: form for form in ("llc", "gmbh", "ag", "plc", "bv", "nv", "sa", "ab", "oy", "kg", "se")},
}
_TITLES = {**{title: title for title in ("mr", "mrs", "ms", "dr", "prof", "sir")}, "professor": "prof", "doctor": "dr"}
_DECISIVE_DIFFERENCES = frozenset({"numbers", "negation", "opposites"})


def require_rapidfuzz() -> None:
    """Reject a comparison of names without the library for it; called before a graph is opened.

    Raises:
        UnsupportedError: rapidfuzz is not installed.
    """
    if not _is_installed:
        raise UnsupportedError("the knowledge graph", "pip install 'sharedmem-hub[graph]'")


class NameSimilarity(NamedTuple):
    """The result of comparing two names."""

    verdict: SimilarityVerdict
    score: float
    """Likeness of the letters, 0 to 1."""
    why: str = ""
    """Reason for the log, in one word."""


class _NameParts(NamedTuple):
    words: tuple[str, ...]
    core: tuple[str, ...]
    """Without legal forms, titles and `the`."""
    legal: frozenset[str]
    titles: frozenset[str]


def compare_names(a: str, b: str) -> NameSimilarity:
    """Compare two normalised names; their order does not matter.

    Returns:
        `same` for spellings of one name; `maybe` for names that need more knowledge to decide; `other` for
            all else, including names with other numbers, ids and addresses. About 20 microseconds.
    """
    if a == b:
        return NameSimilarity("same", 1.0, "equal")
    score = round(fuzz.ratio(a, b) / 100, 3)
    is_far = score < _FAR and fuzz.token_set_ratio(a, b) < _WITHIN
    if is_far or _IS_ADDRESS.search(a) or _IS_ADDRESS.search(b):
        return NameSimilarity("other", score)
    if not _squashed(a).isdisjoint(_squashed(b)):
        return NameSimilarity("same", score, "spelling")
    if _NUMBERED.findall(a) != _NUMBERED.findall(b) or find_contradiction(a, b) in _DECISIVE_DIFFERENCES:
        return NameSimilarity("other", score)
    return _by_words(a, b, score)


def blocking_key(name: str) -> str:
    """Return a key shared by all names that `compare_names` takes for the same: first and last letter."""
    after, comma, before = name.partition(",")
    letters = "".join(_split_name(f"{before} {after}" if comma else name).core) or name
    return letters[0] + letters[-1]


def shares_word(a: str, b: str) -> bool:
    """Return whether two normalised names share a word of four letters or more, besides legal forms and titles."""
    return any(len(word) >= _SHORTEST_SQUASHED for word in {*_split_name(a).core} & {*_split_name(b).core})


def may_be_near(a: str, b: str) -> bool:
    """Return whether two names are worth a comparison, by the beginnings of their ids."""
    return not a or not b or max(fuzz.ratio(a, b), fuzz.token_set_ratio(a, b)) >= _WITHIN - 10


def _by_words(a: str, b: str, score: float) -> NameSimilarity:
    mine, yours = _split_name(a), _split_name(b)
    if _contradict(mine.legal, yours.legal) or _contradict(mine.titles, yours.titles):
        return NameSimilarity("maybe", score) if mine.core == yours.core else NameSimilarity("other", score)
    if _same_core(mine, yours):
        return NameSimilarity("same", score, "form")
    if ("," in a) != ("," in b) and sorted(mine.core) == sorted(yours.core):
        return NameSimilarity("same", score, "order")
    slip = _typo_in_words(mine.core, yours.core)
    if slip == "same":
        return NameSimilarity("same", score, "typo")
    is_near = (
        slip == "maybe"
        or _abbreviates(mine.core, yours.core)
        or 100 * score >= _ALIKE
        or fuzz.token_set_ratio(a, b) >= _WITHIN
    )
    return NameSimilarity("maybe" if is_near else "other", score)


def _contradict(mine: frozenset[str], yours: frozenset[str]) -> bool:
    return bool(mine and yours) and mine != yours


def _same_core(mine: _NameParts, yours: _NameParts) -> bool:
    """Return whether only a legal form, a title or `the` is added; a single name has no title to lose."""
    if mine.core != yours.core or len("".join(mine.core)) < _SHORTEST_SQUASHED:
        return False
    return mine.titles == yours.titles or len(mine.core) > 1


@lru_cache(maxsize=16_384)
def _squashed(name: str) -> frozenset[str]:
    """Return letters and digits of a name, without accents or with those spelled as two letters.

    The result is empty for short names. Signs between two digits stay: 1.2 is not 12.
    """
    bare = _SIGN.sub("", name.translate(_APOSTROPHES))
    spelled = {_without_accents(bare), _without_accents(bare.translate(_TWO_LETTERS))}
    return frozenset(each for each in spelled if len(each) >= _SHORTEST_SQUASHED)


def _without_accents(name: str) -> str:
    # Combining marks stay in scripts that cannot be read without them.
    letters = unicodedata.normalize("NFKD", name)
    return "".join(letter for letter in letters if not "\u0300" <= letter <= "\u036f")


@lru_cache(maxsize=16_384)
def _split_name(name: str) -> _NameParts:
    words = tuple(_WORD.findall(_without_accents(name.translate(_APOSTROPHES))))
    core = list(words)
    titles, legal = set(), set()
    while len(core) > 1 and core[0] in {"the", *_TITLES}:
        titles.update({_TITLES.get(core.pop(0), "")} - {""})
    while len(core) > 1 and core[-1] in _LEGAL_FORMS:
        legal.add(_LEGAL_FORMS[core.pop()])
    return _NameParts(words, tuple(core), frozenset(legal), frozenset(titles))


def _abbreviates(mine: tuple[str, ...], yours: tuple[str, ...]) -> bool:
    """Return whether differing words are initials of each other, and some are whole: `J. Smith` and `John Smith`."""
    pairs = list(zip(mine, yours, strict=False)) if len(mine) == len(yours) else []
    unlike = [(a, b) for a, b in pairs if a != b]
    return 0 < len(unlike) < len(pairs) and all(a[0] == b[0] and 1 in (len(a), len(b)) for a, b in unlike)


def _typo_in_words(mine: tuple[str, ...], yours: tuple[str, ...]) -> SimilarityVerdict:
    """Return the verdict for two names that differ in one word."""
    if len(mine) != len(yours):
        return "other"
    unlike = [(a, b) for a, b in zip(mine, yours, strict=True) if a != b]
    if len(unlike) != 1:
        return "other"
    return _typo(*unlike[0], shortest=_SHORTEST_ALONE if len(mine) == 1 else _SHORTEST_IN_COMPANY)


def _typo(a: str, b: str, *, shortest: int) -> SimilarityVerdict:
    if OSA.distance(a, b, score_cutoff=1) != 1:
        return "other"
    # The first letter is seldom wrong, and the last one distinguishes Mario from Maria.
    if a[0] != b[0] or a[-1] != b[-1] or (_ROMAN.fullmatch(a) and _ROMAN.fullmatch(b)):
        return "other"
    short, long = sorted((a, b), key=len)
    if len(short) >= shortest and _is_common_typo(short, long):
        return "same"
    return "same" if len(long) >= _LONG_ENOUGH_FOR_ANY else "maybe"


def _is_common_typo(short: str, long: str) -> bool:
    """Return whether one differing letter of two words is a common typing error."""
    place = next((place for place, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    fresh = long[place]
    if len(short) < len(long):
        return fresh == long[place - 1] or (fresh == "h" and long[place - 1] in "aeot")
    if short[place + 1 :] == long[place + 1 :]:
        return {short[place], fresh} == {"s", "z"} and len(short) > _SHORTEST_ALONE
    return len(short) >= _LONG_ENOUGH_TO_SWAP
