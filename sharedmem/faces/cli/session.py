"""One command's way to a store: from the global options over the settings to an operation."""

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
from sharedmem.faces.cli.process_log import start_log
from sharedmem.hub import Hub
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
