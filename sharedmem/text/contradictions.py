"""Contradictions between two texts whose embeddings are near.

An embedding hardly distinguishes 2 mg from 20 mg, may from may not, Paris from Rome, `read_key` from `write_key`. A
guard compares the words that only one of the two texts has. A text that merely says less does not contradict, unless
it leaves out a number or a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from sharedmem.text.fact_tokens import normalize_number
from sharedmem.text.vocabulary import CALENDARS, CURRENCIES, ENGLISH_MONTHS

_SHORTEST_PLURAL = 4


def singular(form: str) -> str:
    """Return the form in which a small-letter word is compared: `parents`, `parent's` and `parent` are one."""
    form = form.removesuffix("'s").replace(".", "")
    if len(form) >= _SHORTEST_PLURAL and form[-1] == "s" and form[-2] not in "su'":
        return form[:-1]
    return form


def _singular_words(text: str) -> list[str]:
    return [singular(word) for word in text.split()]


NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        _singular_words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen twenty"
        )
    )
} | {
    "first": "1",
    "second": "2",
    "third": "3",
    "fourth": "4",
    "fifth": "5",
    "sixth": "6",
    "seventh": "7",
    "eighth": "8",
    "ninth": "9",
    "tenth": "10",
    "eleventh": "11",
    "twelfth": "12",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
    "hundred": "100",
    "thousand": "1000",
    "million": "1000000",
    "billion": "1000000000",
}
ALSO_WORDS = frozenset({"one", "first", "second"})
"""Numbers that often have another meaning: `one` as a pronoun, `first` of all, wait a `second`."""

NEGATIONS = frozenset(
    _singular_words(
        "not no never without none nobody nothing neither nor cannot unable impossible non "
        "cant dont doesnt didnt isnt arent wasnt werent wont wouldnt shouldnt couldnt hasnt havent hadnt aint "
        "nicht kein keine ohne nie jamais sans nunca"
    )
)

_ALIASES = """
    % percent, percentage percent, pct percent, rs rupee, kilogram kg, kilogramme kg, kilo kg, gram g, gramme g,
    milligram mg, kilometer km, kilometre km, meter m, metre m, centimeter cm, centimetre cm, millimeter mm,
    millimetre mm, feet foot, ft foot, inche inch, liter l, litre l, milliliter ml, millilitre ml, millisecond ms,
    sec second, min minute, hr hour, yr year, kilobyte kb, megabyte mb, gigabyte gb, terabyte tb, usa us
