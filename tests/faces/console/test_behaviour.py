"""What holds in every view: small screens, tokens that end or only read, policy, hostile keys, times, reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from support.console import ConsolePage, ConsoleService, console_with_tier
from support.console_world import fill

from sharedmem.api.operation import operations
from sharedmem.faces.auth import Bearer
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.hub.hub import token_storage_of

SOURCES = Path(__file__).parents[3] / "console" / "src"
VIEWS = sorted(path.stem.lower() for path in (SOURCES / "views").glob("*.svelte"))
QUIET = "return document.querySelector('main h1') && !document.querySelector('[role=status]:not([data-live])')"
PHONE = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
# Pressed in any view, they change something.
CHANGES = (
    "Add a task|Append|Deliver now|Deliver all again|Delete|Edit|Fork.*|Make a token|Merge.*|New value|"
    "Restore now|Revoke.*|Save.*|Try all dead again|Undo.*"
)


@pytest.fixture(scope="module")
def service() -> Iterator[ConsoleService]:
    """A service with everything that can be shown, a durable tier too."""
    with console_with_tier("harbour") as running:
        yield running


@pytest.fixture
def world(service: ConsoleService) -> None:
    """A team at work."""
    service.run(fill(service.hub, service.namespace))


@pytest.fixture
def phone(page: ConsolePage) -> Iterator[ConsolePage]:
    """The page on a small screen."""
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    yield page
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.usefixtures("world")
def test_every_view_fits_a_phone_and_can_be_used_by_all(phone: ConsolePage) -> None:
    phone.enter()
    too_wide, complaints = [], []
    for view in VIEWS:
        phone.press("Menu")
        phone.run("document.querySelector(arguments[0]).click()", f"nav a[href='#/{view}']")
        phone.until("return location.hash === arguments[0]", f"#/{view}")
        phone.until(QUIET)
        if phone.run("return document.querySelector('main').scrollWidth > innerWidth"):
            too_wide.append(view)
        complaints += phone.violations()

    assert too_wide == []
    assert complaints == []


@pytest.mark.usefixtures("world")
def test_a_token_that_only_reads_is_offered_no_change_in_any_view(page: ConsolePage) -> None:
    page.enter(who="reader")
    offered = {}
    for view in VIEWS:
        page.go(view)
        page.until("return location.hash === arguments[0]", f"#/{view}")
        page.until(QUIET)
        names = page.run("return [...document.querySelectorAll('main button')].map((one) => one.innerText.trim())")
        if found := [name for name in names if re.fullmatch(CHANGES, name)]:
            offered[view] = found

    assert offered == {}


def test_a_token_that_expires_is_told_and_another_goes_on_where_one_was(
    page: ConsolePage, service: ConsoleService
) -> None:
    registry = TokenRegistry(service.hub)
    token, entry = service.run(registry.create(Bearer.of(service.namespace, actor="vera")))
    service.tokens["guest"] = token
    page.enter("data?pattern=plan", who="guest")
    page.see("No key matches", "main")

    past = entry.model_copy(update={"expires": datetime.now(UTC) - timedelta(seconds=1)})
    record = past.model_dump_json(exclude_defaults=True).encode()
    service.run(token_storage_of(service.hub).put(entry.sha256, record))
    # The stream of changes is looked at again every few seconds.
    page.see("the token has expired", "main")
    assert page.field("Pattern of keys").get_property("value") == "plan"

    service.run(service.store().write("plan", 1))
    page.type("Token", service.tokens["writer"])
    page.press("Look inside")
    page.see("live", "header")
    page.see_not("the token has expired", "main")
    page.type("Pattern of keys", "pla*")
    page.see(":ada:plan", "table")
    service.run(registry.revoke(entry.id))
    assert [told for told in page.complaints() if "401" not in told] == []


def test_scripts_of_others_do_not_run(page: ConsolePage, service: ConsoleService) -> None:
    policy = httpx2.get(f"{service.server.url}/console/").headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["object-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"

    page.enter()
    page.run(
        "const script = document.createElement('script'); script.textContent = 'window.broken = 1';"
        "document.body.append(script)"
    )
    assert page.run("return window.broken") is None
    assert all("Content Security Policy" in told for told in page.complaints())


@pytest.mark.parametrize("name", ["k" * 490, "\u05e9\u05dc\u05d5\u05dd" * 60, "\u202e" + "key" * 150])
def test_the_longest_keys_and_those_from_right_to_left_stay_in_their_place(
    page: ConsolePage, service: ConsoleService, name: str
) -> None:
    key = service.store().access.absolute(name)
    service.run(service.store().write(name, {"text": "\u05de\u05d6\u05d9\u05db\u05e8\u05d5\u05df"}))
    page.enter("data")
    page.until("return document.querySelector('tbody tr[data-key]')?.dataset.key === arguments[0]", key)
    page.run("document.querySelector('tbody tr[data-key]').click()")
    page.until(
        "return document.querySelector('aside textarea')?.value.includes(arguments[0])",
        "\u05de\u05d6\u05d9\u05db\u05e8\u05d5\u05df",
    )

    assert not page.run("return document.querySelector('main').scrollWidth > innerWidth")
    assert page.violations() == []


def test_times_are_those_of_the_reader_and_utc_on_hover(page: ConsolePage, service: ConsoleService) -> None:
    service.run(service.store().write("plan", 1))
    page.browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        page.enter("feed")
        page.see(":ada:plan", "main")
        shown, hovered = page.run(
            "const time = document.querySelector('main table time'); return [time.innerText.trim(), time.title]"
        )
    finally:
        page.browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})

    at = datetime.strptime(hovered, "%Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC)
    assert shown.endswith((at + timedelta(hours=9)).strftime("%H:%M:%S"))


def test_what_a_person_changes_is_on_the_feed_with_name_and_reason(page: ConsolePage, service: ConsoleService) -> None:
    service.run(service.store().write("draft", 1))
    page.enter(f"data/{service.store().access.absolute('draft')}")
    page.press("Delete", "aside")
    page.type("Reason (is kept with your name)", "it is outdated")
    page.press("Yes, delete", "aside")
    page.see("was looked for", "aside")
    page.go("feed")
    page.see("harbour:vera:console-audit", "main")

    (told,) = service.run(service.store("vera").read_list("console-audit"))
    assert (told["action"], told["reason"]) == ("delete", "it is outdated")
    # The key that was shown is looked for once more.
    assert [one for one in page.complaints() if "404" not in one] == []


def test_no_source_changes_anything_without_writing_it_down() -> None:
    writes = {
        (row.http.method, re.sub(r"\{[^}]*\}", "{}", f"/api/v1{row.http.path}"))
        for row in operations().values()
        if row.needs == "write"
    }
    unaudited = []
    for path in SOURCES.rglob("*.svelte"):
        source = path.read_text(encoding="utf-8")
        for method, place in re.findall(r"api\.(POST|PUT|PATCH|DELETE)\('([^']*)'", source):
            # A part hands its work to the `change` of the view that it stands in.
            is_written_down = "audited(" in source or "change: (action: string" in source
            if (method, re.sub(r"\{[^}]*\}", "{}", place)) in writes and not is_written_down:
                unaudited.append(f"{path.relative_to(SOURCES)}: {method} {place}")

    assert unaudited == []


def test_many_keys_are_counted_when_somebody_asks(page: ConsolePage, service: ConsoleService) -> None:
    for first in range(0, 4000, 1000):
        service.run(service.store().write_many({f"value-{first + number}": number for number in range(1000)}))
    page.enter()
    page.see("1,000+", "main")
    page.press("Count all keys")
    page.see_not("1,000+", "main")
    page.see("KB", ".tile")
