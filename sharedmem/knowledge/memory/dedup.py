"""When two memories are one, and what becomes of them: pure functions.

Two are one when they are about the same (see `Draft.alike`), and either say the same to the letter, or are so near in
meaning that no guard tells them apart. A turn of a conversation is only the same as itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sharedmem.knowledge.guards import differs
from sharedmem.knowledge.memory.documents import normalised
from sharedmem.knowledge.memory.drafts import LONGEST_TEXT_BYTES, Draft, more_important
from sharedmem.knowledge.memory.narrowing import admits
from sharedmem.models import MemoryItem, MemoryType

_WORD = re.compile(r"[^\W_]+")


class Held(NamedTuple):
    """A memory as it lies at the server."""

    item: MemoryItem
    digest: str
    vector: bytes | None
    change: bytes
    """JSON of its last change."""
    body: bytes


def is_alike(draft: Draft, other: MemoryItem) -> bool:
    """Whether two memories are about the same, whatever they say."""
    return draft.item.category == other.category and draft.item.user_id == other.user_id and admits(draft.alike, other)


def says_the_same(draft: Draft, other: MemoryItem) -> bool:
    """Whether a memory that is near in meaning may be taken for the same."""
    return not other.messages and is_alike(draft, other) and differs(draft.item.memory, other.memory) is None


def merged(old: MemoryItem, new: MemoryItem, now: datetime) -> MemoryItem:
    """What a memory becomes when another that says the same is merged into it.

    Its fact stays, and so do its place and its embedding; of the other's text what is new is put behind the full text.
    """
    memory_type = _longer_lived(old.memory_type, new.memory_type)
    return old.model_copy(
        update={
            "content": _joined(old, new),
            "summary": old.summary or new.summary,
            "metadata": {**old.metadata, **new.metadata},
            "metrics": {**old.metrics, **new.metrics},
            "tags": _united(old.tags, new.tags),
            "collections": _united(old.collections, new.collections),
            "related_memory_ids": _united(old.related_memory_ids, new.related_memory_ids),
            "importance": more_important(old.importance, new.importance),
            "memory_type": memory_type,
            "ttl": -1 if -1 in {old.ttl, new.ttl} else max(old.ttl or 1, new.ttl or 1),
            "occurrences": old.occurrences + new.occurrences,
            "updated_at": now,
        }
    )


def _joined(old: MemoryItem, new: MemoryItem) -> str:
    fact, said = normalised(old.memory), _spoken(f"{old.memory}\n{old.content}")
    texts = [text for text in dict.fromkeys((new.memory, new.content)) if normalised(text) != fact]
    fresh = [text for text in texts if _spoken(text) not in said]
    # The whole text of the other says its fact too.
    if len(fresh) > 1 and fresh[0] in fresh[1]:
        del fresh[0]
    joined = "\n".join([old.content, *fresh])
    return joined if len(joined.encode()) <= LONGEST_TEXT_BYTES else old.content


def _spoken(text: str) -> str:
    """The words of a text: another case, blank or mark says nothing new."""
    lines = (" ".join(_WORD.findall(normalised(line))) for line in text.splitlines())
    # What one line ends with and the next begins with was never said together.
    return f" {' / '.join(lines)} "


def _longer_lived(one: MemoryType, other: MemoryType) -> MemoryType:
    return one if one == other else "long-term"


def _united(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
