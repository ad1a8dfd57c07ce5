"""Text and structured answers from OpenAI, from Azure OpenAI, and from any service that speaks as they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Literal, NamedTuple

import orjson
from pydantic import BaseModel, ValidationError

from sharedmem.errors import InvalidError
from sharedmem.providers.asking import GarbledError, RefusedError, Service
from sharedmem.providers.chunks import count_tokens
from sharedmem.providers.protocol import ChatMessage, Model
from sharedmem.providers.schemas import name_of, strict_schema
from sharedmem.telemetry import Counters

_FORM_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_MOST_PROBLEMS = 5
_DATA = b"data:"
_END = b"[DONE]"


class _Said(NamedTuple):
    text: str
    read: int | None
    written: int | None


class OpenAIModel:
    """A chat model over HTTP.

    Args:
        service: whom to ask.
        counters: get `llm_tokens` by model and direction.
    """

    def __init__(self, service: Service, *, counters: Counters) -> None:
        self._service = service
        self._counters = counters
        self._knows_schemas = True

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._service.endpoint.name

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """As `LanguageModel.complete`; a wrong answer goes back once, with what is wrong."""
        asked = [_plain(message) for message in messages]
        answer = await self._structured(asked, schema)
        try:
            return schema.model_validate_json(answer)
        except ValidationError as error:
            problems = _problems(error)
        correction = f"That does not have the form asked for: {problems}. Answer again, with the corrected JSON only."
        again = [*asked, {"role": "assistant", "content": answer}, {"role": "user", "content": correction}]
        try:
            return schema.model_validate_json(await self._structured(again, schema))
        except ValidationError as error:
            advice = f"{self.name} gave it twice in another form than {schema.__name__} ({_problems(error)}); ask anew"
            raise InvalidError("answer", answer, advice) from error

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """As `LanguageModel.write`; the text comes as a stream, and one that is cut off is asked for again."""
        limit = "max_tokens" if self._service.endpoint.is_compatible_only else "max_completion_tokens"
        asked = [_plain(message) for message in messages]
        said = await self._service.listen({**self._body(asked), "stream": True, limit: max_tokens}, _streamed)
        self._count(asked, said)
        return said.text

    async def close(self) -> None:
        """Give back connections; may be called again."""
        await self._service.close()

    async def _structured(self, asked: Sequence[Mapping[str, str]], schema: type[BaseModel]) -> str:
        if self._knows_schemas:
            form = {"name": name_of(schema), "strict": True, "schema": strict_schema(schema)}
            try:
                return await self._answer(asked, {"type": "json_schema", "json_schema": form})
            except RefusedError as error:
                if error.status not in _FORM_REFUSED:
                    raise
        answer = await self._answer([_in_words(schema), *asked], {"type": "json_object"})
        # Only now is it clear that the schema was to blame.
        self._knows_schemas = False
        return answer

    async def _answer(self, asked: Sequence[Mapping[str, str]], form: Mapping[str, object]) -> str:
        said = await self._service.ask({**self._body(asked), "response_format": form}, _said)
        self._count(asked, said)
        return said.text

    def _body(self, asked: Sequence[Mapping[str, str]]) -> dict[str, object]:
        return {"model": self._service.endpoint.model, "messages": list(asked)}

    def _count(self, asked: Sequence[Mapping[str, str]], said: _Said) -> None:
        read = said.read if said.read is not None else sum(count_tokens(message["content"]) for message in asked)
        written = said.written if said.written is not None else count_tokens(said.text)
        amounts: tuple[tuple[Literal["read", "written"], int], ...] = (("read", read), ("written", written))
        for direction, tokens in amounts:
            self._counters.add("llm_tokens", tokens, model=self.name, direction=direction)

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name} at {self._service.endpoint.host}>"


def _plain(message: ChatMessage) -> dict[str, str]:
    return {"role": message.role, "content": message.content.encode("utf-8", "replace").decode()}


def _in_words(schema: type[BaseModel]) -> dict[str, str]:
    form = orjson.dumps(schema.model_json_schema()).decode()
    return {"role": "system", "content": f"Answer with one JSON object, and nothing else, of this JSON schema: {form}"}


def _problems(error: ValidationError) -> str:
    """What is wrong with an answer, without quoting it."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_PROBLEMS]
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in found)


def _said(answer: object) -> _Said:
    choice = _choice(answer)
    message = choice.get("message") if choice else None
    if not isinstance(message, dict):
        raise GarbledError("it has no message in `choices`")
    content = message.get("content") or message.get("refusal")
    if not isinstance(content, str):
        raise GarbledError("its message has no text")
    return _Said(content, *_usage(answer))


async def _streamed(lines: AsyncIterator[bytes]) -> _Said:
    """The whole of a stream of server-sent events.

    Raises:
        GarbledError: it ends before the model did, or is something else.
    """
    parts: list[str] = []
    usage: tuple[int | None, int | None] = None, None
    is_whole = False
    async for data in _events(lines):
        if data == _END:
            is_whole = True
            break
        event = _event(data)
        choice = _choice(event) or {}
        delta = choice.get("delta")
        if isinstance(delta, dict) and isinstance(text := delta.get("content"), str):
            parts.append(text)
        is_whole = is_whole or choice.get("finish_reason") is not None
        usage = _usage(event) if _usage(event) != (None, None) else usage
    if not is_whole:
        raise GarbledError("its stream ends before the text does")
    return _Said("".join(parts), *usage)


async def _events(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for line in lines:
        if line.startswith(_DATA):
            yield line.removeprefix(_DATA).strip()


def _event(data: bytes) -> object:
    try:
        event = orjson.loads(data)
    except ValueError:
        raise GarbledError("an event of its stream is no JSON") from None
    if isinstance(event, dict) and "error" in event:
        raise GarbledError("its stream ends with an error")
    return event


def _choice(answer: object) -> dict[str, object] | None:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def _usage(answer: object) -> tuple[int | None, int | None]:
    """Tokens (read, written), as far as it tells."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None, None
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return read if isinstance(read, int) else None, written if isinstance(written, int) else None
