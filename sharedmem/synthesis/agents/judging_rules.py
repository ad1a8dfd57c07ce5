"""What becomes of an older note when a newer one resembles it, by rules.

A heuristic: it compares words, and the values that patterns find. An older note is deleted only when each of its
sentences is either replaced by the newer note or repeated in it; in doubt the two are brought together.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.models import Note, Resolution, Verdict
from sharedmem.synthesis.agents.claims import Claim, clauses_of, replaces, takes_back
from sharedmem.synthesis.agents.reading import Sentence, statements_of

ENOUGH_IN_COMMON = 0.4
"""Share of the words of the shorter note that both must have, to be brought together."""
_FEWEST_IN_COMMON = 2
_LONGEST_QUOTE = 120


class Compared:
    """Two notes, sentence by sentence. Quadratic in their sentences.

    Args:
        new: what the newer one states.
        old: what the older one states.
    """

    def __init__(self, new: Sequence[Sentence], old: Sequence[Sentence]) -> None:
        holding = [sentence for sentence in new if sentence.mark != "Earlier"]
        claims = [claim for sentence in holding for claim in sentence.claims]
        worth = [sentence for sentence in old if not sentence.is_empty]
        self.replaced = [sentence for sentence in worth if _is_replaced(sentence, holding, claims)]
        self.kept = [sentence for sentence in worth if not _is_covered(sentence, holding, claims)]
        self.added = [sentence for sentence in new if not sentence.is_empty and not _is_in(sentence, old)]
        common = _words(new) & _words(old)
        self.in_common = len(common)
        self.overlap = len(common) / max(min(len(_words(new)), len(_words(old))), 1)


def verdict_of(new: Note, old: Note) -> Resolution:
    """What becomes of the older note, with the rule that says so."""
    compared = Compared(statements_of(new.memory_note), statements_of(old.memory_note))
    operation, confidence, reason = _ruled(compared, is_newer=new.created_at >= old.created_at)
    return Resolution(
        memory_id=old.id,
        operation=operation,
        confidence_score=round(min(max(confidence, 0.0), 1.0), 3),
        reasoning=reason,
        decided_by="rules",
    )


def _ruled(found: Compared, *, is_newer: bool) -> tuple[Verdict, float, str]:
    if found.replaced and is_newer:
        quote = _quoted(found.replaced[0])
        if not found.kept:
            return "DELETE", 0.6 + 0.4 * found.overlap, f"rule replaced: all it says is replaced or repeated; {quote}"
        reason = f"rule another value: {quote} is replaced, and {len(found.kept)} of its sentences say more"
        return "UPDATE", 0.5 + 0.5 * found.overlap, reason
    if found.overlap < ENOUGH_IN_COMMON or found.in_common < _FEWEST_IN_COMMON:
        return "SKIP", 1 - found.overlap, f"rule apart: they have {found.overlap:.0%} of their words in common"
    if not found.added:
        return "SKIP", found.overlap, "rule nothing new: the older note says all of it already"
    reason = f"rule same matter: {found.overlap:.0%} of the words in common, {len(found.added)} sentences more"
    return "UPDATE", found.overlap, reason


def _is_replaced(sentence: Sentence, new: Sequence[Sentence], claims: Sequence[Claim]) -> bool:
    if sentence.mark == "Earlier":
        return False
    return replaces(claims, sentence.claims) or any(takes_back(one.text, sentence.text) for one in new)


def _is_covered(sentence: Sentence, new: Sequence[Sentence], claims: Sequence[Claim]) -> bool:
    """Whether nothing of it is lost with it: each of its parts is replaced, or said in the newer note as well."""
    if _is_in(sentence, new) or any(takes_back(one.text, sentence.text) for one in new):
        return True
    if not _is_replaced(sentence, new, claims):
        return False
    parts = [sentence._replace(text=clause) for clause in clauses_of(sentence.text)]
    return all(replaces(claims, part.claims, wholly=True) or _is_in(part, new) for part in parts)


def _is_in(sentence: Sentence, others: Sequence[Sentence]) -> bool:
    return any(
        sentence.terms <= other.terms and sentence.is_denied == other.is_denied and other.mark in {"", sentence.mark}
        for other in others
    )


def _words(sentences: Sequence[Sentence]) -> frozenset[str]:
    return frozenset(term for sentence in sentences for term in sentence.terms)


def _quoted(sentence: Sentence) -> str:
    text = sentence.text
    return f"“{text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + '…'}”"
