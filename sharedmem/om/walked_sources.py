"""Objects made of records without a search index: plans and events of episodes, listed by the calls of the store.

Every condition is tested in this process, on all plans or events of the sessions that the query names, else of all
sessions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from sharedmem.context import HubContext
from sharedmem.decisions.decisions import Decisions
from sharedmem.episodes.episodes import Episodes
from sharedmem.errors import UnsupportedError
from sharedmem.models.record import Record
from sharedmem.om.compiler import IndexedFields
from sharedmem.om.expressions import Moment
from sharedmem.om.model_spec import ModelSpec
from sharedmem.om.query import IndexOrder, NearestQuery
from sharedmem.om.record_sources import Build
from sharedmem.redis.scope import Scope
from sharedmem.search.protocol import Condition, Either, Every, Inverse, Tagged

_MOST_PLANS = 1000
_PAGE = 500


class SessionRecords(Protocol):
    """Lists records by session."""

    async def sessions(self) -> list[str]:
        """Return the sessions that have records."""

    def of_session(self, session: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the records of a session, page by page."""


class WalkedSource:
    """The objects of one kind of record that is listed by session, as `ObjectSource` describes it.

    Args:
        spec: of the model.
        records: lists the records.
        build: makes objects of them.
    """

    def __init__(self, spec: ModelSpec, records: SessionRecords, build: Build) -> None:
        self._spec = spec
        self._records = records
        self._build = build

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._spec.name

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return frozenset(self._spec.fields)

    @property
    def fields(self) -> IndexedFields:
        """The session alone: it decides which records are listed."""
        return self._spec.indexed("")

    @property
    def numbers(self) -> dict[str, str]:
        """None: this process sorts."""
        return {}

    @property
    def moment(self) -> Moment:
        """The number as which a time is compared."""
        return self._spec.moment

    async def enter(self) -> None:
        """Nothing to do: each call of the store checks its rights."""

    async def count(self, filters: Every) -> int:
        """Return how many records the sessions have."""
        return sum([len(page) async for page in self.walk(filters, None, offset=0, size=_PAGE)])

    async def walk(
        self, filters: Every, order: IndexOrder | None, *, offset: int, size: int
    ) -> AsyncIterator[list[Any]]:
        """Yield the objects of the sessions that the filters name, or of all; there is no order but the store's."""
        del order, size
        for session in await self._named(filters):
            async for page in self._records.of_session(session):
                skipped = min(offset, len(page))
                offset -= skipped
                yield [self._build(record, None) for record in page[skipped:]]

    async def get(self, key: str) -> Any:
        """Return the object of a key; None if it does not exist. All sessions are looked through."""
        async for page in self.walk(Every(), None, offset=0, size=_PAGE):
            for found in page:
                if found.pk == key:
                    return found
        return None

    async def nearest(self, filters: Every, nearest: NearestQuery) -> list[Any]:
        """Raise: these records have no vectors."""
        del filters, nearest
        remedy = "query a model whose records have vectors: Memory, CachedAnswer, Note, Entity or Fact"
        raise UnsupportedError(f"a query for the nearest {self._spec.name}", remedy)

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object."""
        return self._spec.project(found, names, as_dict=as_dict)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change records."""
        return self._spec.refuse(call)

    async def _named(self, filters: Every) -> Sequence[str]:
        chosen = [set(one.values) for one in filters.conditions if isinstance(one, Tagged)]
        names = sorted(set.intersection(*chosen)) if chosen else await self._records.sessions()
        return [name for name in names if _admits(filters, name)]


def _admits(condition: Condition, session: str) -> bool:
    """Whether a condition, which can only be on the session, matches it."""
    match condition:
        case Tagged(values=values):
            return session in values
        case Inverse(inner):
            return not _admits(inner, session)
        case Either(conditions):
            return any(_admits(one, session) for one in conditions)
        case Every(conditions):
            return all(_admits(one, session) for one in conditions)
        case _:
            return True


class PlanRecords:
    """The plans of a namespace's sessions, as `SessionRecords` describes it."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._decisions = Decisions(context, scope)

    async def sessions(self) -> list[str]:
        """Return the sessions that have plans."""
        return await self._decisions.sessions()

    async def of_session(self, session: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the plans of a session, newest first. One round trip."""
        yield await self._decisions.get_recent_plans(session, limit=_MOST_PLANS)


class SessionEvent(Record):
    """One event of an episode with the session in which it happened."""

    id: str
    """The session and the cursor."""
    session: str
    at: datetime
    """Server time."""
    actor: str
    event: Any = None
    cursor: str


class EventRecords:
    """The events of a namespace's sessions, as `SessionRecords` describes it."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._episodes = Episodes(context, scope)

    async def sessions(self) -> list[str]:
        """Return the sessions that have events, the newest first."""
        return await self._episodes.sessions()

    async def of_session(self, session: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the events of a session, oldest first. One round trip a hundred events."""
        after: str | None = None
        while events := await self._episodes.events(session, since=after, limit=_PAGE):
            after = events[-1].cursor
            yield [
                SessionEvent(
                    id=f"{session}/{one.cursor}",
                    session=session,
                    at=one.at,
                    actor=one.actor,
                    event=one.event,
                    cursor=one.cursor,
                )
                for one in events
            ]
