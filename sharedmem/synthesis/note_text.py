"""The text of a note: write its sections from the results of the agents, and parse them; and clean its tags.

Of tags and keywords, those without content and near-duplicates are dropped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from sharedmem.errors import UnsupportedError
from sharedmem.models import ConversationSummary
from sharedmem.synthesis import schemas
from sharedmem.synthesis.schemas import EpisodicOutput, FutureGuidance, SummaryOutput
from sharedmem.text.analysis import fold, normalize_text

SUMMARY, BEHAVIOR = "Summary", "Behavioral Patterns"
EXPERIENCE, GUIDANCE = "Experience Learnings", "Guidance"
SECTIONS = (SUMMARY, BEHAVIOR, EXPERIENCE, GUIDANCE)
TAGS, KEYWORDS, DEPTH, FOLLOW_UPS = "Tags", "Keywords", "Content depth", "Follow-up areas"
RELATED = "Related Topics"
"""What similar notes are about that are not part of this one: the last words of a successor."""
FOOTER = (TAGS, KEYWORDS, DEPTH, FOLLOW_UPS, RELATED)

STYLE = "User's style: "
ENGAGES, STRUGGLES, WORKS_BEST = "Engages well with: ", "Struggles with: ", "Works best when: "
SUCCESSFUL, TO_AVOID = "Successful approaches: ", "Approaches to avoid: "
DO, DO_NOT, INSIGHT = "Do: ", "Don't: ", "Key insight: "
LEAD_INS = (STYLE, ENGAGES, STRUGGLES, WORKS_BEST, SUCCESSFUL, TO_AVOID, DO, DO_NOT, INSIGHT)

_BETWEEN, _WHY, _FOOTER_BETWEEN = "; ", " — ", " | "
_NEWLINE = re.compile(r"\r\n?")
_MANY_LINES, _MANY_BLANKS = re.compile(r"\n{3,}"), re.compile(r" {2,}")
_HEADINGS = "|".join((*SECTIONS, RELATED))
_HEADING = rf"\#{{1,6}}[ \t]*(?:{_HEADINGS})[ \t]*:?[ \t]*"
# In any case, of these letters alone: without ASCII a Turkish dotless i would count as an i.
_ANY_CASE = re.IGNORECASE | re.ASCII
_HEADING_LINE = re.compile(rf"^\#{{1,6}}[ \t]*({_HEADINGS})[ \t]*:?[ \t]*$", _ANY_CASE | re.MULTILINE)
_RELATED_ANYWHERE = re.compile(RELATED, _ANY_CASE)
_RULE_LINE = re.compile(r"^-{3,}[ \t]*$", re.MULTILINE)
# A line of a text that looks like one of ours gets a backslash before it, as in Markdown.
_LOOKS_LIKE_HEADING = re.compile(rf"^(\\*)(?={_HEADING}$|-{{3,}}[ \t]*$)", _ANY_CASE | re.MULTILINE)
_FOOTER_PART = re.compile(rf"(?:^|[ \t]*\|[ \t]*|\n)[ \t]*({'|'.join(FOOTER)}):[ \t]", _ANY_CASE)
_LEAD_IN = re.compile(rf"(?<!\S)(?:{'|'.join(re.escape(words.strip()) for words in LEAD_INS)})(?=\s|$)")
_BETWEEN_TOPICS, _BULLET = re.compile(r"[,;\n]"), re.compile(r"^\s*[-*\u2022]\s+")
_NOT_SEARCHED = frozenset({DEPTH, RELATED})
_NAMES = {name.casefold(): name for name in (*SECTIONS, *FOOTER)}


def format_note(episodic: EpisodicOutput, summary: SummaryOutput) -> str:
    """Return a note: `## Summary`, `## Behavioral Patterns`, `## Experience Learnings`, `## Guidance`, a footer.

    `N/A` and empty values are dropped, with sections that have nothing else; of near-duplicates among tags and
    keywords the first one stays. Nothing else is lost.

    Returns:
        Normalised text, empty if both are empty.
    """
    retrieval, metadata = summary.retrieval, summary.metadata
    return join_sections(
        {
            SUMMARY: summary.narrative,
            BEHAVIOR: _behavior(episodic),
            EXPERIENCE: _experience(episodic),
            GUIDANCE: _guidance(episodic.future_guidance),
            **_footer(retrieval.tags, retrieval.keywords, depth=metadata.depth, follow_ups=metadata.follow_ups),
        }
    )


def format_agent_note(summary: ConversationSummary) -> str:
    """Return the text of a note of the fast path: the summary and the footer; empty without content."""
    footer = _footer(summary.tags, summary.keywords, depth=summary.depth, follow_ups=summary.follow_ups)
    return join_sections({SUMMARY: summary.summary, **footer})


def join_sections(sections: Mapping[str, str]) -> str:
    """Return the text of a note with these sections; `parse_sections` is its inverse.

    Args:
        sections: by the names in `SECTIONS` and `FOOTER`; empty and other ones are left out.
    """
    parts = [f"## {name}\n{body}" for name in SECTIONS if (body := _body(sections.get(name, "")))]
    footer = [f"{name}: {line}" for name in FOOTER if (line := _line(sections.get(name, "")))]
    if footer:
        parts.append(f"---\n{_FOOTER_BETWEEN.join(footer)}")
    return normalize_note("\n\n".join(parts))


def parse_sections(text: str) -> dict[str, str]:
    """Return the sections of a note by their names, in their order, with those of the footer.

    Text that is not a note is a summary, and so is text before the first heading; repeated sections are
    joined. No word is lost.
    """
    body, footer = _split_footer(normalize_note(text))
    pieces = _HEADING_LINE.split(body)
    named = [(SUMMARY, pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    lines = _FOOTER_PART.split(footer)
    named += zip(lines[1::2], lines[2::2], strict=True)
    found: dict[str, list[str]] = {}
    for name, content in named:
        if says := _LOOKS_LIKE_HEADING.sub(lambda match: match[1][1:], content.strip()):
            found.setdefault(_NAMES[name.casefold()], []).append(says)
    order = [name for name in _NAMES.values() if name in found]
    return {name: "\n\n".join(found[name]) for name in order}


def related_topics(text: str) -> tuple[str, ...]:
    """Return the related topics of a note, each once; a model may have written them as a list."""
    said = parse_sections(text).get(RELATED, "")
    return merge_items(_BULLET.sub("", topic) for topic in _BETWEEN_TOPICS.split(said))


def replace_related_topics(text: str, topics: Iterable[str]) -> str:
    """Return the text of a note that ends with these related topics, and has none elsewhere."""
    sections = parse_sections(text)
    kept = ", ".join(topics)
    return join_sections({**sections, RELATED: kept}) if kept or RELATED in sections else text


def own_text(text: str) -> str:
    """Return the text of a note without its related topics, which are those of other notes."""
    # Most notes have none: to look is cheaper than to parse.
    return replace_related_topics(text, ()) if _RELATED_ANYWHERE.search(text) else text


# Queries of a user find mostly the same notes.
@lru_cache(maxsize=1024)
def searchable_text(text: str) -> str:
    """Return the text of a note for searches: without headings, lead-ins, depth and related topics."""
    says = "\n".join(words for name, words in parse_sections(text).items() if name not in _NOT_SEARCHED)
    return _LEAD_IN.sub(" ", says)


def normalize_note(text: str) -> str:
    """Return the text with at most one empty line and one blank in a row, and none at its ends."""
    text = _MANY_BLANKS.sub(" ", _NEWLINE.sub("\n", text).strip())
    return _MANY_LINES.sub("\n\n", text)


# -- sections ---------------------------------------------------------------------------------


def _behavior(episodic: EpisodicOutput) -> str:
    profile, insights = episodic.behavioral_profile, episodic.interaction_insights
    style = (profile.communication, profile.learning, profile.problem_solving, profile.decision_making)
    return " ".join(
        (
            *_with_lead_in(STYLE, " ".join(_lines(style))),
            *_with_lead_in(ENGAGES, _line(insights.engagement_triggers)),
            *_with_lead_in(STRUGGLES, _line(insights.friction_points)),
            *_with_lead_in(WORKS_BEST, _line(insights.optimal_approach)),
        )
    )


def _experience(episodic: EpisodicOutput) -> str:
    worked, failed = episodic.what_worked, episodic.what_failed
    return " ".join(
        (
            *_with_lead_in(SUCCESSFUL, _format_strategies(worked.strategies, worked.pattern)),
            *_with_lead_in(TO_AVOID, _format_strategies(failed.strategies, failed.pattern)),
        )
    )


def _guidance(guidance: FutureGuidance) -> str:
    return " ".join(
        (
            *_with_lead_in(DO, _BETWEEN.join(_lines(guidance.recommended_approaches))),
            *_with_lead_in(DO_NOT, _BETWEEN.join(_lines(guidance.avoid_approaches))),
            *_with_lead_in(INSIGHT, _line(guidance.adaptation_note)),
        )
    )


def _footer(
    tags: Sequence[str], keywords: Sequence[str], *, depth: str | None, follow_ups: Sequence[str]
) -> dict[str, str]:
    return {
        TAGS: ", ".join(deduplicate(_lines(tags))),
        KEYWORDS: ", ".join(deduplicate(_lines(keywords))),
        DEPTH: depth or "",
        FOLLOW_UPS: _BETWEEN.join(_lines(follow_ups)),
    }


def _with_lead_in(lead_in: str, text: str) -> tuple[str, ...]:
    return (lead_in + text,) if text else ()


def _format_strategies(strategies: Iterable[str], pattern: str) -> str:
    # A pattern is written also without the strategies that it explains.
    return _WHY.join(filter(None, (_BETWEEN.join(_lines(strategies)), _line(pattern))))


def _lines(texts: Iterable[str]) -> list[str]:
    return [" ".join(text.split()) for text in clean_items(texts)]


def _line(text: str) -> str:
    """Return a text in one line; empty if it has no content."""
    return " ".join(text.split()) if has_content(text) else ""


def _body(text: str) -> str:
    """Return a text of any number of lines; empty if it has no content."""
    return _LOOKS_LIKE_HEADING.sub(r"\1\\", normalize_note(text)) if has_content(text) else ""


def _split_footer(text: str) -> tuple[str, str]:
    """Return the text before the footer, and the footer without its rule."""
    rules = list(_RULE_LINE.finditer(text))
    if rules and _FOOTER_PART.match(footer := text[rules[-1].end() :].strip()):
        return text[: rules[-1].start()], footer
    return text, ""


# -- tags and keywords ---------------------------------------------------------------------------


try:
    from rapidfuzz import fuzz
except ImportError:
    _is_installed = False  # the sync API imports this module without using notes
else:
    _is_installed = True

DUPLICATE_FROM = 75.0
"""Likeness, of 100, from which two items are the same."""

_KEPT_CATEGORIES = frozenset("LNM")
"""First letters of the Unicode categories of letters, digits and marks."""
_AS_BLANK = frozenset({"Pd", "Pc"})
"""Hyphens, dashes and underscores."""
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors: the only remainder of some emoji."""
_DIGIT = re.compile(r"\d")
_NOTHING = re.compile(r"\W*(?:n\s*[/\\]\s*a|n\.\s*a\b|not[\s-]applicable|not[\s-]available)\W*")


