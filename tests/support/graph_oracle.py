"""What a graph has to answer, told from a list of everything that was said: no spans, no lines, no versions.

An answer is looked for in the list anew each time, moment by moment (`graph_claims.truth_at`), with names in place of
ids. What is merged is read under the name of what it became, whenever it was said, as `Graph.merge` promises.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sharedmem.graph.records import LATEST, OPEN, UNKNOWN_START, Claim
from support.graph_claims import SYMMETRIC, VOCABULARY, oracle_true_at
from support.graph_rows import stamp
from support.scripted_extractor import ScriptLine

Told = tuple[str, str, str]
"""Source, type, and target or JSON of a value, by name; the ends of what is symmetric in alphabetical order."""


@dataclass
class GraphOracle:
    """All that was said in one group."""

    claims: list[Claim] = field(default_factory=list)
    episodes: dict[str, int] = field(default_factory=dict)
    """Of each, how many statements it has made."""
    contents: dict[str, str] = field(default_factory=dict)
    """Of the ones that came as episodes, and not by statements alone."""
    undone: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    into: dict[str, str] = field(default_factory=dict)
    """Merges that stand."""
    merged: set[str] = field(default_factory=set)
    """Everything that was ever merged."""

    def add(self, episode: str, lines: Iterable[ScriptLine], *, recorded: int) -> None:
        """An episode says something, for the first time or on top of what it has said."""
        for line in lines:
            number = self.episodes.get(episode, 0)
            self.episodes[episode] = number + 1
            self.claims.append(_claim(line, episode, number, recorded))
            self.names |= {line.source, "" if line.type.startswith("@") else line.target} - {""}

    def take_back(self, episode: str, *, at: int) -> None:
        """Nothing that an episode said counts any more."""
        self.undone.add(episode)
        self.claims = [
            replace(one, retracted=min(one.retracted, at)) if one.episode == episode else one for one in self.claims
        ]

    def end_of(self, name: str) -> str:
        """What a name's bearer was merged into in the end."""
        while name in self.into:
            name = self.into[name]
        return name

    def true_at(self, world: int, known: int = LATEST) -> set[Told]:
        """Everything that holds."""
        claims = [self._read(one) for one in self.claims]
        return {_oracle_fact(*fact) for fact in oracle_true_at(claims, world=world, known=known)}

    def distances(self, start: str, depth: int, world: int, known: int = LATEST) -> dict[str, int]:
        """How many steps away everybody within reach is."""
        edges = [(a, b) for a, type_, b in self.true_at(world, known) if not type_.startswith("@")]
        found, level = {self.end_of(start): 0}, {self.end_of(start)}
        for far in range(1, depth + 1):
            beside = {b for a, b in edges if a in level} | {a for a, b in edges if b in level}
            level = beside - found.keys()
            found |= dict.fromkeys(level, far)
        return found

    def _read(self, claim: Claim) -> Claim:
        source, target = self.end_of(claim.source), self.end_of(claim.target)
        if claim.type in SYMMETRIC and target:
            source, target = sorted((source, target))
        return replace(claim, source=source, target=target)


def _claim(line: ScriptLine, episode: str, number: int, recorded: int) -> Claim:
    is_attribute = line.type.startswith("@")
    type_, source, target = line.type, line.source, "" if is_attribute else line.target
    if target:
        type_, source, target = VOCABULARY.canonical(type_, source, target)
    value = f'"{line.target}"' if is_attribute and line.target else ""
    start = UNKNOWN_START if line.start is None else stamp(line.start)
    end = OPEN if line.end is None else stamp(line.end)
    return Claim(
        *(episode, number, line.says),
        *(source, source, type_, target, target, value),
        *(start, end, recorded),
    )


def _oracle_fact(source: str, type_: str, target: str, value: str) -> Told:
    if type_ in SYMMETRIC:
        source, target = sorted((source, target))
    return source, type_, target or value
