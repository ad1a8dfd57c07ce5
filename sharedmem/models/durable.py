"""Records of the durable tier, and its status reports."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from sharedmem.models.record import Record


class DurableRecord(Record):
    """One document of the durable tier: a key's head, or one element of what the key holds.

    The head (`element` empty) says what the key is: its type, expiry and the versions that count; a plain value lies
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
    """`session`, `knowledge` or `log`: how long it stays in Redis (see `Kind`; a log stays)."""
    version: int = Field(ge=0)
    """The version that readers of the value are told."""
    stamp: int = Field(ge=0)
    """The version of the last change of this document, its expiry included: a lower one never replaces it."""
    floor: int = Field(default=0, ge=0)
    """Of a head: elements whose stamp is lower belonged to something that lay under the key before."""
    size: int = Field(default=0, ge=0)
    """Of a head: how many elements the key holds; of a list, these are the newest."""
    created: int = 0
    """Version under which the value was first written."""
    expires: int = 0
    """Milliseconds since 1970 at which the key expires; 0: never."""
    actor: str = ""
    codec: str = "json"
    """How Redis holds the body: `json`, `msgpack` or `blob` (the body is a reference to it)."""
    deleted: bool = False
    """Whether this is a tombstone, which stays for a while so that a late older write cannot come through."""
    body: str = ""
    """JSON text; what JSON cannot hold is spelled as `durable.texts` says. Empty for structures and tombstones."""

    @property
    def namespace(self) -> str:
        """The first part of the key."""
        return self.key.partition(":")[0]

    @property
    def is_head(self) -> bool:
        """Whether it stands for the whole key."""
        return not self.element


class Outcome(StrEnum):
    """What became of a record that was put."""

    STORED = "stored"
    """It is there, also when it was there already."""
    OLDER = "older"
    """A newer one is there, and stays."""
    REFUSED = "refused"
    """It can never be stored as it is; `reason` says why."""


class Put(Record):
    """The answer to one record that was put."""

    outcome: Outcome
    reason: str = ""


class Charges(Record):
    """What the durable tier has been asked for by this hub."""

    reads: int = 0
    writes: int = 0
    queries: int = 0
    throttled: int = 0
    """Times it asked to wait (429)."""
    request_units: float = 0.0
    """Cosmos DB's measure of cost; 0 elsewhere."""


class DurableLag(Record):
    """How far the durable tier is behind Redis in one namespace."""

    namespace: str
    waiting: int
    """Changes in the outbox."""
    oldest: float
    """Seconds since the oldest of them was made; 0 when none waits."""
    delivered: int
    """How many of them a worker has in hand."""
    dead: int
    """Dead letters."""
    recovery: Literal["complete", "running", "tier away", "not begun"] = "complete"
    """Whether Redis has all that the tier has: complete; running: a hub restores it after a loss, and changes wait;
    tier away: it was lost, and the tier cannot be asked; not begun: no hub has used the namespace since."""


class DeadLetter(Record):
    """A document that the durable tier has refused for good."""

    id: str
    namespace: str
    key: str
    """Empty when the entry could not be understood."""
    element: str
    type: str
    stamp: int
    reason: str
    at: datetime
    """When it was refused, in UTC."""
    name: str
    """The field of the outbox as it was left."""
    size: int
    """Bytes of its body."""


class DurableStatus(Record):
    """How the durable tier is, seen from one hub."""

    url: str
    id: str
    """The id that its database was given when it was made."""
    reachable: bool
    why: str = ""
    """Why it is not reachable."""
    namespaces: list[DurableLag]
    charges: Charges
    problems: list[str]
    """What is wrong with the store itself, in sentences."""


class Difference(Record):
    """Where Redis and the durable tier do not hold the same."""

    key: str
    element: str = ""
    what: str
    """`value`, `element`, `size`, `type`, `expiry`, `missing` when one side has nothing, or `form` when the durable
    tier has it in a form that cannot be read."""
    redis: str
    tier: str


class Verification(Record):
    """What a comparison of Redis with the durable tier has shown."""

    namespace: str
    keys: int
    """How many keys were looked at."""
    waiting: int
    """How many of them have changes that wait for the tier, and were not compared."""
    differences: list[Difference]
