"""Who calls: bearer tokens, and the actor and rights that each stands for.

A tokens file (YAML or JSON) is a list of entries. It holds the SHA-256 digest of each token, never the token: the
tokens are random and long, so that nothing can be learned from a digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, Self

import yaml
from pydantic import ValidationError, field_serializer, field_validator

from sharedmem.errors import AccessDeniedError, Codes, ConfigError, SharedMemoryError
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.store import SharedMemoryStore
from sharedmem.wire.access import Grant, check_grants
from sharedmem.wire.keys import check_name

_SCHEME = "bearer"
_TOKEN_PREFIX = "smt_"  # noqa: S105  no secret: it lets people and scanners see what a secret is
_TOKEN_BYTES = 32
_DIGEST_LENGTH = 64
_LONGEST_HEADER = 1024


class TokenRefusedError(AccessDeniedError):
    """The caller showed no token, or one that is not known here."""

    codes = Codes("unauthenticated", 401, "UNAUTHENTICATED", 5)

    def __init__(self, problem: str) -> None:
        advice = "ask the operator for one (`sharedmem token` makes them) and send it as `authorization: Bearer ...`"
        SharedMemoryError.__init__(self, f"{problem}; {advice}")
        self.actor, self.key, self.need = "", "", ""


class Bearer(Record):
    """The actor that a token stands for, and its rights."""

    namespace: str
    actor: str | None = None
    """None speaks for the namespace itself and may write all of it."""
    subscribe: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()

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
    ) -> Self:
        """An actor with rights as `Hub.store` takes them.

        Raises:
            InvalidError: a name or pattern is none.
        """
        return cls(
            namespace=check_name("namespace", namespace),
            actor=None if actor is None else check_name("actor", actor),
            subscribe=tuple(check_name("subscribe", name) for name in subscribe),
            grants=check_grants(grants),
        )

    def store(self, hub: Hub) -> SharedMemoryStore:
        """The namespace as this actor sees it. No round trip."""
        return hub.store(self.namespace, actor=self.actor, subscribe=self.subscribe, grants=self.grants)


class Entry(Bearer):
    """One entry of a tokens file."""

    sha256: str
    """Digest of the token in hexadecimal digits."""

    @field_validator("sha256")
    @classmethod
    def _sound_digest(cls, digest: str) -> str:
        if len(digest) != _DIGEST_LENGTH or not set(digest.lower()) <= set("0123456789abcdef"):
            raise ValueError("it should be the 64 hexadecimal digits of a token's SHA-256, never the token itself")
        return digest.lower()

    def written(self) -> dict[str, object]:
        """The entry as it stands in a file: what is not said is left out."""
        return {name: value for name, value in self.model_dump(mode="json").items() if value}


class Admission(Protocol):
    """Decides who a caller is."""

    def admit(self, authorization: str | None) -> Bearer:
        """The caller who sent this `authorization` header.

        Raises:
            TokenRefusedError: it is nobody known.
        """


class Everyone:
    """Takes every caller for the same actor: for servers that only this machine can reach."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer

    def admit(self, authorization: str | None) -> Bearer:  # noqa: ARG002  the name is that of `Admission`
        """The one actor."""
        return self._bearer


class Tokens:
    """The known tokens.

    Args:
        entries: what a tokens file holds.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._bearers = [(bytes.fromhex(entry.sha256), entry) for entry in entries]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The tokens of a file.

        Raises:
            ConfigError: it cannot be read, an entry is wrong, or there is none; no digest is quoted.
        """
        entries = read_entries(path)
        if not entries:
            raise _bad(path, "it holds no token; add one with `sharedmem token --actor NAME --add FILE`")
        if len({entry.sha256 for entry in entries}) < len(entries):
            raise _bad(path, "one token stands in two entries; leave one of them out")
        return cls(entries)

    def admit(self, authorization: str | None) -> Bearer:
        """The actor whose token it is; as long as there are entries, since each digest is compared in constant time.

        Raises:
            TokenRefusedError: there is no token in it, or an unknown one.
        """
        if not authorization:
            raise TokenRefusedError("the call carries no token")
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != _SCHEME or not token.strip() or len(authorization) > _LONGEST_HEADER:
            raise TokenRefusedError("the authorization is not of the form `Bearer <token>`")
        digest = _digest(token.strip())
        found: Bearer | None = None
        for known, bearer in self._bearers:
            if hmac.compare_digest(known, digest):
                found = bearer
        if found is None:
            raise TokenRefusedError("the token is not known here")
        return found

    def __len__(self) -> int:
        return len(self._bearers)

    def __repr__(self) -> str:
        return f"<Tokens, {len(self)} of them>"


def new_token(bearer: Bearer) -> tuple[str, Entry]:
    """A new random token of 256 bits, to be shown once, and the entry to keep for it."""
    token = _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    return token, Entry(**dict(bearer), sha256=_digest(token).hex())


def read_entries(path: Path) -> list[Entry]:
    """The entries of a tokens file, in order.

    Raises:
        ConfigError: it cannot be read, or an entry is wrong.
    """
    listed = _parsed(path)
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise _bad(path, "it should be a list of entries with sha256, namespace and actor")
    return [_entry(path, number, item) for number, item in enumerate(listed, start=1)]


def add_entry(path: Path, entry: Entry) -> None:
    """Put an entry at the end of a tokens file, which is made if it does not exist; comments in YAML stay.

    Raises:
        ConfigError: the file is none of ours.
    """
    before = read_entries(path) if path.exists() else []
    text = path.read_text(encoding="utf-8").rstrip() if path.exists() else ""
    if path.suffix == ".json" or text.startswith("["):
        text = json.dumps([*(known.written() for known in before), entry.written()], indent=2) + "\n"
    else:
        text += "\n" * bool(text) + yaml.safe_dump([entry.written()], sort_keys=False, allow_unicode=True)
    _replace(path, text)


def _replace(path: Path, text: str) -> None:
    """Write the whole file or nothing; only its owner may read it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise _bad(path, f"it cannot be written: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def _parsed(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _bad(path, f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _bad(path, "it is no text in UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        # The cause is left out: it quotes lines of the file.
        raise _bad(path, f"it is neither YAML nor JSON{where}") from None


def _entry(path: Path, number: int, item: object) -> Entry:
    try:
        return Entry.model_validate(item)
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        field = ".".join(map(str, problem["loc"])) or "entry"
        # The cause is left out: it quotes what may be a token.
        raise _bad(path, f"entry {number}: {field}: {problem['msg'].removeprefix('Value error, ')}") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _bad(path: Path, problem: str) -> ConfigError:
    return ConfigError("tokens", f"file {path}", problem)
