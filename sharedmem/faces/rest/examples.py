"""Examples of the description: what fields look like."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

EXAMPLES: Mapping[str, Any] = MappingProxyType(
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
    }
)
"""By the name of a field."""
