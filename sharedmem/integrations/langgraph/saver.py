"""LangGraph's checkpointer on a store: threads survive processes, and two processes on one thread do not mix.

A thread is one hash, whose fields are its checkpoints, their channels and their writes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote, unquote
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

from sharedmem.data.keys import KeyAccess, restored_in_vain_error
from sharedmem.errors import ConflictError, InvalidError
from sharedmem.integrations.calls import reach
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.durability import check_ttl_ms
from sharedmem.redis.keys import Target
from sharedmem.redis.scripts.integrations import CheckpointScripts
from sharedmem.redis.service_keys import decoding
from sharedmem.store import SharedMemoryStore, StoreParts
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


# -- threads in Redis -----------------------------------------------------------------------------


_HASH = "hash"
_PREFIX = "langgraph:thread:"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MOST_TRIES = 20
_PAGE = 20
Typed = tuple[str, bytes]
"""The name of a coding and the coded bytes, as LangGraph's serializers give them."""


StoredWrites = tuple[str, str, list[tuple[int, str, str, bytes]]]
"""The path of a task, its id, and what it wrote: number, channel, coding, bytes."""


class StoredCheckpoint(NamedTuple):
    """One checkpoint as it is stored; the values are coded."""

    ns: str
    id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    channels: dict[str, Typed]
    writes: list[StoredWrites]


class NewCheckpoint(NamedTuple):
    """One checkpoint to store."""

    ns: str
    id: str
    parent: str | None
    run: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, str]
    """The version of each channel that it has."""
    deltas: Sequence[str]
    """Channels whose values follow from the writes of its ancestors."""
    blobs: Mapping[str, Typed]
    """The values of channels that are new."""


