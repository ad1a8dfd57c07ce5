"""The checker of histories: it passes possible ones and finds impossible ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.lincheck import (
    EMPTY,
    Absent,
    Action,
    Append,
    Counted,
    Delete,
    Deleted,
    Emptied,
    Found,
    History,
    Increment,
    Operation,
    Outcome,
    Read,
    Refused,
    State,
    UndecidedError,
    Write,
    Written,
    step,
    violations,
)

# -- the checker of histories ---------------------------------------------------------------------


def op(action: Action, outcome: Outcome | None, span: tuple[int, int | None]) -> Operation:
    return Operation("k", action, span[0], span[1], outcome)


def in_order(*steps: tuple[Action, Outcome | None]) -> list[Operation]:
    """One after the other; a step of unknown outcome is called in its turn and never returns."""
    return [
        op(action, outcome, (10 * turn, 10 * turn + 5 if outcome else None))
        for turn, (action, outcome) in enumerate(steps)
    ]


POSSIBLE = {
    "nothing happened": [],
    "one after the other": in_order(
        (Write("a"), Written(5)),
        (Read(), Found("a", 5)),
        (Write("b", 5), Written(6)),
        (Write("c", 5), Refused(6)),
        (Delete(), Deleted()),
        (Read(), Absent()),
        (Delete(), Absent()),
        (Write("d", 0), Written(7)),
    ),
    "a read beside a write sees the new value before the write returned": [
        op(Write("a"), Written(1), (0, 10)),
        op(Write("b"), Written(2), (20, 90)),
        op(Read(), Found("b", 2), (30, 40)),
    ],
    "a read beside a write sees the old value": [
        op(Write("a"), Written(1), (0, 10)),
        op(Write("b"), Written(2), (20, 90)),
        op(Read(), Found("a", 1), (30, 40)),
    ],
    "the later call came first": [
        op(Write("a"), Written(2), (0, 50)),
        op(Write("b"), Written(1), (10, 40)),
        op(Read(), Found("a", 2), (60, 70)),
    ],
    "a write of unknown outcome took effect": in_order((Write("a"), None), (Read(), Found("a", 9))),
    "a write of unknown outcome took effect late": in_order(
        (Write("a"), None), (Write("b"), Written(1)), (Read(), Found("b", 1)), (Read(), Found("a", 2))
    ),
    "a write of unknown outcome never did": in_order((Write("a"), None), (Read(), Absent()), (Read(), Absent())),
    "an unknown version becomes known by a conditional write over it": in_order(
        (Write("a"), None), (Write("b", 3), Written(4)), (Read(), Found("b", 4))
    ),
    "an unknown version becomes known by a refusal": in_order(
        (Write("a"), None), (Write("b", 0), Refused(3)), (Read(), Found("a", 3))
    ),
    "a refusal that does not name the version": in_order((Write("a"), Written(1)), (Write("b", 0), Refused(None))),
    "a deletion of unknown outcome took effect": in_order(
        (Write("a"), Written(1)), (Delete(), None), (Read(), Absent()), (Write("b"), Written(2))
    ),
    "a read of unknown outcome says nothing": in_order((Write("a"), Written(1)), (Read(), None), (Read(), Found("a"))),
    "increments of unknown outcome, of which one took effect": in_order(
        (Increment(2), Counted(2)),
        (Increment(3), None),
        (Increment(4), None),
        (Read(), Found(6)),
        (Delete(), Deleted()),
    ),
    "an emptying beside a write comes after it": [
        op(Write("a", 0), Written(1), (0, 50)),
        op(Delete(), Emptied(), (10, 60)),
        op(Write("b", 0), Written(2), (70, 80)),
    ],
    "an emptying beside a write comes before it": [
        op(Write("a", 0), Written(1), (0, 50)),
        op(Delete(), Emptied(), (10, 60)),
        op(Read(), Found("a", 1), (70, 80)),
    ],
    "two who append at the same time": [
        op(Append("a"), Counted(2), (0, 50)),
        op(Append("b"), Counted(1), (10, 40)),
        op(Read(), Found(("b", "a")), (60, 70)),
    ],
}

IMPOSSIBLE = {
    "a stale read": in_order((Write("a"), Written(1)), (Write("b"), Written(2)), (Read(), Found("a", 1))),
    "a lost write": in_order((Write("a"), Written(1)), (Read(), Absent())),
    "a value that was never written": in_order((Write("a"), Written(1)), (Read(), Found("z"))),
    "a value under another version": in_order((Write("a"), Written(1)), (Read(), Found("a", 2))),
    "two conditional writes over one version": [
        op(Write("a"), Written(1), (0, 5)),
        op(Write("b", 1), Written(2), (10, 20)),
        op(Write("c", 1), Written(3), (10, 20)),
    ],
    "a false conflict": in_order((Write("a"), Written(1)), (Write("b", 1), Refused(1))),
    "a conflict with one's own lost reply": in_order(
        (Write("a"), Written(1)), (Write("b", 1), Refused(2)), (Read(), Found("b", 2))
    ),
    "a version that falls": in_order((Write("a"), Written(5)), (Write("b"), Written(4))),
    "a version used again after a deletion": in_order(
        (Write("a"), Written(5)), (Delete(), Deleted()), (Write("b"), Written(5))
    ),
    "a write over nothing that found something": in_order((Write("a"), Written(1)), (Write("b", 0), Written(2))),
    "a write of unknown outcome applied twice": in_order(
        (Write("a"), None),
        (Read(), Found("a", 1)),
        (Write("b"), Written(2)),
        (Read(), Found("b", 2)),
        (Read(), Found("a", 3)),
    ),
    "a deletion applied twice": in_order(
        (Write("a"), Written(1)), (Delete(), None), (Read(), Absent()), (Write("b"), Written(2)), (Read(), Absent())
    ),
    "a deleted value that comes back": in_order(
        (Write("a"), Written(1)), (Delete(), Deleted()), (Read(), Found("a", 1))
    ),
    "two readers who disagree on the order": [
        op(Write("a"), Written(1), (0, 100)),
        op(Write("b"), Written(2), (0, 100)),
        op(Read(), Found("b"), (10, 20)),
        op(Read(), Found("a"), (30, 40)),
    ],
    "an unknown version below one that was seen": in_order(
        (Write("a"), Written(5)), (Write("b"), None), (Read(), Found("b", 4))
    ),
    "a deletion that removed nothing where there was a value": in_order((Write("a"), Written(1)), (Delete(), Absent())),
    "a value that outlived an emptying": in_order(
        (Write("a"), Written(1)), (Delete(), Emptied()), (Read(), Found("a", 1))
    ),
    "an increment that counted twice": in_order((Increment(2), Counted(2)), (Increment(3), Counted(8))),
    "an increment that was lost": in_order((Increment(2), Counted(2)), (Increment(3), Counted(3))),
    "an append of unknown outcome applied twice": in_order((Append("a"), None), (Read(), Found(("a", "a")))),
    "an append that changed places": in_order(
        (Append("a"), Counted(1)), (Append("b"), Counted(2)), (Read(), Found(("b", "a")))
    ),
}


@pytest.mark.parametrize("history", POSSIBLE.values(), ids=POSSIBLE)
def test_a_possible_history_passes(history: list[Operation]) -> None:
    assert violations(history) == []


@pytest.mark.parametrize("history", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_history_is_found(history: list[Operation]) -> None:
    (violation,) = violations(history)

    assert violation.stuck_at
    assert "not linearizable" in str(violation)


def test_each_key_is_judged_by_itself() -> None:
    good = Operation("good", Read(), 1, 2, Absent())
    bad = Operation("bad", Read(), 1, 2, Found("z"))

    assert [violation.key for violation in violations([good, bad])] == ["bad"]


class Register:
    """The thing itself, for histories that are right by construction."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.version = 0
        self.highest = 0

    def apply(self, action: Action) -> Outcome:
        match action:
            case Write(value, if_version) if if_version in {None, self.version}:
                self.highest += 1
                self.value, self.version = str(value), self.highest
                return Written(self.version)
            case Write():
                return Refused(self.version)
            case Read():
                return Found(self.value, self.version) if self.version else Absent()
            case Delete():
                removed, self.version = self.version, 0
                return Deleted() if removed else Absent()
        raise AssertionError(action)


