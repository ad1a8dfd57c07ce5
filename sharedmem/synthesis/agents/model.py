"""Agents that ask a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sharedmem.errors import InvalidError
from sharedmem.models import ConversationSummary, Note, Resolution, SynthesisMessage
from sharedmem.providers.chunks import count_tokens
from sharedmem.providers.protocol import ChatMessage, LanguageModel
from sharedmem.synthesis.agents import prompts
from sharedmem.synthesis.protocol import Consolidation
from sharedmem.synthesis.schemas import (
    AnswerT,
    ConflictOutput,
    ConflictVerdict,
    ConsolidatedOutput,
    EpisodicOutput,
    SummaryOutput,
    has_words,
    require_content,
)

MOST_TOKENS = 60_000
"""Tokens of one question. A longer one is refused rather than cut: what is cut off nobody has read."""
_FAST_TOKENS = 600


class ModelAgents:
    """Synthesis by a language model.

    An answer that is not valid JSON is repaired (`schemas`). If that fails, or the answer is empty, the model is asked
    once more; after that `InvalidError` is raised, and the caller goes on without.

    Args:
        model: answers the prompts.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    @property
    def is_offline(self) -> bool:
        """It is not the heuristic."""
        return False

    async def episodic(self, messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
        """As `Agents.episodic`. One question, two if the first answer is of no use."""
        return await self._complete(prompts.episodic(messages), EpisodicOutput)

    async def summarizer(self, messages: Sequence[SynthesisMessage]) -> SummaryOutput:
        """As `Agents.summarizer`. One question, two if the first answer is of no use."""
        return await self._complete(prompts.summary(messages), SummaryOutput)

    async def fast_summary(self, messages: Sequence[SynthesisMessage]) -> ConversationSummary:
        """As `Agents.fast_summary`. One question, two if the first answer is empty."""
        asked = _check_prompt_size(prompts.fast_summary(messages))
        for _ in range(2):
            text = (await self._model.write(asked, max_tokens=_FAST_TOKENS)).strip()
            if has_words(text):
                return ConversationSummary(summary=text)
        raise InvalidError("answer", text, f"{self.name} gave no summary, twice; ask anew, or do without")

    async def judge(self, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        """As `Agents.judge`. One question, two if the first answer is of no use; none when there is nothing to judge.

        Raises:
            InvalidError: it names a note that it was not given, or one of them twice.
        """
        if not linked:
            return []
        old = {f"m{place}": note for place, note in enumerate(linked, start=1)}
        answer = await self._complete(prompts.judge(new, old), ConflictOutput)
        verdicts = _by_handle(answer, old)
        return [self._resolution(note, verdicts.get(handle)) for handle, note in old.items()]

    async def consolidate(self, new: Note, old: Sequence[Note]) -> Consolidation:
        """As `Agents.consolidate`. One question, two if the first answer is of no use."""
        notes = sorted([*old, new], key=lambda note: (note.created_at, note.id == new.id, note.id))
        answer = await self._complete(prompts.consolidate(notes), ConsolidatedOutput)
        return Consolidation(answer.consolidated_memory.natural_memory_note.strip(), self.name)

    async def _complete(self, asked: Sequence[ChatMessage], form: type[AnswerT]) -> AnswerT:
        # Checked again: not every model reads its answers with the form's own reader.
        return require_content(await self._model.complete(_check_prompt_size(asked), form))

    def _resolution(self, note: Note, verdict: ConflictVerdict | None) -> Resolution:
        if verdict is None:
            reason = f"{self.name} said nothing of this note, so it stays as it is"
            return Resolution(
                memory_id=note.id, operation="SKIP", confidence_score=0, reasoning=reason, decided_by="fallback"
            )
        return Resolution(
            memory_id=note.id,
            operation=verdict.operation,
            confidence_score=verdict.confidence_score,
            reasoning=verdict.reasoning,
            decided_by=self.name,
        )

    def __repr__(self) -> str:
        return f"<ModelAgents asking {self.name}>"


def _by_handle(answer: ConflictOutput, old: Mapping[str, Note]) -> dict[str, ConflictVerdict]:
    verdicts: dict[str, ConflictVerdict] = {}
    for verdict in answer.resolutions:
        handle = verdict.memory_id.strip().casefold().removeprefix("older note ")
        if handle not in old:
            raise InvalidError("memory_id", verdict.memory_id, f"it was invented; there are {', '.join(old)}")
        if handle in verdicts:
            raise InvalidError("memory_id", verdict.memory_id, "there are two verdicts on it; one is asked for")
        verdicts[handle] = verdict
    return verdicts


def _check_prompt_size(asked: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    tokens = sum(count_tokens(message.content) for message in asked)
    if tokens <= MOST_TOKENS:
        return asked
    advice = f"a model is asked {MOST_TOKENS:,} at most, and nothing is cut off; give less text at a time"
    raise InvalidError("tokens", tokens, advice)
