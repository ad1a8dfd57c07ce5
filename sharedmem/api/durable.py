"""Operations of the durable tier of a namespace: its lag, dead letters, verification and restoring."""

from __future__ import annotations

from sharedmem.api.operation import Facet
from sharedmem.durable.admin import NamespaceDurability

_durable = Facet("durable", lambda store, _: store.durable)

_durable.operation("durable.state", NamespaceDurability.state, "GET /durable")
_durable.operation("durable.dead_letters", NamespaceDurability.dead_letters, "GET /durable/dead-letters")
_durable.operation(
    "durable.replay", NamespaceDurability.replay, "POST /durable/dead-letters/replay", answer="replayed", bulk=True
)
_durable.operation(
    "durable.discard", NamespaceDurability.discard, "POST /durable/dead-letters/discard", answer="discarded", bulk=True
)
_durable.operation("durable.drain", NamespaceDurability.drain, "POST /durable/drain")
_durable.operation("durable.verify", NamespaceDurability.verify, "POST /durable/verify", needs="read", bulk=True)
_durable.operation(
    "durable.restore", NamespaceDurability.restore, "POST /durable/restore", answer="restored", bulk=True
)

FACETS = (_durable,)
