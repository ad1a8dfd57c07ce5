"""Records and results of the temporal knowledge graph."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from sharedmem.models.record import Record

UNKNOWN: Literal["unknown"] = "unknown"
"""Given as `valid_from`: nobody knows since when a fact holds."""
Unknown = Literal["unknown"]
GraphKind = Literal["episode", "summary", "entity", "fact"]
Direction = Literal["out", "in", "both"]


class RelationType(Record):
    """How relations of one type behave; what is not declared may hold of many at a time."""

    name: str
    """Letters, digits and `_`: `lives_in`."""
    functional: bool = False
    """A source has one target at a time: a later one closes the earlier one."""
    inverse_functional: bool = False
    """A target has one source at a time."""
    symmetric: bool = False
    """`a married_to b` says `b married_to a` too."""
    inverse: str | None = None
    """Name of the same relation told from the other end: `employs` is kept as `works_for`, turned around."""


class Episode(Record):
    """One piece of experience: a message, an event, a document, data, or a summary of earlier ones."""

    content: str | dict[str, Any]
    group_id: str
    """Whose graph it belongs to, `tenant:session`; nothing is asked or written without it."""
    id: str = ""
    """Given by the graph when empty; the same id with the same content is stored once."""
    occurred_at: AwareDatetime | None = None
    """When it happened; now when not given."""
    recorded_at: AwareDatetime | None = None
    """When the graph learned of it; now when not given."""
    source: str = "message"
    """What or who it comes from: `user`, `agent`, `system`, `crm`."""
    session: str | None = None
    user: str | None = None
    entities: tuple[str, ...] = ()
    """Ids of what it mentions; the graph's work."""
    fact_ids: tuple[str, ...] = ()
    """Ids of what it says; the graph's work."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_by: str | None = None
    """The actor who told it, `shared` for the namespace itself; the graph's work. None in those of earlier versions."""
    kind: Literal["episode", "summary", "statement"] = "episode"
    """`statement`: something that was told to the graph directly, such as one relationship."""
    covers: tuple[str, ...] = ()
    """Of a summary: the episodes or summaries that it sums up."""
    level: int = Field(default=0, ge=0)
    """0 for what happened; 1 for a summary of it, 2 for a summary of summaries."""
    extraction: Literal["none", "done", "failed"] = "none"
    """`failed`: the model gave no usable answer; `graph.extract` tries again."""
    undone_at: AwareDatetime | None = None
    """Since when nothing that it said counts any more."""


class Entity(Record):
    """Something that has a name: a person, a company, an order, an idea."""

    id: str
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    """Further names, at most the first 100 of them."""
    alias_count: int = 0
    attributes: dict[str, Any] = Field(default_factory=dict)
    """As they are at the time that was asked for; `history` tells how they were."""
    summary: str = ""
    group_id: str
    recorded_at: AwareDatetime | None = None
    merged_into: str | None = None
    """The entity that it turned out to be."""
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    """Of its names, type and summary; answered only to those who ask for it."""


