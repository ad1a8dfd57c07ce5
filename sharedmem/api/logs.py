"""Operations of logs: plans and executions, events of episodes, conversations; and of the durable tier."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.api.operation import Facet
from sharedmem.conversations.conversations import Conversations
from sharedmem.decisions.decisions import Decisions
from sharedmem.durable.admin import NamespaceDurability
from sharedmem.episodes import Episodes
from sharedmem.models import Duplicate, Executed

# -- decisions ------------------------------------------------------------------------------------


_PLAN = "/decisions/{session}/plans/{plan_hash}/execution"
_decisions = Facet("decisions", lambda store, _: store.decisions)

_decisions.operation("plan.sessions", Decisions.sessions, "GET /decisions", paging="names")
_decisions.operation(
    "plan.erase", Decisions.erase, "DELETE /decisions/{session}", answer="erased", bulk=True, formerly=["plan.forget"]
)
_decisions.operation("plan.list", Decisions.get_recent_plans, "GET /decisions/{session}/plans")
_decisions.operation(
    "plan.save", Decisions.save_plan, "POST /decisions/{session}/plans", created=201, answer="plan_hash"
)
_decisions.operation(
    "plan.save_if_new",
    Decisions.save_if_new,
    "POST /decisions/{session}/plans/if-new",
    created=201,
    is_new=lambda result: result.saved,
)
_decisions.operation("plan.refusals", Decisions.get_refusals, "GET /decisions/{session}/refusals")
_decisions.operation(
    "plan.check",
    Decisions.check_duplicate,
    "POST /decisions/{session}/plans/check",
    needs="read",
    reply=lambda found: Duplicate(is_duplicate=found[0], plan=found[1]),
    gives=Duplicate,
)
_decisions.operation("plan.find_similar", Decisions.find_similar, "POST /decisions/plans/similar", needs="read")
_decisions.operation("plan.history", Decisions.history, "GET /decisions/{session}/history")
_decisions.operation("plan.patterns", Decisions.patterns, "GET /decisions/plans/patterns")
_decisions.operation(
    "execution.check",
    Decisions.check_executed,
    f"GET {_PLAN}",
    reply=lambda found: Executed(executed=found[0], execution=found[1]),
    gives=Executed,
)
_decisions.operation(
    "execution.begin",
    Decisions.begin_execution,
    f"POST {_PLAN}",
    created=201,
    location=_PLAN,
    is_new=lambda claim: claim.started,
)
_decisions.operation("execution.renew", Decisions.renew, f"POST {_PLAN}/renew")
_decisions.operation("execution.finish", Decisions.finish, f"POST {_PLAN}/finish")
_decisions.operation("execution.mark", Decisions.mark_executed, f"POST {_PLAN}/mark")
_decisions.operation("execution.resolve", Decisions.resolve, f"POST {_PLAN}/resolve")
_decisions.operation("execution.open", Decisions.get_open_executions, "GET /decisions/{session}/executions/open")
_decisions.operation("execution.stats", Decisions.get_execution_stats, "GET /decisions/{session}/stats")


# -- episodes -------------------------------------------------------------------------------------


_episodes = Facet("episodes", lambda store, _: store.episodes)

_episodes.operation("episode.sessions", Episodes.sessions, "GET /episodes", paging="recent")
_episodes.operation(
    "episode.search", Episodes.retrieve, "POST /episodes/search", needs="read", formerly=["episode.retrieve"]
)
_episodes.operation("episode.append", Episodes.append_event, "POST /episodes/{session}/events", answer="length")
_episodes.operation(
    "episode.events", Episodes.events, "GET /episodes/{session}/events", fields={"since": datetime | str | int | None}
)
_episodes.operation(
    "episode.summarize", Episodes.summarize_episode, "POST /episodes/{session}/summary", answer="summary"
)


# -- conversations --------------------------------------------------------------------------------


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


# -- the durable tier -----------------------------------------------------------------------------


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
FACETS = (_decisions, _episodes, _conversations, _durable)
