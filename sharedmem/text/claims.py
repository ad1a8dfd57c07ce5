"""Claims of short statements that a later statement of the same subject replaces: where somebody lives, a deadline.

Only attributes that have one value at a time are claims: home, employer, marital status, what a functional noun names
("my phone number is", "the deadline of the report is now"), a measure ("the crane on pier 3 lifts 40 tons"). Likes,
visits and other events add up instead. Rules of English; a long text is a document and makes no claim.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

from sharedmem.text.analysis import document_terms
from sharedmem.text.instructions import find_standing
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
