"""Parse a note into sentences, and the values that each sentence claims.

A heuristic: patterns for some languages. A sentence that no pattern matches claims nothing, and contradicts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from sharedmem.synthesis.agents.rules.sentences import is_courtesy
from sharedmem.synthesis.agents.rules.words import REPLACES
from sharedmem.synthesis.note_text import LEAD_INS, SECTIONS, SUMMARY, parse_sections
from sharedmem.text.analysis import document_terms
from sharedmem.text.contradictions import is_negated
from sharedmem.text.sentences import split_sentences

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
