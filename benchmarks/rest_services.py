"""The processes of the benchmark of REST, and their CPU time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import Server

NAMESPACE = "bench"
EMBEDDER = "hashing"
_BARE = Path(__file__).with_name("rest_bare.py")
_SHAREDMEM = "from sharedmem.faces.cli import main; main()"
_STOPS_WITHIN_S = 15


class Services(Server):
    """The Redis server together with the services before it: their CPU is one sum, since a call uses one service.

    Args:
        redis: the server.
        processes: the services by name.
        addresses: the address of each.
    """

    def __init__(self, redis: Server, processes: Mapping[str, int], addresses: Mapping[str, str]) -> None:
        super().__init__(redis.urls["unix"], redis.urls["tcp"])
        self.addresses = addresses
        self._processes = processes

    def cpu_s(self) -> float:
        """Return the CPU seconds that all of them have used."""
        return super().cpu_s() + sum(_cpu_s(process) for process in self._processes.values())

    def keep_to(self, cores: set[int]) -> None:
        """Restrict all of them to these cores (Linux)."""
        super().keep_to(cores)
        for process in self._processes.values():
            for thread in Path(f"/proc/{process}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)


def _cpu_s(process: int) -> float:
    """CPU seconds of a process (Linux), to the nanosecond: ticks would be too coarse for a short round."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@contextmanager
def running_service(redis: Server, *, tokens: Path) -> Iterator[Services]:
    """Start our service, a second one with tokens, and the bare one, each in a process of its own."""
    url = redis.urls["unix"]
    ours = [sys.executable, "-c", _SHAREDMEM, "--json", "serve", "rest", "--port", "0"]
    with ExitStack() as stack:
        started = {
            "service": stack.enter_context(started_process(ours, url)),
            "tokens": stack.enter_context(started_process([*ours, "--tokens", str(tokens)], url)),
            "bare": stack.enter_context(started_process([sys.executable, str(_BARE), url], url)),
        }
        processes = {name: process for name, (process, _) in started.items()}
        services = Services(redis, processes, {name: where for name, (_, where) in started.items()})
        try:
            yield services
        finally:
            services.close()


@contextmanager
def started_process(command: Sequence[str], redis_url: str) -> Iterator[tuple[int, str]]:
    """Start a process that prints its address in its first line."""
    variables = {
        "SHAREDMEM_REDIS_URL": redis_url,
        "SHAREDMEM_NAMESPACE": NAMESPACE,
        "SHAREDMEM_EMBEDDER": EMBEDDER,
        "SHAREDMEM_DURABLE_URL": "none",
    }
    with subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{' '.join(command)} did not start; its output is above")
            yield process.pid, json.loads(line)["url"]
        finally:
            process.terminate()
            try:
                process.wait(_STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
