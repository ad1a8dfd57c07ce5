"""Decides whether recorded histories of a versioned key-value store are linearizable.

The search is Wing and Gong's with the memory of configurations that Lowe added: an operation may come
next when no other one that is still to be placed had returned before it was called; a configuration
(operations placed, state reached) that failed once is not tried again. An operation whose outcome is
unknown may take effect at any time after its call, or never.

The model of a key: a value under a version, or nothing. Versions of one key rise for ever, also over a
deletion, and are handed out by the server; the version that a write of unknown outcome got is open
until a read returns it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import or_
from typing import NamedTuple

# -- what clients ask, and what they hear ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Set the value; with `if_version` only over that version (0 = only where there is none)."""

    value: Hashable
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for the value."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the value."""


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to a number; nothing counts as 0."""

    by: int


@dataclass(frozen=True, slots=True)
class Append:
    """Put an item at the end of a list, which reads find as a tuple."""

    item: Hashable


@dataclass(frozen=True, slots=True)
class Written:
    """The write took effect under this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The conditional write found this version instead (0 = no value; None = it did not say)."""

    current: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """The read saw this value; `version` is None where the call does not tell it."""

    value: Hashable
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """The read saw no value, or the deletion had nothing to remove."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletion removed a value."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The number after the increment, or the length after the append."""

    number: int


@dataclass(frozen=True, slots=True)
class Emptied:
    """The deletion was carried out, and did not say whether there was a value."""


Action = Write | Read | Delete | Increment | Append
Outcome = Written | Refused | Found | Absent | Deleted | Counted | Emptied


@dataclass(slots=True, eq=False)
class Operation:
    """One call of one client; `returned_ns` and `outcome` stay None when the outcome is unknown."""

    key: str
    action: Action
    called_ns: int
    returned_ns: int | None = None
    outcome: Outcome | None = None


class History:
    """Records operations while they run; the clock is the machine's, so histories of processes can be joined."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def call(self, key: str, action: Action) -> Operation:
        """Note that an operation begins."""
        operation = Operation(key, action, time.monotonic_ns())
        self.operations.append(operation)
        return operation

    def withdraw(self, operation: Operation) -> None:
        """Take back a call that is known to have had no effect."""
        self.operations.remove(operation)

    def answer(self, operation: Operation, outcome: Outcome) -> None:
        """Note how it ended; leave this out when the caller cannot know (lost connection, time-out)."""
        operation.returned_ns = time.monotonic_ns()
        operation.outcome = outcome


# -- the model ------------------------------------------------------------------------------------

_OPEN = -1  # a version that was handed out and that no read has returned yet


class State(NamedTuple):
    """A key: `version` 0 means no value; every version still to come is above `floor`."""

    value: Hashable
    version: int
    floor: int

    def seen_as(self, version: int) -> State | None:
        """The state once its version is known to be this one, or None if it cannot be."""
        if self.version == version:
            return self
        if self.version == _OPEN and version > self.floor:
            return State(self.value, version, version)
        return None

    def written(self, value: Hashable, version: int) -> State | None:
        """The state after a write; a version that does not rise is impossible."""
        if version == _OPEN:
            return State(value, _OPEN, self._next_floor())
        return State(value, version, version) if version > self._next_floor() else None

    def removed(self) -> State:
        """The state after a deletion."""
        return State(None, 0, self._next_floor())

    def _next_floor(self) -> int:
        # A hidden version is at least one above the last that was seen.
        return self.floor + 1 if self.version == _OPEN else self.floor


EMPTY = State(None, 0, 0)


def step(state: State, operation: Operation) -> State | None:
    """The state after the operation took effect with its recorded outcome, or None if it could not have."""
    match operation.action:
        case Write(value, if_version):
            return _written(state, value, if_version, operation.outcome)
        case Read():
            return _read(state, operation.outcome)
        case Delete():
            return _deleted(state, operation.outcome)
        case Increment(by):
            total = by + (state.value if isinstance(state.value, int) else 0)
            return _grown(state, total, total, operation.outcome)
        case Append(item):
            items = (*(state.value if isinstance(state.value, tuple) else ()), item)
            return _grown(state, items, len(items), operation.outcome)


