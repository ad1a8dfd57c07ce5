"""Agents that follow rules: no model, no network, the same answer every time.

Conflicts are resolved by a heuristic: it compares words, and the values that patterns for some languages find. A
sentence that no pattern matches claims nothing, and contradicts nothing. An older note is deleted only if each of its
sentences is either replaced by the newer note or repeated in it; in doubt the two are merged.

Sentences are not reworded. If a newer sentence gives another value, the older one is put after `Earlier:`
and the newer one after `Now:`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeVar

from sharedmem.models import (
    ConsolidationReport,
    ConversationSummary,
    Depth,
    Note,
    Resolution,
    SynthesisMessage,
    Verdict,
)
from sharedmem.synthesis.note_text import (
    BEHAVIOR,
    DEPTH,
    EXPERIENCE,
    FOLLOW_UPS,
    GUIDANCE,
    KEYWORDS,
    LEAD_INS,
    SECTIONS,
    SUMMARY,
    TAGS,
    join_sections,
    merge_items,
    parse_sections,
)
from sharedmem.synthesis.protocol import Consolidation
from sharedmem.synthesis.rule_notes import REPLACES, describe_interaction, fast_summary, is_courtesy, summarize_messages
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput
from sharedmem.text.analysis import document_terms, split_sentences
from sharedmem.text.contradictions import is_negated

T = TypeVar("T")

_AT_ONCE_CHARACTERS = 20_000


class RuleAgents:
    """Synthesis by heuristics.

    They quote, count and compare words, and have no understanding: a note contains original sentences, a verdict
    names its rule, a successor has every sentence of the notes that it replaces. They never raise `InvalidError`.
    """

    @property
    def name(self) -> str:
        """`rules`."""
        return "rules"

    @property
    def is_offline(self) -> bool:
        """True: these agents follow rules."""
        return True

    async def episodic(self, messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
        """Run `Agents.episodic`: quotes and counts; fields without evidence are empty."""
        return await _run_in_thread_if_long(describe_interaction, messages)

    async def summarizer(self, messages: Sequence[SynthesisMessage]) -> SummaryOutput:
        """Run `Agents.summarizer`: sentences of the conversation, with all sentences that contain facts."""
        return await _run_in_thread_if_long(summarize_messages, messages)

    async def fast_summary(self, messages: Sequence[SynthesisMessage]) -> ConversationSummary:
        """Run `Agents.fast_summary`: the same summary, shorter, with tags and keywords."""
        found = await _run_in_thread_if_long(summarize_messages, messages)
        return ConversationSummary(
            summary=await _run_in_thread_if_long(fast_summary, messages),
            tags=found.retrieval.tags,
            keywords=found.retrieval.keywords,
            semantic_queries=found.retrieval.queries,
            follow_ups=found.metadata.follow_ups,
            depth=found.metadata.depth,
            offline=True,
        )

    async def judge(self, new: Note, linked: Sequence[Note]) -> list[Resolution]:
        """Run `Agents.judge`, pair by pair."""
        return [judge_note(new, old) for old in linked]

    async def consolidate(self, new: Note, old: Sequence[Note]) -> Consolidation:
        """Run `Agents.consolidate`: all sentences, oldest note first, each once."""
        notes = sorted([*old, new], key=lambda note: (note.created_at, note.id == new.id, note.id))
        merged = merge_notes(notes)
        return Consolidation(merged, self.name, report_merge(notes, merged))

    def __repr__(self) -> str:
        return "<RuleAgents: heuristics, offline>"


async def _run_in_thread_if_long(
    work: Callable[[Sequence[SynthesisMessage]], T], messages: Sequence[SynthesisMessage]
) -> T:
    if sum(len(message.content) for message in messages) <= _AT_ONCE_CHARACTERS:
        return work(messages)
    # Long conversations take a second, which must not block the event loop.
    return await asyncio.to_thread(work, messages)


# -- conflicts of two notes ----------------------------------------------------------------------


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


# -- the sentences of a note, and what they claim ------------------------------------------------


TermSet = frozenset[str]

_MOST_ABOUT, _MOST_VALUE = 6, 10
_HOME, _JOB = frozenset({"\N{HOUSE BUILDING}"}), frozenset({"\N{OFFICE BUILDING}"})
_FILLERS = frozenset(
    document_terms(
        "now new current currently actually please just since yes well hello hi thanks thank noted okay sorry also"
        " user assistant old previous recently today ab jetzt nun neu neue neuer neues aktuell aktuelle mein meine"
        " meiner unser unsere der die das den dem ich wir ist nuevo nueva mi mon ma notre ahora maintenant le la el"
        " 今 現在 الآن"
    )
)
_CLAUSE = re.compile(
    r"[;!?()\u2013\u2014\u3002\uff01\uff1f\u060c\u061b]|[.,:\u3001](?=\s|$|[^\x00-\x7f])"
    r"|\s(?:and|but|or|because|while|where|who|which|when|with|und|aber|oder|weil|wo|wenn|dass|mit|avec|con|donde)\s",
    re.IGNORECASE,
)
_HEAD = re.compile(
    r"\b(?:address|phone|telephone|mobile|number|e-?mail|plan|subscription|tier|price|cost|fee|rate|budget|status|deadline"
    r"|date|day|time|appointment|meeting|delivery|version|name|owner|manager|contact|city|employer|job|title|role"
    r"|favou?rite|size|colou?r|quantity|location|room|port|url|limit|quota|password|birthday|salary|currency|language"
    r"|adresse|anschrift|telefon\w*|nummer|\w*preis|tarif|kosten|termin|frist|\w*datum|lieblings\w+|besitzer\w*|größe|farbe"
    r"|numéro|prix|forfait|dirección|teléfono|precio|fecha|número)\b"
    r"|住所|番号|メール|プラン|料金|価格|値段|締め切り|締切|期限|納期|日程|日時|時間|場所|名前|ステータス|状態|会議|予算"
    r"|عنوان|هاتف|رقم|بريد|سعر|خطة|موعد|ميزانية|حالة",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\b(?:now|from now on|instead|as of|jetzt|nun|ab sofort|maintenant|désormais|ahora)\b"
    r"|今|現在|なりました|変わり|変更|الآن|أصبح|صار",
    re.IGNORECASE,
)
_CHANGING = (
    r"(?:changed|moved|updated|upgraded|downgraded|switched|rescheduled|postponed|raised|increased|lowered|reduced"
    r"|renamed|set|corrected)"
)
_PASSIVE = r"\s(?:has |have |was |were |is |got )?(?:been |just |now )?"
_FROM = r"(?:from .{1,60}? )?"
_VALUE = r"(?P<value>.+)"


def _forms(*forms: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(form.replace("'", "['\u2019]"), re.IGNORECASE) for form in forms)


_FORMS = _forms(
    rf"^(?P<about>.{{2,80}}?){_PASSIVE}{_CHANGING}\s{_FROM}to\s{_VALUE}",
    rf"\b{_CHANGING}\s(?P<about>(?:my|our|the|your|his|her|their|its)\s.{{1,60}}?)\s{_FROM}to\s{_VALUE}",
    (
        r"^(?P<about>.{2,60}?)\s(?:wurde|wird|ist)\s(?:von .{1,40}? )?(?:auf|zu|in|nach)\s(?P<value>.{1,60}?)\s"
        r"(?:geändert|verschoben|erhöht|gesenkt|verlegt|umbenannt)\b"
    ),
    rf"^(?P<about>.{{2,80}}?)\s(?P<be>is|are|will be|ist|sind|lautet|beträgt|est|es)\s{_VALUE}",
    r"^(?P<about>[^はが]{1,20})(?P<be>は)(?P<value>.{1,40}?)(?:です|だ|になりました|に変わりました|に変更.{0,6})?$",
    rf"^(?P<about>.{{2,40}}?)\s(?P<be>هو|هي|أصبح|أصبحت|صار|الآن)\s{_VALUE}",
    rf"^(?P<about>.{{0,40}}?)\b(?P<verb>prefers?|bevorzuge|préfère|prefiero)\s{_VALUE}",
)
_HOME_FORMS = _forms(
    (
        r"^(?P<about>.{0,40}?)(?:'ve|\shas|\shave)?(?<!\bwas)(?<!\bwere)(?<!\bbeen)(?<!\bis)\s(?:just |recently |now )?"
        rf"(?:moved|relocated)\s{_FROM}to\s(?P<value>(?-i:[^\Wa-z\d_]).+)"
    ),
    rf"^(?P<about>.{{0,40}}?)\b(?:live|lives|living|reside|resides|based)\s(?:now )?in\s{_VALUE}",
    rf"^(?P<about>.{{0,40}}?)\b(?:wohne|wohnt|wohnen|lebe|lebt|leben)\s(?:jetzt |nun )?in\s{_VALUE}",
    (
        r"^(?P<about>.{0,40}?)\b(?:bin|ist|sind)\s(?:jetzt |gerade |kürzlich )?(?:von .{1,40}? )?nach\s(?P<value>.+?)\s"
        r"(?:um)?gezogen\b"
    ),
    rf"^(?P<about>.{{0,20}}?)\b(?:habite|habitons|vis)\s(?:maintenant )?à\s{_VALUE}",
    rf"^(?P<about>.{{0,20}}?)\b(?:vivo|vivimos)\s(?:ahora )?en\s{_VALUE}",
    r"^(?P<about>)(?:.{0,12}は)?(?:今|現在)?(?P<value>[^はに]{1,20})に(?:住んで|住みます|引っ越|転居|移り)",
    rf"(?P<about>)(?:أسكن|أعيش|أقيم|نعيش)\s(?:الآن\s)?في\s{_VALUE}",
    rf"(?P<about>)انتقلت?\s(?:من\s.{{1,30}}?\s)?إلى\s{_VALUE}",
)
_JOB_FORMS = _forms(
    rf"^(?P<about>.{{0,40}}?)\b(?:work|works|working)\s(?:now )?(?:at|for)\s{_VALUE}",
    rf"^(?P<about>.{{0,40}}?)\b(?:arbeite|arbeitet)\s(?:jetzt |nun )?(?:bei|für)\s{_VALUE}",
)


class ValueClaim(NamedTuple):
    """One value of one subject."""

    about: TermSet
    value: TermSet
    is_firm: bool
    """Whether it replaces another value; `it is ...` alone does not."""


@lru_cache(maxsize=4096)
def parse_claims(sentence: str) -> tuple[ValueClaim, ...]:
    """Return the claims of a sentence."""
    is_now = bool(_NOW.search(sentence))
    found = (_parse_clause(clause, is_now=is_now) for clause in split_clauses(sentence))
    return tuple(claim for claim in found if claim)


def split_clauses(sentence: str) -> list[str]:
    """Return the clauses of a sentence that have a meaning of their own."""
    return [clause.strip() for clause in _CLAUSE.split(sentence) if content_terms(clause) - _FILLERS]


def replaces_value(new: Iterable[ValueClaim], old: Iterable[ValueClaim], *, wholly: bool = False) -> bool:
    """Return whether one of the new claims gives another value to the subject of one of the old ones.

    Args:
        new: claims of a newer sentence.
        old: claims of an older one.
        wholly: the new value must be as specific: Monday at 9 in room 5 is more than a Tuesday replaces.
    """
    firm = [claim for claim in new if claim.is_firm]
    pairs = ((claim.value, other.value) for claim in old for other in firm if claim.about == other.about)
    return any(_differ(was, is_) and (not wholly or len(was) <= len(is_)) for was, is_ in pairs)


def retracts(sentence: str, other: str) -> bool:
    """Return whether a sentence revokes another: it has all its words, and one such as `cancelled`."""
    words = content_terms(other) - _FILLERS
    return bool(words) and _ends_something(sentence) and words <= content_terms(sentence) and not _ends_something(other)


@lru_cache(maxsize=4096)
def _ends_something(sentence: str) -> bool:
    return bool(REPLACES.search(sentence))


@lru_cache(maxsize=4096)
def content_terms(text: str) -> TermSet:
    """Return the meaningful words of a text."""
    return frozenset(document_terms(text))


def _differ(one: TermSet, other: TermSet) -> bool:
    return not (one <= other or other <= one)


def _parse_clause(clause: str, *, is_now: bool) -> ValueClaim | None:
    for forms, thing in ((_HOME_FORMS, _HOME), (_JOB_FORMS, _JOB), (_FORMS, None)):
        for form in forms:
            if found := form.search(clause):
                return _claim_about(found, thing, is_now=is_now)
    return None


def _claim_about(found: re.Match[str], thing: TermSet | None, *, is_now: bool) -> ValueClaim | None:
    groups = found.groupdict()
    about = (content_terms(found["about"]) | content_terms(groups.get("verb") or "")) - _FILLERS
    value = content_terms(found["value"]) - _FILLERS
    if len(about) > _MOST_ABOUT or not 0 < len(value) <= _MOST_VALUE:
        return None
    if thing is not None:
        # A move to another plan does not change where a person lives.
        return None if _HEAD.search(found["value"]) else ValueClaim(about | thing, value, is_firm=True)
    # A subject may have several values with `is` or a preference.
    is_firm = is_now or not {"be", "verb"} & groups.keys() or bool(_HEAD.search(found["about"]))
    return ValueClaim(about, value, is_firm) if about else None


_MARK = re.compile(r"^(Earlier|Now): ")
_SPEAKER = re.compile(r"^([^:.!?。\n]{1,40}): (?=\S)")
_LEAD_IN = re.compile(rf"(?<!\S)({'|'.join(re.escape(words.strip()) for words in LEAD_INS)})(?=\s|$)")
_QUESTION = re.compile(r"[?\uff1f\u061f]\s*$")
_DIGIT = re.compile(r"\d")


class NoteSentence(NamedTuple):
    """A sentence of a summary."""

    mark: str
    """`Earlier`, `Now`, or empty: the mark of a consolidation."""
    speaker: str
    text: str

    @property
    def terms(self) -> TermSet:
        """Its meaningful words."""
        return content_terms(self.text)

    @property
    def claims(self) -> tuple[ValueClaim, ...]:
        """Its claims."""
        return parse_claims(self.text)

    @property
    def is_denied(self) -> bool:
        """Whether it contains a negation."""
        return is_negated(self.text)

    @property
    def is_empty(self) -> bool:
        """Whether it can be dropped: courtesies, and questions without numbers."""
        asks = bool(_QUESTION.search(self.text)) and not _DIGIT.search(self.text)
        return asks or not self.terms or is_courtesy(self.text)


def parse_summary(note: str) -> tuple[tuple[NoteSentence, ...], ...]:
    """Return the sentences of a note's summary, line by line."""
    lines = (line.strip() for line in parse_sections(note).get(SUMMARY, "").splitlines())
    return tuple(_sentences(line) for line in lines if line)


