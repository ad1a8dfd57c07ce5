"""Agents that follow rules: no model, no network, the same answer every time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from sharedmem.models import ConversationSummary, Note, Resolution, SynthesisMessage
from sharedmem.synthesis.agents.rules.conflicts import judge_note, merge_notes, report_merge
from sharedmem.synthesis.agents.rules.interaction import describe_interaction
from sharedmem.synthesis.agents.rules.summary import fast_summary, summarize_messages
from sharedmem.synthesis.protocol import Consolidation
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput

T = TypeVar("T")

_AT_ONCE_CHARACTERS = 20_000


class RuleAgents:
    """Synthesis by heuristics.

    They quote, count and compare words, and have no understanding: a note contains original sentences, a verdict
    names its rule, a successor has every sentence of the notes that it replaces. They never raise `InvalidError`.
    """

    @property
    def name(self) -> str:
        """`rules`."""
        return "rules"

    @property
    def is_offline(self) -> bool:
        """True: these agents follow rules."""
        return True

    async def episodic(self, messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
        """Run `Agents.episodic`: quotes and counts; fields without evidence are empty."""
        return await _run_in_thread_if_long(describe_interaction, messages)

    async def summarizer(self, messages: Sequence[SynthesisMessage]) -> SummaryOutput:
        """Run `Agents.summarizer`: sentences of the conversation, with all sentences that contain facts."""
        return await _run_in_thread_if_long(summarize_messages, messages)

    async def fast_summary(self, messages: Sequence[SynthesisMessage]) -> ConversationSummary:
        """Run `Agents.fast_summary`: the same summary, shorter, with tags and keywords."""
        found = await _run_in_thread_if_long(summarize_messages, messages)
        return ConversationSummary(
            summary=await _run_in_thread_if_long(fast_summary, messages),
            tags=found.retrieval.tags,
            keywords=found.retrieval.keywords,
            semantic_queries=found.retrieval.queries,
            follow_ups=found.metadata.follow_ups,
            depth=found.metadata.depth,
            offline=True,
        )

    async def judge(self, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        """Run `Agents.judge`, pair by pair."""
        return [judge_note(new, old) for old in linked]

    async def consolidate(self, new: Note, old: Sequence[Note]) -> Consolidation:
        """Run `Agents.consolidate`: all sentences, oldest note first, each once."""
        notes = sorted([*old, new], key=lambda note: (note.created_at, note.id == new.id, note.id))
        merged = merge_notes(notes)
        return Consolidation(merged, self.name, report_merge(notes, merged))

    def __repr__(self) -> str:
        return "<RuleAgents: heuristics, offline>"


async def _run_in_thread_if_long(
    work: Callable[[Sequence[SynthesisMessage]], T], messages: Sequence[SynthesisMessage]
) -> T:
    if sum(len(message.content) for message in messages) <= _AT_ONCE_CHARACTERS:
        return work(messages)
    # Long conversations take a second, which must not block the event loop.
    return await asyncio.to_thread(work, messages)
