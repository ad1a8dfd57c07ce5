"""What the benchmark of the graph tells: people who move, who change projects, and who meet others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sharedmem.graph.extraction.protocol import Extraction, Known, Mention, Statement
from sharedmem.models import Episode

FACTS_EACH = 3
"""Of an episode: somebody moves (which closes where they lived), begins to work on something, and meets somebody."""
ROUNDS = 4
"""How often everybody is told of while the graph is filled."""
BEGIN, END = datetime(2022, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
"""When what the graph is filled with happened, evenly spread; what is measured happens afterwards, a second apart."""
LEARNT_AFTER = timedelta(hours=1)
"""How long after it happened the graph learns of it."""
_BITS, _EACH = 24, 1 << 22
_ONSETS = ("b", "br", "d", "f", "g", "h", "k", "kl", "l", "m", "n", "p", "r", "st", "t", "v")
_VOWELS, _CODAS = ("a", "e", "i", "o"), ("", "n", "r", "s")
_SYLLABLES = [onset + vowel + coda for onset in _ONSETS for vowel in _VOWELS for coda in _CODAS]


@dataclass(frozen=True)
class PersonChange:
    """What one episode tells."""

    id: str
    person: str
    city: str
    project: str
    other: str
    """Whom the person has met; nobody has heard of them before, once the graph is filled."""
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
    """A graph of some size: a larger one has more people, cities and projects, not more of each other's."""

    facts: int

    @property
    def episodes(self) -> int:
        """How many it takes to fill it."""
        return self.facts // FACTS_EACH

    @property
    def people(self) -> int:
        """Who is told of; everybody a few times."""
        return max(1, self.episodes // ROUNDS)

    def tidings(self, number: int) -> PersonChange:
        """Return what the episode of a number tells; those from `episodes` on are new."""
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
        """Return the name of somebody."""
        return _name(0, number)

    def question(self, number: int) -> str:
        """Something to ask about people in turn."""
        told = self.tidings(number * 7 % self.episodes)
        return (
            f"Where does {told.person} live?",
            f"Who works on {told.project} with {told.person}?",
            f"What do we know of {told.person} and {told.other}?",
            f"Who has moved to {told.city}?",
        )[number % 4]

    def moment(self, number: int) -> datetime:
        """Return a moment of the past."""
        return BEGIN + (END - BEGIN) * (number * 37 % 100 + 1) / 102


def episodes(world: World, group: str) -> Iterator[Episode]:
    """Yield what a graph is filled with."""
    return (episode_of(world.tidings(number), group) for number in range(world.episodes))


def episode_of(told: PersonChange, group: str) -> Episode:
    """Tidings as an episode, learnt an hour after they happened."""
    return Episode(
        id=told.id, group_id=group, content=told.text(), occurred_at=told.at, recorded_at=told.at + LEARNT_AFTER
    )


class Prepared:
    """An extractor that knows beforehand what each episode says.

    Args:
        world: whose episodes these are.
    """

    name = "prepared"
    wants_known = False

    def __init__(self, world: World) -> None:
        self._world = world

    async def extract(self, episode: Episode, known: Known) -> Extraction:  # noqa: ARG002  # as the protocol has it
        """Four names and three statements."""
        told = self._world.tidings(int(episode.id.rpartition("-")[2]))
        lives, works, knows = told.sentences()
        return Extraction(
            (
                Mention(told.person, "person"),
                Mention(told.city, "city"),
                Mention(told.project, "project"),
                Mention(told.other, "person"),
            ),
            (
                Statement(told.person, "lives_in", told.city, text=lives),
                Statement(told.person, "works_on", told.project, text=works),
                Statement(told.person, "knows", told.other, text=knows),
            ),
        )


def _name(kind: int, number: int) -> str:
    """Return the name of a number, in two words; of two names two syllables at least differ, so that none is a slip."""
    mixed = (kind * _EACH + number) * 0x9E3779B1 % (1 << _BITS)
    parts = [mixed >> 8 * place & 0xFF for place in range(_BITS // 8)]
    first, second, third, fourth = (_SYLLABLES[part] for part in (*parts, sum(parts) % 256))
    return f"{first}{second} {third}{fourth}".title()
