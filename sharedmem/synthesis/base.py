"""What every part of `store.synthesis` stands on: whose notes these are, and what a caller may do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from sharedmem.knowledge.minds import Minds
from sharedmem.models import SynthesisMessage, SynthesisTask
from sharedmem.process_bound import ProcessBound
from sharedmem.synthesis.parts import Parts
from sharedmem.synthesis.shelf.ground import NOTES
from sharedmem.synthesis.tasks import Asked
from sharedmem.telemetry import Counters
from sharedmem.wire.access import Need, Scope

Said: TypeAlias = Sequence[SynthesisMessage | Mapping[str, object]] | str


class SynthesisBase(ProcessBound):
    """Notes of one namespace, seen with the rights of one actor.

    Args:
        minds: what the hub lends.
        scope: hands out names within the actor's rights.
        parts: who does the work.
    """

    def __init__(self, minds: Minds, scope: Scope, parts: Parts) -> None:
        self._minds = minds
        self._scope = scope
        self._parts = parts
        self._namespace = scope.identity.namespace

    @property
    def _counters(self) -> Counters:
        return self._minds.counters

    def _permit(self, need: Need) -> None:
        """Refuse who may not read or write the namespace's notes.

        Raises:
            AccessDeniedError: this actor.
        """
        self._scope.common(NOTES, need)

    async def _put(self, request: Asked, task_id: str | None) -> SynthesisTask:
        self._permit("write")
        if request.callback_url is not None:
            await self._parts.webhooks.check(request.callback_url)
        task = await self._parts.desk.put(request, idempotency_key=task_id)
        self._parts.worker.start()
        return task

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._namespace}, {self._parts.agents.name}>"
