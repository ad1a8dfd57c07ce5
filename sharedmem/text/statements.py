"""What short statements say: claims that a later one replaces, standing instructions, and cues of answers.

Only attributes that have one value at a time are claims: home, employer, marital status, what a functional noun names
("my phone number is", "the deadline of the report is now"), a measure ("the crane on pier 3 lifts 40 tons"). Likes,
visits and other events add up instead. A long text is a document and makes no claim.

Instructions and preferences, such as "always name versions when I ask about libraries", matter whatever is asked. Rules
find them by their words (always, never, from now on, when I ask about, prefer, favourite, hate), and read their topic.

A cue is a single word that shows what kind of answer a question asks for, or a text could give: a time, a number, a
name. All are rules of English: a text in another language has few of these words, which then change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Literal, NamedTuple

from sharedmem.text.analysis import document_terms
from sharedmem.text.sentences import split_sentences

LONGEST_STATEMENT = 400
"""Characters from which a text is a document."""
_MOST_CLAIMS = 4
_SUBJECT = r"(?P<subject>I|[Ww]e|[Hh]e|[Ss]he|[A-Z][\w']+(?: [A-Z][\w']+)?|[Tt]he [\w ]{2,40}?)"
_ADVERB = r"(?:'ve|'m| have| has| had| am| is| are| now| just| recently| currently| also| still| finally)*"
_NOT_WITHIN = r"(?:[^.,;!?]|\.(?=\d))"
_VALUE = rf"\b(?P<value>(?! (?:me|you|him|her|us|them|in|up)\b){_NOT_WITHIN}{{2,60}})"
_ATTRIBUTES = tuple(
    (attribute, re.compile(rf"\b{_SUBJECT}{_ADVERB} {rest}"))
    for attribute, rest in (
        ("home", rf"(?:lives?|living|resides?|moved|relocated|settled) (?:in|to|at){_VALUE}"),
        ("employer", rf"(?:works?|working|employed) (?:for|at|by){_VALUE}"),
        ("employer", rf"(?:joined|(?:started|began) (?:work(?:ing)? )?(?:at|with)){_VALUE}"),
        ("status", r"(?P<value>married|single|divorced|engaged|widowed|retired)\b"),
    )
)
_FUNCTIONAL_WORDS = """
address phone number email name age price cost budget deadline date version password manager boss owner capital ceo
limit speed size weight height status location time rate salary port url favourite favorite capacity fee code model
leader team lead supervisor landlord dentist doctor car default colour color plan goal target quota
"""
_FUNCTIONAL = "|".join(_FUNCTIONAL_WORDS.split())
_NAMED = re.compile(
    rf"\b(?P<whose>[Mm]y|[Oo]ur|[Tt]he|[A-Z][\w]+'s) (?P<noun>(?:[\w-]+ ){{0,3}}?(?:{_FUNCTIONAL})(?: [\w-]+){{0,5}}?)"
    r" (?:is|are|was (?:changed|moved|set) to|has (?:changed|moved) to|changed to|will be)(?: now| currently)?\b"
    rf"(?P<value>{_NOT_WITHIN}{{1,60}})"
)
_MEASURE = re.compile(
    r"^(?P<subject>(?:The|My|Our|[A-Z])[\w' -]{2,60}?) (?:now |currently )?"
    r"(?P<verb>is|costs?|takes?|weighs?|lifts?|holds?|has|contains?|allows?|lasts?|pays?|opens?|closes?|starts?|ends?)"
    r" (?P<rest>(?:now |currently |at |only )*[$€£]?\d[\d.,:]*(?: ?[\w%°/€$£]+){0,3})\W*$"
)
_NUMBER = re.compile(r"[\d.,:]+")
_FILLERS = frozenset({"now", "currently", "only", "just", "the", "a", "an"})
_FIRST_PERSON = frozenset({"i", "we", "my", "our"})


class StatementClaim(NamedTuple):
    """What a statement says of a subject, in a form that is compared."""

    subject: str
    """In small letters; empty for the speaker."""
    attribute: str
    value: str

    def encoded(self, owner: str) -> str:
        """Return the claim as 16 hexadecimal digits: twelve for what it is about, four for the value.

        Args:
            owner: whose the statement is: the same words of two users are two claims.
        """
        about = blake2b(f"{owner}\0{self.subject}\0{self.attribute}".encode(errors="replace"), digest_size=6)
        return about.hexdigest() + blake2b(self.value.encode(errors="replace"), digest_size=2).hexdigest()


def claims_of(text: str) -> tuple[StatementClaim, ...]:
    """Return the claims of a short text, each attribute of a subject once; none of a question or a document."""
    if len(text) > LONGEST_STATEMENT:
        return ()
    found: dict[tuple[str, str], StatementClaim] = {}
    for sentence in split_sentences(text):
        if sentence.endswith("?"):
            continue
        for claim in _claims_of_sentence(sentence):
            found[claim.subject, claim.attribute] = claim
    standing = find_standing(text)
    if standing is not None and standing.kind == "instruction":
        topic = " ".join(sorted(standing.terms)) if standing.topic else ""
        if topic:
            found["", f"instruction {topic}"] = StatementClaim("", f"instruction {topic}", _normal(standing.text))
    return tuple(found.values())[:_MOST_CLAIMS]


def _claims_of_sentence(sentence: str) -> list[StatementClaim]:
    named = _NAMED.search(sentence)
    if named is not None:
        whose = named["whose"].lower().removesuffix("'s")
        subject = "" if whose in _FIRST_PERSON or whose == "the" else whose
        # `the address` may be anybody's, and is another one than `my address`.
        noun = " ".join([*(["the"] if whose == "the" else []), *sorted(set(document_terms(named["noun"])))])
        return [StatementClaim(subject, noun, _normal(named["value"]))]
    found = [(attribute, pattern.search(sentence)) for attribute, pattern in _ATTRIBUTES]
    claims = [
        StatementClaim(_subject(one["subject"]), attribute, _normal(one["value"])) for attribute, one in found if one
    ]
    measure = _MEASURE.match(sentence)
    if measure is None or claims:
        return claims
    about = " ".join(document_terms(f"{measure['subject']} {measure['verb']}"))
    unit = _NUMBER.sub("#", _normal(measure["rest"]))
    return [StatementClaim("", f"{about} {unit}", _normal(measure["rest"]))]


def _subject(text: str) -> str:
    plain = text.lower()
    return "" if plain in _FIRST_PERSON else plain.removeprefix("the ")


def _normal(value: str) -> str:
    return " ".join(word for word in value.lower().split() if word not in _FILLERS).strip(" .,;!'\"")


# -- instructions and preferences ----------------------------------------------------------------


StandingKind = Literal["instruction", "preference"]

_LONGEST_INSTRUCTING = 4_000
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
    r"|last (?:week|month|year|time)|who|whose|previous(?:ly)?|earlier|so far|recent(?:ly)?|most|current(?:ly)?"
    r"|total|average|minimum|maximum|difference (?:in|between)|happened|(?:which|what) order|order of"
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
    text = text[:_LONGEST_INSTRUCTING].replace("\u2019", "'")
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


# -- cues of answers -----------------------------------------------------------------------------


TIME, NUMBER, NAME = 1, 2, 4
"""Bits of the kinds."""
_LONGEST_CUED = 3000
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
_CAPITAL_NAME = re.compile(r'(?<=[a-z,;] )[A-Z][a-z]+|"[^"]+"|\u201c[^\u201d]+\u201d')
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
    return TIME * has_time | NUMBER * has_number | NAME * (_CAPITAL_NAME.search(text[:_LONGEST_CUED]) is not None)


def query_cues(query: str) -> int:
    """Return which kinds of answer a query asks for."""
    asked = query.lower()
    kinds = ((TIME, _ASKS_TIME), (NUMBER, _ASKS_NUMBER), (NAME, _ASKS_NAME))
    return sum(kind for kind, pattern in kinds if pattern.search(asked))
