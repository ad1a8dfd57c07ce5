"""Embed texts on request, with the shared cache of a namespace, and report the cost."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.errors import UnsupportedError
from sharedmem.hub.hub import Hub
from sharedmem.models import Record
from sharedmem.runtime import Counters

try:
    from sharedmem.providers.factory import open_embedder
    from sharedmem.providers.openai import cost_usd
    from sharedmem.providers.protocol import Embedder
except ModuleNotFoundError as error:
    raise UnsupportedError("an embedder", "pip install 'sharedmem-hub[memory]'") from error

_NO_EMBEDDER_ADVICE = "pip install 'sharedmem-hub[local]', or set embedder"


class EmbeddedTexts(Record):
    """Vectors of some texts, and their cost."""

    name: str
    """Provider and model."""
    dimension: int
    tokens: int
    """Tokens sent to the provider; 0 if nothing was sent."""
    cost_usd: float | None
    """Approximate cost in US dollars; None without a known price."""
    cached: int
    """Number of texts whose vectors were in the cache."""
    vectors: list[list[float]]


async def embed_texts(settings: Settings, namespace: str, texts: Sequence[str]) -> EmbeddedTexts:
    """Return the vectors of some texts; open a hub only if its shared cache saves time.

    Args:
        settings: settings with the embedder and the server.
        namespace: namespace of the cache.
        texts: what to embed.

    Raises:
        UnsupportedError: there is no embedder, or it is not installed.
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed` and as entering a `Hub`.
    """
    counters = Counters()
    embedder = open_embedder(settings, SystemClock(), counters)
    if embedder is None:
        raise UnsupportedError("an embedder", _NO_EMBEDDER_ADVICE)
    try:
        if not embedder.is_remote:
            return await _embed(embedder, texts, counters)
        async with Hub.open(settings=settings, embedder=embedder) as hub:
            shared = hub._knowledge_context().embedder_of(namespace)  # noqa: SLF001  the same package
            return await _embed(shared or embedder, texts, hub.counters)
    finally:
        await embedder.close()


async def _embed(embedder: Embedder, texts: Sequence[str], counters: Counters) -> EmbeddedTexts:
    vectors, tokens = await embedder.embed(texts)
    return EmbeddedTexts(
        name=embedder.name,
        dimension=embedder.dimension,
        tokens=tokens,
        cost_usd=cost_usd(embedder.name, read=tokens),
        cached=int(counters.read("embedding_cache", outcome="team")),
        vectors=vectors.tolist(),
    )
