"""Where names stand in a text: known forms, known names, quoted titles, the speaker, capitalised words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sharedmem.knowledge.graph.extracting.forms import Form
from sharedmem.knowledge.graph.extracting.plain_words import PARTICLES, Tongue

Certainty = Literal["sure", "title", "capitals", "beginning"]
"""`capitals`: what it is, a rule may say; `beginning`: it may be no name at all, but a word that begins a sentence,
or a noun where all have capitals."""

AMOUNT, PERSON, TITLE = "amount", "person", "title"
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|\u201c([^\u201d\n]{2,80})\u201d|\u00ab\s?([^\u00bb\n]{2,80}?)\s?\u00bb")
_MOST_WORDS = 5
_LONGEST_NAME = 200
_PIECE = 1_000


@dataclass(frozen=True, slots=True)
class Spot:
    """A name where it stands."""

    begin: int
    end: int
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    certainty: Certainty = "sure"
    is_speaker: bool = False
    possessive: bool = False
    """Of "my": what follows is the speaker's."""


class Known(NamedTuple):
    """A name of the vocabulary."""

    name: str
    type: str
    aliases: tuple[str, ...]


class Speaker(NamedTuple):
    """Who is speaking, or spoken to."""

    name: str
    is_listening: bool
    """Whether the text is said to them: "you" are they."""


@dataclass(slots=True)
class Found:
    """The names of a text, and which of its characters are still free."""

    text: str
    spots: list[Spot] = field(default_factory=list)
    free: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.free = bytearray(b"\x01") * len(self.text)

    def take(self, spot: Spot) -> None:
        """A name, unless another one stands there."""
        if self.is_free(spot.begin, spot.end):
            self.spots.append(spot)
            self.block(spot.begin, spot.end)

    def is_free(self, begin: int, end: int) -> bool:
        """Whether nothing was found there."""
        return self.free.find(0, begin, end) < 0

    def block(self, begin: int, end: int) -> None:
        """Nothing further is looked for there."""
        self.free[begin:end] = bytes(end - begin)


