"""What chat models over HTTP have in common: sampling options, answers in a given form, streams, counted tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Literal, NamedTuple, TypeAlias

import orjson
from pydantic import BaseModel, ValidationError

from sharedmem.errors import InvalidError
from sharedmem.providers.chunks import count_tokens
from sharedmem.providers.http_client import GarbledError, Json, ModelHttpClient, RefusedError
from sharedmem.providers.protocol import ChatMessage, Model
from sharedmem.runtime import Counters

ChatBody: TypeAlias = Mapping[str, str]
"""A message as services take it: `role` and `content`."""
REFUSED_CONTENT = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_MOST_PROBLEMS = 5
_DATA = b"data:"
_END = b"[DONE]"


class ChatReply(NamedTuple):
    """A text of a model."""

    text: str
    read: int | None
    """Tokens of the request; None if the service does not count them."""
    written: int | None
    is_cut: bool = False
    """Whether it ends because it reached the limit of tokens."""


class Sampling(NamedTuple):
    """How a model picks its words."""

    temperature: float | None
    """None: not sent, so the model's default holds."""
    top_p: float | None
    """None: not sent."""
    max_tokens: int
    """Most tokens of one answer."""


class SamplingOptions:
    """The sampling options that one model takes.

    Some models refuse a temperature, a `top_p` or a limit. What a model has refused once is not sent to it again.

    Args:
        sampling: how the model picks its words.
        limit: name of the field with the most tokens of an answer.
    """

    def __init__(self, sampling: Sampling, limit: str) -> None:
        self._most = sampling.max_tokens
        self._limit = limit
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p, limit: sampling.max_tokens}
        self._options = {name: value for name, value in chosen.items() if value is not None}

    async def send(
        self, body: Json, send: Callable[[Json], Awaitable[ChatReply]], *, max_tokens: int | None = None
    ) -> ChatReply:
        """Send a request with the options that this model takes.

        Args:
            body: the request without them.
            send: sends the request and reads the reply.
            max_tokens: most tokens of this answer, if fewer than usual.

        Raises:
            RefusedError: the service refuses something else.
        """
        most = self._most if max_tokens is None else min(max_tokens, self._most)
        while True:
            options = {**self._options, self._limit: most} if self._limit in self._options else self._options
            try:
                return await send({**body, **options})
            except RefusedError as error:
                refused = next((name for name in options if refuses_field(error, name)), None)
                if refused is None:
                    raise
            self._options.pop(refused, None)

    def whole_text(self, name: str, reply: ChatReply) -> str:
        """Return the text of a reply.

        Raises:
            InvalidError: it was cut off at the limit of tokens.
        """
        if reply.is_cut:
            raise InvalidError("answer", reply.text, f"{name} stopped after llm_max_tokens = {self._most}; raise it")
        return reply.text


class ChatCalls:
    """The calls of one chat model over HTTP, with the options that it takes; their tokens are counted.

    Args:
        service: client of the service.
        options: sampling options of the model.
        counters: count `llm_tokens` by model and direction.
    """

    def __init__(self, service: ModelHttpClient, options: SamplingOptions, counters: Counters) -> None:
        self._service = service
        self._options = options
        self._counters = counters

    async def answer(self, body: Json, asked: Sequence[ChatBody], parse: Callable[[object], ChatReply]) -> str:
        """Return the text of a whole reply.

        Args:
            body: the request without sampling options.
            asked: its messages, for tokens that the service does not count.
            parse: reads the reply.

        Raises:
            InvalidError: the reply was cut off at the limit of tokens.
            RefusedError: the service refuses the request.
        """
        reply = await self._options.send(body, lambda whole: self._service.ask(whole, parse))
        self._count(asked, reply)
        return self._options.whole_text(self._service.endpoint.name, reply)

    async def write(
        self,
        body: Json,
        asked: Sequence[ChatBody],
        read: Callable[[AsyncIterator[bytes]], Awaitable[ChatReply]],
        *,
        max_tokens: int,
    ) -> str:
        """Return a text that arrives as a stream; an interrupted one is requested again.

        Args:
            body, asked: as `answer`.
            read: reads the lines of the stream.
            max_tokens: most tokens of the text.

        Raises:
            RefusedError: the service refuses the request.
        """
        streamed = {**body, "stream": True}
        reply = await self._options.send(
            streamed, lambda whole: self._service.listen(whole, read), max_tokens=max_tokens
        )
        self._count(asked, reply)
        return reply.text

    def _count(self, asked: Sequence[ChatBody], reply: ChatReply) -> None:
        """Count the tokens of a reply and its request; they are estimated if the service has not counted them."""
        name, read, written = self._service.endpoint.name, reply.read, reply.written
        if read is None:
            read = sum(count_tokens(message["content"], model=name) for message in asked)
        if written is None:
            written = count_tokens(reply.text, model=name)
        amounts: tuple[tuple[Literal["read", "written"], int], ...] = (("read", read), ("written", written))
        for direction, tokens in amounts:
            self._counters.add("llm_tokens", tokens, model=name, direction=direction)


async def complete_in_form(
    name: str,
    messages: Sequence[ChatMessage],
    schema: type[Model],
    ask: Callable[[Sequence[ChatBody], type[BaseModel]], Awaitable[str]],
) -> Model:
    """Return an answer in the form of a pydantic model; a wrong answer is sent back once, with its errors.

    Args:
        name: of the model, for errors.
        messages: the request.
        schema: the form.
        ask: returns an answer as JSON.

    Raises:
        InvalidError: the second answer has another form too.
    """
    asked = [message_body(message) for message in messages]
    answer = await ask(asked, schema)
    try:
        return schema.model_validate_json(answer)
    except ValidationError as error:
        problems = _describe_problems(error)
    correction = f"That does not have the form asked for: {problems}. Answer again, with the corrected JSON only."
    again = [*asked, {"role": "assistant", "content": answer}, {"role": "user", "content": correction}]
    try:
        return schema.model_validate_json(await ask(again, schema))
    except ValidationError as error:
        problems = _describe_problems(error)
        advice = f"{name} returned it twice in another form than {schema.__name__} ({problems}); try again"
        raise InvalidError("answer", answer, advice) from error


def message_body(message: ChatMessage) -> ChatBody:
    """Return a message as services take it; lone surrogates, which cannot be sent, are replaced."""
    return {"role": message.role, "content": message.content.encode("utf-8", "replace").decode()}


def refuses_field(error: RefusedError, *names: str) -> bool:
    """Return whether a service refuses a field of the request: then its message names the field."""
    return error.status in REFUSED_CONTENT and any(name in str(error) for name in names)


async def read_events(lines: AsyncIterator[bytes]) -> AsyncIterator[dict[str, object] | None]:
    """Yield the data of server-sent events, and None for the event that marks the end of OpenAI's streams.

    Raises:
        GarbledError: an event is not JSON, or reports an error.
    """
    async for line in lines:
        if not line.startswith(_DATA):
            continue
        data = line.removeprefix(_DATA).strip()
        if data == _END:
            yield None
            return
        try:
            event = orjson.loads(data)
        except ValueError:
            raise GarbledError("an event of its stream is not JSON") from None
        event = event if isinstance(event, dict) else {}
        if "error" in event:
            raise GarbledError("its stream ends with an error")
        yield event


def _describe_problems(error: ValidationError) -> str:
    """Return the errors of an answer, without quoting it."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_PROBLEMS]
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in found)
