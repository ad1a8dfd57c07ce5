"""The protocol of extractors, and the mentions and statements that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from sharedmem.models import Entity, Episode, Fact, Unknown


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that an episode mentions."""

    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    id: str = ""
    """Id of the entity, if it is known; else the name is resolved."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A relation or attribute that an episode states about its mentions."""

    source: str
    """Name of a mention."""
    type: str
    target: str = ""
    """Name of a mention; empty for an attribute (type `@...`), and to end any target."""
    value: Any = None
    """Value of an attribute."""
    says: Literal["holds", "ends"] = "holds"
    valid_from: datetime | Unknown | None = None
    """None: since the episode happened. For an `ends`: when it ended."""
    valid_to: datetime | None = None
    text: str = ""
    """As a sentence; made from the names if empty."""


class Extraction(NamedTuple):
    """The result of an extraction."""

    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] = ()
    contradicted: tuple[str, ...] = ()
    """Ids of known facts that end with the episode."""
    warnings: tuple[str, ...] = ()


class Known(NamedTuple):
    """Facts of the graph that may matter to an episode; empty for extractors that do not use them."""

    entities: Sequence[Entity] = ()
    facts: Sequence[Fact] = ()


class Extractor(Protocol):
    """Finds entities and facts in episodes."""

    @property
    def name(self) -> str:
        """Name for display: `rules (heuristic)`, or the model's name."""

    @property
    def wants_known(self) -> bool:
        """Whether it uses facts that the graph has already."""

    async def extract(self, episode: Episode, known: Known) -> Extraction:
        """Return the mentions and statements of an episode. `episode.occurred_at` is set.

        Raises:
            UnavailableError, LimitedError, ConfigError, InvalidError: the model cannot be reached, or its answer is
                unusable; the episode is stored all the same.
        """
