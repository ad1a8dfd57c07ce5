"""Keys that last, while Redis is lost again and again, hubs are killed and the durable tier fails."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from support.cosmos_emulator import EmulatedDatabase, installed_emulator

from chaos.redis_loss_rounds import Durability, HarmTier, Manner, run_loss_rounds
from chaos.scenario import Scenario, SkippedError, Trial

_HELD_S = (0.1, 1.0)
_STEPS_IN_COSMOS = 25


class _DurableInFile(Scenario):
    """A file is the tier; another process locks it now and then, so that it gives no answer."""

    plays: ClassVar[Sequence[tuple[Manner, Durability]]]

    async def run(self, trial: Trial) -> None:
        file = trial.folder / "tier.sqlite3"
        tier = {"durable_url": f"sqlite://{file}", "data_dir": str(trial.folder)}

        async def lock(trial: Trial) -> None:
            await asyncio.to_thread(_hold, file, trial.dice.uniform(*_HELD_S))

        await run_loss_rounds(trial, tier, plays=self.plays, harm_tier=lock)


class DurableRules(_DurableInFile):
    """Kinds by rule."""

    name = "durable-rules"
    promise = "What was acknowledged `through`, or carried to the tier before, outlasts every loss of Redis."
    fault = "FLUSHALL at any moment, kill -9 of the server and of a hub that brings keys back, a slow link, \
a tier that does not answer."
    work = "Two processes change values, lists, hashes, sets and counters whose kind a rule gives."
    control = "A tier that acknowledges before it has stored, or does not store deletions."
    plays = (("know", "through"), ("know", "behind"))


class DurableArguments(_DurableInFile):
    """Kinds by argument."""

    name = "durable-arguments"
    promise = "The same for keys whose kind was an argument of the call that made them."
    fault = DurableRules.fault
    work = "Two processes change keys; `through` only the call that makes a key names its kind."
    control = DurableRules.control
    weight = 1.5
    # Of a key that was lost before the tier had it, `behind`, the kind is lost, too: its calls name it each time.
    plays = (("once", "through"), ("once", "through"), ("arg", "behind"))


class DurableCosmos(Scenario):
    """Cosmos DB is the tier, as the emulator of the tests plays it."""

    name = "durable-cosmos"
    promise = "The same with Cosmos DB as the tier."
    fault = "As before; the tier answers 429 or 503, or cuts connections."
    work = "As before, with kinds by rule and by argument."
    control = DurableRules.control

    async def run(self, trial: Trial) -> None:
        try:
            emulator = await asyncio.to_thread(installed_emulator)
        except OSError as missing:
            raise SkippedError(str(missing)) from missing
        try:
            room = emulator.room()
            await run_loss_rounds(
                trial,
                _named(room, trial.folder),
                plays=(("know", "through"), ("once", "through"), ("know", "behind")),
                harm_tier=_failing(room),
                steps=_STEPS_IN_COSMOS,
            )
        finally:
            await asyncio.to_thread(emulator.stop)


def _named(room: EmulatedDatabase, folder: Path) -> dict[str, Any]:
    tier = {"durable_url": room.emulator.url, "cosmos_key": "a2V5", "cosmos_database": room.database}
    return tier | {"data_dir": str(folder)}


def _failing(room: EmulatedDatabase) -> HarmTier:
    async def fail(trial: Trial) -> None:
        fault: dict[str, Any] = trial.dice.choice(
            (
                {"status": 429, "retryAfterMs": trial.dice.randrange(500)},
                {"status": 503},
                {"drop": True},
                {"drop": True, "after": True},  # stored, but the reply is lost
            )
        )
        await room.fault(times=trial.dice.randrange(1, 6), **fault)

    return fail


def _hold(file: Path, seconds: float) -> None:
    """Lock the file of a tier against everybody for a while."""
    with closing(sqlite3.connect(file, timeout=1.0)) as other:
        try:
            other.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return  # its owner is at it just now
        time.sleep(seconds)
        other.rollback()
