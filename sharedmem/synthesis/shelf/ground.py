"""Where the notes of a namespace lie, and who may reach them."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.errors import SharedMemoryError
from sharedmem.knowledge.minds import Minds
from sharedmem.synthesis.shelf.rows import check_name, record_named, spelled_app
from sharedmem.wire.access import Need, Scope
from sharedmem.wire.faults import explain
from sharedmem.wire.keys import Target
from sharedmem.wire.noting import NOTE, Noting, note_keys
from sharedmem.wire.replies import ServerError
from sharedmem.wire.tier import LOG, Keep

NOTES = "notes"
"""What an actor needs rights to (`<namespace>:shared:notes`)."""


class NoteGround:
    """What every part of the shelf stands on.

    Args:
        minds: what the hub lends.
        scope: hands out keys within the actor's rights.
    """

    def __init__(self, minds: Minds, scope: Scope) -> None:
        self._minds = minds
        self._scope = scope
        self._namespace = scope.identity.namespace
        self._actor = scope.signature
        self._line = minds.line
        self._keyspace = minds.keyspace
        self._space = minds.keyspace.space(self._namespace)
        self._noting = Noting(minds.sender)
        self._records = minds.keyspace.records(NOTE, self._namespace).encode()

    async def _enter(self, need: Need) -> None:
        """Refuse who may not; then Redis has all notes: where it was lost they come back from the durable tier first.

        Raises:
            AccessDeniedError: this actor may not read or write the namespace's notes.
            UnavailableError: they are not all in Redis, and the tier cannot be asked.
        """
        self._scope.common(NOTES, need)
        if self._minds.tier is not None:
            await self._minds.tier.gather(self._namespace)

    def _record(self, app_id: str, id_: str) -> bytes:
        return self._records + record_named(app_id, id_).encode()

    def _beside(self, app_id: str) -> list[bytes]:
        return note_keys(self._keyspace, self._namespace, spelled_app(app_id))

    @property
    def _apps(self) -> bytes:
        return self._keyspace.record_part(NOTE, self._namespace, "apps")

    def _ids(self, app_id: str) -> bytes:
        return self._keyspace.record_item(NOTE, self._namespace, "ids", spelled_app(app_id))

    def _target(self, app_id: str, id_: str) -> Target:
        return self._keyspace.target(f"{self._namespace}:${NOTE}:{record_named(app_id, id_)}")

    def _keep(self, app_id: str, ids: Sequence[str]) -> Keep | None:
        """How notes last, where they do: as logs, which never leave Redis by themselves."""
        if self._minds.tier is None or not ids:
            return None
        return Keep(tuple(self._target(app_id, id_) for id_ in ids), LOG * len(ids))

    def _explained(self, error: ServerError, app_id: str) -> SharedMemoryError:
        key = f"{self._namespace}:${NOTE}:{spelled_app(app_id)}"
        return explain(error, self._line.address, key=key, held="foreign value", wanted=NOTE)


def check_ids(ids: Sequence[str]) -> list[str]:
    """Ids of notes, each once.

    Raises:
        InvalidError: one of them can be none.
    """
    return list(dict.fromkeys(check_name("id", id_) for id_ in ids))
