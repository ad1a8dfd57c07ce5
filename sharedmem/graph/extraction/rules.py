"""The rule language: compile `{person} moved to {city} -> lives_in(person, city)`, and match it against sentences.

A rule is matched against a masked sentence: words in lower case, without fillers, and a single character of a private
range of Unicode for each name and date. So a rule is a regular expression over a few dozen short tokens, and
"Anna de Vries" takes no longer than "Bo".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import orjson

from sharedmem.errors import InvalidError
from sharedmem.graph.extraction.dates import DateMention
from sharedmem.graph.extraction.entity_spans import AMOUNT, FILLERS, PERSON, EntitySpan
from sharedmem.graph.protocol import Statement
from sharedmem.models import UNKNOWN, Unknown
from sharedmem.text.analysis import sentence_spans

FIRST_PLACEHOLDER, DATE_PLACEHOLDER = 0xE000, "\uf8ff"
NAME_PLACEHOLDERS = "\ue000-\uf7ff"
_MOST_PLACEHOLDERS = 0xF7FF - FIRST_PLACEHOLDER
_PRIVATE = re.compile(r"[\ue000-\uf8ff]")
# Each sign is a token: rules contain words and signs as in a text, without stems or stop words.
_TOKEN = re.compile(r"'(?:s|m|ve|ll|d|re)\b|\d+(?:[.,:]\d+)*|[^\W\d_]\w*(?:[-']\w+)*|\w+|[^\s\w]")
_SHORT = {"'m": "am", "'ve": "have", "'ll": "will", "'d": "would", "'re": "are"}
_NOT = {"won't": "will", "can't": "can", "shan't": "shall", "cannot": "can"}
_LONGEST_SENTENCE = 2_000


class MaskedToken(NamedTuple):
    """A word as rules match it, and its position in the text."""

    text: str
    begin: int
    end: int


class MaskedSentence(NamedTuple):
    """A sentence as rules match it."""

    text: str
    """Tokens with one blank around each."""
    tokens: list[MaskedToken]
    starts: list[int]
    """Position of each token in `text`."""
    spots: dict[str, EntitySpan]
    """By sign."""

    def token_at(self, position: int) -> int:
        """Return the number of the token that begins at or after a position of `text`."""
        return bisect_left(self.starts, position)


def remove_placeholders(text: str) -> str:
    """Return a text without characters that have a meaning here; the length stays."""
    return _PRIVATE.sub(" ", text).replace("\u2019", "'")


def bounded_sentence_spans(text: str, is_free: bytearray) -> list[tuple[int, int]]:
    """Return where the sentences of a text begin and end; one beyond 2,000 characters is cut.

    Args:
        text: any text.
        is_free: for each character 0 inside a name; no sentence ends there.
    """
    return [
        (at, min(at + _LONGEST_SENTENCE, end))
        for begin, end in sentence_spans(text, is_free=is_free, clauses=True)
        for at in range(begin, end, _LONGEST_SENTENCE)
    ]


def split_words(text: str, offset: int = 0) -> Iterator[MaskedToken]:
    """Yield the words of a piece of text in the form that rules compare."""
    for found in _TOKEN.finditer(text):
        yield from _expand_word(found[0].lower(), found.start() + offset, found.end() + offset)


def _expand_word(word: str, begin: int, end: int) -> Iterator[MaskedToken]:
    if word in FILLERS:
        return
    if word in _NOT or word.endswith("n't"):
        yield MaskedToken(_NOT.get(word, word[:-3]), begin, end)
        yield MaskedToken("not", begin, end)
        return
    yield MaskedToken(_SHORT.get(word, word), begin, end)


def mask_sentence(
    text: str, span: tuple[int, int], spots: Sequence[EntitySpan], dates: Sequence[tuple[int, int]]
) -> MaskedSentence:
    """Return the masked form of a sentence.

    Args:
        text: the whole text.
        span: position of the sentence.
        spots: names in the sentence.
        dates: positions of its dates, which overlap neither each other nor a name.
    """
    marks: list[tuple[int, int, EntitySpan | None]] = [
        (spot.begin, spot.end, spot) for spot in spots[:_MOST_PLACEHOLDERS]
    ]
    marks += [(begin, end, None) for begin, end in dates]
    tokens: list[MaskedToken] = []
    signs: dict[str, EntitySpan] = {}
    at = span[0]
    for begin, end, spot in sorted(marks, key=lambda mark: mark[:2]):
        tokens += split_words(text[at:begin], at)
        sign = DATE_PLACEHOLDER if spot is None else chr(FIRST_PLACEHOLDER + len(signs))
        if spot is not None:
            signs[sign] = spot
        tokens.append(MaskedToken(sign, begin, end))
        if spot is not None and spot.possessive:
            tokens.append(MaskedToken("'s", end, end))
        at = end
    tokens += split_words(text[at : span[1]], at)
    return _build_masked(_repeat_subjects(_drop_date_commas(tokens), signs), signs)


def _drop_date_commas(tokens: list[MaskedToken]) -> list[MaskedToken]:
    """Return the tokens without commas beside a date: "I moved, last week, to Rome"."""
    kept: list[MaskedToken] = []
    for token in tokens:
        if token.text == "," and kept and kept[-1].text == DATE_PLACEHOLDER:
            continue
        if token.text == DATE_PLACEHOLDER and kept and kept[-1].text == ",":
            kept.pop()
        kept.append(token)
    return kept


def _repeat_subjects(tokens: list[MaskedToken], signs: dict[str, EntitySpan]) -> list[MaskedToken]:
    """Repeat the subject after an "and": "Anna left Acme and joined Globex"."""
    subject = next((token for token in tokens if token.text in signs), None)
    if subject is None:
        return tokens
    extended = list(tokens)
    for number in range(len(tokens) - 2, 0, -1):
        word, after = tokens[number], tokens[number + 1]
        if word.text in {"and", "but"} and after.text.isalpha() and after.text not in signs:
            extended.insert(number + 1, MaskedToken(subject.text, after.begin, after.begin))
    return extended


def _build_masked(tokens: list[MaskedToken], signs: dict[str, EntitySpan]) -> MaskedSentence:
    starts, at = [], 1
    for token in tokens:
        starts.append(at)
        at += len(token.text) + 1
    return MaskedSentence(f" {' '.join(token.text for token in tokens)} ", tokens, starts, signs)


Since = Literal["episode", "unknown", "required"]
SlotKind = Literal["name", "me", "thing", "amount", "number", "words"]

LONGEST_RULE = 500
_MOST_SLOTS, _MOST_GROUPS = 6, 8
_ARROW = "->"
_SLOT_KINDS: Mapping[str, SlotKind] = {"me": "me", "amount": "amount", "number": "number", "words": "words"}
_ME = "{me}"

_PIECE = re.compile(
    r"\{(?P<slot>[^{}]*)\}(?P<own>'s)?|\[(?P<maybe>[^\[\]]*)\]|\((?P<either>[^()]*)\)|(?P<word>[^\s{}\[\]()]+)|(?P<bad>\S)"
)
_SLOT = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*(?::\s*(?P<types>[\w-]+(?:\s*\|\s*[\w-]+)*)\s*)?")
_END = r"\"[^\"]*\"(?:\s*:\s*[\w-]+)?|\w+"
_CONCLUSION = re.compile(
    r"(?P<ends>ends\s+)?(?P<type>@?[^\W\d][\w -]*?)\s*"
    rf"\(\s*(?P<source>{_END})\s*(?:,\s*(?P<target>{_END})\s*)?\)"
    r"(?:\s*=\s*(?P<value>\S.*))?",
    re.DOTALL,
)
_SEMICOLON = re.compile(r";(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)")
_VALUE_SLOT = re.compile(r"\{(\w+)\}")
_GIVEN_NAME = re.compile(r"\"(?P<name>[^\"]*)\"(?:\s*:\s*(?P<type>[\w-]+))?")
"""An end of a conclusion in quotes, and its type: `"{item} order": order`."""

_BETWEEN = f"(?:{DATE_PLACEHOLDER} ){{0,2}}"
_NAME = f"[{NAME_PLACEHOLDERS}]"
# The end of a few words that name a thing.
_NO_THING = (
    "and|or|but|because|since|which|that|who|with|without|for|from|to|into|in|on|at|by|of|off|as|if|when|while|before|after"
    "|until|is|are|was|were|be|been|am|has|have|had|will|would|can|could|not|no|it|they|them|this|these|those|my|your|via"
    "|through|during|about|over|under|than|then|arrived|broken|back|out|up|down|again|it's|he|she|we|you"
    "|do|does|did|never|stopped|ordered|bought|purchased|online"
)
# "Unfortunately, I see that the laptop arrived": the thing begins after the article.
_AFTER_ARTICLE = re.compile(r".*\b(?:a|an|the)\s+", re.IGNORECASE | re.DOTALL)
_GENERAL_THINGS = frozenset(
    (
        *("order", "orders", "package", "packages", "parcel", "parcels", "delivery", "deliveries"),
        *("shipment", "shipments", "item", "items", "product", "products", "thing", "things"),
        *("something", "anything", "everything", "nothing", "stuff", "one", "ones"),
    )
)
"""Words that name no thing of their own."""
_PATTERNS: Mapping[SlotKind, str] = {
    "name": f"{_NAME} ",
    "me": f"{_NAME} ",
    "thing": rf"(?:{_NAME} |(?:(?!(?:{_NO_THING}) )[^\W_{NAME_PLACEHOLDERS}][\w'-]{{0,40}} ){{1,4}})",
    "amount": f"{_NAME} ",
    "number": r"\d[\d.,]{0,20} ",
    "words": rf"(?:[^\W_{NAME_PLACEHOLDERS}][\w'-]{{0,40}} ){{1,12}}",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder in a rule."""

    name: str
    kind: SlotKind
    types: frozenset[str] = frozenset()
    """None: of any type."""
    becomes: str = ""
    """The type of a name that had none."""


