"""Conversations are lists: random calls by two clients, with repeats and stale revisions, compared with a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from redis import Redis
from support import shared_models
from support.example_budget import example_count
from support.shared_models import Clients, check_that_it_notices, run_machine

from sharedmem import NotFoundError, VersionConflictError
from sharedmem.clock import new_id
from sharedmem.sync import Conversations, Hub

clients = shared_models.clients
NAMES = st.sampled_from(["a", "b", "c", "d"])
CLIENTS = st.integers(0, 1)
# UUIDs that end alike share a field of the hash of ids.
IDS = st.sampled_from(
    [f"e{number}" for number in range(4)] + [f"000{number}0000-aaaa-4aaa-8aaa-aaaaaaaaaaaa" for number in range(4)]
)
BATCHES = st.lists(st.tuples(st.none() | IDS, st.integers(0, 9)), max_size=4)
GUESSES = st.sampled_from(["none", "current", "old"])
FIELDS = st.dictionaries(st.sampled_from(["f", "g"]), st.none() | st.integers(0, 3), max_size=2)
Entries = list[tuple[str | None, int]]


@dataclass
class Talk:
    """What a conversation holds: entries with the ids that were given, the state, and the last revision."""

    entries: Entries = field(default_factory=list)
    state: dict[str, int] = field(default_factory=dict)
    revision: int = 0

    def added(self, batch: Entries) -> Entries:
        """The entries of a batch that are new."""
        known, new = {id_ for id_, _ in self.entries}, []
        for id_, value in batch:
            if id_ is None or id_ not in known:
                new.append((id_, value))
                known.add(id_)
        return new

    def patch(self, fields: dict[str, int | None]) -> None:
        """Set fields; None removes one."""
        merged = self.state | fields
        self.state = {name: value for name, value in merged.items() if value is not None}


def split(batch: Entries) -> tuple[list[str] | None, list[int]]:
    """The ids and values of a batch; ids are given for all or for none."""
    ids = [id_ for id_, _ in batch if id_ is not None]
    return (ids if len(ids) == len(batch) and ids else None), [value for _, value in batch]


def pair_up(ids: list[str] | None, values: list[int]) -> Entries:
    """The inverse of `split`."""
    return [(None if ids is None else ids[at], value) for at, value in enumerate(values)]


class ConversationMachine(RuleBasedStateMachine):
    """Two hubs work on four conversations; each answer is the model's."""

    hubs: list[Hub]
    bare: Redis

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{new_id(8)}"
        self.talks: list[Conversations] = [hub.store(self.namespace).conversations for hub in self.hubs]
        self.model: dict[str, Talk] = {}

    def expected(self, name: str, guess: str) -> tuple[int | None, bool]:
        """(the condition to give, whether it holds)."""
        current = self.model[name].revision if name in self.model else 0
        return {"none": (None, True), "current": (current, True), "old": (current + 1, False)}[guess]

    def changed(self, name: str, call: Callable[[], Any], *, holds: bool) -> Any:
        """The answer of a change of an existing conversation; None if it was refused."""
        if not holds:
            with pytest.raises(VersionConflictError):
                call()
            return None
        if name not in self.model:
            with pytest.raises(NotFoundError):
                call()
            return None
        return call()

    @rule(client=CLIENTS, name=NAMES, batch=BATCHES, guess=GUESSES, fields=FIELDS, times=st.integers(1, 2))
    def append(self, client: int, name: str, batch: Entries, guess: str, fields: dict[str, Any], times: int) -> None:
        ids, values = split(batch)
        batch = pair_up(ids, values)
        talk = self.model.get(name, Talk())
        new = talk.added(batch)
        condition, holds = self.expected(name, guess)
        call = partial(
            self.talks[client].append, name, values, entry_ids=ids, if_revision=condition, state=fields or None
        )
        if batch and not new:
            assert call().added == 0
            return
        if not holds:
            with pytest.raises(VersionConflictError):
                call()
            return
        change = call()
        assert change.added == len(new)
        assert change.revision > talk.revision or not batch
        talk.entries += new
        talk.patch(fields)
        talk.revision = change.revision
        self.model[name] = talk
        if ids and times == 2:
            # The caller lost the reply, and repeats the batch with its old condition.
            again = self.talks[1 - client].append(name, values, entry_ids=ids, if_revision=condition, state={"f": 9})
            assert (again.added, again.revision) == (0, change.revision)

    @rule(client=CLIENTS, name=NAMES, count=st.integers(1, 4), guess=GUESSES)
    def pop(self, client: int, name: str, count: int, guess: str) -> None:
        condition, holds = self.expected(name, guess)
        call = partial(self.talks[client].pop, name, count, if_revision=condition)
        if holds and name not in self.model:
            assert call().entries == []
            return
        popped = self.changed(name, call, holds=holds)
        if popped is not None:
            talk = self.model[name]
            assert [entry.value for entry in popped.entries] == [value for _, value in talk.entries[-count:]]
            talk.entries = talk.entries[:-count]
            talk.revision = popped.revision

    @rule(client=CLIENTS, name=NAMES, batch=BATCHES, place=st.integers(-1, 6), guess=GUESSES)
    def replace_suffix(self, client: int, name: str, batch: Entries, place: int, guess: str) -> None:
        ids, values = split(batch)
        talk = self.model.get(name, Talk())
        keep = min(place + 1, len(talk.entries))
        after = self.talks[client].read(name, limit=keep).cursor if keep else None
        condition, holds = self.expected(name, guess)
        call = partial(self.talks[client].replace_suffix, name, after, values, entry_ids=ids, if_revision=condition)
        change = self.changed(name, call, holds=holds)
        if change is not None:
            talk.entries = talk.entries[:keep]
            new = talk.added(pair_up(ids, values))
            assert change.added == len(new)
            talk.entries += new
            talk.revision = change.revision

    @rule(client=CLIENTS, name=NAMES, new_name=NAMES, place=st.integers(-1, 6))
    def fork(self, client: int, name: str, new_name: str, place: int) -> None:
        parent = self.model.get(name, Talk())
        keep = min(place + 1, len(parent.entries)) or len(parent.entries)
        at = self.talks[client].read(name, limit=keep).cursor if place >= 0 and keep else None
        kept = keep if at else len(parent.entries)
        call = partial(self.talks[client].fork, name, new_name, at=at)
        change = self.changed(name, call, holds=new_name not in self.model)
        if change is not None:
            self.model[new_name] = Talk(parent.entries[:kept], dict(parent.state), change.revision)

    @rule(client=CLIENTS, name=NAMES, guess=GUESSES)
    def delete(self, client: int, name: str, guess: str) -> None:
        condition, holds = self.expected(name, guess)
        call = partial(self.talks[client].delete, name, if_revision=condition)
        if holds and name not in self.model:
            assert not call()
        elif self.changed(name, call, holds=holds):
            del self.model[name]

    @rule(client=CLIENTS, name=NAMES)
    def clear(self, client: int, name: str) -> None:
        change = self.changed(name, partial(self.talks[client].clear, name), holds=True)
        if change is not None:
            self.model[name].entries = []
            self.model[name].revision = change.revision

    @rule(client=CLIENTS, name=NAMES, id_=IDS)
    def find(self, client: int, name: str, id_: str) -> None:
        talk = self.model.get(name, Talk())
        places = [place for place, entry in enumerate(talk.entries) if entry[0] == id_]
        call = partial(self.talks[client].read, name, around=id_, limit=1)
        if name in self.model and not places:
            with pytest.raises(NotFoundError):
                call()
        elif places:
            page = call()
            assert (page.first, page.entries[0].id) == (places[0], id_)

    @invariant()
    def every_conversation_reads_as_the_model_says(self) -> None:
        listed = {found.key.rpartition(":")[2]: found for found in self.talks[0].list().conversations}
        assert listed.keys() == self.model.keys()
        for name, talk in self.model.items():
            page = self.talks[1].read(name)
            assert [entry.value for entry in page.entries] == [value for _, value in talk.entries]
            ids = [entry.id if entry.id != entry.cursor else None for entry in page.entries]
            assert ids == [id_ for id_, _ in talk.entries]
            cursors = [entry.cursor for entry in page.entries]
            assert cursors == sorted(set(cursors))
            assert (page.revision, page.length) == (talk.revision, len(talk.entries))
            assert self.talks[0].state(name).fields == talk.state

    def teardown(self) -> None:
        for name in self.model:
            self.talks[0].delete(name)
        left = self.bare.keys(f"*{{{self.namespace}}}:$conversation*")
        assert left == [], "what no conversation shares any more is deleted"
        self.hubs[0].store(self.namespace).clear()


def test_conversations_are_lists_that_clients_share(clients: Clients) -> None:
    run_machine(ConversationMachine, clients, max_examples=example_count(10, thorough=100), stateful_step_count=25)


def test_the_model_notices_a_wrong_answer(clients: Clients) -> None:
    class Forgetful(ConversationMachine):
        @rule(client=CLIENTS, name=NAMES)
        def delete_unseen(self, client: int, name: str) -> None:
            self.talks[client].delete(name)  # and the model does not know

    check_that_it_notices(Forgetful, clients)
