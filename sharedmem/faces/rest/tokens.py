"""Tokens over HTTP: who calls, what each token of a namespace may do, making weaker ones, and taking them back.

Only a token that may administrate gets to the tokens of others. What it makes is in the registry, may do no more than
itself, lasts no longer and calls no more often; it never is an administrator. Tokens are shown once, in the answer that
makes them: neither a list nor a log has them, and answers are not stored for an `Idempotency-Key`.
"""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from typing import Any

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError
from starlette.responses import Response

from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, UnsupportedError
from sharedmem.faces.auth import Admission, Bearer, Rate, TokenEntry
from sharedmem.faces.rest.context import Call, Endpoint, json_object, json_response
from sharedmem.faces.rest.problems import FieldsError
from sharedmem.faces.token_registry import CACHED_S, RegisteredToken, TokenRegistry, registry_in
from sharedmem.models import Record
from sharedmem.redis.scope import Grant
from sharedmem.runtime import get_logger

TOKENS, TOKEN, ACL = "/tokens", "/tokens/{id}", "/tokens/{id}/acl"
_MOST_TOKENS = 1000
_PASSWORD = "PASSWORD"  # noqa: S105  no secret: the reader puts one in its place
_NOT_STORED = {"cache-control": "no-store"}
_logger = get_logger("rest.tokens")


class TokenRequest(Record):
    """A token to be made for an actor of the caller's namespace."""

    actor: str | None = None
    """The actor of the token; null: the whole namespace."""
    label: str = ""
    """Whose it is, what it is for."""
    read_only: bool = False
    """Whether it may look and change nothing."""
    operator: bool = False
    """Whether it sees the health and the metrics of all namespaces."""
    subscribe: tuple[str, ...] = ()
    """Further namespaces that it may read."""
    grants: tuple[str | Grant, ...] = ()
    """Further keys that it may read and write, as absolute patterns such as `desk:team*`."""
    rate: str | None = Field(default=None, examples=["100/s"])
    """How often it may call: `100/s`, `600/min`, `5000/h`; null as often as it likes."""
    expires: AwareDatetime | None = None
    """From when on it is refused; null never."""


class TokenInfo(Record):
    """What is known of a token; never the token itself."""

    id: str
    """Names it; nothing can be done with it."""
    label: str
    actor: str | None
    """None speaks for the namespace itself."""
    read_only: bool
    operator: bool
    administrator: bool
    readable: list[str]
    """Patterns of the keys that it may read."""
    writable: list[str]
    """Patterns of the keys that it may write."""
    rate: str | None
    created: datetime | None
    expires: datetime | None
    expired: bool
    used: datetime | None
    """When it was last seen, to the minute; None never."""
    made_by: str
    """Id of the token that made it; empty if the operator did."""
    is_own: bool
    """Whether it is the token of this call."""
    revocable: bool
    """Whether this caller may take it back: it may do no more than the caller."""


class TokenList(Record):
    """The tokens of a namespace in the registry, the newest last."""

    items: list[TokenInfo]
    admitted: bool
    """Whether this service lets them in; other services on the same Redis may."""


class MadeToken(Record):
    """A new token, shown this once."""

    token: str
    info: TokenInfo


class RevokedTokens(Record):
    """Tokens that are not accepted any more."""

    ids: list[str]
    within_s: float
    """Seconds after which every service refuses them."""


class AclRules(Record):
    """The rights of a token as a Redis user."""

    command: str
    """For `redis-cli`, once PASSWORD is replaced by one."""


