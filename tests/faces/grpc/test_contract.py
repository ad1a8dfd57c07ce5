"""The contract: memory.proto says what there is, and every error comes out as it went in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc.aio import AioRpcError, Metadata

import sharedmem.errors
from sharedmem import errors, models
from sharedmem.api.operation import find_operation
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.faces.auth import TokenRefusedError
from sharedmem.faces.grpc.client import READS
from sharedmem.faces.grpc.contract import (
    CODE,
    METHODS,
    SERVICE,
    message_of,
    raise_sharedmem_error,
    record_of,
    status_of,
    trailers_of,
)
from sharedmem.faces.grpc.server import FIELD_NAMES, TABLE_CALLS
from sharedmem.faces.grpc.v1 import memory_pb2 as pb

PROTO = Path(sharedmem.errors.__file__).parent / "faces" / "grpc" / "v1" / "memory.proto"
NINE = (
    *("SavePlan", "GetRecentPlans", "CheckDuplicate", "MarkExecuted", "CheckExecuted", "GetExecutionStats"),
    *("Store", "Retrieve", "Summarize"),
)

# -- memory.proto ---------------------------------------------------------------------------------


def test_the_service_has_the_nine_calls_of_agents_and_what_executors_need() -> None:
    assert SERVICE == "sharedmem.v1.MemoryService"
    assert {*NINE, "BeginExecution", "Watch"} <= METHODS.keys()


def test_every_method_is_answered() -> None:
    assert TABLE_CALLS.keys() | {"Call", "Watch"} == METHODS.keys()
    assert [method.name for method in METHODS.values() if method.streams] == ["Watch"]


def test_every_method_of_the_table_has_the_fields_of_its_operation() -> None:
    def fields(name: str) -> set[str]:
        given = {field.name for field in METHODS[name].takes.DESCRIPTOR.fields}
        plan = {field.name for field in pb.SavePlanRequest.DESCRIPTOR.fields} if "plan" in given else set()
        return {FIELD_NAMES.get(field, field.removesuffix("_json")) for field in (given - {"plan"}) | plan}

    assert {name: fields(name) for name in TABLE_CALLS} == {
        name: set(find_operation(call.operation).takes.model_fields) for name, call in TABLE_CALLS.items()
    }


def test_what_is_repeated_is_a_method() -> None:
    assert set(READS) <= METHODS.keys()


def _declarations() -> Iterator[tuple[str, str]]:
    """(the line before, the declaration) of every method, message and field."""
    before = ""
    for line in PROTO.read_text(encoding="utf-8").splitlines():
        if re.match(r"\s*(rpc|message|service)\s|\s*(optional |repeated )?[\w.]+ \w+ = \d+;", line):
            yield before, line.strip()
        before = line


def test_methods_messages_and_fields_are_documented() -> None:
    silent = [declared for before, declared in _declarations() if not before.strip().startswith("//")]

    assert len(list(_declarations())) > 100
    assert silent == []


@pytest.mark.parametrize("name", ["PlanRecord", "ExecutionRecord", "ExecutionClaim", "ExecutionStats"])
def test_a_message_has_the_fields_of_its_record(name: str) -> None:
    record = getattr(models, name)

    assert {field.name for field in getattr(pb, name).DESCRIPTOR.fields} == record.model_fields.keys()


# -- records --------------------------------------------------------------------------------------

PLAN = models.PlanRecord(
    plan_id="1795270308964186",
    plan_hash="c18188c2",
    session_id="btc",
    symbol="BTC",
    action="KAUFEN für später 📈",
    confidence=0.85,
    reasoning="",
    method="llm",
    timestamp_ms=1_795_270_308_964,
)
EXECUTION = models.ExecutionRecord(
    plan_id=PLAN.plan_id,
    plan_hash=PLAN.plan_hash,
    session_id="btc",
    symbol="BTC",
    action="BUY",
    confidence=1.0,
    status="",
    executed=False,
    order_id="",
    order_size_usdt=1e-9,
    timestamp_ms=1,
    error="",
    state="running",
    fence=2**62,
    attempt=3,
    actor="ada",
)


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (PLAN, pb.PlanRecord),
        (PLAN.model_copy(update={"time_since_ms": 0}), pb.PlanRecord),
        (EXECUTION, pb.ExecutionRecord),
        (models.SaveResult(saved=False, plan=PLAN, time_since_ms=7), pb.SaveIfNewResponse),
        (
            models.ExecutionClaim(started=False, fence=0, state="none", attempt=0, plan_id="1", remaining_ms=0),
            pb.ExecutionClaim,
        ),
        (
            models.ExecutionClaim(
                started=True, fence=9, state="running", attempt=1, plan_id="1", remaining_ms=5, execution=EXECUTION
            ),
            pb.ExecutionClaim,
        ),
        (
            models.ExecutionStats(
                total_executions=3,
                successful_executions=1,
                failed_executions=1,
                win_rate=1 / 3,
                duplicates_prevented=0,
                recent_executions=[EXECUTION, EXECUTION],
            ),
            pb.ExecutionStats,
        ),
    ],
)
def test_a_record_comes_through_as_it_was(record: models.Record, kind: type[Message]) -> None:
    sent = kind.FromString(message_of(kind, record).SerializeToString())

    assert record_of(type(record), sent) == record


# -- errors ---------------------------------------------------------------------------------------

ERRORS: list[SharedMemoryError] = [
    errors.InvalidError("confidence", math.nan, "give a number from 0 to 1"),
    errors.WrongTypeError("k", "list", "string"),
    errors.NotFoundError("plan", "c18188c2"),
    errors.ResultNotKeptError("once", "team:shared:report", "the blob store could not store it"),
    errors.ConflictError("somebody is at it"),
    errors.VersionConflictError("k", 1, 2),
    errors.LockHeldError("lock", "index", remaining=2.5),
    errors.LockLostError("lock", "index", 7),
    errors.ClaimLostError("plan", "c18188c2", 1_795_270_308_964_186),
    errors.AlreadyExecutedError("btc", "c18188c2", "succeeded"),
    errors.BarrierError("start", came=1, parties=2),
    errors.AccessDeniedError("ada", "tür:geheim", "write", "ask", allowed=("n:ada:*", "tür:*")),
    errors.LimitedError("too many calls", 1.25),
    errors.UnavailableError("redis", "it is gone", retry_after=3.0),
    errors.DurabilityPendingError("k", 1_795_270_308_964_186, "the tier is away"),
    errors.UnsupportedError("search", "get it"),
    errors.ConfigError("port", "argument", "is in use"),
    errors.CorruptionError("n:$clock:x", "it is no number", "look at it with sharedmem doctor"),
    errors.UsageError("this hub", "it is closed"),
    errors.NotPicklableError("Hub"),
    errors.InternalError("a bug"),
    TokenRefusedError("the call carries no token"),
]


_LIMITED = next(place for place, error in enumerate(ERRORS) if isinstance(error, errors.LimitedError))


def _received(error: SharedMemoryError) -> SharedMemoryError:
    """The error as a client gets it."""
    sent = AioRpcError(status_of(error), Metadata(), Metadata(*trailers_of(error)), details=str(error))
    with pytest.raises(SharedMemoryError) as received:
        raise_sharedmem_error(sent, "SavePlan", "127.0.0.1:1")
    return received.value


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_through_with_its_class_sentence_and_attributes(error: SharedMemoryError) -> None:
    received = _received(error)

    assert type(received) is type(error)
    assert str(received) == str(error)
    assert vars(received) == vars(error)


def test_no_class_of_errors_is_left_out() -> None:
    def family(root: type[SharedMemoryError]) -> set[str]:
        return {root.__name__}.union(*(family(child) for child in root.__subclasses__()))

    ours = {name for name in family(SharedMemoryError) if hasattr(errors, name)} - {"SharedMemoryError"}

    assert ours == {type(error).__name__ for error in ERRORS} - {"TokenRefusedError"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_status_is_that_of_the_table(error: SharedMemoryError) -> None:
    assert status_of(error).name == error.codes.grpc_status
    assert dict(trailers_of(error))[CODE] == error.code


@pytest.mark.parametrize(
    ("error", "wait"), [(ERRORS[_LIMITED], "1250"), (ERRORS[_LIMITED + 1], "3000"), (ERRORS[0], None)]
)
def test_who_may_try_again_is_told_when(error: SharedMemoryError, wait: str | None) -> None:
    assert dict(trailers_of(error)).get("retry-after-ms") == wait


def test_facts_too_long_for_metadata_stay_at_home() -> None:
    error = errors.InvalidError("x" * 10_000, 1, "be brief")

    assert [name for name, _ in trailers_of(error)] == ["sharedmem-code"]


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError, "is `sharedmem serve grpc` running"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.UnavailableError, "look before you repeat"),
        (grpc.StatusCode.CANCELLED, errors.UnavailableError, "broke the call off"),
        (grpc.StatusCode.UNAUTHENTICATED, errors.AccessDeniedError, "SavePlan"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.InvalidError, "max_message_bytes"),
        (grpc.StatusCode.UNIMPLEMENTED, errors.UnsupportedError, "same version"),
        (grpc.StatusCode.DATA_LOSS, errors.InternalError, "DATA_LOSS"),
    ],
)
def test_what_grpc_itself_refuses_is_told_in_our_words(
    status: grpc.StatusCode, kind: type[SharedMemoryError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        raise_sharedmem_error(AioRpcError(status, Metadata(), Metadata(), details="d"), "SavePlan", "127.0.0.1:1")


def test_a_hub_that_has_waited_asks_clients_not_to() -> None:
    trailers: dict[str, Any] = dict(trailers_of(UnavailableError("redis", "gone")))

    assert trailers["grpc-retry-pushback-ms"] == "-1"
