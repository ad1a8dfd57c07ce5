"""The error classes. Each message states what was wrong, with which thing, and what to do next.

Every class has a row in the table that all interfaces share: a stable code for programs, the HTTP
status, the gRPC status name and the exit code of the command line.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

Interface = Literal["python", "flags", "token"]
"""How the reader of an error calls sharedmem: in Python, on the command line, or over HTTP or gRPC with a token."""
_SHOWN = 80
_OUTSIDE_OF_FIELDS = ("__cause__", "__suppress_context__")

_E = TypeVar("_E", bound="SharedMemoryError")


class Codes(NamedTuple):
    """The codes of one kind of error in every interface."""

    code: str
    http_status: int
    grpc_status: str
    exit_code: int


class Advice(str):
    """What to do next: the text for Python callers, with variants for the command line and for network clients.

    Args:
        python: what to change in a call.
        flags: what to change on the command line.
        token: what to request from a REST or gRPC service.
    """

    __slots__ = ("flags", "token")

    flags: str
    token: str

    def __new__(cls, python: str, *, flags: str, token: str) -> Self:
        """Keep the three texts."""
        advice = super().__new__(cls, python)
        advice.flags, advice.token = flags, token
        return advice

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Return the constructor arguments, for pickle and copy."""
        return (str(self),), {"flags": self.flags, "token": self.token}

    def of(self, interface: Interface) -> str:
        """Return the text for one interface."""
        return {"python": str(self), "flags": self.flags, "token": self.token}[interface]


def _shortened(value: object) -> str:
    """Return a value short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _join_words(words: Sequence[str]) -> str:
    """Return some words as a list in a sentence."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


class SharedMemoryError(Exception):
    """The base class of all errors that sharedmem raises."""

    codes: ClassVar[Codes] = Codes("error", 500, "UNKNOWN", 1)
    _advice: Advice | None = None

    def message_for(self, interface: Interface) -> str:
        """Return the message, with its advice for the readers of one interface."""
        message = str(self)
        if self._advice is None:
            return message
        return message.removesuffix(self._advice) + self._advice.of(interface)

    def _set_advice(self, advice: str) -> None:
        """Store the end of the message if it differs between interfaces."""
        if isinstance(advice, Advice):
            self._advice = advice

    @property
    def code(self) -> str:
        """The stable code of this kind of error, for programs."""
        return self.codes.code

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle passes the message alone; constructors with other parameters would fail.
        extra = {"__cause__": _portable(self.__cause__), "__suppress_context__": self.__suppress_context__}
        return restored, (type(self), self.args, self.__dict__ | extra)


def restored(kind: type[_E], args: tuple[object, ...], fields: Mapping[str, Any]) -> _E:
    """Return an error that was raised elsewhere, created without its constructor.

    Args:
        kind: class of the error.
        args: its message, as `Exception.args` holds it.
        fields: its attributes.
    """
    error = kind.__new__(kind)
    error.args = args
    for name in _OUTSIDE_OF_FIELDS:
        if name in fields:
            setattr(error, name, fields[name])
    error.__dict__.update((name, value) for name, value in fields.items() if name not in _OUTSIDE_OF_FIELDS)
    return error


def _portable(cause: BaseException | None) -> BaseException | None:
    """Return the cause if it can be pickled and unpickled; otherwise the whole error could not be pickled."""
    if cause is None or isinstance(cause, SharedMemoryError):
        return cause
    try:
        pickle.loads(pickle.dumps(cause))  # noqa: S301  # the line itself has pickled it
    except Exception:  # noqa: BLE001  # a constructor that pickle calls wrongly may raise anything
        return None
    return cause


class InvalidError(SharedMemoryError, ValueError):
    """An argument was refused before anything was written."""

    codes = Codes("invalid", 400, "INVALID_ARGUMENT", 2)

    def __init__(self, field: str, value: object, advice: str) -> None:
        super().__init__(f"{field} {_shortened(value)} is refused: {advice}")
        self.field = field
        self._set_advice(advice)


