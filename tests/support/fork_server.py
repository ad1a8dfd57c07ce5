"""Python processes that begin at once: children of a process that has already imported the package.

An interpreter of its own spends most of a second on imports. `python -m support.fork_server <socket>` imports once, and
forks a child for every request that it reads from the socket. The child runs a module or a file as its main program,
with the arguments, streams, folder and environment of the request; warnings are errors in it. For each child the server
writes the pid, and later the exit code, into a socket that came with the request.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# What most children need: a hub with each of its facets, and the command line.
_IMPORTED = (
    *("sharedmem.hub.composition", "sharedmem.sync", "sharedmem.faces.cli.app", "sharedmem.embedded.server"),
    *("sharedmem.memory.memories", "sharedmem.cache.semantic_cache", "sharedmem.decisions.decisions"),
    *("sharedmem.graph.graph", "sharedmem.graph.backends.redis", "sharedmem.graph.extraction.builtin_rules"),
    *("sharedmem.synthesis.synthesis", "sharedmem.providers.factory", "sharedmem.providers.local_embedders"),
    *("sharedmem.search.redisearch.index_router", "sharedmem.durable.tier", "sharedmem.durable.admin"),
    *("sharedmem.durable.sqlite_store", "sharedmem.redis.pooled", "pytest"),
)
_HEADER_BYTES = 4
_FDS = 4
"""The three streams, and the socket for the pid and the exit code."""


def send_request(requests: socket.socket, request: dict[str, Any], fds: list[int]) -> None:
    """Ask for a child."""
    body = json.dumps(request).encode()
    socket.send_fds(requests, [len(body).to_bytes(_HEADER_BYTES, "big")], fds)
    requests.sendall(body)


def _receive_request(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    header, fds, _, _ = socket.recv_fds(requests, _HEADER_BYTES, _FDS)
    if not header:
        return None
    request: dict[str, Any] = json.loads(requests.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL))
    return request, fds


class _Server:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._statuses: dict[int, socket.socket] = {}
        self._ended, self._waker = os.pipe()

    def serve(self) -> Callable[[], None] | None:
        """Fork children until the tests end; return in a child, with its main program."""
        for fd in (self._ended, self._waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._ended], [], [])
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended()
            if self._requests.fileno() in ready:
                received = _receive_request(self._requests)
                if received is None:
                    return None
                if (main := self._fork(*received)) is not None:
                    return main

    def _report_ended(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                with self._statuses.pop(pid) as reported, suppress(OSError):
                    reported.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _fork(self, request: dict[str, Any], fds: list[int]) -> Callable[[], None] | None:
        *streams, status_fd = fds
        pid = os.fork()
        if pid == 0:
            self._leave(status_fd)
            return _prepare_child(request, streams)
        for fd in streams:
            os.close(fd)
        self._statuses[pid] = socket.socket(fileno=status_fd)
        with suppress(OSError):
            self._statuses[pid].sendall(f"{pid}\n".encode())
        return None

    def _leave(self, status_fd: int) -> None:
        """In a child: forget what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (self._ended, self._waker, status_fd):
            os.close(fd)
        for one in (self._requests, *self._statuses.values()):
            one.close()


def _prepare_child(request: dict[str, Any], streams: list[int]) -> Callable[[], None]:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program, *words = request["program"]
    if program == "-m":
        module, *words = words
        sys.argv = [module, *words]
        return lambda: _run_module(module)
    sys.argv = [program, *words]
    sys.path.insert(0, str(Path(program).parent))
    return lambda: _run_file(program)


def _run_module(module: str) -> None:
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _run_file(file: str) -> None:
    runpy.run_path(file, run_name="__main__")


def _serve_until_the_tests_end(fd: int) -> None:
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that no child copies the pages of what it does not change
    with socket.socket(fileno=fd) as requests:
        main = _Server(requests).serve()
    if main is not None:
        main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)  # ending module by module takes longer than the work of many a child


if __name__ == "__main__":
    _serve_until_the_tests_end(int(sys.argv[1]))