class Fact(Record):
    """A relationship between two entities, or an attribute of one, in one version of what was known of it.

    It holds in the world from `valid_from` until before `valid_to`, and that was known from `recorded_at` until before
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
    """Of an attribute."""
    fact: str
    """The fact as a sentence."""
    valid_from: AwareDatetime | None
    """None when nobody knows."""
    valid_to: AwareDatetime | None
    """None while it holds."""
    recorded_at: AwareDatetime
    superseded_at: AwareDatetime | None = None
    """None for what is known now."""
    invalidated_at: AwareDatetime | None = None
    """When the graph learned that it ended; None while it holds."""
    episode_ids: tuple[str, ...] = ()
    """Who says so, at most the newest 64."""


class EpisodeResult(Record):
    """What became of an episode."""

    id: str
    episode: Episode
    entities: tuple[Entity, ...] = ()
    """Those it mentions."""
    facts: tuple[Fact, ...] = ()
    """Those it says, new or not."""
    closed: tuple[Fact, ...] = ()
    """Earlier ones that it ended or corrected, as they are known now."""
    repeated: bool = False
    """Whether it was there already; nothing was changed then."""
    warnings: tuple[str, ...] = ()
    """What the model or the rules said that could not be used."""


class EntityMerge(Record):
    """Two entities that turned out to be one."""

    source_id: str
    """Which was merged; its names lead to the other one now."""
    into_id: str
    at: AwareDatetime
    by: str
    reason: str = ""
    undone_at: AwareDatetime | None = None


class Step(Record):
    """One step along a fact."""

    fact: Fact
    forward: bool
    """Whether from its source to its target."""


class Reached(Record):
    """An entity that a traversal came to."""

    entity_id: str
    name: str
    distance: int
    """Fewest steps from where it began; 0 for those."""
    path: tuple[Step, ...] = ()
    """One shortest way."""


class Traversal(Record):
    """What lies around some entities."""

    reached: tuple[Reached, ...]
    """Nearest first."""
    facts: tuple[Fact, ...]
    """All facts that were walked along."""
    truncated: bool = False
    """Whether the bounds on fan-out or size left something out."""


class GraphHit(Record):
    """Something that a search found."""

    kind: GraphKind
    item: Episode | Entity | Fact
    score: float
    """BM25 of the words, or cosine similarity."""


class ContextItem(Record):
    """One thing worth knowing for a question."""

    kind: GraphKind
    id: str
    text: str
    score: float
    occurred_at: AwareDatetime | None = None
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    episode_ids: tuple[str, ...] = ()
    """Where it comes from."""
    path: tuple[Step, ...] = ()
    """How the traversal came to it."""
    distance: int | None = None
    """Steps from the entities that the question names; None when not come to that way."""
    tokens: int = 0
    """Of its line in a prompt, estimated."""
    signals: dict[str, float] = Field(default_factory=dict)
    """With `explain=True`: what each signal added to the score."""

    def as_line(self) -> str:
        """The item as one line for people and models, with its dates and where it comes from."""
        words = " ".join(self.text.split())
        known = [part for part in (self._dates(), self._origin()) if part]
        return f"- {words} ({'; '.join(known)})" if known else f"- {words}"

    def _dates(self) -> str:
        if self.occurred_at is not None:
            return _day(self.occurred_at)
        since = f"since {_day(self.valid_from)}" if self.valid_from is not None else ""
        until = f"until {_day(self.valid_to)}" if self.valid_to is not None else ""
        return " ".join(part for part in (since, until) if part)

    def _origin(self) -> str:
        shown = ", ".join(self.episode_ids[:_SHOWN_ORIGINS])
        more = "..." if len(self.episode_ids) > _SHOWN_ORIGINS else ""
        return f"from {shown}{more}" if shown else ""


class ContextSet(Record):
    """What is worth knowing for a question, best first, with where each thing comes from."""

    query: str
    group_id: str
    items: tuple[ContextItem, ...] = ()
    entities: dict[str, str] = Field(default_factory=dict)
    """Names that the question names, as they are compared, and the ids of those who bear them."""
    as_of: AwareDatetime | None = None
    """Of which moment of the world was asked; None for now."""
    known_at: AwareDatetime | None = None
    """As known when; None for now."""
    round_trips: int = 0
    milliseconds: float = 0.0
    degraded: str | None = None
    """Why nothing was searched by meaning, where that is so."""

    def as_prompt(self, max_tokens: int = 1_000) -> str:
        """The context as text for a model: one line for each thing, best first, none of them cut.

        What does not fit is left out, and what comes behind it may still fit.

        Args:
            max_tokens: how long the text may be, counted as the items' `tokens` are: an estimate, above the true
                number for English prose.

        Returns:
            The text; empty when nothing fits.
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
"""Ids of episodes in a line of a prompt: they are for looking up, not for reading."""
_HEADING_TOKENS = 24
"""Of the longest heading, with both dates."""


def _day(moment: datetime) -> str:
    """A date, with the time of day where there is one."""
    whole = moment.time() == time.min
    return moment.date().isoformat() if whole else f"{moment.date()} {moment.time().isoformat('minutes')}"


class GraphStats(Record):
    """What a group holds."""

    group_id: str
    episodes: int
    summaries: int
    entities: int
    facts: int
    """Known now and holding now or with an open end."""
    past_facts: int
    """Ended, or known to be wrong."""
    merges: int


class GraphProblem(Record):
    """A difference between what a graph holds and what follows from the claims of its episodes."""

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
    """A fact that should be there, or should not; whose versions begin or end otherwise; of which only the moment
    differs at which a version was superseded; that says something else. A claim in the wrong lines; an entity that is
    referred to and has no record; an index entry that a record lacks, or that belongs to no record."""
    id: str
    """Of the fact, claim or entity; of an index entry, the record that it belongs to."""
    explanation: str
    repair: str
    """What repairing does."""
    repaired: bool = False


class GraphCheck(Record):
    """What `check` has read of a group, and what it has found."""

    group_id: str
    episodes: int
    """Summaries and statements too."""
    claims: int
    facts: int
    entities: int
    """To which claims refer."""
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
    """What was known of a fact for some time: one rectangle of world time and knowledge time."""

    valid_from: AwareDatetime | None
    """None when nobody knows."""
    valid_to: AwareDatetime | None
    """None while it holds."""
    recorded_at: AwareDatetime
    superseded_at: AwareDatetime | None
    """None for what is known now."""


class DrawnFact(Record):
    """A fact in a drawing, with everything that was ever known of it."""

    id: str
    source_id: str
    type: str
    target_id: str | None
    """None for an attribute, whose type begins with `@`."""
    value: str
    """Of an attribute, as text."""
    fact: str
    """As a sentence."""
    versions: tuple[DrawnVersion, ...]
    """Oldest knowledge first; at each moment one of them at most was known."""
    episode_ids: tuple[str, ...] = ()


class DrawnEpisode(Record):
    """Who says so: the beginning of an episode's text."""

    id: str
    text: str
    source: str
    occurred_at: AwareDatetime


class GraphDrawing(Record):
    """A part of a graph with all its times, from which pictures are made (`as_mermaid`, `as_dot`, `as_html`)."""

    group_id: str
    drawn_at: AwareDatetime
    """What the pictures take for now."""
    entities: tuple[DrawnEntity, ...] = ()
    facts: tuple[DrawnFact, ...] = ()
    episodes: tuple[DrawnEpisode, ...] = ()
    truncated: bool = False
    """Whether there is more than was asked for."""


class EntityFacts(Record):
    """An entity, and the facts that hold of it."""

    entity: Entity
    facts: list[Fact]