def parse_statements(note: str) -> list[NoteSentence]:
    """Return all sentences of a note: its summary, and sentences of other sections that do not only repeat it."""
    sentences = [sentence for line in parse_summary(note) for sentence in line]
    whole = " ".join(sentence.text for sentence in sentences)
    sections = parse_sections(note)
    for name in SECTIONS[1:]:
        for _, body in split_lead_ins(sections.get(name, "")):
            for piece in body.split("; "):
                if not _is_quoted(piece, sentences, whole):
                    sentences += (NoteSentence("", "", text) for text in split_sentences(piece))
    return sentences


def split_lead_ins(section: str) -> list[tuple[str, str]]:
    """Return the parts of a section, each after its lead-in; text before the first has none."""
    pieces = _LEAD_IN.split(section)
    parts = [("", pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    return [(lead, " ".join(body.split())) for lead, body in parts if body.strip()]


def _sentences(line: str) -> tuple[NoteSentence, ...]:
    mark = _MARK.match(line)
    line = line[mark.end() :] if mark else line
    speaker = _SPEAKER.match(line)
    rest = line[speaker.end() :] if speaker else line
    name = speaker[1] if speaker else ""
    return tuple(NoteSentence(mark[1] if mark else "", name, text) for text in split_sentences(rest))


def _is_quoted(piece: str, sentences: list[NoteSentence], whole: str) -> bool:
    text = piece.strip()
    return text.rstrip("…") in whole or any(text.endswith(sentence.text) for sentence in sentences)
