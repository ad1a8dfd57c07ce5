"""Records and results of the temporal knowledge graph."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from sharedmem.models.record import Record

UNKNOWN: Literal["unknown"] = "unknown"
"""Value of `valid_from` for a fact whose start is unknown."""
Unknown = Literal["unknown"]
GraphKind = Literal["episode", "summary", "entity", "fact"]
Direction = Literal["out", "in", "both"]


class RelationType(Record):
    """The rules for relations of one type; an undeclared type may have many sources and targets at a time."""

    name: str
    """Name of letters, digits and `_`: `lives_in`."""
    functional: bool = False
    """A source has one target at a time: a later one closes the earlier one."""
    inverse_functional: bool = False
    """A target has one source at a time."""
    symmetric: bool = False
    """`a married_to b` also means `b married_to a`."""
    inverse: str | None = None
    """Name of the same relation in the other direction: `employs` is stored as `works_for`, with the ends swapped."""


class Episode(Record):
    """One piece of experience: a message, an event, a document, data, or a summary of earlier ones."""

    content: str | dict[str, Any]
    group_id: str
    """The graph group, `tenant:session`; every read and write names it."""
    id: str = ""
    """Set by the graph if empty; the same id with the same content is stored once."""
    occurred_at: AwareDatetime | None = None
    """When it happened; default: now."""
    recorded_at: AwareDatetime | None = None
    """When it was recorded in the graph; default: now."""
    source: str = "message"
    """Origin of the episode: `user`, `agent`, `system`, `crm`."""
    session: str | None = None
    user: str | None = None
    entities: tuple[str, ...] = ()
    """Ids of the entities that it mentions; set by the graph."""
    fact_ids: tuple[str, ...] = ()
    """Ids of the facts that it states; set by the graph."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_by: str | None = None
    """The actor that added it, `shared` for the namespace itself; set by the graph. None in earlier releases."""
    kind: Literal["episode", "summary", "statement"] = "episode"
    """`statement`: data that was written to the graph directly, such as one relationship."""
    covers: tuple[str, ...] = ()
    """Of a summary: the episodes or summaries that it summarises."""
    level: int = Field(default=0, ge=0)
    """0 for an event; 1 for a summary of events, 2 for a summary of summaries."""
    extraction: Literal["none", "done", "failed"] = "none"
    """`failed`: the model gave no usable answer; `graph.extract` tries again."""
    undone_at: AwareDatetime | None = None
    """Since when its graph claims are no longer valid."""


class Entity(Record):
    """Something that has a name: a person, a company, an order, an idea.

    Its type, summary, further names and merges have versions, each with both times, as a `Fact` has; its name never
    changes, and its attributes are facts with versions of their own.
    """

    id: str
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    """Further names, at most the first 100 of them."""
    alias_count: int = 0
    attributes: dict[str, Any] = Field(default_factory=dict)
    """Values at the requested time; `history` returns earlier values."""
    summary: str = ""
    group_id: str
    valid_from: AwareDatetime | None = None
    """Since when this is true of it: of the first statement, or of the version at the requested time; None if unknown,
    and for a time at which nothing was known of it."""
    valid_to: AwareDatetime | None = None
    """Until when, exclusive; None while it holds."""
    recorded_at: AwareDatetime | None = None
    """When it was first recorded, or when the version at the requested time was; None if nothing was known then."""
    superseded_at: AwareDatetime | None = None
    """Until when the version was known, exclusive; None for the present knowledge."""
    merged_into: str | None = None
    """The entity that this one was merged into."""
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    """Embedding of its names, type and summary; returned only on request."""


class Fact(Record):
    """A relationship between two entities, or an attribute of one, in one version.

    It holds in the world from `valid_from` until before `valid_to`, and was known from `recorded_at` until before
    `superseded_at` (bi-temporal).
    """

    id: str
    group_id: str
    source_id: str
    source_name: str
    type: str
    target_id: str | None
    """None for an attribute, whose type begins with `@`."""
    target_name: str
    value: Any = None
    """Value of an attribute."""
    fact: str
    """The fact as a sentence."""
    valid_from: AwareDatetime | None
    """None if unknown."""
    valid_to: AwareDatetime | None
    """None while it holds."""
    recorded_at: AwareDatetime
    superseded_at: AwareDatetime | None = None
    """None for the present version."""
    invalidated_at: AwareDatetime | None = None
    """When the end was recorded in the graph; None while it holds."""
    episode_ids: tuple[str, ...] = ()
    """The episodes that state it, at most the newest 64."""