def _written(state: State, value: Hashable, if_version: int | None, outcome: Outcome | None) -> State | None:
    if isinstance(outcome, Refused):
        return _refused(state, if_version, outcome.current)
    before = state if if_version is None else state.seen_as(if_version)
    if before is None:
        return None
    if outcome is None:
        return before.written(value, _OPEN)
    return before.written(value, outcome.version) if isinstance(outcome, Written) else None


def _grown(state: State, value: Hashable, number: int, outcome: Outcome | None) -> State | None:
    """After an increment or an append, which do not tell the version."""
    return state.written(value, _OPEN) if outcome in {None, Counted(number)} else None


def _refused(state: State, if_version: int | None, current: int | None) -> State | None:
    if if_version is None or current == if_version:
        return None
    if current is None:
        return None if state.version == if_version else state
    return state.seen_as(current)


def _read(state: State, outcome: Outcome | None) -> State | None:
    match outcome:
        case Found(value, version) if state.version != 0 and state.value == value:
            return state if version is None else state.seen_as(version)
        case Absent() if state.version == 0:
            return state
        case _:
            return None


def _deleted(state: State, outcome: Outcome | None) -> State | None:
    match outcome:
        case None | Emptied():
            return state.removed()
        case Deleted() if state.version != 0:
            return state.removed()
        case Absent() if state.version == 0:
            return state
        case _:
            return None


# -- the search -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    """A key whose history has no order that explains it."""

    key: str
    explained: list[Operation] = field(repr=False)
    """The longest beginning of an order that was found."""
    stuck_at: list[Operation] = field(repr=False)
    """The operations of which one had to come next, and none could."""

    def __str__(self) -> str:
        lines = [f"the history of {self.key!r} is not linearizable; the best order of its operations is"]
        lines += [f"    {_format_outcome(operation)}" for operation in self.explained[-10:]]
        lines += [
            "and none of these can follow:",
            *(f"    {_format_outcome(operation)}" for operation in self.stuck_at),
        ]
        return "\n".join(lines)


class UndecidedError(Exception):
    """The search for an order of a key's operations was given up: too many overlap, or have an unknown outcome."""


def violations(
    operations: Iterable[Operation], *, most_states: int | None = None, undecided: list[str] | None = None
) -> list[Violation]:
    """Check each key by itself (linearizability is local) and return the keys whose history is impossible.

    Takes time linear in the operations of a key where the history is explained straight on, and at worst
    exponential in the number of operations that overlap or whose outcome is unknown.

    Args:
        operations: of all keys.
        most_states: states that are tried for one key before it is given up; None for no limit.
        undecided: gets the keys that were given up; without it they raise.

    Raises:
        UndecidedError: a key was given up, and there is no `undecided`.
    """
    by_key: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    found: list[Violation] = []
    for key, history in by_key.items():
        try:
            violation = _Search(key, history, most_states).run()
        except UndecidedError:
            if undecided is None:
                raise
            undecided.append(key)
            continue
        if violation:
            found.append(violation)
    return found


class _Node(NamedTuple):
    """A point of the search: what is placed (a bit each), the state, and the choices not yet tried."""

    placed: int
    state: State
    choices: Iterator[int]
    depth: int = 0
    last: int = -1
    before: _Node | None = None


