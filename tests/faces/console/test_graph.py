"""The graph in the console: both times, differences, paths, facts with their episodes, merges."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem import SharedMemoryStore
from sharedmem.models import Episode

GROUP = "acme:people"
FIELD_OF_WORLD = "True in the world at"
CY = "document.querySelector('.picture')._cyreg.cy"


def day(year: int, month: int = 1) -> datetime:
    return datetime(year, month, 1, tzinfo=UTC)


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


async def tell(store: SharedMemoryStore) -> dict[str, str]:
    """Ada lives in Oslo; in 2023 it is learned that she left in 2022. Returns ids of entities by name."""
    graph = store.graph
    for source, relation, target, since, until, recorded in (
        ("Ada", "lives_in", "Oslo", day(2020), None, day(2020, 2)),
        ("Ada", "works_for", "Acme", day(2021), day(2024), day(2021, 2)),
        ("Acme", "based_in", "Bergen", day(2015), None, day(2021, 3)),
        ("Ada", "lives_in", "Rome", day(2022), None, day(2023, 3)),
        ("Countess Ada", "admires", "Babbage", day(2021), None, day(2021, 4)),
    ):
        await graph.add_relationship(
            source, relation, target, group_id=GROUP, valid_from=since, valid_to=until, recorded_at=recorded
        )
    return {one.name: one.id for one in await graph.entities(group_id=GROUP)}


def shown(page: ConsolePage) -> set[str]:
    """Labels of the relations in the picture."""
    found: list[str] = page.run(f"return {CY}.edges(':visible').map((one) => one.data('label'))")
    return set(found)


def rows(page: ConsolePage, count: int) -> None:
    """Wait until the table under the picture has so many rows."""
    page.until("return document.querySelectorAll('main .list tbody tr').length === arguments[0]", count)


def audit_of(service: ConsoleService, store: SharedMemoryStore) -> list[tuple[str, str]]:
    """What persons changed by hand: (action, reason)."""
    told: list[Any] = service.run(service.hub.store(store.namespace, actor="vera").read_list("console-audit"))
    return [(one["action"], one["reason"]) for one in told]


def test_both_times_decide_what_is_shown(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    service.run(tell(store))
    page.enter("graph")
    page.see("Ada lives in Rome")
    assert shown(page) == {"lives_in", "based_in", "admires"}

    # In the middle of 2021 she lived in Oslo and worked for Acme; today both are past.
    page.go(f"graph/{GROUP}?as_of=2021-06-01T00:00:00Z")
    page.see("Ada lives in Oslo")
    page.see("Ada works for Acme")
    page.see_not("Ada lives in Rome")

    # Before March 2023 it was unknown that she had moved.
    page.go(f"graph/{GROUP}?as_of=2022-06-01T00:00:00Z&known_at=2022-06-01T00:00:00Z")
    page.see("Ada lives in Oslo")
    page.go(f"graph/{GROUP}?as_of=2022-06-01T00:00:00Z")
    page.see("Ada lives in Rome")
    page.see_not("Ada lives in Oslo")


def test_sliders_stop_where_something_changes_and_move_nothing_else(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(tell(store))
    page.enter("graph")
    page.see("Ada lives in Rome")
    places = f"return JSON.stringify({CY}.nodes().map((one) => [one.id(), one.position()]))"
    before = page.run(places)
    slider = page.field(FIELD_OF_WORLD)
    slider.send_keys("\ue011")  # Home
    page.until("return location.hash.includes('as_of=2015-01-01')")
    page.see("Acme based in Bergen")
    rows(page, 1)
    assert shown(page) == {"based_in"}
    assert page.run(places) == before
    page.browser.refresh()
    page.see("Acme based in Bergen")
    page.until(
        f"return document.querySelector('.picture')?._cyreg?.cy.nodes().length === {len(before.split('n:')) - 1}"
    )
    assert page.run(places) == before, "the same graph has the same picture"


def test_two_instants_are_compared(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    service.run(tell(store))
    page.enter(f"graph/{GROUP}?as_of=2021-06-01T00:00:00Z")
    page.press("Compare with this instant")
    page.see("Compared with what was true at")
    page.press("to now")
    page.press("Only what differs")
    rows(page, 3)
    states = page.run(f"return {CY}.edges(':visible').map((one) => one.data('label') + ' ' + one.data('state')).sort()")
    assert {"lives_in new", "lives_in gone", "works_for gone"} <= set(states)


def test_an_entity_has_its_facts_and_a_path_to_another(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    ids = service.run(tell(store))
    page.enter("graph")
    page.see("Ada lives in Rome")
    page.run(f"{CY}.getElementById('n:{ids['Ada']}').emit('tap')")
    page.see("Ada lives in Rome", "aside")
    page.type("Path to", "Bergen")
    page.press("Find the path")
    page.see("At this instant no path of at most six facts leads to Bergen.", "aside")

    page.go(f"graph/{GROUP}?entity={ids['Ada']}&path=Bergen&as_of=2022-06-01T00:00:00Z")
    page.see("2 steps", "aside")
    page.until(f"return {CY}.edges('[state = \"path\"]').length === 2")


def test_a_fact_shows_its_versions_and_the_episodes_it_rests_on(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(tell(store))
    said = Episode(content="Ada told us at dinner that she moved to Turin.", group_id=GROUP, source="user")
    episode = service.run(store.graph.add_episode(said, extract=False)).id
    fact = service.run(store.graph.add_relationship("Ada", "lives_in", "Turin", group_id=GROUP, episode=episode))
    page.enter("graph")
    page.type("Search entities and facts", "turin")
    rows(page, 1)
    page.open_row(fact.id)
    page.see("What was known of it, and when", "aside")
    page.see("she moved to Turin", "aside")

    page.press("Undo the episode")
    page.type("Reason (is kept with your name)", "it was a joke")
    page.press("Yes, undo the episode")
    page.see("Done.", "aside")
    page.see("undone", "aside")
    assert audit_of(service, store) == [("undo an episode", "it was a joke")]
    found = service.run(store.graph.facts("Ada", group_id=GROUP, type="lives_in"))
    assert [one.target_name for one in found] == ["Rome"]


def test_a_fact_is_ended(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    service.run(tell(store))
    (fact,) = service.run(store.graph.facts("Ada", group_id=GROUP, type="lives_in"))
    page.enter(f"graph/{GROUP}?fact={fact.id}")
    page.press("End the fact")
    page.press("Yes, end the fact")
    page.see("Done.", "aside")
    assert service.run(store.graph.facts("Ada", group_id=GROUP, type="lives_in")) == []


def test_entities_are_merged_and_separated_again(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    ids = service.run(tell(store))
    page.enter(f"graph/{GROUP}?entity={ids['Countess Ada']}")
    page.type("Is the same as", "Ada")
    page.press("Merge")
    page.type("Reason (is kept with your name)", "one person")
    page.press("Yes, merge")
    page.see("Merged into it", "aside")
    page.see("Countess Ada", "aside")
    merged = service.run(store.graph.entity("Countess Ada", group_id=GROUP))
    assert merged.id == ids["Ada"]

    page.press("Separate again")
    page.press("Yes, separate again")
    page.see_not("Merged into it", "aside")
    assert service.run(store.graph.entity("Countess Ada", group_id=GROUP)).id == ids["Countess Ada"]
    assert [action for action, _ in audit_of(service, store)] == ["merge entities", "separate entities"]


def test_an_entity_brings_what_is_around_it(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    ids = service.run(tell(store))
    page.enter(f"graph/{GROUP}?around={ids['Babbage']}")
    page.until("return document.querySelector('.picture')?._cyreg?.cy.nodes().length === 2")
    page.type("Search entities and facts", "Acme")
    page.see("Outside of this picture")
    page.press("Acme")
    page.until(f"return {CY}.nodes().length === 5")
    page.press("The whole group")
    page.until(f"return {CY}.nodes().length === 7")


def test_a_reader_is_offered_no_change(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    ids = service.run(tell(store))
    (fact,) = service.run(store.graph.facts("Ada", group_id=GROUP, type="lives_in"))
    page.enter(f"graph/{GROUP}?entity={ids['Ada']}", who="reader")
    page.see("Find the path", "aside")
    page.see_not("Merge", "main")
    page.go(f"graph/{GROUP}?fact={fact.id}")
    page.see("Episodes that it rests on", "aside")
    page.see_not("Undo the episode", "main")
    page.see_not("End the fact", "main")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, theme: str) -> None:
    page.enter("graph", theme=theme)
    page.see("No agent has told the graph anything yet")
    assert page.violations() == []
    ids = service.run(tell(store))
    page.press("Try again")
    page.see("Ada lives in Rome")
    assert page.violations() == []
    page.go(f"graph/{GROUP}?entity={ids['Ada']}&path=Rome&show=entities")
    page.see("1 step", "aside")
    assert page.violations() == []
    (fact,) = service.run(store.graph.facts("Ada", group_id=GROUP, type="lives_in"))
    page.go(f"graph/{GROUP}?fact={fact.id}&then=2021-06-01T00:00:00Z,now")
    page.see("Episodes that it rests on", "aside")
    assert page.violations() == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, text: str
) -> None:
    fact = service.run(store.graph.add_relationship(text, "knows", f"{text} 2", group_id=GROUP, fact=f"{text} knows"))
    page.enter(f"graph/{GROUP}?entity={fact.source_id}")
    page.until("return document.querySelectorAll('aside li button').length === 1")
    page.go(f"graph/{GROUP}?fact={fact.id}")
    page.see("Episodes that it rests on", "aside")
    assert page.run("return window.broken") is None
