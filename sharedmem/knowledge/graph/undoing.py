"""Undoing: all that an episode claims is retracted, and what follows from the other claims is true again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sharedmem.errors import NotFoundError
from sharedmem.knowledge.graph.lines import read_lines
from sharedmem.knowledge.graph.naming import check_whole
from sharedmem.knowledge.graph.planning import Ground, Shift, lines_of, newest_of, shifted, steady_of, told_of
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import Behind, Changes, EpisodeRow, Wanted
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.times import OPEN, moment_of, stamp_of
from sharedmem.knowledge.graph.turns import Turns
from sharedmem.knowledge.graph.views import episode_of, newest_fact_of
from sharedmem.knowledge.minds import Minds
from sharedmem.models import Episode, EpisodeResult


class Undoing:
    """Takes episodes back.

    Args:
        minds: what the hub lends.
        namespace: whose graphs.
        backend: keeps them.
        vocabulary: how relations behave.
        permit: raises where an episode must stay as it is.
    """

    def __init__(
        self,
        minds: Minds,
        namespace: str,
        backend: GraphBackend,
        vocabulary: Vocabulary,
        permit: Callable[[Episode], None],
    ) -> None:
        self._permit = permit
        self._clock = minds.clock
        self._turns = Turns.of(minds, namespace)
        self._backend = backend
        self._vocabulary = vocabulary

    async def undo(self, group: str, episode_id: str) -> EpisodeResult:
        """Retract all that an episode claims. Three round trips; four where relations form chains.

        Raises:
            NotFoundError: there is no such episode.
        """
        return await self._turns.until_written(group, lambda: self._attempt(group, episode_id))

    async def _attempt(self, group: str, id_: str) -> EpisodeResult | Behind:
        seen = await self._backend.look(group, Wanted(episodes=(check_whole("episode", id_),)))
        row = seen.episodes.get(id_)
        if row is None:
            raise NotFoundError("episode", id_, f"group {group!r} has none of that id")
        self._permit(episode_of(row))
        if row.undone != OPEN:
            return EpisodeResult(id=id_, episode=episode_of(row), repeated=True)
        stored = {line for lines in row.lines for line in lines}
        ground, lines = await read_lines(
            *(self._backend, group, row.claims), vocabulary=self._vocabulary, version=seen.version, stored=stored
        )
        undone = max(stamp_of("now", self._clock.now()), newest_of(ground.lines) + 1, row.recorded + 1)
        after = _retracted(row, undone)
        shift = shifted(after.claims, ground)
        changes = _changes(row, after, shift, ground)
        if isinstance(await self._backend.commit(group, changes, seen=lines.version), Behind):
            return Behind()
        facts = tuple(newest_fact_of(fact, group) for fact in shift.after)
        return EpisodeResult(id=id_, episode=episode_of(after), facts=facts)


def _retracted(row: EpisodeRow, undone: int) -> EpisodeRow:
    claims = tuple(replace(claim, retracted=min(claim.retracted, undone)) for claim in row.claims)
    told = episode_of(row).model_copy(update={"undone_at": moment_of(undone)})
    return replace(row, claims=claims, undone=undone, body=told.model_dump_json(exclude_defaults=True).encode())


def _changes(row: EpisodeRow, after: EpisodeRow, shift: Shift, ground: Ground) -> Changes:
    # While a merge is under way, claims lie in other lines than those in which they count.
    places = (*row.lines, *(lines_of(claim, ground) for claim in row.claims))
    own = {line for lines in places for line in lines}
    return Changes(
        guards=tuple(sorted(own)),
        episodes=(after,),
        facts=shift.after,
        former=(row, *shift.former),
        told=told_of([after], shift),
        steady=steady_of(ground, row.claims, own),
    )
