"""The format of keys: the only module that builds and parses Redis keys.

A logical key is `<namespace>:<scope>[:<identifier>]`. In Redis it is
`<prefix>:{<namespace>}:<scope>[:<identifier>]`: the braces put one namespace into one cluster slot, so
that every script over keys of a namespace is allowed on Redis Cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sharedmem.errors import InvalidError

MAX_KEY_BYTES = 512
MAX_NAME_BYTES = 128
MAX_RECORD_BYTES = 2048
"""Longest key of a searchable record; users do not write such keys, and their parts have limits of their own."""
SHARED_SCOPE = "shared"
GLOBAL_NAMESPACE = "global"

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_NOT_IN_NAMES = re.compile(r"[\s:*?\[\]\\]")
_GLOB_SPECIAL = re.compile(r"([\[\]\\*?])")
_GLOB_BUT_WILD = re.compile(r"[\[\]\\]")

# Service keys that stay without a TTL. All other keys of sharedmem itself expire.
PERMANENT_SERVICE_KEYS = ("$clock", "$changes", "$outbox", "$kept", "$names")

# The parts of locks, queues and the like are derived from the key that names them: lock `index` is `$lock:shared:index`
EXPIRING_PARTS = (
    *("lock", "lock.waiters", "semaphore", "semaphore.waiters", "rwlock", "rwlock.waiters"),
    *("leader", "leader.waiters", "barrier", "barrier.opened", "once", "once.waiters"),
    *("limit", "presence", "presence.facts", "plan.refusals"),
    *("queue.waiters", "queue.followers", "queue.counts", "queue.result", "queue.recent"),
    *("episode", "episode.summary", "episode.sessions", "episode.endings"),
    *("kept.staged", "memory.embedding", "memory.tending", "cache.tending", "graph.tending", "graph.falkor.turn"),
    *("note.tending", "note.answer"),
)
# Kinds of searchable records, and their service keys: a namespace has one of each, or one for each named item
# (`KeySpace.record_item`).
FAMILIES = ("memory", "cache", "graph", "note")
LASTING_FAMILIES = ("memory", "graph", "note")
"""Families with records in the durable tier: a namespace is searched only if Redis has all of its records."""
RECORD_PARTS = (
    *(f"{family}.{part}" for family in FAMILIES for part in ("log", "place", "stats")),
    *(f"{family}.{part}" for family in ("memory", "cache") for part in ("digests", "endings")),
    *("memory.turns", "memory.history", "memory.authors", "memory.pending", "memory.used", "memory.touched"),
    "cache.gone",
    *(f"graph.{part}" for part in ("groups", "edges", "claims", "names", "merges", "changed", "told")),
    *("graph.falkor", "graph.falkor.ready"),
    *(f"note.{part}" for part in ("apps", "ids", "users", "chains")),
)
GROUP_PARTS = ("split", "split.places")
"""Keys of a consumer group of the change stream (`KeySpace.group_part`): changes that it got in packets."""
NAME_KINDS = frozenset({"lock", "leader", "semaphore", "rwlock", "barrier", "limit", "queue"})
"""Kinds of names that are indexed while in use (see `lua/include/names.lua`); all but `queue` are parts of one key."""
# One of these parts exists as long as a queue has or counts a task, or is paused.
_QUEUE_MARKERS = frozenset({"$queue.tasks", "$queue.paused", "$queue.counts"})
OBJECTS = "om"
"""The part for objects of users' models (`sharedmem.om`): `<ns>:$om:<scope>:<model>:<key>`."""
# These stay until their content is finished: tasks and decisions do not expire by TTL.
LASTING_PARTS = (
    *("queue.ready", "queue.delayed", "queue.claimed", "queue.tasks", "queue.claims"),
    *("queue.dedup", "queue.dead", "queue.paused"),
    *("plan", "plan.order", "plan.duplicates", "plan.ages", "plan.sessions"),
    *("execution", "execution.finished", "execution.stats"),
    *("conversation", "conversation.log", "conversation.ids", "conversation.readers", "conversation.state"),
    *("conversation.index", "conversation.tags", "conversation.endings"),
    "kept.state",
    OBJECTS,
    *RECORD_PARTS,
)
# These have a key for each item (`KeySpace.item`): names have no braces, so no name ends like another one's item.
ITEM_PARTS = (
    *("queue.result", "queue.recent", "kept.staged"),
    *("conversation.log", "conversation.ids", "conversation.readers"),
)
_STATE = b"}:$kept.state:"
_PARTS = frozenset(part.encode() for part in EXPIRING_PARTS + LASTING_PARTS + GROUP_PARTS)


