"""`store.recall`: what an agent should know now, from all parts of a store, in a budget of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import get_args

from sharedmem.errors import InvalidError, SharedMemoryError, UnsupportedError
from sharedmem.graph.graph import Graph
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.memories import Memories
from sharedmem.memory.search import check_query
from sharedmem.memory.serialization import owner_key
from sharedmem.models.recall import RecalledContext, RecallPart
from sharedmem.providers.chunks import token_encoding
from sharedmem.providers.thresholds import thresholds_of
from sharedmem.recall.budget import pack
from sharedmem.recall.candidates import RELATED, rate
from sharedmem.recall.parts import (
    Ask,
    PartAnswer,
    RecallQuery,
    ValueReader,
    ask_graph,
    ask_memory,
    ask_notes,
    ask_standing,
    ask_values,
)
from sharedmem.redis.scope import Scope
from sharedmem.runtime import measured
from sharedmem.synthesis.synthesis import Synthesis
from sharedmem.text.analysis import query_terms

PARTS: tuple[RecallPart, ...] = get_args(RecallPart)
MAIN = "main"
"""The group of the graph and the app of notes, unless the caller names others."""
FEWEST_TOKENS = 100
MOST_TOKENS = 100_000
_MOST_VALUES = 100
_VALUES, _STANDING = "values", "standing"


def group_of(group_id: str | None, user_id: str | None) -> str:
    """Return the group of the graph: the caller's, or one for each user, so that no user reads facts of others."""
    if group_id is not None:
        return group_id
    return MAIN if user_id is None else f"{MAIN}:{user_id}"


@dataclass(frozen=True)
class StoreFacets:
    """The parts of a store, opened when they are first needed."""

    memory: Callable[[], Memories]
    graph: Callable[[], Graph]
    notes: Callable[[], Synthesis]
    values: ValueReader


class ContextRecall:
    """Answers what an agent should know now, with the rights of one actor.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, whose standing instructions count where there is no user.
        facets: the parts of the store, with the rights of the same actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, facets: StoreFacets) -> None:
        self._context = context
        self._counters = context.counters
        self._facets = facets
        self._offers_standing = context.settings_of(scope.identity.namespace).standing_memories
        self._actor = scope.signature.decode()

    @measured("recall")
    async def recall(  # noqa: PLR0913  # each narrows what is looked for
        self,
        question: str,
        *,
        tokens: int,
        as_of: datetime | None,
        user_id: str | None,
        parts: Sequence[RecallPart] | None,
        values: Sequence[str],
        group_id: str | None,
        app_id: str | None,
        threshold: float | None,
        model: str,
    ) -> RecalledContext:
        """Return what is known; see `SharedMemoryStore.recall`."""
        asked = RecallQuery(
            question=check_query("question", question),
            as_of=_check_moment(as_of),
            user_id=user_id,
            group_id=group_of(group_id, user_id),
            app_id=MAIN if app_id is None else app_id,
            budget=_check_tokens(tokens),
        )
        least = RELATED if threshold is None else _check_threshold(threshold)
        chosen = _check_parts(parts)
        calls = self._calls(chosen, is_named=parts is not None)
        if keys := _check_keys(values):
            calls[_VALUES] = partial(ask_values, self._facets.values, keys)
        if self._offers_standing and "memory" in chosen:
            calls[_STANDING] = partial(ask_standing, self._facets.memory(), owner_key(user_id, self._actor))
        answers, failures = await _ask_all(calls, asked)
        standing = answers.pop(_STANDING).candidates if _STANDING in answers else []
        scale = thresholds_of(self._context.embedder_name)
        rated = rate(asked.question, [answer.candidates for answer in answers.values()], scale, least=least)
        packed = pack(
            rated,
            budget=asked.budget,
            terms=frozenset(query_terms(asked.question)),
            now=self._context.clock.now(),
            model=model,
            standing=standing,
        )
        less = {name: answer.degraded for name, answer in answers.items() if answer.degraded} | failures
        if less:
            self._counters.increment("recall_degraded")
        return RecalledContext(
            question=asked.question,
            text=packed.text,
            items=packed.items,
            standing=packed.standing,
            tokens=packed.tokens,
            tokens_by=token_encoding(model) or "estimate",
            left_out=packed.left_out,
            repeated=packed.repeated,
            as_of=as_of,
            degraded=tuple(f"{name}: {reason}" for name, reason in less.items()),
            round_trips=max((answer.round_trips for answer in answers.values()), default=0),
        )

    def _calls(self, parts: Sequence[RecallPart], *, is_named: bool) -> dict[str, Ask]:
        """Return the call for each part; a part that is not installed is left out unless the caller has named it."""
        openers: dict[RecallPart, Callable[[], Ask]] = {
            "memory": lambda: partial(ask_memory, self._facets.memory()),
            "graph": lambda: partial(ask_graph, self._facets.graph()),
            "notes": lambda: partial(ask_notes, self._facets.notes()),
        }
        calls: dict[str, Ask] = {}
        for part in parts:
            try:
                calls[part] = openers[part]()
            except UnsupportedError:
                if is_named:
                    raise
        return calls


async def _ask_all(calls: Mapping[str, Ask], asked: RecallQuery) -> tuple[dict[str, PartAnswer], dict[str, str]]:
    """Return the answers of the parts, and why others have failed.

    Raises:
        InvalidError: an argument is invalid.
        SharedMemoryError: a value cannot be read, which the caller has named; or all parts have failed.
    """
    found = await asyncio.gather(*(call(asked) for call in calls.values()), return_exceptions=True)
    answers: dict[str, PartAnswer] = {}
    failures: dict[str, SharedMemoryError] = {}
    for name, answer in zip(calls, found, strict=True):
        if isinstance(answer, PartAnswer):
            answers[name] = answer
        elif name != _VALUES and isinstance(answer, SharedMemoryError) and not isinstance(answer, InvalidError):
            failures[name] = answer
        else:
            raise answer
    if failures and not answers:
        raise next(iter(failures.values()))
    return answers, {name: str(error) for name, error in failures.items()}


# -- checks ---------------------------------------------------------------------------------------


def _check_tokens(tokens: int) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not FEWEST_TOKENS <= tokens <= MOST_TOKENS:
        raise InvalidError("tokens", tokens, f"give a whole number from {FEWEST_TOKENS} to {MOST_TOKENS}")
    return tokens


def _check_moment(as_of: datetime | None) -> datetime | None:
    if as_of is None:
        return None
    if not isinstance(as_of, datetime) or as_of.tzinfo is None:
        raise InvalidError("as_of", as_of, "give a time with a time zone")
    return as_of


def _check_threshold(threshold: float) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise InvalidError("threshold", threshold, "give a number from 0, which answers anything, to 1")
    return float(threshold)


def _check_parts(parts: Sequence[RecallPart] | None) -> tuple[RecallPart, ...]:
    if parts is None:
        return PARTS
    if isinstance(parts, str) or not isinstance(parts, Sequence) or not set(parts) <= set(PARTS):
        raise InvalidError("parts", parts, f"give a list of some of {', '.join(PARTS)}")
    return tuple(dict.fromkeys(parts))


def _check_keys(values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) > _MOST_VALUES:
        raise InvalidError("values", values, f"give a list of up to {_MOST_VALUES} keys")
    return tuple(dict.fromkeys(values))
