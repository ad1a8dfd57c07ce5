"""Random calls of the graph, asked at random pairs of times, and compared with a list of all that was said."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support import example_budget
from support.graph_claims import ONE_TARGET
from support.graph_oracle import GraphOracle, Told
from support.graph_rows import day, stamp
from support.scripted_extractor import ScriptedExtractor, ScriptLine

from sharedmem import ConflictError, Hub, InvalidError, NotFoundError, Settings
from sharedmem.clock import new_id
from sharedmem.graph.names import entity_id, normalize_name
from sharedmem.graph.records import LATEST, OPEN, UNKNOWN_START, to_stamp
from sharedmem.models import Episode, Fact, RelationType
from sharedmem.testing import fake_hub

T = TypeVar("T")
GROUP, OTHER = "model:a", "model:a/b"
RELATIONS = [
    RelationType(name="sits_on", functional=True, inverse_functional=True),
    RelationType(name="leads", inverse_functional=True),
]
NAMES = ("Anna", "Boris", "Chloe", "Dmitri")
NAME_OF = {entity_id(normalize_name(name)): name for name in NAMES}
WORDS = ("red", "green")
TYPES = ("lives_in", "likes", "knows", "married_to", "sits_on", "leads", "@tier")

some_name = st.sampled_from(NAMES)
some_day = st.integers(0, 6)
some_recorded = st.none() | st.integers(1, 6)
some_episode = st.sampled_from([f"e{number}" for number in range(8)])


@st.composite
def some_line(draw: st.DrawFn, *, ends: bool = True) -> ScriptLine:
    type_ = draw(st.sampled_from(TYPES))
    other = draw(st.sampled_from(WORDS) if type_.startswith("@") else some_name)
    start = draw(st.none() | some_day)
    if ends and draw(st.integers(0, 3)) == 0:
        is_whole = type_ in ONE_TARGET and draw(st.booleans())
        return ScriptLine(draw(some_name), type_, "" if is_whole else other, draw(some_day), says="ends")
    end = draw(st.none() | st.integers((-1 if start is None else start) + 1, 8))
    return ScriptLine(draw(some_name), type_, other, start, end)


class GraphMachine(RuleBasedStateMachine):
    """What is told to a graph is told to the oracle, which is asked the same questions."""

    hub: Hub
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{new_id(8)}"
        self.graph = self.hub.store(self.namespace).graph.using(relations=RELATIONS, extractor=ScriptedExtractor())
        self.oracle = GraphOracle()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def teardown(self) -> None:
        self.run(self.hub.store(self.namespace).clear())

    @initialize()
    def tell_another_reader(self) -> None:
        """Another group of the same names, which nothing here may touch."""
        self.run(self.graph.add_relationship("Anna", "lives_in", "Boris", group_id=OTHER, valid_from=day(0)))

    # -- telling

    @rule(id_=some_episode, lines=st.lists(some_line(), min_size=1, max_size=3), recorded=some_recorded)
    def tell(self, id_: str, lines: list[ScriptLine], recorded: int | None) -> None:
        content = "\n".join(map(str, lines))
        recorded = self._sure(id_, recorded)
        told = self._episode(id_, content, recorded)
        if self.oracle.contents.get(id_, content) != content:
            with pytest.raises(ConflictError, match="another content"):
                self.run(self.graph.add_episodes([told]))
            return
        (result,) = self.run(self.graph.add_episodes([told]))
        assert result.repeated == (id_ in self.oracle.contents)
        if not result.repeated:
            assert result.warnings == ()
            self._hear(id_, lines, content, recorded)

    @rule(id_=some_episode)
    @precondition(lambda self: self.oracle.contents)
    def tell_again(self, id_: str) -> None:
        content = self.oracle.contents.get(id_)
        if content is not None:
            assert self.run(self.graph.add_episodes([self._episode(id_, content, 3)]))[0].repeated

    @rule(told=st.dictionaries(some_episode, some_line(), min_size=2, max_size=4), recorded=some_recorded)
    def tell_many(self, told: dict[str, ScriptLine], recorded: int | None) -> None:
        fresh = {id_: line for id_, line in told.items() if id_ not in self.oracle.contents}
        recorded = max((self._sure(id_, recorded) or 0 for id_ in fresh), default=0) or None
        episodes = [self._episode(id_, str(line), recorded) for id_, line in fresh.items()]
        for result in self.run(self.graph.add_episodes([*episodes, *episodes[:1]]))[: len(fresh)]:
            self._hear(result.id, [fresh[result.id]], str(fresh[result.id]), recorded)

    @rule(line=some_line(ends=False), recorded=some_recorded, id_=st.none() | some_episode)
    def relate(self, line: ScriptLine, recorded: int | None, id_: str | None) -> None:
        if line.type.startswith("@"):
            return
        adds = id_ in self.oracle.episodes
        id_ = id_ or f"r{new_id(6)}"
        recorded = self._sure(id_, recorded)
        before = self._recorded_of(id_) if adds else 0
        call = self.graph.add_relationship(
            *(line.source, line.type, line.target),
            group_id=GROUP,
            valid_from="unknown" if line.start is None else day(line.start),
            valid_to=None if line.end is None else day(line.end),
            recorded_at=None if recorded is None else day(recorded),
            episode=id_,
        )
        if id_ in self.oracle.undone:
            with pytest.raises(InvalidError, match="was undone"):
                self.run(call)
            return
        self.run(call)
        self.oracle.add(id_, [line], recorded=self._recorded_of(id_) if recorded is None else stamp(recorded))
        assert not adds or self._recorded_of(id_) == before

    @rule(name=some_name, at=some_day, data=st.data())
    def invalidate(self, name: str, at: int, data: st.DataObject) -> None:
        if self.oracle.end_of(name) not in self.oracle.names:
            return
        open_ = [
            fact
            for fact in self.run(self.graph.facts(name, group_id=GROUP))
            if fact.valid_from is None or fact.valid_from < day(at)
        ]
        if not open_:
            return
        fact = data.draw(st.sampled_from(open_), label="fact")
        id_ = f"i{new_id(6)}"
        self.run(self.graph.invalidate(fact.id, group_id=GROUP, at=day(at), episode=id_))
        source, type_, other = self._told(fact)
        line = ScriptLine(source, type_, other.strip('"'), at, says="ends")
        self.oracle.add(id_, [line], recorded=self._recorded_of(id_))

    # -- taking back

    @rule(data=st.data())
    @precondition(lambda self: self.oracle.episodes)
    def undo(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.oracle.episodes)), label="episode")
        result = self.run(self.graph.undo(id_, group_id=GROUP))
        assert result.repeated == (id_ in self.oracle.undone)
        if not result.repeated:
            assert result.episode.undone_at is not None
            self.oracle.take_back(id_, at=to_stamp("undone_at", result.episode.undone_at))

    @rule(source=some_name, into=some_name)
    def merge(self, source: str, into: str) -> None:
        oracle = self.oracle
        call = self.graph.merge(source, into, group_id=GROUP)
        if not {source, into} <= oracle.names:
            expected: type[Exception] | None = NotFoundError
        elif source == into or (oracle.end_of(into) == source):
            expected = InvalidError
        elif source in oracle.into:
            expected = None if oracle.end_of(source) == oracle.end_of(into) else ConflictError
        else:
            expected = None
        if expected is not None:
            with pytest.raises(expected):
                self.run(call)
            return
        merge = self.run(call)
        assert NAME_OF[merge.source_id] == source
        oracle.into.setdefault(source, oracle.end_of(into))
        oracle.merged.add(source)

    @rule(name=some_name)
    def unmerge(self, name: str) -> None:
        call = self.graph.unmerge(name, group_id=GROUP)
        if name not in self.oracle.merged:
            with pytest.raises((InvalidError, NotFoundError)):
                self.run(call)
            return
        self.run(call)
        self.oracle.into.pop(name, None)

    @rule()
    def delete(self) -> None:
        self.run(self.graph.delete_by_group(GROUP))
        assert self.run(self.graph.groups()) == [OTHER]
        self.oracle = GraphOracle()

    # -- asking

    @rule(world=st.integers(-2, 17).map(lambda half: half / 2), known=st.none() | st.integers(0, 7))
    def ask_for_all(self, world: float, known: int | None) -> None:
        found = self.run(self.graph.as_of(day(world), group_id=GROUP, known_at=None if known is None else day(known)))
        wanted = self.oracle.true_at(stamp(world), LATEST if known is None else stamp(known))
        assert {self._told(fact) for fact in found} == wanted
        assert len(found) == len(wanted)
        assert all(_holds(fact, stamp(world), known) for fact in found)
        (other,) = self.run(self.graph.as_of(day(0), group_id=OTHER))
        assert self._told(other) == ("Anna", "lives_in", "Boris")

    @rule(name=some_name, world=st.integers(-2, 17).map(lambda half: half / 2), known=st.none() | st.integers(0, 7))
    def ask_of_one(self, name: str, world: float, known: int | None) -> None:
        when: dict[str, Any] = {"as_of": day(world), "known_at": None if known is None else day(known)}
        if name not in self.oracle.names:
            with pytest.raises(NotFoundError):
                self.run(self.graph.facts(name, group_id=GROUP, **when))
            return
        moments = stamp(world), LATEST if known is None else stamp(known)
        end = self.oracle.end_of(name)
        wanted = {fact for fact in self.oracle.true_at(*moments) if end in self._ends(fact)}

        facts = self.run(self.graph.facts(name, group_id=GROUP, **when))
        entity = self.run(self.graph.entity(name, group_id=GROUP, **when))
        history = self.run(self.graph.history(name, group_id=GROUP))
        traversal = self.run(self.graph.traverse_from_entities([name], group_id=GROUP, depth=3, **when))

        assert {self._told(fact) for fact in facts} == wanted
        assert {self._told(fact) for fact in history if _holds(fact, stamp(world), known)} == wanted
        assert NAME_OF[entity.id] == end
        tiers = [("tier", other.strip('"')) for _, type_, other in wanted if type_ == "@tier"]
        assert entity.attributes == dict(tiers)
        reached = {NAME_OF[one.entity_id]: one.distance for one in traversal.reached}
        assert reached == self.oracle.distances(name, 3, *moments)
        assert all(len(one.path) == one.distance for one in traversal.reached)

    @rule()
    def count(self) -> None:
        stats = self.run(self.graph.stats(group_id=GROUP))
        oracle = self.oracle
        assert stats.episodes == len(oracle.contents)
        assert stats.entities == len(oracle.names - oracle.into.keys())
        assert stats.merges == len(oracle.merged)
        assert stats.facts == len(oracle.true_at(stamp(1000)))
        told = self.run(self.graph.episodes(group_id=GROUP))
        assert {one.id for one in told if one.undone_at} == oracle.undone & oracle.contents.keys()

    # -- helpers

    def _episode(self, id_: str, content: str, recorded: int | None) -> Episode:
        moment = None if recorded is None else day(recorded)
        return Episode(content=content, group_id=GROUP, id=id_, occurred_at=day(4), recorded_at=moment)

    def _hear(self, id_: str, lines: list[ScriptLine], content: str, recorded: int | None) -> None:
        self.oracle.contents[id_] = content
        # Of an undone statement the id is free again.
        self.oracle.undone.discard(id_)
        heard = self._recorded_of(id_) if recorded is None else stamp(recorded)
        self.oracle.add(id_, lines, recorded=heard)

    def _sure(self, id_: str, recorded: int | None) -> int | None:
        """When something is recorded: of what is added to an existing episode, the time is not kept."""
        return 5 if recorded is None and id_ in self.oracle.episodes else recorded

    def _recorded_of(self, id_: str) -> int:
        episode = self.run(self.graph.get(id_, group_id=GROUP))
        assert isinstance(episode, Episode)
        assert episode.recorded_at is not None
        return to_stamp("recorded_at", episode.recorded_at)

    def _told(self, fact: Fact) -> Told:
        source = NAME_OF[fact.source_id]
        if fact.target_id is None:
            return source, fact.type, f'"{fact.value}"'
        target = NAME_OF[fact.target_id]
        if fact.type in {"knows", "married_to"}:
            source, target = sorted((source, target))
        return source, fact.type, target

    def _ends(self, fact: Told) -> set[str]:
        source, type_, target = fact
        return {source} if type_.startswith("@") else {source, target}


def _holds(fact: Fact, world: int, known: int | None) -> bool:
    start = UNKNOWN_START if fact.valid_from is None else to_stamp("valid_from", fact.valid_from)
    end = OPEN if fact.valid_to is None else to_stamp("valid_to", fact.valid_to)
    superseded = OPEN if fact.superseded_at is None else to_stamp("superseded_at", fact.superseded_at)
    moment = LATEST if known is None else stamp(known)
    return start <= world < end and to_stamp("recorded_at", fact.recorded_at) <= moment < superseded


@contextmanager
def machine_on(hub: Hub, runner: asyncio.Runner) -> Iterator[type[GraphMachine]]:
    yield type("Machine", (GraphMachine,), {"hub": hub, "runner": runner})


def run_machine(machine: type[GraphMachine], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )


def test_on_fakeredis_the_graph_answers_as_the_list_of_what_was_said() -> None:
    with asyncio.Runner() as runner:
        opening = fake_hub(settings=Settings(embedder="hashing", durable_url="none", graph_summary_every=0))
        hub = runner.run(opening.__aenter__())
        try:
            with machine_on(hub, runner) as machine:
                run_machine(machine, examples=example_budget.example_count(40, thorough=80), steps=25)
        finally:
            runner.run(opening.__aexit__(None, None, None))


def test_on_a_real_server_the_graph_answers_as_the_list_of_what_was_said(redis_url: str) -> None:
    with asyncio.Runner() as runner:
        hub = Hub(settings=Settings(redis_url=redis_url, embedder="hashing", durable_url="none", graph_summary_every=0))
        runner.run(hub.__aenter__())
        try:
            with machine_on(hub, runner) as machine:
                run_machine(machine, examples=15, steps=25)
        finally:
            runner.run(hub.close())