class Lexicon:
    """The names that can be found without a rule.

    Args:
        forms: of names that are known by their form, in order.
        known: the vocabulary.
        words: that rules know; one of them alone is no name, however it is written.
        tongue: of the texts.
    """

    def __init__(self, forms: Sequence[Form], known: Iterable[Known], *, words: Iterable[str], tongue: Tongue) -> None:
        self._tongue = tongue
        self._forms = forms
        self._words = frozenset(words)
        self._by_first: dict[str, list[tuple[str, Known]]] = {}
        self._whole: dict[str, Known] = {}
        for entry in known:
            for spelling in (entry.name, *entry.aliases):
                self._learn(_level(spelling).strip(), entry)
        for candidates in self._by_first.values():
            candidates.sort(key=lambda candidate: -len(candidate[0]))

    def _learn(self, spelling: str, entry: Known) -> None:
        first = _WORD.search(spelling)
        if first is not None:
            self._whole.setdefault(spelling, entry)
            self._by_first.setdefault(first[0], []).append((spelling[first.start() :], entry))

    def known(self, name: str) -> Known | None:
        """The entry of the vocabulary that has exactly this name."""
        return self._whole.get(_level(name).strip())

    def sure(self, text: str) -> Found:
        """The names that are told by form, vocabulary or quotation marks."""
        found = Found(text)
        for spot in self._formed(text):
            found.take(spot)
        for spot in self._listed(text):
            found.take(spot)
        for match in _QUOTED.finditer(text):
            title = match[match.lastindex or 1].strip()
            if any(letter.isalpha() for letter in title):
                found.take(Spot(*match.span(), title.rstrip(".,;"), TITLE, certainty="title"))
        return found

    def _formed(self, text: str) -> Iterator[Spot]:
        for form in self._forms:
            for begin in range(0, len(text), _PIECE):
                for match in form.pattern.finditer(text, begin, begin + _PIECE):
                    name = form.name_of(match)[:_LONGEST_NAME]
                    aliases = tuple({match[0].strip()} - {name}) if form.type != AMOUNT and match[0].strip() else ()
                    if name.strip():
                        yield Spot(*match.span(), name, form.type, aliases)

    def _listed(self, text: str) -> Iterator[Spot]:
        if not self._by_first:
            return
        level = _level(text)
        for word in _WORD.finditer(level):
            # "Acme's" begins with "Acme".
            for first in {word[0], word[0].partition("'")[0]}:
                spot = self._longest(level, word.start(), first)
                if spot is not None:
                    yield spot
                    break

    def _longest(self, level: str, begin: int, first: str) -> Spot | None:
        for spelling, entry in self._by_first.get(first, ()):
            end = begin + len(spelling)
            if level.startswith(spelling, begin) and not level[end : end + 1].isalnum():
                return Spot(begin, end, entry.name, entry.type, entry.aliases)
        return None

    def likely(self, found: Found, begins: set[int], speaker: Speaker) -> None:
        """Add the speaker and capitalised names where nothing surer stands.

        Args:
            found: what was found, with the dates blocked.
            begins: where sentences begin.
            speaker: who speaks, or is spoken to.
        """
        words = [match for match in _WORD.finditer(found.text) if found.is_free(*match.span())]
        for word in words:
            spot = self._speaking(word, speaker)
            if spot is not None:
                found.take(spot)
        run: list[re.Match[str]] = []
        for word in words:
            if run and not self._goes_on(found, run, word):
                self._take_run(found, run, begins)
                run = []
            if run or self._is_like_a_name(word):
                run.append(word)
        self._take_run(found, run, begins)

    def _speaking(self, word: re.Match[str], speaker: Speaker) -> Spot | None:
        said, apostrophe, rest = word[0].lower().partition("'")
        meant = self._tongue.you if speaker.is_listening else self._tongue.me
        if said not in meant or (apostrophe and rest not in self._tongue.shortened):
            return None
        # "i.e." and "i)" speak of nobody.
        if word[0] == "i" and not word.string[word.end() : word.end() + 1].isspace():
            return None
        end = word.start() + len(said)
        entry = self.known(speaker.name) or Known(speaker.name, PERSON, ())
        return Spot(
            *(word.start(), end, entry.name, entry.type or PERSON, entry.aliases),
            is_speaker=True,
            possessive=said in self._tongue.owning,
        )

    def _is_like_a_name(self, word: re.Match[str]) -> bool:
        said = word[0]
        plain = self._tongue.plain
        return said[0].isupper() and said.lower() not in plain and said.partition("'")[0].lower() not in plain

    def _goes_on(self, found: Found, run: list[re.Match[str]], word: re.Match[str]) -> bool:
        """Whether a word belongs to the name that began before it."""
        between = found.text[run[-1].end() : word.start()]
        if between not in {" ", ". ", " & "} or len(run) >= _MOST_WORDS or run[-1][0].endswith("'s"):
            return False
        if between == ". " and len(run[-1][0]) > 1:
            return False
        return self._is_like_a_name(word) or word[0] in PARTICLES or word[0].isdigit()

    def _take_run(self, found: Found, run: list[re.Match[str]], begins: set[int]) -> None:
        while run and not (run[-1][0][0].isupper() or run[-1][0].isdigit()):
            run.pop()
        if run and run[0].start() in begins and len(run) > 1 and run[0][0].lower() in self._words:
            run.pop(0)
        if not run or not found.is_free(run[0].start(), run[-1].end()):
            return
        begin, end = run[0].start(), _without_possessive(run[-1])
        lone = len(run) == 1
        if lone and run[0][0].lower() in self._words:
            return
        starts = lone and (begin in begins or self._tongue.has_capital_nouns)
        if lone and end - begin < 2:
            return
        found.take(
            Spot(begin, end, found.text[begin:end][:_LONGEST_NAME], certainty="beginning" if starts else "capitals")
        )


def _without_possessive(word: re.Match[str]) -> int:
    return word.end() - 2 if word[0].endswith("'s") else word.end()


def _level(text: str) -> str:
    """In lower case, and as long as before."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