class _Search:
    """The search over the history of one key.

    Three shortcuts keep it small and lose no order that matters. An answered operation that fits the state
    and leaves it alone comes at once, without alternatives: no later moment suits it or the others better.
    An operation of unknown outcome is placed only right before one that observes the state: whatever is
    overwritten unseen might as well never have happened. And since versions rise, a branch is given up
    when an answer still to be explained names a version below the last one.
    """

    def __init__(self, key: str, history: list[Operation], most_states: int | None) -> None:
        self._key = key
        self._most_states = most_states
        # A read of unknown outcome tells nothing and changes nothing.
        telling = [item for item in history if not (isinstance(item.action, Read) and item.outcome is None)]
        self._operations = sorted(telling, key=lambda item: item.called_ns)
        self._answered = sum(1 << i for i, item in enumerate(self._operations) if item.outcome is not None)
        self._tried: set[tuple[int, State, bool]] = set()
        named = sorted((version, 1 << i) for i, item in enumerate(self._operations) if (version := _named(item)))
        self._versions = [version for version, _ in named]
        self._naming = [0, *accumulate((bit for _, bit in named), or_)]

    def run(self) -> Violation | None:
        """None when an order was found."""
        deepest = _Node(0, EMPTY, self._choices(0, EMPTY, last=-1))
        nodes = [deepest]
        while nodes:
            node = nodes[-1]
            if node.placed & self._answered == self._answered:
                return None
            if (index := next(node.choices, None)) is None:
                nodes.pop()
            elif (following := self._following(node, index)) is not None:
                nodes.append(following)
                deepest = max(deepest, following, key=lambda item: item.depth)
        return self._violation(deepest)

    def _following(self, node: _Node, index: int) -> _Node | None:
        placed = node.placed | 1 << index
        state = step(node.state, self._operations[index])
        if state is None or (configuration := (placed, state, self._is_unknown(index))) in self._tried:
            return None
        self._tried.add(configuration)
        if self._most_states is not None and len(self._tried) > self._most_states:
            raise UndecidedError(self._key)
        if self._naming[bisect_left(self._versions, state.floor)] & ~placed:
            return None
        return _Node(placed, state, self._choices(placed, state, index), node.depth + 1, index, node)

    def _choices(self, placed: int, state: State, last: int) -> Iterator[int]:
        """What may come next and is worth a try, the earliest answer first, the unknown ones at the end."""
        following = sorted(self._candidates(placed), key=self._urgency)
        for index in following:
            operation = self._operations[index]
            # What empties suits every state, so a later moment may suit it better.
            if isinstance(operation.outcome, Emptied):
                continue
            if not self._is_unknown(index) and step(state, operation) == state:
                return iter([index])
        if self._is_unknown(last):
            following = [index for index in following if _observes(self._operations[index])]
        return iter(following)

    def _candidates(self, placed: int) -> Iterator[int]:
        """The operations still to be placed that were called before any other of them returned."""
        soonest: int | None = None
        for index in self._unplaced(placed):
            item = self._operations[index]
            if soonest is not None and item.called_ns > soonest:
                return
            yield index
            if item.returned_ns is not None:
                soonest = item.returned_ns if soonest is None else min(soonest, item.returned_ns)

    def _unplaced(self, placed: int) -> Iterator[int]:
        # The lowest zero bit of `placed`, again and again, skips a finished beginning of any length at once.
        while (index := (~placed & (placed + 1)).bit_length() - 1) < len(self._operations):
            yield index
            placed |= 1 << index

    def _is_unknown(self, index: int) -> bool:
        return index >= 0 and self._operations[index].outcome is None

    def _urgency(self, index: int) -> tuple[bool, int]:
        returned_ns = self._operations[index].returned_ns
        return (returned_ns is None, returned_ns or 0)

    def _violation(self, deepest: _Node) -> Violation:
        explained: list[Operation] = []
        node = deepest
        while node.before is not None:
            explained.append(self._operations[node.last])
            node = node.before
        stuck_at = [self._operations[index] for index in self._candidates(deepest.placed)]
        return Violation(self._key, explained[::-1], stuck_at)


def _named(operation: Operation) -> int | None:
    """The version that the answer names."""
    match operation.outcome:
        case Written(version) | Found(_, version) | Refused(version):
            return version
        case _:
            return None


def _observes(operation: Operation) -> bool:
    """Whether its effect depends on the state it finds; the others overwrite whatever is there."""
    match operation.action:
        case Write(if_version=None):
            return isinstance(operation.outcome, Refused)
        case Delete():
            return operation.outcome is not None
        case _:
            return True


def _format_outcome(operation: Operation) -> str:
    outcome = operation.outcome or "unknown"
    return f"{operation.action} -> {outcome}  [{operation.called_ns}..{operation.returned_ns or ''}]"
