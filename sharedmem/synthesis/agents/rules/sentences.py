"""Split a conversation into sentences, and find the ones that contain facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.models import SynthesisMessage
from sharedmem.synthesis.agents.rules import words
from sharedmem.text.analysis import STOP_WORDS
from sharedmem.text.sentences import split_sentences

_DIGIT_OR_SIGN = re.compile(r"[\d@€$£¥%]|\w://|[\"“„«「『`].{1,200}[\"”“»」』`]")
_NAME = re.compile(r"(?<=[^.!?:\s]\s)[\"'“„(]?[^\W\d_]*[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]|\b[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]{2,}|[a-zß-öø-ÿ][A-Z]")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"\w+")
_LONGEST_COURTESY = 80
# A text without an end of sentence within a thousand characters is a log or a dump: it is split at the next blank.
_PIECE = re.compile(r"\S.{0,998}\S(?=\s|$)|\S{1,1000}")


class ConversationSentence(NamedTuple):
    """A sentence of a conversation."""

    place: int
    """Position of its message."""
    role: str
    speaker: str
    text: str

    @property
    def is_question(self) -> bool:
        """Whether it is a question."""
        return bool(words.QUESTION.search(self.text))


def conversation_sentences(messages: Sequence[SynthesisMessage]) -> list[ConversationSentence]:
    """Return the whole sentences of a conversation in order; system instructions are not part of it."""
    spoken = [(place, message) for place, message in enumerate(messages) if message.role != "system"]
    return [
        ConversationSentence(place, message.role, _speaker_name(message), text)
        for place, message in spoken or list(enumerate(messages))
        for sentence in split_sentences(message.content)
        for text in _PIECE.findall(sentence)
    ]


def is_courtesy(text: str) -> bool:
    """Return whether it is only a greeting, thanks, agreement or an offer of help."""
    if len(text) > _LONGEST_COURTESY or has_numbers(text) or not words.COURTESY.search(text):
        return False
    if any(sign.search(text) for sign in (words.WORKED, words.FAILED, words.PROMISE, _NAME)):
        return False
    return not _content_words(words.COURTESY.sub(" ", text))


def has_numbers(text: str) -> bool:
    """Return whether it contains a number, an amount, an address or a quotation."""
    return bool(_DIGIT_OR_SIGN.search(text))


def carries_facts(text: str) -> bool:
    """Return whether it contains a number, an address, a name, a quotation or a preference.

    In scripts without capitals, names cannot be distinguished from other words: there every sentence counts.
    """
    if has_numbers(text) or _NAME.search(text):
        return True
    if words.LIKES.search(text) or words.DISLIKES.search(text):
        return True
    letters = "".join(_LETTER.findall(text))
    return bool(letters) and letters.upper() == letters.lower()


def _speaker_name(message: SynthesisMessage) -> str:
    return " ".join((message.name or "").split()) or message.role.capitalize()


def _content_words(text: str) -> list[str]:
    """Return the meaningful words."""
    found = (word.casefold() for word in _WORD.findall(text))
    return [word for word in found if word not in words.EMPTY_WORDS and word not in STOP_WORDS]
