"""Finding entities and facts with a language model: what it answers is checked, and what is no use is left aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.extracting.answer import Answer, Ended, Found, Related
from sharedmem.knowledge.graph.extracting.asking import LONGEST_READ, MOST_KNOWN, SPEAKERS, messages_of
from sharedmem.knowledge.graph.extraction import Extraction, Known, Mention, Statement
from sharedmem.knowledge.graph.naming import check_entity_name, normalised
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.tales import content_text
from sharedmem.knowledge.graph.times import stamp_of
from sharedmem.models import UNKNOWN, Entity, Episode, Fact, Unknown
from sharedmem.providers.protocol import LanguageModel

_MOST_WARNINGS = 50


class ModelExtractor:
    """Finds entities and facts with a language model.

    Args:
        model: who is asked.
        vocabulary: the relations that the model is told of.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self._model = model
        self._vocabulary = vocabulary

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def wants_known(self) -> bool:
        """It is told what the graph knows, to say what of it does not hold any more."""
        return True

    async def extract(self, episode: Episode, known: Known) -> Extraction:
        """What an episode mentions and says. One request.

        The model reads the first 50,000 characters, and the first 100 known entities and facts.

        What the model invents or says wrongly becomes a warning.

        Raises:
            UnavailableError, LimitedError, ConfigError, InvalidError: the model cannot be asked, or its answer has
                no usable form.
        """
        text = content_text(episode.content)
        known = Known(known.entities[:MOST_KNOWN], known.facts[:MOST_KNOWN])
        answer = await self._model.complete(messages_of(episode, known, self._vocabulary), Answer)
        checking = _Checking(episode, text, known, self._vocabulary)
        extraction = checking.extraction(answer)
        if len(text) <= LONGEST_READ:
            return extraction
        return extraction._replace(
            warnings=(*extraction.warnings, f"only the first {LONGEST_READ:,} characters were read")
        )

    def __repr__(self) -> str:
        return f"<ModelExtractor {self.name}>"


