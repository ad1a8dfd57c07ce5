"""How soon each view of the console is usable, on a team's data and among a million keys; whether memory stays flat.

python benchmarks/console.py                  about ten minutes, of which the million keys take most
python benchmarks/console.py --quick          100,000 keys, three loads of each view, half a minute of feed
python benchmarks/console.py --minutes 60     an hour of feed
python benchmarks/console.py --only views     no feed; `--only feed`: no views
python benchmarks/console.py --page docs/benchmarks.md

A view is loaded by its address in headless Chromium, as by a link from a colleague. It is usable when its heading and
data are drawn and nothing loads any more, and that stays so for half a second; the time is that of the page, from the
navigation on. Memory is the heap of the page after a garbage collection, while a process changes 500 keys a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench_report import Verdict, replace_part
from harness import machine
from rich.console import Console as Terminal
from rich.table import Table
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from sharedmem import Hub, Settings
from sharedmem.faces.auth import Bearer, add_entry, new_token

RESULTS = Path(__file__).parent / "results" / "console.json"
VIEWS = sorted(path.stem.lower() for path in (Path(__file__).parents[1] / "console/src/views").glob("*.svelte"))
TEAM, MILLION = "team", "million"
KEYS, QUICK_KEYS = 1_000_000, 100_000
LOADS, QUICK_LOADS = 5, 3
MOST_TEAM_S, MOST_MILLION_S, MOST_GROWTH = 1.0, 2.0, 1.10
CHANGES_A_SECOND = 500
KEPT_ENTRIES = 5_000
"""Changes that the page keeps: until it has as many, it grows."""
_BATCH, _AT_ONCE = 1_000, 8
_PATIENCE_S = 120
_SAMPLE_EVERY_S = 5.0
_SHAREDMEM = "from sharedmem.faces.cli import main; main()"
# Runs before the page: notes since when the view is usable, and forgets it when something loads again.
_WATCH = """
window.usableSince = null
new MutationObserver(() => {
  const main = document.querySelector('main')
  const isUsable = main?.querySelector('h1') && main.children.length > 1
    && !main.querySelector('p[role=status]')
  if (!isUsable) window.usableSince = null
  else window.usableSince ??= performance.now()
}).observe(document, {subtree: true, childList: true, attributes: true})
"""
_USABLE_AT = (
    "return window.usableSince !== null && performance.now() - window.usableSince > 500 ? window.usableSince : null"
)


@dataclass
class ConsoleResults:
    """What a run has measured."""

    machine: dict[str, str]
    quick: bool
    keys: int
    loads_s: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """By world and view: seconds until it was usable, load by load."""
    heap_mb: list[float] = field(default_factory=list)
    """Heap of the page, sample by sample, once it keeps as many changes as it ever does."""
    nodes: list[int] = field(default_factory=list)
    """DOM nodes of the page, likewise."""
    listeners: list[int] = field(default_factory=list)
    """Event listeners of the page, likewise."""
    feed_minutes: float = 0.0


def main() -> int:
    """Measure what the command line asks for."""
    asked = _arguments()
    keys, loads = (QUICK_KEYS, QUICK_LOADS) if asked.quick else (KEYS, LOADS)
    keys = asked.keys or keys
    results = ConsoleResults(
        machine() | {"browser": _version(), "load": f"{os.getloadavg()[0]:.1f}"}, asked.quick, keys
    )
    with TemporaryDirectory(prefix="sm-bench-") as folder:
        tokens = {name: _token(Path(folder) / "tokens.yaml", name) for name in (TEAM, MILLION)}
        settings = Settings(data_dir=Path(folder) / "data", embedder="hashing", namespace=TEAM)
        asyncio.run(_fill_teams(settings))
        with _service(settings, Path(folder) / "tokens.yaml") as url, _browser(Path(folder) / "profile") as browser:
            if asked.only != "feed":
                # First without the many keys: what lists by SCAN looks through those of all namespaces of a server.
                results.loads_s[TEAM] = _loads(browser, url, tokens[TEAM], loads)
                asyncio.run(_fill_keys(settings, keys))
                results.loads_s[MILLION] = _loads(browser, url, tokens[MILLION], loads)
            if asked.only != "views":
                results.feed_minutes = asked.minutes or (0.5 if asked.quick else 2.0)
                _feed(browser, url, tokens[TEAM], settings, results)
    goals = verdicts(results)
    _show(results, goals)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    told = asdict(results) | {"goals": [asdict(goal) | {"verdict": goal.word} for goal in goals]}
    asked.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    if asked.page:
        replace_part(asked.page, "console", _page_lines(results, goals))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How soon the views of the console are usable.")
    parser.add_argument("--quick", action="store_true", help="fewer keys and loads: a first impression")
    parser.add_argument("--keys", type=int, metavar="N", help="keys of the large namespace")
    parser.add_argument("--minutes", type=float, metavar="N", help="how long the feed runs")
    parser.add_argument("--only", choices=("views", "feed"), help="measure this alone")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose part to replace")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- data, service, browser ------------------------------------------------------------------------


def _token(file: Path, namespace: str) -> str:
    everything = [f"{namespace}:*"]
    bearer = Bearer.of(namespace, actor="vera", grants=everything, operator=True, administrator=True)
    token, entry = new_token(bearer)
    add_entry(file, entry)
    return token


async def _fill_teams(settings: Settings) -> None:
    async with Hub.open(settings=settings) as hub:
        for namespace in (TEAM, MILLION):
            _say(f"filling {namespace}")
            await _fill_team(hub, namespace)


async def _fill_keys(settings: Settings, keys: int) -> None:
    _say(f"{keys:,} keys")
    async with Hub.open(settings=settings) as hub:
        store = hub.store(MILLION, actor="ada")
        for first in range(0, keys, _BATCH * _AT_ONCE):
            batches = range(first, min(keys, first + _BATCH * _AT_ONCE), _BATCH)
            await asyncio.gather(
                *(store.write_many({f"value-{one}": one for one in range(start, start + _BATCH)}) for start in batches)
            )


async def _fill_team(hub: Hub, namespace: str) -> None:
    """What a team of agents has after a day's work."""
    store = hub.store(namespace, actor="planner")
    await store.write_many({f"finding-{number}": {"page": number, "done": True} for number in range(1_000)})
    for number in range(500):
        await store.memory.add(
            f"Order {number} of customer {number % 50} goes to {number % 90} Elm Street.", category=f"kind-{number % 9}"
        )
    for number in range(20):
        entries = [{"role": "user", "content": f"Question {turn} of talk {number}"} for turn in range(50)]
        await store.conversations.append(f"talk-{number}", entries, tags={"user": "ada"})
    for number in range(100):
        await store.graph.add_relationship(f"Part {number}", "belongs_to", f"Machine {number % 20}", group_id="main")
    jobs = store.queue("jobs")
    for number in range(300):
        await jobs.put({"page": number})
    for number in range(40):
        await store.decisions.save_plan("desk", f"GATE-{number}", "CLOSE", 0.9, f"The tide rises above {number} m.")
        await store.cache.put(f"How high is tide {number}?", f"{number} m", tags=["tides"])


