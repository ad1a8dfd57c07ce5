"""Text and structured answers from Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import orjson
from pydantic import BaseModel

from sharedmem.providers.chat import (
    ChatBody,
    ChatCalls,
    ChatReply,
    Sampling,
    SamplingOptions,
    complete_in_form,
    message_body,
    read_events,
)
from sharedmem.providers.http_client import GarbledError, ModelHttpClient
from sharedmem.providers.openai import schema_name
from sharedmem.providers.protocol import ChatMessage, Model
from sharedmem.runtime import Counters

_CUT = "max_tokens"
_DECLINED = "refusal"
_NO_TEXT = "The model declined to answer."
"""In place of an empty text, which could not be sent back for a correction."""


class AnthropicModel:
    """A chat model over HTTP; structured answers are the input of a tool that it has to call.

    Args:
        service: client of the service.
        sampling: how it picks its words; the API requires a limit of tokens.
        counters: count `llm_tokens` by model and direction.
    """

    def __init__(self, service: ModelHttpClient, *, sampling: Sampling, counters: Counters) -> None:
        self._service = service
        self._calls = ChatCalls(service, SamplingOptions(sampling, "max_tokens"), counters)

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._service.endpoint.name

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Complete, see `LanguageModel.complete`; a wrong answer is sent back once, with its errors."""
        return await complete_in_form(self.name, messages, schema, self._structured)

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """Write, see `LanguageModel.write`; the text arrives as a stream, and an interrupted one is requested again."""
        asked = [message_body(message) for message in messages]
        return await self._calls.write(self._body(asked), asked, _read_stream, max_tokens=max_tokens)

    async def close(self) -> None:
        """Close connections; may be called again."""
        await self._service.close()

    async def _structured(self, asked: Sequence[ChatBody], schema: type[BaseModel]) -> str:
        tool = {
            "name": schema_name(schema),
            "description": "Give the answer in this form.",
            "input_schema": schema.model_json_schema(),
        }
        body = {**self._body(asked), "tools": [tool], "tool_choice": {"type": "tool", "name": tool["name"]}}
        return await self._calls.answer(body, asked, _parse_reply)

    def _body(self, asked: Sequence[ChatBody]) -> dict[str, object]:
        """Return the request: instructions have a field of their own."""
        instructions = [message["content"] for message in asked if message["role"] == "system"]
        turns = [message for message in asked if message["role"] != "system"]
        system = {"system": "\n\n".join(instructions)} if instructions else {}
        return {"model": self._service.endpoint.model, "messages": turns, **system}

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name} at {self._service.endpoint.host}>"


def _parse_reply(answer: object) -> ChatReply:
    """Return the input of the tool as JSON; a model that writes instead of calling it is read as it writes."""
    content = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(content, list):
        raise GarbledError("it has no list `content`")
    blocks = [block for block in content if isinstance(block, dict)]
    called = next((block.get("input") for block in blocks if block.get("type") == "tool_use"), None)
    written = "".join(text for block in blocks if isinstance(text := block.get("text"), str))
    reason = answer.get("stop_reason")
    if called is None and not written and reason not in {_CUT, _DECLINED}:
        raise GarbledError("its `content` has neither a call of the tool nor a text")
    text = written or _NO_TEXT if called is None else orjson.dumps(called).decode()
    return ChatReply(text, *_usage(answer.get("usage")), is_cut=reason == _CUT)


async def _read_stream(lines: AsyncIterator[bytes]) -> ChatReply:
    """Return the complete text of a stream of server-sent events.

    Raises:
        GarbledError: it ends before the model did, or is something else.
    """
    parts: list[str] = []
    read: int | None = None
    written: int | None = None
    async for event in read_events(lines):
        found = event or {}
        message, delta = found.get("message"), found.get("delta")
        if isinstance(message, dict):
            read, written = _usage(message.get("usage"))
        if isinstance(delta, dict) and isinstance(text := delta.get("text"), str):
            parts.append(text)
        if "usage" in found:
            written = _usage(found["usage"])[1] or written
        if found.get("type") == "message_stop":
            return ChatReply("".join(parts), read, written)
    raise GarbledError("its stream ends before the text does")


def _usage(usage: object) -> tuple[int | None, int | None]:
    """Return tokens (read, written), as far as the response has them."""
    if not isinstance(usage, Mapping):
        return None, None
    read, written = usage.get("input_tokens"), usage.get("output_tokens")
    return read if isinstance(read, int) else None, written if isinstance(written, int) else None