class Conclusion(NamedTuple):
    """A conclusion of a rule that matches."""

    says: Literal["holds", "ends", "alias"]
    type: str
    source: str
    """Name of a slot, or a name in quotes that may contain slots, with its type."""
    target: str
    value: Any
    value_slot: str
    """Value of an attribute; empty if `value` is used."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule."""

    text: str
    pattern: re.Pattern[str]
    slots: tuple[Slot, ...]
    conclusions: tuple[Conclusion, ...]
    since: Since
    anchor: frozenset[str]
    """A sentence that it matches contains at least one of these words."""
    words: frozenset[str]
    """All its words."""

    @property
    def says(self) -> frozenset[tuple[str, str]]:
        """What its conclusions say of which relations."""
        return frozenset((conclusion.says, conclusion.type) for conclusion in self.conclusions)


def parse_rule(text: str, *, since: Since = "episode") -> Rule:
    """Return a rule from its form in one line.

    Raises:
        InvalidError: the rule is invalid; the message says why.
    """
    when, arrow, then = text.partition(_ARROW)
    if not arrow:
        raise InvalidError("rule", text, "write it as: pattern -> conclusion")
    return compile_rule(when, [then], since=since)


def compile_rule(when: str, then: Sequence[str], *, since: Since = "episode") -> Rule:
    """Return a rule.

    Args:
        when: the pattern.
        then: conclusions; each may contain several, separated by semicolons.
        since: start of the fact if the sentence has no date.

    Raises:
        InvalidError: the rule is invalid; the message says why.
    """
    text = f"{when.strip()} {_ARROW} {'; '.join(part.strip() for part in then)}"
    if len(text) > LONGEST_RULE:
        raise InvalidError("rule", text, f"keep it within {LONGEST_RULE} characters")
    pieces = list(_parse_elements(when, text))
    slots = tuple(piece.slot for piece in pieces if piece.slot is not None)
    _check_slots(slots, pieces, text)
    anchor = _anchor(pieces, text)
    names = {slot.name: slot for slot in slots}
    conclusions = tuple(
        _parse_conclusion(part, names, text) for each in then for part in _SEMICOLON.split(each) if part.strip()
    )
    if not conclusions:
        raise InvalidError("rule", text, "add a conclusion after ->, as in lives_in(person, city)")
    words = frozenset(word for piece in pieces for choice in piece.choices for word in choice.split())
    pattern = re.compile(f"(?<= ){''.join(_regex(piece) for piece in pieces)}")
    return Rule(text, pattern, slots, conclusions, since, anchor, words)


