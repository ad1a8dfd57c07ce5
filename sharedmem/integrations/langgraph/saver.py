"""LangGraph's checkpointer on a store: threads survive processes, and two processes on one thread do not mix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from sharedmem.errors import InvalidError
from sharedmem.integrations.langgraph.calls import reach
from sharedmem.integrations.langgraph.threads import NewCheckpoint, StoredCheckpoint, Threads, writes_field
from sharedmem.redis.lifetimes import check_ttl_ms
from sharedmem.store import SharedMemoryStore
from sharedmem.sync import SharedMemoryStore as BlockingStore

_END: Any = object()


class SharedMemSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in a store.

    A thread is one hash, `<namespace>:<scope>:langgraph:thread:<id>`: the rights, lifetimes, durable kinds, archives
    and change feed of keys hold for it. Each change is one atomic step and one round trip; a checkpoint is read in one.
    The value of a channel is stored once a version.

    When two processes run one thread, the first to store the next checkpoint goes on; the other one gets a
    `ConflictError` and may invoke the graph again. Time travel and `update_state` make branches, as LangGraph says.

    Args:
        store: an async store (made where its event loop runs; the methods without `a` are for other threads), or one
            of `sharedmem.sync`.
        ttl: seconds until a thread expires, counted anew with each change of it; None: the rules for keys decide.
        serde: how values are coded; None: LangGraph's own way.

    Raises:
        InvalidError: the ttl is invalid.
        UsageError: an async store is passed outside of its event loop.
    """

    def __init__(
        self,
        store: SharedMemoryStore | BlockingStore,
        *,
        ttl: float | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if ttl is not None:
            check_ttl_ms(ttl)
        parts, behind, self._calls = reach(store)
        self._threads = Threads(behind, parts, ttl_s=ttl)

    # -- reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its writes, or the newest of its namespace, or None. One round trip.

        Raises:
            InvalidError: the config names no thread.
            CorruptionError: another client has damaged the thread.
            AccessDeniedError, UnavailableError: as `store.read`.
        """
        name = (_ns(config), get_checkpoint_id(config) or "")
        found = await self._calls.awaited(self._threads.look(_thread(config), [name]))
        return self._tuple(_thread(config), found[0]) if found else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # the name of the contract
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, the newest of a thread first; one round trip for 20 of them.

        Args:
            config: the thread, and perhaps the namespace or the checkpoint; None: all threads of the store.
            filter: values that the metadata must have.
            before: only checkpoints that are older than this one.
            limit: at most so many.
        """
        left = limit
        if left is not None and left <= 0:
            return
        async for found in self._listed(config, before):
            if filter and not _fits(self._metadata(found[1]), filter):
                continue
            yield self._tuple(*found)
            if left is not None:
                left -= 1
                if left == 0:
                    return

    async def _listed(
        self, config: RunnableConfig | None, before: RunnableConfig | None
    ) -> AsyncIterator[tuple[str, StoredCheckpoint]]:
        options = (config or {}).get("configurable", {})
        ns, id_ = options.get("checkpoint_ns"), options.get("checkpoint_id")
        oldest = get_checkpoint_id(before) if before else None
        for thread in [_thread(config)] if config else await self._calls.awaited(self._all_threads()):
            names = [
                name
                for name in await self._calls.awaited(self._threads.names(thread))
                if (ns is None or name[0] == ns) and (not id_ or name[1] == id_) and (not oldest or name[1] < oldest)
            ]
            size = 1
            while names:
                page, names = names[:size], names[size:]
                size = 20  # who asks for the newest one reads only that
                for found in await self._calls.awaited(self._threads.look(thread, page)):
                    yield thread, found

    async def _all_threads(self) -> list[str]:
        return [thread async for thread in self._threads.threads()]

    # -- writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint and the channels that are new in it; return the config that names it. One round trip.

        Raises:
            ConflictError: a step of a run follows a checkpoint that is not the newest any more: another process has
                gone on with the thread.
            InvalidError: a name has control characters, or the config names no thread. Nothing was written.
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        thread, ns = _thread(config), _ns(config)
        values = checkpoint["channel_values"]
        told = get_checkpoint_metadata(config, metadata)
        new = NewCheckpoint(
            ns=ns,
            id=checkpoint["id"],
            parent=get_checkpoint_id(config),
            run=told.get("run_id"),
            checkpoint=self.serde.dumps_typed({**checkpoint, "channel_values": {}}),
            metadata=self.serde.dumps_typed(told),
            versions={channel: str(version) for channel, version in checkpoint["channel_versions"].items()},
            deltas=list(told.get("counters_since_delta_snapshot") or ()),
            blobs={
                channel: self.serde.dumps_typed(values[channel])
                for channel in new_versions
                if channel in values and channel in checkpoint["channel_versions"]
            },
        )
        follows = not ns and metadata.get("source") == "loop"
        await self._calls.awaited(self._threads.put(thread, new, follows=follows))
        return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": new.id}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, beside the checkpoint that it began with; a repeat changes nothing. One round trip.

        Writes of a task that are there stay as a whole; errors, interrupts and resumes are replaced.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `aput`.
        """
        id_ = get_checkpoint_id(config)
        if not id_:
            raise InvalidError(
                "checkpoint_id", id_, "pass the config that `put` returned: writes belong to a checkpoint"
            )
        if not writes:
            return
        fields: dict[str, tuple[str, list[tuple[int, str, str, bytes]]]] = {}
        for at, (channel, value) in enumerate(writes):
            number = WRITES_IDX_MAP.get(channel)
            name = writes_field(_ns(config), id_, task_id, number)
            row = (at if number is None else number, channel, *self.serde.dumps_typed(value))
            fields.setdefault(name, (task_path, []))[1].append(row)
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        work = self._threads.write(_thread(config), _ns(config), id_, replaces=replaces, writes=fields)
        await self._calls.awaited(work)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its checkpoints and writes. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `store.delete`.
        """
        await self._calls.awaited(self._threads.delete(str(thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints and writes of some runs, in all threads of the store. One round trip a thread.

        Raises:
            AccessDeniedError, UnavailableError: as `store.delete`.
        """
        runs = [str(run) for run in run_ids]
        for thread in await self._calls.awaited(self._all_threads()) if runs else []:
            await self._calls.awaited(self._threads.drop(thread, "runs", runs))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread into another. Two round trips.

        Raises:
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        await self._calls.awaited(self._threads.copy(str(source_thread_id), str(target_thread_id)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of threads, their writes, and the values that only they have. One round trip a thread.

        Ancestors that a channel of the newest checkpoint is rebuilt from stay.

        Args:
            thread_ids: the threads.
            strategy: `keep_latest` keeps the newest checkpoint of each namespace; `delete` keeps nothing.

        Raises:
            InvalidError: there is no such strategy.
            AccessDeniedError, UnavailableError: as `store.delete`.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise InvalidError("strategy", strategy, "choose keep_latest or delete")
        for thread in map(str, thread_ids):
            work = self._threads.delete(thread) if strategy == "delete" else self._threads.drop(thread, "old")
            await self._calls.awaited(work)

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002  # deprecated there
        """Return the version that follows; two processes never give the same one."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{uuid4().hex}"

    # -- without an event loop

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `aget_tuple`, from a thread without an event loop."""
        return self._calls.blocking(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # the name of the contract
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """As `alist`, from a thread without an event loop."""
        found = self.alist(config, filter=filter, before=before, limit=limit)
        while (one := self._calls.blocking(_next(found))) is not _END:
            yield one

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `aput`, from a thread without an event loop."""
        return self._calls.blocking(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `aput_writes`, from a thread without an event loop."""
        self._calls.blocking(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """As `adelete_thread`, from a thread without an event loop."""
        self._calls.blocking(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `adelete_for_runs`, from a thread without an event loop."""
        self._calls.blocking(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `acopy_thread`, from a thread without an event loop."""
        self._calls.blocking(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `aprune`, from a thread without an event loop."""
        self._calls.blocking(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `aget_delta_channel_history`, from a thread without an event loop."""
        return self._calls.blocking(self.aget_delta_channel_history(config=config, channels=channels))

    # -- coding

    def _tuple(self, thread: str, found: StoredCheckpoint) -> CheckpointTuple:
        checkpoint: Checkpoint = self.serde.loads_typed(found.checkpoint)
        checkpoint["channel_values"] = {
            channel: self.serde.loads_typed(typed) for channel, typed in found.channels.items()
        }
        rows = [(path, task, row) for path, task, rows in found.writes for row in rows]
        rows.sort(key=lambda each: writes_sort_key(each[0], each[1], each[2][0]))
        return CheckpointTuple(
            config=_config(thread, found.ns, found.id),
            checkpoint=checkpoint,
            metadata=self._metadata(found),
            parent_config=_config(thread, found.ns, found.parent) if found.parent else None,
            pending_writes=[
                (task, channel, self.serde.loads_typed((coding, body))) for _, task, (_, channel, coding, body) in rows
            ],
        )

    def _metadata(self, found: StoredCheckpoint) -> CheckpointMetadata:
        return cast("CheckpointMetadata", self.serde.loads_typed(found.metadata))


def _config(thread: str, ns: str, id_: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id_}}


def _thread(config: RunnableConfig) -> str:
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None or thread == "":
        raise InvalidError("thread_id", thread, 'name the thread: {"configurable": {"thread_id": "..."}}')
    return str(thread)


def _ns(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns", ""))


def _fits(metadata: CheckpointMetadata, wanted: Mapping[str, Any]) -> bool:
    return all(name in metadata and metadata[name] == value for name, value in wanted.items())  # type: ignore[literal-required]  # its names are free


async def _next(found: AsyncIterator[CheckpointTuple]) -> Any:
    return await anext(found, _END)
