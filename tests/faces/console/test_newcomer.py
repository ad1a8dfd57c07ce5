"""A person who has never seen the project looks on at the demo: who died, who took over, what is remembered and why."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any, cast

from selenium.webdriver import Chrome
from support import embedded_fixtures
from support.console import ConsolePage
from support.shell import finish, read_json_line, start

data_dir = embedded_fixtures.data_dir

# On a busy machine others miss their short leases, too.
TAKEN_OVER = r"""
const told = document.querySelector('main')?.innerText ?? ''
return /researcher-2 fell silent(?:(?!fell silent)[^])*?(\S+) went on with it/.exec(told)
"""
ANSWERS = """
const value = document.querySelector('aside textarea')?.value ?? ''
return [...arguments].every((words) => value.includes(words))
"""
# A search is not repeated by itself: where agents have remembered more since, the page offers to search again.
FOUND_OR_SEARCHED_AGAIN = """
const rows = [...document.querySelectorAll('tr[data-key]')]
if (rows.length > 1 && rows.some((row) => row.innerText.includes(arguments[0]))) return true
const again = [...document.querySelectorAll('main button')].find((one) => one.innerText === 'Search again')
again?.click()
return false
"""
RIGHT = "The water peaked at 4.62 metres above datum on the Customs House gauge, says the Northern Mercury."
QUICK = ("--plain", "--think-s", "0.2", "--lease-s", "1")


def test_a_newcomer_understands_the_demo_and_corrects_an_agent(browser: Chrome, data_dir: Path, tmp_path: Path) -> None:
    words = ("demo", "--console", "--no-browser", *QUICK, "--data-dir", str(data_dir))
    # A pipe that is not read would fill, and stop the service at its next line.
    with (tmp_path / "log").open("w") as log:
        demo = start(*words, environment={"SHAREDMEM_EMBEDDER": "hashing"}, stderr=log)
        try:
            look_on(browser, demo)
        finally:
            browser.get("about:blank")
            demo.kill()
            demo.wait()


def look_on(browser: Chrome, demo: subprocess.Popen[str]) -> None:
    """Do what the person does."""
    page = ConsolePage(browser, cast("Any", None))
    browser.get(str(read_json_line(demo)["url"]))

    # Which agent died, and who took over its task?
    page.until(TAKEN_OVER)
    successor = str(page.run(TAKEN_OVER)[1])

    # What is remembered of a topic, and why was it found first?
    page.go("memory?query=How+high+did+the+water+peak+on+the+Customs+House+gauge%3F")
    page.until(FOUND_OR_SEARCHED_AGAIN, "4.26 metres")
    page.run(
        "[...document.querySelectorAll('tr[data-key]')].find((row) => row.innerText.includes('4.26 metres')).click()"
    )
    page.see("Why it was found", "aside")
    page.see("words (BM25)", "aside")

    # A wrong memory is corrected, and an agent that has answered from it answers anew.
    page.go("data/newsroom:shared:answer")
    page.until(ANSWERS, "4.26 or 4.62 metres", "Our memories disagree")
    page.browser.back()
    page.press("Edit", "aside")
    page.type("Text", RIGHT)
    page.type("Reason (is kept with your name)", "the gauge book says 4.62")
    page.press("Save", "aside")
    page.see("Saved.", "aside")
    page.go("data/newsroom:shared:answer")
    page.until(ANSWERS, "4.62 metres", "All that we remember agrees")

    demo.send_signal(signal.SIGINT)
    ended = finish(demo)
    assert ended.code == 0
    assert (successor, "researcher-2") in re.findall(r"(\S+) takes over \S+: the lease of (\S+) ran out", ended.out)
