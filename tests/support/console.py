"""The console as a person uses it: a real service on a real Redis, and headless Chromium in front of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from selenium.common.exceptions import ElementNotInteractableException, StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from sharedmem import Grant, Hub, Settings, SharedMemoryStore
from sharedmem.faces.auth import AnyOf, Bearer, TokenFile, new_token
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.rest import Console, LoginCode, RestServer, create_app
from sharedmem.faces.token_registry import TokenRegistry
from support.browser import PATIENCE_S, console_log

_T = TypeVar("_T")
_TRIES = 20
_ROOT = Path(__file__).parents[2]
_AXE = _ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"


class ConsoleService:
    """A service with the console, on a loop of its own, so that a test can drive a browser meanwhile.

    Args:
        settings: of its hub; the namespace is that of all who are let in.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        namespace = self.namespace = settings.namespace
        everything = [Grant(pattern=f"{namespace}:*")]
        whom = {
            "writer": Bearer.of(namespace, actor="vera", grants=everything, operator=True, administrator=True),
            "reader": Bearer.of(namespace, actor="rita", grants=everything, read_only=True),
            "outsider": Bearer.of("elsewhere", actor="eve"),
        }
        made = {name: new_token(bearer, label=name) for name, bearer in whom.items()}
        self.tokens = {name: token for name, (token, _) in made.items()}
        self._entries = [entry for _, entry in made.values()]
        self.hub: Hub
        self.server: RestServer
        self.login = LoginCode(self.tokens["writer"])

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await something on the loop of the service."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def store(self, actor: str = "ada") -> SharedMemoryStore:
        """The namespace, as one of the agents sees it."""
        return self.hub.store(self.namespace, actor=actor)

    async def start(self) -> None:
        """Open the hub and listen; at the port of before, if it was stopped."""
        self.hub = await Hub.open(settings=self._settings).__aenter__()
        await self.listen(0)

    async def listen(self, port: int) -> None:
        """Listen at a port."""
        admission = AnyOf(TokenFile(self._entries), TokenRegistry(self.hub))
        app = create_app(self.hub, admission=admission, console=Console(self.login))
        self.server = RestServer(app, ListenAddress(host="127.0.0.1", port=port), has_tokens=True, grace_s=1)
        await self.server.start()

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.server.stop())
        self.run(self.hub.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ConsolePage:
    """The page in the browser: what is seen, pressed and typed there.

    Args:
        browser: shows it.
        service: serves it.
    """

    def __init__(self, browser: Chrome, service: ConsoleService) -> None:
        self.browser = browser
        self.service = service

    def enter(self, place: str = "overview", *, who: str = "writer", theme: str = "light") -> None:
        """Open a view with a given token in this tab."""
        self.step_out()
        self.run(
            "sessionStorage.setItem('sharedmem.token', arguments[0]);"
            "localStorage.setItem('sharedmem.theme', arguments[1])",
            self.service.tokens[who],
            theme,
        )
        self.browser.get(f"{self.service.server.url}/console/#/{place}")
        self.until("return document.querySelector('[data-live=true]') !== null")

    def step_out(self) -> None:
        """Go to where no script runs, though what a page keeps can be reached, and forget what was complained of."""
        outside = f"{self.service.server.url}/console/icon.svg"
        if self.browser.current_url != outside:
            self.browser.get(outside)
        console_log(self.browser, "browser")

    def go(self, place: str) -> None:
        """Go to a place by its address, within the page."""
        self.run("location.hash = arguments[0]", f"#/{place}")

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page."""
        return self.browser.execute_script(script, *arguments)

    def until(self, script: str, *arguments: object) -> None:
        """Wait until a script returns something true."""
        WebDriverWait(self.browser, PATIENCE_S, poll_frequency=0.05).until(lambda _: self.run(script, *arguments))

    def see(self, words: str, within: str = "body") -> None:
        """Wait until the page shows some words."""
        self.until("return document.querySelector(arguments[1])?.innerText.includes(arguments[0])", words, within)

    def see_not(self, words: str, within: str = "body") -> None:
        """Wait until the page does not show some words."""
        self.until("return !document.querySelector(arguments[1])?.innerText.includes(arguments[0])", words, within)

    def one(self, selector: str) -> WebElement:
        """Wait for an element."""
        return self._found(By.CSS_SELECTOR, selector)

    def button(self, name: str, within: str = "body") -> WebElement:
        """Wait for a button or link by what stands on it, or by its label."""
        quoted = f'"{name}"'
        path = "|".join(
            f"//{within}//*[self::button or self::a or self::summary][{condition}]"
            for condition in (f"normalize-space()={quoted}", f"@aria-label={quoted}")
        )
        return self._found(By.XPATH, path)

    def press(self, name: str, within: str = "body") -> None:
        """Press a button or follow a link."""
        self._retried(lambda: self.button(name, within).click())

    def row(self, key: str) -> WebElement:
        """Wait for the row of a table by its key."""
        return self.one(f'tr[data-key="{key}"]')

    def open_row(self, key: str) -> None:
        """Open the row of a table."""
        self._retried(lambda: self.row(key).click())

    def field(self, label: str) -> WebElement:
        """Wait for a field by its label."""
        return self._found(By.XPATH, f'//*[@id=//label[normalize-space()="{label}"]/@for]')

    def type(self, label: str, words: str) -> None:
        """Put words into a field in place of what was there."""

        def replace() -> None:
            field = self.field(label)
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(words or Keys.DELETE)

        self._retried(replace)

    def keys(self, *keys: str) -> None:
        """Press keys wherever the focus is; `Keys.CONTROL` is held while the next one is pressed."""
        chain = ActionChains(self.browser)
        for key in keys:
            chain.key_down(key) if key == Keys.CONTROL else chain.send_keys(key)
        chain.key_up(Keys.CONTROL).perform()

    def violations(self) -> list[str]:
        """What axe-core complains about in what is shown."""
        if not _AXE.exists():
            subprocess.run([sys.executable, "tools/build_console.py", "--install"], cwd=_ROOT, check=True)
        if not self.run("return 'axe' in window"):
            self.run(_AXE.read_text(encoding="utf-8"))
        found = self.browser.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then((result) => done(result.violations))"
        )
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]

    def complaints(self) -> list[str]:
        """What the browser has complained about since the page was opened: scripts, policy, missing files."""
        entries = console_log(self.browser, "browser")
        told = [str(entry["message"]) for entry in entries if entry["level"] == "SEVERE"]
        # The picture by which a test reaches the origin names no icon of its own.
        return [message for message in told if "favicon.ico" not in message]

    def _found(self, by: str, selector: str) -> WebElement:
        def look(_: Chrome) -> WebElement | None:
            return next((one for one in self.browser.find_elements(by, selector) if one.is_displayed()), None)

        waiting: WebDriverWait[Chrome] = WebDriverWait(self.browser, PATIENCE_S, poll_frequency=0.05)
        found = waiting.until(look, f"nothing is seen of {selector}")
        assert found is not None
        return found

    def _retried(self, act: Callable[[], None]) -> None:
        """Do something with an element, which may be drawn anew meanwhile."""
        for _ in range(_TRIES):
            try:
                act()
            except (StaleElementReferenceException, ElementNotInteractableException):
                continue
            return
        act()


@contextmanager
def console_with_tier(namespace: str) -> Iterator[ConsoleService]:
    """A service with the console on an embedded server of its own, with a durable tier."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sm") as folder:
        settings = Settings(data_dir=Path(folder), embedded_modules=(), namespace=namespace, embedder="hashing")
        with ConsoleService(settings) as running:
            yield running


@contextmanager
def console_page(browser: Chrome, service: ConsoleService) -> Iterator[ConsolePage]:
    """A page whose browser complains of nothing while a test uses it."""
    page = ConsolePage(browser, service)
    # The page of the test before still asks.
    page.step_out()
    yield page
    complaints = page.complaints()
    assert not complaints, complaints
