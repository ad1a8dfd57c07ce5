"""`store.memory`: the semantic memory of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, Unpack

from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MemoryAccess, check_filter
from sharedmem.memory.duplicates import DuplicateMerger, DuplicateProgress
from sharedmem.memory.enrichment import MemorySummarizer
from sharedmem.memory.group_commit import MemoryAdder
from sharedmem.memory.ranking import RankingWeights
from sharedmem.memory.reader import MemoryListing, MemoryReader
from sharedmem.memory.rollups import MemoryRollups, RollupWorker
from sharedmem.memory.search import (
    Filters,
    HitOrder,
    MemorySearcher,
    Rerank,
    SearchHits,
    check_choice,
    check_limit,
)
from sharedmem.memory.stats import MemoryStatistics, MemoryThreads
from sharedmem.memory.subscriptions import DEFAULT_THRESHOLD, EventCallback, MemorySubscriptions, StandingQuery
from sharedmem.memory.traces import CREATE, DELETE, DELETE_ALL, SEARCH, SEARCH_VECTOR, UPDATE
from sharedmem.memory.transfer import ImportedItem, ImportProgress, MemoryTransfer
from sharedmem.memory.validation import check_id, narrow, thread_in
from sharedmem.memory.writer import MemoryHistory, MemoryRewriter, MemoryWriter
from sharedmem.models import (
    AddResult,
    DuplicateReport,
    MemoryChanges,
    MemoryFields,
    MemoryFilter,
    MemoryItem,
    MemoryStats,
    MemoryUse,
    MemoryVersion,
    SearchMode,
    ThreadStats,
)
from sharedmem.providers.protocol import LanguageModel
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.runtime.telemetry import StoreTrace

_MOST_LISTED = _MOST_TURNS = 1000


class Memories(ProcessBound):
    """Semantic memory of one namespace, with the rights of one actor; optionally of one user, agent, thread or run.

    No call reads or writes another namespace, or memories outside of the values that it is narrowed to.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: builds keys within the actor's rights.
        within: the values of `user_id`, `agent_id`, `thread_id` and `run_id` to which every call is limited.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, within: MemoryFilter | None = None) -> None:
        self._counters: Counters = context.counters
        self._trace = StoreTrace(scope.identity.namespace, context.settings.trace_content)
        self._access = access = MemoryAccess(context, scope, within)
        rewriter = MemoryRewriter(access)
        self._reader = reader = MemoryReader(access)
        self._searcher = MemorySearcher(access, reader)
        worker = RollupWorker.of(context, scope, lambda acting: Memories(context, acting).rollups)
        self._adder = MemoryAdder(access, None if worker is None else partial(worker.note, scope))
        self._writer = MemoryWriter(access, rewriter)
        self._rollups = MemoryRollups(access, reader, self._adder, self._writer)
        self._summarizer = MemorySummarizer(access, reader, self._writer)
        self._history = MemoryHistory(access, rewriter)
        self._duplicates = DuplicateMerger(access, reader, rewriter)
        self._threads = MemoryThreads(access, reader, self._adder, self._writer)
        self._statistics = MemoryStatistics(access, reader)
        self._subscriptions = MemorySubscriptions(access, reader)
        self._transfer = MemoryTransfer(access, reader)

    def within(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
    ) -> Memories:
        """Return these memories narrowed to some fields: every call reads and writes only memories with these values.

        This includes calls by id, and memories that are added get these fields. The result can be narrowed further,
        never widened. No round trip.

        Args:
            user_id, agent_id, thread_id, run_id: exact values; None leaves the field as it is.

        Raises:
            InvalidError: a value is invalid.
            AccessDeniedError: these memories are narrowed to another value already.
        """
        access = self._access
        given = {"user_id": user_id, "agent_id": agent_id, "thread_id": thread_id, "run_id": run_id}
        return Memories(access.context, access.scope, narrow(access, given))

    @property
    def rollups(self) -> MemoryRollups:
        """Memories that summarise several older ones of this scope."""
        return self._rollups

    # -- add and change

    @measured("memory.add", memory=CREATE)
    async def add(
        self,
        memory: str | MemoryItem | Mapping[str, Any],
        *,
        dedup: bool | None = None,
        dedup_keys: Sequence[str] = (),
        summarize: bool = False,
        **fields: Unpack[MemoryFields],
    ) -> AddResult:
        """Add a memory. Two round trips, and one more for each near memory; several adds share them.

        A duplicate is merged into the memory that exists: one with the same text, or one near in meaning
        (`dedup_similarity`) unless numbers, names or negations differ; of the same category and user, and of the same
        agent, thread and run where this is narrowed to them. A turn of a conversation (`messages`) duplicates only
        itself: same thread, author, text and, if given, time. When the embedding provider cannot be reached, the
        memory is written at once, found by its words, and embedded later.

        Args:
            memory: the fact as text, or a whole item (up to 1 MiB of text).
            dedup: False adds it beside any duplicate; None takes the setting `dedup_enabled`.
            dedup_keys: names of metadata whose values a duplicate must share.
            summarize: whether the language model writes its `summary` first; one call of the model.
            fields: further fields of `MemoryItem`.

        Returns:
            Its id, or the id of the memory that it was merged into. If an id is given that exists with the same text,
            nothing changes.

        Raises:
            InvalidError: an argument is invalid; nothing is written.
            VersionConflictError: the given id has another text already.
            AccessDeniedError, UnavailableError: as `write`.
            ConfigError: the embedding provider refuses the key or model.
        """
        self._access.permit("write")
        return await self._adder.add(memory, fields, dedup=dedup, dedup_keys=dedup_keys, summarize=summarize)

    @measured("memory.add_many", memory=CREATE)
    async def add_many(
        self,
        items: Iterable[str | MemoryItem | Mapping[str, Any]],
        *,
        dedup: bool | None = None,
        dedup_keys: Sequence[str] = (),
        summarize: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[AddResult]:
        """Add many memories, each as `add` does, in their order. A few round trips for every 64.

        Where 500 or more may have duplicates, the vectors of the namespace are fetched once, unless it is far larger
        or they take more than 128 MiB; that is quicker than to search for each.

        Args:
            items: texts, items or mappings of their fields; all are checked before anything is written.
            dedup, dedup_keys, summarize: as `add`.
            on_progress: called with (how many are written, how many there are).

        Returns:
            A result for each. If the call fails, what was written stays; repeat the same call to continue.

        Raises:
            InvalidError, AccessDeniedError, ConfigError, UnavailableError, VersionConflictError: as `add`.
        """
        self._access.permit("write")
        return await self._adder.add_many(
            items, dedup=dedup, dedup_keys=dedup_keys, summarize=summarize, on_progress=on_progress
        )

    @measured("memory.update", memory=UPDATE)
    async def update(self, id_: str, *, if_version: int | None = None, **changes: Unpack[MemoryChanges]) -> MemoryItem:
        """Change fields of a memory; another text gets another embedding and hash. Two round trips.

        Args:
            id_: id of the memory.
            if_version: change it only if it has this version; None changes any version.
            changes: fields of `MemoryItem` with their new values. The thread, the turn and the fields that the store
                assigns cannot change. `content` follows `memory` unless given.

        Returns:
            The memory after the change.

        Raises:
            NotFoundError: there is no such memory.
            InvalidError: a field cannot be changed, or its new value is invalid.
            VersionConflictError: it has another version than `if_version`.
            AccessDeniedError, UnavailableError, ConfigError: as `add`.
        """
        await self._access.enter("write")
        return await self._writer.update(id_, changes, if_version=if_version, permit=self._access.check_author)

    async def summarize(self, id_: str, *, model: LanguageModel | None = None) -> MemoryItem:
        """Write the `summary` of a memory. Three round trips, and one call of the language model.

        Args:
            id_: id of the memory.
            model: writes the summary; None takes the hub's (setting `llm`).

        Returns:
            The memory with its summary.

        Raises:
            NotFoundError: there is no such memory.
            VersionConflictError: the memory has changed meanwhile; nothing is written.
            InvalidError, AccessDeniedError, UnavailableError, LimitedError, ConfigError: as `summarize_thread`.
        """
        await self._access.enter("write")
        return await self._summarizer.summarize(check_id(id_), model)

    @measured("memory.delete", memory=DELETE)
    async def delete(self, id_: str) -> bool:
        """Delete a memory; `history` and `undo` keep it for `memory_history_s` (30 days). Two round trips.

        Args:
            id_: id of the memory.

        Returns:
            Whether it existed.

        Raises:
            InvalidError: the id is invalid.
            AccessDeniedError, UnavailableError: as `write`.
        """
        await self._access.enter("write")
        return await self._writer.delete(check_id(id_))

    @measured("memory.delete_all", memory=DELETE_ALL)
    async def delete_all(self, filters: MemoryFilter | Mapping[str, Any]) -> int:
        """Delete all memories that match a filter, each as `delete` does. Three round trips for every 64.

        Args:
            filters: which memories; an empty filter means all of the namespace, or of what this is narrowed to.

        Returns:
            How many were deleted.

        Raises:
            InvalidError: the filter is invalid.
            AccessDeniedError, UnavailableError: as `write`; what was deleted by then stays deleted.
        """
        await self._access.enter("write")
        return await self._writer.delete_all(check_filter(filters))

    @measured("memory.merge_duplicates")
    async def merge_duplicates(
        self,
        filters: Filters = None,
        *,
        similarity: float | None = None,
        dry_run: bool = False,
        on_progress: DuplicateProgress | None = None,
    ) -> DuplicateReport:
        """Merge stored memories that say the same, as `add` would have; the newer one into the older one.

        Turns of conversations, summaries of threads, and memories that this actor may not change stay as they are. A
        merge is one step; `undo` splits it. A search for each memory, two round trips for each duplicate.

        Args:
            filters: which memories to compare with one another; None for all in this scope.
            similarity: least cosine similarity of duplicates, 0.7 to 1; None takes the setting `dedup_similarity`.
            dry_run: whether to change nothing, and only report the duplicates.
            on_progress: called with (memories compared, duplicates found).

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `delete_all`; repeat the call to continue.
        """
        await self._access.enter("write")
        wanted = check_filter(filters)
        return await self._duplicates.merge(wanted, similarity=similarity, dry_run=dry_run, on_progress=on_progress)

    # -- search

    @measured("memory.search", memory=SEARCH)
    async def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        mode: SearchMode | None = None,
        filters: Filters = None,
        threshold: float | None = None,
        explain: bool = False,
        recipe: RankingWeights | None = None,
        diversity: float | None = None,
        rerank: Rerank | Literal[False] | None = None,
    ) -> SearchHits:
        """Return the memories that answer a query, best first.

        Two round trips; three if turns of a conversation are found. Hits that have expired, were deleted or have left
        the scope by then are replaced by the next best, for one more round trip.

        Args:
            query: what to look for, in everyday language; the first 10,000 characters and 32 significant words count.
            limit: most hits, 1 to `search_max_limit` (100); None takes the setting `search_limit` (10).
            mode: `hybrid` by words and by meaning; `semantic` by meaning alone, where a rank score is the cosine
                similarity; `keywords` by words alone, any of them, and phrases as `search_keywords`; None takes the
                setting `search_mode` (`hybrid`).
            filters: which memories to search, a `MemoryFilter` or a mapping with its fields.
            threshold: least `Hit.score`, the probability of being relevant, 0 to 1, in every mode. None takes the best
                hits, however unlikely.
            explain: whether each hit has the score, rank and weight of every signal, and the result the cost.
            recipe: weights of the ranking in place of the measured ones.
            diversity: 0 to 1, how much variety among the hits counts against how well they match.
            rerank: a coroutine function that takes the query and the best 20 memories and returns a score for each;
                None takes the setting `reranker` in mode `hybrid`, False no reranker.

        Returns:
            A list of `Hit` with the `mode`, the `cost`, and in `degraded` the reason for a search by words alone: no
                embedder, the provider is unavailable or slow, or the query has no meaning.

        Raises:
            InvalidError: the query is empty, or another argument is invalid.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server cannot be reached, or could not finish in time.
        """
        order = HitOrder(explain, recipe, diversity, rerank)
        request = self._searcher.request(query, mode, order, threshold=threshold, limit=limit, filters=filters)
        return await self._searcher.search(request)

    async def search_semantic(
        self, query: str, *, threshold: float | None = None, limit: int | None = None, filters: Filters = None
    ) -> SearchHits:
        """Return the memories that mean about the same as a query; `search` with mode `semantic`.

        Args:
            query, limit, filters: as `search` takes them, which also says what is raised.
            threshold: least cosine similarity, 0 to 1; `Hit.rank_score` is this similarity.
        """
        return await self._searcher.search_semantic(query, threshold, limit, filters)

    @measured("memory.search_hybrid", memory=SEARCH)
    async def search_hybrid(
        self, query: str, *, keywords: str | None = None, limit: int | None = None, filters: Filters = None
    ) -> SearchHits:
        """Return the memories that mean about the same as a query or contain some words, which may differ from it.

        Args:
            query: the text whose meaning is compared.
            keywords: the words to look for; by default those of the query.
            limit, filters: as `search` takes them, which also says what is raised.
        """
        return await self._searcher.search_hybrid(query, keywords, limit, filters)

    @measured("memory.search_keywords", memory=SEARCH)
    async def search_keywords(
        self,
        phrase: str,
        *,
        order_by: Literal["relevance", "timestamp"] = "relevance",
        limit: int | None = None,
        filters: Filters = None,
    ) -> SearchHits:
        """Return the memories that contain any of the words of a phrase.

        Args:
            phrase: the words; inflected forms count as the same. Words in quotation marks, such as `"solid ground"`,
                must be side by side in this order and in these forms; looked for in the thousand best memories that
                contain them.
            order_by: `relevance` by BM25; `timestamp` puts the newest of the best matches (`search_candidates`) first.
            limit, filters: as `search` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `search`.
        """
        return await self._searcher.search_keywords(phrase, order_by, limit, filters)

    @measured("memory.find_similar", memory=SEARCH_VECTOR)
    async def find_similar(
        self, embedding: Sequence[float], *, threshold: float = 0.0, limit: int | None = None, filters: Filters = None
    ) -> SearchHits:
        """Return the memories nearest to a vector. Two round trips.

        Args:
            embedding: a vector with the dimension of the embedder; its length in space does not matter.
            threshold: least cosine similarity, -1 to 1.
            limit, filters: as `search` takes them.

        Returns:
            The hits; a score is the cosine similarity. Nothing is near to a vector of zeros.

        Raises:
            InvalidError: the vector has another dimension, or a number that is not finite; also as `search`.
            AccessDeniedError, UnavailableError: as `search`.
        """
        return await self._searcher.find_similar(embedding, threshold, limit, filters)

    # -- read

    @measured("memory.get")
    async def get(self, id: str, *, embedding: bool = False) -> MemoryItem | None:  # noqa: A002  # as users say it
        """Return the memory with an id; None if there is no such memory in this scope. One round trip.

        Args:
            id: as `add` returned it.
            embedding: whether to return its `embedding` too.

        Raises:
            InvalidError: the id is invalid.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server cannot be reached.
        """
        await self._access.enter("read")
        return await self._reader.get(check_id(id), embedding=embedding)

    async def recent(
        self,
        thread_id: str | None = None,
        *,
        limit: int = 10,
        order_by: Literal["timestamp", "turn_index"] = "timestamp",
    ) -> list[MemoryItem]:
        """Return the newest memories of a thread, newest first, without its summaries.

        Two round trips; more if many of the newest are in another scope.

        Args:
            thread_id: `main` when not given, or the thread that this scope is narrowed to.
            limit: most memories, 1 to 100.
            order_by: the time of the turn, or its place in the thread.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._access.enter("read")
        check_choice("order_by", order_by, ("timestamp", "turn_index"))
        wanted, thread = check_limit(limit), thread_in(self._access.within, thread_id)
        return await self._access.retry_after_restore(lambda: self._reader.recent(thread, wanted, order_by))

    # -- threads

    async def thread_stats(self, thread_id: str | None = None) -> ThreadStats:
        """Return what a thread contains in this scope, without its summaries. Two round trips for every 500 turns.

        Args:
            thread_id: `main` when not given, or the thread that this scope is narrowed to.

        Returns:
            `total_tokens` sums the metrics `input_tokens` and `output_tokens` of the turns; if no turn has them, it
            counts words (`tokens_from`). `participants` are the speakers, and the `entity_id` and `source_actor` of
            the turns, the one with most turns first.

        Raises:
            InvalidError: the thread is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._access.enter("read")
        thread = thread_in(self._access.within, thread_id)
        return await self._access.retry_after_restore(
            lambda: self._threads.stats(thread), lambda stats: not stats.turn_count
        )

    async def summarize_thread(
        self, thread_id: str | None = None, *, max_turns: int = 50, model: LanguageModel | None = None
    ) -> str:
        """Return a summary of the newest turns of a thread; an empty text for a thread without turns.

        The summary is stored in the thread, with category `summary`. While the newest turns and their texts are the
        same, it is returned without another call of the model. One summary per thread and scope is stored.

        Args:
            thread_id: `main` when not given, or the thread that this scope is narrowed to.
            max_turns: how many of the newest turns to sum up, 1 to 1,000.
            model: writes the summary; None takes the hub's.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError: this actor may not write here, which storing the summary requires.
            UnavailableError, LimitedError, ConfigError: the server or the language model cannot be reached.
        """
        await self._access.enter("write")
        turns = check_limit(max_turns, most=_MOST_TURNS)
        return await self._threads.summarize(thread_in(self._access.within, thread_id), turns, model)

    # -- history

    @measured("memory.history")
    async def history(self, id_: str) -> list[MemoryVersion]:
        """Return every stored version of a memory, newest first; of a deleted one too, for `memory_history_s`.

        One round trip. Beyond `memory_history` versions (default 100) the oldest are dropped.

        Args:
            id_: id of the memory; the list is empty if it is unknown, or outside of what this is narrowed to.

        Raises:
            InvalidError: the id is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        await self._access.enter("read")
        return await self._history.versions(check_id(id_))

    @measured("memory.undo", memory=UPDATE)
    async def undo(self, id_: str, version: int | None = None) -> MemoryItem:
        """Undo a change of a memory; later changes stay. Up to four round trips.

        Undoing a merge splits the memory in two, undoing a deletion restores it. The history of each records the undo.

        Args:
            id_: id of the memory.
            version: version of the change to undo, as in `history`; None for the last one that can be undone.

        Returns:
            The memory after the undo.

        Raises:
            NotFoundError: there is no such memory or version.
            InvalidError: that version cannot be undone, such as the addition itself.
            ConflictError: the same fields were changed again later; undo that change first.
            AccessDeniedError, UnavailableError: as `write`.
        """
        await self._access.enter("write")
        return await self._history.undo(check_id(id_), version)

    # -- statistics

    async def uses(self, ids: Iterable[str] | None = None, *, limit: int = 100) -> list[MemoryUse]:
        """Return how often memories were returned by searches and `get`, and when last.

        Counts of other hubs within the last half second may be missing. Two round trips a page of 500 memories, and
        one before them to send what this hub has counted.

        Args:
            ids: the memories, in this order; None for the most used of this scope.
            limit: with `ids=None`, the most memories, 1 to 1,000.

        Returns:
            Most used first, or the given ids that are in this scope; `times` is 0 for a memory that was
            never returned.

        Raises:
            InvalidError: an id or the limit is invalid.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server cannot be reached.
        """
        check_limit(limit, most=_MOST_LISTED)
        wanted = None if ids is None else [check_id(id_) for id_ in dict.fromkeys(ids)]
        await self._access.enter("read")
        return await self._access.retry_after_restore(
            lambda: self._statistics.most_used(limit) if wanted is None else self._statistics.uses_of(wanted)
        )

    async def stats(self, filters: Filters = None) -> MemoryStats:
        """Count the memories of this scope. Three round trips, and two for each five hundred up to 2,000.

        Args:
            filters: which memories; None for all in this scope.

        Returns:
            Counts are exact, except for memories that have just expired. `bytes` (of text, words and vectors)
            and `duplicates_merged` are exact up to 2,000 memories; beyond that, estimates from the newest 2,000.

        Raises:
            InvalidError: a filter is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._access.enter("read")
        wanted = check_filter(filters)
        return await self._access.retry_after_restore(
            lambda: self._statistics.stats(wanted), lambda stats: not stats.count
        )

    # -- follow, export, import

    @asynccontextmanager
    async def subscribe(
        self,
        query: str,
        callback: EventCallback | None = None,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        filters: Filters = None,
        since: str | int | None = None,
    ) -> AsyncIterator[StandingQuery]:
        """Receive events of matching memories for the length of the block, from writers in any process.

        Several changes of one memory between two reads are one event. The expiry of a memory is an event, late, and
        only if this subscription had an event of that memory.

        Args:
            query: the text to match, in everyday language.
            callback: called with each event, one after the other; without it, iterate over the block's value.
                If it raises, that is logged and counted (`callback_failures`), and the subscription continues.
            threshold: least likeness, 0 to 1: cosine similarity to the query; without a vector, the share of
                the query's words that the memory contains.
            filters: which memories to follow.
            since: `cursor` of the last event received, also by an earlier process; None for from now on. Nothing is
                missed in between. After more than a day, or when the namespace is cleared, an event `gap` comes
                first: memories may have been deleted without an event, so list the matching ones again.

        Yields:
            An async iterator of `MemoryEvent`: `written` when a memory begins to match, `changed` when one that
                matched changes and still matches, `withdrawn` when it is deleted or stops matching.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server cannot be reached.
        """
        await self._access.enter("read")
        following = self._subscriptions.subscribe(query, callback, threshold=threshold, filters=filters, since=since)
        async with following as events:
            yield events

    async def export(
        self, filters: Filters = None, *, embedding: bool = False, since: int = 0
    ) -> AsyncIterator[MemoryItem]:
        """Yield all memories of this scope in the order of their last change. Two round trips for every 500.

        A memory that changes during the export is yielded again with its newer state, so that none is left out;
        `import_` accepts that.

        Args:
            filters: which memories; None for all.
            embedding: whether to include their embeddings; without them, an import embeds again.
            since: `version` of the last item of an interrupted export, to continue after it.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._access.enter("read")
        wanted = check_filter(filters)
        async for page in self._transfer.export_pages(wanted, embedding=embedding, since=since):
            for item in page:
                yield item

    async def import_(
        self, items: Iterable[ImportedItem] | AsyncIterable[ImportedItem], *, on_progress: ImportProgress | None = None
    ) -> int:
        """Write memories unchanged: with their ids, times and places in threads, and without deduplication.

        The call may be repeated, also after an interruption: a memory that exists stays unchanged, unless the item
        changed later (`updated_at`, else `created_at`); then the older state becomes a past version. Two round trips
        for every 64 items, and those of embedding.

        Args:
            items: items as `export` yields them, or mappings of their fields; each with its id. They become memories of
                this namespace, and of what this is narrowed to.
            on_progress: called after each 64 items.

        Returns:
            How many were written. Items whose `ttl` has passed are left out.

        Raises:
            InvalidError: an item is invalid; nothing of its 64 is written, and those before them are.
            VersionConflictError: its id belongs to a memory outside of this scope.
            AccessDeniedError: this actor may not write here.
            ConfigError, UnavailableError: as `add`.
        """
        self._access.permit("write")
        return await self._transfer.import_(items, on_progress)

    # The last one: a method named as a type hides the type from the annotations after it.
    async def list(self, filters: Filters = None, *, limit: int = 100, cursor: str | None = None) -> MemoryListing:
        """Return memories, those with the newest `timestamp` first, page by page. Two round trips.

        Args:
            filters: which memories; None for all in this scope.
            limit: most memories on the page, 1 to 1,000. There may be fewer, if some have just expired.
            cursor: the `cursor` of the page before; None for the first page.

        Returns:
            A list with `cursor` for the next page and `total`.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._access.enter("read")
        check_limit(limit, most=_MOST_LISTED)
        wanted = check_filter(filters)
        return await self._access.retry_after_restore(lambda: self._reader.page(wanted, limit, cursor))

    def __repr__(self) -> str:
        return f"<Memories of {self._access.namespace}{self._access.narrowing}>"
