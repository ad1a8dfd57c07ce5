"""Tokens in the console: what each may do, making one that is shown once, revoking, rules for Redis users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService, console_with_tier

from sharedmem.faces.auth import Bearer
from sharedmem.faces.token_registry import TokenRegistry


@pytest.fixture(scope="module")
def service() -> Iterator[ConsoleService]:
    """A service on a server of its own: tokens are of a server, and stay there."""
    with console_with_tier("desk") as running:
        yield running


@pytest.fixture(autouse=True)
def registry(service: ConsoleService) -> Iterator[TokenRegistry]:
    """The tokens of the server; none is left."""
    registry = TokenRegistry(service.hub)
    yield registry
    for known in service.run(registry.listed()):
        service.run(registry.revoke(known.entry.id))


def test_a_token_is_made_shown_once_and_revoked(
    page: ConsolePage, service: ConsoleService, registry: TokenRegistry
) -> None:
    page.enter("access")
    page.press("Make a token", "main")
    page.type("Stands for the actor", "bob")
    page.type("Label: whose it is, what it is for", "the harbour bot")
    page.press("Make it")
    page.see("It is shown this once")
    secret = str(page.run("return document.querySelector('textarea[readonly]').value"))
    assert page.violations() == []
    page.press("I have it")
    page.see("the harbour bot", "table")

    (entry,) = [known.entry for known in service.run(registry.listed())]
    assert (entry.actor, entry.read_only, secret[:4]) == ("bob", True, "smt_")
    assert secret not in page.run("return document.documentElement.outerHTML + JSON.stringify({...sessionStorage})")

    page.open_row(entry.id)
    page.press("Revoke", "aside")
    page.press("Yes, revoke", "aside")
    page.see("The token is revoked.")
    assert service.run(registry.listed()) == []
    told = service.run(service.store("vera").read_list("console-audit"))
    assert [(one["action"], secret in str(one)) for one in told] == [("make a token", False), ("revoke a token", False)]


def test_who_may_what_is_a_matrix(page: ConsolePage, service: ConsoleService, registry: TokenRegistry) -> None:
    service.run(registry.create(Bearer.of("desk", actor="ada")))
    service.run(registry.create(Bearer.of("desk", actor="rita", read_only=True)))
    page.enter("access?show=matrix")
    page.see("rita", "table")

    rows = page.browser.find_elements(By.CSS_SELECTOR, "tbody tr[data-key]")
    assert [row.text.split() for row in rows] == [["ada", "write", "write", "read"], ["rita", "read", "read", "read"]]
    assert page.violations() == []


def test_rights_are_shown_as_rules_to_copy(page: ConsolePage, service: ConsoleService, registry: TokenRegistry) -> None:
    _, entry = service.run(registry.create(Bearer.of("desk", actor="ada")))
    page.enter(f"access/{entry.id}")
    page.press("Show the rules", "aside")
    page.until("return document.querySelector('textarea[readonly]')?.value.startsWith('ACL SETUSER ada ')")
    assert page.violations() == []


def test_what_is_stronger_is_not_offered_and_refused(
    page: ConsolePage, service: ConsoleService, registry: TokenRegistry
) -> None:
    _, stronger = service.run(registry.create(Bearer.of("desk")))
    page.enter(f"access/{stronger.id}")
    page.see("the operator revokes it", "aside")
    page.see_not("Revoke\n", "aside")

    page.press("Make a token", "main")
    page.type("Stands for the actor", "bob")
    page.type("Further keys, a pattern in each line", "elsewhere:*")
    page.press("Make it")
    page.see("this token could read elsewhere:*, and yours cannot", "main")
    assert [told for told in page.complaints() if "403" not in told] == []


def test_who_may_not_administrate_sees_their_own_rights(page: ConsolePage) -> None:
    page.enter("access", who="reader")
    page.see("desk:*", "main")
    page.see("sharedmem token create --administrator", "main")
    page.see_not("Make a token", "main")


def test_labels_are_shown_and_run_nothing(page: ConsolePage, service: ConsoleService, registry: TokenRegistry) -> None:
    for label in HOSTILE:
        service.run(registry.create(Bearer.of("desk", actor="eve"), label=label))
    page.enter("access")
    page.see(HOSTILE[0], "table")
    assert page.run("return window.broken") is None
