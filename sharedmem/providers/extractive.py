"""The offline model: it returns the most central sentences, and its name shows that."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sharedmem.errors import UnsupportedError
from sharedmem.providers.protocol import ChatMessage, LanguageModel, Model
from sharedmem.text.summaries import summarize

_CHARACTERS_PER_TOKEN = 4
_CHARACTERS = 2_000
_SENTENCES = 7
_TEXT_FIELDS = frozenset({"summary", "text", "content", "abstract", "gist"})
_LIST_FIELDS = frozenset({"sentences", "points", "key_points", "highlights"})


def can_follow_instructions(model: LanguageModel) -> bool:
    """Return whether a model follows instructions, as language models do; the offline one only picks sentences."""
    return not isinstance(model, ExtractiveSummarizer)


class ExtractiveSummarizer:
    """A summary of picked sentences (see `text.summaries`); not a language model.

    It reads the messages of user and assistant, and ignores system instructions.
    """

    @property
    def name(self) -> str:
        """`extractive`."""
        return "extractive"

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Return a summary in a form that requires nothing else.

        It fills texts named summary, text, content, abstract or gist, and lists of texts named sentences, points,
        key_points or highlights; other fields keep their defaults.

        Raises:
            UnsupportedError: the form has another required field.
        """
        quoted = _summarize_messages(messages, _CHARACTERS)
        return schema.model_validate(_fill_schema(schema, quoted))

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """Return the most central sentences, one a line; about four characters a token."""
        return _summarize_messages(messages, max_tokens * _CHARACTERS_PER_TOKEN)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def __repr__(self) -> str:
        return "<ExtractiveSummarizer: picks sentences, offline>"


def _summarize_messages(messages: Sequence[ChatMessage], characters: int) -> str:
    texts = [message.content for message in messages if message.role != "system"]
    return summarize(texts, sentences=_SENTENCES, characters=characters)


def _fill_schema(schema: type[BaseModel], quoted: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, field in schema.model_fields.items():
        if name in _TEXT_FIELDS and _accepts(field, str):
            values[field.alias or name] = quoted
        elif name in _LIST_FIELDS and _accepts(field, list[str]):
            values[field.alias or name] = quoted.splitlines()
        elif field.is_required():
            remedy = f"its field {name!r} takes a language model; set llm to openai:<model> or azure:<deployment>"
            raise UnsupportedError(f"an answer in the form {schema.__name__}", remedy)
    return values


def _accepts(field: FieldInfo, kind: object) -> bool:
    return field.annotation in (kind, kind | None)  # type: ignore[operator]  # types and generic aliases both join
