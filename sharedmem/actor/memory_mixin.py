"""Mixin that gives an agent's class the shared memory: store what it finds, search what its team knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

import orjson

from sharedmem.actor.prompt import DEFAULT_HEADING, check_prompt_parts, quote_memories
from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.models import (
    AddResult,
    CachedResult,
    Hit,
    Importance,
    MemoryFields,
    MemoryFilter,
    MemoryItem,
    MemoryType,
    OutputFields,
    SearchMode,
)
from sharedmem.runtime import get_logger
from sharedmem.store import SharedMemoryStore

if TYPE_CHECKING:
    from sharedmem.memory.ranking import RankingWeights
    from sharedmem.memory.search import Rerank

T = TypeVar("T")
_log = get_logger("actor")
# A message or key of the provider has no place in a metric; the call that failed does.
_FAILURE_COUNTER = "actor_memory_failures"


@dataclass(frozen=True)
class ActorContext:
    """Where an actor is: whose work it does, in which conversation, and the memory that it shares with its team.

    Args:
        store: the shared memory; None turns memory off.
        actor_id: which actor; the store's actor when empty.
        actor_type: what kind of actor, the `agent_id` of what it remembers; `actor_id` when empty.
        user_id, thread_id, run_id: whose work, in which conversation and run.
        metadata: added to whatever it remembers.
        enabled: whether it remembers at all; None takes the hub's setting `memory_enabled`.
        strict: whether a failing memory stops the actor; else it is logged and counted.
    """

    store: SharedMemoryStore | None = field(default=None, repr=False)
    actor_id: str = ""
    actor_type: str = ""
    user_id: str | None = None
    thread_id: str = "main"
    run_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool | None = None
    strict: bool = False

    @property
    def remembers(self) -> bool:
        """Whether memory is on."""
        if self.store is None:
            return False
        return self.store.remembers if self.enabled is None else self.enabled

    @property
    def name(self) -> str:
        """Who acts."""
        return self.actor_id or (self.store.actor if self.store is not None else None) or "actor"

    def in_thread(self, thread_id: str, *, run_id: str | None = None) -> ActorContext:
        """The same actor in another conversation."""
        return replace(self, thread_id=thread_id, run_id=run_id)


class SearchOptions(TypedDict, total=False):
    """The options of `recall`, as of `store.memory.search`."""

    mode: SearchMode
    filters: MemoryFilter | Mapping[str, Any] | None
    threshold: float | None
    explain: bool
    recipe: RankingWeights | None
    diversity: float | None
    rerank: Rerank | Literal[False] | None


class CacheOptions(TypedDict, total=False):
    """The options of `check_cache`, as of `store.cache.check`."""

    threshold: float | None
    key: str
    model: str
    prompt_version: str
    tags: Sequence[str]


class RemembersMixin(ABC):
    """Gives an agent's class a memory that it shares with its team: set `context`, and say what is worth remembering.

    Works with plain classes, dataclasses and the classes of agent frameworks. Without a context, or where memory is
    off, every call does nothing and answers nothing. A failing memory never stops the actor, unless the context is
    strict.
    """

    context: ActorContext | None = None

    @abstractmethod
    def extract_memory(self, output: Any) -> str:
        """The fact in an output that is worth remembering; empty text for none."""

    async def remember_output(
        self, output: Any, importance: Importance | None = None, **fields: Unpack[OutputFields]
    ) -> AddResult | None:
        """Remember what an output says. What is critical stays, everything else is short-term.

        Args:
            output: what the actor has made; `extract_memory` says what of it counts.
            importance: `low`, `medium`, `high` or `critical`; None: `medium`, or as `importance_scoring` scores it.
            fields: further fields of the `MemoryItem`.

        Returns:
            What became of it; None when memory is off, failed, or there was nothing to remember.

        Raises:
            SharedMemoryError: it failed, and the context is strict.
        """
        context = self._remembering()
        if context is None:
            return None
        fact = self.extract_memory(output)
        return await self._add(context, fact, _output_text(output), importance, fields) if fact else None

    async def remember(
        self, text: str, importance: Importance | None = None, **fields: Unpack[OutputFields]
    ) -> AddResult | None:
        """Store a text. A memory of importance `critical` is long-term, others are short-term.

        Args:
            text: the fact.
            importance: `low`, `medium`, `high` or `critical`; None: `medium`, or as `importance_scoring` scores it.
            fields: further fields of the `MemoryItem`.

        Returns:
            The result; None when memory is off or failed.

        Raises:
            SharedMemoryError: it failed, and the context is strict.
        """
        context = self._remembering()
        return None if context is None else await self._add(context, text, "", importance, fields)

    async def inject(
        self,
        prompt: str,
        *,
        query: str | None = None,
        limit: int = 5,
        heading: str = DEFAULT_HEADING,
        max_characters: int = 8_000,
        **options: Unpack[SearchOptions],
    ) -> str:
        """Return a prompt with the memories that help with it, quoted as data.

        A block behind the prompt contains each memory as a JSON string on a line of its own, and a note that these are
        data, not instructions. No text of a memory can end the block.

        Args:
            prompt: the prompt.
            query: what to search for; None searches for the prompt.
            limit: as `recall`.
            heading: the line above the block, such as "Similar past evaluations:".
            max_characters: most characters of all quoted memories; a memory that does not fit is left out.
            options: as `recall`.

        Returns:
            The prompt with the block; the prompt alone when memory is off, failed, or found nothing.

        Raises:
            InvalidError: the prompt or the heading is not a text, or `max_characters` is not a number from 1.
            SharedMemoryError: the search failed, and the context is strict.
        """
        check_prompt_parts(prompt, heading, max_characters)
        hits = await self.recall(prompt if query is None else query, limit, **options)
        return quote_memories(prompt, hits, heading=heading, max_characters=max_characters)

    async def recall(self, query: str, limit: int = 5, **options: Unpack[SearchOptions]) -> list[Hit]:
        """What the team remembers that helps with a question, best first.

        Args:
            query: the question.
            limit: at most so many, up to 100.
            options: as `store.memory.search`; what is said of the context's user only, when it has one and no
                `filters` are given.

        Raises:
            SharedMemoryError: it failed, and the context is strict.
        """
        context = self._remembering()
        if context is None:
            return []
        if context.user_id is not None and "filters" not in options:
            options["filters"] = {"user_id": context.user_id}
        found = await self._tried("recall", context, lambda store: store.memory.search(query, limit=limit, **options))
        return [] if found is None else found

    async def check_cache(self, query: str, **options: Unpack[CacheOptions]) -> CachedResult | None:
        """The answer that the team has paid for already, if any.

        Args:
            query: the prompt.
            options: as `store.cache.check`.

        Raises:
            SharedMemoryError: it failed, and the context is strict.
        """
        context = self._remembering()
        if context is None:
            return None
        return await self._tried("check_cache", context, lambda store: store.cache.check(query, **options))

    async def _add(
        self, context: ActorContext, fact: str, content: str, importance: Importance | None, fields: OutputFields
    ) -> AddResult | None:
        """Store a fact of this actor, with the place of the actor."""
        kind: MemoryType = "long-term" if importance == "critical" else "short-term"
        chosen: MemoryFields = {} if importance is None else {"importance": importance}
        given: MemoryFields = {
            **chosen,
            "memory_type": kind,
            "content": content,
            "user_id": context.user_id,
            "agent_id": context.actor_type or context.name,
            "thread_id": context.thread_id,
            "run_id": context.run_id,
            "source_actor": context.name,
            **fields,
        }
        marks = {"actor_type": context.actor_type or context.name, **context.metadata}
        given["metadata"] = marks | dict(fields.get("metadata", {}))
        return await self._tried("remember", context, lambda store: store.memory.add(fact, **given))

    def _remembering(self) -> ActorContext | None:
        context = self.context
        if context is not None and not isinstance(context, ActorContext):
            raise InvalidError("context", context, "give an ActorContext")
        return context if context is not None and context.remembers else None

    async def _tried(
        self, what: str, context: ActorContext, call: Callable[[SharedMemoryStore], Awaitable[T]]
    ) -> T | None:
        store = context.store
        if store is None:
            return None
        try:
            return await call(store)
        except SharedMemoryError as error:
            if context.strict:
                raise
            _log.warning("actor %s: %s failed: %s", context.name, what, error)
            store.counters.increment(_FAILURE_COUNTER, call=what)
            return None


def _output_text(output: Any) -> str:
    """An output as text: itself, or its JSON."""
    if isinstance(output, str):
        return output
    if isinstance(output, MemoryItem):
        return output.content
    try:
        dumped = output.model_dump(mode="json") if hasattr(output, "model_dump") else output
        return orjson.dumps(dumped, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        return str(output)
