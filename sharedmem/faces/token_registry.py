"""Where tokens are known: the registry in Redis, and issuers whose tokens are JWTs, checked by their public keys.

Tokens of the registry are made, listed and taken back while servers run. An admitted token is cached in the process for
`CACHED_S`, so that a call costs no round trip; a token that is taken back is therefore refused at once by the process
that did so, and within `CACHED_S` by every other.

A file (YAML or JSON) describes an issuer: its name, its keys, for whom its tokens must be, and which rights each of
their scopes gives. The service does not call the issuer for each token: it loads only its keys, and again when
they have changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import Field, ValidationError, field_validator

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import InternalError, InvalidError, NotFoundError, UnavailableError, UnsupportedError
from sharedmem.faces.auth import (
    Admission,
    AnyOf,
    Bearer,
    MissingScopeError,
    Rate,
    TokenEntry,
    TokenFile,
    TokenRefusedError,
    check_entry,
    digest_of,
    file_error,
    matches_name,
    new_token,
    parse_bearer_token,
    parse_file,
)
from sharedmem.hub import Hub
from sharedmem.hub.hub import token_storage_of
from sharedmem.models import Record
from sharedmem.redis.keys import check_name
from sharedmem.redis.scope import Grant, check_grants
from sharedmem.redis.token_storage import TokenStorage
from sharedmem.runtime import get_logger

if TYPE_CHECKING:
    from jwt import PyJWK


# -- the registry ---------------------------------------------------------------------------------


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


# -- other issuers --------------------------------------------------------------------------------


# Asymmetric ones: with a shared secret or without a signature, every holder of the public keys could make tokens.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_FRESH_S = 300.0
_PAUSE_S = 10.0
_TIMEOUT_S = 5.0
_LONGEST_JWKS = 1024 * 1024
_MOST_LEEWAY_S = 600
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


class ScopeRights(Record):
    """What a scope of an issuer gives."""

    namespace: str | None = None
    """None: the claim `namespace_claim` names it."""
    subscribe: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    operator: bool = False
    read_only: bool = False
    """Whether it changes nothing; a token may change something if one of its scopes may."""

    @field_validator("grants", mode="before")
    @classmethod
    def _sound_grants(cls, grants: object) -> object:
        listed = grants if isinstance(grants, list | tuple) else [grants]
        return check_grants(grant if isinstance(grant, str) else Grant.model_validate(grant) for grant in listed)

    @field_validator("namespace")
    @classmethod
    def _sound_name(cls, name: str | None) -> str | None:
        return name if name is None else check_name("namespace", name)

    @field_validator("subscribe")
    @classmethod
    def _sound_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_name("subscribe", name) for name in names)


class TokenIssuer(Record):
    """An issuer of tokens, and what its tokens are worth here."""

    issuer: str = Field(min_length=1)
    """The claim `iss`, to the letter; clients find the authorization server there."""
    audience: tuple[str, ...] = Field(min_length=1)
    """The claim `aud` must have one of these: tokens for other services are refused."""
    jwks: str = Field(min_length=1)
    """The public keys as JWKS: an https URL, or a file."""
    scopes: dict[str, ScopeRights] = Field(min_length=1)
    """Rights by scope; a token without any of these scopes is refused."""
    algorithms: tuple[str, ...] = _ALGORITHMS
    leeway_s: float = Field(default=60.0, ge=0, le=_MOST_LEEWAY_S)
    """How far the clocks of the issuer and of this server may differ."""
    actor_claim: str = "sub"
    namespace_claim: str | None = None
    scope_claims: tuple[str, ...] = ("scope", "scp")
    """Claims that have scopes: a text with blanks between them, or a list."""
    rate: Rate | None = None
    """How often each actor may call."""

    @field_validator("audience", mode="before")
    @classmethod
    def _several(cls, audience: object) -> object:
        return (audience,) if isinstance(audience, str) else audience

    @field_validator("algorithms")
    @classmethod
    def _by_private_keys(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in _ALGORITHMS]
        if unknown or not names:
            raise ValueError(f"give some of {', '.join(_ALGORITHMS)}")
        return names

    @field_validator("rate", mode="before")
    @classmethod
    def _as_people_write_it(cls, rate: object) -> object:
        return Rate.of(rate) if isinstance(rate, str) else rate

    @field_validator("jwks")
    @classmethod
    def _sound_place(cls, place: str) -> str:
        parts = urlsplit(place)
        if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _THIS_MACHINE):
            return place
        if "://" in place:
            raise ValueError("keys come over https: from anywhere else anybody between could exchange them")
        return place

    def model_post_init(self, _: object, /) -> None:
        """Refuse scopes that would lead nowhere."""
        nowhere = next((name for name, rights in self.scopes.items() if rights.namespace is None), None)
        if nowhere is not None and self.namespace_claim is None:
            raise ValueError(f"scope {nowhere!r} has no namespace: give it one, or name a namespace_claim")


class IssuerTokens:
    """Admits the tokens of an issuer.

    Args:
        issuer: what it is called, and what its tokens are worth.
        base: folder of a file of keys with a relative name.
        clock: source of the time for loading keys again.

    Raises:
        UnsupportedError: PyJWT is not installed.
        ConfigError: the file of keys cannot be read.
    """

    def __init__(self, issuer: TokenIssuer, *, base: Path | None = None, clock: Clock | None = None) -> None:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise UnsupportedError("tokens of another issuer", "pip install 'sharedmem-hub[mcp]'")
        self.issuer = issuer
        self._keys = _IssuerKeys(issuer, base or Path(), clock or SystemClock())

    @classmethod
    def read(cls, path: Path) -> Self:
        """The tokens of the issuer that a file describes.

        Raises:
            ConfigError: it cannot be read, or says something that does not hold.
            UnsupportedError: PyJWT is not installed.
        """
        try:
            issuer = TokenIssuer.model_validate(parse_file(path))
        except ValidationError as error:
            problem = error.errors(include_input=False)[0]
            field = ".".join(map(str, problem["loc"])) or "issuer"
            raise file_error(path, f"{field}: {problem['msg'].removeprefix('Value error, ')}") from None
        except InvalidError as error:
            raise file_error(path, str(error)) from None
        return cls(issuer, base=path.parent)

    async def admit(self, authorization: str | None) -> Bearer:
        """The actor whose token it is. Loads keys at first, every few minutes, and for a key that is not known.

        Raises:
            TokenRefusedError: there is no token in it, or one that is not good here.
            MissingScopeError: none of its scopes gives rights here.
            UnavailableError: the keys of the issuer cannot be loaded just now.
        """
        import jwt  # noqa: PLC0415  # an extra

        token = parse_bearer_token(authorization)
        try:
            header = jwt.get_unverified_header(token)
            unproven = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefusedError("the token is not known here") from None
        if unproven.get("iss") != self.issuer.issuer:
            # Nothing is loaded for it.
            raise TokenRefusedError("the token is not known here")
        return self._bearer(self._verified(token, header, await self._keys.find(header.get("kid"))))

    def _verified(self, token: str, header: Mapping[str, Any], key: PyJWK | None) -> dict[str, Any]:
        import jwt  # noqa: PLC0415  # an extra

        issuer = self.issuer
        if header.get("alg") not in issuer.algorithms:
            raise self._refused(f"the token is not signed by one of {', '.join(issuer.algorithms)}")
        if key is None:
            raise self._refused("the key that the token names is not one of its issuer")
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=issuer.algorithms,
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=issuer.leeway_s,
                options={"require": ["exp", "iss", "aud", issuer.actor_claim]},
            )
        except jwt.ExpiredSignatureError:
            raise self._refused("the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise self._refused("the token is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise self._refused(f"the token is not for {' or '.join(issuer.audience)}") from None
        except jwt.MissingRequiredClaimError as error:
            raise self._refused(f"the token has no claim {error.claim}") from None
        except (jwt.PyJWTError, TypeError, ValueError):
            # A key of another kind than the signature is among these.
            raise self._refused("the token is not as its issuer signed it") from None

    def _bearer(self, claims: Mapping[str, Any]) -> Bearer:
        issuer = self.issuer
        held = set(_scopes_of(claims, issuer.scope_claims))
        rights = [issuer.scopes[scope] for scope in issuer.scopes if scope in held]
        if not rights:
            raise MissingScopeError(issuer.scopes, issuer.issuer)
        actor = self._name(claims, issuer.actor_claim)
        named = {one.namespace or self._name(claims, issuer.namespace_claim or "") for one in rights}
        if len(named) > 1:
            raise self._refused("the token has scopes of several namespaces, and a caller is in one")
        [namespace] = named
        whose = json.dumps([issuer.issuer, namespace, actor]).encode()
        return TokenEntry(
            sha256=hashlib.sha256(whose).hexdigest(),
            namespace=namespace,
            actor=actor,
            subscribe=tuple(sorted({name for one in rights for name in one.subscribe})),
            grants=tuple(dict.fromkeys(grant for one in rights for grant in one.grants)),
            operator=any(one.operator for one in rights),
            read_only=all(one.read_only for one in rights),
            rate=issuer.rate,
        )

    def _name(self, claims: Mapping[str, Any], claim: str) -> str:
        try:
            return check_name(f"claim {claim}", claims.get(claim, ""))
        except InvalidError as error:
            raise self._refused(str(error)) from None

    def _refused(self, problem: str) -> TokenRefusedError:
        return TokenRefusedError(problem, knows=True, issuer=self.issuer.issuer)

    def __repr__(self) -> str:
        return f"<Tokens of {self.issuer.issuer}>"


def issuers_of(admission: Admission | None) -> list[TokenIssuer]:
    """Return the issuers whose tokens an admission takes."""
    if isinstance(admission, AnyOf):
        return [issuer for one in admission.admissions for issuer in issuers_of(one)]
    return [admission.issuer] if isinstance(admission, IssuerTokens) else []


def describes_issuer(path: Path) -> bool:
    """Whether a file describes an issuer, not tokens.

    Raises:
        ConfigError: it cannot be read, or is neither YAML nor JSON.
    """
    return isinstance(parse_file(path), dict)


class _IssuerKeys:
    """The public keys of an issuer, by their ids.

    They are loaded at first use, again when they are some minutes old, and for an id that is not known, but not more
    often than every few seconds, whatever callers send. If they cannot be loaded, the earlier ones stay.
    """

    def __init__(self, issuer: TokenIssuer, base: Path, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._file = None if "://" in issuer.jwks else base / issuer.jwks
        self._loading = asyncio.Lock()
        self._keys: list[PyJWK] | None = None if self._file is None else self._read_file(self._file)
        self._fresh_until_s = -math.inf if self._keys is None else clock.monotonic() + _FRESH_S
        self._paused_until_s = -math.inf

    async def find(self, kid: object) -> PyJWK | None:
        """Return the key with this id, or None; a token without an id means the only key.

        Raises:
            UnavailableError: no keys could be loaded yet.
        """
        if self._fresh_until_s <= self._clock.monotonic() or self._known(kid) is None:
            async with self._loading:
                # Another caller may have loaded them meanwhile.
                if self._fresh_until_s <= self._clock.monotonic() or self._known(kid) is None:
                    await self._load()
        if self._keys is None:
            raise UnavailableError("tokens", "the keys of their issuer cannot be loaded now", retry_after=_PAUSE_S)
        return self._known(kid)

    def _known(self, kid: object) -> PyJWK | None:
        keys = self._keys or []
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.key_id == kid), None)

    async def _load(self) -> None:
        if self._clock.monotonic() < self._paused_until_s:
            return
        self._paused_until_s = self._clock.monotonic() + _PAUSE_S
        try:
            self._keys = usable_keys(await asyncio.to_thread(self._fetch))
        except (OSError, HTTPException, ValueError) as error:
            _logger.warning(
                "the keys of %s cannot be loaded from %s: %s", self._issuer.issuer, self._issuer.jwks, error
            )
        else:
            self._fresh_until_s = self._clock.monotonic() + _FRESH_S

    def _fetch(self) -> bytes:
        if self._file is not None:
            return self._file.read_bytes()
        request = Request(self._issuer.jwks, headers={"Accept": "application/json"})  # noqa: S310  # http(s), checked
        with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as answer:
            found: bytes = answer.read(_LONGEST_JWKS + 1)
        if len(found) > _LONGEST_JWKS:
            raise ValueError(f"it is longer than {_LONGEST_JWKS} bytes")
        return found

    def _read_file(self, path: Path) -> list[PyJWK]:
        try:
            return usable_keys(path.read_bytes())
        except (OSError, ValueError) as error:
            raise file_error(path, f"it has no keys as JWKS: {error}") from None


class _NoRedirects(HTTPRedirectHandler):
    """Keys come from where the operator says: another place could be one without TLS."""

    def redirect_request(self, *_: object) -> None:
        """Follow nowhere: a redirect is an error."""


def usable_keys(document: bytes) -> list[PyJWK]:
    """Return the keys of a JWKS document that verify signatures; keys of other kinds are left out.

    Raises:
        ValueError: it is not such a document, or has no such key.
    """
    import jwt  # noqa: PLC0415  # an extra

    told = json.loads(document)
    listed = told.get("keys") if isinstance(told, dict) else None
    found: list[PyJWK] = []
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig" or "d" in one:
            continue
        try:
            found.append(jwt.PyJWK(one))
        except jwt.PyJWTError:
            continue
    if not found:
        raise ValueError("no key verifies signatures")
    return found


def _scopes_of(claims: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        said = claims.get(name)
        if isinstance(said, str):
            yield from said.split()
        elif isinstance(said, list):
            yield from (one for one in said if isinstance(one, str))
