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
    """Of an entity that is known to be meant; else it is resolved by its name."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that an episode says of what it mentions."""

    source: str
    """Name of a mention."""
    type: str
    target: str = ""
    """Name of a mention; empty for an attribute (type `@...`), and to end whatever holds."""
    value: Any = None
    """Of an attribute."""
    says: Literal["holds", "ends"] = "holds"
    valid_from: datetime | Unknown | None = None
    """None: since the episode happened. Of an `ends`: when it ended."""
    valid_to: datetime | None = None
    text: str = ""
    """As a sentence; made of the names when empty."""


class Extraction(NamedTuple):
    """What was found."""

    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] = ()
    contradicted: tuple[str, ...] = ()
    """Ids of known facts that do not hold any more since the episode happened."""
    warnings: tuple[str, ...] = ()


class Known(NamedTuple):
    """What the graph knows already that may matter to an episode; empty for extractors that do not ask for it."""

    entities: Sequence[Entity] = ()
    facts: Sequence[Fact] = ()


class Extractor(Protocol):
    """Finds entities and facts in episodes."""

    @property
    def name(self) -> str:
        """For people: `rules (heuristic)`, or the model's name."""

    @property
    def wants_known(self) -> bool:
        """Whether it should be told what the graph knows already."""

    async def extract(self, episode: Episode, known: Known) -> Extraction:
        """Return what an episode mentions and says. `episode.occurred_at` is set.

        Raises:
            UnavailableError, LimitedError, ConfigError, InvalidError: the model cannot be asked, or gives no usable
                answer; the episode is kept all the same.
        """
