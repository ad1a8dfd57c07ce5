"""How complex a conversation is, from 1 to 5, by counting: a heuristic without any understanding."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.models import SynthesisMessage
from sharedmem.synthesis.agents.rules.sentences import carries_facts, conversation_sentences

_MANY_MESSAGES, _MANY_SENTENCES, _MANY_FACTS, _MANY_QUESTIONS = 6, 12, 6, 2


def rate_complexity(messages: Sequence[SynthesisMessage]) -> int:
    """Return 1, and one more for each: 6 messages, 12 sentences, 6 sentences with facts, 2 questions; or more of them.

    Instructions of the system do not count; facts are those of `carries_facts`.
    """
    sentences = conversation_sentences(messages)
    reached = (
        sum(message.role != "system" for message in messages) >= _MANY_MESSAGES,
        len(sentences) >= _MANY_SENTENCES,
        sum(carries_facts(each.text) for each in sentences) >= _MANY_FACTS,
        sum(each.is_question for each in sentences) >= _MANY_QUESTIONS,
    )
    return 1 + sum(reached)
