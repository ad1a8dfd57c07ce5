"""The data of the benchmark of the graph: people who move, change projects, and meet others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sharedmem.graph.protocol import Extraction, Known, Mention, Statement
from sharedmem.models import Episode

FACTS_EACH = 3
"""Facts of an episode: a person moves (which closes the former home), starts on a project, and meets another."""
ROUNDS = 4
"""Episodes of each person while the graph is filled."""
BEGIN, END = datetime(2022, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
"""Period of the episodes that fill the graph, evenly spread; the measured ones happen afterwards, a second apart."""
LEARNT_AFTER = timedelta(hours=1)
"""Delay from an episode's time to its time of recording."""
_BITS, _EACH = 24, 1 << 22
_ONSETS = ("b", "br", "d", "f", "g", "h", "k", "kl", "l", "m", "n", "p", "r", "st", "t", "v")
_VOWELS, _CODAS = ("a", "e", "i", "o"), ("", "n", "r", "s")
_SYLLABLES = [onset + vowel + coda for onset in _ONSETS for vowel in _VOWELS for coda in _CODAS]


@dataclass(frozen=True)
class PersonChange:
    """The content of one episode."""

    id: str
    person: str
    city: str
    project: str
    other: str
    """The other person; once the graph is filled, a new one."""
    at: datetime

    def sentences(self) -> tuple[str, str, str]:
        """Return its facts."""
        return (
            f"{self.person} lives in {self.city}",
            f"{self.person} works on {self.project}",
            f"{self.person} knows {self.other}",
        )

    def text(self) -> str:
        """Return the episode."""
        return f"{self.person} has moved to {self.city}, works on {self.project} now, and has met {self.other}."


@dataclass(frozen=True)
class World:
    """A graph of some size: a larger one has more people, cities and projects, not more facts of each."""

    facts: int

    @property
    def episodes(self) -> int:
        """Number of episodes that fill it."""
        return self.facts // FACTS_EACH

    @property
    def people(self) -> int:
        """Number of people; each has a few episodes."""
        return max(1, self.episodes // ROUNDS)

    def tidings(self, number: int) -> PersonChange:
        """Return the content of an episode by its number; from `episodes` on they are new."""
        turn, who = divmod(number, self.people)
        is_new = number >= self.episodes
        met = self.people + number if is_new else (who * 31 + turn * 17 + 1) % self.people
        later = timedelta(seconds=number - self.episodes)
        return PersonChange(
            id=f"tidings-{number}",
            person=self.person(who),
            city=_name(1, (who * 11 + turn * 13) % max(16, self.facts // 60)),
            project=_name(2, (who * 7 + turn * 10) % max(16, self.facts // 30)),
            other=self.person(met),
            at=END + later if is_new else BEGIN + (END - BEGIN) * number / self.episodes,
        )

    def person(self, number: int) -> str:
        """Return the name of a person."""
        return _name(0, number)

    def question(self, number: int) -> str:
        """Return a question about people in turn."""
        change = self.tidings(number * 7 % self.episodes)
        return (
            f"Where does {change.person} live?",
            f"Who works on {change.project} with {change.person}?",
            f"What do we know of {change.person} and {change.other}?",
            f"Who has moved to {change.city}?",
        )[number % 4]

    def moment(self, number: int) -> datetime:
        """Return a moment of the past."""
        return BEGIN + (END - BEGIN) * (number * 37 % 100 + 1) / 102


def episodes(world: World, group: str) -> Iterator[Episode]:
    """Yield the episodes that fill a graph."""
    return (episode_of(world.tidings(number), group) for number in range(world.episodes))


def episode_of(change: PersonChange, group: str) -> Episode:
    """Return an episode, recorded an hour after it happened."""
    return Episode(
        id=change.id, group_id=group, content=change.text(), occurred_at=change.at, recorded_at=change.at + LEARNT_AFTER
    )


class Prepared:
    """An extractor that knows the content of each episode.

    Args:
        world: the world of the episodes.
    """

    name = "prepared"
    wants_known = False

    def __init__(self, world: World) -> None:
        self._world = world

    async def extract(self, episode: Episode, known: Known) -> Extraction:  # noqa: ARG002  # as in the protocol
        """Return four names and three statements."""
        change = self._world.tidings(int(episode.id.rpartition("-")[2]))
        lives, works, knows = change.sentences()
        return Extraction(
            (
                Mention(change.person, "person"),
                Mention(change.city, "city"),
                Mention(change.project, "project"),
                Mention(change.other, "person"),
            ),
            (
                Statement(change.person, "lives_in", change.city, text=lives),
                Statement(change.person, "works_on", change.project, text=works),
                Statement(change.person, "knows", change.other, text=knows),
            ),
        )


def _name(kind: int, number: int) -> str:
    """Return a name for a number, in two words; two names differ in at least two syllables, so none is a typo."""
    mixed = (kind * _EACH + number) * 0x9E3779B1 % (1 << _BITS)
    parts = [mixed >> 8 * place & 0xFF for place in range(_BITS // 8)]
    first, second, third, fourth = (_SYLLABLES[part] for part in (*parts, sum(parts) % 256))
    return f"{first}{second} {third}{fourth}".title()
