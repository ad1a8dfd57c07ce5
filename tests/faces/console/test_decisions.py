"""Decisions in the console: plans and how they went, refused duplicates, a timeline, orphans to resolve."""

from __future__ import annotations

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem import SharedMemoryStore
from sharedmem.decisions.decisions import Decisions
from sharedmem.models import PlanRecord


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


async def fill(log: Decisions) -> dict[str, PlanRecord]:
    """A session with a plan in each state, and a refused duplicate of a plan and of an execution."""
    plans = {}
    for symbol in ("NEW", "RUN", "OK", "BAD", "LOST"):
        saved = await log.save_if_new("desk", symbol, "BUY", 0.9, f"the reasons for {symbol}")
        plans[symbol] = saved.plan
    await log.save_if_new("desk", "NEW", "BUY", 0.4, "the reasons for NEW")
    await log.begin_execution("desk", plans["RUN"].plan_id, lease=600)
    await log.begin_execution("desk", plans["RUN"].plan_id, lease=600)
    for symbol, status in (("OK", "success"), ("BAD", "failed")):
        claim = await log.begin_execution("desk", plans[symbol].plan_id)
        await log.finish("desk", plans[symbol].plan_id, claim.fence, status=status, order_id=f"o-{symbol}")
    await log.begin_execution("desk", plans["LOST"].plan_id, lease=0.05)
    return plans


def reasons(service: ConsoleService) -> list[tuple[str, str, str]]:
    """What persons changed by hand: (action, subject, reason)."""
    told = service.run(service.hub.store(service.namespace, actor="vera").read_list("console-audit"))
    return [(one["action"], one["subject"], one["reason"]) for one in told]


def test_sessions_and_their_plans_are_shown_and_follow_the_agents(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    page.enter("decisions")
    page.see("No session has plans.")
    plans = service.run(fill(store.decisions))
    page.open_row("desk")
    page.see("Orphaned", f'tr[data-key="{plans["LOST"].plan_id}"]')
    page.see("Succeeded", f'tr[data-key="{plans["OK"].plan_id}"]')
    page.open_row(plans["RUN"].plan_id)
    page.see("ada began it, attempt 1, fence", "aside")
    page.see("an execution of ada was refused as a duplicate", "aside")
    page.see("Lease ends", "aside")

    service.run(store.decisions.save_plan("desk", "LATER", "SELL", 0.5, "the wind has turned"))
    page.see("LATER", "main")


def test_refused_duplicates_and_a_timeline_are_shown(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    plans = service.run(fill(store.decisions))
    page.enter("decisions/desk?show=refused")
    page.until("return document.querySelectorAll('tr[data-key]').length === 2")
    page.press("Timeline")
    page.see("RUN: an execution of ada was refused as a duplicate", "main")
    page.see("LOST BUY: The lease of ada ended without an outcome", "main")
    page.see("BAD BUY: Failed, recorded by ada", "main")
    page.see("the reasons for OK", "main")

    page.go("decisions/desk?state=resolve")
    page.until("return document.querySelectorAll('tr[data-key]').length === 1")
    page.row(plans["LOST"].plan_id)


def test_an_orphan_is_resolved_for_a_reason(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    plans = service.run(fill(store.decisions))
    lost = plans["LOST"].plan_id
    page.enter(f"decisions/desk/{lost}")
    page.see("Its executor fell silent", "aside")
    page.type("Order", "o-77")
    page.type("Reason (is kept with your name)", "the exchange has it")
    page.press("Record the outcome", "aside")
    page.see("The outcome is recorded.")
    page.see("Succeeded, recorded by vera", "aside")

    _, record = service.run(store.decisions.check_executed("desk", lost))
    assert record is not None
    assert (record.state, record.order_id, record.actor) == ("succeeded", "o-77", "vera")
    assert reasons(service) == [("resolve", f"desk/{lost} (LOST BUY): success", "the exchange has it")]


def test_a_reader_looks_and_is_offered_no_outcome(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    plans = service.run(fill(store.decisions))
    page.enter(f"decisions/desk/{plans['LOST'].plan_id}", who="reader")
    page.see("Its executor fell silent", "aside")
    page.see_not("Record the outcome", "main")


def test_hostile_texts_stay_texts(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    for text in HOSTILE:
        service.run(store.decisions.save_if_new("desk", text, text, 0.5, text, text))
        service.run(store.decisions.save_if_new("desk", text, text, 0.5, text, text))
    page.enter("decisions/desk")
    page.until(f"return document.querySelectorAll('tr[data-key]').length === {len(HOSTILE)}")
    for plan in service.run(store.decisions.get_recent_plans("desk", limit=len(HOSTILE))):
        page.go(f"decisions/desk/{plan.plan_id}")
        page.see(plan.plan_id, "aside")
    page.go("decisions/desk?show=timeline")
    page.see("was refused as a duplicate")
    assert page.run("return window.broken") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, theme: str) -> None:
    plans = service.run(fill(store.decisions))
    page.enter(f"decisions/desk/{plans['LOST'].plan_id}", theme=theme)
    page.button("Record the outcome", "aside")
    assert page.violations() == []
    page.go("decisions/desk?show=timeline")
    page.see("LOST BUY: The lease of ada ended")
    assert page.violations() == []
