"""Reach through the graph: shortest distances and paths out of the edges that a walk came along. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt

from sharedmem.knowledge.graph.records import Edge, FactRow
from sharedmem.knowledge.graph.views import fact_of
from sharedmem.models import Step


class Reach:
    """The shortest ways from some entities, as far as a walk has come.

    Args:
        starts: ids of entities.
        edges: each with the distance of its far end, nearest first.
    """

    def __init__(self, starts: Iterable[str], edges: Iterable[tuple[int, Edge]]) -> None:
        self.distances = dict.fromkeys(starts, 0)
        """Of each entity that was reached, in the order in which they were."""
        self._edges: dict[str, Edge] = {}
        for distance, edge in edges:
            if edge.other and edge.other not in self.distances:
                self.distances[edge.other] = distance
                self._edges[edge.other] = edge

    def to(self, entity: str) -> tuple[Edge, ...]:
        """The edges of one shortest way to an entity that was reached, in their order."""
        return tuple(reversed(list(self._back_from(entity))))

    def _back_from(self, entity: str) -> Iterator[Edge]:
        while (edge := self._edges.get(entity)) is not None:
            yield edge
            entity = edge.entity


def nearness_of(reach: Reach, edges: Sequence[Edge]) -> dict[str, float]:
    """How near the entities and facts of a walk are, by id: 1 / (1 + distance).

    A fact that is not told of where the walk began counts less when its nearer end has many: what everybody has in
    common, such as a town, says little of any of them. It is divided by the root of their number.
    """
    near = {entity: 1 / (1 + distance) for entity, distance in reach.distances.items()}
    facts = Counter(edge.entity for edge in edges)
    for edge in reversed(edges):
        is_there = reach.distances.get(edge.entity, 0) == 0
        near[edge.fact] = near.get(edge.entity, 1.0) / (1.0 if is_there else sqrt(facts[edge.entity]))
    return near


def reversed_way(way: Sequence[Edge]) -> tuple[Edge, ...]:
    """A way walked back."""
    return tuple(
        edge._replace(entity=edge.other, other=edge.entity, forward=not edge.forward) for edge in reversed(way)
    )


def shortest_through(some: Reach, others: Reach) -> tuple[Edge, ...] | None:
    """The shortest way between the starts of two walks that have met; None when they have not."""
    met = [entity for entity in some.distances if entity in others.distances]
    if not met:
        return None
    middle = min(met, key=lambda entity: (some.distances[entity] + others.distances[entity], entity))
    return (*some.to(middle), *reversed_way(others.to(middle)))


def steps_along(way: Iterable[Edge], rows: Mapping[str, FactRow], group: str) -> tuple[Step, ...]:
    """The steps of a way; those whose fact has gone meanwhile are left out."""
    return tuple(step_of(edge, rows[edge.fact], group) for edge in way if edge.fact in rows)


def step_of(edge: Edge, row: FactRow, group: str) -> Step:
    """One step."""
    return Step(fact=fact_of(row, edge.version, group), forward=edge.forward)
