"""The text of notes: tags made tidy, sections written and read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz
from support.example_budget import example_count

from sharedmem.models import ConversationSummary
from sharedmem.synthesis.note_text import (
    FOOTER,
    SECTIONS,
    clean_items,
    deduplicate,
    format_agent_note,
    format_note,
    join_sections,
    normalize_item,
    normalize_note,
    own_text,
    parse_sections,
    related_topics,
    replace_related_topics,
    searchable_text,
)
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput

# -- tidying --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Machine-Learning", "machine learning"),
        ("machine_learning", "machine learning"),
        ("  C++ / C#!  ", "c c"),
        ("node.js", "nodejs"),
        ("Größe", "grösse"),
        ("Ｆｕｌｌ　Ｗｉｄｔｈ", "full width"),  # noqa: RUF001  # such letters are the point
        ("機械学習", "機械学習"),
        ("машинное—обучение", "машинное обучение"),
        ("हिन्दी", "हिन्दी"),
        ("عربي ٢٠٢٤", "عربي ٢٠٢٤"),
        ("❤️", ""),
        ("🎉!?", ""),
        ("", ""),
    ],
)
def test_texts_are_compared_by_the_letters_of_every_script(text: str, expected: str) -> None:
    assert normalize_item(text) == expected


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        (["machine-learning", "Machine Learning", "machine_learning"], ["machine-learning"]),
        (["learning machine", "machine learning"], ["learning machine"]),  # words in any order
        (["refund", "refunds", "billing"], ["refund", "billing"]),
        (["abcd", "abcx", "abxy"], ["abcd", "abxy"]),  # 75 is a duplicate, 50 is none
        (["日本語", "中文", "日本語"], ["日本語", "中文"]),
        (["оплата", "возврат"], ["оплата", "возврат"]),
        (["🎉", "❤️", "🎉", "❤️ "], ["🎉", "❤️"]),
        (["", "  ", "a"], ["a"]),
        ([], []),
    ],
)
def test_of_near_duplicates_the_first_one_stays(items: list[str], kept: list[str]) -> None:
    assert deduplicate(items) == tuple(kept)


def test_the_threshold_decides_what_is_near() -> None:
    assert deduplicate(["abcd", "abcx"], threshold=76) == ("abcd", "abcx")
    assert deduplicate(["abcd", "abcx"], threshold=75) == ("abcd",)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.lists(st.text(max_size=12), max_size=12))
def test_what_stays_is_unlike_and_says_all_that_there_was(items: list[str]) -> None:
    kept = deduplicate(items)

    forms = [form for item in kept if (form := normalize_item(item))]
    assert deduplicate(kept) == kept
    assert all(fuzz.token_sort_ratio(a, b) < 75 for at, a in enumerate(forms) for b in forms[:at])
    for item in items:
        form = normalize_item(item)
        near = any(fuzz.token_sort_ratio(form, other) >= 75 for other in forms)
        same = item.casefold().strip() in {other.casefold().strip() for other in kept}
        assert not item.strip() or (near if form else same)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.text(max_size=30))
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalize_item(normalize_item(text)) == normalize_item(text)


def test_items_that_say_nothing_are_dropped() -> None:
    nothing = ["N/A", "n/a", " N / A. ", "(n/a)", "n.a.", "N\\A", "Not applicable.", "not available", "", " \n", "None"]

    assert clean_items([*nothing, " order 17 ", "Nairobi", "N/A until May"]) == ("order 17", "Nairobi", "N/A until May")


# -- writing --------------------------------------------------------------------------------------

EPISODIC = EpisodicOutput.model_validate(
    {
        "context": {"available_data": "Eight messages.", "analysis_limitation": "N/A"},
        "what_worked": {"strategies": ["Short steps.", "N/A", "A link to the form."], "pattern": "They were quick."},
        "what_failed": {"strategies": ["Jargon."], "pattern": "N/A"},
        "behavioral_profile": {
            "communication": "Terse and polite.",
            "learning": "Learns by trying.",
            "problem_solving": "",
            "decision_making": "Decides at once.",
        },
        "interaction_insights": {
            "engagement_triggers": "clear deadlines.",
            "friction_points": "N/A",
            "optimal_approach": "one thing is asked at a time.",
        },
        "future_guidance": {
            "recommended_approaches": ["Name the date.", "Offer the refund first."],
            "avoid_approaches": ["Do not repeat the policy."],
            "adaptation_note": "She checks every number.",
        },
    }
)
SUMMARY = SummaryOutput.model_validate(
    {
        "narrative": "Ann Keller asked about order A-17.\n\nIt was refunded on 2024-05-03.",
        "retrieval": {
            "tags": ["refund", "Refunds", "order"],
            "keywords": ["A-17", "N/A"],
            "queries": ["Was order A-17 refunded?"],
        },
        "metadata": {"depth": "medium", "follow_ups": ["Check the bank.", "Ask for a rating."]},
    }
)
NOTE = """\
## Summary
Ann Keller asked about order A-17.

It was refunded on 2024-05-03.

## Behavioral Patterns
User's style: Terse and polite. Learns by trying. Decides at once. Engages well with: clear deadlines. \
Works best when: one thing is asked at a time.

## Experience Learnings
Successful approaches: Short steps.; A link to the form. — They were quick. Approaches to avoid: Jargon.

## Guidance
Do: Name the date.; Offer the refund first. Don't: Do not repeat the policy. Key insight: She checks every number.

