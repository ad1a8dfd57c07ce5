"""Operations over all parts of a store: what an agent should know now, and filing what was said."""

from __future__ import annotations

from sharedmem.api.operation import Facet
from sharedmem.models import RememberReceipt, SynthesisMessage
from sharedmem.store import SharedMemoryStore as Store

_TEXT_OR_MESSAGES = {"conversation": list[SynthesisMessage] | str}

_knowledge = Facet[Store]("knowledge")

_knowledge.operation("knowledge.recall", Store.recall, "POST /recall", needs="read")
_knowledge.operation(
    "knowledge.remember",
    Store.remember,
    "POST /remember",
    fields=_TEXT_OR_MESSAGES,
    created=202,
    location="/remember/{task_id}",
)
_knowledge.operation("knowledge.receipt", Store.remember_receipt, "GET /remember/{task_id}", gives=RememberReceipt)

FACETS = (_knowledge,)