class _Element(NamedTuple):
    choices: tuple[str, ...]
    """Words, or several choices of words; empty for a slot."""
    optional: bool = False
    slot: Slot | None = None
    owns: bool = False


def _parse_elements(when: str, text: str) -> Iterator[_Element]:
    found = list(_PIECE.finditer(when))
    for number, match in enumerate(found):
        if match["bad"]:
            raise InvalidError(
                "rule", text, f"{match['bad']!r} is unbalanced; brackets contain only words, and are not nested"
            )
        if match["slot"] is not None:
            yield _Element((), slot=_parse_slot(match["slot"], text), owns=match["own"] is not None)
            if match["own"]:
                yield _Element(("'s",))
            continue
        after = found[number + 1]["slot"] if number + 1 < len(found) else None
        yield from _parse_element(match, _parse_slot(after, text) if after is not None else None)


def _parse_element(match: re.Match[str], after: Slot | None) -> Iterator[_Element]:
    if match["word"]:
        for word in _rule_words(match["word"]).split():
            if word in {"i", "me", "my"}:
                yield _Element((), slot=Slot("me", "me"), owns=word == "my")
                yield from [_Element(("'s",))] if word == "my" else []
            else:
                yield _Element((word,), optional=after is not None and word in after.types)
        return
    inside = match["maybe"] if match["maybe"] is not None else match["either"]
    choices = tuple(filter(None, map(_rule_words, inside.split("|"))))
    if choices:
        # Articles such as "(a|an)" are dropped from sentences and patterns. "(the|our)" may then match nothing, too.
        empty = len(choices) < len(inside.split("|"))
        yield _Element(choices, optional=empty or match["maybe"] is not None)


