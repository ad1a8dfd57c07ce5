"""Rules as people write them: `{person} moved to {city} -> lives_in(person, city)`, compiled once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.extracting.masking import DATE_SIGN, NAME_SIGNS, words_of
from sharedmem.knowledge.graph.extracting.spots import AMOUNT

Since = Literal["episode", "unknown", "required"]
Kind = Literal["name", "me", "thing", "amount", "number", "words"]

LONGEST_RULE = 500
_MOST_SLOTS, _MOST_GROUPS = 6, 8
_ARROW = "->"
_KINDS: Mapping[str, Kind] = {"me": "me", "amount": "amount", "number": "number", "words": "words"}
_ME = "{me}"

_PIECE = re.compile(
    r"\{(?P<slot>[^{}]*)\}(?P<own>'s)?|\[(?P<maybe>[^\[\]]*)\]|\((?P<either>[^()]*)\)|(?P<word>[^\s{}\[\]()]+)|(?P<bad>\S)"
)
_SLOT = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*(?::\s*(?P<types>[\w-]+(?:\s*\|\s*[\w-]+)*)\s*)?")
_SAYS = re.compile(
    r"(?P<ends>ends\s+)?(?P<type>@?[^\W\d][\w -]*?)\s*"
    r"\(\s*(?P<source>\"[^\"]*\"|\w+)\s*(?:,\s*(?P<target>\"[^\"]*\"|\w+)\s*)?\)"
    r"(?:\s*=\s*(?P<value>\S.*))?",
    re.DOTALL,
)
_SEMICOLON = re.compile(r";(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)")
_VALUE_SLOT = re.compile(r"\{(\w+)\}")

_BETWEEN = f"(?:{DATE_SIGN} ){{0,2}}"
_NAME = f"[{NAME_SIGNS}]"
# Where a few words that name a thing end.
_NO_THING = (
    "and|or|but|because|since|which|that|who|with|without|for|from|to|into|in|on|at|by|of|off|as|if|when|while|before|after"
    "|until|is|are|was|were|be|been|am|has|have|had|will|would|can|could|not|no|it|they|them|this|these|those|my|your|via"
    "|through|during|about|over|under|than|then|arrived|broken|back|out|up|down|again|it's|he|she|we|you"
)
_PATTERNS: Mapping[Kind, str] = {
    "name": f"{_NAME} ",
    "me": f"{_NAME} ",
    "thing": rf"(?:{_NAME} |(?:(?!(?:{_NO_THING}) )[^\W_{NAME_SIGNS}][\w'-]{{0,40}} ){{1,4}})",
    "amount": f"{_NAME} ",
    "number": r"\d[\d.,]{0,20} ",
    "words": rf"(?:[^\W_{NAME_SIGNS}][\w'-]{{0,40}} ){{1,12}}",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a rule."""

    name: str
    kind: Kind
    types: frozenset[str] = frozenset()
    """None: of any type."""
    becomes: str = ""
    """The type of a name that had none."""


class Conclusion(NamedTuple):
    """What follows where a rule fits."""

    says: Literal["holds", "ends", "alias"]
    type: str
    source: str
    """Name of a slot, or a name in quotes."""
    target: str
    value: Any
    value_slot: str
    """Of an attribute; empty when `value` counts."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that can be applied."""

    text: str
    pattern: re.Pattern[str]
    slots: tuple[Slot, ...]
    conclusions: tuple[Conclusion, ...]
    since: Since
    anchor: frozenset[str]
    """One of these words stands in every sentence that it fits."""
    words: frozenset[str]
    """All its words."""


def rule(text: str, *, since: Since = "episode") -> Rule:
    """A rule that is written in one line.

    Raises:
        InvalidError: it is none; says why.
    """
    when, arrow, then = text.partition(_ARROW)
    if not arrow:
        raise InvalidError("rule", text, "write it as: pattern -> conclusion")
    return compiled(when, [then], since=since)


def compiled(when: str, then: Sequence[str], *, since: Since = "episode") -> Rule:
    """A rule.

    Args:
        when: the pattern.
        then: conclusions; each may hold several, separated by semicolons.
        since: since when it holds if the sentence has no date.

    Raises:
        InvalidError: it is none; says why.
    """
    text = f"{when.strip()} {_ARROW} {'; '.join(part.strip() for part in then)}"
    if len(text) > LONGEST_RULE:
        raise InvalidError("rule", text, f"keep it within {LONGEST_RULE} characters")
    pieces = list(_pieces(when, text))
    slots = tuple(piece.slot for piece in pieces if piece.slot is not None)
    _check_slots(slots, pieces, text)
    anchor = _anchor(pieces, text)
    names = {slot.name: slot for slot in slots}
    conclusions = tuple(
        _conclusion(part, names, text) for each in then for part in _SEMICOLON.split(each) if part.strip()
    )
    if not conclusions:
        raise InvalidError("rule", text, "say behind -> what follows, as in lives_in(person, city)")
    words = frozenset(word for piece in pieces for choice in piece.choices for word in choice.split())
    pattern = re.compile(f"(?<= ){''.join(_regex(piece) for piece in pieces)}")
    return Rule(text, pattern, slots, conclusions, since, anchor, words)


class _Element(NamedTuple):
    choices: tuple[str, ...]
    """Words, or several choices of words; empty for a slot."""
    optional: bool = False
    slot: Slot | None = None
    owns: bool = False


def _pieces(when: str, text: str) -> Iterator[_Element]:
    found = list(_PIECE.finditer(when))
    for number, match in enumerate(found):
        if match["bad"]:
            raise InvalidError(
                "rule", text, f"{match['bad']!r} has no partner; brackets hold only words, and are not nested"
            )
        if match["slot"] is not None:
            yield _Element((), slot=_slot(match["slot"], text), owns=match["own"] is not None)
            if match["own"]:
                yield _Element(("'s",))
            continue
        after = found[number + 1]["slot"] if number + 1 < len(found) else None
        yield from _worded(match, _slot(after, text) if after is not None else None)