class WrongTypeError(InvalidError):
    """The key holds a type of data that the call does not support."""

    codes = Codes("wrong_type", 409, "FAILED_PRECONDITION", 2)

    def __init__(self, key: str, held: str, wanted: str, *, advice: str = "use another key or delete it") -> None:
        super().__init__("key", key, f"it holds a {held}, this call needs a {wanted}; {advice}")
        self.held = held


class NotFoundError(SharedMemoryError, LookupError):
    """The requested thing does not exist."""

    codes = Codes("not_found", 404, "NOT_FOUND", 3)

    def __init__(self, what: str, name: str, advice: str = "check its name") -> None:
        super().__init__(f"{what} {_shortened(name)} does not exist; {advice}")


class ResultNotKeptError(NotFoundError):
    """The work is done, but its result is no longer stored; do not repeat the work."""

    codes = Codes("result_not_kept", 410, "NOT_FOUND", 3)

    def __init__(self, what: str, name: str, why: str) -> None:
        advice = "check what it has changed; repeat it only under another name"
        SharedMemoryError.__init__(
            self, f"{what} {_shortened(name)} is done, but its result is no longer stored: {why}; {advice}"
        )
        self.name = name


class ConflictError(SharedMemoryError):
    """Another client made a change first; read again and decide again."""

    codes = Codes("conflict", 409, "ABORTED", 4)


class VersionConflictError(ConflictError):
    """A conditional write found another version than it expected."""

    codes = Codes("version_conflict", 409, "ABORTED", 4)

    def __init__(self, key: str, expected: int, current: int, *, is_unversioned: bool = False) -> None:
        wanted = "no value" if expected == 0 else f"version {expected}"
        found, advice = "no value" if current == 0 else f"version {current}", "read it again and retry"
        if is_unversioned:
            found = "a value without a version (a counter, or a string that another client has set)"
            advice = "update() changes it, write() without if_version replaces it"
        super().__init__(f"key {key!r} holds {found}, expected {wanted}; {advice}")
        self.key, self.expected, self.current = key, expected, current


class LockHeldError(ConflictError):
    """Other holders have the lock or slot, and did not release it while the caller waited."""

    codes = Codes("lock_held", 409, "ABORTED", 4)

    def __init__(self, what: str, name: str, *, remaining: float) -> None:
        super().__init__(
            f"{what} {_shortened(name)} is held for up to {remaining:.3g} s more; try again, or wait longer"
        )
        self.name, self.remaining = name, remaining


class LockLostError(ConflictError):
    """A lease has expired or another client holds it now; do not write to the resource that it protected."""

    codes = Codes("lock_lost", 409, "FAILED_PRECONDITION", 4)

    def __init__(self, what: str, name: str, token: int) -> None:
        super().__init__(
            f"{what} {_shortened(name)} is no longer yours (token {token}); take it again before you write"
        )
        self.name, self.token = name, token


class ClaimLostError(ConflictError):
    """Another worker has claimed the task or execution, or it is done."""

    codes = Codes("claim_lost", 409, "FAILED_PRECONDITION", 4)

    def __init__(self, what: str, name: str, token: int) -> None:
        advice = "stop this work, another worker may have it now"
        super().__init__(f"{what} {_shortened(name)} is no longer yours (token {token}); {advice}")
        self.name, self.token = name, token


class BarrierError(ConflictError):
    """A barrier did not open while the caller waited; the caller no longer counts as arrived."""

    codes = Codes("barrier_closed", 409, "ABORTED", 4)

    def __init__(self, name: str, *, came: int, parties: int) -> None:
        super().__init__(
            f"barrier {_shortened(name)} did not open: {came} of {parties} parties came; find out which are missing,"
            " or wait longer"
        )
        self.name, self.came, self.parties = name, came, parties


class AlreadyExecutedError(ConflictError):
    """A plan was executed before, by this or by another executor."""

    codes = Codes("already_executed", 409, "ALREADY_EXISTS", 4)

    def __init__(self, session: str, plan: str, state: str) -> None:
        super().__init__(
            f"plan {_shortened(plan)} of session {_shortened(session)} is {state} already; do not execute it again"
        )
        self.session, self.plan, self.state = session, plan, state


