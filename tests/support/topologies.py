"""Servers in company, as production has them: a cluster, a master with replica and sentinels, one behind TLS."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import trustme
from redis import Redis
from redis.exceptions import RedisError

from sharedmem.embedded.binaries import find_server
from support.redis_process import RedisProcess, free_port
from support.waiting import wait_until

_PATIENCE_S = 60
SERVICE = "mymaster"
_SLOTS = 16_384

# -- a cluster ------------------------------------------------------------------------------------


class RedisCluster:
    """Masters that share the slots evenly, and perhaps a replica of the first one."""

    def __init__(self, masters: list[RedisProcess], replicas: list[RedisProcess]) -> None:
        self.masters = masters
        self.replicas = replicas

    @property
    def url(self) -> str:
        """Where clients connect: all masters are named."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{master.port}" for master in self.masters)

    def tell_all(self, *words: str | int) -> list[object]:
        """What each master answers to a command."""
        return [master.tell(*words) for master in self.masters]

    def owner(self, key: str) -> RedisProcess:
        """The master that holds a key."""
        slot = self.masters[0].tell("CLUSTER", "KEYSLOT", key)
        return next(master for master in self.masters if slot in _slots_of(master))

    def move_slot(self, key: str) -> None:
        """Move the slot of a key, with all keys in it, to the next master, key by key."""
        source = self.owner(key)
        target = self.masters[(self.masters.index(source) + 1) % len(self.masters)]
        slot: Any = source.tell("CLUSTER", "KEYSLOT", key)
        target.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        while keys := cast("list[bytes]", source.tell("CLUSTER", "GETKEYSINSLOT", slot, 10)):
            source.tell("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *(name.decode() for name in keys))
        for master in (target, source):
            master.tell("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def id_of(self, master: RedisProcess) -> str:
        """The id by which the others know it."""
        return _text(master.tell("CLUSTER", "MYID"))

    def follow(self) -> bool:
        """Tell the replica whom to follow; False while it does not know its master yet."""
        with suppress(RedisError):
            for replica in self.replicas:
                replica.tell("CLUSTER", "REPLICATE", self.id_of(self.masters[0]))
            return True
        return False

    def has_its_replica(self) -> bool:
        """Whether the replica is linked to the first master."""
        return all(_says(each, "master_link_status:up") for each in self.replicas)

    async def is_well(self) -> bool:
        """Whether every master sees all slots, and all the others."""
        with suppress(RedisError, OSError):
            facts = [_text(fact) for fact in self.tell_all("CLUSTER", "INFO")]
            known = f"cluster_known_nodes:{len(self.masters) + len(self.replicas)}"
            return all("cluster_state:ok" in fact and known in fact for fact in facts)
        return False


@asynccontextmanager
async def redis_cluster(masters: int = 3, *, replica: bool = False, **more: object) -> AsyncIterator[RedisCluster]:
    """A cluster of its own on loopback ports, gone afterwards; with a replica of the first master or without.

    `more` is of each server's configuration.
    """
    with ExitStack() as stack:
        ports = [free_port() for _ in range(masters + replica)]
        options: dict[str, Any] = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": 1000,
            "appendonly": "yes",
            "repl_diskless_sync_delay": 0,
            **more,
        }
        servers = [stack.enter_context(RedisProcess(tcp=True, cluster_port=port, **options)) for port in ports]
        cluster = RedisCluster(servers[:masters], servers[masters:])
        _share_slots(cluster.masters)
        for server in servers:
            servers[0].tell("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus_port)
        await wait_until(cluster.is_well, description="the cluster is formed", within_s=60)
        await wait_until(cluster.follow, description="the replica knows its master", within_s=60)
        await wait_until(cluster.has_its_replica, description="the replica follows", within_s=60)
        yield cluster


def _share_slots(masters: list[RedisProcess]) -> None:
    share = _SLOTS // len(masters)
    for at, server in enumerate(masters):
        last = _SLOTS - 1 if server is masters[-1] else (at + 1) * share - 1
        server.tell("CLUSTER", "ADDSLOTSRANGE", at * share, last)
        server.tell("CLUSTER", "SET-CONFIG-EPOCH", at + 1)


def _slots_of(master: RedisProcess) -> set[int]:
    found: set[int] = set()
    mine = master.port
    rows: Any = master.tell("CLUSTER", "SLOTS")
    for row in rows.values() if isinstance(rows, dict) else rows:
        first, last, (_, port, *_rest), *_replicas = row
        if port == mine:
            found |= set(range(first, last + 1))
    return found


# -- sentinels ------------------------------------------------------------------------------------


class SentinelGroup:
    """A master, its replica, and sentinels that make the replica master when the master dies."""

    def __init__(self, master: RedisProcess, replica: RedisProcess, ports: list[int]) -> None:
        self.master = master
        self.replica = replica
        self.ports = ports

    @property
    def url(self) -> str:
        """Where clients connect: all sentinels are named."""
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + f"/{SERVICE}"

    def is_replicated(self) -> bool:
        """Whether the replica is linked to the master."""
        return _says(self.replica, "master_link_status:up")

    def catch_up(self) -> int:
        """Return when the replica has what the master has now: how many replicas that were."""
        return catch_up(self.master, "caught")

    def has_failed_over(self) -> bool:
        """Whether the former replica is the master."""
        return _says(self.replica, "role:master")

    def is_watched(self) -> bool:
        """Whether every sentinel knows the replica and the other sentinels."""
        return all(_is_ready(port, others=len(self.ports) - 1) for port in self.ports)


@asynccontextmanager
async def sentinel_group(sentinels: int = 3) -> AsyncIterator[SentinelGroup]:
    """A master, a replica and sentinels of its own on loopback ports, gone afterwards."""
    with ExitStack() as stack:
        master = stack.enter_context(RedisProcess(tcp=True, appendonly="yes", repl_diskless_sync_delay=0))
        replica = stack.enter_context(RedisProcess(tcp=True, appendonly="yes", replicaof=f"127.0.0.1 {master.port}"))
        group = SentinelGroup(master, replica, [])
        await wait_until(group.is_replicated, description="the replica has caught up", within_s=60)
        for _ in range(sentinels):
            sentinel = stack.enter_context(_Sentinel(master.port, quorum=sentinels // 2 + 1))
            group.ports.append(sentinel.port)
        await wait_until(group.is_watched, description="the sentinels know each other", within_s=60)
        yield group


def catch_up(master: RedisProcess, key: str) -> int:
    """Return when a replica has what its master has now: how many replicas have. Writes the key."""
    with Redis(port=master.port, protocol=2) as client:
        client.set(key, "up", ex=60)  # WAIT speaks of the writes of its own connection, and of all before them
        reached: Any = client.wait(1, 60_000)
        return int(reached)


def _says(server: RedisProcess, what: str) -> bool:
    """Whether a server says so of its replication; it says nothing while its role changes, and connections close."""
    with suppress(RedisError, OSError):
        return what in _text(server.tell("INFO", "replication"))
    return False


class _Sentinel:
    """One sentinel process."""

    def __init__(self, master: int, *, quorum: int) -> None:
        self.port = 0
        self._home = Path(tempfile.mkdtemp(dir="/tmp", prefix="sms"))
        self._configuration = [
            "bind 127.0.0.1",
            f"dir {self._home}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {master} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} 500",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]

    def __enter__(self) -> Self:
        self._launch()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None:  # another process took the port before
                self._launch()
            if time.monotonic() > deadline:
                told = (self._home / "log").read_text()
                self.__exit__(None, None, None)
                raise AssertionError(told)
            time.sleep(0.01)
        return self

    def _launch(self) -> None:
        self.port = free_port()
        file = self._home / "sentinel.conf"
        file.write_text("\n".join([f"port {self.port}", *self._configuration]) + "\n")
        with (self._home / "log").open("wb") as log:
            words = [str(find_server().path), str(file), "--sentinel"]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)

    def _answers(self) -> bool:
        with suppress(RedisError, OSError), Redis(port=self.port, protocol=2) as client:
            server: Any = client.info("server")
            return bool(server["process_id"] == self._process.pid)
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._home)


def _is_ready(port: int, *, others: int) -> bool:
    with suppress(RedisError, OSError), Redis(port=port, protocol=2) as client:
        state: Any = client.sentinel_master(SERVICE)
        return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == others)
    return False


# -- TLS ------------------------------------------------------------------------------------------


class Certificates:
    """An authority, and what it has signed for a server on loopback and for a client, as files."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.authority = folder / "authority.pem"
        self.client = folder / "client.pem"
        self.client_key = folder / "client.key"
        self._authority.cert_pem.write_to_path(str(self.authority))
        signed = self._authority.issue_cert("agent@example.org")
        signed.cert_chain_pems[0].write_to_path(str(self.client))
        signed.private_key_pem.write_to_path(str(self.client_key))

    def of_server(self, name: str = "127.0.0.1", *, asks_clients: bool = False) -> ssl.SSLContext:
        """What a server needs that bears this name, and perhaps wants certificates of its clients."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert(name).configure_cert(context)
        if asks_clients:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _text(reply: object) -> str:
    if isinstance(reply, dict):
        return "\n".join(f"{name}:{value}" for name, value in reply.items())
    return reply.decode() if isinstance(reply, bytes) else str(reply)