class TokenEndpoints:
    """Lists, makes and revokes the tokens of the caller's namespace.

    Args:
        admission: of this service; its registry is used, so that it forgets a revoked token at once.
    """

    def __init__(self, admission: Admission) -> None:
        self._admitting = registry_in(admission)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """What is answered."""
        return (
            Endpoint("GET", TOKENS, "token.list", self.list_, lambda: _DOCUMENTS["list"]),
            Endpoint("POST", TOKENS, "token.create", self.create, lambda: _DOCUMENTS["create"], needs="write"),
            Endpoint("DELETE", TOKEN, "token.revoke", self.revoke, lambda: _DOCUMENTS["revoke"], needs="write"),
            Endpoint("GET", ACL, "token.acl", self.acl, lambda: _DOCUMENTS["acl"]),
        )

    async def list_(self, call: Call) -> Response:
        """The tokens of the caller's namespace.

        Raises:
            AccessDeniedError: the caller may not administrate.
            UnavailableError: Redis cannot be reached.
        """
        caller = _administrator(call)
        found = await self._known(call, caller)
        now = self._registry(call).now()
        infos = [_info(one, caller, now) for one in found]
        return json_response(TokenList(items=infos, admitted=self._admitting is not None), headers=_NOT_STORED)

    async def create(self, call: Call) -> Response:
        """Make a token that may do no more than the caller.

        Raises:
            AccessDeniedError: the caller may not administrate, or the token would be stronger than its own.
            FieldsError, InvalidError: the request is wrong; nothing is made.
            UnavailableError: Redis cannot be reached.
        """
        caller = _administrator(call)
        asked = _request(json_object(call, await call.body()))
        bearer = Bearer.of(
            caller.namespace,
            actor=asked.actor,
            subscribe=asked.subscribe,
            grants=asked.grants,
            operator=asked.operator,
            read_only=asked.read_only,
        )
        rate = None if asked.rate is None else Rate.of(asked.rate)
        _check_weaker(bearer, rate, asked.expires, caller)
        if len(await self._known(call, caller)) >= _MOST_TOKENS:
            advice = f"this namespace has {_MOST_TOKENS} tokens; revoke tokens that are not used"
            raise InvalidError("tokens", _MOST_TOKENS, advice)
        registry = self._registry(call)
        token, entry = await registry.create(
            bearer, label=asked.label, rate=rate, expires=asked.expires, made_by=caller.id
        )
        _logger.info("token %s of namespace %r made token %s", caller.id, caller.namespace, entry.id)
        made = MadeToken(token=token, info=_info(RegisteredToken(entry=entry, used=None), caller, registry.now()))
        return json_response(made, 201, {**_NOT_STORED, "location": f"/api/v1{TOKENS}/{entry.id}"})

    async def revoke(self, call: Call) -> Response:
        """Revoke a token, with `made=true` also the tokens that it has made.

        Raises:
            AccessDeniedError: the caller may not administrate, or the token may do more than the caller.
            NotFoundError: there is no such token in the caller's namespace.
            UnavailableError: Redis cannot be reached.
        """
        caller = _administrator(call)
        with_made = _flag(call, "made")
        known = await self._known(call, caller)
        chosen = _chosen(known, call.params["id"])
        made = [one.entry for one in known if one.entry.made_by == chosen.id]
        gone = [chosen, *(made if with_made else [])]
        for entry in gone:
            _check_revocable(entry, caller)
        for entry in gone:
            await self._registry(call).revoke(entry.id)
            _logger.info("token %s of namespace %r revoked token %s", caller.id, caller.namespace, entry.id)
        return json_response(RevokedTokens(ids=[entry.id for entry in gone], within_s=CACHED_S))

    async def acl(self, call: Call) -> Response:
        """The rights of a token as the rules of a Redis user.

        Raises:
            AccessDeniedError: the caller may not administrate.
            NotFoundError: there is no such token in the caller's namespace.
            UnsupportedError: it only reads, which rules cannot say; or all actors are trusted.
        """
        caller = _administrator(call)
        entry = _chosen(await self._known(call, caller), call.params["id"])
        if entry.read_only:
            advice = "a Redis user with these rules could write; make a token without read_only for that"
            raise UnsupportedError("rules for a token that only reads", advice)
        rules = entry.store(call.hub).access.acl_rules(password=_PASSWORD)
        command = f"ACL SETUSER {entry.actor or entry.namespace} {' '.join(rules)}"
        return json_response(AclRules(command=command), headers=_NOT_STORED)

    def _registry(self, call: Call) -> TokenRegistry:
        return self._admitting or TokenRegistry(call.hub)

    async def _known(self, call: Call, caller: TokenEntry) -> list[RegisteredToken]:
        found = await self._registry(call).listed()
        return [one for one in found if one.entry.namespace == caller.namespace]


def _administrator(call: Call) -> TokenEntry:
    """The caller's token.

    Raises:
        AccessDeniedError: it may not administrate, or this service asks for no tokens.
    """
    bearer = call.bearer
    if isinstance(bearer, TokenEntry) and bearer.administrator:
        return bearer
    advice = "use a token that may administrate: sharedmem token create --administrator"
    raise AccessDeniedError(bearer.actor or "shared", f"{bearer.namespace}: tokens", "read", advice)


def _request(fields: dict[str, Any]) -> TokenRequest:
    try:
        return TokenRequest.model_validate(fields)
    except ValidationError as error:
        raise FieldsError.of(error) from None


def _check_weaker(bearer: Bearer, rate: Rate | None, expires: datetime | None, caller: TokenEntry) -> None:
    """Refuse a token that may do more than the caller, for longer, or more often.

    Raises:
        AccessDeniedError: it would.
    """
    excess = bearer.excess_over(caller)
    if not excess and caller.expires is not None and (expires is None or expires > caller.expires):
        excess = "be used after your own token has expired"
    if not excess and caller.rate is not None and (rate is None or _is_faster(rate, caller.rate)):
        excess = f"call more often than {caller.rate}"
    if excess:
        raise AccessDeniedError(
            caller.actor or "shared",
            f"{caller.namespace}: tokens",
            "write",
            f"this token could {excess}, and yours cannot; ask the operator for it (`sharedmem token create`)",
        )


def _is_faster(rate: Rate, other: Rate) -> bool:
    return rate.limit * other.per > other.limit * rate.per or rate.size > other.size


def _is_revocable(entry: TokenEntry, caller: TokenEntry) -> bool:
    return entry.sha256 == caller.sha256 or (not entry.administrator and not entry.excess_over(caller))


