"""Without a mouse: every view is reached, its list is walked through, and what is open has an address of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from support.console import ConsolePage, ConsoleService, console_with_tier
from support.console_world import GROUP, SESSION, fill
from support.note_chains import APP, make_chain_note
from support.notes import open_note_repository

from sharedmem.synthesis.protocol import NewNote

VIEWS = sorted(path.stem.lower() for path in (Path(__file__).parents[3] / "console" / "src" / "views").glob("*.svelte"))
# Where the list of a view is, or the list behind it: what has no list is left out.
LISTS = {
    "access": "access",
    "agreement": "agreement",
    "cache": "cache",
    "conversations": "conversations",
    "data": "data",
    "decisions": f"decisions/{SESSION}",
    "durable": "durable",
    "graph": f"graph/{GROUP}",
    "memory": "memory",
    "notes": f"notes/{APP}",
    "queues": "queues/mail",
}
QUIET = "return document.querySelector('main h1') && !document.querySelector('[role=status]:not([data-live])')"
ROW = "return document.activeElement?.matches('main tr[data-at]')"
HEADING = "return document.querySelector('main aside h2')?.innerText"


@pytest.fixture(scope="module")
def service() -> Iterator[ConsoleService]:
    """A service with everything that can be shown, a durable tier too."""
    with console_with_tier("harbour") as running:
        yield running


@pytest.fixture
def world(service: ConsoleService) -> None:
    """A team at work, and notes."""
    service.run(fill(service.hub, service.namespace))
    repository = open_note_repository(service.hub, service.namespace, "ada")
    notes = [make_chain_note(name, day=day, says=f"Tide {day}.") for day, name in enumerate("ab", start=1)]
    service.run(repository.commit(APP, fresh=[NewNote(note, None) for note in notes]))


def shown(page: ConsolePage, title: str) -> None:
    page.until("return document.querySelector('main h1')?.innerText === arguments[0]", title)
    page.until(QUIET)


def titles(page: ConsolePage) -> dict[str, str]:
    """The title of each view, as the navigation has it."""
    links = page.run("return [...document.querySelectorAll('nav a')].map((one) => [one.hash.slice(2), one.innerText])")
    return dict(links)


def test_every_view_has_a_letter_that_the_list_of_shortcuts_shows(page: ConsolePage) -> None:
    page.enter()
    page.keys("?")
    page.see("Go to a view", "[role=dialog]")
    letters = page.run(
        "return [...document.querySelectorAll('[role=dialog] li')].map((one) => one.innerText.trim().slice(2))"
    )
    page.keys(Keys.ESCAPE)
    page.until("return !document.querySelector('[role=dialog]')")

    assert {title for _, title in map(_parted, letters)} == set(titles(page).values())
    for letter, title in map(_parted, letters):
        page.keys("g", letter)
        shown(page, title)


def _parted(told: str) -> tuple[str, str]:
    letter, _, title = told.partition(" ")
    return letter, title


def test_the_palette_goes_to_every_view(page: ConsolePage) -> None:
    page.enter()
    known = titles(page)
    assert sorted(known) == VIEWS
    for title in known.values():
        page.keys(Keys.CONTROL, "k")
        page.one("[role=combobox]").send_keys(title)
        page.until(
            "return document.querySelector('[role=option][aria-selected=true]')?.innerText.startsWith(arguments[0])",
            title,
        )
        page.keys(Keys.ENTER)
        shown(page, title)


@pytest.mark.usefixtures("world")
def test_in_every_list_arrows_move_enter_opens_and_escape_closes(page: ConsolePage) -> None:
    """What is opened is there again under its address, for a colleague."""
    page.enter()
    for view, place in LISTS.items():
        page.go(place)
        page.until("return location.hash === arguments[0]", f"#/{place}")
        page.until(QUIET)
        page.until("return document.querySelector('main tr[data-at]') !== null")
        page.run("document.activeElement.blur()")

        page.keys(Keys.ARROW_DOWN)
        page.until(ROW)
        assert page.run("return document.activeElement.dataset.at") == "0", view
        page.keys(Keys.ARROW_DOWN, Keys.ARROW_UP)
        page.until("return document.activeElement?.dataset.at === '0'")
        page.keys(Keys.ENTER)
        page.until(HEADING)
        heading, address = page.run(HEADING), page.run("return location.hash")
        assert address.startswith(f"#/{place}"), view

        page.keys(Keys.ESCAPE)
        page.until("return document.querySelector('main aside') === null")
        assert page.run("return location.hash") != address, view
        assert page.run(ROW), view

        page.browser.get(f"{page.service.server.url}/console/icon.svg")
        page.browser.get(f"{page.service.server.url}/console/{address}")
        page.until("return document.querySelector('main aside h2')?.innerText === arguments[0]", heading)


def test_from_the_field_to_search_in_arrows_go_into_what_was_found(page: ConsolePage, service: ConsoleService) -> None:
    service.run(service.store().write_many({"plan-a": 1, "plan-b": 2}))
    page.enter("data")
    page.keys("/")
    page.keys("plan-b")
    page.until("return document.querySelectorAll('main tr[data-at]').length === 1")
    page.keys(Keys.ARROW_DOWN, Keys.ENTER)
    page.see(":ada:plan-b", "aside")
