"""The client: synthesis and every other operation of a hub, from any machine, over HTTP.

    from sharedmem.client import SharedMemoryClient

    async with SharedMemoryClient("http://127.0.0.1:8420", token=...) as memory:
        task = await memory.add_memory(app_id="shop", user_id="mara", messages=[...])
        await memory.wait(task.task_id)
        hits = await memory.query_memory(app_id="shop", user_id="mara", query="where does she live?")

`sharedmem.client.sync` has the same without `await`. Receivers of webhooks check calls with `verify_webhook`.
"""

from sharedmem.client.client import SharedMemoryClient
from sharedmem.synthesis.webhook_signatures import verify_webhook

__all__ = ["SharedMemoryClient", "verify_webhook"]