def _rule_words(text: str) -> str:
    return " ".join(token.text for token in split_words(text))


def _parse_slot(inside: str, text: str) -> Slot:
    match = _SLOT.fullmatch(inside)
    if match is None:
        raise InvalidError("rule", text, f"a slot is written as {{person}} or {{new:company}}, not {{{inside}}}")
    name = match["name"]
    spelled = match["types"] or (name if name in _SLOT_KINDS else name.rstrip("0123456789_"))
    types = [part.strip().lower() for part in spelled.split("|")]
    if len(types) == 1 and types[0] in _SLOT_KINDS:
        return Slot(name, _SLOT_KINDS[types[0]], frozenset({AMOUNT}) if types[0] == AMOUNT else frozenset())
    kind: SlotKind = "thing" if "thing" in types else "name"
    named = [type_ for type_ in types if type_ not in {"thing", "any"}]
    is_any = "any" in types or not named
    return Slot(name, kind, frozenset() if is_any else frozenset(named), named[0] if named else "")


def _check_slots(slots: Sequence[Slot], pieces: Sequence[_Element], text: str) -> None:
    if len(slots) > _MOST_SLOTS or sum(len(piece.choices) > 1 or piece.optional for piece in pieces) > _MOST_GROUPS:
        raise InvalidError("rule", text, f"a rule has at most {_MOST_SLOTS} slots and {_MOST_GROUPS} brackets")
    names = [slot.name for slot in slots if slot.kind != "me"]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InvalidError("rule", text, f"two slots are called {twice}; write {{other:{twice}}} for one of them")


def _anchor(pieces: Sequence[_Element], text: str) -> frozenset[str]:
    sets = [
        frozenset(max(choice.split(), key=len) for choice in piece.choices)
        for piece in pieces
        if piece.choices and not piece.optional
    ]
    if not sets:
        raise InvalidError("rule", text, "it matches every sentence; add a word that the sentence must contain")
    return max(sets, key=lambda words: (min(map(len, words)), -len(words)))


