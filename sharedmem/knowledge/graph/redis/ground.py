"""Where the groups of a namespace lie, and how their scripts are reached."""

from __future__ import annotations

from sharedmem.errors import SharedMemoryError
from sharedmem.knowledge.graph.family import GRAPH
from sharedmem.knowledge.graph.naming import spelled_group
from sharedmem.knowledge.minds import Minds
from sharedmem.wire.faults import explain
from sharedmem.wire.graphing import Graphing
from sharedmem.wire.keys import Target
from sharedmem.wire.replies import ServerError
from sharedmem.wire.tier import LOG, Keep


class RedisGround:
    """What every part of the backend stands on.

    Args:
        minds: what the hub lends.
        namespace: whose groups.
        actor: who changes them.
    """

    def __init__(self, minds: Minds, namespace: str, actor: bytes) -> None:
        self._minds = minds
        self._namespace = namespace
        self._actor = actor
        self._line = minds.line
        self._keyspace = minds.keyspace
        self._space = minds.keyspace.space(namespace)
        self._graphing = Graphing(minds.sender)
        self._records = minds.keyspace.records(GRAPH, namespace).encode()

    @property
    def _groups(self) -> bytes:
        return self._keyspace.record_part(GRAPH, self._namespace, "groups")

    def _part(self, group: str, part: str) -> bytes:
        """One of the keys beside the records of a group."""
        return self._keyspace.record_item(GRAPH, self._namespace, part, spelled_group(group))

    def _parts(self, group: str, *parts: str) -> list[bytes]:
        return [self._part(group, part) for part in parts]

    def _record(self, named: str) -> bytes:
        return self._records + named.encode()

    def _target(self, named: str) -> Target:
        return self._keyspace.target(f"{self._namespace}:${GRAPH}:{named}")

    def _keep(self, named: list[str]) -> Keep | None:
        """How records last, where they do: as logs, which never leave Redis by themselves."""
        if self._minds.tier is None or not named:
            return None
        return Keep(tuple(map(self._target, named)), LOG * len(named))

    def _explained(self, error: ServerError, group: str) -> SharedMemoryError:
        key = f"{self._namespace}:${GRAPH}:{spelled_group(group)}"
        return explain(error, self._line.address, key=key, held="foreign value", wanted="graph")
