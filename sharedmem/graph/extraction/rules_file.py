"""Load an application's rules file: its relations, names, patterns and rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.graph.access import IngestRules
from sharedmem.graph.bitemporal.relations import Vocabulary
from sharedmem.graph.extraction.entity_spans import GazetteerEntry, NamePattern, parse_name_pattern
from sharedmem.graph.extraction.model_extractor import ModelExtractor
from sharedmem.graph.extraction.rule_extractor import RuleBook, RuleExtractor
from sharedmem.graph.extraction.rules import Rule, compile_rule, parse_rule
from sharedmem.graph.resolution.names import check_entity_name
from sharedmem.models import RelationType
from sharedmem.models.record import Record
from sharedmem.providers.extractive import can_follow_instructions
from sharedmem.providers.protocol import LanguageModel

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
