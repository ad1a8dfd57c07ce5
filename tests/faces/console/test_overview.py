"""The overview in the console: what goes on, who fell silent and who went on, what is missing and how to get it."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from support.console import ConsolePage, ConsoleService

from sharedmem import SharedMemoryStore


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


def tile(title: str) -> str:
    """A script that returns the number on a tile."""
    return (
        "const tile = [...document.querySelectorAll('.tile')].find((one) => one.innerText.startsWith(arguments[0]));"
        f"return tile?.querySelector('strong').innerText === {title!r}"
    )


def test_numbers_follow_the_agents(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    service.run(store.memory.add("The gate holds five metres."))
    service.run(store.cache.put("Do the gates hold?", "They hold."))
    page.enter()
    page.until(tile("0"), "Recalls a minute")
    page.until(tile("0"), "Leases held")

    service.run(store.memory.search("gate"))
    service.run(store.cache.check("Do the gates hold?"))
    page.until(tile("1"), "Recalls a minute")
    page.until(tile("1"), "Cache hits a minute")

    service.run(store.lease_acquire("index", lease=600))
    page.browser.refresh()
    page.until(tile("1"), "Leases held")


def test_an_actor_that_fell_silent_is_told_with_who_went_on(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    bob = service.store("bob")
    service.run(store.presence.announce(role="reader", ttl=0.3))
    service.run(store.shared.write("page-7", "ada reads it"))
    page.enter()
    page.see("ada", "main")

    async def lapse() -> bool:
        await bob.presence.announce(role="reader", ttl=600)
        return [one.actor for one in await bob.presence.list()] == ["bob"]

    while not service.run(lapse()):
        pass
    page.see("ada fell silent", "main")
    page.see("No other actor has changed that since.", "main")
    service.run(bob.shared.write("page-7", "bob reads it"))
    page.see("bob went on with it", "main")
    page.browser.find_element(By.LINK_TEXT, "shared:page-7").click()
    page.see("Data", "h1")


def test_a_reader_sees_what_is_missing_and_its_remedy(page: ConsolePage, service: ConsoleService) -> None:
    missing = service.hub.powers.missing
    page.enter(who="reader")
    page.see("Cost so far", "main")
    for remedy in missing.values():
        page.see(remedy, "main")
