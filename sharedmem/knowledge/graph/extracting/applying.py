"""Where rules fit in a sentence, and what follows there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sharedmem.knowledge.graph.extracting.dates import Dated
from sharedmem.knowledge.graph.extracting.grammar import Conclusion, Rule, Slot
from sharedmem.knowledge.graph.extracting.masking import Masked
from sharedmem.knowledge.graph.extracting.spots import AMOUNT, PERSON, Spot
from sharedmem.knowledge.graph.extraction import Statement
from sharedmem.models import UNKNOWN, Unknown

_MOST_FITS = 200


class Filled(NamedTuple):
    """What stands in a slot."""

    slot: Slot
    text: str
    """A name, or the words of a value."""
    spot: Spot | None


class Fit(NamedTuple):
    """A rule where it fits."""

    rule: Rule
    filled: Mapping[str, Filled]
    begin: int
    """In the whole text."""
    end: int

    def end_of(self, name: str) -> str:
        """The name at one end of a conclusion."""
        return name.strip('"') if name.startswith('"') else self.filled[name].text if name else ""


class Span(NamedTuple):
    """The time that a sentence gives to what it says."""

    start: datetime | None
    end: datetime | None


class RuleSet:
    """Rules, found by the words that must stand in a sentence.

    Args:
        own: the application's; where one of them fits, no shipped rule is looked for.
        shipped: the others.
        formed: types whose names are known by their form alone.
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

    def fits(self, text: str, sentence: Masked, types: Mapping[str, str]) -> list[Fit]:
        """Where rules fit in a sentence, by place.

        Args:
            text: the whole text.
            sentence: one of it.
            types: of names, as rules decided before.
        """
        numbers = {number for token in sentence.tokens for number in self._by_word.get(token.text, ())}
        found: list[Fit] = []
        taken: list[Fit] = []
        for number in sorted(numbers):
            fits = [fit for fit in self._fitting(self._rules[number], text, sentence, types) if not _meets(fit, taken)]
            found += fits
            taken += fits if number < self._own else []
        return sorted(found[:_MOST_FITS], key=lambda fit: fit.begin)

    def _fitting(self, rule: Rule, text: str, sentence: Masked, types: Mapping[str, str]) -> Iterator[Fit]:
        for match in rule.pattern.finditer(sentence.text):
            filled = self._filled(rule, match, text, sentence, types)
            if filled is not None:
                first, last = _tokens(sentence, match.span())
                yield Fit(rule, filled, sentence.tokens[first].begin, sentence.tokens[last].end)

    def _filled(
        self, rule: Rule, match: re.Match[str], text: str, sentence: Masked, types: Mapping[str, str]
    ) -> Mapping[str, Filled] | None:
        filled = {}
        for number, slot in enumerate(rule.slots, start=1):
            spot = sentence.spots.get(match[number][0])
            if spot is not None and not self._takes(slot, spot, types):
                return None
            first, last = _tokens(sentence, match.span(number))
            said = text[sentence.tokens[first].begin : sentence.tokens[last].end]
            filled[slot.name] = Filled(slot, spot.name if spot is not None else said, spot)
        return filled

    def _takes(self, slot: Slot, spot: Spot, types: Mapping[str, str]) -> bool:
        if slot.kind == "me":
            return spot.is_speaker
        if slot.kind == "amount" or spot.type == AMOUNT:
            return slot.kind == "amount" and spot.type == AMOUNT
        if not slot.types:
            return True
        type_ = types.get(spot.name) or ("" if spot.certainty == "title" else spot.type)
        return type_ in slot.types if type_ else not slot.types <= self._formed


def _tokens(sentence: Masked, span: tuple[int, int]) -> tuple[int, int]:
    """Numbers of the first and the last token of a piece of the masked text that ends with a blank."""
    return sentence.token_at(span[0]), sentence.token_at(span[1]) - 1


def _meets(fit: Fit, taken: Sequence[Fit]) -> bool:
    return any(fit.begin < other.end and other.begin < fit.end and fit.rule is not other.rule for other in taken)


def spans_of(fits: Sequence[Fit], dates: Sequence[Dated]) -> list[Span]:
    """The time of each fit: a date belongs to what was said last before it; one before everything to the first.

    Args:
        fits: of one sentence, by place.
        dates: of the sentence, with places in the whole text.
    """
    if not fits:
        return []
    places = sorted({fit.begin for fit in fits})
    owned: dict[int, list[Dated]] = {}
    for dated in dates:
        before = [place for place in places if place <= dated.span[0]]
        owned.setdefault(before[-1] if before else places[0], []).append(dated)
    leading = [dated for dated in dates if dated.span[1] <= places[0]]
    return [_span(owned.get(fit.begin) or leading) for fit in fits]


def _span(dates: Sequence[Dated]) -> Span:
    start = next((dated.start for dated in dates if dated.start is not None), None)
    end = next((dated.end for dated in dates if dated.role in {"until", "between"}), None)
    return Span(start, end)


def statements_of(fit: Fit, span: Span) -> Iterator[Statement]:
    """What follows where a rule fits; other names of something are told by `renamed`."""
    for conclusion in fit.rule.conclusions:
        statement = None if conclusion.says == "alias" else _statement(fit, conclusion, span)
        if statement is not None:
            yield statement


def _statement(fit: Fit, conclusion: Conclusion, span: Span) -> Statement | None:
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
    return Statement(source, conclusion.type, target, value=_value(fit, conclusion), valid_from=since, valid_to=ends)


def _value(fit: Fit, conclusion: Conclusion) -> Any:
    if not conclusion.value_slot:
        return conclusion.value
    filled = fit.filled[conclusion.value_slot]
    return _number(filled.text) if filled.slot.kind == "number" else filled.text


def _number(said: str) -> int | float:
    plain = said.strip(".,").replace(",", "")
    return float(plain) if "." in plain and plain.count(".") == 1 else int(plain.replace(".", ""))


def renamed(fit: Fit) -> Iterator[tuple[str, str]]:
    """(name, another name of the same) that a fit tells."""
    for conclusion in fit.rule.conclusions:
        if conclusion.says == "alias":
            name, other = fit.end_of(conclusion.source), fit.end_of(conclusion.target)
            if name != other:
                yield name, other


def types_of(fit: Fit) -> Iterator[tuple[str, str]]:
    """(name, type) of names that had no type before."""
    for filled in fit.filled.values():
        if filled.slot.kind == "me" or not filled.slot.becomes:
            continue
        if filled.spot is None or not filled.spot.type or filled.spot.certainty == "title":
            yield filled.text, filled.slot.becomes


def names_of(fit: Fit) -> Iterator[tuple[str, Spot | None, str]]:
    """(name, where it stands, type) of everything that the conclusions of a fit name."""
    for conclusion in fit.rule.conclusions:
        for end in filter(None, (conclusion.source, conclusion.target)):
            if end.startswith('"'):
                yield end.strip('"'), None, ""
            else:
                filled = fit.filled[end]
                yield filled.text, filled.spot, PERSON if filled.slot.kind == "me" else ""