class Threads:
    """The threads of a store.

    Args:
        store: whose scope has the threads, and whose rights are checked.
        parts: its parts.
        ttl_s: seconds until a thread expires, counted anew with each change; None: the rules for its key decide.
    """

    def __init__(self, store: SharedMemoryStore, parts: StoreParts, *, ttl_s: float | None) -> None:
        self._store = store
        self._keys = KeyAccess(parts.context, parts.scope)
        self._scripts = CheckpointScripts(parts.context.executor)
        self._most = parts.context.settings.blob_threshold_bytes
        self._prefix = f"{store.namespace}:{parts.scope.identity.scope}:{_PREFIX}"
        self._ttl_s = ttl_s

    async def put(self, thread: str, new: NewCheckpoint, *, follows: bool) -> None:
        """Store a checkpoint with its new channels. One round trip.

        Args:
            thread: id of the thread.
            new: the checkpoint.
            follows: whether its parent must be the newest checkpoint of the thread.

        Raises:
            ConflictError: the thread has gone on since the parent.
        """
        target = self._keys.scope.to_write(self._key(thread))
        parent, run = _part("checkpoint_id", new.parent or ""), _part("run_id", new.run or "")
        deltas = [_part("channel", channel) for channel in new.deltas]
        blobs = [_blob(new.ns, version, channel) for channel, version in new.versions.items()]
        pairs = [
            (
                _field("checkpoint", new.ns, new.id),
                "\r".join((parent, run, str(len(deltas)), *deltas, *blobs)).encode(),
            ),
            (_field("body", new.ns, new.id), encode_member([*new.checkpoint, *new.metadata])),
        ]
        pairs += [
            (_blob(new.ns, new.versions[channel], channel), encode_member(list(typed)))
            for channel, typed in new.blobs.items()
        ]
        call = self._scripts.checkpoint_put(
            target,
            self._keys.actor,
            ttl_ms=self._ttl_ms(target),
            most=self._most,
            parent=parent if follows else "",
            names=[(new.ns, new.id)],
            pairs=pairs,
            keep=self._keys.durability(target),
        )
        reply = await self._keys.explained(target, _HASH, call)
        if reply.startswith(b"C "):
            newest = reply[2:].decode()
            raise ConflictError(
                f"thread {thread!r} has gone on: its newest checkpoint is {newest}, this one follows {new.parent}; "
                "invoke the graph again, it begins with the newest"
            )

    async def write(self, thread: str, ns: str, id_: str, *, replaces: bool, writes: Mapping[str, object]) -> None:
        """Store the writes of a task beside a checkpoint. One round trip.

        Args:
            thread: id of the thread.
            ns, id_: the checkpoint, which may follow later.
            replaces: whether writes of the same name are replaced; otherwise they stay as they are.
            writes: by the names of their fields (see `writes_field`).
        """
        target = self._keys.scope.to_write(self._key(thread))
        call = self._scripts.checkpoint_write(
            target,
            self._keys.actor,
            ttl_ms=self._ttl_ms(target),
            most=self._most,
            name=(_part("checkpoint_ns", ns), _part("checkpoint_id", id_)),
            replaces=replaces,
            pairs=[(name, encode_member(value)) for name, value in writes.items()],
            keep=self._keys.durability(target),
        )
        await self._keys.explained(target, _HASH, call)

    async def look(self, thread: str, names: Sequence[tuple[str, str]]) -> list[StoredCheckpoint]:
        """Return checkpoints by namespace and id (empty: the newest), without missing ones.

        One round trip for 20 of them.
        """
        target = self._keys.scope.to_read(self._key(thread))
        found: list[StoredCheckpoint] = []
        for at in range(0, len(names), _PAGE):
            page = names[at : at + _PAGE]

            def ask(page: Sequence[tuple[str, str]] = page) -> Awaitable[Any]:
                return self._scripts.checkpoint_look(target.physical, page)

            with decoding(target.physical):
                found += [_parse(as_list(one)) for one in as_list(await self._ask(target, ask)) if one is not None]
        return found

    async def names(self, thread: str) -> list[tuple[str, str]]:
        """Return the namespaces and ids of a thread's checkpoints, the newest first. One round trip."""
        target = self._keys.scope.to_read(self._key(thread))
        reply = await self._ask(target, lambda: self._scripts.checkpoint_list(target.physical))
        pairs = [bytes(name).decode().partition("\n")[::2] for name in as_list(reply) if isinstance(name, bytes)]
        return sorted(pairs, key=lambda pair: pair[1], reverse=True)

    async def threads(self) -> AsyncIterator[str]:
        """Yield the ids of all threads of the store, in no order; reads the keys of its namespace."""
        async for key in self._store.keys(f"{self._prefix}*"):
            yield unquote(key[len(self._prefix) :])

    async def drop(self, thread: str, mode: Literal["old", "runs"], runs: Sequence[str] = ()) -> None:
        """Delete the checkpoints of some runs, or all but the newest of each namespace. One round trip."""
        target = self._keys.scope.to_write(self._key(thread))
        call = self._scripts.checkpoint_drop(
            target, self._keys.actor, mode=mode, runs=runs, keep=self._keys.durability(target)
        )
        await self._keys.explained(target, _HASH, call)

    async def delete(self, thread: str) -> None:
        """Delete a thread. One round trip."""
        await self._store.delete(self._key(thread))

    async def copy(self, thread: str, new: str) -> None:
        """Copy all checkpoints and writes of a thread into another. Two round trips."""
        source = self._keys.scope.to_read(self._key(thread))
        target = self._keys.scope.to_write(self._key(new))
        items = as_list(await self._keys.ask(source, _HASH, "HGETALL", source.physical))
        fields = {bytes(name).decode(): bytes(text) for name, text in _in_pairs(items)}
        heads = {name: text for name, text in fields.items() if name.startswith("head\n")}
        if not fields:
            return
        call = self._scripts.checkpoint_put(
            target,
            self._keys.actor,
            ttl_ms=self._ttl_ms(target),
            most=self._most,
            parent="",
            names=[(name.partition("\n")[2], text.decode()) for name, text in heads.items()],
            pairs=[(name, text) for name, text in fields.items() if name not in heads],
            keep=self._keys.durability(target),
        )
        await self._keys.explained(target, _HASH, call)

    async def _ask(self, target: Target, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a script read; a thread that only the durable tier has is restored first."""
        await self._keys.ensure_joined(target)
        for _ in range(_MOST_TRIES):
            reply = await self._keys.explained(target, _HASH, call())
            if reply or not await self._keys.restore(target):
                return reply
        raise restored_in_vain_error(target)

    def _ttl_ms(self, target: Target) -> int:
        return self._keys.lifetimes.ttl_ms(target.key, self._ttl_s)

    def _key(self, thread: str) -> str:
        # Any text is one part of a key, and no two texts are the same one.
        return self._prefix + quote(_thread_id(thread), safe="")


def writes_field(ns: str, id_: str, task: str, number: int | None = None) -> str:
    """Return the name of the field with the writes of a task, or with a special one."""
    last = () if number is None else (str(number),)
    return _field("writes", ns, id_, _part("task_id", task), *last)


def _thread_id(thread: str) -> str:
    if not thread:
        raise InvalidError("thread_id", thread, "give a non-empty text")
    return thread


def _field(kind: str, ns: str, id_: str, *rest: str) -> str:
    return "\n".join((kind, _part("checkpoint_ns", ns), _part("checkpoint_id", id_), *rest))


def _blob(ns: str, version: str, channel: str) -> str:
    return _field("blob", ns, _part("version", version), _part("channel", channel))


def _part(name: str, text: str) -> str:
    if not isinstance(text, str) or _CONTROL.search(text):
        raise InvalidError(name, text, "give a text without control characters")
    return text


def _parse(reply: Sequence[Any]) -> StoredCheckpoint:
    ns, id_, info, body, blobs, writes = reply
    body = decode_member(body)
    return StoredCheckpoint(
        ns=bytes(ns).decode(),
        id=bytes(id_).decode(),
        parent=bytes(info).decode().partition("\r")[0] or None,
        checkpoint=_parse_typed(body[:2]),
        metadata=_parse_typed(body[2:]),
        channels={
            bytes(name).decode().split("\n", 3)[3]: _parse_typed(decode_member(text)) for name, text in _in_pairs(blobs)
        },
        writes=[_parse_writes(bytes(name).decode(), decode_member(text)) for name, text in _in_pairs(writes)],
    )


def _parse_writes(field: str, value: Any) -> StoredWrites:
    path, rows = value
    parsed = [(int(number), str(channel), *_parse_typed(typed)) for number, channel, *typed in rows]
    return str(path), field.split("\n")[3], parsed


def _parse_typed(value: Any) -> Typed:
    coding, body = value
    if not isinstance(coding, str) or not isinstance(body, bytes):
        raise TypeError(f"{value!r} is not a coding and bytes")
    return coding, body


def _in_pairs(items: Iterable[Any]) -> list[tuple[Any, Any]]:
    flat = list(items)
    return list(zip(flat[::2], flat[1::2], strict=True))
