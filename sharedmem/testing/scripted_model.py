"""A language model with scripted answers, for tests of agents and for experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from sharedmem.errors import InvalidError
from sharedmem.providers.protocol import ChatMessage, Model

TEXT = "text"
"""The form of an answer that is plain text."""
Answer = BaseModel | Mapping[str, object] | str | Exception | Callable[[Sequence[ChatMessage]], object]


class ModelRequest(NamedTuple):
    """One request that a scripted model has received."""

    form: str
    """Name of the pydantic class of the answer, such as `SummaryOutput`; `text` for plain text."""
    messages: tuple[ChatMessage, ...]

    @property
    def content(self) -> str:
        """The messages without the system instructions, one below the other."""
        return "\n".join(message.content for message in self.messages if message.role != "system")


class ScriptedModel:
    """A language model that gives prepared answers: no network, no cost, the same result in every run.

    Args:
        answers: the answers, by the name of the form (`text` for plain text): a pydantic object or a mapping with
            its fields, a string, an exception to raise, or a function that takes the messages and returns one of
            these. A list is used one by one; a request after its last answer fails the test.
        name: name of the model, which notes and facts record as their author.

    Attributes:
        requests: all requests so far, oldest first.
    """

    def __init__(self, answers: Mapping[str, Answer | Sequence[Answer]], *, name: str = "scripted") -> None:
        self.requests: list[ModelRequest] = []
        self._name = name
        self._answers = {form: _Answers(answer) for form, answer in answers.items()}

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._name

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Return the scripted answer for a form.

        Raises:
            InvalidError: the scripted answer does not have this form.
            AssertionError: no answer is scripted for it.
        """
        answer = self._next(schema.__name__, messages)
        try:
            if isinstance(answer, str):
                return schema.model_validate_json(answer)
            return schema.model_validate(answer.model_dump() if isinstance(answer, BaseModel) else answer)
        except ValidationError as error:
            shown = f"it does not have the form {schema.__name__}: {error.errors()[0]['msg']}"
            raise InvalidError("answer", str(answer)[:200], shown) from error

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:  # noqa: ARG002  # protocol
        """Return the scripted answer for `text`.

        Raises:
            AssertionError: no answer is scripted for `text`.
        """
        return str(self._next(TEXT, messages))

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def __repr__(self) -> str:
        return f"<ScriptedModel {self._name}: {', '.join(sorted(self._answers)) or 'no answers'}>"

    def _next(self, form: str, messages: Sequence[ChatMessage]) -> object:
        self.requests.append(ModelRequest(form, tuple(messages)))
        if form not in self._answers:
            scripted = ", ".join(sorted(self._answers)) or "nothing"
            raise AssertionError(f"the model was asked for {form}; scripted is: {scripted}")
        answer = self._answers[form].next(form)
        found = answer(messages) if callable(answer) else answer
        if isinstance(found, Exception):
            raise found
        return found


class _Answers:
    """The answers for one form: one for all requests, or a list that is used up."""

    def __init__(self, given: Answer | Sequence[Answer]) -> None:
        is_list = isinstance(given, Sequence) and not isinstance(given, str)
        self._left = list(given) if is_list else None  # type: ignore[arg-type]  # a sequence of answers then
        self._always = None if is_list else given

    def next(self, form: str) -> object:
        if self._left is None:
            return self._always
        if not self._left:
            raise AssertionError(f"the model was asked for {form} more often than its script has answers")
        return self._left.pop(0)
