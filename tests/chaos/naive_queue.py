"""The control of the queues: a plain Redis list, from which workers take a task before they have done it.

`python -m chaos.naive_queue <url> <visibility in s> <longest work in s>` works until it is killed, and prints what
`support.queue_processes` prints.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import suppress

from redis import Redis
from redis.exceptions import RedisError
from support.redis_process import RedisProcess

_TASKS, _TOKENS = "tasks", "tokens"
_PAUSE_S = 0.02


class NaiveQueue:
    """The side of who puts.

    Args:
        server: where the list is.
    """

    def __init__(self, server: RedisProcess) -> None:
        self._server = server

    def put(self, batch: int, count: int) -> list[str]:
        """Put so many tasks, tried again until the server takes them; returns their ids."""
        tasks = [f"{batch}-{number}" for number in range(count)]
        for task in tasks:
            while not self._has_put(task):
                time.sleep(_PAUSE_S)
        return tasks

    def is_empty(self) -> bool:
        """Whether all tasks were taken."""
        with suppress(RedisError, OSError), self._server.client() as client:
            return not client.exists(_TASKS)
        return False

    def _has_put(self, task: str) -> bool:
        with suppress(RedisError, OSError), self._server.client() as client:
            return bool(client.lpush(_TASKS, task))
        return False


def _main(url: str, _: str, longest_work_s: str) -> None:
    with Redis.from_url(url, protocol=2, decode_responses=True) as client:
        while True:
            try:
                task, token = client.rpop(_TASKS), client.incr(_TOKENS)
            except (RedisError, OSError):
                time.sleep(_PAUSE_S)
                continue
            if not isinstance(task, str):
                time.sleep(_PAUSE_S)
                continue
            _print_line("claimed", task, token)
            time.sleep(random.uniform(0, float(longest_work_s)))  # how long work takes
            _print_line("finishing", task, token)
            _print_line("done", task, token)


def _print_line(what: str, task: str, token: object) -> None:
    os.write(1, f"{what} {task} {token} 1\n".encode())


if __name__ == "__main__":
    _main(*sys.argv[1:])