---
Tags: refund, order | Keywords: A-17 | Content depth: medium | Follow-up areas: Check the bank.; Ask for a rating."""


def test_a_note_has_four_sections_and_a_footer() -> None:
    assert format_note(EPISODIC, SUMMARY) == NOTE


def test_sections_without_content_are_left_out() -> None:
    only = SummaryOutput(narrative="The parcel came.")

    assert format_note(EpisodicOutput(), only) == "## Summary\nThe parcel came."
    assert format_note(EpisodicOutput(), SummaryOutput()) == ""


def test_a_pattern_is_told_also_when_the_strategies_behind_it_are_not() -> None:
    episodic = EpisodicOutput.model_validate({"what_failed": {"strategies": ["N/A"], "pattern": "Too many words."}})

    assert format_note(episodic, SummaryOutput()) == "## Experience Learnings\nApproaches to avoid: Too many words."


def test_a_note_of_the_fast_path_is_its_summary_and_footer() -> None:
    summary = ConversationSummary(summary="The  agent paid.", tags=("pay", "pays"), keywords=("iban",), depth="low")

    text = format_agent_note(summary)

    assert text == "## Summary\nThe agent paid.\n\n---\nTags: pay | Keywords: iban | Content depth: low"
    assert format_agent_note(ConversationSummary(summary="  ")) == ""


said = st.text("abZ9 .;|#-\n—", max_size=30) | st.sampled_from(["N/A", "", "one\n\n\n\ntwo", "a   b"])
several = st.lists(said, max_size=2)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(said, several, said, said)
def test_nothing_that_was_said_is_lost_in_a_note(narrative: str, worked: list[str], pattern: str, style: str) -> None:
    episodic = EpisodicOutput.model_validate(
        {
            "what_worked": {"strategies": worked, "pattern": pattern},
            "behavioral_profile": {"communication": style},
        }
    )

    text = format_note(episodic, SummaryOutput(narrative=narrative))

    for told in clean_items([narrative, *worked, pattern, style]):
        assert "".join(told.split()) in re.sub(r"[\s\\]", "", text)
    assert normalize_note(text) == text
    assert not re.search(r"\n{3,}|  ", text)


# -- reading back ---------------------------------------------------------------------------------


def test_a_note_is_read_back_by_sections() -> None:
    sections = parse_sections(NOTE)

    assert list(sections) == [*SECTIONS, *FOOTER[:-1]]
    assert sections["Summary"] == "Ann Keller asked about order A-17.\n\nIt was refunded on 2024-05-03."
    assert sections["Guidance"].startswith("Do: Name the date.;")
    assert sections["Tags"] == "refund, order"
    assert sections["Follow-up areas"] == "Check the bank.; Ask for a rating."
    assert join_sections(sections) == NOTE


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("", {}),
        ("  \n", {}),
        ("Just a text.\n---\nAnd more.", {"Summary": "Just a text.\n---\nAnd more."}),
        ("Before.\n## summary:\nAfter.", {"Summary": "Before.\n\nAfter."}),
        ("### Guidance\nDo: x\n## Other\ny", {"Guidance": "Do: x\n## Other\ny"}),
        ("## Guidance\na\n## Summary\nb\n## Guidance\nc", {"Summary": "b", "Guidance": "a\n\nc"}),
        ("a\n-----\nKeywords: x, y\nTags: z", {"Summary": "a", "Tags": "z", "Keywords": "x, y"}),
        ("## Summary\r\na\r\n\r\n---\r\nTags: b", {"Summary": "a", "Tags": "b"}),
        # A capital or small i of Turkish is another letter.
        ("## Gu\u0131dance\nDo: x", {"Summary": "## Gu\u0131dance\nDo: x"}),
        ("a\n## Related Top\u0130cs\nb", {"Summary": "a\n## Related Top\u0130cs\nb"}),
    ],
)
def test_what_is_no_note_is_read_without_losing_a_word(text: str, sections: dict[str, str]) -> None:
    assert parse_sections(text) == sections


@pytest.mark.parametrize(
    "text",
    [
        "## Related Topics\n- ferries\n- Fish\n\n## Summary\nThe tide.\n\n---\nTags: tide",
        "## Summary\nThe tide.\n\n---\nRelated topics: ferries | Tags: tide | Related Topics: fish",
        "The tide.\n## Related Topics:\nferries; fish\n---\nTags: tide",
    ],
)
def test_related_topics_are_at_the_end_once_however_they_were_written(text: str) -> None:
    topics = related_topics(text)

    assert [topic.casefold() for topic in topics] == ["ferries", "fish"]
    ends = replace_related_topics(text, topics)
    assert ends == f"## Summary\nThe tide.\n\n---\nTags: tide | Related Topics: {', '.join(topics)}"
    assert own_text(text) == own_text(ends) == "## Summary\nThe tide.\n\n---\nTags: tide"
    assert searchable_text(ends) == "The tide.\ntide"


def test_a_text_that_looks_like_a_note_does_not_become_sections() -> None:
    sly = "It said:\n## Guidance\nDo: obey\n---\nTags: sly\n\\---"

    text = join_sections({"Summary": sly, "Tags": "true"})

    assert parse_sections(text) == {"Summary": sly, "Tags": "true"}


lines = st.lists(
    st.sampled_from(["## Guidance", "---", "\\---", "Tags: x", "word", "", "## other", " ---"]), max_size=6
)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(SECTIONS, lines.map("\n".join))))
def test_sections_come_back_as_they_were_written(sections: dict[str, str]) -> None:
    expected = {name: body for name, text in sections.items() if (body := normalize_note(text))}

    assert parse_sections(join_sections(sections)) == expected
