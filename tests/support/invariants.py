"""What agents were promised of keys that last, and whether what is readable afterwards keeps it: decided without I/O.

What is promised is there, or something that was attempted later; nothing else ever is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from support.durable_agents import COUNTED, TOTALLED, WRITES, PlannedCall

KEYS = [f"{kind}{agent}-{number}" for kind in "vlhs" for agent in (0, 1) for number in (0, 1)]
"""Those of two agents, beside the two that they share: values, lists, hashes and sets."""
_LOOKS = frozenset({"look", "read", "expire"})
_ON_WHOLE_KEYS = _LOOKS | {"delete"}


@dataclass
class RecordedCall:
    """A call of an agent, and what became of it.

    Attributes:
        began: when, in seconds of the clock that all processes of the machine share (`time.monotonic`).
    """

    call: PlannedCall
    outcome: str = "tried"
    answer: int | None = None
    promised: bool = False
    began: float = 0.0

    @property
    def is_acknowledged(self) -> bool:
        return self.outcome == "acknowledged"


RecordedCalls = Sequence[RecordedCall]
Seen = dict[str, object]
"""What keys hold; missing keys are left out."""


def durability_violations(agents: Sequence[RecordedCalls], seen: Seen) -> list[str]:
    """What is not as it was promised, in sentences.

    Args:
        agents: what each of them has attempted, in order.
        seen: what is readable afterwards.
    """
    found = [*_versions(agents)]
    every = [attempt for attempts in agents for attempt in attempts if attempt.outcome != "refused"]
    for key in (COUNTED, TOTALLED):
        counts = [attempt for attempt in every if attempt.call.key == key and attempt.call.what not in _LOOKS]
        number, least = seen.get(key, 0), sum(attempt.promised for attempt in counts)
        if not isinstance(number, int) or not least <= number <= len(counts):
            found.append(f"{key} is {number}; {least} were promised, {len(counts)} attempted")
    for key in KEYS:
        found += _of_key(key, [attempt for attempt in every if attempt.call.key == key], seen.get(key))
    return found


def find_misreads(agents: Sequence[RecordedCalls]) -> list[str]:
    """Where an agent has read something else under a key of its own than it could, all that it had written lasting."""
    found = []
    for attempts in agents:
        for at, attempt in enumerate(attempts):
            key = attempt.call.key
            if attempt.call.what != "read" or not attempt.is_acknowledged:
                continue
            allowed = _allowed([one for one in attempts[:at] if one.call.key == key and one.outcome != "refused"], "")
            if attempt.answer not in allowed:
                found.append(f"{key} was read as {attempt.answer}; allowed: {allowed}")
    return found


def _of_key(key: str, attempts: RecordedCalls, value: object) -> Iterable[str]:
    parts = {attempt.call.part for attempt in attempts if attempt.call.what not in _ON_WHOLE_KEYS}
    held = _parts(key, value)
    if strange := held.keys() - parts:
        yield f"{key} has {sorted(strange)}, which were never added"
    for part in sorted(parts):
        allowed = _allowed(attempts, part)
        if held.get(part) not in allowed:
            yield f"{key}/{part} is {held.get(part)}; allowed: {allowed}"
    if isinstance(value, list) and value != sorted(set(value)):
        yield f"{key} is out of order: {value}"


def _allowed(attempts: RecordedCalls, part: str) -> list[int | None]:
    """What a part may be: as the last promise said, or as any later attempt."""
    allowed: list[int | None] = [None]
    for attempt in attempts:
        what, _, of_part, value = attempt.call
        if what in _LOOKS or (what != "delete" and of_part != part):
            continue
        state = None if what in {"delete", "hdel", "srem"} else int(part) if what == "sadd" else value
        allowed = [state] if attempt.promised else [*allowed, state]
    return allowed


def _parts(key: str, value: object) -> dict[str, int]:
    match value:
        case None:
            return {}
        case dict():
            return dict(value)
        case list():
            return {str(item): item for item in value}
        case set():
            # A member has no value: it is told as whatever the last attempt said.
            return {str(member): member for member in value}
        case int():
            return {"": value}
    raise AssertionError(f"{key} holds {value!r}")


def _versions(agents: Sequence[RecordedCalls]) -> Iterable[str]:
    told = [[one.answer for one in attempts if one.is_acknowledged and one.call.what in WRITES] for attempts in agents]
    for versions in told:
        if versions != sorted({version for version in versions if version is not None}):
            yield f"versions went back: {versions}"
    every = [version for versions in told for version in versions]
    if len(every) != len(set(every)):
        yield "a version was told twice"
