"""The client of Redis with a span for each call inside of another span (setting `trace_redis`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from sharedmem.redis.client import RedisClient
from sharedmem.redis.replies import Argument, Command, LostError, Reply
from sharedmem.redis.scripts.loader import by_digest
from sharedmem.runtime.spans import AttributeValue, is_in_span, work_span

_NO_SPAN: AbstractContextManager[object] = nullcontext()


class TracedRedisClient(RedisClient):
    """A client whose calls are spans by the conventions of databases; keys and values are left out.

    A call outside of a span, such as the renewal of a lease, creates none: it would be a trace of its own.
    """

    async def call(self, *args: Argument) -> Reply:
        """As `RedisClient.call`."""
        with _span((args,)):
            return await super().call(*args)

    async def call_aside(self, *args: Argument) -> Reply:
        """As `RedisClient.call_aside`."""
        with _span((args,)):
            return await super().call_aside(*args)

    async def call_noting(self, losses: list[LostError], args: Command, *, aside: bool = False) -> Reply:
        """As `RedisClient.call_noting`."""
        with _span((args,)):
            return await super().call_noting(losses, args, aside=aside)

    async def read_many(self, commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        """As `RedisClient.read_many`."""
        with _span(commands):
            return await super().read_many(commands, aside=aside)


def _span(commands: Sequence[Command]) -> AbstractContextManager[object]:
    """Return the span of one command, or of a transaction."""
    if not commands or not is_in_span():
        return _NO_SPAN
    operation = _text(commands[0][0])
    attributes: dict[str, AttributeValue] = {"db.system.name": "redis"}
    name = operation
    if len(commands) > 1:
        is_uniform = all(command[0] == commands[0][0] for command in commands)
        name = operation = f"MULTI {operation}" if is_uniform else "MULTI"
        attributes["db.operation.batch.size"] = len(commands)
    elif operation == "EVALSHA" and (script := by_digest().get(_text(commands[0][1]))) is not None:
        attributes["db.stored_procedure.name"] = script.name
        name = f"{operation} {script.name}"
    attributes["db.operation.name"] = operation
    return work_span(name, attributes, role="client")


def _text(argument: Argument) -> str:
    return argument.decode() if isinstance(argument, bytes) else str(argument)