@dataclass(frozen=True, slots=True)
class Space:
    """The service keys of one namespace, which every mutation touches."""

    namespace: str
    head: bytes
    """What every key of the namespace begins with, its records aside."""
    clock: bytes
    changes: bytes
    operations: bytes

    def __hash__(self) -> int:
        # Each shared write looks its namespace up; bytes remember their hash.
        return hash(self.clock)


@dataclass(frozen=True, slots=True)
class Target:
    """A key that an actor may use: its logical name, its physical key, and its namespace."""

    key: str
    physical: bytes
    space: Space


def check_name(field: str, name: str) -> str:
    """Check the name of a namespace or actor, and return it.

    Args:
        field: name of the argument, for the error.
        name: 1 to 128 bytes without blanks, colons, braces, glob or control characters, not beginning with `$`.

    Raises:
        InvalidError: the name would not stay one part of a key, or could widen a pattern.
    """
    if not isinstance(name, str) or not name:
        raise InvalidError(field, name, "give a non-empty text")
    if _FORBIDDEN.search(name) or _NOT_IN_NAMES.search(name) or name.startswith("$"):
        raise InvalidError(field, name, "leave out blanks, ':', braces, '*?[]\\', control characters and a leading '$'")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidError(field, name, f"keep it within {MAX_NAME_BYTES} bytes")
    return name


def check_key(key: str) -> str:
    """Check a logical key, plain or absolute, and return it.

    Raises:
        InvalidError: the key or one of its parts is empty, it has a brace or control character, or is over 512 bytes.
    """
    if not isinstance(key, str) or not key:
        raise InvalidError("key", key, "give a non-empty text")
    if _FORBIDDEN.search(key):
        raise InvalidError("key", key, "leave out braces and control characters")
    if key[0] == ":" or key[-1] == ":" or "::" in key:
        raise InvalidError("key", key, "no part between colons may be empty")
    return _check_length(key)


def _check_length(key: str) -> str:
    if len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidError("key", key, f"keep it within {MAX_KEY_BYTES} bytes")
    return key


def is_lasting_record(key: str) -> bool:
    """Return whether an absolute key belongs to a durable record (see `LASTING_FAMILIES`)."""
    scope = key.split(":", 2)[1:2]
    return bool(scope) and scope[0][:1] == "$" and scope[0][1:] in LASTING_FAMILIES


def check_durable_key(key: str) -> str:
    """Check an absolute key for the durable tier, and return it: that of a record may end in any text without braces.

    Raises:
        InvalidError: as `check_key`, or the record's key is over 2 KiB.
    """
    namespace, _, rest = key.partition(":")
    family, _, id_ = rest.partition(":")
    if family[:1] != "$" or family[1:] not in FAMILIES:
        return check_key(key)
    check_name("namespace", namespace)
    if not id_ or _FORBIDDEN.search(id_) or len(key.encode()) > MAX_RECORD_BYTES:
        raise InvalidError(
            "key", key[:80], f"a record has a name, without braces, and {MAX_RECORD_BYTES} bytes at most"
        )
    return key


def absolute_key(key: str, namespace: str, scope: str) -> str:
    """Return the absolute form of a key: a plain key belongs to `<namespace>:<scope>`.

    Raises:
        InvalidError: as `check_key`; also if the scope begins with `$`, which is reserved for sharedmem.
    """
    check_key(key)
    if ":" not in key:
        # The other parts were checked when they were given.
        return _check_length(f"{namespace}:{scope}:{key}")
    space, rest = key.split(":", 1)
    check_name("namespace", space)
    if rest.startswith("$"):
        raise InvalidError("key", key, "scopes that begin with '$' are reserved for sharedmem")
    return key


def plain_name(key: str, namespace: str) -> str:
    """Return the short name of an absolute key: without namespace and shared scope, where that means the same key."""
    head = f"{namespace}:{SHARED_SCOPE}:"
    rest = key.removeprefix(head)
    return rest if key.startswith(head) and ":" not in rest else key


def escape_glob(text: str) -> str:
    """Return the text as a Redis glob pattern that matches only itself."""
    return _GLOB_SPECIAL.sub(r"\\\1", text)


