"""What was said, sentence by sentence, and which of it must not get lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.models import SynthesisMessage
from sharedmem.providers.sentences import LONGEST_SENTENCE, sentences_of
from sharedmem.synthesis.agents import rule_words as words

_END = re.compile(r"(?<=[.!?…])\s+|(?<=[\u3002\uff01\uff1f])")
_DIGIT_OR_SIGN = re.compile(r"[\d@€$£¥%]|\w://|[\"“„«「『`].{1,200}[\"”“»」』`]")
_NAME = re.compile(r"(?<=[^.!?:\s]\s)[\"'“„(]?[^\W\d_]*[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]|\b[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]{2,}|[a-zß-öø-ÿ][A-Z]")
_LETTER = re.compile(r"[^\W\d_]")
_MOST_WORDS_OF_COURTESY = 9


class Said(NamedTuple):
    """A sentence of a conversation."""

    place: int
    """Of its message."""
    role: str
    speaker: str
    text: str

    @property
    def is_question(self) -> bool:
        """Whether it asks."""
        return bool(words.QUESTION.search(self.text))


def said_in(messages: Sequence[SynthesisMessage]) -> list[Said]:
    """The sentences of a conversation in their order, whole; instructions of the system are not part of it."""
    spoken = [(place, message) for place, message in enumerate(messages) if message.role != "system"]
    return [
        Said(place, message.role, _speaker(message), text)
        for place, message in spoken or list(enumerate(messages))
        for text in whole_sentences(message.content)
    ]


def whole_sentences(text: str) -> list[str]:
    """The sentences of a text, none of them cut short."""
    found: list[str] = []
    for line in text.splitlines():
        if len(line) <= LONGEST_SENTENCE:
            found += sentences_of(line)
        else:
            found += filter(None, (" ".join(piece.split()) for piece in _END.split(line)))
    return found


def is_courtesy(text: str) -> bool:
    """Whether it only greets, thanks or agrees."""
    if _DIGIT_OR_SIGN.search(text) or len(text.split()) > _MOST_WORDS_OF_COURTESY or len(text) > 60:
        return False
    return bool(words.COURTESY.match(text.strip())) and not words.REQUEST.search(text) and not _NAME.search(text)


def carries_facts(text: str) -> bool:
    """Whether there is a number, an address, a name, something quoted or a preference in it.

    Where letters have no capitals, names cannot be told from other words: there every sentence counts.
    """
    if _DIGIT_OR_SIGN.search(text) or _NAME.search(text):
        return True
    if words.LIKES.search(text) or words.DISLIKES.search(text):
        return True
    letters = "".join(_LETTER.findall(text))
    return bool(letters) and letters.upper() == letters.lower()


def _speaker(message: SynthesisMessage) -> str:
    return " ".join((message.name or "").split()) or message.role.capitalize()