"""
_CURRENCY_ALIASES = {
    alias: names.split()[0] for sign, names in CURRENCIES.items() for alias in (sign, names.split()[1])
}
_MONTH_ALIASES = {name: ENGLISH_MONTHS[number - 1] for name, number in CALENDARS["en"].month_numbers().items()}
ALIASES = dict(pair.split() for pair in _ALIASES.split(",")) | _CURRENCY_ALIASES | _MONTH_ALIASES
"""Spellings of the same unit, month or country; in the singular."""

_MEASURES = (
    "percent dollar euro pound rupee yen",
    "mg g kg ton",
    "mm cm m km inch foot yard mile",
    "ml l gallon",
    "ms second minute hour day week month year decade century",
    "daily weekly monthly yearly",
    "kb mb gb tb",
    "celsius fahrenheit kelvin",
    "am pm",
)
_DATES = (
    " ".join(ENGLISH_MONTHS),
    CALENDARS["en"].weekdays,
    "today yesterday tomorrow",
)
_OPPOSITES = (
    "more less fewer",
    "most least",
    "higher lower",
    "high low",
    "highest lowest",
    "maximum minimum",
    "maximize minimize",
    "maximise minimise",
    "max min",
    "increase decrease reduce",
    "increasing decreasing reducing",
    "increased decreased reduced",
    "increase lower",
    "rise fall",
    "rises falls",
    "rose fell",
    "rising falling",
    "risen fallen",
    "gain lose loss",
    "add remove delete",
    "before after",
    "early late",
    "earlier later",
    "above below",
    "over under",
    "inside outside",
    "up down",
    "left right",
    "front back",
    "top bottom",
    "upper lower",
    "north south east west",
    "northern southern eastern western",
    "best worst",
    "better worse",
    "good bad",
    "strongest weakest",
    "strong weak",
    "strength weakness",
    "advantage disadvantage",
    "benefit drawback",
    "pro con",
    "cheap expensive",
    "cheapest expensive",
    "fast slow",
    "faster slower",
    "hot cold",
    "old new",
    "oldest newest",
    "older younger",
    "old young",
    "big small",
    "bigger smaller",
    "biggest smallest",
    "large small",
    "larger smaller",
    "largest smallest",
    "long short",
    "longer shorter",
    "longest shortest",
    "tall short",
    "deep shallow",
    "thick thin",
    "heavy light",
    "full empty",
    "open close closed",
    "start stop end",
    "begin end finish",
    "enable disable",
    "enabled disabled",
    "activate deactivate",
    "allow forbid prevent",
    "allowed forbidden",
    "accept reject",
    "accepted rejected",
    "approve reject",
    "approved rejected",
    "grant revoke",
    "install uninstall",
    "lock unlock",
    "block unblock",
    "connect disconnect",
    "encrypt decrypt",
    "import export",
    "upload download",
    "login logout",
    "buy sell",
    "bought sold",
    "buying selling",
    "lend borrow",
    "win lose",
    "won lost",
    "love hate",
    "like dislike",
    "agree disagree",
    "true false",
    "valid invalid",
    "legal illegal",
    "possible impossible",
    "safe dangerous",
    "public private",
    "internal external",
    "male female",
    "man woman",
    "men women",
    "boy girl",
    "boyfriend girlfriend",
    "husband wife",
    "father mother",
    "dad mom",
    "brother sister",
    "son daughter",
    "he she",
    "his her",
    "past future present",
    "pass fail",
    "success failure",
    "succeed fail",
    "on off",
    "online offline",
    "hire fire",
    "introvert extrovert",
    "rural urban",
    "odd even",
    "positive negative",
    "profit loss",
    "input output",
    "first last",
    "all some",
    "always sometimes rarely",
    "< > = <= >= == != ≤ ≥ ≠",
)


def _opposites_by_word(groups: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Return for each word its opposites."""
    others: dict[str, frozenset[str]] = {}
    for group in groups:
        words = frozenset(_singular_words(group))
        for word in words:
            others[word] = others.get(word, frozenset()) | (words - {word})
    return others


UNITS = _opposites_by_word(_MEASURES + _DATES)
MEASURES = frozenset(_opposites_by_word(_MEASURES))
OPPOSITES = _opposites_by_word(_OPPOSITES)

COMMON_OPENERS = frozenset(
    _singular_words(
        "a about above according after again all almost also although always am among an and another any anyone "
        "anything are as at based be because been before being below besides best better between both but by can "
        "compare could currently dear define describe did difference differentiate discuss do does doing done due "
        "during each either else ever every everyone everything evaluate examples except explain few find first "
        "finally following for from generally generate get give given has hasn't have haven't having he hello "
        "help her here hers hey hi his how however i if imagine in instead into is isn't it its itself just last "
        "lately later let list long look made make many may maybe me mine more most much must my name near need "
        "next no nobody none not nothing now of off often on once one only or other others our out over own "
        "people per perhaps please provide rather really recently say seriously several shall she should show "
        "since so some somebody someone something sometimes soon still such suggest summarise summarize suppose "
        "tell than that the their theirs them then there these they thing things think this those though through "
        "thus to today together tomorrow tonight too translate true under unlike until up upon us use used using "
        "usually very was wasn't way ways we were weren't what whatever when whenever where whether which while "
        "who whom whose why will with without won't would wouldn't write yes yesterday yet you your yours user "
        "customer agent i'm i've i'll i'd"
    )
)
"""Words that are not names, capitalised or not."""