def _regex(piece: _Element) -> str:
    if piece.slot is not None:
        # A name with an 's after it is only an owner, unless the rule asks for one.
        alone = "" if piece.owns else "(?!'s )"
        whose = f"(?:{_NAME} 's )?" if piece.slot.kind == "thing" else ""
        return f"{whose}({_PATTERNS[piece.slot.kind]}){alone}{_BETWEEN}"
    words = "|".join(
        " ".join(map(re.escape, choice.split())) for choice in sorted(piece.choices, key=len, reverse=True)
    )
    return f"(?:(?:{words}) {_BETWEEN}){'?' if piece.optional else ''}"


def _parse_conclusion(part: str, slots: Mapping[str, Slot], text: str) -> Conclusion:
    match = _CONCLUSION.fullmatch(part.strip())
    if match is None:
        raise InvalidError(
            "rule", text, f"{part.strip()!r} is not a conclusion; write lives_in(person, city) or @tier(me) = gold"
        )
    type_, source, target = match["type"], match["source"], match["target"] or ""
    for name in (source, target):
        _check_end(name, slots, text)
    _check_shape(match, text)
    if type_ == "alias":
        return Conclusion("alias", "", source, target, None, "")
    value, value_slot = _parse_value(match["value"] or "", slots, text)
    says: Literal["holds", "ends"] = "ends" if match["ends"] else "holds"
    return Conclusion(says, type_.replace(" ", "_"), source, target, value, value_slot)


def _check_end(name: str, slots: Mapping[str, Slot], text: str) -> None:
    if name.startswith('"'):
        given, _ = _given_name(name)
        if not given.strip():
            raise InvalidError("rule", text, "a name in quotes is empty")
        unknown = next((slot for slot in _VALUE_SLOT.findall(given) if slot not in slots), None)
        if unknown is not None:
            raise InvalidError("rule", text, f"no slot of the pattern is called {unknown}")
    elif name and name not in slots:
        known = ", ".join(sorted(slots)) or "none"
        raise InvalidError("rule", text, f"no slot of the pattern is called {name}; use one of: {known}")
    elif name and slots[name].kind in {"amount", "number", "words"}:
        raise InvalidError("rule", text, f"{name} is a value, not a name; write it as @attribute(...) = {{{name}}}")


def _given_name(end: str) -> tuple[str, str]:
    """Return (name, type) of an end of a conclusion in quotes."""
    match = _GIVEN_NAME.fullmatch(end)
    return ("", "") if match is None else (match["name"], (match["type"] or "").lower())


def _check_shape(match: re.Match[str], text: str) -> None:
    is_attribute, is_alias = match["type"].startswith("@"), match["type"] == "alias"
    if is_attribute and (match["target"] or bool(match["value"]) == bool(match["ends"])):
        raise InvalidError(
            "rule", text, "write an attribute as @tier(person) = gold, and its end as: ends @tier(person)"
        )
    if not is_attribute and (match["value"] or not (match["target"] or match["ends"])):
        raise InvalidError(
            "rule", text, "write a relation as lives_in(person, city), and its end as: ends lives_in(person)"
        )
    if is_alias and (match["ends"] or not match["target"]):
        raise InvalidError("rule", text, "write another name as alias(company, new); it cannot end")


def _parse_value(spelled: str, slots: Mapping[str, Slot], text: str) -> tuple[Any, str]:
    spelled = spelled.strip()
    if not spelled:
        return None, ""
    place = _VALUE_SLOT.fullmatch(spelled)
    if place is not None:
        if place[1] not in slots:
            raise InvalidError("rule", text, f"no slot of the pattern is called {place[1]}")
        return None, place[1]
    try:
        return orjson.loads(spelled), ""
    except orjson.JSONDecodeError:
        return spelled, ""


_MOST_MATCHES = 200


class SlotMatch(NamedTuple):
    """The match of a slot."""

    slot: Slot
    text: str
    """A name, or the words of a value."""
    spot: EntitySpan | None


class RuleMatch(NamedTuple):
    """A match of a rule."""

    rule: Rule
    filled: Mapping[str, SlotMatch]
    begin: int
    """Position in the whole text."""
    end: int

    def end_of(self, name: str) -> str:
        """Return the name at one end of a conclusion."""
        if name.startswith('"'):
            return _VALUE_SLOT.sub(lambda slot: self.filled[slot[1]].text, _given_name(name)[0])
        return self.filled[name].text if name else ""


