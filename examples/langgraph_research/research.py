"""A research graph whose process is killed in the middle, and goes on in another one; then a person approves.

python examples/langgraph_research/research.py

One process plans, searches three sources side by side, and dies with the third search still running. A second process
invokes the same thread: it does only what is left, and stops to ask whether the report may be published. A third one
brings the answer.
"""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
import time
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from sharedmem import Hub
from sharedmem.integrations.langgraph import SharedMemSaver
from sharedmem.sync import Hub as BlockingHub

NAMESPACE = "langgraph-research"
SOURCES = {
    "almanac": "tides rise 4.2 m",
    "buoys": "B-17 measured 4.3 m",
    "harbour": "the gate holds 5 m",
}
THREAD: Any = {"configurable": {"thread_id": "tides"}}


class Research(TypedDict, total=False):
    """What the graph knows."""

    question: str
    findings: Annotated[list[str], operator.add]
    report: str


def plan(_: Research) -> Any:
    """Send one search to each source."""
    return [Send("search", {"source": source}) for source in SOURCES]


async def search(task: dict[str, str]) -> Research:
    """Read one source; the harbour office is slow to answer the first process."""
    print(f"  searching {task['source']}", flush=True)
    if task["source"] == "harbour" and "dies" in sys.argv:
        print("  waiting for the harbour office", flush=True)
        await asyncio.Event().wait()
    return {"findings": [f"{task['source']}: {SOURCES[task['source']]}"]}


def write(state: Research) -> Research:
    """Write the report, once a person says so."""
    answer = interrupt(f"publish {len(state['findings'])} findings?")
    return {"report": "; ".join(sorted(state["findings"])) if answer == "yes" else "withheld"}


def build(saver: SharedMemSaver) -> Any:
    """Return the graph with its memory."""
    graph: Any = StateGraph(Research)
    graph.add_node("search", search)
    graph.add_node("write", write)
    graph.add_conditional_edges(START, plan, ["search"])
    graph.add_edge("search", "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=saver)


async def work(given: Any) -> dict[str, Any]:
    """Invoke the thread in this process."""
    async with Hub.open() as hub:
        found: dict[str, Any] = await build(SharedMemSaver(hub.store(NAMESPACE))).ainvoke(given, THREAD)
        return found


def is_searched(saver: SharedMemSaver, searches: int) -> bool:
    """Return whether so many searches of the thread are kept."""
    newest = saver.get_tuple(THREAD)
    writes = newest.pending_writes if newest else None
    return len([each for each in writes or [] if each[1] == "findings"]) >= searches


def start(role: str) -> subprocess.Popen[bytes]:
    """Start a process that plays a role."""
    return subprocess.Popen([sys.executable, __file__, role])  # noqa: S603  # this very file


def main() -> int:
    """Play the three processes."""
    with BlockingHub.open() as hub:
        store = hub.store(NAMESPACE)
        store.clear()
        print("first process:", flush=True)
        first = start("dies")
        saver = SharedMemSaver(store)
        while not is_searched(saver, 2):
            if first.poll() is not None:
                return 1
            time.sleep(0.05)
        first.kill()
        first.wait()
        print("killed. second process:", flush=True)
        failed = start("resumes").wait()
        print("third process:", flush=True)
        failed = failed or start("approves").wait()
        store.clear()
    return failed


if __name__ == "__main__":
    role = sys.argv[1] if len(sys.argv) > 1 else "all"
    if role == "all":
        sys.exit(main())
    elif role == "dies":
        asyncio.run(work({"question": "do the gates hold?", "findings": []}))
    elif role == "resumes":
        waiting = asyncio.run(work(None))
        print("  it asks:", waiting["__interrupt__"][0].value)
    else:
        print("  report:", asyncio.run(work(Command(resume="yes")))["report"])
