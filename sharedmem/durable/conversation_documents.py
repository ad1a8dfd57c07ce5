"""Conversations as documents of the durable tier and of archives, and back.

A conversation is one key, `<namespace>:$conversation:<scope>:<id>`. Its head has all that is known of it; each entry
is an element under its version, each field of the state an element `state/<field>`. What forks share in Redis, each of
them has here. So a conversation that comes back has a log of its own, and does not depend on the one of its parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from sharedmem.durable.json_codec import from_text, member_from_text, member_to_text
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import BLOB
from sharedmem.redis.conversation_heads import parse_fields, read_head
from sharedmem.redis.durability import RedisPart
from sharedmem.redis.keys import SHARED_SCOPE, KeySpace, Target
from sharedmem.redis.replies import Argument, Command

CONVERSATION, ENTRY, STATE = "conversation", "entry", "state"
"""The types of documents: of the head, of an entry, of a field of the state."""
STATE_PREFIX = "state/"
_UUID_MARK = b"\0"
_LARGE = b"\x02"
_TAGS = ("user", "agent", "app")
_NUMBERS = ("revision", "updated", "created", "state", "ttl_ms", "renews", "at")
_KIND = "log"
_PAGE = 1000
# Fields of a head that forks, cuts and restores change, and the tier does not have.
_COMPARED = frozenset(
    {b"revision", b"updated", b"created", b"by", b"length", b"state", b"ttl_ms", *map(str.encode, _TAGS)}
)

Row = tuple[Argument, ...]


class EntryItem(NamedTuple):
    """The parts of a list item of a log (`lua/include/conversation.lua`)."""

    version: str
    actor: str
    id: bytes | None
    """As it is stored: a UUID in 17 bytes; None without one."""
    member: bytes

    @property
    def is_large(self) -> bool:
        """Whether the member is a reference to a blob."""
        return self.member[:1] == _LARGE

    def encoded(self) -> bytes:
        """Return the list item."""
        size = "" if self.id is None else str(len(self.id))
        return f"{self.version} {self.actor} {size}\n".encode() + (self.id or b"") + self.member


def parse_item(item: bytes) -> EntryItem:
    """Return the parts of a list item.

    Raises:
        ValueError: another client has written it.
    """
    end = item.index(b"\n")
    version, actor, size = item[:end].decode().split(" ")
    member_at = end + 1 + int(size or 0)
    return EntryItem(version, actor, item[end + 1 : member_at] if size else None, item[member_at:])


def entry_to_text(item: bytes) -> tuple[str, str]:
    """Return (codec, text) of the document of a list item: `{"id": ..., "actor": ..., "value": ...}`.

    Raises:
        ValueError: another client has written it.
    """
    entry = parse_item(item)
    if entry.is_large:
        codec, value = BLOB.decode(), entry.member[1:].decode()
    else:
        codec, value = member_to_text(entry.member)
    facts = orjson.dumps({"id": None if entry.id is None else _id_text(entry.id), "actor": entry.actor}).decode()
    return codec, f'{facts[:-1]},"value":{value}}}'


def entry_from_text(record: DurableRecord) -> EntryItem:
    """Return the parts of the list item of a document; the inverse of `entry_to_text`.

    Raises:
        ValueError, LookupError, TypeError: the document has another form.
    """
    body: dict[str, Any] = orjson.loads(record.body)
    id_ = body["id"]
    value = orjson.dumps(body["value"]).decode()
    is_large = record.codec == BLOB.decode()
    member = _LARGE + from_text(BLOB, value) if is_large else member_from_text(record.codec, value)
    return EntryItem(record.element, str(body["actor"]), None if id_ is None else _id_bytes(str(id_)), member)


def large_reference(record: DurableRecord) -> str | None:
    """Return the reference to the bytes of a large entry, in JSON; None for other documents.

    Raises:
        ValueError, LookupError, TypeError: the document has another form.
    """
    if record.type != ENTRY or record.codec != BLOB.decode():
        return None
    return entry_from_text(record).member[1:].decode()


def with_member(record: DurableRecord, member: bytes) -> DurableRecord:
    """Return the document of an entry with another member, for example the bytes of a large one.

    Raises:
        ValueError, LookupError, TypeError: the document has another form.
    """
    codec, body = entry_to_text(entry_from_text(record)._replace(member=member).encoded())
    return record.model_copy(update={"codec": codec, "body": body})


def referring(record: DurableRecord, reference: str) -> DurableRecord:
    """Return the document of an entry with the reference to its bytes, given as JSON."""
    return with_member(record, _LARGE + reference.encode())


def is_conversation_key(key: str, namespace: str) -> bool:
    """Return whether an absolute key is that of a conversation's head."""
    return key.startswith(f"{namespace}:${CONVERSATION}:")


