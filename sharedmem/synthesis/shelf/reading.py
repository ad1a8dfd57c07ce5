"""Notes taken by id, by meaning and words, and page by page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import not_
from typing import get_args

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.models import Note, NoteStatus
from sharedmem.search.filters import Condition, Every, Tagged
from sharedmem.search.protocol import Found, Query
from sharedmem.synthesis.protocol import LEAST_WORD_SHARE, Near, Seen
from sharedmem.synthesis.shelf.ground import NoteGround, check_ids
from sharedmem.synthesis.shelf.missing_terms import MissingTerms
from sharedmem.synthesis.shelf.rows import (
    check_name,
    check_person,
    decode,
    record_named,
    stored_terms,
    unspelled_app,
    word_share,
)
from sharedmem.wire.replies import Command, Reply, ServerError
from sharedmem.wire.service_keys import damaged, decoding
from sharedmem.wire.vectors import Vector, from_half, sound_half, unit

MOST_IN_A_PAGE = 1000
_FEW = 60
"""Notes whose texts are small enough to come by the way that all others take: the candidates of a usual query, thirty
by meaning and thirty by words."""
_STATUSES: tuple[str, ...] = get_args(NoteStatus)


class Reading(NoteGround):
    """Finds notes. Where a durable tier stands behind, and nothing is found, it looks whether Redis was emptied."""

    async def get(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """See `Shelf.get`.

        Raises:
            InvalidError: an app or id can be none.
            AccessDeniedError: this actor may not read the namespace's notes.
            InternalError: another client has written there.
            UnavailableError: the server cannot be reached.
        """
        check_name("app_id", app_id)
        wanted = check_ids(ids)
        await self._enter("read")
        return await self._surely_taken(app_id, wanted) if wanted else {}

    async def near(
        self,
        app_id: str,
        vector: Vector | None,
        *,
        terms: tuple[str, ...] = (),
        user_id: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[NoteStatus] = ("active",),
        k: int = 30,
    ) -> tuple[list[Near], Seen]:
        """See `Shelf.near`. Without a user, what was seen guards nothing: commits are guarded user by user.

        Raises:
            InvalidError: an app, user, session or status can be none; a vector of another dimension; `k` below one.
            AccessDeniedError, UnavailableError: as `get`.
        """
        check_name("app_id", app_id)
        filters = _filters(app_id, user_id, session_id, statuses)
        await self._enter("read")
        if terms:
            # Notes of an earlier release lack their words.
            MissingTerms.of(self._minds, self._namespace).wake()
        query = Query(terms=terms, vector=vector, filters=filters, candidates=k)
        search = partial(self._minds.notes.search, self._namespace, query)
        found = await self._minds.surely(self._namespace, search, _is_nothing)
        hits = await self._fetched(app_id, found, terms, vector)
        # Since the search some may have changed: what would not be found now is left out. What the search has surely
        # seen is the newest change in the log before it began.
        return [hit for hit in hits if hit.note.status in statuses], Seen(app_id, user_id or "", found.version)

    async def _fetched(self, app_id: str, found: Found, terms: Sequence[str], vector: Vector | None) -> list[Near]:
        """What a search has found and is still there, but for what holds too few of the words and was found by no more.

        One round trip; none where nothing was found.
        """
        start = len(record_named(app_id, ""))
        scores = {hit.id[start:]: hit.score for hit in found.vector}
        worded = {hit.id[start:]: None for hit in found.text}
        fields: dict[str, tuple[str, ...]] = {id_: ("terms",) if id_ in worded else () for id_ in scores}
        fields |= {id_: ("terms", "vector") for id_ in worded if id_ not in scores}
        if not fields:
            return []
        looks: list[Command] = [(*self._look(app_id, id_), *more) for id_, more in fields.items()]
        replies = await self._line.read_each(looks, aside=len(looks) > _FEW)
        wanted = stored_terms(terms, self._namespace)
        hits = []
        for id_, reply in zip(fields, replies, strict=True):
            body, version, held, half = [*reply, None, None][:4] if isinstance(reply, list) else [None] * 4
            share = word_share(wanted, held)
            if id_ not in scores and share < LEAST_WORD_SHARE:
                continue  # most of what holds any of the words: it is not decoded
            note = _note(self._record(app_id, id_), [body, version])
            if note is not None:
                score = scores[id_] if id_ in scores else self._similarity(half, vector)
                hits.append(Near(note, min(max(score, 0.0), 1.0), share))
        return hits

    def _similarity(self, packed: Reply, vector: Vector | None) -> float:
        half = sound_half(packed, self._minds.notes.family.dimension)
        if half is None or vector is None:
            return 0.0
        return float(np.dot(unit(from_half(half)), unit(vector)))

    def _look(self, app_id: str, id_: str) -> Command:
        return ("HMGET", self._record(app_id, id_), "body", "version")

    async def page(self, app_id: str, *, after: str = "", limit: int = 500) -> list[Note]:
        """See `Shelf.page`; it is empty only behind the last one.

        Raises:
            InvalidError: an app can be none, or the limit is not 1 to `MOST_IN_A_PAGE`.
            AccessDeniedError, InternalError, UnavailableError: as `get`.
        """
        check_name("app_id", app_id)
        if not 1 <= limit <= MOST_IN_A_PAGE:
            raise InvalidError("limit", limit, f"ask for 1 to {MOST_IN_A_PAGE}")
        await self._enter("read")
        ids = await self._minds.surely(self._namespace, partial(self._listed, app_id, after, limit), not_)
        # All of a page may be erased before it is fetched: behind it there may be more.
        while ids and not (notes := await self._taken(app_id, ids)):
            ids = await self._listed(app_id, ids[-1], limit)
        return list(notes.values()) if ids else []

    async def apps(self) -> list[str]:
        """See `Shelf.apps`.

        Raises:
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        return await self._minds.surely(self._namespace, self._known_apps, not_)

    async def _known_apps(self) -> list[str]:
        found = await self._line.call("SMEMBERS", self._apps)
        members = found if isinstance(found, list | set) else ()
        return sorted(unspelled_app(member.decode()) for member in members if isinstance(member, bytes))

    async def _listed(self, app_id: str, after: str, limit: int) -> list[str]:
        begin = f"({after}" if after else "-"
        try:
            found = await self._line.call("ZRANGEBYLEX", self._ids(app_id), begin, "+", "LIMIT", 0, limit)
        except ServerError as error:
            raise self._explained(error, app_id) from error
        with decoding(self._ids(app_id)):
            return [id_.decode() for id_ in found if isinstance(id_, bytes)] if isinstance(found, list) else []

    async def _surely_taken(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        return await self._minds.surely(self._namespace, partial(self._taken, app_id, ids), not_)

    async def _taken(self, app_id: str, ids: Sequence[str]) -> dict[str, Note]:
        """Those that are there, in the order of their ids. One round trip."""
        replies = await self._line.read_each([self._look(app_id, id_) for id_ in ids], aside=len(ids) > _FEW)
        taken = ((id_, _note(self._record(app_id, id_), reply)) for id_, reply in zip(ids, replies, strict=True))
        return {id_: note for id_, note in taken if note is not None}


def _is_nothing(found: Found) -> bool:
    return not found.vector and not found.text


def _note(key: bytes, reply: Reply) -> Note | None:
    body, version = reply if isinstance(reply, list) else (None, None)
    if body is None and version is None:
        return None
    if not isinstance(body, bytes) or not isinstance(version, bytes) or not version.isdigit():
        raise damaged(key, "it lacks a body or a version")
    with decoding(key):
        return decode(body, int(version))


def _filters(app_id: str, user_id: str | None, session_id: str | None, statuses: Sequence[NoteStatus]) -> Every:
    unknown = [status for status in statuses if status not in _STATUSES]
    if unknown or not statuses:
        raise InvalidError("statuses", unknown or statuses, f"give some of {', '.join(_STATUSES)}")
    conditions: list[Condition] = [Tagged("app", (app_id,)), Tagged("status", tuple(statuses))]
    if user_id is not None:
        conditions.append(Tagged("user", (check_person("user_id", user_id),)))
    if session_id is not None:
        conditions.append(Tagged("session", (check_person("session_id", session_id),)))
    return Every(tuple(conditions))
