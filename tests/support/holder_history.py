"""Histories of things that one may hold at a time: what happened, and a checker that says what should not have.

Times are those of one monotonic clock, which processes of one machine share.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

# Holds a resource's memory of tokens: writes under a token below the highest it has seen are refused.
CHECKING = """
local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
local accepts = tonumber(ARGV[1]) >= highest or ARGV[2] == 'careless'
if accepts then redis.call('SET', KEYS[1], ARGV[1]) end
redis.call('RPUSH', KEYS[2], ARGV[1] .. (accepts and ' 1' or ' 0'))
return accepts and 1 or 0
"""
"""A resource as a script: KEYS are its highest token and its journal, ARGV a token and `careful` or `careless`."""


class HolderTurn(NamedTuple):
    """One who held it, as its holder saw it."""

    who: str
    token: int
    asked_at: float
    got_at: float
    held_until: float
    """When the holder has last seen that it holds it."""


class LeaseAttempt(NamedTuple):
    """One write at the resource that the lock protects, in the order of the resource."""

    token: int
    accepted: bool


def check_turns(turns: Iterable[HolderTurn]) -> list[str]:
    """What is wrong: two held it at once, a token was given twice, or tokens did not rise with time."""
    found = []
    in_order = sorted(turns, key=lambda turn: turn.got_at)
    seen: set[int] = set()
    for turn in in_order:
        if turn.token in seen:
            found.append(f"token {turn.token} was given twice")
        seen.add(turn.token)
    for earlier, later in pairwise(in_order):
        if later.got_at < earlier.held_until:
            found.append(f"{later.who} got it while {earlier.who} held it: {earlier} {later}")
        if earlier.got_at < later.asked_at and later.token <= earlier.token:
            found.append(f"a later holder has a lower token: {earlier} {later}")
    return found


def check_attempts(attempts: Iterable[LeaseAttempt]) -> list[str]:
    """What is wrong: a stale holder's write was accepted, or a good one was refused."""
    found, highest = [], 0
    for attempt in attempts:
        is_stale = attempt.token < highest
        if attempt.accepted == is_stale:
            found.append(f"{'accepted' if attempt.accepted else 'refused'} {attempt.token} after {highest}")
        highest = max(highest, attempt.token)
    return found