@contextmanager
def _service(settings: Settings, tokens: Path) -> Iterator[str]:
    words = ["--json", "--data-dir", str(settings.data_dir), "serve", "rest", "--console", "--port", "0"]
    command = [sys.executable, "-c", _SHAREDMEM, *words, "--tokens", str(tokens)]
    environment = os.environ | {"SHAREDMEM_EMBEDDER": "hashing"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def _version() -> str:
    told = subprocess.run(["chromium", "--version"], capture_output=True, text=True, check=True).stdout
    return told.strip().partition(" built")[0]


@contextmanager
def _browser(profile: Path) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,800"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    browser = Chrome(options=options, service=Service(executable_path=str(shutil.which("chromedriver"))))
    try:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        yield browser
    finally:
        browser.quit()


# -- measurements ----------------------------------------------------------------------------------


def _open(browser: Chrome, url: str, view: str) -> float:
    """Load a view by its address; return the seconds until it is usable."""
    # Another page in between: a change behind `#` alone would load nothing.
    browser.get(f"{url}/console/icon.svg")
    browser.get(f"{url}/console/#/{view}")
    waiting: WebDriverWait[Chrome] = WebDriverWait(browser, _PATIENCE_S, poll_frequency=0.05)
    found = waiting.until(lambda page: page.execute_script(_USABLE_AT), f"{view} is not usable")
    return float(found) / 1000


def _enter(browser: Chrome, url: str, token: str) -> None:
    browser.get(f"{url}/console/icon.svg")
    browser.execute_script("sessionStorage.setItem('sharedmem.token', arguments[0])", token)


def _loads(browser: Chrome, url: str, token: str, loads: int) -> dict[str, list[float]]:
    _enter(browser, url, token)
    found: dict[str, list[float]] = {view: [] for view in VIEWS}
    _open(browser, url, VIEWS[0])  # fetches the page itself into the cache of the browser
    for _ in range(loads):
        for view in VIEWS:
            found[view].append(round(_open(browser, url, view), 3))
    _say(", ".join(f"{view} {median(times):.2f} s" for view, times in found.items()))
    return found


def _feed(browser: Chrome, url: str, token: str, settings: Settings, results: ConsoleResults) -> None:
    """Note the memory of the page while changes come in, sample by sample."""
    _enter(browser, url, token)
    _open(browser, url, "feed")
    _say(f"{results.feed_minutes:g} minutes of feed")

    async def run() -> None:
        async with Hub.open(settings=settings) as hub:
            store, changed, began = hub.store(TEAM, actor="ada"), 0, time.monotonic()
            next_sample = began
            while changed < KEPT_ENTRIES * 2 or time.monotonic() - began < results.feed_minutes * 60:
                await store.write_many({f"live-{changed + number}": number for number in range(100)}, ttl=60)
                changed += 100
                if changed >= KEPT_ENTRIES * 2 and time.monotonic() >= next_sample:
                    await asyncio.to_thread(_sample, browser, results)
                    next_sample = time.monotonic() + _SAMPLE_EVERY_S
                await asyncio.sleep(max(0.0, began + changed / CHANGES_A_SECOND - time.monotonic()))

    asyncio.run(run())


def _sample(browser: Chrome, results: ConsoleResults) -> None:
    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    heap = browser.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]
    counters = browser.execute_cdp_cmd("Memory.getDOMCounters", {})
    results.heap_mb.append(round(float(heap) / 1e6, 2))
    results.nodes.append(counters["nodes"])
    results.listeners.append(counters["jsEventListeners"])
    _say(f"{results.heap_mb[-1]} MB, {results.nodes[-1]} nodes, {results.listeners[-1]} listeners")


