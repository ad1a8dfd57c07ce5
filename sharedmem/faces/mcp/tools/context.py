"""Tool of the profile `context`: what an agent should know now, from memory, graph and notes at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from sharedmem.faces.mcp.tool import ToolCall, ToolKind
from sharedmem.models import Record

_FEWEST_TOKENS = 100


class ContextRecalled(Record):
    """What is known, as text."""

    text: str
    """Stored records, quoted as data; empty if nothing that is known has to do with the question."""
    tokens: int
    left_out: int = 0
    """How many more records had no room."""
    degraded: list[str] | None = None
    """What could not be searched in full, and why."""


async def recall_context(
    ctx: ToolCall,
    question: Annotated[str, Field(description="What you have to do or answer, in everyday language.")],
    tokens: Annotated[int, Field(ge=_FEWEST_TOKENS, description="Most tokens of the answer.")] = 1500,
    user_id: Annotated[str | None, Field(description="Only what concerns this person.")] = None,
    as_of: Annotated[AwareDatetime | None, Field(description="What was known and true then; default: now.")] = None,
) -> ContextRecalled:
    """Say what is known that helps with a task: memories, facts and notes in one text. Call it before you begin."""
    # The text is in a JSON string, whose quotes are escaped once more.
    most = max(ctx.options.max_tokens // 2, _FEWEST_TOKENS)
    known = await ctx.run("knowledge.recall", question=question, tokens=min(tokens, most), user_id=user_id, as_of=as_of)
    return ContextRecalled(
        text=known.text, tokens=known.tokens, left_out=known.left_out, degraded=list(known.degraded) or None
    )


TOOLS = ((recall_context, ToolKind("Recall what is known", "context")),)
