"""Build the claims of an episode from what was extracted from it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count

import orjson

from sharedmem.errors import InvalidError
from sharedmem.graph.bitemporal.relations import Vocabulary
from sharedmem.graph.episode_input import EpisodeInput
from sharedmem.graph.extraction.protocol import Mention, Statement
from sharedmem.graph.records import Claim, FactRow
from sharedmem.graph.timestamps import OPEN, UNKNOWN_START, to_stamp
from sharedmem.models import UNKNOWN, Unknown

MOST_CLAIMS = 200
"""Of one episode; an extractor that finds more has gone astray."""
LONGEST_TEXT = 2_000
_LONGEST_VALUE = 10_000


@dataclass(frozen=True, slots=True)
class EpisodeClaims:
    """What an episode claims, and what of it could not be used."""

    claims: tuple[Claim, ...]
    warnings: tuple[str, ...]


def build_claims(
    tale: EpisodeInput,
    *,
    recorded: int,
    vocabulary: Vocabulary,
    own: Callable[[str], str],
    known: Mapping[str, FactRow],
    first: int = 0,
) -> EpisodeClaims:
    """What an episode claims. Pure.

    Args:
        tale: with what was found in it.
        recorded: when the graph learns of it, unless the episode says so itself.
        vocabulary: how relations behave.
        own: the id that a name gives by itself, whatever it was merged into.
        known: facts by id, of which some may be contradicted.
        first: number of the first claim; an episode that said something before goes on counting.
    """
    teller = _ClaimBuilder(tale, recorded, vocabulary, own, count(first))
    claims = [*teller.attributes(), *teller.statements(), *teller.endings(known)]
    warnings = teller.warnings
    if len(claims) > MOST_CLAIMS:
        warnings.append(f"of {len(claims)} statements the first {MOST_CLAIMS} were taken")
    return EpisodeClaims(tuple(claims[:MOST_CLAIMS]), tuple(warnings))


class _ClaimBuilder:
    def __init__(
        self,
        tale: EpisodeInput,
        recorded: int,
        vocabulary: Vocabulary,
        own: Callable[[str], str],
        numbers: Iterator[int],
    ) -> None:
        episode = tale.episode
        self._tale = tale
        self._vocabulary = vocabulary
        self._own = own
        self._numbers = numbers
        self._recorded = to_stamp("recorded_at", episode.recorded_at) if episode.recorded_at else recorded
        self._occurred = to_stamp("occurred_at", episode.occurred_at) if episode.occurred_at else recorded
        self.warnings = list(tale.extraction.warnings)

    def attributes(self) -> Iterator[Claim]:
        for mention in self._tale.extraction.mentions:
            for name, value in mention.attributes.items():
                yield from self._kept(Statement(mention.name, f"@{name}", value=value))

    def statements(self) -> Iterator[Claim]:
        for statement in self._tale.extraction.statements:
            yield from self._kept(statement)

    def endings(self, known: Mapping[str, FactRow]) -> Iterator[Claim]:
        for id_ in dict.fromkeys(self._tale.extraction.contradicted):
            row = known.get(id_)
            if row is None:
                self.warnings.append(f"a fact {id_!r} that would be contradicted is not there")
            else:
                yield self.ending(row)

    def ending(self, row: FactRow) -> Claim:
        return Claim(
            *(self._tale.episode.id, next(self._numbers), "ends"),
            *(row.source, row.source_name, row.type, row.target, row.target_name, row.value),
            *(self._occurred, OPEN, self._recorded),
        )

    def _kept(self, statement: Statement) -> Iterator[Claim]:
        # What one statement has wrong is told, and the others are kept.
        try:
            yield self._claim(statement)
        except InvalidError as error:
            self.warnings.append(f"left out {statement.source} {statement.type} {statement.target}: {error}")

    def _claim(self, statement: Statement) -> Claim:
        type_ = self._vocabulary.normal(statement.type)
        source, target = self._own(statement.source), self._own(statement.target) if statement.target else ""
        names = {source: statement.source, target: statement.target}
        if target:
            type_, source, target = self._vocabulary.canonical(type_, source, target)
        start, end = self._interval(statement)
        value = encode_value(statement, type_)
        if not self._vocabulary.lines(type_, source, target, value):
            raise InvalidError("target", "", "say of whom it does not hold any more: this relation may hold of many")
        shown = _value_text(statement.value) if type_.startswith("@") else names[target]
        text = statement.text or self._vocabulary.sentence(names[source], type_, shown)
        return Claim(
            *(self._tale.episode.id, next(self._numbers), statement.says),
            *(source, names[source], type_, target, shown, value),
            *(start, end, self._recorded),
            text=text[:LONGEST_TEXT],
        )

    def _interval(self, statement: Statement) -> tuple[int, int]:
        start = start_stamp(statement.valid_from, self._occurred)
        end = OPEN if statement.valid_to is None else to_stamp("valid_to", statement.valid_to)
        if statement.says == "holds" and end <= start and statement.valid_from is None:
            # It had ended when it was told: since when it held, nobody says.
            start = UNKNOWN_START
        check_interval(start, end)
        return start, end


def start_stamp(valid_from: datetime | Unknown | None, occurred: int) -> int:
    """Since when something holds: since it was told where nothing is said."""
    if valid_from is None:
        return occurred
    if valid_from == UNKNOWN:
        return UNKNOWN_START
    return to_stamp("valid_from", valid_from)


def check_interval(start: int, end: int) -> None:
    """Refuse an interval in which no moment lies.

    Raises:
        InvalidError: it ends before it begins, or as it does.
    """
    if end <= start:
        raise InvalidError("valid_to", "...", "give a moment after valid_from, when it begins to hold")


def encode_value(statement: Statement, type_: str) -> str:
    """The JSON of an attribute's value; nothing for a relation.

    Raises:
        InvalidError: JSON cannot have it, or it is too long.
    """
    if not type_.startswith("@"):
        return ""
    if statement.says == "ends" and statement.value is None:
        return ""
    try:
        coded = orjson.dumps(statement.value, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError) as error:
        raise InvalidError(f"attribute {type_[1:]}", "...", f"give what JSON can have: {error}") from None
    if len(coded) > _LONGEST_VALUE:
        raise InvalidError(f"attribute {type_[1:]}", "...", f"keep it within {_LONGEST_VALUE:,} characters")
    return coded


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def required_mentions(tales: Iterable[EpisodeInput]) -> list[Mention]:
    """One mention for every name that the tales need, with all that is said of it."""
    found: dict[str, Mention] = {}
    for tale in tales:
        named = (Mention(name) for one in tale.extraction.statements for name in (one.source, one.target) if name)
        for mention in (*tale.extraction.mentions, *named):
            held = found.get(mention.name)
            found[mention.name] = mention if held is None else _merge_mentions(held, mention)
    return list(found.values())


def _merge_mentions(held: Mention, more: Mention) -> Mention:
    return Mention(
        held.name,
        held.type or more.type,
        tuple(dict.fromkeys((*held.aliases, *more.aliases))),
        {**held.attributes, **more.attributes},
        more.summary or held.summary,
        held.id or more.id,
    )