class _Checking:
    """One answer, held against the episode and what is known."""

    def __init__(self, episode: Episode, text: str, known: Known, vocabulary: Vocabulary) -> None:
        self._episode = episode
        self._text = normalised(text)
        self._known = known
        self._vocabulary = vocabulary
        self._mentions: dict[str, Mention] = {}
        """By normalised name."""
        self._names: dict[str, str] = {}
        """Normalised name of a mention, by each of its normalised names."""
        self._warnings: list[str] = []

    def extraction(self, answer: Answer) -> Extraction:
        for found in answer.entities:
            self._take(found)
        statements = [*self._statements(answer.relationships)]
        contradicted = [*self._endings(answer.ended, statements)]
        return Extraction(
            tuple(self._mentions.values()),
            tuple(statements),
            tuple(contradicted),
            tuple(self._warnings[:_MOST_WARNINGS]),
        )

    def _warn(self, what: str) -> None:
        self._warnings.append(what if len(what) <= 300 else f"{what[:297]}...")

    # -- entities ---------------------------------------------------------------------------------

    def _take(self, found: Found) -> None:
        try:
            name = check_entity_name("entity", self._spoken(found.name))
        except InvalidError as error:
            self._warn(str(error))
            return
        entity = self._numbered(found.known, name)
        mention = Mention(
            name,
            found.type.strip().lower()[:100],
            tuple(self._aliases(found.aliases, name)),
            dict(self._attributes(found, name)),
            found.summary.strip()[:1_000],
            entity.id if entity is not None else "",
        )
        self._keep(mention)

    def _keep(self, mention: Mention) -> None:
        key = self._names.get(normalised(mention.name), normalised(mention.name))
        held = self._mentions.get(key)
        self._mentions[key] = mention if held is None else _joined(held, mention)
        for name in (mention.name, *mention.aliases):
            self._names.setdefault(normalised(name), key)

    def _spoken(self, name: str) -> str:
        """Who is called "I" or "user" is the user."""
        return self._episode.user if self._episode.user and normalised(name) in SPEAKERS else name

    def _numbered(self, number: int | None, name: str) -> Entity | None:
        if number is None:
            return None
        if not 1 <= number <= len(self._known.entities):
            self._warn(f"{name!r} was said to be known entity {number}, and there is none")
            return None
        return self._known.entities[number - 1]

    def _aliases(self, aliases: Sequence[str], name: str) -> Iterator[str]:
        for alias in dict.fromkeys(aliases):
            try:
                yield check_entity_name("alias", alias)
            except InvalidError as error:
                self._warn(f"of {name!r}: {error}")

    def _attributes(self, found: Found, name: str) -> Iterator[tuple[str, object]]:
        for attribute in found.attributes:
            try:
                type_ = self._vocabulary.normal(f"@{attribute.name.removeprefix('@')}")
            except InvalidError as error:
                self._warn(f"of {name!r}: {error}")
                continue
            if attribute.value is None or attribute.value == "":
                self._warn(f"of {name!r}: attribute {attribute.name!r} has no value")
            else:
                yield type_[1:], attribute.value

    # -- relationships ----------------------------------------------------------------------------

    def _statements(self, related: Sequence[Related]) -> Iterator[Statement]:
        for each in related:
            shown = f"{each.source} {each.type} {each.target}"
            try:
                type_ = self._vocabulary.normal(each.type)
            except InvalidError as error:
                self._warn(f"left out {shown!r}: {error}")
                continue
            source, target = self._end(each.source), self._end(each.target)
            missing = [name for name, end in ((each.source, source), (each.target, target)) if end is None]
            if missing or type_.startswith("@"):
                why = f"{missing[0]!r} is not in the text" if missing else "an attribute belongs to its entity"
                self._warn(f"left out {shown!r}: {why}")
                continue
            yield self._dated(Statement(source or "", type_, target or "", text=each.fact.strip()[:2_000]), each)

    def _end(self, said: str) -> str | None:
        """The name of a mention; one that was not told of, but stands in the text or is known, becomes one."""
        name = self._spoken(said)
        normal = normalised(name)
        if normal in self._names:
            return self._mentions[self._names[normal]].name
        entity = next(
            (each for each in self._known.entities if normal in map(normalised, (each.name, *each.aliases))), None
        )
        in_sight = entity is not None or normal == normalised(self._episode.user or "") or normal in self._text
        if not normal or not in_sight:
            return None
        try:
            mention = Mention(check_entity_name("entity", name), id=entity.id if entity is not None else "")
        except InvalidError:
            return None
        self._keep(mention)
        return mention.name

    def _dated(self, statement: Statement, each: Related) -> Statement:
        shown = f"{each.source} {each.type} {each.target}"
        start = UNKNOWN if _is_unknown(each.valid_from) else self._moment(each.valid_from, shown)
        end = self._moment(each.valid_to, shown)
        if each.has_ended:
            when = end or (start if isinstance(start, datetime) else None)
            return Statement(statement.source, statement.type, statement.target, says="ends", valid_from=when, text="")
        if isinstance(start, datetime) and end is not None and end <= start:
            self._warn(f"{shown!r} was said to end before it began; its end was left out")
            end = None
        return Statement(
            *(statement.source, statement.type, statement.target, None, "holds", start, end), text=statement.text
        )

    def _moment(self, said: str | None, shown: str) -> datetime | None:
        if said is None or not said.strip() or _is_unknown(said):
            return None
        try:
            moment = _parsed(said.strip(), self._episode.occurred_at)
            stamp_of("date", moment)
        except (ValueError, OverflowError):
            self._warn(f"of {shown!r}: {said[:40]!r} is no date; it was left out")
            return None
        return moment

    # -- what does not hold any more --------------------------------------------------------------

    def _endings(self, ended: Sequence[Ended], statements: list[Statement]) -> Iterator[str]:
        """Ids of known facts that ended when the episode happened; for a known date an ending is stated instead."""
        facts = self._known.facts
        for each in ended:
            if not 1 <= each.number <= len(facts):
                self._warn(f"known fact {each.number} was said to have ended, and there is none")
                continue
            fact = facts[each.number - 1]
            when = self._moment(each.when, fact.fact)
            if when is None:
                yield fact.id
            else:
                statements.append(self._ending(fact, when))

    def _ending(self, fact: Fact, when: datetime) -> Statement:
        self._keep(Mention(fact.source_name, id=fact.source_id))
        if fact.target_id is not None:
            self._keep(Mention(fact.target_name, id=fact.target_id))
        target = fact.target_name if fact.target_id is not None else ""
        return Statement(fact.source_name, fact.type, target, fact.value, "ends", when)


def _joined(held: Mention, more: Mention) -> Mention:
    aliases = (*held.aliases, *more.aliases, *({more.name} - {held.name}))
    return Mention(
        held.name,
        held.type or more.type,
        tuple(dict.fromkeys(aliases)),
        {**more.attributes, **held.attributes},
        held.summary or more.summary,
        held.id or more.id,
    )


def _is_unknown(said: str | Unknown | None) -> bool:
    return said is not None and said.strip().lower() == UNKNOWN


def _parsed(said: str, occurred_at: datetime | None) -> datetime:
    """A date as models write it: also `2024` and `2024-03`.

    Raises:
        ValueError: it is none.
    """
    if len(said) in {4, 7}:
        said = f"{said}{'-01-01' if len(said) == 4 else '-01'}"
    moment = datetime.fromisoformat(said)
    zone = occurred_at.tzinfo if occurred_at is not None else None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
