"""Completion of names by the shell: it asks the server in use for a moment, starts none, and fails in silence."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import typer

from sharedmem.clock import SystemClock, new_id
from sharedmem.config import Settings
from sharedmem.errors import SharedMemoryError
from sharedmem.faces.cli.session import Options, with_operator_access
from sharedmem.redis.address import parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import open_client
from sharedmem.redis.keys import KeySpace, escape_glob, plain_name
from sharedmem.redis.name_index import NameIndex
from sharedmem.redis.scope import Identity, Scope

WORDS = "sharedmem.words"
"""Under this name a context keeps all words before the one that is completed."""
_SHELL = "_SHAREDMEM_COMPLETE"
PATIENCE_S = 1.0
_MOST = 200
_MOST_QUEUES = 10_000
_NAMESPACE = frozenset({"--namespace", "-n"})
_OTHER_VALUES = frozenset({"--url", "--actor", "--data-dir"})


class _NameLookup:
    """What a name begins with, and where the rest of it is looked up."""

    def __init__(self, line: RedisClient, scope: Scope, beginning: str) -> None:
        self._client = line
        self._scope = scope
        self._beginning = beginning

    async def namespaces(self) -> set[str]:
        keyspace = self._scope.keyspace
        pages = self._client.scan(keyspace.clocks(), near=None)
        return await self._gathered(pages, lambda key: keyspace.logical(key).partition(":")[0])

    async def keys(self) -> set[str]:
        keyspace, identity = self._scope.keyspace, self._scope.identity
        namespace, absolute, rest = self._beginning.partition(":")
        if not absolute:
            namespace, rest = identity.namespace, f"{identity.scope}:{self._beginning}"
        own = f"{identity.namespace}:{identity.scope}:"

        def name(physical: bytes) -> str:
            key = keyspace.logical(physical)
            plain = key.removeprefix(own)
            if keyspace.is_service(physical) or not identity.may("read", key):
                return ""
            return key if absolute else plain if plain != key and ":" not in plain else ""

        pattern = keyspace.pattern(namespace, f"{escape_glob(rest)}*")
        return await self._gathered(self._client.scan(pattern, near=keyspace.space(namespace).clock), name)

    async def queues(self) -> set[str]:
        home = self._scope.home
        found = await NameIndex(self._client, self._scope.keyspace, home).page(("queue",), limit=_MOST_QUEUES)
        names = {plain_name(f"{home.namespace}:{one.name}", home.namespace) for one in found}
        return {name for name in names if name.startswith(self._beginning)}

    async def _gathered(self, pages: AsyncIterator[list[bytes]], name: Callable[[bytes], str]) -> set[str]:
        found: set[str] = set()
        async for page in pages:
            found |= {named for key in page if (named := name(key)) and named.startswith(self._beginning)}
            if len(found) >= _MOST:
                break
        return found


_Look = Callable[[_NameLookup], Awaitable[set[str]]]


def keys(context: typer.Context, incomplete: str) -> list[str]:
    """The keys that begin so, or where the word before asks for a namespace, the namespaces."""
    return _complete(context, incomplete, _NameLookup.keys)


def queues(context: typer.Context, incomplete: str) -> list[str]:
    """The queues that begin so, likewise."""
    return _complete(context, incomplete, _NameLookup.queues)


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """The namespaces that begin so."""
    return _complete(context, incomplete, _NameLookup.namespaces)


def _complete(context: typer.Context, incomplete: str, look: _Look) -> list[str]:
    before = context.find_root().meta.get(WORDS, ())
    if before and before[-1] in _OTHER_VALUES:
        return []
    if before and before[-1] in _NAMESPACE:
        look = _NameLookup.namespaces
    cut = os.environ.get(_CUT, "")
    try:
        found = asyncio.run(_find_names(_options_of(context), cut + incomplete, look))
    except (SharedMemoryError, OSError):  # a line that is being typed is no place for complaints
        return []
    return [name.removeprefix(cut) for name in sorted(found)[:_MOST]]


def _options_of(context: typer.Context) -> Options:
    given: dict[str, Any] = context.find_root().params
    return Options(given.get("url"), given.get("namespace"), given.get("actor"), data_dir=given.get("data_dir"))


async def _find_names(options: Options, incomplete: str, look: _Look) -> set[str]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            settings = await asyncio.to_thread(options.settings)
            async with _connect(with_operator_access(settings)) as line:
                if line is None:
                    return set()
                identity = Identity(settings.namespace, settings.actor, policy=with_operator_access(settings).access)
                scope = Scope(KeySpace(settings.prefix, new_id()), identity)
                return await look(_NameLookup(line, scope, incomplete))
    except TimeoutError:
        return set()


@asynccontextmanager
async def _connect(settings: Settings) -> AsyncIterator[RedisClient | None]:
    """Return a connection to the server in use; None without a running server."""
    url = settings.redis_url
    if url is None:
        from sharedmem.embedded import server  # noqa: PLC0415  # commands do without

        known = await server.status(settings.data_dir)
        url = known.url if known.running else None
    if url is None:
        yield None
        return
    line = open_client(parse_address(url, settings), settings, SystemClock())
    try:
        yield line
    finally:
        await line.close()


# -- the line that the shell completes ------------------------------------------------------------


def words_before(environment: Mapping[str, str]) -> list[str]:
    """Return the words in front of the one that the shell completes; none if it completes none."""
    if _SHELL not in environment:
        return []
    line, count = environment.get("COMP_WORDS", ""), int(environment.get("COMP_CWORD", "0"))
    if "_TYPER_COMPLETE_ARGS" in environment:  # of the other shells
        line = environment["_TYPER_COMPLETE_ARGS"].rpartition(" ")[0]
        count = len(line)
    try:
        return shlex.split(line)[1:count]
    except ValueError:  # a quotation that is not closed yet
        return []


# -- bash cuts words at colons --------------------------------------------------------------------

_CUT = "_SHAREDMEM_COMPLETE_CUT"
"""Holds the text before the last colon of the completed word, where the shell has cut it there."""


def rejoin_words_at_colons(environment: MutableMapping[str, str]) -> None:
    """Undo that bash cuts `chat:team` into three words; of the last one it wants what follows the last colon."""
    if environment.get(_SHELL) != "complete_bash" or "COMP_WORDS" not in environment:
        return
    separator = "\n" if "\n" in environment["COMP_WORDS"] else " "
    at = int(environment.get("COMP_CWORD", "0"))
    words = (environment["COMP_WORDS"].split(separator) + [""] * at)[: at + 1]
    joined = words[:1]
    for before, word in pairwise(words):
        if len(joined) > 1 and (word.startswith(":") or before.endswith(":")):
            joined[-1] += word
        else:
            joined.append(word)
    if len(joined) == len(words):
        return
    before, colon, joined[-1] = joined[-1].rpartition(":")
    environment[_CUT] = before + colon
    environment["COMP_WORDS"] = separator.join(joined)
    environment["COMP_CWORD"] = str(len(joined) - 1)
