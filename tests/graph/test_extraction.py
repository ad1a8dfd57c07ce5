"""docs/graph-rules.md: forms, vocabularies and the shipped rules find entities and facts offline."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count
from support.rule_extraction import day, extract_statements, extract_text, extract_times, format_statement, make_rules

from sharedmem.graph.protocol import Mention
from sharedmem.models import UNKNOWN

# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("about Order #1234, please", "order 1234", "order"),
        ("my order no. 1234 is late", "order 1234", "order"),
        ("it was #1234.", "order 1234", "order"),
        ("see INV-2024-17", "INV-2024-17", "invoice"),
        ("Ticket #77 is open", "ticket 77", "ticket"),
        ("item AB-1234", "AB-1234", "id"),
        ("write to anna.smith@example.org!", "anna.smith@example.org", "email"),
        ("look at https://example.org/a?b=1.", "https://example.org/a?b=1", "url"),
        ('we read "The Hobbit" twice', "The Hobbit", "title"),
        ("then Anna de Vries called", "Anna de Vries", ""),
        ("I met Anna's boss", "Anna", ""),
        ("with Marks & Spencer today", "Marks & Spencer", ""),
        ("we bought a Trail 500 there", "Trail 500", ""),
    ],
)
async def test_a_name_is_found_by_its_form(text: str, name: str, type_: str) -> None:
    found = {mention.name: mention.type for mention in (await extract_text(text)).mentions}

    assert found.get(name) == type_


async def test_what_a_form_was_written_as_is_another_name() -> None:
    (mention,) = (await extract_text("it is about Order #1234")).mentions

    assert (mention.name, mention.aliases) == ("order 1234", ("Order #1234",))


@pytest.mark.parametrize(
    "text",
    [
        "Shipping was late.",
        "Yesterday it rained. Then it stopped.",
        "Please help. Thanks!",
        "In March it was cold",
        "I",
    ],
)
async def test_a_word_that_only_begins_a_sentence_is_no_name(text: str) -> None:
    assert [mention.name for mention in (await extract_text(text)).mentions] in ([], ["user"])


async def test_a_vocabulary_knows_names_in_any_case_and_by_their_aliases() -> None:
    known = [{"name": "Acme Corp", "type": "company", "aliases": ["acme", "ACME Inc."]}]
    extractor = make_rules(vocabulary=known)

    found = (await extract_text("the acme inc. office and acme's shop, but not acmes", extractor)).mentions

    assert found == (Mention("Acme Corp", "company", ("acme", "ACME Inc.")),)


async def test_the_longest_name_of_a_vocabulary_counts() -> None:
    extractor = make_rules(vocabulary=[{"name": "Halo"}, {"name": "Halo 2"}])

    assert [mention.name for mention in (await extract_text("my halo 2 broke", extractor, user="u")).mentions] == [
        "u",
        "Halo 2",
    ]


async def test_i_is_the_user_of_the_episode_and_you_are_when_an_agent_speaks() -> None:
    assert await extract_statements("I live in Berlin", user="anna") == ["holds anna lives_in Berlin"]
    assert await extract_statements("I live in Berlin") == ["holds user lives_in Berlin"]
    assert await extract_statements("I see that you live in Berlin", user="anna", source="agent") == [
        "holds anna lives_in Berlin"
    ]
    assert await extract_statements("You live in Berlin", user="anna", source="user") == []


async def test_german_and_french_have_their_own_words_for_me_and_for_what_is_no_name() -> None:
    german = make_rules("{me} bin nach {city} gezogen -> lives_in(me, city)", languages=["de"])
    french = make_rules("{me} habite {city} -> lives_in(me, city)", languages=["fr"])

    moved = await extract_text("Der Umzug war gestern: ich bin nach Porto gezogen, und Anna Lopez auch.", german)
    assert [format_statement(each) for each in moved.statements] == ["holds user lives_in Porto"]
    assert {mention.name for mention in moved.mentions} == {"user", "Porto", "Anna Lopez"}
    assert await extract_statements("Depuis mars, moi habite Porto. Mais Anna part.", french) == [
        "holds user lives_in Porto"
    ]
    assert [mention.name for mention in (await extract_text("Mais avec Anna, i.e. nous", french)).mentions] == ["Anna"]


async def test_a_user_of_the_vocabulary_is_called_as_it_says() -> None:
    extractor = make_rules(
        "{person} moved to {city} -> lives_in(person, city)",
        vocabulary=[{"name": "Anna Smith", "type": "person", "aliases": ["cust-17"]}],
    )

    assert await extract_statements("I moved to Berlin", extractor, user="cust-17") == [
        "holds Anna Smith lives_in Berlin"
    ]


async def test_data_is_read_as_its_names_and_values() -> None:
    found = await extract_text({"note": "Anna moved to Berlin", "order": {"id": "order #1234"}})

    assert [format_statement(statement) for statement in found.statements] == ["holds Anna lives_in Berlin"]
    assert "order 1234" in {mention.name for mention in found.mentions}


# -- the shipped rules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("Anna lives in Berlin.", "holds Anna lives_in Berlin"),
        ("I have just moved to Berlin", "holds user lives_in Berlin"),
        ("Anna doesn't live in Rome anymore.", "ends Anna lives_in Rome"),
        ("Anna works for Acme Corp", "holds Anna works_for Acme Corp"),
        ("I'm working at Acme.", "holds user works_for Acme"),
        ("Anna no longer works for Acme", "ends Anna works_for Acme"),
        ("Anna joined Globex", "holds Anna works_for Globex"),
        ("Anna left Globex", "ends Anna works_for Globex"),
        ("Anna Smith is the new CEO of Initech", "holds Initech has_ceo Anna Smith"),
        ("I'm married to Bob", "holds user married_to Bob"),
        ("My wife Anna called", "holds user married_to Anna"),
        ("Bob and Anna got divorced", "ends Bob married_to Anna"),
        ("Acme is now called Globex GmbH", "holds Acme @name 'Globex GmbH'"),
        ("I ordered a red laptop and it arrived", "holds user ordered red laptop"),
        ("Anna sent back the Trail 500", "holds Anna returned Trail 500"),
        ("The order #1234 was returned", "holds order 1234 @status 'returned'"),
        ("order #1234 has been canceled", "holds order 1234 @status 'cancelled'"),
        ("The Trail 500 costs $1,200.50", "holds Trail 500 @price '1200.50 USD'"),
        ("The price of the Trail 500 rose to 99 EUR", "holds Trail 500 @price '99 EUR'"),
        ("My new email is a@b.org", "holds user @email 'a@b.org'"),
        ("Acme acquired Globex", "holds Acme owns Globex"),
    ],
)
async def test_the_shipped_rules_know_everyday_english(text: str, statement: str) -> None:
    assert statement in await extract_statements(text)


@pytest.mark.parametrize(
    "text",
    [
        "Anna has not moved to Berlin",
        "Anna never lived in Berlin",
        "Has Anna moved to Berlin?",
        "If Anna moved to Berlin, we would write",
        "Maybe Anna moved to Berlin",
        "Anna will move to Berlin",
    ],
)
async def test_what_is_denied_asked_or_supposed_is_not_said(text: str) -> None:
    assert await extract_statements(text) == []


# -- orders, problems and refunds -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "item", "problem"),
    [
        ("The laptop I ordered arrived damaged", "laptop", "damaged laptop"),
        ("I ordered a laptop last week but it arrived damaged", "laptop", "damaged laptop"),
        ("I bought two chairs online, and they were delivered badly scratched.", "two chairs", "damaged two chairs"),
        ("Unfortunately the vase that I bought from Acme came with a cracked foot.", "vase", "damaged vase"),
        ("The phone I purchased last month stopped working.", "phone", "defective phone"),
        ("The Trail 500 I have ordered is defective", "Trail 500", "defective Trail 500"),
        ("The red shoes which I ordered never arrived", "red shoes", "missing red shoes"),
        ("The headphones I ordered arrived too late.", "headphones", "late headphones"),
    ],
)
async def test_an_order_that_went_wrong_contains_its_item_and_has_an_issue(text: str, item: str, problem: str) -> None:
    found = await extract_text(text)

    assert [format_statement(statement) for statement in found.statements] == [
        f"holds user ordered {item}",
        f"holds {item} order contains {item}",
        f"holds {item} order has_issue {problem}",
    ]
    types = {mention.name: mention.type for mention in found.mentions}
    assert (types[item], types[f"{item} order"], types[problem]) == ("product", "order", "issue")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("My laptop arrived broken.", "holds laptop has_issue damaged laptop"),
        ("I see that the blender came with broken blades", "holds blender has_issue damaged blender"),
        ("I received a defective phone", "holds phone has_issue defective phone"),
        ("Order #1234 arrived dented.", "holds order 1234 has_issue damaged order 1234"),
        ("My order #1234 has not arrived", "holds order 1234 has_issue missing order 1234"),
        ("My parcel arrived torn", "holds order of user has_issue damaged order of user"),
        ("I want a full refund for the broken blender", "holds user requested_refund_for blender"),
        ("I want a full refund for the broken blender", "holds blender has_issue damaged blender"),
        ("I'd like my money back for the red shoes", "holds user requested_refund_for red shoes"),
        ("Anna Smith asked for a replacement for the Trail 500", "holds Anna Smith requested_refund_for Trail 500"),
        ("I am asking for a refund on order #1234.", "holds user requested_refund_for order 1234"),
        ("Please refund order #1234", "holds order 1234 @refund 'requested'"),
    ],
)
async def test_problems_and_refunds_are_found_without_an_order_too(text: str, statement: str) -> None:
    assert statement in await extract_statements(text)


@pytest.mark.parametrize(
    "text",
    [
        "The laptop I ordered arrived undamaged.",
        "The laptop I ordered arrived in perfect condition.",
        "The laptop I ordered did not arrive damaged.",
        "If the laptop I ordered arrives damaged, I want a refund.",
        "Did the laptop I ordered arrive damaged?",
        "The storm damaged the roof.",
        "I damaged my laptop.",
        "The laptop was not damaged.",
        "My heart is broken.",
        "My brother stopped working at the harbour.",
        "My wife does not work.",
        "The ferry arrived late.",
        "Anna arrived late and tired.",
        "I do not want a refund for the laptop.",
        "Would I get a refund for the broken laptop?",
        "The refund policy covers damaged goods.",
        "My order is big.",
        "Your logic is faulty.",
    ],
)
async def test_what_is_no_problem_with_an_order_is_not_taken_for_one(text: str) -> None:
    assert await extract_statements(text) == []


async def test_who_did_one_thing_did_the_next_one_too() -> None:
    assert await extract_statements("Anna left Acme and joined Globex") == [
        "ends Anna works_for Acme",
        "holds Anna works_for Globex",
    ]


async def test_a_new_name_is_another_name_of_the_same() -> None:
    found = await extract_text("Acme is now called Globex. Anna works for Globex.")

    names = {mention.name: mention.aliases for mention in found.mentions}
    assert names == {"Acme": ("Globex",), "Anna": ()}
    assert format_statement(found.statements[-1]) == "holds Anna works_for Acme"


async def test_rules_say_of_what_type_a_name_is() -> None:
    found = await extract_text("Anna moved to Berlin")

    assert {mention.name: mention.type for mention in found.mentions} == {"Anna": "person", "Berlin": "city"}


# -- dates of a sentence --------------------------------------------------------------------------


async def test_the_dates_of_a_sentence_say_since_when_and_until_when() -> None:
    assert await extract_times("In March Anna finally moved to Berlin") == [(day(3, 1), None)]
    assert await extract_times("Anna lives in Berlin until Friday") == [(None, day(5, 18))]
    assert await extract_times("Anna lived in Rome from June to August 2023") == [(day(6, 1, 2023), day(9, 1, 2023))]
    assert await extract_times("Anna lives in Berlin") == [(None, None)]
    assert await extract_times("I moved, last week, to Berlin") == [(day(5, 6), None)]


async def test_each_date_belongs_to_what_was_said_before_it() -> None:
    found = (await extract_text("Anna joined Globex in 2019 and left Globex in 2021.")).statements

    assert [(each.says, each.valid_from) for each in found] == [("holds", day(1, 1, 2019)), ("ends", day(1, 1, 2021))]


async def test_a_correction_counts_with_the_date_that_is_meant() -> None:
    assert await extract_times("Actually, I moved to Berlin in March, not in May.") == [(day(3, 1), None)]


async def test_a_correction_in_the_next_sentence_changes_the_date() -> None:
    assert await extract_times("Anna left Acme. I moved to Berlin in May. Sorry, it was in March.") == [
        (None, None),
        (day(3, 1), None),
    ]


async def test_a_rule_says_since_when_it_holds_without_a_date() -> None:
    when = "{person} will move to {city}"
    required = make_rules({"when": when, "then": "lives_in(person, city)", "since": "required"})
    unknown = make_rules({"when": when, "then": ["lives_in(person, city)"], "since": "unknown"})

    assert await extract_times("Anna will move to Rome", required) == []
    assert await extract_times("Anna will move to Rome in June", required) == [(day(6, 1), None)]
    assert await extract_times("Anna will move to Rome", unknown) == [(UNKNOWN, None)]


# -- anything at all ------------------------------------------------------------------------------

HARD = make_rules(
    "{a:any} [x] [y] (a|b|c d) [z] {b:thing} (e|f) {c:words} g -> r(a, b)",
    patterns=[
        {"type": "one", "pattern": r"(\w+)+!"},
        {"type": "two", "pattern": r"(?:a|a)*b"},
        {"type": "three", "pattern": r"(x+x+)+y"},
    ],
    vocabulary=[{"name": "a b"}, {"name": "a b c"}, {"name": "\u0130stanbul"}],
    builtin=True,
)
WORDS = """
    I Anna moved to Berlin a b c x g ' 's " . , ? ! ; # #1234 order $ 12 , . EUR @ a@b.c e-mail since March until 9999
    is now called my wife and and ordered it \ue000 \uf8ff \u201c \u0130 \u1e9e \u00e9 aaaaaaaaaaaaaaaa xxxxxxxxxxxxxxxx
"""
PIECES = st.lists(st.sampled_from(["\n", *WORDS.split()]), max_size=60)


@settings(max_examples=example_count(50, thorough=150), deadline=None)
@given(st.one_of(st.text(max_size=200), PIECES.map(" ".join), PIECES.map("".join)))
async def test_no_text_stops_the_extractor(text: str) -> None:
    found = await extract_text(text or "-", HARD)

    names = {mention.name for mention in found.mentions}
    for statement in found.statements:
        assert statement.source in names
        assert statement.target in {*names, ""}


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "x" * 50_000 + "!",
        "A " * 50_000,
        "I and " * 20_000,
        '"' * 50_000,
        "1," * 50_000,
        "and a b c " * 9_000,
    ],
)
async def test_a_long_text_is_read_in_part_and_says_so(text: str) -> None:
    found = await extract_text(text, HARD)

    assert found.warnings == ("only the first 20,000 characters were read",)
