"""A process that remembers a conversation and is killed in the middle.

`python -m support.remember_processes <url>` prints the id of the task and the ids of the memories that it has written,
and ends by SIGKILL while the language model reads the first message for the graph.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from sharedmem import Hub
from sharedmem.models import MemoryItem
from sharedmem.providers.protocol import ChatMessage, Model
from sharedmem.recall.remember import RememberWorker
from sharedmem.store import parts_of
from sharedmem.testing.scripted_model import ScriptedModel
from support.faulty_hubs import persistent_settings
from support.printed_lines import print_line
from support.waiting import wait_until

NAMESPACE = "rememberers"
TALK = (
    {"role": "user", "name": "Ada", "content": "Ada lives in Oslo."},
    {"role": "assistant", "content": "I sent the invoice of May to Oslo."},
)
_VISIBILITY_S = 0.5


class DeadlyModel(ScriptedModel):
    """Kills its process when it is asked, as soon as all messages are memories."""

    def __init__(self, hub: list[Hub]) -> None:
        super().__init__({})
        self._hub = hub

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Wait for the memories, and die."""
        store = self._hub[0].store(NAMESPACE)
        found: list[MemoryItem] = []

        async def all_are_memories() -> bool:
            found[:] = await store.memory.list()
            return len(found) == len(TALK)

        await wait_until(all_are_memories, description="the messages are memories")
        print_line(*sorted(item.id for item in found))
        os.kill(os.getpid(), signal.SIGKILL)
        return await super().complete(messages, schema)


async def main(url: str) -> None:
    """Remember, until the model ends it."""
    opened: list[Hub] = []
    settings = persistent_settings(url, embedder="hashing")
    async with Hub.open(settings=settings, model=DeadlyModel(opened)) as hub:
        opened.append(hub)
        store = hub.store(NAMESPACE, actor="bo")
        _, scope, knowledge = parts_of(store)
        context = knowledge()
        context.shared(RememberWorker, NAMESPACE, lambda: RememberWorker(context, scope, visibility=_VISIBILITY_S))
        accepted = await store.remember(TALK, wait=0)
        print_line(accepted.task_id)
        await store.remember_receipt(accepted.task_id, wait=None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
