"""An agent's view of the decision log: plans and executions of its session, as plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from sharedmem.api.table import find_operation
from sharedmem.decisions.executions import TakeoverPolicy
from sharedmem.decisions.validation import DEFAULT_WINDOW_S
from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.models import ExecutionClaim, ExecutionRecord, ExecutionStats, PlanRecord, SaveResult
from sharedmem.store import SharedMemoryStore

_SESSION = "main"
PlainFields = dict[str, Any]


class DecisionLog(Protocol):
    """The decisions of a namespace, as `store.decisions` and `MemoryClient.decisions` have them."""

    async def save_plan(
        self, session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str = ""
    ) -> str:
        """Save a plan."""

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
        """Save a plan unless the same one was saved in the time window."""

    async def get_recent_plans(self, session: str, symbol: str | None = None, limit: int = 10) -> list[PlanRecord]:
        """The newest plans."""

    async def check_duplicate(
        self,
        session: str,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> tuple[bool, PlanRecord | None]:
        """Whether the same plan was saved in the time window."""

    async def begin_execution(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> ExecutionClaim:
        """Claim an execution."""

    async def renew(self, session: str, plan_hash: str, fence: int, *, lease: float = 30.0) -> ExecutionClaim:
        """Prolong a claim."""

    async def mark_executed(  # noqa: PLR0913, PLR0917  # one after the other, as executors know it
        self,
        session: str,
        plan_hash: str,
        symbol: str,
        action: str,
        confidence: float,
        status: str,
        executed: bool,
        order_id: str = "",
        order_size_usdt: float = 0.0,
        error: str = "",
        *,
        fence: int | None = None,
    ) -> ExecutionRecord:
        """Record an execution."""

    async def check_executed(self, session: str, plan_hash: str) -> tuple[bool, ExecutionRecord | None]:
        """Whether a plan was executed."""

    async def get_execution_stats(self, session: str, symbol: str | None = None) -> ExecutionStats:
        """How executions went."""


class AgentMemory(Protocol):
    """What an agent needs of a memory: a `SharedMemoryStore` has it, and a `MemoryClient` of the gRPC face."""

    @property
    def decisions(self) -> DecisionLog:
        """The decision log."""

    async def publish(self, channel: str, message: object, /) -> int:
        """Send a message to the present subscribers."""


@runtime_checkable
class CallsOperations(Protocol):
    """Runs operations by their names, as a `MemoryClient` of the gRPC face."""

    async def call(self, operation: str, **fields: object) -> Any:
        """Run an operation."""


class Context:
    """An agent's view of what its team decides; plain dictionaries come back.

    Agents that shall see each other's plans work in the same session. Each call is one round trip, and raises what
    the call of the same meaning in `store.decisions` raises.

    Args:
        agent_id: name of the agent; each event that it emits carries it.
        client: a `SharedMemoryStore`, or an open `MemoryClient`.
        session: whose plans and executions it works with.
    """

    def __init__(self, agent_id: str, client: AgentMemory, *, session: str = _SESSION) -> None:
        if not isinstance(agent_id, str) or not agent_id:
            raise InvalidError("agent_id", agent_id, "give a non-empty text")
        self._agent_id = agent_id
        self._client = client
        self._session = session

    @property
    def agent_id(self) -> str:
        """Who the agent is."""
        return self._agent_id

    @property
    def session(self) -> str:
        """The session it works in."""
        return self._session

    async def check_duplicate_plan(
        self,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> tuple[bool, PlainFields | None]:
        """Whether the same plan was saved in the last seconds, and that plan with its `time_since_ms`.

        Another planner may save it right after: `save_plan_if_new` checks and saves in one step. With `similar`, plans
        are compared by meaning too, as `store.decisions.save_if_new` says.
        """
        is_duplicate, plan = await self._client.decisions.check_duplicate(
            self._session, symbol, action, reasoning, time_window_sec, similar
        )
        return is_duplicate, plan.model_dump() if plan else None

    async def save_plan(self, symbol: str, action: str, confidence: float, reasoning: str, method: str = "") -> str:
        """Save a plan, also when the same one was saved before; returns its `plan_hash`."""
        return await self._client.decisions.save_plan(self._session, symbol, action, confidence, reasoning, method)

    async def save_plan_if_new(
        self,
        symbol: str,
        action: str,
        confidence: float,
        reasoning: str,
        method: str = "",
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> tuple[bool, PlainFields]:
        """Save a plan unless the same one was saved in the last seconds; of racing planners exactly one saves.

        Returns:
            (True, the new plan), or (False, the one there was with its `time_since_ms`).
        """
        result = await self._client.decisions.save_if_new(
            self._session, symbol, action, confidence, reasoning, method, time_window_sec, similar
        )
        return result.saved, result.plan.model_dump()

    async def get_recent_plans(self, symbol: str | None = None, limit: int = 10) -> list[PlainFields]:
        """The newest plans of the session, or of one symbol, newest first."""
        plans = await self._client.decisions.get_recent_plans(self._session, symbol, limit)
        return [plan.model_dump() for plan in plans]

    async def check_plan_executed(self, plan_hash: str) -> tuple[bool, PlainFields | None]:
        """Whether a plan was executed or is being executed, and what is known of that; `state` is its state."""
        executed, record = await self._client.decisions.check_executed(self._session, plan_hash)
        return executed, record.model_dump() if record else None

    async def begin_execution(
        self, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> PlainFields:
        """Claim the execution of a plan before doing it: go ahead only if `started`, and keep the `fence`.

        Args:
            plan_hash: of the plan, or its `plan_id`.
            lease: seconds after which the claim is over unless it is renewed.
            policy: whether the claim of an executor that died may be taken over (`takeover`) or not (`never`).
        """
        claim = await self._client.decisions.begin_execution(self._session, plan_hash, lease=lease, policy=policy)
        return claim.model_dump()

    async def renew_execution(self, plan_hash: str, fence: int, *, lease: float = 30.0) -> PlainFields:
        """Prolong a claim by so many seconds from now on, while the work goes on."""
        claim = await self._client.decisions.renew(self._session, plan_hash, fence, lease=lease)
        return claim.model_dump()

    async def mark_plan_executed(  # noqa: PLR0913  # likewise
        self,
        plan_hash: str,
        symbol: str,
        action: str,
        confidence: float,
        status: str,
        executed: bool,
        order_id: str = "",
        order_size_usdt: float = 0.0,
        error: str = "",
        *,
        fence: int | None = None,
    ) -> PlainFields:
        """Record the one execution of a plan; the first to mark it wins.

        Args:
            plan_hash: of the plan, or its `plan_id`.
            symbol: what was dealt in.
            action: what was done.
            confidence: from 0 to 1.
            status: `success`; `error` or `failed`; `unknown` or `timeout` when it is not known.
            executed: whether an order was placed.
            order_id: what the exchange calls it.
            order_size_usdt: 0 or more.
            error: what went wrong.
            fence: of the claim, if there is one.
        """
        record = await self._client.decisions.mark_executed(
            self._session,
            plan_hash,
            symbol,
            action,
            confidence,
            status,
            executed,
            order_id,
            order_size_usdt,
            error,
            fence=fence,
        )
        return record.model_dump()

    async def get_execution_stats(self, symbol: str | None = None) -> PlainFields:
        """How the executions of the session, or of one symbol, went: counts, `win_rate`, the latest ones."""
        return (await self._client.decisions.get_execution_stats(self._session, symbol)).model_dump()

    async def emit_event(self, topic: str, data: Mapping[str, Any]) -> int:
        """Send to the present subscribers of a topic, and return their number.

        The message is `{"agent_id": ..., "topic": ..., "data": ...}`. What must not be missed is followed on the
        change feed, not here.

        Args:
            topic: a channel: plain (`<namespace>:shared:<topic>`) or absolute.
            data: content of the event.
        """
        event = {"agent_id": self._agent_id, "topic": topic, "data": dict(data)}
        return await self._client.publish(topic, event)

    async def call(self, operation: str, **fields: object) -> Any:
        """Run any operation of the shared memory by its name, such as `value.write` or `memory.search`.

        The operations and their fields are the same as in the REST service; the session of the agent is not among them.

        Args:
            operation: `<noun>.<verb>`.
            fields: of its request.

        Returns:
            The answer: plain values, and dictionaries for records. Over gRPC also times are texts.

        Raises:
            NotFoundError: there is no such operation, or what it asks for does not exist.
            InvalidError: a field is invalid.
            UnsupportedError: the client has no operations.
            SharedMemoryError: as the operation.
        """
        if isinstance(self._client, SharedMemoryStore):
            row = find_operation(operation)
            return _plain(await row.run(self._client, row.request(fields)))
        if isinstance(self._client, CallsOperations):
            return await self._client.call(operation, **fields)
        raise UnsupportedError("operations by name", "give the context a SharedMemoryStore or a MemoryClient")

    def __repr__(self) -> str:
        return f"<Context of {self._agent_id} in session {self._session!r}>"


def _plain(answer: object) -> Any:
    match answer:
        case BaseModel():
            return answer.model_dump()
        case list() | tuple():
            return [_plain(one) for one in answer]
    return answer
