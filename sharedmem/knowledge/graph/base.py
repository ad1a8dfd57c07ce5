"""What every part of the graph stands on: whose graphs these are, where they are kept, and of which time is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sharedmem.coordination.ground import Ground
from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.extraction import Extractor
from sharedmem.knowledge.graph.family import GRAPH
from sharedmem.knowledge.graph.naming import check_group
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import When
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.times import LATEST, stamp_of
from sharedmem.knowledge.minds import Minds
from sharedmem.models import Episode
from sharedmem.process_bound import ProcessBound
from sharedmem.telemetry import Counters
from sharedmem.wire.access import EVERYONE, Need, Scope
from sharedmem.wire.keys import SHARED_SCOPE


@dataclass(frozen=True)
class Ways:
    """By what rules a graph takes in what it is told."""

    vocabulary: Vocabulary
    extractor: Extractor


class GraphBase(ProcessBound):
    """The graphs of one namespace, seen with the rights of one actor.

    Args:
        minds: what the hub lends.
        scope: hands out keys within the actor's rights.
        backend: keeps the graphs.
        ways: vocabulary and extractor.
        ground: for the task queue on which summaries wait.
    """

    def __init__(self, minds: Minds, scope: Scope, backend: GraphBackend, ways: Ways, ground: Ground) -> None:
        self._minds = minds
        self._scope = scope
        self._backend = backend
        self._ways = ways
        self._ground = ground
        self._namespace = scope.identity.namespace
        self._actor = scope.signature

    @property
    def _counters(self) -> Counters:
        return self._minds.counters

    def _signed(self, episode: Episode) -> Episode:
        """An episode with its author; only the namespace itself may say that it was another one."""
        actor = self._scope.identity.actor
        return episode.model_copy(update={"created_by": actor or episode.created_by or SHARED_SCOPE})

    def _check_author(self, episode: Episode) -> None:
        """Refuse who may not change or take back what an episode says.

        Raises:
            AccessDeniedError: another actor has told it, and `memory_rights` is `owner`.
        """
        self._scope.check_author(episode.created_by, GRAPH, episode.id)

    def _check_everyone(self, name: str) -> None:
        """Refuse who may not change what anybody has told.

        Raises:
            AccessDeniedError: `memory_rights` is `owner`, and this actor owns its own alone.
        """
        self._scope.check_author(EVERYONE, GRAPH, name)

    async def _enter(self, group_id: str, need: Need) -> str:
        """The group, if it is one and this actor may read or write the namespace's graphs.

        Then Redis has all graphs: where it was lost they come back from the durable tier first.

        Raises:
            InvalidError: it is no group.
            AccessDeniedError: this actor.
            UnavailableError: they are not all in Redis, and the tier cannot be asked.
        """
        self._scope.common(GRAPH, need)
        group = check_group(group_id)
        await self._gather()
        return group

    async def _gather(self) -> None:
        """Let all graphs be in Redis.

        Raises:
            UnavailableError: they are not, and the tier cannot be asked.
        """
        if self._minds.tier is not None:
            await self._minds.tier.gather(self._namespace)

    def _when(self, as_of: datetime | None, known_at: datetime | None) -> When:
        """Of which time is asked; now where nothing is said."""
        world = stamp_of("as_of", as_of if as_of is not None else self._minds.clock.now())
        return When(world, LATEST if known_at is None else stamp_of("known_at", known_at))


def check_limit(limit: int, most: int) -> int:
    """How many are wanted.

    Raises:
        InvalidError: none, or too many for one answer.
    """
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidError("limit", limit, f"ask for 1 to {most}")
    return limit
