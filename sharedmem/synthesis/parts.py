"""The parts of synthesis, put together for one store."""

from __future__ import annotations

from functools import cached_property

from sharedmem.coordination.ground import Ground
from sharedmem.knowledge.minds import Minds
from sharedmem.models import Note
from sharedmem.synthesis.agents.opening import agents_of
from sharedmem.synthesis.archives import Archives
from sharedmem.synthesis.archiving import Archiving
from sharedmem.synthesis.asking import Asking
from sharedmem.synthesis.chains import Chains
from sharedmem.synthesis.embedding import embedded
from sharedmem.synthesis.evolution import Evolution
from sharedmem.synthesis.forgetting import Forgetting
from sharedmem.synthesis.pipeline import Pipeline
from sharedmem.synthesis.protocol import Agents
from sharedmem.synthesis.retention import Retention
from sharedmem.synthesis.shelf import NoteShelf
from sharedmem.synthesis.shelf.ground import NOTES
from sharedmem.synthesis.tasks import Desk
from sharedmem.synthesis.webhooks import Webhooks
from sharedmem.synthesis.worker import Requester, Worker
from sharedmem.wire.access import Scope
from sharedmem.wire.keys import SHARED_SCOPE
from sharedmem.wire.vectors import Vector


class Parts:
    """Who does the work behind `store.synthesis`.

    Args:
        minds: what the hub lends.
        scope: hands out names within the actor's rights.
        ground: what the hub lends to locks and queues.
    """

    def __init__(self, minds: Minds, scope: Scope, ground: Ground) -> None:
        self._minds = minds
        self._scope = scope
        self._ground = ground
        self.shelf = NoteShelf(minds, scope)
        self.agents: Agents = agents_of(minds.model)
        self.chains = Chains(scope, ground)
        self.desk = Desk(minds, scope, ground)
        self.webhooks = Webhooks(minds, scope, ground)
        self.asking = Asking(minds, scope, shelf=self.shelf)
        self.evolution = Evolution(
            self.shelf, self.chains, minds.clock, self.embed, actor=scope.identity.name, permit=self.permit
        )
        self.pipeline = Pipeline(minds, scope, ground, shelf=self.shelf, agents=self.agents, chains=self.chains)

    @cached_property
    def archives(self) -> Archives:
        """Where notes lie that were put away."""
        return Archives(self._minds.blobs, self._scope.identity.namespace)

    @property
    def archiving(self) -> Archiving:
        """Who puts notes away."""
        return Archiving(
            self._minds,
            shelf=self.shelf,
            chains=self.chains,
            archives=self.archives,
            embed=self.embed,
            permit=self.permit,
        )

    @property
    def forgetting(self) -> Forgetting:
        """Who erases notes."""
        return Forgetting(
            shelf=self.shelf,
            archives=self.archives,
            check_tasks=self.desk.check_authors,
            tasks=self.desk.forget,
            permit=self.permit,
        )

    @property
    def retention(self) -> Retention:
        """Who erases what is too old."""
        return Retention(
            shelf=self.shelf,
            chains=self.chains,
            archives=self.archives,
            clock=self._minds.clock,
            permit=self.permit,
        )

    @cached_property
    def worker(self) -> Worker:
        """The one worker of the namespace in this hub; it takes tasks in the namespace's name."""

        def make() -> Worker:
            own = self._requester(SHARED_SCOPE)
            worker = Worker(self._minds, desk=own.desk, requester=self._requester, webhooks=own.webhooks)
            self._minds.endings.append(worker.close)
            return worker

        return self._minds.shared(Worker, self._scope.identity.namespace, make)

    def _requester(self, actor: str) -> Requester:
        scope = self._scope.acting_as(actor)
        parts = Parts(self._minds, scope, self._ground)
        return Requester(scope, parts.desk, parts.pipeline, parts.webhooks)

    def permit(self, note: Note) -> None:
        """Refuse who may not change or erase a note by hand.

        Raises:
            AccessDeniedError: another actor has asked for it, and `memory_rights` is `owner`.
        """
        self._scope.check_author(note.created_by, NOTES, f"{note.app_id}/{note.id}")

    async def embed(self, text: str) -> Vector | None:
        """The vector of a text; None when it has no meaning, or there is no embedder."""
        embedder = self._minds.embedder_of(self._scope.identity.namespace)
        return None if embedder is None else await embedded(embedder, text)