def _worded(match: re.Match[str], after: Slot | None) -> Iterator[_Element]:
    if match["word"]:
        for word in _words(match["word"]).split():
            if word in {"i", "me", "my"}:
                yield _Element((), slot=Slot("me", "me"), owns=word == "my")
                yield from [_Element(("'s",))] if word == "my" else []
            else:
                yield _Element((word,), optional=after is not None and word in after.types)
        return
    inside = match["maybe"] if match["maybe"] is not None else match["either"]
    choices = tuple(filter(None, map(_words, inside.split("|"))))
    if choices:
        # Of "(a|an)" nothing is left: such words do not count. "(the|our)" may stand for nothing, too.
        empty = len(choices) < len(inside.split("|"))
        yield _Element(choices, optional=empty or match["maybe"] is not None)


def _words(text: str) -> str:
    return " ".join(token.text for token in words_of(text))


def _slot(inside: str, text: str) -> Slot:
    match = _SLOT.fullmatch(inside)
    if match is None:
        raise InvalidError("rule", text, f"a slot is written as {{person}} or {{new:company}}, not {{{inside}}}")
    name = match["name"]
    said = match["types"] or (name if name in _KINDS else name.rstrip("0123456789_"))
    types = [part.strip().lower() for part in said.split("|")]
    if len(types) == 1 and types[0] in _KINDS:
        return Slot(name, _KINDS[types[0]], frozenset({AMOUNT}) if types[0] == AMOUNT else frozenset())
    kind: Kind = "thing" if "thing" in types else "name"
    named = [type_ for type_ in types if type_ not in {"thing", "any"}]
    is_any = "any" in types or not named
    return Slot(name, kind, frozenset() if is_any else frozenset(named), named[0] if named else "")


def _check_slots(slots: Sequence[Slot], pieces: Sequence[_Element], text: str) -> None:
    if len(slots) > _MOST_SLOTS or sum(len(piece.choices) > 1 or piece.optional for piece in pieces) > _MOST_GROUPS:
        raise InvalidError("rule", text, f"at most {_MOST_SLOTS} slots, and {_MOST_GROUPS} brackets, fit in a rule")
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
        raise InvalidError("rule", text, "it fits everything; add a word that must stand in the sentence")
    return max(sets, key=lambda words: (min(map(len, words)), -len(words)))


def _regex(piece: _Element) -> str:
    if piece.slot is not None:
        # A name with an 's behind it only tells whose something is, unless the rule asks for that.
        alone = "" if piece.owns else "(?!'s )"
        whose = f"(?:{_NAME} 's )?" if piece.slot.kind == "thing" else ""
        return f"{whose}({_PATTERNS[piece.slot.kind]}){alone}{_BETWEEN}"
    words = "|".join(
        " ".join(map(re.escape, choice.split())) for choice in sorted(piece.choices, key=len, reverse=True)
    )
    return f"(?:(?:{words}) {_BETWEEN}){'?' if piece.optional else ''}"


def _conclusion(part: str, slots: Mapping[str, Slot], text: str) -> Conclusion:
    match = _SAYS.fullmatch(part.strip())
    if match is None:
        raise InvalidError(
            "rule", text, f"{part.strip()!r} is no conclusion; write it as lives_in(person, city) or @tier(me) = gold"
        )
    type_, source, target = match["type"], match["source"], match["target"] or ""
    for name in (source, target):
        _check_end(name, slots, text)
    _check_shape(match, text)
    if type_ == "alias":
        return Conclusion("alias", "", source, target, None, "")
    value, value_slot = _value(match["value"] or "", slots, text)
    says: Literal["holds", "ends"] = "ends" if match["ends"] else "holds"
    return Conclusion(says, type_.replace(" ", "_"), source, target, value, value_slot)


def _check_end(name: str, slots: Mapping[str, Slot], text: str) -> None:
    if name.startswith('"'):
        if not name.strip('" '):
            raise InvalidError("rule", text, "a name in quotes is empty")
    elif name and name not in slots:
        known = ", ".join(sorted(slots)) or "none"
        raise InvalidError("rule", text, f"no slot of the pattern is called {name}; there are: {known}")
    elif name and slots[name].kind in {"amount", "number", "words"}:
        raise InvalidError("rule", text, f"{name} is a value and no name; say it as @attribute(...) = {{{name}}}")


def _check_shape(match: re.Match[str], text: str) -> None:
    is_attribute, is_alias = match["type"].startswith("@"), match["type"] == "alias"
    if is_attribute and (match["target"] or bool(match["value"]) == bool(match["ends"])):
        raise InvalidError(
            "rule", text, "an attribute is said as @tier(person) = gold, and ended as: ends @tier(person)"
        )
    if not is_attribute and (match["value"] or not (match["target"] or match["ends"])):
        raise InvalidError(
            "rule", text, "a relation is said as lives_in(person, city), and ended as: ends lives_in(person)"
        )
    if is_alias and (match["ends"] or not match["target"]):
        raise InvalidError("rule", text, "another name is said as alias(company, new), and does not end")


def _value(said: str, slots: Mapping[str, Slot], text: str) -> tuple[Any, str]:
    said = said.strip()
    if not said:
        return None, ""
    place = _VALUE_SLOT.fullmatch(said)
    if place is not None:
        if place[1] not in slots:
            raise InvalidError("rule", text, f"no slot of the pattern is called {place[1]}")
        return None, place[1]
    try:
        return orjson.loads(said), ""
    except orjson.JSONDecodeError:
        return said, ""