def _check_revocable(entry: TokenEntry, caller: TokenEntry) -> None:
    if not _is_revocable(entry, caller):
        excess = "administrate" if entry.administrator else entry.excess_over(caller)
        advice = f"it may {excess}; the operator takes it back (`sharedmem token revoke {entry.id}`)"
        raise AccessDeniedError(caller.actor or "shared", f"{caller.namespace}: token {entry.id}", "write", advice)


def _chosen(known: list[RegisteredToken], id_: str) -> TokenEntry:
    found = next((one.entry for one in known if one.entry.id == id_), None)
    if found is None:
        raise NotFoundError("token", id_[:12], "GET /api/v1/tokens lists those of this namespace")
    return found


def _info(known: RegisteredToken, caller: TokenEntry, now: datetime) -> TokenInfo:
    entry = known.entry
    return TokenInfo(
        id=entry.id,
        label=entry.label,
        actor=entry.actor,
        read_only=entry.read_only,
        operator=entry.operator,
        administrator=entry.administrator,
        readable=entry.patterns("read"),
        writable=[] if entry.read_only else entry.patterns("write"),
        rate=None if entry.rate is None else str(entry.rate),
        created=entry.created,
        expires=entry.expires,
        expired=entry.has_expired(now),
        used=known.used,
        made_by=entry.made_by,
        is_own=entry.sha256 == caller.sha256,
        revocable=_is_revocable(entry, caller),
    )


def _flag(call: Call, name: str) -> bool:
    query = call.request.query_params
    said = {"true": True, "false": False}.get(query.get(name, "false").lower())
    if said is None or set(query) - {name}:
        raise FieldsError([(name, "give true or false, and nothing else")])
    return said


# -- OpenAPI --------------------------------------------------------------------------------------

_REF = "#/components/schemas/{model}"


def _document(summary: str, gives: type[Record], *, status: str = "200", **more: Any) -> dict[str, Any]:
    schema = TypeAdapter(gives).json_schema(mode="serialization", ref_template=_REF)
    defs = schema.pop("$defs", {})
    described = "Only for a token that may administrate its namespace."
    answer = {"description": "What came of it.", "content": {"application/json": {"schema": schema}}}
    return {
        "summary": summary,
        "tags": ["service"],
        "description": described,
        "responses": {status: answer},
        "$defs": defs,
    } | more


_DOCUMENTS = {
    "list": _document("List the tokens of the namespace, and what each may do; never the tokens.", TokenList),
    "create": _document(
        "Make a token that may do no more than the caller's; it is shown this once.",
        MadeToken,
        status="201",
        requestBody={
            "required": True,
            "content": {"application/json": {"schema": TokenRequest.model_json_schema(ref_template=_REF)}},
        },
    ),
    "revoke": _document(
        "Take a token back; services refuse it within seconds.",
        RevokedTokens,
        parameters=[
            {
                "name": "made",
                "in": "query",
                "description": "Whether to take back also the tokens that it has made.",
                "schema": {"type": "boolean", "default": False},
            }
        ],
    ),
    "acl": _document("Show the rights of a token as the rules of a Redis user.", AclRules),
}
_BODY = _DOCUMENTS["create"]["requestBody"]["content"]["application/json"]["schema"]
_DOCUMENTS["create"]["$defs"] |= _BODY.pop("$defs", {})


# -- who calls ------------------------------------------------------------------------------------


class TokenRights(Record):
    """The actor of a token, and what it may do."""

    namespace: str
    actor: str | None
    """None speaks for the namespace itself."""
    read_only: bool
    """Whether it may look and change nothing."""
    operator: bool
    """Whether it sees the health and the metrics of all namespaces."""
    administrator: bool
    """Whether it may list, make and revoke tokens of its namespace."""
    readable: list[str]
    """Patterns of the keys that it may read."""
    writable: list[str]
    """Patterns of the keys that it may write."""
    label: str
    expires: datetime | None
    """From when on the token is refused; None never."""
    version: str
    """Of the service."""


async def _tell(call: Call) -> Response:
    bearer, access = call.bearer, call.store.access
    entry = bearer if isinstance(bearer, TokenEntry) else None
    found = TokenRights(
        namespace=bearer.namespace,
        actor=bearer.actor,
        read_only=bearer.read_only,
        operator=bearer.operator,
        administrator=bearer.administrator,
        readable=access.allowed("read"),
        writable=[] if bearer.read_only else access.allowed("write"),
        label="" if entry is None else entry.label,
        expires=None if entry is None else entry.expires,
        version=version("sharedmem-hub"),
    )
    return json_response(found)


def caller_endpoint() -> Endpoint:
    """Return what answers `GET /caller`."""
    return Endpoint("GET", "/caller", "caller.get", _tell, _caller_document)


def _caller_document() -> dict[str, Any]:
    schema = TypeAdapter(TokenRights).json_schema(mode="serialization")
    return {
        "summary": "Return the actor, namespace and rights of the token.",
        "tags": ["service"],
        "responses": {"200": {"description": "The caller.", "content": {"application/json": {"schema": schema}}}},
    }
