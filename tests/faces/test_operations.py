"""The table of operations: every row runs on a store and answers what the store answers."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support import embedded_fixtures

from sharedmem import Hub, NotFoundError, Settings, SharedMemoryStore, Usage
from sharedmem.api import FeedOperation, Operation
from sharedmem.api.operation import feeds, operations
from sharedmem.decisions.validation import plan_hash

data_dir = embedded_fixtures.data_dir


def receipt(told: dict[str, Any]) -> dict[str, Any]:
    """Of the task that was claimed."""
    return {"queue": "q", "id": told["queue.claim"].id, "token": told["queue.claim"].token}


SHOP = {"app_id": "shop"}
TALK = [{"role": "user", "content": "Please send it to Elm Street 7."}]


def done(task: Any) -> dict[str, Any]:
    return {"task_id": task.task_id, "wait": 30}


def noted(told: dict[str, Any]) -> dict[str, Any]:
    return {**SHOP, "memory_id": told["synthesis.get_task_status"].result["memory_id"]}


PLAN = {"session": "desk", "symbol": "BTC", "action": "BUY", "reasoning": "the trend is strong"}
ON_PLAN = {"session": "desk", "plan_hash": plan_hash("BTC", "BUY", "the trend is strong")}
A_GROUP, TEAM = {"group_id": "acme:ada"}, {"group_id": "planets"}
NEEDS_AN_ACTOR = {"presence.announce", "presence.leave"}
OSLO, ROME = (
    {"id": id_, "content": f"Ada lives in {place}.", "occurred_at": f"{year}-01-01T00:00:00Z", **A_GROUP}
    for id_, place, year in (("first", "Oslo", 2020), ("second", "Rome", 2022))
)
LATER = {"id": "later", "content": "Bo lives in Bonn.", "occurred_at": "2023-01-01T00:00:00Z", **TEAM}
# In order, on one store: row, its request (a function makes it of earlier answers), its answer (a function judges
# where it cannot be foretold).
STEPS: list[tuple[str, Any, Any]] = [
    ("value.write", {"key": "v", "value": {"a": 1}, "ttl": 60}, lambda version: version > 0),
    ("value.read", {"key": "v"}, {"a": 1}),
    ("value.entry", {"key": "v"}, lambda entry: entry.value == {"a": 1}),
    ("value.write_many", {"values": {"x": 1, "y": 2}, "kind": "session"}, lambda versions: set(versions) == {"x", "y"}),
    ("value.read_many", {"keys": ["x", "y", "z"]}, {"x": 1, "y": 2}),
    ("key.exists", {"key": "x"}, True),
    ("key.ttl", {"key": "v"}, lambda ttl: 0 < ttl <= 60),
    ("key.persist", {"key": "v"}, True),
    ("key.expire", {"key": "v", "ttl": 5}, True),
    ("key.list", {"pattern": "?"}, ["n:shared:v", "n:shared:x", "n:shared:y"]),
    (
        "key.scan",
        {"pattern": "v", "limit": 10},
        lambda page: page.cursor is None and [(one.key, one.type) for one in page.keys] == [("n:shared:v", "string")],
    ),
    ("key.delete", {"key": "x"}, True),
    ("list.append", {"key": "l", "value": "one", "max_length": 5}, 1),
    ("list.read", {"key": "l"}, ["one"]),
    ("list.length", {"key": "l"}, 1),
    ("hash.set", {"key": "h", "values": {"f": 1, "g": 2}}, 2),
    ("hash.get", {"key": "h", "field": "f"}, 1),
    ("hash.increment", {"key": "h", "field": "f", "by": 4}, 5),
    ("hash.delete", {"key": "h", "fields": ["g"]}, 1),
    ("hash.get_all", {"key": "h"}, {"f": 5}),
    ("set.add", {"key": "s", "values": ["a", "b"]}, 2),
    ("set.contains", {"key": "s", "value": "a"}, True),
    ("set.delete", {"key": "s", "values": ["b"]}, 1),
    ("set.move", {"source": "s", "destination": "t", "value": "a"}, True),
    ("set.size", {"key": "t"}, 1),
    ("set.members", {"key": "t"}, {"a"}),
    ("set.pop", {"key": "t"}, "a"),
    ("counter.increment", {"key": "c", "by": -2}, -2),
    ("message.publish", {"channel": "news", "message": "hi"}, 0),
    (
        "conversation.append",
        {"id": "t", "entries": ["a", "b"], "entry_ids": ["e0", "e1"]},
        lambda told: told.added == 2,
    ),
    ("conversation.read", {"id": "t", "last": 1}, lambda page: page.entries[0].value == "b"),
    ("conversation.patch", {"id": "t", "patch": {"topic": "x"}}, lambda told: told.state_version > told.revision),
    ("conversation.state", {"id": "t"}, lambda state: state.fields == {"topic": "x"}),
    ("conversation.fork", {"id": "t", "new_id": "u", "at": "e0"}, lambda told: told.length == 1),
    ("conversation.get", {"id": "u"}, lambda known: known.parent == "n:shared:t"),
    ("conversation.list", {}, lambda page: [one.key for one in page.conversations] == ["n:shared:u", "n:shared:t"]),
    ("conversation.stats", {"id": "u"}, lambda stats: stats.segments == 2),
    ("conversation.replace", {"id": "t", "after": "e0", "entries": ["c", "d"]}, lambda told: told.length == 3),
    ("conversation.pop", {"id": "t"}, lambda popped: popped.entries[0].value == "d"),
    ("conversation.expire", {"id": "t", "ttl": 60}, True),
    ("conversation.clear", {"id": "t"}, lambda told: told.length == 0),
    ("conversation.delete", {"id": "u"}, True),
    ("conversation.erase", {"scope": "shared"}, lambda erased: erased.conversations == 1),
    ("episode.append", {"session": "s1", "event": {"by": "ada", "text": "The lock is free."}}, 1),
    ("episode.events", {"session": "s1", "limit": 5}, lambda events: events[0].event["by"] == "ada"),
    ("episode.sessions", {}, ["s1"]),
    ("episode.summarize", {"session": "s1"}, "ada: The lock is free."),
    ("episode.search", {"query": "LOCK", "k": 1, "filters": {"session": "s1"}}, ["ada: The lock is free."]),
    ("plan.save", {**PLAN, "confidence": 0.5}, lambda short: len(short) == 8),
    ("plan.save_if_new", {**PLAN, "confidence": 0.5}, lambda result: not result.saved),
    ("plan.check", PLAN, lambda answer: answer.is_duplicate and answer.plan.symbol == "BTC"),
    ("plan.find_similar", {"reasoning": PLAN["reasoning"]}, lambda found: found[0].plan.symbol == "BTC"),
    ("plan.patterns", {"session": "desk"}, []),
    ("plan.history", {"session": "desk"}, lambda past: past[0].plan.symbol == "BTC"),
    ("plan.list", {"session": "desk", "symbol": "BTC"}, lambda plans: len(plans) == 1),
    ("plan.sessions", {}, ["desk"]),
    ("execution.check", ON_PLAN, lambda answer: not answer.executed),
    ("execution.begin", ON_PLAN, lambda claim: claim.started),
    (
        "plan.refusals",
        {"session": "desk"},
        lambda refused: [(one.what, one.symbol) for one in refused] == [("plan", "BTC")],
    ),
    ("execution.open", {"session": "desk"}, lambda records: records[0].state == "running"),
    ("execution.stats", {"session": "desk"}, lambda stats: stats.duplicates_prevented == 1),
    ("execution.renew", lambda told: ON_PLAN | {"fence": told["execution.begin"].fence}, lambda claim: claim.started),
    (
        "execution.finish",
        lambda told: ON_PLAN | {"fence": told["execution.begin"].fence, "status": "unknown"},
        lambda record: record.state == "unknown",
    ),
    ("execution.resolve", ON_PLAN | {"status": "success"}, lambda record: record.state == "succeeded"),
    (
        "execution.mark",
        ON_PLAN | {"symbol": "BTC", "action": "BUY", "confidence": 1, "status": "success", "executed": True},
        lambda record: record.attempt == 1,
    ),
    ("plan.erase", {"session": "desk"}, 1),
    ("lease.state", {"name": "index"}, lambda state: not state.holders and not state.waiting),
    ("lease.acquire", {"name": "index", "lease": 60}, lambda grant: grant.token > 0),
    (
        "lease.renew",
        lambda told: {"name": "index", "id": told["lease.acquire"].id},
        lambda grant: grant.remaining == 30,
    ),
    (
        "coordination.list",
        {"kind": "lock"},
        lambda page: [(one.name, len(one.holders), page.cursor) for one in page.entries] == [("index", 1, None)],
    ),
    ("lease.release", lambda told: {"name": "index", "id": told["lease.acquire"].id}, True),
    ("lease.revoke", lambda told: {"name": "index", "token": told["lease.acquire"].token}, False),
    ("once.state", {"key": "report"}, lambda state: state.state == "none"),
    ("once.begin", {"key": "report"}, lambda grant: (grant.done, grant.attempt) == (False, 1) and grant.remaining > 0),
    ("once.fail", lambda told: {"key": "report", "token": told["once.begin"].token}, True),
    ("once.begin", {"key": "report", "lease": 60}, lambda grant: grant.attempt == 2),
    ("once.renew", lambda told: {"key": "report", "token": told["once.begin"].token}, None),
    ("once.finish", lambda told: {"key": "report", "token": told["once.begin"].token, "result": {"n": 1}}, None),
    ("once.begin", {"key": "report"}, lambda grant: grant.done and grant.result == {"n": 1}),
    ("once.delete", {"key": "report"}, True),
    ("barrier.waiting", {"name": "gate"}, 0),
    ("barrier.wait", {"name": "gate", "parties": 1}, lambda arrival: arrival.generation > 0),
    ("limit.take", {"name": "api", "limit": 2, "per": 60}, lambda permit: permit.remaining == 1),
    ("limit.state", {"name": "api", "limit": 2, "per": 60}, lambda state: state.remaining == 1),
    ("limit.acquire", {"name": "api", "limit": 2, "per": 60}, lambda permit: permit.remaining == 0),
    ("presence.list", {}, []),
    ("presence.announce", {"role": "planner", "info": {"at": "desk 1"}}, None),
    ("presence.leave", {}, True),
    ("queue.put", {"queue": "q", "payload": {"n": 1}, "id": "x"}, lambda put: put.is_new),
    ("queue.put_many", {"queue": "q", "payloads": [2, 3, 4, 5]}, lambda put: len(put) == 4),
    ("queue.peek", {"queue": "q", "n": 2}, lambda tasks: [task.payload for task in tasks] == [{"n": 1}, 2]),
    ("queue.pause", {"queue": "q"}, True),
    ("queue.resume", {"queue": "q"}, True),
    ("queue.claim", {"queue": "q", "wait": 1}, lambda task: task.payload == {"n": 1}),
    ("queue.renew", receipt, None),
    ("queue.ack", lambda told: receipt(told) | {"result": "fine"}, None),
    ("queue.result", lambda told: {"queue": "q", "id": told["queue.put"].id}, lambda outcome: outcome.value == "fine"),
    ("queue.claim", {"queue": "q"}, lambda task: task.payload == 2),
    ("queue.retry", lambda told: receipt(told) | {"delay": 60, "error": "down"}, True),
    ("queue.claim", {"queue": "q"}, lambda task: task.payload == 3),
    ("queue.fail", lambda told: receipt(told) | {"error": "bad"}, None),
    ("queue.dead", {"queue": "q"}, lambda letters: letters[0].error == "bad"),
    ("queue.redrive", lambda told: {"queue": "q", "id": told["queue.dead"][0].id}, True),
    ("queue.redrive_all", {"queue": "q"}, 0),
    ("queue.claim", {"queue": "q"}, lambda task: (task.payload, task.attempt) == (3, 1)),
    ("queue.release", receipt, None),
    ("queue.search", {"queue": "q", "words": "3", "state": "ready"}, lambda page: page.tasks[0].payload == 3),
    ("queue.bury", lambda told: {"queue": "q", "id": told["queue.claim"].id, "error": "not needed"}, True),
    ("queue.delete", lambda told: {"queue": "q", "id": told["queue.claim"].id}, True),
    ("queue.put", {"queue": "many", "payload": 1}, lambda put: put.is_new),
    ("queue.claim_many", {"queue": "many", "n": 5}, lambda tasks: [task.payload for task in tasks] == [1]),
    ("queue.list", {}, ["many", "q"]),
    ("queue.stats", {"queue": "q"}, lambda stats: (stats.ready, stats.delayed, stats.counters.put) == (2, 1, 5)),
    ("durable.state", {}, lambda state: (state.reachable, state.why, state.lag.dead) == (True, "", 0)),
    ("durable.dead_letters", {}, []),
    ("durable.replay", {}, 0),
    ("durable.discard", {"ids": []}, 0),
    ("durable.drain", {}, None),
    ("durable.verify", {}, lambda found: found.differences == []),
    ("durable.restore", {}, lambda restored: restored > 0),
    ("key.damaged", {}, {}),
    ("change.cursor", {}, lambda cursor: cursor),
    ("namespace.usage", {}, lambda usage: isinstance(usage, Usage) and usage.keys > 0),
    ("namespace.sweep", {}, 0),
    ("namespace.clear", {}, lambda removed: removed > 0),
    (
        "memory.add",
        {"item": {"id": "m", "memory": "The lease ends in May", "category": "office"}},
        lambda result: (result.id, result.merged) == ("m", False),
    ),
    (
        "memory.add_many",
        {"items": [{"memory": "the lease ends in may", "category": "office"}, {"id": "t", "memory": "Tea is hot"}]},
        lambda results: [(result.id, result.merged) for result in results] == [("m", True), ("t", False)],
    ),
    (
        "memory.search",
        {"query": "when does the lease end?", "limit": 1, "filters": {"category": "office"}, "explain": True},
        lambda found: found.hits[0].item.id == "m" and found.hits[0].why is not None and found.cost.round_trips > 0,
    ),
    ("memory.search_semantic", {"query": "the lease", "limit": 1}, lambda found: found.hits[0].item.id == "m"),
    ("memory.search_hybrid", {"query": "the lease"}, lambda found: found.hits[0].item.id == "m"),
    ("memory.search_keywords", {"phrase": "tea"}, lambda found: [hit.item.id for hit in found.hits] == ["t"]),
    (
        "knowledge.recall",
        {"question": "when does the lease end?", "tokens": 300, "parts": ["memory"]},
        lambda found: [item.id for item in found.items] == ["m"] and 0 < found.tokens <= 300,
    ),
    ("memory.get", {"id": "m", "embedding": True}, lambda item: item.occurrences == 2 and item.embedding),
    (
        "memory.search_vector",
        lambda told: {"embedding": told["memory.get"].embedding, "limit": 1},
        lambda found: found.hits[0].item.id == "m",
    ),
    ("memory.uses", {"limit": 1}, lambda uses: [use.id for use in uses] == ["m"]),
    ("memory.list", {"limit": 1}, lambda page: (len(page.items), page.total) == (1, 2) and page.cursor is not None),
    ("memory.recent", {}, lambda items: {item.id for item in items} == {"m", "t"}),
    ("memory.update", {"id": "t", "changes": {"memory": "Tea is cold"}}, lambda item: item.memory == "Tea is cold"),
    ("memory.delete", {"id": "t"}, True),
    ("memory.get", {"id": "t"}, None),
    ("memory.history", {"id": "t"}, lambda told: [one.change for one in told] == ["deleted", "updated", "added"]),
    ("memory.undo", {"id": "t"}, lambda item: item.memory == "Tea is cold"),
    ("memory.summarize", {"id": "t"}, lambda item: item.summary == "Tea is cold"),
    ("memory.stats", {}, lambda stats: (stats.count, stats.by_category) == (2, {"office": 1, "": 1})),
    ("thread.stats", {"thread_id": "main"}, lambda stats: stats.turn_count == 2),
    ("thread.summary", {"max_turns": 5}, lambda summary: "lease ends in May" in summary),
    ("thread.roll_up", {"thread_id": "talk", "turns": 2}, []),
    ("memory.roll_up_old", {"older_than_days": 36_500}, []),
    (
        "memory.import",
        {"items": [{"id": "old", "memory": "Moss is green", "created_at": "2020-01-01T00:00:00Z"}]},
        1,
    ),
    ("memory.merge_duplicates", {"dry_run": True}, lambda report: (report.compared > 0, report.merged) == (True, 0)),
    ("memory.delete_all", {"filters": {"category": "office"}}, 1),
    ("cache.put", {"prompt": "what is it?", "response": {"a": 1}, "tags": ["t"]}, lambda id_: id_.isalnum()),
    ("cache.check", {"prompt": "What  is it?", "tags": ["t"]}, lambda found: found.response == {"a": 1}),
    ("cache.report", lambda told: {"id": told["cache.put"]}, None),
    (
        "cache.list",
        {"tag": "t", "limit": 5},
        lambda page: page.cursor is None and [one.prompt for one in page.answers] == ["what is it?"],
    ),
    ("cache.stats", {}, lambda stats: (stats.exact_hits, stats.false_hits, stats.entries) == (1, 1, 1)),
    ("cache.delete", {"tag": "t"}, 1),
    ("cache.clear", {}, 0),
    ("graph.add", {"episode": OSLO}, lambda result: [fact.target_name for fact in result.facts] == ["Oslo"]),
    ("graph.add_many", {"episodes": [OSLO, ROME]}, lambda results: [one.repeated for one in results] == [True, False]),
    (
        "graph.search",
        {"query": "Where does Ada live?", **A_GROUP},
        lambda found: any("Rome" in it.text for it in found.items),
    ),
    ("graph.entity", {"entity": "ada", **A_GROUP}, lambda told: [fact.target_name for fact in told.facts] == ["Rome"]),
    ("graph.entity_versions", {"entity": "Ada", **A_GROUP}, lambda versions: [one.name for one in versions] == ["Ada"]),
    ("graph.facts", {"entity": "Ada", **A_GROUP}, lambda facts: [fact.target_name for fact in facts] == ["Rome"]),
    ("graph.entities", {"limit": 1, **A_GROUP}, lambda page: len(page.items) == 1 and page.cursor),
    ("graph.get", {"id": "first", **A_GROUP}, lambda episode: episode.content == OSLO["content"]),
    ("graph.search_keywords", {"query": "lives", **A_GROUP}, lambda hits: len(hits) == 2),
    ("graph.search_semantic", {"query": "Ada in Rome", **A_GROUP}, lambda hits: hits[0].item.id == "second"),
    ("graph.traverse", {"entities": ["Ada"], **A_GROUP}, lambda found: len(found.facts) > 0),
    ("graph.history", {"entity": "Ada", **A_GROUP}, lambda versions: len(versions) == 3),
    ("graph.path", {"a": "Rome", "b": "Ada", **A_GROUP}, lambda steps: [step.forward for step in steps] == [False]),
    ("graph.as_of", {"when": "2021-01-01T00:00:00Z", **A_GROUP}, lambda page: page.items[0].target_name == "Oslo"),
    ("graph.draw", A_GROUP, lambda drawing: len(drawing.facts) == 2),
    ("graph.episodes", A_GROUP, lambda page: [one.id for one in page.items] == ["first", "second"]),
    ("graph.undo", {"episode_id": "second", **A_GROUP}, lambda result: result.id == "second"),
    ("graph.relations", {}, lambda relations: "lives_in" in {one.name for one in relations}),
    ("graph.stats", A_GROUP, lambda stats: (stats.episodes, stats.facts) == (2, 1)),
    ("graph.merge", {"source": "Oslo", "into": "Rome", **A_GROUP}, lambda merge: merge.undone_at is None),
    ("graph.unmerge", {"entity": "Oslo", **A_GROUP}, lambda merge: merge.undone_at is not None),
    ("graph.check", A_GROUP, lambda check: check.is_clean and check.facts == 2),
    ("graph.add", {"episode": LATER, "extract": False}, lambda result: result.facts == ()),
    ("graph.extract", {"episode_id": "later", **TEAM}, lambda result: result.id == "later"),
    ("graph.summarize", A_GROUP, lambda summaries: summaries == []),
    ("graph.add_entity", {"name": "Mars", "aliases": ["the red one"], **TEAM}, lambda entity: entity.name == "Mars"),
    ("graph.add_alias", {"entity": "Mars", "alias": "Ares", **TEAM}, lambda entity: entity.name == "Mars"),
    ("graph.aliases", {"entity": "Mars", **TEAM}, lambda page: "ares" in page.items),
    (
        "graph.add_relationship",
        {"source": "Mars", "type": "orbits", "target": "Sol", **TEAM},
        lambda fact: fact.target_name == "Sol",
    ),
    (
        "graph.invalidate",
        lambda told: {"fact_id": told["graph.add_relationship"].id, **TEAM},
        lambda fact: fact.valid_to is not None,
    ),
    ("synthesis.add_memory", {**SHOP, "user_id": "ada", "messages": TALK}, lambda task: task.status == "accepted"),
    ("synthesis.get_task_status", lambda told: done(told["synthesis.add_memory"]), lambda task: task.status == "done"),
    ("synthesis.get_memory", noted, lambda note: "Elm Street 7" in note.memory_note),
    ("synthesis.apps", {}, ["shop"]),
    ("synthesis.list_memories", SHOP, lambda notes: ["Elm Street 7" in note.memory_note for note in notes] == [True]),
    ("synthesis.query_memory", {**SHOP, "query": TALK[0]["content"]}, lambda hits: [hit.rank for hit in hits] == [1]),
    ("synthesis.traverse_memory_evolution_chain", noted, lambda chain: len(chain) == 1),
    ("synthesis.generate_evolution_graph", noted, lambda drawing: drawing.text.startswith("flowchart")),
    ("synthesis.restore_memory", noted, lambda note: note.status == "active"),
    ("synthesis.delete_memory", noted, True),
    ("synthesis.update_memory_status", lambda told: noted(told) | {"new_status": "active"}, lambda note: note.version),
    (
        "synthesis.add_agent_memory",
        {**SHOP, "user_id": "ada", "messages": "Ada was called back."},
        lambda task: task.status == "accepted",
    ),
    (
        "synthesis.summarize_conversation",
        {**SHOP, "user_id": "ada", "messages": TALK},
        lambda told: "Elm Street 7" in told.summary,
    ),
    ("synthesis.list_tasks", {}, lambda tasks: len(tasks) <= 1),
    ("synthesis.retry_task", {"task_id": "1000000000000000"}, False),
    ("synthesis.get_connection_pool_stats", {}, lambda stats: stats.mode == "multiplexed"),
    ("synthesis.fsck", SHOP, lambda check: check.is_clean),
    ("synthesis.archive", SHOP, lambda report: report.archived == ()),
    ("synthesis.archived_memories", {**SHOP, "words": "Elm Street"}, lambda notes: notes == []),
    ("synthesis.get_archived", noted, lambda note: "Elm Street 7" in note.memory_note),
    ("synthesis.unarchive", noted, lambda note: note.status == "active"),
    ("synthesis.retain", {**SHOP, "rules": {"rules": [{"max_age_days": 30}]}}, lambda report: report.notes == 0),
    ("synthesis.erase", SHOP, lambda report: report.notes > 0),
    ("graph.groups", {}, ["acme:ada", "planets"]),
    (
        "knowledge.remember",
        {"conversation": "Bo lives in Bonn.", "parts": ["memory", "graph"], "group_id": "acme:ada"},
        lambda receipt: (receipt.status, len(receipt.facts), list(receipt.skipped)) == ("done", 1, ["notes"]),
    ),
    (
        "knowledge.receipt",
        lambda told: {"task_id": told["knowledge.remember"].task_id},
        lambda receipt: receipt.status == "done" and len(receipt.memories) == 1,
    ),
    ("graph.delete", A_GROUP, lambda gone: gone > 0),
]


@pytest.fixture
async def hub(data_dir: Path) -> AsyncIterator[Hub]:
    async with Hub.open(settings=Settings(data_dir=data_dir, embedded_modules=(), embedder="hashing")) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store("n")


async def test_every_row_runs(hub: Hub, store: SharedMemoryStore) -> None:
    assert [name for name, _, _ in STEPS if name not in operations()] == []
    assert operations().keys() == {name for name, _, _ in STEPS}

    told: dict[str, Any] = {}
    for name, parameters, expected in STEPS:
        row = operations()[name]
        request = parameters(told) if callable(parameters) else parameters
        caller = hub.store("n", actor="ada") if name in NEEDS_AN_ACTOR else store
        answer = told[name] = await row.run(caller, row.takes.model_validate_json(json.dumps(request)))
        assert expected(answer) if callable(expected) else answer == expected, (name, answer)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("value.read", {"key": "k"}),
        ("value.entry", {"key": "k"}),
        ("hash.get", {"key": "k", "field": "f"}),
        ("set.pop", {"key": "k"}),
    ],
)
async def test_what_is_not_there_is_an_error_on_every_face(
    store: SharedMemoryStore, name: str, parameters: dict[str, str]
) -> None:
    row = operations()[name]

    with pytest.raises(NotFoundError, match="k'"):
        await row.run(store, row.takes(**parameters))


async def test_the_feeds_bring_what_happens(store: SharedMemoryStore) -> None:
    watch, subscribe = feeds()["change.watch"], feeds()["message.subscribe"]
    await store.write("k", 1)

    changes = watch.run(store, watch.takes.model_validate({"since": 0}))
    assert (await anext(changes)).key == "n:shared:k"
    messages = subscribe.run(store, subscribe.takes.model_validate({"channels": ["news"]}))
    assert inspect.isasyncgen(messages)


def test_every_row_says_what_it_does_and_has_a_schema() -> None:
    rows: list[Operation[Any] | FeedOperation[Any]] = [*operations().values(), *feeds().values()]
    assert [row.name for row in rows] == [*operations(), *feeds()]
    for row in rows:
        assert row.summary.endswith(".")
        assert row.needs in {"read", "write"}
        assert "progress" not in row.takes.model_json_schema().get("properties", {})


def test_the_table_is_read_without_what_only_some_operations_need() -> None:
    code = "import sys, sharedmem.api; print({'numpy', 'rapidfuzz', 'starlette'} & sys.modules.keys())"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert done.stdout.strip() == "set()"
