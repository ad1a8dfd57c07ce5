"""The lines that a step reads: those of its own claims, and those on which the facts of these lines depend as well.

Where both ends of a relation are functional, a fact depends on two lines. A step that changes the claims of one of them
writes that fact on the strength of the other one too, so it relies on both (`planning.steady_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from sharedmem.knowledge.graph.planning import Ground, lines_of
from sharedmem.knowledge.graph.projecting import further_lines
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import Claim, Seen, Wanted, earliest
from sharedmem.knowledge.graph.relations import Vocabulary


async def read_lines(  # each is a fact of the step
    backend: GraphBackend,
    group: str,
    claims: Collection[Claim],
    *,
    vocabulary: Vocabulary,
    version: int,
    stored: Iterable[str] = (),
    into: Mapping[str, str] | None = None,
    entities: tuple[str, ...] = (),
) -> tuple[Ground, Seen]:
    """Read what a step needs that writes some claims. One round trip; a second one where relations form chains.

    Args:
        backend: keeps the graph.
        group: whose graph.
        claims: that are written, new or retracted.
        vocabulary: how relations behave.
        version: that all includes what the step has read before.
        stored: lines in which the claims are already.
        into: merges that the step knows already, or makes.
        entities: whose rows are read as well.

    Returns:
        The lines; the entities, and the version that includes all that the step has read.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    known = into or {}
    found = Seen(version)

    def canonical(id_: str) -> str:
        return known.get(id_) or found.into.get(id_, id_)

    ground = Ground(vocabulary, canonical, found.claims)
    own = set(stored)
    while True:
        own |= {line for claim in claims for line in lines_of(claim, ground)}
        there = chain(claims, *(found.claims.get(line, ()) for line in own))
        missing = (own | further_lines(there, vocabulary, canonical)) - found.claims.keys()
        if not missing and not entities:
            return ground, found
        seen = await backend.look(group, Wanted(lines=tuple(sorted(missing)), entities=entities))
        found.claims |= seen.claims
        found.into |= seen.into
        found.entities |= seen.entities
        found.version = earliest(found.version, seen.version)
        entities = ()
