"""Compare the planted facts with the findings: for the summary and the tests, never for an agent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from reading import Fact, as_fact


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Side(_Frozen):
    """A value and the documents that state it."""

    value: str
    documents: tuple[str, ...]


class PlantedFact(_Frozen):
    """A fact that was written in two versions."""

    fact: str
    unit: str
    sides: tuple[Side, Side]


class Planted(_Frozen):
    """The truth file."""

    note: str
    contradictions: tuple[PlantedFact, ...]
    duplicates: tuple[tuple[str, str], ...]


class Grade(_Frozen):
    """The result of the reviewer."""

    contradictions: int
    contradictions_planted: int
    duplicates: int
    duplicates_planted: int
    false_alarms: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def precision(self) -> float:
        """The share of planted facts among the reported ones, 0 to 1."""
        right = self.contradictions + self.duplicates
        return right / max(1, right + len(self.false_alarms))


def planted_in(path: Path) -> Planted:
    """Return the truth file at `path`."""
    return Planted.model_validate_json(path.read_text(encoding="utf-8"))


def grade(planted: Planted, contradictions: Iterable[Fact], duplicates: Iterable[tuple[str, str]]) -> Grade:
    """Compare; a contradiction counts only with both values and exactly the documents that contain them."""
    truth = {
        as_fact(fact.unit, ((side.value, side.documents) for side in fact.sides)): fact.fact
        for fact in planted.contradictions
    }
    found, pairs, true_pairs = set(contradictions), set(duplicates), set(planted.duplicates)
    return Grade(
        contradictions=len(found & truth.keys()),
        contradictions_planted=len(truth),
        duplicates=len(pairs & true_pairs),
        duplicates_planted=len(true_pairs),
        false_alarms=tuple(str(extra) for extra in [*(found - truth.keys()), *(pairs - true_pairs)]),
        missed=tuple(
            [fact for key, fact in truth.items() if key not in found] + [str(pair) for pair in true_pairs - pairs]
        ),
    )
