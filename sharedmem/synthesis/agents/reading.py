"""Notes read back, sentence by sentence, as judges and consolidators need them."""

from __future__ import annotations

import re
from typing import NamedTuple

from sharedmem.knowledge.guard_words import NEGATIONS
from sharedmem.synthesis.agents.claims import Claim, Terms, claims_in, terms_of
from sharedmem.synthesis.agents.said import is_courtesy, whole_sentences
from sharedmem.synthesis.writing import LEAD_INS, SECTIONS, SUMMARY, sections_of

_MARK = re.compile(r"^(Earlier|Now): ")
_SPEAKER = re.compile(r"^([^:.!?。\n]{1,40}): (?=\S)")
_LEAD_IN = re.compile(rf"(?<!\S)({'|'.join(re.escape(words.strip()) for words in LEAD_INS)})(?=\s|$)")
_WORD = re.compile(r"\w+(?:['\u2019]\w+)?")
_QUESTION = re.compile(r"[?\uff1f\u061f]\s*$")
_DIGIT = re.compile(r"\d")


class Sentence(NamedTuple):
    """A sentence of a summary."""

    mark: str
    """`Earlier`, `Now`, or nothing: what a consolidation has said of it."""
    speaker: str
    text: str

    @property
    def terms(self) -> Terms:
        """The words that say something."""
        return terms_of(self.text)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What it claims."""
        return claims_in(self.text)

    @property
    def is_denied(self) -> bool:
        """Whether it denies something."""
        words = (word.casefold().replace("\u2019", "").replace("'", "") for word in _WORD.findall(self.text))
        return not NEGATIONS.isdisjoint(words)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is lost with it: courtesies, and questions without numbers."""
        asks = bool(_QUESTION.search(self.text)) and not _DIGIT.search(self.text)
        return asks or not self.terms or is_courtesy(self.text)


def summary_of(note: str) -> tuple[tuple[Sentence, ...], ...]:
    """The sentences of a note's summary, line by line."""
    lines = (line.strip() for line in sections_of(note).get(SUMMARY, "").splitlines())
    return tuple(_sentences(line) for line in lines if line)


def statements_of(note: str) -> list[Sentence]:
    """All that a note states: its summary, and what its other sections do not only repeat of that."""
    said = [sentence for line in summary_of(note) for sentence in line]
    whole = " ".join(sentence.text for sentence in said)
    sections = sections_of(note)
    for name in SECTIONS[1:]:
        for _, body in led_in(sections.get(name, "")):
            for piece in body.split("; "):
                if not _is_quoted(piece, said, whole):
                    said += (Sentence("", "", text) for text in whole_sentences(piece))
    return said


def led_in(section: str) -> list[tuple[str, str]]:
    """The parts of a section, each after its lead-in; text before the first has none."""
    pieces = _LEAD_IN.split(section)
    parts = [("", pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    return [(lead, " ".join(body.split())) for lead, body in parts if body.strip()]


def _sentences(line: str) -> tuple[Sentence, ...]:
    mark = _MARK.match(line)
    line = line[mark.end() :] if mark else line
    speaker = _SPEAKER.match(line)
    rest = line[speaker.end() :] if speaker else line
    name = speaker[1] if speaker else ""
    return tuple(Sentence(mark[1] if mark else "", name, text) for text in whole_sentences(rest))


def _is_quoted(piece: str, said: list[Sentence], whole: str) -> bool:
    text = piece.strip()
    return text.rstrip("…") in whole or any(text.endswith(sentence.text) for sentence in said)
