"""Each view looks as its picture in the docs, in both themes; `SHAREDMEM_PICTURES=write` draws them anew.

Times, ids and versions differ from run to run, and fonts from machine to machine: compared is what is large.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from support.console import ConsolePage, ConsoleService, console_page, console_with_tier
from support.console_world import SESSION, fill

ROOT = Path(__file__).parents[3]
PICTURES = ROOT / "docs" / "pictures" / "console"
VIEWS = sorted(path.stem.lower() for path in (ROOT / "console" / "src" / "views").glob("*.svelte"))
# What a view shows first is a list: more is to be seen of one of its things.
PLACES = {"decisions": f"decisions/{SESSION}"}
MOST_DIFFERENT = 0.08
# Both pictures are made small first, so that a line of text a pixel further down is no difference.
COMPARE = """
const [kept, seen, done] = arguments
const WIDTH = 150, HEIGHT = 100, NOTICED = 40
async function pixels(text) {
  const picture = new Image()
  picture.src = 'data:image/png;base64,' + text
  await picture.decode()
  const canvas = new OffscreenCanvas(WIDTH, HEIGHT).getContext('2d')
  canvas.imageSmoothingQuality = 'high'
  canvas.drawImage(picture, 0, 0, WIDTH, HEIGHT)
  return canvas.getImageData(0, 0, WIDTH, HEIGHT).data
}
Promise.all([pixels(kept), pixels(seen)]).then(([one, other]) => {
  let different = 0
  for (let at = 0; at < one.length; at += 4) {
    const apart = Math.max(...[0, 1, 2].map((channel) => Math.abs(one[at + channel] - other[at + channel])))
    if (apart > NOTICED) different++
  }
  done(different / (WIDTH * HEIGHT))
})
"""
QUIET = "return document.querySelector('[role=status]:not([data-live])') === null"


@pytest.fixture(scope="module")
def service() -> Iterator[ConsoleService]:
    """A service with everything that can be shown, a durable tier too; no picture changes any of it."""
    with console_with_tier("harbour") as running:
        running.run(fill(running.hub, running.namespace))
        yield running


@pytest.fixture
def page(tab: Chrome, service: ConsoleService) -> Iterator[ConsolePage]:
    """A page of that service, which is not cleared."""
    with console_page(tab, service) as opened:
        yield opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_looks_as_its_picture(page: ConsolePage, view: str, theme: str) -> None:
    page.enter(PLACES.get(view, view), theme=theme)
    page.until("return document.querySelector('main h1') !== null")
    page.until(QUIET)
    seen = page.browser.get_screenshot_as_base64()
    picture = PICTURES / f"{view}-{theme}.png"
    if os.environ.get("SHAREDMEM_PICTURES") == "write":
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(base64.b64decode(seen))

    kept = base64.b64encode(picture.read_bytes()).decode()
    assert page.browser.execute_async_script(COMPARE, kept, seen) <= MOST_DIFFERENT
    assert page.violations() == []
