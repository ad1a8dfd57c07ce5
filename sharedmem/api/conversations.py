"""Operations of conversations: append to their logs, read, cut and fork them, and patch their states."""

from __future__ import annotations

from typing import Any

from sharedmem.api.operation import Facet
from sharedmem.conversations.conversations import Conversations

_ENTRIES = {"entries": list[Any]}
_conversations = Facet("conversations", lambda store, _: store.conversations)

_conversations.operation("conversation.list", Conversations.list, "GET /conversations")
_conversations.operation(
    "conversation.append", Conversations.append, "POST /conversations/{id}/entries", fields=_ENTRIES
)
_conversations.operation("conversation.read", Conversations.read, "GET /conversations/{id}/entries")
_conversations.operation("conversation.pop", Conversations.pop, "POST /conversations/{id}/pop")
_conversations.operation(
    "conversation.replace", Conversations.replace_suffix, "POST /conversations/{id}/replace", fields=_ENTRIES
)
_conversations.operation("conversation.clear", Conversations.clear, "POST /conversations/{id}/clear")
_conversations.operation("conversation.fork", Conversations.fork, "POST /conversations/{id}/fork")
_conversations.operation("conversation.state", Conversations.state, "GET /conversations/{id}/state")
_conversations.operation(
    "conversation.patch",
    Conversations.patch_state,
    "PATCH /conversations/{id}/state",
    names={"fields": "patch"},
)
_conversations.operation(
    "conversation.expire", Conversations.expire, "POST /conversations/{id}/expiry", answer="exists"
)
_conversations.operation("conversation.get", Conversations.get, "GET /conversations/{id}", absent="conversation")
_conversations.operation(
    "conversation.stats", Conversations.stats, "GET /conversations/{id}/stats", absent="conversation"
)
_conversations.operation("conversation.delete", Conversations.delete, "DELETE /conversations/{id}", answer="deleted")
_conversations.operation("conversation.erase", Conversations.erase, "POST /conversations/erase", bulk=True)

FACETS = (_conversations,)
