"""What the graph knows already that may matter to an episode, for extractors that ask for it."""

from __future__ import annotations

from sharedmem.knowledge.graph.extraction import Known
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import Search, Wanted
from sharedmem.knowledge.graph.tales import content_text
from sharedmem.knowledge.graph.views import entity_of, newest_fact_of
from sharedmem.models import Episode
from sharedmem.search.analysis import query_terms

_MOST_KNOWN = 20


async def known_facts(backend: GraphBackend, group: str, episode: Episode) -> Known:
    """The facts and entities that share most words with an episode. Two round trips.

    Raises:
        UnavailableError: the server cannot be reached.
    """
    terms = query_terms(content_text(episode.content))
    if not terms:
        return Known()
    searches = [Search(("f",), terms, candidates=_MOST_KNOWN), Search(("n",), terms, candidates=_MOST_KNOWN)]
    facts, entities = [
        tuple(hit.id for hit in hits.text[:_MOST_KNOWN]) for hits in await backend.search(group, searches)
    ]
    seen = await backend.look(group, Wanted(facts=facts, entities=entities))
    rows = [seen.facts[id_] for id_ in facts if id_ in seen.facts]
    return Known(
        [entity_of(seen.entities[id_], group, {}) for id_ in entities if id_ in seen.entities],
        [newest_fact_of(row, group) for row in rows if row.current is not None],
    )
