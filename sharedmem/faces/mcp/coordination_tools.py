"""Tools of the profile `coordination`: shared values with versions, tasks of queues, and who is present."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from sharedmem.errors import InvalidError
from sharedmem.faces.bodies import json_bytes
from sharedmem.faces.mcp.pages import PageCursor, cut_text, fit, tokens_of
from sharedmem.faces.mcp.tool import ToolCall, ToolKind
from sharedmem.models import Record

Key = Annotated[str, Field(description="A plain name such as `plan`, shared by all agents of the team.")]
Queue = Annotated[str, Field(description="Name of the queue.")]


class SharedValue(Record):
    """A shared value with its version."""

    key: str
    value: Any = None
    version: int
    actor: str
    updated_at: datetime | None = None
    expires_in: float | None = None
    """Seconds."""
    part: str | None = None
    """A part of the value as JSON text, in place of `value` where the whole is too long for an answer."""
    next_cursor: str | None = None
    """Pass it as `cursor` for the next part; absent on the last one."""


class Written(Record):
    """The result of `write_value`."""

    key: str
    version: int


class TaskView(Record):
    """A task for this agent."""

    id: str
    token: int
    """Give it back to `finish_task`."""
    payload: Any
    attempt: int
    put_by: str
    error: str | None = None
    """Why the attempt before failed."""


class TaskOffer(Record):
    """The result of `claim_task`."""

    task: TaskView | None = None
    """Absent while there is nothing to do."""
    visibility: float
    """Seconds within which the task has to be finished before another agent can claim it."""


class TaskFinished(Record):
    """The result of `finish_task`."""

    id: str
    state: str


class PresenceView(Record):
    """An agent that is at work."""

    actor: str
    role: str
    info: Any = None
    since: datetime
    last_seen: datetime


class PresentActors(Record):
    """Who is at work."""

    actors: list[PresenceView]
    omitted: int = 0
    """How many more there are than fit into the answer."""


async def read_value(
    ctx: ToolCall,
    key: Key,
    cursor: Annotated[str | None, Field(description="`next_cursor` of the answer before, for long values.")] = None,
) -> SharedValue:
    """Read a value that the agents of a team share, with its version for `write_value`."""
    entry = await ctx.run("value.entry", shared=True, key=key)
    told = {
        "key": entry.key,
        "version": entry.version,
        "actor": entry.actor,
        "updated_at": entry.updated,
        "expires_in": entry.ttl,
    }
    at = PageCursor.of_part(cursor, entry.version)
    text = json_bytes(entry.value).decode()
    budget = ctx.options.max_tokens * 3 // 4
    if not at.skip and tokens_of(entry.value) <= budget:
        return SharedValue(**told, value=entry.value)
    part = cut_text(text[at.skip :], tokens=budget // 2)  # quotes inside of it are escaped once more
    end = at.skip + len(part)
    behind = str(PageCursor(end, str(entry.version))) if end < len(text) else None
    return SharedValue(**told, part=part, next_cursor=behind)


async def write_value(
    ctx: ToolCall,
    key: Key,
    value: Annotated[Any, Field(description="Any JSON value.")],
    if_version: Annotated[
        int | None, Field(description="Write only if it still has the version that was read; 0: only if it is new.")
    ] = None,
    expires_in: Annotated[float | None, Field(gt=0, description="Seconds until it is deleted; default: never.")] = None,
) -> Written:
    """Write a value that the agents of a team share. With `if_version` nothing of another agent is overwritten."""
    version = await ctx.run("value.write", shared=True, key=key, value=value, if_version=if_version, ttl=expires_in)
    return Written(key=key, version=version)


async def claim_task(
    ctx: ToolCall,
    queue: Queue,
    wait: Annotated[float, Field(ge=0, description="Seconds to wait for a task.")] = 0.0,
    visibility: Annotated[
        float, Field(gt=0, description="Seconds within which it has to be finished before another agent gets it.")
    ] = 300.0,
) -> TaskOffer:
    """Take the next task of a queue: no other agent has it meanwhile. End it with `finish_task`."""
    wait = min(wait, ctx.options.longest_wait_s)
    task = await ctx.run("queue.claim", queue=queue, wait=wait, visibility=visibility)
    if task is None:
        return TaskOffer(visibility=visibility)
    claimed = TaskView(
        id=task.id,
        token=task.token,
        payload=task.payload,
        attempt=task.attempt,
        put_by=task.put_by,
        error=task.error,
    )
    return TaskOffer(task=claimed, visibility=visibility)


async def finish_task(
    ctx: ToolCall,
    queue: Queue,
    id: Annotated[str, Field(description="Id of the claimed task.")],  # noqa: A002  # as in the answer
    token: Annotated[int, Field(description="Token of the claimed task.")],
    result: Annotated[Any, Field(description="Any JSON value, if it succeeded.")] = None,
    error: Annotated[str | None, Field(description="Why it failed, if it did.")] = None,
    retry: Annotated[bool, Field(description="Whether a failed task is tried again.")] = True,
) -> TaskFinished:
    """End a task that this agent has claimed: with its result, or with the reason why it failed."""
    if error is None:
        await ctx.run("queue.ack", queue=queue, id=id, token=token, result=result)
        return TaskFinished(id=id, state="done")
    if result is not None:
        raise InvalidError("result", result, "give a result or an error, not both")
    if retry:
        again = await ctx.run("queue.retry", queue=queue, id=id, token=token, error=error)
        return TaskFinished(id=id, state="retried" if again else "dead")
    await ctx.run("queue.fail", queue=queue, id=id, token=token, error=error)
    return TaskFinished(id=id, state="dead")


async def who_is_here(
    ctx: ToolCall, role: Annotated[str | None, Field(description="Only agents with this role.")] = None
) -> PresentActors:
    """List the agents that are at work now."""
    present = await ctx.run("presence.list", role=role)
    found = [
        PresenceView(actor=one.actor, role=one.role, info=one.info, since=one.since, last_seen=one.last_seen)
        for one in present
    ]
    count = fit(found, tokens=ctx.options.max_tokens)
    return PresentActors(actors=found[:count], omitted=len(found) - count)


COORDINATION_TOOLS = (
    (read_value, ToolKind("Read a shared value", "coordination", at_once=True)),
    (who_is_here, ToolKind("Who is here", "coordination", at_once=True)),
    (write_value, ToolKind("Write a shared value", "coordination", writes=True, destructive=True, at_once=True)),
    (claim_task, ToolKind("Claim a task", "coordination", writes=True, idempotent=False)),
    (finish_task, ToolKind("Finish a task", "coordination", writes=True, idempotent=False, at_once=True)),
)
