"""Extract entities and facts by rules, without a language model, and load an application's rules file."""

from __future__ import annotations

import asyncio
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.graph.access import IngestRules
from sharedmem.graph.episode_input import content_text
from sharedmem.graph.extraction.dates import DateMention, DateReader
from sharedmem.graph.extraction.entity_spans import (
    AMOUNT,
    BUILTIN_PATTERNS,
    EntitySpan,
    FoundSpans,
    Gazetteer,
    GazetteerEntry,
    NamePattern,
    Speaker,
    language_words,
    parse_name_pattern,
)
from sharedmem.graph.extraction.entity_spans import GazetteerEntry as KnownName
from sharedmem.graph.extraction.model_extractor import ModelExtractor
from sharedmem.graph.extraction.rules import (
    Rule,
    RuleMatch,
    RuleSet,
    bounded_sentence_spans,
    build_statements,
    compile_rule,
    find_aliases,
    find_names,
    find_types,
    mask_sentence,
    parse_rule,
    remove_placeholders,
    stated_times,
)
from sharedmem.graph.names import check_entity_name, normalize_name
from sharedmem.graph.protocol import Extraction, Known, Mention, Statement
from sharedmem.graph.relations import Vocabulary
from sharedmem.models import Episode, RelationType
from sharedmem.models.record import Record
from sharedmem.providers.extractive import can_follow_instructions
from sharedmem.providers.protocol import LanguageModel