def lived(seed: int, length: int, clients: int) -> Iterator[Operation]:
    """A history of overlapping calls of which each took effect at one moment between call and return."""
    dice = random.Random(seed)
    register = Register()
    free_at = dict.fromkeys(range(clients), 0)
    for moment in range(10, 10 * length, 10):
        client = min(free_at, key=lambda name: (free_at[name], name))
        if free_at[client] > moment:
            continue
        expected = max(0, register.version - dice.randint(0, 1))
        actions: list[Action] = [Write(f"v{moment}"), Write(f"v{moment}", expected), Read(), Delete()]
        action = dice.choice(actions)
        outcome = register.apply(action)
        called = max(free_at[client] + 1, moment - dice.randint(0, 40))
        returned = moment + dice.randint(0, 40)
        free_at[client] = returned + 1
        lost = dice.random() < 0.05
        yield op(action, None if lost else outcome, (called, None if lost else returned))


@pytest.mark.parametrize("seed", range(8))
def test_a_history_that_was_lived_passes_whatever_its_overlaps(seed: int) -> None:
    assert violations(lived(seed, length=300, clients=6)) == []


@pytest.mark.parametrize("seed", range(8))
def test_one_forged_answer_in_a_long_history_is_found(seed: int) -> None:
    history = list(lived(seed, length=120, clients=4))
    reads = [item for item in history if isinstance(item.outcome, Found)]
    random.Random(seed).choice(reads).outcome = Found("forged")

    assert len(violations(history)) == 1


