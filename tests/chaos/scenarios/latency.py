"""A network that is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import impatient_settings, persistent_settings
from support.holder_history import HolderTurn, check_turns

from chaos.faults import logging_server, repeat_fault
from chaos.hubs import open_hubs
from chaos.judged_batches import run_judged_batch
from chaos.scenario import Scenario, Trial
from sharedmem import Hub, LockLostError, Settings, SharedMemoryError, SharedMemoryStore

_SLOW_S, _VERY_SLOW_S, _BOUND_S = 0.1, 2.0, 3.5
"""An impatient hub gives a call up after about a second; the slow way there and back takes four."""
_LEASE_S, _PATIENT_S, _HELD_S, _SLOW_CALLS = 1.0, 30.0, 0.1, 15

_Call = Callable[[SharedMemoryStore], Awaitable[object]]
_CALLS: Sequence[tuple[str, _Call]] = (
    ("read", lambda store: store.read("k")),
    ("write", lambda store: store.write("k", 1)),
    ("incr", lambda store: store.incr("n")),
    ("put", lambda store: store.queue("jobs").put("a")),
    ("take", lambda store: store.rate_limit("calls", limit=5, per=1).take()),
    ("publish", lambda store: store.publish("news", 1)),
)


class Latency(Scenario):
    """A phase of 100 ms, and one of 2 s, each way."""

    name = "latency"
    promise = "Under 100 ms and 2 s of latency patient calls take effect once, locks have one holder, and impatient \
calls end in time."
    fault = "Each piece of data is 100 ms late, then 2 s, each way."
    work = "Clients call at random; two hubs contend for a lock; a hub with a timeout of half a second makes calls."
    control = "A hub that waits for as long as it takes where calls should end in time."

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            async with (
                ChaosProxy(server.url) as proxy,
                open_hubs(proxy.url, 2) as patient,
                Hub.open(settings=_hasty_settings(proxy.url, is_control=trial.is_control)) as hasty,
                Hub.open(settings=persistent_settings(proxy.url, response_timeout_s=_PATIENT_S)) as very_patient,
            ):
                while not trial.is_over:
                    with proxy.delayed(_SLOW_S):
                        await _slowly(trial, patient)
                    with proxy.delayed(_VERY_SLOW_S):
                        await asyncio.gather(_hastily(trial, hasty), _once_each(trial, very_patient))
                    trial.broke()


def _hasty_settings(url: str, *, is_control: bool) -> Settings:
    return persistent_settings(url) if is_control else impatient_settings(url, connect_timeout_s=1.0)


async def _slowly(trial: Trial, hubs: Sequence[Hub]) -> None:
    """Call at random, and contend for a lock meanwhile; both are judged, but not in the control of the other phase."""
    if trial.is_control:
        return
    turns: list[HolderTurn] = []
    contenders = (_contend(hub.store("locks"), f"hub-{number}", turns) for number, hub in enumerate(hubs))
    async with repeat_fault(*contenders):
        await run_judged_batch(trial, hubs, f"slow-{trial.counts['faults']}", calls=_SLOW_CALLS)
    trial.judge(check_turns(turns))
    trial.did(len(turns))


async def _contend(store: SharedMemoryStore, who: str, turns: list[HolderTurn]) -> None:
    while True:
        asked_at = time.monotonic()
        with suppress(LockLostError):
            async with store.lock("it", lease=_LEASE_S) as lease:
                got_at = time.monotonic()
                await asyncio.sleep(_HELD_S)
                seen_at = time.monotonic()
                turns.append(HolderTurn(who, lease.token, asked_at, got_at, seen_at if lease.is_held() else got_at))


async def _hastily(trial: Trial, hub: Hub) -> None:
    """Make each kind of call once, all together: each ends in time, with an answer or an error of ours."""

    async def timed(name: str, call: _Call) -> list[str]:
        began = time.monotonic()
        with suppress(SharedMemoryError):
            await call(hub.store("hasty"))
        took_s = time.monotonic() - began
        return [f"{name} took {took_s:.1f} s"] if took_s > _BOUND_S else []

    for found in await asyncio.gather(*(timed(name, call) for name, call in _CALLS)):
        trial.judge(found)
    trial.did(len(_CALLS))


async def _once_each(trial: Trial, hub: Hub) -> None:
    """A counter and a list of a hub that waits long enough: each call takes effect once."""
    store, number = hub.store("patient"), trial.counts["faults"] + 1
    told = tuple(await asyncio.gather(store.incr("n"), store.append("list", number)))
    if told != (number, number):
        trial.judge([f"call {number} was told {told}"])
    trial.did(2)
