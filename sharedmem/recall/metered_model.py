"""A language model that counts what a task costs."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.providers.chunks import count_tokens
from sharedmem.providers.protocol import ChatMessage, LanguageModel, Model


class MeteredModel:
    """Passes calls on to a language model, and counts them and their tokens.

    Args:
        inner: the model.
    """

    def __init__(self, inner: LanguageModel) -> None:
        self._inner = inner
        self.calls = 0
        """Calls so far, also failed ones."""
        self.tokens = 0
        """Tokens of all messages and answers so far, counted as `count_tokens` does for this model."""

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._inner.name

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """See `LanguageModel.complete`."""
        self._asked(messages)
        answer = await self._inner.complete(messages, schema)
        self._answered(answer.model_dump_json())
        return answer

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """See `LanguageModel.write`."""
        self._asked(messages)
        answer = await self._inner.write(messages, max_tokens=max_tokens)
        self._answered(answer)
        return answer

    async def close(self) -> None:
        """Do nothing: the hub closes the model."""

    def _asked(self, messages: Sequence[ChatMessage]) -> None:
        self.calls += 1
        self.tokens += sum(count_tokens(message.content, model=self.name) for message in messages)

    def _answered(self, answer: str) -> None:
        self.tokens += count_tokens(answer, model=self.name)

    def __repr__(self) -> str:
        return f"<MeteredModel {self.name}, {self.calls} calls>"