NAME = "rules (heuristic)"
LONGEST_READ = 20_000
"""Characters of an episode that are read."""
_ASSISTANT_SOURCES = frozenset({"agent", "assistant", "system"})
# A question, a thought or a wish is not a statement.
_HYPOTHETICAL = re.compile(
    r"\W*(?:if|unless|whether|suppose|supposing|imagine|assuming|maybe|perhaps|could|would|should|can|might|i wish"
    r"|wenn|falls|ob|vielleicht|peut-être|may (?:i|you|we|he|she|it|they))\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(r"\W*(?:sorry|correction|actually|no|oops|pardon|rather|i mean|i meant)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules and vocabulary of an application."""

    rules: tuple[Rule, ...] = ()
    vocabulary: tuple[KnownName, ...] = ()
    forms: tuple[NamePattern, ...] = ()
    languages: tuple[str, ...] = ("en",)
    speaker: str = "user"
    """The meaning of "I" if an episode names no user."""
    builtin: bool = True
    """Whether the built-in rules follow the application's."""


class RuleExtractor:
    """Finds entities and facts by patterns, vocabularies and rules. It is a heuristic.

    Args:
        book: the rules; by default the built-in ones.
    """

    def __init__(self, book: RuleBook | None = None) -> None:
        self._book = book or RuleBook()
        shipped = _builtin_rules() if self._book.builtin else ()
        forms = (*self._book.forms, *BUILTIN_PATTERNS)
        words = {word for rule in (*self._book.rules, *shipped) for word in rule.words}
        self._rules = RuleSet(self._book.rules, shipped, frozenset(form.type for form in forms))
        self._lexicon = Gazetteer(
            forms, self._book.vocabulary, words=words, tongue=language_words(self._book.languages)
        )
        self._dates: DateReader | None = None

    @property
    def name(self) -> str:
        """`rules (heuristic)`."""
        return NAME

    @property
    def wants_known(self) -> bool:
        """False: rules use only the episode."""
        return False

    async def extract(self, episode: Episode, known: Known) -> Extraction:  # noqa: ARG002  # rules need none
        """Return the mentions and statements of an episode. No round trip; the first 20,000 characters are read.

        Raises:
            UnsupportedError: dateparser is not installed; the message has the command to install it.
            InvalidError: the episode has no `occurred_at`.
        """
        if episode.occurred_at is None:
            raise InvalidError("occurred_at", None, "set it: dates in an episode are relative to it")
        if self._dates is None:
            # The library and the words of a language are loaded once; that would block the event loop for too long.
            self._dates = await asyncio.to_thread(_date_reader, self._book.languages)
        listening = episode.source in _ASSISTANT_SOURCES
        speaker = Speaker(episode.user or self._book.speaker, is_listening=listening)
        text = content_text(episode.content)
        reading = _EpisodeReader(remove_placeholders(text[:LONGEST_READ]), self._lexicon, self._rules)
        reading.read(self._dates, speaker, episode.occurred_at)
        left_out = [f"only the first {LONGEST_READ:,} characters were read"] if len(text) > LONGEST_READ else []
        return reading.extraction(left_out)

    def __repr__(self) -> str:
        return f"<RuleExtractor {NAME}: {len(self._rules)} rules>"


@lru_cache(1)
def _builtin_rules() -> tuple[Rule, ...]:
    # Compiled when first needed: `import sharedmem` is light.
    from sharedmem.graph.extraction.builtin_rules import BUILTIN_RULES  # noqa: PLC0415

    return BUILTIN_RULES


def _date_reader(languages: tuple[str, ...]) -> DateReader:
    with _READER_LOCK:  # several threads may need it at once
        return _cached_date_reader(languages)


_READER_LOCK = threading.Lock()
_cached_date_reader = lru_cache(8)(DateReader)


@dataclass(slots=True)
class _Mentioned:
    name: str
    type: str = ""
    aliases: dict[str, None] = field(default_factory=dict)


class _EpisodeReader:
    """One episode, read sentence by sentence."""

    def __init__(self, text: str, lexicon: Gazetteer, rules: RuleSet) -> None:
        self._text = text
        self._lexicon = lexicon
        self._rules = rules
        self._mentioned: dict[str, _Mentioned] = {}
        self._statements: list[Statement] = []
        self._last = 0
        """Number of the first statement of the last sentence with statements."""
        self._types: dict[str, str] = {}
        self._other_names: dict[str, str] = {}
        """Name by another name of the same."""

    def read(self, dates: DateReader, speaker: Speaker, occurred_at: datetime) -> None:
        found = self._lexicon.sure(self._text)
        spans = bounded_sentence_spans(self._text, found.free)
        dated = [self._dated(span, found, dates, occurred_at) for span in spans]
        self._lexicon.likely(found, {begin for begin, _ in spans}, speaker)
        found.spots.sort(key=lambda spot: spot.begin)
        begins = [spot.begin for spot in found.spots]
        for span, times in zip(spans, dated, strict=True):
            inside = found.spots[bisect_left(begins, span[0]) : bisect_left(begins, span[1])]
            self._sentence(span, [spot for spot in inside if spot.end <= span[1]], times)

    def _dated(
        self, span: tuple[int, int], found: FoundSpans, dates: DateReader, occurred_at: datetime
    ) -> list[DateMention]:
        times = []
        for time in dates.read(self._text[slice(*span)], occurred_at):
            place = (time.span[0] + span[0], time.span[1] + span[0])
            if found.is_free(*place):
                found.block(*place)
                times.append(time._replace(span=place))
        return times

    def _sentence(self, span: tuple[int, int], spots: list[EntitySpan], times: list[DateMention]) -> None:
        for spot in spots:
            if spot.type != AMOUNT and spot.certainty != "beginning":
                self._mention(spot.name, spot, "")
        text = self._text[slice(*span)]
        if text.rstrip("\"') ").endswith("?") or _HYPOTHETICAL.match(text):
            return
        sentence = mask_sentence(self._text, span, spots, [time.span for time in times])
        fits = self._rules.fits(self._text, sentence, self._types)
        if fits:
            self._last = len(self._statements)
        elif times and _CORRECTION.match(text):
            self._correct(times)
        for fit, place in zip(fits, stated_times(fits, times), strict=True):
            self._statements += build_statements(fit, place)
            self._learn(fit)

    def _correct(self, times: list[DateMention]) -> None:
        """Correct the date of the last sentence's statements: "Sorry, it was in March"."""
        start = next((time.start for time in times if time.start is not None), None)
        if start is not None:
            self._statements[self._last :] = [
                replace(statement, valid_from=start) for statement in self._statements[self._last :]
            ]

    def _learn(self, fit: RuleMatch) -> None:
        for name, type_ in find_types(fit):
            self._types.setdefault(name, type_)
        for name, spot, type_ in find_names(fit):
            self._mention(name, spot, type_)
        for name, other in find_aliases(fit):
            self._other_names.setdefault(other, name)

    def _mention(self, name: str, spot: EntitySpan | None, type_: str) -> None:
        if not normalize_name(name):
            return
        mentioned = self._mentioned.setdefault(name, _Mentioned(name))
        mentioned.type = mentioned.type or type_ or (spot.type if spot is not None else "")
        for alias in spot.aliases if spot is not None else ():
            mentioned.aliases[alias] = None

    def extraction(self, warnings: list[str]) -> Extraction:
        mentions = [
            self._finished(mentioned) for mentioned in self._mentioned.values() if not self._is_other(mentioned)
        ]
        return Extraction(tuple(mentions), tuple(self._finished_statements()), (), tuple(warnings))

    def _is_other(self, mentioned: _Mentioned) -> bool:
        return self._same(mentioned.name) != mentioned.name

    def _same(self, name: str) -> str:
        """Return the main name of a mention with several names."""
        seen = {name}
        while (first := self._other_names.get(name)) is not None and first not in seen:
            seen.add(first)
            name = first
        return name if self._other_names.get(name) is None else min(seen)

    def _finished(self, mentioned: _Mentioned) -> Mention:
        others = [
            other for other in self._other_names if other != mentioned.name and self._same(other) == mentioned.name
        ]
        aliases = dict.fromkeys((*mentioned.aliases, *others))
        type_ = (
            mentioned.type if mentioned.type not in {"", "title"} else self._types.get(mentioned.name, mentioned.type)
        )
        return Mention(mentioned.name, type_, tuple(aliases))

    def _finished_statements(self) -> Iterator[Statement]:
        distinct: list[Statement] = []
        for one in self._statements:
            if not (normalize_name(one.source) and (normalize_name(one.target) or not one.target)):
                continue
            source, target = self._same(one.source), self._same(one.target) if one.target else ""
            statement = Statement(
                *(source, one.type, target, one.value, one.says), valid_from=one.valid_from, valid_to=one.valid_to
            )
            if source != target and statement not in distinct:
                distinct.append(statement)
                yield statement


# -- the rules file of an application ------------------------------------------------------------


SETTING = "graph_rules"
_MOST_RULES, _MOST_NAMES, _MOST_ALIASES = 2_000, 50_000, 1_000
_LARGEST_FILE = 20_000_000


class _NameEntry(Record):
    name: str
    type: str = ""
    aliases: tuple[str, ...] = Field((), max_length=_MOST_ALIASES)

    @field_validator("name", "aliases")
    @classmethod
    def _are_names(cls, entry: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in (entry,) if isinstance(entry, str) else entry:
            check_entity_name("name", name)
        return entry


class _PatternEntry(Record):
    type: str = Field(pattern=r"^[^\W\d][\w-]*$", max_length=100)
    pattern: str
    name: str | None = None


class _RuleEntry(Record):
    when: str
    then: str | tuple[str, ...]
    since: Literal["episode", "unknown", "required"] = "episode"


class RuleFile(Record):
    """The content of a rules file; docs/graph-rules.md shows one."""

    languages: tuple[Literal["en", "de", "fr"], ...] = Field(("en",), min_length=1)
    speaker: str = Field("user", min_length=1, max_length=200)
    builtin: bool = True
    relations: tuple[RelationType, ...] = ()
    vocabulary: tuple[_NameEntry, ...] = Field((), max_length=_MOST_NAMES)
    patterns: tuple[_PatternEntry, ...] = Field((), max_length=200)
    rules: tuple[str | _RuleEntry, ...] = Field((), max_length=_MOST_RULES)


class LoadedRules(NamedTuple):
    """The parsed declarations of a rules file."""

    relations: list[RelationType]
    """Types besides the built-in ones."""
    extractor: RuleExtractor


def open_ingest_rules(settings: Settings, model: LanguageModel | None) -> IngestRules:
    """Return the rules by which a graph extracts facts. Reads the rules file, if one is set; no round trip.

    Args:
        settings: `graph_rules`.
        model: the model that extracts; with the offline model, which cannot, rules are used.

    Raises:
        ConfigError: the rules file cannot be read, or is invalid; the message names the place.
    """
    rules = load_rules(settings.graph_rules)
    try:
        vocabulary = Vocabulary(rules.relations)
    except InvalidError as error:
        raise ConfigError(SETTING, str(settings.graph_rules), f"relations: {error}") from error
    if model is None or not can_follow_instructions(model):
        return IngestRules(vocabulary, rules.extractor)
    return IngestRules(vocabulary, ModelExtractor(model, vocabulary))


def load_rules(path: str | Path | None = None) -> LoadedRules:
    """Return the relations and the extractor that a rules file declares. Reads the file at once.

    Args:
        path: a YAML or JSON file; None for the built-in rules only.

    Raises:
        ConfigError: the file cannot be read, or is invalid; the message names the place.
    """
    if path is None:
        return LoadedRules([], RuleExtractor())
    return parse_rules(_read_file(Path(path)), str(path))


def parse_rules(content: object, source: str = "rules") -> LoadedRules:
    """Return the declarations of rules that were already loaded.

    Args:
        content: the content of a rules file as Python values.
        source: name of the source in errors.

    Raises:
        ConfigError: the content is invalid; the message names the place.
    """
    try:
        file = RuleFile.model_validate(content if content is not None else {})
    except ValidationError as error:
        raise ConfigError(SETTING, source, _error_text(error)) from error
    book = RuleBook(
        rules=tuple(_compile_rules(file, source)),
        vocabulary=tuple(
            GazetteerEntry(name.name.strip(), name.type.lower(), name.aliases) for name in file.vocabulary
        ),
        forms=tuple(_parse_patterns(file, source)),
        languages=file.languages,
        speaker=file.speaker,
        builtin=file.builtin,
    )
    return LoadedRules(list(file.relations), RuleExtractor(book))


def _compile_rules(file: RuleFile, source: str) -> Iterator[Rule]:
    for number, entry in enumerate(file.rules, start=1):
        try:
            yield parse_rule(entry) if isinstance(entry, str) else _compile_entry(entry)
        except InvalidError as error:
            raise ConfigError(SETTING, source, f"rule {number}: {error}") from error


def _compile_entry(entry: _RuleEntry) -> Rule:
    return compile_rule(entry.when, [entry.then] if isinstance(entry.then, str) else entry.then, since=entry.since)


def _parse_patterns(file: RuleFile, source: str) -> Iterator[NamePattern]:
    for number, entry in enumerate(file.patterns, start=1):
        try:
            yield parse_name_pattern(entry.type.lower(), entry.pattern, entry.name)
        except InvalidError as error:
            raise ConfigError(SETTING, source, f"pattern {number}: {error}") from error


def _read_file(path: Path) -> object:
    import yaml  # noqa: PLC0415  # only needed with a rules file

    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigError(SETTING, str(path), f"it is larger than {_LARGEST_FILE:,} bytes")
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(SETTING, str(path), f"it cannot be read: {' '.join(str(error).split())}") from error


def _error_text(error: ValidationError) -> str:
    # For a rule, pydantic reports an error for each kind of rule; the most deeply nested one is the most specific.
    first = max(error.errors(), key=lambda problem: len(problem["loc"]))
    place = [
        part + 1 if isinstance(part, int) else part for part in first["loc"] if part not in {"str", _RuleEntry.__name__}
    ]
    return f"{' '.join(map(str, place)) or 'the file'}: {first['msg']}"
