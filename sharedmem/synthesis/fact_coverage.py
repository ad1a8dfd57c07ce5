"""Check that a consolidated note still contains the facts of its sources, and is at least as long.

Facts are what patterns can recognise: a number, an amount with its sign, a date, an e-mail
address, a URL, an id (`A-123`, `order_77`, hexadecimal), a name, a quoted title. Names are words with a capital
letter inside a sentence. At its beginning every word has one, so there only words with another capital count
(`NASA`, `GitHub`). In scripts without capitals only quoted titles are known. A result that rewords a fact is
rejected: the notes do not change, and nothing is lost.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.synthesis.note_text import KEYWORDS, LEAD_INS, TAGS, parse_sections
from sharedmem.text.analysis import split_sentences
from sharedmem.text.contradictions import COMMON_OPENERS
from sharedmem.text.fact_tokens import FactToken, PartialDate, fact_tokens, find_dates, plain_characters
from sharedmem.text.vocabulary import CALENDAR_NAMES

MOST_NAMED = 5
"""Missing facts that an error names."""

_LEAD_IN = re.compile(
    rf"(?<!\S)(?:{'|'.join(re.escape(words.strip()) for words in LEAD_INS)})(?=\s)".replace(
        "'", "['\N{RIGHT SINGLE QUOTATION MARK}]"
    )
)
_LABELS = frozenset({TAGS, KEYWORDS})
"""Sections whose capitals are not names; their near-duplicates are dropped on purpose."""
_STOP = re.compile(r"[.!?;|\n\"“”„«»\[\]{}<>=#*•…。、「」『』《》]|\s-")
_PIECE = re.compile(r"[^\W_]+|\W")
_SPEAKERS = frozenset({"user", "assistant", "system", "tool"})
_CLAUSE = re.compile(r"[:(]")
_IN_NAME = re.compile(r" ?|[-']| ?& ?")
_AFTER_INITIAL = re.compile(r"\. ?")
_ABBREVIATED = frozenset({"dr", "mr", "mrs", "ms", "mx", "prof", "st", "sr", "sra", "jr"})
# In German, pronouns of address are capitalised.
_NO_NAMES = COMMON_OPENERS | {"sie", "ihnen", "ihr", "ihre", "ihrem", "ihren", "ihrer", "ihres"}
_LONGEST_NAME = 12
"""Most words in capitals of one name; texts all in capitals are split into words."""
_TITLE = re.compile(
    r"\"([^\"\n]{1,80})\"|“([^”\n]{1,80})”|„([^“”\n]{1,80})[“”]|«([^»\n]{1,80})»|「([^」\n]{1,80})」"
    r"|『([^』\n]{1,80})』|《([^》\n]{1,80})》"
)
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")

TokenRun = tuple[str, ...]


class _Fact(NamedTuple):
    start: int
    text: str
    runs: tuple[TokenRun, ...]
    """Sequences of tokens, any of which contains the fact."""
    day: PartialDate | None = None
    is_label: bool = False
    """Whether it is a tag or keyword, which may be a part of something longer: `17` of `17:00`."""


class _TextFacts:
    """The facts of a text, to look other facts up."""

    def __init__(self, text: str) -> None:
        text = plain_characters(text)
        tokens = fact_tokens(text)
        self._forms = [token.form for token in tokens]
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, form in enumerate(self._forms):
            self._places[form].append(place)
        self._pieces = {piece for form in self._forms for piece in _PIECE.findall(form)}
        self._days = {dated.day for dated in find_dates(text, tokens)}

    def has(self, fact: _Fact) -> bool:
        if any(map(self._has_run, fact.runs)):
            return True
        if fact.is_label and self._pieces.issuperset(piece for form in fact.runs[0] for piece in _PIECE.findall(form)):
            return True
        return fact.day is not None and any(map(fact.day.is_implied_by, self._days))

    def _has_run(self, run: TokenRun) -> bool:
        # Search by its rarest token: a `$` is before every amount.
        at = min(range(len(run)), key=lambda place: len(self._places.get(run[place], ())))
        starts = (place - at for place in self._places.get(run[at], ()) if place >= at)
        return any(tuple(self._forms[start : start + len(run)]) == run for start in starts)


def missing_facts(inputs: Sequence[str], result: str) -> list[str]:
    """Return the facts of the inputs that the result lacks, in their spelling and order, each once.

    `1,000` is `1000`, `$40` is `40 dollars`, capitals do not matter, and a date may have another format. Headings and
    lead-ins of notes are not facts. A result that quotes all inputs whole lacks nothing. Linear in the texts' lengths.
    """
    found_facts = _TextFacts(result)
    facts: dict[TokenRun, _Fact] = {}
    for text in inputs:
        for fact in _facts(text):
            known = facts.get(fact.runs[0])
            if known is None or (known.is_label and not fact.is_label):
                facts[fact.runs[0]] = fact
    return [fact.text for fact in facts.values() if not found_facts.has(fact)]


def is_long_enough(inputs: Sequence[str], result: str) -> bool:
    """Return whether the result is at least as long as the longest of the inputs.

    "Self-Evolving Composite Memory Synthesis Architecture", section 3.3 Synthesis Agent: output length >= longest
    input. The count is of characters with single blanks, and a repeated sentence or line counts only once: neither
    blanks nor repetition add content, and a repetition in an input need not be kept.
    """
    return _length(result) >= max(map(_length, inputs), default=0)


def check_facts_preserved(inputs: Sequence[str], result: str) -> None:
    """Check that no fact of the inputs was dropped.

    Raises:
        InvalidError: the result lacks facts, up to five of which are named, or is too short.
    """
    if missing := missing_facts(inputs, result):
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        named = ", ".join(map(repr, missing[:MOST_NAMED]))
        raise InvalidError("consolidation", result, f"it lacks {named}{more}; keep every number, date, name and id")
    if not is_long_enough(inputs, result):
        raise InvalidError("consolidation", result, "it is shorter than the longest of its notes; keep all content")


# -- reading facts ----------------------------------------------------------------------------


def _facts(note: str) -> Iterator[_Fact]:
    for section, body in parse_sections(note).items():
        text = plain_characters(_LEAD_IN.sub("\n", body))
        tokens = fact_tokens(text)
        dated = list(find_dates(text, tokens))
        used = {place for date in dated for place in range(date.first, date.last + 1)}
        facts = [_fact(text, tokens[date.first : date.last + 1], day=date.day) for date in dated]
        facts += _number_facts(text, tokens, used)
        if section in _LABELS:
            facts = [fact._replace(is_label=True) for fact in facts]
        else:
            facts += _name_facts(text, tokens, used)
            facts += _title_facts(text, tokens)
        yield from sorted(facts, key=lambda fact: fact.start)


def _fact(text: str, tokens: Sequence[FactToken], *, day: PartialDate | None = None) -> _Fact:
    start, end = tokens[0].start, tokens[-1].end
    return _Fact(start, text[start:end], (_run(tokens),), day)


def _run(tokens: Sequence[FactToken]) -> TokenRun:
    return tuple(token.form for token in tokens)


def _number_facts(text: str, tokens: Sequence[FactToken], used: set[int]) -> Iterator[_Fact]:
    """Yield numbers with their units and signs, ids and addresses."""
    for place, token in enumerate(tokens):
        if place in used or token.kind not in {"number", "code", "link"}:
            continue
        parts = list(tokens[place : place + 1])
        if _is_unit_of(token, tokens[place + 1 : place + 2]):
            parts.append(tokens[place + 1])
        yield _with_sign(text, tokens, place, parts)


def _is_unit_of(number: FactToken, after: Sequence[FactToken]) -> bool:
    return bool(after) and after[0].kind == "unit" and after[0].start == number.start


def _with_sign(text: str, tokens: Sequence[FactToken], place: int, parts: list[FactToken]) -> _Fact:
    after = place + len(parts)
    if place and tokens[place - 1].is_prefix and _is_tight(text, tokens[place - 1], tokens[place]):
        sign, spoken = tokens[place - 1], [tokens[place - 1], *parts]
    elif after < len(tokens) and tokens[after].kind == "sign" and _is_tight(text, parts[-1], tokens[after]):
        sign, spoken = tokens[after], [*parts, tokens[after]]
    else:
        return _fact(text, parts)
    start, end = spoken[0].start, spoken[-1].end
    return _Fact(start, text[start:end], (_run([sign, *parts]), _run([*parts, sign])))


def _is_tight(text: str, before: FactToken, after: FactToken) -> bool:
    return text[before.end : after.start] in {"", " "}


def _title_facts(text: str, tokens: Sequence[FactToken]) -> Iterator[_Fact]:
    for match in _TITLE.finditer(text):
        start, end = match.span(match.lastindex or 0)
        inside = [token for token in tokens if start <= token.start and token.end <= end]
        if inside and _is_title(text[start:end]):
            yield _fact(text, inside)


def _is_title(quoted: str) -> bool:
    """Return whether a text in quotes is the name of a thing, and not a statement."""
    if quoted != quoted.strip() or quoted[0].islower() or quoted[-1] in ".!?":
        return False
    return not any(word[0].islower() for word in _LONG_WORD.findall(quoted))


def _name_facts(text: str, tokens: Sequence[FactToken], used: set[int]) -> Iterator[_Fact]:
    run: list[FactToken] = []
    for place, token in enumerate(tokens):
        is_name = place not in used and _is_name(text, tokens, place)
        if run and not (is_name and len(run) < _LONGEST_NAME and _continues_name(text, run[-1], token)):
            yield _fact(text, run)
            run = []
        if is_name:
            run.append(token)
    if run:
        yield _fact(text, run)


def _continues_name(text: str, before: FactToken, token: FactToken) -> bool:
    """Return whether two capitalised words belong to one name; days and months are names of their own."""
    if before.form in CALENDAR_NAMES or token.form in CALENDAR_NAMES:
        return False
    gap = text[before.end : token.start]
    return bool(_IN_NAME.fullmatch(gap) or (_is_abbreviation(before) and _AFTER_INITIAL.fullmatch(gap)))


def _is_name(text: str, tokens: Sequence[FactToken], place: int) -> bool:
    token = tokens[place]
    word = text[token.start : token.end]
    if token.kind != "word":
        return False
    if any(map(str.isupper, word[1:])):
        return True
    if not (word[0].isupper() or word[0].istitle()) or token.form in _NO_NAMES or place == 0:
        return False
    before = tokens[place - 1]
    gap = text[before.end : token.start]
    if before.form in _SPEAKERS and gap.startswith(":"):
        return False
    if _STOP.search(gap):
        return bool(_is_abbreviation(before) and _AFTER_INITIAL.fullmatch(gap))
    return not (_CLAUSE.search(gap) and _is_before_lowercase(text, tokens, place))


def _is_abbreviation(token: FactToken) -> bool:
    """Return whether a full stop after it does not end a sentence."""
    return token.form in _ABBREVIATED or (len(token.form) == 1 and token.form.isalpha())


def _is_before_lowercase(text: str, tokens: Sequence[FactToken], place: int) -> bool:
    """Return whether the next word is in lower case, as when a clause begins after a colon."""
    following = tokens[place + 1 : place + 2]
    return any(text[token.start].islower() and text[tokens[place].end : token.start] == " " for token in following)


def _length(text: str) -> int:
    return sum(map(len, set(split_sentences(text, small_letters=True))))
