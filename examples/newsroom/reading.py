"""Read a document without a language model: facts with figures, and similarities of documents.

Everything here is a pure function of text and an offline heuristic. It knows no answers in
advance: a *finding* is any sentence part with a number, sum of money, date, time or vote; two findings
*contradict* each other if they are about the same subject in mostly the same words, with the same unit
and another value; two documents are *near duplicates* if they share most of their word sequences.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import combinations
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

SHINGLE_WORDS = 4
"""Words in a row that make one shingle."""
SAME_WORDING = 0.4
"""Least weighted Dice of two clauses that state the same fact."""
SAME_TEXT = 0.5
"""Least Jaccard of two documents' shingles for one to be a reprint of the other."""
ROUGH_SLACK = 0.15
"""The relative difference that a value with "about" may have."""

_UNITS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORD_VALUES: dict[str, int] = {
    **{word: value for value, word in enumerate(_UNITS.split(), start=2)},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), start=2)},
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_MONTHS = "January February March April May June July August September October November December"
_MONTH = "|".join(_MONTHS.split())
_SPELLED = "|".join(sorted(_WORD_VALUES, key=len, reverse=True))
_NUMBER = rf"(?:\d[\d,]*(?:\.\d+)?|(?:{_SPELLED})(?:-[a-z]+)?\b)(?:\s(?:{'|'.join(_SCALES)})\b)*"
_VALUE = re.compile(
    rf"\b(?P<date>\d{{1,2}}\s(?:{_MONTH})\s\d{{4}})\b"
    r"|\b(?P<time>\d{1,2}:\d{2}\s[ap]m)\b"
    r"|\b(?P<vote>\d+\svotes?\sto\s\d+)\b"
    rf"|(?<![\w.])(?P<number>{_NUMBER})(?![\w]|\.\d)",
)
_NUMBERED = re.compile(r"\b([a-z]{3,})\s(\d{1,2})\b")
_SENTENCE = re.compile(r"\S.*?(?:[.!?][\"')\]]*(?=\s+[\"'(\[]*[A-Z])|(?=\n[ \t]*\n)|\Z)", re.DOTALL)
_PARAGRAPH = re.compile(r"\S.*?(?=\n[ \t]*\n|\Z)", re.DOTALL)
_CLAUSE_END = re.compile(r"[,;:](?=\s)")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*[a-z]|\d+")
_ROUGH = re.compile(
    r"\b(?:about|around|nearly|almost|some|perhaps|roughly|above|over|near|hardly)\s+(?:\w+\s+)?$", re.IGNORECASE
)
_IRREGULAR = frozenset({"people", "children", "men", "women", "per", "crowns"})
_STOP_WORDS = """
    a about above after again all also an and any are as at be been before being between both but by can could did do
    does each even every few for from had has have he her hers him his how i if in into is it its just made make many
    may me more most much my no nor not of off on one only or other our out over own said same she should since so
    some such than that the their them then there these they this those through to too under until up upon was we
    were what when where which while who whom whose why will with would you your
"""
_STOP = frozenset(_STOP_WORDS.split())
_FEWEST_TERMS = 2
_UNIT_REACH = 3
_HEAD_WORDS = 30


class Finding(BaseModel):
    """One statement with a value in a document."""

    model_config = ConfigDict(frozen=True)

    document: str
    subject: str
    """The subject: the names in the clause, else its first content word."""
    attribute: str
    """The predicate: the other content words, stemmed, in their order."""
    unit: str
    """`date`, `time`, `votes`, or the counted or measured thing in the singular (`crown`, `metre`, `home`)."""
    value: str
    """Normalised: `21300000`, `4.62`, `2021-10-27`, `03:15`, `14:5`."""
    written: str
    """The value as in the document."""
    rough: bool
    """Whether the document calls the value approximate."""
    sentence: str
    position: int
    """Characters from the start of the document to the value."""


