"""Resolve conflicts of notes by rules: judge an older note against a newer one, and merge notes.

A heuristic: it compares words, and the values that patterns find. An older note is deleted only if each of its
sentences is either replaced by the newer note or repeated in it; in doubt the two are merged.

Sentences are not reworded. If a newer sentence gives another value, the older one is put after `Earlier:`
and the newer one after `Now:`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from sharedmem.models import ConsolidationReport, Depth, Note, Resolution, Verdict
from sharedmem.synthesis.agents.rules.note_parser import (
    NoteSentence,
    ValueClaim,
    parse_statements,
    parse_summary,
    replaces_value,
    retracts,
    split_clauses,
    split_lead_ins,
)
from sharedmem.synthesis.note_text import (
    BEHAVIOR,
    DEPTH,
    EXPERIENCE,
    FOLLOW_UPS,
    GUIDANCE,
    KEYWORDS,
    SUMMARY,
    TAGS,
    join_sections,
    parse_sections,
)
from sharedmem.synthesis.tag_cleanup import merge_items
from sharedmem.text.sentences import split_sentences

ENOUGH_IN_COMMON = 0.4
"""Share of the words of the shorter note that both must have in common to be merged."""
_FEWEST_IN_COMMON = 2
_LONGEST_QUOTE = 120


class NoteComparison:
    """Two notes, sentence by sentence. Quadratic in their sentences.

    Args:
        new: the newer note.
        old: the older note.
    """

    def __init__(self, new: Sequence[NoteSentence], old: Sequence[NoteSentence]) -> None:
        holding = [sentence for sentence in new if sentence.mark != "Earlier"]
        claims = [claim for sentence in holding for claim in sentence.claims]
        worth = [sentence for sentence in old if not sentence.is_empty]
        self.replaced = [sentence for sentence in worth if _is_replaced(sentence, holding, claims)]
        self.kept = [sentence for sentence in worth if not _is_covered(sentence, holding, claims)]
        self.added = [sentence for sentence in new if not sentence.is_empty and not _is_repeated(sentence, old)]
        common = _words(new) & _words(old)
        self.in_common = len(common)
        self.overlap = len(common) / max(min(len(_words(new)), len(_words(old))), 1)


def judge_note(new: Note, old: Note) -> Resolution:
    """Return the verdict on the older note, with the rule behind it."""
    compared = NoteComparison(parse_statements(new.memory_note), parse_statements(old.memory_note))
    operation, confidence, reason = _apply_rules(compared, is_newer=new.created_at >= old.created_at)
    return Resolution(
        memory_id=old.id,
        operation=operation,
        confidence_score=round(min(max(confidence, 0.0), 1.0), 3),
        reasoning=reason,
        decided_by="rules",
    )


def _apply_rules(found: NoteComparison, *, is_newer: bool) -> tuple[Verdict, float, str]:
    if found.replaced and is_newer:
        quote = _quote(found.replaced[0])
        if not found.kept:
            return "DELETE", 0.6 + 0.4 * found.overlap, f"rule replaced: all of it is replaced or repeated; {quote}"
        reason = f"rule another value: {quote} is replaced, and {len(found.kept)} of its sentences add more"
        return "UPDATE", 0.5 + 0.5 * found.overlap, reason
    if found.overlap < ENOUGH_IN_COMMON or found.in_common < _FEWEST_IN_COMMON:
        return "SKIP", 1 - found.overlap, f"rule apart: the notes have {found.overlap:.0%} of their words in common"
    if not found.added:
        return "SKIP", found.overlap, "rule nothing new: the older note contains all of it already"
    reason = f"rule same matter: {found.overlap:.0%} of the words in common, {len(found.added)} sentences more"
    return "UPDATE", found.overlap, reason


def _is_replaced(sentence: NoteSentence, new: Sequence[NoteSentence], claims: Sequence[ValueClaim]) -> bool:
    if sentence.mark == "Earlier":
        return False
    return replaces_value(claims, sentence.claims) or any(retracts(one.text, sentence.text) for one in new)


def _is_covered(sentence: NoteSentence, new: Sequence[NoteSentence], claims: Sequence[ValueClaim]) -> bool:
    """Return whether each part of a sentence is replaced, or contained in the newer note as well."""
    if _is_repeated(sentence, new) or any(retracts(one.text, sentence.text) for one in new):
        return True
    if not _is_replaced(sentence, new, claims):
        return False
    parts = [sentence._replace(text=clause) for clause in split_clauses(sentence.text)]
    return all(replaces_value(claims, part.claims, wholly=True) or _is_repeated(part, new) for part in parts)


def _is_repeated(sentence: NoteSentence, others: Sequence[NoteSentence]) -> bool:
    return any(
        sentence.terms <= other.terms and sentence.is_denied == other.is_denied and other.mark in {"", sentence.mark}
        for other in others
    )


def _words(sentences: Sequence[NoteSentence]) -> frozenset[str]:
    return frozenset(term for sentence in sentences for term in sentence.terms)


def _quote(sentence: NoteSentence) -> str:
    text = sentence.text
    return f"“{text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + '…'}”"


_DEPTHS = ("high", "medium", "low")


def merge_notes(notes: Sequence[Note]) -> str:
    """Return the text of the note that replaces all of them.

    Args:
        notes: oldest first.
    """
    texts = [note.memory_note for note in notes]
    found = [parse_sections(text) for text in texts]

    def all_of(name: str) -> list[str]:
        return [sections[name] for sections in found if name in sections]

    summary = _merge_summaries(texts)
    # A value that holds no longer is marked so, and is not advice.
    past = {one.text for line in summary for one in line if one.mark == "Earlier"}
    return join_sections(
        {
            SUMMARY: "\n".join(_format_lines(summary)),
            **{name: _merge_lead_ins(all_of(name), past) for name in (BEHAVIOR, EXPERIENCE, GUIDANCE)},
            TAGS: _merge_items(all_of(TAGS)),
            KEYWORDS: _merge_items(all_of(KEYWORDS)),
            DEPTH: _deepest(all_of(DEPTH)),
            FOLLOW_UPS: "; ".join(dict.fromkeys(item for line in all_of(FOLLOW_UPS) for item in line.split("; "))),
        }
    )


# Least share of the newest note's sentences that no older one has.
_NEWS: tuple[tuple[float, Depth], ...] = ((2 / 3, "high"), (1 / 3, "medium"))


def report_merge(notes: Sequence[Note], merged: str) -> ConsolidationReport:
    """Return what a merge did, counted in sentences of the summaries.

    Args:
        notes: oldest first; the last one is new.
        merged: their text, as `merge_notes` returns it.
    """
    *older, new = ([one for line in parse_summary(note.memory_note) for one in line] for note in notes)
    known = [sentence for sentences in older for sentence in sentences]
    fresh = [one for one in new if not _is_repeated(one, known)]
    kept = [one for line in parse_summary(merged) for one in line]
    changed = sum(one.mark == "Earlier" for one in kept) - sum(one.mark == "Earlier" for one in known)
    share = len(fresh) / max(len(new), 1)
    return ConsolidationReport(
        memories_merged=len(notes),
        new_information_added=next((depth for least, depth in _NEWS if share >= least), "low"),
        deduplication_count=max(len(known) + len(new) - len(kept), 0),
        notes=f"{len(fresh)} of {len(new)} sentences are new; older sentences marked as earlier: {max(changed, 0)}.",
    )


# -- summary ----------------------------------------------------------------------------------


def _merge_summaries(texts: Sequence[str]) -> list[list[NoteSentence]]:
    lines: list[list[NoteSentence]] = []
    for text in texts:
        newer = [list(line) for line in parse_summary(text)]
        lines = _merge_lines(lines, newer)
    return list(_drop_repeats(lines))


def _merge_lines(
    older: Sequence[Sequence[NoteSentence]], newer: Sequence[Sequence[NoteSentence]]
) -> list[list[NoteSentence]]:
    """Return the lines of both, older ones first, with marks at contradictions."""
    earlier = [sentence for line in older for sentence in line]
    fresh = [sentence for line in newer for sentence in line]
    known = {_key(sentence) for sentence in earlier}
    replaced = {one for one in earlier if any(_contradicts(other, one) for other in fresh if _key(other) not in known)}
    replacing = {one for one in fresh if _key(one) not in known and any(_contradicts(one, other) for other in earlier)}
    return [
        *([_add_mark(one, "Earlier") if one in replaced else one for one in line] for line in older),
        *([_add_mark(one, "Now") if one in replacing else one for one in line] for line in newer),
    ]


def _contradicts(new: NoteSentence, old: NoteSentence) -> bool:
    if old.mark == "Earlier" or new.mark == "Earlier":
        return False
    return replaces_value(new.claims, old.claims) or retracts(new.text, old.text)


def _add_mark(sentence: NoteSentence, mark: str) -> NoteSentence:
    return sentence._replace(mark=mark)


def _drop_repeats(lines: Iterable[Iterable[NoteSentence]]) -> Iterator[list[NoteSentence]]:
    seen: set[tuple[str, str]] = set()
    for line in lines:
        kept = []
        for sentence in line:
            if _key(sentence) not in seen:
                seen.add(_key(sentence))
                kept.append(sentence)
        yield kept


def _key(sentence: NoteSentence) -> tuple[str, str]:
    return sentence.speaker, sentence.text


def _format_lines(lines: Iterable[Sequence[NoteSentence]]) -> Iterator[str]:
    for line in lines:
        for (mark, speaker), group in groupby(line, key=lambda one: (one.mark, one.speaker)):
            lead = "".join(f"{word}: " for word in (mark, speaker) if word)
            yield lead + " ".join(one.text for one in group)


# -- other sections ---------------------------------------------------------------------------


def _merge_lead_ins(sections: Iterable[str], past: AbstractSet[str]) -> str:
    """Return all parts except past ones, under each lead-in only once."""
    parts: dict[str, list[str]] = {}
    for section in sections:
        for lead, body in split_lead_ins(section):
            parts.setdefault(lead, []).append(body)
    bodies_by_lead = {lead: _distinct(bodies, past) for lead, bodies in parts.items()}
    return " ".join(f"{lead} {body}".strip() for lead, body in bodies_by_lead.items() if body)


def _distinct(bodies: Sequence[str], past: AbstractSet[str]) -> str:
    is_list = any("; " in body for body in bodies)
    pieces = (piece for body in bodies for piece in (body.split("; ") if is_list else split_sentences(body)))
    return ("; " if is_list else " ").join(piece for piece in dict.fromkeys(pieces) if piece not in past)


def _merge_items(lines: Iterable[str]) -> str:
    """Return all of them, sorted."""
    return ", ".join(sorted(merge_items(item for line in lines for item in line.split(",")), key=str.casefold))


def _deepest(depths: Sequence[str]) -> str:
    return next((depth for depth in _DEPTHS if depth in depths), depths[0] if depths else "")
