"""The protocols of an embedder, a reranker and a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

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
