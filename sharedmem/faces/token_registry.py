"""The registry: tokens kept in Redis, made, listed and taken back while servers run.

An admitted token is cached in the process for `CACHED_S`, so that a call costs no round trip; a token that is
taken back is therefore refused at once by the process that did so, and within `CACHED_S` by every other.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import InternalError, InvalidError, NotFoundError
from sharedmem.faces.auth import (
    Admission,
    AnyOf,
    Bearer,
    Rate,
    TokenEntry,
    TokenFile,
    check_entry,
    digest_of,
    matches_name,
    new_token,
    parse_bearer_token,
)
from sharedmem.faces.token_issuers import IssuerTokens, describes_issuer
from sharedmem.hub import Hub
from sharedmem.hub.hub import token_storage_of
from sharedmem.models import Record
from sharedmem.redis.token_storage import TokenStorage
from sharedmem.runtime import get_logger

REGISTRY = "registry"
"""What people call it where a place for tokens is asked for."""
CACHED_S = 2.0
"""Seconds for which a process uses the last state of a token that it has read."""
_MOST_CACHED = 10_000
_NOTED_EVERY_S = 60.0
_KEPT_AFTER_EXPIRY = timedelta(days=30)
_logger = get_logger("tokens")


class RegisteredToken(Record):
    """A token of the registry, as operators see it."""

    entry: TokenEntry
    used: datetime | None
    """When it was last seen, to the minute; None never."""


class _CachedToken(NamedTuple):
    """What a process knows of a token."""

    entry: TokenEntry | None
    until_s: float


class TokenRegistry:
    """The tokens of a server.

    Args:
        hub: to that server; it has to be open when something is asked.
        clock: source of the time.
    """

    def __init__(self, hub: Hub, *, clock: Clock | None = None) -> None:
        self._hub = hub
        self._clock = clock or SystemClock()
        self._heard: dict[str, _CachedToken] = {}
        self._noted_s: dict[str, float] = {}

    def now(self) -> datetime:
        """The time by which tokens expire."""
        return self._clock.now()

    @property
    def _credentials(self) -> TokenStorage:
        return token_storage_of(self._hub)

    async def create(
        self,
        bearer: Bearer,
        *,
        label: str = "",
        rate: Rate | None = None,
        expires: datetime | None = None,
        made_by: str = "",
    ) -> tuple[str, TokenEntry]:
        """A new token, to be shown once, and what is kept of it. Three round trips.

        Args:
            bearer: its actor and rights.
            label: for people, up to 200 characters.
            rate: how often it may call, through all servers together; None as often as it likes.
            expires: from when on it is refused; None never.
            made_by: id of the token that makes it; empty for the operator.

        Raises:
            InvalidError: the label is too long, or the time is over already.
            UnavailableError: the server stayed away.
        """
        now = self._clock.now()
        if expires is not None and expires <= now:
            raise InvalidError("expires", expires.isoformat(), "give a time that is still to come")
        await self._sweep(now)
        token, entry = new_token(bearer, label=label, rate=rate, created=now, expires=expires, made_by=made_by)
        await self._credentials.put(entry.sha256, entry.model_dump_json(exclude_defaults=True).encode())
        return token, entry

    async def listed(self) -> list[RegisteredToken]:
        """All tokens, the newest last; never the tokens themselves. Two round trips.

        Raises:
            UnavailableError: the server stayed away.
        """
        found = [
            RegisteredToken(entry=_read_entry(record), used=_parse_time(used))
            for record, used in await self._credentials.all()
        ]
        return sorted(found, key=lambda known: known.entry.created or datetime.min.replace(tzinfo=UTC))

    async def revoke(self, name: str) -> TokenEntry:
        """Take a token back: here at once, in other processes within `CACHED_S` seconds. Four round trips.

        Args:
            name: its id, or the token itself.

        Raises:
            NotFoundError: there is no such token.
            UnavailableError: the server stayed away.
        """
        found = next((known.entry for known in await self.listed() if matches_name(known.entry, name)), None)
        if found is None:
            raise NotFoundError("token", name[:12], "`sharedmem token list` shows which there are")
        await self._credentials.remove(found.sha256)
        self._heard.pop(found.sha256, None)
        return found

    async def admit(self, authorization: str | None) -> Bearer:
        """The actor whose token it is; a round trip every `CACHED_S` seconds, and one more a minute.

        The look-up is by digest: how long it takes tells nothing of the token.

        Raises:
            TokenRefusedError: there is no token in it, an unknown one, or one whose time is over.
            UnavailableError: the server stayed away.
        """
        digest = digest_of(parse_bearer_token(authorization)).hex()
        heard = self._heard.get(digest)
        if heard is None or heard.until_s <= self._clock.monotonic():
            heard = await self._ask(digest)
        return check_entry(heard.entry, self._clock.now())

    async def _ask(self, digest: str) -> _CachedToken:
        # From before the question on: what changes meanwhile is not overlooked for longer.
        asked_s = self._clock.monotonic()
        record = await self._credentials.get(digest)
        heard = _CachedToken(None if record is None else _read_entry(record), asked_s + CACHED_S)
        while len(self._heard) >= _MOST_CACHED:
            del self._heard[next(iter(self._heard))]
        self._heard[digest] = heard
        if heard.entry is not None and asked_s - self._noted_s.get(digest, -_NOTED_EVERY_S) >= _NOTED_EVERY_S:
            self._noted_s[digest] = asked_s
            await self._credentials.seen(digest, int(self._clock.now().timestamp() * 1000))
        return heard

    async def _sweep(self, now: datetime) -> None:
        """Forget tokens that expired long ago; until then they are reported as expired, not as unknown."""
        for known in await self.listed():
            if known.entry.has_expired(now - _KEPT_AFTER_EXPIRY):
                await self._credentials.remove(known.entry.sha256)

    def __repr__(self) -> str:
        return "<Registry of tokens>"


def admission_of(hub: Hub, places: Iterable[str]) -> Admission | None:
    """Who lets callers of a server in, as its command line says. Reads files.

    Args:
        hub: of the server; it may still be closed.
        places: where tokens are known: `registry`, or the names of files of tokens or of an issuer.

    Returns:
        None where there is no such place: then there are no tokens.

    Raises:
        ConfigError: a file cannot be read, or holds no token.
        UnsupportedError: a file describes an issuer, and PyJWT is not installed.
    """
    known: list[Admission] = [TokenRegistry(hub) if place == REGISTRY else _read_place(Path(place)) for place in places]
    return AnyOf(*known) if len(known) > 1 else next(iter(known), None)


def _read_place(path: Path) -> Admission:
    return IssuerTokens.read(path) if describes_issuer(path) else TokenFile.read(path)


def registry_in(admission: Admission) -> TokenRegistry | None:
    """Return the registry that an admission asks; None if it asks none."""
    if isinstance(admission, AnyOf):
        return next((found for one in admission.admissions if (found := registry_in(one)) is not None), None)
    return admission if isinstance(admission, TokenRegistry) else None


def _read_entry(record: bytes) -> TokenEntry:
    try:
        return TokenEntry.model_validate_json(record)
    except ValidationError as error:
        # The cause is left out: it quotes what is kept of a token.
        _logger.warning("a token of the registry cannot be read: %s", error.errors(include_input=False)[0]["msg"])
        raise InternalError("a token of the registry cannot be read; a newer sharedmem may have made it") from None


def _parse_time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
