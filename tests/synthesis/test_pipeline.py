"""Conversations become notes, settled with what is known: nothing is lost, and a chain has one head."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.contexts import knowledge_of
from support.synthesis_harness import (
    APP,
    USER,
    ScriptedAgents,
    SynthesisHarness,
    agent_note_request,
    make_synthesis_harness,
    note_request,
    numbered_fact,
    user_messages,
)

from sharedmem import InvalidError, SharedMemoryStore
from sharedmem.models import ConsolidationReport, Note, Recall, Resolution, Verdict
from sharedmem.runtime import JsonFormatter
from sharedmem.synthesis.commit_plan import (
    MOST_LABELS,
    complete_resolutions,
    oldest_chain,
    plan_commit,
    relationship_of,
    skip_updates,
    task_result,
)
from sharedmem.synthesis.pipeline import TaskAttempt
from sharedmem.synthesis.protocol import CommittedNotes, NewNote
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.schemas import SummaryMetadata, SummaryRetrieval
from sharedmem.synthesis.tasks import SummarizeTask
from sharedmem.testing import fake_hub

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHER = "Our zebra mascot Marvin eats forty apples on every holiday of the summer."


@pytest.fixture
async def store() -> AsyncIterator[SharedMemoryStore]:
    async with fake_hub() as hub:
        yield hub.store("desk")


@pytest.fixture
def panel() -> ScriptedAgents:
    return ScriptedAgents()


@pytest.fixture
def bench(store: SharedMemoryStore, panel: ScriptedAgents) -> SynthesisHarness:
    return make_synthesis_harness(store, panel)


def turn(number: int) -> TaskAttempt:
    return TaskAttempt(f"{number:016d}")


async def add(bench: SynthesisHarness, number: int, text: str | None = None, **where: str) -> Note:
    return await bench.pipeline.add_memory(note_request(text or numbered_fact(number), **where), turn(number))


async def now(bench: SynthesisHarness, note: Note) -> Note:
    return (await bench.repository.get(note.app_id, (note.id,)))[note.id]


# -- the full path ----------------------------------------------------------------------------


async def test_a_conversation_that_resembles_nothing_becomes_an_active_note(bench: SynthesisHarness) -> None:
    note = await add(bench, 1)

    assert (note.status, note.status_reason, note.chain_id) == ("active", "created", note.id)
    assert (note.app_id, note.user_id, note.task_id) == (APP, USER, "0000000000000001")
    assert numbered_fact(1) in note.memory_note
    assert note.messages == user_messages(numbered_fact(1))
    assert (note.tags, note.keywords) == (("billing", "regions"), ("Orion",))
    assert note.degraded == ()
    await bench.check(facts=[numbered_fact(1)])


async def test_a_note_that_agrees_with_an_older_one_becomes_one_note_with_it(bench: SynthesisHarness) -> None:
    old = await add(bench, 1)

    new = await add(bench, 2)

    (head,) = await bench.heads()
    assert (head.status, head.status_reason) == ("active", "consolidated")
    assert head.id == f"{new.id}-s"
    assert head.sources == (new.id, old.id)
    assert head.chain_id == old.id
    assert head.messages == ()
    assert numbered_fact(1) in head.memory_note
    assert numbered_fact(2) in head.memory_note
    for retired in (await now(bench, old), new):
        assert (retired.status, retired.status_reason, retired.next_id) == ("updated", "consolidated", head.id)
        assert retired.chain_id == old.id
    assert [(one.memory_id, one.operation) for one in new.resolutions] == [(old.id, "UPDATE")]
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_a_successor_has_every_tag_and_keyword_of_its_notes_once_and_sorted(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    words = "wasp ruby oven kiln hinge fjord dusk Cabin zebra yacht vault tulip salad"
    words += " quilt plum moss lamp jazz ivy igloo gnome ember apple north button"
    for number in range(5):
        tags = tuple(words.split()[number * 5 : number * 5 + 5])
        panel.retrieval = SummaryRetrieval(tags=(*tags, "billing"), keywords=("Orion", "orions", tags[0]))
        await add(bench, number)

    (head,) = await bench.heads()
    assert head.tags == tuple(sorted([*words.split(), "billing"], key=str.casefold))
    assert head.keywords == ("fjord", "gnome", "moss", "Orion", "vault", "wasp")


async def test_a_successor_ends_with_the_topics_of_similar_notes_that_stay_apart_and_is_not_found_by_them(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    panel.rewrite = lambda text: f"## Related Topics\nbilling, harbours\n\n{text}"
    panel.retrieval = SummaryRetrieval(tags=("billing", "ferries"))
    apart = await add(bench, 1)
    panel.retrieval = SummaryRetrieval(tags=("billing",))
    panel.verdict = lambda _: "SKIP"
    await add(bench, 2)
    panel.verdict = lambda note: "SKIP" if note.id == apart.id else "UPDATE"

    await add(bench, 3)

    head = next(note for note in await bench.heads() if note.id != apart.id)
    assert head.memory_note.count("Related Topics") == 1
    assert head.memory_note.endswith("Related Topics: ferries, harbours")
    assert [hit.metadata.id for hit in await bench.search.query(APP, "ferries", score_threshold=0)] == [apart.id]
    # A successor of the successor has these topics, too, until they are its own.
    panel.rewrite = lambda text: text
    panel.retrieval = SummaryRetrieval(tags=("harbours",))
    await add(bench, 4)
    (last,) = (note for note in await bench.heads() if note.id != apart.id)
    assert last.memory_note.endswith("Related Topics: ferries")


@pytest.mark.parametrize(
    ("texts", "complexity"),
    [
        (("The parcel came.",), 1),
        (("Where is it? When does it come?",), 2),
        (("Order 1.", "Order 2.", "Order 3.", "Order 4.", "Order 5.", "Order 6."), 3),
        (tuple(f"Where is order {number}? Send it on." for number in range(6)), 5),
    ],
)
async def test_how_complex_a_conversation_is_is_counted(
    bench: SynthesisHarness, texts: tuple[str, ...], complexity: int
) -> None:
    note = await bench.pipeline.add_memory(note_request(*texts), turn(1))
    short = await bench.pipeline.add_agent_memory(agent_note_request(*texts), turn(2))

    assert (note.conversation_complexity, short.conversation_complexity) == (complexity, complexity)


async def test_the_complexity_that_a_model_gives_is_kept_and_a_successor_has_the_highest(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    panel.metadata = SummaryMetadata.model_validate({"complexity": "4 of 5"})
    assert (await add(bench, 1)).conversation_complexity == 4
    panel.metadata = SummaryMetadata.model_validate({"complexity": 9})

    assert (await add(bench, 2)).conversation_complexity == 1

    (head,) = await bench.heads()
    assert head.conversation_complexity == 4


async def test_a_note_says_how_long_its_vector_is(bench: SynthesisHarness) -> None:
    embedder = knowledge_of(bench.store).embedder
    assert embedder is not None

    note = await add(bench, 1)

    assert note.embedding_dimensions == embedder.dimension
    assert (await now(bench, note)).embedding_dimensions == embedder.dimension
    without = await bench.repository.commit(APP, fresh=(NewNote(note_of("note-9", version=0), None),))
    assert isinstance(without, CommittedNotes)
    assert without.notes["note-9"].embedding_dimensions is None


async def test_tags_beyond_the_limit_are_those_of_the_oldest_note_and_the_outcome_says_so(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    old = await add(bench, 1)
    many = tuple(f"tag {number:03}" for number in range(MOST_LABELS))
    crowded = old.model_copy(update={"id": "note-0", "chain_id": "note-0", "task_id": None, "tags": many, "version": 0})
    embedder = knowledge_of(bench.store).embedder
    assert embedder is not None
    vector = await embed_note(embedder, old.memory_note)
    await bench.repository.erase(APP, (old.id,))
    await bench.repository.commit(APP, fresh=(NewNote(crowded, vector),))
    panel.retrieval = SummaryRetrieval(tags=("zebra",))

    new = await add(bench, 2)

    (head,) = await bench.heads()
    assert len(head.tags) == MOST_LABELS
    assert "zebra" in head.tags
    sentence = f"tags: 1 of the oldest were left out of the successor, which has {MOST_LABELS}"
    assert sentence in new.degraded
    assert sentence in cast("list[str]", task_result(new)["degraded"])


async def test_a_note_that_contradicts_an_older_one_takes_its_place_by_itself(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    old = await add(bench, 1)
    panel.verdict = lambda _: "DELETE"

    new = await add(bench, 2)

    assert (new.status, new.status_reason, new.sources, new.chain_id) == ("active", "created", (old.id,), old.id)
    gone = await now(bench, old)
    assert (gone.status, gone.status_reason, gone.next_id) == ("deleted", "contradicted", new.id)
    assert panel.calls["consolidate"] == 0
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_what_is_skipped_is_touched_and_both_notes_stand(bench: SynthesisHarness, panel: ScriptedAgents) -> None:
    old = await add(bench, 1)
    panel.verdict = lambda _: "SKIP"

    new = await add(bench, 2)

    touched = await now(bench, old)
    assert (touched.status, touched.next_id) == ("active", None)
    assert touched.updated_at > old.updated_at
    assert (new.status, new.sources, [link.memory_id for link in new.links]) == ("active", (), [old.id])
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])


async def test_a_link_has_its_scores_and_the_kind_of_relationship(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    old = await add(bench, 1)
    panel.verdict = lambda _: "SKIP"

    (link,) = (await add(bench, 2)).links

    assert link.similarity_score is not None
    assert link.composite_score is not None
    assert link.memory_id == old.id
    assert link.similarity_score < link.composite_score <= 1.2 * link.similarity_score
    assert (link.link_strength, link.relationship_type) == (link.composite_score, "near_duplicate")


async def test_links_are_sorted_by_their_strength_and_a_successor_has_those_to_its_sources(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    panel.verdict = lambda _: "SKIP"
    olds = [await add(bench, number) for number in (1, 2, 3)]
    panel.verdict = lambda note: "UPDATE" if note.id == olds[1].id else "SKIP"

    new = await add(bench, 4)

    strengths = [link.link_strength or 0 for link in new.links]
    assert {link.memory_id for link in new.links} == {note.id for note in olds}
    assert strengths == sorted(strengths, reverse=True)
    (successor,) = (note for note in await bench.heads() if note.id == f"{new.id}-s")
    (own,) = (link for link in new.links if link.memory_id == olds[1].id)
    assert successor.links == (own.model_copy(update={"relationship_type": "source"}),)


@pytest.mark.parametrize(
    ("changes", "similarity", "kind"),
    [
        ({"tags": ("Apples",)}, 0.95, "near_duplicate"),
        ({"tags": ("apples",), "session_id": "s1"}, 0.9, "same_topic"),
        ({"keywords": ("APPLES!",)}, 0.9, "same_topic"),
        ({"session_id": "s1"}, 0.9, "same_session"),
        ({"session_id": "s2"}, 0.9, "similar"),
        ({}, 0.9, "similar"),
    ],
)
def test_the_kind_of_a_relationship_follows_from_similarity_topics_and_session(
    changes: dict[str, object], similarity: float, kind: str
) -> None:
    note = note_of("note-2", tags=("apples",), session_id="s1")

    assert relationship_of(note, note_of("note-1", **changes), similarity) == kind


async def test_memories_of_agents_are_linked_as_those_of_users_are(bench: SynthesisHarness) -> None:
    first = await bench.pipeline.add_agent_memory(agent_note_request(numbered_fact(1)), turn(1))
    await bench.pipeline.add_agent_memory(agent_note_request(OTHER), turn(2))
    await bench.pipeline.add_agent_memory(agent_note_request(numbered_fact(2), user_id="bob"), turn(3))

    second = await bench.pipeline.add_agent_memory(agent_note_request(numbered_fact(4)), turn(4))

    (link,) = second.links
    assert (link.memory_id, link.link_strength) == (first.id, link.composite_score)
    assert (await now(bench, second)).links == second.links
    assert await now(bench, first) == first


async def test_one_note_may_update_delete_and_skip_at_once(bench: SynthesisHarness, panel: ScriptedAgents) -> None:
    said: dict[str, Verdict] = {}
    panel.verdict = lambda note: said.get(note.id, "SKIP")
    olds = [await add(bench, number) for number in (1, 2, 3)]
    said |= {olds[0].id: "UPDATE", olds[1].id: "DELETE"}

    new = await add(bench, 4)

    updated, deleted, skipped = [await now(bench, old) for old in olds]
    heads = {note.id: note for note in await bench.heads()}
    successor = heads[f"{new.id}-s"]
    assert heads.keys() == {successor.id, skipped.id}
    assert successor.sources == (new.id, updated.id, deleted.id)
    assert successor.chain_id == olds[0].id
    assert (updated.status, deleted.status, deleted.next_id) == ("updated", "deleted", successor.id)
    assert numbered_fact(2) not in successor.memory_note
    await bench.check(facts=[numbered_fact(number) for number in (1, 2, 3, 4)])


async def test_two_chains_come_together_in_the_older_one(bench: SynthesisHarness, panel: ScriptedAgents) -> None:
    panel.verdict = lambda _: "SKIP"
    olds = [await add(bench, number) for number in (1, 2)]
    panel.verdict = lambda _: "UPDATE"

    await add(bench, 3)

    (head,) = await bench.heads()
    assert head.chain_id == olds[0].id
    assert {(await now(bench, old)).chain_id for old in olds} == {olds[0].id}
    await bench.check(facts=[numbered_fact(1), numbered_fact(2), numbered_fact(3)])


@pytest.mark.parametrize("where", [{"user_id": "bob"}, {"app_id": "sales"}, {"session_id": "monday"}])
async def test_notes_of_other_apps_users_and_sessions_are_not_touched(
    bench: SynthesisHarness, where: dict[str, str]
) -> None:
    old = await add(bench, 1)

    new = await add(bench, 2, **where)

    assert (new.status, new.links) == ("active", ())
    assert await now(bench, old) == old


async def test_a_note_of_a_session_is_settled_with_those_of_the_session(bench: SynthesisHarness) -> None:
    await add(bench, 1, session_id="monday")

    await add(bench, 2, session_id="monday")

    (head,) = await bench.heads()
    assert head.session_id == "monday"


async def test_what_comes_together_from_several_sessions_is_of_none(bench: SynthesisHarness) -> None:
    await add(bench, 1, session_id="monday")

    await add(bench, 2)

    (head,) = await bench.heads()
    assert head.session_id is None


async def test_a_task_that_is_repeated_finds_its_note_and_calls_no_model(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    await add(bench, 1)
    first = await add(bench, 2)
    paid = panel.calls.copy()

    again = await add(bench, 2)

    assert again == first
    assert panel.calls == paid
    assert len(await bench.notes()) == 3


async def test_the_result_of_a_task_has_ids_counts_and_the_report_of_its_consolidation(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    await add(bench, 1)

    panel.report = ConsolidationReport(
        memories_merged=99, new_information_added="medium", deduplication_count=3, notes="The region changed."
    )

    result = await bench.pipeline.do(note_request(numbered_fact(2)), turn(2))

    assert result == {
        "memory_id": "note-0000000000000002",
        "status": "updated",
        "operations": {"CREATE": 0, "UPDATE": 1, "DELETE": 0, "SKIP": 0},
        "successor_id": "note-0000000000000002-s",
        "consolidation": {
            "memories_merged": 2,
            "new_information_added": "medium",
            "deduplication_count": 3,
            "quality_check": "pass",
            "notes": "The region changed.",
        },
        "degraded": [],
    }
    assert result == await bench.pipeline.do(note_request(numbered_fact(2)), turn(2))
    (head,) = await bench.heads()
    assert head.consolidation is not None
    assert head.consolidation.model_dump() == result["consolidation"]


async def test_a_text_of_signs_alone_is_stored(bench: SynthesisHarness, panel: ScriptedAgents) -> None:
    note = await add(bench, 1, "!!! ??? ...")

    assert note.status == "active"
    assert note.messages[0].content == "!!! ??? ..."


@pytest.mark.parametrize("text", ["הפגישה נדחתה ליום שלישי.", "请把账单寄到上海办公室。", "🦓" * 3])
async def test_every_script_is_kept_as_it_was_said(bench: SynthesisHarness, text: str) -> None:
    note = await add(bench, 1, text)

    assert text in note.memory_note
    await bench.check(facts=[text])


# -- the other paths --------------------------------------------------------------------------


async def test_a_memory_of_an_agent_takes_one_call_and_settles_nothing(
    bench: SynthesisHarness, panel: ScriptedAgents
) -> None:
    old = await add(bench, 1)
    panel.calls.clear()

    note = await bench.pipeline.add_agent_memory(agent_note_request(numbered_fact(2)), turn(2))

    assert (note.kind, note.status, note.resolutions) == ("agent", "active", ())
    assert dict(panel.calls) == {"fast_summary": 1}
    assert await now(bench, old) == old
    await bench.check(facts=[numbered_fact(1), numbered_fact(2)])
    assert await bench.pipeline.add_agent_memory(agent_note_request(numbered_fact(2)), turn(2)) == note


async def test_a_summary_is_told_and_not_stored(bench: SynthesisHarness, panel: ScriptedAgents) -> None:
    request = SummarizeTask(app_id=APP, user_id=USER, messages=user_messages(numbered_fact(1), numbered_fact(2)))

    fast = await bench.pipeline.summarize(request)
    full = await bench.pipeline.summarize(request.model_copy(update={"mode": "full"}))

    assert numbered_fact(2) in fast.summary
    assert (fast.mode, full.mode, full.tags, full.offline) == ("fast", "full", ("billing", "regions"), False)
    assert numbered_fact(2) in full.summary
    assert await bench.notes() == []


# -- queries ----------------------------------------------------------------------------------

QUESTION = "In which region of the Orion cluster does the billing service of team Falcon run?"


async def test_a_query_answers_the_notes_that_stand_best_first(bench: SynthesisHarness) -> None:
    await add(bench, 1)
    await add(bench, 2)
    await add(bench, 3, OTHER)

    hit, *others = await bench.search.query(APP, QUESTION)

    assert all(other.composite_score < hit.composite_score for other in others)
    assert (hit.rank, hit.metadata.status, hit.flagged) == (1, "active", False)
    assert numbered_fact(2) in hit.memory_note
    assert hit.composite_score >= hit.similarity_score


@pytest.mark.parametrize(
    ("recall", "statuses"),
    [
        ("current", {"active"}),
        ("flagged", {"active", "conflict_pending"}),
        ("all", {"active", "conflict_pending", "updated", "deleted"}),
    ],
)
async def test_the_recall_policy_says_of_which_notes_a_query_answers(
    bench: SynthesisHarness, recall: Recall, statuses: set[str]
) -> None:
    await add(bench, 1)
    await add(bench, 2)
    for number, status in ((3, "conflict_pending"), (4, "deleted")):
        note = (await bench.heads())[0].model_copy(
            update={"id": f"note-{number}", "status": status, "task_id": None, "chain_id": f"note-{number}"}
        )
        (near,) = await bench.search.query(APP, QUESTION)
        vector = await bench.pipeline._resolver.embed(near.memory_note)
        assert isinstance(await bench.repository.commit(APP, fresh=(NewNote(note, vector),)), CommittedNotes)

    hits = await bench.search.query(APP, QUESTION, recall=recall)

    assert {hit.metadata.status for hit in hits} == statuses
    assert all(hit.flagged == (hit.metadata.status != "active") for hit in hits)


async def test_a_query_tells_nothing_of_other_apps_and_users(bench: SynthesisHarness) -> None:
    await add(bench, 1)

    assert await bench.search.query("sales", QUESTION) == []
    assert await bench.search.query(APP, QUESTION, user_id="bob") == []
    assert len(await bench.search.query(APP, QUESTION, user_id=USER)) == 1


async def test_thresholds_and_numbers_narrow_a_query(bench: SynthesisHarness, panel: ScriptedAgents) -> None:
    panel.verdict = lambda _: "SKIP"
    for number in (1, 2, 3):
        await add(bench, number)

    assert len(await bench.search.query(APP, QUESTION)) == 3
    assert len(await bench.search.query(APP, QUESTION, n=2)) == 2
    assert await bench.search.query(APP, QUESTION, recall_threshold=1.0) == []
    assert await bench.search.query(APP, QUESTION, score_threshold=2) == []


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("app_id", {"app_id": ""}),
        ("query", {"query": "  "}),
        ("user_id", {"user_id": "a{b}"}),
        ("session_id", {"session_id": "\n"}),
        ("n_results", {"n": 0}),
        ("recall", {"recall": "everything"}),
        ("score_threshold", {"score_threshold": -1}),
        ("recall_threshold", {"recall_threshold": float("nan")}),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(
    bench: SynthesisHarness, field: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(InvalidError) as refused:
        await bench.search.query(**({"app_id": APP, "query": QUESTION} | arguments))  # type: ignore[arg-type]  # on purpose

    assert refused.value.field == field


# -- deciding, without a server ---------------------------------------------------------------


def note_of(id_: str, **fields: object) -> Note:
    base = {"id": id_, "app_id": APP, "user_id": USER, "memory_note": id_, "created_at": NOW, "updated_at": NOW}
    return Note.model_validate({"chain_id": id_, "version": 1} | base | fields)


def verdict(id_: str, operation: str) -> Resolution:
    said = {"memory_id": id_, "operation": operation, "confidence_score": 1, "reasoning": "so", "decided_by": "m"}
    return Resolution.model_validate(said)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ([("a", "UPDATE"), ("b", "DELETE")], ["UPDATE", "DELETE"]),
        ([("b", "DELETE"), ("a", "UPDATE")], ["UPDATE", "DELETE"]),
        ([("a", "UPDATE")], ["UPDATE", "SKIP"]),
        ([("a", "UPDATE"), ("a", "DELETE"), ("b", "DELETE")], ["SKIP", "DELETE"]),
        ([("a", "UPDATE"), ("a", "UPDATE"), ("b", "SKIP")], ["UPDATE", "SKIP"]),
        ([("of another user", "DELETE"), ("b", "UPDATE")], ["SKIP", "UPDATE"]),
        ([], ["SKIP", "SKIP"]),
    ],
)
def test_verdicts_that_are_missing_contradict_or_name_others_spare_the_note(
    given_: list[tuple[str, str]], expected: list[str]
) -> None:
    linked = [note_of("a"), note_of("b")]

    resolutions = complete_resolutions(linked, [verdict(*one) for one in given_])

    assert [one.memory_id for one in resolutions] == ["a", "b"]
    assert [one.operation for one in resolutions] == expected


def test_without_a_successor_updates_are_skips_and_say_why() -> None:
    spared, deleted = skip_updates([verdict("a", "UPDATE"), verdict("b", "DELETE")], "it was rejected")

    assert (spared.operation, spared.decided_by, spared.reasoning) == ("SKIP", "fallback", "it was rejected")
    assert deleted == verdict("b", "DELETE")


def test_the_oldest_chain_is_that_of_the_first_task() -> None:
    assert oldest_chain([note_of("note-2"), note_of("note-3", chain_id="note-1")]) == "note-1"
    assert oldest_chain([note_of("note-2", chain_id="")]) == "note-2"


def test_nothing_is_retired_without_its_heir_in_the_same_step() -> None:
    new, old = note_of("note-2", status="conflict_pending"), note_of("note-1")
    heir = note_of("note-2-s")

    step = plan_commit(new, [old], [verdict("note-1", "UPDATE")], successor=NewNote(heir, None))

    assert [fresh.note.id for fresh in step.fresh] == ["note-2-s"]
    assert {change.note.id: change.next_id for change in step.changes} == {"note-2": "note-2-s", "note-1": "note-2-s"}


def test_a_result_counts_what_was_decided() -> None:
    note = note_of("note-9", resolutions=(verdict("a", "SKIP"), verdict("b", "SKIP"), verdict("c", "DELETE")))

    assert task_result(note)["operations"] == {"CREATE": 0, "UPDATE": 0, "DELETE": 1, "SKIP": 2}
    assert cast("dict[str, int]", task_result(note_of("note-8"))["operations"])["CREATE"] == 1


# -- any verdicts -----------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["UPDATE", "DELETE", "SKIP"]), min_size=8, max_size=24))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_is_decided_every_message_is_reached_from_a_note_that_stands(verdicts: list[Verdict]) -> None:
    async with fake_hub() as hub:
        panel = ScriptedAgents()
        bench = make_synthesis_harness(hub.store("desk"), panel)
        left = list(verdicts)
        panel.verdict = lambda _: left.pop() if left else "UPDATE"

        for number in range(7):
            await add(bench, number)

        await bench.check(facts=[numbered_fact(number) for number in range(7)])


async def test_what_was_settled_is_logged_with_its_task_and_without_its_text(
    bench: SynthesisHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="sharedmem.synthesis"):
        first = await add(bench, 1)
        second = await add(bench, 2)

    settled = [vars(record) for record in caplog.records if record.message == "note settled"]
    assert [(fields["note_id"], fields["task_id"]) for fields in settled][-1] == (second.id, second.task_id)
    assert all(fields["latency_ms"] > 0 for fields in settled)
    committed = {id_ for record in caplog.records for id_ in vars(record).get("notes", ())}
    assert {first.id, second.id} <= committed
    assert all(numbered_fact(1) not in JsonFormatter().format(record) for record in caplog.records)