class StatedTime(NamedTuple):
    """The time that a sentence gives for its statements."""

    start: datetime | None
    end: datetime | None


class RuleSet:
    """Rules, indexed by the words that a sentence must contain.

    Args:
        own: the application's rules; if one of them matches, no built-in rule is tried.
        shipped: the built-in rules.
        formed: types whose names are found by their pattern alone.
    """

    def __init__(self, own: Sequence[Rule], shipped: Sequence[Rule], formed: frozenset[str]) -> None:
        self._rules = (*own, *shipped)
        self._own = len(own)
        self._formed = formed
        self._by_word: dict[str, list[int]] = {}
        for number, rule in enumerate(self._rules):
            for word in rule.anchor:
                self._by_word.setdefault(word, []).append(number)

    def __len__(self) -> int:
        return len(self._rules)

    def fits(self, text: str, sentence: MaskedSentence, types: Mapping[str, str]) -> list[RuleMatch]:
        """Return the matches of rules in a sentence, by position.

        Args:
            text: the whole text.
            sentence: one sentence of it.
            types: types of names that rules found before.
        """
        numbers = {number for token in sentence.tokens for number in self._by_word.get(token.text, ())}
        found: list[RuleMatch] = []
        taken: list[RuleMatch] = []
        for number in sorted(numbers):
            fits = [
                fit for fit in self._fitting(self._rules[number], text, sentence, types) if not _overlaps(fit, taken)
            ]
            found += fits
            taken += fits if number < self._own else []
        return sorted(_longest(found[:_MOST_MATCHES]), key=lambda fit: fit.begin)

    def _fitting(
        self, rule: Rule, text: str, sentence: MaskedSentence, types: Mapping[str, str]
    ) -> Iterator[RuleMatch]:
        for match in rule.pattern.finditer(sentence.text):
            filled = self._filled(rule, match, text, sentence, types)
            if filled is not None:
                first, last = _tokens(sentence, match.span())
                yield RuleMatch(rule, filled, sentence.tokens[first].begin, sentence.tokens[last].end)

    def _filled(
        self, rule: Rule, match: re.Match[str], text: str, sentence: MaskedSentence, types: Mapping[str, str]
    ) -> Mapping[str, SlotMatch] | None:
        filled = {}
        for number, slot in enumerate(rule.slots, start=1):
            spot = sentence.spots.get(match[number][0])
            if spot is not None and not self._takes(slot, spot, types):
                return None
            first, last = _tokens(sentence, match.span(number))
            spelled = text[sentence.tokens[first].begin : sentence.tokens[last].end]
            if slot.kind == "thing" and spot is None:
                spelled = _AFTER_ARTICLE.sub("", spelled)
                if spelled.lower() in _GENERAL_THINGS:
                    return None
            filled[slot.name] = SlotMatch(slot, spot.name if spot is not None else spelled, spot)
        return filled

    def _takes(self, slot: Slot, spot: EntitySpan, types: Mapping[str, str]) -> bool:
        if slot.kind == "me":
            return spot.is_speaker
        if slot.kind == "amount" or spot.type == AMOUNT:
            return slot.kind == "amount" and spot.type == AMOUNT
        if not slot.types:
            return True
        type_ = types.get(spot.name) or ("" if spot.certainty == "title" else spot.type)
        return type_ in slot.types if type_ else not slot.types <= self._formed


