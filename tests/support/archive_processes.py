"""Exports, imports, copies and backfills as processes of their own, for tests that kill them.

`python -m support.archive_processes <what> <url> <namespace> <file>` says a line for each step, so that it can be
killed at any of them; its frames are small, and it notes how far it has come whenever it can.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from sharedmem import Hub, Settings
from sharedmem.archive import backfill
from sharedmem.archive import files as archive_files
from sharedmem.archive import transfer as archives
from sharedmem.archive.transfer import ProgressStep
from support.forked_processes import start_child

_PATIENCE_S = 60
MAPPING: dict[str, object] = {"key": "{space}:shared:{id}", "value": "value"}
EMBEDDED = "embedded"
"""Instead of a URL: the server beside the file, with its own durable tier, where everything lasts."""


def durable_settings(folder: Path) -> Settings:
    """The settings of a server in a folder where everything lasts."""
    return Settings(data_dir=folder / "d", kind_rules={"research:*": "knowledge"})


def run_archive_process(what: str, url: str, namespace: str, file: Path, *, kill_after: int | None = None) -> int:
    """Run it, or kill it after so many steps; returns its exit code, or minus the signal's number."""
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    with os.fdopen(reading) as lines, ours:
        words = ("-m", "support.archive_processes", what, url, namespace, str(file))
        child = start_child(*words, streams=(theirs.fileno(), writing, 2))
        theirs.close()
        os.close(writing)
        for number, _ in enumerate(lines):
            with suppress(OSError):  # it may be dead
                ours.sendall(b"\n")
            if kill_after is not None and number >= kill_after:
                child.send_signal(signal.SIGKILL)
        return child.wait(_PATIENCE_S)


async def _main(what: str, url: str, namespace: str, file: Path) -> None:
    vars(archive_files)["FRAME_BYTES"] = 20_000
    for module in (archives, backfill):
        vars(module)["_NOTE_EVERY_S"] = 0.0
    settings = (
        durable_settings(file.parent) if url == EMBEDDED else Settings(redis_url=url, data_dir=file.parent / "data")
    )
    async with Hub.open(settings=settings) as hub:
        if what == "export":
            await hub.archive.export(namespace, file, progress=_print_step)
        elif what == "import":
            await hub.archive.import_(file, progress=_print_step)
        else:
            await hub.archive.backfill(file, MAPPING, namespace=namespace, progress=_print_step)


def _print_step(step: ProgressStep) -> None:
    sys.stdout.write(f"{json.dumps(step)}\n")
    sys.stdout.flush()
    # Go on when the line was read: a busy test may still kill this process in the step that follows.
    sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
