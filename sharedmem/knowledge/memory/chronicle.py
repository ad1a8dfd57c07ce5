"""The chronicle of memories: what each was when somebody last looked, and what it is now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from sharedmem.knowledge.memory.base import MEMORY
from sharedmem.knowledge.memory.documents import version_of
from sharedmem.knowledge.memory.meaning import meaning_of
from sharedmem.knowledge.memory.noticing import Interest, event_of
from sharedmem.knowledge.memory.shelf import Kept, Logged, Shelf
from sharedmem.models import MemoryEvent, MemoryFilter, MemoryItem
from sharedmem.wire.vectors import Vector

_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Story:
    """What a memory was when it was last looked at, and what it is."""

    logged: Logged
    was: MemoryItem | None
    now: Kept | None
    is_embedded: bool = False
    """Nothing but its vector is new."""
    is_expired: bool = False


class Chronicle(Shelf):
    """Tells what has become of the memories of one scope."""

    async def stories(self, after: int) -> tuple[list[Logged], list[Story]]:
        """(the memories changed after a version, at most a page; what they were then and are now)."""
        page = await self._log_page(after)
        if not page:
            return [], []
        keyspace, space = self._minds.keyspace, self._namespace
        ids = [logged.id for logged in page]
        past = [("LRANGE", keyspace.record_item(MEMORY, space, "history", id_), 0, -1) for id_ in ids]
        replies = await self._minds.line.read_each([*self._looks(ids, vectors=True), *past])
        stories = []
        for number, logged in enumerate(page):
            history = replies[len(page) + number]
            entries = [entry for entry in history if isinstance(entry, bytes)] if isinstance(history, list) else []
            stories.append(self._story(logged, self._kept(logged.id, replies[number]), entries, after))
        return page, stories

    def _story(self, logged: Logged, now: Kept | None, history: list[bytes], after: int) -> Story:
        if now is not None and now.item.version <= after:
            return Story(logged, now.item, now, is_embedded=True)
        past = [version_of(logged.id, self._namespace, entry) for entry in history]
        was = next((each for each in past if each.version <= after), None)
        is_deleted = bool(past) and past[0].change == "deleted"
        return Story(
            logged,
            was.item if was is not None and was.change != "deleted" else None,
            now,
            is_expired=now is None and not is_deleted,
        )

    async def told(
        self, interest: Interest, stories: list[Story], matched: dict[str, None]
    ) -> AsyncIterator[MemoryEvent]:
        """The events that these stories are to somebody.

        Args:
            interest: what is asked.
            stories: in their order.
            matched: ids of what was told of and not withdrawn; kept up to date.
        """
        vectors = await self._vectors_of([story.was for story in stories if story.was and not story.is_embedded])
        for story in stories:
            id_ = story.logged.id
            before = interest.likeness(story.was, vectors.get(id_)) if not story.is_expired else None
            if story.is_expired and id_ in matched:
                before = 1.0  # what it was has gone with it
            after = interest.likeness(*story.now) if story.now else None
            event = event_of(before, after)
            _note(matched, id_, still=after is not None)
            if event is not None:
                yield MemoryEvent(
                    event=event, id=id_, item=self._seen(story.now), similarity=after, cursor=str(story.logged.version)
                )

    def _seen(self, now: Kept | None) -> MemoryItem | None:
        # What has left the scope is nobody's business there any more.
        return now.item if now is not None and self._admits(MemoryFilter(), now.item) else None

    def now_us(self) -> float:
        """The present moment in microseconds since 1970, comparable with versions."""
        return self._minds.clock.now().timestamp() * 1_000_000

    async def _vectors_of(self, items: list[MemoryItem]) -> dict[str, Vector]:
        """Meanings of what memories once were; without a provider that answers, words decide."""
        embedder = self._minds.embedder_of(self._namespace)
        if not items or embedder is None:
            return {}
        found = {}
        for item in items:
            vector = (await meaning_of(embedder, item.memory or item.content, purpose="document")).vector
            if vector is not None:
                found[item.id] = vector
        return found

    async def newest(self) -> int:
        """The version of the namespace's newest change of a memory."""
        log = self._minds.keyspace.record_log(MEMORY, self._namespace)
        newest = await self._minds.line.call("ZREVRANGE", log, 0, 0, "WITHSCORES")
        assert isinstance(newest, list)
        return int(float(newest[1])) if len(newest) > 1 and isinstance(newest[1], bytes) else 0


def _note(matched: dict[str, None], id_: str, *, still: bool) -> None:
    matched.pop(id_, None)
    if still:
        matched[id_] = None
    if len(matched) > _MOST_REMEMBERED:
        del matched[next(iter(matched))]
