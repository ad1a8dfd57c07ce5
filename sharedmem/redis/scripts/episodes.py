"""Typed callers of the scripts on episodes."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version


class EpisodeKeys(NamedTuple):
    """The keys of an episode, and of the index of all episodes of its namespace."""

    episode: bytes
    summary: bytes
    sessions: bytes
    endings: bytes


class EpisodeScripts:
    """Changes the episodes of the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def episode_append(
        self, space: Space, keys: EpisodeKeys, actor: bytes, *, session: str, event: bytes, most: int, ttl_ms: int
    ) -> tuple[int, int]:
        """Return (version of the event, number of stored events)."""
        args: list[Argument] = [session, event, most, ttl_ms]
        reply = await self._sender.mutate("episode_append", space, keys, actor, args, large=len(event))
        version, kept = split_version(reply)
        return version, int(kept)

    async def episode_summarize(
        self, space: Space, episode: bytes, summary: bytes, actor: bytes, *, upto: int, text: bytes
    ) -> bool:
        """Return whether the summary was stored."""
        args: list[Argument] = [upto, text]
        return await self._sender.mutate("episode_summarize", space, [episode, summary], actor, args) == b"1"