# Not `text.fact_tokens`: these tokens include negations, names by capitals, comparisons and ends of sentences.
_TOKEN = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.S.
    r"|[^\W\d_]{1,64}(?:['’][^\W\d_]{1,16})?(?:\+\+|\#)?"  # noqa: RUF001  # people type this apostrophe
    r"|(?<![\w.)])[-\u2212]?\d[\d.,:/]*(?<![.,:/])(?:(?:st|nd|rd|th|k)\b)?"  # 1,000 · 2.1.4 · 10:30 · 3/5 · 4th · -5
    r"|\d+(?:[.,:/]\d+)*"  # the 4 of iPhone4 and GPT-4
    r"|[<>=!]=|[<>=≤≥≠%$€£₹¥?!.;:\n]"
)
# Names of code, files and hosts, which tokens split into words: `parse_config`, `src/api/client.py`, `api.example.com`.
_IDENTIFIER = re.compile(
    r"(?<![\w/.-])(?:"
    r"(?P<code>/[\w.-]{1,64}(?:/[\w.-]{1,64}){1,16}"  # /etc/hosts
    r"|/?[\w-]{1,64}(?:/[\w-]{1,64}){1,16}\.[a-z]\w{0,15}"  # src/client.py
    r"|[^\W_]{1,64}(?:_{1,4}[^\W_]{1,64}){1,16})"  # parse_config
    r"|[^\W_][\w-]{1,64}(?:\.[a-z][\w-]{1,64}){1,8})"  # client.py, api.example.com
)
_QUOTED = re.compile(r"""(?<!\w)(?:"([^"]{2,80})"|'([^']{2,80})'(?!\w)|`([^`]{2,80})`|“([^”]{2,80})”)""")
_IDENTIFIER_SIGN = re.compile(r"""[_/"'`“]|\.[a-z]""")
_SENTENCE_ENDS = frozenset("?!.;:\n")
_EMPTY_FORM = {""}
_CONJUNCTIONS = frozenset({"and", "or", "nor", "vs", "versus", "between"})
_DEMONYM_ENDINGS = ("n", "an", "ese")
_PAIR_SIZE = 2
_TITLE = 4
"""Capitals from which a text may be a title."""

_WordKind = Literal["word", "number", "maybe number", "negation", "end"]


class _ComparedWord(NamedTuple):
    """A word of a text, in the form that is compared."""

    form: str
    kind: _WordKind
    capital: bool
    """Whether it begins with a capital letter."""
    acronym: bool
    """Whether it has a capital letter further on."""


class _ComparedText(NamedTuple):
    """A text, in the form that is compared."""

    words: list[_ComparedWord]
    forms: set[str]


def find_contradiction(a: str, b: str) -> str | None:
    """Return the first contradiction of two texts that a guard finds.

    Args:
        a, b: two texts that seem near; their order does not matter.

    Returns:
        `numbers` (amounts, dates, versions, units), `negation`, `names` (of code and files, too), `opposites` or
            `order` (the same words with two of them exchanged); None without a contradiction. About 20 microseconds
            for two sentences, and linear in their length.
    """
    if a == b:
        return None
    if _identifiers_differ(a, b):
        return "names"
    left, right = _parse_text(a), _parse_text(b)
    fresh_left, fresh_right = left.forms - right.forms, right.forms - left.forms
    if not fresh_left and not fresh_right:
        return "order" if _are_words_swapped(left.words, right.words) else None
    mine = [word for word in left.words if word.form in fresh_left]
    yours = [word for word in right.words if word.form in fresh_right]
    if _numbers_differ(mine, yours) or _has_opposite(fresh_left, fresh_right, UNITS):
        return "numbers"
    if (_has_negation(mine) or _has_negation(yours)) and _has_negation(left.words) != _has_negation(right.words):
        return "negation"
    if _names_differ(left, right, fresh_left, fresh_right):
        return "names"
    return "opposites" if _has_opposite(fresh_left, fresh_right, OPPOSITES) else None


def _identifiers_differ(a: str, b: str) -> bool:
    """Return whether only one text names some code or path, or each has a name in quotes or with dots of its own."""
    if not (_IDENTIFIER_SIGN.search(a) or _IDENTIFIER_SIGN.search(b)):
        return False
    (code_a, other_a), (code_b, other_b) = _identifiers(a), _identifiers(b)
    return code_a != code_b or bool(other_a - other_b and other_b - other_a)


def _identifiers(text: str) -> tuple[set[str], set[str]]:
    """Return (names of code and paths, names with dots and in quotes) in a text."""
    code: set[str] = set()
    others = {" ".join("".join(found).casefold().split()).strip(" .,;!?") for found in _QUOTED.findall(text)}
    for found in _IDENTIFIER.finditer(text):
        (code if found["code"] else others).add(found[0].casefold().strip("/.-"))
    return code, others


def is_negated(text: str) -> bool:
    """Return whether a text has a word such as `not`, `never` or `don't`."""
    return _has_negation(_parse_text(text).words)


# A memory that is added is compared with each one near to it.
@lru_cache(maxsize=512)
def _parse_text(text: str) -> _ComparedText:
    words = list(map(_parse_word, _TOKEN.findall(text)))
    return _ComparedText(words, {word.form for word in words} - _EMPTY_FORM)


