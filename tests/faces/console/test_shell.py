"""The frame of the console: who is let in, where one goes, what is shown when the service is away."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from support.console import ConsolePage, ConsoleService

from sharedmem.faces.auth import TokenRefusedError
from sharedmem.faces.rest import LoginCode
from sharedmem.testing.clock import ManualClock


def test_a_link_lets_one_person_in_once(page: ConsolePage, service: ConsoleService) -> None:
    link = f"{service.server.url}/console/#/login?code={service.login.code}"
    page.run("sessionStorage.clear()")

    page.browser.get(link)
    page.see("vera")
    assert "code" not in page.browser.current_url

    page.run("sessionStorage.clear()")
    page.browser.get(f"{service.server.url}/console/icon.svg")
    page.browser.get(link)
    page.see("this link has been used")
    # 401 is what the browser complains of, and what it should be told.
    assert [told for told in page.complaints() if "401" not in told] == []


def test_a_link_says_why_it_lets_nobody_in() -> None:
    clock = ManualClock()
    expired, used = LoginCode("smt_a", clock=clock), LoginCode("smt_b", clock=clock)
    assert used.redeem(used.code) == "smt_b"
    clock.advance(601)

    for link, code, why in (
        (expired, expired.code, "has expired: it was good for ten minutes"),
        (used, used.code, "has been used, and lets one person in once"),
        (used, "guessed", "is of a console that has ended"),
    ):
        with pytest.raises(TokenRefusedError, match=f"this link {why}; start `sharedmem console` again"):
            link.redeem(code)


def test_a_token_that_is_not_known_is_refused_in_the_words_of_the_service(
    page: ConsolePage, service: ConsoleService
) -> None:
    page.run("sessionStorage.clear()")
    page.browser.get(f"{service.server.url}/console/")
    page.type("Token", "smt_nobody")
    page.press("Look inside")
    page.see("the token is not known here")

    page.type("Token", service.tokens["reader"])
    page.press("Look inside")
    page.see("rita")
    page.see("read-only")
    assert [told for told in page.complaints() if "401" not in told] == []


def test_the_keyboard_goes_everywhere(page: ConsolePage, service: ConsoleService) -> None:
    service.run(service.store().write("plan", {"step": 1}))
    page.enter()

    page.keys("g", "f")
    page.see("Feed", "h1")
    page.keys("?")
    page.see("go anywhere, do anything")
    page.keys(Keys.ESCAPE)
    page.see_not("go anywhere, do anything")

    page.keys(Keys.CONTROL, "k")
    page.one("[role=combobox]").send_keys("pla")
    page.see("Open the key", "[role=listbox]")
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    page.see("Data", "h1")
    page.see(":ada:plan", "aside")


def test_a_lost_service_is_told_and_comes_back(page: ConsolePage, service: ConsoleService) -> None:
    page.enter("feed")
    port = service.server.address.port
    service.run(service.server.stop())
    page.see("connecting", "header")
    service.run(service.listen(port))
    page.see("live", "header")

    service.run(service.store().write("after", 1))
    page.see(":ada:after", "main")
    # The browser tells each try to reach what is away.
    assert [told for told in page.complaints() if "ERR_" not in told] == []


def test_an_outsider_sees_nothing_of_another_namespace(page: ConsolePage, service: ConsoleService) -> None:
    service.run(service.store().write("secret", "the north door"))
    page.enter("data", who="outsider")
    page.see("This namespace has no keys yet")
    page.go("data/" + service.store().access.absolute("secret"))
    page.see("may not read", "aside")
    assert [told for told in page.complaints() if "403" not in told] == []


def test_the_page_calls_only_its_own_service(page: ConsolePage, service: ConsoleService) -> None:
    page.enter()
    page.see("Health")
    asked = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert {url.split("/")[2] for url in asked} == {service.server.url.split("/")[2]}