async def read_documents(client: RedisClient, keyspace: KeySpace, target: Target) -> list[DurableRecord]:
    """Return the documents of a conversation in Redis, its head first; empty if it does not exist.

    A few round trips, and one for each 1,000 entries of a segment; read again if it changes meanwhile.

    Raises:
        UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
        ValueError, LookupError, TypeError: another client has written there.
    """
    restorer = ConversationRestorer(keyspace)
    for pause in client.pauses():
        head, _ = await read_head(client, keyspace, target)
        if not head:
            return []
        state = await _read_hash(client, restorer.state_key(target))
        items: list[bytes] = []
        for name, count in _segments(head):
            items += await _read_list(client, restorer.segment_key(target, "log", name), count)
        if (await read_head(client, keyspace, target))[0].get(b"updated") == head[b"updated"]:
            return _documents(target, head, state, items)
        await asyncio.sleep(pause)
    raise AssertionError  # the pauses never end


def _documents(
    target: Target, head: dict[bytes, bytes], state: dict[bytes, bytes], items: list[bytes]
) -> list[DurableRecord]:
    stamp = int(head[b"updated"])
    numbers = {name: int(head[name.encode()]) for name in _NUMBERS}
    texts = {name: head[name.encode()].decode() for name in ("by", "parent", *_TAGS)}
    common: dict[str, Any] = {"key": target.key, "kind": _KIND, "stamp": stamp}
    first = DurableRecord(
        **common,
        type=CONVERSATION,
        version=stamp,
        floor=stamp,
        size=len(items),
        created=numbers["created"],
        expires=int(head[b"ends"]),
        actor=texts["by"],
        body=orjson.dumps(numbers | texts).decode(),
    )
    found = [first]
    for item in items:
        codec, body = entry_to_text(item)
        version = parse_item(item).version
        found.append(DurableRecord(**common, type=ENTRY, element=version, version=int(version), codec=codec, body=body))
    for name, member in state.items():
        codec, body = member_to_text(member)
        element = STATE_PREFIX + name.decode()
        found.append(DurableRecord(**common, type=STATE, element=element, version=stamp, codec=codec, body=body))
    return found


def _segments(head: dict[bytes, bytes]) -> list[tuple[str, int]]:
    """Return the segments of a log, and how many entries of each it has."""
    chain = head[b"chain"].decode().split("\n")[:-1]
    shared = [(chain[at], int(chain[at + 2]) - int(chain[at + 1])) for at in range(0, len(chain), 3)]
    return [*shared, (head[b"segment"].decode(), int(head[b"length"]) - int(head[b"start"]))]


async def _read_hash(client: RedisClient, key: bytes) -> dict[bytes, bytes]:
    return parse_fields(await client.call_aside("HGETALL", key))


async def _read_list(client: RedisClient, key: bytes, count: int) -> list[bytes]:
    found: list[bytes] = []
    for first in range(0, count, _PAGE):
        page = as_list(await client.call_aside("LRANGE", key, first, min(first + _PAGE, count) - 1))
        found += [item for item in page if isinstance(item, bytes)]
    return found


