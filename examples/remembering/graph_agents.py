"""Nodes of a LangGraph graph with memory: a mixin beside the framework's own class, and no other change.

pip install langgraph
python examples/remembering/graph_agents.py
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import END, START, StateGraph

from sharedmem import ActorContext, Hub, RemembersMixin


class Work(TypedDict):
    """The state that the nodes pass on."""

    question: str
    known: list[str]
    answer: str


class Researcher(RemembersMixin, Runnable[Work, Work]):
    """A node of the graph: recalls, answers, remembers."""

    def __init__(self, context: ActorContext) -> None:
        self.context = context

    def extract_memory(self, output: Any) -> str:
        """Return the text to remember."""
        return str(output["answer"])

    def invoke(self, input: Work, config: RunnableConfig | None = None, **kwargs: Any) -> Work:  # noqa: A002, ARG002  # the framework's names
        """Run without a loop, as the framework requires; the graph below is run with `ainvoke`."""
        return asyncio.run(self.ainvoke(input))

    async def ainvoke(self, input: Work, config: RunnableConfig | None = None, **kwargs: Any) -> Work:  # noqa: A002, ARG002  # likewise
        """Answer a question with the team's memories."""
        known = [hit.item.memory for hit in await self.recall(input["question"], limit=2)]
        # A model would write this; the second agent need not ask the harbour again.
        answer = known[0] if known else "The ferry to Skarn sails at 7 and at 16 o'clock, says the harbour."
        output = Work(question=input["question"], known=known, answer=answer)
        await self.remember_output(output, "high", category="answer")
        return output


def graph_of(researcher: Researcher) -> Any:
    """Return a graph of one node."""
    graph = StateGraph(Work)
    graph.add_node("research", researcher)
    graph.add_edge(START, "research")
    graph.add_edge("research", END)
    return graph.compile()


async def main() -> None:
    """Run two graphs of two agents: the second uses the findings of the first."""
    async with Hub.open() as hub:
        await hub.store("ferry").clear()
        for name in ("ada", "bob"):
            context = ActorContext(hub.store("ferry", actor=name), actor_id=name, actor_type="researcher")
            state = await graph_of(Researcher(context)).ainvoke(
                Work(question="When does the ferry to Skarn sail?", known=[], answer="")
            )
            print(f"{name} knew {len(state['known'])} things: {state['answer']}")


if __name__ == "__main__":
    asyncio.run(main())