class KeySpace:
    """Builds the keys of one hub.

    Args:
        prefix: first part of every physical key.
        client: id of this hub, for the key of its operation ledger.
    """

    def __init__(self, prefix: str, client: str) -> None:
        self._prefix = prefix
        self._client = client
        self._spaces: dict[str, Space] = {}

    def space(self, namespace: str) -> Space:
        """Return the service keys of a namespace."""
        found = self._spaces.get(namespace)
        if found is None:
            head = f"{self._prefix}:{{{check_name('namespace', namespace)}}}:".encode()
            operations = f"$ops:{self._client}".encode()
            found = Space(namespace, head, head + b"$clock", head + b"$changes", head + operations)
            self._spaces[namespace] = found
        return found

    def target(self, key: str) -> Target:
        """Return the target of an absolute logical key."""
        namespace, _, rest = key.partition(":")
        space = self.space(namespace)
        return Target(key, space.head + rest.encode(), space)

    def target_glob(self, pattern: str) -> Target:
        """Return the target of an absolute pattern with `*` and `?`: its physical name is a Redis glob."""
        namespace, _, rest = pattern.partition(":")
        escaped = _GLOB_BUT_WILD.sub(r"\\\g<0>", rest)
        return Target(pattern, f"{self._prefix}:{{{namespace}}}:{escaped}".encode(), self.space(namespace))

    def service(self, namespace: str, name: str) -> bytes:
        """Return a further service key of a namespace, `$<name>`."""
        return f"{self._prefix}:{{{namespace}}}:${name}".encode()

    def part(self, target: Target, part: str) -> bytes:
        """Return the key of one part of a key (see `EXPIRING_PARTS`)."""
        namespace, _, rest = target.key.partition(":")
        return self.service(namespace, f"{part}:{rest}")

    def beside(self, target: Target, part: str) -> Target:
        """Return one part of a key as a target of its own (users cannot write such a key)."""
        namespace, _, rest = target.key.partition(":")
        return self.target(f"{namespace}:${part}:{rest}")

    def owner(self, part: Target) -> Target:
        """Return the key to which a part belongs (see `beside`)."""
        namespace, _, rest = part.key.partition(":")
        return self.target(f"{namespace}:{rest.partition(':')[2]}")

    def item(self, target: Target, part: str, name: str) -> bytes:
        """Return the key of one item of a part (see `ITEM_PARTS`), such as the result of one task."""
        return self.part(target, part) + b"{%b}" % name.encode()

    def is_part(self, physical: bytes) -> bool:
        """Return whether a service key is a part of a lock, queue or the like, which clearing the namespace deletes."""
        return physical.partition(b"}:$")[2].partition(b":")[0] in _PARTS

    def record(self, family: str, namespace: str, id_: str) -> bytes:
        """Return the key of the hash of one searchable record.

        It is separate from users' keys, `<prefix>:$<family>:{<namespace>}:<id>`, so that a search index of the family
        indexes no other keys.
        """
        return f"{self.records(family, namespace)}{id_}".encode()

    def records(self, family: str, namespace: str) -> str:
        """Return the key prefix of a namespace's records of a family."""
        return f"{self.family(family)}{namespace}}}:"

    def is_in_namespace(self, physical: bytes, namespace: str) -> bool:
        """Return whether a key is in a namespace, or is one of its records."""
        heads = (self.service(namespace, "")[:-1], *(self.records(one, namespace).encode() for one in FAMILIES))
        return physical.startswith(heads)

    def namespace_glob(self, namespace: str) -> bytes:
        """Return a Redis glob over a namespace and its records; others may match too (see `is_in_namespace`)."""
        return f"{escape_glob(self._prefix)}:*{{{escape_glob(namespace)}}}:*".encode()

    def records_glob(self, family: str, namespace: str) -> bytes:
        """Return a Redis glob over a namespace's records of a family."""
        return f"{escape_glob(self.records(family, namespace))}*".encode()

    def family(self, family: str) -> str:
        """Return the key prefix of all records of a family."""
        return f"{self._prefix}:${family}:{{"

    def shared_index(self, family: str) -> str:
        """Return the name prefix of the indexes that small namespaces share."""
        return f"{self._prefix}:$index:{family}:"

    def own_index(self, family: str, namespace: str) -> str:
        """Return the name prefix of a namespace's own indexes; in its slot, and within the rights of its users."""
        return f"{self._prefix}:{{{namespace}}}:${family}.index:"

    def objects(self, namespace: str, rest: str) -> str:
        """Return the key prefix of objects of users' models; `rest` is `<scope>:<model>:`, or empty for all."""
        return self.service(namespace, f"{OBJECTS}:{rest}").decode()

    def object_index(self, namespace: str) -> str:
        """Return the name prefix of the indexes of users' models."""
        return self.service(namespace, f"{OBJECTS}.index:").decode()

    def record_part(self, family: str, namespace: str, part: str) -> bytes:
        """Return a key about all records of a family in a namespace (see `LASTING_PARTS`)."""
        return self.service(namespace, f"{family}.{part}")

    def record_item(self, family: str, namespace: str, part: str, name: str) -> bytes:
        """Return a key for one item among the records of a family, such as a thread's turns; no braces in names."""
        return self.service(namespace, f"{family}.{part}:{name}")

    def record_log(self, family: str, namespace: str) -> bytes:
        """Return the sorted set of a namespace's records by version of the last change; deleted ones stay a while."""
        return self.record_part(family, namespace, "log")

    def record_place(self, family: str, namespace: str) -> bytes:
        """Return the string with the index name of a namespace; absent while it uses the shared one."""
        return self.record_part(family, namespace, "place")

    def outbox(self, namespace: str) -> bytes:
        """Return the stream of changes that the durable tier does not have yet."""
        return self.service(namespace, "outbox")

    def dead_outbox(self, namespace: str) -> bytes:
        """Return the stream of entries that the durable tier rejected."""
        return self.service(namespace, "outbox.dead")

    def kept(self, namespace: str) -> bytes:
        """Return the hash of the keys that are durable by argument, not by rule."""
        return self.service(namespace, "kept")

    def group_part(self, namespace: str, part: str, group: str) -> bytes:
        """Return a key of a consumer group (see `GROUP_PARTS`)."""
        return self.service(namespace, f"{part}:{group}")

    def presence(self, target: Target) -> bytes:
        """Return the key that exists if and only if a logical key does: it, or its record (`<ns>:$memory:<id>`)."""
        namespace, _, rest = target.key.partition(":")
        family, _, id_ = rest.partition(":")
        is_record = family[:1] == "$" and family[1:] in FAMILIES
        return self.record(family[1:], namespace, id_) if is_record else target.physical

    def state(self, target: Target) -> bytes:
        """Return the key with the durability state of a key."""
        # Built as every part is (`part`), but faster: each change of a durable key needs it.
        head = target.space.head
        return head + b"$kept.state:" + target.physical.removeprefix(head)

    @property
    def tier(self) -> bytes:
        """The key with the id and URL of this server's durable store."""
        return f"{self._prefix}:$durable".encode()

    @property
    def outboxes(self) -> bytes:
        """The set of the namespaces that may have changes for the durable tier."""
        return f"{self._prefix}:$outboxes".encode()

    @property
    def spending(self) -> bytes:
        """The hash of what all hubs have spent on the durable tier."""
        return f"{self._prefix}:$durable.spent".encode()

    @property
    def tokens(self) -> bytes:
        """The hash of access tokens of network callers: digest -> caller. No tenant can write its key."""
        return f"{self._prefix}:$tokens".encode()

    @property
    def tokens_used(self) -> bytes:
        """The hash of the last use of each token, in ms since 1970."""
        return f"{self._prefix}:$tokens.used".encode()

    def token_limit(self, namespace: str, id_: str) -> bytes:
        """Return the token bucket for the calls of an access token; clearing the namespace does not refill it."""
        return self.service(namespace, f"token.limit:{id_}")

    def names(self, namespace: str) -> bytes:
        """Return the sorted set of the names in use of locks, queues and the like (see `NameIndex`)."""
        return self.service(namespace, "names")

    def name_of(self, physical: bytes) -> tuple[str, str] | None:
        """Return (kind, name without namespace) of what a service key shows to be in use; None for other keys."""
        _, part, *rest = self.logical(physical).split(":", 2)
        kind = "queue" if part in _QUEUE_MARKERS else part[1:]
        return (kind, rest[0]) if rest and kind in NAME_KINDS else None

    def is_state(self, physical: bytes) -> bool:
        """Return whether a service key is the durability state of a key, which counts and lists leave out."""
        return _STATE in physical

    def waiter(self, number: int, *, on_cluster: bool = False) -> str:
        """Return the name of a waiting task of this hub (read by `lua/include/waiters.lua` too)."""
        return f"{self._client}/{number}~" if on_cluster else f"{self._client}/{number}"

    def wake(self, space: Space) -> bytes:
        """Return the channel that notifies waiting tasks of this hub (also built in `lua/include/waiters.lua`)."""
        return self.service(space.namespace, f"wake:{self._client}")

    def logical(self, physical: bytes) -> str:
        """Return the logical key of a physical one of this key space; bytes that are not UTF-8 become `�`."""
        text = physical.decode(errors="replace")[len(self._prefix) + 2 :]
        namespace, _, rest = text.partition("}")
        return namespace + rest

    def is_service(self, physical: bytes) -> bool:
        """Return whether a physical key belongs to sharedmem itself, not to a user."""
        return b"}:$" in physical

    def pattern(self, namespace: str, rest: str = "*") -> bytes:
        """Return a Redis glob over the keys of a namespace; `rest` is a glob over the part after it."""
        return f"{self._prefix}:{{{escape_glob(namespace)}}}:{rest}".encode()

    def clocks(self) -> bytes:
        """Return a Redis glob over the clocks of all namespaces: one key a namespace."""
        return f"{escape_glob(self._prefix)}:{{*}}:$clock".encode()

    @property
    def layout(self) -> bytes:
        """The key with the version of the data layout, and the id of this data."""
        return f"{self._prefix}:$layout".encode()
