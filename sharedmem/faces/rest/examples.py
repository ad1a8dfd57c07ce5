"""Examples of the description: what fields look like."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_OF_FIELDS: Mapping[str, Any] = MappingProxyType(
    {
        "key": "plan",
        "keys": ["plan", "chat:team-alpha:topic"],
        "value": {"step": 3, "owner": "planner"},
        "values": {"colour": "green"},
        "ttl": 3600,
        "field": "colour",
        "fields": ["colour"],
        "source": "todo",
        "destination": "done",
        "channel": "news",
        "message": {"text": "The build is green."},
        "session": "desk-1",
        "event": {"role": "user", "content": "Where is my parcel?"},
        "query": "when does the lease end?",
        "symbol": "BTC",
        "action": "BUY",
        "confidence": 0.8,
        "reasoning": "The trend is strong.",
        "plan_hash": "9f86d081",
        "fence": 41,
        "status": "success",
        "executed": True,
        "name": "index",
        "limit": 100,
        "per": 60,
        "queue": "mail",
        "id": "7f3a",
        "token": 41,
        "payload": {"to": "ada@example.org"},
        "payloads": [{"to": "ada@example.org"}],
        "error": "the address does not exist",
        "item": {"memory": "The lease ends in May.", "category": "office"},
        "items": [{"memory": "The lease ends in May.", "category": "office"}],
        "changes": {"memory": "The lease ends in June."},
        "thread_id": "main",
        "prompt": "What is the capital of Norway?",
        "response": "Oslo",
        "episode": {
            "id": "first",
            "group_id": "acme:ada",
            "content": "Ada lives in Oslo.",
            "occurred_at": "2020-01-01T00:00:00Z",
        },
        "group_id": "acme:ada",
        "entity": "Ada",
        "episode_id": "first",
        "when": "2021-01-01T00:00:00Z",
        "a": "Ada",
        "b": "Oslo",
        "into": "Oslo",
        "app_id": "support",
        "user_id": "ada",
        "memory_id": "note-7f3a",
        "task_id": "7f3a",
        "new_status": "archived",
        "rules": {"rules": [{"statuses": ["deleted"], "max_age_days": 30}]},
        "messages": [
            {"role": "user", "content": "My parcel 4711 has not come."},
            {"role": "assistant", "content": "It is at the depot; it comes on Friday."},
        ],
    }
)
"""By the name of a field."""
_EPISODE = _OF_FIELDS["episode"]
_ELSEWHERE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "set.add": {"values": ["red", "green"]},
        "set.remove": {"values": ["red"]},
        "graph.add_many": {"episodes": [_EPISODE]},
    }
)
"""By operation and field, where a name means something else."""


def example_of(operation: str, field: str) -> Any:
    """What a field looks like in the request of an operation; None when nobody has said so."""
    return _ELSEWHERE.get(operation, {}).get(field, _OF_FIELDS.get(field))
