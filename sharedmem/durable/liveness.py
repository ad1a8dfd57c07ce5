"""Which documents of a key are alive (not expired, not deleted, not superseded); no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.models import DurableRecord

_LIST = "list"


def is_user_namespace(namespace: str) -> bool:
    """Return whether users can name a namespace; the others hold internal records."""
    return not namespace.startswith("$")


def has_expired(record: DurableRecord, now_ms: int) -> bool:
    """Return whether the key has expired."""
    return 0 < record.expires <= now_ms


def living_documents(records: Sequence[DurableRecord], now_ms: int) -> list[DurableRecord]:
    """Return the head and the elements that a reader sees, in order of element; empty when the key does not exist.

    Args:
        records: all documents of one key, in any order.
        now_ms: milliseconds since 1970.
    """
    head = next((record for record in records if record.is_head), None)
    if head is None or head.deleted or has_expired(head, now_ms):
        return []
    elements = sorted(
        (one for one in records if one.element and not one.deleted and one.stamp >= head.floor),
        key=lambda one: one.element,
    )
    if head.type == _LIST:
        # Items that were trimmed at the front are not deleted one by one.
        # Items may arrive before the head that counts them: the ones it counts are taken from its end.
        known = sum(one.stamp <= head.stamp for one in elements)
        elements = elements[max(0, known - head.size) :]
    return [head, *elements]
