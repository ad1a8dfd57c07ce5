"""Tools of the profile `notes`: messages that agents leave for each other, and decisions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from sharedmem.faces.mcp.pages import fit
from sharedmem.faces.mcp.tool import ToolCall, ToolKind
from sharedmem.models import PlanRecord, Record

Channel = Annotated[str, Field(description="Name of the channel, without blanks and colons.")]


class Posted(Record):
    """The result of `post_message`."""

    channel: str
    messages: int
    """How many messages the channel has now."""


class PostedMessage(Record):
    """A message."""

    actor: str
    at: datetime
    content: Any


class MessagesFound(Record):
    """Messages of a channel, oldest first."""

    messages: list[PostedMessage]
    next_cursor: str | None = None
    """Pass it as `after` to read on, now or later; absent if there is no message."""
    has_more: bool = False


class Decision(Record):
    """A decision."""

    id: str
    topic: str
    action: str
    reasoning: str
    confidence: float


class DecisionSaved(Record):
    """The result of `save_decision`."""

    saved: bool
    """False if the same was decided just before: then `decision` is the earlier one."""
    decision: Decision


async def post_message(
    ctx: ToolCall,
    channel: Channel,
    content: Annotated[Any, Field(description="Text, or any JSON value.")],
) -> Posted:
    """Leave a message for other agents. It stays in the channel, and each agent reads it when it likes."""
    return Posted(channel=channel, messages=await ctx.run("episode.append", session=channel, event=content))


async def read_messages(
    ctx: ToolCall,
    channel: Channel,
    after: Annotated[str | None, Field(description="`next_cursor` of the answer before; default: the oldest.")] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="Most messages of the answer.")] = 20,
) -> MessagesFound:
    """Read the messages of a channel, from the oldest on, or what came after the last answer."""
    events = await ctx.run("episode.events", session=channel, since=after, limit=limit + 1)
    found = [PostedMessage(actor=event.actor, at=event.at, content=event.event) for event in events]
    count = min(fit(found, tokens=ctx.options.max_tokens), limit)
    cursor = events[count - 1].cursor if count else after
    return MessagesFound(messages=found[:count], next_cursor=cursor, has_more=count < len(found))


async def save_decision(
    ctx: ToolCall,
    topic: Annotated[str, Field(description="What the decision is about, such as a customer, file or symbol.")],
    action: Annotated[str, Field(description="What is to be done, in a word or two.")],
    reasoning: Annotated[str, Field(description="Why.")],
    confidence: Annotated[float, Field(ge=0, le=1, description="How sure you are.")] = 1.0,
    session: Annotated[str, Field(description="The project or session that it belongs to.")] = "main",
) -> DecisionSaved:
    """Record a decision, unless the same was decided in the last five minutes."""
    result = await ctx.run(
        "plan.save_if_new", session=session, symbol=topic, action=action, confidence=confidence, reasoning=reasoning
    )
    return DecisionSaved(saved=result.saved, decision=_view(result.plan))


TOOLS = (
    (read_messages, ToolKind("Read messages", "notes")),
    (post_message, ToolKind("Post a message", "notes", writes=True, idempotent=False)),
    (save_decision, ToolKind("Save a decision", "notes", writes=True)),
)


def _view(plan: PlanRecord) -> Decision:
    return Decision(
        id=plan.plan_hash,
        topic=plan.symbol,
        action=plan.action,
        reasoning=plan.reasoning,
        confidence=plan.confidence,
    )
