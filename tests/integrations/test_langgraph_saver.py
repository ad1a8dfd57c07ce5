"""The checkpointer of LangGraph: the contract's own suite, real graphs, and what two processes may do."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from redis import Redis
from support import embedded_fixtures
from support.redis_loss import lose_redis
from support.waiting import wait_until

from sharedmem import ConflictError, CorruptionError, Hub, InvalidError, Settings, SharedMemoryStore, UsageError
from sharedmem import sync as blocking
from sharedmem.clock import new_id
from sharedmem.integrations.langgraph import SharedMemSaver
from sharedmem.testing import ManualClock, fake_hub

data_dir = embedded_fixtures.data_dir


@pytest.fixture
async def saver(store: SharedMemoryStore) -> SharedMemSaver:
    return SharedMemSaver(store)


def thread(name: str = "t", **further: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name, **further}}


class State(TypedDict, total=False):
    steps: Annotated[list[str], operator.add]
    answer: str


def step(name: str) -> Any:
    return lambda _: {"steps": [name]}


def ask(_: State) -> State:
    return {"answer": interrupt("may I?"), "steps": ["asked"]}


def graph_of(saver: SharedMemSaver, *, asks: bool = False, steps: tuple[str, ...] = ("plan", "search", "write")) -> Any:
    builder: Any = StateGraph(State)
    names = [START]
    for name in steps:
        builder.add_node(name, step(name))
        names.append(name)
    if asks:
        builder.add_node("ask", ask)
        names.append("ask")
    for here, there in pairwise([*names, END]):
        builder.add_edge(here, there)
    return builder.compile(checkpointer=saver)


# -- the contract ---------------------------------------------------------------------------------


async def test_the_contract_s_own_suite_passes_with_all_that_may_be_left_out(store: SharedMemoryStore) -> None:
    @checkpointer_test(name="SharedMemSaver")
    async def savers() -> Any:
        yield SharedMemSaver(store)

    report = await validate(savers)

    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert report.conformance_level() == "FULL"
    assert sum(result.tests_passed for result in report.results.values()) >= 58


# -- graphs ---------------------------------------------------------------------------------------


async def test_a_graph_that_was_interrupted_goes_on_in_another_hub(settings: Settings, redis_url: str) -> None:
    namespace = f"test-{new_id(8)}"
    async with Hub.open(redis_url, settings=settings) as hub:
        graph = graph_of(SharedMemSaver(hub.store(namespace)), asks=True)
        waiting = await graph.ainvoke({"steps": ["start"]}, thread())
    async with Hub.open(redis_url, settings=settings) as hub:
        graph = graph_of(SharedMemSaver(hub.store(namespace)), asks=True)
        done = await graph.ainvoke(Command(resume="yes"), thread())
        await hub.store(namespace).clear()

    assert [each.value for each in waiting["__interrupt__"]] == ["may I?"]
    assert done == {"steps": ["start", "plan", "search", "write", "asked"], "answer": "yes"}


async def test_a_thread_can_go_back_and_take_another_way(saver: SharedMemSaver) -> None:
    graph = graph_of(saver)
    await graph.ainvoke({"steps": ["start"]}, thread())
    states = [state async for state in graph.aget_state_history(thread())]
    (planned,) = [state for state in states if state.values.get("steps") == ["start", "plan"]]

    again = await graph.ainvoke(None, planned.config)
    edited = await graph.aupdate_state(planned.config, {"steps": ["thought again"]}, as_node="search")
    other = await graph.ainvoke(None, edited)

    assert again["steps"] == ["start", "plan", "search", "write"]
    assert other["steps"] == ["start", "plan", "thought again", "write"]
    assert [state.next for state in states] == [(), ("write",), ("search",), ("plan",), ("__start__",)]


async def test_a_failed_step_is_repeated_and_what_its_neighbours_wrote_is_kept(saver: SharedMemSaver) -> None:
    calls: list[str] = []

    async def good(_: State) -> State:
        calls.append("good")
        return {"steps": ["good"]}

    async def is_kept() -> bool:
        found = await saver.aget_tuple(thread())
        return bool(found and found.pending_writes)

    async def bad(_: State) -> State:
        calls.append("bad")
        if calls.count("bad") == 1:
            await wait_until(is_kept, description="what the other step wrote is kept")
            raise RuntimeError("the network is away")
        return {"steps": ["bad"]}

    builder: Any = StateGraph(State)
    for name, node in (("good", good), ("bad", bad)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver)

    with pytest.raises(RuntimeError, match="away"):
        await graph.ainvoke({"steps": []}, thread())
    done = await graph.ainvoke(None, thread())

    assert sorted(done["steps"]) == ["bad", "good"]
    assert sorted(calls) == ["bad", "bad", "good"]


async def test_a_subgraph_has_a_namespace_of_its_own(saver: SharedMemSaver) -> None:
    inside: Any = StateGraph(State)
    inner = inside.add_node("ask", ask).add_edge(START, "ask").compile()
    outer = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)

    await outer.ainvoke({"steps": []}, thread())
    done = await outer.ainvoke(Command(resume="yes"), thread())
    namespaces = {each.config["configurable"]["checkpoint_ns"] async for each in saver.alist(thread())}

    assert done["answer"] == "yes"
    assert {each.partition(":")[0] for each in namespaces} == {"", "inner"}


async def test_who_lost_the_race_for_a_thread_is_told_and_nothing_is_mixed(saver: SharedMemSaver) -> None:
    both_began = asyncio.Barrier(2)

    def graph_of_racer(name: str) -> Any:
        async def wait(_: Any) -> Any:
            await both_began.wait()
            return {"steps": [name]}

        node: Any = wait
        builder = StateGraph(State).add_node("wait", node).add_node("end", step(f"{name} ends"))
        builder.add_edge(START, "wait").add_edge("wait", "end")
        return builder.compile(checkpointer=saver)

    await graph_of(saver, steps=("plan",)).ainvoke({"steps": []}, thread())
    racers = [graph_of_racer(name).ainvoke({"steps": [f"to {name}"]}, thread()) for name in ("ada", "bob")]
    outcomes = await asyncio.gather(*racers, return_exceptions=True)

    (lost,) = [each for each in outcomes if isinstance(each, BaseException)]
    (won,) = [each for each in outcomes if not isinstance(each, BaseException)]
    state = await graph_of(saver, steps=("plan",)).aget_state(thread())
    assert isinstance(lost, ConflictError)
    assert "invoke the graph again" in str(lost)
    assert won["steps"] in (["plan", *[f"to {name}", name, f"{name} ends"]] for name in ("ada", "bob"))
    assert state.values["steps"] == won["steps"]


class Chat(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(lambda before, news: [*before, *(line for new in news for line in new)])]


async def test_channels_that_are_stored_as_changes_survive_pruning(saver: SharedMemSaver) -> None:
    builder: Any = StateGraph(Chat)
    for name in ("one", "two"):
        builder.add_node(name, lambda _, name=name: {"log": [name]})
    builder.add_edge(START, "one").add_edge("one", "two")
    graph = builder.compile(checkpointer=saver)
    for turn in ("first", "second"):
        before = await graph.ainvoke({"log": [turn]}, thread())

    await saver.aprune(["t"])

    assert (await graph.aget_state(thread())).values == before
    after = await graph.ainvoke({"log": ["third"]}, thread())
    assert after["log"] == ["first", "one", "two", "second", "one", "two", "third", "one", "two"]


# -- what is stored -------------------------------------------------------------------------------


async def test_a_value_is_stored_once_a_version_and_pruning_bounds_what_grows(
    saver: SharedMemSaver, store: SharedMemoryStore
) -> None:
    builder = StateGraph(State).add_node("count", step("x"))
    graph = builder.add_edge(START, "count").compile(checkpointer=saver)
    sizes = []
    for _ in range(6):
        await graph.ainvoke({"answer": "y" * 1000, "steps": []}, thread())
        await saver.aprune(["t"])
        sizes.append(len(await store.hgetall(f"{store.namespace}:shared:langgraph:thread:t")))

    state = await graph.aget_state(thread())
    assert len(state.values["steps"]) == 6
    assert len(set(sizes)) == 1
    assert len([each async for each in saver.alist(thread())]) == 1


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_values_of_any_size_and_kind_come_back(saver: SharedMemSaver, size: int) -> None:
    values = {"text": "ä\n{}" * (size // 4), "bytes": bytes(range(256)) * 2, "none": None, "set": {1, 2}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, 1)

    config = await saver.aput(thread(), checkpoint, {"source": "input"}, checkpoint["channel_versions"])
    await saver.aput_writes(config, [("text", values["text"])], "task")
    found = await saver.aget_tuple(thread())

    assert found is not None
    assert found.checkpoint["channel_values"] == values
    assert found.pending_writes == [("task", "text", values["text"])]


@pytest.mark.parametrize("name", ["a:b::c", "{x}", "..", "mañana ☃", "%3A", "*", "a\nb", "日本" * 20])
async def test_a_thread_may_have_any_name_and_is_found_by_that_one_alone(saver: SharedMemSaver, name: str) -> None:
    for number, each in enumerate((name, "other", name + "x")):
        await saver.aput(thread(each), empty_checkpoint(), {"source": "input", "step": number}, {})

    found = [each async for each in saver.alist(thread(name))]
    everywhere = [each.config["configurable"]["thread_id"] async for each in saver.alist(None)]

    assert [each.metadata["step"] for each in found] == [0]
    assert sorted(everywhere) == sorted([name, "other", name + "x"])
    await saver.adelete_thread(name)
    assert await saver.aget_tuple(thread(name)) is None
    assert await saver.aget_tuple(thread(name + "x")) is not None


async def test_writes_of_a_task_stay_and_its_errors_are_replaced(saver: SharedMemSaver) -> None:
    config = await saver.aput(thread(), empty_checkpoint(), {"source": "input"}, {})

    await saver.aput_writes(config, [("a", 1), ("b", 2)], "task", "path")
    await saver.aput_writes(config, [("a", 9), ("b", 9), ("c", 9)], "task", "path")
    await saver.aput_writes(config, [("__error__", "first")], "task")
    await saver.aput_writes(config, [("__error__", "second")], "task")
    found = await saver.aget_tuple(config)

    assert found is not None
    assert found.pending_writes == [("task", "__error__", "second"), ("task", "a", 1), ("task", "b", 2)]


async def test_writes_may_come_before_their_checkpoint(saver: SharedMemSaver) -> None:
    checkpoint = empty_checkpoint()
    early = thread(checkpoint_ns="", checkpoint_id=checkpoint["id"])

    await saver.aput_writes(early, [("a", 1)], "task")
    assert await saver.aget_tuple(thread()) is None
    await saver.aput(thread(), checkpoint, {"source": "input"}, {})

    found = await saver.aget_tuple(thread())
    assert found is not None
    assert found.pending_writes == [("task", "a", 1)]


async def test_a_thread_ends_in_its_time_counted_from_its_last_change() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        store = hub.store("team")
        saver = SharedMemSaver(store, ttl=60)
        config = await saver.aput(thread(), empty_checkpoint(), {"source": "input"}, {})
        (key,) = [key async for key in store.keys("*")]
        first = await store.ttl(key)
        await store.expire(key, 5)
        await saver.aput_writes(config, [("a", 1)], "task")

        assert first == pytest.approx(60, abs=2)
        assert await store.ttl(key) == pytest.approx(60, abs=2)


async def test_a_thread_that_redis_lost_comes_back_from_the_durable_tier(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, kind_rules={"team:*:langgraph:*": "knowledge"})
    async with Hub.open(settings=settings) as hub:
        saver = SharedMemSaver(hub.store("team"))
        graph = graph_of(saver, asks=True)
        await graph.ainvoke({"steps": ["start"]}, thread())
        await saver.acopy_thread("t", "copy")
        await lose_redis(hub)
        done = await graph.ainvoke(Command(resume="yes"), thread())
        copied = await graph.ainvoke(Command(resume="no"), thread("copy"))

    assert done == {"steps": ["start", "plan", "search", "write", "asked"], "answer": "yes"}
    assert copied["answer"] == "no"


# -- without an event loop ------------------------------------------------------------------------


@pytest.fixture
def blocking_store(redis_url: str, settings: Settings) -> Iterator[blocking.SharedMemoryStore]:
    with blocking.Hub.open(redis_url, settings=settings) as hub:
        store = hub.store(f"test-{new_id(8)}")
        yield store
        store.clear()


def test_a_graph_without_await_runs_on_a_store_without_await(blocking_store: blocking.SharedMemoryStore) -> None:
    saver = SharedMemSaver(blocking_store)
    graph = graph_of(saver, asks=True)

    graph.invoke({"steps": ["start"]}, thread())
    done = graph.invoke(Command(resume="yes"), thread())
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    kept = [len(list(saver.list(thread(name)))) for name in ("t", "copy")]
    awaited = asyncio.run(graph.aget_state(thread("copy")))
    saver.delete_for_runs(["nobody"])
    saver.delete_thread("t")

    assert done["answer"] == "yes"
    assert (kept, awaited.values["answer"]) == ([1, 6], "yes")
    assert saver.get_tuple(thread()) is None


async def test_other_threads_may_use_the_saver_of_an_async_store(saver: SharedMemSaver) -> None:
    graph = graph_of(saver)

    done = await asyncio.to_thread(graph.invoke, {"steps": ["start"]}, thread())

    assert done["steps"] == ["start", "plan", "search", "write"]
    with pytest.raises(UsageError, match="begins with `a`"):
        saver.get_tuple(thread())


# -- bad input ------------------------------------------------------------------------------------


async def test_what_cannot_be_stored_is_refused_before_anything_is_written(
    saver: SharedMemSaver, store: SharedMemoryStore
) -> None:
    wrong: list[tuple[Any, str]] = [
        (saver.aput({"configurable": {}}, empty_checkpoint(), {}, {}), "thread_id"),
        (saver.aput(thread(checkpoint_ns="a\nb"), empty_checkpoint(), {}, {}), "checkpoint_ns"),
        (saver.aput(thread("x" * 600), empty_checkpoint(), {}, {}), "512 bytes"),
        (saver.aput(thread(), {**empty_checkpoint(), "id": "a\rb"}, {}, {}), "checkpoint_id"),
        (saver.aput_writes(thread(), [("a", 1)], "task"), "checkpoint_id"),
        (saver.aput_writes(thread(checkpoint_id="1"), [("a", 1)], "a\nb"), "task_id"),
        (saver.aprune(["t"], strategy="some"), "keep_latest or delete"),
    ]
    for call, sentence in wrong:
        with pytest.raises(InvalidError, match=sentence):
            await call

    assert [key async for key in store.keys("*")] == []
    with pytest.raises(InvalidError, match="ttl"):
        SharedMemSaver(store, ttl=0)


def test_an_async_store_is_passed_where_its_loop_runs() -> None:
    async def opened() -> SharedMemoryStore:
        async with fake_hub() as hub:
            return hub.store("team")

    with pytest.raises(UsageError, match="inside of `async with"):
        SharedMemSaver(asyncio.run(opened()))


async def test_a_thread_of_another_scope_or_namespace_is_not_seen(settings: Settings, redis_url: str) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        names = [f"test-{new_id(8)}" for _ in range(2)]
        stores = [hub.store(names[0], actor="ada"), hub.store(names[0], actor="bob"), hub.store(names[1], actor="ada")]
        savers = [SharedMemSaver(store) for store in stores]
        await savers[0].aput(thread(), empty_checkpoint(), {"source": "input"}, {})

        found = [await saver.aget_tuple(thread()) is not None for saver in savers]
        listed = [len([each async for each in saver.alist(None)]) for saver in savers]
        for store in stores:
            await store.clear()

    assert (found, listed) == ([True, False, False], [1, 0, 0])


async def test_a_thread_that_another_client_has_damaged_is_named(settings: Settings, redis_url: str) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store(f"test-{new_id(8)}")
        saver = SharedMemSaver(store)
        config = await saver.aput(thread(), empty_checkpoint(), {"source": "input"}, {})
        with Redis.from_url(redis_url) as raw:
            name = f"body\n\n{config['configurable']['checkpoint_id']}"
            raw.hset(f"sm:{{{store.namespace}}}:shared:langgraph:thread:t", name, "junk")

        with pytest.raises(CorruptionError, match="langgraph:thread:t"):
            await saver.aget_tuple(thread())
        await store.clear()