# -- report ----------------------------------------------------------------------------------------


def verdicts(results: ConsoleResults) -> list[Verdict]:
    """Return the goals of the console, of what was measured."""
    found = []
    worlds = ((TEAM, MOST_TEAM_S, "a team's data"), (MILLION, MOST_MILLION_S, f"{results.keys:,} keys"))
    for world, most_s, words in worlds:
        if world in results.loads_s:
            times = {view: median(loads) for view, loads in results.loads_s[world].items()}
            slowest = max(times, key=lambda view: times[view])
            goal = f"each view usable within {most_s:g} s on {words}"
            found.append(Verdict(goal, f"slowest: {slowest}, {times[slowest]:.2f} s", times[slowest] <= most_s))
    for name, samples, shape in (("heap", results.heap_mb, "{:.1f} MB"), ("DOM nodes", results.nodes, "{:,.0f}")):
        if samples:
            first, middle, last = _course(samples)
            goal = (
                f"{name} flat over {results.feed_minutes:g} minutes of feed (at most {MOST_GROWTH:g} times the start)"
            )
            words = f"start {shape}, middle {shape}, end {shape}".format(first, middle, last)
            found.append(Verdict(goal, words, last <= first * MOST_GROWTH))
    return found


def _course(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the medians of the first, the middle and the last tenth of the samples."""
    size, middle = max(1, len(samples) // 10), len(samples) // 2
    parts = samples[:size], samples[middle - size // 2 :][:size], samples[-size:]
    first, between, last = (float(median(part)) for part in parts)
    return first, between, last


def _rows(results: ConsoleResults) -> Iterator[tuple[str, str, str]]:
    for view in VIEWS:
        cells = [results.loads_s[world][view] for world in (TEAM, MILLION)]
        yield view, *(f"{median(times):.2f} ({max(times):.2f})" for times in cells)  # type: ignore[misc]  # two of them


def _show(results: ConsoleResults, goals: list[Verdict]) -> None:
    table = Table(title="seconds until a view is usable: median (slowest)")
    for name in ("view", "a team's data", f"{results.keys:,} keys"):
        table.add_column(name, justify="left" if name == "view" else "right")
    for row in _rows(results) if results.loads_s else ():
        table.add_row(*row)
    judged: Table = Table(title="goals")
    for name in ("goal", "found", "verdict"):
        judged.add_column(name)
    for goal in goals:
        judged.add_row(goal.goal, goal.found, goal.word)
    terminal = Terminal()
    terminal.width = max(terminal.width, 150)
    if results.loads_s:
        terminal.print(table)
    terminal.print(judged)


def _page_lines(results: ConsoleResults, goals: list[Verdict]) -> Iterator[str]:
    facts: dict[str, Any] = results.machine
    where = f"{facts['browser']}, Python {facts['python']}, {facts['cores']} cores"
    yield f"{where}; other work ran beside it: the load average was {facts['load']} at the beginning."
    yield ""
    if results.loads_s:
        yield f"| view | a team's data: s, median (slowest) | {results.keys:,} keys |"
        yield "|---|---|---|"
        for row in _rows(results):
            yield f"| {' | '.join(row)} |"
        yield ""
    yield "| goal | found | |"
    yield "|---|---|---|"
    for goal in goals:
        yield f"| {goal.goal} | {goal.found} | {goal.word} |"


if __name__ == "__main__":
    sys.exit(main())
