"""Plans: save what agents decide to do, and find duplicates."""

from __future__ import annotations

from typing import cast

import orjson

from sharedmem.decisions.sessions import DecisionSessions
from sharedmem.decisions.validation import (
    DEFAULT_WINDOW_S,
    PlanDraft,
    check_decision,
    check_limit,
    check_window_ms,
    check_word,
    encode_duplicate_entry,
    encode_json_fields,
    encode_json_text,
    plan_digest,
    plan_hash,
    prepare_plan,
)
from sharedmem.models import PlanRecord, SaveResult
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.scripts.decisions import PlanWrite
from sharedmem.redis.service_keys import decoding


class Plans:
    """Saves plans, reads them, and finds duplicates."""

    def __init__(self, sessions: DecisionSessions) -> None:
        self._sessions = sessions

    async def save_plan(
        self, session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str = ""
    ) -> str:
        """As `Decisions.save_plan`."""
        plan = prepare_plan(session, symbol, action, confidence, reasoning, method)
        await self._save(plan, 0)
        return plan.plan_hash

    async def save_if_new(
        self,
        session: str,
        symbol: str,
        action: str,
        confidence: float,
        reasoning: str,
        method: str = "",
        time_window_sec: float = DEFAULT_WINDOW_S,
    ) -> SaveResult:
        """As `Decisions.save_if_new`."""
        plan = prepare_plan(session, symbol, action, confidence, reasoning, method)
        return await self._save(plan, check_window_ms(time_window_sec))

    async def get_recent_plans(self, session: str, symbol: str | None = None, limit: int = 10) -> list[PlanRecord]:
        """As `Decisions.get_recent_plans`."""
        sessions = self._sessions
        found = sessions.keys(session, "read")
        if symbol is not None:
            check_word("symbol", symbol)
        wanted, most = encode_json_text(symbol), check_limit(limit)
        bodies = as_list(
            await sessions.look(
                found, lambda cold: sessions.scripts.plan_list(found.plans, symbol=wanted, limit=most, cold=cold)
            )
        )
        with decoding(found.plans.plans):
            return [_parse_plan(orjson.loads(body)) for body in bodies if isinstance(body, bytes)]

    async def check_duplicate(
        self,
        session: str,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
    ) -> tuple[bool, PlanRecord | None]:
        """As `Decisions.check_duplicate`."""
        sessions = self._sessions
        found = sessions.keys(session, "read")
        check_decision(symbol, action, reasoning)
        window_ms = check_window_ms(time_window_sec)
        full = plan_digest(symbol, action, reasoning)
        reply = cast(
            "bytes",
            await sessions.look(
                found, lambda cold: sessions.scripts.plan_check(found.duplicates, digest=full, cold=cold)
            ),
        )
        since, _, known = reply.partition(b" ")
        if not known or int(since) >= window_ms:
            return False, None
        short = plan_hash(symbol, action, reasoning)
        same = PlanDraft(session, symbol, action, 0.0, reasoning, "", short, b"")
        return True, _parse_duplicate(same, known, int(since))

    async def _save(self, plan: PlanDraft, window_ms: int) -> SaveResult:
        sessions = self._sessions
        session = sessions.keys(plan.session, "write")
        saving = PlanWrite(
            window_ms,
            plan.digest,
            plan.plan_hash.encode(),
            encode_json_text(plan.symbol),
            encode_duplicate_entry(plan.confidence, plan.method),
            _encode_plan(plan),
            sessions.settings.plans_per_session,
            session.events,
        )
        call = sessions.scripts.plan_save(session.space, session.saving, sessions.actor, saving, keep=session.keep)
        word, _, rest = (await sessions.changed(session, call)).partition(b" ")
        if word == b"saved":
            return SaveResult.model_construct(saved=True, plan=_plan_record(plan, rest.decode(), None), time_since_ms=0)
        since, _, known = rest.partition(b" ")
        same = _parse_duplicate(plan, known, int(since))
        return SaveResult.model_construct(saved=False, plan=same, time_since_ms=int(since))


def _encode_plan(plan: PlanDraft) -> bytes:
    """Return the plan's JSON from its hash on: the script adds the fields before it."""
    return (
        encode_json_fields(
            {
                "plan_hash": plan.plan_hash,
                "session_id": plan.session,
                "symbol": plan.symbol,
                "action": plan.action,
                "confidence": plan.confidence,
                "method": plan.method,
                "reasoning": plan.reasoning,
            }
        )
        + b"}"
    )


def _parse_duplicate(same: PlanDraft, known: bytes, since_ms: int) -> PlanRecord:
    """Return a plan from an entry of the duplicate index, `<id> <confidence> <method>`; other fields are equal."""
    plan_id, confidence, method = known.decode().split(" ", 2)
    return _plan_record(same._replace(confidence=float(confidence), method=method), plan_id, since_ms)


def _plan_record(plan: PlanDraft, plan_id: str, since_ms: int | None) -> PlanRecord:
    return PlanRecord.model_construct(
        plan_id=plan_id,
        plan_hash=plan.plan_hash,
        session_id=plan.session,
        symbol=plan.symbol,
        action=plan.action,
        confidence=plan.confidence,
        reasoning=plan.reasoning,
        method=plan.method,
        timestamp_ms=int(plan_id) // 1000,
        time_since_ms=since_ms,
    )


def _parse_plan(body: dict[str, object]) -> PlanRecord:
    return PlanRecord.model_construct(**body, time_since_ms=None)  # type: ignore[arg-type]  # fields as we wrote them