def check_fuzzy_matching() -> None:
    """Reject a comparison of tags without the library for it; called before synthesis is opened.

    Raises:
        UnsupportedError: rapidfuzz is not installed.
    """
    if not _is_installed:
        raise UnsupportedError("synthesis", "pip install 'sharedmem-hub[synthesis]'")


def normalize_item(text: str) -> str:
    """Return a text for comparison: letters, digits and marks of every script in lower case, and single blanks.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Fuzzy Deduplication. Its rule keeps `a-z0-9` and
    so removes every other script; this one keeps letters, digits and marks of all scripts.
    """
    words = " ".join("".join(map(_normalize_letter, fold(_VARIATION.sub("", text)))).split())
    return words if any(map(str.isalnum, words)) else ""


def deduplicate(items: Iterable[str], threshold: float = DUPLICATE_FROM) -> tuple[str, ...]:
    """Return the items without near-duplicates of earlier ones, in their order.

    A near-duplicate has a token sort ratio from the threshold on, of the normalised texts: words in any order, and so
    many per cent of equal letters. An item without letters and digits (an emoji) is compared unchanged.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Fuzzy Deduplication. Compares each with each: it
    is meant for a few dozen items.

    Args:
        items: blank ones are dropped.
        threshold: 0 to 100.
    """
    kept: list[str] = []
    forms: list[str] = []
    signs: set[str] = set()
    for item in items:
        form, sign = normalize_item(item), item.casefold().strip()
        if form:
            if any(fuzz.token_sort_ratio(form, other, score_cutoff=threshold) >= threshold for other in forms):
                continue
            forms.append(form)
        elif not sign or sign in signs:
            continue
        else:
            signs.add(sign)
        kept.append(item)
    return tuple(kept)


def merge_items(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items of several notes in their order: near-duplicates once, but every item with a number.

    `deduplicate` would drop one of two orders, versions or years whose numbers differ in one digit.

    Args:
        items: blank ones are dropped.
    """
    distinct: dict[str, str] = {}
    for item in clean_items(items):
        distinct.setdefault(item.casefold(), item)
    alike = frozenset(deduplicate(item for item in distinct.values() if not _DIGIT.search(item)))
    return tuple(item for item in distinct.values() if item in alike or _DIGIT.search(item))


def clean_items(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items with content, without surrounding blanks."""
    return tuple(item.strip() for item in items if has_content(item))


def has_content(text: str) -> bool:
    """Return whether a text has content: not blank, and not a word for nothing such as `N/A`."""
    return schemas.has_words(text) and not _NOTHING.fullmatch(normalize_text(text))


@lru_cache(maxsize=4096)
def _normalize_letter(letter: str) -> str:
    category = unicodedata.category(letter)
    if category in _AS_BLANK or letter.isspace():
        return " "
    return letter if category[0] in _KEPT_CATEGORIES else ""
