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
    """What one store may do."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._client = context.client
        self._searches = context.powers.search
        self._scope = scope

    @property
    def policy(self) -> PolicyName:
        """`namespaced`, or `open` where everybody is trusted."""
        return self._scope.identity.policy

    @property
    def grants(self) -> tuple[Grant, ...]:
        """What this store may do beyond its own scope and namespace."""
        return self._scope.identity.grants

    def may(self, need: Need, key: str) -> bool:
        """Whether this store may `read` or `write` a key; asks no server.

        Raises:
            InvalidError: it cannot be a key.
        """
        return self._scope.identity.may(need, self.absolute(key))

    def absolute(self, key: str) -> str:
        """The key as this store looks it up, `<namespace>:<scope>:<identifier>`; asks no server.

        Raises:
            InvalidError: it cannot be a key.
        """
        identity = self._scope.identity
        return absolute_key(key, identity.namespace, identity.scope)

    def acl_rules(self, *, password: str) -> list[str]:
        """The rules of a Redis ACL user with these rights: what comes after `ACL SETUSER <user>`, word by word.

        Such a user can open a hub and use this store, but it cannot list keys (`keys`, `usage`, `clear`), and
        of channel patterns it may use those that a rule grants as they stand. Where it may write anything in a
        namespace, it may write that namespace's service keys, as its scripts do. It searches memories once the
        namespace has an index of its own (`sharedmem index promote`). Needs Redis 7 or later.

        Args:
            password: of that user.

        Raises:
            UnsupportedError: the policy is `open`.
            InvalidError: the password is empty, or a name or grant holds blanks, quotes or parentheses.
        """
        identity, keyspace = self._scope.identity, self._scope.keyspace
        return acl_rules(identity, keyspace, password=password, searches=self._searches)

    async def apply(self, user: str, *, password: str) -> None:
        """Make or replace a Redis ACL user with these rights; one round trip.

        On a cluster every server of it gets the user. Behind sentinels only the master does: replicas keep
        users of their own, so give them all an ACL file.

        Args:
            user: its name.
            password: its password.

        Raises:
            AccessDeniedError: this hub's own Redis user may not manage users.
            UnsupportedError, InvalidError: as `acl_rules`.
            UnavailableError: the server stayed away.
        """
        rules = self.acl_rules(password=password)
        try:
            await self._client.call("ACL", "SETUSER", check_name("user", user), *rules)
        except ServerError as error:
            # The server's words could quote a rule, and one of them is the password.
            hidden = ServerError(error.text.replace(password, "***"))
            raise public_error(hidden, self._client.address) from InternalError("ACL SETUSER was refused")
