"""Records of the durable tier, and its status reports."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from sharedmem.models.record import Record


class DurableRecord(Record):
    """One document of the durable tier: the head of a key, or one element of its data.

    The head (`element` empty) holds the type of the key, its expiry and its valid versions; a plain value is stored
    in the head itself. Each item of a list, field of a hash, member of a set, plan or execution of a session is an
    element, with a document of its own.
    """

    key: str
    """Absolute: `<namespace>:<scope>[:<identifier>]`."""
    element: str = ""
    """Empty for the head; the version of a list's item, a hash's field, the SHA-256 of a set's member, a plan's id."""
    type: str
    """`value`, `counter`, `list`, `hash`, `set`, or the name of a kind of record such as `plan`."""
    kind: str
    """`session`, `knowledge` or `log`: how long it stays in Redis (see `Kind`; a log never expires)."""
    version: int = Field(ge=0)
    """The version that readers of the value get."""
    stamp: int = Field(ge=0)
    """The version of the last change of this document, its expiry included: a lower one never replaces it."""
    floor: int = Field(default=0, ge=0)
    """Of a head: elements with a lower stamp belong to data that the key held earlier."""
    size: int = Field(default=0, ge=0)
    """Of a head: number of elements of the key; of a list, these are the newest ones."""
    created: int = 0
    """Version under which the value was first written."""
    expires: int = 0
    """Milliseconds since 1970 at which the key expires; 0: never."""
    actor: str = ""
    codec: str = "json"
    """Format of the body in Redis: `json`, `msgpack` or `blob` (the body is a reference to it)."""
    deleted: bool = False
    """Whether this is a tombstone, which is kept for a while to reject late older writes."""
    body: str = ""
    """JSON text; `durable.json_codec` encodes what JSON cannot hold. Empty for structures and tombstones."""

    @property
    def namespace(self) -> str:
        """The first part of the key."""
        return self.key.partition(":")[0]

    @property
    def is_head(self) -> bool:
        """Whether this document is the head of the key."""
        return not self.element


class Outcome(StrEnum):
    """The outcome of storing a record."""

    STORED = "stored"
    """The record is stored, now or before."""
    OLDER = "older"
    """A newer record exists and is kept."""
    REFUSED = "refused"
    """The store rejects the record for good; `reason` says why."""


class Put(Record):
    """The outcome for one record."""

    outcome: Outcome
    reason: str = ""


class Charges(Record):
    """The requests of this hub to the durable tier."""

    reads: int = 0
    writes: int = 0
    queries: int = 0
    throttled: int = 0
    """Number of throttled requests (429)."""
    request_units: float = 0.0
    """Request units, the cost measure of Cosmos DB; 0 for other stores."""


class Spending(Record):
    """What all hubs of a server have spent on the durable tier, a few seconds ago; approximate after a crash."""

    request_units: float = 0.0
    """Request units, the cost measure of Cosmos DB; 0 for other stores."""
    since: datetime | None = None
    """When the first of them was reported, in UTC."""


class DurableLag(Record):
    """How far the durable tier is behind Redis in one namespace."""

    namespace: str
    waiting: int
    """Changes in the outbox."""
    oldest: float
    """Seconds since the oldest of them was made; 0 when none waits."""
    delivered: int
    """Number of them that a worker is delivering."""
    dead: int
    """Dead letters."""
    recovery: Literal["complete", "running", "tier away", "not begun"] = "complete"
    """Whether Redis has all data of the tier: complete; running: a hub restores it after a loss, and changes wait;
    tier away: data was lost, and the tier is unreachable; not begun: no hub has used the namespace since."""


class DeadLetter(Record):
    """A document that the durable tier has rejected for good."""

    id: str
    namespace: str
    key: str
    """Empty if the entry could not be parsed."""
    element: str
    type: str
    stamp: int
    reason: str
    at: datetime
    """When it was refused, in UTC."""
    name: str
    """Name of the field in the outbox."""
    size: int
    """Bytes of its body."""


class DurableStatus(Record):
    """The state of the durable tier as one hub sees it."""

    url: str
    id: str
    """Id of the database, set when it was created."""
    reachable: bool
    why: str = ""
    """Why it is not reachable."""
    namespaces: list[DurableLag]
    charges: Charges
    spent: Spending = Spending()
    """What all hubs have spent; `charges` are those of this hub."""
    problems: list[str]
    """Problems of the store itself, in sentences."""


class DurableState(Record):
    """The durable tier as one namespace sees it."""

    reachable: bool
    why: str = ""
    """Code of the error if it is not reachable, such as `unavailable`."""
    lag: DurableLag


class Difference(Record):
    """A difference between Redis and the durable tier."""

    key: str
    element: str = ""
    what: str
    """`value`, `element`, `size`, `type`, `expiry`, `missing` if one side has nothing, or `form` if the durable
    tier has it in a form that cannot be read."""
    redis: str
    tier: str


class Verification(Record):
    """The result of a comparison of Redis with the durable tier."""

    namespace: str
    keys: int
    """Number of keys that were read."""
    waiting: int
    """Number of keys with changes in the outbox, which were not compared."""
    differences: list[Difference]


class SampleQuery(Record):
    """A sample query on the memories of the durable tier."""

    name: str
    description: str
    requires: tuple[str, ...] = ()
    """Parameters that must be given."""
    takes: tuple[str, ...] = ()
    """Parameters that may be given."""


class SampleResult(Record):
    """The result of a sample query."""

    name: str
    namespace: str
    rows: tuple[dict[str, Any], ...]
    """Memories with their `id`, `thread_id`, `turn_index`, `memory`, `content`, `timestamp` and `metadata`, and their
    `similarity` for a query by meaning; or one row of statistics."""
    query: str = ""
    """The query in the language of the store; empty if the store has none for memories."""