class EpisodeResult(Record):
    """The result of adding an episode."""

    id: str
    episode: Episode
    entities: tuple[Entity, ...] = ()
    """Entities that it mentions."""
    facts: tuple[Fact, ...] = ()
    """Facts that it states, new or not."""
    closed: tuple[Fact, ...] = ()
    """Earlier facts that it ended or corrected, in their present version."""
    repeated: bool = False
    """Whether it was stored already; then nothing was changed."""
    warnings: tuple[str, ...] = ()
    """Unusable parts of the answer of the model or the rules."""


class EntityMerge(Record):
    """Two entities that turned out to be one."""

    source_id: str
    """The entity that was merged; its names now refer to the other one."""
    into_id: str
    at: AwareDatetime
    by: str
    reason: str = ""
    undone_at: AwareDatetime | None = None
    pending: bool = False
    """Whether facts still move; the next merge or unmerge in the group completes it first."""


class Step(Record):
    """One step along a fact."""

    fact: Fact
    forward: bool
    """Whether the step leads from the fact's source to its target."""


class Reached(Record):
    """An entity that a traversal reached."""

    entity_id: str
    name: str
    distance: int
    """Fewest steps from the start entities; 0 for these."""
    path: tuple[Step, ...] = ()
    """One shortest path."""


class Traversal(Record):
    """The neighbourhood of some entities."""

    reached: tuple[Reached, ...]
    """Entities, nearest first."""
    facts: tuple[Fact, ...]
    """All facts that the traversal followed."""
    truncated: bool = False
    """Whether the bounds on fan-out or size cut off a part."""


class GraphHit(Record):
    """A result of a search."""

    kind: GraphKind
    item: Episode | Entity | Fact
    score: float
    """BM25 of the words, or cosine similarity."""


class ContextItem(Record):
    """One item of context for a question."""

    kind: GraphKind
    id: str
    text: str
    score: float
    occurred_at: AwareDatetime | None = None
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    episode_ids: tuple[str, ...] = ()
    """Ids of the episodes that it comes from."""
    path: tuple[Step, ...] = ()
    """Path of the traversal to it."""
    distance: int | None = None
    """Steps from the entities that the question names; None if not found by traversal."""
    tokens: int = 0
    """Estimated tokens of its line in a prompt."""
    signals: dict[str, float] = Field(default_factory=dict)
    """Contribution of each signal to the score, with `explain=True`."""

    def as_line(self) -> str:
        """Return the item as one line for people and models, with its dates and origin."""
        return context_line(
            self.text,
            occurred_at=self.occurred_at,
            valid_from=self.valid_from,
            valid_to=self.valid_to,
            episode_ids=self.episode_ids,
        )


def context_line(
    text: str,
    *,
    occurred_at: datetime | None = None,
    valid_from: datetime | None = None,
    valid_to: datetime | None = None,
    episode_ids: tuple[str, ...] = (),
) -> str:
    """Return an item of context as one line, see `ContextItem.as_line`, from its fields."""
    words = " ".join(text.split())
    known = [part for part in (_dates(occurred_at, valid_from, valid_to), _origin(episode_ids)) if part]
    return f"- {words} ({'; '.join(known)})" if known else f"- {words}"


def _dates(occurred_at: datetime | None, valid_from: datetime | None, valid_to: datetime | None) -> str:
    if occurred_at is not None:
        return _day(occurred_at)
    since = f"since {_day(valid_from)}" if valid_from is not None else ""
    until = f"until {_day(valid_to)}" if valid_to is not None else ""
    return " ".join(part for part in (since, until) if part)


def _origin(episode_ids: tuple[str, ...]) -> str:
    shown = ", ".join(episode_ids[:_SHOWN_ORIGINS])
    more = "..." if len(episode_ids) > _SHOWN_ORIGINS else ""
    return f"from {shown}{more}" if shown else ""


