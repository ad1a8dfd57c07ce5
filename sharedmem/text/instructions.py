"""Standing instructions and preferences in what somebody says: "always name versions when I ask about libraries".

They matter whatever is asked. Rules of English find them by their words (always, never, from now on, when I ask about,
prefer, favourite, hate), and read their topic: what they are about.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from sharedmem.text.analysis import document_terms
from sharedmem.text.sentences import split_sentences

StandingKind = Literal["instruction", "preference"]

_LONGEST = 4_000
"""Characters of a text that are read, from its start."""
_LONGEST_SENTENCE = 600
_MAY_STAND = re.compile(
    r"\b(?:always|never|from now on|going forward|in future|in the future|whenever|every time|each time|when i ask"
    r"|if i ask|prefer\w*|favou?rite|rather(?! not)|hate|dislike|can't stand|cannot stand|don't like|do not like"
    r"|big fan of|remember to|make sure|call me|address me)\b",
    re.IGNORECASE,
)
_LEAD = r"^(?:(?:ok|okay|oh|and|also|so|but|hey|hi|well|please|pls|kindly|yes|no|user|human)\b[,:]?\s*)*"
_INSTRUCTION = re.compile(
    _LEAD + r"(?:always\b|never\b|(?:do not|don't) ever\b|from now on\b|going forward\b|in (?:the )?future\b"
    r"|(?:please )?(?:make sure|remember|be sure)(?: to| you| that you)? (?:always|never)\b|call me\b|address me as\b"
    r"|i (?:want|need|expect) you to (?:always|never)\b|you (?:should|must) (?:always|never)\b"
    r"|(?:whenever|every time|each time|when|if) i ask\b.{1,120},\s*(?:please )?\w+)",
    re.IGNORECASE,
)
# `I always forget` tells a habit; an imperative has no subject before it.
_ASKED_FOR = re.compile(
    _LEAD + r"(?!i\b|we\b|my\b|he\b|she\b|it\b|they\b)\w+\b.{3,200}\bwhen(?:ever)? i ask\b", re.IGNORECASE
)
_PREFERENCE = re.compile(
    r"\b(?:i|we)(?:'d|'m| would| do| am| really| strongly| also| usually| generally| much| just| kinda| still| now)*"
    r" (?:prefer(?:red)?|rather|hate|dislike|can't stand|cannot stand|don't like|do not like)\b"
    r"|\bmy (?:personal |strong )?preference\b|\bmy favou?rites?\b|\bi(?:'m| am) (?:not )?a (?:big |huge )?fan of\b",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"\bwhen(?:ever)? (?:i|we) (?:ask|talk|inquire|have questions?|want to know)(?: you)?"
    r" (?:about|for|on|whether|how)\s+(.+)"
    r"|\b(?:whenever|every time|each time|when|if) i ask (?:about|for)\s+(.+?),"
    r"|\b(?:when it comes to|regarding|concerning)\s+(.+)",
    re.IGNORECASE,
)
_NO_TOPIC_WORDS = """
always never please make sure from now future going forward whenever every time each when ask prefer preference prefers
favourite favorite rather hate dislike stand like really strongly also usually generally instead over than want need
include provide use give tell remember call add keep fan big
"""


_LOOKUP = re.compile(
    r"\b(?:did|was|were|had|have (?:i|we|they|you)|has (?:he|she|it)|how (?:many|much|long|often|old)|ago"
    r"|last (?:week|month|year|time)|who|whose|previous(?:ly)?|earlier|total|so far|recent(?:ly)?|most|current(?:ly)?"
    r"|what is the name|remind me|we (?:discussed|talked)|you (?:said|told|mentioned|gave|recommended))\b",
    re.IGNORECASE,
)


def is_lookup(query: str) -> bool:
    """Return whether a query asks what was said or happened, which instructions and preferences do not answer."""
    return _LOOKUP.search(query) is not None


class Standing(NamedTuple):
    """An instruction or preference that stands until it is replaced."""

    kind: StandingKind
    text: str
    """The sentence."""
    topic: str
    """What it is about, as said; empty if it is about everything."""

    @property
    def terms(self) -> frozenset[str]:
        """The significant words of its topic, as stems; of its sentence if it names none."""
        return frozenset(document_terms(self.topic or self.text)) - _terms_without_topic()


@cache
def _terms_without_topic() -> frozenset[str]:
    return frozenset(document_terms(_NO_TOPIC_WORDS))


def find_standing(text: str) -> Standing | None:
    """Return the first standing instruction of a text, or else its first preference; None without one."""
    text = text[:_LONGEST].replace("\u2019", "'")
    if not _MAY_STAND.search(text):
        return None
    preference: Standing | None = None
    for sentence in split_sentences(text):
        if len(sentence) > _LONGEST_SENTENCE or (sentence.endswith("?") and not _PREFERENCE.search(sentence)):
            continue
        if _INSTRUCTION.search(sentence) or _ASKED_FOR.search(sentence):
            return Standing("instruction", sentence, _topic_of(sentence))
        if preference is None and _PREFERENCE.search(sentence):
            preference = Standing("preference", sentence, "")
    return preference


def _topic_of(sentence: str) -> str:
    found = _TOPIC.search(sentence)
    topic = "" if found is None else next(filter(None, found.groups()), "")
    return topic.strip().rstrip(".!,;")
