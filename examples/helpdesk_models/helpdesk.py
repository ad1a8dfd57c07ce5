"""A helpdesk in objects: tickets of a model that agents share, and what they remember, as models of redis-om.

python examples/helpdesk_models/helpdesk.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any, NamedTuple

from aredis_om import Field, JsonModel

from sharedmem import AccessDeniedError, Hub, UnsupportedError, om

NAMESPACE = "helpdesk"
REPORTS = (
    ("The printer on floor two jams", "printer", 2),
    ("The printer in the archive prints stripes", "printer", 1),
    ("Nobody can log in since the update", "login", 5),
    ("The login page is slow in the morning", "login", 3),
    ("A desk lamp flickers", "office", 1),
)
CURES = (
    ("A jammed printer works again after the fuser was cleaned", "printer"),
    ("Logins fail when the clock of the server is wrong: restart the time service", "login"),
)


class Ticket(JsonModel, index=True):
    """What a customer has reported."""

    title: str = Field(index=True, full_text_search=True)
    topic: str = Field(index=True)
    priority: int = Field(index=True, sortable=True)
    status: str = Field(default="open", index=True)
    agent: str = Field(default="", index=True)
    answer: str = ""


class Draft(JsonModel, index=True):
    """What an agent writes down for itself."""

    text: str = Field(index=True)


class Outcome(NamedTuple):
    """What the run found."""

    closed: dict[str, str]
    """By title of each ticket that an agent has closed: the answer."""
    open: list[str]
    most_urgent: str
    changes: int
    refused: list[str]


async def work(hub: Hub, agent: str, topic: str) -> None:
    """Let an agent take the open tickets of its topic, the most urgent first, and answer them from its memory."""
    store = hub.store(NAMESPACE, actor=agent)
    tickets, memory = om.bind(store.shared, Ticket), om.models(store).Memory
    query = tickets.find(tickets.status == "open", tickets.topic == topic).sort_by("-priority")
    for ticket in await query.all():
        known = await memory.find(memory.category == topic).nearest(ticket.title, k=1).all()
        await ticket.update(status="closed", agent=agent, answer=known[0].memory if known else "")


async def try_what_is_not_allowed(hub: Hub) -> list[str]:
    """Return the errors when an agent changes a draft of another one, or a memory as an object."""
    drafts = om.bind(hub.store(NAMESPACE, actor="ines"), Draft)
    draft = await drafts(text="Ask the vendor about the fuser").save()
    stranger = hub.store(NAMESPACE, actor="otto")
    told = []
    try:
        read = await om.bind(stranger, Draft, scope="ines").get(draft.pk)
        await read.update(text="Otto was here")
    except AccessDeniedError as error:
        told.append(str(error).partition(";")[0])
    memory = await om.models(stranger).Memory.find().first()
    try:
        await memory.save()
    except UnsupportedError as error:
        told.append(str(error))
    return told


async def run(hub: Hub) -> Outcome:
    """Open tickets, let two agents work at the same time, and look at what became of them."""
    desk = hub.store(NAMESPACE, actor="desk")
    for text, topic in CURES:
        await desk.memory.add(text, category=topic)
    tickets: Any = om.bind(desk.shared, Ticket, ttl=86_400)
    await tickets.add([tickets(title=title, topic=topic, priority=priority) for title, topic, priority in REPORTS])
    urgent = await tickets.find(tickets.title % "the login").sort_by("-priority").first()
    await asyncio.gather(work(hub, "ines", "printer"), work(hub, "otto", "login"))
    closed = await tickets.find(tickets.status == "closed").all()
    return Outcome(
        closed={one.title: one.answer for one in closed},
        open=[one.title for one in await tickets.find(tickets.status == "open").all()],
        most_urgent=urgent.title,
        changes=await _changes(hub),
        refused=await try_what_is_not_allowed(hub),
    )


async def _changes(hub: Hub) -> int:
    """Return how many changes of tickets are on the change feed."""
    wanted, seen = len(REPORTS) + sum(topic != "office" for _, topic, _ in REPORTS), 0
    async for change in hub.store(NAMESPACE).watch(since=0):
        seen += change.operation == "om.save"
        if seen == wanted:
            break
    return seen


def report(outcome: Outcome) -> str:
    """Return what people read."""
    lines = [f"closed: {title}\n        {answer}" for title, answer in sorted(outcome.closed.items())]
    lines += [f"open:   {title}" for title in outcome.open]
    lines += [f"changes of tickets on the change feed: {outcome.changes}"]
    return "\n".join([*lines, *(f"refused: {told}" for told in outcome.refused)])


async def main() -> None:
    """Run the example on the server that the settings name, else on the private one."""
    parser = argparse.ArgumentParser(description="A helpdesk in objects.")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    asked = parser.parse_args()
    async with Hub.open() as hub:
        await hub.store(NAMESPACE).clear()
        outcome = await run(hub)
        await hub.store(NAMESPACE).clear()
    print(json.dumps(outcome._asdict()) if asked.json else report(outcome))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
