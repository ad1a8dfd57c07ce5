"""How the records of a graph lie in Redis, made again of what the durable tier has of them.

For the tier a record is one key, `<namespace>:$graph:<group>/<kind>/<id>`, with one document: the JSON of its row.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.clock import Clock
from sharedmem.models import DurableRecord
from sharedmem.wire.keys import KeySpace, Target
from sharedmem.wire.replies import Argument, Command
from sharedmem.wire.tier import Part


class GraphImager:
    """Knows how the records of graphs lie in Redis (`wire.tier.Imager`).

    Args:
        keyspace: how keys are spelled.
        clock: by which a fact counts as past.
    """

    def __init__(self, keyspace: KeySpace, clock: Clock) -> None:
        self._keyspace = keyspace
        self._clock = clock

    def presence(self, target: Target) -> bytes:
        """Its hash."""
        return self._keyspace.presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[Part]:
        """The fields of its hash that stay as they are, however time goes by.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        # Texts are taken apart by what takes a while to load; a hub opens without it.
        from sharedmem.knowledge.graph.restored import hashed  # noqa: PLC0415

        rows: list[tuple[Argument, ...]] = list(hashed(records[0]).items())
        return [Part(self.presence(target), "HSET", rows, has_more=True)] if rows else []

    def besides(self, target: Target) -> list[Command]:  # noqa: ARG002  # the script does it all in one step
        """Nothing."""
        return []
