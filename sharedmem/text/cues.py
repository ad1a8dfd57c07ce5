"""What kind of answer a question asks for, and which kinds a text could give: a time, a number, a name.

Rules for English over single words; a text in another language has few of these cues, which then change nothing. Pure
functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TIME, NUMBER, NAME = 1, 2, 4
"""Bits of the kinds."""
_LONGEST = 3000
"""Characters of a text that are read, from its start."""
_TIME_WORDS = """
yesterday today tonight tomorrow ago last recently week weeks weekend month months year years
monday tuesday wednesday thursday friday saturday sunday summer winter spring autumn fall
january february march april june july august september october november december
"""
_TIMES = frozenset(_TIME_WORDS.split())
_NUMBER_WORDS = """
one two three four five six seven eight nine ten eleven twelve twenty thirty hundred thousand
twice once couple several dozen half
"""
_NUMBERS = frozenset(_NUMBER_WORDS.split())
_YEAR = re.compile(r"(?:19|20)\d\d")
# A capital letter that does not begin a sentence, or something in quotation marks.
_NAMED = re.compile(r'(?<=[a-z,;] )[A-Z][a-z]+|"[^"]+"|\u201c[^\u201d]+\u201d')
_ASKS_TIME = re.compile(
    r"\bwhen\b|\bhow long\b|\b(?:what|which|how many) (?:date|day|month|year|time|week|hour|minute)s?\b"
)
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|often|old|long|far|big|large|high|tall)\b")
_ASKS_NAME = re.compile(r"\b(?:what|which|who|where|whose)\b")


def text_cues(text: str, words: Iterable[str]) -> int:
    """Return which kinds of answer a text contains.

    Args:
        text: the text.
        words: its words, as written.
    """
    known = {word.lower() for word in words}
    has_time = not _TIMES.isdisjoint(known) or any(map(_YEAR.fullmatch, known))
    has_number = not _NUMBERS.isdisjoint(known) or any(word[0].isdigit() for word in known)
    return TIME * has_time | NUMBER * has_number | NAME * (_NAMED.search(text[:_LONGEST]) is not None)


def query_cues(query: str) -> int:
    """Return which kinds of answer a query asks for."""
    asked = query.lower()
    kinds = ((TIME, _ASKS_TIME), (NUMBER, _ASKS_NUMBER), (NAME, _ASKS_NAME))
    return sum(kind for kind, pattern in kinds if pattern.search(asked))
