"""docs/synthesis.md: the offline agents are heuristics that quote and count; they lose no fact and invent none."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

from sharedmem.models import ConsolidationReport, Note, Resolution, SynthesisMessage
from sharedmem.synthesis.fact_coverage import check_facts_preserved, missing_facts
from sharedmem.synthesis.note_text import format_note, parse_sections
from sharedmem.synthesis.rule_agents import RuleAgents
from sharedmem.synthesis.schemas import EpisodicOutput, SummaryOutput

AGENTS = RuleAgents()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROLES = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}

SUPPORT = (
    "u: Hi, my order 4711 has not arrived. It was due on 3 May 2026.",
    "a: Sorry to hear that! I'll check with DHL and get back to you by Friday.",
    "u: Thanks. I prefer email over phone, my address is eva@example.org.",
)
REPAIR = (
    "u: The app crashes with error E-55 on my Pixel 8. I already restarted it. Please walk me through it step by step.",
    "a: Clear the cache under Settings > Apps.",
    "u: That did not work. This is the third time, I'm frustrated.",
    "a: Then reinstall version 2.4.1 from the store.",
    "u: That fixed it, thanks! I'll keep version 2.4.1.",
)
GERMAN = (
    "u: Guten Tag! Ich wohne jetzt in Kiel, Hauptstraße 5. Mein Tarif ist Basic für 9,99 € im Monat.",
    "a: Danke. Der Tarif „Basic Plus“ kostet 12,99 €. Haben Sie noch Fragen?",
    "u: Ja, warum ist er teurer? Bitte kurz.",
)
JAPANESE = (
    "u: こんにちは。住所は東京都渋谷区1-2-3です。コーヒーが好きです。",
    "a: かしこまりました。後ほどご連絡します。",
    "u: アプリが動きません。エラー500が出ます。手順を教えてください。",
)
ARABIC = ("u: مرحبا، أعيش في القاهرة. رقم هاتفي هو 0101234567. أفضل الشاي.", "a: شكرا، سأتصل بك غدا.")
CHINESE = ("u: 你好。我的订单号是88123。我喜欢绿茶。", "a: 好的。我会在3月5日之前回复您。")
MIXED = ("s: You are a helpful assistant of ACME.", "u: my iPhone is broken", "t: warranty=A-123 until=2027-01-31")
CONVERSATIONS = {
    "support": SUPPORT,
    "repair": REPAIR,
    "german": GERMAN,
    "japanese": JAPANESE,
    "arabic": ARABIC,
    "chinese": CHINESE,
    "mixed": MIXED,
}


def told(lines: tuple[str, ...]) -> list[SynthesisMessage]:
    return [SynthesisMessage.model_validate({"role": ROLES[line[0]], "content": line[3:]}) for line in lines]


async def read(lines: tuple[str, ...]) -> tuple[EpisodicOutput, SummaryOutput]:
    messages = told(lines)
    return await asyncio.gather(AGENTS.episodic(messages), AGENTS.summarizer(messages))


async def noted(*lines: str, day: int = 0) -> Note:
    text = format_note(*await read(lines))
    made = NOW + timedelta(days=day)
    return Note(id=f"note-{day}", app_id="app", user_id="u", memory_note=text, created_at=made, updated_at=made)


async def judged(old: str, new: str) -> Resolution:
    (resolution,) = await AGENTS.judge(await noted(f"u: {new}", day=1), [await noted(f"u: {old}")])
    return resolution


# -- summaries --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_no_fact_of_a_conversation_is_lost(name: str) -> None:
    lines = CONVERSATIONS[name]

    note = await noted(*lines)

    spoken = [line[3:] for line in lines if not line.startswith("s:")]
    assert missing_facts(spoken, note.memory_note) == []


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_every_sentence_of_a_summary_was_said(name: str) -> None:
    lines = CONVERSATIONS[name]
    _, summary = await read(lines)

    said = re.sub(r"\s", "", "".join(line[3:] for line in lines))
    for line in summary.narrative.splitlines():
        speaker, _, text = line.partition(": ")
        assert speaker in {"User", "Assistant", "Tool"}
        assert re.sub(r"\s", "", text[:10]) in said
    assert all(follow_up in said for follow_up in map("".join, map(str.split, summary.metadata.follow_ups)))


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_same_conversation_gives_the_same_answers(name: str) -> None:
    assert await read(CONVERSATIONS[name]) == await read(CONVERSATIONS[name])


async def test_greetings_and_thanks_are_left_out_and_statements_stay() -> None:
    _, summary = await read(SUPPORT)
    _, arabic = await read(ARABIC)

    assert "Thanks." not in summary.narrative
    assert "Sorry" not in summary.narrative
    assert "أعيش في القاهرة" in arabic.narrative


@pytest.mark.parametrize("text", ["👍", "thanks!", "Hallo", "ok"])
async def test_when_there_is_nothing_else_a_courtesy_is_the_story(text: str) -> None:
    _, summary = await read((f"u: {text}",))

    assert summary.narrative == f"User: {text}"


async def test_of_blank_messages_nothing_is_said() -> None:
    messages = [SynthesisMessage(role="user", content=" \n\t ")]

    summary, episodic = await AGENTS.summarizer(messages), await AGENTS.episodic(messages)

    assert summary.narrative == ""
    assert format_note(episodic, summary) == ""


async def test_names_of_speakers_stand_before_what_they_say() -> None:
    messages = [SynthesisMessage(role="user", name="Eva", content="My plan is Pro.")]

    assert (await AGENTS.summarizer(messages)).narrative == "Eva: My plan is Pro."


async def test_long_conversations_keep_facts_before_talk_and_stay_bounded() -> None:
    talk = "u: " + " ".join(
        f"then we talked about this and that, and about so many other things {'x' * n}?" for n in range(90)
    )
    facts = [f"a: Ticket T-{number} is open." for number in range(40)]

    _, summary = await read((talk, *facts))

    assert len(summary.narrative) < 9_000
    assert all(f"T-{number} " in summary.narrative for number in range(40))


async def test_one_huge_message_is_cut_to_the_bound_at_a_blank() -> None:
    words = " ".join(f"word{number}" for number in range(10_000))

    _, summary = await read((f"u: {words}", f"a: {'a' * 50_000}"))

    assert 7_000 < len(summary.narrative) < 9_000
    assert set(summary.narrative.split()) <= {"User:", *words.split()}
    assert all(len(keyword) < 100 for keyword in summary.retrieval.keywords)


@pytest.mark.parametrize(
    ("name", "tag", "keyword"),
    [
        ("support", "order", "4711"),
        ("repair", "version", "2.4.1"),
        ("german", "tarif", "Kiel"),
        ("japanese", "コーヒー", "500"),
        ("arabic", "القاهرة", "0101234567"),
        ("chinese", "绿茶", "88123"),
        ("mixed", "warranty", "2027-01-31"),
    ],
)
async def test_a_note_is_found_by_its_subjects_and_numbers_in_any_script(name: str, tag: str, keyword: str) -> None:
    retrieval = (await read(CONVERSATIONS[name]))[1].retrieval

    assert tag in retrieval.tags
    assert keyword in retrieval.keywords
    assert len(retrieval.tags) <= 8
    assert len(retrieval.keywords) <= 10
    assert retrieval.queries


@pytest.mark.parametrize(
    ("lines", "follow_ups"),
    [
        (SUPPORT, ("I'll check with DHL and get back to you by Friday.",)),
        (("u: Where is my order 4711?",), ("Where is my order 4711?",)),
        (("u: Where is my order 4711?", "a: It is in Kiel."), ()),
        (("a: Which size do you take?", "u: L, please."), ()),
        (("u: I will send the logs.",), ("I will send the logs.",)),
        (("u: I'll take the blue one.",), ()),
        (JAPANESE, ("後ほどご連絡します。",)),
    ],
)
async def test_what_is_promised_or_unanswered_is_to_be_followed_up(
    lines: tuple[str, ...], follow_ups: tuple[str, ...]
) -> None:
    assert (await read(lines))[1].metadata.follow_ups == follow_ups


@pytest.mark.parametrize(
    ("lines", "depth"),
    [
        (("u: My plan is Pro.",), "low"),
        (SUPPORT, "medium"),
        (tuple(f"u: This is sentence {n}." for n in range(12)), "high"),
    ],
)
async def test_depth_goes_by_how_much_was_said(lines: tuple[str, ...], depth: str) -> None:
    assert (await read(lines))[1].metadata.depth == depth


async def test_a_fast_summary_is_marked_as_offline_and_keeps_facts() -> None:
    summary = await AGENTS.fast_summary(told(SUPPORT))

    assert (summary.mode, summary.offline) == ("fast", True)
    assert all(fact in summary.summary for fact in ("4711", "3 May 2026", "DHL", "eva@example.org"))
    assert "order" in summary.tags


# -- behaviour --------------------------------------------------------------------------------


async def test_what_worked_and_what_did_not_is_quoted_with_the_answer_before_it() -> None:
    episodic, _ = await read(REPAIR)

    assert episodic.what_worked.strategies == (
        "Then reinstall version 2.4.1 from the store. -> That fixed it, thanks!",
    )
    assert episodic.what_failed.strategies == ("Clear the cache under Settings > Apps. -> That did not work.",)
    assert episodic.behavioral_profile.learning.endswith("Please walk me through it step by step.")
    assert episodic.behavioral_profile.problem_solving.endswith("I already restarted it.")
    assert episodic.behavioral_profile.decision_making.endswith("I'll keep version 2.4.1.")
    assert episodic.interaction_insights.friction_points == "This is the third time, I'm frustrated."
    assert episodic.context.available_data == "5 messages: 3 of user, 2 of assistant."


@pytest.mark.parametrize(
    ("text", "field", "start"),
    [
        ("I prefer tea to coffee.", "recommended_approaches", "I prefer tea"),
        ("Ich mag kurze Antworten.", "recommended_approaches", "Ich mag kurze"),
        ("コーヒーが好きです。", "recommended_approaches", "コーヒー"),
        ("أفضل الشاي.", "recommended_approaches", "أفضل"),
        ("Please never call me.", "avoid_approaches", "Please never"),
        ("I don't like long emails.", "avoid_approaches", "I don't like"),
        ("辛いものが嫌いです。", "avoid_approaches", "辛い"),
    ],
)
async def test_likes_and_dislikes_become_guidance(text: str, field: str, start: str) -> None:
    guidance = (await read((f"u: {text}",)))[0].future_guidance.model_dump()

    assert [quote[: len(start)] for quote in guidance[field]] == [start]


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("Please keep it short.", "Wants it brief"),
        ("Bitte kurz.", "Wants it brief"),
        ("Tell me in detail.", "Wants details"),
        ("詳しく教えて。", "Wants details"),
    ],
)
async def test_wishes_for_length_are_quoted(text: str, sign: str) -> None:
    assert (await read((f"u: {text}",)))[0].behavioral_profile.communication == f"{sign}: {text}"


async def test_without_evidence_fields_stay_empty() -> None:
    episodic, _ = await read(("u: The sky is blue.", "a: I prefer not to say, that works."))

    assert episodic.model_dump(exclude={"context"}) == EpisodicOutput().model_dump(exclude={"context"})
    assert episodic.context.user_intent == "The sky is blue."


# -- verdicts ---------------------------------------------------------------------------------

REPLACED = [
    ("I live in Kiel.", "I moved to Bremen last week."),
    ("My plan is Basic.", "I changed my plan from Basic to Pro."),
    ("The deadline for project Apollo is 3 May.", "The deadline for project Apollo was moved to 10 May."),
    ("The price of the Pro plan is 30 EUR.", "The price of the Pro plan is now 35 EUR."),
    ("My email is a@b.de.", "My new email is c@d.de."),
    ("Meeting is on Monday.", "The meeting has been moved to Tuesday."),
    ("I use Slack.", "I no longer use Slack."),
    ("I ordered the blue lamp.", "Please cancel: I ordered the blue lamp by mistake."),
    ("I prefer tea.", "I now prefer coffee."),
    ("Anna works at Bosch.", "Anna now works at Siemens."),
    ("Ich wohne in Kiel.", "Ich bin nach Bremen gezogen."),
    ("Der Termin ist am Montag.", "Der Termin wurde auf Freitag verschoben."),
    ("住所は東京です。", "住所は大阪に変わりました。"),
    ("東京に住んでいます。", "大阪に引っ越しました。"),
    ("أعيش في القاهرة.", "انتقلت إلى الإسكندرية."),
    ("رقم هاتفي هو 0101234567.", "رقم هاتفي الآن 0109999999."),
    ("J'habite à Paris.", "J'habite maintenant à Lyon."),
    ("Vivo en Madrid.", "Me mudé. Ahora vivo en Sevilla."),
]


@pytest.mark.parametrize(("old", "new"), REPLACED)
async def test_a_note_whose_every_word_is_replaced_is_deleted(old: str, new: str) -> None:
    resolution = await judged(old, new)

    assert resolution.operation == "DELETE"
    assert resolution.decided_by == "rules"
    assert resolution.reasoning.startswith("rule replaced")
    assert 0.6 <= resolution.confidence_score <= 1


@pytest.mark.parametrize(("old", "new"), REPLACED)
async def test_an_older_value_is_kept_as_such_when_notes_come_together(old: str, new: str) -> None:
    older, newer = await noted(f"u: {old}"), await noted(f"u: {new}", day=1)

    note = (await AGENTS.consolidate(newer, [older])).note

    check_facts_preserved([older.memory_note, newer.memory_note], note)
    lines = parse_sections(note)["Summary"].splitlines()
    assert lines[0] == f"Earlier: User: {old}"
    assert lines[-1].startswith("Now: User: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I live in Kiel and have a dog called Bello.", "I moved to Bremen."),
        ("I live in Kiel. My dog is Bello.", "I moved to Bremen."),
        ("My plan is Basic, paid with card 4242.", "My plan is now Pro."),
        ("The project Apollo budget is 500 EUR.", "The project Apollo team has 7 people in Rome."),
        ("I live in Kiel with my wife Ann.", "I moved to Bremen."),
        ("I live in Kiel since 2019.", "I moved to Bremen."),
        ("The meeting is on Monday at 9 in room 5.", "The meeting was moved to Tuesday."),
        ("My email is a@b.de (private) and c@d.de (work).", "My email is now x@y.de."),
        ("The version is 2.4 on staging.", "The version is now 2.5."),
        ("Der Termin ist am Montag mit Herrn Kunz.", "Der Termin wurde auf Freitag verschoben."),
        ("Order 4711 with 3 lamps is late.", "Order 4711 has arrived today."),
    ],
)
async def test_a_note_that_says_more_than_what_was_replaced_is_consolidated(old: str, new: str) -> None:
    resolution = await judged(old, new)

    assert resolution.operation == "UPDATE"


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("I like tea with milk.", "My server runs Debian 12.", "apart"),
        ("My dog is Bello.", "My dog is Rex.", "apart"),
        ("I live in Kiel.", "I moved to the Pro plan.", "apart"),
        ("I like tea.", "I like tea.", "nothing new"),
        ("My plan is Pro. It costs 30 EUR.", "My plan is Pro.", "nothing new"),
        ("紅茶が好きです。", "サーバーはDebianです。", "apart"),
    ],
)
async def test_notes_that_do_not_touch_each_other_are_left_alone(old: str, new: str, rule: str) -> None:
    resolution = await judged(old, new)

    assert resolution.operation == "SKIP"
    assert resolution.reasoning.startswith(f"rule {rule}")


async def test_what_is_newer_is_not_replaced_by_what_is_older() -> None:
    older, newer = await noted("u: My plan is Basic."), await noted("u: My plan is now Pro.", day=1)

    (resolution,) = await AGENTS.judge(older, [newer])

    assert resolution.operation != "DELETE"


async def test_denying_a_thing_does_not_repeat_it() -> None:
    assert (await judged("I like tea with milk.", "I do not like tea with milk.")).operation == "UPDATE"


async def test_each_linked_note_gets_its_own_verdict_in_order() -> None:
    new = await noted("u: I moved to Bremen.", day=9)
    old = [await noted("u: My server runs Debian 12.", day=1), await noted("u: I live in Kiel.", day=2)]

    resolutions = await AGENTS.judge(new, old)

    assert [(one.memory_id, one.operation) for one in resolutions] == [("note-1", "SKIP"), ("note-2", "DELETE")]
    assert await AGENTS.judge(new, []) == []


# -- consolidation ----------------------------------------------------------------------------


@pytest.mark.parametrize("one", CONVERSATIONS)
async def test_whatever_comes_together_keeps_all_facts(one: str) -> None:
    notes = [await noted(*CONVERSATIONS[one]), *[await noted(*lines, day=1) for lines in CONVERSATIONS.values()]]

    made = await AGENTS.consolidate(notes[0], notes[1:])

    assert made.by == "rules"
    check_facts_preserved([note.memory_note for note in notes], made.note)


async def test_the_same_words_stand_there_once_and_in_the_order_of_time() -> None:
    first = await noted("u: My plan is Pro. I like tea.", day=1)
    second = await noted("u: I like tea. My dog is Bello.", day=2)

    note = (await AGENTS.consolidate(second, [first])).note

    summary = parse_sections(note)["Summary"]
    assert summary == "User: My plan is Pro. I like tea.\nUser: My dog is Bello."
    assert parse_sections(note)["Guidance"] == "Do: I like tea."


async def test_a_merge_counts_what_it_added_and_dropped() -> None:
    old = await noted("u: I have a dog. The dog is called Rex. My plan is Basic.")
    new = await noted("u: I have a dog. My plan is now Pro. My card is 4242.", day=1)

    report = (await AGENTS.consolidate(new, [old])).report

    assert report == ConsolidationReport(
        memories_merged=2,
        new_information_added="high",
        deduplication_count=1,
        notes="2 of 3 sentences are new; older sentences marked as earlier: 1.",
    )
    repeated = (await AGENTS.consolidate(await noted("u: The dog is called Rex.", day=2), [old])).report
    assert (repeated.new_information_added, repeated.deduplication_count) == ("low", 1)


async def test_a_value_that_changes_twice_ends_as_the_last_one() -> None:
    first, second = await noted("u: My plan is Basic."), await noted("u: My plan is now Pro. My dog is Rex.", day=1)
    middle = second.model_copy(update={"memory_note": (await AGENTS.consolidate(second, [first])).note})
    third = await noted("u: My plan is now Max.", day=2)

    note = (await AGENTS.consolidate(third, [middle])).note

    assert parse_sections(note)["Summary"].splitlines() == [
        "Earlier: User: My plan is Basic.",
        "Earlier: User: My plan is now Pro.",
        "User: My dog is Rex.",
        "Now: User: My plan is now Max.",
    ]


async def test_advice_that_holds_no_longer_is_no_advice() -> None:
    old, new = await noted("u: I prefer tea."), await noted("u: I now prefer coffee.", day=1)

    sections = parse_sections((await AGENTS.consolidate(new, [old])).note)

    assert sections["Guidance"] == "Do: I now prefer coffee."
    assert "Earlier: User: I prefer tea." in sections["Summary"]


async def test_tags_come_together_sorted_and_near_duplicates_once() -> None:
    def with_tags(tags: str, day: int) -> Note:
        text = f"## Summary\nA story of day {day}.\n\n---\nTags: {tags} | Keywords: zebra | Content depth: low"
        made = NOW + timedelta(days=day)
        return Note(id=f"n{day}", app_id="app", user_id="u", memory_note=text, created_at=made, updated_at=made)

    made = await AGENTS.consolidate(with_tags("orders, v2.1, billing", 2), [with_tags("v2.2, order, Äpfel", 1)])

    sections = parse_sections(made.note)
    assert sections["Tags"] == "billing, order, v2.1, v2.2, Äpfel"
    assert sections["Keywords"] == "zebra"


async def test_sixteen_notes_of_one_matter_become_one_with_all_facts() -> None:
    head = await noted("u: Fact 0 of project Apollo: the budget is 500 EUR.")
    texts = [head.memory_note]
    for number in range(1, 16):
        new = await noted(
            f"u: Fact {number} of project Apollo: room {number * 7} is booked by Team{number}.", day=number
        )
        (resolution,) = await AGENTS.judge(new, [head])
        assert resolution.operation == "UPDATE"
        texts.append(new.memory_note)
        head = new.model_copy(update={"memory_note": (await AGENTS.consolidate(new, [head])).note})

    check_facts_preserved(texts, head.memory_note)
