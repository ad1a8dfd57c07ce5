"""The summary of a conversation by rules: its own sentences, chosen so that no fact is lost.

A heuristic: statements of users and every sentence with a fact are kept word for word, and of the others the
sentences that `text.summary` finds central. Nothing is reworded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from sharedmem.models import Depth, SynthesisMessage
from sharedmem.synthesis.agents.rules import words
from sharedmem.synthesis.agents.rules.complexity import rate_complexity
from sharedmem.synthesis.agents.rules.sentences import (
    ConversationSentence,
    carries_facts,
    conversation_sentences,
    has_numbers,
    is_courtesy,
)
from sharedmem.synthesis.schemas import SummaryContext, SummaryMetadata, SummaryOutput, SummaryRetrieval
from sharedmem.text.analysis import STOP_WORDS, query_terms
from sharedmem.text.summary import summarize

MOST_CHARACTERS = 8_000
"""Most characters of a narrative. Beyond it the oldest sentences with facts stay; the messages are stored anyway."""
_FAST_CHARACTERS = 2_000
_TAGS, _KEYWORDS, _QUERIES, _FOLLOW_UPS = 8, 10, 4, 2
_LONGEST_QUERY = 200
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\u0e01-\u0e3a\u0e40-\u0e4e"
_WORD = re.compile(
    r"[\u4e00-\u9fff\u3005]+|[\u30a1-\u30fa\u30fc]+|[\uac00-\ud7a3]+|\d[\d.,:/-]*\d"
    rf"|[^\W_{_DENSE}](?:(?:[^\W{_DENSE}]|['\u2019.-])*[^\W_{_DENSE}])?"
)
_HAN = re.compile(r"[\u4e00-\u9fff\u3005]")
# Short words of Chinese, at which a run of ideographs can be split.
_SMALL = re.compile("[的是我你您他她它了在和也有不就都而及与着或这那个吗呢吧啊们一会好]")
_LONGEST_RUN = 3
_LONGEST_WORD = 60
_REFERENCE, _NUMBER = re.compile(r"\d"), re.compile(r"[\d\W]+")


def summarize_messages(messages: Sequence[SynthesisMessage]) -> SummaryOutput:
    """Return the whole summary: narrative, tags, keywords, questions it answers, open points."""
    sentences = conversation_sentences(messages)
    spoken = sum(message.role != "system" for message in messages)
    found = frequent_terms([each.text for each in sentences])
    questions = [each.text[:_LONGEST_QUERY] for each in sentences if each.is_question and each.role == "user"]
    return SummaryOutput(
        context=SummaryContext(
            available_data=f"{spoken} messages with {len(sentences)} sentences.",
            content_scope=", ".join(found[:_TAGS]),
        ),
        narrative=narrative(sentences),
        retrieval=SummaryRetrieval(
            tags=tuple(word.casefold() for word in found if not _NUMBER.fullmatch(word))[:_TAGS],
            keywords=_keywords(sentences, found),
            queries=tuple(dict.fromkeys([*questions, " ".join(found[:4])]))[:_QUERIES] if found else (),
        ),
        metadata=SummaryMetadata(
            depth=_depth(sentences), complexity=rate_complexity(messages), follow_ups=_follow_ups(sentences)
        ),
    )


def fast_summary(messages: Sequence[SynthesisMessage]) -> str:
    """Return only the narrative, in 2,000 characters or a little more."""
    return narrative(conversation_sentences(messages), characters=_FAST_CHARACTERS)


def narrative(sentences: Sequence[ConversationSentence], *, characters: int = MOST_CHARACTERS) -> str:
    """Return the sentences to keep, a line for each turn, after its speaker.

    Args:
        sentences: sentences of the conversation, oldest first.
        characters: about how long it may be; a longer first sentence is kept all the same.
    """
    worth = [each for each in _distinct(sentences) if not is_courtesy(each.text)] or _distinct(sentences)
    central = set(summarize([each.text for each in worth]).splitlines())
    needed = {each for each in worth if each.role == "user" or carries_facts(each.text)}
    wanted = [each for each in worth if each in needed or each.text in central]
    kept: set[ConversationSentence] = set()
    # Sentences that are only central come last, and questions after statements.
    for each in sorted(wanted, key=lambda one: (one not in needed, one.is_question, one.place)):
        if characters > len(each.text) or not kept:
            kept.add(each)
            characters -= len(each.text) + 1
    turns = groupby((each for each in worth if each in kept), key=lambda each: (each.place, each.speaker))
    return "\n".join(f"{speaker}: {' '.join(one.text for one in turn)}" for (_, speaker), turn in turns)


def frequent_terms(texts: Iterable[str]) -> list[str]:
    """Return the words that characterise texts, the most frequent first, in the spelling of their first use.

    Words of one stem count as one. Ideographs are written without blanks: runs of up to three are a word, longer ones
    give their overlapping pairs.
    """
    counts: Counter[str] = Counter()
    written: dict[str, str] = {}
    for word in (word for text in texts for word in _words(text)):
        stem = query_terms(word)
        if stem and not _is_empty_word(word):
            counts[stem[0]] += 1
            written.setdefault(stem[0], word)
    return [written[stem] for stem, _ in counts.most_common()]


def _words(text: str) -> Iterable[str]:
    for found in _WORD.findall(text):
        if not _HAN.match(found):
            yield found
            continue
        for run in _SMALL.split(found):
            pairs = (run[place : place + 2] for place in range(len(run) - 1))
            yield from pairs if len(run) > _LONGEST_RUN else (run,)


def _is_empty_word(word: str) -> bool:
    folded = word.casefold()
    return (
        not 2 <= len(word) <= _LONGEST_WORD
        or folded in words.EMPTY_WORDS
        or folded.replace("\u2019", "'").split("'")[0] in STOP_WORDS
    )


def _keywords(sentences: Sequence[ConversationSentence], found: Sequence[str]) -> tuple[str, ...]:
    """Return the keywords: names and numbers first, since searches contain them."""
    inside = {word for each in sentences for word in _words(each.text.partition(" ")[2])}
    exact = [word for word in found if _REFERENCE.search(word) or (word in inside and word[:1].isupper())]
    return tuple(dict.fromkeys([*exact, *found]))[:_KEYWORDS]


def _depth(sentences: Sequence[ConversationSentence]) -> Depth | None:
    if not sentences:
        return None
    numbers = sum(has_numbers(each.text) for each in sentences)
    if len(sentences) >= 12 or numbers >= 6:
        return "high"
    return "medium" if len(sentences) >= 4 or numbers >= 2 else "low"


def _follow_ups(sentences: Sequence[ConversationSentence]) -> tuple[str, ...]:
    """Return the latest promises, and questions after which no other role has spoken."""
    roles = {each.role for each in sentences}
    last = {role: max(each.place for each in sentences if each.role == role) for role in roles}

    def is_open(each: ConversationSentence) -> bool:
        return each.is_question and all(place < each.place for role, place in last.items() if role != each.role)

    def is_promise(each: ConversationSentence) -> bool:
        return bool(words.PROMISE.search(each.text)) and not words.DECIDED.search(each.text)

    found = [each.text for each in sentences if not is_courtesy(each.text) and (is_open(each) or is_promise(each))]
    return tuple(dict.fromkeys(found))[-_FOLLOW_UPS:]


def _distinct(sentences: Sequence[ConversationSentence]) -> list[ConversationSentence]:
    first: dict[tuple[str, str], ConversationSentence] = {}
    for each in sentences:
        first.setdefault((each.speaker, each.text.casefold()), each)
    return list(first.values())