class Reading(BaseModel):
    """The data from one document."""

    model_config = ConfigDict(frozen=True)

    document: str
    title: str
    words: int
    findings: tuple[Finding, ...]
    shingles: tuple[int, ...]
    """Sorted checksums of the word sequences, enough to compare documents without their text."""


class Contradiction(NamedTuple):
    """One fact with two values in the documents."""

    unit: str
    likeness: float
    """0 to 1: how alike the closest pair of clauses is."""
    sides: tuple[tuple[Finding, ...], tuple[Finding, ...]]
    """The findings with the one value, and those with the other."""


Fact = tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]
"""A contradiction as a plain value: the unit, then each value with the documents that contain it, all sorted."""


class Duplicate(NamedTuple):
    """Two documents, one of which is the other one, lightly edited."""

    first: str
    second: str
    jaccard: float


class _Clause(NamedTuple):
    """A finding ready for comparison."""

    finding: Finding
    terms: frozenset[str]
    names: frozenset[str]


def read_document(document: str, text: str) -> Reading:
    """Return the reading of `text`, with findings in their order; linear in its length."""
    plain = _without_markup(text)
    return Reading(
        document=document,
        title=plain.strip().splitlines()[0].strip() if plain.strip() else document,
        words=len(plain.split()),
        findings=tuple(findings_of(document, plain)),
        shingles=tuple(sorted(shingles_of(plain))),
    )


def findings_of(document: str, text: str) -> Iterator[Finding]:
    """Yield each value in `text` that has a unit, with the clause around it."""
    for sentence in _SENTENCE.finditer(text, _end_of_head(text)):
        for match in _VALUE.finditer(sentence.group()):
            finding = _finding(document, sentence, match)
            if finding:
                yield finding


def contradictions_among(findings: Iterable[Finding]) -> list[Contradiction]:
    """Return facts for which different documents give different values, the surest first.

    Quadratic in the number of findings of one unit; some hundred findings take milliseconds.
    """
    clauses = [_clause(finding) for finding in findings]
    weights = _weights(clauses)
    by_unit: dict[str, list[_Clause]] = defaultdict(list)
    for clause in clauses:
        by_unit[clause.finding.unit].append(clause)
    rivals: dict[tuple[str, str, str], list[tuple[float, Finding, Finding]]] = defaultdict(list)
    for unit, group in by_unit.items():
        for one, other in combinations(group, 2):
            likeness = _likeness(one, other, weights)
            if likeness >= SAME_WORDING and _disagree(one.finding, other.finding):
                low, high = sorted((one.finding, other.finding), key=lambda finding: finding.value)
                rivals[unit, low.value, high.value].append((likeness, low, high))
    found = (_merged(unit, pairs) for (unit, _, _), pairs in rivals.items())
    return sorted(filter(_takes_two, found), key=lambda contradiction: -contradiction.likeness)


def duplicates_among(readings: Iterable[Reading]) -> list[Duplicate]:
    """Return pairs of documents that share at least `SAME_TEXT` of their shingles, the closest first."""
    ordered = sorted(readings, key=lambda reading: reading.document)
    pairs = (
        Duplicate(one.document, other.document, jaccard(set(one.shingles), set(other.shingles)))
        for one, other in combinations(ordered, 2)
    )
    return sorted((pair for pair in pairs if pair.jaccard >= SAME_TEXT), key=lambda pair: -pair.jaccard)


def fact_of(found: Contradiction) -> Fact:
    """Return the contradiction as a value that can be stored and compared."""
    return as_fact(found.unit, ((side[0].value, [finding.document for finding in side]) for side in found.sides))


def as_fact(unit: str, sides: Iterable[tuple[str, Iterable[str]]]) -> Fact:
    """Return a unit and values with their documents in the one order in which facts compare equal."""
    return unit, tuple(sorted((value, tuple(sorted(documents))) for value, documents in sides))


