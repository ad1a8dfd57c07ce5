"""Authentication of callers: bearer tokens, and the actor and rights of each.

A tokens file (YAML or JSON) is a list of entries; the registry (`faces.tokens`) keeps the same entries in Redis. They
hold the SHA-256 digest of each token, never the token: the tokens are random and long, so that nothing can be learned
from a digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

import yaml
from pydantic import Field, ValidationError, field_serializer, field_validator

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import AccessDeniedError, Codes, ConfigError, InvalidError, NotFoundError, SharedMemoryError
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.redis.keys import check_name
from sharedmem.redis.scope import Grant, Identity, Need, check_grants, covers
from sharedmem.store import SharedMemoryStore

_SCHEME = "bearer"
_TOKEN_PREFIX = "smt_"  # noqa: S105  no secret: it lets people and scanners see what a secret is
_TOKEN_BYTES = 32
_DIGEST_LENGTH = 64
_ID_LENGTH = 12
_LONGEST_HEADER = 16_384
_LONGEST_LABEL = 200
_RATE = re.compile(r"([0-9]{1,6})/([0-9]{0,5})(s|min|h|day)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
_MOST_CALLS, _MOST_S = 100_000, 86_400
_POWERS = {"operator": "see the health and the metrics of all namespaces", "administrator": "make and revoke tokens"}


class TokenRefusedError(AccessDeniedError):
    """The caller showed no token, or one that is not known here."""

    codes = Codes("unauthenticated", 401, "UNAUTHENTICATED", 5)

    def __init__(self, problem: str, *, shown: bool = True, knows: bool = False, issuer: str = "") -> None:
        asks = f"get one from {issuer}" if issuer else "ask the operator for one (`sharedmem token create` makes them)"
        SharedMemoryError.__init__(self, f"{problem}; {asks} and send it as `authorization: Bearer ...`")
        self.actor, self.key, self.need = "", "", ""
        self.shown = shown
        """Whether the caller showed anything."""
        self.knows = knows
        """Whether the token is known, and refused nevertheless."""

    @property
    def challenge(self) -> str:
        """What HTTP says in `WWW-Authenticate` (RFC 6750): a caller without credentials gets no error code."""
        return 'Bearer realm="sharedmem"' + ', error="invalid_token"' * self.shown


class MissingScopeError(TokenRefusedError):
    """The token is good, and none of its scopes gives rights here."""

    codes = Codes("access_denied", 403, "PERMISSION_DENIED", 5)

    def __init__(self, scopes: Iterable[str], issuer: str) -> None:
        self._scopes = " ".join(sorted(scopes))
        super().__init__(f"the token has none of the scopes {self._scopes}", knows=True, issuer=issuer)

    @property
    def challenge(self) -> str:
        """What HTTP says in `WWW-Authenticate`: which scopes would do."""
        return f'Bearer realm="sharedmem", error="insufficient_scope", scope="{self._scopes}"'


class ReadOnlyTokenError(AccessDeniedError):
    """The token may look and change nothing."""

    codes = Codes("access_denied", 403, "PERMISSION_DENIED", 5)

    def __init__(self, operation: str) -> None:
        advice = "ask the operator for a token without --read-only"
        SharedMemoryError.__init__(self, f"{operation} changes something, and this token may only read; {advice}")
        self.actor, self.key, self.need = "", "", "write"


class Rate(Record):
    """How often a token may call, through whichever server: so many calls come in so many seconds."""

    limit: int = Field(ge=1, le=_MOST_CALLS)
    per: int = Field(default=1, ge=1, le=_MOST_S)
    """Seconds."""
    burst: int | None = Field(default=None, ge=1, le=_MOST_CALLS)
    """Calls that may come at once after a pause; None is `limit`."""

    @property
    def size(self) -> int:
        """Calls that may come at once."""
        return self.limit if self.burst is None else self.burst

    @classmethod
    def of(cls, text: str, *, burst: int | None = None) -> Self:
        """A rate as people write it: `100/s`, `600/min`, `5000/h`, `10/30s`.

        Raises:
            InvalidError: it is not a number, or out of bounds.
        """
        found = _RATE.fullmatch(text.strip())
        try:
            if found:
                per = int(found[2] or 1) * _SECONDS[found[3]]
                return cls(limit=int(found[1]), per=per, burst=burst)
        except ValidationError as error:
            bounds = f"1 to {_MOST_CALLS} calls, in a day at most"
            raise InvalidError("rate", text, f"give {bounds}; the burst likewise") from error
        raise InvalidError("rate", text, "give calls and time, as 100/s, 600/min, 5000/h or 10/30s")

    def __str__(self) -> str:
        return f"{self.limit}/{f'{self.per}s' if self.per > 1 else 's'}"


class Bearer(Record):
    """The actor of a token, and its rights."""

    namespace: str
    actor: str | None = None
    """None speaks for the namespace itself and may write all of it."""
    subscribe: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    operator: bool = False
    """Whether it runs the service: it sees the health and the metrics of all namespaces, and nothing else of them."""
    read_only: bool = False
    """Whether it may look and change nothing, whatever its further rights."""
    administrator: bool = False
    """Whether it may list, make and revoke tokens of its namespace that may do no more than itself."""

    @field_validator("grants", mode="before")
    @classmethod
    def _sound_grants(cls, grants: object) -> object:
        listed = grants if isinstance(grants, list | tuple) else [grants]
        return check_grants(grant if isinstance(grant, str) else Grant.model_validate(grant) for grant in listed)

    @field_validator("namespace", "actor")
    @classmethod
    def _sound_name(cls, name: str | None) -> str | None:
        return name if name is None else check_name("name", name)

    @field_validator("subscribe")
    @classmethod
    def _sound_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_name("subscribe", name) for name in names)

    @field_serializer("grants")
    def _short_grants(self, grants: tuple[Grant, ...]) -> list[str | dict[str, object]]:
        return [grant.pattern if grant.writes else grant.model_dump() for grant in grants]

    @classmethod
    def of(
        cls,
        namespace: str,
        *,
        actor: str | None = None,
        subscribe: Iterable[str] = (),
        grants: Iterable[str | Grant] = (),
        operator: bool = False,
        read_only: bool = False,
        administrator: bool = False,
    ) -> Self:
        """An actor with rights as `Hub.store` takes them.

        Args:
            namespace: whose it is.
            actor: who acts; None speaks for the namespace itself.
            subscribe: further namespaces it may read.
            grants: further keys it may read and write.
            operator: whether it may see the health and the metrics of all namespaces.
            read_only: whether it may change nothing.
            administrator: whether it may list, make and revoke weaker tokens of its namespace.

        Raises:
            InvalidError: a name or pattern is invalid.
        """
        return cls(
            namespace=check_name("namespace", namespace),
            actor=None if actor is None else check_name("actor", actor),
            subscribe=tuple(check_name("subscribe", name) for name in subscribe),
            grants=check_grants(grants),
            operator=operator,
            read_only=read_only,
            administrator=administrator,
        )

    def excess_over(self, giver: Bearer) -> str:
        """Return what this bearer may do and another may not; empty if there is nothing of that kind.

        Args:
            giver: the other one, of any namespace.
        """
        if self.namespace != giver.namespace:
            return f"act in namespace {self.namespace!r}"
        if self.actor is None and giver.actor is not None:
            return "speak for the namespace itself"
        for name, power in _POWERS.items():
            if getattr(self, name) and not getattr(giver, name):
                return power
        if giver.read_only and not self.read_only:
            return "change something"
        needs: tuple[Need, ...] = ("read",) if self.read_only else ("read", "write")
        for need in needs:
            known = giver.patterns(need)
            found = next((one for one in self.patterns(need) if not any(covers(other, one) for other in known)), None)
            if found is not None:
                return f"{need} {found}"
        return ""

    def patterns(self, need: Need) -> list[str]:
        """Return the patterns of all keys that it may read, or write, with `access='namespaced'`."""
        subscribe, grants = self.subscribe, self.grants
        return Identity(self.namespace, self.actor, subscribe=subscribe, grants=grants).allowed(need)

    def check_right(self, operation: str, need: Need) -> None:
        """Refuse what a token that only reads may not do.

        Args:
            operation: name of the operation, for the message.
            need: what it needs.

        Raises:
            ReadOnlyTokenError: it changes something.
        """
        if self.read_only and need == "write":
            raise ReadOnlyTokenError(operation)

    def store(self, hub: Hub) -> SharedMemoryStore:
        """The namespace as this actor sees it. No round trip."""
        return hub.store(self.namespace, actor=self.actor, subscribe=self.subscribe, grants=self.grants)


class TokenEntry(Bearer):
    """What is kept of a token, in a file or in the registry."""

    sha256: str
    """Digest of the token in hexadecimal digits."""
    label: str = Field(default="", max_length=_LONGEST_LABEL)
    """For people: whose it is, what it is for."""
    rate: Rate | None = None
    """How often it may call; None as often as it likes."""
    created: datetime | None = None
    expires: datetime | None = None
    """From when on it is refused; None never."""
    made_by: str = ""
    """Id of the token that made it; empty if the operator did."""

    @property
    def id(self) -> str:
        """By which people name the token; nothing can be done with it."""
        return self.sha256[:_ID_LENGTH]

    def has_expired(self, now: datetime) -> bool:
        """Whether it is refused by now."""
        return self.expires is not None and self.expires <= now

    @field_validator("sha256")
    @classmethod
    def _sound_digest(cls, digest: str) -> str:
        if len(digest) != _DIGEST_LENGTH or not set(digest.lower()) <= set("0123456789abcdef"):
            raise ValueError("it should be the 64 hexadecimal digits of a token's SHA-256, never the token itself")
        return digest.lower()

    @field_validator("created", "expires")
    @classmethod
    def _sound_time(cls, moment: datetime | None) -> datetime | None:
        return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment

    def written(self) -> dict[str, object]:
        """The entry as a file contains it: without fields that are not set."""
        return {name: value for name, value in self.model_dump(mode="json", exclude_none=True).items() if value}


class Admission(Protocol):
    """Decides who a caller is."""

    async def admit(self, authorization: str | None) -> Bearer:
        """The caller who sent this `authorization` header.

        Raises:
            TokenRefusedError: the token is unknown.
            UnavailableError: who it is cannot be looked up just now.
        """


class Everyone:
    """Takes every caller for the same actor: for servers that only this machine can reach."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer

    async def admit(self, authorization: str | None) -> Bearer:  # noqa: ARG002  the name is that of `Admission`
        """The one actor."""
        return self._bearer