class AccessDeniedError(SharedMemoryError, PermissionError):
    """The actor has no right to do this with this key.

    Args:
        actor: the actor that was refused.
        key: the key that it tried to use.
        need: the right that it lacks, `read` or `write`.
        advice: what to do next.
        allowed: the patterns of all keys for which the actor has this right, where they are known.
    """

    codes = Codes("access_denied", 403, "PERMISSION_DENIED", 5)
    allowed: tuple[str, ...] = ()

    def __init__(self, actor: str, key: str, need: str, advice: str, *, allowed: Sequence[str] = ()) -> None:
        known = f"it may {need} {_join_words(allowed)}; " if allowed else ""
        super().__init__(f"actor {actor!r} may not {need} {_shortened(key)}; {known}{advice}")
        self.actor, self.key, self.need = actor, key, need
        self._set_advice(advice)
        if allowed:
            self.allowed = tuple(allowed)


class LimitedError(SharedMemoryError):
    """A quota is used up; try again after `retry_after` seconds."""

    codes = Codes("limited", 429, "RESOURCE_EXHAUSTED", 6)

    def __init__(self, what: str, retry_after: float) -> None:
        super().__init__(f"{what}; try again in {retry_after:g} s")
        self.retry_after = retry_after


class UnavailableError(SharedMemoryError, ConnectionError):
    """A server is not available now; try again after `retry_after` seconds."""

    codes = Codes("unavailable", 503, "UNAVAILABLE", 7)

    def __init__(self, what: str, why: str, *, retry_after: float = 1.0) -> None:
        super().__init__(f"{what}: {why}")
        self.retry_after = retry_after


class DurabilityPendingError(SharedMemoryError):
    """The change is in Redis, but the durable tier did not store it in time; it waits in the outbox.

    Do not repeat it: the durable tier stores it as soon as it is available again.
    """

    # No status that clients retry by themselves.
    codes = Codes("durability_pending", 504, "DEADLINE_EXCEEDED", 7)

    def __init__(self, key: str, version: int, why: str) -> None:
        super().__init__(
            f"key {key!r} is changed in Redis (version {version}) and not durable yet: {why}; the durable tier stores"
            " it as soon as that is fixed, do not repeat the change"
        )
        self.key, self.version = key, version


class UnsupportedError(SharedMemoryError):
    """The server or this installation lacks a feature; the message says how to get it."""

    codes = Codes("unsupported", 501, "UNIMPLEMENTED", 8)

    def __init__(self, power: str, remedy: str) -> None:
        super().__init__(f"{power} is not available here: {remedy}")
        self.power = power


class ConfigError(SharedMemoryError):
    """A setting is wrong; the message names the setting and the origin of its value."""

    codes = Codes("config", 500, "FAILED_PRECONDITION", 9)

    def __init__(self, field: str, origin: str, problem: str) -> None:
        super().__init__(f"setting {field!r} (from {origin}): {problem}")
        self.field, self.origin = field, origin


class CorruptionError(SharedMemoryError):
    """The data of a key is damaged: another client wrote there, or the data was truncated or edited by hand."""

    codes = Codes("corrupted", 500, "DATA_LOSS", 10)

    def __init__(self, key: str, problem: str, advice: str) -> None:
        super().__init__(f"key {key!r} is damaged: {problem}; {advice}")
        self.key = key


class UsageError(SharedMemoryError, RuntimeError):
    """A hub or one of its objects is used wrongly: a mistake in the program, not a temporary failure.

    For example, it is not open yet, is closed already, or belongs to another event loop or process.
    """

    codes = Codes("usage", 500, "INTERNAL", 70)

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")


class NotPicklableError(UsageError, TypeError):
    """An object with a connection cannot be pickled or copied, for example as an argument for another process."""

    codes = Codes("not_picklable", 500, "INTERNAL", 70)

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"a {kind}",
            "it holds a connection and cannot be pickled or copied; open a hub in each process and make it there",
        )


class InternalError(SharedMemoryError):
    """A bug of sharedmem; please report it with the message."""

    codes = Codes("internal", 500, "INTERNAL", 70)
