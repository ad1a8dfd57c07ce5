"""The protocols of an embedder, a reranker and a language model, and the similarity thresholds of each embedder.

One table of thresholds holds for duplicates, cached answers, links of notes, and recall. A cosine similarity means
something only for the embedder that made the vectors: unrelated questions reach 0.2 with one and 0.6 with another.
`sharedmem calibrate` measures a row of this table (`providers.calibration.measure_thresholds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from sharedmem.config import Settings
from sharedmem.config.setting_groups import NamespaceSettings
from sharedmem.models import Record

if TYPE_CHECKING:
    from sharedmem.redis.vectors import Matrix


Purpose = Literal["document", "query"]
Model = TypeVar("Model", bound=BaseModel)


class Embeddings(NamedTuple):
    """Vectors of some texts."""

    vectors: Matrix
    """Shape (number of texts, dimension), rows of unit length; a text without a meaning has a row of zeros."""
    tokens: int
    """Tokens that were sent to the provider; 0 if none were."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """Provider and model, `openai:text-embedding-3-small`: vectors of different names are not compared."""

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """Return the vectors of some texts, in their order.

        Args:
            texts: any number, each of any length.
            purpose: whether they are documents or queries; some models treat these differently.

        Raises:
            UnavailableError: the provider cannot be reached, or did not answer in time.
            LimitedError: the provider asks for fewer requests.
            ConfigError: the key or model is refused, or vectors have another dimension than expected.
        """

    async def close(self) -> None:
        """Close connections; may be called again."""


OpenEmbedder = Callable[[], Embedder | None]
"""Returns the embedder of a namespace, if there is one."""


class Reranker(Protocol):
    """Scores texts by how well they answer a query."""

    @property
    def name(self) -> str:
        """Provider and model."""

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text, in their order; higher for a text that answers the query better.

        Raises:
            UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
        """

    async def close(self) -> None:
        """Close connections; may be called again."""


class ChatMessage(Record):
    """One message to a language model."""

    role: Literal["system", "user", "assistant"]
    content: str


class LanguageModel(Protocol):
    """Writes text, also in a given form."""

    @property
    def name(self) -> str:
        """Provider and model."""

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Return an answer in the form of a pydantic model.

        Raises:
            UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
            InvalidError: the answer does not have this form, also after a second request.
        """

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """Return an answer as text.

        Raises:
            UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
        """

    async def close(self) -> None:
        """Close connections; may be called again."""


# -- similarity thresholds -----------------------------------------------------------------------


class EmbedderThresholds(NamedTuple):
    """What similarities of one embedder mean."""

    dedup: float
    """At which, with guards, 2 % of the pairs of different questions count as the same: a merge can be undone."""
    cache: float
    """At which 0.5 % of them do: no caller sees that a cached answer belongs to another question."""
    noise: float
    """That 2 % of the pairs of unrelated questions reach."""
    link: float
    """That 1 % of them reach: from this composite score on a note is compared with older ones."""
    recall: float
    """That 20 % of them reach: below it a query ignores a note that only its vector finds."""
    score: float
    """The least composite score of such a note."""
    slope: float = 1.5
    """How much similarity above the noise counts beside the share of a question's words, for `recall`."""
    measured: bool = True
    """Whether the numbers were measured here."""


UNMEASURED = EmbedderThresholds(
    dedup=0.95, cache=0.98, noise=0.45, link=0.7, recall=0.3, score=0.4, slope=1.5, measured=False
)
"""For embedders that were not measured here: careful where something is merged or returned; for notes the numbers of
"Self-Evolving Composite Memory Synthesis Architecture", which fit large models."""

# Measured on 12,000 pairs of questions (bge-small 3,000, MiniLM 6,000; docs/cache.md). The slopes were measured on
# questions about LoCoMo conversations against general knowledge: at `recall.candidates.RELATED` 98 % of the answerable
# questions and none (wordllama) or 2 % (bge-small) of the unrelated ones were answered.
TABLE: dict[str, EmbedderThresholds] = {
    "wordllama:l2_supercat-64": EmbedderThresholds(0.949, 0.982, 0.331, 0.384, 0.15, 0.15, slope=1.0),
    "wordllama:l2_supercat-128": EmbedderThresholds(0.943, 0.979, 0.264, 0.313, 0.117, 0.117, slope=1.0),
    "wordllama:": EmbedderThresholds(0.936, 0.976, 0.232, 0.279, 0.098, 0.098, slope=1.0),
    "onnx:bge-small": EmbedderThresholds(0.941, 0.97, 0.508, 0.524, 0.414, 0.414, slope=2.0),
    "onnx:all-MiniLM": EmbedderThresholds(0.94, 0.977, 0.272, 0.335, 0.1, 0.1, slope=1.0),
    # Of services nothing was measured: run `sharedmem calibrate` with yours.
    "openai:": UNMEASURED,
    "azure:": UNMEASURED,
    "hashing": UNMEASURED._replace(noise=0.5, slope=1.0),
}
"""By the beginning of the embedder's name; the first row that fits counts."""


def thresholds_of(embedder: str) -> EmbedderThresholds:
    """Return the thresholds of an embedder by the beginning of its name; `UNMEASURED` for one that is not known."""
    return next((row for name, row in TABLE.items() if embedder.startswith(name)), UNMEASURED)


def dedup_similarity(settings: NamespaceSettings, embedder: str) -> float:
    """Return the similarity from which memories are merged: that of the settings, else that of the embedder."""
    chosen = settings.dedup_similarity
    return thresholds_of(embedder).dedup if chosen is None else chosen


def cache_similarity(settings: NamespaceSettings, embedder: str) -> float:
    """Return the similarity from which prompts are the same: that of the settings, else that of the embedder."""
    chosen = settings.cache_similarity
    return thresholds_of(embedder).cache if chosen is None else chosen


class LowThreshold(NamedTuple):
    """A threshold of the settings from which memories that differ may be merged."""

    similarity: float
    recommended: float
    warning: str
    """What is wrong, in a sentence."""


def low_dedup_thresholds(settings: Settings, embedder: str) -> list[LowThreshold]:
    """Return the thresholds of the settings, also those of single namespaces, that are below the recommended one."""
    recommended = thresholds_of(embedder).dedup
    of_namespaces = {
        f"dedup_similarity of the namespaces {pattern}": rule.dedup_similarity
        for pattern, rule in settings.namespace_settings.items()
        if "dedup_similarity" in rule.model_fields_set
    }
    return [
        LowThreshold(
            similarity,
            recommended,
            f"{name} is {similarity:g}, below {recommended:g}, which calibration recommends for {embedder}:"
            " memories that differ may be merged",
        )
        for name, similarity in {"dedup_similarity": settings.dedup_similarity, **of_namespaces}.items()
        if similarity is not None and similarity < recommended
    ]
