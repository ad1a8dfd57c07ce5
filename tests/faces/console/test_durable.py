"""The durable tier in the console: how far it is behind, what it rejected, whether it has the same, and restoring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.console import ConsolePage, ConsoleService, console_with_tier
from support.console_world import reject_one
from support.contexts import client_of


@pytest.fixture(scope="module")
def service() -> Iterator[ConsoleService]:
    """A service on a server of its own, with a tier: one behind the shared server would stand behind every test."""
    with console_with_tier("desk") as running:
        yield running


async def note(service: ConsoleService, **values: object) -> None:
    """What an agent keeps for good."""
    for key, value in values.items():
        await service.store().write(key, value, kind="knowledge")
    await service.hub.durable.drain(service.namespace)


async def reject(service: ConsoleService) -> None:
    """The tier rejects something."""
    await note(service, plan=1)
    await reject_one(service.hub, service.namespace)


def test_what_the_tier_rejected_is_given_up_for_a_reason(page: ConsolePage, service: ConsoleService) -> None:
    service.run(reject(service))
    (letter,) = service.run(service.hub.durable.dead_letters(service.namespace))
    page.enter("durable")
    page.open_row(letter.id)
    page.see("Name in the outbox", "aside")
    page.see(letter.reason, "aside")
    assert page.violations() == []

    page.press("Give up 1", "aside")
    page.type("Reason (is kept with your name)", "nobody needs it")
    page.press("Yes, give up 1", "aside")
    page.see("1 given up.", "main")

    assert service.run(service.hub.durable.dead_letters(service.namespace)) == []
    (told,) = service.run(service.store("vera").read_list("console-audit"))
    assert (told["action"], told["reason"]) == ("give up dead letters", "nobody needs it")


def test_dead_letters_are_delivered_again(page: ConsolePage, service: ConsoleService) -> None:
    service.run(reject(service))
    (letter,) = service.run(service.hub.durable.dead_letters(service.namespace))
    page.enter("durable")
    page.press("Deliver all again")
    page.press("Yes, deliver all again")
    page.see("1 on the way again.", "main")

    # The tier rejects it once more, as another letter.
    page.until(
        "return document.querySelector('tbody tr[data-key]') && !document.querySelector(arguments[0])",
        f'tr[data-key="{letter.id}"]',
    )
    service.run(service.hub.durable.discard(service.namespace))


def test_redis_and_the_tier_are_compared(page: ConsolePage, service: ConsoleService) -> None:
    service.run(note(service, plan=1, rent=2))
    page.enter("durable?show=compare")
    page.press("Compare now")
    page.see("Redis and the tier have the same: 2 keys compared.")

    service.run(client_of(service.hub).call("SET", f"sm:{{{service.namespace}}}:ada:plan", "j7"))
    page.press("Compare again")
    page.see("1 difference among 2 keys.")
    page.see("other value", "table")
    assert page.violations() == []
    page.open_row(f"{service.namespace}:ada:plan  value")
    page.see("Data", "h1")


def test_a_lost_namespace_is_restored(page: ConsolePage, service: ConsoleService) -> None:
    service.run(note(service, plan=1, rent=2))
    service.run(client_of(service.hub).call("UNLINK", f"sm:{{{service.namespace}}}:ada:plan"))
    page.enter("durable?show=restore")
    page.press("Restore", "div[contains(@class, 'stack')]")
    page.press("Yes, restore")
    page.see("Redis has 2 keys of the tier.")

    assert service.run(service.store().read("plan")) == 1
    assert [told["action"] for told in service.run(service.store("vera").read_list("console-audit"))] == ["restore"]


def test_a_token_that_only_reads_compares_and_changes_nothing(page: ConsolePage, service: ConsoleService) -> None:
    service.run(reject(service))
    page.enter("durable", who="reader")
    page.see("an entry that cannot be read", "main")
    page.see_not("Deliver", "main")
    page.press("Compare")
    page.press("Compare now")
    page.see("have the same")
    page.press("Restore")
    page.see("This token may look and change nothing.", "main")
    service.run(service.hub.durable.discard(service.namespace))