class ContextSet(Record):
    """Context for a question, best item first, each with its origin."""

    query: str
    group_id: str
    items: tuple[ContextItem, ...] = ()
    entities: dict[str, str] = Field(default_factory=dict)
    """Entity names in the question, normalised, and the id of the entity of each."""
    as_of: AwareDatetime | None = None
    """Requested valid time; None for now."""
    known_at: AwareDatetime | None = None
    """Requested transaction time; None for now."""
    round_trips: int = 0
    milliseconds: float = 0.0
    degraded: str | None = None
    """Why nothing was searched by meaning; None if it was."""

    def as_prompt(self, max_tokens: int = 1_000) -> str:
        """Return the context as text for a model: one line for each item, best first, no line cut.

        Items that do not fit are left out; later, shorter items may still fit.

        Args:
            max_tokens: longest text, counted like the items' `tokens`: an estimate, above the true
                number for English prose.

        Returns:
            The text; empty if nothing fits.
        """
        left = max_tokens - _HEADING_TOKENS
        lines = []
        for item in self.items:
            if item.tokens <= left:
                left -= item.tokens
                lines.append(item.as_line())
        return "\n".join([self._format_heading(), *lines]) if lines else ""

    def _format_heading(self) -> str:
        of = f", as of {_day(self.as_of)}" if self.as_of is not None else ""
        known = f", as known on {_day(self.known_at)}" if self.known_at is not None else ""
        return f"What is known{of}{known}:"


_SHOWN_ORIGINS = 2
"""Ids of episodes in a line of a prompt: they serve for look-ups, not for reading."""
_HEADING_TOKENS = 24
"""Tokens of the longest heading, with both dates."""


def _day(moment: datetime) -> str:
    """Return a date, with the time of day where there is one."""
    whole = moment.time() == time.min
    return moment.date().isoformat() if whole else f"{moment.date()} {moment.time().isoformat('minutes')}"


class GraphStats(Record):
    """The content of a graph group, in numbers."""

    group_id: str
    episodes: int
    summaries: int
    entities: int
    facts: int
    """Present versions that hold now or have an open end."""
    past_facts: int
    """Facts that have ended or were corrected."""
    merges: int


class GraphProblem(Record):
    """A difference between the stored graph and the graph that follows from its claims."""

    kind: Literal[
        "missing_fact",
        "superfluous_fact",
        "wrong_interval",
        "wrong_superseded",
        "wrong_fact",
        "misplaced_claim",
        "missing_entity",
        "missing_entry",
        "dangling_entry",
    ]
    """The kind of problem. A fact that is missing or superfluous; whose versions begin or end at other times; that
    differs only in the time at which a version was superseded; whose text differs. A claim in the wrong list; an entity
    that is referred to and has no record; an index entry that a record lacks, or that belongs to no record."""
    id: str
    """Id of the fact, claim or entity; for an index entry, id of its record."""
    explanation: str
    repair: str
    """Effect of the repair."""
    repaired: bool = False


class GraphCheck(Record):
    """The result of `check` for a group."""

    group_id: str
    episodes: int
    """Number of episodes, summaries and statements included."""
    claims: int
    facts: int
    entities: int
    """Number of entities that claims refer to."""
    problems: tuple[GraphProblem, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to repair."""
        return all(problem.repaired for problem in self.problems)


class DrawnEntity(Record):
    """An entity in a drawing."""

    id: str
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    summary: str = ""
    recorded_at: AwareDatetime | None = None


class DrawnVersion(Record):
    """One version of a fact: a rectangle of valid time and transaction time."""

    valid_from: AwareDatetime | None
    """None if unknown."""
    valid_to: AwareDatetime | None
    """None while it holds."""
    recorded_at: AwareDatetime
    superseded_at: AwareDatetime | None
    """None for the present version."""


class DrawnFact(Record):
    """A fact in a drawing, with all its versions."""

    id: str
    source_id: str
    type: str
    target_id: str | None
    """None for an attribute, whose type begins with `@`."""
    value: str
    """Value of an attribute, as text."""
    fact: str
    """The fact as a sentence."""
    versions: tuple[DrawnVersion, ...]
    """Oldest transaction time first; at most one version was current at each moment."""
    episode_ids: tuple[str, ...] = ()


class DrawnEpisode(Record):
    """The origin of facts in a drawing: the beginning of an episode's text."""

    id: str
    text: str
    source: str
    occurred_at: AwareDatetime


class GraphDrawing(Record):
    """A part of a graph with all its times, for pictures (`as_mermaid`, `as_dot`, `as_html`)."""

    group_id: str
    drawn_at: AwareDatetime
    """The time that the pictures treat as now."""
    entities: tuple[DrawnEntity, ...] = ()
    facts: tuple[DrawnFact, ...] = ()
    episodes: tuple[DrawnEpisode, ...] = ()
    truncated: bool = False
    """Whether the graph has more than the requested part."""


class EntityFacts(Record):
    """An entity and its valid facts."""

    entity: Entity
    facts: list[Fact]