@lru_cache(maxsize=16_384)
def _parse_word(token: str) -> _ComparedWord:
    """Return a word in the form that is compared: case, plural and possessive do not count."""
    if token in _SENTENCE_ENDS:
        return _ComparedWord("", "end", capital=False, acronym=False)
    if token[-1].isdigit() or token[0].isdigit():
        return _ComparedWord(_number_form(token), "number", capital=False, acronym=False)
    form = singular(token.casefold().replace("’", "'"))  # noqa: RUF001  # people type this apostrophe
    if form in NUMBERS:
        kind: _WordKind = "maybe number" if form in ALSO_WORDS else "number"
        return _ComparedWord(NUMBERS[form], kind, capital=False, acronym=False)
    if form in NEGATIONS or form.endswith("n't"):
        return _ComparedWord(form, "negation", capital=False, acronym=False)
    return _ComparedWord(ALIASES.get(form, form), "word", token[0].isupper(), any(map(str.isupper, token[1:])))


def _number_form(token: str) -> str:
    """Return the normal form of an amount, version or time: `1k` is `1000`, `3.0` is `3`, `05:30` is `5:30`."""
    text = token.casefold().replace("\u2212", "-")
    if text.endswith("k") and text[:-1].isdecimal():
        text = f"{text[:-1]}000"
    text = normalize_number(text) or text.replace(",", ".")
    return text.removesuffix(".0").lstrip("0") or "0"


def _numbers_differ(left: list[_ComparedWord], right: list[_ComparedWord]) -> bool:
    """Return whether only one text has a number; a word that may be a number counts only against another number."""
    if any(word.kind == "number" for word in left) or any(word.kind == "number" for word in right):
        return True
    return all(any(word.kind == "maybe number" for word in side) for side in (left, right))


def _has_negation(words: list[_ComparedWord]) -> bool:
    return any(word.kind == "negation" for word in words)


def _names_differ(left: _ComparedText, right: _ComparedText, fresh_left: set[str], fresh_right: set[str]) -> bool:
    """Return whether only one text has a name; a word that may be a name counts only against another name.

    A name of one text may be in lower case in the other: not every user types capitals.
    """
    mine, yours = (
        _classify_capitals(left.words, fresh_left, right.forms),
        _classify_capitals(right.words, fresh_right, left.forms),
    )
    return "name" in (mine, yours) or mine == yours == "maybe name"


def _classify_capitals(
    words: list[_ComparedWord], fresh: set[str], others: set[str]
) -> Literal["name", "maybe name", "none"]:
    """Return whether the capitalised words that only this text has are names."""
    candidates = {word for word in words if word.capital and word.form in fresh and _may_name(word, others)}
    if not candidates:
        return "none"
    inner = [word for before, word in pairwise(words) if before.kind != "end" and word.kind == "word"]
    capitals = sum(word.capital for word in inner)
    if capitals >= _TITLE and 2 * capitals > len(inner):  # as in a title, where capitals mean little
        return "maybe name"
    return "name" if any(word.acronym or word in inner for word in candidates) else "maybe name"


def _may_name(word: _ComparedWord, others: set[str]) -> bool:
    if word.form in MEASURES or (word.form in COMMON_OPENERS and not word.acronym):
        return False
    # `India` and `Indian`, `Japan` and `Japanese`
    kin = [word.form + ending for ending in _DEMONYM_ENDINGS]
    kin += [word.form.removesuffix(ending) for ending in _DEMONYM_ENDINGS if word.form.endswith(ending)]
    return others.isdisjoint(kin)


def _has_opposite(fresh: set[str], others: set[str], opposites: Mapping[str, frozenset[str]]) -> bool:
    """Return whether a word of these is an opposite of one of the others."""
    return any(not others.isdisjoint(opposites[form]) for form in fresh if form in opposites)


def _are_words_swapped(left: list[_ComparedWord], right: list[_ComparedWord]) -> bool:
    """Return whether two words have changed places, which matters unless they are equals (`A and B`)."""
    mine, yours = ([word.form for word in words if word.kind != "end"] for words in (left, right))
    if len(mine) != len(yours):
        return False
    moved = [place for place, (a, b) in enumerate(zip(mine, yours, strict=True)) if a != b]
    if len(moved) != _PAIR_SIZE or any(mine[place] in COMMON_OPENERS for place in moved):
        return False
    first, last = moved
    if (mine[first], mine[last]) != (yours[last], yours[first]):
        return False
    if (mine[first] in MEASURES) != (mine[last] in MEASURES):  # `$5` and `5 dollars`
        return False
    return _CONJUNCTIONS.isdisjoint(mine[first + 1 : last])
