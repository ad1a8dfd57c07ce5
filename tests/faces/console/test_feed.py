"""The feed in the console: changes as they happen, filtered, paused; messages of a channel."""

from __future__ import annotations

from support.console import ConsolePage, ConsoleService


def test_changes_are_filtered_paused_and_lead_to_their_key(page: ConsolePage, service: ConsoleService) -> None:
    store = service.store()
    page.enter("feed")
    service.run(store.write("plan", 1))
    service.run(store.append("log", "hello"))
    page.see(":ada:log", "main")

    page.type("Filter", "append")
    page.see_not(":ada:plan", "main")
    assert "filter=append" in page.browser.current_url
    page.type("Filter", "")
    page.see(":ada:plan", "main")

    page.press("Pause")
    service.run(store.write("later", 1))
    page.see("Go on (1 new)")
    page.see_not(":ada:later", "main table")
    page.press("Go on (1 new)")
    page.see(":ada:later", "main table")

    page.press(store.access.absolute("plan"))
    page.see("Value (JSON)", "aside")


def test_what_happened_before_the_page_opened_is_shown(page: ConsolePage, service: ConsoleService) -> None:
    service.run(service.store().write("before", 1))
    page.enter("feed")
    page.see(":ada:before", "main table")
    page.press("From the oldest that is kept")
    page.see(":ada:before", "main table")


def test_thousands_of_changes_are_a_few_rows_of_the_page(page: ConsolePage, service: ConsoleService) -> None:
    store = service.store()
    for start in range(0, 3000, 1000):
        service.run(store.write_many({f"key-{number}": number for number in range(start, start + 1000)}))
    page.enter("feed?filter=key-")
    # With a row for the gap, if the feed of an earlier test was cleared.
    page.until("return parseInt(document.querySelector('main [aria-live]')?.innerText.replace(',', '')) >= 3000")
    assert page.run("return document.querySelectorAll('main tbody tr').length") < 200
    page.run("document.querySelector('[role=region]').scrollTop = 1e9")
    page.see(":ada:key-0", "main table")


def test_messages_of_a_channel_are_heard(page: ConsolePage, service: ConsoleService) -> None:
    page.enter("feed")
    page.type("Channel", "news")
    page.press("Listen")
    page.see("No message since you listen")

    async def publish_until_heard() -> None:
        while not await service.store().publish("news", {"text": "The gates hold."}):
            pass

    service.run(publish_until_heard())
    page.see("The gates hold.", "main")
