"""Embedding by hand: what vectors some texts get in a namespace, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.errors import UnsupportedError
from sharedmem.hub.hub import Hub
from sharedmem.models import Record
from sharedmem.providers.opening import open_embedder
from sharedmem.providers.prices import cost_usd
from sharedmem.providers.protocol import Embedder
from sharedmem.telemetry import Counters

_NONE = "pip install 'sharedmem-hub[local]', or set embedder"


class Embedded(Record):
    """Vectors of some texts, and what became of them."""

    name: str
    """Provider and model."""
    dimension: int
    tokens: int
    """That were sent; 0 when nothing was."""
    cost_usd: float | None
    """About what they cost; None where no price is known."""
    cached: int
    """Texts whose vectors the team had already."""
    vectors: list[list[float]]


async def embed_by_hand(settings: Settings, namespace: str, texts: Sequence[str]) -> Embedded:
    """The vectors of some texts; opens a hub only where its team's cache is worth it.

    Args:
        settings: name the embedder and the server.
        namespace: whose cache is looked at.
        texts: what to embed.

    Raises:
        UnsupportedError: there is no embedder, or it is not installed.
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed` and as entering a `Hub`.
    """
    counters = Counters()
    embedder = open_embedder(settings, SystemClock(), counters)
    if embedder is None:
        raise UnsupportedError("an embedder", _NONE)
    try:
        if not embedder.is_remote:
            return await _embedded(embedder, texts, counters)
        async with Hub.open(settings=settings, embedder=embedder) as hub:
            shared = hub._thinking().embedder_of(namespace)  # noqa: SLF001  the same package
            return await _embedded(shared or embedder, texts, hub.counters)
    finally:
        await embedder.close()


async def _embedded(embedder: Embedder, texts: Sequence[str], counters: Counters) -> Embedded:
    vectors, tokens = await embedder.embed(texts)
    return Embedded(
        name=embedder.name,
        dimension=embedder.dimension,
        tokens=tokens,
        cost_usd=cost_usd(embedder.name, read=tokens),
        cached=int(counters.read("embedding_cache", outcome="team")),
        vectors=vectors.tolist(),
    )
