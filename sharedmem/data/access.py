"""Access rights of a store: query them, and apply them to the server as a Redis ACL user."""

from __future__ import annotations

from sharedmem.context import HubContext
from sharedmem.errors import InternalError
from sharedmem.redis.acl import acl_rules
from sharedmem.redis.keys import absolute_key, check_name
from sharedmem.redis.replies import ServerError, public_error
from sharedmem.redis.scope import Grant, Need, PolicyName, Scope
from sharedmem.runtime.process_bound import ProcessBound


class Access(ProcessBound):
    """The access rights of one store."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._client = context.client
        self._powers = context.powers
        self._scope = scope

    @property
    def policy(self) -> PolicyName:
        """`namespaced`, or `open` if all actors are trusted."""
        return self._scope.identity.policy

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The rights of this store beyond its own scope and namespace."""
        return self._scope.identity.grants

    def may(self, need: Need, key: str) -> bool:
        """Return whether this store may `read` or `write` a key; no round trip.

        Raises:
            InvalidError: the key is invalid.
        """
        return self._scope.identity.may(need, self.absolute(key))

    def allowed(self, need: Need) -> list[str]:
        """Return patterns of all keys that this store may `read` or `write`; no round trip."""
        return self._scope.identity.allowed(need)

    def absolute(self, key: str) -> str:
        """Return the absolute form of a key, `<namespace>:<scope>:<identifier>`; no round trip.

        Raises:
            InvalidError: the key is invalid.
        """
        identity = self._scope.identity
        return absolute_key(key, identity.namespace, identity.scope)

    def acl_rules(self, *, password: str) -> list[str]:
        """Return the rules of a Redis ACL user with these rights: the arguments after `ACL SETUSER <user>`.

        Such a user can open a hub and use this store, but it cannot list keys (`keys`, `usage`, `clear`). Of the
        channel patterns it may use the ones that a grant names literally. If it may write anything in a namespace, it
        may also write the service keys of that namespace, as its scripts do. It can search memories once the namespace
        has an index of its own (`sharedmem index promote`). Needs Redis 7 or later.

        Args:
            password: the password of that user.

        Raises:
            UnsupportedError: the policy is `open`.
            InvalidError: the password is empty, or a name or grant holds blanks, quotes or parentheses.
        """
        identity, keyspace = self._scope.identity, self._scope.keyspace
        powers = self._powers
        return acl_rules(identity, keyspace, password=password, searches=powers.search, documents=powers.json_documents)

    async def apply(self, user: str, *, password: str) -> None:
        """Create or replace a Redis ACL user with these rights; one round trip.

        On a cluster, every server gets the user. Behind sentinels only the master does: replicas store their own
        users, so give them all an ACL file.

        Args:
            user: name of the Redis user.
            password: password of the Redis user.

        Raises:
            AccessDeniedError: this hub's own Redis user may not manage users.
            UnsupportedError, InvalidError: as `acl_rules`.
            UnavailableError: the server cannot be reached.
        """
        rules = self.acl_rules(password=password)
        try:
            await self._client.call("ACL", "SETUSER", check_name("user", user), *rules)
        except ServerError as error:
            # The server's message could quote a rule, and one of the rules is the password.
            hidden = ServerError(error.text.replace(password, "***"))
            raise public_error(hidden, self._client.address) from InternalError("ACL SETUSER was refused")
