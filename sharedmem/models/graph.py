"""What the temporal knowledge graph holds, and what it answers."""

from __future__ import annotations

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
    entity_ids: tuple[str, ...] = ()
    """What it mentions; the graph's work."""
    fact_ids: tuple[str, ...] = ()
    """What it says; the graph's work."""
    metadata: dict[str, Any] = Field(default_factory=dict)
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
    signals: dict[str, float] = Field(default_factory=dict)
    """With `explain=True`: what each signal added to the score."""


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
