"""Two processes run agents of the OpenAI Agents SDK on one session at the same time, and a third one goes on.

python examples/openai_agents/shift_change.py

The night desk and the day desk answer the same customer, each in a process of its own; none of them loses what the
other one said. The model answers by a script, so no key is needed: replace it by the name of a model.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from sharedmem import Hub
from sharedmem.integrations.openai_agents import SharedMemSession

NAMESPACE = "shift-change"
QUESTIONS = {
    "night": ["The lamp in room 4 flickers.", "It hums, too."],
    "day": ["Room 4 has an old socket.", "The switch is warm."],
}


class Clerk(Model):
    """A model that counts what it was told."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002, ARG002  # the SDK's words
        """Answer with the number of messages of the customer."""
        told = sum(item.get("role") == "user" for item in input)
        content = ResponseOutputText(text=f"noted, {told} in all", type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="__fake_id__", type="message", role="assistant", status="completed", content=[content]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Unused here."""
        raise NotImplementedError


async def work(role: str, questions: list[str]) -> None:
    """Answer questions in this process."""
    agent = Agent(name=role, model=Clerk())
    async with Hub.open() as hub:
        session = SharedMemSession("room-4", hub.store(NAMESPACE), ttl=86_400)
        for question in questions:
            done = await Runner.run(agent, question, session=session, run_config=RunConfig(tracing_disabled=True))
            print(f"  {role}: {question} -> {done.final_output}", flush=True)


async def main() -> int:
    """Start both desks at once, then go on in this process."""
    async with Hub.open() as hub:
        session = SharedMemSession("room-4", hub.store(NAMESPACE))
        await session.clear_session()
        print("two desks at once:", flush=True)
        desks = [subprocess.Popen([sys.executable, __file__, role]) for role in QUESTIONS]  # noqa: ASYNC220, S603  # this very file
        failed = [await asyncio.to_thread(desk.wait) for desk in desks]
        print("and then:", flush=True)
        await work("evening", ["What do you know?"])
        print(f"  {len(await session.get_items())} items in the session")
        await hub.store(NAMESPACE).clear()
    return max(failed)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1], QUESTIONS[sys.argv[1]]))
    else:
        sys.exit(asyncio.run(main()))
