"""A store: one namespace seen by one actor, with all its features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from sharedmem.context import HubContext
from sharedmem.coordination.barriers import Barriers
from sharedmem.coordination.inspection import CoordinationNames
from sharedmem.coordination.locks import Leases
from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.once import Once
from sharedmem.coordination.presence import Presences
from sharedmem.coordination.queues import Queues
from sharedmem.coordination.rate_limits import RateLimits
from sharedmem.data.change_feed import ChangeFeed
from sharedmem.data.collections import CollectionWriter, Hashes, IntegerCounters, Lists, Sets
from sharedmem.data.keys import Access, KeyAccess, KeyOperations
from sharedmem.data.messages import Messages
from sharedmem.data.values import Values
from sharedmem.errors import UnsupportedError
from sharedmem.models.notes import SynthesisMessage
from sharedmem.models.recall import RecalledContext, RecallPart, RememberReceipt
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import ProcessBound

if TYPE_CHECKING:
    from sharedmem.cache import SemanticCache
    from sharedmem.conversations.conversations import Conversations
    from sharedmem.decisions.decisions import Decisions
    from sharedmem.durable.admin import NamespaceDurability
    from sharedmem.episodes import Episodes
    from sharedmem.graph.graph import Graph
    from sharedmem.knowledge_context import KnowledgeContext
    from sharedmem.memory.memories import Memories
    from sharedmem.providers.protocol import Embedder
    from sharedmem.recall.recall import ContextRecall
    from sharedmem.recall.remember import ConversationIntake
    from sharedmem.redis.near_cache import NearCache
    from sharedmem.synthesis.synthesis import Synthesis


def has_memory() -> bool:
    """Return whether the libraries for vectors and word stems are installed."""
    return find_spec("numpy") is not None and find_spec("Stemmer") is not None


def require_memory(feature: str, extra: str) -> None:
    """Check that the libraries for vectors and word stems are installed.

    Raises:
        UnsupportedError: one of them is missing; the error names the extra that brings the feature.
    """
    if not has_memory():
        raise UnsupportedError(feature, f"pip install 'sharedmem-hub[{extra}]'")


class StoreParts(NamedTuple):
    """The parts of a store, for packages that add features to it."""

    context: HubContext
    scope: Scope
    """The namespace, and the rights of the actor."""
    knowledge: Callable[[], KnowledgeContext]
    """Returns the context of memory, cache, graphs and synthesis; created by the first call."""


class SharedMemoryStore(
    Values,
    Lists,
    Hashes,
    Sets,
    IntegerCounters,
    Messages,
    ChangeFeed,
    KeyOperations,
    Leases,
    Queues,
    Once,
    RateLimits,
    Barriers,
    Presences,
    CoordinationNames,
    ProcessBound,
):
    """Shared memory of one namespace, with the rights of one actor. Created by `Hub.store`; immutable.

    A key without `:` is in this store's own scope, `<namespace>:<actor>:<key>`. A key with `:` is absolute:
    its first part is the namespace.
    """

    def __init__(
        self,
        context: HubContext,
        scope: Scope,
        knowledge_context: Callable[[], KnowledgeContext],
        *,
        near: NearCache | None = None,
    ) -> None:
        self._context = context
        self._scope = scope
        # The parts are independent: each has a constructor and attributes of its own.
        keys = KeyAccess(context, scope, near)
        Values.__init__(self, keys)
        writer = CollectionWriter(keys)
        Lists.__init__(self, keys, writer)
        Hashes.__init__(self, keys, writer)
        Sets.__init__(self, keys, writer)
        IntegerCounters.__init__(self, keys, writer)
        Messages.__init__(self, keys)
        KeyOperations.__init__(self, keys)
        ChangeFeed.__init__(self, context, scope, near)
        names = NameAccess(context, scope)
        Leases.__init__(self, names)
        Queues.__init__(self, names)
        Once.__init__(self, names)
        RateLimits.__init__(self, names)
        Barriers.__init__(self, names)
        Presences.__init__(self, names)
        CoordinationNames.__init__(self, names)
        self._knowledge_context = knowledge_context
        self._access = Access(context, scope)

    @property
    def namespace(self) -> str:
        """The namespace of plain keys."""
        return self._scope.identity.namespace

    @property
    def actor(self) -> str | None:
        """The actor of this store; None for a store of the namespace itself."""
        return self._scope.identity.actor

    @property
    def access(self) -> Access:
        """The rights of this store."""
        return self._access

    @cached_property
    def decisions(self) -> Decisions:
        """The decision log of the namespace: plans, their executions, and their outcomes."""
        from sharedmem.decisions.decisions import Decisions  # noqa: PLC0415  # many processes do not use it

        return Decisions(self._context, self._scope, embedder=self._embedder if has_memory() else None)

    @cached_property
    def episodes(self) -> Episodes:
        """Episodic memory of the namespace: events of sessions, their summaries, and search."""
        from sharedmem.episodes import Episodes  # noqa: PLC0415  # likewise

        return Episodes(self._context, self._scope, embedder=self._embedder if has_memory() else None)

    @cached_property
    def conversations(self) -> Conversations:
        """Conversations of the namespace: ordered logs of entries with a revision, forks, and a state beside each."""
        from sharedmem.conversations.conversations import Conversations  # noqa: PLC0415  # likewise

        return Conversations(self._context, self._scope)

    @cached_property
    def durable(self) -> NamespaceDurability:
        """The durable tier of the namespace: its lag, dead letters, verification and restoring.

        Raises:
            UnsupportedError: the server has no durable tier.
        """
        from sharedmem.durable.admin import NamespaceDurability, no_tier_error  # noqa: PLC0415  # likewise
        from sharedmem.durable.tier import DurableTier  # noqa: PLC0415  # likewise

        tier = self._context.tier
        if not isinstance(tier, DurableTier):
            raise no_tier_error()
        return NamespaceDurability(tier.admin, self._scope)

    @cached_property
    def memory(self) -> Memories:
        """Semantic memory of the namespace: texts that agents store and find by meaning and by words.

        Raises:
            UnsupportedError: the extra `memory` is missing, or the settings name an embedder that is not installed.
        """
        require_memory("semantic memory", "memory")
        from sharedmem.memory.memories import Memories  # noqa: PLC0415  # loads libraries that values do not need

        return Memories(self._knowledge_context(), self._scope)

    @cached_property
    def cache(self) -> SemanticCache:
        """Semantic cache of the namespace: stored answers of models, found by the same or a similar prompt.

        Raises:
            UnsupportedError: the extra `memory` is missing, or the settings name an embedder that is not installed.
        """
        require_memory("the semantic cache", "memory")
        from sharedmem.cache import SemanticCache  # noqa: PLC0415  # likewise

        return SemanticCache(self._knowledge_context(), self._scope)

    @cached_property
    def graph(self) -> Graph:
        """Temporal knowledge graphs of the namespace: entities and dated facts, at any valid and transaction time.

        Raises:
            UnsupportedError: the extra `graph` is missing, or the settings name an embedder or a backend that is not
                installed.
            ConfigError: the file with rules cannot be read.
        """
        require_memory("the knowledge graph", "graph")
        from sharedmem.graph.graph import open_graph  # noqa: PLC0415  # likewise

        return open_graph(self._knowledge_context(), self._scope)

    @cached_property
    def synthesis(self) -> Synthesis:
        """Synthesised memory of the namespace: notes made of conversations, with resolution of conflicts.

        Raises:
            UnsupportedError: the settings name an embedder that is not installed, or the extra `synthesis` is missing.
        """
        require_memory("synthesis", "synthesis")
        from sharedmem.synthesis.synthesis import build_synthesis  # noqa: PLC0415  # likewise

        return build_synthesis(self._knowledge_context(), self._scope)

    @cached_property
    def _recall(self) -> ContextRecall:
        require_memory("recall", "memory")
        from sharedmem.recall.recall import ContextRecall, StoreFacets  # noqa: PLC0415  # likewise

        facets = StoreFacets(lambda: self.memory, lambda: self.graph, lambda: self.synthesis, self)
        return ContextRecall(self._knowledge_context(), self._scope, facets)

    async def recall(  # noqa: PLR0913  # each narrows what is looked for
        self,
        question: str,
        *,
        tokens: int = 1500,
        as_of: datetime | None = None,
        user_id: str | None = None,
        parts: Sequence[RecallPart] | None = None,
        values: Sequence[str] = (),
        group_id: str | None = None,
        app_id: str | None = None,
        threshold: float | None = None,
        model: str = "",
    ) -> RecalledContext:
        """Return what an agent should know now: memories, facts and notes that answer a question, within a budget.

        All parts are searched at the same time, so it waits for at most four round trips: no more than two beyond
        `memory.search`. Records that say the same are shown once, a newer one before an older one that it
        contradicts, and long texts are cut to the sentences that answer best. Where nothing has to do with the
        question, the answer is empty.

        Args:
            question: what the agent has to do or answer, in everyday language.
            tokens: most tokens of the text, 100 to 100,000.
            as_of: what was known and true then: earlier memories, facts that held, notes that were not retired yet;
                None for now.
            user_id: only memories and notes of this user, and the group of the graph that `remember` uses for it.
            parts: which of `memory`, `graph` and `notes` to search; None for the installed ones.
            values: keys of shared values to show as well, up to 100; they are never unrelated.
            group_id: group of the graph; None for `main`, or `main:<user_id>` with a user.
            app_id: app of the notes; None for `main`.
            threshold: how much the best record must have to do with the question, 0 to 1: share of the question's words
                plus similarity. None takes the measured one, 0 returns the nearest records in any case.
            model: the model that will read it, such as `openai:gpt-4o`, for an exact count of tokens where its
                tokenizer is installed (tiktoken with the file of its encoding on disk).

        Returns:
            The text for a prompt, the same as records, and in `degraded` the parts that could not be searched in full.

        Raises:
            InvalidError: an argument is invalid.
            UnsupportedError: a part that was named, or the extra `memory`, is not installed.
            AccessDeniedError: this actor may read none of the parts.
            UnavailableError: the server cannot be reached.
        """
        return await self._recall.recall(
            question,
            tokens=tokens,
            as_of=as_of,
            user_id=user_id,
            parts=parts,
            values=values,
            group_id=group_id,
            app_id=app_id,
            threshold=threshold,
            model=model,
        )

    @cached_property
    def _intake(self) -> ConversationIntake:
        require_memory("remember", "memory")
        from sharedmem.recall.remember import ConversationIntake  # noqa: PLC0415  # likewise

        return ConversationIntake(self._knowledge_context(), self._scope)

    async def remember(
        self,
        conversation: Sequence[SynthesisMessage | Mapping[str, object]] | str,
        *,
        user_id: str | None = None,
        thread_id: str = "main",
        parts: Sequence[RecallPart] | None = None,
        group_id: str | None = None,
        app_id: str | None = None,
        task_id: str | None = None,
        wait: float | None = 30.0,
    ) -> RememberReceipt:
        """File a conversation or text as what it is: its turns as memories, what they state as facts, and a note of it.

        It is one task of the queue `remember`: it runs in the background of a hub, with the rights of this actor; if
        the process dies, another one does it, and nothing is written twice. Two round trips until it is accepted; then
        it is waited for.

        Args:
            conversation: messages, or mappings with `role` and `content`, at most 30 (setting
                `synthesis_max_messages`); or a text.
            user_id: whom it concerns.
            thread_id: the conversation that the messages belong to.
            parts: some of `memory`, `graph` and `notes`; None writes all that are installed.
            group_id: group of the graph; None for `main`, or `main:<user_id>` with a user.
            app_id: app of the notes; None for `main`.
            task_id: a key of yours: a repeated key of the same user returns the receipt of the same task.
            wait: seconds to wait until it is done; then the receipt says `pending` or `running`, and
                `remember_receipt` returns what became of it. None waits without limit.

        Returns:
            The ids of what was written, what was merged, what was skipped and why, and what it cost.

        Raises:
            InvalidError: an argument is invalid; nothing was written.
            UnsupportedError: the extra `memory` is not installed.
            AccessDeniedError: this actor may not write the namespace's queues.
            UnavailableError: the server cannot be reached.
        """
        return await self._intake.remember(
            conversation,
            user_id=user_id,
            thread_id=thread_id,
            parts=parts,
            group_id=group_id,
            app_id=app_id,
            task_id=task_id,
            wait=wait,
        )

    async def remember_receipt(self, task_id: str, *, wait: float | None = 0.0) -> RememberReceipt:
        """Return what became of what `remember` was given. One round trip.

        Args:
            task_id: `task_id` of the receipt.
            wait: seconds to wait until it is done; None waits without limit.

        Raises:
            NotFoundError: there is no such task, or its result has expired (setting `synthesis_result_s`).
            UnsupportedError, AccessDeniedError, UnavailableError: as `remember`.
        """
        return await self._intake.receipt(task_id, wait=wait)

    def _embedder(self) -> Embedder | None:
        return self._knowledge_context().embedder_of(self.namespace)

    @property
    def remembers(self) -> bool:
        """Whether actors with this store use memory (setting `memory_enabled`)."""
        return self._context.settings_of(self.namespace).memory_enabled

    @property
    def counters(self) -> Counters:
        """The counters of this store's hub."""
        return self._context.counters

    @cached_property
    def shared(self) -> SharedMemoryStore:
        """The same store with the scope that all actors of the namespace share."""
        identity = replace(self._scope.identity, shares=True)
        return SharedMemoryStore(self._context, Scope(self._scope.keyspace, identity), self._knowledge_context)

    def __repr__(self) -> str:
        scope = self._scope.identity.scope
        return f"<SharedMemoryStore {self.namespace}:{scope}, {self.access.policy}>"


def parts_of(store: SharedMemoryStore) -> StoreParts:
    """Return the parts of a store."""
    return StoreParts(store._context, store._scope, store._knowledge_context)  # noqa: SLF001  # the same module
