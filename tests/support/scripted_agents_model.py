"""A model of the OpenAI Agents SDK that answers by a script, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, RunConfig, Usage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseFunctionToolCall, ResponseOutputMessage
from openai.types.responses.response_output_text import ResponseOutputText

OFFLINE = RunConfig(tracing_disabled=True)
"""Nothing is sent to a tracing service."""

Output = ResponseOutputMessage | ResponseFunctionToolCall


class ScriptedAgentsModel(Model):
    """Gives one answer after the other.

    Args:
        answers: a text, or a call of a tool by its name.
    """

    def __init__(self, *answers: Output) -> None:
        self._answers = list(answers)
        self.response_id: str | None = None
        self.inputs: list[list[Any]] = []
        """What each call was given."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002, ARG002  # the SDK's words
        """Return the next answer."""
        self.inputs.append(list(input) if not isinstance(input, str) else [input])
        return ModelResponse(output=[self._answers.pop(0)], usage=Usage(), response_id=self.response_id)

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002  # as above
        *_: Any,
        **__: Any,
    ) -> AsyncIterator[Any]:
        """Return the next answer as one event."""
        found = await self.get_response(system_instructions, input)
        response = Response(
            id=random_id("resp"),
            created_at=0,
            model="scripted",
            object="response",
            output=found.output,
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def random_id(kind: str) -> str:
    """Return an id as OpenAI gives them."""
    return f"{kind}_{uuid4().hex}{uuid4().hex[:16]}"


def said(text: str) -> ResponseOutputMessage:
    """Return the answer with a text."""
    content = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id=random_id("msg"), type="message", role="assistant", status="completed", content=[content]
    )


def called(tool: str, arguments: str = "{}") -> ResponseFunctionToolCall:
    """Return the call of a tool."""
    return ResponseFunctionToolCall(
        id=random_id("fc"), call_id=random_id("call"), type="function_call", name=tool, arguments=arguments
    )


def agent_with(*answers: Output, tools: Sequence[Any] = ()) -> tuple[Agent[Any], ScriptedAgentsModel]:
    """Return an agent, and its model."""
    model = ScriptedAgentsModel(*answers)
    return Agent(name="Ada", model=model, tools=list(tools)), model
