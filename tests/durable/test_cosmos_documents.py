"""How records, queries and containers are spelled for Cosmos DB; compared with the forms that Microsoft documents."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from support.example_budget import example_count

from sharedmem import ConfigError, InvalidError
from sharedmem.durable.cosmos import record_container
from sharedmem.durable.cosmos.container import PurgeFilter, PurgeRow
from sharedmem.durable.cosmos.endpoint import key_for, parse_endpoint
from sharedmem.durable.cosmos.layout import memories_layout, records_layout
from sharedmem.durable.cosmos.record_container import (
    KEPT_AFTER_S,
    choose_write,
    document_of,
    newest_of_each,
    place_of,
    record_of,
)
from sharedmem.durable.protocol import living_documents
from sharedmem.models import DurableRecord, Outcome

NOW_MS = 1_800_000_000_000
DEEP = "[" * 200 + "]" * 200


def record(**fields: object) -> DurableRecord:
    plain = {"key": "research:ada:note", "type": "value", "kind": "knowledge", "version": 5, "stamp": 5}
    return DurableRecord.model_validate(plain | fields)


def kept(body: str) -> dict[str, object]:
    """The document of a body, as it comes back from the service."""
    document = json.loads(json.dumps(document_of(record(body=body), NOW_MS)))
    assert record_of(document).body == body
    return {name: document[name] for name in ("body", "exact") if name in document}


# -- documents -----------------------------------------------------------------------------------


def test_a_document_has_every_field_of_its_record_and_says_where_it_lies() -> None:
    whole = record(actor="ada", created=3, body='{"topic":"tides"}')

    assert document_of(whole, NOW_MS) == {
        "id": hashlib.sha256(b"research:ada:note\0").hexdigest(),
        "namespace": "research",
        "scope": "ada",
        "key": "research:ada:note",
        "element": "",
        "type": "value",
        "kind": "knowledge",
        "version": 5,
        "stamp": 5,
        "floor": 0,
        "size": 0,
        "created": 3,
        "expires": 0,
        "actor": "ada",
        "codec": "json",
        "deleted": False,
        "body": {"topic": "tides"},
    }


@given(st.text(), st.text(), st.text(), st.text())
def test_no_two_places_have_the_same_id(key: str, element: str, other_key: str, other_element: str) -> None:
    same = (key, element) == (other_key, other_element)
    # Keys hold no control characters.
    if "\0" not in key + other_key:
        assert (place_of(key, element).id == place_of(other_key, other_element).id) == same


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("research:ada:note", ["research", "ada", "research:ada:note"]),
        ("chat:team", ["chat", "team", "chat:team"]),
        ("workflow:onboarding:123:state", ["workflow", "onboarding", "workflow:onboarding:123:state"]),
    ],
)
def test_a_document_lies_in_the_partition_of_its_namespace_scope_and_key(key: str, partition: list[str]) -> None:
    assert place_of(key, "x").partition == partition


def test_a_body_that_survives_as_plain_json_is_kept_once() -> None:
    assert kept('{"a":[1,2.5,null,"ü"]}') == {"body": {"a": [1, 2.5, None, "ü"]}}


def test_a_body_that_would_come_back_otherwise_also_stands_there_exactly() -> None:
    assert kept('{"b":1,"1":9007199254740993}') == {
        "body": {"b": 1, "1": 9007199254740993},
        "exact": '{"b":1,"1":9007199254740993}',
    }


@pytest.mark.parametrize("body", [DEEP, '{"a":NaN}', '"\\ud800"', "[1.0," + "0," * 400_000 + "0]"])
def test_what_the_service_would_not_take_as_json_is_kept_as_text_alone(body: str) -> None:
    assert kept(body) == {"exact": body}


def test_brackets_in_strings_do_not_make_a_body_deep() -> None:
    body = json.dumps(["[{" * 200, '\\"[' * 200], separators=(",", ":"))

    assert list(kept(body)) == ["body"]


@settings(max_examples=example_count(20, thorough=60))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_body_comes_back_to_the_letter(value: object) -> None:
    kept(json.dumps(value))
    kept(json.dumps(value, separators=(",", ":")))


def test_a_foreign_document_is_refused() -> None:
    with pytest.raises(InvalidError, match="document 'x' is refused: sharedmem did not write it"):
        record_of({"id": "x", "namespace": "research"})


@pytest.mark.parametrize(
    ("fields", "ttl_s"),
    [
        ({}, None),
        ({"expires": NOW_MS + 1_500}, 2 + KEPT_AFTER_S),
        ({"expires": NOW_MS - 99_000}, KEPT_AFTER_S),
        ({"expires": 2**53}, 2**31 - 1),
        ({"type": "counter", "expires": NOW_MS + 1_000}, 1 + KEPT_AFTER_S),
        ({"type": "list", "expires": NOW_MS + 1_000}, None),
        ({"type": "hash", "element": "name", "expires": NOW_MS + 1_000}, None),
        ({"deleted": True}, KEPT_AFTER_S),
        ({"type": "hash", "element": "name", "deleted": True}, KEPT_AFTER_S),
    ],
    ids=str,
)
def test_only_what_may_go_alone_is_removed_by_the_service(fields: dict[str, object], ttl_s: int | None) -> None:
    assert document_of(record(**fields), NOW_MS).get("ttl") == ttl_s


# -- older and newer -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "stamp", "floor", "outcome", "written"),
    [
        (None, 5, 1, Outcome.STORED, (5, 1)),
        ((4, 1), 5, 1, Outcome.STORED, (5, 1)),
        ((4, 3), 5, 1, Outcome.STORED, (5, 3)),
        ((5, 1), 5, 1, Outcome.STORED, None),
        ((6, 1), 5, 1, Outcome.OLDER, None),
        ((6, 1), 5, 4, Outcome.OLDER, (6, 4)),
    ],
)
def test_the_newer_stays_and_the_higher_floor_counts(
    held: tuple[int, int] | None, stamp: int, floor: int, outcome: Outcome, written: tuple[int, int] | None
) -> None:
    there = record(stamp=held[0], floor=held[1]) if held else None

    wanted, became = choose_write(record(stamp=stamp, floor=floor), there)

    assert became is outcome
    assert (wanted and (wanted.stamp, wanted.floor)) == written


def test_of_a_batch_only_the_newest_of_each_document_is_sent() -> None:
    batch = [record(stamp=3), record(stamp=9), record(stamp=7, floor=7), record(stamp=1, element="x")]

    assert list(newest_of_each(batch).values()) == [record(stamp=9, floor=7), record(stamp=1, element="x")]


# -- purging -------------------------------------------------------------------------------------

STAMPS = st.integers(1, 9)
ELEMENTS = st.builds(
    lambda name, stamp, deleted: (name, stamp, deleted), st.sampled_from("123456"), STAMPS, st.booleans()
)


@given(
    st.none() | st.tuples(STAMPS, STAMPS, st.integers(0, 4), st.sampled_from([0, 5, 15]), st.booleans()),
    st.lists(ELEMENTS, unique_by=lambda one: one[0]),
    st.sampled_from(["list", "hash"]),
    st.integers(0, 10),
)
def test_a_purge_takes_nothing_that_a_reader_sees_or_that_awaits_its_head(
    head: tuple[int, int, int, int, bool] | None,
    elements: list[tuple[str, int, bool]],
    type_: str,
    tombstones_before: int,
) -> None:
    # The items of a list are named by when they came.
    stamps = (sorted if type_ == "list" else list)(at for _, at, _ in sorted(elements))
    ordered = [(name, at, gone) for (name, _, gone), at in zip(sorted(elements), stamps, strict=True)]
    there = [record(element=name, type=type_, stamp=at, deleted=gone) for name, at, gone in ordered]
    if head is not None:
        at, floor, size, expires, gone = head
        there.insert(0, record(type=type_, stamp=at, floor=floor, size=size, expires=expires, deleted=gone))
    sieve = PurgeFilter(now_ms=10, tombstones_before=tombstones_before)

    dead = {row.element for row in map(sieve.dead, map(row_of, there)) if row}

    left = [one for one in there if one.element not in dead]
    assert living_documents(left, 10) == living_documents(there, 10)
    newest_known = max(tombstones_before - 1, head[0] if head else 0, head[1] - 1 if head else 0)
    assert all(one.stamp <= newest_known for one in there if one.element in dead)


def row_of(one: DurableRecord) -> PurgeRow:
    return PurgeRow(one.key, one.element, one.type, one.stamp, one.floor, one.size, one.expires, one.deleted, etag="")


# -- queries -------------------------------------------------------------------------------------


def test_the_documents_of_a_key_come_from_one_partition() -> None:
    query = record_container.query_key("research:ada:notes", ("research:ada:notes", "0007"))

    assert query.text == (
        "SELECT * FROM c WHERE c.namespace = @namespace AND c.scope = @scope AND c.key = @key "
        "AND c.element > @element ORDER BY c.element ASC"
    )
    assert query.partition == ["research", "ada", "research:ada:notes"]
    assert query.parameters == [
        {"name": "@namespace", "value": "research"},
        {"name": "@scope", "value": "ada"},
        {"name": "@key", "value": "research:ada:notes"},
        {"name": "@element", "value": "0007"},
    ]


def test_a_namespace_is_walked_by_key_and_element() -> None:
    query = record_container.query_namespace("research", ("research:ada:x", "y"), changed_after=9, heads_only=True)

    assert query.text == (
        'SELECT * FROM c WHERE c.namespace = @namespace AND c.stamp > @stamp AND c.element = "" '
        "AND (c.key > @key OR (c.key = @key AND c.element > @element)) "
        "ORDER BY c.namespace ASC, c.key ASC, c.element ASC"
    )
    assert query.values == {"namespace": "research", "stamp": 9, "key": "research:ada:x", "element": "y"}


def test_a_query_by_fields_has_the_values_as_parameters_and_the_names_in_brackets() -> None:
    query = record_container.query_type("research", "plan", where={"symbol": "BTC' OR 1", "order.value": 2}, limit=7)

    assert query.text == (
        "SELECT TOP 7 * FROM c WHERE c.namespace = @namespace AND c.type = @type AND c.deleted = false "
        'AND c["body"]["symbol"] = @where0 AND c["body"]["order"]["value"] = @where1 '
        "ORDER BY c.namespace DESC, c.type DESC, c.stamp DESC"
    )
    assert query.values == {"namespace": "research", "type": "plan", "where0": "BTC' OR 1", "where1": 2}


def test_the_highest_stamp_and_the_next_namespace_read_one_entry_of_an_index() -> None:
    assert record_container.query_highest_stamp("research").text == (
        "SELECT TOP 1 VALUE c.stamp FROM c WHERE c.namespace = @namespace ORDER BY c.namespace DESC, c.stamp DESC"
    )
    assert record_container.query_next_namespace("research").text == (
        "SELECT TOP 1 VALUE c.namespace FROM c WHERE c.namespace > @after ORDER BY c.namespace ASC"
    )


def test_every_sort_by_several_fields_has_its_composite_index() -> None:
    indexes = [
        ", ".join(f"c{part['path'].replace('/', '.')} {part['order'][:-6].upper()}" for part in index)
        for index in records_layout().indexing["compositeIndexes"]
    ]
    texts = [
        record_container.query_namespace("n", None).text,
        record_container.query_type("n", "plan", where={}, limit=1).text,
        record_container.query_highest_stamp("n").text,
    ]

    assert sorted(text.partition(" ORDER BY ")[2] for text in texts) == sorted(indexes)


# -- containers ----------------------------------------------------------------------------------


def test_the_container_of_the_records_indexes_what_is_asked_for_and_nothing_else() -> None:
    layout = records_layout()

    assert layout.partition_key == ("/namespace", "/scope", "/key")
    assert layout.indexing["includedPaths"] == [
        {"path": path}
        for path in ["/namespace/?", "/scope/?", "/key/?", "/element/?", "/type/?", "/stamp/?", "/deleted/?", "/body/*"]
    ]
    assert layout.indexing["excludedPaths"] == [{"path": "/*"}, {"path": '/"_etag"/?'}]
    assert (layout.vectors, layout.full_text) == (None, None)


def test_the_container_of_memories_has_the_documented_vector_and_full_text_policies() -> None:
    layout = memories_layout(256)

    assert layout.partition_key == ("/tenant_id", "/thread_id")
    assert layout.vectors == {
        "vectorEmbeddings": [
            {"path": "/embedding", "dataType": "float32", "distanceFunction": "cosine", "dimensions": 256}
        ]
    }
    assert layout.full_text == {
        "defaultLanguage": "en-US",
        "fullTextPaths": [{"path": "/content", "language": "en-US"}, {"path": "/memory", "language": "en-US"}],
    }
    assert layout.indexing["vectorIndexes"] == [{"path": "/embedding", "type": "quantizedFlat"}]
    assert layout.indexing["fullTextIndexes"] == [{"path": "/content"}, {"path": "/memory"}]
    assert {"path": "/embedding/*"} in layout.indexing["excludedPaths"]


def test_many_memories_get_a_graph_and_many_tenants_an_index_each() -> None:
    layout = memories_layout(1536, many=True, shard_by_tenant=True)

    assert layout.indexing["vectorIndexes"] == [
        {"path": "/embedding", "type": "diskANN", "vectorIndexShardKey": ["/tenant_id"]}
    ]


@pytest.mark.parametrize("dimensions", [-1, 4097])
def test_dimensions_that_the_service_does_not_take_are_refused(dimensions: int) -> None:
    with pytest.raises(InvalidError, match="up to 4,096"):
        memories_layout(dimensions)


# -- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("cosmos://account.documents.azure.com", "https://account.documents.azure.com/"),
        ("cosmos://account.documents.azure.com:443/", "https://account.documents.azure.com:443/"),
        ("cosmos+http://127.0.0.1:8081", "http://127.0.0.1:8081/"),
        ("cosmos+http://[::1]:8081", "http://[::1]:8081/"),
    ],
)
def test_a_url_names_the_account(url: str, endpoint: str) -> None:
    assert parse_endpoint(url).url == endpoint


@pytest.mark.parametrize(
    "url",
    ["https://account", "cosmos://", "cosmos://a/db", "cosmos://user:pw@a", "cosmos://a?key=x", "cosmos://a:port", ""],
)
def test_a_url_that_names_no_account_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError, match=r"write it like cosmos://account\.documents") as caught:
        parse_endpoint(url)

    assert "pw" not in str(caught.value)


def test_an_emulator_needs_no_key_and_an_account_gets_the_one_given() -> None:
    account, emulator = parse_endpoint("cosmos://a.example"), parse_endpoint("cosmos+http://127.0.0.1:1")

    assert key_for(emulator, None) is not None
    assert key_for(account, None) is None
    assert key_for(account, SecretStr("a2V5")) == "a2V5"


# -- the template --------------------------------------------------------------------------------


def test_the_template_makes_the_container_that_we_make() -> None:
    """docs/cosmos.md: deploy/cosmos.bicep holds exactly the partition key, TTL and indexes."""
    layout = records_layout()
    template = (Path(__file__).resolve().parents[2] / "deploy" / "cosmos.bicep").read_text()
    template = template.partition("resource memories ")[0]
    key, _, indexing = template.partition("indexingPolicy: {")

    assert re.findall(r"^ +'(/.+)'$", key, re.MULTILINE) == list(layout.partition_key)
    assert "defaultTtl: -1" in key
    plain = re.findall(r"\{ path: '([^']+)' \}", indexing)
    assert plain == [one["path"] for name in ("includedPaths", "excludedPaths") for one in layout.indexing[name]]
    assert re.findall(r"\{ path: '(.+)', order: '(.+)' \}", indexing) == [
        (part["path"], part["order"]) for index in layout.indexing["compositeIndexes"] for part in index
    ]


def test_the_documented_document_is_a_real_one() -> None:
    """docs/cosmos.md: what a document looks like."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "cosmos.md").read_text()
    shown = json.loads(page.partition("```json\n")[2].partition("```")[0])

    assert document_of(record_of(shown), NOW_MS) == shown
