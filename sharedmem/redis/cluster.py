"""Redis Cluster: the slots of keys, and connections to the servers that hold them.

Each server of the cluster has a multiplexed connection and a pool, like a single server; this module chooses between
the servers. When a server is lost, the slot map may be wrong: it is read again before the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from redis.crc import key_slot

from sharedmem.config import Settings
from sharedmem.redis.address import RedisAddress
from sharedmem.redis.credentials import Credentials
from sharedmem.redis.multiplexer import MultiplexedConnection, open_multiplexed
from sharedmem.redis.pooled import Place, PooledConnection, PubSubConnection, Server, open_pool
from sharedmem.redis.replies import Command, Load, LostError, Reply, ServerError, raise_if_error
from sharedmem.runtime.concurrency import SingleFlight

SLOTS = 16_384
SlotOwners = dict[int, Place]

_KEYLESS = frozenset(
    {
        "ACL",
        "CLIENT",
        "CLUSTER",
        "COMMAND",
        "CONFIG",
        "DBSIZE",
        "ECHO",
        "FLUSHALL",
        "FLUSHDB",
        "HELLO",
        "INFO",
        "KEYS",
        "LATENCY",
        "MODULE",
        "PING",
        "PUBLISH",
        "RANDOMKEY",
        "SCAN",
        "SCRIPT",
        "TIME",
        "WAIT",
    }
)
_COUNTED = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_AFTER_WORD = frozenset({"XREAD", "XREADGROUP"})
_AFTER_SUBCOMMAND = frozenset({"XGROUP", "XINFO", "MEMORY", "OBJECT"})
_ON_EVERY_MASTER = frozenset({("SCRIPT", "LOAD"), ("SCRIPT", "EXISTS"), ("SCRIPT", "FLUSH")})
_ON_EVERY_SERVER = frozenset({("ACL", "SETUSER"), ("ACL", "DELUSER")})


def slot_of(args: Command) -> int | None:
    """Return the slot of the first key of a command; None when it has no key."""
    key = _first_key(args)
    return None if key is None else key_slot(key)


def is_for_masters(args: Command) -> bool:
    """Return whether the command changes something that each master stores separately."""
    return _command_and_subcommand(args) in _ON_EVERY_MASTER


def is_for_all(args: Command) -> bool:
    """Return whether the command changes something that each server stores separately, replicas included."""
    return _command_and_subcommand(args) in _ON_EVERY_SERVER


def merge_replies(replies: Sequence[Reply]) -> Reply:
    """Return one reply for the replies of all masters to a command: an error if there is one, the minimum of flags."""
    for reply in replies:
        if isinstance(reply, ServerError):
            return reply
    rows = [reply for reply in replies if isinstance(reply, list)]
    if not rows:
        return replies[0]
    return [min(flags) for flags in zip(*rows, strict=True)]


def parse_slots(reply: Reply, asked: Place) -> tuple[SlotOwners, list[Place]]:
    """Return the masters by slot, and the replicas, from a reply to `CLUSTER SLOTS`.

    Args:
        reply: the reply.
        asked: the server that replied: a server that does not know its own name leaves it out.
    """
    owners: SlotOwners = {}
    replicas: list[Place] = []
    for row in reply if isinstance(reply, list) else []:
        if isinstance(row, list) and isinstance(row[0], int) and isinstance(row[1], int):
            master, *others = (_place(server, asked) for server in row[2:])
            owners |= dict.fromkeys(range(row[0], row[1] + 1), master)
            replicas += others
    return owners, replicas


def parse_redirection(error: ServerError, asked: Place) -> tuple[int, Place]:
    """Return the slot and the server from `MOVED <slot> <host>:<port>` or `ASK ...`."""
    _, slot, place = error.text.split(" ", 2)
    host, _, port = place.rpartition(":")
    return int(slot), (host or asked[0], int(port))


def _first_key(args: Command) -> bytes | None:
    name = _upper_text(args[0])
    if name in _KEYLESS or len(args) < 2:
        return None
    at = 1
    if name in _COUNTED:
        at = 3 if int(args[2]) else len(args)
    elif name in _AFTER_WORD:
        at = [_upper_text(arg) if isinstance(arg, str) else "" for arg in args].index("STREAMS") + 1
    elif name in _AFTER_SUBCOMMAND:
        at = 2
    return _bytes(args[at]) if at < len(args) else None


def _command_and_subcommand(args: Command) -> tuple[str, str]:
    return _upper_text(args[0]), _upper_text(args[1]) if len(args) > 1 else ""


def _upper_text(argument: bytes | str | int) -> str:
    return _bytes(argument)[:16].decode("latin-1").upper()


def _bytes(argument: bytes | str | int) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def _place(server: Reply, asked: Place) -> Place:
    assert isinstance(server, list)
    host, port = server[:2]
    assert isinstance(port, int)
    named = host.decode() if isinstance(host, bytes) else ""
    return (asked[0] if named in {"", "?"} else named), port


T = TypeVar("T")
_MOST_REDIRECTIONS = 5
# After so many seconds without a reply, another server is asked as well.
_ASK_NEXT_AFTER_S = 0.5


class Node(NamedTuple):
    """The connections to one server of a cluster."""

    multiplexed: MultiplexedConnection
    pooled: PooledConnection


def open_cluster(address: RedisAddress, settings: Settings, credentials: Credentials | None) -> Cluster:
    """Return the cluster at an address, without connections yet."""

    def open_node(place: Place) -> Node:
        server = address.at(place)
        return Node(open_multiplexed(server, settings, credentials), open_pool(server, settings, credentials))

    return Cluster(address.hosts, open_node)


class Cluster:
    """The servers of a cluster, and the known slot map.

    Args:
        seeds: servers to ask first.
        open_node: creates the connections to a server, without connecting.
    """

    def __init__(self, seeds: Sequence[Place], open_node: Callable[[Place], Node]) -> None:
        self._seeds = tuple(seeds)
        self._open_node = open_node
        self._nodes: dict[Place, Node] = {}
        self._owners: SlotOwners = {}
        self._masters: list[Place] = []
        self._turn = 0
        self._replicas: list[Place] = []
        # Servers that were lost since the map was read: asked last; while there are any, the map is read again.
        self._suspects: set[Place] = set()
        # Not a task of the hub's background: cleanups of a closing hub may need the map, too.
        self._refreshes: SingleFlight[None] = SingleFlight("learn", None)

    async def refresh_slots(self) -> None:
        """Read the slot map.

        Raises:
            LostError: no server can be reached.
            ServerError: the servers reject the log-in, or are not a cluster.
            UsageError: the hub was closed while this ran.
        """
        await self._refreshes.share("the slots of the cluster", self._learn)

    async def masters(self) -> list[Place]:
        """Return the servers with slots."""
        await self._ensure_slots()
        return self._masters

    async def all_servers(self) -> list[Place]:
        """Return the servers with slots, and their replicas."""
        return [*await self.masters(), *self._replicas]

    def generation(self) -> int:
        """Return a number that rises whenever a connection is lost or opened."""
        return sum(node.multiplexed.generation for node in self._nodes.values())

    def load(self) -> Load:
        """Return the total load of all servers' connections."""
        loads = [node.multiplexed.load for node in self._nodes.values()]
        return Load(sum(load.open for load in loads), sum(load.waiting for load in loads))

    def pool_load(self) -> Load:
        """Return the total load of all servers' connection pools."""
        loads = [node.pooled.load for node in self._nodes.values()]
        return Load(sum(load.open for load in loads), sum(load.waiting for load in loads))

    def any_node(self) -> Node:
        """Return the connections to a server, another one each time."""
        places = self._masters or self._seeds
        self._turn += 1
        return self.node(places[self._turn % len(places)])

    def node(self, place: Place) -> Node:
        """Return the connections to a server."""
        found = self._nodes.get(place)
        if found is None:
            found = self._nodes[place] = self._open_node(place)
        return found

    async def call_slot_owner(
        self, slot: int, *, call: Callable[[Node], Awaitable[T]], asking: Callable[[Node], Awaitable[T]]
    ) -> T:
        """Call the server that has a slot, and follow redirections.

        Args:
            slot: the slot.
            call: calls a server.
            asking: calls a server to which the slot is being moved.

        Raises:
            LostError: the server was lost.
            ServerError: the server refused.
        """
        place, way = await self._owner(slot), call
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await way(self.node(place))
            except LostError:
                self._suspects.add(place)
                raise
            except ServerError as error:
                if error.code not in {"ASK", "MOVED"}:
                    raise
                moved, there = parse_redirection(error, place)
                # The new server may reply MOVED as well: the slot has moved again since.
                place, way = (there, asking) if error.code == "ASK" else (self._record_move(moved, there), call)
        raise ServerError(f"TRYAGAIN slot {slot} was moved on {_MOST_REDIRECTIONS} times")

    async def send_to_servers(self, places: Sequence[Place], args: Command) -> Reply:
        """Send a command to several servers, and return the reply of the first.

        Raises:
            LostError, ServerError: one of them was lost, or refused.
        """
        outcomes = await asyncio.gather(*(self._outcome(place, args) for place in places))
        return raise_if_error(merge_replies(outcomes))

    async def send_each_to_masters(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands to each master in one packet; merge the replies (see `merge_replies`).

        Raises:
            LostError: one of them was lost.
        """
        if not commands:
            return []
        rows = await asyncio.gather(*(self._send_each_to(place, commands) for place in await self.masters()))
        return [merge_replies(replies) for replies in zip(*rows, strict=True)]

    async def _send_each_to(self, place: Place, commands: Sequence[Command]) -> list[Reply]:
        try:
            return await self.node(place).multiplexed.send_each(commands)
        except LostError:
            self._suspects.add(place)
            raise

    async def close(self) -> None:
        """Close every connection."""
        await self._refreshes.stop()
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.multiplexed.close()
            await node.pooled.close()

    async def _owner(self, slot: int) -> Place:
        await self._ensure_slots()
        if slot not in self._owners:
            await self.refresh_slots()
        if slot not in self._owners:
            raise ServerError(f"CLUSTERDOWN no server has slot {slot}")
        return self._owners[slot]

    def _record_move(self, slot: int, place: Place) -> Place:
        self._owners[slot] = place
        if place not in self._masters:
            self._masters.append(place)
        return place

    async def _outcome(self, place: Place, args: Command) -> Reply:
        """Return the reply of one server, even if it is an error."""
        try:
            return await self.node(place).pooled.send(args)
        except ServerError as error:
            return error
        except LostError:
            self._suspects.add(place)
            raise

    async def _ensure_slots(self) -> None:
        if self._suspects or not self._owners:
            await self.refresh_slots()

    async def _learn(self) -> None:
        """Ask one server after the other; if one is slow, ask the next without waiting for it."""
        known = dict.fromkeys((*self._masters, *self._replicas, *self._seeds))
        places = sorted(known, key=self._suspects.__contains__, reverse=True)
        problem: LostError | ServerError = LostError("the cluster has no servers")
        asking: set[asyncio.Task[tuple[SlotOwners, list[Place]]]] = set()
        try:
            while places or asking:
                if places:
                    asking.add(asyncio.create_task(self._slots_at(places.pop())))
                done, asking = await asyncio.wait(
                    asking, timeout=_ASK_NEXT_AFTER_S if places else None, return_when=asyncio.FIRST_COMPLETED
                )
                for asked in done:
                    try:
                        self._note_slots(*asked.result())
                    except (LostError, ServerError) as error:
                        problem = error
                    else:
                        return
        finally:
            for asked in asking:
                asked.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise problem

    async def _slots_at(self, place: Place) -> tuple[SlotOwners, list[Place]]:
        owners, replicas = parse_slots(await self.node(place).pooled.send(("CLUSTER", "SLOTS")), place)
        if not owners:
            raise ServerError("CLUSTERDOWN no slots are assigned to its servers")
        return owners, replicas

    def _note_slots(self, owners: SlotOwners, replicas: list[Place]) -> None:
        self._owners, self._replicas = owners, replicas
        self._masters = list(dict.fromkeys(owners.values()))
        self._suspects.clear()


class ClusterMultiplexedConnection:
    """The multiplexed connections of a cluster's servers, as one transport."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def generation(self) -> int:
        """A number that rises with each new connection to any of the servers."""
        return self._cluster.generation()

    @property
    def load(self) -> Load:
        """The load of the connections."""
        return self._cluster.load()

    def post(self, args: Command) -> None:
        """Return None: nothing is sent without waiting, since a reply may be a redirection. See `Transport.post`."""

    def post_many(self, commands: Sequence[Command]) -> None:
        """As `post`."""

    async def send(self, args: Command) -> Reply:
        """Send a command to the server of its key, or to all servers if each stores it; return the reply.

        Raises:
            ServerError, LostError: as `MultiplexedConnection.send`.
        """
        slot = slot_of(args)
        if slot is None:
            return await self._send_keyless(args)
        return await self._cluster.call_slot_owner(
            slot, call=lambda node: self._way(node).send(args), asking=lambda node: _send_asking(node, args)
        )

    async def send_many(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands, whose keys belong to one slot, as one atomic transaction.

        Raises:
            ServerError, LostError: as `MultiplexedConnection.send_many`.
        """
        slots = {slot for slot in map(slot_of, commands) if slot is not None}
        assert len(slots) == 1, "commands of a transaction share a slot"
        return await self._cluster.call_slot_owner(
            slots.pop(),
            call=lambda node: self._way(node).send_many(commands),
            asking=lambda node: _send_many_asking(node, commands),
        )

    async def send_each(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands concurrently, each to its server; the reply of a refused one is its `ServerError`.

        Commands for all masters go to each of them in one packet.

        Raises:
            LostError: a server was lost.
        """
        shared = [command for command in commands if is_for_masters(command)]
        others = [command for command in commands if not is_for_masters(command)]
        merged, own = await asyncio.gather(
            self._cluster.send_each_to_masters(shared), asyncio.gather(*map(self._reply_or_error, others))
        )
        of_masters, of_one = iter(merged), iter(own)
        return [next(of_masters if is_for_masters(command) else of_one) for command in commands]

    async def _reply_or_error(self, args: Command) -> Reply:
        try:
            return await self.send(args)
        except ServerError as error:
            return error

    async def servers(self, near: bytes | None) -> list[Server]:
        """Return the server of the key `near`, identified by that key; or all servers with keys.

        Raises:
            LostError, ServerError: as `ready`.
        """
        return [near] if near is not None else list(await self._cluster.masters())

    async def ready(self) -> None:
        """Read the slot map if it is unknown: one attempt.

        Raises:
            LostError: no server can be reached.
            ServerError: the servers reject the log-in, or are not a cluster.
        """
        await self._cluster.refresh_slots()

    async def close(self) -> None:
        """Close every connection."""
        await self._cluster.close()

    def _way(self, node: Node) -> MultiplexedConnection | PooledConnection:
        return node.multiplexed

    async def _send_keyless(self, args: Command) -> Reply:
        cluster = self._cluster
        masters = await cluster.masters()
        if is_for_masters(args):
            return await cluster.send_to_servers(masters, args)
        if is_for_all(args):
            return await cluster.send_to_servers(await cluster.all_servers(), args)
        return await self._way(cluster.any_node()).send(args)


class ClusterPooledConnection(ClusterMultiplexedConnection):
    """The connection pools of a cluster's servers, as one."""

    @property
    def load(self) -> Load:
        """The load of the pools."""
        return self._cluster.pool_load()

    def _way(self, node: Node) -> MultiplexedConnection | PooledConnection:
        return node.pooled

    async def send_to(self, server: Server, args: Command) -> Reply:
        """Send a command without a key to one of the `servers`.

        Raises:
            ServerError, LostError: as `send`.
        """
        if isinstance(server, tuple):
            return await self._cluster.node(server).pooled.send(args)
        slot = slot_of(("GET", server or b""))
        assert slot is not None
        return await self._cluster.call_slot_owner(
            slot, call=lambda node: node.pooled.send(args), asking=lambda node: node.pooled.send(args)
        )

    async def block(self, args: Command, *, wait_s: float) -> Reply:
        """As `PooledConnection.block`, at the server of the command's key."""
        slot = slot_of(args)
        assert slot is not None, "only commands with a key block"
        return await self._cluster.call_slot_owner(
            slot, call=lambda node: node.pooled.block(args, wait_s=wait_s), asking=lambda node: _send_asking(node, args)
        )

    async def block_each(self, commands: Sequence[Command], *, wait_s: float) -> list[Reply]:
        """As `PooledConnection.block_each`, at the server of the key that all commands have."""
        slot = slot_of(commands[0])
        assert slot is not None, "only commands with a key block"
        return await self._cluster.call_slot_owner(
            slot,
            call=lambda node: node.pooled.block_each(commands, wait_s=wait_s),
            asking=lambda node: _send_each_asking(node, commands),
        )

    def pubsub(self) -> PubSubConnection:
        """Return a new pub/sub connection, to another server each time: each server of a cluster gets all messages."""
        return self._cluster.any_node().pooled.pubsub()


async def _send_asking(node: Node, args: Command) -> Reply:
    return raise_if_error((await node.pooled.send_each((("ASKING",), args)))[-1])


async def _send_each_asking(node: Node, commands: Sequence[Command]) -> list[Reply]:
    packet = [part for command in commands for part in (("ASKING",), command)]
    return [raise_if_error(reply) for reply in await node.pooled.send_each(packet)][1::2]


async def _send_many_asking(node: Node, commands: Sequence[Command]) -> list[Reply]:
    replies = [
        raise_if_error(reply) for reply in await node.pooled.send_each((("ASKING",), ("MULTI",), *commands, ("EXEC",)))
    ]
    assert isinstance(replies[-1], list)
    return replies[-1]