class ConversationRestorer:
    """Rebuilds the Redis keys of conversations (see `sharedmem.redis.durability.KeyRestorer`).

    Args:
        keyspace: builds the keys.
    """

    def __init__(self, keyspace: KeySpace) -> None:
        self._keyspace = keyspace

    def presence(self, target: Target) -> bytes:
        """Return the key of the head."""
        return target.physical

    def parts(
        self,
        target: Target,
        records: Sequence[DurableRecord],
        *,
        now_ms: int = 0,  # noqa: ARG002  # no leases
    ) -> list[RedisPart]:
        """Return the Redis keys of a conversation: its head, its state, and a log of its own.

        Raises:
            ValueError, LookupError, TypeError: a document has another form.
        """
        head, *elements = records
        # A tombstone has no body; but its places are needed.
        body: dict[str, Any] = orjson.loads(head.body or "{}")
        items = [entry_from_text(record) for record in elements if record.type == ENTRY]
        state = [record for record in elements if record.type == STATE]
        # No earlier segment has this name, also if forks still have the earlier ones.
        segment = f"{target.key.split(':', 2)[2]}{{r{head.stamp}}}"
        log, ids = (self.segment_key(target, part, segment) for part in ("log", "ids"))
        fields: list[Row] = [(name, str(value)) for name, value in _head_fields(head, body, len(items), segment)]
        named: list[Row] = [(item.id, at) for at, item in enumerate(items) if item.id is not None]
        if any(item.is_large for item in items):
            # Forks may refer to the same blobs, so a sweep deletes them.
            named.append((b"", 2))
        return [
            RedisPart(target.physical, "HSET", fields if body else [], has_more=True, compared=_COMPARED),
            RedisPart(self.state_key(target), "HSET", [(_field_name(one), _member(one)) for one in state]),
            RedisPart(log, "RPUSH", [(item.encoded(),) for item in items], compared=frozenset()),
            RedisPart(ids, "HSET", named, compared=frozenset()),
        ]

    def besides(self, target: Target, head: DurableRecord) -> list[Command]:
        """Return the commands that enter the conversation in the indexes of its namespace."""
        body: dict[str, Any] = orjson.loads(head.body)
        namespace, name = target.space.namespace, target.key.split(":", 2)[2]
        tags = [(tag, str(body.get(tag) or "")) for tag in _TAGS]
        service = self._keyspace.service
        places = [service(namespace, f"conversation.index:{SHARED_SCOPE}")]
        places += [
            service(namespace, f"conversation.tags:{SHARED_SCOPE}:{tag}:{value}") for tag, value in tags if value
        ]
        # A change that another client makes meanwhile has a higher version.
        commands: list[Command] = [("ZADD", place, "GT", int(body["updated"]), name) for place in places]
        if head.expires:
            ending = "\n".join((name, *(value for _, value in tags)))
            commands.append(("ZADD", service(namespace, f"conversation.endings:{SHARED_SCOPE}"), head.expires, ending))
        return commands

    def state_key(self, target: Target) -> bytes:
        """Return the key of the state."""
        return self._keyspace.part(self._keyspace.owner(target), "conversation.state")

    def segment_key(self, target: Target, part: str, segment: str) -> bytes:
        """Return the key of a part, `log` or `ids`, of a segment."""
        return self._keyspace.service(target.space.namespace, f"conversation.{part}:{segment}")


def _head_fields(head: DurableRecord, body: dict[str, Any], length: int, segment: str) -> list[tuple[str, object]]:
    """Return the fields of a head, as `lua/include/conversation.lua` describes them."""
    facts = {name: body.get(name) for name in _NUMBERS}
    texts = {name: body.get(name) or "" for name in ("by", "parent", *_TAGS)}
    own = {"length": length, "segment": segment, "start": 0, "pinned": 0, "chain": "", "ends": head.expires, "kept": 1}
    return list({**{name: int(value or 0) for name, value in facts.items()}, **texts, **own}.items())


def _field_name(record: DurableRecord) -> bytes:
    return record.element.removeprefix(STATE_PREFIX).encode()


def _member(record: DurableRecord) -> bytes:
    return member_from_text(record.codec, record.body)


def _id_text(id_: bytes) -> str:
    return str(UUID(bytes=id_[1:])) if id_[:1] == _UUID_MARK else id_.decode()


def _id_bytes(text: str) -> bytes:
    try:
        is_uuid = str(UUID(text)) == text
    except ValueError:
        is_uuid = False
    return _UUID_MARK + UUID(text).bytes if is_uuid else text.encode()
