"""Metrics: what Prometheus is told of a team, and dashboards and alerts that ask for nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.spans import recorded_spans

from sharedmem import Hub, NotFoundError, Settings
from sharedmem.archive.daily_exports import list_exports
from sharedmem.faces.metrics import METRICS, Exporter, HubCollector, TotalsCollector, read_totals
from sharedmem.runtime import Counters, JsonFormatter, span
from sharedmem.runtime.metrics_export import prometheus_text
from sharedmem.testing import fake_hub

DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
SUFFIXES = re.compile(r"_(total|bucket|sum|count)$")
A_METRIC = re.compile(r"\bsharedmem_\w+")


def asked_of(expression: str) -> set[str]:
    """The metrics that an expression is about, as METRICS calls them."""
    return {name if name in METRICS else SUFFIXES.sub("", name) for name in A_METRIC.findall(expression)}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DASHBOARDS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[tuple[str, str]]:
    panels = json.loads((DASHBOARDS / "sharedmem.json").read_text())["panels"]
    return [
        (panel["title"], target["expr"].replace("$namespace", ".*")) for panel in panels for target in panel["targets"]
    ]


async def told(exporter: Exporter) -> dict[tuple[str, tuple[str, ...]], float]:
    """What an open exporter answers, by name and values of labels."""

    def fetched() -> str:
        with urlopen(exporter.address) as answer:
            return str(answer.read().decode())

    text = await asyncio.to_thread(fetched)
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_every_alert_is_sound_and_asks_for_metrics_that_are_told(rule: dict[str, Any]) -> None:
    promql_parser.parse(rule["expr"])

    assert asked_of(rule["expr"]) <= set(METRICS)
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["what_to_do"]


@pytest.mark.parametrize(("title", "expression"), queries())
def test_every_panel_is_sound_and_asks_for_metrics_that_are_told(title: str, expression: str) -> None:
    promql_parser.parse(expression)

    assert asked_of(expression)
    assert asked_of(expression) <= set(METRICS), title


def test_the_dashboard_has_panels_beside_each_other_with_names_of_their_own() -> None:
    dashboard = json.loads((DASHBOARDS / "sharedmem.json").read_text())
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]

    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)
    assert len({place[:2] for place in places}) == len(places)
    assert all(x + width <= 24 for x, _, width, _ in places)


def test_there_are_panels_for_searches_plans_executions_duplicates_and_memory_events() -> None:
    asked = set().union(*(asked_of(expression) for _, expression in queries()))

    assert {
        *("sharedmem_search_seconds", "sharedmem_memory_additions", "sharedmem_memory_guarded", "sharedmem_batch_size"),
        *("sharedmem_plans", "sharedmem_executions", "sharedmem_execution_claims", "sharedmem_episode_events"),
        *("sharedmem_operations_under_way", "sharedmem_connection_pool_size", "sharedmem_connection_pool_active"),
        *("sharedmem_grpc_requests", "sharedmem_grpc_seconds", "sharedmem_request_units"),
    } <= asked


async def test_every_family_of_a_hub_that_panels_ask_for_is_counted_under_that_name() -> None:
    async with fake_hub() as hub:
        store = hub.store("desk", actor="ada")
        await store.memory.add("The lease of the office ends in May")
        saved = await store.decisions.save_if_new("btc", "BTC", "BUY", 0.5, "up")
        await store.decisions.save_if_new("btc", "BTC", "BUY", 0.5, "up")
        claim = await store.decisions.begin_execution("btc", saved.plan.plan_hash)
        await store.decisions.begin_execution("btc", saved.plan.plan_hash)
        await store.decisions.finish("btc", saved.plan.plan_hash, claim.fence, status="success")
        await store.episodes.append_event("day", "The ferry is late.")
        told = {family.name for family in HubCollector(hub.counters).collect()}
        counted = hub.counters

    families = {"sharedmem_plans", "sharedmem_execution_claims", "sharedmem_executions", "sharedmem_episode_events"}
    assert families <= told <= set(METRICS) | {name for name in told if name.startswith("sharedmem_embedding")}
    assert counted.read("plans", outcome="saved") == counted.read("plans", outcome="duplicate") == 1
    assert counted.read("execution_claims", outcome="started") == 1
    assert counted.read("execution_claims", outcome="refused") == 1
    assert counted.read("executions", state="succeeded") == 1


def test_what_the_compose_file_mounts_is_there() -> None:
    services = yaml.safe_load((DASHBOARDS.parent / "docker-compose.yml").read_text())["services"]
    mounted = [volume.split(":")[0] for name in ("prometheus", "grafana") for volume in services[name]["volumes"]]

    assert [path for path in mounted if not (DASHBOARDS.parent / path).is_file()] == []
    scraped = yaml.safe_load((DASHBOARDS.parent / "deploy" / "prometheus.yml").read_text())
    assert scraped["scrape_configs"][0]["static_configs"][0]["targets"] == ["host.docker.internal:9001"]


async def test_the_exporter_tells_what_the_team_shares_and_what_this_process_did() -> None:
    async with fake_hub() as hub:
        store = hub.store("research", actor="reader")
        await store.memory.add("The lease of the office ends in May", memory_type="long-term", category="office")
        await store.memory.add("The lease of the office ends in May", memory_type="long-term", category="office")
        await store.memory.search("when does the lease end")
        await store.cache.put("when does the lease end?", "in May", cost=0.01, tokens=120)
        await store.cache.check("when does the lease end?")
        await store.cache.check("who owns the deploy?")
        exporter = Exporter(hub, port=0)
        await exporter.open()
        try:
            found = await told(exporter)
        finally:
            exporter.close()

    assert found["sharedmem_up", ()] == 1
    assert found["sharedmem_memories", ("research", "long-term")] == 1
    assert found["sharedmem_memories_by_category", ("office", "research")] == 1
    assert found["sharedmem_duplicates_merged_total", ("research",)] == 1
    assert found["sharedmem_cache_hits_total", ("research", "exact")] == 1
    assert found["sharedmem_cache_misses_total", ("research",)] == 1
    assert found["sharedmem_cache_saved_tokens_total", ("research",)] == 120
    assert found["sharedmem_operation_seconds_count", ("memory.search",)] == 1
    assert found["sharedmem_operation_seconds_bucket", ("+Inf", "memory.add")] == 2


async def test_every_search_is_timed_by_its_mode() -> None:
    async with fake_hub() as hub:
        memory = hub.store("research").memory
        await memory.add("The lease of the office ends in May")
        await memory.search("when does the lease end")
        await memory.search_hybrid("when does the lease end", keywords="lease")
        await memory.search_keywords("lease")
        await memory.search_semantic("lease")
        item = await memory.get((await memory.list())[0].id, embedding=True)
        assert item is not None
        assert item.embedding is not None
        await memory.find_similar(item.embedding)
        timed = {
            dict(one.labels)["mode"]: one.calls
            for one in hub.counters.timings()
            if one.name == "sharedmem_search_seconds"
        }
        names = {dict(one.labels).get("operation") for one in hub.counters.timings()}

    assert timed == {"hybrid": 2, "keywords": 1, "semantic": 1, "similar": 1}
    assert {"memory.search", "memory.search_hybrid", "memory.search_keywords", "memory.find_similar"} <= names


async def test_additions_merges_and_near_memories_that_a_guard_kept_apart_are_counted() -> None:
    async with fake_hub(settings=Settings(dedup_similarity=0.5)) as hub:
        memory = hub.store("research").memory
        await memory.add("The dose is 2 mg a day")
        await memory.add("The dose is 2 mg a day")
        await memory.add("The dose is 20 mg a day")
        counted = {
            (name.removeprefix("sharedmem_"), *(value for _, value in labels)): value
            for name, labels, value in hub.counters.snapshot()
        }

    assert counted["memory_additions", "added"] == 2
    assert counted["memory_additions", "merged"] == 1
    assert counted["memory_guarded", "numbers"] == 1
    assert counted["batch_operations", "memory.add"] == 3


async def test_the_sizes_of_batches_and_what_is_under_way_are_shown() -> None:
    async with fake_hub() as hub:
        await hub.store("research").memory.add_many([f"fact {number} of the report" for number in range(3)])
        sizes = [one for one in hub.counters.histograms() if one.name == "sharedmem_batch_size"]
        gauges = {(one.name, *one.labels): one.value for one in hub.counters.gauges()}
        text = prometheus_text(hub.counters)

    assert [(one.labels, one.total, sum(one.buckets)) for one in sizes] == [((("operation", "memory.add"),), 3, 1)]
    assert gauges["sharedmem_operations_under_way", ("operation", "memory.add_many")] == 0
    assert gauges["sharedmem_connection_pool_size", ("kind", "pooled")] >= 1
    assert gauges["sharedmem_connection_pool_active", ("kind", "pooled")] == 0
    assert 'sharedmem_batch_size_bucket{operation="memory.add",le="5"} 1' in text
    assert "# TYPE sharedmem_connection_pool_size gauge" in text


def test_what_the_service_shows_of_a_counter_has_all_its_digits() -> None:
    counters = Counters()
    counters.add("calls", 123_456_789)
    counters.add("saved", 0.125)

    assert "sharedmem_calls_total 123456789\n" in prometheus_text(counters)
    assert "sharedmem_saved_total 0.125\n" in prometheus_text(counters)


def test_a_call_under_way_is_counted_until_it_ends() -> None:
    counters = Counters()
    counters.begin("memory.search")
    counters.begin("memory.search")
    counters.end("memory.search", 0.1)

    (gauge,) = counters.gauges()

    assert (gauge.name, gauge.value) == ("sharedmem_operations_under_way", 1)


def test_a_gauge_that_cannot_be_read_now_leaves_the_others() -> None:
    counters = Counters()

    def changing() -> float:
        raise RuntimeError("set changed size during iteration")

    counters.register_gauge("pool", changing)
    counters.register_gauge("queue", lambda: 3)

    assert [(one.name, one.value) for one in counters.gauges()] == [("sharedmem_queue", 3)]


async def test_a_server_that_is_gone_is_told_as_down(fake: Hub) -> None:
    exporter = Exporter(fake, port=0)
    await exporter.open()
    try:
        await fake.close()
        await exporter.refresh()
        found = await told(exporter)
    finally:
        exporter.close()

    assert found["sharedmem_up", ()] == 0


async def test_a_call_in_vain_is_counted_by_its_code() -> None:
    async with fake_hub() as hub:
        with pytest.raises(NotFoundError):
            await hub.store("research").memory.update("nothing-like-it", category="x")

        failures = hub.counters.read("operation_failures", operation="memory.update", code="not_found")

    assert failures == 1


def test_timings_know_their_quantiles() -> None:
    counters = Counters()
    for seconds in (0.001, 0.001, 0.001, 0.2):
        counters.observe("operation_seconds", seconds, operation="memory.search")

    (timing,) = counters.timings()

    assert timing.calls == 4
    assert timing.quantile(0.5) == 0.001
    assert timing.quantile(0.95) == 0.2
    assert timing.total_s == pytest.approx(0.203)


def test_a_json_line_holds_what_was_given_beside_the_message() -> None:
    record = logging.makeLogRecord(
        {"name": "sharedmem.memory", "levelname": "INFO", "msg": "added %s", "args": ("m1",), "namespace": "research"}
    )

    line = json.loads(JsonFormatter().format(record))

    assert line["message"] == "added m1"
    assert line["logger"] == "sharedmem.memory"
    assert line["namespace"] == "research"
    assert line["level"] == "info"


async def test_the_exporter_reads_the_age_of_exports_and_drills(tmp_path: Path) -> None:
    settings = Settings(export_dir=tmp_path)
    async with fake_hub(settings=settings) as hub:
        for namespace in ("desk", "team"):
            await hub.store(namespace).write("plan", 1)
            await hub.archive.export_daily(namespace, tmp_path, compressed=False)
        drill = {"ok": True, "at": "2026-03-01T12:00:00Z"}
        (newest,) = (one for one in list_exports(tmp_path) if one.namespace == "team")
        write_drill(newest.file, drill)
        totals = await read_totals(hub)

    families = {family.name: family for family in TotalsCollector(lambda: totals, lambda: None).collect()}
    written = families["sharedmem_export_newest_timestamp_seconds"].samples
    drilled = families["sharedmem_export_drilled_timestamp_seconds"].samples
    assert [sample.labels["namespace"] for sample in written] == ["desk", "team"]
    assert written[1].value == pytest.approx(newest.written.timestamp())
    assert [(sample.labels["namespace"], sample.value) for sample in drilled] == [("team", 1_772_366_400.0)]


def write_drill(file: str, report: dict[str, Any]) -> None:
    Path(f"{file}.drill").write_text(json.dumps(report))


async def test_exports_that_cannot_be_read_are_told_and_leave_the_rest(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(export_dir=tmp_path / "missing")) as hub:
        assert (await read_totals(hub)).failed == ()
    (tmp_path / "file").touch()
    async with fake_hub(settings=Settings(export_dir=tmp_path / "file")) as hub:
        totals = await read_totals(hub)

    assert totals.exports == {}
    assert "cannot be read" in totals.failed[0]


async def test_calls_are_spans_where_the_application_listens() -> None:
    with recorded_spans() as spans:
        with span("outer", limit=3):
            async with fake_hub() as hub:
                await hub.store("research").episodes.sessions()

        assert spans.tree() == ["sharedmem.outer", ["sharedmem.episodes.sessions"]]
        assert (spans.one("sharedmem.outer").attributes or {})["sharedmem.limit"] == 3
