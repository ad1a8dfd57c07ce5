"""Build the services behind `store.synthesis` for one namespace and actor."""

from __future__ import annotations

from functools import cached_property

from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Note
from sharedmem.providers.extractive import can_follow_instructions
from sharedmem.providers.protocol import LanguageModel
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.chain_archive import ArchiveSearch, ChainArchiver, ChainArchiveStore
from sharedmem.synthesis.erasure import NoteEraser, NoteRetention
from sharedmem.synthesis.evolution import ChainLocks, Evolution
from sharedmem.synthesis.model_agents import ModelAgents
from sharedmem.synthesis.note_repository import NOTES_COLLECTION, RedisNoteRepository
from sharedmem.synthesis.pipeline import Pipeline
from sharedmem.synthesis.protocol import Agents, NoteRepository
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.rule_agents import RuleAgents
from sharedmem.synthesis.search import NoteSearch
from sharedmem.synthesis.tasks import TaskIntake
from sharedmem.synthesis.webhooks import Webhooks
from sharedmem.synthesis.worker import ActorServices, SynthesisWorker


def select_agents(model: LanguageModel) -> Agents:
    """Return the agents for a model: rules for the offline one, else agents that call it.

    Args:
        model: model of the settings, or of the caller.
    """
    return ModelAgents(model) if can_follow_instructions(model) else RuleAgents()


class SynthesisServices:
    """The services behind `store.synthesis`.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
        repository: stores the notes; None for Redis.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, *, repository: NoteRepository | None = None) -> None:
        self._context = context
        self._scope = scope
        self.repository: NoteRepository = repository or RedisNoteRepository(context, scope)
        self.agents: Agents = select_agents(context.model)
        self.chains = ChainLocks(scope, context)
        self.intake = TaskIntake(context, scope)
        self.webhooks = Webhooks(context, scope)
        self.archives = ChainArchiveStore(context.blobs, scope.identity.namespace)
        archive_search = ArchiveSearch(
            scope.identity.namespace,
            repository=self.repository,
            archives=self.archives,
            embedder=context.embedder_of(scope.identity.namespace),
        )
        self.search = NoteSearch(context, scope, repository=self.repository, archives=archive_search)
        self.evolution = Evolution(
            self.repository, self.chains, context.clock, self.embed, actor=scope.identity.name, permit=self.permit
        )
        self.pipeline = Pipeline(context, scope, repository=self.repository, agents=self.agents, chains=self.chains)

    @property
    def archiver(self) -> ChainArchiver:
        """Archives chains."""
        return ChainArchiver(
            self._context,
            repository=self.repository,
            chains=self.chains,
            archives=self.archives,
            embed=self.embed,
            permit=self.permit,
        )

    @property
    def eraser(self) -> NoteEraser:
        """Erases notes."""
        return NoteEraser(
            repository=self.repository,
            archives=self.archives,
            check_tasks=self.intake.check_authors,
            tasks=self.intake.forget,
            permit=self.permit,
        )

    @property
    def retention(self) -> NoteRetention:
        """Erases old retired notes."""
        return NoteRetention(
            repository=self.repository,
            chains=self.chains,
            archives=self.archives,
            clock=self._context.clock,
            permit=self.permit,
        )

    @cached_property
    def worker(self) -> SynthesisWorker:
        """The one worker of the namespace in this hub; it claims tasks as the namespace's own actor."""

        def make() -> SynthesisWorker:
            own = self._requester(SHARED_SCOPE)
            worker = SynthesisWorker(self._context, intake=own.intake, requester=self._requester, webhooks=own.webhooks)
            self._context.endings.append(worker.close)
            return worker

        return self._context.shared(SynthesisWorker, self._scope.identity.namespace, make)

    def _requester(self, actor: str) -> ActorServices:
        scope = self._scope.acting_as(actor)
        parts = SynthesisServices(self._context, scope)
        return ActorServices(scope, parts.intake, parts.pipeline, parts.webhooks)

    def permit(self, note: Note) -> None:
        """Reject an actor that may not change or erase a note by hand.

        Raises:
            AccessDeniedError: the note belongs to another actor, and `memory_rights` is `owner`.
        """
        self._scope.check_author(note.created_by, NOTES_COLLECTION, f"{note.app_id}/{note.id}")

    async def embed(self, text: str) -> Vector | None:
        """Return the vector of a text; None when it is empty, or there is no embedder."""
        embedder = self._context.embedder_of(self._scope.identity.namespace)
        return None if embedder is None else await embed_note(embedder, text)
