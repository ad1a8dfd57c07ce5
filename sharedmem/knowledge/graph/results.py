"""What callers are told of a step: the episode, what it mentions and says, and what it closed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.knowledge.graph.ingesting import TakenIn
from sharedmem.knowledge.graph.records import EpisodeRow, FactRow
from sharedmem.knowledge.graph.tales import Tale
from sharedmem.knowledge.graph.views import entity_of, episode_of, newest_fact_of
from sharedmem.models import EpisodeResult


def results_of(taken: TakenIn, tales: Sequence[Tale], group: str) -> list[EpisodeResult]:
    """What became of some tales, in their order; of one that comes twice, the second time tells nothing new."""
    fresh = set(taken.fresh)
    results = []
    for tale in tales:
        results.append(_result(taken, tale.episode.id, group, is_new=tale.episode.id in fresh))
        fresh.discard(tale.episode.id)
    return results


def _result(taken: TakenIn, id_: str, group: str, *, is_new: bool) -> EpisodeResult:
    """What became of one.

    Entities are told without attributes, which `entity` answers; of an episode that was there already only itself.
    """
    row = taken.rows[id_]
    episode = episode_of(row)
    if not is_new:
        return EpisodeResult(id=id_, episode=episode, repeated=True)
    said = [fact for fact in taken.shift.after if id_ in fact.episodes]
    return EpisodeResult(
        id=id_,
        episode=episode,
        entities=tuple(entity_of(entity, group, {}) for one in episode.entities if (entity := taken.entities.get(one))),
        facts=tuple(newest_fact_of(fact, group) for fact in said),
        closed=tuple(newest_fact_of(fact, group) for fact in closed_by(taken, row)),
        warnings=taken.warnings.get(id_, ()),
    )


def closed_by(taken: TakenIn, row: EpisodeRow) -> list[FactRow]:
    """The facts that were known before, and end earlier or not at all since an episode was recorded."""
    before = {fact.id: fact.current for fact in taken.shift.former}
    moments = {claim.recorded for claim in row.claims}
    return [fact for fact in taken.shift.after if before.get(fact.id) is not None and _ends(fact, moments)]


def _ends(fact: FactRow, moments: set[int]) -> bool:
    """Whether it was shortened, or found to be wrong, at one of some moments."""
    newest = fact.versions[-1]
    if fact.current is None:
        return newest.superseded in moments
    shorter = [one for one in fact.versions[:-1] if one.end > newest.end]
    return bool(shorter) and newest.recorded in moments
