"""What the tests share: one real server for the whole session, a namespace each, and an eye on what is left behind."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import typer.main
from fakeredis import FakeServer
from hypothesis import HealthCheck
from hypothesis import settings as efforts
from redis import Redis
from support.example_budget import example_count, try_one_in
from support.first_collection import compiled_by_one
from support.missing_services import skip_or_fail

from sharedmem import Hub, Settings, SharedMemoryError, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.embedded.server import EmbeddedServer
from sharedmem.redis.keys import PERMANENT_SERVICE_KEYS
from sharedmem.runtime import Counters
from sharedmem.testing import ManualClock, fake_hub

# A hub of a test opens on a machine that is busy with other tests; where time runs out is said by the test itself.
os.environ.setdefault("SHAREDMEM_CONNECT_TIMEOUT_S", "60")

pytest.register_assert_rewrite(
    "conformance",
    *(f"sharedmem.testing.{part}_suite" for part in ("blob", "durable", "graph", "index", "provider")),
    "sharedmem.testing.store_fixtures",
)

_T = TypeVar("_T")
_PATIENCE_AT_EXIT_S = 60
_QUICK_SHARE = 3
_SERVER = pytest.StashKey[Redis]()
# Files with few and long tests: a worker would be left alone with them, were they handed out last.
_LONG = frozenset(
    Path(f"{name}.py")
    for name in (
        *("faults/test_durable_crashes", "faults/test_durable_crashes_cosmos", "faults/test_lease_history"),
        *("faults/test_queue_crashes", "faults/test_concurrent_processes", "faults/test_once_history"),
        *("topologies/test_sentinel", "meta/test_docs_run", "faults/test_server_states", "store/test_model"),
        *("durable/test_model", "decisions/test_model", "faults/test_synthesis_crashes", "faces/cli/test_live"),
        *("hub/test_extras", "faces/console/test_build", "faces/mcp/test_workers", "faults/test_durable_network"),
        *("faces/mcp/test_serve_mcp", "faces/cli/test_serve_rest", "meta/test_chaos_tools", "graph/test_model"),
        *("faces/console/test_newcomer", "hub/test_process_pools", "meta/examples/test_trading_desk"),
        *("meta/test_generated_files", "meta/test_recipes", "meta/test_cli_docs", "store/test_damaged_keys"),
        *("meta/test_budgets", "recall/test_remember", "faces/rest/test_tenants", "meta/test_retrieval_benchmark"),
    )
)
_TESTS = Path(__file__).resolve().parent
# What `--quick` leaves out: folders and files whose tests start processes, and fixtures that start a server.
_SLOW = (
    *("faults/", "topologies/", "durable/", "faces/cli/", "faces/grpc/test_node", "faces/rest/test_openapi"),
    *("meta/examples/", "meta/test_docs", "meta/test_cli_docs", "meta/test_chaos", "meta/test_generated"),
    *("meta/test_retrieval", "meta/test_budgets", "hub/test_extras", "hub/test_embedded", "hub/test_process_pools"),
    *("hub/test_close_at", "store/test_damaged_keys", "store/test_blob_", "store/test_model", "store/test_acl"),
    *("coordination/test_lease_model", "coordination/test_once_model", "coordination/test_queue_model"),
    *("decisions/test_durable", "decisions/test_model", "cache/test_processes"),
    *("memory/test_cosmos", "memory/test_acl", "memory/test_properties", "memory/test_races", "search/test_properties"),
    *("graph/test_cosmos", "graph/test_acl", "graph/test_falkordb", "graph/test_model.py", "graph/test_interleavings"),
    *("graph/test_races", "graph/test_odd_inputs", "graph/test_durable", "synthesis/test_races", "hub/test_open"),
    *("memory/test_ownership", "memory/test_durable", "synthesis/test_note_durable"),
    *("meta/test_public_api", "meta/test_recipes", "meta/test_client_distribution", "faces/rest/test_workers"),
    *("faces/console/", "faces/mcp/test_workers", "faces/mcp/test_serve", "faces/mcp/test_conformance"),
    *("faces/mcp/test_reference_memory", "faces/mcp/test_killed", "providers/test_onnx", "conversations/test_durable"),
    *("faces/rest/test_tenants", "faces/rest/test_large_answers", "faces/rest/test_bulk", "store/test_sync_face"),
    *("graph/test_merging", "graph/test_check", "store/test_cloud_blobs", "synthesis/test_faults"),
    *("providers/test_conformance", "faces/mcp/test_resources"),
)
_SERVERS = frozenset({"redis_url", "bare_server", "falkor_server", "browser", "azurite"})
# What may stay without a TTL: the list of permanent keys (see DESIGN, "Nothing stays by accident").
_OF_THE_SERVER = (":$layout", ":$durable", ":$durable.spent", ":$outboxes", ":$tokens", ":$tokens.used")
_PERMANENT = (*(f"}}:{name}" for name in PERMANENT_SERVICE_KEYS), *_OF_THE_SERVER)
_DEAD_LETTERS = "}:$dead:"
# Asked for after every test, while keys that expire lie about in thousands: the server looks through them itself.
_KEYS_WITHOUT_TTL = """
local staying = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then staying[#staying + 1] = key end
end
return staying
"""


def pytest_configure(config: pytest.Config) -> None:
    """Prepare a worker: a quick collection, commands that are built once, and Ctrl-C for the processes of tests."""
    if config.getoption("--quick"):
        try_one_in(_QUICK_SHARE)
    # Of properties that do not say themselves how many examples they try.
    # How long an example takes to draw says how busy the machine is.
    efforts.register_profile(
        "usual",
        max_examples=example_count(20, thorough=100),
        deadline=None,  # an example that takes long on a busy machine is no failure
        suppress_health_check=[HealthCheck.too_slow],
    )
    efforts.load_profile("usual")
    gc.disable()  # until all tests are collected: nothing that is made meanwhile is garbage
    _build_commands_once()
    # A shell starts what runs in its background with Ctrl-C ignored. Processes that tests start would inherit that,
    # and wait for ever for the end that a test sends them; a handler of ours they do not inherit.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Workers, which begin together, do not each compile what they collect."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with compiled_by_one(_TESTS / "__pycache__"):
        return (yield)


def pytest_collection_finish() -> None:
    """Leave the collected tests out of each garbage collection, and collect garbage again."""
    gc.freeze()
    gc.enable()


def _build_commands_once() -> None:
    """The tree of commands stays the same until a module adds some, and takes longer to build than most take to run."""
    build = cache(lambda app, _known, *, build=typer.main.get_command: build(app))

    def get_command(app: typer.Typer) -> Any:
        groups = [group.typer_instance for group in app.registered_groups]
        known = [app, *(group for group in groups if group)]
        return build(app, tuple(len(each.registered_commands) for each in known))

    pytest.MonkeyPatch().setattr(typer.main, "get_command", get_command)


def pytest_unconfigure() -> None:
    """A thread that does not end would hold the process for ever: say which, and fail instead."""
    faulthandler.dump_traceback_later(_PATIENCE_AT_EXIT_S, exit=True, file=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick` is for the inner loop: what needs neither a server, a browser nor a process of its own."""
    parser.addoption("--quick", action="store_true", help="only tests that need no server; two minutes (make quick)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`--quick` does not even import what it leaves out by its file."""
    if config.getoption("--quick") and _TESTS in collection_path.parents:
        return True if collection_path.relative_to(_TESTS).as_posix().startswith(_SLOW) else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers are handed whole files: the long ones first and the small ones last, so that all end together."""
    if config.getoption("--quick"):
        left_out = [item for item in items if not _is_quick(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_quick(item)]
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.relative_to(_TESTS) not in _LONG, -tests[item.path], item.path))


def _is_quick(item: pytest.Item) -> bool:
    return _SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def redis_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """A real server, started once; a test leaves nothing in it but what expires."""
    if pytestconfig.getoption("--quick"):
        pytest.skip("it needs a real server: make test")
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    server = _joined(base / "d")
    with Redis.from_url(server.url, decode_responses=True) as client:
        pytestconfig.stash[_SERVER] = client
        yield server.url
        del pytestconfig.stash[_SERVER]
    _in_a_thread(server.leave())
    shutil.rmtree(base)


def _joined(data_dir: Path) -> EmbeddedServer:
    try:
        return _in_a_thread(EmbeddedServer.join(data_dir))
    except SharedMemoryError as error:
        skip_or_fail(f"no real Redis: {error}")


def _in_a_thread(coroutine: Coroutine[Any, Any, _T]) -> _T:
    # The first to ask for the server may be an async fixture, whose thread has an event loop running.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="module", autouse=True)
def _the_next_file_finds_nothing(pytestconfig: pytest.Config) -> Iterator[None]:
    """What may stay in a namespace is little, but of thousands of namespaces it would slow each later test down."""
    yield
    if server := pytestconfig.stash.get(_SERVER, None):
        server.flushall()


@pytest.fixture(autouse=True)
def _nothing_stays_by_accident(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[None]:
    """Each key that a test leaves on the shared server expires or is on the list of permanent keys."""
    yield
    if (server := pytestconfig.stash.get(_SERVER, None)) is None or "redis_url" not in request.fixturenames:
        return
    leaks = _leaks(server)
    if leaks:
        server.unlink(*leaks)  # so that only this test fails
    assert not leaks, f"left behind without a TTL: {sorted(leaks)[:10]}"


def _leaks(server: Redis) -> list[str]:
    staying = server.eval(_KEYS_WITHOUT_TTL, 0)
    assert isinstance(staying, list)
    return [key for key in staying if not key.endswith(_PERMANENT) and _DEAD_LETTERS not in key]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The defaults, with blobs in the test's own folder, and one embedder for all tests of the shared server."""
    return Settings(data_dir=tmp_path / "data", embedder="hashing")


@pytest.fixture
async def hub(redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
    """A hub on the real server."""
    async with Hub.open(redis_url, settings=settings) as hub:
        yield hub


@pytest.fixture
async def fake() -> AsyncIterator[Hub]:
    """A hub on a fakeredis of its own."""
    async with fake_hub(settings=Settings(embedder="hashing")) as hub:
        yield hub


@pytest.fixture
def fake_server() -> FakeServer:
    """A fakeredis that several hubs of a test may share."""
    return FakeServer()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test turns."""
    return ManualClock()


@pytest.fixture
def counters() -> Counters:
    """The counters of a part that a test builds on its own."""
    return Counters()


@pytest.fixture
async def namespace(hub: Hub) -> AsyncIterator[str]:
    """A namespace of this test alone, which is emptied after it."""
    name = f"test-{new_id(8)}"
    yield name
    await hub.store(name).clear()


@pytest.fixture
def store(hub: Hub, namespace: str) -> SharedMemoryStore:
    """A store on the real server that speaks for the test's whole namespace."""
    return hub.store(namespace)


@pytest.fixture
def open_store(hub: Hub, namespace: str) -> Callable[[str], SharedMemoryStore]:
    """Opens the store of an actor in the test's namespace."""
    return lambda actor: hub.store(namespace, actor=actor)
