"""Several notes in one, by rules: sentences word for word, in the order of time, each once.

A heuristic: it rewords nothing. Where a newer sentence gives another value, the older one stands behind `Earlier:`
and the newer one behind `Now:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from sharedmem.models import Note
from sharedmem.synthesis.agents.claims import replaces, takes_back
from sharedmem.synthesis.agents.reading import Sentence, led_in, summary_of
from sharedmem.synthesis.agents.said import whole_sentences
from sharedmem.synthesis.tidying import deduplicated
from sharedmem.synthesis.writing import (
    BEHAVIOR,
    DEPTH,
    EXPERIENCE,
    FOLLOW_UPS,
    GUIDANCE,
    KEYWORDS,
    SUMMARY,
    TAGS,
    sections_of,
    text_of,
)

_DEPTHS = ("high", "medium", "low")
_DIGIT = re.compile(r"\d")


def merged(notes: Sequence[Note]) -> str:
    """The text of the note that takes the place of all of them.

    Args:
        notes: oldest first.
    """
    texts = [note.memory_note for note in notes]
    found = [sections_of(text) for text in texts]

    def all_of(name: str) -> list[str]:
        return [sections[name] for sections in found if name in sections]

    summary = _summary(texts)
    # What holds no longer is told as such, and is no advice.
    past = {one.text for line in summary for one in line if one.mark == "Earlier"}
    return text_of(
        {
            SUMMARY: "\n".join(_written(summary)),
            **{name: _led(all_of(name), past) for name in (BEHAVIOR, EXPERIENCE, GUIDANCE)},
            TAGS: _items(all_of(TAGS)),
            KEYWORDS: _items(all_of(KEYWORDS)),
            DEPTH: _depth(all_of(DEPTH)),
            FOLLOW_UPS: "; ".join(dict.fromkeys(item for line in all_of(FOLLOW_UPS) for item in line.split("; "))),
        }
    )


# -- summary ----------------------------------------------------------------------------------


def _summary(texts: Sequence[str]) -> list[list[Sentence]]:
    lines: list[list[Sentence]] = []
    for text in texts:
        newer = [list(line) for line in summary_of(text)]
        lines = _with(lines, newer)
    return list(_once(lines))


def _with(older: Sequence[Sequence[Sentence]], newer: Sequence[Sequence[Sentence]]) -> list[list[Sentence]]:
    """The lines of both, older ones first, where they contradict each other with marks."""
    said = [sentence for line in older for sentence in line]
    fresh = [sentence for line in newer for sentence in line]
    known = {_key(sentence) for sentence in said}
    replaced = {one for one in said if any(_replaces(other, one) for other in fresh if _key(other) not in known)}
    replacing = {one for one in fresh if _key(one) not in known and any(_replaces(one, other) for other in said)}
    return [
        *([_marked(one, "Earlier") if one in replaced else one for one in line] for line in older),
        *([_marked(one, "Now") if one in replacing else one for one in line] for line in newer),
    ]


def _replaces(new: Sentence, old: Sentence) -> bool:
    if old.mark == "Earlier" or new.mark == "Earlier":
        return False
    return replaces(new.claims, old.claims) or takes_back(new.text, old.text)


def _marked(sentence: Sentence, mark: str) -> Sentence:
    return sentence._replace(mark=mark)


def _once(lines: Iterable[Iterable[Sentence]]) -> Iterator[list[Sentence]]:
    seen: set[tuple[str, str]] = set()
    for line in lines:
        kept = []
        for sentence in line:
            if _key(sentence) not in seen:
                seen.add(_key(sentence))
                kept.append(sentence)
        yield kept


def _key(sentence: Sentence) -> tuple[str, str]:
    return sentence.speaker, sentence.text


def _written(lines: Iterable[Sequence[Sentence]]) -> Iterator[str]:
    for line in lines:
        for (mark, speaker), group in groupby(line, key=lambda one: (one.mark, one.speaker)):
            lead = "".join(f"{word}: " for word in (mark, speaker) if word)
            yield lead + " ".join(one.text for one in group)


# -- other sections ---------------------------------------------------------------------------


def _led(sections: Iterable[str], past: AbstractSet[str]) -> str:
    """All parts but those that are past, under each lead-in what is not there yet."""
    parts: dict[str, list[str]] = {}
    for section in sections:
        for lead, body in led_in(section):
            parts.setdefault(lead, []).append(body)
    told = {lead: _distinct(bodies, past) for lead, bodies in parts.items()}
    return " ".join(f"{lead} {body}".strip() for lead, body in told.items() if body)


def _distinct(bodies: Sequence[str], past: AbstractSet[str]) -> str:
    is_list = any("; " in body for body in bodies)
    pieces = (piece for body in bodies for piece in (body.split("; ") if is_list else whole_sentences(body)))
    return ("; " if is_list else " ").join(piece for piece in dict.fromkeys(pieces) if piece not in past)


def _items(lines: Iterable[str]) -> str:
    """All of them, sorted; near-duplicates once, unless they have numbers, which are never near."""
    items = dict.fromkeys(item.strip() for line in lines for item in line.split(","))
    exact = [item for item in items if _DIGIT.search(item)]
    alike = deduplicated(item for item in items if item and not _DIGIT.search(item))
    return ", ".join(sorted([*exact, *alike], key=str.casefold))


def _depth(depths: Sequence[str]) -> str:
    return next((depth for depth in _DEPTHS if depth in depths), depths[0] if depths else "")
