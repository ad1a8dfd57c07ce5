"""A worker that kills itself at a given moment: `python -m support.crashing_relay <redis> <namespace> <file> <moment>`.

It prints the items that it has appended, each acknowledged by the server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sharedmem import Settings
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.hub.composition import connect
from sharedmem.models import DurableRecord
from support.outbox_harness import FaultyDurable, open_outbox_harness
from support.waiting import wait_until


def _kill_self(records: Sequence[DurableRecord]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _main(url: str, namespace: str, file: str, moment: str) -> None:
    durable = SqliteDurable(Path(file))
    await durable.open()
    faulty = FaultyDurable(durable)
    async with open_outbox_harness(connect, faulty, namespace, settings=Settings(redis_url=url)) as team:
        await team.relay.enrol(namespace)
        for number in range(10):
            await team.append("list", str(number))
        sys.stdout.write(" ".join(map(str, range(10))))
        sys.stdout.flush()
        if moment == "before put":
            faulty.fault = _kill_self
        elif moment == "within put":
            faulty.stores = 0.5
        if moment in {"within put", "after put"}:
            faulty.after = _kill_self
        team.relay.start()
        await wait_until(team.is_empty, description="all is carried")
        _kill_self([])


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
