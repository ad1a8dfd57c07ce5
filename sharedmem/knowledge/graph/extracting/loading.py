"""The rules file of an application: which relations, names, forms and rules it declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.knowledge.graph.base import Ways
from sharedmem.knowledge.graph.extracting.forms import Form, form
from sharedmem.knowledge.graph.extracting.grammar import Rule, compiled, rule
from sharedmem.knowledge.graph.extracting.model import ModelExtractor
from sharedmem.knowledge.graph.extracting.rules import RuleBook, RuleExtractor
from sharedmem.knowledge.graph.extracting.spots import Known
from sharedmem.knowledge.graph.naming import check_entity_name
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.models import RelationType
from sharedmem.models.record import Record
from sharedmem.providers.protocol import LanguageModel

SETTING = "graph_rules"
OFFLINE = "extractive"
_MOST_RULES, _MOST_NAMES, _MOST_ALIASES = 2_000, 50_000, 1_000
_LARGEST_FILE = 20_000_000


class _Name(Record):
    name: str
    type: str = ""
    aliases: tuple[str, ...] = Field((), max_length=_MOST_ALIASES)

    @field_validator("name", "aliases")
    @classmethod
    def _are_names(cls, said: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in (said,) if isinstance(said, str) else said:
            check_entity_name("name", name)
        return said


class _Pattern(Record):
    type: str = Field(pattern=r"^[^\W\d][\w-]*$", max_length=100)
    pattern: str
    name: str | None = None


class _Rule(Record):
    when: str
    then: str | tuple[str, ...]
    since: Literal["episode", "unknown", "required"] = "episode"


class RuleFile(Record):
    """What a rules file may say; docs/graph-rules.md shows one."""

    languages: tuple[Literal["en", "de", "fr"], ...] = Field(("en",), min_length=1)
    speaker: str = Field("user", min_length=1, max_length=200)
    builtin: bool = True
    relations: tuple[RelationType, ...] = ()
    vocabulary: tuple[_Name, ...] = Field((), max_length=_MOST_NAMES)
    patterns: tuple[_Pattern, ...] = Field((), max_length=200)
    rules: tuple[str | _Rule, ...] = Field((), max_length=_MOST_RULES)


class Loaded(NamedTuple):
    """What a rules file declares, ready to be used."""

    relations: list[RelationType]
    """Beside the shipped ones."""
    extractor: RuleExtractor


def open_ways(settings: Settings, model: LanguageModel | None) -> Ways:
    """By what rules a graph takes in what it is told. Reads the rules file, if one is named; no round trip.

    Args:
        settings: `graph_rules`.
        model: who reads the episodes; where it is the offline one, which cannot, rules do.

    Raises:
        ConfigError: the rules file cannot be read, or something in it is wrong; names the place.
    """
    rules = load_rules(settings.graph_rules)
    try:
        vocabulary = Vocabulary(rules.relations)
    except InvalidError as error:
        raise ConfigError(SETTING, str(settings.graph_rules), f"relations: {error}") from error
    if model is None or model.name == OFFLINE:
        return Ways(vocabulary, rules.extractor)
    return Ways(vocabulary, ModelExtractor(model, vocabulary))


def load_rules(path: str | Path | None = None) -> Loaded:
    """The relations and the extractor that a rules file declares. Reads the file at once.

    Args:
        path: a YAML or JSON file; None for what is shipped alone.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; names the place.
    """
    if path is None:
        return Loaded([], RuleExtractor())
    return loaded(_content(Path(path)), str(path))


def loaded(content: object, source: str = "rules") -> Loaded:
    """The same, of what a rules file or a program says.

    Args:
        content: as it stands in the file.
        source: for messages.

    Raises:
        ConfigError: something in it is wrong; names the place.
    """
    try:
        file = RuleFile.model_validate(content if content is not None else {})
    except ValidationError as error:
        raise ConfigError(SETTING, source, _told(error)) from error
    book = RuleBook(
        rules=tuple(_rules(file, source)),
        vocabulary=tuple(Known(name.name.strip(), name.type.lower(), name.aliases) for name in file.vocabulary),
        forms=tuple(_forms(file, source)),
        languages=file.languages,
        speaker=file.speaker,
        builtin=file.builtin,
    )
    return Loaded(list(file.relations), RuleExtractor(book))


def _rules(file: RuleFile, source: str) -> Iterator[Rule]:
    for number, said in enumerate(file.rules, start=1):
        try:
            yield rule(said) if isinstance(said, str) else _compiled(said)
        except InvalidError as error:
            raise ConfigError(SETTING, source, f"rule {number}: {error}") from error


def _compiled(said: _Rule) -> Rule:
    return compiled(said.when, [said.then] if isinstance(said.then, str) else said.then, since=said.since)


def _forms(file: RuleFile, source: str) -> Iterator[Form]:
    for number, said in enumerate(file.patterns, start=1):
        try:
            yield form(said.type.lower(), said.pattern, said.name)
        except InvalidError as error:
            raise ConfigError(SETTING, source, f"pattern {number}: {error}") from error


def _content(path: Path) -> object:
    import yaml  # noqa: PLC0415  # only who has a rules file needs it

    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigError(SETTING, str(path), f"it is larger than {_LARGEST_FILE:,} bytes")
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(SETTING, str(path), f"it cannot be read: {' '.join(str(error).split())}") from error


def _told(error: ValidationError) -> str:
    # Of a rule, pydantic tells for each kind of rule what is wrong with it; the deepest problem says most.
    first = max(error.errors(), key=lambda problem: len(problem["loc"]))
    place = [part + 1 if isinstance(part, int) else part for part in first["loc"] if part not in {"str", "_Rule"}]
    return f"{' '.join(map(str, place)) or 'the file'}: {first['msg']}"
