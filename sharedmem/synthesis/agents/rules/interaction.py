"""The interaction of user and assistant, by rules: evidence in words is quoted or counted, the rest stays empty.

A heuristic: it has word lists of some languages (`words`), and no understanding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sharedmem.models import SynthesisMessage
from sharedmem.synthesis.agents.rules import words
from sharedmem.synthesis.agents.rules.sentences import ConversationSentence, conversation_sentences, is_courtesy
from sharedmem.synthesis.schemas import (
    BehavioralProfile,
    EpisodicContext,
    EpisodicOutput,
    FutureGuidance,
    InteractionInsights,
    WhatFailed,
    WhatWorked,
)

_LIMITATION = "Rules have counted and quoted words, without any understanding."
_LONGEST_QUOTE = 240
_FEW_WORDS, _MANY_WORDS, _ENOUGH_MESSAGES = 8, 60, 3


def describe_interaction(messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
    """Return the observations; fields without evidence are empty."""
    sentences = conversation_sentences(messages)
    user = [each for each in sentences if each.role == "user"]
    return EpisodicOutput(
        context=EpisodicContext(
            available_data=_count_messages(messages),
            user_intent=_intent(user),
            analysis_limitation=_LIMITATION,
        ),
        what_worked=WhatWorked(strategies=_worked(sentences)[:3]),
        what_failed=WhatFailed(strategies=_failed(sentences)[:2], pattern=_errors(user)),
        behavioral_profile=BehavioralProfile(
            communication=_matching_signs(user, {"Wants it brief": words.BRIEF, "Wants details": words.DETAILED})
            or _pace(messages),
            learning=_matching_signs(
                user,
                {"Asks for steps": words.STEPS, "Asks for examples": words.EXAMPLES, "Asks for reasons": words.REASONS},
            ),
            problem_solving=_matching_signs(user, {"Tries alone first": words.TRIED}),
            decision_making=_matching_signs(user, {"Decides": words.DECIDED, "Hesitates": words.HESITATES}),
        ),
        interaction_insights=InteractionInsights(friction_points=_quotes(user, words.COMPLAINT, 1)),
        future_guidance=FutureGuidance(
            recommended_approaches=_matching_sentences(user, words.LIKES, unlike=words.DISLIKES)[:3],
            avoid_approaches=_matching_sentences(user, words.DISLIKES)[:2],
        ),
    )


def _count_messages(messages: Sequence[SynthesisMessage]) -> str:
    roles = [message.role for message in messages]
    counts = ", ".join(f"{roles.count(role)} of {role}" for role in dict.fromkeys(roles))
    return f"{len(roles)} messages: {counts}."


def _intent(user: Sequence[ConversationSentence]) -> str:
    stated = [each for each in user if not is_courtesy(each.text)]
    wishes = [each for each in stated if each.is_question or words.REQUEST.search(each.text)]
    return _quote((wishes or stated)[0]) if stated else ""


def _worked(sentences: Sequence[ConversationSentence]) -> tuple[str, ...]:
    """Return answers after which the user says that it works."""
    happy = (each for each in sentences if each.role == "user" and words.WORKED.search(each.text))
    return tuple(
        dict.fromkeys(
            _answers_before(sentences, each) or _quote(each) for each in happy if not words.FAILED.search(each.text)
        )
    )


def _failed(sentences: Sequence[ConversationSentence]) -> tuple[str, ...]:
    """Return answers after which the user says that it does not."""
    unhappy = (each for each in sentences if each.role == "user" and words.FAILED.search(each.text))
    return tuple(dict.fromkeys(filter(None, (_answers_before(sentences, each) for each in unhappy))))


def _answers_before(sentences: Sequence[ConversationSentence], each: ConversationSentence) -> str:
    """Return the last answer before it, with what the user says then; empty if there were only courtesies."""
    for one in reversed(sentences):
        if one.role == "assistant" and one.place < each.place:
            answer = [other for other in sentences if other.place == one.place]
            tried = [other for other in answer if not is_courtesy(other.text) and not words.PROMISE.search(other.text)]
            return f"{_quote(tried[0])} -> {_quote(each)}" if tried else ""
    return ""


def _errors(user: Sequence[ConversationSentence]) -> str:
    count = sum(bool(words.ERROR.search(each.text)) for each in user)
    return f"Errors are mentioned in {count} sentences." if count > 1 else ""


def _pace(messages: Sequence[SynthesisMessage]) -> str:
    lengths = [_length(message.content) for message in messages if message.role == "user"]
    if len(lengths) < _ENOUGH_MESSAGES:
        return ""
    mean = round(sum(lengths) / len(lengths))
    if _FEW_WORDS < mean < _MANY_WORDS:
        return ""
    return f"Writes {'briefly' if mean <= _FEW_WORDS else 'at length'}: {mean} words a message in {len(lengths)}."


def _length(text: str) -> int:
    """Return words; in scripts without blanks, two characters count as one."""
    return max(len(text.split()), len("".join(text.split())) // 8)


def _matching_signs(user: Sequence[ConversationSentence], signs: dict[str, re.Pattern[str]]) -> str:
    return " ".join(f"{sign}: {quote}" for sign, pattern in signs.items() if (quote := _quotes(user, pattern, 1)))


def _quotes(user: Sequence[ConversationSentence], pattern: re.Pattern[str], most: int) -> str:
    return " ".join(_matching_sentences(user, pattern)[:most])


def _matching_sentences(
    user: Sequence[ConversationSentence], pattern: re.Pattern[str], *, unlike: re.Pattern[str] | None = None
) -> tuple[str, ...]:
    found = (each for each in user if pattern.search(each.text) and not (unlike and unlike.search(each.text)))
    return tuple(dict.fromkeys(_quote(each) for each in found))


def _quote(each: ConversationSentence) -> str:
    if len(each.text) <= _LONGEST_QUOTE:
        return each.text
    head = each.text[: _LONGEST_QUOTE - 1]
    return f"{head.rpartition(' ')[0] or head}…"