def shingles_of(text: str) -> set[int]:
    """Return checksums of every run of `SHINGLE_WORDS` words, in lower case and without punctuation."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    runs = (words[start : start + SHINGLE_WORDS] for start in range(max(1, len(words) - SHINGLE_WORDS + 1)))
    return {zlib.crc32(" ".join(run).encode()) for run in runs}


def jaccard(one: set[int], other: set[int]) -> float:
    """Return the share of the union that both sets hold, 0 to 1; empty sets share nothing."""
    union = len(one | other)
    return len(one & other) / union if union else 0.0


def number_of(written: str) -> float | None:
    """Return the number of digits or words such as `forty-one` or `2.3 million`; None if they are not a number."""
    total = 1.0
    for position, word in enumerate(written.replace(",", "").lower().split()):
        factor = _SCALES.get(word) if position else _simple_number(word)
        if factor is None:
            return None
        total *= factor
    return total


def stem(word: str) -> str:
    """Return a crude stem, the same for `pier` and `piers`, `carries` and `carried`, `delay` and `delayed`."""
    word = word.lower().removesuffix("'s").strip("'")
    for suffix, instead in (("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("s", "")):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not (suffix == "s" and word.endswith("ss")):
            return word.removesuffix(suffix) + instead
    return word


def _without_markup(text: str) -> str:
    """Return the text with Markdown's signs replaced by blanks, so that positions stay the same."""
    return re.sub(r"[*_#`>|]", " ", text)


def _end_of_head(text: str) -> int:
    """Return the position of the first real paragraph: title and byline are not about the subject."""
    for paragraph in _PARAGRAPH.finditer(text):
        if len(paragraph.group().split()) >= _HEAD_WORDS:
            return paragraph.start()
    return 0


def _finding(document: str, sentence: re.Match[str], match: re.Match[str]) -> Finding | None:
    known = _measured(sentence.group(), match)
    if known is None:
        return None
    unit, value = known
    clause, offset = _clause_around(sentence.group(), match)
    terms = _terms(_blanked(clause, match.start() - offset, match.end() - offset), unit)
    names = [term for term in terms if _is_name(term)]
    subject = names or terms[:1]
    return Finding(
        document=document,
        subject=" ".join(subject),
        attribute=" ".join(term for term in terms if term not in subject),
        unit=unit,
        value=value,
        written=" ".join(match.group().split()),
        rough=bool(_ROUGH.search(sentence.group()[: match.start()])),
        sentence=" ".join(sentence.group().split()),
        position=sentence.start() + match.start(),
    )


def _measured(sentence: str, match: re.Match[str]) -> tuple[str, str] | None:
    """Return unit and normalised value of a match; None for a bare number, which cannot be compared."""
    written = " ".join(match.group().split())
    if match["date"]:
        return "date", datetime.strptime(written, "%d %B %Y").date().isoformat()  # noqa: DTZ007 - a day has no zone
    if match["time"]:
        return "time", datetime.strptime(written, "%I:%M %p").time().isoformat("minutes")  # noqa: DTZ007 - local time
    if match["vote"]:
        return "votes", ":".join(re.findall(r"\d+", written))
    number, unit = number_of(written), _unit_after(sentence[match.end() :])
    return (unit, f"{number:.12g}") if number is not None and unit else None


def _unit_after(rest: str) -> str | None:
    """Return the counted thing: the first plural among the next words of the same clause."""
    for word in re.split(r"[,;:.()]", rest, maxsplit=1)[0].split()[:_UNIT_REACH]:
        if word.lower() in _STOP or not word[0].isalpha():
            return None
        if word in _IRREGULAR or (word.isalpha() and word.endswith("s") and not word.endswith("ss")):
            return stem(word)
    return None


def _clause_around(sentence: str, match: re.Match[str]) -> tuple[str, int]:
    """Return the clause of the match and its position; the whole sentence if the clause is too short."""
    ends = [end.start() for end in _CLAUSE_END.finditer(sentence)]
    start = max((end + 1 for end in ends if end < match.start()), default=0)
    stop = min((end for end in ends if end >= match.end()), default=len(sentence))
    clause = sentence[start:stop]
    return (clause, start) if len(_terms(clause, "")) > _FEWEST_TERMS else (sentence, 0)


