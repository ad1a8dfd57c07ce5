"""Operations of the decision log: plans, their executions, and statistics of executions."""

from __future__ import annotations

from sharedmem.api.operation import Facet
from sharedmem.decisions.decisions import Decisions
from sharedmem.models import Duplicate, Executed

_PLAN = "/decisions/{session}/plans/{plan_hash}/execution"
_decisions = Facet("decisions", lambda store, _: store.decisions)

_decisions.operation("plan.sessions", Decisions.sessions, "GET /decisions", paging="names")
_decisions.operation(
    "plan.erase", Decisions.erase, "DELETE /decisions/{session}", answer="erased", bulk=True, formerly=["plan.forget"]
)
_decisions.operation("plan.list", Decisions.get_recent_plans, "GET /decisions/{session}/plans")
_decisions.operation(
    "plan.save", Decisions.save_plan, "POST /decisions/{session}/plans", created=201, answer="plan_hash"
)
_decisions.operation(
    "plan.save_if_new",
    Decisions.save_if_new,
    "POST /decisions/{session}/plans/if-new",
    created=201,
    is_new=lambda result: result.saved,
)
_decisions.operation("plan.refusals", Decisions.get_refusals, "GET /decisions/{session}/refusals")
_decisions.operation(
    "plan.check",
    Decisions.check_duplicate,
    "POST /decisions/{session}/plans/check",
    needs="read",
    reply=lambda found: Duplicate(is_duplicate=found[0], plan=found[1]),
    gives=Duplicate,
)
_decisions.operation("plan.find_similar", Decisions.find_similar, "POST /decisions/plans/similar", needs="read")
_decisions.operation("plan.history", Decisions.history, "GET /decisions/{session}/history")
_decisions.operation("plan.patterns", Decisions.patterns, "GET /decisions/plans/patterns")
_decisions.operation(
    "execution.check",
    Decisions.check_executed,
    f"GET {_PLAN}",
    reply=lambda found: Executed(executed=found[0], execution=found[1]),
    gives=Executed,
)
_decisions.operation(
    "execution.begin",
    Decisions.begin_execution,
    f"POST {_PLAN}",
    created=201,
    location=_PLAN,
    is_new=lambda claim: claim.started,
)
_decisions.operation("execution.renew", Decisions.renew, f"POST {_PLAN}/renew")
_decisions.operation("execution.finish", Decisions.finish, f"POST {_PLAN}/finish")
_decisions.operation("execution.mark", Decisions.mark_executed, f"POST {_PLAN}/mark")
_decisions.operation("execution.resolve", Decisions.resolve, f"POST {_PLAN}/resolve")
_decisions.operation("execution.open", Decisions.get_open_executions, "GET /decisions/{session}/executions/open")
_decisions.operation("execution.stats", Decisions.get_execution_stats, "GET /decisions/{session}/stats")

FACETS = (_decisions,)
