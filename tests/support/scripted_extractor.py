"""An extractor that finds in an episode exactly what a test has put there, as lines of plain text.

`Anna | lives_in | Rome | 3 | 5 | holds`: since day 3 until day 5; days may be empty, and `?` is an unknown beginning.
A line of one name alone is a mention; `Anna | @tier | 1 | 3` is an attribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sharedmem.graph.episode_input import content_text
from sharedmem.graph.protocol import Extraction, Known, Mention, Statement
from sharedmem.models import UNKNOWN, Episode, Unknown
from support.graph_rows import day

_BETWEEN = " | "
_WORDS = 6


@dataclass(frozen=True)
class ScriptLine:
    """One thing that an episode says, in days."""

    source: str
    type: str
    target: str
    start: int | None = None
    """None: unknown."""
    end: int | None = None
    says: Literal["holds", "ends"] = "holds"

    def __str__(self) -> str:
        start, end = "?" if self.start is None else self.start, "" if self.end is None else self.end
        return _BETWEEN.join(map(str, (self.source, self.type, self.target, start, end, self.says)))


def scripted_episode(id_: str, *lines: ScriptLine, group: str = "acme:support") -> Episode:
    """An episode of day 1 that says some lines."""
    return Episode(content="\n".join(map(str, lines)), group_id=group, id=id_, occurred_at=day(1), recorded_at=day(1))


class ScriptedExtractor:
    """Says what it is told."""

    name = "test:parrot"
    wants_known = False

    async def extract(self, episode: Episode, known: Known) -> Extraction:  # noqa: ARG002  # the protocol's
        """See `Extractor.extract`."""
        lines = [line.split(_BETWEEN.strip()) for line in content_text(episode.content).splitlines()]
        words = [[word.strip() for word in line] + [""] * (_WORDS - len(line)) for line in lines]
        names = [name for line in words for name in _names(line) if name]
        return Extraction(
            tuple(map(Mention, dict.fromkeys(names))), tuple(_statement(line) for line in words if line[1])
        )


def _names(words: list[str]) -> list[str]:
    return words[:1] if words[1].startswith("@") else [words[0], words[2]]


def _statement(words: list[str]) -> Statement:
    source, type_, other, start, end, says = words
    is_attribute = type_.startswith("@")
    return Statement(
        source,
        type_,
        "" if is_attribute else other,
        value=(other or None) if is_attribute else None,
        says="ends" if says == "ends" else "holds",
        valid_from=_moment(start),
        valid_to=day(int(end)) if end else None,
    )


def _moment(word: str) -> datetime | Unknown | None:
    return UNKNOWN if word == "?" else day(int(word)) if word else None
