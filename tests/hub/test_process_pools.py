"""Errors reach other processes whole; what holds a connection says that each process opens a hub of its own."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import generate_sync
import pytest

import sharedmem
from sharedmem import Hub, LimitedError, SharedMemoryError, SharedMemoryStore, UsageError, VersionConflictError
from sharedmem import sync as sync_api
from sharedmem.errors import AccessDeniedError, CorruptionError, InvalidError, NotPicklableError, UnavailableError
from sharedmem.faces.auth import Rate
from sharedmem.faces.limits import RateLimitedError, RateLimitStatus
from sharedmem.faces.rest.problems import FieldsError
from sharedmem.providers.http_client import RefusedError
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.sync.faces import Face

_SPAWN = multiprocessing.get_context("spawn")
_SAMPLES: dict[str, object] = {
    "str": "text",
    "str | None": "text",
    "int": 7,
    "int | None": 7,
    "float": 1.5,
    "bool": True,
    "bytes": b"text",
    "object": "thing",
    "Exception": ValueError("inside"),
    "SharedMemoryError": SharedMemoryError("inside"),
    "Iterable[str]": ["one", "two"],
    "Sequence[str]": ["one", "two"],
}


def refused_request() -> RefusedError:
    error = RefusedError.__new__(RefusedError)
    SharedMemoryError.__init__(error, "the service refuses the request")
    error.field, error.origin, error.status = "llm_url", "argument", 400
    return error


# Of classes whose constructors take more than plain values.
_MADE: dict[type[BaseException], Callable[[], BaseException]] = {
    FieldsError: lambda: FieldsError([("key", "it is empty")]),
    RateLimitedError: lambda: RateLimitedError(RateLimitStatus(Rate(limit=5), 0), 0.5),
    RefusedError: refused_request,
}


@cache
def exceptions() -> list[type[BaseException]]:
    """Every exception class of the package."""
    for module in pkgutil.walk_packages(sharedmem.__path__, "sharedmem."):
        importlib.import_module(module.name)
    return [kind for kind in dict.fromkeys(family(BaseException)) if kind.__module__.startswith("sharedmem.")]


def family(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in type.__subclasses__(kind):
        yield child
        yield from family(child)


def made(kind: type[BaseException]) -> BaseException:
    if kind in _MADE:
        return _MADE[kind]()
    if kind.__init__ in {BaseException.__init__, Exception.__init__}:
        return kind("some sentence")
    positional: list[object] = []
    named: dict[str, object] = {}
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        sample = _SAMPLES[str(parameter.annotation)]
        if parameter.kind == parameter.KEYWORD_ONLY:
            named[parameter.name] = sample
        else:
            positional.append(sample)
    return kind(*positional, **named)


def fields(error: BaseException) -> dict[str, object]:
    """Its attributes, comparable: two exceptions of the same class and message are not equal."""
    return {name: repr(value) for name, value in vars(error).items()}


def is_twin(error: BaseException, twin: BaseException) -> bool:
    same_code = not isinstance(error, SharedMemoryError) or (isinstance(twin, type(error)) and error.code == twin.code)
    return type(twin) is type(error) and str(twin) == str(error) and fields(twin) == fields(error) and same_code


@pytest.mark.parametrize("kind", exceptions(), ids=lambda kind: kind.__qualname__)
def test_every_exception_of_the_package_survives_pickle_and_copy_whole(kind: type[BaseException]) -> None:
    error = made(kind)

    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert is_twin(error, pickle.loads(pickle.dumps(error, protocol)))
    assert is_twin(error, copy.copy(error))
    assert is_twin(error, copy.deepcopy(error))


def test_notes_and_causes_travel_with_an_error_and_a_cause_that_cannot_is_left_behind() -> None:
    error = UnavailableError("Redis", "it is down", retry_after=3)
    error.add_note("seen by planner-1")
    error.__cause__ = InvalidError("key", "a b", "no blanks")
    error.__cause__.__cause__ = ConnectionResetError(104, "reset")

    twin = pickle.loads(pickle.dumps(error))
    assert twin.__notes__ == ["seen by planner-1"]
    assert str(twin.__cause__) == str(error.__cause__)
    assert twin.__cause__.__cause__.errno == 104

    class _Stubborn(Exception):  # noqa: N818  # it only has to be one
        """Of a function: pickle does not find it again."""

    error.__cause__ = _Stubborn()
    twin = pickle.loads(pickle.dumps(error))
    assert is_twin(error, twin)
    assert twin.__cause__ is None


def test_an_error_of_a_foreign_subclass_survives_too() -> None:
    twin = pickle.loads(pickle.dumps(_OutOfBudgetError("ada", left=3)))

    assert is_twin(_OutOfBudgetError("ada", left=3), twin)
    assert (twin.actor, twin.left, twin.retry_after) == ("ada", 3, 60.0)


class _OutOfBudgetError(LimitedError):
    def __init__(self, actor: str, *, left: int) -> None:
        super().__init__(f"{actor} has {left} left", 60.0)
        self.actor, self.left = actor, left


def conflict() -> None:
    raise VersionConflictError("plan", 3, 4) from CorruptionError("plan", "a comma too many", "delete it")


def denied() -> None:
    raise AccessDeniedError("ada", "other:secret", "read", "ask for a grant")


def test_a_process_pool_raises_what_its_worker_raised_and_goes_on() -> None:
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        with pytest.raises(VersionConflictError) as found:
            pool.submit(conflict).result(timeout=60)
        assert (found.value.key, found.value.expected, found.value.current) == ("plan", 3, 4)
        with pytest.raises(AccessDeniedError, match="actor 'ada' may not read 'other:secret'"):
            pool.submit(denied).result(timeout=60)
        assert pool.submit(abs, -1).result(timeout=60) == 1


def test_a_multiprocessing_pool_raises_what_its_worker_raised_and_does_not_wait_for_ever() -> None:
    with _SPAWN.Pool(1) as pool:
        with pytest.raises(VersionConflictError, match="key 'plan'"):
            pool.apply_async(conflict).get(timeout=60)
        with pytest.raises(AccessDeniedError):
            pool.apply_async(denied).get(timeout=60)


def test_every_part_of_the_api_that_holds_a_connection_refuses_to_be_pickled() -> None:
    faces = [kind for kind in vars(sync_api._generated).values() if inspect.isclass(kind) and issubclass(kind, Face)]
    parts = [*faces, *generate_sync.FACES]
    assert {Hub, SharedMemoryStore, sync_api.Hub, sync_api.SharedMemoryStore} <= set(parts)
    assert [kind for kind in parts if not issubclass(kind, ProcessBound)] == []


async def test_what_a_hub_gave_out_says_to_open_a_hub_in_each_process(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace, actor="ada")
    given = [hub, store, store.shared, store.decisions, store.memory, store.queue("work"), hub.archive, Hub()]

    async with store.lock("index") as lease:
        for one in (*given, lease):
            refusal = f"a {type(one).__name__}: it holds a connection .*open a hub in each process"
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(NotPicklableError, match=refusal):
                    attempt(one)
            with pytest.raises(TypeError):
                pickle.dumps({"inside": [one]})


def test_a_hub_as_an_argument_for_a_pool_is_refused_at_once(redis_url: str) -> None:
    with sync_api.Hub.open(redis_url) as hub, ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        with pytest.raises(UsageError, match="open a hub in each process"):
            pool.submit(repr, hub).result(timeout=60)
        assert pool.submit(abs, -1).result(timeout=60) == 1


def test_settings_are_what_a_process_is_given_to_open_a_hub_of_its_own(settings: Any) -> None:
    """docs/concepts.md: settings may be shared between processes."""
    assert pickle.loads(pickle.dumps(settings)) == settings
