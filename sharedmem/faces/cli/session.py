"""One command's way to a store: from the global options over the settings to an operation, and the log meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer

from sharedmem.api.operation import find_operation
from sharedmem.config import Settings
from sharedmem.errors import ConfigError
from sharedmem.hub import Hub
from sharedmem.runtime.log_output import LogOutput
from sharedmem.store import SharedMemoryStore

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Options:
    """What was said before or after any command."""

    url: str | None = None
    namespace: str | None = None
    actor: str | None = None
    json: bool = False
    data_dir: Path | None = None

    def settings(self) -> Settings:
        """The settings with these options on top; the log of the command begins, if they ask for one.

        Raises:
            ConfigError: one of them is wrong.
        """
        settings = Settings.load(redis_url=self.url, namespace=self.namespace, actor=self.actor, data_dir=self.data_dir)
        start_log(settings)
        return settings


def options_of(context: typer.Context) -> Options:
    """The global options of the command under way."""
    options = context.obj
    assert isinstance(options, Options)
    return options


def without_metrics(settings: Settings) -> Settings:
    """Return the settings without `metrics_port`: a command must not take the port of the application beside it."""
    return settings if settings.metrics_port is None else settings.replace(metrics_port=None)


def with_operator_access(settings: Settings) -> Settings:
    """The settings to open a hub with: who names no actor is the operator of the place, and may do everything."""
    chosen = without_metrics(settings)
    return chosen.replace(access="open") if chosen.actor is None else chosen


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[tuple[Hub, SharedMemoryStore]]:
    """The hub, and the store of the chosen namespace and actor.

    Raises:
        UnavailableError, UnsupportedError, ConfigError: as entering a `Hub`.
        InvalidError: the namespace or actor is no name.
    """
    async with Hub.open(settings=with_operator_access(settings)) as hub:
        yield hub, hub.store(settings.namespace, actor=settings.actor)


def perform(options: Options, operation: str, /, **fields: Any) -> Any:
    """Run an operation, by name, with the fields of its request; raises what the store raises.

    Raises:
        InvalidError: a field is not as the operation takes it.
        UnsupportedError: the operation needs an extra that is missing.
    """
    found = find_operation(operation)
    request = found.request(fields)
    return use_store(options, lambda store: found.run(store, request))


def use_hub(options: Options, work: Callable[[Hub, str], Awaitable[Answer]]) -> Answer:
    """Open the hub, await `work` on it and the name of the chosen namespace, and close it; raises what that raises."""
    settings = options.settings()

    async def run() -> Answer:
        async with open_store(settings) as (hub, _):
            return await work(hub, settings.namespace)

    return asyncio.run(run())


def use_store(options: Options, work: Callable[[SharedMemoryStore], Awaitable[Answer]]) -> Answer:
    """Open the store, await `work` on it, and close the hub; raises what the store raises."""

    async def run() -> Answer:
        async with open_store(settings) as (_, store):
            return await work(store)

    settings = options.settings()
    return asyncio.run(run())


# -- the log of the process -----------------------------------------------------------------------


_opened: list[LogOutput] = []
"""The log of this process, if it has one."""


def start_log(settings: Settings, *, is_service: bool = False) -> None:
    """Write the log of the library until `stop_log`; does nothing if it is written already, or nothing asks for it.

    Args:
        settings: level, form and file.
        is_service: whether warnings are written if the settings say nothing.

    Raises:
        ConfigError: the file cannot be opened.
    """
    file = settings.log_file
    level = settings.log_level or ("warning" if is_service or file is not None else None)
    if level is None or _opened:
        return
    try:
        _opened.append(LogOutput(level, settings.log_format, file))
    except OSError as error:
        problem = f"{str(file)!r} cannot be opened: {error.strerror}; create its folder, or name another file"
        raise ConfigError("log_file", settings.origin("log_file"), problem) from error


def stop_log() -> None:
    """Stop to write the log."""
    while _opened:
        _opened.pop().close()
