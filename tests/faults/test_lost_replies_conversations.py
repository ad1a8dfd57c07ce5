"""A change of a conversation whose reply was lost is repeated, and has happened once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings

from sharedmem import Hub, NotFoundError, VersionConflictError
from sharedmem.conversations.conversations import Conversations
from sharedmem.redis.scripts import scripts

STORM, CALM = "storm", "calm"


@dataclass(frozen=True)
class Change:
    """One call on the conversation `c` with the entries 0 to 3, and what a second application would show."""

    script: str
    act: Callable[[Conversations], Awaitable[object]]

    @property
    def digest(self) -> bytes:
        return scripts()[self.script].digest.encode()


CHANGES = {
    "append": Change("conversation_append", lambda c: c.append("c", ["x", "y"], state={"n": 1})),
    "pop": Change("conversation_pop", lambda c: c.pop("c")),
    "replace": Change("conversation_replace", lambda c: c.replace_suffix("c", "e1", ["x"])),
    "delete": Change("conversation_delete", lambda c: c.delete("c")),
    "fork": Change("conversation_fork", lambda c: c.fork("c", "d", at="e1")),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


async def traces_of(change: Change, through: Hub, direct: Hub, namespace: str) -> object:
    """What a change answers and leaves, without versions; only the change goes through the given hub."""
    talks = direct.store(namespace).conversations
    await talks.append("c", [0, 1, 2, 3], entry_ids=["e0", "e1", "e2", "e3"])
    answer = await change.act(through.store(namespace).conversations)
    left = [[entry.value for entry in (await talks.read(name)).entries] for name in ("c", "d")]
    states = [(await talks.state(name)).fields for name in ("c", "d")]
    shown = [entry.value for entry in getattr(answer, "entries", [])]
    announced = (await talks.get("c")) is not None
    return (
        type(answer),
        shown,
        getattr(answer, "length", answer),
        getattr(answer, "added", None),
        left,
        states,
        announced,
    )


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@each_change
async def test_a_change_whose_reply_was_lost_has_happened_once(
    change: Change, times: int, direct: Hub, proxy: ChaosProxy
) -> None:
    calm = await traces_of(change, direct, direct, CALM)

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(change.digest, times)
        stormy = await traces_of(change, hub, direct, STORM)

    assert stormy == calm
    assert proxy.cuts == times


@pytest.mark.parametrize("name", ["append", "pop", "delete", "fork"])
async def test_control_without_operation_ids_a_lost_reply_shows(name: str, direct: Hub, proxy: ChaosProxy) -> None:
    change = CHANGES[name]
    calm = await traces_of(change, direct, direct, CALM)

    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(change.digest)
        try:
            stormy = await traces_of(change, hub, direct, STORM)
        except (VersionConflictError, NotFoundError):
            return  # with its own change

    assert stormy != calm


async def test_a_caller_that_gave_up_repeats_its_batch_without_harm(direct: Hub, proxy: ChaosProxy) -> None:
    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(CHANGES["append"].digest)
        change = await hub.store(STORM).conversations.append("c", [0, 1], entry_ids=["a", "b"], if_revision=0)

    assert (change.added, change.length) == (0, 2)
    page = await direct.store(STORM).conversations.read("c")
    assert [entry.value for entry in page.entries] == [0, 1]
