"""The cache in the console: what was saved, what is stored, asked as an agent asks, deleted and reported."""

from __future__ import annotations

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem.cache import SemanticCache

FRANCE = "What is the capital of France?"


@pytest.fixture
def cache(service: ConsoleService) -> SemanticCache:
    """The cache, as an agent uses it."""
    return service.store().cache


def test_counts_and_stored_answers_are_shown_and_follow_the_agents(
    page: ConsolePage, service: ConsoleService, cache: SemanticCache
) -> None:
    page.enter("cache")
    page.see("No answer is stored.")
    id_ = service.run(cache.put(FRANCE, {"city": "Paris"}, tags=["geo"], cost=0.25, tokens=120))
    service.run(cache.check(FRANCE))
    page.row(id_)
    page.open_row(id_)
    page.see('"city": "Paris"', "aside")
    page.see("geo", "aside")
    service.run(cache.stats())
    service.run(cache.put("How large is France?", "large"))
    page.see("$0.25")
    page.see("120 tokens")


def test_a_prompt_is_looked_up_as_an_agent_would_and_a_wrong_answer_reported(
    page: ConsolePage, service: ConsoleService, cache: SemanticCache
) -> None:
    service.run(cache.put(FRANCE, "Paris"))
    before = service.run(cache.stats()).false_hits
    page.enter("cache")
    page.type("Prompt", "what is the  capital of france?")
    page.press("Look up")
    page.see("the same prompt")
    page.press("It did not fit")
    page.type("Reason (is kept with your name)", "asks for the seat of government")
    page.press("Yes, it did not fit")
    page.see("Counted as a wrong hit.")
    assert service.run(cache.stats()).false_hits == before + 1

    page.type("Prompt", "How many moons has Mars?")
    page.press("Look up")
    page.see("No stored answer fits this prompt.")


def test_answers_are_deleted_by_tag_and_one_by_one_after_what_would_go_was_shown(
    page: ConsolePage, service: ConsoleService, cache: SemanticCache
) -> None:
    for number in range(3):
        service.run(cache.put(f"What is in chapter {number}?", "a story", tags=["book"]))
    id_ = service.run(cache.put(FRANCE, "Paris", tags=["geo"]))
    page.enter("cache?tag=book")
    page.press("Delete all with this tag")
    page.see("This would delete 3 answers with the tag “book”.")
    page.type("Reason (is kept with your name)", "new edition")
    page.press("Yes, delete all with this tag")
    page.see("3 answers deleted.")
    left = service.run(cache.list())
    assert [one.id for one in left.answers] == [id_]

    page.go(f"cache/{id_}")
    page.press("Delete", "aside")
    page.see("This would delete the answers to this prompt")
    page.press("Yes, delete", "aside")
    page.see("1 answer deleted.")
    assert service.run(cache.list()).answers == []
    audit = service.run(service.store("vera").read_list("console-audit"))
    assert [(told["subject"], told["reason"]) for told in audit] == [("tag book", "new edition"), (FRANCE, "")]


def test_a_reader_looks_up_and_is_offered_no_change(
    page: ConsolePage, service: ConsoleService, cache: SemanticCache
) -> None:
    id_ = service.run(cache.put(FRANCE, "Paris", tags=["geo"]))
    page.enter(f"cache/{id_}?tag=geo", who="reader")
    page.see("Paris", "aside")
    page.type("Prompt", FRANCE)
    page.press("Look up")
    page.see("the same prompt")
    page.see_not("Delete", "main")
    page.see_not("It did not fit", "main")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hostile_texts_stay_texts_and_all_can_be_read(
    page: ConsolePage, service: ConsoleService, cache: SemanticCache, theme: str
) -> None:
    for text in HOSTILE:
        id_ = service.run(cache.put(text, {"answer": text}, tags=[text]))
    page.enter(f"cache/{id_}", theme=theme)
    page.see(HOSTILE[-1], "aside")
    page.until("return document.querySelectorAll('[role=region] tbody tr').length === arguments[0]", len(HOSTILE))
    assert page.run("return window.broken") is None
    assert page.violations() == []
