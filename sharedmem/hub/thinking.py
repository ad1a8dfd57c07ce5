"""What semantic memory and the semantic cache of a hub stand on, put together when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharedmem.hub.assembly import Parts

if TYPE_CHECKING:
    # Numbers of vectors are crunched by a library that takes a while to load: only who remembers waits for it.
    from sharedmem.knowledge.minds import Minds
    from sharedmem.providers.protocol import Embedder, LanguageModel
    from sharedmem.search.protocol import Family, Index


def minds_of(parts: Parts, embedder: Embedder | None, model: LanguageModel | None) -> Minds:
    """Indexes and providers of an open hub.

    Args:
        parts: what the hub consists of.
        embedder: who turns texts into vectors; None goes by the settings.
        model: who writes summaries; None goes by the settings.

    Raises:
        UnsupportedError: the settings name a provider that is not installed.
    """
    from sharedmem.knowledge.cache import cache_family  # noqa: PLC0415  # see above
    from sharedmem.knowledge.graph.family import graph_family  # noqa: PLC0415
    from sharedmem.knowledge.memory.base import memory_family  # noqa: PLC0415
    from sharedmem.knowledge.memory.desk import Desk  # noqa: PLC0415
    from sharedmem.knowledge.minds import Minds  # noqa: PLC0415
    from sharedmem.providers.opening import open_embedder, open_model, remembering  # noqa: PLC0415
    from sharedmem.synthesis.shelf.family import note_family  # noqa: PLC0415

    means = parts.means
    settings, clock, counters = means.settings, means.clock, means.counters
    given = None if embedder is None else remembering(embedder, settings, clock=clock, counters=counters)
    chosen = given or open_embedder(settings, clock, counters)
    name, dimension = (chosen.name, chosen.dimension) if chosen else ("", 0)
    minds = Minds(
        line=means.line,
        sender=parts.ground.sender,
        keyspace=parts.keyspace,
        memories=_index(parts, memory_family(name, dimension)),
        answers=_index(parts, cache_family(name, dimension)),
        graphs=_index(parts, graph_family(name, dimension)),
        notes=_index(parts, note_family(name, dimension)),
        embedder=chosen,
        model=model or open_model(settings, clock, counters),
        background=means.background,
        counters=counters,
        listener=means.listener,
        blobs=means.blobs,
        clock=clock,
        settings=settings,
        tier=parts.tier if settings.memory_durability else None,
    )
    indexes = (minds.memories, minds.answers, minds.graphs, minds.notes)
    means.when_cleared.extend(index.forget for index in indexes)
    means.when_swept.append(lambda namespace, remove: Desk.of(minds, namespace).sweep(remove=remove))
    return minds


def _index(parts: Parts, family: Family) -> Index:
    means = parts.means
    if parts.powers.search:
        from sharedmem.search.redisearch import RediSearchIndex  # noqa: PLC0415  # see above

        on_cluster = parts.connection.mode == "cluster"
        return RediSearchIndex(means.line, parts.keyspace, family, means.settings, on_cluster=on_cluster)
    from sharedmem.search.exact import ExactIndex  # noqa: PLC0415

    return ExactIndex(means.line, parts.keyspace, family, means.clock)
