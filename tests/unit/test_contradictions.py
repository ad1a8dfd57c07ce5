"""Guards: what tells two near texts apart, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.text.contradictions import find_contradiction


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("take 2 mg a day", "take 20 mg a day"),
        ("take 2 mg a day", "take 2 g a day"),
        ("take 2 mg a day", "take two grams a day"),
        ("the fee is $5", "the fee is 5 euro"),
        ("it costs 5 %", "it costs 5 dollars"),
        ("it grew by 3.5 percent", "it grew by 35 percent"),
        ("it is -5 degrees outside", "it is 5 degrees outside"),
        ("upgrade to version 2.1.0", "upgrade to version 2.1.10"),
        ("the answer of GPT-4", "the answer of GPT-3"),
        ("iPhone 6 or iPhone6s", "iPhone 5 or iPhone5s"),
        ("the deadline is 3/5", "the deadline is 5/3"),
        ("meet me at 10:30", "meet me at 11:30"),
        ("the review is on Monday", "the review is on Tuesday"),
        ("the party is in june", "the party is in july"),
        ("wait one hour", "wait two hours"),
        ("who came first", "who came second"),
        ("the tenth amendment", "the 7th amendment"),
        ("the best phone", "the best phone of 2016"),
        ("pay it weekly", "pay it monthly"),
    ],
)
def test_other_numbers_dates_amounts_and_units_tell_texts_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) == find_contradiction(b, a) == "numbers"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("it costs 1,000 dollars", "it costs $1000"),
        ("it costs 10k dollars", "it costs 10,000 dollars"),
        ("it weighs 2.0 kg", "it weighs 2 kilograms"),
        ("the 4th generation", "the fourth generation"),
        ("wait for three hours", "wait for 3 hrs"),
        ("how can one learn it", "how can I learn it"),
        ("first of all, what is it", "what is it"),
        ("in Sept 2024", "in September 2024"),
    ],
)
def test_other_spellings_of_a_number_do_not_tell_texts_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) is find_contradiction(b, a) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("the door is locked", "the door is not locked"),
        ("users can delete it", "users can't delete it"),
        ("users can delete it", "users can’t delete it"),  # noqa: RUF001  # people type this apostrophe
        ("buy it with a license", "buy it without a license"),
        ("it was always colonized", "it was never colonized"),
        ("there is hope", "there is no hope"),
    ],
)
def test_a_negation_in_one_text_tells_them_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) == find_contradiction(b, a) == "negation"


def test_negations_in_both_texts_do_not_tell_them_apart() -> None:
    assert find_contradiction("why don't people vote", "why do people not vote") is None
    assert find_contradiction("it cannot be opened", "it can't be opened") is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("what is the capital of France?", "what is the capital of Spain?"),
        ("what is the capital of France?", "what is the capital of spain?"),
        ("Alice likes green tea", "Bob likes green tea"),
        ("is CA better for it", "is CFA better for it"),
        ("Great Sandy Desert", "Great Victoria Desert"),
        ("how do I install Docker", "how do I install podman"),
        ("What Is The Best Way To Get To Rome", "What Is The Best Way To Get To Paris"),
        ("the economy of the U.S. today", "the economy of the U.K. today"),
        ("is Niger rich", "is Nigeria rich"),
        ("does Java scale", "does JavaScript scale"),
    ],
)
def test_other_names_tell_texts_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) == find_contradiction(b, a) == "names"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("what is the capital of France?", "What's the capital of france"),
        ("WHAT IS THE CAPITAL OF FRANCE", "what is the capital of France?"),
        ("What Is The Fastest Way To Learn Python", "what is the fastest way to learn python"),
        ("How can I learn it?", "What is the best way to learn it? Tell me."),
        ("what does Japan think", "what do Japanese people think"),
        ("Indian economy in short", "India's economy in short"),
        ("the economy of the USA", "the economy of the U.S."),
        ("how do I know that I'm ill", "how does one know of being ill"),
    ],
)
def test_other_capitals_do_not_tell_texts_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) is find_contradiction(b, a) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("how to increase the limit", "how to reduce the limit"),
        ("what is the best way", "what is the worst way"),
        ("enable the proxy", "disable the proxy"),
        ("projects in rural areas", "projects in urban areas"),
        ("pay before the delivery", "pay after the delivery"),
        ("when x < y", "when x > y"),
    ],
)
def test_opposites_tell_texts_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) == find_contradiction(b, a) == "opposites"


def test_two_words_that_changed_places_tell_texts_apart() -> None:
    assert find_contradiction("convert ethane to ethene", "convert ethene to ethane") == "order"
    assert find_contradiction("Ann is the boss of Ben", "Ben is the boss of Ann") == "order"
    assert find_contradiction("convert dollars to rupees", "convert rupees to dollars") == "order"


def test_equals_that_changed_places_do_not_tell_texts_apart() -> None:
    assert find_contradiction("the difference between tea and coffee", "the difference between coffee and tea") is None
    assert find_contradiction("what is it", "what it is") is None


def test_a_text_that_says_more_is_not_told_apart_by_plain_words() -> None:
    assert find_contradiction("the service restarts", "the service restarts quickly, as expected") is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Explain parse_config in the client.", "Explain flush_batch in the client."),
        ("parse_config may be called twice.", "It may be called twice."),
        ("Do not edit src/api/client.py by hand.", "Do not edit src/jobs/client.py by hand."),
        ("Do not edit /etc/hosts/deny by hand.", "Do not edit this by hand."),
        ("Restart the host db.example.com today.", "Restart the host api.example.com today."),
        ("The tests of client.py need a server.", "The tests of retry.py need a server."),
        ("Call flush_batch_now", "Call now_flush_batch"),
        ("Summarise 'Tool use in search', please.", "Summarise 'Tool use in law', please."),
        ('The key is "alpha one".', 'The key is "beta one".'),
    ],
)
def test_other_names_of_code_files_and_hosts_tell_texts_apart(a: str, b: str) -> None:
    assert find_contradiction(a, b) == find_contradiction(b, a) == "names"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What does parse_config do?", "What is it that parse_config does?"),
        ("Edit src/api/client.py.", "Edit `src/api/client.py`, please"),
        ("Open it and/or close it", "Close it or open it"),
        ("What is quora.com for?", "What is quora for?"),
        ("Tea at four, e.g. green tea", "Tea at four, for example green tea"),
        ("It is done.Then he went home", "It is done. Then he went home"),
        ('He said "Yes."', 'He said "yes"'),
        ("Summarise 'Tool use'", "Summarise tool use"),
        ("the parents' house isn't Ada's, it's 'theirs'", "the house of the parents isn't Ada's"),
    ],
)
def test_other_ways_to_write_a_text_are_no_other_names_of_code(a: str, b: str) -> None:
    assert find_contradiction(a, b) in {None, "opposites"}


@pytest.mark.parametrize("text", ["", " ", "?!", "🙂", "你好", "שלום", "a" * 1_000_000, "1" * 100_000, "." * 100_000])
def test_odd_texts_are_compared_too(text: str) -> None:
    assert find_contradiction(text, text) is None
    assert find_contradiction(text, text + " 7") == "numbers"


_TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from(["Paris", "not", "2", "kg", "more", "the", "is", "Ann", ".", "to", "and"]), max_size=9
).map(" ".join)


@given(_TEXTS, _TEXTS)
def test_order_and_identity_do_not_matter(a: str, b: str) -> None:
    assert find_contradiction(a, b) == find_contradiction(b, a)
    assert find_contradiction(a, a) is None