class AnyOf:
    """Admits a token that one of several registries has.

    Args:
        admissions: asked in this order.
    """

    def __init__(self, *admissions: Admission) -> None:
        self.admissions = admissions

    async def admit(self, authorization: str | None) -> Bearer:
        """The caller, as the first that knows it says.

        Raises:
            TokenRefusedError: none of them does; as the one says that knows most.
            UnavailableError: who it is cannot be looked up just now.
        """
        refusals: list[TokenRefusedError] = []
        for admission in self.admissions:
            try:
                return await admission.admit(authorization)
            except TokenRefusedError as refused:
                refusals.append(refused)
        raise max(refusals, key=lambda refused: refused.knows)


class TokenFile:
    """The tokens of a file, as they were when it was read.

    Args:
        entries: what the file holds.
        clock: source of the time.
    """

    def __init__(self, entries: Iterable[TokenEntry], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._bearers = [(bytes.fromhex(entry.sha256), entry) for entry in entries]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The tokens of a file.

        Raises:
            ConfigError: it cannot be read, an entry is wrong, or it has no entry; no digest is quoted.
        """
        entries = read_entries(path)
        if not entries:
            raise file_error(path, "it holds no token; add one with `sharedmem token create --actor NAME --file FILE`")
        if len({entry.sha256 for entry in entries}) < len(entries):
            raise file_error(path, "one token is in two entries; remove one of them")
        return cls(entries)

    async def admit(self, authorization: str | None) -> Bearer:
        """The actor whose token it is; as long as there are entries, since each digest is compared in constant time.

        Raises:
            TokenRefusedError: there is no token in it, an unknown one, or one whose time is over.
        """
        digest = digest_of(parse_bearer_token(authorization))
        found: TokenEntry | None = None
        for known, entry in self._bearers:
            if hmac.compare_digest(known, digest):
                found = entry
        return check_entry(found, self._clock.now())

    def __len__(self) -> int:
        return len(self._bearers)

    def __repr__(self) -> str:
        return f"<Tokens, {len(self)} of them>"


def parse_bearer_token(authorization: str | None) -> str:
    """The token in an `authorization` header.

    Raises:
        TokenRefusedError: the call has no token.
    """
    if not authorization:
        raise TokenRefusedError("the call carries no token", shown=False)
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != _SCHEME or not token.strip() or len(authorization) > _LONGEST_HEADER:
        raise TokenRefusedError("the authorization is not of the form `Bearer <token>`")
    return token.strip()


def digest_of(token: str) -> bytes:
    """What is kept of a token in its place."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def check_entry(entry: TokenEntry | None, now: datetime) -> TokenEntry:
    """The entry of a token, if there is one whose time is not over.

    Raises:
        TokenRefusedError: the call has no token.
    """
    if entry is None:
        raise TokenRefusedError("the token is not known here")
    if entry.has_expired(now):
        raise TokenRefusedError("the token has expired", knows=True)
    return entry


def new_token(
    bearer: Bearer,
    *,
    label: str = "",
    rate: Rate | None = None,
    created: datetime | None = None,
    expires: datetime | None = None,
    made_by: str = "",
) -> tuple[str, TokenEntry]:
    """A new random token of 256 bits, to be shown once, and the entry to keep for it.

    Args:
        bearer: its actor and rights.
        label: for people, up to 200 characters.
        rate: how often it may call; None as often as it likes.
        created: when it was made.
        expires: from when on it is refused; None never.
        made_by: id of the token that makes it; empty for the operator.

    Raises:
        InvalidError: the label is too long.
    """
    if len(label) > _LONGEST_LABEL:
        raise InvalidError("label", label, f"keep it within {_LONGEST_LABEL} characters")
    token = _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    whom = {name: getattr(bearer, name) for name in Bearer.model_fields}
    digest = digest_of(token).hex()
    kept = TokenEntry(**whom, sha256=digest, label=label, rate=rate, created=created, expires=expires, made_by=made_by)
    return token, kept


def matches_name(entry: TokenEntry, name: str) -> bool:
    """Whether people mean this token: by its id, or by the token itself."""
    return name == entry.id or (name.startswith(_TOKEN_PREFIX) and digest_of(name).hex() == entry.sha256)


def read_entries(path: Path) -> list[TokenEntry]:
    """The entries of a tokens file, in order.

    Raises:
        ConfigError: it cannot be read, or an entry is wrong.
    """
    listed = parse_file(path)
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise file_error(path, "it should be a list of entries with sha256, namespace and actor")
    return [_entry(path, number, item) for number, item in enumerate(listed, start=1)]


def add_entry(path: Path, entry: TokenEntry) -> None:
    """Put an entry at the end of a tokens file, which is made if it does not exist; comments in YAML stay.

    Raises:
        ConfigError: the file is not a file of tokens.
    """
    before = read_entries(path) if path.exists() else []
    text = path.read_text(encoding="utf-8").rstrip() if path.exists() else ""
    if path.suffix == ".json" or text.startswith("["):
        text = json.dumps([*(known.written() for known in before), entry.written()], indent=2) + "\n"
    else:
        text += "\n" * bool(text) + yaml.safe_dump([entry.written()], sort_keys=False, allow_unicode=True)
    _replace(path, text)


def remove_entry(path: Path, name: str) -> TokenEntry:
    """Take an entry out of a tokens file; in YAML all else stays as it is written.

    Args:
        path: the file.
        name: the id of the token, or the token itself.

    Raises:
        NotFoundError: there is no such entry.
        ConfigError: the file is not a file of tokens.
    """
    entries = read_entries(path)
    gone = next((number for number, entry in enumerate(entries) if matches_name(entry, name)), None)
    if gone is None:
        raise NotFoundError("token", name[:_ID_LENGTH], f"`sharedmem token list --file {path}` shows which there are")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json" or text.lstrip().startswith("["):
        text = json.dumps([entry.written() for entry in entries if entry is not entries[gone]], indent=2) + "\n"
    else:
        text = _without(text, gone)
    _replace(path, text)
    return entries[gone]


def _without(text: str, number: int) -> str:
    """The YAML text of a list without one of its items; comments behind the item stay."""
    listed = yaml.compose(text)
    assert listed is not None, "it was read as a list just now"
    node = listed.value[number]
    lines = text.splitlines(keepends=True)
    first, last = node.start_mark.line, node.end_mark.line
    while last > first + 1 and lines[last - 1].strip()[:1] in {"", "#"}:
        last -= 1
    return "".join([*lines[:first], *lines[max(last, first + 1) :]])


def _replace(path: Path, text: str) -> None:
    """Write the whole file or nothing; only its owner may read it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise file_error(path, f"it cannot be written: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def parse_file(path: Path) -> object:
    """Return what a file of tokens or of an issuer contains.

    Raises:
        ConfigError: it cannot be read, or is neither YAML nor JSON.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise file_error(path, f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise file_error(path, "it is no text in UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        # The cause is left out: it quotes lines of the file.
        raise file_error(path, f"it is neither YAML nor JSON{where}") from None


def _entry(path: Path, number: int, item: object) -> TokenEntry:
    try:
        return TokenEntry.model_validate(item)
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        field = ".".join(map(str, problem["loc"])) or "entry"
        # The cause is left out: it quotes what may be a token.
        raise file_error(path, f"entry {number}: {field}: {problem['msg'].removeprefix('Value error, ')}") from None


def file_error(path: Path, problem: str) -> ConfigError:
    """Return the error that names a file which `--tokens` names."""
    return ConfigError("tokens", f"file {path}", problem)
