"""A team's memory survives its Redis: in the middle of a workflow the server loses all data, and the work continues.

python examples/survivor/redis_is_lost.py            with a durable tier, as the embedded server has it by default
python examples/survivor/redis_is_lost.py --without  the same without one: what Redis loses is lost
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile

from redis.asyncio import Redis

from sharedmem import Hub, Settings, SharedMemoryStore

STEPS = ("collect", "compare", "write")


async def work(workflow: SharedMemoryStore, chat: SharedMemoryStore, step: str) -> None:
    """Do one agent's part: append a message, and record that it is done."""
    await chat.append("team", f"{step}: done")
    await workflow.update("report", lambda done: [*(done or []), step])


async def main(*, with_tier: bool) -> int:
    """Do half of the work, lose Redis, do the rest; return 0 if nothing is missing."""
    with tempfile.TemporaryDirectory(prefix="survivor-") as folder:
        chosen = {} if with_tier else {"durable_url": "none"}
        async with Hub.open(settings=Settings(data_dir=folder, **chosen)) as hub:
            workflow, chat = hub.store("workflow"), hub.store("chat")
            await hub.store("knowledge").write("sources", {"almanac": 2026, "buoys": ["B-17", "B-4"]})
            plan = await hub.store("team").decisions.save_plan("report", "tides", "PUBLISH", 0.9, "three sources agree")
            await work(workflow, chat, STEPS[0])
            if with_tier:
                await hub.durable.drain()  # it happens by itself within moments; here the demo waits for it

            async with Redis.from_url(hub.url) as server:
                await server.flushall()
            print("Redis has lost everything.")

            for step in STEPS[1:]:
                await work(workflow, chat, step)
            print("steps done:", await workflow.read("report"))
            print("chat:", await chat.read_list("team"))
            print("sources:", await hub.store("knowledge").read("sources"))
            again = await hub.store("team").decisions.save_if_new(
                "report", "tides", "PUBLISH", 0.9, "three sources agree"
            )
            print("the plan of before", "is known" if not again.saved else "is forgotten, and made a second time", plan)
            return 0 if await workflow.read("report") == list(STEPS) and not again.saved else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A team's memory outlives its Redis.")
    parser.add_argument("--without", action="store_true", help="without a durable tier: see what is lost")
    sys.exit(asyncio.run(main(with_tier=not parser.parse_args().without)))