def _blanked(text: str, start: int, stop: int) -> str:
    # A sign, not a blank: the word before the value must not seem to count the word after it.
    return text[:start] + "#" * (stop - start) + text[stop:]


def _terms(clause: str, unit: str) -> list[str]:
    """Return the content words, stemmed, each once; names keep their capital, `pier 4` becomes `pier-4`."""
    words = re.findall(r"[A-Za-z][\w'-]*", _NUMBERED.sub(_labelled, clause))
    kept = (_term(word, first=position == 0) for position, word in enumerate(words) if word.lower() not in _STOP)
    return [term for term in dict.fromkeys(kept) if term and term != unit]


def _labelled(match: re.Match[str]) -> str:
    """Return the text of a match; `pier 4` is a label; `carried 96 passengers` is a count."""
    counts = match[1] in _STOP or _unit_after(match.string[match.end() :])
    return match.group() if counts else f"{match[1]}-{match[2]}"


def _term(word: str, *, first: bool) -> str:
    # The first word of a clause has a capital in any case, so it may not be a name.
    return word if word[0].isupper() and not first else stem(word)


def _is_name(term: str) -> bool:
    return term[0].isupper() or term[-1].isdigit()


def _simple_number(word: str) -> float | None:
    if word[0].isdigit():
        return float(word)
    tens, _, unit = word.partition("-")
    if tens not in _WORD_VALUES or (unit and unit not in {"one", *_WORD_VALUES}):
        return None
    return _WORD_VALUES[tens] + (_WORD_VALUES.get(unit, 1) if unit else 0)


def _clause(finding: Finding) -> _Clause:
    terms = [*finding.subject.split(), *finding.attribute.split()]
    return _Clause(finding, frozenset(map(str.lower, terms)), frozenset(term for term in terms if _is_name(term)))


def _weights(clauses: list[_Clause]) -> dict[str, float]:
    """Return weights by which rare words count more than common ones."""
    seen = Counter(term for clause in clauses for term in clause.terms)
    return {term: math.log(1 + len(clauses) / count) for term, count in seen.items()}


def _likeness(one: _Clause, other: _Clause, weights: dict[str, float]) -> float:
    """Return the weighted Dice of the clauses' words; 0 if they are of one document or name different things."""
    if one.finding.document == other.finding.document or len(one.terms & other.terms) < _FEWEST_TERMS:
        return 0.0
    if one.names and other.names and one.names.isdisjoint(other.names):
        return 0.0
    shared = sum(weights[term] for term in one.terms & other.terms)
    return 2 * shared / sum(weights[term] for clause in (one, other) for term in clause.terms)


def _disagree(one: Finding, other: Finding) -> bool:
    """Return whether the values differ by more than rounding or an `about` allows."""
    if one.value == other.value:
        return False
    if one.unit in {"date", "time", "votes"}:
        return True
    low, high = sorted((float(one.value), float(other.value)))
    slack = ROUGH_SLACK if one.rough or other.rough else 0.0
    return (high - low) > slack * high and not (_rounds_to(low, high) or _rounds_to(high, low))


def _rounds_to(precise: float, rounded: float) -> bool:
    """Return whether `rounded` is `precise` with fewer digits."""
    digits = len(f"{rounded:.12g}".replace(".", "").strip("0"))
    return digits > 1 and math.isclose(float(f"{precise:.{digits}g}"), rounded)


def _merged(unit: str, pairs: list[tuple[float, Finding, Finding]]) -> Contradiction:
    lows = {low.document: low for _, low, _ in pairs}
    highs = {high.document: high for _, _, high in pairs}
    sides = (tuple(lows[name] for name in sorted(lows)), tuple(highs[name] for name in sorted(highs)))
    return Contradiction(unit, max(likeness for likeness, _, _ in pairs), sides)


def _takes_two(contradiction: Contradiction) -> bool:
    """Return whether each value has its own documents; one document with both is about two things."""
    one, other = ({finding.document for finding in side} for side in contradiction.sides)
    return one.isdisjoint(other)