def _tokens(sentence: MaskedSentence, span: tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of the first and the last token of a piece of the masked text that ends with a blank."""
    return sentence.token_at(span[0]), sentence.token_at(span[1]) - 1


def _overlaps(fit: RuleMatch, taken: Sequence[RuleMatch]) -> bool:
    return any(fit.begin < other.end and other.begin < fit.end and fit.rule is not other.rule for other in taken)


def _longest(fits: Sequence[RuleMatch]) -> list[RuleMatch]:
    """Return the matches without those inside a longer one of another rule that has all their relations.

    "The laptop I ordered arrived damaged" is one statement about an order, and not another one about "I ordered".
    """
    return [fit for fit in fits if not any(_contains(other, fit) for other in fits)]


def _contains(longer: RuleMatch, fit: RuleMatch) -> bool:
    is_longer = longer.end - longer.begin > fit.end - fit.begin
    return is_longer and longer.begin <= fit.begin and fit.end <= longer.end and fit.rule.says <= longer.rule.says


def stated_times(fits: Sequence[RuleMatch], dates: Sequence[DateMention]) -> list[StatedTime]:
    """Return the time of each match: a date belongs to the statement before it; a date before all of them to the first.

    Args:
        fits: matches in one sentence, by position.
        dates: dates of the sentence, with positions in the whole text.
    """
    if not fits:
        return []
    places = sorted({fit.begin for fit in fits})
    owned: dict[int, list[DateMention]] = {}
    for dated in dates:
        before = [place for place in places if place <= dated.span[0]]
        owned.setdefault(before[-1] if before else places[0], []).append(dated)
    leading = [dated for dated in dates if dated.span[1] <= places[0]]
    return [_stated_time(owned.get(fit.begin) or leading) for fit in fits]


def _stated_time(dates: Sequence[DateMention]) -> StatedTime:
    start = next((dated.start for dated in dates if dated.start is not None), None)
    end = next((dated.end for dated in dates if dated.role in {"until", "between"}), None)
    return StatedTime(start, end)


def build_statements(fit: RuleMatch, span: StatedTime) -> Iterator[Statement]:
    """Yield the statements of a match; `find_aliases` finds other names."""
    for conclusion in fit.rule.conclusions:
        statement = None if conclusion.says == "alias" else _build_statement(fit, conclusion, span)
        if statement is not None:
            yield statement


def _build_statement(fit: RuleMatch, conclusion: Conclusion, span: StatedTime) -> Statement | None:
    source, target = fit.end_of(conclusion.source), fit.end_of(conclusion.target)
    if source == target:
        return None
    if conclusion.says == "ends":
        ended = span.start or span.end
        return (
            None
            if ended is None and fit.rule.since == "required"
            else Statement(source, conclusion.type, target, says="ends", valid_from=ended)
        )
    since: datetime | Unknown | None = span.start
    if since is None and span.end is None and fit.rule.since == "required":
        return None
    if since is None and fit.rule.since == "unknown":
        since = UNKNOWN
    ends = span.end if span.end is None or span.start is None or span.end > span.start else None
    return Statement(
        source, conclusion.type, target, value=_conclusion_value(fit, conclusion), valid_from=since, valid_to=ends
    )


def _conclusion_value(fit: RuleMatch, conclusion: Conclusion) -> Any:
    if not conclusion.value_slot:
        return conclusion.value
    filled = fit.filled[conclusion.value_slot]
    return _number(filled.text) if filled.slot.kind == "number" else filled.text


def _number(spelled: str) -> int | float:
    plain = spelled.strip(".,").replace(",", "")
    return float(plain) if "." in plain and plain.count(".") == 1 else int(plain.replace(".", ""))


def find_aliases(fit: RuleMatch) -> Iterator[tuple[str, str]]:
    """Yield (name, another name of the same entity) from a match."""
    for conclusion in fit.rule.conclusions:
        if conclusion.says == "alias":
            name, other = fit.end_of(conclusion.source), fit.end_of(conclusion.target)
            if name != other:
                yield name, other


def find_types(fit: RuleMatch) -> Iterator[tuple[str, str]]:
    """Yield (name, type) of names that had no type before."""
    for filled in fit.filled.values():
        if filled.slot.kind == "me" or not filled.slot.becomes:
            continue
        if filled.spot is None or not filled.spot.type or filled.spot.certainty == "title":
            yield filled.text, filled.slot.becomes


def find_names(fit: RuleMatch) -> Iterator[tuple[str, EntitySpan | None, str]]:
    """Yield (name, position, type) of everything that the conclusions of a match name."""
    for conclusion in fit.rule.conclusions:
        for end in filter(None, (conclusion.source, conclusion.target)):
            if end.startswith('"'):
                yield fit.end_of(end), None, _given_name(end)[1]
            else:
                filled = fit.filled[end]
                yield filled.text, filled.spot, PERSON if filled.slot.kind == "me" else ""
