"""Several processes answer at one port, and somebody looks after them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx2
import pytest
from support.bare_server import BareServer
from support.waiting import wait_until

from sharedmem import ConfigError, Settings
from sharedmem.faces.endpoint import Address
from sharedmem.faces.rest import create_app
from sharedmem.faces.rest.crew import Plan, serve

WORKERS = """
import sys
from sharedmem import Settings
from sharedmem.faces.endpoint import Address
from sharedmem.faces.rest import create_app
from sharedmem.faces.rest.crew import Plan, serve
if __name__ == "__main__":
    plan = Plan(Settings(redis_url=sys.argv[1]), create_app, Address(), workers=2, grace_s=1)
    serve(plan, announce=lambda address: print(address.port, flush=True))
"""


def test_a_crew_has_a_number_of_workers_that_makes_sense() -> None:
    with pytest.raises(ConfigError, match="give 1 to 64"):
        serve(Plan(Settings(), create_app, Address(), workers=0))


async def test_a_worker_that_is_killed_is_replaced_and_all_end_together(tmp_path: Path) -> None:
    script = tmp_path / "served.py"
    script.write_text(WORKERS)
    with BareServer(tcp=True) as redis:
        crew = await asyncio.create_subprocess_exec(sys.executable, script, redis.url, stdout=asyncio.subprocess.PIPE)
        assert crew.stdout is not None
        port = (await crew.stdout.readline()).decode().strip()
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as calling:
            assert (await calling.get("/health/live")).status_code == 200
            before = workers_of(crew.pid)
            os.kill(before[-1], signal.SIGKILL)
            await wait_until(lambda: bool(set(workers_of(crew.pid)) - set(before)), description="another worker began")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as calling:
            assert (await calling.get("/health/live")).status_code == 200
        crew.terminate()
        left = await crew.wait()

    assert left == 0
    assert not any(os.path.exists(f"/proc/{worker}") for worker in before)  # noqa: ASYNC240, PTH110  of this machine


def workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