def has_an_order(operations: list[Operation], state: State = EMPTY) -> bool:
    """Every order tried, without any shortcut."""
    if all(item.outcome is None for item in operations):
        return True
    for item in operations:
        rest = [other for other in operations if other is not item]
        may_come_next = all(other.returned_ns is None or other.returned_ns >= item.called_ns for other in rest)
        if may_come_next and (after := step(state, item)) is not None and has_an_order(rest, after):
            return True
    return False


def test_the_checker_agrees_with_trying_every_order() -> None:
    dice = random.Random(7)
    verdicts = set()
    for _ in range(1_500):
        history = [anything(dice) for _ in range(dice.randint(2, 6))]

        assert (violations(history) == []) is has_an_order(history), history

        verdicts.add(has_an_order(history))
    assert verdicts == {True, False}


def anything(dice: random.Random) -> Operation:
    """A call with an answer of its kind, likely or not, out of a small world."""
    value, version, if_version = dice.choice("ab"), dice.randint(1, 3), dice.choice([None, None, 0, 1, 2])
    answers: dict[Action, list[Outcome]] = {
        Write(value, if_version): [Written(version), Refused(dice.choice([None, 0, version]))],
        Read(): [Found(value, dice.choice([None, version])), Absent()],
        Delete(): [Deleted(), Absent()],
    }
    action = dice.choices(list(answers), weights=[3, 2, 1])[0]
    outcome = dice.choice([*answers[action], None])
    called = dice.randint(0, 20)
    return op(action, outcome, (called, called + dice.randint(0, 12) if outcome else None))


def test_a_search_that_takes_too_long_is_given_up_and_said() -> None:
    """Twelve writes of unknown outcome, all at once, and a read of what none of them wrote."""
    history = History()
    for number in range(12):
        history.call("k", Append(str(number)))
    for _ in range(3):
        history.answer(history.call("k", Read()), Found(("never appended",), 1))
    undecided: list[str] = []

    found = violations(history.operations, most_states=5, undecided=undecided)

    assert (found, undecided) == ([], ["k"])
    with pytest.raises(UndecidedError):
        violations(history.operations, most_states=5)
