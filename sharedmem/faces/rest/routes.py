"""The table of routes: under which method and path each operation is answered.

What is not in the path of an operation goes into the query (GET, DELETE) or into the body (POST, PUT, PATCH).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

PREFIX = "/api/v1"

Paging = Literal["", "names", "recent", "cursor", "after"]
"""How a list comes in pages: `names` are sorted texts, `recent` texts in another order; the others are the field of the
operation that says where a page begins."""


class Route(NamedTuple):
    """How one operation is answered."""

    operation: str
    method: str
    path: str
    """Below `/api/v1`; `{field}` is a field of the request."""
    tag: str
    status: int = 200
    paging: Paging = ""
    absent: str = ""
    """What does not exist when the operation answers nothing; without it nothing is an answer."""
    conditional: bool = False
    """Whether it goes by versions: ETag, If-Match, If-None-Match."""


def _get(operation: str, path: str, tag: str, *, paging: Paging = "", absent: str = "") -> Route:
    return Route(operation, "GET", path, tag, paging=paging, absent=absent)


def _post(operation: str, path: str, tag: str, status: int = 200) -> Route:
    return Route(operation, "POST", path, tag, status)


def _delete(operation: str, path: str, tag: str) -> Route:
    return Route(operation, "DELETE", path, tag)


_STORE = (
    Route("value.entry", "GET", "/store/values/{key}", "store", conditional=True),
    Route("value.write", "PUT", "/store/values/{key}", "store", conditional=True),
    _delete("key.delete", "/store/values/{key}", "store"),
    _get("value.read", "/store/values/{key}/value", "store"),
    _get("value.read_many", "/store/values", "store"),
    _post("value.write_many", "/store/values", "store"),
    _get("key.list", "/store/keys", "store", paging="names"),
    _get("key.exists", "/store/keys/{key}/exists", "store"),
    _get("key.ttl", "/store/keys/{key}/ttl", "store"),
    Route("key.expire", "PUT", "/store/keys/{key}/ttl", "store"),
    _delete("key.persist", "/store/keys/{key}/ttl", "store"),
    _post("list.append", "/store/lists/{key}", "store"),
    _get("list.read", "/store/lists/{key}", "store"),
    _get("list.length", "/store/lists/{key}/length", "store"),
    Route("hash.set", "PATCH", "/store/hashes/{key}", "store"),
    _get("hash.all", "/store/hashes/{key}", "store"),
    _delete("hash.delete", "/store/hashes/{key}/fields", "store"),
    _get("hash.get", "/store/hashes/{key}/fields/{field}", "store"),
    _post("hash.increment", "/store/hashes/{key}/fields/{field}/increment", "store"),
    _post("set.add", "/store/sets/{key}", "store"),
    _get("set.members", "/store/sets/{key}", "store"),
    _post("set.remove", "/store/sets/{key}/remove", "store"),
    _post("set.contains", "/store/sets/{key}/contains", "store"),
    _get("set.size", "/store/sets/{key}/size", "store"),
    _post("set.pop", "/store/sets/{key}/pop", "store"),
    _post("set.move", "/store/sets/{source}/move", "store"),
    _post("counter.increment", "/store/counters/{key}/increment", "store"),
)
_MESSAGES = (_post("message.publish", "/messages/{channel}", "messages"),)
_NAMESPACE = (
    _get("namespace.usage", "/namespace/usage", "namespace"),
    _delete("namespace.clear", "/namespace", "namespace"),
    _post("namespace.sweep", "/namespace/sweep", "namespace"),
)
_EPISODES = (
    _get("episode.sessions", "/episodes", "episodes", paging="recent"),
    _post("episode.retrieve", "/episodes/search", "episodes"),
    _post("episode.append", "/episodes/{session}/events", "episodes"),
    _get("episode.events", "/episodes/{session}/events", "episodes"),
    _post("episode.summarize", "/episodes/{session}/summary", "episodes"),
)
_PLAN = "/decisions/{session}/plans/{plan_hash}/execution"
_DECISIONS = (
    _get("plan.sessions", "/decisions", "decisions", paging="names"),
    _delete("plan.forget", "/decisions/{session}", "decisions"),
    _get("plan.list", "/decisions/{session}/plans", "decisions"),
    _post("plan.save", "/decisions/{session}/plans", "decisions"),
    _post("plan.save_if_new", "/decisions/{session}/plans/if-new", "decisions"),
    _post("plan.check", "/decisions/{session}/plans/check", "decisions"),
    _get("execution.check", _PLAN, "decisions"),
    _post("execution.begin", _PLAN, "decisions"),
    _post("execution.renew", _PLAN + "/renew", "decisions"),
    _post("execution.finish", _PLAN + "/finish", "decisions"),
    _post("execution.mark", _PLAN + "/mark", "decisions"),
    _post("execution.resolve", _PLAN + "/resolve", "decisions"),
    _get("execution.open", "/decisions/{session}/executions/open", "decisions"),
    _get("execution.stats", "/decisions/{session}/stats", "decisions"),
)
_COORDINATION = (
    _get("lease.state", "/locks/{name}", "coordination"),
    _post("lease.acquire", "/locks/{name}", "coordination"),
    Route("lease.renew", "PUT", "/locks/{name}/{id}", "coordination"),
    _delete("lease.release", "/locks/{name}/{id}", "coordination"),
    _get("limit.state", "/limits/{name}", "coordination"),
    _post("limit.take", "/limits/{name}/take", "coordination"),
    _get("presence.who", "/presence", "coordination"),
)
_TASK = "/queues/{queue}/tasks/{id}"
_QUEUES = (
    _get("queue.list", "/queues", "queues", paging="names"),
    _get("queue.stats", "/queues/{queue}", "queues"),
    _post("queue.put", "/queues/{queue}/tasks", "queues"),
    _post("queue.put_many", "/queues/{queue}/batch", "queues"),
    _get("queue.peek", "/queues/{queue}/tasks", "queues"),
    _post("queue.claim", "/queues/{queue}/claim", "queues"),
    _get("queue.result", _TASK, "queues"),
    _delete("queue.discard", _TASK, "queues"),
    _post("queue.renew", _TASK + "/renew", "queues"),
    _post("queue.ack", _TASK + "/ack", "queues"),
    _post("queue.retry", _TASK + "/retry", "queues"),
    _post("queue.fail", _TASK + "/fail", "queues"),
    _post("queue.release", _TASK + "/release", "queues"),
    _get("queue.dead", "/queues/{queue}/dead", "queues"),
    _post("queue.redrive_all", "/queues/{queue}/redrive", "queues"),
    _post("queue.redrive", "/queues/{queue}/dead/{id}/redrive", "queues"),
    _post("queue.pause", "/queues/{queue}/pause", "queues"),
    _post("queue.resume", "/queues/{queue}/resume", "queues"),
)
_MEMORY = (
    _get("memory.list", "/memory/items", "memory", paging="cursor"),
    _post("memory.add", "/memory/items", "memory"),
    _post("memory.add_many", "/memory/batch", "memory"),
    _post("memory.search", "/memory/search", "memory"),
    _get("memory.get", "/memory/items/{id}", "memory", absent="memory"),
    Route("memory.update", "PATCH", "/memory/items/{id}", "memory"),
    _delete("memory.delete", "/memory/items/{id}", "memory"),
    _get("memory.history", "/memory/items/{id}/history", "memory"),
    _post("memory.undo", "/memory/items/{id}/undo", "memory"),
    _get("memory.stats", "/memory/stats", "memory"),
    _get("memory.recent", "/memory/threads/{thread_id}", "memory"),
    _get("thread.stats", "/memory/threads/{thread_id}/stats", "memory"),
    _post("thread.summary", "/memory/threads/{thread_id}/summary", "memory"),
)
_CACHE = (
    _post("cache.check", "/cache/check", "cache"),
    _post("cache.put", "/cache", "cache"),
    _post("cache.invalidate", "/cache/invalidate", "cache"),
    _delete("cache.clear", "/cache", "cache"),
    _post("cache.report", "/cache/answers/{id}/report", "cache"),
    _get("cache.stats", "/cache/stats", "cache"),
)
_GRAPH = (
    _get("graph.groups", "/graph", "graph", paging="names"),
    _post("graph.add", "/graph/episodes", "graph"),
    _post("graph.add_many", "/graph/episodes/batch", "graph"),
    _delete("graph.delete", "/graph/{group_id}", "graph"),
    _post("graph.ask", "/graph/{group_id}/ask", "graph"),
    _get("graph.entity", "/graph/{group_id}/entities/{entity}", "graph"),
    _get("graph.history", "/graph/{group_id}/entities/{entity}/history", "graph"),
    _get("graph.path", "/graph/{group_id}/path", "graph"),
    _get("graph.as_of", "/graph/{group_id}/facts", "graph", paging="after"),
    _get("graph.episodes", "/graph/{group_id}/episodes", "graph", paging="after"),
    _delete("graph.undo", "/graph/{group_id}/episodes/{episode_id}", "graph"),
    _post("graph.merge", "/graph/{group_id}/merges", "graph"),
    _delete("graph.unmerge", "/graph/{group_id}/merges/{entity}", "graph"),
    _get("graph.stats", "/graph/{group_id}/stats", "graph"),
    _post("graph.check", "/graph/{group_id}/check", "graph"),
    _get("graph.draw", "/graph/{group_id}/drawing", "graph"),
)

_NOTE = "/memories/{memory_id}"
_SYNTHESIS = (
    _post("synthesis.add_memory", "/memories", "synthesis", 202),
    _get("synthesis.query_memory", "/memories/query", "synthesis"),
    _get("synthesis.get_memory", _NOTE, "synthesis"),
    _delete("synthesis.delete_memory", _NOTE, "synthesis"),
    Route("synthesis.update_memory_status", "PUT", _NOTE + "/status", "synthesis"),
    _post("synthesis.restore_memory", _NOTE + "/restore", "synthesis"),
    _get("synthesis.traverse_memory_evolution_chain", _NOTE + "/evolution", "synthesis"),
    _get("synthesis.generate_evolution_graph", _NOTE + "/evolution/graph", "synthesis"),
    _get("synthesis.recall_archived", _NOTE + "/archived", "synthesis"),
    _post("synthesis.unarchive", _NOTE + "/unarchive", "synthesis"),
    _post("synthesis.add_agent_memory", "/agent/memories", "synthesis", 202),
    _post("synthesis.summarize_conversation", "/agent/summaries", "synthesis"),
    _get("synthesis.apps", "/apps", "synthesis", paging="names"),
    _get("synthesis.list_tasks", "/tasks", "synthesis"),
    _get("synthesis.get_task_status", "/tasks/{task_id}", "synthesis"),
    _post("synthesis.retry_task", "/tasks/{task_id}/retry", "synthesis"),
    _get("synthesis.get_connection_pool_stats", "/system/pool-stats", "synthesis"),
    _post("synthesis.fsck", "/system/fsck", "synthesis"),
    _post("synthesis.archive", "/system/archive", "synthesis"),
    _post("synthesis.retain", "/system/retain", "synthesis"),
    _post("synthesis.forget", "/system/forget", "synthesis"),
)

_ALL = (
    *_STORE,
    *_MESSAGES,
    *_NAMESPACE,
    *_EPISODES,
    *_DECISIONS,
    *_COORDINATION,
    *_QUEUES,
    *_MEMORY,
    *_CACHE,
    *_GRAPH,
    *_SYNTHESIS,
)

ROUTES: Mapping[str, Route] = MappingProxyType({route.operation: route for route in _ALL})
"""By the name of the operation."""

BULK = frozenset(
    {
        "value.write_many",
        "namespace.usage",
        "namespace.clear",
        "namespace.sweep",
        "plan.forget",
        "queue.put_many",
        "queue.redrive_all",
        "memory.add_many",
        "graph.add_many",
        "graph.delete",
        "graph.draw",
        "cache.invalidate",
        "cache.clear",
        "synthesis.fsck",
        "synthesis.archive",
        "synthesis.retain",
        "synthesis.forget",
    }
)
"""Operations that handle as much as the caller likes: their CPU time counts for the quota of its token."""

TAGS: Mapping[str, str] = MappingProxyType(
    {
        "store": "Values, lists, hashes, sets and counters. A key without `:` is the caller's own.",
        "messages": "Messages for those who listen now.",
        "namespace": "The whole namespace of the caller.",
        "episodes": "Events of sessions, and what they were about.",
        "decisions": "Plans, their executions, and how those went.",
        "coordination": "Locks, rate limits, and who is here.",
        "queues": "Tasks that are done once.",
        "memory": "Semantic memory.",
        "cache": "Answers that somebody has paid for already.",
        "graph": "What was true when, and known when.",
        "synthesis": "Conversations in, notes out, which tidy themselves.",
    }
)
